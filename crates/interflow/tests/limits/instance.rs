//! An instance with a data folder of its own, its gateway led to a fake provider.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, Wire, llm};
use serde_json::Value;

/// A data folder, and a provider.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub provider: Origin,
}

/// What a command said.
#[derive(Debug)]
pub struct Said(Output);

impl Said {
    /// What it printed, when it did its work.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.0.status.success(), "{self:?}");
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// What it complained of, with this exit code.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.0.status.code(), Some(code), "{self:?}");
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }
}

impl Home {
    pub async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), provider: llm::start().await.0 }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        command.args(words).env("INTERFLOW_HOME", self.dir.path()).env("NO_COLOR", "1");
        for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs `interflow keys` with these words.
    pub fn keys(&self, words: &[&str]) -> Said {
        Said(self.command(&[&["keys"], words].concat()).stdin(Stdio::null()).output().unwrap())
    }

    /// Writes the configuration: this text, and a route to the provider.
    pub fn write_config(&self, text: &str) {
        let route = format!("[[gateway.route]]\npath = \"/\"\nto = \"{}\"\n", self.provider.url(""));
        std::fs::write(self.dir.path().join("config.toml"), format!("{text}\n{route}")).unwrap();
    }

    fn run(&self, config: &str) -> Command {
        self.write_config(config);
        let anywhere = "127.0.0.1:0";
        let file = self.dir.path().join("config.toml").display().to_string();
        self.command(&["run", "-c", &file, "--proxy", anywhere, "--gateway", anywhere, "--admin", anywhere])
    }

    /// Starts an instance on free ports.
    pub fn start(&self, config: &str) -> Running {
        let mut child = self.run(config).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let file = self.dir.path().join("instance.json");
        loop {
            if let Some(gateway) = announced(&file) {
                return Running { child, gateway };
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "the instance does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What an instance says that does not start.
    #[track_caller]
    pub fn refuses_to_start(&self, config: &str) -> String {
        let output = self.run(config).stdout(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "it started with {config}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn announced(file: &Path) -> Option<SocketAddr> {
    let instance: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    instance["gateway"].as_str()?.parse().ok()
}

/// `interflow run`.
pub struct Running {
    child: Child,
    gateway: SocketAddr,
}

impl Running {
    /// Sends a request to the gateway.
    pub async fn post(&self, path: &str, fields: &str, body: &str) -> Answer {
        self.send(self.gateway, "POST", path, fields, body).await
    }

    async fn send(&self, to: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        let n = body.len();
        let mut wire = Wire::connect(to).await.unwrap();
        wire.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nContent-Length: {n}\r\n{fields}\r\n{body}"
        ))
        .await
        .unwrap();
        wire.answer().await.unwrap()
    }

    /// Waits until this holds.
    pub async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds().await {
            assert!(Instant::now() < deadline, "it never comes to be");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends it as a person would, and waits.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "it ends in good order");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
