//! An instance with its own data directory, whose gateway routes to a fake provider.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, Wire, llm};
use serde_json::Value;

/// A data directory and a provider.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub provider: Origin,
}

/// Output of a command.
#[derive(Debug)]
pub struct Said(Output);

impl Said {
    /// Stdout of a command that must succeed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.0.status.success(), "{self:?}");
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// Stderr of a command that must fail with this exit code.
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
        command.args(words).env("INTERFLOW_DATA_DIR", self.dir.path()).env("NO_COLOR", "1");
        for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs `interflow` with these arguments.
    pub fn say(&self, words: &[&str]) -> Said {
        Said(self.command(words).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs `interflow keys` with these arguments.
    pub fn keys(&self, words: &[&str]) -> Said {
        self.say(&[&["keys"], words].concat())
    }

    /// Reads a file in the data directory.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// Writes the configuration: this text, and a route to the provider unless the text configures upstreams.
    pub fn write_config(&self, text: &str) {
        let route = match text.contains("[llm.") {
            true => String::new(),
            false => format!("[[gateway.route]]\npath = \"/\"\nto = \"{}\"\n", self.provider.url("")),
        };
        std::fs::write(self.dir.path().join("config.toml"), format!("{text}\n{route}")).unwrap();
    }

    fn run(&self, config: &str) -> Command {
        self.write_config(config);
        let anywhere = "127.0.0.1:0";
        let file = self.dir.path().join("config.toml").display().to_string();
        self.command(&[
            "run",
            "-c",
            &file,
            "--listen-proxy",
            anywhere,
            "--listen-gateway",
            anywhere,
            "--listen-admin",
            anywhere,
        ])
    }

    /// Starts an instance on free ports.
    pub fn start(&self, config: &str) -> Running {
        self.started(self.run(config).stderr(Stdio::inherit()))
    }

    /// Starts an instance with these environment variables and without any cloud variables.
    pub fn start_with_variables(&self, config: &str, set: &[(&str, &str)]) -> Running {
        let mut command = self.run(config);
        command.env("HOME", self.dir.path()).envs(set.iter().copied());
        self.started(command.stderr(Stdio::inherit()))
    }

    /// Starts an instance that writes its log to the file `log` in the data directory.
    pub fn start_with_log(&self, config: &str) -> Running {
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        self.started(self.run(config).stderr(log))
    }

    /// Starts an instance with this open-file limit, whose output goes to the file `said` in the data directory.
    #[cfg(unix)]
    pub fn start_with_descriptors(&self, config: &str, limit: u32) -> Running {
        let run = self.run(config);
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")])
            .arg(run.get_program())
            .args(run.get_args());
        for (name, value) in run.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let said = std::fs::File::create(self.dir.path().join("said")).unwrap();
        self.announces(command.stdout(said).stderr(Stdio::inherit()))
    }

    fn started(&self, command: &mut Command) -> Running {
        self.announces(command.stdout(Stdio::null()))
    }

    fn announces(&self, command: &mut Command) -> Running {
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let file = self.dir.path().join("instance.json");
        loop {
            if let Some((proxy, gateway, admin)) = announced(&file, child.id()) {
                let token = self.file("admin.token").trim().to_owned();
                return Running { child, proxy, gateway, admin, token };
            }
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "the instance does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Output of an instance that fails to start.
    #[track_caller]
    pub fn refuses_to_start(&self, config: &str) -> String {
        let output = self.run(config).stdout(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "it started with {config}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Reads `instance.json`; a stale one of a killed instance is ignored.
fn announced(file: &Path, pid: u32) -> Option<(SocketAddr, SocketAddr, SocketAddr)> {
    let instance: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    if instance["pid"] != pid {
        return None;
    }
    let address = |name: &str| instance[name].as_str()?.parse().ok();
    Some((instance["proxy"][0].as_str()?.parse().ok()?, address("gateway")?, address("admin")?))
}

/// `interflow run`.
pub struct Running {
    child: Child,
    pub proxy: SocketAddr,
    pub gateway: SocketAddr,
    pub admin: SocketAddr,
    pub token: String,
}

impl Running {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, like a power failure.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a request to the gateway.
    pub async fn post(&self, path: &str, fields: &str, body: &str) -> Answer {
        self.ask("POST", path, &format!("Content-Type: application/json\r\n{fields}"), body).await
    }

    /// Sends any request to the gateway.
    pub async fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        self.send(self.gateway, method, path, fields, body).await
    }

    /// Sends a request to the admin port.
    pub async fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let fields = format!("Content-Type: application/json\r\nAuthorization: Bearer {}\r\n", self.token);
        self.send(self.admin, method, path, &fields, body).await
    }

    async fn send(&self, to: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        let n = body.len();
        let mut wire = Wire::connect(to).await.unwrap();
        wire.send(format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Length: {n}\r\n{fields}\r\n{body}"))
            .await
            .unwrap();
        wire.answer().await.unwrap()
    }

    /// Waits until the condition is true.
    pub async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds().await {
            assert!(Instant::now() < deadline, "it never comes to be");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops it by a signal and waits.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "it ends in good order: {ended:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
