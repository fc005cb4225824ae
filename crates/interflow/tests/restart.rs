//! `interflow restart` (SIGUSR2) and socket activation: listening sockets outlive the process.
#![cfg(unix)]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt as _, FdMapping};
use interflow_testkit::{Origin, client};
use serde_json::Value;

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).current_dir(home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_RECORD_DIR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

/// What `instance.json` contains once the instance has started.
fn announced(home: &Path, child: &mut Child) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(info) = std::fs::read(home.join("instance.json")).ok().and_then(|t| serde_json::from_slice(&t).ok())
        {
            return info;
        }
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "the instance does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn address(info: &Value, pointer: &str) -> SocketAddr {
    info.pointer(pointer).and_then(Value::as_str).unwrap().parse().unwrap()
}

fn start(home: &Path) -> (Child, Value) {
    std::fs::write(home.join("c.toml"), "").unwrap();
    let any = "127.0.0.1:0";
    let words = ["run", "-c", "c.toml", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
    let mut child = interflow(home, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let info = announced(home, &mut child);
    (child, info)
}

fn restart(home: &Path, timeout: &str) -> Output {
    interflow(home, &["restart", "--timeout", timeout]).output().unwrap()
}

fn stop(home: &Path, mut child: Child) {
    assert!(interflow(home, &["stop"]).output().unwrap().status.success());
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_refused_or_lost_while_the_instance_restarts() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let (child, before) = start(home.path());
    let (proxy, url) = (address(&before, "/proxy/0"), origin.url("/"));
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, url) = (Arc::clone(&over), url.clone());
            // One connection per request, so that each is accepted by one process or the other.
            tokio::spawn(async move {
                let mut answered = 0;
                while !over.load(Relaxed) {
                    assert_eq!(client::get_through(proxy, &url).await.expect("never refused").status, 200);
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    for _ in 0..2 {
        let folder = home.path().to_owned();
        let done = tokio::task::spawn_blocking(move || restart(&folder, "60s")).await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(String::from_utf8_lossy(&done.stdout).starts_with("restarted (process "));
    }
    over.store(true, Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    let after: Value = serde_json::from_slice(&std::fs::read(home.path().join("instance.json")).unwrap()).unwrap();
    assert_eq!(after, before, "the same process and ports");
    let status = interflow(home.path(), &["status", "--format", "json"]).output().unwrap();
    assert!(status.status.success(), "the admin port is served: {status:?}");
    stop(home.path(), child);
    let count = interflow(home.path(), &["flows", "count"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&count.stdout).trim(), answered.to_string(), "{count:?}");
}

/// A file in the data directory that a start cannot use, and what is said of it.
struct BadFile {
    name: &'static str,
    text: &'static str,
    config: &'static str,
    says: &'static str,
}

#[tokio::test]
async fn an_instance_goes_on_if_its_successor_could_not_start() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let (mut child, info) = start(home.path());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let reverse = format!("[[proxy.reverse]]\nlisten = \"{}\"\nport = 80\n", taken.local_addr().unwrap());
    std::fs::create_dir(home.path().join("busy")).unwrap();
    let busy = std::fs::File::create(home.path().join("busy/lock")).unwrap();
    busy.lock().unwrap();
    let bad = |name, text, config, says| BadFile { name, text, config, says };
    let with_config = |config: &'static str, says| bad("unused", "", config, says);
    let own_rules = "[rules]\nfiles = [\"none.yaml\"]\n";
    let key = "[llm.provider.openai]\napi_key = \"env:INTERFLOW_TEST_UNSET\"\n";
    let schema = "[llm.guardrail.g]\nkind = \"json_schema\"\napply_to = \"output\"\nschema = \"none.json\"\n";
    let pattern = "[llm.guardrail.g]\nkind = \"regex\"\npatterns = [\"(\"]\n";
    for (case, by_check) in [
        (with_config("[proxy]\nlisten = \"nowhere\"\n", "c.toml:2:10"), true),
        (bad("rules.yaml", "rules: [{nonsense: 1}]", "", "nonsense"), true),
        (with_config(own_rules, "none.yaml"), true),
        (bad("policy.toml", "x = [", "", "policy.toml"), true),
        (bad("keys.toml", "x = [", "", "keys.toml"), true),
        (with_config(key, "INTERFLOW_TEST_UNSET"), true),
        (with_config(schema, "none.json"), true),
        (with_config(pattern, "patterns"), true),
        (bad("ca/ca.key", "no key", "", "ca.key"), true),
        (with_config("[workers]\ncount = 100000\n", "at most 1024"), true),
        (with_config("[record]\ndir = \"c.toml\"\n", "is not a directory"), true),
        (with_config("[record]\ndir = \"busy\"\n", "being written by another process"), false),
        (with_config("", "in use"), false),
    ] {
        let path = home.path().join(case.name);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, case.text).unwrap();
        let config = if by_check || !case.config.is_empty() { case.config } else { &reverse };
        std::fs::write(home.path().join("c.toml"), config).unwrap();
        let refused = restart(home.path(), "50s");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{}: {text}", case.says);
        assert!(text.contains("goes on and does not restart") && text.contains(case.says), "{}: {text}", case.says);
        let check = interflow(home.path(), &["-c", "c.toml", "config", "check"]).output().unwrap();
        assert_eq!(!check.status.success(), by_check, "{}: {check:?}", case.says);
        assert!(child.try_wait().unwrap().is_none(), "{}", case.says);
        assert_eq!(client::get_through(address(&info, "/proxy/0"), &origin.url("/")).await.unwrap().status, 200);
        match before {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    // What was mended is used, and nothing that was tried is left.
    drop(taken);
    let done = restart(home.path(), "50s");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(client::get_through(address(&info, "/proxy/0"), &origin.url("/")).await.unwrap().status, 200);
    stop(home.path(), child);
    let nobody = restart(home.path(), "2s");
    assert_eq!(nobody.status.code(), Some(3), "{}", String::from_utf8_lossy(&nobody.stderr));
}

#[tokio::test]
async fn a_configuration_that_changes_while_the_instance_starts_is_read() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    assert!(interflow(home.path(), &["ca", "create", "own"]).output().unwrap().status.success());
    // The start waits for the certificate, which is read once.
    assert!(Command::new("mkfifo").arg(path("ca.fifo")).status().unwrap().success());
    let config = format!(
        "[intercept]\nca_certificate = \"file:{}\"\nca_key = \"file:{}\"\n",
        path("ca.fifo").display(),
        path("own/ca.key").display()
    );
    std::fs::write(path("c.toml"), &config).unwrap();
    let any = "127.0.0.1:0";
    let words = ["run", "-c", "c.toml", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
    let mut child = interflow(home.path(), &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Opened once the instance has read its configuration and opens the other end.
    let mut certificate = std::fs::File::options().write(true).open(path("ca.fifo")).unwrap();
    std::fs::write(path("r.yaml"), "rules:\n- when: {host: a.test}\n  then: {block: 418}\n").unwrap();
    std::fs::write(path("c.toml"), format!("{config}[rules]\nfiles = [\"{}\"]\n", path("r.yaml").display())).unwrap();
    std::io::Write::write_all(&mut certificate, &std::fs::read(path("own/ca.pem")).unwrap()).unwrap();
    drop(certificate);
    let info = announced(home.path(), &mut child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while client::get_through(address(&info, "/proxy/0"), "http://a.test/").await.unwrap().status != 418 {
        assert!(Instant::now() < deadline, "the change is not read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop(home.path(), child);
}

#[test]
fn a_check_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("c.toml"), "[audit]\nenabled = true\n").unwrap();
    let check = interflow(home.path(), &["-c", "c.toml", "config", "check"]).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    let names: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["c.toml"]);
}

/// A rule that starts a program: it must be the one of the user of the instance.
#[cfg(target_os = "linux")]
#[test]
fn a_data_directory_that_others_can_change_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    if std::path::Path::new("/.dockerenv").exists() || std::env::var_os("container").is_some() {
        // There the modes of volumes are those of the runtime.
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let chmod = |mode| std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    let any = "127.0.0.1:0";
    let words = ["run", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
    chmod(0o777);
    let refused = interflow(home.path(), &words).env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("chmod 700"), "{text}");
    // As an arbitrary user of OpenShift has it.
    chmod(0o770);
    let (child, _) = start(home.path());
    stop(home.path(), child);
}

#[tokio::test]
async fn sockets_of_a_service_manager_are_used_for_the_listeners_of_their_addresses() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, unknown) = (proxy.local_addr().unwrap(), other.local_addr().unwrap());
    // The first request comes before anyone accepts.
    let url = origin.url("/");
    let early = tokio::spawn(async move { client::get_through(addr, &url).await });
    let any = "127.0.0.1:0";
    // The process ID is known in the child only.
    let mut command = Command::new("sh");
    command
        .args(["-c", "LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=interflow.socket:other exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_interflow"))
        .args(["run", "--listen-proxy", &addr.to_string(), "--listen-gateway", any, "--listen-admin", any])
        .env("INTERFLOW_DATA_DIR", home.path())
        .env_remove("INTERFLOW_CONFIG")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(home.path().join("log")).unwrap());
    let mappings = [(3, proxy), (4, other)];
    let mappings = mappings.map(|(child_fd, l)| FdMapping { parent_fd: OwnedFd::from(l), child_fd });
    command.fd_mappings(mappings.into()).unwrap();
    let mut child = command.spawn().unwrap();
    // This process holds its sockets open as long as the command does.
    drop(command);
    let info = announced(home.path(), &mut child);
    assert_eq!(address(&info, "/proxy/0"), addr);
    assert_eq!(early.await.unwrap().unwrap().status, 200);
    let log = std::fs::read_to_string(home.path().join("log")).unwrap();
    assert!(log.contains(&format!("the inherited socket {unknown} is closed")), "{log}");
    assert!(std::net::TcpStream::connect(unknown).is_err());
    stop(home.path(), child);
}
