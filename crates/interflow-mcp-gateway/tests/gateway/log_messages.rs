//! Log messages of servers, and the level that a client sets.

use serde_json::{Value, json};

use crate::server::{MAIL, OTHER_MAIL, over_http, over_stdio};
use crate::{EventStream, Gate, Log, web};

/// Checks what a client gets of the messages of the tools `log` and `log_inline`.
async fn check_messages(stream: &mut EventStream, server: &str, levels: &[&str]) {
    for level in levels {
        let told = stream.next().await.unwrap();
        let params = &told["params"];
        assert_eq!((&told["method"], &params["level"]), (&"notifications/message".into(), &json!(level)), "{told}");
        let logger = if *level == "warning" { server.to_owned() } else { format!("{server}/db") };
        assert_eq!(params["logger"], json!(logger));
        if *level == "error" {
            // The client's own, and what it does not know.
            assert_eq!(params["data"]["asked"]["mail"], MAIL);
            assert!(params["data"]["for"].as_str().unwrap().starts_with("EMAIL_"), "{told}");
        }
    }
}

#[tokio::test]
async fn log_messages_reach_the_stream_of_the_session_from_the_level_of_the_client_on() {
    let (origin, log) = (over_http(100).await, Log::create());
    let config = format!("{}{}", web(&origin, ""), over_stdio("local", &log.path, "process_per_session = true"));
    let gate = Gate::start(&config).await;
    assert!(gate.capabilities["logging"].is_object(), "{}", gate.capabilities);
    let mut stream = gate.stream("GET", "").await;
    while !origin.requests().iter().any(|r| r.method == "GET") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let told = json!({ "mail": MAIL });
    // A message that cannot be inspected is left out.
    for (server, tool) in [("web", "log"), ("local", "log"), ("local", "log_inline")] {
        gate.call(&format!("{server}__{tool}"), told.clone()).await;
        check_messages(&mut stream, server, &["debug", "error", "warning"]).await;
    }
    assert!(gate.error("logging/setLevel", json!({ "level": "fatal" })).await.contains("emergency"));
    assert_eq!(gate.rpc("logging/setLevel", json!({ "level": "error" })).await, json!({}));
    let is_told = |text: &str| text.contains("logging/setLevel") && text.contains(r#""level":"error""#);
    assert!(is_told(&log.text()), "{}", log.text());
    assert!(origin.requests().iter().any(|r| is_told(&String::from_utf8_lossy(&r.body))));
    for (server, tool) in [("web", "log"), ("web", "log_inline"), ("local", "log")] {
        gate.call(&format!("{server}__{tool}"), told.clone()).await;
        check_messages(&mut stream, server, &["error"]).await;
    }
    gate.send("DELETE", &format!("Mcp-Session-Id: {}\r\n", gate.session), "").await;
    assert!(stream.next().await.is_none(), "nothing else was sent");
    let recorded = gate.recorded(11).await;
    assert!(recorded.contains("notifications/message") && !recorded.contains(OTHER_MAIL), "{recorded}");
    assert!(!recorded.contains(MAIL), "{recorded}");
}

#[tokio::test]
async fn a_session_that_begins_anew_at_a_server_has_the_level_of_the_client() {
    let origin = over_http(2).await;
    let gate = Gate::start(&web(&origin, "")).await;
    gate.rpc("logging/setLevel", json!({ "level": "notice" })).await;
    // The server forgets the session, and another one begins.
    gate.call("web__echo", json!({})).await;
    let sessions = |request: &interflow_testkit::Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let is_level = message["method"] == "logging/setLevel" && message["params"]["level"] == "notice";
        is_level.then(|| request.header("mcp-session-id").unwrap().to_owned())
    };
    let told: Vec<_> = origin.requests().iter().filter_map(sessions).collect();
    assert_eq!(told, ["s0", "s1"]);
}

#[tokio::test]
async fn a_process_that_clients_share_has_no_log_messages_for_them() {
    let log = Log::create();
    let gate = Gate::start(&over_stdio("shared", &log.path, "")).await;
    assert!(gate.capabilities["logging"].is_null(), "{}", gate.capabilities);
    let refused = gate.error("logging/setLevel", json!({ "level": "debug" })).await;
    assert!(refused.contains("no server of this gateway has log messages"), "{refused}");
    let mut stream = gate.stream("GET", "").await;
    gate.call("shared__log", json!({})).await;
    gate.call("shared__touch", json!({})).await;
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert!(!log.text().contains("setLevel"));
}
