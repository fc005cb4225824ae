//! The columns of a Parquet file of flows: one schema, documented in `docs/guides/archives.md`.

use interflow_store::{FlowRecord, serde_repr};
use interflow_types::{Direction, Headers};
use serde::Serialize;

/// The version of the schema: it rises when a column's meaning or type changes, and not when a column is added.
pub const SCHEMA_VERSION: &str = "1";

/// How a column's value is made of a flow. A value that is missing is null.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Text(fn(&FlowRecord) -> Option<String>),
    /// Text that is a JSON document.
    Json(fn(&FlowRecord) -> Option<String>),
    Integer(fn(&FlowRecord) -> Option<u64>),
    Boolean(fn(&FlowRecord) -> Option<bool>),
    /// Microseconds since 1970, UTC.
    Instant(fn(&FlowRecord) -> Option<u64>),
    List(fn(&FlowRecord) -> &[String]),
    /// The recorded bytes of a body, if bodies are exported.
    Body(Direction),
}

#[derive(Clone, Copy)]
pub(super) struct Column {
    pub name: &'static str,
    /// What the reference page says of it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page is compared with it"))]
    pub meaning: &'static str,
    pub value: Value,
}

macro_rules! columns {
    ($($name:ident $kind:ident $value:expr, $meaning:literal;)*) => {
        /// Every column, in the order of the file.
        pub(super) const COLUMNS: &[Column] =
            &[$(Column { name: stringify!($name), meaning: $meaning, value: Value::$kind($value) },)*];
    };
}

columns! {
    id Text |f| Some(f.id.to_string()), "ID of the flow; IDs sort by time.";
    started Instant |f| Some(f.started.micros()), "When the flow began.";
    state Text |f| name_of(&f.state), "`open`, `complete`, `failed` or `cut`.";
    kind Text |f| name_of(&f.kind), "`http`, `websocket` or `tunnel`.";
    transport Text |f| Some(f.transport.as_str().to_owned()), "How the client addressed the proxy: `connect`, `gateway`, …";
    scheme Text |f| Some(f.scheme.to_string()), "`http` or `https`.";
    host Text |f| Some(f.authority.host.to_string()), "Host of the origin.";
    port Integer |f| Some(f.authority.port.into()), "Port of the origin.";
    url Text |f| Some(f.url()), "The whole URL; of a tunnel, host and port.";
    user Text |f| f.user.as_deref().map(str::to_owned), "The authenticated user.";
    listener Text |f| Some(f.client.listener.to_string()), "The listener that accepted the connection.";
    client_address Text |f| f.client.peer.map(|a| a.to_string()), "Address and port of the client.";
    client_process Text |f| f.client.process.as_ref().map(|p| p.name.clone()), "Name of the client's program, if it was looked up.";
    client_tls_version Text |f| f.client.tls.as_ref().and_then(|t| t.version.as_deref().map(str::to_owned)), "TLS version between client and Interflow.";
    client_sni Text |f| f.client.tls.as_ref().and_then(|t| t.sni.clone()), "Server name that the client asked for.";
    client_ja4 Text |f| f.client.tls.as_ref().and_then(|t| t.ja4.clone()), "JA4 fingerprint of the client.";
    upstream_address Text |f| f.upstream.as_ref()?.peer.map(|a| a.to_string()), "Address and port that Interflow connected to.";
    upstream_version Text |f| Some(f.upstream.as_ref()?.version.to_string()), "HTTP version to the origin.";
    upstream_reused Boolean |f| Some(f.upstream.as_ref()?.reused), "Whether the connection had carried an earlier request.";
    method Text |f| Some(f.request.as_ref()?.method.clone()), "Method of the request.";
    path Text |f| Some(f.request.as_ref()?.path.clone()), "Path and query of the request.";
    request_version Text |f| Some(f.request.as_ref()?.version.to_string()), "HTTP version from the client.";
    request_headers Json |f| headers(&f.request.as_ref()?.headers), "Fields of the request in order, as a JSON array of `[name, value]`.";
    request_size Integer |f| f.body(Direction::Request).map(|b| b.size), "Size of the request's body as transferred.";
    request_recorded Integer |f| f.body(Direction::Request).map(|b| b.kept), "How many bytes of it are recorded.";
    request_body Body Direction::Request, "The recorded bytes, with their content coding; only with `--bodies`.";
    status Integer |f| Some(f.response.as_ref()?.status.into()), "Status of the response.";
    response_version Text |f| Some(f.response.as_ref()?.version.to_string()), "HTTP version that the response was received in.";
    response_type Text |f| text_of(&f.response.as_ref()?.headers, "content-type"), "The response's `Content-Type`.";
    response_headers Json |f| headers(&f.response.as_ref()?.headers), "Fields of the response in order, as a JSON array of `[name, value]`.";
    response_size Integer |f| f.body(Direction::Response).map(|b| b.size), "Size of the response's body as transferred.";
    response_recorded Integer |f| f.body(Direction::Response).map(|b| b.kept), "How many bytes of it are recorded.";
    response_body Body Direction::Response, "The recorded bytes, with their content coding; only with `--bodies`.";
    first_byte_us Integer |f| f.timings.first_byte, "Microseconds from `started` to the head of the response.";
    duration_us Integer |f| f.duration(), "Microseconds from `started` to the end of the flow.";
    error_kind Text |f| f.error.as_ref().map(|e| e.kind.to_string()), "Kind of the error that ended the flow, such as `upstream_timeout`.";
    error_blame Text |f| f.error.as_ref().map(|e| e.blame.to_string()), "Who caused it: `client`, `upstream`, `config` or `internal`.";
    error_message Text |f| f.error.as_ref().map(|e| e.message.clone()), "Its message.";
    tunnel_sent Integer |f| f.tunnel.map(|t| t.sent), "Bytes that a tunnel carried to the origin.";
    tunnel_received Integer |f| f.tunnel.map(|t| t.received), "Bytes that a tunnel carried to the client.";
    messages Integer |f| Some(f.messages), "Number of recorded messages of a WebSocket, an event stream or a gRPC call.";
    tags List |f| &f.tags, "Tags of the flow.";
    comment Text |f| f.comment.clone(), "The operator's comment.";
    parent Text |f| f.parent.map(|id| id.to_string()), "ID of the flow that this one replays.";
    imported Boolean |f| Some(f.imported), "Whether the flow was imported from an archive.";
}

/// The name of an enumeration's value, as in JSONL.
fn name_of(value: &impl Serialize) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => Some(name),
        _ => None,
    }
}

/// As in JSONL: bytes that are not UTF-8 are `{"base64": "…"}`.
fn headers(headers: &Headers) -> Option<String> {
    let mut json = Vec::new();
    serde_repr::headers::serialize(headers, &mut serde_json::Serializer::new(&mut json)).ok()?;
    String::from_utf8(json).ok()
}

fn text_of(headers: &Headers, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_page_has_every_column() {
        let page = include_str!("../../../../docs/guides/archives.md");
        let rows: Vec<String> = COLUMNS
            .iter()
            .map(|Column { name, meaning, value }| {
                let kind = match value {
                    Value::Text(_) => "string",
                    Value::Json(_) => "string (JSON)",
                    Value::Integer(_) => "int64",
                    Value::Boolean(_) => "boolean",
                    Value::Instant(_) => "timestamp (microseconds, UTC)",
                    Value::List(_) => "list of strings",
                    Value::Body(_) => "binary",
                };
                format!("| `{name}` | {kind} | {meaning} |")
            })
            .collect();
        let section = page.rsplit("\n## Parquet columns\n").next().unwrap_or_default();
        let listed: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(listed, rows, "docs/guides/archives.md");
    }
}
