//! An MCP server for tests, over HTTP as an origin and over standard streams as a process: this test's own program.

use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{once, unfold};
use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// Text that no tool should get or give in clear.
pub const MAIL: &str = "anna.berg@firm.com";
pub const OTHER_MAIL: &str = "bob.stone@example.org";
/// What is found only where it is called a password.
pub const PASSWORD: &str = "Xk93mq2vL7pp";
/// An address that the schema of the tool `book` names.
pub const LISTED_MAIL: &str = "office@travel.example";

/// The tools that the server lists, on two pages.
const TOOLS: [[&str; 2]; 2] = [["echo", "lookup"], ["delete", "picture"]];
/// Those that follow on the second page.
const MORE_TOOLS: [&str; 14] = [
    "ask",
    "touch",
    "log",
    "log_inline",
    "ask_url",
    "need_url",
    "opened",
    "note",
    "slow",
    "crash",
    "steps",
    "resumed",
    "book",
    "broken",
];

/// In the order of the lists.
pub fn all_tools() -> impl Iterator<Item = &'static str> {
    TOOLS.into_iter().flatten().chain(MORE_TOOLS)
}

/// What the server does with a message.
pub enum Act {
    Reply(Value),
    /// Messages before the reply.
    Messages(Vec<Value>),
    /// A request to the client before the reply, which says what was answered.
    Ask(Value),
    /// Messages that belong to no request, then the reply.
    Tell(Vec<Value>, Value),
    Nothing,
    Crash,
    /// A reply that is not JSON.
    Broken(String),
}

fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

pub fn act(message: &Value) -> Act {
    let id = &message["id"];
    if id.is_null() {
        return Act::Nothing;
    }
    let params = &message["params"];
    let reply = |result: Value| Act::Reply(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    let tools = |names: &[&str]| -> Value {
        let schema = |name: &str| match name {
            "book" => json!({ "type": "object", "properties": {
                "city": { "$ref": "#/$defs/city" },
                "to": { "oneOf": [{ "const": LISTED_MAIL, "title": "the office" }] } },
                "$defs": { "city": { "enum": ["New York", "San Francisco"] } } }),
            _ => json!({ "type": "object" }),
        };
        names.iter().map(|name| json!({ "name": name, "inputSchema": schema(name) })).collect()
    };
    reply(match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "completions": {},
                "logging": {} },
            "serverInfo": { "name": "test", "version": "1" },
        }),
        "tools/list" if params["cursor"] == "2" => json!({ "tools": tools(&[&TOOLS[1][..], &MORE_TOOLS].concat()) }),
        "tools/list" => json!({ "tools": tools(&TOOLS[0]), "nextCursor": "2" }),
        "resources/list" => json!({ "resources": [{ "uri": "file:///anna.berg/notes", "name": "notes" }] }),
        "resources/templates/list" => {
            json!({ "resourceTemplates": [{ "uriTemplate": "test://{id}/note", "name": "note" }] })
        }
        "resources/read" => json!({ "contents": [{ "uri": params["uri"], "text": format!("by {OTHER_MAIL}") }] }),
        "prompts/list" => json!({ "prompts": [{ "name": "greet" }] }),
        "prompts/get" => json!({ "messages": [
            { "role": "user", "content": { "type": "text", "text": params["arguments"]["name"] } }
        ] }),
        "completion/complete" => {
            let said = format!("{} {} {}", params["ref"], params["argument"]["value"], params["context"]);
            json!({ "completion": { "values": [said, OTHER_MAIL], "total": 2, "hasMore": false } })
        }
        "tools/call" => match params["name"].as_str().unwrap_or_default() {
            "echo" | "book" => text(params["arguments"].to_string()),
            "lookup" => match (&params["arguments"]["what"], &params["arguments"]["fail"]) {
                (Value::Null, Value::Null) => text(format!("the contact is {OTHER_MAIL}")),
                (Value::Null, why) => {
                    let error = json!({ "code": -32000, "message": format!("no contact for {why}") });
                    return Act::Reply(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
                }
                (what, _) => text(if what == "login" {
                    format!("The password: {PASSWORD} of the vault")
                } else {
                    format!("set {}.", params["arguments"]["password"].as_str().unwrap_or(PASSWORD))
                }),
            },
            "picture" => json!({ "content": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] }),
            "ask" => {
                let method = params["arguments"]["method"].as_str().unwrap_or("elicitation/create");
                let asked = json!({ "message": format!("forward to {OTHER_MAIL}? {}", params["arguments"]["why"]),
                    "requestedSchema": { "type": "object", "properties": { "mail": { "type": "string" } } } });
                return Act::Ask(json!({ "jsonrpc": "2.0", "id": "q1", "method": method, "params": asked }));
            }
            "touch" => {
                let told =
                    |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
                let all = vec![
                    told("notifications/secret", json!({ "uri": OTHER_MAIL })),
                    told(
                        "notifications/resources/updated",
                        json!({ "uri": "file:///anna.berg/notes", "title": OTHER_MAIL }),
                    ),
                    told("notifications/resources/updated", json!({ "uri": "file:///never/subscribed" })),
                    told("notifications/tools/list_changed", json!({})),
                ];
                return Act::Tell(all, json!({ "jsonrpc": "2.0", "id": id, "result": text("touched") }));
            }
            "log" | "log_inline" => {
                let log = |level: &str, logger: Value, data: Value| {
                    json!({ "jsonrpc": "2.0", "method": "notifications/message",
                        "params": { "level": level, "logger": logger, "data": data } })
                };
                let mut all = vec![
                    log("debug", "db".into(), "every step".into()),
                    log("fatal", "db".into(), "no such level".into()),
                    log("error", "db".into(), json!({ "asked": params["arguments"], "for": OTHER_MAIL })),
                    log("alert", Value::Null, "x".repeat(20_000).into()),
                    log("warning", Value::Null, "the end".into()),
                ];
                let done = json!({ "jsonrpc": "2.0", "id": id, "result": text("logged") });
                if params["name"] == "log" {
                    return Act::Tell(all, done);
                }
                all.push(done);
                return Act::Messages(all);
            }
            "ask_url" => {
                let mut asked = params["arguments"].clone();
                asked["mode"] = "url".into();
                asked["message"] = format!("log in for {OTHER_MAIL}").into();
                asked["secret"] = OTHER_MAIL.into();
                let method = "elicitation/create";
                return Act::Ask(json!({ "jsonrpc": "2.0", "id": "q1", "method": method, "params": asked }));
            }
            "need_url" => {
                let mut needed = params["arguments"].clone();
                needed["mode"] = "url".into();
                needed["message"] = format!("log in for {OTHER_MAIL}").into();
                let error = json!({ "code": -32042, "message": format!("{OTHER_MAIL} has to log in"),
                    "data": { "elicitations": [needed], "more": OTHER_MAIL } });
                return Act::Reply(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            "opened" => {
                let told = |id: &Value| {
                    json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete",
                        "params": { "elicitationId": id, "more": OTHER_MAIL } })
                };
                let all = vec![told(&json!("never sent")), told(&params["arguments"]["elicitationId"])];
                return Act::Tell(all, json!({ "jsonrpc": "2.0", "id": id, "result": text("told") }));
            }
            "note" => {
                let told = json!({ "level": "info", "data": params["arguments"] });
                let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": told });
                return Act::Tell(vec![told], json!({ "jsonrpc": "2.0", "id": id, "result": text("noted") }));
            }
            "slow" => return Act::Nothing,
            "crash" => return Act::Crash,
            "broken" => return Act::Broken(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"id":1,"mean":NaN}}}}"#)),
            "steps" => {
                let progress = |n: u8| {
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                        "progressToken": params["_meta"]["progressToken"], "progress": n, "message": format!("asks {OTHER_MAIL}") } })
                };
                let done = json!({ "jsonrpc": "2.0", "id": id, "result": text(params["arguments"].to_string()) });
                return Act::Messages(vec![progress(1), progress(2), done]);
            }
            _ => {
                let mut failed = text("no such tool");
                failed["isError"] = true.into();
                failed
            }
        },
        _ => json!({}),
    })
}

/// What a server over HTTP keeps between requests.
#[derive(Default)]
struct WebState {
    /// Who waits for the answer of the client.
    asking: Mutex<Option<oneshot::Sender<Value>>>,
    /// The stream outside of requests.
    standing: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
    /// The response that a resumed stream has.
    rest: Mutex<Option<Value>>,
}

fn event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

/// What the client answered, as the result of a call.
fn answered(id: &Value, answer: &Value) -> Value {
    let said = if answer["error"].is_null() { &answer["result"] } else { &answer["error"] };
    json!({ "jsonrpc": "2.0", "id": id, "result": text(said.to_string()) })
}

impl WebState {
    fn reply(&self, message: &Value) -> Reply {
        let events = |reply: Reply| reply.header("Content-Type", "text/event-stream");
        if message["method"].is_null() {
            if let Some(asking) = self.asking.lock().unwrap().take() {
                asking.send(message.clone()).unwrap();
            }
            return Reply::status(202);
        }
        if message["params"]["name"] == "resumed" {
            *self.rest.lock().unwrap() =
                Some(json!({ "jsonrpc": "2.0", "id": message["id"], "result": text("the rest") }));
            return events(Reply::ok("id: 7\nretry: 10\ndata:\n\n"));
        }
        match act(message) {
            Act::Ask(asked) => {
                let (sender, answer) = oneshot::channel();
                *self.asking.lock().unwrap() = Some(sender);
                let (first, id) = (event(&asked), message["id"].clone());
                let last = async move { event(&answered(&id, &answer.await.unwrap_or_default())) };
                events(Reply::status(200)).stream(once(async move { first }).chain(once(last)))
            }
            Act::Tell(all, done) => {
                if let Some(standing) = &*self.standing.lock().unwrap() {
                    all.iter().for_each(|m| standing.send(event(m)).unwrap());
                }
                Reply::json(&done)
            }
            other => reply(other),
        }
    }

    fn listen(&self, request: &Request) -> Reply {
        let events = Reply::status(200).header("Content-Type", "text/event-stream");
        if request.header("last-event-id") == Some("7") {
            let rest = self.rest.lock().unwrap().take().unwrap();
            return events.body(event(&rest));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.standing.lock().unwrap() = Some(sender);
        events.stream(unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }))
    }
}

/// A server over HTTP: sessions get numbers, and the first one is forgotten after so many requests.
pub async fn over_http(forgets_after: usize) -> Origin {
    let (sessions, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let state = WebState::default();
    Origin::http()
        .answering(move |request: &Request| {
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            if request.path() == "/token" {
                let form = String::from_utf8_lossy(&request.body);
                assert_eq!(form, "grant_type=client_credentials&scope=a%20b&client_id=gate&client_secret=s%26t");
                return Reply::json(&json!({ "access_token": "upstream-secret", "expires_in": 3600 }));
            }
            if request.path() != "/mcp" {
                return Reply::status(307).header("Location", "/mcp");
            }
            if request.header("authorization") != Some("Bearer upstream-secret") {
                return Reply::status(401);
            }
            if request.method == "DELETE" {
                return Reply::status(200);
            }
            if message["method"] == "initialize" {
                let number = sessions.fetch_add(1, Relaxed);
                return reply(act(&message)).header("Mcp-Session-Id", format!("s{number}"));
            }
            if message["method"] == "server/discover" {
                return Reply::status(400);
            }
            let is_first = request.header("mcp-session-id") == Some("s0");
            if is_first && requests.fetch_add(1, Relaxed) >= forgets_after {
                return Reply::status(404);
            }
            assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
            if request.method == "GET" {
                return state.listen(request);
            }
            state.reply(&message)
        })
        .start()
        .await
}

fn reply(act: Act) -> Reply {
    match act {
        Act::Reply(value) => Reply::json(&value),
        Act::Messages(all) => {
            let events: String = all.iter().map(|m| format!("event: message\ndata: {m}\n\n")).collect();
            Reply::ok(events).header("Content-Type", "text/event-stream")
        }
        Act::Ask(_) | Act::Tell(..) => unreachable!("it is answered with its stream"),
        Act::Nothing => Reply::status(202),
        Act::Crash => Reply::status(500),
        Act::Broken(text) => {
            Reply::ok(format!("id: 9\nretry: 10\ndata: {text}\n\n")).header("Content-Type", "text/event-stream")
        }
    }
}

/// The `[mcp.server]` section of a server over standard streams, which writes what it receives to this file.
pub fn over_stdio(name: &str, log: &std::path::Path, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[mcp.server.{name}]\ncommand = '{}'\nargs = ['--ignored', '--exact', 'server::stdio_server', '--nocapture']\n\
         env = {{ MCP_TEST_LOG = '{}' }}\n{more}\n",
        program.display(),
        log.display()
    )
}

#[test]
#[ignore = "the server that other tests start, with MCP_TEST_LOG"]
fn stdio_server() {
    let mut log = std::fs::File::create(std::env::var_os("MCP_TEST_LOG").expect("started by a test")).unwrap();
    // What the test harness wrote is not a message, and must not matter.
    println!();
    let mut asking = Value::Null;
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        writeln!(log, "{line}").unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == "q1" {
            println!("{}", answered(&asking, &message));
            continue;
        }
        match act(&message) {
            Act::Ask(asked) => {
                asking = message["id"].clone();
                println!("{asked}");
            }
            Act::Tell(all, done) => all.iter().chain([&done]).for_each(|m| println!("{m}")),
            Act::Reply(value) => println!("{value}"),
            Act::Messages(all) => all.iter().for_each(|m| println!("{m}")),
            Act::Nothing => {}
            Act::Broken(text) => println!("{text}"),
            Act::Crash => {
                eprintln!("boom");
                std::process::exit(3);
            }
        }
    }
    writeln!(log, "the end").unwrap();
    std::process::exit(0);
}
