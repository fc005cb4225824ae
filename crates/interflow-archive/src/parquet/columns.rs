//! The columns of a Parquet file of flows: one schema, documented in `docs/guides/archives.md`.

use std::borrow::Cow;

use interflow_store::FlowRecord;
use interflow_types::{Direction, Headers};

use super::table::ColumnKind;

/// The version of the schema: it rises when a column's meaning or type changes, and not when a column is added.
pub const SCHEMA_VERSION: &str = "1";

/// How a column's value is made of a flow. A value that is missing is null.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Text(fn(&FlowRecord) -> Option<Cow<'_, str>>),
    /// Header fields, as a JSON document.
    Json(fn(&FlowRecord) -> Option<&Headers>),
    Integer(fn(&FlowRecord) -> Option<u64>),
    Boolean(fn(&FlowRecord) -> Option<bool>),
    /// Microseconds since 1970, UTC.
    Instant(fn(&FlowRecord) -> Option<u64>),
    List(fn(&FlowRecord) -> &[String]),
    /// The recorded bytes of a body, if bodies are exported.
    Body(Direction),
}

impl Value {
    pub const fn kind(self) -> ColumnKind {
        match self {
            Self::Text(_) => ColumnKind::Text,
            Self::Json(_) => ColumnKind::Json,
            Self::Integer(_) => ColumnKind::Integer,
            Self::Boolean(_) => ColumnKind::Boolean,
            Self::Instant(_) => ColumnKind::Instant,
            Self::List(_) => ColumnKind::List,
            Self::Body(_) => ColumnKind::Bytes,
        }
    }
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
    id Text |f| Some(f.id.to_string().into()), "ID of the flow; IDs sort by time.";
    started Instant |f| Some(f.started.micros()), "When the flow began.";
    state Text |f| Some(f.state.as_str().into()), "`open`, `complete`, `failed` or `cut`.";
    kind Text |f| Some(f.kind.as_str().into()), "`http`, `websocket` or `tunnel`.";
    transport Text |f| Some(f.transport.as_str().into()), "How the client addressed the proxy: `connect`, `gateway`, …";
    scheme Text |f| Some(f.scheme.as_str().into()), "`http` or `https`.";
    host Text |f| Some(f.authority.host.to_string().into()), "Host of the origin.";
    port Integer |f| Some(f.authority.port.into()), "Port of the origin.";
    url Text |f| Some(f.url().into()), "The whole URL; of a tunnel, host and port.";
    user Text |f| f.user.as_deref().map(Cow::Borrowed), "The authenticated user.";
    listener Text |f| Some((*f.client.listener).into()), "The listener that accepted the connection.";
    client_address Text |f| f.client.peer.map(|a| a.to_string().into()), "Address and port of the client.";
    client_process Text |f| Some(f.client.process.as_ref()?.name.as_str().into()), "Name of the client's program, if it was looked up.";
    client_tls_version Text |f| Some(f.client.tls.as_ref()?.version.as_deref()?.into()), "TLS version between client and Interflow.";
    client_sni Text |f| Some(f.client.tls.as_ref()?.sni.as_deref()?.into()), "Server name that the client asked for.";
    client_ja4 Text |f| Some(f.client.tls.as_ref()?.ja4.as_deref()?.into()), "JA4 fingerprint of the client.";
    upstream_address Text |f| f.upstream.as_ref()?.peer.map(|a| a.to_string().into()), "Address and port that Interflow connected to.";
    upstream_version Text |f| Some((*f.upstream.as_ref()?.version).into()), "HTTP version to the origin.";
    upstream_reused Boolean |f| Some(f.upstream.as_ref()?.reused), "Whether the connection had carried an earlier request.";
    method Text |f| Some(f.request.as_ref()?.method.as_str().into()), "Method of the request.";
    path Text |f| Some(f.request.as_ref()?.path.as_str().into()), "Path and query of the request.";
    request_version Text |f| Some((*f.request.as_ref()?.version).into()), "HTTP version from the client.";
    request_headers Json |f| Some(&f.request.as_ref()?.headers), "Fields of the request in order, as a JSON array of `[name, value]`.";
    request_size Integer |f| f.body(Direction::Request).map(|b| b.size), "Size of the request's body as transferred.";
    request_recorded Integer |f| f.body(Direction::Request).map(|b| b.kept), "How many bytes of it are recorded.";
    request_body Body Direction::Request, "The recorded bytes, with their content coding; only with `--bodies`.";
    status Integer |f| Some(f.response.as_ref()?.status.into()), "Status of the response.";
    response_version Text |f| Some((*f.response.as_ref()?.version).into()), "HTTP version that the response was received in.";
    response_type Text |f| f.response.as_ref()?.headers.get("content-type").map(String::from_utf8_lossy), "The response's `Content-Type`.";
    response_headers Json |f| Some(&f.response.as_ref()?.headers), "Fields of the response in order, as a JSON array of `[name, value]`.";
    response_size Integer |f| f.body(Direction::Response).map(|b| b.size), "Size of the response's body as transferred.";
    response_recorded Integer |f| f.body(Direction::Response).map(|b| b.kept), "How many bytes of it are recorded.";
    response_body Body Direction::Response, "The recorded bytes, with their content coding; only with `--bodies`.";
    first_byte_us Integer |f| f.timings.first_byte, "Microseconds from `started` to the head of the response.";
    duration_us Integer |f| f.duration(), "Microseconds from `started` to the end of the flow.";
    error_kind Text |f| Some((*f.error.as_ref()?.kind).into()), "Kind of the error that ended the flow, such as `upstream_timeout`.";
    error_blame Text |f| Some((*f.error.as_ref()?.blame).into()), "Who caused it: `client`, `upstream`, `config` or `internal`.";
    error_message Text |f| Some(f.error.as_ref()?.message.as_str().into()), "Its message.";
    tunnel_sent Integer |f| f.tunnel.map(|t| t.sent), "Bytes that a tunnel carried to the origin.";
    tunnel_received Integer |f| f.tunnel.map(|t| t.received), "Bytes that a tunnel carried to the client.";
    messages Integer |f| Some(f.messages), "Number of recorded messages of a WebSocket, an event stream or a gRPC call.";
    tags List |f| &f.tags, "Tags of the flow.";
    comment Text |f| f.comment.as_deref().map(Cow::Borrowed), "The operator's comment.";
    parent Text |f| f.parent.map(|id| id.to_string().into()), "ID of the flow that this one replays.";
    imported Boolean |f| Some(f.imported), "Whether the flow was imported from an archive.";
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
                let kind = match value.kind() {
                    ColumnKind::Text => "string",
                    ColumnKind::Json => "string (JSON)",
                    ColumnKind::Integer => "int64",
                    ColumnKind::Number => "double",
                    ColumnKind::Boolean => "boolean",
                    ColumnKind::Instant => "timestamp (microseconds, UTC)",
                    ColumnKind::List => "list of strings",
                    ColumnKind::Bytes => "binary",
                };
                format!("| `{name}` | {kind} | {meaning} |")
            })
            .collect();
        let section = page.rsplit("\n## Parquet columns\n").next().unwrap_or_default();
        let listed: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(listed, rows, "docs/guides/archives.md");
    }
}
