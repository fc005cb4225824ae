//! The event socket: batches, filters, pauses, and slow clients.

use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;

type Socket = WebSocketStream<TcpStream>;

async fn open(it: &Instance, query: &str, fields: &[(&'static str, &str)]) -> Result<Socket, Error> {
    let mut request = format!("ws://{}/api/v1/events{query}", it.admin).into_client_request().unwrap();
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let tcp = TcpStream::connect(it.admin).await.unwrap();
    client_async(request, tcp).await.map(|(socket, _)| socket)
}

async fn watch(it: &Instance) -> Socket {
    let bearer = format!("Bearer {TOKEN}");
    let mut socket = open(it, "?query=", &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(next(&mut socket).await["type"], "hello");
    assert_eq!(next(&mut socket).await["type"], "subscribed");
    socket
}

async fn next(socket: &mut Socket) -> Value {
    loop {
        let message = tokio::time::timeout(Duration::from_secs(20), socket.next()).await.expect("a message in time");
        match message.expect("an open socket").unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn say(socket: &mut Socket, command: Value) -> Value {
    socket.send(Message::text(command.to_string())).await.unwrap();
    next(socket).await
}

/// Reads batches until a flow reaches the state.
async fn until(socket: &mut Socket, path: &str, state: &str) -> Value {
    loop {
        let message = next(socket).await;
        assert_eq!(message["type"], "flows", "{message}");
        let flows = message["flows"].as_array().unwrap();
        if let Some(flow) = flows.iter().find(|f| f["path"] == path && f["state"] == state) {
            return flow.clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_clients_receive_begin_and_end_of_flows() {
    let it = Instance::start().await;
    let mut socket = watch(&it).await;
    let (flow, mut capture) = it.begin("/live");
    assert_eq!(until(&mut socket, "/live", "open").await["id"], flow.id.to_string());
    capture.response(&flow, &ResponseHead::new(StatusCode::NO_CONTENT));
    capture.finish(&flow, FlowOutcome::Complete);
    assert_eq!(until(&mut socket, "/live", "complete").await["status"], 204);
    it.through("/status/418").await;
    assert_eq!(until(&mut socket, "/status/418", "complete").await["status"], 418);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_events_are_sent_after_a_logout() {
    let it = Instance::start().await;
    let (host, own) = (it.admin.to_string(), format!("http://{}", it.admin));
    let login = it.plain("GET", &format!("/?token={TOKEN}"), &[("Host", &host)], b"").await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let mut socket = open(&it, "?query=", &[("cookie", &cookie), ("origin", &own)]).await.unwrap();
    assert_eq!(next(&mut socket).await["type"], "hello");
    assert_eq!(next(&mut socket).await["type"], "subscribed");
    let fields = [("Host", host.as_str()), ("Cookie", &cookie), ("Origin", &own)];
    assert_eq!(it.plain("POST", "/logout", &fields, b"").await.status, 303);
    it.through("/status/418").await;
    let end = tokio::time::timeout(Duration::from_secs(20), socket.next()).await.expect("the socket ends");
    assert!(matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_events_are_sent_before_a_subscription() {
    let it = Instance::start().await;
    let bearer = format!("Bearer {TOKEN}");
    let mut socket = open(&it, "", &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(next(&mut socket).await["type"], "hello");
    let mut other = watch(&it).await;
    it.record("/unwanted");
    until(&mut other, "/unwanted", "complete").await;
    let answer = say(&mut socket, json!({"subscribe": {"query": "path:/wanted", "generation": 7}})).await;
    assert_eq!((&answer["type"], &answer["generation"]), (&json!("subscribed"), &json!(7)), "{answer}");
    it.record("/unwanted");
    it.record("/wanted");
    let told = next(&mut socket).await;
    assert_eq!((&told["type"], &told["generation"]), (&json!("flows"), &json!(7)), "{told}");
    assert!(told["flows"].as_array().unwrap().iter().all(|f| f["path"] == "/wanted"), "{told}");
}

/// An event socket with these parameters in its URL, after the greeting.
async fn open_with(it: &Instance, parameters: &str) -> Socket {
    let bearer = format!("Bearer {TOKEN}");
    let mut socket = open(it, parameters, &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(next(&mut socket).await["type"], "hello");
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_query_is_taken_from_the_url_and_events_carry_its_generation() {
    let it = Instance::start().await;
    let mut socket = open_with(&it, "?query=path%3A%2Fone&generation=1").await;
    let subscribed = next(&mut socket).await;
    assert_eq!((&subscribed["type"], &subscribed["generation"]), (&json!("subscribed"), &json!(1)));
    it.record("/two");
    it.record("/one");
    let told = next(&mut socket).await;
    assert_eq!((&told["generation"], &told["flows"][0]["path"]), (&json!(1), &json!("/one")), "{told}");
    assert_eq!(told["flows"].as_array().unwrap().len(), 1, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_query_replaces_the_initial_one_unless_it_is_invalid() {
    let it = Instance::start().await;
    let mut socket = open_with(&it, "?query=path%3A%2Fone&generation=1").await;
    next(&mut socket).await;
    let wrong = say(&mut socket, json!({"subscribe": {"query": "stats:4", "generation": 2}})).await;
    assert_eq!((&wrong["type"], &wrong["generation"]), (&json!("error"), &json!(2)), "{wrong}");
    say(&mut socket, json!({"subscribe": {"query": "path:/two", "generation": 3}})).await;
    it.record("/one");
    it.record("/two");
    let told = next(&mut socket).await;
    assert_eq!((&told["generation"], &told["flows"][0]["path"]), (&json!(3), &json!("/two")), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_initial_query_is_an_error() {
    let it = Instance::start().await;
    let mut broken = open_with(&it, "?query=stats%3A4&generation=4").await;
    assert_eq!(next(&mut broken).await["type"], "error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_filters_events_by_headers_and_bodies_too() {
    let it = Instance::start().await;
    for (query, first, second) in [
        ("path:/wanted", "/other", "/wanted"),
        ("header.x-trace:abc path:/deep", "/shallow", "/deep"),
        ("-header:x-trace OR path:/kept", "/dropped", "/kept"),
    ] {
        let mut socket = watch(&it).await;
        let answer = say(&mut socket, json!({"subscribe": {"query": query}})).await;
        assert_eq!(answer["type"], "subscribed", "{answer}");
        it.record(first);
        it.record(second);
        let told = next(&mut socket).await;
        let paths: Vec<&str> = told["flows"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
        assert_eq!(paths, [second], "{query}");
    }
    let mut socket = watch(&it).await;
    say(&mut socket, json!({"subscribe": {"query": "body:needle"}})).await;
    it.post_through("/echo", "Content-Type: text/plain\r\n", "hay").await;
    it.post_through("/echo", "Content-Type: text/plain\r\n", "hay needle hay").await;
    let told = next(&mut socket).await;
    assert_eq!(told["flows"][0]["request_size"], 14, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_client_gets_no_events_and_invalid_commands_are_errors() {
    let it = Instance::start().await;
    let mut socket = watch(&it).await;
    let bad = say(&mut socket, json!({"subscribe": {"query": "stats:4"}})).await;
    assert_eq!((&bad["type"], &bad["error"]["kind"]), (&json!("error"), &json!("bad_query")));
    assert_eq!(say(&mut socket, json!({"sing": true})).await["error"]["kind"], "bad_request");
    assert_eq!(say(&mut socket, json!({"pause": true})).await, json!({"type": "paused", "paused": true}));
    let mut other = watch(&it).await;
    it.record("/while-paused");
    until(&mut other, "/while-paused", "complete").await;
    // The reply is the next message: nothing was sent in between.
    assert_eq!(say(&mut socket, json!({"pause": false})).await["paused"], false);
    until(&mut socket, "/while-paused", "complete").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_client_is_told_how_many_events_were_dropped() {
    let it = Instance::start().await;
    let mut socket = watch(&it).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    // The server may have taken up fewer events than it keeps when the pause ends: then they all come, and it goes again.
    loop {
        assert!(Instant::now() < deadline, "no events are ever dropped");
        say(&mut socket, json!({"pause": true})).await;
        for _ in 0..6000 {
            it.record("/many");
        }
        it.settle().await;
        say(&mut socket, json!({"pause": false})).await;
        if let Some(lag) = lag_before(&mut socket, 6000).await {
            assert!(lag["flows"].as_u64().unwrap() + lag["batches"].as_u64().unwrap() > 0, "{lag}");
            break;
        }
    }
    assert!(next(&mut socket).await["flows"].as_array().unwrap().len() <= 500);
}

/// The report of dropped events; `None` if so many flows come without one.
async fn lag_before(socket: &mut Socket, flows: usize) -> Option<Value> {
    let mut seen = std::collections::HashSet::new();
    while seen.len() < flows {
        let message = next(socket).await;
        if message["type"] == "lag" {
            return Some(message);
        }
        seen.extend(message["flows"].as_array().unwrap().iter().map(|f| f["id"].to_string()));
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn event_client_that_never_reads_is_disconnected_without_affecting_others() {
    let it = Instance::with(
        Origin::http(),
        Setup { events_patience: Some(HumanDuration::from_millis(300)), ..Setup::default() },
    )
    .await;
    let tcp = TcpSocket::new_v4().unwrap();
    tcp.set_recv_buffer_size(4096).unwrap();
    let request = {
        let mut request = format!("ws://{}/api/v1/events?query=", it.admin).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        request
    };
    let (deaf, _) = client_async(request, tcp.connect(it.admin).await.unwrap()).await.unwrap();
    let clients = async || it.json("/stats").await["event_clients"].as_u64().unwrap();
    assert_eq!(clients().await, 1);
    let path = format!("/{}", "x".repeat(4000));
    let start = Instant::now();
    while clients().await == 1 {
        assert!(start.elapsed() < Duration::from_secs(60), "the deaf client is never cut");
        for _ in 0..1000 {
            it.record(&path);
        }
    }
    drop(deaf);
    let mut socket = watch(&it).await;
    // Events recorded to fill the stalled client's socket may still arrive or be reported as missed; other clients
    // continue anyway.
    let told = async {
        loop {
            it.record("/after");
            let message = next(&mut socket).await;
            let flows = message["flows"].as_array();
            if flows.is_some_and(|all| all.iter().any(|f| f["path"] == "/after")) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("the others are told");
    let bearer = format!("Bearer {TOKEN}");
    let host = it.admin.to_string();
    let metrics = it.plain("GET", "/metrics", &[("Host", &host), ("Authorization", &bearer)], b"").await.text();
    assert!(metrics.contains("\ninterflow_admin_event_clients_disconnected_total 1\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_and_cross_origin_event_sockets_are_refused() {
    let it = Instance::start().await;
    let bearer = format!("Bearer {TOKEN}");
    for (fields, status) in [
        (vec![], 401),
        (vec![("authorization", bearer.as_str()), ("origin", "http://evil.test")], 403),
        (vec![("authorization", bearer.as_str()), ("host", "evil.test")], 421),
    ] {
        match open(&it, "", &fields).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status().as_u16(), status, "{fields:?}"),
            other => panic!("{fields:?}: {other:?}"),
        }
    }
}
