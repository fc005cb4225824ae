//! External decisions: scripts, services, recordings.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use interflow_rules::{OnFailure, RecordedExchange, RuleFileSource, RuleProgram, RuleRuntime, RulesConfig, simulate};
use interflow_testkit::StallingService;
use interflow_types::{
    Headers, HttpClient, Method, Request, Response, ResponseFuture, ResponseHead, Scheme, StatusCode, Url,
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

fn load(text: &str, egress: Option<Arc<dyn HttpClient>>) -> Result<Arc<RuleProgram>, String> {
    let config = RulesConfig::default();
    let around = Arc::new(RuleRuntime::new(None, egress));
    RuleProgram::from_sources(vec![RuleFileSource::from_text("r.yaml", text)], &config, around)
        .map_err(|e| e.to_string())
}

async fn run(program: &Arc<RuleProgram>, body: &str, answer: &str) -> simulate::Simulation {
    let asked = json!({"method": "POST", "url": "http://a.test/v1?x=1", "headers": {"X-A": "1", "Cookie": "s=1"}, "body": body});
    let told = json!({"headers": {"Server": "o"}, "body": answer});
    let sample =
        simulate::fixture_from(&serde_json::from_value(asked).unwrap(), &serde_json::from_value(told).unwrap())
            .unwrap();
    simulate::run(program, sample).await
}

fn sent(trial: &simulate::Simulation) -> String {
    trial.request.as_ref().map(|(_, b)| String::from_utf8_lossy(b).into_owned()).unwrap_or_default()
}

fn received(trial: &simulate::Simulation) -> String {
    let shown = |(h, b): &(interflow_types::ResponseHead, bytes::Bytes)| {
        format!("{} {}", h.status.as_u16(), String::from_utf8_lossy(b))
    };
    trial.response.as_ref().map(shown).unwrap_or_default()
}

fn script(code: &str, phase: &str) -> Arc<RuleProgram> {
    let rules = json!({"rules": [{"name": "s", "phase": phase, "then": [{"script": {"code": code}}]}]});
    load(&rules.to_string(), None).unwrap_or_else(|e| panic!("{e}"))
}

#[tokio::test]
async fn scripts_can_read_edit_answer_and_deny() {
    let p = script(
        "request.method = 'PUT'; request.path = '/new?y=2'; request.headers['x-a'] = nil; request.headers['x-b'] = flow.host; flow.vars.v = 'kept'; tag('scripted')",
        "request",
    );
    let t = run(&p, "b", "r").await;
    let (head, _) = t.request.as_ref().unwrap();
    assert_eq!((head.method.as_str(), head.url.to_string().as_str()), ("PUT", "http://a.test/new?y=2"));
    assert_eq!(
        (head.headers.get("x-a"), head.headers.get_str("x-b"), head.headers.get_str("cookie")),
        (None, Some("a.test"), Some("s=1"))
    );
    assert!(t.tags.contains(&"scripted".to_owned()));

    let t = run(&script("request.body = request.body:upper() .. #request.body", "request_body"), "abc", "r").await;
    assert_eq!(sent(&t), "ABC3");
    let t = run(
        &script("response.status = 299; response.body = response.body:gsub('cat', 'dog')", "response_body"),
        "",
        "a cat",
    )
    .await;
    assert_eq!(received(&t), "299 a dog");
    let t = run(
        &script("return answer{status = 418, headers = {['x-t'] = '1'}, body = request.method}", "request"),
        "",
        "r",
    )
    .await;
    assert!(t.answered && t.response.as_ref().unwrap().0.headers.get_str("x-t") == Some("1"));
    assert_eq!(received(&t), "418 POST");
    let t = run(&script("if request.headers.cookie then return deny('no cookies here') end", "request"), "", "r").await;
    assert!(t.denied.unwrap().to_string().contains("no cookies here"));
}

#[tokio::test]
async fn looping_or_failing_scripts_end_in_an_error() {
    for (code, part) in [
        ("while true do end", "longer than 50ms"),
        ("local x = nil; return x.y", "script:1:"),
        ("os.execute('true')", "script:1:"),
        ("io.open('/etc/passwd')", "script:1:"),
        ("load('return 1')()", "script:1:"),
        ("while true do pcall(function() while true do end end) end", "script:1:"),
    ] {
        let began = Instant::now();
        let t = run(&script(code, "request"), "", "r").await;
        let error = t.denied.unwrap_or_else(|| panic!("{code} passes")).to_string();
        assert!(error.contains(part), "{code}: {error}");
        assert!(began.elapsed() < Duration::from_secs(10), "{code}");
    }
    let greedy =
        json!({"code": "local t = {} while true do t[#t+1] = ('x'):rep(100000) end", "memory": "1MB", "limit": "9s"});
    let p = load(&json!({"rules": [{"then": [{"script": greedy}]}]}).to_string(), None).unwrap();
    let error = run(&p, "", "").await.denied.unwrap().to_string();
    assert!(error.contains("more than 1000000 bytes of memory"), "{error}");
    let text = json!({"rules": [{"then": [{"script": {"code": "if then"}}]}]}).to_string();
    let error = load(&text, None).unwrap_err();
    assert!(error.contains("script:1:") && error.starts_with("r.yaml:1:"), "{error}");
}

#[tokio::test]
async fn script_globals_do_not_persist_between_flows() {
    let p = script("count = (count or 0) + 1; request.headers['x-n'] = tostring(count)", "request");
    for _ in 0..2 {
        let t = run(&p, "", "").await;
        assert_eq!(t.request.unwrap().0.headers.get_str("x-n"), Some("1"));
    }
}

#[tokio::test]
async fn failing_script_follows_the_on_failure_option() {
    let text = json!({"rules": [{"then": [{"script": {"code": "error('oops')"}}]}]}).to_string();
    let config = RulesConfig { on_failure: OnFailure::Pass, ..RulesConfig::default() };
    let p =
        RuleProgram::from_sources(vec![RuleFileSource::from_text("r.yaml", text)], &config, Arc::default()).unwrap();
    let t = run(&p, "b", "r").await;
    assert!(t.denied.is_none() && t.tags.contains(&"rule_failed".to_owned()));
    assert_eq!(received(&t), "200 r");
}

#[tokio::test]
async fn a_script_whose_change_or_answer_cannot_be_sent_changes_nothing() {
    for code in [
        "tag('t'); request.method = 'PUT'; request.headers['x-b'] = 'a\\nb'",
        "tag('t'); request.method = 'PUT'; request.url = 'ftp://x/'",
        "tag('t'); request.method = 'PUT'; return answer{status = 101}",
        "tag('t'); request.method = 'PUT'; return answer{headers = {['x-b'] = 'a\\nb'}}",
    ] {
        let text = json!({"rules": [{"phase": "request", "then": [{"script": {"code": code}}]}]}).to_string();
        let config = RulesConfig { on_failure: OnFailure::Pass, ..RulesConfig::default() };
        let sources = vec![RuleFileSource::from_text("r.yaml", text)];
        let t = run(&RuleProgram::from_sources(sources, &config, Arc::default()).unwrap(), "b", "r").await;
        assert!(
            t.tags.contains(&"rule_failed".to_owned()) && !t.tags.contains(&"t".to_owned()),
            "{code}: {:?}",
            t.tags
        );
        assert_eq!((t.request.unwrap().0.method.as_str(), t.answered), ("POST", false), "{code}");
    }
}

/// A WebSocket service with a fixed handshake and fixed replies; records what it receives.
async fn service(
    hello: Value,
    answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mw", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (kept, answer) = (Arc::clone(&seen), Arc::new(answer));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (kept, answer, hello) = (Arc::clone(&kept), Arc::clone(&answer), hello.clone());
            tokio::spawn(async move {
                let mut ws = tokio_tungstenite::accept_async(tcp).await.unwrap();
                while let Some(Ok(Message::Text(text))) = ws.next().await {
                    let message: Value = serde_json::from_str(&text).unwrap();
                    kept.lock().unwrap().push(message.clone());
                    let back = if message["type"] == "hello" {
                        hello.clone()
                    } else {
                        let Some(mut back) = answer(&message) else { return };
                        back["id"] = message["id"].clone();
                        back["type"] = "decision".into();
                        back
                    };
                    if ws.send(Message::text(back.to_string())).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, seen)
}

fn hello(hooks: &[&str]) -> Value {
    let hooks: Vec<Value> = hooks.iter().map(|h| json!({"type": h})).collect();
    json!({"type": "hello", "name": "test", "hooks": hooks})
}

fn calling(service: Value) -> String {
    json!({"services": {"guard": service}, "rules": [{"name": "c", "then": [{"call": "guard"}]}]}).to_string()
}

fn b64(text: &str) -> String {
    STANDARD.encode(text)
}

#[tokio::test]
async fn middleware_sees_and_rewrites_request_and_response() {
    let (url, seen) = service(hello(&["http-request", "http-response"]), |m| {
        Some(match m["type"].as_str().unwrap() {
            "http-request" => json!({"action": "rewrite", "headers": {"X-New": ["1", "2"], "Cookie": ["evil=1"]}, "body": b64("asked")}),
            _ => json!({"action": "rewrite", "status_code": 201, "headers": {"Server": ["m"]}, "body": b64("told")}),
        })
    })
    .await;
    let p = load(&calling(json!({"url": url})), None).unwrap();
    let t = run(&p, "original", "answer").await;
    let (head, _) = t.request.as_ref().unwrap();
    assert_eq!(head.headers.get_all("x-new").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(head.headers.get_str("cookie"), Some("s=1"), "no service sets cookies");
    assert_eq!((sent(&t).as_str(), received(&t).as_str()), ("asked", "201 told"));
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen[0], json!({"type": "hello", "version": 1}));
    let mut request = seen[1].clone();
    assert_eq!(request["id"].as_str().unwrap().len(), 32);
    request["id"] = Value::Null;
    let headers = json!({"Host": ["a.test"], "Cookie": ["s=1"], "X-A": ["1"]});
    assert_eq!(
        request,
        json!({"type": "http-request", "id": null, "host": "a.test:80", "method": "POST", "uri": "/v1?x=1", "proto": "HTTP/1.1",
            "headers": headers, "body": b64("original"), "container": "", "tls": false})
    );
    let response = &seen[2];
    assert_eq!((&response["status_code"], &response["response_body"]), (&json!(200), &json!(b64("answer"))));
    assert_eq!(response["request_body"], json!(b64("original")));
    assert!(response["duration_ms"].is_u64() && response["response_headers"]["Server"] == json!(["o"]));
}

#[tokio::test]
async fn middleware_can_deny_and_block_in_subscribed_hooks_only() {
    let (url, _) =
        service(hello(&["http-request"]), |_| Some(json!({"action": "deny", "status_code": 451, "body": b64("law")})))
            .await;
    let t = run(&load(&calling(json!({"url": url})), None).unwrap(), "", "r").await;
    assert!(t.answered);
    assert_eq!(received(&t), "451 law");
    let (url, _) = service(hello(&["http-response"]), |_| Some(json!({"action": "block"}))).await;
    let t = run(&load(&calling(json!({"url": url})), None).unwrap(), "", "r").await;
    assert_eq!(received(&t), "502 ");
    let filtered = json!({"type": "hello", "hooks": [{"type": "http-request", "filters": {"host": ["*.b.test"]}}]});
    let (url, seen) = service(filtered, |_| Some(json!({"action": "deny"}))).await;
    let t = run(&load(&calling(json!({"url": url})), None).unwrap(), "x", "r").await;
    assert_eq!((received(&t).as_str(), seen.lock().unwrap().len()), ("200 r", 1));
}

#[tokio::test]
async fn middleware_processes_response_chunks_as_they_pass() {
    let (url, seen) = service(hello(&["http-response-chunk"]), |m| {
        let text = String::from_utf8(STANDARD.decode(m["body"].as_str().unwrap()).unwrap()).unwrap();
        Some(json!({"action": "rewrite", "body": b64(&text.to_uppercase())}))
    })
    .await;
    let t = run(&load(&calling(json!({"url": url})), None).unwrap(), "", "chunk").await;
    assert_eq!(received(&t), "200 CHUNK");
    assert_eq!(seen.lock().unwrap()[1]["sequence"], json!(1));
}

#[tokio::test]
async fn failed_or_slow_middleware_follows_the_on_failure_option() {
    for (pass, request, outcome) in
        [(false, "http-request", "denied"), (false, "http-response", "bad_response"), (true, "http-request", "200 r")]
    {
        let (url, _) = service(hello(&[request]), |_| None).await;
        let on_failure = if pass { "pass" } else { "deny" };
        let p = load(&calling(json!({"url": url, "on_failure": on_failure, "timeout": "2s"})), None).unwrap();
        let t = run(&p, "", "r").await;
        let shown = t.denied.as_ref().map_or_else(|| received(&t), |e| e.kind().as_str().to_owned());
        assert_eq!(shown, outcome, "{request}");
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let began = Instant::now();
    let p = load(&calling(json!({"url": format!("ws://{nobody}/"), "timeout": "2s"})), None).unwrap();
    assert!(run(&p, "", "r").await.denied.unwrap().to_string().contains("guard"));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[cfg(unix)]
#[tokio::test]
async fn process_middleware_uses_json_lines_and_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("mw.sh");
    let text = r#"read -r line
# Cargo gives its own variables to the test: they are not for the program.
test -z "$CARGO_PKG_NAME" -a -n "$PATH" -a "$TOKEN" = "t of interflow-rules" || exit 8
echo '{"type":"hello","name":"sh","hooks":[{"type":"http-request"}]}'
read -r line
id=$(printf '%s' "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
echo "{\"type\":\"decision\",\"id\":\"$id\",\"action\":\"rewrite\",\"headers\":{\"X-Sh\":[\"1\"]}}"
"#;
    std::fs::write(&program, text).unwrap();
    let p = load(
        &calling(json!({
            "command": ["sh", program.display().to_string()],
            "env": {"TOKEN": "t of ${env.CARGO_PKG_NAME}"},
            "timeout": "5s",
        })),
        None,
    )
    .unwrap();
    // It exits after each reply: the next flow finds it restarted, or `on_failure` applies.
    let mut answered = 0;
    for _ in 0..40 {
        let t = run(&p, "", "r").await;
        answered += usize::from(t.request.is_some_and(|(h, _)| h.headers.get_str("x-sh") == Some("1")));
        if answered == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("answered {answered} times");
}

#[cfg(unix)]
#[tokio::test]
async fn a_program_may_write_more_than_a_pipe_holds_before_it_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("mw.sh");
    let text = r#"read -r line
echo '{"type":"hello","hooks":[{"type":"http-request"}]}'
pad=$(head -c 300000 /dev/zero | tr '\0' x)
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
    echo "{\"id\":\"$id\",\"action\":\"allow\",\"pad\":\"$pad\"}"
done
"#;
    std::fs::write(&program, text).unwrap();
    let service = json!({ "command": ["sh", program.display().to_string()], "timeout": "60s" });
    let p = load(&calling(service), None).unwrap();
    let body = "x".repeat(200_000);
    let ask = || async { run(&p, &body, "r").await.denied.map(|e| e.to_string()) };
    let asked = futures_util::future::join_all((0..4).map(|_| ask()));
    let denied = tokio::time::timeout(Duration::from_secs(50), asked).await.expect("all are answered");
    assert_eq!(denied, [None, None, None, None]);
}

/// A client that answers each request with a fixed value.
struct Fixed(Value, Mutex<Vec<String>>);

impl HttpClient for Fixed {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        self.1.lock().unwrap().push(format!("{} {}", request.head.method, request.head.url));
        let body = self.0.to_string();
        Box::pin(async move { Ok(Response::full(StatusCode::OK, "application/json", body)) })
    }
}

#[tokio::test]
async fn http_service_is_called_with_post() {
    let egress = Arc::new(Fixed(json!({"action": "rewrite", "body": b64("by post")}), Mutex::default()));
    let p = load(&calling(json!({"post": "http://127.0.0.1:9/hook"})), Some(Arc::clone(&egress) as _)).unwrap();
    let t = run(&p, "x", "r").await;
    assert_eq!((sent(&t).as_str(), received(&t).as_str()), ("by post", "200 by post"));
    assert_eq!(egress.1.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn an_error_of_an_http_service_counts_without_its_body() {
    let text = calling(json!({"post": "http://a/", "timeout": "30s"}));
    let program = load(&text, Some(Arc::new(StallingService(StatusCode::SERVICE_UNAVAILABLE)))).unwrap();
    let trial = tokio::time::timeout(Duration::from_secs(5), run(&program, "x", "r")).await.unwrap();
    assert!(trial.denied.is_some());
}

#[test]
fn invalid_service_definitions_are_refused() {
    for (service, part) in [
        (json!({}), "one of url, command and post"),
        (json!({"url": "ftp://a/"}), "not the URL of a service"),
        (json!({"url": "a"}), "not the URL of a service"),
        (json!({"command": []}), "names no program"),
        (json!({"post": "http://a/", "env": {"A": "1"}}), "`env` is for the program"),
        (json!({"command": ["sh"], "env": {"A=B": "1"}}), "not the name of an environment variable"),
        (json!({"ulr": "ws://a/"}), "did you mean `url`?"),
    ] {
        let error = load(&calling(service.clone()), None).unwrap_err();
        assert!(error.contains(part), "{service}: {error}");
    }
    let text = json!({"services": {"guard": {"url": "ws://a/"}}, "rules": [{"then": [{"call": "gard"}]}]}).to_string();
    assert!(load(&text, None).unwrap_err().contains("did you mean `guard`?"));
}

#[tokio::test]
async fn recordings_are_replayed_in_order() {
    let entry = |path: &'static str, sent: &'static str, status: u16, body: &'static str| {
        let head = ResponseHead::new(StatusCode::from_u16(status).unwrap())
            .with_header("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .with_header("Expires", "Sun, 06 Nov 1994 09:49:37 GMT")
            .with_header("Content-Encoding", "gzip");
        let url = Url { scheme: Scheme::Http, authority: "a.test:80".parse().unwrap(), path: path.into() };
        let (sent, body) = (sent.into(), body.into());
        RecordedExchange { method: Method::POST, url, headers: Headers::new(), sent, head, body, at: None }
    };
    let entries = vec![
        entry("/v1?x=1", "b", 200, "one"),
        entry("/v1?x=1", "b", 201, "two"),
        entry("/v1?x=2", "other", 202, "three"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.har");
    std::fs::write(&file, "").unwrap();
    let replay = |more: Value| {
        let mut replay = json!({"file": file});
        replay.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let text = json!({"rules": [{"then": [{"replay": replay}]}]}).to_string();
        let around = Arc::new(RuleRuntime::default().with_recordings(Arc::new(Recorded(entries.clone()))));
        let files = vec![RuleFileSource::from_text("r.yaml", text)];
        RuleProgram::from_sources(files, &RulesConfig::default(), around).unwrap()
    };
    let p = replay(json!({"extra": "not_found"}));
    let first = run(&p, "b", "r").await;
    assert_eq!(received(&first), "200 one");
    let head = &first.response.as_ref().unwrap().0;
    assert!(!head.headers.contains("content-encoding") && !head.headers.get_str("expires").unwrap().contains("1994"));
    assert_eq!(received(&run(&p, "b", "r").await), "201 two");
    assert!(received(&run(&p, "b", "r").await).starts_with("404 "));
    assert_eq!(received(&run(&replay(json!({})), "unknown", "r").await), "200 r");
    assert_eq!(received(&run(&replay(json!({"ignore": ["query", "body"]})), "unknown", "r").await), "200 one");
    let again = replay(json!({"reuse": true, "ignore": "x"}));
    for _ in 0..2 {
        assert_eq!(received(&run(&again, "b", "r").await), "200 one");
    }
    assert!(load("rules: [{then: [{replay: /none.har}]}]", None).unwrap_err().contains("/none.har"));
}

/// Recordings with these exchanges.
struct Recorded(Vec<RecordedExchange>);

impl interflow_rules::RecordingSource for Recorded {
    fn archive(&self, _: &std::path::Path) -> Result<Vec<RecordedExchange>, String> {
        Ok(self.0.clone())
    }

    fn flows(&self, _: &str) -> Result<Vec<RecordedExchange>, String> {
        Ok(self.0.clone())
    }
}

#[test]
fn rules_that_can_be_loaded_pass_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("session.mitm");
    std::fs::write(&file, "").unwrap();
    let runtime = Arc::new(RuleRuntime::default().with_recordings(Arc::new(Recorded(Vec::new()))));
    let rules = interflow_rules::ActiveRules::new(&RulesConfig::default(), runtime).unwrap();
    for from in [json!(file), json!({"flows": "host:a"})] {
        let text = json!({"rules": [{"then": [{"replay": from}]}]}).to_string();
        let checked = rules.check(vec![RuleFileSource::from_text("r.yaml", text)]);
        assert!(checked.is_ok(), "{from}: {}", checked.unwrap_err());
    }
}

#[tokio::test]
async fn scripts_see_and_preserve_every_value_of_a_header() {
    let code = "local all = response.headers:get_all('Set-Cookie')
        response.headers['x-seen'] = #all .. all[2]
        for name, value in pairs(response.headers) do if value == 'c=3' then response.headers['x-third'] = name end end
        response.headers:add('via', 'two')
        response.headers['x-many'] = {'1', '2'}
        response.headers['Gone'] = nil";
    let headers = &[("Set-Cookie", "a=1"), ("set-cookie", "b=2"), ("Via", "one"), ("Set-Cookie", "c=3"), ("gone", "x")];
    let sample = interflow_rules::FlowFixture::for_get("http://a.test/").with_response(200, headers, "").unwrap();
    let t = simulate::run(&script(code, "response"), sample).await;
    let head = t.response.unwrap().0;
    let all = |name: &str| -> Vec<String> {
        head.headers.get_all(name).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
    };
    assert_eq!(all("set-cookie"), ["a=1", "b=2", "c=3"]);
    assert_eq!(
        (all("x-seen"), all("x-third"), all("via")),
        (vec!["3b=2".into()], vec!["set-cookie".into()], vec!["one".into(), "two".into()])
    );
    assert_eq!((all("x-many"), all("gone")), (vec!["1".into(), "2".to_owned()], Vec::new()));
    let t = run(&script("return answer{headers = {['set-cookie'] = {'a', 'b'}}}", "request"), "", "").await;
    assert_eq!(t.response.unwrap().0.headers.get_all("set-cookie").count(), 2);
}

#[tokio::test]
async fn looping_script_does_not_delay_other_flows() {
    let looping = json!({"code": "while true do end", "limit": "600s"});
    let p = load(&json!({"rules": [{"then": [{"script": looping}]}]}).to_string(), None).unwrap();
    let plain = load(&json!({"rules": [{"then": [{"set_response_header": {"x": "y"}}]}]}).to_string(), None).unwrap();
    // On this single thread, waiting for the first would prevent the second from running.
    tokio::select! {
        biased;
        _ = run(&p, "", "") => panic!("the script ended"),
        t = async { tokio::task::yield_now().await; run(&plain, "", "r").await } => assert_eq!(received(&t), "200 r"),
    }
}

#[tokio::test]
async fn scripts_share_a_store_that_outlives_a_reload() {
    let around = Arc::new(RuleRuntime::default());
    for n in ["1", "2", "3"] {
        let rules = json!({"rules": [{"then": [{"script": {"code": "request.headers['x-n'] = store.add('n', 1)"}}]}]});
        let source = vec![RuleFileSource::from_text("r.yaml", rules.to_string())];
        let p = RuleProgram::from_sources(source, &RulesConfig::default(), Arc::clone(&around)).unwrap();
        assert_eq!(run(&p, "", "").await.request.unwrap().0.headers.get_str("x-n"), Some(n));
    }
}

#[tokio::test]
async fn scripts_can_process_events_of_a_stream() {
    let p = script("message.body = message.body:upper(); if message.body == 'B' then return drop() end", "message");
    let headers = &[("Content-Type", "text/event-stream")];
    let sample = interflow_rules::FlowFixture::for_get("http://a.test/");
    let t = simulate::run(&p, sample.with_response(200, headers, "data: a\n\ndata: b\n\ndata: c\n\n").unwrap()).await;
    assert_eq!(received(&t), "200 data: A\n\ndata: C\n\n");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_on_a_slow_disk_holds_up_only_the_flow_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let path = pipe.to_str().unwrap();
    let quick = load(&json!({"rules": [{"then": [{"answer": {"status": 200, "body": "at once"}}]}]}).to_string(), None);
    let quick = quick.unwrap();
    for (action, writes) in [
        (json!({"append_file": {"file": path, "text": "a line"}}), true),
        (json!({"answer": {"status": 200, "file": path}}), false),
        (json!({"edit_request_body": {"file": path}}), false),
        (json!({"edit_response_body": {"file": path}}), false),
    ] {
        let slow = load(&json!({"rules": [{"then": [action]}]}).to_string(), None).unwrap_or_else(|e| panic!("{e}"));
        let waiting = tokio::spawn(async move { run(&slow, "b", "r").await });
        // This test has one thread: a file that is opened on it would wait for ever.
        tokio::task::yield_now().await;
        assert_eq!(received(&run(&quick, "b", "r").await), "200 at once", "{action}");
        assert!(!waiting.is_finished(), "{action}");
        // The other end lets the file be opened.
        let (other, reads) = (pipe.clone(), writes);
        let end = tokio::task::spawn_blocking(move || {
            std::fs::OpenOptions::new().read(reads).write(!reads).open(other).map(drop)
        });
        tokio::time::timeout(Duration::from_secs(60), end).await.expect("the file is opened").unwrap().unwrap();
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the flow goes on").unwrap();
    }
}
