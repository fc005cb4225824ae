//! End-to-end tests of `interflow flows`: the built binary, an origin, and a separate data directory for each test.

mod archives;
mod care;
mod record_archive;
mod replay;
mod tail;
#[cfg(unix)]
mod top;
mod visibility;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use interflow_testkit::{Answer, Origin, Wire, client, until};
use serde_json::Value;

/// A data directory and an origin.
struct Home {
    dir: tempfile::TempDir,
    origin: Origin,
    /// Variables of its commands.
    variables: Vec<(String, String)>,
}

/// Output of a command.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Said {
    /// Stdout of a command that must succeed.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Stderr of a command that must fail with this exit code.
    #[track_caller]
    fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.err
    }
}

impl Home {
    async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), origin: Origin::http().start().await, variables: Vec::new() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        command.args(words).env("INTERFLOW_DATA_DIR", self.dir.path()).env("TZ", "UTC");
        for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `interflow flows` with these arguments.
    fn flows(&self, words: &[&str]) -> Said {
        self.command(&[&["flows"], words].concat()).stdin(Stdio::null()).output().unwrap().into()
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn origin_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Starts an instance on free ports.
    fn start(&self) -> Running<'_> {
        self.start_with(&[])
    }

    /// The same, with these additional arguments.
    fn start_with(&self, words: &[&str]) -> Running<'_> {
        let anywhere = "127.0.0.1:0";
        let ports = ["run", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere];
        let mut child =
            self.command(&[&ports, words].concat()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        let file = self.dir.path().join("instance.json");
        let proxy = until("the instance has started", || {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            announced(&file, child.id())
        });
        Running { home: self, child, proxy }
    }

    /// A data directory with flows of every kind, recorded by an instance that has exited.
    async fn filled() -> Self {
        let home = Self::new().await;
        let running = home.start();
        running.get("/status/204").await;
        running.get("/status/404").await;
        running.post("/echo", "Content-Type: application/json\r\n", r#"{"a":1,"b":"needle"}"#).await;
        running.get("/sse?count=3").await;
        running.stop();
        home
    }
}

/// Reads `instance.json`; a stale one of a killed instance is ignored.
fn announced(file: &Path, pid: u32) -> Option<SocketAddr> {
    let instance: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    instance["proxy"][0].as_str().filter(|_| instance["pid"] == pid)?.parse().ok()
}

/// `interflow run`.
struct Running<'a> {
    home: &'a Home,
    child: Child,
    proxy: SocketAddr,
}

impl Running<'_> {
    async fn get(&self, path: &str) -> Answer {
        client::get_through(self.proxy, &self.home.origin.url(path)).await.unwrap()
    }

    async fn post(&self, path: &str, fields: &str, body: &str) -> Answer {
        let (url, host, n) = (self.home.origin.url(path), self.home.origin.authority(), body.len());
        let mut wire = Wire::connect(self.proxy).await.unwrap();
        wire.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {n}\r\n{fields}\r\n{body}"))
            .await
            .unwrap();
        wire.answer().await.unwrap()
    }

    /// Waits until the store holds this many completed flows.
    fn until_recorded(&self, n: usize) {
        until(&format!("{n} flows are recorded"), || {
            let counted = self.home.flows(&["count", "-is:open"]);
            (counted.code == 0 && counted.out.trim().parse::<usize>().unwrap() >= n).then_some(())
        });
    }

    /// Stops it by a signal and waits.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "it ends in good order");
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses the JSON lines that a command printed.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// Lines of a running child, read as they arrive.
struct Following {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Following {
    fn new(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).expect("a line in time")
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command with this standard input.
fn answered(mut command: Command, input: &str) -> Said {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}
