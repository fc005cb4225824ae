//! End-to-end tests of `interflow browser`: with a script in place of a browser, and with Chromium and Firefox
//! where they are installed.
#![cfg(unix)]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use interflow_testkit::{KilledOnDrop, Origin, Reply, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).current_dir(home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_RECORD_DIR", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that writes its arguments to a file, starts a process, and runs until it is ended.
const SCRIPT: &str = "#!/bin/sh\ntouch \"${1#--user-data-dir=}/cookies\"\nsleep 600 &\necho $! > helper\n\
                      printf '%s\\n' \"$@\" > part\nmv part arguments\nwait\n";

fn scripted(home: &Path, words: &[&str]) -> (Child, Vec<String>) {
    let script = home.join("scripted");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let all = [&["browser", "--browser", &script], words].concat();
    let mut command = interflow(home, &all);
    command.env("DISPLAY", ":nowhere").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let arguments = until("the script is not started", || std::fs::read_to_string(home.join("arguments")).ok());
    (child, arguments.lines().map(str::to_owned).collect())
}

fn value<'a>(arguments: &'a [String], name: &str) -> &'a str {
    arguments.iter().find_map(|a| a.strip_prefix(name)).unwrap_or_else(|| panic!("{name} is not among {arguments:?}"))
}

/// Whether the script's own process has ended. It may still await its new parent.
fn is_gone(home: &Path) -> bool {
    let pid = std::fs::read_to_string(home.join("helper")).unwrap();
    let listed = Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output().unwrap();
    matches!(text(&listed.stdout).trim().as_bytes().first(), None | Some(b'Z'))
}

/// Requests a page through the SOCKS5 proxy, without credentials.
async fn get(proxy: SocketAddr, origin: SocketAddr) -> String {
    let mut io = TcpStream::connect(proxy).await.unwrap();
    let [a, b, c, d] = match origin.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        other => panic!("{other}"),
    };
    let [high, low] = origin.port().to_be_bytes();
    io.write_all(&[5, 1, 0]).await.unwrap();
    io.write_all(&[5, 1, 0, 1, a, b, c, d, high, low]).await.unwrap();
    io.write_all(format!("GET /bytes/1500 HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut all = Vec::new();
    io.read_to_end(&mut all).await.unwrap();
    // Behind the method (2 bytes) and the reply (10).
    text(&all[12..])
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[tokio::test]
async fn a_browser_is_recorded_by_its_name_and_leaves_neither_profile_nor_processes() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let (child, arguments) = scripted(home.path(), &["localhost:1/x", "--", "--incognito"]);
    let profile = PathBuf::from(value(&arguments, "--user-data-dir="));
    assert!(profile.starts_with(home.path()) && profile.join("cookies").exists());
    assert_eq!(arguments[arguments.len() - 2..], ["--incognito", "http://localhost:1/x"]);
    assert_eq!(value(&arguments, "--proxy-bypass-list="), "<-loopback>");
    let key = value(&arguments, "--ignore-certificate-errors-spki-list=");
    let derived = Command::new("sh")
        .args(["-c", "openssl x509 -in ca/ca.pem -noout -pubkey | openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(key, text(&derived.stdout).trim());
    let proxy: SocketAddr = value(&arguments, "--proxy-server=socks5://").parse().unwrap();
    assert!(get(proxy, origin.addr()).await.starts_with("HTTP/1.1 200"));
    signal(&child, "-INT");
    let said = child.wait_with_output().unwrap();
    let errors = text(&said.stderr);
    assert_eq!(said.status.code(), Some(0), "{errors}");
    assert!(errors.contains("interflow: 1 flow") && errors.contains("1.5 kB received"), "{errors}");
    assert!(!profile.exists() && is_gone(home.path()), "{errors}");
    let listed = interflow(home.path(), &["flows", "list", "user:scripted path:/bytes/1500"]).output().unwrap();
    assert!(text(&listed.stdout).contains("/bytes/1500"), "{}", text(&listed.stdout));
}

#[tokio::test]
async fn two_browsers_use_the_running_instance_at_once_and_end_with_their_input_or_a_signal() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let anywhere = "127.0.0.1:0";
    let words = ["run", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere];
    let instance = interflow(home.path(), &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _instance = KilledOnDrop(instance);
    until("the instance does not start", || home.path().join("instance.json").exists().then_some(()));
    let (first, arguments) = scripted(home.path(), &["--until-stdin-closes"]);
    // Closes standard input.
    let said = first.wait_with_output().unwrap();
    assert!(said.status.success() && is_gone(home.path()), "{said:?}");
    assert!(!Path::new(value(&arguments, "--user-data-dir=")).exists());
    let both = [(); 2].map(|()| {
        let _ = std::fs::remove_file(home.path().join("arguments"));
        scripted(home.path(), &[])
    });
    let proxies = both.each_ref().map(|(_, arguments)| value(arguments, "--proxy-server=socks5://").parse().unwrap());
    assert_ne!(proxies[0], proxies[1]);
    for proxy in proxies {
        assert!(get(proxy, origin.addr()).await.starts_with("HTTP/1.1 200"));
    }
    for (child, arguments) in both {
        signal(&child, "-TERM");
        let said = child.wait_with_output().unwrap();
        assert!(said.status.success() && text(&said.stderr).contains("interflow: 2 flows"), "{said:?}");
        assert!(!Path::new(value(&arguments, "--user-data-dir=")).exists());
    }
}

#[test]
fn a_browser_that_fails_is_reported_with_its_last_words() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("broken");
    std::fs::write(&script, "#!/bin/sh\necho 'Running as root without --no-sandbox is not supported' >&2\nexit 4\n")
        .unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let run = |display: &str| -> Output {
        let script = script.display().to_string();
        let mut command = interflow(home.path(), &["browser", "--browser", &script]);
        command.env_remove("WAYLAND_DISPLAY").env("DISPLAY", display).output().unwrap()
    };
    let said = run(":nowhere");
    assert_eq!(said.status.code(), Some(4));
    let errors = text(&said.stderr);
    assert!(errors.contains("not supported") && errors.contains("interflow browser -- --no-sandbox"), "{errors}");
    if cfg!(target_os = "linux") {
        let said = run("");
        assert!(said.status.code() == Some(1) && text(&said.stderr).contains("needs a display"), "{said:?}");
    }
    assert_eq!(std::fs::read_dir(home.path().join("browser-profiles")).unwrap().count(), 0);
}

#[tokio::test]
async fn chromium_opens_an_intercepted_page_without_a_certificate_error() {
    let home = tempfile::tempdir().unwrap();
    if !Path::new("/usr/bin/chromium").exists() {
        eprintln!("skipped: Chromium is not installed");
        return;
    }
    // Chromium would save what is not a page.
    let page = || Reply::ok("<p>seen</p>").header("Content-Type", "text/html");
    let origin = Origin::https().answering(move |_| page()).start().await;
    std::fs::write(home.path().join("origin.pem"), origin.ca().pem()).unwrap();
    std::fs::write(home.path().join("c.toml"), "[upstream]\nextra_ca = [\"origin.pem\"]\n").unwrap();
    let url = origin.url("/page?in=chromium");
    let mut command = interflow(home.path(), &["-c", "c.toml", "browser", "-b", "chromium", &url, "--"]);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    let said = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(said.status.success() && text(&said.stdout).contains("<p>seen</p>"), "{said:?}");
    let listed = interflow(home.path(), &["flows", "list", "--format", "jsonl", "path:/page user:chromium status:200"]);
    let listed = { listed }.output().unwrap();
    let flow = text(&listed.stdout);
    assert!(flow.contains("in=chromium"), "{flow}{}", text(&said.stderr));
    let own = ["flows", "list", "--format", "jsonl", "host:*.google.com OR host:*.googleapis.com"];
    let own = text(&interflow(home.path(), &own).output().unwrap().stdout);
    assert_eq!(own, "", "the browser's own requests");
    assert_eq!(std::fs::read_dir(home.path().join("browser-profiles")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn firefox_opens_an_intercepted_page_without_certutil_or_an_installed_ca() {
    let home = tempfile::tempdir().unwrap();
    let installed = |name: &str| Path::new("/usr/bin").join(name).exists();
    if !["firefox", "firefox-esr"].iter().any(|name| installed(name)) {
        eprintln!("skipped: Firefox is not installed");
        return;
    }
    let page = || Reply::ok("<p>seen</p>").header("Content-Type", "text/html");
    let origin = Origin::https().answering(move |_| page()).start().await;
    std::fs::write(home.path().join("origin.pem"), origin.ca().pem()).unwrap();
    std::fs::write(home.path().join("c.toml"), "[upstream]\nextra_ca = [\"origin.pem\"]\n").unwrap();
    let url = origin.url("/page?in=firefox");
    let words = ["-c", "c.toml", "browser", "--until-stdin-closes", "-b", "firefox", &url, "--", "--headless"];
    let mut command = interflow(home.path(), &words);
    // A home folder of its own: Firefox writes to it beside its profile.
    command.env("HOME", home.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let query = "path:/page user:firefox status:200";
    let flow = until("Firefox does not load the page", || {
        let listed = interflow(home.path(), &["flows", "list", "--format", "jsonl", query]).output().unwrap();
        Some(text(&listed.stdout)).filter(|flows| flows.contains("in=firefox"))
    });
    assert!(flow.contains("\"https\""), "{flow}");
    // Closes standard input, as a test that fails does.
    let said = child.wait_with_output().unwrap();
    let errors = text(&said.stderr);
    assert!(said.status.success() && !errors.contains("does not trust the CA"), "{errors}");
    assert_eq!(std::fs::read_dir(home.path().join("browser-profiles")).unwrap().count(), 0);
}
