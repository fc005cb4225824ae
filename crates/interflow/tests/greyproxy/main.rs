//! Greyproxy compatibility of the real binary: its API and events, proxy and DNS ports, placeholders, and `interflow
//! import greyproxy`.

mod api;
mod database;
mod endpoints;
mod import;
mod injection;
mod repeated;
mod sessions;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Origin, client};
use serde_json::Value;

struct Running {
    child: Child,
    home: tempfile::TempDir,
    instance: Value,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interflow(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(args).env("INTERFLOW_DATA_DIR", home).env("NO_COLOR", "1").env_remove("INTERFLOW_CONFIG");
    command
}

#[track_caller]
fn said(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Running {
    /// An instance with Greyproxy compatibility and this additional configuration.
    fn start(config: &str, envs: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config.toml");
        let compat = "[compat]\ngreyproxy = true\ngreyproxy_api = '127.0.0.1:0'\ngreyproxy_proxies = ['127.0.0.1:0']\n\
                      greyproxy_dns = '127.0.0.1:0'\n";
        std::fs::write(&file, format!("{compat}{config}")).unwrap();
        let any = "127.0.0.1:0";
        let args = [
            "run",
            "-c",
            file.to_str().unwrap(),
            "--listen-proxy",
            any,
            "--listen-gateway",
            any,
            "--listen-admin",
            any,
        ];
        let mut command = interflow(home.path(), &args);
        command.envs(envs.iter().copied()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = std::fs::read_to_string(home.path().join("instance.json")).unwrap_or_default();
            if let Ok(instance) = serde_json::from_str::<Value>(&text) {
                return Self { child, home, instance };
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn at(&self, name: &str) -> SocketAddr {
        self.instance[name].as_str().unwrap_or_else(|| panic!("{name}: {}", self.instance)).parse().unwrap()
    }

    fn proxy(&self) -> SocketAddr {
        let all = self.instance["proxy"].as_array().unwrap();
        all.last().unwrap().as_str().unwrap().parse().unwrap()
    }

    fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call_with(method, path, body, "")
    }

    fn call_with(&self, method: &str, path: &str, body: Value, fields: &str) -> (u16, Value) {
        let api = self.at("greyproxy");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {api}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{fields}\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = spoken(api, head.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, Value::Null);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn command(&self, args: &[&str]) -> Output {
        interflow(self.home.path(), args).output().unwrap()
    }

    /// Adds the secret `api` for this port of this machine; returns its placeholder.
    fn add_secret(&self, value: &str, port: u16) -> String {
        let mut add = interflow(self.home.path(), &["secrets", "add", "api", "--host", &format!("127.0.0.1:{port}")]);
        let mut child = add.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        said(child.wait_with_output().unwrap()).trim().to_owned()
    }

    /// Waits until a flow of this query has ended; returns it.
    fn ended(&self, query: &str) -> Value {
        until("the recording", || {
            let out = said(self.command(&["flows", "list", query, "-is:open", "--format", "jsonl"]));
            out.lines().next().map(|line| serde_json::from_str(line).unwrap())
        })
    }
}

fn spoken(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A request through the proxy to a non-local host name, authenticated as `claude`.
fn through(proxy: SocketAddr, host: &str, port: u16, path: &str, field: &str) -> String {
    let head = format!(
        "GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\nProxy-Authorization: Basic Y2xhdWRlOg==\r\n\
         {field}Connection: close\r\n\r\n"
    );
    spoken(proxy, head.as_bytes())
}

/// Stops the instance and searches all its files for the marker.
fn drop_and_search(mut it: Running, marker: &str) {
    it.child.kill().unwrap();
    it.child.wait().unwrap();
    let mut folders = vec![it.home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                let found = bytes.windows(marker.len()).any(|w| w == marker.as_bytes());
                assert!(!found, "{} holds the secret", path.display());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_to_an_address_is_matched_by_its_dns_name() {
    let origin = Origin::http().bind("127.0.0.2:0".parse().unwrap()).start().await;
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((n, peer)) = server.recv_from(&mut buffer) {
            let mut out = buffer[..n].to_vec();
            (out[2], out[7]) = (0x81, 1);
            out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 2]);
            let _ = server.send_to(&out, peer);
        }
    });
    let config = format!(
        "[dns]\nservers = ['{at}']\n[approvals]\nmode = 'enforce'\n[[approvals.rule]]\naction = 'deny'\nhosts = ['*']\n\
         [[approvals.rule]]\naction = 'allow'\nhosts = ['named.test']\n"
    );
    let it = Running::start(&config, &[]);
    let greeting = |port: u16| {
        let mut all = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 2];
        all.extend_from_slice(&port.to_be_bytes());
        all
    };
    let ask = |head: &str| spoken(it.proxy(), &[&greeting(origin.port())[..], head.as_bytes()].concat());
    let by_address = "GET /status/200 HTTP/1.1\r\nHost: 127.0.0.2\r\nConnection: close\r\n\r\n";
    assert!(!ask(by_address).contains("HTTP/1.1 200"), "the address itself is denied");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let query = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5][..], b"named", &[4], b"test", &[0, 0, 1, 0, 1]].concat();
    client.send_to(&query, it.at("dns")).unwrap();
    let mut buffer = [0; 512];
    assert!(client.recv(&mut buffer).unwrap() > query.len());
    let answer = ask("GET /status/200 HTTP/1.1\r\nHost: named.test\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("HTTP/1.1 200"), "{answer}");
    let claim = ask("GET /status/200 HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n");
    assert!(!claim.contains("HTTP/1.1 200"), "a name that DNS never gave it out for does not count: {claim}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn desktop_notifications_name_client_and_host_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = tempfile::tempdir().unwrap();
    let (tool, told) = (bin.path().join("notify-send"), bin.path().join("told"));
    std::fs::write(&tool, format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{}'\n", told.display())).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.path().display());
    let it = Running::start("[approvals]\nmode = 'ask'\nnotify = true\ntimeout = '2s'\n", &[("PATH", &path)]);
    let proxy = it.proxy();
    let asks: Vec<_> = (0..5)
        .map(|i| std::thread::spawn(move || through(proxy, &format!("h{i}.test"), 80, "/secret-path?token=abc", "")))
        .collect();
    let first =
        until("a notification", || std::fs::read_to_string(&told).ok().filter(|t| t.contains("wants to reach")));
    assert!(first.contains("claude wants to reach h") && !first.contains("secret-path"), "{first}");
    for ask in asks {
        assert!(ask.join().unwrap().starts_with("HTTP/1.1 403"), "nobody answered");
    }
    let all = std::fs::read_to_string(&told).unwrap();
    assert!(all.lines().count() <= 2, "five questions are no five notifications: {all}");
}

#[tokio::test]
async fn compat_port_proxies_to_the_origin() {
    let origin = Origin::http().start().await;
    let it = Running::start("", &[]);
    let answer = client::get_through(it.proxy(), &origin.url("/status/204")).await.unwrap();
    assert_eq!(answer.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_requests_are_capped_and_disconnecting_clients_free_theirs() {
    const MOST: usize = 1500;
    let names: String = (0..MOST + 1).map(|n| format!("'h{n}.test' = ['127.0.0.1']\n")).collect();
    let config = format!(
        "[approvals]\nmode = 'ask'\ntimeout = '5m'\nmax_held = {MOST}\n[limits]\nconnections_per_client = 5000\n[upstream.hosts]\n{names}"
    );
    let it = Running::start(&config, &[]);
    let held = || -> usize {
        let out = said(it.command(&["pending", "list", "--json"]));
        serde_json::from_str::<Value>(&out).unwrap()["pending"].as_array().unwrap().len()
    };
    let ask = |n: usize| {
        let mut stream = std::net::TcpStream::connect(it.proxy()).unwrap();
        let host = format!("h{n}.test:80");
        stream.write_all(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let mut clients: Vec<_> = (0..MOST).map(ask).collect();
    until("all are held", || (held() == MOST).then_some(()));
    let refused =
        spoken(it.proxy(), b"GET http://h1500.test/ HTTP/1.1\r\nHost: h1500.test\r\nConnection: close\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("approvals.max_held"), "{refused}");
    clients.truncate(500);
    until("the others are gone", || (held() == 500).then_some(()));
    said(it.command(&["approvals", "mode", "enforce"]));
    until("another mode answers", || (held() == 0).then_some(()));
}
