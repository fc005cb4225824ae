//! `interflow flows list`.

use std::io::{self, Write};

use interflow_store::{FlowRecord, FlowStore, ListOptions, ListOrder};
use interflow_types::{FlowId, Timestamp};

use super::table::FlowTable;
use super::{FlowListArgs, open};
use crate::CliError;
use crate::cli::output::{ListFormat, ignore_broken_pipe};

/// Flows per page.
const PAGE: usize = 500;
/// Above this number of flows, only one page at a time is held in memory.
const MAX_HELD: usize = 10 * PAGE;

/// Prints the newest flows of a query, newest last unless reversed.
pub fn list(store: &dyn FlowStore, args: &FlowListArgs) -> Result<(), CliError> {
    let listed = print(store, args);
    open::warn_of_damage(store);
    listed
}

fn print(store: &dyn FlowStore, args: &FlowListArgs) -> Result<(), CliError> {
    let (query, format) = (open::query(&args.select.query)?, args.format.get());
    let did_you_mean = query.did_you_mean(&args.select.query.join(" "));
    let newest = ListOptions { query, order: ListOrder::Newest, after: None, limit: args.limit };
    let all = || ListOptions { limit: usize::MAX, ..newest.clone() };
    let oldest = |options: ListOptions| ListOptions { order: ListOrder::Oldest, ..options };
    match (args.reverse, args.all) {
        (true, true) => return print_pages(store, &all(), format, did_you_mean),
        (false, true) => return print_pages(store, &oldest(all()), format, did_you_mean),
        (true, false) if args.limit > MAX_HELD => return print_pages(store, &newest, format, did_you_mean),
        (false, false) if args.limit > MAX_HELD => {
            let after = before(store, &newest)?;
            return print_pages(store, &oldest(ListOptions { after, ..newest }), format, did_you_mean);
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
    let mut writer = FlowWriter { format, table, did_you_mean, written: 0 };
    ignore_broken_pipe((|| {
        flows.iter().try_for_each(|flow| writer.flow(&mut out, flow))?;
        writer.finish(&mut out)
    })())
}

/// The flow just before the newest `options.limit` flows; `None` if there are not more.
fn before(store: &dyn FlowStore, options: &ListOptions) -> Result<Option<FlowId>, CliError> {
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
fn print_pages(
    store: &dyn FlowStore,
    options: &ListOptions,
    format: ListFormat,
    did_you_mean: Option<String>,
) -> Result<(), CliError> {
    let mut out = io::BufWriter::new(interflow_host::terminal::stdout());
    let mut writer = FlowWriter { format, table: FlowTable::streaming(true), did_you_mean, written: 0 };
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
            return ignore_broken_pipe(printed);
        }
    }
}

/// Writes flows in one format.
struct FlowWriter {
    format: ListFormat,
    table: FlowTable,
    /// The query to name if there is no flow.
    did_you_mean: Option<String>,
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
        out.flush()?;
        if let Some(query) = self.did_you_mean.as_deref().filter(|_| self.written == 0) {
            interflow_host::errln!("interflow: no flow matches; did you mean '{query}'?");
        }
        Ok(())
    }
}

pub fn json_line(out: &mut (impl Write + ?Sized), flow: &FlowRecord) -> io::Result<()> {
    serde_json::to_writer(&mut *out, flow)?;
    out.write_all(b"\n")
}
