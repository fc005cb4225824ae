//! Fluxzy's filters on real traffic, for those that cannot be tested on synthetic flows.

use interflow_testkit::client::connect_tunnel;
use interflow_testkit::{Answer, Origin, Reply, Wire};

use crate::default_rules_file::{Home, Running, until};

/// One rule per filter, which adds the filter's number to matching responses.
fn marking(filters: &[&str]) -> String {
    let mut rules = String::from("rules:\n");
    for (n, filter) in filters.iter().enumerate() {
        rules.push_str(&format!(
            "- name: f{n}\n  filter: {filter}\n  action: {{typeKind: addResponseHeader, headerName: X-Seen, headerValue: '{n}'}}\n"
        ));
    }
    rules
}

/// The filters that matched.
fn seen(answer: &Answer) -> Vec<usize> {
    answer.headers.get_all("x-seen").map(|v| std::str::from_utf8(v).unwrap().parse().unwrap()).collect()
}

async fn send(running: &Running, request: &str) -> Answer {
    let mut wire = Wire::connect(running.proxy).await.unwrap();
    wire.send(request).await.unwrap();
    wire.answer().await.unwrap()
}

#[tokio::test]
async fn connection_and_process_filters_match_both_ends() {
    let home = Home::new().await;
    let own = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let (id, name) = (std::process::id(), own.to_uppercase());
    let by_id = format!("{{typeKind: processId, processId: {id}}}");
    let by_name = format!("{{typeKind: processName, processNames: [other, {name}.EXE]}}");
    let authority = format!("{{typeKind: authority, port: {}, pattern: localhost}}", home.origin.port());
    let filters = [
        // These match.
        "{typeKind: ipEgress, pattern: '0.0.1'}",
        "{typeKind: ipEgressFilter, pattern: '127.0.0.1', operation: exact}",
        "{typeKind: ipIngress, pattern: '7.0.0'}",
        &by_id,
        &by_name,
        &authority,
        "{typeKind: h11TrafficOnly}",
        "{typeKind: AGENTLABEL, PATTERN: curl}",
        // These do not match.
        "{typeKind: ipEgress, pattern: '0.0.1', operation: exact}",
        "{typeKind: ipIngress, pattern: '7.0.0', operation: startsWith}",
        "{typeKind: processId, processId: 4294967295}",
        "{typeKind: processName, processNames: [nobody]}",
        "{typeKind: authority, port: 1, pattern: localhost}",
        "{typeKind: h2TrafficOnly}",
        "{typeKind: agentLabel, pattern: curl, caseSensitive: true, inverted: true, operation: startsWith}",
        "{typeKind: isSecure}",
        "{typeKind: isSelf}",
        "{typeKind: networkError}",
        "{typeKind: isWebSocket}",
    ];
    let config = home.write("c.toml", "[proxy]\nprocesses = true\n");
    let running = home.start_with(&["--config", &config, "--rules", &home.write("r.yaml", &marking(&filters))]);
    let host = home.origin.authority();
    let answer =
        send(&running, &format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nUser-Agent: curl/8\r\n\r\n")).await;
    assert_eq!(seen(&answer), (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn connection_filter_uses_the_recorded_connection_number() {
    let home = Home::new().await;
    let running = home.start(&home.write("r.yaml", &marking(&["{typeKind: connection, connectionId: 0}"])));
    assert!(seen(&running.get(&home.origin.url("/a")).await).is_empty());
    let listed = home.run(&["flows", "list", "--format", "jsonl"]).out;
    let flow: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    // Commands talk to the admin port, whose connections have no numbers.
    let next = flow["client"]["connection"].as_u64().unwrap() + 1;
    home.write("r.yaml", &marking(&[&format!("{{typeKind: connection, connectionId: {next}}}"), "{typeKind: any}"]));
    until("the new rules", async || home.log_has("reloaded")).await;
    assert_eq!(seen(&running.get(&home.origin.url("/b")).await), [0, 1]);
    assert_eq!(seen(&running.get(&home.origin.url("/c")).await), [1]);
}

#[tokio::test]
async fn body_filter_uses_framing_headers_and_h2_filter_the_version() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["localhost"]).start().await;
    let filters = ["{typeKind: hasRequestBody}", "{typeKind: h2TrafficOnly}", "{typeKind: isSecure}"];
    let rules = home.write("r.yaml", &marking(&filters));
    let running = home.start_with(&["--danger-insecure-upstream", "--rules", &rules]);
    let host = home.origin.authority();
    for (framing, body, held) in [
        ("Content-Length: 2", "ab", vec![0]),
        ("Content-Length: 0", "", vec![]),
        ("Transfer-Encoding: chunked", "2\r\nab\r\n0\r\n\r\n", vec![0]),
        ("X-None: 1", "", vec![]),
    ] {
        let request = format!("POST http://{host}/echo HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{body}");
        assert_eq!(seen(&send(&running, &request).await), held, "{framing}");
    }
    let ours = std::fs::read_to_string(home.path("ca/ca.pem")).unwrap();
    let wire = running.tls(&origin.authority(), "localhost", &ours, &["h2"]).await.unwrap();
    let client = interflow_testkit::H2Client::new(wire).await.unwrap();
    assert_eq!(seen(&client.get(&origin.url("/")).await.unwrap()), [1, 2]);
    let post = http::Request::post(origin.url("/echo")).body(()).unwrap();
    assert_eq!(seen(&client.request(post, "ab".into()).await.unwrap()), [0, 1, 2]);
}

#[tokio::test]
async fn websocket_own_address_and_network_error_filters_match() {
    let home = Home::new().await;
    let origin = Origin::http()
        .answering(|r| if r.path() == "/528" { Reply::status(528) } else { Reply::websocket_echo() })
        .start()
        .await;
    let log = home.own_file("errors.log").display().to_string();
    let rules = format!(
        "rules:
- name: socket
  filter: {{typeKind: isWebSocket}}
  action: {{typeKind: addRequestHeader, headerName: X-Socket, headerValue: '1'}}
- name: self
  filter: {{typeKind: isSelf}}
  action: {{typeKind: mountWelcomePage}}
- name: error
  filter: {{typeKind: networkError}}
  actions:
  - {{typeKind: addResponseHeader, headerName: X-Error, headerValue: '${{exchange.status}}'}}
  - {{typeKind: fileAppend, filename: '{log}', text: \"failed ${{exchange.url}}\\n\"}}
"
    );
    let running = home.start(&home.write("r.yaml", &rules));
    let wire = connect_tunnel(running.proxy, &origin.authority(), None).await.unwrap();
    let url = format!("ws://{}/ws", origin.authority());
    drop(tokio_tungstenite::client_async(url, wire.patience(None)).await.unwrap());
    assert_eq!(origin.only_request().header("x-socket"), Some("1"));

    let own = running.get(&format!("http://{}/", running.proxy)).await;
    assert!(own.status == 200 && own.text().contains("<h1>Interflow</h1>"), "{} {}", own.status, own.text());

    assert_eq!(running.get(&origin.url("/528")).await.header("x-error"), Some("528"));
    let nobody = Origin::nobody().await;
    assert_eq!(running.get(&format!("http://{nobody}/gone")).await.status, 502);
    until("both lines", async || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        lines.contains(&format!("failed http://{nobody}/gone\n")) && lines.contains("/528\n")
    })
    .await;
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 2);
}

#[cfg(unix)]
#[tokio::test]
async fn exec_filter_programs_get_the_head_and_decide_by_exit_code() {
    let home = Home::new().await;
    let filters = [
        r#"{typeKind: exec, filename: bash, arguments: "-c \"env | grep -q 'X-Want: 7'\"", writeHeaderToEnv: true}"#,
        r#"{typeKind: exec, filename: bash, arguments: "-c \"env | grep -q 'X-Want: 7'\""}"#,
        r#"{typeKind: exec, filename: "/nowhere/at/all"}"#,
    ];
    let running = home.start(&home.write("r.yaml", &marking(&filters)));
    let host = home.origin.authority();
    for (value, held) in [("7", vec![0]), ("8", vec![])] {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX-Want: {value}\r\n\r\n");
        assert_eq!(seen(&send(&running, &request).await), held, "{value}");
    }
}
