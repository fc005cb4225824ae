//! Settings that replicas share through the database of their store: keys, rules, policies, approvals.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{PostgresDatabase, PostgresServer};
use serde_json::Value;

/// Longer than the two seconds in which replicas follow on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

const TAG_ALL: &str = "rules:\n  - name: all\n    then:\n      - tag: first\n";

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
        Self::start_with(home, name, database, "")
    }

    /// With more lines of the section `[fleet]`, and further sections.
    fn start_with(home: tempfile::TempDir, name: &str, database: &PostgresDatabase, more: &str) -> Self {
        let config = home.path().join("c.toml");
        let text = format!("[record]\nstore = {:?}\n[fleet]\nname = {name:?}\n{more}", database.url());
        std::fs::write(&config, text).unwrap();
        let any = "127.0.0.1:0";
        let words = ["run", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let mut child = interflow(home.path(), &config, &words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        until("the replica starts", || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "{}",
                std::fs::read_to_string(home.path().join("log")).unwrap()
            );
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

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).unwrap_or_default()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home.path().join(name), text).unwrap();
    }

    fn log(&self) -> String {
        self.file("log")
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
    command.env_remove("INTERFLOW_CONFIG").env_remove("CLICOLOR_FORCE");
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

/// The newest revision of a setting.
fn newest(replica: &Replica, name: &str) -> Option<i64> {
    let all = replica.json(&["fleet", "settings", "--json"]);
    all["settings"].as_array().unwrap().iter().find(|s| s["name"] == name)?["revision"].as_i64()
}

/// Makes this the text of the rules; returns its revision.
fn publish_rules(replica: &Replica, text: &str) -> i64 {
    // At once: half a file would be a revision of its own.
    replica.write("rules.new", text);
    let file = |name: &str| replica.home.path().join(name);
    std::fs::rename(file("rules.new"), file("rules.yaml")).unwrap();
    until("it is published", || {
        let revision = newest(replica, "rules")?;
        // By its number: a newer one may come between the two commands.
        (replica.run(&["fleet", "show", "rules", &revision.to_string()]) == text).then_some(revision)
    })
}

#[test]
fn what_changes_at_one_replica_takes_effect_at_all() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (Replica::start("a", &database), Replica::start("b", &database));
    // A key made at one is valid at the other: both read the same file.
    a.run(&["keys", "add", "--owner", "build-agent"]);
    until("b has the key of a", || b.file("keys.toml").contains("build-agent").then_some(()));
    assert!(b.run(&["keys", "list"]).contains("build-agent"));
    assert_eq!(newest(&b, "keys"), Some(1));
    // Approval rules go through the API of a running instance.
    b.run(&["approvals", "rules", "add", "deny", "blocked.example"]);
    until("a denies what b denies", || {
        a.run(&["approvals", "rules", "list"]).contains("blocked.example").then_some(())
    });
    // A replica that comes later has everything from its start on.
    let c = Replica::start("c", &database);
    assert!(c.run(&["keys", "list"]).contains("build-agent") && c.file("approvals.json").contains("blocked.example"));
    let history = c.json(&["fleet", "history", "--json"]);
    let made: Vec<_> = history["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["name"].as_str().unwrap(), r["author"].as_str().unwrap()))
        .collect();
    // What comes over the API names who asked for it.
    assert!(made.contains(&("keys", "a")) && made.contains(&("approvals", "admin token (b)")), "{made:?}");
}

#[test]
fn a_revision_that_is_wrong_is_refused_everywhere_and_the_last_good_one_stays() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (Replica::start("a", &database), Replica::start("b", &database));
    a.write("rules.yaml", TAG_ALL);
    until("b has the rules of a", || (b.file("rules.yaml") == TAG_ALL).then_some(()));
    let first = until("it is published", || newest(&a, "rules"));
    // What this replica refuses is not published.
    b.write("rules.yaml", "rules: [");
    until("b refuses its own", || b.log().contains("stays here until it is mended").then_some(()));
    assert_eq!((newest(&a, "rules"), a.file("rules.yaml")), (Some(first), TAG_ALL.to_owned()));
    // As from a replica of another version, to which it is right.
    b.write("rules.yaml", TAG_ALL);
    let (bad, good, last) = (first + 1, first + 2, first + 3);
    database.sql(&format!(
        "INSERT INTO interflow.settings(name, revision, author, content) VALUES('rules', {bad}, 'newer', 'rules: {{')"
    ));
    let refused = until("both refuse it", || {
        let seen = a.json(&["fleet", "settings", "--json"]);
        let refused = |s: &&Value| s["name"] == "rules" && s["revision"] == bad && s["refused"].is_string();
        (seen["replicas"].as_array().unwrap().iter().filter(refused).count() == 2).then_some(seen)
    });
    assert!(refused.to_string().contains("rules.yaml"), "{refused}");
    assert_eq!([a.file("rules.yaml"), b.file("rules.yaml")], [TAG_ALL, TAG_ALL]);
    // The next good one replaces it.
    let second = TAG_ALL.replace("first", "second");
    b.write("rules.yaml", &second);
    until("a has the rules of b", || (a.file("rules.yaml") == second).then_some(()));
    // Back to the first, from the command line.
    until("it has a revision", || (newest(&a, "rules") == Some(good)).then_some(()));
    let (first, good, last) = (first.to_string(), good.to_string(), last.to_string());
    let done = a.run(&["fleet", "rollback", "rules", &first]);
    assert!(done.contains(&format!("revision {last} with the text of revision {first}")), "{done}");
    until("both went back", || [&a, &b].iter().all(|r| r.file("rules.yaml") == TAG_ALL).then_some(()));
    let difference = b.run(&["fleet", "diff", "rules", &good, &last]);
    assert!(difference.contains("-      - tag: second") && difference.contains("+      - tag: first"), "{difference}");
    assert_eq!(b.run(&["fleet", "show", "rules", &good]), second);
}

#[test]
fn a_change_made_while_stopped_is_published_or_kept_aside() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, mut b) = (Replica::start("a", &database), Replica::start("b", &database));
    a.write("rules.yaml", TAG_ALL);
    until("b has the rules of a", || (b.file("rules.yaml") == TAG_ALL).then_some(()));
    until("b has noted them", || b.file("shared-settings.json").contains("rules").then_some(()));
    let stop = |replica: &mut Replica| {
        replica.run(&["stop"]);
        replica.child.wait().unwrap();
    };
    let restart = |mut replica: Replica, database| {
        let home = std::mem::replace(&mut replica.home, tempfile::tempdir().unwrap());
        Replica::start_in(home, "b", database)
    };
    stop(&mut b);
    b.write("rules.yaml", &TAG_ALL.replace("first", "offline"));
    let mut b = restart(b, &database);
    until("a has what was changed at b", || a.file("rules.yaml").contains("offline").then_some(()));
    // Both were changed: the revision wins, and nothing is lost.
    stop(&mut b);
    b.write("rules.yaml", &TAG_ALL.replace("first", "mine"));
    let before = newest(&a, "rules");
    a.write("rules.yaml", &TAG_ALL.replace("first", "theirs"));
    until("a published", || (newest(&a, "rules") > before).then_some(()));
    let b = restart(b, &database);
    assert!(b.file("rules.yaml").contains("theirs") && b.file("rules.yaml.conflict").contains("mine"));
    assert!(b.log().contains("was changed here and by another replica"));
}

#[test]
fn secrets_are_shared_only_with_a_key_of_all() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("c.toml");
    std::fs::write(&config, "[fleet]\nshare = [\"secrets\"]\n").unwrap();
    let check = || interflow(home.path(), &config, &["config", "check"]).output().unwrap();
    let refused = check();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("fleet.share") && message.contains("secrets_key"),
        "{message}"
    );
    std::fs::write(
        &config,
        format!("[fleet]\nshare = [\"secrets\"]\n[approvals]\nsecrets_key = \"{}\"\n", "ab".repeat(32)),
    )
    .unwrap();
    assert!(check().status.success());
}

#[test]
fn the_redaction_policy_and_secrets_are_shared() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let more = format!("share = [\"policy\", \"secrets\"]\n[approvals]\nsecrets_key = \"{}\"\n", "cd".repeat(32));
    let start = |name| Replica::start_with(tempfile::tempdir().unwrap(), name, &database, &more);
    let (a, b) = (start("a"), start("b"));
    let mut add = interflow(a.home.path(), &a.config, &["secrets", "add", "github", "--host", "api.github.com"]);
    let mut add = add.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut add.stdin.take().unwrap(), b"ghp_hush").unwrap();
    assert!(add.wait().unwrap().success());
    until("b has the secret of a", || b.run(&["secrets", "list"]).contains("api.github.com").then_some(()));
    assert!(!b.file("secrets.json").contains("ghp_hush"));
    let policy = "name = \"ours\"\n";
    a.write("policy.toml", policy);
    until("b has the policy of a", || (b.file("policy.toml") == policy).then_some(()));
}

#[test]
fn changes_made_at_two_replicas_at_once_are_both_kept() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (Replica::start("a", &database), Replica::start("b", &database));
    for round in 0..4 {
        std::thread::scope(|scope| {
            for (replica, name) in [(&a, "a"), (&b, "b")] {
                scope.spawn(move || replica.run(&["keys", "add", "--owner", &format!("{name}{round}")]));
            }
        });
    }
    let all = |replica: &Replica| {
        (0..4).all(|round| ["a", "b"].iter().all(|n| replica.file("keys.toml").contains(&format!("\"{n}{round}\""))))
    };
    until("both have the keys of both", || (all(&a) && all(&b)).then_some(()));
    for replica in [&a, &b] {
        assert!(!replica.home.path().join("keys.toml.conflict").exists(), "{}", replica.log());
    }
}

#[test]
fn a_mistake_elsewhere_in_the_configuration_delays_changes_and_loses_none() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("extra.yaml"), "rules: []\n").unwrap();
    let more = format!("[rules]\nfiles = [{:?}]\n", home.path().join("extra.yaml"));
    let (a, b) = (Replica::start("a", &database), Replica::start_with(home, "b", &database, &more));
    a.write("rules.yaml", TAG_ALL);
    until("b has the rules of a", || (b.file("rules.yaml") == TAG_ALL).then_some(()));
    b.write("extra.yaml", "rules: [");
    until("b cannot be reloaded", || b.log().contains("configuration not reloaded").then_some(()));
    // One change comes, and another one is made here.
    let second = TAG_ALL.replace("first", "second");
    a.write("rules.yaml", &second);
    b.run(&["keys", "add", "--owner", "made-meanwhile"]);
    until("b waits with both", || {
        let log = b.log();
        (log.contains("waits until the configuration") && log.contains("the change of the shared keys stays here"))
            .then_some(())
    });
    assert_eq!(b.file("rules.yaml"), TAG_ALL);
    let seen = a.json(&["fleet", "settings", "--json"]);
    assert!(seen["replicas"].to_string().contains("waits until the configuration"), "{seen}");
    b.write("extra.yaml", "rules: []\n");
    until("b has the rules of a", || (b.file("rules.yaml") == second).then_some(()));
    until("a has the key of b", || a.file("keys.toml").contains("made-meanwhile").then_some(()));
}

#[test]
fn a_replica_that_starts_with_a_wrong_newest_revision_uses_the_one_before_it() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let a = Replica::start("a", &database);
    let first = publish_rules(&a, TAG_ALL);
    a.run(&["keys", "add", "--owner", "somebody"]);
    until("the keys are published", || newest(&a, "keys"));
    drop(a);
    let insert = |revision: i64, text: &str| {
        database.sql(&format!(
            "INSERT INTO interflow.settings(name, revision, author, content) VALUES('rules', {revision}, 'newer', '{text}')"
        ));
    };
    insert(first + 1, "rules: {");
    insert(first + 2, "rules: [{ then: no-such-action }]");
    let mut b = Replica::start("b", &database);
    assert_eq!(b.file("rules.yaml"), TAG_ALL);
    assert!(b.file("keys.toml").contains("somebody"));
    let log = b.log();
    let says = format!("revision {} of the shared rules is refused, and revision {first} stays in force", first + 2);
    assert!(log.contains(&says), "{log}");
    let refused = until("it is reported", || {
        let seen = b.json(&["fleet", "settings", "--json"]);
        let refused = |s: &&Value| s["replica"] == "b" && s["name"] == "rules" && s["refused"].is_string();
        seen["replicas"].as_array().unwrap().iter().find(refused).cloned()
    });
    assert_eq!(refused["revision"], first + 2);
    // Likewise at the next start; the next good revision is taken over.
    b.run(&["stop"]);
    b.child.wait().unwrap();
    let home = std::mem::replace(&mut b.home, tempfile::tempdir().unwrap());
    let b = Replica::start_in(home, "b", &database);
    assert_eq!(b.file("rules.yaml"), TAG_ALL);
    let good = TAG_ALL.replace("first", "good");
    insert(first + 3, &good);
    until("b has the good one", || (b.file("rules.yaml") == good).then_some(()));
}

/// The answer of a replica's API to a request with this token: its status and JSON.
async fn api(replica: &Replica, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let info: Value = serde_json::from_str(&replica.file("instance.json")).unwrap();
    let admin = info["admin"].as_str().unwrap();
    let mut wire = interflow_testkit::Wire::connect(admin).await.unwrap().patience(Some(PATIENCE));
    let length = body.len();
    let head = format!(
        "{method} /api/v1{path} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    wire.send(head).await.unwrap();
    let answer = wire.answer().await.unwrap();
    (answer.status, answer.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_lists_revisions_shows_differences_and_goes_back_for_all_replicas() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (Replica::start("a", &database), Replica::start("b", &database));
    // The rules that a replica begins with may be a revision, too.
    let [first, second] = [TAG_ALL.to_owned(), TAG_ALL.replace("first", "second")].map(|text| {
        let revision = publish_rules(&a, &text);
        until("b has it", || (b.file("rules.yaml") == text).then_some(()));
        revision
    });
    let third = second + 1;
    let admin = b.file("admin.token").trim().to_owned();
    let (status, listed) = api(&b, &admin, "GET", "/fleet/settings", "").await;
    assert_eq!((status, &listed["enabled"]), (200, &true.into()));
    let rules = listed["settings"].as_array().unwrap().iter().find(|s| s["name"] == "rules").unwrap();
    assert_eq!(rules["revision"], second);
    let (_, history) = api(&b, &admin, "GET", "/fleet/settings/rules/revisions", "").await;
    let history = history["revisions"].as_array().unwrap();
    assert_eq!((&history[0]["revision"], &history[1]["revision"]), (&second.into(), &first.into()));
    assert_eq!((&history[0]["author"], &history[1]["author"]), (&"a".into(), &"a".into()));
    assert!(history[0]["at"].as_u64() >= history[1]["at"].as_u64() && history[1]["at"].as_u64() > Some(0));
    let (_, diff) = api(&b, &admin, "GET", &format!("/fleet/settings/rules/diff?from={first}"), "").await;
    let changed = |kind: &str| {
        let lines = diff["lines"].as_array().unwrap().iter().filter(|line| line["kind"] == kind);
        lines.map(|line| line["text"].as_str().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((changed("removed"), changed("added")), (vec!["- tag: first".into()], vec!["- tag: second".into()]));
    let whole = format!("/fleet/settings/rules/diff?from=0&to={first}");
    let (_, whole) = api(&b, &admin, "GET", &whole, "").await;
    assert_eq!((whole["lines"].as_array().unwrap().len(), &whole["to"]), (TAG_ALL.lines().count(), &first.into()));

    let back = "/fleet/settings/rules/rollback";
    let body = |revision: i64, base: i64| serde_json::json!({ "revision": revision, "base": base }).to_string();
    for (path, body, status, kind) in [
        (back, body(first, first), 409, "changed_meanwhile"),
        (back, body(99, second), 404, "not_found"),
        ("/fleet/settings/secrets/rollback", body(1, 1), 404, "not_found"),
    ] {
        let (found, answer) = api(&b, &admin, "POST", path, &body).await;
        assert_eq!((found, &answer["error"]["kind"]), (status, &kind.into()), "{answer}");
    }
    // Whoever may not administer sees and changes nothing of it.
    let operator = b.run(&["tokens", "create", "--name", "ci", "--role", "operator"]).trim().to_owned();
    until_held(&b, &operator).await;
    for (method, path) in [("GET", "/fleet/settings"), ("GET", "/fleet/settings/rules/revisions"), ("POST", back)] {
        let (status, _) = api(&b, &operator, method, path, &body(first, second)).await;
        assert_eq!(status, 403, "{method} {path}");
    }
    let (status, done) = api(&b, &admin, "POST", back, &body(first, second)).await;
    assert_eq!((status, done), (200, serde_json::json!({ "revision": third, "changed": true })));
    for replica in [&a, &b] {
        until("the earlier text is in force", || (replica.file("rules.yaml") == TAG_ALL).then_some(()));
    }
    let token = a.file("admin.token");
    let (_, history) = api(&a, token.trim(), "GET", "/fleet/settings/rules/revisions?limit=1", "").await;
    let made = &history["revisions"][0];
    assert_eq!(
        (&made["revision"], &made["restores"], &made["author"]),
        (&third.into(), &first.into(), &"admin token (b)".into())
    );
    let (_, again) = api(&b, &admin, "POST", back, &body(first, third)).await;
    assert_eq!(again, serde_json::json!({ "revision": third, "changed": false }));
    let lines = b.json(&["audit", "list", "rollback", "--json"]);
    let line = lines.as_array().unwrap().iter().find(|line| line["detail"]["changed"] == true);
    let line = line.unwrap_or_else(|| panic!("{lines}"));
    assert_eq!((&line["actor"], &line["status"]), (&"admin token".into(), &200.into()));
    assert_eq!((&line["detail"]["setting"], &line["detail"]["restores"]), (&"rules".into(), &first.into()));
}

/// Waits until a token that was just created is known to a replica.
async fn until_held(replica: &Replica, token: &str) {
    let deadline = Instant::now() + PATIENCE;
    while api(replica, token, "GET", "/me", "").await.0 != 200 {
        assert!(Instant::now() < deadline, "the token is not known within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
