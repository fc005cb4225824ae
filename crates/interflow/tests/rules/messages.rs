//! Rules on WebSocket, gRPC and event stream messages, through the whole proxy.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::client::connect_tunnel;
use interflow_testkit::{H2Client, Origin, Reply, Wire};
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::default_rules_file::{Home, Running, until};

const RULES: &str = r#"
rules:
- {name: change, when: {message: '*secret*', from: client}, then: [{edit_message: {find: secret, with: '***'}}, {tag: censored}]}
- {name: drop, when: {message: swallow}, then: drop_message}
- {name: put in, when: {message: more, from: server}, then: [{inject_message: 'and ${message}'}]}
- {name: answer itself, when: {message: 'ask *', from: client}, then: [{inject_message: {text: 'told ${message}', to: back}}, drop_message]}
- {name: end, when: {message: bye}, then: abort}
"#;

async fn open(running: &Running, origin: &Origin) -> WebSocketStream<Wire> {
    let wire = connect_tunnel(running.proxy, &origin.authority(), None).await.unwrap();
    let url = format!("ws://{}/ws", origin.authority());
    tokio_tungstenite::client_async(url, wire.patience(None)).await.unwrap().0
}

async fn next(socket: &mut WebSocketStream<Wire>) -> String {
    let frame = tokio::time::timeout(std::time::Duration::from_secs(10), socket.next()).await.expect("a message");
    frame.unwrap().unwrap().into_text().unwrap().to_string()
}

fn recorded(home: &Home, query: &str) -> Option<Value> {
    let listed = home.run(&["flows", "list", query, "-is:open", "--format", "jsonl"]).out;
    serde_json::from_str(listed.lines().next()?).ok()
}

#[tokio::test]
async fn websocket_messages_are_edited_dropped_injected_answered_and_tagged() {
    let home = Home::new().await;
    let running = home.start(&home.write("r.yaml", RULES));
    let mut socket = open(&running, &home.origin).await;
    for (said, heard) in [
        ("plain", vec!["plain"]),
        ("a secret", vec!["a ***"]),
        ("swallow", vec![]),
        ("more", vec!["more", "and more"]),
        ("ask this", vec!["told ask this"]),
    ] {
        socket.send(Frame::text(said)).await.unwrap();
        for expected in heard {
            assert_eq!(next(&mut socket).await, expected, "{said}");
        }
    }
    // A message sent by a rule is written whole, between messages in transit in that direction.
    for i in 0..200 {
        socket.send(Frame::text(format!("ask {i}"))).await.unwrap();
        socket.send(Frame::text(format!("echo {i}"))).await.unwrap();
    }
    let (mut told, mut echoed) = (0, 0);
    for _ in 0..400 {
        match next(&mut socket).await {
            text if text == format!("told ask {told}") => told += 1,
            text if text == format!("echo {echoed}") => echoed += 1,
            other => panic!("{other} after {told} and {echoed}"),
        }
    }
    socket.send(Frame::text("bye")).await.unwrap();
    assert!(!matches!(socket.next().await, Some(Ok(Frame::Text(_)))), "a rule ended it");
    until("the flow", async || recorded(&home, "is:websocket").is_some()).await;
    let flow = recorded(&home, "is:websocket").unwrap();
    for tag in ["censored", "rule-matched", "edited"] {
        assert!(flow["tags"].as_array().unwrap().contains(&tag.into()), "{}", flow["tags"]);
    }
    let shown = home.run(&["flows", "show", "last"]).out;
    for part in ["a ***", "and more", "told ask this"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let counted = home.run(&["rules", "list"]).out;
    assert!(counted.contains("answer itself  201 matches") && counted.contains("drop  1 match\n"), "{counted}");
}

#[tokio::test]
async fn client_that_does_not_read_injected_replies_is_disconnected() {
    let home = Home::new().await;
    let rules = r#"rules: [{when: {message: '*', from: client}, then: [{inject_message: {text: '${message}', to: back}}, drop_message]}]"#;
    let running = home.start(&home.write("r.yaml", rules));
    let mut socket = open(&running, &home.origin).await;
    let long = "x".repeat(256 << 10);
    // Far more than all buffers hold, while nothing is read.
    let mut ended = false;
    for _ in 0..400 {
        let sent =
            tokio::time::timeout(std::time::Duration::from_secs(20), socket.send(Frame::text(long.clone()))).await;
        ended |= !matches!(sent, Ok(Ok(())));
        if ended {
            break;
        }
    }
    assert!(ended, "the connection goes on without bound");
    until("the flow's end", async || recorded(&home, "is:websocket").is_some()).await;
    assert_eq!(recorded(&home, "is:websocket").unwrap()["error"]["kind"], "body_too_large");
}

fn frame(text: &str) -> Vec<u8> {
    [&[0][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

#[tokio::test]
async fn grpc_messages_are_edited_dropped_injected_and_tagged() {
    let home = Home::new().await;
    let echo = |r: &interflow_testkit::Request| {
        let reply = Reply::ok(r.body.clone()).header("Content-Type", "application/grpc");
        reply.trailer("grpc-status", "0")
    };
    let origin = Origin::https().alpn(&["h2"]).names(&["localhost"]).answering(echo).start().await;
    let pem = home.write("origins.pem", origin.ca().pem());
    let config = home.write("interflow.toml", &format!("[upstream]\nextra_ca = ['{pem}']\n"));
    let running = home.start_with(&["--config", &config, "--rules", &home.write("r.yaml", RULES)]);
    let own = std::fs::read_to_string(home.path("ca/ca.pem")).unwrap();
    let authority = format!("localhost:{}", origin.port());
    let wire = running.tls(&authority, "localhost", &own, &["h2"]).await.unwrap();
    let request = http::Request::post(format!("https://{authority}/shop.Cart/Add"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers");
    let sent = [frame("plain"), frame("a secret"), frame("swallow"), frame("more")].concat();
    let client = H2Client::new(wire).await.unwrap();
    let answer = client.request(request.body(()).unwrap(), Bytes::from(sent)).await.unwrap();
    let expected = [frame("plain"), frame("a ***"), frame("more"), frame("and more")].concat();
    assert_eq!(&answer.body[..], &expected[..], "{}", String::from_utf8_lossy(&answer.body));
    let asked = origin.only_request();
    assert_eq!(&asked.body[..], [frame("plain"), frame("a ***"), frame("more")].concat(), "what the origin saw");
    until("the flow", async || recorded(&home, "is:grpc").is_some()).await;
    let flow = recorded(&home, "is:grpc").unwrap();
    assert!(flow["tags"].as_array().unwrap().contains(&"censored".into()), "{}", flow["tags"]);
}

#[tokio::test]
async fn events_are_edited_dropped_and_injected() {
    let home = Home::new().await;
    let stream = |_: &interflow_testkit::Request| {
        Reply::ok("data: plain\n\nid: 7\ndata: swallow\n\ndata: more\n\n").header("Content-Type", "text/event-stream")
    };
    let origin = Origin::http().answering(stream).start().await;
    let running = home.start(&home.write("r.yaml", RULES));
    let answer = running.get(&origin.url("/events")).await;
    assert_eq!(answer.text(), "data: plain\n\ndata: more\n\ndata: and more\n\n");
}
