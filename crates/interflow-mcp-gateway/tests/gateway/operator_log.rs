//! The log of the gateway, which has no text of servers.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, Once};

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::server::{OTHER_MAIL, over_stdio};
use crate::{Gate, Log};

/// What all tests of this process logged since it was begun.
static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Logger;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("interflow_mcp_gateway")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LOGGED.lock().unwrap().push_str(&format!("{}\n", line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn the_log_has_no_text_of_servers() {
    static LOGS: Once = Once::new();
    LOGS.call_once(|| tracing::subscriber::set_global_default(Logger).unwrap());
    let failing = Origin::http().answering(|request: &Request| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let id = &message["id"];
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "logging": {} } });
        let error = json!({ "code": -32000, "message": format!("{OTHER_MAIL} is not known") });
        Reply::json(&match message["method"].as_str() {
            Some("initialize") => json!({ "jsonrpc": "2.0", "id": id, "result": hello }),
            _ => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        })
    });
    let failing = failing.start().await;
    let log = Log::create();
    let web = format!("[mcp.server.failing]\nurl = '{}'\n", failing.url("/mcp"));
    let gate = Gate::start(&format!("{web}{}", over_stdio("local", &log.path, ""))).await;
    gate.names("tools/list", "tools").await;
    gate.rpc("logging/setLevel", json!({ "level": "debug" })).await;
    // The client is told what the process wrote before it ended.
    for _ in 0..2 {
        assert!(gate.call_error("local__crash", json!({})).await.contains("boom"));
    }
    let logged = LOGGED.lock().unwrap().clone();
    for part in ["tools/list of the MCP server failing failed", "logging/setLevel failed", "MCP server local failed"] {
        assert!(logged.contains(part), "{part}: {logged}");
    }
    for text in ["boom", OTHER_MAIL, "not known"] {
        assert!(!logged.contains(text), "{text}: {logged}");
    }
}
