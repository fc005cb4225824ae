//! Recordings for the rule action `replay`: archives in every importable format, and flows from the store.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use interflow_archive::replay::unmasked;
use interflow_archive::{self, BodySource, content_coding, for_each_readable, fxzy};
use interflow_query::Query;
use interflow_rules::{RecordedExchange, RecordingSource};
use interflow_store::{FlowParts, FlowRecord, FlowWithBodies};
use interflow_types::{Direction, Method, ResponseHead, StatusCode, Url};

use crate::components::record_store::RecordStore;

/// Maximum number of flows that one rule replays from.
const MAX_FLOWS: usize = 100_000;
/// Maximum total size of the bodies of one rule, in bytes.
const MAX_BYTES: usize = 1 << 30;

pub enum RecordingArchives {
    Running(Option<Arc<RecordStore>>),
    /// For rules that are only checked: no flows are read.
    Looking,
}

impl RecordingSource for RecordingArchives {
    fn archive(&self, file: &Path) -> Result<Vec<RecordedExchange>, String> {
        let mut all = ExchangeCollector::default();
        // Recordings of some programs are folders.
        let opened = if file.is_dir() { fxzy::pack_to_temp_file(file) } else { File::open(file) };
        let opened = opened.map_err(|e| format!("it cannot be read: {e}"))?;
        let imported = interflow_archive::import(None, opened, &mut |flow: FlowWithBodies| all.take(&flow.row, &flow));
        imported.map_err(|e| e.to_string())?;
        Ok(all.flows)
    }

    fn flows(&self, query: &str) -> Result<Vec<RecordedExchange>, String> {
        let store = match self {
            Self::Running(store) => store.as_deref().ok_or("recording is disabled: set record.enabled")?,
            Self::Looking => return Ok(Vec::new()),
        };
        let query = Query::parse_strict(query).map_err(|e| e.render(query))?;
        let mut all = ExchangeCollector::default();
        let taken = for_each_readable(
            &**store,
            query,
            FlowParts::Bodies,
            &|| ControlFlow::Continue(()),
            &mut |row, contents| {
                // Skip responses that a rule produced; they did not come from the origin.
                if row.tags.iter().any(|t| t == "replayed") { Ok(()) } else { all.take(row, contents) }
            },
        );
        taken.map_err(|e| e.to_string())?.1.map_err(|e| e.to_string())?;
        Ok(all.flows)
    }
}

#[derive(Default)]
struct ExchangeCollector {
    flows: Vec<RecordedExchange>,
    bytes: usize,
}

impl ExchangeCollector {
    /// Adds a flow. Flows without a response or with a truncated body are skipped.
    fn take(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        let Some(flow) = recorded_exchange(row, contents)? else { return Ok(()) };
        self.bytes += flow.sent.len() + flow.body.len();
        if self.flows.len() >= MAX_FLOWS || self.bytes > MAX_BYTES {
            let what = format!("more than {MAX_FLOWS} flows or {MAX_BYTES} bytes of bodies: select fewer");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        self.flows.push(flow);
        Ok(())
    }
}

fn recorded_exchange(row: &FlowRecord, contents: &dyn BodySource) -> io::Result<Option<RecordedExchange>> {
    let (Some(request), Some(response)) = (&row.request, &row.response) else { return Ok(None) };
    // An interim response is not an answer that could be replayed.
    let status = StatusCode::from_u16(response.status).ok().filter(|s| s.as_u16() >= 200);
    let (Some(status), Ok(method)) = (status, Method::from_bytes(request.method.as_bytes())) else { return Ok(None) };
    // A shortened body would be another response.
    if request.body.missing.is_some() || response.body.missing.is_some() {
        return Ok(None);
    }
    let body = |direction, headers| -> io::Result<Bytes> {
        let mut bytes = Vec::new();
        // Decoded, because the replaying client may not accept the recorded coding.
        content_coding::decoder(headers, contents.body(row, direction)?)?.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    };
    let mut head = ResponseHead::new(status);
    // A mask is not the value that the origin sent.
    head.headers = unmasked(&response.headers);
    let answered = row.timings.first_byte.or(row.timings.done).unwrap_or(0);
    Ok(Some(RecordedExchange {
        method,
        url: Url { scheme: row.scheme, authority: row.authority.clone(), path: request.path.as_str().into() },
        headers: unmasked(&request.headers),
        sent: body(Direction::Request, &request.headers)?,
        head,
        body: body(Direction::Response, &response.headers)?,
        at: i64::try_from((row.started.micros() + answered) / 1_000_000).ok(),
    }))
}
