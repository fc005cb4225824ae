//! Rules as a person uses them: the built binary, an origin, a rule file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, client};
use serde_json::Value;

/// A data folder with rule files, and an origin.
struct Home {
    dir: tempfile::TempDir,
    origin: Origin,
}

impl Home {
    async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), origin: Origin::http().start().await }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        command.args(words).env("INTERFLOW_HOME", self.dir.path()).stdin(Stdio::null());
        for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Said {
        self.command(words).output().unwrap().into()
    }

    fn start(&self, rules: &str) -> Running {
        let anywhere = "127.0.0.1:0";
        let mut child = self
            .command(&["run", "--proxy", anywhere, "--gateway", anywhere, "--admin", anywhere, "--rules", rules])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let file = self.path("instance.json");
        loop {
            if let Some((proxy, admin)) = announced(&file) {
                return Running { child, proxy, admin };
            }
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log_has(&self, text: &str) -> bool {
        std::fs::read_to_string(self.path("log")).is_ok_and(|l| l.contains(text))
    }
}

/// What a command said.
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

fn announced(file: &Path) -> Option<(SocketAddr, SocketAddr)> {
    let instance: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    Some((instance["proxy"][0].as_str()?.parse().ok()?, instance["admin"].as_str()?.parse().ok()?))
}

/// `interflow run`.
struct Running {
    child: Child,
    proxy: SocketAddr,
    admin: SocketAddr,
}

impl Running {
    async fn get(&self, url: &str) -> Answer {
        client::get_through(self.proxy, url).await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("in vain waited for: {what}");
}

#[tokio::test]
async fn rules_act_are_reloaded_and_a_bad_file_is_refused() {
    let home = Home::new().await;
    let rules = home.write(
        "r.toml",
        r#"
        [[rules]]
        name = "seen"
        when = "path:/bytes"
        then = [{ add_request_header = { X-Seen = "${method}" } }, { set_response_header = { X-Ruled = "1" } }]

        [[rules]]
        when = "path:/teapot"
        then = [{ answer = { status = 418, body = "short and stout" } }]

        [[rules]]
        when = "host:elsewhere.test"
        then = [{ map_remote = "ORIGIN" }]
        "#
        .replace("ORIGIN", &home.origin.url(""))
        .as_str(),
    );
    let running = home.start(&rules);
    let answer = running.get(&home.origin.url("/bytes/5")).await;
    assert_eq!((answer.status, answer.header("x-ruled")), (200, Some("1")));
    assert_eq!(home.origin.only_request().header("x-seen"), Some("GET"));
    let answer = running.get(&home.origin.url("/teapot")).await;
    assert_eq!((answer.status, answer.text().as_str()), (418, "short and stout"));
    assert_eq!(running.get("http://elsewhere.test/bytes/7").await.body.len(), 7);

    home.write("r.toml", "[[rules]]\nthen = ['abrot']\n");
    until("the refusal", async || home.log_has("unknown action `abrot`")).await;
    assert_eq!(running.get(&home.origin.url("/teapot")).await.status, 418);

    home.write("r.toml", "[[rules]]\nwhen = 'path:/teapot'\nthen = [{ block = 404 }]\n");
    until("the new rules", async || running.get(&home.origin.url("/teapot")).await.status == 404).await;
}

#[tokio::test]
async fn a_bad_file_stops_the_start_with_its_place() {
    let home = Home::new().await;
    let rules = home.write("r.yaml", "rules:\n  - when: hots:a\n    then: abort\n");
    let said = home.run(&["run", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--rules", &rules]);
    assert!(
        said.code != 0 && said.err.contains("r.yaml:2:11: ") && said.err.contains("did you mean 'host'?"),
        "{said:?}"
    );
}
