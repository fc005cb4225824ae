//! API tokens and the audit trail, which replicas share through the database of their store.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{PostgresDatabase, PostgresServer};
use serde_json::Value;

/// Longer than the two seconds in which replicas follow on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A replica with a data directory of its own, ended when dropped.
struct Replica {
    home: tempfile::TempDir,
    config: PathBuf,
    child: Child,
}

impl Replica {
    fn start(name: &str, database: &PostgresDatabase) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), name, database)
    }

    fn start_in(home: tempfile::TempDir, name: &str, database: &PostgresDatabase) -> Self {
        let config = home.path().join("c.toml");
        let text = format!("[record]\nstore = {:?}\n[fleet]\nname = {name:?}\n", database.url());
        std::fs::write(&config, text).unwrap();
        let any = "127.0.0.1:0";
        let words = ["run", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let mut child = interflow(home.path(), &config, &words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        until("the replica starts", || {
            let log = || std::fs::read_to_string(home.path().join("log")).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{}", log());
            home.path().join("instance.json").exists().then_some(())
        });
        Self { home, config, child }
    }

    /// The output of a command that succeeds.
    fn run(&self, words: &[&str]) -> String {
        let output = interflow(self.home.path(), &self.config, words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(words)).unwrap()
    }

    /// The status of a request with a token.
    async fn status(&self, token: &str) -> u16 {
        let instance = std::fs::read_to_string(self.home.path().join("instance.json")).unwrap();
        let admin = serde_json::from_str::<Value>(&instance).unwrap()["admin"].as_str().unwrap().to_owned();
        let mut wire = interflow_testkit::Wire::connect(&admin).await.unwrap();
        wire.send(format!("GET /api/v1/me HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {token}\r\n\r\n"))
            .await
            .unwrap();
        wire.answer().await.unwrap().status
    }

    async fn until_status(&self, token: &str, status: u16) -> Duration {
        let begun = Instant::now();
        while self.status(token).await != status {
            assert!(begun.elapsed() < PATIENCE, "not {status} within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    }

    fn audit(&self, words: &[&str]) -> Vec<Value> {
        self.json(&[&["audit", "list", "--json", "-n", "200"], words].concat()).as_array().unwrap().clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interflow(home: &Path, config: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.arg("--config").arg(config).args(words).env("INTERFLOW_DATA_DIR", home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = seen() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_holds_at_all_replicas_and_is_revoked_at_all() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    // A token of the time before the shared store is moved there, once.
    let home = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_interflow"))
        .args(["tokens", "create", "--name", "older", "--role", "viewer"])
        .env("INTERFLOW_DATA_DIR", home.path())
        .output()
        .unwrap();
    let older = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let (a, b) = (Replica::start_in(home, "a", &database), Replica::start("b", &database));
    assert!(
        !a.home.path().join("admin-tokens.json").exists() && a.home.path().join("admin-tokens.json.moved").exists()
    );
    b.until_status(&older, 200).await;
    let token = a.run(&["tokens", "create", "--name", "ci", "--role", "viewer"]).trim().to_owned();
    let followed = b.until_status(&token, 200).await;
    assert_eq!(a.status(&token).await, 200);
    let listed = b.json(&["tokens", "list", "--json"]);
    let id = |name: &str| {
        let found = listed.as_array().unwrap().iter().find(|t| t["name"] == name);
        found.unwrap_or_else(|| panic!("{listed}"))["id"].as_str().unwrap().to_owned()
    };
    b.run(&["tokens", "revoke", &id("ci")]);
    assert_eq!(b.status(&token).await, 401);
    let revoked = a.until_status(&token, 401).await;
    println!("a token held after {followed:?} and was revoked after {revoked:?}");
    b.run(&["tokens", "revoke", &id("older")]);
    a.until_status(&older, 401).await;
    // Neither comes back with a restart.
    let mut a = a;
    a.run(&["stop"]);
    a.child.wait().unwrap();
    let home = std::mem::replace(&mut a.home, tempfile::tempdir().unwrap());
    let a = Replica::start_in(home, "a", &database);
    assert_eq!([a.status(&token).await, a.status(&older).await], [401, 401]);
}

#[test]
fn the_audit_trail_shows_all_replicas_and_what_was_written_while_the_database_was_away() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let (a, b) = (Replica::start("a", &database), Replica::start("b", &database));
    a.run(&["approvals", "rules", "add", "deny", "one.example"]);
    b.run(&["approvals", "rules", "add", "deny", "two.example"]);
    let hosts = |replica: &Replica, words: &[&str]| -> Vec<(String, String)> {
        let lines = replica.audit(words);
        let rules = lines.iter().filter(|l| l["operation"] == "POST /approvals/rules");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rules.map(|l| (text(&l["replica"]), text(&l["detail"]["rule"]["hosts"][0]))).collect()
    };
    let pair = |replica: &str, host: &str| (replica.to_owned(), host.to_owned());
    for replica in [&a, &b] {
        until("both lines", || {
            (hosts(replica, &[]) == [pair("b", "two.example"), pair("a", "one.example")]).then_some(())
        });
    }
    assert_eq!(hosts(&a, &["--local"]), [pair("a", "one.example")]);
    assert!(a.run(&["audit", "list"]).lines().next().unwrap().contains("REPLICA"));
    // Nobody waits for a database that is away, and what happens meanwhile is not lost.
    server.stop();
    let begun = Instant::now();
    a.run(&["approvals", "rules", "add", "deny", "three.example"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(hosts(&a, &["--local"]).contains(&pair("a", "three.example")));
    let refused = interflow(a.home.path(), &a.config, &["audit", "list"]).output().unwrap();
    assert!(!refused.status.success(), "never the local trail in place of that of all");
    server.start();
    let last = until("the line of the outage", || hosts(&b, &[]).into_iter().find(|l| l.1 == "three.example"));
    assert_eq!(last.0, "a");
    // Each line is there once.
    let stored = database.sql("SELECT count(*) FROM interflow.admin_audit WHERE line LIKE '%three.example%'");
    assert_eq!(stored.trim(), "1");
}

impl Replica {
    /// The status of a request without credentials, and where it leads to.
    async fn visit(&self, path: &str) -> (u16, Option<String>) {
        let instance = std::fs::read_to_string(self.home.path().join("instance.json")).unwrap();
        let admin = serde_json::from_str::<Value>(&instance).unwrap()["admin"].as_str().unwrap().to_owned();
        let mut wire = interflow_testkit::Wire::connect(&admin).await.unwrap().patience(Some(PATIENCE));
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n")).await.unwrap();
        let answer = wire.answer().await.unwrap();
        (answer.status, answer.header("set-cookie").map(str::to_owned))
    }

    /// The path of a login link, as `interflow open` gets it.
    async fn login_link(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.home.path().join(name)).unwrap();
        let instance: Value = serde_json::from_str(&read("instance.json")).unwrap();
        let admin = instance["admin"].as_str().unwrap();
        let mut wire = interflow_testkit::Wire::connect(admin).await.unwrap().patience(Some(PATIENCE));
        let head = format!(
            "POST /api/v1/login-links HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {}\r\nContent-Length: 0\r\n\r\n",
            read("admin.token").trim()
        );
        wire.send(head).await.unwrap();
        wire.answer().await.unwrap().json()["path"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_link_of_one_replica_works_at_another_once() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let (a, b) = (Replica::start("a", &database), Replica::start("b", &database));
    let logs_in = |(status, cookie): (u16, Option<String>)| status == 303 && cookie.is_some();
    let link = a.login_link().await;
    assert!(logs_in(b.visit(&link).await));
    assert!(!logs_in(b.visit(&link).await) && !logs_in(a.visit(&link).await), "it was used");
    // Of many at once, one succeeds.
    let link = a.login_link().await;
    let visits = (0..8).map(|i| if i % 2 == 0 { a.visit(&link) } else { b.visit(&link) });
    let succeeded = futures_util::future::join_all(visits).await.into_iter().filter(|v| logs_in(v.clone())).count();
    assert_eq!(succeeded, 1);
    // The database has no code that could be used.
    let link = a.login_link().await;
    let code = link.rsplit('=').next().unwrap();
    assert!(!database.sql("SELECT * FROM interflow.login_codes").contains(code));
    database.sql("UPDATE interflow.login_codes SET expires = now() - interval '1 second'");
    assert!(!logs_in(b.visit(&link).await), "it has expired");
    // Without the database, a link leads to the replica that made it.
    server.stop();
    let link = a.login_link().await;
    assert!(!logs_in(b.visit(&link).await));
    assert!(logs_in(a.visit(&link).await) && !logs_in(a.visit(&link).await));
}
