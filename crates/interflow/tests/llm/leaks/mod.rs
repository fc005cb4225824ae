//! The leak table: every client format, each place of a request that may hold a value, several kinds of values and
//! encodings, through the gateway and through the proxy to a host that Interflow does not know. Counts which values the
//! origin can read in what it received, and compares with the committed `bench/results/leaks.json`.
//!
//! `UPDATE_LEAKS=1` writes that file again.

mod formats;
mod received;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use interflow_testkit::{Origin, Reply, Request, Wire};
use serde_json::{Value, json};

use crate::instance::{Home, Running};
use formats::{Filled, Format};
use received::Received;
use values::{ENCODINGS, Encoding, KINDS, ValueKind};

/// How a request goes.
const WAYS: [&str; 3] = ["gateway", "proxy, the API's path", "proxy, another path"];

/// One request of the table.
struct Case<'f> {
    format: &'f Format,
    way: &'static str,
    encoding: Encoding,
    kind: ValueKind,
}

/// Leaked values and all values of some cases.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    leaked: usize,
    of: usize,
}

impl Count {
    fn add(&mut self, leaked: bool) {
        self.leaked += usize::from(leaked);
        self.of += 1;
    }

    fn to_json(self) -> Value {
        json!({ "leaked": self.leaked, "of": self.of })
    }
}

/// The counts, in total and by the parts of a case.
#[derive(Default)]
struct Table {
    all: Count,
    groups: BTreeMap<&'static str, BTreeMap<String, Count>>,
    /// By way, format, place and encoding; the kinds of the leaked values.
    rows: BTreeMap<[String; 4], (Count, Vec<&'static str>)>,
}

impl Table {
    fn add(&mut self, case: &Case<'_>, place: &'static str, leaked: bool) {
        self.all.add(leaked);
        let parts = [
            ("by_way", case.way),
            ("by_format", case.format.name),
            ("by_place", place),
            ("by_encoding", case.encoding.name()),
            ("by_kind", case.kind.name()),
        ];
        for (group, name) in parts {
            self.groups.entry(group).or_default().entry(name.to_owned()).or_default().add(leaked);
        }
        let row = [case.way, case.format.name, place, case.encoding.name()].map(str::to_owned);
        let (count, kinds) = self.rows.entry(row).or_default();
        count.add(leaked);
        if leaked {
            kinds.push(case.kind.name());
        }
    }

    fn to_json(&self) -> Value {
        let passes: Vec<Value> = self
            .rows
            .iter()
            .filter(|(_, (count, _))| count.leaked > 0)
            .map(|([way, format, place, encoding], (count, kinds))| {
                json!({ "way": way, "format": format, "place": place, "encoding": encoding,
                    "leaked": count.leaked, "of": count.of, "kinds": kinds,
                    "reason": reason(way, format, place, encoding) })
            })
            .collect();
        let mut table = json!({
            "note": "Values that the origin could read, of all values sent: crates/interflow/tests/llm/leaks. \
                     Redaction with the default policy and a list of names, redact.proxied = \"redact\".",
            "all": self.all.to_json(),
        });
        for (group, counts) in &self.groups {
            table[*group] = counts.iter().map(|(name, count)| (name.clone(), count.to_json())).collect();
        }
        table["passes"] = passes.into();
        table
    }
}

/// Why values pass here; `None` if there is no reason, which is a fault.
fn reason(way: &str, format: &str, place: &str, encoding: &str) -> Option<&'static str> {
    let reason = match (format, place, encoding) {
        ("MCP tools/call", ..) if way != WAYS[0] => {
            "a tool call through the proxy is not an LLM request: the tool needs the values; the MCP gateway redacts them"
        }
        (_, "user field" | "metadata", "base64") => {
            "it looks like an opaque identifier of a user, which is forwarded so that caches and limits keep working"
        }
        (.., "line break in the value") => "a name broken within a word is not put together",
        (.., "split over two parts") => "values are not put together from several strings",
        _ => return None,
    };
    Some(reason)
}

/// An origin that keeps what it receives, by the name of the case.
async fn origin(kept: &Arc<Mutex<HashMap<String, Request>>>) -> Origin {
    let kept = Arc::clone(kept);
    let answer = move |request: &Request| {
        let case = request.header("x-case").unwrap_or_default().to_owned();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if body["method"].as_str().is_none_or(|method| method == "tools/call") {
            kept.lock().unwrap().insert(case, request.clone());
        }
        match body["method"].as_str() {
            Some("initialize") => Reply::json(&json!({ "jsonrpc": "2.0", "id": body["id"], "result": {
                "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": {} } })),
            Some("tools/list") => {
                Reply::json(&json!({ "jsonrpc": "2.0", "id": body["id"], "result": { "tools": [{ "name": "get" }] } }))
            }
            Some("tools/call") => {
                Reply::json(&json!({ "jsonrpc": "2.0", "id": body["id"], "result": { "content": [] } }))
            }
            Some(_) => Reply::status(202),
            None => Reply::json(&json!({})),
        }
    };
    Origin::http().unrecorded().answering(answer).start().await
}

fn config(home: &Home, origin: &Origin) -> String {
    let names: Vec<String> = (0..values::MAX_PLACES).map(|n| ValueKind::Name.value(n)).collect();
    std::fs::write(home.dir.path().join("policy.toml"), format!("always = {}\n", json!(names))).unwrap();
    let url = origin.url("");
    let providers: String = ["openai", "anthropic", "gemini", "ollama", "cohere"]
        .iter()
        .map(|name| format!("[llm.provider.{name}]\nurl = \"{url}\"\n"))
        .collect();
    let policy = home.dir.path().join("policy.toml").display().to_string();
    format!(
        "[record]\nenabled = false\n[redact]\nproxied = \"redact\"\npolicy = {policy:?}\n{providers}\
         [mcp.server.notes]\nurl = \"{url}/mcp\"\narguments = \"redact\"\n"
    )
}

/// Sends a request and waits for its answer; the error of one that is refused.
async fn send(
    wire: &mut Wire,
    running: &Running,
    case: &Case<'_>,
    filled: &Filled,
    id: &str,
    origin: &Origin,
) -> Option<String> {
    let (target, host) = match case.way {
        "gateway" => (filled.target(case.format.gateway_path), running.gateway.to_string()),
        "proxy, the API's path" => (origin.url(&filled.target(case.format.path)), origin.authority()),
        _ => (origin.url(&filled.target("/ask")), origin.authority()),
    };
    let note = filled.header.as_ref().map(|value| format!("X-Note: {value}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         X-Case: {id}\r\n{note}{}\r\n",
        filled.body.len(),
        case.format.fields,
    );
    wire.send(head + &filled.body).await.unwrap();
    let answer = wire.answer().await.unwrap();
    let names = [case.way, case.format.name, case.encoding.name(), case.kind.name()].join(", ");
    (answer.status != 200).then(|| format!("{names}: {} {}", answer.status, answer.text()))
}

/// Opens the session of the MCP gateway; its id is a field of every call.
async fn mcp_session(running: &Running) -> String {
    let begin =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18" } });
    let answer = running.post("/mcp", "", &begin.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    format!("Mcp-Session-Id: {}\r\n", answer.header("mcp-session-id").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_origin_can_read_is_in_the_committed_table() {
    let home = Home::new().await;
    let kept = Arc::new(Mutex::new(HashMap::new()));
    let origin = origin(&kept).await;
    let running = home.start(&config(&home, &origin));
    let session = mcp_session(&running).await;
    let formats = formats::all(&session);
    let (mut table, mut refused) = (Table::default(), Vec::new());
    for way in WAYS {
        let to = if way == "gateway" { running.gateway } else { running.proxy };
        let mut wire = Wire::connect(to).await.unwrap();
        for format in &formats {
            for encoding in ENCODINGS {
                for kind in KINDS {
                    let case = Case { format, way, encoding, kind };
                    let id = format!("case-{}", table.all.of + refused.len());
                    let filled = format.fill(kind, encoding);
                    if let Some(error) = send(&mut wire, &running, &case, &filled, &id, &origin).await {
                        refused.push(error);
                        continue;
                    }
                    // The MCP gateway sends a request of its own, without the client's fields.
                    let taken = |name: &str| kept.lock().unwrap().remove(name);
                    let request = taken(&id).or_else(|| taken(""));
                    let received = Received::new(&request.expect("the origin received the request"));
                    for (place, value) in filled.values {
                        table.add(&case, place, received.holds(&value));
                    }
                }
            }
        }
    }
    running.stop();
    assert!(refused.is_empty(), "{} refused: {:#?}", refused.len(), &refused[..refused.len().min(40)]);
    check(&table.to_json());
}

fn check(table: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/leaks.json");
    let text = serde_json::to_string_pretty(table).unwrap() + "\n";
    if std::env::var_os("UPDATE_LEAKS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let rows = table["passes"].as_array().unwrap();
    let unexplained: Vec<&Value> = rows.iter().filter(|row| row["reason"].is_null()).collect();
    assert!(unexplained.is_empty(), "values pass without a reason: {unexplained:#?}");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(
        committed == *table,
        "other values pass than bench/results/leaks.json says; UPDATE_LEAKS=1 writes it again:\n{text}"
    );
}
