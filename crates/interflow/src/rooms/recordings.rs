//! Recordings for the rules' `replay`: archives of every format that can be imported, and flows of the store.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use interflow_flow::{Direction, Method, ResponseHead, StatusCode, Url};
use interflow_query::Query;
use interflow_record::formats::replay::unmasked;
use interflow_record::formats::{self, Contents, Stored, WholeFlow, coding, fxzy};
use interflow_record::{EmbeddedStore, FlowRow, ListOptions, Order, Store};
use interflow_rules::{Recorded, Recordings};

/// The most flows that one rule answers from.
const MOST: usize = 100_000;
/// The most bytes of bodies that one rule keeps.
const LARGEST: usize = 1 << 30;
/// Flows asked for at once.
const PAGE: usize = 500;

/// Reads archives, and the store where there is one.
pub enum Archives {
    /// For an instance that runs, with its recording if it has one.
    Running(Option<Arc<EmbeddedStore>>),
    /// For rules that are only looked at: no flows are read.
    Looking,
}

impl Recordings for Archives {
    fn archive(&self, file: &Path) -> Result<Vec<Recorded>, String> {
        let mut all = Gathered::default();
        let opened = if file.is_dir() { fxzy::packed(file) } else { File::open(file) };
        let opened = opened.map_err(|e| format!("it cannot be read: {e}"))?;
        let taken = formats::import(None, opened, &mut |flow: WholeFlow| all.take(&flow.row, &flow));
        taken.map_err(|e| e.to_string())?;
        Ok(all.flows)
    }

    fn flows(&self, query: &str) -> Result<Vec<Recorded>, String> {
        let store = match self {
            Self::Running(store) => store.as_deref().ok_or("nothing is recorded here: set record.enabled")?,
            Self::Looking => return Ok(Vec::new()),
        };
        let query = Query::parse(query).map_err(|e| e.show(query))?;
        let mut all = Gathered::default();
        let mut options = ListOptions { query, order: Order::Oldest, after: None, limit: PAGE };
        loop {
            let page = store.list(&options).map_err(|e| e.to_string())?;
            for row in &page {
                // What a rule answered is no answer of the origin's.
                if !row.tags.iter().any(|t| t == "replayed") {
                    all.take(row, &Stored(store)).map_err(|e| e.to_string())?;
                }
            }
            options.after = page.last().map(|r| r.id);
            if page.len() < PAGE {
                return Ok(all.flows);
            }
        }
    }
}

/// Exchanges as they are read.
#[derive(Default)]
struct Gathered {
    flows: Vec<Recorded>,
    bytes: usize,
}

impl Gathered {
    /// Takes a flow; one without an answer, or whose body was not kept whole, is passed over.
    fn take(&mut self, row: &FlowRow, contents: &dyn Contents) -> io::Result<()> {
        let Some(flow) = recorded(row, contents)? else { return Ok(()) };
        self.bytes += flow.sent.len() + flow.body.len();
        if self.flows.len() >= MOST || self.bytes > LARGEST {
            let what = format!("more than {MOST} flows or {LARGEST} bytes of bodies: ask for fewer");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        self.flows.push(flow);
        Ok(())
    }
}

fn recorded(row: &FlowRow, contents: &dyn Contents) -> io::Result<Option<Recorded>> {
    let (Some(request), Some(response)) = (&row.request, &row.response) else { return Ok(None) };
    let status = StatusCode::from_u16(response.status).ok().filter(|s| s.as_u16() >= 200);
    let (Some(status), Ok(method)) = (status, Method::from_bytes(request.method.as_bytes())) else { return Ok(None) };
    if request.body.missing.is_some() || response.body.missing.is_some() {
        return Ok(None);
    }
    let body = |direction, headers| -> io::Result<Bytes> {
        let mut bytes = Vec::new();
        coding::decoder(headers, contents.body(row, direction)?)?.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    };
    let mut head = ResponseHead::new(status);
    head.headers = unmasked(&response.headers);
    let answered = row.timings.first_byte.or(row.timings.done).unwrap_or(0);
    Ok(Some(Recorded {
        method,
        url: Url { scheme: row.scheme, authority: row.authority.clone(), path: request.path.as_str().into() },
        headers: unmasked(&request.headers),
        sent: body(Direction::Request, &request.headers)?,
        head,
        body: body(Direction::Response, &response.headers)?,
        at: i64::try_from((row.started.micros() + answered) / 1_000_000).ok(),
    }))
}
