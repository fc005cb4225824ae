//! End-to-end tests of rules: the built binary, an origin and a rule file.

mod default_rules_file;
mod fluxzy_actions;
mod fluxzy_filters;
mod messages;
mod originals;
mod proposals;
mod replays;
mod services;
mod upstream_actions;

use interflow_testkit::{Answer, client};
use serde_json::Value;

use default_rules_file::{Api, Home, Running, until};

#[tokio::test]
async fn rules_edit_answer_and_redirect_requests() {
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
}

#[tokio::test]
async fn a_changed_rule_file_is_reloaded_unless_it_is_invalid() {
    let home = Home::new().await;
    let rules = home.write("r.toml", "[[rules]]\nwhen = 'path:/teapot'\nthen = [{ block = 418 }]\n");
    let running = home.start(&rules);
    let teapot = async || running.get(&home.origin.url("/teapot")).await.status;
    home.write("r.toml", "[[rules]]\nthen = ['abrot']\n");
    until("the refusal", async || home.log_has("unknown action `abrot`")).await;
    assert_eq!(teapot().await, 418);
    home.write("r.toml", "[[rules]]\nwhen = 'path:/teapot'\nthen = [{ block = 404 }]\n");
    until("the new rules", async || teapot().await == 404).await;
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
async fn a_valid_file_is_checked_tested_and_listed() {
    let home = Home::new().await;
    let good = home.write("good.yaml", CHECKED);
    let said = home.run(&["rules", "check", &good]);
    assert!(said.code == 0 && said.out.contains("2 rules are valid"), "{said:?}");
    let said = home.run(&["rules", "test", &good]);
    assert!(said.code == 0 && said.out.contains("ok     good"), "{said:?}");
    let said = home.run(&["rules", "list", &good]);
    assert!(said.out.contains("then set_response_header (response)"), "{said:?}");
}

#[tokio::test]
async fn a_test_that_fails_says_what_differs() {
    let home = Home::new().await;
    let bad = home.write("bad.yaml", &CHECKED.replace("X-First: '1'}}}}", "X-First: '2'}}}}"));
    let said = home.run(&["rules", "test", &bad]);
    assert!(said.code == 1 && said.out.contains("the response's field X-First is \"1\""), "{said:?}");
}

#[tokio::test]
async fn actions_are_listed_and_described_by_a_schema() {
    let home = Home::new().await;
    assert!(home.run(&["rules", "list", "--actions"]).out.contains("map_remote"));
    let schema: Value = serde_json::from_str(&home.run(&["rules", "schema"]).out).unwrap();
    assert_eq!(schema["title"], "Interflow rules");
}

#[tokio::test]
async fn rules_of_other_tools_are_imported_and_checked() {
    let home = Home::new().await;
    let said = home.run(&["import", "mitmproxy", "--set", "map_remote=|http://a.test/|http://b.test/"]);
    assert!(said.out.contains("to: http://b.test/"), "{said:?}");
    let fluxzy = home.write("f.yaml", "rules:\n- filter: {typeKind: path, pattern: /x}\n  action: {typeKind: abort}\n");
    let said = home.run(&["rules", "check", &fluxzy]);
    assert!(said.code == 0 && said.out.contains("f.yaml:2:11: "), "{said:?}");
}

/// A running instance with the rules [`CHECKED`].
struct Ruled {
    home: Home,
    running: Running,
    file: String,
}

impl Ruled {
    async fn start() -> Self {
        let home = Home::new().await;
        let file = home.write("r.yaml", CHECKED);
        let running = home.start(&file);
        Self { home, running, file }
    }

    fn admin(&self) -> Api {
        let token = std::fs::read_to_string(self.home.path("admin.token")).unwrap_or_default();
        Api { admin: self.running.admin, token: token.trim().to_owned() }
    }

    /// What the first rule sets in a response.
    async fn first_header(&self) -> Option<String> {
        let answer = self.running.get(&self.home.origin.url("/status/200")).await;
        answer.header("x-first").map(str::to_owned)
    }

    /// A recorded flow that matched the first rule.
    async fn matched_flow(&self) -> String {
        assert_eq!(self.first_header().await.as_deref(), Some("1"));
        let list = || self.home.run(&["flows", "list", "-is:open", "--format", "jsonl"]).out;
        until("the flow in the recording", async || !list().is_empty()).await;
        let flow: Value = serde_json::from_str(list().lines().next().unwrap()).unwrap();
        flow["id"].as_str().unwrap().to_owned()
    }

    async fn put(&self, text: &str) -> Answer {
        let body = serde_json::json!({ "text": text }).to_string();
        self.admin().ask("PUT", &format!("/api/v1/rules/source?file={}", self.file), &body).await
    }
}

#[tokio::test]
async fn a_recorded_flow_is_explained_by_rule() {
    let ruled = Ruled::start().await;
    let id = ruled.matched_flow().await;
    let said = ruled.home.run(&["rules", "explain", "last", "--rules", &ruled.file]);
    assert!(said.out.contains("first  matched") && said.out.contains("held  did not match"), "{said:?}");
    let explained = ruled.admin().ask("GET", &format!("/api/v1/rules/explain/{id}"), "").await;
    assert!(explained.text().contains("\"outcome\":\"matched\""), "{}", explained.text());
}

#[tokio::test]
async fn matches_are_counted_by_rule() {
    let ruled = Ruled::start().await;
    ruled.matched_flow().await;
    let said = ruled.home.run(&["rules", "list"]);
    assert!(said.out.contains("first  1 match\n"), "{said:?}");
    let metrics = ruled.admin().ask("GET", "/metrics", "").await;
    assert!(metrics.text().contains("interflow_rules_matches_total{rule=\"first\"} 1"), "{}", metrics.text());
}

#[tokio::test]
async fn a_flow_held_by_a_rule_is_listed_and_decided_by_command() {
    let Ruled { home, running, .. } = Ruled::start().await;
    let (url, proxy) = (home.origin.url("/held"), running.proxy);
    let held = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
    until("the held flow", async || home.run(&["pending", "list"]).out.contains("have a look")).await;
    let said = home.run(&["pending", "answer", "rule-1", "--status", "299", "--body", "decided"]);
    assert!(said.code == 0, "{said:?}");
    assert_eq!(held.await.unwrap(), 299);
}

#[tokio::test]
async fn a_rule_file_edited_over_the_api_is_written_and_takes_effect_at_once() {
    let ruled = Ruled::start().await;
    #[cfg(unix)]
    std::fs::set_permissions(&ruled.file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let good = ruled.put("rules: [{name: n, then: {set_response_header: {X-First: '2'}}}]").await;
    assert_eq!(good.status, 200, "{}", good.text());
    assert_eq!(ruled.first_header().await.as_deref(), Some("2"));
    assert!(std::fs::read_to_string(&ruled.file).unwrap().contains("name: n"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&ruled.file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "a file with credentials in it stays private");
    }
}

#[tokio::test]
async fn an_invalid_edit_over_the_api_is_refused_and_the_rules_stay() {
    let ruled = Ruled::start().await;
    let bad = ruled.put("rules: [{then: abrot}]").await;
    assert!(bad.status == 422 && bad.text().contains("did you mean `abort`?"), "{}", bad.text());
    assert_eq!(ruled.first_header().await.as_deref(), Some("1"));
}
