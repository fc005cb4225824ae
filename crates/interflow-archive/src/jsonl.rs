//! One flow per line, with all its data: export and import are lossless.

use std::io::{self, BufRead, Read, Write};

use bytes::Bytes;
use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, Headers, Method};
use serde::{Deserialize, Serialize};

use super::{BodySource, FlowExporter, FlowSink, FlowWithBodies, ImportError, ImportReport, Result, read_flow};
use interflow_store::{FlowRecord, MessageRecord, RequestRecord, ResponseRecord, serde_repr};

/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 4 << 30;

#[derive(Serialize, Deserialize, JsonSchema)]
struct JsonlRecord<R> {
    /// The version of the format: 1. It also distinguishes these lines from other JSON.
    interflow: u32,
    /// Everything but bodies and messages.
    flow: R,
    /// The request's body as sent to the origin: with its content coding, without its transfer coding.
    #[serde(default, with = "serde_repr::raw", skip_serializing_if = "Bytes::is_empty")]
    #[schemars(with = "Option<interflow_store::serde_repr::BytesRepr<'static>>")]
    request_body: Bytes,
    /// The response's body as sent to the client.
    #[serde(default, with = "serde_repr::raw", skip_serializing_if = "Bytes::is_empty")]
    #[schemars(with = "Option<interflow_store::serde_repr::BytesRepr<'static>>")]
    response_body: Bytes,
    /// The request's body as received, if a rule or redaction edited it; only with `--originals`.
    #[serde(default, with = "serde_repr::raw", skip_serializing_if = "Bytes::is_empty")]
    #[schemars(with = "Option<interflow_store::serde_repr::BytesRepr<'static>>")]
    original_request_body: Bytes,
    /// The response's body as received, if it was edited; only with `--originals`.
    #[serde(default, with = "serde_repr::raw", skip_serializing_if = "Bytes::is_empty")]
    #[schemars(with = "Option<interflow_store::serde_repr::BytesRepr<'static>>")]
    original_response_body: Bytes,
    /// The messages of a WebSocket, an event stream or a gRPC call, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<MessageRecord>,
}

/// The JSON Schema of a line.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(JsonlRecord<FlowRecord>).to_value()
}

/// Writes flows as lines. Holds one flow at a time in memory, with its bodies.
pub struct JsonlWriter<W: Write> {
    pub out: W,
    /// Whether the received versions of edited requests and responses are written too.
    pub originals: bool,
}

impl<W: Write> FlowExporter for JsonlWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        // Unless requested, received versions that were not sent on are not exported.
        let sent = (row.original.is_some() && !self.originals).then(|| FlowRecord { original: None, ..row.clone() });
        let row = sent.as_ref().unwrap_or(row);
        let FlowWithBodies { request_body, response_body, original_bodies, messages, .. } = read_flow(row, contents)?;
        let [original_request_body, original_response_body] = original_bodies;
        let line = JsonlRecord {
            interflow: FlowRecord::VERSION,
            flow: row,
            request_body,
            response_body,
            original_request_body,
            original_response_body,
            messages,
        };
        serde_json::to_writer(&mut self.out, &line)?;
        self.out.write_all(b"\n")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Imports the flows of a file of lines.
///
/// # Errors
/// The first invalid line; flows before it remain.
pub fn import(mut file: impl BufRead, sink: FlowSink<'_>) -> Result<ImportReport> {
    let mut report = ImportReport::default();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        // A bound: a file without line ends would be loaded as a whole.
        match file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => {}
            Err(source) => return Err(ImportError::Io { source, report }),
        }
        let flow = match parse(&line) {
            Ok(flow) => flow,
            Err((column, problem)) => {
                let place = format!("line {number} column {column}");
                return Err(ImportError::Malformed { place, problem, report });
            }
        };
        if let Err(source) = sink(flow) {
            return Err(ImportError::Io { source, report });
        }
        report.flows += 1;
    }
    Ok(report)
}

fn parse(line: &[u8]) -> Result<FlowWithBodies, (usize, String)> {
    let line: JsonlRecord<FlowRecord> = serde_json::from_slice(line).map_err(|e| {
        let text = e.to_string();
        // The position is counted within the line, so serde's line number would mislead.
        let problem = text.split(" at line ").next().unwrap_or(&text);
        (e.column(), format!("no flow of Interflow: {problem}"))
    })?;
    if line.interflow != FlowRecord::VERSION {
        let problem =
            format!("written by a newer Interflow (version {} of the format): update this one", line.interflow);
        return Err((1, problem));
    }
    validate_row(&line.flow).map_err(|problem| (1, format!("no sound flow: {problem}")))?;
    // If nothing was edited, the body sent on is also the body received.
    let edited = |direction, body| line.flow.recorded_body(direction, true).map_or_else(Bytes::new, |_| body);
    let original_bodies = [
        edited(Direction::Request, line.original_request_body),
        edited(Direction::Response, line.original_response_body),
    ];
    Ok(FlowWithBodies {
        request_body: line.request_body,
        response_body: line.response_body,
        original_bodies,
        messages: line.messages,
        ..FlowWithBodies::new(line.flow)
    })
}

/// Checks invariants that the row's types do not enforce, before a flow is displayed, replayed or exported: a file may
/// have been written by anyone.
pub(super) fn validate_row(row: &FlowRecord) -> Result<(), String> {
    heads("flow", row.request.as_ref(), row.response.as_ref())?;
    if let Some(original) = &row.original {
        let (request, response) = (original.request.as_ref(), original.response.as_ref());
        if request.is_some_and(|r| r.url.bytes().any(|b| b <= b' ' || b == 0x7f)) {
            return Err("flow.original.request.url has a space or control character".to_owned());
        }
        heads("flow.original", request.map(|r| &r.head), response.map(|r| &r.head))?;
    }
    row.interim.iter().try_for_each(|i| validate_headers("flow.interim", [&i.headers]))
}

fn heads(at: &str, request: Option<&RequestRecord>, response: Option<&ResponseRecord>) -> Result<(), String> {
    if let Some(request) = request {
        if Method::from_bytes(request.method.as_bytes()).is_err() {
            return Err(format!("{at}.request.method is not a method"));
        }
        let path = request.path.as_bytes();
        if (path.first() != Some(&b'/') && path != b"*") || path.iter().any(|b| *b <= b' ' || *b == 0x7f) {
            return Err(format!("{at}.request.path begins with no slash, or has a space or control character"));
        }
        validate_headers(&format!("{at}.request"), [&request.headers, &request.trailers])?;
    }
    if let Some(response) = response {
        if !(100..1000).contains(&response.status) {
            return Err(format!("{at}.response.status: {} is not a status code", response.status));
        }
        if response.reason.iter().any(u8::is_ascii_control) {
            return Err(format!("{at}.response.reason has a control character"));
        }
        validate_headers(&format!("{at}.response"), [&response.headers, &response.trailers])?;
    }
    Ok(())
}

fn validate_headers<const N: usize>(at: &str, lists: [&Headers; N]) -> Result<(), String> {
    let mut checked = Headers::new();
    // Parsing a row does not check names and values; appending them does.
    for (name, value) in lists.into_iter().flatten() {
        let name = String::from_utf8_lossy(name);
        checked.append(&name, value).map_err(|e| format!("{at}.headers: {:?}: {e}", name))?;
    }
    Ok(())
}
