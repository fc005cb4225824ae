//! End-to-end tests of `interflow exec` (exit code, signals, environment, summary), and of logging and shutdown of
//! `interflow run`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Origin, Wire, client, client_trusting};

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).current_dir(home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_RECORD_DIR", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn exec(home: &Path, script: &str) -> Output {
    interflow(home, &["exec", "--", "sh", "-c", script]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits for the file that the script writes.
fn file(path: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(said) = std::fs::read_to_string(path) {
            return said.trim().to_owned();
        }
        assert!(Instant::now() < deadline, "{} is never written", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that prints its proxy address and exits on request.
const WAITS: &str = "echo $http_proxy > part; mv part proxy; while [ ! -e over ]; do sleep 0.05; done";

fn proxy_of(home: &Path) -> SocketAddr {
    file(&home.join("proxy")).trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

fn end(home: &Path, child: Child) -> Output {
    std::fs::write(home.join("over"), "").unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn exit_code_is_that_of_the_command() {
    let home = tempfile::tempdir().unwrap();
    let said = exec(home.path(), "exit 7");
    assert_eq!(said.status.code(), Some(7), "{}", text(&said.stderr));
    assert!(text(&said.stderr).contains("no requests were sent through the proxy"), "{}", text(&said.stderr));
    let missing = interflow(home.path(), &["exec", "--", "/no/such/command"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127), "{}", text(&missing.stderr));
    let refused = interflow(home.path(), &["exec", "--secret", "A=none", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let killed = exec(home.path(), "kill -KILL $$");
    assert!(!text(&killed.stderr).contains("not closed"), "an error closes the store: {}", text(&killed.stderr));
    assert_eq!(killed.status.code(), Some(137), "as a shell tells it");
}

#[test]
fn the_summary_says_that_nothing_is_recorded() {
    let home = tempfile::tempdir().unwrap();
    let mut command = interflow(home.path(), &["exec", "--", "true"]);
    let said = text(&command.env("INTERFLOW_RECORD_ENABLED", "false").output().unwrap().stderr);
    assert!(said.contains("no requests were recorded: record.enabled is false"), "{said}");
}

#[test]
fn command_environment_contains_proxy_and_trust_settings() {
    let home = tempfile::tempdir().unwrap();
    let said = exec(home.path(), "env");
    let names: Vec<String> = text(&said.stdout).lines().filter_map(|l| Some(l.split_once('=')?.0.to_owned())).collect();
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "http_proxy",
        "https_proxy",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "AWS_CA_BUNDLE",
        "CARGO_HTTP_CAINFO",
        "DENO_CERT",
        "JAVA_TOOL_OPTIONS",
        "WGETRC",
        "npm_config_cafile",
        "YARN_CAFILE",
        "YARN_HTTPS_CA_FILE_PATH",
        "BUNDLE_SSL_CA_CERT",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} is not set: {names:?}");
    }
}

#[test]
fn command_environment_contains_no_admin_secrets() {
    let home = tempfile::tempdir().unwrap();
    let secrets =
        ["INTERFLOW_TOKEN", "INTERFLOW_ADMIN_TOKEN", "INTERFLOW_MEDIA_API_PASSWORD", "INTERFLOW_REDACT_SECRET"];
    let mut command = interflow(home.path(), &["exec", "--quiet", "--", "env"]);
    for name in secrets {
        command.env(name, "never-hand-this-on-0123456789abcdef");
    }
    let said = command.env("INTERFLOW_LOG", "warn").output().unwrap();
    let text = text(&said.stdout);
    assert!(text.contains("INTERFLOW_LOG=warn") && text.contains("INTERFLOW_DATA_DIR="), "{text}{said:?}");
    assert!(!text.contains("never-hand-this-on"), "{text}");
}

#[test]
fn unknown_variable_is_reported_once_without_failing_the_command() {
    let home = tempfile::tempdir().unwrap();
    let mut command = interflow(home.path(), &["config", "check"]);
    for (name, value) in [
        ("INTERFLOW_SERVICE_HOST", "10.0.0.1"),
        ("INTERFLOW_PORT_7070_TCP_ADDR", "10.0.0.1"),
        ("INTERFLOW_BIN", "interflow"),
        ("INTERFLOW_INTERCEPT_MOD", "none"),
    ] {
        command.env(name, value);
    }
    let said = command.output().unwrap();
    let errors = text(&said.stderr);
    assert!(said.status.success(), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("INTERFLOW_INTERCEPT_MOD") && errors.contains("INTERFLOW_INTERCEPT_MODE?"), "{errors}");
}

#[cfg(unix)]
#[test]
fn signals_are_forwarded_to_the_command() {
    let home = tempfile::tempdir().unwrap();
    let script = "trap 'exit 9' TERM; echo up > ready; while :; do sleep 0.05; done";
    let child = interflow(home.path(), &["exec", "--", "sh", "-c", script]).stderr(Stdio::null()).spawn().unwrap();
    file(&home.path().join("ready"));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(9));
}

#[tokio::test]
async fn exec_summary_counts_flows_and_names_their_location() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let run = |words: &[&str]| {
        let all = [&["exec"], words, &["--", "sh", "-c", WAITS]].concat();
        interflow(home.path(), &all).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let child = run(&[]);
    let answer = client::get_through(proxy_of(home.path()), &origin.url("/bytes/1500")).await.unwrap();
    assert_eq!(answer.status, 200);
    let said = text(&end(home.path(), child).stderr);
    assert!(said.contains("interflow: 1 flow") && said.contains("1.5 kB received"), "{said}");
    assert!(said.contains("interflow flows list shows it") && !said.contains("INTERFLOW_RECORD_DIR"), "{said}");
    let listed = text(&interflow(home.path(), &["flows", "list"]).output().unwrap().stdout);
    assert!(listed.contains("/bytes/1500"), "{listed}");

    // With two concurrent commands, the second one records in a separate directory.
    for name in ["proxy", "over"] {
        std::fs::remove_file(home.path().join(name)).unwrap();
    }
    let first = run(&[]);
    proxy_of(home.path());
    std::fs::remove_file(home.path().join("proxy")).unwrap();
    let second = run(&[]);
    let proxy = proxy_of(home.path());
    for path in ["/bytes/1", "/bytes/2"] {
        client::get_through(proxy, &origin.url(path)).await.unwrap();
    }
    let said = text(&end(home.path(), second).stderr);
    drop(first.wait_with_output());
    assert!(said.contains("interflow: 2 flows"), "{said}");
    let place = said.split("INTERFLOW_RECORD_DIR=").nth(1).and_then(|s| s.split(' ').next());
    let place = place.unwrap_or_else(|| panic!("it does not say where: {said}"));
    let listed = interflow(home.path(), &["flows", "list"]).env("INTERFLOW_RECORD_DIR", place).output().unwrap();
    assert!(text(&listed.stdout).contains("/bytes/2"), "{}{}", text(&listed.stdout), text(&listed.stderr));
}

/// Connects as libraries of Node do: by itself (`ws`), with an agent of its own (superagent), and to the proxy (axios).
const NODE_LIBRARIES: &str = r#"
const http = require('http'), net = require('net');
const { hostname, port } = new URL(process.env.HTTP_PROXY);
const origin = process.argv[1], url = new URL(origin);
const ways = [
  ['/own-connection', { createConnection: (options) => net.connect(options) }],
  ['/own-agent', { agent: new http.Agent() }],
  ['/no-agent', { agent: false }],
  ['/absolute-form', { host: hostname, port, path: origin + '/absolute-form', headers: { host: url.host } }],
];
(async () => {
  for (const [path, more] of ways) {
    const options = { host: url.hostname, port: url.port, path, ...more };
    await new Promise((done, failed) => {
      http.get(options, (response) => response.resume().on('end', () => done())).on('error', (e) => failed(new Error(`${path}: ${e}`)));
    });
  }
})();
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libraries_of_node_that_do_not_use_the_default_agent_are_behind_the_proxy() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let url = origin.url("");
    let words = ["exec", "--", "node", "-e", NODE_LIBRARIES, url.trim_end_matches('/')];
    let output = interflow(home.path(), &words).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("interflow: 4 flows"), "{said}");
    let listed = text(&interflow(home.path(), &["flows", "list"]).output().unwrap().stdout);
    for path in ["/own-connection", "/own-agent", "/no-agent", "/absolute-form"] {
        assert!(listed.contains(path), "{path} in {listed}");
    }
}

#[tokio::test]
async fn a_private_instance_needs_no_password_and_does_not_use_the_configured_ports() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    std::fs::write(home.path().join("users"), "u:$2b$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6\n")
        .unwrap();
    let config = format!(
        "[proxy]\nproxy_protocol_trusted = [\"127.0.0.0/8\"]\n[[proxy.reverse]]\nlisten = \"{taken}\"\n\
         [auth]\nusers = \"users\"\n"
    );
    std::fs::write(home.path().join("c.toml"), config).unwrap();
    let child = interflow(home.path(), &["exec", "-c", "c.toml", "--", "sh", "-c", WAITS])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let answer = client::get_through(proxy_of(home.path()), &origin.url("/")).await.unwrap();
    assert_eq!(answer.status, 200);
    assert!(text(&end(home.path(), child).stderr).contains("interflow: 1 flow"));
}

#[tokio::test]
async fn leaf_certificates_are_stored_on_disk_if_configured() {
    let origin = Origin::https().start().await;
    for kept in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let child = interflow(home.path(), &["exec", "--danger-insecure-upstream", "--", "sh", "-c", WAITS])
            .env("INTERFLOW_INTERCEPT_PERSIST_LEAVES", kept.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let wire = client::connect_tunnel(proxy_of(home.path()), &origin.authority(), None).await.unwrap();
        let ca = std::fs::read_to_string(home.path().join("ca/ca.pem")).unwrap();
        let host = origin.authority();
        let name = host.split(':').next().unwrap();
        wire.into_tls(name, client_trusting(&ca, &["http/1.1"])).await.unwrap();
        assert_eq!(home.path().join("ca/leaves").is_dir(), kept);
        end(home.path(), child);
    }
}

#[tokio::test]
async fn exec_command_gets_temporary_credentials_from_an_instance_with_users() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    std::fs::write(home.path().join("users"), "u:$2b$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6\n")
        .unwrap();
    let rule = "[[access.rule]]\naction = \"deny\"\nusers = [\"exec\"]\nhosts = [\"denied.test\"]\n";
    std::fs::write(home.path().join("c.toml"), format!("[auth]\nusers = \"users\"\n{rule}")).unwrap();
    let anywhere = "127.0.0.1:0";
    let mut instance =
        interflow(home.path(), &["run", "-c", "c.toml", "--listen-proxy", anywhere, "--listen-gateway", anywhere])
            .args(["--listen-admin", anywhere])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let announced: serde_json::Value = serde_json::from_str(&file(&home.path().join("instance.json"))).unwrap();
    let proxy: SocketAddr = announced["proxy"][0].as_str().unwrap().parse().unwrap();
    assert_eq!(client::get_through(proxy, &origin.url("/")).await.unwrap().status, 407);
    let said = interflow(home.path(), &["exec", "--quiet", "--", "sh", "-c", "echo $HTTP_PROXY"]).output().unwrap();
    let url = text(&said.stdout).trim().to_owned();
    let given = url.strip_prefix("http://").and_then(|u| u.split('@').next()).unwrap_or_else(|| panic!("{said:?}"));
    assert!(given.starts_with("exec:") && url.ends_with(&format!("@{proxy}")), "{url}");
    let (name, password) = given.split_once(':').unwrap();
    let get = async |host: &str, login: Option<client::ProxyLogin<'_>>| {
        let login = login.map(|l| format!("Proxy-Authorization: {}\r\n", l.basic())).unwrap_or_default();
        let mut wire = Wire::connect(proxy).await.unwrap();
        wire.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{login}\r\n")).await.unwrap();
        wire.answer().await.unwrap().status
    };
    // After the command has exited, its credentials are invalid.
    assert_eq!(get(&origin.authority(), Some(client::ProxyLogin { user: name, password })).await, 407);

    let child = interflow(home.path(), &["exec", "--quiet", "--", "sh", "-c", WAITS])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let url = file(&home.path().join("proxy"));
    let (name, password) = url.trim()["http://".len()..].split('@').next().unwrap().split_once(':').unwrap();
    let login = || Some(client::ProxyLogin { user: name, password });
    assert_eq!(get(&origin.authority(), login()).await, 200);
    assert_eq!(get("denied.test", login()).await, 403, "rules by user hold for it");
    assert_eq!(get(&origin.authority(), Some(client::ProxyLogin { user: "u", password })).await, 407);
    end(home.path(), child);
    let _ = instance.kill();
    let _ = instance.wait();
}

/// `interflow run` on free ports, with this configuration.
fn instance(home: &Path, config: &str, log: Stdio) -> (Child, SocketAddr) {
    std::fs::write(home.join("c.toml"), config).unwrap();
    let anywhere = "127.0.0.1:0";
    let words =
        ["run", "-c", "c.toml", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere];
    let child = interflow(home, &words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let announced: serde_json::Value = serde_json::from_str(&file(&home.join("instance.json"))).unwrap();
    (child, announced["proxy"][0].as_str().unwrap().parse().unwrap())
}

#[tokio::test]
async fn exec_summary_reports_clients_that_do_not_trust_the_ca() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::https().start().await;
    let child = interflow(home.path(), &["exec", "--danger-insecure-upstream", "--", "sh", "-c", WAITS])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (proxy, host) = (proxy_of(home.path()), origin.authority());
    for _ in 0..2 {
        let wire = client::connect_tunnel(proxy, &host, None).await.unwrap();
        let name = host.split(':').next().unwrap();
        let trusts = client_trusting(origin.ca().pem(), &["http/1.1"]);
        assert!(wire.into_tls(name, trusts).await.is_err(), "it is shown a certificate that it does not trust");
    }
    let said = text(&end(home.path(), child).stderr);
    assert!(
        said.contains("2 TLS handshakes were refused or abandoned by the client: it probably does not trust the CA")
            && said.contains("flows list error:client_tls"),
        "{said}"
    );
}

#[test]
fn a_trace_log_beside_the_watched_configuration_is_no_change_of_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("log");
    let log = std::fs::File::create(&path).unwrap();
    let (mut child, _) = instance(home.path(), "[log]\nlevel = \"trace\"\n", log.into());
    // The lines of the log, once the configuration was changed and reloaded so often.
    let lines_after = |reloads: usize| {
        let text = format!("[log]\nlevel = \"trace\"\n[proxy]\nvia = \"x{reloads}\"\n");
        std::fs::write(home.path().join("c.toml"), text).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.matches("reloaded").count() >= reloads {
                return text.lines().count();
            }
            assert!(Instant::now() < deadline, "the change is never seen");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // Polls pass between one reload and the next; if the log's own lines were changes, it would fill by itself.
    let lines = lines_after(1);
    let more = lines_after(2) - lines;
    assert!(more < 100, "{more} lines between two reloads");
    let log = std::fs::read_to_string(&path).unwrap();
    assert_eq!(log.matches("reloaded").count(), 2, "the log is not reloaded for");
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(unix)]
#[tokio::test]
async fn stopped_instance_resolves_pending_requests_and_exits() {
    for (config, signal) in [("[approvals]\nmode = \"ask\"\n", "-INT"), ("[rules]\nfiles = [\"held.yaml\"]\n", "-TERM")]
    {
        let home = tempfile::tempdir().unwrap();
        let origin = Origin::http().start().await;
        let rules = "rules:\n  - name: hold\n    when: path:/held\n    then:\n      - hold: { timeout: 1h }\n";
        std::fs::write(home.path().join("held.yaml"), rules).unwrap();
        // A host name, because local addresses need no approval.
        let more = "[proxy]\ndrain_timeout = \"1h\"\n[upstream]\nhosts = { \"held.test\" = [\"127.0.0.1\"] }\n";
        let (mut child, proxy) = instance(home.path(), &format!("{config}{more}"), Stdio::null());
        let mut wire = Wire::connect(proxy).await.unwrap();
        let host = format!("held.test:{}", origin.port());
        wire.send(format!("GET http://{host}/held HTTP/1.1\r\nHost: {host}\r\n\r\n")).await.unwrap();
        let held = |words: &[&str]| text(&interflow(home.path(), words).output().unwrap().stdout);
        let deadline = Instant::now() + Duration::from_secs(60);
        let port = origin.port().to_string();
        while !held(&["pending", "list"]).contains(&port) {
            assert!(Instant::now() < deadline, "nothing is held");
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("x-interflow-error")), (503, Some("draining")), "{config}");
        assert!(answer.text().contains("stopped"), "{}", answer.text());
        let deadline = Instant::now() + Duration::from_secs(60);
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it still waits for its drain");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn drain_delay_keeps_accepting_after_sigterm_while_readyz_fails() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let (mut child, proxy) = instance(home.path(), "[proxy]\ndrain_delay = \"1h\"\n", Stdio::null());
    let announced: serde_json::Value = serde_json::from_str(&file(&home.path().join("instance.json"))).unwrap();
    let admin: SocketAddr = announced["admin"].as_str().unwrap().parse().unwrap();
    let ready = async || {
        let mut wire = Wire::connect(admin).await.unwrap();
        wire.send(format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")).await.unwrap();
        wire.answer().await.unwrap().status
    };
    assert_eq!(ready().await, 200);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(60);
    while ready().await != 503 {
        assert!(Instant::now() < deadline, "/readyz never turns");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(client::get_through(proxy, &origin.url("/")).await.unwrap().status, 200);
    // A second signal stops it immediately.
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline + Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!home.path().join("instance.json").exists());
}

/// A program that keeps its arguments, its environment and the files that they name, in place of a container engine.
#[cfg(unix)]
const ENGINE: &str = r#"#!/bin/sh
case " $* " in *" config --services "*) printf 'web\ndb\n'; exit 0;; esac
printf '%s\n' "$@" > "$OUT/arguments"
env > "$OUT/environment"
for a; do case "$a" in
  --env-file=*) cp "${a#--env-file=}" "$OUT/variables"; ls -l "${a#--env-file=}" > "$OUT/mode";;
  --volume=*) a=${a#--volume=}; cp "${a%%:*}"/* "$OUT";;
  *.compose.yaml) cp "$a" "$OUT/override";;
esac; done
exit 5
"#;

/// Runs `interflow exec` with that program as Docker and Podman; returns what was said, and a folder with what it kept.
#[cfg(unix)]
fn exec_engine(home: &Path, folder: &Path, words: &[&str]) -> Output {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    for name in ["docker", "podman"] {
        let path = folder.join("bin").join(name);
        std::fs::write(&path, ENGINE).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = interflow(home, &[&["exec", "--docker"], words].concat());
    command.env("PATH", path).env("OUT", folder).env("http_proxy", "http://other.test:1").current_dir(folder);
    command.env_remove("COMPOSE_FILE").output().unwrap()
}

/// The fields of a file of variables.
#[cfg(unix)]
fn variable(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("{name} is not set: {text}")).to_owned()
}

#[cfg(unix)]
#[tokio::test]
async fn a_container_gets_the_proxy_the_ca_and_a_user_name_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let kept = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
    let (mut child, proxy) = instance(home.path(), "", Stdio::null());
    let said =
        exec_engine(home.path(), out.path(), &["--", "docker", "-D", "run", "--rm", "-e", "A=1", "alpine", "env"]);
    assert_eq!(said.status.code(), Some(5), "{said:?}");
    let arguments = kept("arguments");
    let words: Vec<_> = arguments.lines().collect();
    assert_eq!(words[..2], ["-D", "run"]);
    assert_eq!(words[words.len() - 5..], ["--rm", "-e", "A=1", "alpine", "env"], "the user's own options win");
    let volume = format!("--volume={}/trust/container:/etc/interflow-trust:ro", home.path().display());
    assert!(words.iter().any(|w| w.starts_with(&volume)), "{arguments}");
    assert_eq!(words.contains(&"--network=host"), cfg!(target_os = "linux"), "{arguments}");
    let variables = kept("variables");
    let url = variable(&variables, "https_proxy");
    assert!(url.starts_with("http://container:"), "{url}");
    if cfg!(target_os = "linux") {
        assert!(url.ends_with(&format!("@{proxy}")), "{url}");
        let refused = exec_engine(home.path(), out.path(), &["--", "podman", "run", "--network", "back", "alpine"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains("out of reach in a network `back`"), "{refused:?}");
    }
    for (name, file) in [("SSL_CERT_FILE", "bundle.pem"), ("NODE_EXTRA_CA_CERTS", "bundle.pem"), ("WGETRC", "wgetrc")] {
        assert_eq!(variable(&variables, name), format!("/etc/interflow-trust/{file}"));
    }
    let ca = std::fs::read_to_string(home.path().join("ca/ca.pem")).unwrap();
    assert!(kept("bundle.pem").starts_with(&ca));
    assert!(kept("wgetrc").contains("ca_certificate = /etc/interflow-trust/bundle.pem"));
    // The engine keeps its own settings, and the password is neither in its arguments nor left behind.
    assert_eq!(variable(&kept("environment"), "http_proxy"), "http://other.test:1");
    assert!(kept("mode").starts_with("-rw-------") && !arguments.contains("http://"), "{arguments}");
    let left = std::fs::read_dir(home.path()).unwrap().flatten().map(|e| e.file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("exec-")));
    let other = exec_engine(home.path(), out.path(), &["--", "docker", "ps"]);
    assert!(other.status.code() == Some(2) && text(&other.stderr).contains("docker compose up"), "{other:?}");
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(unix)]
#[tokio::test]
async fn services_of_compose_get_the_proxy_by_an_override_file() {
    let home = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let kept = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
    std::fs::write(out.path().join("compose.yaml"), "services: {}\n").unwrap();
    std::fs::write(out.path().join("compose.override.yaml"), "services: {}\n").unwrap();
    std::fs::write(home.path().join("c.toml"), "").unwrap();
    let words = ["run", "-c", "c.toml", "--listen-proxy", "0.0.0.0:0", "--listen-gateway", "127.0.0.1:0"];
    let mut instance = interflow(home.path(), &words);
    let instance = instance.args(["--listen-admin", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = instance.spawn().unwrap();
    let announced: serde_json::Value = serde_json::from_str(&file(&home.path().join("instance.json"))).unwrap();
    let port = announced["proxy"][0].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let said = exec_engine(home.path(), out.path(), &["--", "docker", "compose", "-p", "x", "up", "--build"]);
    assert_eq!(said.status.code(), Some(5), "{said:?}");
    let arguments = kept("arguments");
    let words: Vec<_> = arguments.lines().map(|w| w.rsplit('/').next().unwrap()).collect();
    let [.., last, up, build] = words[..] else { panic!("{arguments}") };
    assert_eq!(words[..7], ["compose", "-p", "x", "--file", "compose.yaml", "--file", "compose.override.yaml"]);
    assert!(last.ends_with(".compose.yaml") && [up, build] == ["up", "--build"], "{arguments}");
    let settings: serde_json::Value = serde_json::from_str(&kept("override")).unwrap();
    for service in ["web", "db"] {
        let service = &settings["services"][service];
        let url = service["environment"]["HTTP_PROXY"].as_str().unwrap();
        assert!(
            url.starts_with("http://container:") && url.ends_with(&format!("@host.docker.internal:{port}")),
            "{url}"
        );
        assert_eq!(service["environment"]["NO_PROXY"], "web,db");
        assert_eq!(service["extra_hosts"][0], "host.docker.internal:host-gateway");
    }
    let named = exec_engine(home.path(), out.path(), &["--", "docker", "compose", "-f", "own.yaml", "up"]);
    assert_eq!(named.status.code(), Some(5), "{named:?}");
    assert!(!kept("arguments").contains("compose.override.yaml"), "{}", kept("arguments"));
    let _ = child.kill();
    let _ = child.wait();
}
