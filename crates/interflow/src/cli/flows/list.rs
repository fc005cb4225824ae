//! `interflow flows list`.

use std::io::{self, Write};
use std::ops::ControlFlow;

use interflow_query::Query;
use interflow_store::{FlowRecord, FlowStore, ListOptions, ListOrder};
use interflow_types::{FlowId, Timestamp};

use super::table::FlowTable;
use super::{FlowListArgs, open};
use crate::Result;
use crate::cli::output::{ListFormat, ignore_broken_pipe};

/// Flows per page.
const PAGE: usize = 500;
/// Above this number of flows, only one page at a time is held in memory.
const MAX_HELD: usize = 10 * PAGE;

/// Prints the newest flows of a query, newest last unless reversed.
pub fn list(store: &dyn FlowStore, args: &FlowListArgs) -> Result<()> {
    let query = open::query(&args.select.query)?;
    let count = print(store, args, query.clone());
    if matches!(count, Ok(0))
        && let Ok(hosts) = store.recent_hosts(&mut || ControlFlow::Continue(()))
        && let Some(better) = query.did_you_mean(&args.select.query.join(" "), &hosts)
        && let Ok(query) = Query::parse(&better)
        && store
            .list(&ListOptions { query, order: ListOrder::Newest, after: None, limit: 1 })
            .is_ok_and(|flows| !flows.is_empty())
    {
        interflow_host::errln!("interflow: no flow matches; did you mean '{better}'?");
    }
    open::warn_of_damage(store);
    count.map(drop)
}

/// Returns how many there are.
fn print(store: &dyn FlowStore, args: &FlowListArgs, query: Query) -> Result<u64> {
    let format = args.format.get();
    let newest = ListOptions { query, order: ListOrder::Newest, after: None, limit: args.limit };
    let all = || ListOptions { limit: usize::MAX, ..newest.clone() };
    let oldest = |options: ListOptions| ListOptions { order: ListOrder::Oldest, ..options };
    match (args.reverse, args.all) {
        (true, true) => return print_pages(store, &all(), format),
        (false, true) => return print_pages(store, &oldest(all()), format),
        (true, false) if args.limit > MAX_HELD => return print_pages(store, &newest, format),
        (false, false) if args.limit > MAX_HELD => {
            let after = before(store, &newest)?;
            return print_pages(store, &oldest(ListOptions { after, ..newest }), format);
        }
        _ => {}
    }
    let mut flows = store.list(&newest)?;
    if !args.reverse {
        flows.reverse();
    }
    let now = Timestamp::now();
    let table = FlowTable::for_flows(&flows.iter().map(|f| f.summary(now)).collect::<Vec<_>>());
    let mut out = io::BufWriter::new(interflow_host::terminal::stdout());
    let mut writer = FlowWriter { format, table, written: 0 };
    ignore_broken_pipe((|| {
        flows.iter().try_for_each(|flow| writer.flow(&mut out, flow))?;
        writer.finish(&mut out)
    })())?;
    Ok(writer.written)
}

/// The flow just before the newest `options.limit` flows; `None` if there are not more.
fn before(store: &dyn FlowStore, options: &ListOptions) -> Result<Option<FlowId>> {
    let mut after = None;
    let mut remaining = options.limit.saturating_add(1);
    loop {
        let page = ListOptions { after, limit: PAGE.min(remaining), ..options.clone() };
        let flows = store.list(&page)?;
        remaining -= flows.len();
        after = flows.last().map(|f| f.id);
        if remaining == 0 {
            return Ok(after);
        }
        if flows.len() < page.limit {
            return Ok(None);
        }
    }
}

/// Prints page by page, in constant memory.
fn print_pages(store: &dyn FlowStore, options: &ListOptions, format: ListFormat) -> Result<u64> {
    let mut out = io::BufWriter::new(interflow_host::terminal::stdout());
    let mut writer = FlowWriter { format, table: FlowTable::streaming(true), written: 0 };
    let (mut left, mut after) = (options.limit, options.after);
    loop {
        let page = ListOptions { after, limit: PAGE.min(left), ..options.clone() };
        let flows = store.list(&page)?;
        left -= flows.len();
        after = flows.last().map(|f| f.id);
        let end = left == 0 || flows.len() < page.limit;
        let printed = flows.iter().try_for_each(|flow| writer.flow(&mut out, flow));
        let printed = printed.and_then(|()| if end { writer.finish(&mut out) } else { out.flush() });
        if end || printed.is_err() {
            return ignore_broken_pipe(printed).map(|()| writer.written);
        }
    }
}

/// Writes flows in one format.
struct FlowWriter {
    format: ListFormat,
    table: FlowTable,
    written: u64,
}

impl FlowWriter {
    fn flow(&mut self, out: &mut impl Write, flow: &FlowRecord) -> io::Result<()> {
        let first = self.written == 0;
        self.written += 1;
        match self.format {
            ListFormat::Table => {
                if first {
                    self.table.heading(out)?;
                }
                self.table.line(out, &flow.summary(Timestamp::now()))
            }
            ListFormat::Json => {
                out.write_all(if first { b"[\n" } else { b",\n" })?;
                Ok(serde_json::to_writer(out, flow)?)
            }
            ListFormat::Jsonl => json_line(out, flow),
        }
    }

    fn finish(&self, out: &mut impl Write) -> io::Result<()> {
        if self.format == ListFormat::Json {
            out.write_all(if self.written == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        out.flush()
    }
}

pub fn json_line(out: &mut (impl Write + ?Sized), flow: &FlowRecord) -> io::Result<()> {
    serde_json::to_writer(&mut *out, flow)?;
    out.write_all(b"\n")
}
