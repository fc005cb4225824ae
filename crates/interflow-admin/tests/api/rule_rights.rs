//! What rules may do by the rights of who saves them, and who sees what they hold.

use serde_json::json;

use super::identity::{as_token, make_token};
use super::*;

async fn with_rules() -> Instance {
    Instance::with(Origin::http(), Setup { has_rules: true, ..Setup::default() }).await
}

impl Instance {
    fn path(&self, name: &str) -> String {
        self._dir.path().join(name).display().to_string()
    }

    async fn save_rules(&self, token: &str, text: &str) -> Answer {
        let path = format!("/api/v1/rules/source?file={}", interflow_types::percent::encoded(&self.path("rules.yaml")));
        as_token(self, token, "PUT", &path, &json!({ "text": text }).to_string()).await
    }
}

fn rule(then: &str) -> String {
    format!("rules:\n  - name: one\n    then: {then}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_save_breakpoints_and_mocks_but_no_rule_that_uses_the_machine() {
    let it = with_rules().await;
    let (_, operator) = make_token(&it, "operator", true).await;
    std::fs::write(it.path("admin.token"), TOKEN).unwrap();
    let token_file = it.path("admin.token");
    for text in [
        rule("{ hold: { timeout: 1s } }"),
        rule("{ answer: { status: 418, body: 'mocked ${host}' } }"),
        rule("[{ tag: x }, { set_request_header: { X-A: b } }]"),
    ] {
        let saved = it.save_rules(&operator, &text).await;
        assert_eq!(saved.status, 200, "{text}: {}", saved.text());
    }
    for text in [
        rule(&format!("{{ map_local: {token_file:?} }}")),
        rule(&format!("{{ answer: {{ file: {token_file:?} }} }}")),
        rule("{ answer: { body: '${env.INTERFLOW_TOKEN}' } }"),
        rule("{ append_file: { file: /tmp/x, text: y } }"),
        rule("{ save_response_body: /tmp/x }"),
        format!("include: {token_file:?}\n"),
        "services: { a: { command: [id] } }\n".to_owned(),
    ] {
        for (method, path, input) in [
            ("POST", "/api/v1/rules/proposals", json!({ "text": text })),
            ("PUT", &*format!("/api/v1/rules/source?file={}", it.path("rules.yaml")), json!({ "text": text })),
        ] {
            let refused = as_token(&it, &operator, method, path, &input.to_string()).await;
            assert_eq!((refused.status, kind(&refused).as_str()), (403, "missing_right"), "{path} {text}");
            assert!(refused.text().contains("administer") && !refused.text().contains(TOKEN), "{}", refused.text());
        }
        let checked =
            as_token(&it, &operator, "POST", "/api/v1/rules/check", &json!({ "text": text }).to_string()).await;
        assert_eq!((checked.status, &checked.json()["ok"]), (200, &json!(false)), "{}", checked.text());
        assert!(checked.text().contains("needs the right administer"), "{}", checked.text());
    }
    // A proposal of an admin is not an operator's to apply.
    std::fs::create_dir(it.path("site")).unwrap();
    std::fs::write(it.path("site/index.html"), "of the site").unwrap();
    let proposed =
        it.post("/rules/proposals", json!({"text": rule(&format!("{{ map_local: {:?} }}", it.path("site")))})).await;
    let path = format!("/api/v1/rules/proposals/{}", proposed.json()["id"]);
    assert_eq!(it.save_rules(TOKEN, "# none yet\n").await.status, 200);
    assert_eq!(kind(&as_token(&it, &operator, "POST", &path, "{}").await), "missing_right");
    assert_eq!(as_token(&it, TOKEN, "POST", &path, "{}").await.status, 200);
    assert_eq!(it.through("/").await.text(), "of the site");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_another_process_is_changing_are_not_overwritten() {
    let it = with_rules().await;
    let (file, before) = (it.path("rules.yaml"), rule("{ tag: before }"));
    assert_eq!(it.save_rules(TOKEN, &before).await.status, 200);
    let other = interflow_files::FileLock::for_edit(file.as_ref()).unwrap();
    let source = format!("/api/v1/rules/source?file={}", interflow_types::percent::encoded(&file));
    let body = json!({ "text": rule("{ tag: mine }"), "base": before }).to_string();
    let mut saving = std::pin::pin!(as_token(&it, TOKEN, "PUT", &source, &body));
    let early = tokio::time::timeout(std::time::Duration::from_millis(200), &mut saving).await;
    assert!(early.is_err(), "{early:?}");
    let theirs = rule("{ tag: theirs }");
    std::fs::write(&file, &theirs).unwrap();
    drop(other);
    assert_eq!(kind(&saving.await), "changed_meanwhile");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rule_reads_or_writes_interflows_own_files() {
    let it = with_rules().await;
    std::fs::write(it.path("admin.token"), TOKEN).unwrap();
    std::fs::create_dir(it.path("site")).unwrap();
    std::fs::write(it.path("site/a"), "of the site").unwrap();
    for then in [
        format!("{{ map_local: {:?} }}", it.path("admin.token")),
        format!("{{ answer: {{ file: {:?} }} }}", it.path("ca/ca.key")),
        format!("{{ script: {{ file: {:?} }} }}", it.path("admin.token")),
        format!("{{ append_file: {{ file: {:?}, text: x }} }}", it.path("rules.yaml")),
    ] {
        let refused = it.save_rules(TOKEN, &rule(&then)).await;
        assert_eq!((refused.status, kind(&refused).as_str()), (422, "bad_rules"), "{then}");
        assert!(
            refused.text().contains("private to Interflow") && !refused.text().contains(TOKEN),
            "{}",
            refused.text()
        );
    }
    // Where the file follows from the request, it is refused when it is asked for.
    let by_request = rule(&format!("{{ answer: {{ file: '{}/${{query.f}}' }} }}", it._dir.path().display()));
    let saved = it.save_rules(TOKEN, &by_request).await;
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert_eq!(it.through("/?f=site/a").await.text(), "of the site");
    for file in ["admin.token", "site/../admin.token", "ca/ca.key"] {
        let refused = it.through(&format!("/?f={file}")).await;
        assert!(refused.status >= 500 && !refused.text().contains(TOKEN), "{file}: {}", refused.text());
    }
    let folder = it.save_rules(TOKEN, &rule(&format!("{{ map_local: {:?} }}", it._dir.path()))).await;
    assert_eq!(folder.status, 200, "{}", folder.text());
    assert_eq!(it.through("/site/a").await.text(), "of the site");
    let refused = it.through("/admin.token").await;
    assert!(refused.status >= 400 && !refused.text().contains(TOKEN), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_held_requests_are_masked_for_who_may_not_change_them() {
    let it = with_rules().await;
    let (_, viewer) = make_token(&it, "viewer", false).await;
    let (_, reader) = make_token(&it, "viewer", true).await;
    let (_, operator) = make_token(&it, "operator", false).await;
    let (_, editor) = make_token(&it, "operator", true).await;
    assert_eq!(it.save_rules(&editor, &rule("{ hold: { timeout: 1m } }")).await.status, 200);
    let mut wire = Wire::connect(it.engine.proxy_addresses()[0]).await.unwrap();
    let (url, host) = (it.origin.url("/text?api_key=query-secret"), it.origin.authority());
    let head = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer header-secret\r\n\r\n");
    wire.send(head).await.unwrap();
    let number = loop {
        let held = as_token(&it, &viewer, "GET", "/api/v1/rules/held", "").await.json();
        if let Some(id) = held["held"][0]["id"].as_u64() {
            break id;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    for (token, sees) in [(&viewer, false), (&reader, false), (&operator, false), (&editor, true)] {
        let held = as_token(&it, token, "GET", "/api/v1/rules/held", "").await.text().to_string();
        assert_eq!((held.contains("header-secret"), held.contains("query-secret")), (sees, sees), "{held}");
        let pending = as_token(&it, token, "GET", "/api/v1/pending", "").await.text().to_string();
        assert_eq!((pending.contains("header-secret"), pending.contains("query-secret")), (false, sees), "{pending}");
    }
    let decision = json!({"action": "continue"}).to_string();
    let decided = as_token(&it, &operator, "POST", &format!("/api/v1/rules/held/{number}"), &decision).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    assert!(!decided.text().contains("-secret"), "{}", decided.text());
    assert_eq!(wire.answer().await.unwrap().status, 200);
}
