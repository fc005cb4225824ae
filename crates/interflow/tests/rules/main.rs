//! End-to-end tests of rules: the built binary, an origin and a rule file.

mod default_rules_file;
mod fluxzy_actions;
mod fluxzy_filters;
mod messages;
mod originals;
mod replays;
mod services;
mod upstream_actions;

use interflow_testkit::client;
use serde_json::Value;

use default_rules_file::{Api, Home, until};

#[tokio::test]
async fn rules_are_applied_and_reloaded_and_an_invalid_file_is_refused() {
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
async fn invalid_rule_file_prevents_startup_with_its_position() {
    let home = Home::new().await;
    let rules = home.write("r.yaml", "rules:\n  - when: hots:a\n    then: abort\n");
    let said = home.run(&["run", "--listen-proxy", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--rules", &rules]);
    assert!(
        said.code != 0 && said.err.contains("r.yaml:2:11: ") && said.err.contains("did you mean 'host'?"),
        "{said:?}"
    );
}

const CHECKED: &str = r#"
rules:
- name: first
  when: 'path:/status/200'
  then: {set_response_header: {X-First: '1'}}
- name: held
  when: 'path:/held'
  then: {hold: {note: have a look}}
tests:
- {name: good, request: {url: 'http://a.test/status/200'}, expect: {matched: [first], response: {headers: {X-First: '1'}}}}
"#;

#[tokio::test]
async fn files_are_checked_listed_and_tested() {
    let home = Home::new().await;
    let good = home.write("good.yaml", CHECKED);
    let said = home.run(&["rules", "check", &good]);
    assert!(said.code == 0 && said.out.contains("2 rules are valid"), "{said:?}");
    let said = home.run(&["rules", "test", &good]);
    assert!(said.code == 0 && said.out.contains("ok     good"), "{said:?}");
    let bad = home.write("bad.yaml", &CHECKED.replace("X-First: '1'}}}}", "X-First: '2'}}}}"));
    let said = home.run(&["rules", "test", &bad]);
    assert!(said.code == 1 && said.out.contains("the response's field X-First is \"1\""), "{said:?}");
    let said = home.run(&["rules", "list", &good]);
    assert!(said.out.contains("then set_response_header (response)"), "{said:?}");
    assert!(home.run(&["rules", "list", "--actions"]).out.contains("map_remote"));
    let schema: Value = serde_json::from_str(&home.run(&["rules", "schema"]).out).unwrap();
    assert_eq!(schema["title"], "Interflow rules");
    let said = home.run(&["import", "mitmproxy", "--set", "map_remote=|http://a.test/|http://b.test/"]);
    assert!(said.out.contains("to: http://b.test/"), "{said:?}");
    let fluxzy = home.write("f.yaml", "rules:\n- filter: {typeKind: path, pattern: /x}\n  action: {typeKind: abort}\n");
    let said = home.run(&["rules", "check", &fluxzy]);
    assert!(said.code == 0 && said.out.contains("f.yaml:2:11: "), "{said:?}");
}

#[tokio::test]
async fn running_instance_explains_counts_edits_and_holds_by_rules() {
    let home = Home::new().await;
    let file = home.write("r.yaml", CHECKED);
    let running = home.start(&file);
    let token = std::fs::read_to_string(home.path("admin.token")).map(|t| t.trim().to_owned()).unwrap_or_default();
    assert_eq!(running.get(&home.origin.url("/status/200")).await.header("x-first"), Some("1"));
    until("the flow in the recording", async || home.run(&["flows", "count", "-is:open"]).out.trim() == "1").await;

    let said = home.run(&["rules", "explain", "last", "--rules", &file]);
    assert!(said.out.contains("first  matched") && said.out.contains("held  did not match"), "{said:?}");
    let said = home.run(&["rules", "list"]);
    assert!(said.out.contains("first  1 matches"), "{said:?}");

    let admin = Api { admin: running.admin, token };
    let metrics = admin.ask("GET", "/metrics", "").await;
    assert!(metrics.text().contains("interflow_rule_matches_total{rule=\"first\"} 1"), "{}", metrics.text());
    let id = home.run(&["flows", "list", "--format", "jsonl"]).out;
    let id: Value = serde_json::from_str(id.lines().next().unwrap()).unwrap();
    let explained = admin.ask("GET", &format!("/api/v1/rules/explain/{}", id["id"].as_str().unwrap()), "").await;
    assert!(explained.text().contains("\"outcome\":\"matched\""), "{}", explained.text());

    let url = home.origin.url("/held");
    let proxy = running.proxy;
    let held = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
    until("the held flow", async || home.run(&["pending", "list"]).out.contains("have a look")).await;
    let said = home.run(&["pending", "answer", "rule-1", "--status", "299", "--body", "decided"]);
    assert!(said.code == 0, "{said:?}");
    assert_eq!(held.await.unwrap(), 299);

    let source = format!("/api/v1/rules/source?file={file}");
    let bad = admin.ask("PUT", &source, r#"{"text":"rules: [{then: abrot}]"}"#).await;
    assert!(bad.status == 422 && bad.text().contains("did you mean `abort`?"), "{}", bad.text());
    assert_eq!(running.get(&home.origin.url("/status/200")).await.header("x-first"), Some("1"));
    #[cfg(unix)]
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let good = admin
        .ask("PUT", &source, r#"{"text":"rules: [{name: n, then: {set_response_header: {X-First: '2'}}}]"}"#)
        .await;
    assert_eq!(good.status, 200, "{}", good.text());
    assert_eq!(running.get(&home.origin.url("/status/200")).await.header("x-first"), Some("2"));
    assert!(std::fs::read_to_string(&file).unwrap().contains("name: n"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "a file with credentials in it stays private");
    }
}
