//! Import of Fluxzy's files: each filter and action behaves as documented.

mod page;
mod rows;

use std::sync::Arc;

use interflow_compat::fluxzy::{ACTION_KINDS, FILTER_KINDS, FluxzyFormat};
use interflow_rules::{RuleFileSource, RuleProgram, RuleRuntime, RulesConfig, simulate};
use serde_json::json;

use rows::{ACTIONS, DEFAULTS, FILTERS, IN_BODIES, PARAMETERS};

fn load(text: &str) -> Result<Arc<RuleProgram>, String> {
    let around = RuleRuntime::new(Some("PEM".into()), None).with_formats(vec![Arc::new(FluxzyFormat)]);
    RuleProgram::from_sources(
        vec![RuleFileSource::from_text("fluxzy.yaml", text)],
        &RulesConfig::default(),
        Arc::new(around),
    )
    .map_err(|e| e.to_string())
}

/// A request and response that most filters can be evaluated on.
fn flow(change: &str) -> interflow_rules::FlowFixture {
    let mut asked = json!({
        "method": "POST", "url": "https://api.example.com:8443/v1/users?page=2&q=x",
        "headers": {
            "Content-Type": "application/json", "Authorization": "Bearer abc", "Cookie": "sid=7; t=1",
            "User-Agent": "curl/8.5", "X-A": "one"
        },
        "body": "{\"a\":1}",
    });
    let mut told = json!({
        "status": 200, "headers": {"Content-Type": "text/html; charset=utf-8", "Set-Cookie": "sid=8; Path=/", "Server": "nginx"},
        "body": "<head></head>",
    });
    if let Some((side, media)) = change.split_once('=') {
        let of = if side == "request" { &mut asked } else { &mut told };
        match media.parse::<u16>() {
            Ok(status) => of["status"] = status.into(),
            Err(_) => of["headers"]["Content-Type"] = media.into(),
        }
    } else if !change.is_empty() {
        asked["method"] = change.into();
    }
    let mut sample =
        simulate::fixture_from(&serde_json::from_value(asked).unwrap(), &serde_json::from_value(told).unwrap())
            .unwrap();
    sample.flow.tag("mine");
    sample.flow.tag("comment:look at this");
    sample
}

/// Whether a filter, in YAML flow style, matches the flow once its response has arrived.
async fn holds(filter: &str, change: &str) -> bool {
    let text = format!(
        "rules:\n- name: f\n  filter: {filter}\n  action: {{typeKind: setResponseCookieAction, name: seen, value: '1'}}\n"
    );
    let program = load(&text).unwrap_or_else(|e| panic!("{filter}: {e}"));
    let trial = simulate::run(&program, flow(change)).await;
    trial.matched == ["f"]
}

#[tokio::test]
async fn every_filter_matches_and_rejects() {
    let named: Vec<&str> = FILTERS.iter().map(|(n, ..)| *n).collect();
    assert_eq!(named, *FILTER_KINDS, "one row for each filter");
    assert_eq!(FILTER_KINDS.len(), 60);
    for (name, yes, change, no, other) in FILTERS {
        assert!(holds(yes, change).await, "{name}: {yes} with {change:?}");
        if let Some(no) = no {
            assert!(!holds(no, other).await, "{name}: {no} with {other:?}");
        }
    }
}

#[tokio::test]
async fn filters_have_fluxzys_defaults() {
    for (filter, change, held) in DEFAULTS {
        assert_eq!(holds(filter, change).await, *held, "{filter} with {change:?}");
    }
    for (filter, held) in IN_BODIES {
        let text = format!(
            "rules:\n- name: f\n  filter: {filter}\n  action: {{typeKind: stdErr, text: x, runScope: responseBodyReceivedFromRemote}}\n"
        );
        let trial = simulate::run(&load(&text).unwrap(), flow("")).await;
        assert_eq!(trial.matched == ["f"], *held, "{filter}");
    }
}

#[tokio::test]
async fn actions_have_fluxzys_defaults() {
    for (action, outcome) in PARAMETERS {
        let text = format!("rules:\n- name: r\n  filter: {{typeKind: any}}\n  actions:\n  - {action}\n");
        let program = load(&text).unwrap_or_else(|e| panic!("{action}: {e}"));
        let trial = simulate::run(&program, flow("")).await;
        assert!(came_of(&trial, outcome), "{action}: {outcome}: {trial:#?}");
    }
}

#[tokio::test]
async fn every_action_has_its_effect() {
    let named: Vec<&str> = ACTIONS.iter().map(|(n, ..)| *n).collect();
    assert_eq!(named, *ACTION_KINDS, "one row for each action");
    assert_eq!(ACTION_KINDS.len(), 56);
    for (name, action, outcome) in ACTIONS {
        let text = format!("rules:\n- name: r\n  filter: {{typeKind: any}}\n  actions:\n  - {action}\n");
        let read = load(&text);
        if let Some(part) = outcome.strip_prefix("problem ") {
            let error = read.err().unwrap_or_else(|| panic!("{name} is taken"));
            assert!(error.contains(part), "{name}: {error}");
            continue;
        }
        let program = read.unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(part) = outcome.strip_prefix("note ") {
            let notes: Vec<String> = program.notes.iter().map(ToString::to_string).collect();
            assert!(notes.iter().any(|n| n.contains(part)), "{name}: {notes:?}");
            continue;
        }
        let trial = simulate::run(&program, flow("")).await;
        assert_eq!(trial.matched, ["r"], "{name}");
        assert!(came_of(&trial, outcome), "{name}: {outcome}: {trial:#?}");
    }
}

#[tokio::test]
async fn old_browser_names_map_to_current_profiles() {
    let one = |name: &str| {
        load(&format!(
            "rules:\n- filter: {{typeKind: any}}\n  actions:\n  - {{typeKind: impersonate, nameOrConfigFile: {name}}}\n"
        ))
    };
    for (name, like) in [
        ("Chrome_Windows_131", "chrome"),
        ("chrome_latest", "chrome"),
        ("Chrome_Android_131", "android"),
        ("Edge_Windows_131", "edge"),
        ("Firefox_Windows_142", "firefox"),
        ("safari", "safari"),
        ("mirror", "mirror"),
    ] {
        let program = one(name).unwrap();
        let trial = simulate::run(&program, flow("")).await;
        assert_eq!(trial.overrides.fingerprint.as_deref(), Some(like), "{name}");
        let told = program.notes.iter().any(|n| n.to_string().contains("as it is today"));
        assert_eq!(told, name.contains('_'), "{name}");
    }
    for (name, told) in [("Netscape_4", "mirror, chrome"), ("own.json", "setJa3FingerPrint")] {
        let error = one(name).err().unwrap();
        assert!(error.contains(told), "{error}");
    }
}

fn came_of(trial: &simulate::Simulation, outcome: &str) -> bool {
    let (what, rest) = outcome.split_once(' ').unwrap_or((outcome, ""));
    let request = trial.request.as_ref();
    let response = trial.response.as_ref();
    // The last field of the name: earlier values may precede it.
    let field = |headers: &interflow_types::Headers| {
        let (name, value) = rest.split_once(": ").unwrap();
        let is = headers.get_all(name).last().map(|v| String::from_utf8_lossy(v).into_owned());
        is.as_deref().unwrap_or("-") == value
    };
    match what {
        "matched" => true,
        "tunnel" => trial.tunnel == Some(true),
        "denied" => trial.denied.is_some(),
        "shown" => format!("{:?}", trial.client_tls).starts_with(rest),
        "way" => format!("{:?}", trial.overrides).contains(rest),
        "dial" => trial.overrides.dial.as_ref().is_some_and(|d| d.to_string() == rest),
        "via" => trial.overrides.via.as_ref().is_some_and(|v| v == &[rest]),
        "method" => request.is_some_and(|(h, _)| h.method.as_str() == rest),
        "url" => request.is_some_and(|(h, _)| h.url.to_string() == rest),
        "request" => request.is_some_and(|(h, _)| field(&h.headers)),
        "response" => response.is_some_and(|(h, _)| field(&h.headers)),
        "body" => response.is_some_and(|(_, b)| *b == rest.as_bytes()),
        "tag" => trial.tags.iter().any(|t| t == rest),
        "answer" => {
            let (status, body) = rest.split_once(' ').unwrap();
            trial.answered
                && response
                    .is_some_and(|(h, b)| h.status.as_str() == status && String::from_utf8_lossy(b).starts_with(body))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn fluxzy_incompatibilities_are_noted_with_their_position() {
    let text = "rules:
- name: a
  order: 3
  filter: {typeKind: pathFilter, pattern: /x}
  action: {typeKind: addAuthorizationBearerAction, token: x, tokn: y}
- name: b
  filter: {typeKind: hasSetCookieOnResponse, name: sid, pattern: '8'}
  actions:
  - {typeKind: addResponseHeader, headerName: X, headerValue: '${nope}'}
";
    let notes: Vec<String> = load(text).unwrap().notes.iter().map(ToString::to_string).collect();
    for part in [
        "fluxzy.yaml:2:3: rule `a`: `order` is read and never used",
        "fluxzy.yaml:4:11: rule `a`: without `operation` Fluxzy compares the whole text",
        "fluxzy.yaml:5:11: rule `a`: Fluxzy sends variables in the token as they are written",
        "unknown key `tokn`: did you mean `token`? Fluxzy ignores it",
        "fluxzy.yaml:7:11: rule `b`: Fluxzy compares the pattern with the cookie's name",
        "the variable `nope` does not exist",
    ] {
        assert!(notes.iter().any(|n| n.contains(part)), "{part}: {notes:#?}");
    }
}

#[test]
fn incompatibility_notes_are_reported_along_with_errors() {
    let text = "rules:
- {filter: {typeKind: path, pattern: /x}, action: {typeKind: noOp}}
- {filter: {typeKind: any}, action: {typeKind: abrt}}
";
    let around = Arc::new(RuleRuntime::default().with_formats(vec![Arc::new(FluxzyFormat)]));
    let error =
        RuleProgram::from_sources(vec![RuleFileSource::from_text("f.yaml", text)], &RulesConfig::default(), around)
            .unwrap_err();
    assert_eq!(error.problems.len(), 1);
    assert!(error.notes.iter().any(|n| n.message.starts_with("without `operation`")), "{:#?}", error.notes);
}

#[test]
fn filter_later_than_its_actions_phase_is_an_error() {
    let text = "rules:\n- filter: {typeKind: statusCodeSuccess}\n  action: {typeKind: addRequestHeader, headerName: X, headerValue: y}\n";
    let error = load(text).unwrap_err();
    assert!(
        error.starts_with(
            "fluxzy.yaml:3:11: rule `rule 1`: `add_request_header` acts in the phase request_body at the latest"
        ),
        "{error}"
    );
    for (text, part) in [
        ("rules:\n- filter: {typeKind: hostt, pattern: a}\n  action: {typeKind: abort}\n", "did you mean `host`?"),
        ("rules:\n- filter: {type: host, pattern: a}\n  action: {typeKind: abort}\n", "older pages call it `type`"),
        (
            "rules:\n- filter: {typeKind: host, pattern: 'a(', operation: regex}\n  action: {typeKind: abort}\n",
            "unclosed group",
        ),
        (
            "rules:\n- filter: {typeKind: host, pattern: a, operation: is}\n  action: {typeKind: abort}\n",
            "unknown operation",
        ),
        ("rules:\n- filter: {typeKind: any}\n  action: {typeKind: abrt}\n", "did you mean `abort`?"),
        (
            "rules:\n- filter: {typeKind: statusCode, statusCodes: [404, 5xx]}\n  action: {typeKind: noOp}\n",
            "`5xx` is not a status code",
        ),
        (
            "rules:\n- filter: {typeKind: any}\n  action: {typeKind: mockedResponse, response: {statusCode: 42}}\n",
            "42 is not a final status code",
        ),
        (
            "rules:\n- filter: {typeKind: any}\n  action: {typeKind: setResponseCookie, name: a, maxAge: soon}\n",
            "`maxAge` must be a whole number",
        ),
        ("rules:\n- action: {typeKind: abort}\n", "has no filter"),
        ("rules:\n- filter: {typeKind: any}\n", "has no action"),
    ] {
        let error = load(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn invalid_tls_versions_and_doh_servers_are_errors() {
    for (action, part) in [
        ("{typeKind: forceTlsVersion, sslProtocols: tls11}", "is insecure and not supported"),
        ("{typeKind: forceTlsVersion, sslProtocols: tls14}", "did you mean `tls1"),
        ("{typeKind: useDnsOverHttps, nameOrUrl: 'http://dns.test/'}", "is not a DNS over HTTPS server"),
    ] {
        let text = format!("rules:\n- filter: {{typeKind: any}}\n  action: {action}\n");
        let error = load(&text).unwrap_err();
        assert!(error.contains(part), "{action}: {error}");
    }
}

#[tokio::test]
async fn actions_of_different_phases_in_one_rule_all_run() {
    // A case from Fluxzy's own documentation that never works there.
    let text = "rules:
- name: r
  filter: {typeKind: postFilter}
  actions:
  - {typeKind: forceHttp11Action}
  - {typeKind: addResponseHeaderAction, headerName: X-R, headerValue: '1'}
";
    let program = load(text).unwrap();
    let trial = simulate::run(&program, flow("")).await;
    assert!(came_of(&trial, "way version: Some(Http11)") && came_of(&trial, "response X-R: 1"));
}

#[tokio::test]
async fn named_regex_groups_are_flow_variables() {
    let text = "rules:
- filter: {typeKind: path, pattern: '/v1/(?<what>\\\\w+)', operation: regex}
  action: {typeKind: addRequestHeader, headerName: X-What, headerValue: '${user.what}'}
";
    let program = load(&text.replace("\\\\", "\\")).unwrap();
    assert!(came_of(&simulate::run(&program, flow("")).await, "request X-What: users"));
}

#[tokio::test]
async fn booleans_follow_yaml_1_1_and_others_are_refused() {
    let one = |value: &str| {
        load(&format!("rules:\n- filter: {{typeKind: any, inverted: {value}}}\n  action: {{typeKind: noOp}}\n"))
    };
    for (value, matches) in [
        ("yes", false),
        ("On", false),
        ("TRUE", false),
        ("'true'", false),
        ("y", false),
        ("no", true),
        ("off", true),
        ("False", true),
    ] {
        let trial = simulate::run(&one(value).unwrap(), flow("")).await;
        assert_eq!(!trial.matched.is_empty(), matches, "{value}");
    }
    for value in ["maybe", "1", "[true]"] {
        let error = one(value).err().unwrap_or_else(|| panic!("{value} is taken"));
        assert!(error.contains("must be true or false") && error.contains("fluxzy.yaml:2:"), "{error}");
    }
}

#[tokio::test]
async fn set_cookie_filter_without_a_name_matches_any_cookie() {
    let program = load("rules:\n- filter: {typeKind: hasSetCookieOnResponse}\n  action: {typeKind: noOp}\n").unwrap();
    for (headers, matches) in [(&[("Set-Cookie", "a=b")][..], true), (&[("X", "a=b")], false)] {
        let sample = interflow_rules::FlowFixture::for_get("http://a.test/").with_response(200, headers, "").unwrap();
        assert_eq!(!simulate::run(&program, sample).await.matched.is_empty(), matches, "{headers:?}");
    }
}

#[tokio::test]
async fn file_append_writes_the_text_verbatim() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let action = format!("{{typeKind: fileAppend, filename: '{}', text: 'a;'}}", file.display());
    let program = load(&format!("rules:\n- filter: {{typeKind: any}}\n  action: {action}\n")).unwrap();
    for _ in 0..2 {
        simulate::run(&program, interflow_rules::FlowFixture::for_get("http://a.test/")).await;
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "a;a;");
}

#[cfg(unix)]
#[tokio::test]
async fn a_program_that_takes_its_time_holds_up_only_its_own_flow() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let rule = |script: &str, action: &str| {
        let filter = format!(r#"{{typeKind: exec, filename: sh, arguments: ['-c', "{script}"]}}"#);
        load(&format!("rules:\n- name: r\n  filter: {filter}\n  action: {action}\n")).unwrap()
    };
    let wait = format!("while [ ! -e '{}' ]; do sleep 0.01; done", go.display());
    // In the phases of a connection, of a request, and of the end of a flow.
    for action in [
        "{typeKind: applyComment, comment: x}",
        "{typeKind: setResponseCookieAction, name: seen, value: '1'}",
        "{typeKind: stdErr, text: x, runScope: responseBodyReceivedFromRemote}",
    ] {
        let slow = rule(&wait, action);
        let slow = simulate::run(&slow, flow(""));
        // One thread runs both: a slow flow that blocked it would wait for ever for the other one.
        let other = async {
            let matched = simulate::run(&rule("exit 0", action), flow("")).await.matched;
            std::fs::write(&go, "").unwrap();
            matched
        };
        let (slow, other) = tokio::join!(slow, other);
        assert_eq!((slow.matched, other), (vec!["r".to_owned()], vec!["r".to_owned()]), "{action}");
        std::fs::remove_file(&go).unwrap();
    }
}
