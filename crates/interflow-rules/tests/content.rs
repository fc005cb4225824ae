//! Rules that judge content: what cannot be read whole follows `rules.on_failure`, whatever judges it.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use interflow_rules::simulate::{self, Simulation};
use interflow_rules::{FlowFixture, OnFailure, RuleFileSource, RuleProgram, RuleRuntime, RulesConfig};
use interflow_types::{Direction, ErrorKind};
use serde_json::json;

fn program(rule: &str, on_failure: OnFailure) -> Arc<RuleProgram> {
    let text = format!("rules: [{rule}]");
    let config = RulesConfig { on_failure, ..RulesConfig::default() };
    let runtime = Arc::new(RuleRuntime::new(None, None));
    RuleProgram::from_sources(vec![RuleFileSource::from_text("r.yaml", text)], &config, runtime)
        .unwrap_or_else(|e| panic!("{rule}: {e}"))
}

/// A flow with this body and these fields on one side, and a harmless one on the other.
async fn run(program: &Arc<RuleProgram>, request: bool, fields: &[(&str, &str)], body: Bytes) -> Simulation {
    let asked = json!({"method": "POST", "url": "http://a.test/x", "body": "-"});
    let mut flow =
        simulate::fixture_from(&serde_json::from_value(asked).unwrap(), &serde_json::from_value(json!({})).unwrap())
            .unwrap();
    let (headers, side) = match request {
        true => (&mut flow.request.as_mut().unwrap().headers, &mut flow.request_body),
        false => (&mut flow.response.as_mut().unwrap().headers, &mut flow.response_body),
    };
    for (name, value) in fields {
        headers.set(name, value).unwrap();
    }
    *side = body;
    simulate::run(program, flow).await
}

fn gzip(body: &[u8], times: usize) -> Bytes {
    let mut body = body.to_vec();
    for _ in 0..times {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&body).unwrap();
        body = encoder.finish().unwrap();
    }
    body.into()
}

fn utf16(text: &str, marked: bool) -> Bytes {
    let mark = marked.then_some(0xfeff);
    mark.into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

/// A name, header fields, the body, and whether it can be read.
type Encoding = (&'static str, Vec<(&'static str, &'static str)>, Bytes, bool);

/// The ways to write content.
fn encodings(text: &str) -> Vec<Encoding> {
    // White space, so that it is the same JSON.
    let padded = format!("{}{text}", " ".repeat(17 << 20));
    let mut trailing = gzip(text.as_bytes(), 1).to_vec();
    trailing.extend(b"junk after the end");
    vec![
        ("plain", vec![], text.to_owned().into(), true),
        ("gzip", vec![("Content-Encoding", "gzip")], gzip(text.as_bytes(), 1), true),
        ("gzip x 5", vec![("Content-Encoding", "gzip, gzip, gzip, gzip, gzip")], gzip(text.as_bytes(), 5), false),
        ("foo, gzip", vec![("Content-Encoding", "foo, gzip")], gzip(text.as_bytes(), 1), false),
        ("not gzip", vec![("Content-Encoding", "gzip")], text.to_owned().into(), false),
        ("gzip and junk", vec![("Content-Encoding", "gzip")], trailing.into(), false),
        ("17 MiB", vec![], padded.clone().into(), false),
        ("UTF-16", vec![("Content-Type", "text/plain; charset=utf-16le")], utf16(text, false), true),
        ("UTF-16 by its mark", vec![("Content-Type", "application/json")], utf16(text, true), true),
        ("a charset unlike ASCII", vec![("Content-Type", "text/plain; charset=IBM037")], text.to_owned().into(), false),
        ("bomb", vec![("Content-Encoding", "gzip")], gzip(&vec![b' '; 100 << 20], 1), false),
        ("a request's event stream", vec![("Content-Type", "text/event-stream")], text.to_owned().into(), true),
    ]
}

/// What judges content, as a rule that blocks if it finds `needle`.
fn judges(request: bool) -> Vec<(&'static str, String)> {
    let (side, json, phase) = match request {
        true => ("request", "json", "request_body"),
        false => ("response", "response_json", "response_body"),
    };
    let query = if request { "req.body" } else { "resp.body" };
    let then = "then: { block: { status: 418 } }";
    vec![
        ("glob", format!("{{when: {{{side}_body: '*needle*'}}, {then}}}")),
        ("regex", format!("{{when: {{{side}_body: {{regex: 'ne+dle'}}}}, {then}}}")),
        ("json", format!("{{when: {{{json}: {{'$..role': 'needle'}}}}, {then}}}")),
        ("not", format!("{{when: {{not: {{not: {{{side}_body: '*needle*'}}}}}}, {then}}}")),
        ("query", format!("{{when: '{query}:needle', {then}}}")),
        ("named group", format!("{{when: {{{json}: {{'$.a.role': {{regex: '(?P<who>needle)'}}}}}}, {then}}}")),
        (
            "script",
            format!(
                "{{phase: {phase}, then: {{script: {{code: \"if ({side}.body or ''):find('needle') then return answer{{status = 418}} end\"}}}}}}"
            ),
        ),
    ]
}

#[tokio::test]
async fn content_that_cannot_be_read_follows_on_failure_whatever_judges_it() {
    let text = r#"{"a": {"role": "needle"}}"#;
    for request in [true, false] {
        for (encoding, fields, body, readable) in encodings(text) {
            // The other direction of an event stream may never end, so that conditions do not wait for it.
            if encoding == "a request's event stream" && !request {
                continue;
            }
            // Clients drop what follows the end of a coding; an origin may read it.
            let readable = readable || encoding == "gzip and junk" && !request;
            for (judge, rule) in judges(request) {
                for on_failure in [OnFailure::Deny, OnFailure::Pass] {
                    let what = format!("{encoding}, request: {request}, {judge}, {on_failure:?}");
                    let end = run(&program(&rule, on_failure), request, &fields, body.clone()).await;
                    let status = end.response.as_ref().map(|(head, _)| head.status.as_u16());
                    if readable {
                        assert_eq!((end.answered, status), (true, Some(418)), "{what}: {:?}", end.denied);
                        continue;
                    }
                    assert!(end.tags.iter().any(|t| t == "rule_failed"), "{what}");
                    match (on_failure, end.denied) {
                        (OnFailure::Deny, Some(e)) => {
                            let kinds = match request {
                                true => [ErrorKind::Denied, ErrorKind::BodyTooLarge],
                                false => [ErrorKind::BadResponse, ErrorKind::BadResponse],
                            };
                            assert!(kinds.contains(&e.kind()), "{what}: {e}");
                            assert!(e.to_string().contains("cannot be read"), "{what}: {e}");
                        }
                        (OnFailure::Pass, None) => {
                            let sent = if request { end.request.unwrap().1 } else { end.response.unwrap().1 };
                            assert_eq!(sent, body, "{what}");
                        }
                        (_, denied) => panic!("{what}: {denied:?}"),
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn rules_that_judge_no_content_ignore_what_cannot_be_read() {
    for rule in [
        "{when: {path: /y, request_body: '*needle*'}, then: abort}",
        "{when: 'host:b.test req.body:needle', then: abort}",
        "{when: 'method:POST', then: {tag: seen}}",
        "{when: {request_body: '*needle*', method: GET}, then: abort}",
        "{when: {any: ['method:POST', {request_body: '*needle*'}]}, then: {tag: seen}}",
        "{when: 'method:POST', then: {log: '${req.body}'}}",
    ] {
        let fields = [("Content-Encoding", "foo")];
        let end = run(&program(rule, OnFailure::Deny), true, &fields, "??".into()).await;
        assert!(end.denied.is_none() && end.request.is_some(), "{rule}: {:?}", end.denied);
    }
}

#[tokio::test]
async fn a_text_that_only_its_beginning_shows_to_be_utf_16_is_edited_in_it() {
    for (types, marked) in [
        ("text/html; charset=utf-8", true),
        ("text/html", true),
        ("application/json", false),
        ("text/plain; charset*=utf-8''utf-16le", false),
    ] {
        for coded in [false, true] {
            let body = utf16("{\"a\": \"needle\"}", marked);
            let (body, coding) = match coded {
                true => (gzip(&body, 1), "gzip"),
                false => (body, "identity"),
            };
            for edit in ["find: needle, with: pin", "regex: needle, with: pin"] {
                let rule = program(&format!("{{then: {{edit_response_body: {{{edit}}}}}}}"), OnFailure::Deny);
                let fields = [("Content-Type", types), ("Content-Encoding", coding)];
                let end = run(&rule, false, &fields, body.clone()).await;
                let (_, edited) = end.response.unwrap_or_else(|| panic!("{types} {coding} {edit}: {:?}", end.denied));
                assert_eq!(edited, utf16("{\"a\": \"pin\"}", marked), "{types} {coding} {edit}");
            }
        }
    }
}

#[tokio::test]
async fn request_content_that_cannot_be_read_stops_a_rule_of_the_response_too() {
    for (rule, on_failure, denied) in [
        ("{when: {request_body: '*needle*'}, then: {set_response_header: {X-A: '1'}}}", OnFailure::Deny, true),
        ("{when: {request_body: '*needle*'}, then: {set_response_header: {X-A: '1'}}}", OnFailure::Pass, false),
        ("{then: {set_response_header: {X-A: '${req.body}'}}}", OnFailure::Deny, true),
    ] {
        let end = run(&program(rule, on_failure), true, &[("Content-Encoding", "foo")], "needle".into()).await;
        assert_eq!(end.denied.is_some(), denied, "{rule}");
    }
}

#[tokio::test]
async fn wide_text_is_edited_in_its_encoding() {
    let fields = [("Content-Type", "text/plain; charset=utf-16le")];
    for (rule, after) in [
        ("{then: {edit_request_body: {find: cat, with: dog}}}", "a dög-dog"),
        ("{then: {edit_request_body: {regex: '-c.t', with: '+'}}}", "a dög+"),
        ("{then: {script: {code: \"request.body = request.body:upper()\"}}, phase: request_body}", "A DöG-CAT"),
        (
            "{then: [{script: {code: \"request.body = request.body .. '!'\"}}, {edit_request_body: {find: cat, with: dog}}], phase: request_body}",
            "a dög-dog!",
        ),
    ] {
        for marked in [true, false] {
            let end = run(&program(rule, OnFailure::Deny), true, &fields, utf16("a dög-cat", marked)).await;
            assert_eq!(end.request.unwrap().1, utf16(after, marked), "{rule}");
        }
    }
}

#[tokio::test]
async fn edits_of_an_unknown_coding_follow_on_failure() {
    for request in [true, false] {
        let side = if request { "request" } else { "response" };
        for edit in ["{find: a, with: b}", "{regex: a, with: b}", "{json_set: {$.a: 1}}"] {
            let rule = format!("{{then: {{edit_{side}_body: {edit}}}}}");
            let fields = [("Content-Encoding", "dcb")];
            let end = run(&program(&rule, OnFailure::Deny), request, &fields, "{}a".into()).await;
            let expected = if request { ErrorKind::Denied } else { ErrorKind::BadResponse };
            assert_eq!(end.denied.unwrap().kind(), expected, "{rule}");
            let end = run(&program(&rule, OnFailure::Pass), request, &fields, "{}a".into()).await;
            let sent = if request { end.request } else { None }.map(|r| r.1).or(end.response.map(|r| r.1)).unwrap();
            assert_eq!(&sent[..], b"{}a", "{rule}");
        }
        let set = format!("{{then: {{edit_{side}_body: {{set: new}}}}}}");
        let end = run(&program(&set, OnFailure::Deny), request, &[("Content-Encoding", "dcb")], "??".into()).await;
        let sent = if request { end.request.unwrap().1 } else { end.response.unwrap().1 };
        assert_eq!(&sent[..], b"new");
    }
}

#[tokio::test]
async fn json_conditions_are_bounded_in_steps_and_memory() {
    let nested = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    for (path, body, answered) in [
        // As many ways lead to a value as there are combinations; it is visited once.
        ("$..a..a..a", nested(250), true),
        ("$.a", nested(300), false),
        ("$[0]", format!("[0{}]", ",0".repeat(5 << 20)), false),
        ("$..[?@..a..a..a]", nested(120), false),
    ] {
        let rule = format!("{{when: {{json: {{'{path}': '*'}}}}, then: {{block: {{status: 418}}}}}}");
        let end = run(&program(&rule, OnFailure::Deny), true, &[], body.clone().into()).await;
        assert_eq!((end.answered, end.denied.is_some()), (answered, !answered), "{path}: {:?}", end.denied);
        let end = run(&program(&rule, OnFailure::Pass), true, &[], body.into()).await;
        assert_eq!(end.request.is_some(), !answered, "{path}");
    }
}

#[tokio::test]
async fn a_condition_that_counts_does_so_once_for_each_request() {
    let body = format!("{{\"pad\": \"{}\"}}", "x".repeat(100_000));
    for rule in [
        "{when: {any: [{json: {'$.a': x}}, {first: 1}]}, then: {tag: t}}",
        "{when: {any: [{json: {'$.pad': '*'}, every: 2}, {json: {'$.b': x}, every: 1}]}, then: {tag: t}}",
    ] {
        let program = program(rule, OnFailure::Deny);
        for expected in [true, false] {
            let end = run(&program, true, &[], body.clone().into()).await;
            assert_eq!(end.tags.iter().any(|t| t == "t"), expected, "{rule}");
        }
    }
    // An ambiguous path is judged in all its interpretations.
    let program = program("{when: {path: '/x/*', every: 2}, then: block}", OnFailure::Deny);
    for denied in [true, false, true, false] {
        let end = simulate::run(&program, FlowFixture::for_get("http://a.test/x/%61/.")).await;
        assert_eq!(end.denied.is_some(), denied);
    }
}

#[tokio::test]
async fn values_are_captured_from_long_json_too() {
    let body = format!("{{\"pad\": \"{}\", \"who\": \"ann\"}}", "x".repeat(100_000));
    let rule = "{then: [{capture: {name: who, request_json: '$.who'}}, {set_request_header: {X-Who: '${var.who}'}}], \
                phase: request_body}";
    let end = run(&program(rule, OnFailure::Deny), true, &[], body.clone().into()).await;
    assert_eq!(end.request.unwrap().0.headers.get_str("x-who"), Some("ann"));
    let rule = "{when: {json: {'$.who': {regex: '(?P<who>a.n)'}}}, then: {set_request_header: {X-Who: '${var.who}'}}}";
    let end = run(&program(rule, OnFailure::Deny), true, &[], body.into()).await;
    assert_eq!(end.request.unwrap().0.headers.get_str("x-who"), Some("ann"));
}

#[tokio::test]
async fn codings_that_rules_cannot_read_are_not_asked_for() {
    for (rule, asked) in [
        ("{then: {edit_response_body: {find: a, with: b}}}", "gzip, zstd"),
        ("{when: {response_body: '*a*'}, then: {tag: a}}", "gzip, zstd"),
        ("{when: 'status:200', then: {inject_html: x}}", "gzip, zstd"),
        ("{when: {path: /x}, then: {edit_response_body: {find: a, with: b}}}", "gzip, zstd"),
        ("{when: {path: /y}, then: {edit_response_body: {find: a, with: b}}}", "gzip, dcb, zstd"),
        ("{then: {edit_response_body: {set: new}}}", "gzip, zstd"),
        ("{then: {throttle: {response: 1MB}}}", "gzip, dcb, zstd"),
        ("{then: [{edit_response_body: {find: a, with: b}}, {set_request_header: {Accept-Encoding: br}}]}", "br"),
    ] {
        let end =
            run(&program(rule, OnFailure::Deny), true, &[("Accept-Encoding", "gzip, dcb, zstd")], "".into()).await;
        assert_eq!(end.request.unwrap().0.headers.get_str("accept-encoding"), Some(asked), "{rule}");
    }
}

#[tokio::test]
async fn a_response_to_head_does_not_announce_the_length_before_an_edit() {
    let edit = program("{then: {edit_response_body: {find: a, with: bb}}}", OnFailure::Deny);
    let asked = json!({"method": "HEAD", "url": "http://a.test/x"});
    for (status, kept) in [(200, None), (206, Some("3"))] {
        let told = json!({"status": status, "headers": {"Content-Length": "3", "ETag": "x"}});
        let flow = simulate::fixture_from(
            &serde_json::from_value(asked.clone()).unwrap(),
            &serde_json::from_value(told).unwrap(),
        );
        let head = simulate::run(&edit, flow.unwrap()).await.response.unwrap().0;
        assert_eq!(head.headers.get_str("content-length"), kept, "{status}");
    }
}

#[tokio::test]
async fn edits_of_long_json_are_bounded_too() {
    let nested = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    let long = format!("{{\"pad\": \"{}\", \"a\": {}}}", "x".repeat(100_000), nested(100));
    for (edit, edited) in [
        ("{json_set: {$.b: 7}}", true),
        ("{json_remove: [$.a]}", true),
        ("{json_patch: [{op: add, path: /b, value: 7}]}", true),
        ("{json_remove: ['$..a..a..a..a']}", true),
        ("{json_remove: [$.none]}", false),
    ] {
        let rule = format!("{{then: {{edit_request_body: {edit}}}}}");
        let end = run(&program(&rule, OnFailure::Deny), true, &[], long.clone().into()).await;
        let sent = end.request.unwrap_or_else(|| panic!("{edit}: {:?}", end.denied)).1;
        assert_eq!(sent != long, edited, "{edit}");
        if edited && !edit.contains("remove") {
            assert!(sent.ends_with(b",\"b\":7}"), "{edit}");
        }
    }
    let rule = "{then: {edit_request_body: {json_remove: ['$..[?@..a && $..a]']}}}";
    let end = run(&program(rule, OnFailure::Deny), true, &[], long.clone().into()).await;
    assert!(end.denied.unwrap().to_string().contains("nested too deeply, for the path"));
    let end = run(&program(rule, OnFailure::Pass), true, &[], long.clone().into()).await;
    assert_eq!(end.request.unwrap().1, long);
}

#[tokio::test]
async fn edits_of_padded_and_of_undecodable_responses_agree_as_a_stream_and_whole() {
    let text = "hello world ".repeat(50);
    let coded = |suffix: &[u8]| [&gzip(text.as_bytes(), 1)[..], suffix].concat();
    let twice = [&gzip(text.as_bytes(), 1)[..], &gzip(text.as_bytes(), 1)].concat();
    let edited = text.replace("hello", "HOWDY");
    for edit in ["find: hello, with: HOWDY", "regex: hello, with: HOWDY"] {
        for (body, expected) in [
            (coded(b""), Some(edited.clone())),
            (coded(b"JUNKJUNK"), Some(edited.clone())),
            (coded(&[0; 100]), Some(edited.clone())),
            (coded(&[0x1f]), Some(edited.clone())),
            (twice.clone(), Some(edited.repeat(2))),
            (text.clone().into_bytes(), None),
            (b"\x1f\x8b and no more of it".to_vec(), None),
        ] {
            for on_failure in [OnFailure::Deny, OnFailure::Pass] {
                let what = format!("{edit} {on_failure:?} {} bytes", body.len());
                let rule = format!("{{then: {{edit_response_body: {{{edit}}}}}}}");
                let fields = [("Content-Encoding", "gzip")];
                let end = run(&program(&rule, on_failure), false, &fields, body.clone().into()).await;
                match (&expected, on_failure) {
                    (Some(expected), _) => {
                        let (head, got) = end.response.unwrap();
                        assert_eq!(String::from_utf8_lossy(&got), *expected, "{what}");
                        assert!(!head.headers.contains("content-encoding"), "{what}");
                    }
                    (None, OnFailure::Deny) => {
                        let denied = end.denied.map(|e| (e.kind(), e.to_string()));
                        assert_eq!(denied.as_ref().map(|d| d.0), Some(ErrorKind::BadResponse), "{what}: {denied:?}");
                        assert!(end.tags.iter().any(|t| t == "rule_failed"), "{what}");
                    }
                    (None, OnFailure::Pass) => {
                        let (head, got) = end.response.unwrap();
                        assert_eq!((&got[..], head.headers.contains("content-encoding")), (&body[..], true), "{what}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_follows_on_failure() {
    for (rule, judged) in [
        ("{when: {message: '*needle*'}, then: drop_message}", true),
        ("{when: {message: '*needle*'}, then: {tag: seen}}", true),
        ("{when: 'req.body:needle', then: drop_message}", true),
        ("{when: {not: {message: '*needle*'}}, then: drop_message}", true),
        ("{when: {from: client}, then: drop_message}", true),
        ("{then: {edit_message: {find: a, with: b}}}", true),
        ("{then: {edit_message: {find: a, with: b}}, when: {from: server}}", false),
        ("{when: {path: /y, message: '*needle*'}, then: drop_message}", false),
        ("{when: {from: client}, then: {tag: seen}, phase: message}", false),
    ] {
        for on_failure in [OnFailure::Deny, OnFailure::Pass] {
            let flow = FlowFixture::for_get("http://a.test/x").with_message(Direction::Request, vec![b' '; 17 << 20]);
            let end = simulate::run(&program(rule, on_failure), flow).await;
            let failed = end.tags.iter().any(|t| t == "rule_failed");
            assert_eq!(failed, judged, "{rule} {on_failure:?}");
            let denied = end.denied.map(|e| e.kind());
            let expected = (judged && on_failure == OnFailure::Deny).then_some(ErrorKind::BodyTooLarge);
            assert_eq!(denied, expected, "{rule} {on_failure:?}");
            let whole = end.messages.first().map(|m| m.payload.len());
            assert_eq!(whole, denied.is_none().then_some(17 << 20), "{rule} {on_failure:?}");
        }
    }
}

#[tokio::test]
async fn parts_of_a_body_that_rules_judge_or_edit_are_not_asked_for() {
    for (rule, asked) in [
        ("{when: {response_body: '*a*'}, then: abort}", false),
        ("{when: {response_json: {$.a: b}}, then: abort}", false),
        ("{then: {edit_response_body: {find: a, with: b}}}", false),
        ("{when: {path: /y, response_body: '*a*'}, then: abort}", true),
        ("{when: {message: '*a*'}, then: drop_message}", true),
        ("{when: {request_body: '*a*'}, then: abort}", true),
    ] {
        let fields = [("Range", "bytes=0-3"), ("If-Range", "x")];
        let head = run(&program(rule, OnFailure::Deny), true, &fields, "".into()).await.request.unwrap().0;
        assert_eq!([head.headers.contains("range"), head.headers.contains("if-range")], [asked; 2], "{rule}");
    }
}

#[tokio::test]
async fn a_part_of_a_body_is_content_that_cannot_be_read() {
    let told = json!({"status": 206, "headers": {"Content-Range": "bytes 0-3/7"}, "body": "need"});
    for (rule, judged) in [
        ("{when: {response_body: '*needle*'}, then: abort}", true),
        ("{then: {edit_response_body: {find: needle, with: b}}}", true),
        ("{then: {edit_response_body: {regex: needle, with: b}}}", true),
        ("{when: {response_type: 'text/html', response_body: '*needle*'}, then: abort}", false),
        ("{then: {edit_response_body: {set: b}}}", false),
    ] {
        for on_failure in [OnFailure::Deny, OnFailure::Pass] {
            let asked = serde_json::from_value(json!({"url": "http://a.test/x"})).unwrap();
            let flow = simulate::fixture_from(&asked, &serde_json::from_value(told.clone()).unwrap()).unwrap();
            let end = simulate::run(&program(rule, on_failure), flow).await;
            assert_eq!(end.tags.iter().any(|t| t == "rule_failed"), judged, "{rule} {on_failure:?}");
            let expected = (judged && on_failure == OnFailure::Deny).then_some(ErrorKind::BadResponse);
            assert_eq!(end.denied.map(|e| e.kind()), expected, "{rule} {on_failure:?}");
        }
    }
}

#[tokio::test]
async fn json_that_recipients_read_differently_follows_on_failure() {
    let json = ("Content-Type", "application/json; charset=utf-8");
    for (fields, body) in [
        (vec![json], r#"{"a":"needle","a":"ok"}"#),
        (vec![json], r#"{"a":"ok","\u0061":"needle"}"#),
        (vec![], r#"{"a":"needle","a":"ok"}"#),
        (vec![json], r#"{"a":"needle","n":NaN}"#),
        (vec![json], r#"{"a":"needle"}x"#),
        (vec![json], "{\"b\":1}\n{\"a\":\"needle\"}"),
        (vec![json], r#"/**/{"a":"needle"}"#),
        (vec![("Content-Type", "application/problem+json")], r#"{"a":"needle",}"#),
        (vec![json], "{\"a\":\"needle\",\"n\":\"\u{1}\"}"),
    ] {
        for request in [true, false] {
            let matcher = if request { "json" } else { "response_json" };
            for path in ["$.a", "$[?@.a == 'needle'].a", "$..a"] {
                // A filter looks into the members, of which each is valid.
                if path.contains('?') && !body.starts_with("{\"a\":\"needle\",\"n\"") {
                    continue;
                }
                let rule = format!("{{when: {{{matcher}: {{\"{path}\": needle}}}}, then: {{block: {{status: 418}}}}}}");
                for on_failure in [OnFailure::Deny, OnFailure::Pass] {
                    let what = format!("{body}, request: {request}, {path}, {on_failure:?}");
                    let end = run(&program(&rule, on_failure), request, &fields, body.into()).await;
                    assert!(end.tags.iter().any(|t| t == "rule_failed"), "{what}");
                    let expected = if request { ErrorKind::Denied } else { ErrorKind::BadResponse };
                    let expected = (on_failure == OnFailure::Deny).then_some(expected);
                    assert_eq!(end.denied.map(|e| e.kind()), expected, "{what}");
                }
            }
        }
    }
    // What is not called JSON need not be JSON.
    for (fields, body) in [(vec![], "{'a':'needle'}"), (vec![json], ""), (vec![json], "\n")] {
        let rule = program("{when: {json: {'$.a': needle}}, then: abort}", OnFailure::Deny);
        let end = run(&rule, true, &fields, body.into()).await;
        assert!(end.denied.is_none() && end.request.is_some(), "{body}: {:?}", end.denied);
    }
}

#[tokio::test]
async fn an_edit_of_what_is_not_json_names_the_cause() {
    for (request, kind) in [(true, ErrorKind::Denied), (false, ErrorKind::BadResponse)] {
        let side = if request { "request" } else { "response" };
        let rule = program(&format!("{{then: {{edit_{side}_body: {{json_remove: $.a}}}}}}"), OnFailure::Deny);
        let e = run(&rule, request, &[], "{\"a\":NaN}".into()).await.denied.unwrap();
        assert_eq!(e.kind(), kind);
        assert!(e.to_string().contains("the JSON of this body cannot be changed"), "{e}");
    }
}

#[tokio::test]
async fn operations_of_graphql_are_found_wherever_a_request_may_name_them() {
    let block = |fields: &[(&str, &str)], query: &str, body: &str| {
        let asked = json!({"method": "POST", "url": format!("http://a.test/graphql{query}"), "body": body});
        let mut flow = simulate::fixture_from(
            &serde_json::from_value(asked).unwrap(),
            &serde_json::from_value(json!({})).unwrap(),
        )
        .unwrap();
        for (name, value) in fields {
            flow.request.as_mut().unwrap().headers.set(name, *value).unwrap();
        }
        flow
    };
    let rule = program("{when: {graphql: Secret}, then: {block: {status: 418}}}", OnFailure::Deny);
    let json = [("Content-Type", "application/json")];
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    for (fields, query, body, answered) in [
        (&json[..], "", r#"{"query":"query Secret { x }"}"#, true),
        (&json[..], "", r#"{"operationName":"A","query":"query A{x} query Secret { x }"}"#, false),
        (&json[..], "", r#"{"query":"fragment f on X {a} mutation Secret { x }"}"#, true),
        (&json[..], "", r#"[{"query":"query A{x}"},{"query":"query Secret { x }"}]"#, true),
        (&json[..], "", r#"[{"operationName":"A"},{"operationName":"Secret"}]"#, true),
        (&json[..], "", r##"{"query":"#c\nquery#x\n Secret { x }"}"##, true),
        (&json[..], "?operationName=Secret", r#"{"query":"query A{x} query Secret { x }"}"#, true),
        (&json[..], "?query=query%20Secret%7Bx%7D", "", true),
        (&json[..], "?query=query%20A%7Bx%7D", "", false),
        (&[("Content-Type", "application/graphql; charset=utf-8")][..], "", "query Secret { x }", true),
        (&form[..], "", "query=query+Secret%7Bx%7D", true),
    ] {
        let end = simulate::run(&rule, block(fields, query, body)).await;
        assert_eq!((end.answered, end.denied.is_some()), (answered, false), "{query} {body}: {:?}", end.denied);
    }
    for body in [
        r#"{"operationName":"Secret","query":"query A{x} query Secret { x }","operationName":"A"}"#,
        r#"{"query":"query Secret{ x }","variables":{"n":NaN}}"#,
        r#"{"query":"query Secret{ x }"}{}"#,
    ] {
        let end = simulate::run(&rule, block(&json, "", body)).await;
        assert_eq!(end.denied.map(|e| e.kind()), Some(ErrorKind::Denied), "{body}");
    }
}

#[tokio::test]
async fn messages_of_a_grpc_body_are_judged_without_their_compression() {
    let frame = |flags: u8, content: &[u8]| {
        let mut frame = vec![flags];
        frame.extend((content.len() as u32).to_be_bytes());
        frame.extend(content);
        Bytes::from(frame)
    };
    let rule = program("{when: {request_body: '*needle*'}, then: {block: {status: 418}}}", OnFailure::Deny);
    let grpc = ("Content-Type", "application/grpc+proto");
    for (fields, body, answered, denied) in [
        (vec![grpc], frame(0, b"a needle"), true, false),
        (vec![grpc, ("grpc-encoding", "gzip")], frame(1, &gzip(b"a needle", 1)), true, false),
        (vec![grpc, ("grpc-encoding", "gzip")], frame(1, &gzip(b"hay", 1)), false, false),
        (vec![grpc, ("grpc-encoding", "snappy")], frame(1, b"?"), false, true),
        (vec![grpc], frame(1, &gzip(b"a needle", 1)), false, true),
        (vec![grpc], frame(2, b"?"), false, true),
        (vec![("Content-Type", "application/grpc-web-text")], "AAAAAAA=".into(), false, true),
    ] {
        let end = run(&rule, true, &fields, body.clone()).await;
        assert_eq!((end.answered, end.denied.is_some()), (answered, denied), "{fields:?} {body:?}");
    }
}
