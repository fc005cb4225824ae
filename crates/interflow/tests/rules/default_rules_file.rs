//! Test harness: a data directory, an origin, the built binary and its admin API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, Wire, client, client_trusting};
use serde_json::Value;

/// A data directory with rule files, and an origin.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub origin: Origin,
}

impl Home {
    pub async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), origin: Origin::http().start().await }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of the test's own that rules may use: in a folder, as those directly in the data directory are private.
    pub fn own_file(&self, name: &str) -> PathBuf {
        std::fs::create_dir_all(self.path("own")).unwrap();
        self.path("own").join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        command.args(words).env("INTERFLOW_DATA_DIR", self.dir.path()).stdin(Stdio::null());
        for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, words: &[&str]) -> Said {
        self.command(words).output().unwrap().into()
    }

    pub fn start(&self, rules: &str) -> Running {
        self.start_with(&["--rules", rules])
    }

    /// `interflow run` with these additional arguments.
    pub fn start_with(&self, words: &[&str]) -> Running {
        self.start_saying(words, Stdio::null())
    }

    /// The same, with captured output.
    pub fn start_piped(&self, words: &[&str]) -> Running {
        self.start_saying(words, Stdio::piped())
    }

    fn start_saying(&self, words: &[&str], out: Stdio) -> Running {
        let anywhere = "127.0.0.1:0";
        let mut child = self
            .command(&["run", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere])
            .args(words)
            .stdout(out)
            .stderr(std::fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let file = self.path("instance.json");
        loop {
            if let Some((proxy, admin)) = announced(&file, child.id()) {
                return Running { child, proxy, admin };
            }
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log_has(&self, text: &str) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|l| l.contains(text))
    }
}

/// Output of a command.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Reads `instance.json`; a stale one of a killed instance is ignored.
fn announced(file: &Path, pid: u32) -> Option<(SocketAddr, SocketAddr)> {
    let instance: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    if instance["pid"] != pid {
        return None;
    }
    Some((instance["proxy"][0].as_str()?.parse().ok()?, instance["admin"].as_str()?.parse().ok()?))
}

/// `interflow run`.
pub struct Running {
    pub child: Child,
    pub proxy: SocketAddr,
    pub admin: SocketAddr,
}

impl Running {
    pub async fn get(&self, url: &str) -> Answer {
        client::get_through(self.proxy, url).await.unwrap()
    }
}

impl Running {
    /// TLS through a tunnel, with this CA and these ALPN protocols.
    pub async fn tls(&self, authority: &str, name: &str, trusted: &str, alpn: &[&str]) -> std::io::Result<Wire> {
        let tunnel = client::connect_tunnel(self.proxy, authority, None).await?;
        tunnel.into_tls(name, client_trusting(trusted, alpn)).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the condition is true.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("in vain waited for: {what}");
}

/// Sends a request to the admin API.
pub struct Api {
    pub admin: SocketAddr,
    pub token: String,
}

impl Api {
    pub async fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut wire = Wire::connect(self.admin).await.unwrap();
        let (host, token, n) = (self.admin, &self.token, body.len());
        let media = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        wire.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{media}Content-Length: {n}\r\n\r\n{body}"
        ))
        .await
        .unwrap();
        wire.answer().await.unwrap()
    }
}
