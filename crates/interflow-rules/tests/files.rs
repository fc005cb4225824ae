//! Files that rules serve and write, and what a client may not make of their paths.

use std::sync::Arc;

use interflow_rules::{RuleFileSource, RuleProgram, RuleRuntime, RulesConfig, simulate};

/// A program with one rule.
fn program(rule: &str) -> Arc<RuleProgram> {
    let source = RuleFileSource::from_text("row.yaml", format!("rules: [{{then: {rule}}}]"));
    let runtime = Arc::new(RuleRuntime::new(Some("PEM".into()), None));
    RuleProgram::from_sources(vec![source], &RulesConfig::default(), runtime).unwrap_or_else(|e| panic!("{rule}: {e}"))
}

#[tokio::test]
async fn files_are_served_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("site")).unwrap();
    std::fs::write(at("site/a.json"), "{}").unwrap();
    std::fs::write(at("site/index.html"), "<head>").unwrap();
    std::fs::write(at("secret"), "s").unwrap();
    let site = at("site").display().to_string();
    let get = async |rule: &str, url: &str| {
        let sample = simulate::fixture_from(&interflow_rules::test_get_request(url), &Default::default()).unwrap();
        simulate::run(&program(rule), sample).await
    };
    for (rule, url, status, body, media) in [
        (format!("{{map_local: '{site}'}}"), "http://a/a.json", 200, "{}", "application/json"),
        (format!("{{map_local: '{site}'}}"), "http://a/", 200, "<head>", "text/html; charset=utf-8"),
        (format!("{{map_local: '{site}/a.json'}}"), "http://a/x", 200, "{}", "application/json"),
        (
            format!("{{map_local: {{path: '{site}', strip: /s, status: 203}}}}"),
            "http://a/s/a.json",
            203,
            "{}",
            "application/json",
        ),
        (
            format!("{{map_local: {{path: '{site}', regex: 'http://a/v'}}}}"),
            "http://a/v/a.json",
            200,
            "{}",
            "application/json",
        ),
        (
            format!("{{map_local: {{path: '{site}/$1.json', regex: '/(\\w+)$'}}}}"),
            "http://a/x/a",
            200,
            "{}",
            "application/json",
        ),
        (
            format!("{{map_local: {{path: '{site}/$1', regex: '/f=(.*)$'}}}}"),
            "http://a/f=../secret",
            404,
            "404 Not Found: there is no such file\n",
            "text/plain; charset=utf-8",
        ),
        (
            format!("{{map_local: '{site}'}}"),
            "http://a/%2e%2e/secret",
            404,
            "404 Not Found: there is no such file\n",
            "text/plain; charset=utf-8",
        ),
        ("serve_ca".into(), "http://a/", 200, "PEM", "application/x-x509-ca-cert"),
        (format!("{{answer: {{file: '{site}/a.json'}}}}"), "http://a/", 200, "{}", "application/json"),
    ] {
        let trial = get(&rule, url).await;
        let (head, got) = trial.response.unwrap_or_else(|| panic!("{rule} {url}"));
        assert!(trial.answered);
        assert_eq!(
            (head.status.as_u16(), &got[..], head.headers.get_str("content-type")),
            (status, body.as_bytes(), Some(media)),
            "{rule} {url}"
        );
    }
    let through = get(&format!("{{map_local: {{path: '{site}', fall_through: true}}}}"), "http://a/none").await;
    assert!(!through.answered && through.request.is_some());

    // Its folder is created.
    let log = at("logs/log.txt");
    let rule = format!("{{append_file: {{file: '{}', text: '${{url}}'}}}}", log.display());
    get(&rule, "http://a/1").await;
    get(&rule, "http://a/2").await;
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "http://a/1\nhttp://a/2\n");

    let copy = at("copy/${path}");
    let rule = format!("{{save_response_body: '{}'}}", copy.display());
    let told = serde_json::from_value(serde_json::json!({"body": "kept"})).unwrap();
    simulate::run(
        &program(&rule),
        simulate::fixture_from(&interflow_rules::test_get_request("http://a/x"), &told).unwrap(),
    )
    .await;
    for _ in 0..500 {
        if std::fs::read(at("copy/x")).is_ok_and(|b| b == b"kept") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the body was not saved");
}

#[tokio::test]
async fn what_a_client_sends_names_no_file_outside_of_the_folders_of_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(at("site")).unwrap();
    std::fs::write(at("secret"), "s").unwrap();
    std::fs::write(at("site/a"), "a").unwrap();
    std::fs::write(at("site/kept"), "k").unwrap();
    let (site, secret) = (at("site"), at("secret"));
    let get = async |rule: String, query: &str| {
        let told = serde_json::from_value(serde_json::json!({"body": "b"})).unwrap();
        let request = interflow_rules::test_get_request(&format!("http://a/x?f={query}"));
        let trial = simulate::run(&program(&rule), simulate::fixture_from(&request, &told).unwrap()).await;
        let refused = trial.denied.is_some_and(|e| e.to_string().contains("a value leads out of its folder"));
        (refused, trial.response.map(|(head, body)| (head.status.as_u16(), body)))
    };
    let outside = ["..%2fsecret", "%2e%2e%5csecret", "a%2f..%2f..%2fsecret", "..", "x%00", ".."].map(str::to_owned);
    for rule in [
        format!("{{answer: {{file: '{site}/${{query.f}}'}}}}"),
        format!("{{edit_response_body: {{file: '{site}/${{query.f}}'}}}}"),
        format!("{{edit_request_body: {{file: '{site}/${{query.f}}'}}}}"),
        format!("{{inject_html: {{file: '{site}/${{query.f}}', only_html: false}}}}"),
        format!("{{append_file: {{file: '{site}/${{query.f}}', text: x}}}}"),
        format!("{{save_response_body: '{site}/${{query.f}}'}}"),
        format!("[set_variable: {{f: '${{query.f}}'}}, answer: {{file: '{site}/${{var.f}}'}}]"),
    ] {
        for query in &outside {
            assert!(get(rule.clone(), query).await.0, "{rule} {query}");
        }
        assert!(!get(rule.clone(), "a").await.0, "{rule}");
    }
    // A `..` can also be put together, and a path begin with a value.
    for (path, query) in [("/.${query.f}", ".%2fsecret"), ("/.${query.f}/secret", "."), ("${query.f}", secret.as_str())]
    {
        let file = if path.starts_with('$') { path.to_owned() } else { format!("{site}{path}") };
        assert!(get(format!("{{answer: {{file: '{file}'}}}}"), query).await.0, "{path}");
    }
    // A `..` of the rule takes back the value's name, not the rule's folder.
    for (path, query, refused) in [
        ("/${query.f}/../../secret", "", true),
        ("/${query.f}/../../secret", ".", true),
        ("/${query.f}/../a", "x%2f.", false),
        ("/${query.f}", "", false),
        ("/${query.f}/../${query.f}", "", true),
    ] {
        let rule = format!("{{answer: {{file: '{site}{path}'}}}}");
        assert_eq!(get(rule, query).await.0, refused, "{path} {query}");
    }
    // What the rule's author set is not for the client.
    let rule = format!("[set_variable: {{dir: '{site}'}}, answer: {{file: '${{var.dir}}/${{query.f}}'}}]");
    let request = interflow_rules::test_get_request("http://a/x?f=..");
    let fixture = simulate::fixture_from(&request, &serde_json::from_value(serde_json::json!({})).unwrap());
    let denied = simulate::run(&program(&rule), fixture.unwrap()).await.denied.unwrap().to_string();
    assert!(denied.contains("${var.dir}/${query.f}") && !denied.contains(&site), "{denied}");
    for (path, found) in [("${query.f}", 404), ("site/../site/a", 200), ("site/${query.f}/../a", 404)] {
        let rule = format!("{{map_local: '{}'}}", at(path));
        let query = if found == 404 { "..%2fsecret" } else { "" };
        assert_eq!(get(rule, query).await.1.map(|(status, _)| status), Some(found), "{path}");
    }
    // What the rules say themselves may lead anywhere.
    let fixed = format!("[set_variable: {{dir: '{site}/../site'}}, answer: {{file: '${{var.dir}}/${{query.f}}'}}]");
    assert_eq!(get(fixed, "kept").await.1, Some((200, "k".into())));
    assert_eq!(std::fs::read(&secret).unwrap(), b"s");
    // Clients are not told where the files are that cannot be read or written.
    std::fs::create_dir(at("site/folder")).unwrap();
    for (action, name) in [("answer: {file", "none"), ("append_file: {text: x, file", "folder")] {
        let rule = format!("{{{action}: '{site}/${{query.f}}'}}}}");
        let request = interflow_rules::test_get_request(&format!("http://a/?f={name}"));
        let sample = simulate::fixture_from(&request, &Default::default()).unwrap();
        let error = simulate::run(&program(&rule), sample).await.denied.unwrap().to_string();
        assert!(error.contains("file") && !error.contains(&site), "{error}");
    }
    std::fs::write(at("site/check.lua"), "error('no luck')").unwrap();
    let rule = format!("{{script: {{file: '{site}/check.lua'}}}}");
    let sample = simulate::fixture_from(&interflow_rules::test_get_request("http://a/"), &Default::default()).unwrap();
    let error = simulate::run(&program(&rule), sample).await.denied.unwrap().to_string();
    assert!(error.contains("check.lua:1: no luck") && !error.contains(&site), "{error}");
}
