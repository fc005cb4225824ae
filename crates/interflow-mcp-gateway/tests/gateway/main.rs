//! The MCP gateway in a running proxy, with servers over HTTP and standard streams.

mod account_links;
mod account_logins;
mod accounts;
mod asking;
mod client_keys;
mod completion;
mod dpop;
mod eras;
mod log_messages;
mod operator_log;
mod policy;
mod redaction;
mod repeated_values;
mod resuming;
mod server;
mod sessions;
mod stateless;
/// The harness of the proxy's own tests, partly used.
#[allow(dead_code, unexpected_cfgs)]
#[path = "../../../interflow-proxy/tests/proxy/support.rs"]
mod support;
mod tasks;
mod tool_search;
mod tools;
mod url_elicitation;
mod users;
mod web_pages;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use interflow_limits::KeyStore;
use interflow_mcp_gateway::{GrantFile, McpConfig, McpDeps, McpMount, McpService};
use interflow_proxy::LocalClient;
use interflow_redact::{AdditionalDetectors, RedactMode, Redactor, ValueGuard, ValuePolicy};
use interflow_testkit::{Answer, Origin, Wire};
use interflow_types::{BoxFuture, Flow, RequestHead};
use serde_json::{Value, json};

use support::Proxy;

/// A gateway with one session of a client.
pub struct Gate {
    pub proxy: Proxy,
    pub service: Arc<McpService>,
    /// What a person was asked.
    pub asked: Arc<Mutex<Vec<String>>>,
    /// How many requests were counted against limits.
    pub counted: Arc<AtomicUsize>,
    /// What the gateway declared at the beginning.
    pub capabilities: Value,
    path: String,
    session: String,
}

/// Refuses what a server says of its progress, in which addresses are redacted.
struct NoProgress;

impl ValueGuard for NoProgress {
    fn check_arguments<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a RequestHead,
        json: String,
    ) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async { Ok(json) })
    }

    fn check_result(&self, json: String) -> BoxFuture<'_, Result<String, String>> {
        let is_refused = json.contains("asks EMAIL");
        Box::pin(async move { if is_refused { Err("progress is refused".into()) } else { Ok(json) } })
    }
}

/// `[mcp.server.web]` at an origin.
pub fn web(origin: &Origin, more: &str) -> String {
    let url = origin.url("/mcp");
    format!("[mcp.server.web]\nurl = '{url}'\nheaders = {{ Authorization = 'Bearer upstream-secret' }}\n{more}\n")
}

impl Gate {
    pub async fn start(config: &str) -> Self {
        Self::at("/mcp", config).await
    }

    /// With a session at this endpoint. A person allows what has no `forbidden` in it.
    pub async fn at(path: &str, config: &str) -> Self {
        Self::of_client(path, config, json!({})).await
    }

    /// With a client that can be asked so much.
    pub async fn of_client(path: &str, config: &str, capabilities: Value) -> Self {
        let mut gate = Self::without_session(path, config).await;
        gate.begin(capabilities, "").await;
        gate
    }

    /// Begins the session, with further header fields.
    pub async fn begin(&mut self, capabilities: Value, fields: &str) {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
        let begun = self.post(&request(0, "initialize", &params), fields).await;
        assert_eq!(begun.status, 200, "{}", begun.text());
        self.capabilities = begun.json()["result"]["capabilities"].clone();
        self.session = begun.header("mcp-session-id").unwrap().to_owned();
    }

    pub async fn without_session(path: &str, config: &str) -> Self {
        Self::with_accounts(path, config, "/nowhere/accounts.json".as_ref(), &accounts::no_keys()).await
    }

    /// With accounts in this file, and these virtual keys.
    pub async fn with_accounts(path: &str, config: &str, accounts: &Path, keys: &Arc<KeyStore>) -> Self {
        let config: McpConfig = toml::from_str::<toml::Table>(config).unwrap()["mcp"].clone().try_into().unwrap();
        let (local, ring) = (LocalClient::default(), Arc::clone(keys));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let counted = Arc::<AtomicUsize>::default();
        let (seen, count) = (Arc::clone(&asked), Arc::clone(&counted));
        let deps = McpDeps {
            http: Arc::new(local.unrecorded()),
            review: Box::new(move |_, _, reason| {
                let is_forbidden = reason.contains("forbidden");
                seen.lock().unwrap().push(reason);
                Box::pin(async move { if is_forbidden { Err("the operator denied it".into()) } else { Ok(()) } })
            }),
            policy: Box::new(|_, _| {
                Ok(ValuePolicy {
                    mode: RedactMode::Redact,
                    redactor: Arc::new(Redactor::default()),
                    detectors: AdditionalDetectors::default(),
                    restore: true,
                    context: String::new(),
                    max_size: 10_000,
                    guard: None,
                })
            }),
            admit: Box::new(move |_| {
                count.fetch_add(1, Relaxed);
                Box::pin(async { Ok(()) })
            }),
            shows_key: Box::new(|head| accounts::shown_key(head).is_some()),
            count: Box::new(|_, _| ()),
            guard: Box::new(|_, server| (server == "guarded").then(|| Arc::new(NoProgress) as _)),
            tokens: Box::new(|_, _| Ok(Arc::new(users::SignedTokens))),
            discovered: Arc::new(local.unrecorded().filtered(Vec::new(), "none")),
            grants: Arc::new(GrantFile::new(accounts.to_owned())),
            keys: Arc::new(move || ring.ring()),
            master: [7; 32],
        };
        let service = McpService::new(&config, deps).unwrap();
        let mount = Arc::new(McpMount(Arc::clone(&service)));
        let [oauth, prepare, restore] = service.stages();
        let stages = vec![oauth, Arc::new(accounts::KeyStage(Arc::clone(keys))), prepare, restore];
        let proxy = Proxy::with_components(&[], stages, vec![mount], local, |_| ());
        Self { proxy, service, asked, counted, capabilities: Value::Null, path: path.into(), session: String::new() }
    }

    pub async fn post(&self, message: &Value, fields: &str) -> Answer {
        let session = match self.session.as_str() {
            "" => String::new(),
            id => format!("Mcp-Session-Id: {id}\r\n"),
        };
        let json = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        self.send("POST", &format!("{json}{session}{fields}"), &message.to_string()).await
    }

    /// Sends a request whose response is an event stream.
    pub async fn stream(&self, method: &str, message: &str) -> EventStream {
        self.stream_with(method, "", message).await
    }

    pub async fn stream_with(&self, method: &str, fields: &str, message: &str) -> EventStream {
        let mut wire = Wire::connect(self.proxy.gateway()).await.unwrap();
        let (path, session, length) = (&self.path, &self.session, message.len());
        wire.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: gate\r\nContent-Length: {length}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMcp-Session-Id: {session}\r\n{fields}\r\n{message}"
        ))
        .await
        .unwrap();
        let head = wire.answer_head().await.unwrap();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{head:?}");
        EventStream { wire, text: String::new(), last_id: String::new() }
    }

    pub async fn send(&self, method: &str, fields: &str, body: &str) -> Answer {
        let mut wire = Wire::connect(self.proxy.gateway()).await.unwrap();
        let (path, length) = (&self.path, body.len());
        let host = self.proxy.gateway();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{fields}\r\n{body}");
        wire.send(head).await.unwrap();
        wire.answer_to(method).await.unwrap()
    }

    /// The result of a request.
    pub async fn rpc(&self, method: &str, params: Value) -> Value {
        let answer = self.post(&request(7, method, &params), "").await;
        let body = answer.json();
        assert_eq!((answer.status, &body["id"]), (200, &json!(7)), "{body}");
        assert!(body["error"].is_null(), "{body}");
        body["result"].clone()
    }

    /// The error of a request.
    pub async fn error(&self, method: &str, params: Value) -> String {
        let body = self.post(&request(7, method, &params), "").await.json();
        body["error"]["message"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }

    /// The text that a tool returns.
    pub async fn call(&self, tool: &str, arguments: Value) -> String {
        let result = self.rpc("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    pub async fn call_error(&self, tool: &str, arguments: Value) -> String {
        self.error("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    pub async fn names(&self, method: &str, member: &str) -> Vec<String> {
        let result = self.rpc(method, json!({})).await;
        result[member].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Both sides of everything that was recorded.
    pub async fn recorded(&self, flows: usize) -> String {
        let flows = self.proxy.flows(flows).await;
        let sides = flows.iter().flat_map(|flow| [&flow.sent, &flow.received]);
        sides.map(|side| String::from_utf8_lossy(side).into_owned()).collect()
    }
}

/// An event stream that is read message by message.
pub struct EventStream {
    wire: Wire,
    text: String,
    /// The id of the latest event that had one.
    pub last_id: String,
}

impl EventStream {
    /// The event that comes first, as it is written.
    pub async fn first_event(&mut self) -> String {
        while !self.text.contains("\n\n") {
            let chunk = self.wire.chunk().await.unwrap().expect("an event");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        self.text.split_once("\n\n").unwrap().0.to_owned()
    }

    /// The next message; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                if let Some(id) = event.lines().find_map(|line| line.strip_prefix("id: ")) {
                    self.last_id = id.to_owned();
                }
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
                self.text = rest.to_owned();
                match data {
                    Some(data) => return Some(serde_json::from_str(&data).unwrap()),
                    None => continue,
                }
            }
            let chunk = self.wire.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

pub fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A file for what a process received.
pub struct Log {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl Log {
    pub fn create() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().join("log"), _dir: dir }
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap_or_default()
    }

    /// Waits until the process received this.
    pub async fn wait_for(&self, text: &str) {
        for _ in 0..1000 {
            if self.text().contains(text) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{text} never arrived: {}", self.text());
    }
}
