//! What one replica holds for a decision is listed and decided at the other.

use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, PostgresDatabase, PostgresServer, Reply, Wire, client, until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::replica::{PATIENCE, Replica, named};

const RULES: &str = "rules:\n  - name: look\n    when: 'path:/look*'\n    then:\n      - hold: { note: have a look }\n";

fn start(name: &str, database: &PostgresDatabase) -> Replica {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("held.yaml"), RULES).unwrap();
    let more = "[rules]\nfiles = [\"held.yaml\"]\n[approvals]\ntimeout = \"2m\"\n[upstream.hosts]\n\"asked.test\" = [\"127.0.0.1\"]\n";
    Replica::start_in(home, &(named(name, database) + more), Vec::new())
}

impl Replica {
    /// What is pending at all replicas, as this one lists it.
    fn pending(&self) -> Vec<Value> {
        self.json(&["pending", "list", "--format", "json"])["pending"].as_array().unwrap().clone()
    }

    /// The one pending request whose URL contains this, as soon as it is listed here.
    fn listed(&self, url: &str) -> Value {
        until("the request is listed", || {
            self.pending().into_iter().find(|item| item["url"].as_str().unwrap().contains(url))
        })
    }

    /// Waits until nothing with this URL is listed here.
    fn until_gone(&self, url: &str) {
        until("the request is listed no more", || {
            (!self.pending().iter().any(|item| item["url"].as_str().unwrap().contains(url))).then_some(())
        });
    }

    async fn get(&self, path: &str) -> Answer {
        self.api(&self.admin_token(), "GET", path, "").await
    }

    async fn decide(&self, item: &Value, decision: Value) -> Answer {
        let path = format!("/pending/{}", item["id"].as_str().unwrap());
        self.api(&self.admin_token(), "POST", &path, &decision.to_string()).await
    }

    /// Sends a request through this replica; it waits for a decision.
    fn ask(&self, method: &str, url: String, body: &'static str) -> JoinHandle<Answer> {
        let (proxy, method) = (self.proxy, method.to_owned());
        tokio::spawn(async move {
            let mut wire = Wire::connect(proxy).await.unwrap().patience(Some(PATIENCE));
            let host = url.split('/').nth(2).unwrap();
            let length = body.len();
            wire.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"))
                .await
                .unwrap();
            wire.answer().await.unwrap()
        })
    }
}

fn url(origin: &Origin, host: &str, path: &str) -> String {
    format!("http://{host}:{}{path}", origin.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_one_replica_holds_is_decided_at_another() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let origin = Origin::http()
        .answering(|request| Reply::ok(format!("{} {}", request.method, String::from_utf8_lossy(&request.body))))
        .start()
        .await;
    let (a, b) = (start("gateway-a", &database), start("gateway-b", &database));
    a.cli(&["approvals", "mode", "ask"]);

    // Allowed at the other, by its command line; the list names the replica.
    let asking = a.ask("GET", url(&origin, "asked.test", "/one?token=s3cret"), "");
    let item = b.listed("/one");
    let id = item["id"].as_str().unwrap();
    assert!(id.starts_with("approval-1@") && item["replica"] == "gateway-a", "{item}");
    assert!(b.cli(&["pending", "list"]).contains("at gateway-a"));
    assert_eq!(a.listed("/one")["id"], *id, "it has one id everywhere");
    assert!(b.cli(&["pending", "allow", id.trim_start_matches("approval-")]).contains("allow, 1 flow"));
    assert_eq!(asking.await.unwrap().status, 200);
    b.until_gone("/one");
    // Whoever comes second is told so.
    let late = b.decide(&item, json!({"action": "deny"})).await;
    assert_eq!((late.status, late.json()["error"]["kind"].clone()), (404, json!("not_found")));
    let text = a.log();
    assert!(text.contains("decided at another replica") && text.contains("admin token at gateway-b"), "{text}");
    assert_eq!(database.sql("SELECT count(*) FROM interflow.pending_decisions"), "0", "nothing is left of decisions");

    // Denied at the other, with a rule that is in force at both.
    let asking = a.ask("GET", url(&origin, "asked.test", "/two"), "");
    let item = b.listed("/two");
    let wrong = b.decide(&item, json!({"action": "allow", "body": "x"})).await;
    assert_eq!((wrong.status, wrong.json()["error"]["kind"].clone()), (400, json!("bad_request")));
    let denied = b.decide(&item, json!({"action": "deny", "scope": "host"})).await;
    assert_eq!(denied.status, 200, "{}", denied.text());
    assert!(denied.json()["id"] == item["id"] && denied.json()["rule"]["id"].is_string(), "{}", denied.text());
    assert_eq!(asking.await.unwrap().status, 403);
    until("the rule is shared", || b.cli(&["approvals", "rules", "list"]).contains("asked.test").then_some(()));

    // Held by a rule: the other sees the body, and changes it.
    let asking = a.ask("POST", url(&origin, "127.0.0.1", "/look/1"), "amount=10");
    let item = b.listed("/look/1");
    assert_eq!((item["kind"].as_str(), item["rule"].as_str()), (Some("rule"), Some("look")));
    assert_eq!((item["body"].as_str(), item["note"].as_str()), (Some("amount=10"), Some("have a look")));
    b.cli(&["pending", "edit", item["id"].as_str().unwrap(), "--method", "PUT", "--body", "amount=7"]);
    assert_eq!(asking.await.unwrap().text(), "PUT amount=7");
    let asking = a.ask("POST", url(&origin, "127.0.0.1", "/look/2"), "amount=10");
    b.cli(&["pending", "answer", b.listed("/look/2")["id"].as_str().unwrap(), "--status", "299"]);
    assert_eq!(asking.await.unwrap().status, 299);

    // A list that is waited for at the other ends its wait when something changes here.
    let waiting = async {
        let mut version = Value::Null;
        loop {
            let after = version.as_u64().map(|version| format!("?after={version}&wait=50s")).unwrap_or_default();
            let page = b.get(&format!("/pending{after}")).await;
            if page.text().contains("/look/3") {
                break;
            }
            version = page.json()["version"].clone();
        }
    };
    let began = Instant::now();
    let mut asking = None;
    tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        asking = Some(a.ask("POST", url(&origin, "127.0.0.1", "/look/3"), "x"));
    });
    let asking = asking.unwrap();
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());

    // Two people decide at once: one of them does.
    let item = b.listed("/look/3");
    let (one, two) =
        tokio::join!(b.decide(&item, json!({"action": "allow"})), a.decide(&item, json!({"action": "deny"})));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404], "{} {}", one.text(), two.text());
    assert_eq!(asking.await.unwrap().status, if one.status == 200 { 200 } else { 403 });

    // The audit trail of the replica where it was decided names who did it.
    let trail = b.get("/audit?limit=100").await.json();
    let lines = trail.to_string();
    assert!(lines.contains("POST /pending/{id}") && lines.contains(id) && lines.contains("admin token"), "{lines}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_dies_and_a_database_that_restarts_leave_nothing_behind() {
    // A server of its own, as this test stops it.
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let origin = Origin::http().start().await;
    let (mut a, b) = (start("gateway-a", &database), start("gateway-b", &database));
    let before = a.ask("POST", url(&origin, "127.0.0.1", "/look/1"), "one");
    let item = b.listed("/look/1");

    // Without the database each replica has its own only, and says why it cannot decide about others.
    server.stop();
    b.until_gone("/look/1");
    let refused = b.decide(&item, json!({"action": "allow"})).await;
    assert_eq!((refused.status, refused.json()["error"]["kind"].clone()), (503, json!("shared_store")));
    assert!(!refused.text().contains("testkit-secret"));
    assert_eq!(a.listed("/look/1")["id"], item["id"], "it is still held");
    let meanwhile = a.ask("POST", url(&origin, "127.0.0.1", "/look/2"), "two");
    let own = a.listed("/look/2");
    assert_eq!(a.decide(&own, json!({"action": "allow"})).await.status, 200);
    assert_eq!(meanwhile.await.unwrap().status, 200, "holding needs no database");
    until("it is said once", || b.log().contains("are seen at their own replica only").then_some(()));
    assert_eq!(b.log().matches("are seen at their own replica only").count(), 1);

    // Back again, it is listed and decided as before.
    server.start();
    let again = b.listed("/look/1");
    assert_eq!(again["id"], item["id"]);
    // Listed with what the database kept, perhaps before the other replica is connected again.
    let mut allowed = b.decide(&again, json!({"action": "allow"})).await;
    while (allowed.status, allowed.json()["error"]["kind"].clone()) == (503, json!("replica_silent")) {
        allowed = b.decide(&again, json!({"action": "allow"})).await;
    }
    assert_eq!(allowed.status, 200, "{}", allowed.text());
    assert_eq!(before.await.unwrap().status, 200);

    // What a killed replica held is gone within its lease.
    let _never = a.ask("POST", url(&origin, "127.0.0.1", "/look/3"), "three");
    let item = b.listed("/look/3");
    a.kill();
    let began = Instant::now();
    // Until then it does not answer.
    let silent = b.decide(&item, json!({"action": "allow"})).await;
    assert_eq!(
        (silent.status, silent.json()["error"]["kind"].clone()),
        (503, json!("replica_silent")),
        "{}",
        silent.text()
    );
    b.until_gone("/look/3");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(b.decide(&item, json!({"action": "allow"})).await.status, 404);
    assert_eq!(client::get_through(b.proxy, &origin.url("/")).await.unwrap().status, 200);
}
