//! End-to-end tests of the media proxy on the gateway port: relay, links, playlists, manifests and SSRF protection.

#[cfg(feature = "compat")]
mod compat;
mod dash;
mod files;
mod guard;
mod hls;
mod links;
mod relay;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Wire};
use serde_json::Value;

/// `interflow run` with a section `[media]`.
struct Gateway {
    /// Its data directory, removed with it.
    dir: tempfile::TempDir,
    child: Child,
    addr: SocketAddr,
}

/// The usual setup: local origins are allowed.
const LOCAL: &str = "allow_private = [\"127.0.0.0/8\", \"::1/128\"]\nresume_delay = \"1ms\"\n";

impl Gateway {
    /// Starts with these lines below `[media]`.
    fn start(lines: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), lines)
    }

    /// The same with the data directory of an earlier run.
    fn start_in(dir: tempfile::TempDir, lines: &str) -> Self {
        Self::start_with(dir, lines, &["--no-record"])
    }

    fn start_with(dir: tempfile::TempDir, lines: &str, options: &[&str]) -> Self {
        let _ = std::fs::remove_file(dir.path().join("instance.json"));
        let config = dir.path().join("c.toml");
        std::fs::write(&config, format!("[media]\n{lines}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        let anywhere = "127.0.0.1:0";
        command.args(["run", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere]);
        command
            .args(options)
            .arg("-c")
            .arg(&config)
            .env("INTERFLOW_DATA_DIR", dir.path())
            .env_remove("INTERFLOW_TOKEN");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let instance = std::fs::read(dir.path().join("instance.json")).unwrap_or_default();
            let instance: Value = serde_json::from_slice(&instance).unwrap_or_default();
            if let Some(addr) = instance["gateway"].as_str() {
                let addr = addr.parse().unwrap();
                return Self { dir, child, addr };
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "the instance does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn local() -> Self {
        Self::start(LOCAL)
    }

    /// The media path with this destination.
    fn path(&self, endpoint: &str, destination: &str) -> String {
        format!("/media{endpoint}?d={}", encoded(destination))
    }

    async fn send(&self, method: &str, path: &str, fields: &str) -> Answer {
        let mut wire = Wire::connect(self.addr).await.unwrap();
        let host = self.addr;
        wire.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await.unwrap();
        wire.answer_to(method).await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    async fn get_with(&self, path: &str, fields: &str) -> Answer {
        self.send("GET", path, fields).await
    }

    /// Output of another command with the same data directory.
    fn command(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        command.args(words).arg("-c").arg(self.dir.path().join("c.toml")).env("INTERFLOW_DATA_DIR", self.dir.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Fetches a gateway URL as a player would.
    async fn follow(&self, url: &str) -> Answer {
        let front = format!("http://{}", self.addr);
        let path = url.strip_prefix(&front).unwrap_or_else(|| panic!("{url} is not below {front}"));
        self.get(path).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let (host, body) = (self.addr, body.to_string());
        let mut wire = Wire::connect(self.addr).await.unwrap();
        let length = body.len();
        wire.send(format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"))
            .await
            .unwrap();
        wire.answer_to("POST").await.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Percent-encodes everything that is not a letter or digit.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect()
}
