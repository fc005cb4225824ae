//! One replica: a process with a data directory of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use interflow_testkit::{Answer, PostgresDatabase, Wire, until};
use serde_json::Value;

/// Longer than anything takes on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The admin token of all replicas.
pub const ADMIN_TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Killed when dropped.
pub struct Replica {
    pub home: tempfile::TempDir,
    variables: Vec<(String, String)>,
    child: Option<Child>,
    pub proxy: SocketAddr,
    pub gateway: SocketAddr,
    pub admin: SocketAddr,
}

/// A configuration with the database and the name of a replica; it ends in the section `[fleet]`.
pub fn named(name: &str, database: &PostgresDatabase) -> String {
    format!("[record]\nstore = {:?}\n[fleet]\nname = {name:?}\n", database.url())
}

impl Replica {
    /// Starts one with this configuration.
    pub fn start(config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config, Vec::new())
    }

    /// With what is in its data directory already, and with variables of the environment.
    pub fn start_in(home: tempfile::TempDir, config: &str, variables: Vec<(String, String)>) -> Self {
        std::fs::write(home.path().join("c.toml"), config).unwrap();
        std::fs::write(home.path().join("admin.token"), ADMIN_TOKEN).unwrap();
        let nowhere = "127.0.0.1:1".parse().unwrap();
        let mut replica = Self { home, variables, child: None, proxy: nowhere, gateway: nowhere, admin: nowhere };
        replica.run();
        replica
    }

    /// Starts the process.
    pub fn run(&mut self) {
        let info = self.home.path().join("instance.json");
        let _ = std::fs::remove_file(&info);
        let any = "127.0.0.1:0";
        let words = ["run", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
        let log = std::fs::File::create(self.home.path().join("log")).unwrap();
        let mut child = self.command(&words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let info: Value = until("the replica starts", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", self.log());
            serde_json::from_slice(&std::fs::read(&info).ok()?).ok()
        });
        let address = |pointer| info.pointer(pointer).and_then(Value::as_str).unwrap().parse().unwrap();
        (self.proxy, self.gateway, self.admin) = (address("/proxy/0"), address("/gateway"), address("/admin"));
        self.child = Some(child);
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends the process as a crash does.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends the process in good order.
    pub fn stop(&mut self) {
        self.cli(&["stop"]);
        assert!(self.child.take().unwrap().wait().unwrap().success());
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = interflow(self.home.path(), words);
        command.envs(self.variables.iter().cloned());
        command
    }

    /// The output of a command that succeeds.
    pub fn cli(&self, words: &[&str]) -> String {
        let done = self.command(words).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.cli(words)).unwrap()
    }

    /// A file of its data directory; empty if it does not exist.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).unwrap_or_default()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home.path().join(name), text).unwrap();
    }

    pub fn log(&self) -> String {
        self.file("log")
    }

    pub fn admin_token(&self) -> String {
        self.file("admin.token").trim().to_owned()
    }

    /// Sends a request to a listener; `head` is without `Host` and `Content-Length`.
    pub async fn send(&self, to: SocketAddr, head: &str, body: &str) -> Answer {
        let mut wire = Wire::connect(to).await.unwrap().patience(Some(PATIENCE));
        let length = body.len();
        wire.send(format!("{head}Host: {to}\r\nContent-Length: {length}\r\n\r\n{body}")).await.unwrap();
        wire.answer().await.unwrap()
    }

    /// Sends a request to the API with a token.
    pub async fn api(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let head = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        );
        self.send(self.admin, &head, body).await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The program with the data directory `home` and the configuration in it.
pub fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).current_dir(home).stdin(Stdio::null());
    for name in ["INTERFLOW_RECORD_DIR", "INTERFLOW_RECORD_STORE", "INTERFLOW_TOKEN", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.env("INTERFLOW_CONFIG", home.join("c.toml"));
    command
}
