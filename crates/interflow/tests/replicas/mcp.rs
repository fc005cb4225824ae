//! Three replicas of the MCP gateway behind HAProxy, request by request in turn, and one that is killed: clients with and
//! without sessions go on at the others. Needs haproxy, too.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use interflow_testkit::{Answer, KilledOnDrop, Origin, PostgresServer, Reply, Request, Wire, until};
use serde_json::{Value, json};

use crate::replica::{PATIENCE, Replica, named};

const STATELESS: &str = "2026-07-28";

/// An MCP server of one era, whose tool returns its arguments. One with sessions refuses those that it did not begin.
async fn server(is_stateless: bool) -> Origin {
    let sessions = AtomicUsize::new(0);
    let answer = move |request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let is_of_era = (request.header("mcp-protocol-version") == Some(STATELESS)) == is_stateless;
        let session = request.header("mcp-session-id").and_then(|id| id.parse::<usize>().ok());
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" if !is_stateless => {
                let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
                let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": hello });
                return Reply::json(&body).header("Mcp-Session-Id", sessions.fetch_add(1, SeqCst).to_string());
            }
            _ if !is_of_era => return Reply::status(400),
            "server/discover" => json!({ "supportedVersions": [STATELESS], "capabilities": { "tools": {} } }),
            _ if !is_stateless && session.is_none_or(|number| number >= sessions.load(SeqCst)) => {
                return Reply::status(404);
            }
            "tools/list" => json!({ "tools": [{ "name": "echo" }] }),
            "tools/call" => {
                json!({ "content": [{ "type": "text", "text": message["params"]["arguments"].to_string() }] })
            }
            _ => return Reply::status(405),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    };
    Origin::http().answering(answer).start().await
}

/// HAProxy, which gives each request to the next replica, and sends it again if one broke off.
fn balancer(replicas: &[Replica]) -> Option<(KilledOnDrop, SocketAddr)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n option redispatch 1\n \
         retries 10\n option http-server-close\n option http-buffer-request\n retry-on conn-failure empty-response\n \
         default-server check inter 250ms fall 1 rise 1\nfrontend gateway\n bind {port}\n default_backend gateway\n\
         backend gateway\n balance roundrobin\n option httpchk GET /readyz\n http-check send hdr Host localhost\n"
    );
    for (n, replica) in replicas.iter().enumerate() {
        config += &format!(" server r{n} {} port {}\n", replica.gateway, replica.admin.port());
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(config.as_bytes()).unwrap();
    let program = ["/usr/sbin/haproxy", "/usr/bin/haproxy", "/usr/local/sbin/haproxy"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists());
    let Some(program) = program else {
        eprintln!("LEFT OUT: haproxy is not installed; install it, or run `make test` as root");
        return None;
    };
    let child = Command::new(program).arg("-db").arg("-f").arg(file.path()).stdout(Stdio::null()).spawn().unwrap();
    let child = KilledOnDrop(child);
    until("HAProxy listens", || std::net::TcpStream::connect(port).ok());
    Some((child, port))
}

async fn post(to: SocketAddr, fields: &str, message: &Value) -> Answer {
    let (mut wire, body) = (Wire::connect(to).await.unwrap().patience(Some(PATIENCE)), message.to_string());
    wire.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nAccept: application/json, \
         text/event-stream\r\nContent-Length: {}\r\n{fields}\r\n{body}",
        body.len()
    ))
    .await
    .unwrap();
    wire.answer().await.unwrap()
}

fn rpc(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

/// Calls the tool of each server in turn until it is over. Every call has its result.
async fn client(gateway: SocketAddr, has_session: bool, over: Arc<AtomicBool>, calls: Arc<AtomicUsize>) {
    let mut fields = String::new();
    if has_session {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} } });
        let begun = post(gateway, "", &rpc("initialize", &params)).await;
        fields = format!("Mcp-Session-Id: {}\r\n", begun.header("mcp-session-id").unwrap());
        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(post(gateway, &fields, &done).await.status, 202);
    }
    for n in 0.. {
        if over.load(SeqCst) {
            return;
        }
        let name = ["new__echo", "old__echo"][n % 2];
        let mut params = json!({ "name": name, "arguments": { "n": n } });
        if !has_session {
            let prefix = "io.modelcontextprotocol";
            params["_meta"] = json!({ format!("{prefix}/protocolVersion"): STATELESS,
                format!("{prefix}/clientCapabilities"): { "elicitation": {} } });
            fields = format!("MCP-Protocol-Version: {STATELESS}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n");
        }
        let answer = post(gateway, &fields, &rpc("tools/call", &params)).await;
        let text = answer.json()["result"]["content"][0]["text"].clone();
        assert_eq!((answer.status, text), (200, json!({ "n": n }).to_string().into()), "{}", answer.text());
        calls.fetch_add(1, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_when_one_of_three_replicas_is_killed() {
    let Some(database) = PostgresServer::shared().map(|server| server.database()) else { return };
    let (new, old) = (server(true).await, server(false).await);
    let start = |name: &str| {
        let mcp = format!(
            "[redact]\nsecret = \"the same at all replicas\"\n[mcp.server.new]\nurl = \"{}\"\n[mcp.server.old]\nurl = \"{}\"\n",
            new.url("/mcp"),
            old.url("/mcp")
        );
        Replica::start(&format!("{}{mcp}", named(name, &database)))
    };
    let mut replicas = [start("one"), start("two"), start("three")];
    let Some((_balancer, gateway)) = balancer(&replicas) else { return };
    let (over, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let clients: Vec<_> =
        (0..6).map(|n| tokio::spawn(client(gateway, n % 2 == 0, Arc::clone(&over), Arc::clone(&calls)))).collect();
    let more = |calls: &AtomicUsize, many: usize| {
        let expected = calls.load(SeqCst) + many;
        until("calls are answered", || {
            assert!(!clients.iter().any(tokio::task::JoinHandle::is_finished), "a call failed");
            (calls.load(SeqCst) >= expected).then_some(())
        });
    };
    more(&calls, 150);
    for replica in &replicas {
        let head = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {}\r\n", replica.admin_token());
        let page = replica.send(replica.admin, &head, "").await.text();
        let line = page.lines().find(|line| line.starts_with("interflow_mcp_calls_total")).map(str::to_owned);
        assert!(line.is_some(), "each replica has calls: {page}");
    }
    replicas[1].kill();
    more(&calls, 300);
    over.store(true, SeqCst);
    for client in clients {
        tokio::time::timeout(PATIENCE, client).await.expect("answered").expect("no call failed");
    }
    println!("{} calls, none failed", calls.load(SeqCst));
}
