//! API tokens, login links and the audit trail, which replicas share through the database of their store.

use std::time::{Duration, Instant};

use interflow_testkit::{PostgresServer, until};
use serde_json::Value;

use crate::replica::{PATIENCE, Replica, interflow, named};

impl Replica {
    /// The status of a request with a token.
    async fn token_status(&self, token: &str) -> u16 {
        self.api(token, "GET", "/me", "").await.status
    }

    /// Waits until a token is answered with this status; returns how long that took.
    pub async fn until_token_status(&self, token: &str, status: u16) -> Duration {
        let begun = Instant::now();
        while self.token_status(token).await != status {
            assert!(begun.elapsed() < PATIENCE, "not {status} within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    }

    fn audit(&self, words: &[&str]) -> Vec<Value> {
        self.json(&[&["audit", "list", "--json", "-n", "200"], words].concat()).as_array().unwrap().clone()
    }

    /// The status of a request without credentials, and the cookie that it sets.
    async fn visit(&self, path: &str) -> (u16, Option<String>) {
        let answer = self.send(self.admin, &format!("GET {path} HTTP/1.1\r\n"), "").await;
        (answer.status, answer.header("set-cookie").map(str::to_owned))
    }

    /// The path of a login link, as `interflow open` gets it.
    async fn login_link(&self) -> String {
        let made = self.api(&self.admin_token(), "POST", "/login-links", "").await;
        made.json()["path"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_holds_at_all_replicas_and_is_revoked_at_all() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    // A token of the time before the shared store is moved there, once.
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("c.toml"), "").unwrap();
    let made = interflow(home.path(), &["tokens", "create", "--name", "older", "--role", "viewer"]).output().unwrap();
    let older = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let mut a = Replica::start_in(home, &named("a", &database), Vec::new());
    let b = Replica::start(&named("b", &database));
    assert!(
        !a.home.path().join("admin-tokens.json").exists() && a.home.path().join("admin-tokens.json.moved").exists()
    );
    b.until_token_status(&older, 200).await;
    let token = a.cli(&["tokens", "create", "--name", "ci", "--role", "viewer"]).trim().to_owned();
    let followed = b.until_token_status(&token, 200).await;
    assert_eq!(a.token_status(&token).await, 200);
    let listed = b.json(&["tokens", "list", "--json"]);
    let id = |name: &str| {
        let found = listed.as_array().unwrap().iter().find(|t| t["name"] == name);
        found.unwrap_or_else(|| panic!("{listed}"))["id"].as_str().unwrap().to_owned()
    };
    b.cli(&["tokens", "revoke", &id("ci")]);
    assert_eq!(b.token_status(&token).await, 401);
    let revoked = a.until_token_status(&token, 401).await;
    println!("a token held after {followed:?} and was revoked after {revoked:?}");
    b.cli(&["tokens", "revoke", &id("older")]);
    a.until_token_status(&older, 401).await;
    // Neither comes back with a restart.
    a.stop();
    a.run();
    assert_eq!([a.token_status(&token).await, a.token_status(&older).await], [401, 401]);
}

#[test]
fn the_audit_trail_shows_all_replicas_and_what_was_written_while_the_database_was_away() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let (a, b) = (Replica::start(&named("a", &database)), Replica::start(&named("b", &database)));
    a.cli(&["approvals", "rules", "add", "deny", "one.example"]);
    b.cli(&["approvals", "rules", "add", "deny", "two.example"]);
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
    assert!(a.cli(&["audit", "list"]).lines().next().unwrap().contains("REPLICA"));
    // Nobody waits for a database that is away, and what happens meanwhile is not lost.
    server.stop();
    let begun = Instant::now();
    a.cli(&["approvals", "rules", "add", "deny", "three.example"]);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(hosts(&a, &["--local"]).contains(&pair("a", "three.example")));
    let refused = a.command(&["audit", "list"]).output().unwrap();
    assert!(!refused.status.success(), "never the local trail in place of that of all");
    server.start();
    let last = until("the line of the outage", || hosts(&b, &[]).into_iter().find(|l| l.1 == "three.example"));
    assert_eq!(last.0, "a");
    // Each line is there once.
    let stored = database.sql("SELECT count(*) FROM interflow.admin_audit WHERE line LIKE '%three.example%'");
    assert_eq!(stored.trim(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_link_of_one_replica_works_at_another_once() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let (a, b) = (Replica::start(&named("a", &database)), Replica::start(&named("b", &database)));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_at_one_replica_holds_at_all_and_after_a_restart() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    // Replicas under one public address accept each other's sessions.
    let config = |name: &str| {
        format!(
            "{}[admin.oidc]\nissuer = \"https://id.test\"\nclient_id = \"c\"\n\
             redirect_url = \"http://127.0.0.1:8080/login/callback\"\nroles = {{ admin = [\"*\"] }}\n",
            named(name, &database)
        )
    };
    let token = || vec![("INTERFLOW_TOKEN".to_owned(), "0123456789abcdef0123456789abcdef".to_owned())];
    let start = |name: &str| Replica::start_in(tempfile::tempdir().unwrap(), &config(name), token());
    let (a, mut b) = (start("a"), start("b"));
    let log_in = async || {
        let (status, cookie) = a.visit(&format!("/?token={}", token()[0].1)).await;
        assert_eq!(status, 303);
        cookie.unwrap().split(';').next().unwrap().to_owned()
    };
    let (ended, other) = (log_in().await, log_in().await);
    let status = async |replica: &Replica, cookie: &str| {
        let head = format!("GET /api/v1/me HTTP/1.1\r\nCookie: {cookie}\r\n");
        replica.send(replica.admin, &head, "").await.status
    };
    assert_eq!([status(&a, &ended).await, status(&b, &ended).await], [200, 200]);
    let head = format!("POST /logout HTTP/1.1\r\nCookie: {ended}\r\nOrigin: http://{}\r\n", a.admin);
    assert_eq!(a.send(a.admin, &head, "").await.status, 303);
    assert_eq!(status(&a, &ended).await, 401);
    let begun = Instant::now();
    while status(&b, &ended).await != 401 {
        assert!(begun.elapsed() < PATIENCE, "still valid at the other replica");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    b.stop();
    b.run();
    assert_eq!([status(&b, &ended).await, status(&b, &other).await], [401, 200]);
}
