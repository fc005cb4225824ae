//! What runs at one replica is listed, filtered, tailed and shown at the other; once it has ended, it is there once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use interflow_testkit::client::connect_tunnel;
use interflow_testkit::{Origin, PostgresDatabase, PostgresServer, Reply, Wire, until};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::replica::{PATIENCE, Replica, named};

fn start(name: &str, database: &PostgresDatabase) -> Replica {
    Replica::start(&named(name, database))
}

/// An origin whose response of `/slow` ends when the gate opens, and whose `/ws` echoes.
async fn origin(gate: &watch::Sender<bool>) -> Origin {
    let opened = gate.subscribe();
    let answering = Origin::http().answering(move |request| {
        if request.target.starts_with("/ws") {
            return Reply::websocket_echo();
        }
        let mut opened = opened.clone();
        let last = stream::once(async move {
            let _ = opened.wait_for(|is_open| *is_open).await;
            Bytes::from_static(b"last words")
        });
        let pieces = stream::once(async { Bytes::from_static(b"first words, ") }).chain(last);
        Reply::status(200).header("content-type", "text/plain").stream(pieces)
    });
    answering.start().await
}

/// Sends a request through a proxy and reads the head of its response.
async fn begin(proxy: std::net::SocketAddr, origin: &Origin, path: &str) -> Wire {
    let mut wire = Wire::connect(proxy).await.unwrap().patience(Some(PATIENCE));
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer hidden-credential\r\n\r\n",
        origin.url(path),
        origin.authority()
    );
    wire.send(request).await.unwrap();
    assert_eq!(wire.answer_head().await.unwrap().status, 200);
    wire
}

impl Replica {
    /// The flows that the API lists for a query; `None` while it does not answer.
    async fn flows(&self, query: &str) -> Option<Vec<Value>> {
        let answer = self.api(&self.admin_token(), "GET", &format!("/flows?query={query}"), "").await;
        (answer.status == 200).then(|| answer.json()["flows"].as_array().unwrap().clone())
    }

    /// The flows that it lists, as soon as they are as many.
    async fn until_listed(&self, query: &str, expected: usize) -> Vec<Value> {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let listed = self.flows(query).await;
            if let Some(flows) = &listed
                && flows.len() == expected
            {
                return flows.clone();
            }
            assert!(std::time::Instant::now() < deadline, "{query}: {listed:?}, not {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The live view of this replica.
    async fn watch(&self) -> WebSocketStream<TcpStream> {
        let mut request = format!("ws://{}/api/v1/events?query=", self.admin).into_client_request().unwrap();
        let bearer = format!("Bearer {}", self.admin_token());
        request.headers_mut().insert("authorization", bearer.parse().unwrap());
        client_async(request, TcpStream::connect(self.admin).await.unwrap()).await.unwrap().0
    }
}

/// Reads events until each of these paths was in its state.
async fn until_events(socket: &mut WebSocketStream<TcpStream>, expected: &[(&str, &str)]) {
    let mut missing = expected.to_vec();
    let seen = async {
        while !missing.is_empty() {
            let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            let flows = event["flows"].as_array().cloned().unwrap_or_default();
            missing.retain(|(path, state)| !flows.iter().any(|flow| flow["path"] == *path && flow["state"] == *state));
        }
    };
    let is_seen = tokio::time::timeout(PATIENCE, seen).await;
    assert!(is_seen.is_ok(), "not seen: {missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_runs_at_one_replica_is_shown_at_another_and_is_there_once_when_it_has_ended() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let gate = watch::Sender::new(false);
    let origin = origin(&gate).await;
    let (a, b) = (start("gateway-a", &database), start("gateway-b", &database));
    let mut events = b.watch().await;

    let mut slow = begin(a.proxy, &origin, "/slow").await;
    let tunnel = connect_tunnel(a.proxy, &origin.authority(), None).await.unwrap();
    let url = format!("ws://{}/ws", origin.authority());
    let (mut socket, _) = client_async(url, tunnel.patience(None)).await.unwrap();
    socket.send(Message::text("a message")).await.unwrap();

    // Listed and tailed at the other while they run, in the state that they have.
    let flow = b.until_listed("is:open+path:/slow", 1).await.remove(0);
    b.until_listed("is:open+is:websocket", 1).await;
    until_events(&mut events, &[("/slow", "open"), ("/ws", "open")]).await;
    assert_eq!((&flow["state"], &flow["status"], &flow["method"]), (&json!("open"), &json!(200), &json!("GET")));

    // Filtered as at the replica where they run, by the command line too; but nothing is found in what is not there.
    for (query, found) in [
        ("path:/slow status:200 is:open", 1),
        ("path:/slow -is:open", 0),
        ("path:/slow method:POST", 0),
        ("path:/slow resp.type:text", 1),
        ("path:/slow header:content-type", 1),
        ("path:/ws is:websocket -is:error", 1),
    ] {
        assert_eq!((a.count(query), b.count(query)), (found, found), "{query}");
    }
    assert!(b.cli(&["flows", "list", "is:open"]).contains("/slow"));
    until("its own replica finds the body", || (a.count("body:\"first words\"") == 1).then_some(()));
    assert_eq!((b.count("body:\"first words\""), b.count("-body:\"first words\" path:/slow")), (0, 0));
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                      "params": {"name": "search_flows", "arguments": {"query": "is:open path:/slow"}}});
    let head = format!(
        "POST /mcp HTTP/1.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n",
        b.admin_token()
    );
    let found = b.send(b.admin, &head, &call.to_string()).await.text();
    assert!(found.contains("/slow"), "{found}");

    // Shown without bodies and messages; whoever reads them is told where they are.
    let id = flow["id"].as_str().unwrap();
    let token = b.admin_token();
    let shown = b.api(&token, "GET", &format!("/flows/{id}"), "").await;
    assert!(shown.status == 200 && !shown.text().contains("hidden-credential"), "{}", shown.text());
    assert_eq!(shown.json()["response"]["body"]["missing"], "elsewhere", "{}", shown.text());
    let websocket = b.until_listed("is:open+is:websocket", 1).await.remove(0);
    let websocket = websocket["id"].as_str().unwrap();
    assert_eq!(b.api(&token, "DELETE", &format!("/flows/{id}"), "").await.json()["error"]["kind"], "open");
    for path in [format!("/flows/{id}/response/body"), format!("/flows/{websocket}/messages")] {
        let refused = b.api(&token, "GET", &path, "").await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["kind"]), (409, &json!("elsewhere")), "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains("runs at the replica gateway-a-"), "{error}");
    }
    let viewer = b.cli(&["tokens", "create", "--name", "v", "--role", "viewer"]).trim().to_owned();
    for replica in [&a, &b] {
        replica.until_token_status(&viewer, 200).await;
    }
    let own = a.api(&viewer, "GET", &format!("/flows/{id}/response/body"), "").await.status;
    assert_eq!((own, b.api(&viewer, "GET", &format!("/flows/{id}/response/body"), "").await.status), (403, 403));
    for id in [id, websocket] {
        assert!(b.cli(&["flows", "show", id]).contains("runs at another replica"));
    }
    assert!(b.cli(&["flows", "export", "is:open", "--format", "har"]).contains("/slow"));
    let tagged = b.command(&["flows", "tag", id, "seen"]).output().unwrap();
    assert!(!tagged.status.success() && String::from_utf8_lossy(&tagged.stderr).contains("gateway-a"), "{tagged:?}");

    // What is published is masked, and holds no body.
    let sql = |text: &str| {
        let sql = format!(
            "SELECT count(*) FROM interflow.running_flows WHERE position('{text}'::bytea IN detail) > 0 OR url LIKE '%{text}%'"
        );
        database.sql(&sql).trim().to_owned()
    };
    assert_eq!((sql("text/plain"), sql("hidden-credential"), sql("first words")), ("1".into(), "0".into(), "0".into()));

    // From the end on there is one row, whenever somebody looks, and in the end it is the finished one.
    gate.send_replace(true);
    while slow.chunk().await.unwrap().is_some() {}
    drop(socket);
    let ended = async {
        loop {
            let flows = b.flows("path:/slow").await.unwrap();
            assert_eq!(flows.len(), 1, "{flows:?}");
            if flows[0]["state"] == "complete" {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends");
    until_events(&mut events, &[("/slow", "complete")]).await;
    b.until_listed("path:/ws+-is:open", 1).await;
    b.until_listed("is:open", 0).await;
    assert_eq!((b.count("path:/slow"), b.count("path:/ws")), (1, 1));
    let body = b.api(&token, "GET", &format!("/flows/{id}/response/body"), "").await;
    assert_eq!((body.status, body.text()), (200, "first words, last words".into()));
    let rows = || database.sql("SELECT count(*) FROM interflow.running_flows").trim().to_owned();
    until("nothing is left of them", || (rows() == "0").then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_ran_at_a_killed_replica_vanishes_and_is_recorded_as_cut_once_it_is_back() {
    // A server of its own, as this test kills it.
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let gate = watch::Sender::new(false);
    let origin = Arc::new(origin(&gate).await);
    let (mut a, b) = (start("gateway-a", &database), start("gateway-b", &database));
    let _slow = begin(a.proxy, &origin, "/slow").await;
    b.until_listed("is:open", 1).await;

    // The table is empty after a crash of the server, and filled again.
    server.kill();
    server.start();
    b.until_listed("is:open", 1).await;

    a.kill();
    b.until_listed("is:open", 0).await;
    assert_eq!(b.flows("path:/slow").await.unwrap(), [json!(null); 0]);
    let rows = || database.sql("SELECT count(*) FROM interflow.running_flows").trim().to_owned();
    until("its rows are deleted", || (rows() == "0").then_some(()));

    a.run();
    let flow = b.until_listed("path:/slow", 1).await.remove(0);
    assert_eq!(flow["state"], "cut");
}
