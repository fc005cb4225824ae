//! Settings that replicas share through the database of their store: keys, rules, policies, approvals.

use std::process::Stdio;
use std::sync::Arc;

use interflow_fleet::{BoxedStream, NewSetting, PostgresSettings, RowKey, TlsClient, TlsHandshake};
use interflow_testkit::{PostgresDatabase, PostgresServer, until};
use serde_json::Value;

use crate::replica::{ADMIN_TOKEN, Replica, interflow, named};

const TAG_ALL: &str = "rules:\n  - name: all\n    then:\n      - tag: first\n";

fn start(name: &str, database: &PostgresDatabase) -> Replica {
    Replica::start(&named(name, database))
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
        (replica.cli(&["fleet", "show", "rules", &revision.to_string()]) == text).then_some(revision)
    })
}

/// Publishes rules as a replica does that accepts them.
fn publish_as_another_version(database: &PostgresDatabase, base: i64, content: &[u8]) -> Option<i64> {
    struct NoTls;
    impl TlsClient for NoTls {
        fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
            Box::pin(async { Err(std::io::Error::other("the server has no TLS")) })
        }
    }
    let url = database.url().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let key = RowKey::derive(ADMIN_TOKEN);
        let store = PostgresSettings::open(&url, |_| Ok(Arc::new(NoTls)), key).await.unwrap();
        let new = NewSetting { name: "rules", base, content, author: "newer", restores: None };
        store.publish(&new).await.unwrap()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_no_replica_has_written_are_refused_and_named() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (start("a", &database), start("b", &database));
    let first = publish_rules(&a, TAG_ALL);
    until("b has the rules of a", || (b.file("rules.yaml") == TAG_ALL).then_some(()));
    let token = a.cli(&["tokens", "create", "--name", "ci", "--role", "viewer"]).trim().to_owned();
    b.until_token_status(&token, 200).await;
    // A program of somebody who may write to the database; the code of another row does not help.
    database.sql(
        "INSERT INTO interflow.settings(name, revision, author, content, mac) SELECT name, revision + 1, author, \
         'services: {a: {command: [touch, /tmp/never]}}'::bytea, mac FROM interflow.settings WHERE name = 'rules' \
         ORDER BY revision DESC LIMIT 1",
    );
    database.sql("SELECT pg_notify('interflow_settings', 'rules')");
    // The token of a viewer as an admin's, under another id.
    let id = token.split('_').nth(1).unwrap();
    let admin = token.replace(id, "ffffffffffff");
    database.sql(&format!(
        "INSERT INTO interflow.api_tokens(id, token, mac) SELECT 'ffffffffffff', \
         replace(replace(token, 'viewer', 'admin'), '{id}', 'ffffffffffff'), mac FROM interflow.api_tokens WHERE id = '{id}'"
    ));
    for replica in [&a, &b] {
        until("it says that it refuses the row", || {
            let log = replica.log();
            let settings = log.contains(&format!("revision {} of the shared rules is refused", first + 1));
            (settings && log.contains("an API token in the shared store is refused")).then_some(())
        });
        replica.until_token_status(&admin, 401).await;
        assert_eq!(replica.file("rules.yaml"), TAG_ALL);
    }
    // They are not in the way of those who may.
    assert_eq!(publish_rules(&b, &TAG_ALL.replace("first", "second")), first + 2);
    until("a has the rules of b", || a.file("rules.yaml").contains("second").then_some(()));
}

#[test]
fn what_was_shared_by_an_earlier_version_is_accepted_when_its_tables_are_migrated() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let a = start("a", &database);
    let first = publish_rules(&a, TAG_ALL);
    drop(a);
    // As the version before left it.
    database.sql(
        "ALTER TABLE interflow.settings DROP COLUMN mac; ALTER TABLE interflow.api_tokens DROP COLUMN mac; \
         DROP TABLE interflow.ended_sessions, interflow.mcp_grants; \
         DELETE FROM interflow.refinery_schema_history WHERE version >= 15",
    );
    // A replica that has nothing of its own.
    let b = start("b", &database);
    assert_eq!((newest(&b, "rules"), b.file("rules.yaml")), (Some(first), TAG_ALL.to_owned()));
}

#[test]
fn the_mode_of_approvals_holds_at_all_replicas() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, mut b) = (start("a", &database), start("b", &database));
    a.cli(&["approvals", "mode", "enforce"]);
    let mode = |replica: &Replica| replica.file("approvals-mode.json");
    until("b enforces", || mode(&b).contains("enforce").then_some(()));
    let shown = |replica: &Replica, mode: &str| replica.cli(&["approvals", "mode"]).contains(mode).then_some(());
    until("b enforces", || shown(&b, "enforce"));
    b.stop();
    b.run();
    until("b enforces after a restart", || shown(&b, "enforce"));
    let c = start("c", &database);
    until("a replica that comes later enforces", || shown(&c, "enforce"));
    b.cli(&["approvals", "mode", "observe"]);
    until("a follows", || shown(&a, "observe"));
}

#[test]
fn what_changes_at_one_replica_takes_effect_at_all() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (start("a", &database), start("b", &database));
    // A key made at one is valid at the other: both read the same file.
    a.cli(&["keys", "add", "--owner", "build-agent"]);
    until("b has the key of a", || b.file("keys.toml").contains("build-agent").then_some(()));
    assert!(b.cli(&["keys", "list"]).contains("build-agent"));
    assert_eq!(newest(&b, "keys"), Some(1));
    // Approval rules go through the API of a running instance.
    b.cli(&["approvals", "rules", "add", "deny", "blocked.example"]);
    until("a denies what b denies", || {
        a.cli(&["approvals", "rules", "list"]).contains("blocked.example").then_some(())
    });
    // A replica that comes later has everything from its start on.
    let c = start("c", &database);
    assert!(c.cli(&["keys", "list"]).contains("build-agent") && c.file("approvals.json").contains("blocked.example"));
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
    let (a, b) = (start("a", &database), start("b", &database));
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
    assert_eq!(publish_as_another_version(&database, first, b"rules: {"), Some(bad));
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
    let done = a.cli(&["fleet", "rollback", "rules", &first]);
    assert!(done.contains(&format!("revision {last} with the text of revision {first}")), "{done}");
    until("both went back", || [&a, &b].iter().all(|r| r.file("rules.yaml") == TAG_ALL).then_some(()));
    let difference = b.cli(&["fleet", "diff", "rules", &good, &last]);
    assert!(difference.contains("-      - tag: second") && difference.contains("+      - tag: first"), "{difference}");
    assert_eq!(b.cli(&["fleet", "show", "rules", &good]), second);
}

#[test]
fn a_change_made_while_stopped_is_published_or_kept_aside() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, mut b) = (start("a", &database), start("b", &database));
    a.write("rules.yaml", TAG_ALL);
    until("b has the rules of a", || (b.file("rules.yaml") == TAG_ALL).then_some(()));
    until("b has noted them", || b.file("shared-settings.json").contains("rules").then_some(()));
    b.stop();
    b.write("rules.yaml", &TAG_ALL.replace("first", "offline"));
    b.run();
    until("a has what was changed at b", || a.file("rules.yaml").contains("offline").then_some(()));
    // Both were changed: the revision wins, and nothing is lost.
    b.stop();
    b.write("rules.yaml", &TAG_ALL.replace("first", "mine"));
    let before = newest(&a, "rules");
    a.write("rules.yaml", &TAG_ALL.replace("first", "theirs"));
    until("a published", || (newest(&a, "rules") > before).then_some(()));
    b.run();
    assert!(b.file("rules.yaml").contains("theirs") && b.file("rules.yaml.conflict").contains("mine"));
    assert!(b.log().contains("was changed here and by another replica"));
}

#[test]
fn secrets_are_shared_only_with_a_key_of_all() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("c.toml");
    std::fs::write(&config, "[fleet]\nshare = [\"secrets\"]\n").unwrap();
    let check = || interflow(home.path(), &["config", "check"]).output().unwrap();
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
    let [a, b] = ["a", "b"].map(|name| Replica::start(&(named(name, &database) + &more)));
    let add = |replica: &Replica, label: &str, host: &str| {
        let mut add = replica.command(&["secrets", "add", label, "--host", host]);
        let mut add = add.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut add.stdin.take().unwrap(), b"ghp_hush").unwrap();
        add
    };
    assert!(add(&a, "github", "api.github.com").wait().unwrap().success());
    until("b has the secret of a", || b.cli(&["secrets", "list"]).contains("api.github.com").then_some(()));
    assert!(!b.file("secrets.json").contains("ghp_hush"));
    // At both at once.
    let adding = [add(&a, "one", "one.test"), add(&b, "two", "two.test")];
    assert!(adding.into_iter().all(|mut add| add.wait().unwrap().success()));
    until("both have all three", || {
        let has_all = |replica: &Replica| {
            let list = replica.cli(&["secrets", "list"]);
            ["api.github.com", "one.test", "two.test"].iter().all(|host| list.contains(host))
        };
        (has_all(&a) && has_all(&b)).then_some(())
    });
    let policy = "name = \"ours\"\n";
    a.write("policy.toml", policy);
    until("b has the policy of a", || (b.file("policy.toml") == policy).then_some(()));
}

#[test]
fn changes_made_at_two_replicas_at_once_are_both_kept() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (start("a", &database), start("b", &database));
    for round in 0..4 {
        std::thread::scope(|scope| {
            for (replica, name) in [(&a, "a"), (&b, "b")] {
                scope.spawn(move || replica.cli(&["keys", "add", "--owner", &format!("{name}{round}")]));
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
    let (a, b) = (start("a", &database), Replica::start_in(home, &(named("b", &database) + &more), Vec::new()));
    let first = publish_rules(&a, TAG_ALL);
    // Not only in its file: a mistake that comes before the reload delays these rules, too.
    until("b has the rules of a", || {
        let seen = a.json(&["fleet", "settings", "--json"]);
        let taken =
            |s: &Value| (&s["replica"], &s["name"], &s["revision"]) == (&"b".into(), &"rules".into(), &first.into());
        seen["replicas"].as_array().unwrap().iter().any(|s| taken(s) && s["refused"].is_null()).then_some(())
    });
    assert_eq!(b.file("rules.yaml"), TAG_ALL);
    b.write("extra.yaml", "rules: [");
    until("b cannot be reloaded", || b.log().contains("configuration not reloaded").then_some(()));
    // One change comes, and another one is made here.
    let second = TAG_ALL.replace("first", "second");
    a.write("rules.yaml", &second);
    b.cli(&["keys", "add", "--owner", "made-meanwhile"]);
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
    let a = start("a", &database);
    let first = publish_rules(&a, TAG_ALL);
    a.cli(&["keys", "add", "--owner", "somebody"]);
    until("the keys are published", || newest(&a, "keys"));
    drop(a);
    for (base, text) in [(first, "rules: {"), (first + 1, "rules: [{ then: no-such-action }]")] {
        assert_eq!(publish_as_another_version(&database, base, text.as_bytes()), Some(base + 1));
    }
    let mut b = start("b", &database);
    assert_eq!(b.file("rules.yaml"), TAG_ALL);
    assert!(b.file("keys.toml").contains("somebody"));
    let log = b.log();
    let says = format!("revision {} of the shared rules is refused, and revision {first} stays active", first + 2);
    assert!(log.contains(&says), "{log}");
    let refused = until("it is reported", || {
        let seen = b.json(&["fleet", "settings", "--json"]);
        let refused = |s: &&Value| s["replica"] == "b" && s["name"] == "rules" && s["refused"].is_string();
        seen["replicas"].as_array().unwrap().iter().find(refused).cloned()
    });
    assert_eq!(refused["revision"], first + 2);
    // Likewise at the next start; the next good revision is taken over.
    b.stop();
    b.run();
    assert_eq!(b.file("rules.yaml"), TAG_ALL);
    let good = TAG_ALL.replace("first", "good");
    assert_eq!(publish_as_another_version(&database, first + 2, good.as_bytes()), Some(first + 3));
    until("b has the good one", || (b.file("rules.yaml") == good).then_some(()));
}

/// The status and the JSON of an answer of the API.
async fn api(replica: &Replica, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let answer = replica.api(token, method, path, body).await;
    (answer.status, answer.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_lists_revisions_shows_differences_and_goes_back_for_all_replicas() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let (a, b) = (start("a", &database), start("b", &database));
    // The rules that a replica begins with may be a revision, too.
    let [first, second] = [TAG_ALL.to_owned(), TAG_ALL.replace("first", "second")].map(|text| {
        let revision = publish_rules(&a, &text);
        until("b has it", || (b.file("rules.yaml") == text).then_some(()));
        revision
    });
    let third = second + 1;
    let admin = b.admin_token();
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
    let operator = b.cli(&["tokens", "create", "--name", "ci", "--role", "operator"]).trim().to_owned();
    b.until_token_status(&operator, 200).await;
    for (method, path) in [("GET", "/fleet/settings"), ("GET", "/fleet/settings/rules/revisions"), ("POST", back)] {
        let (status, _) = api(&b, &operator, method, path, &body(first, second)).await;
        assert_eq!(status, 403, "{method} {path}");
    }
    let (status, done) = api(&b, &admin, "POST", back, &body(first, second)).await;
    assert_eq!((status, done), (200, serde_json::json!({ "revision": third, "changed": true })));
    for replica in [&a, &b] {
        until("the earlier text is in force", || (replica.file("rules.yaml") == TAG_ALL).then_some(()));
    }
    let token = a.admin_token();
    let (_, history) = api(&a, &token, "GET", "/fleet/settings/rules/revisions?limit=1", "").await;
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
