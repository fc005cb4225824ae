//! `interflow flows list`.

use std::io::{self, Write};

use interflow_store::{FlowRow, FlowStore, ListOptions, ListOrder};
use interflow_types::{FlowId, Timestamp};

use super::table::FlowTable;
use super::{FlowListArgs, ListFormat, ignore_broken_pipe, open};
use crate::CliError;

/// Flows per page.
const PAGE: usize = 500;
/// Above this number of flows, only one page at a time is held in memory.
const MAX_HELD: usize = 10 * PAGE;

/// Prints the newest flows of a query, newest last.
pub fn list(store: &dyn FlowStore, args: &FlowListArgs) -> Result<(), CliError> {
    let listed = print(store, args);
    open::warn_of_damage(store);
    listed
}

fn print(store: &dyn FlowStore, args: &FlowListArgs) -> Result<(), CliError> {
    let query = open::query(&args.select.query)?;
    let newest = ListOptions { query, order: ListOrder::Newest, after: None, limit: args.limit };
    if args.all {
        return print_pages(store, &ListOptions { limit: usize::MAX, ..newest }, None, args.format);
    }
    if args.limit > MAX_HELD {
        return print_pages(store, &newest, before(store, &newest)?, args.format);
    }
    let mut flows = store.list(&newest)?;
    flows.reverse();
    let now = Timestamp::now();
    let table = FlowTable::for_flows(&flows.iter().map(|f| f.summary(now)).collect::<Vec<_>>());
    let mut out = anstream::stdout().lock();
    let mut print = || {
        if args.format == ListFormat::Table && !flows.is_empty() {
            table.heading(&mut out)?;
        }
        flows.iter().try_for_each(|flow| line(&mut out, flow, args.format, &table))
    };
    ignore_broken_pipe(print())
}

/// The flow just before the newest `options.limit` flows; `None` if there are not more.
fn before(store: &dyn FlowStore, options: &ListOptions) -> Result<Option<FlowId>, CliError> {
    let mut after = None;
    let mut left = options.limit.saturating_add(1);
    loop {
        let page = ListOptions { after, limit: PAGE.min(left), ..options.clone() };
        let flows = store.list(&page)?;
        left -= flows.len();
        after = flows.last().map(|f| f.id);
        if left == 0 {
            return Ok(after);
        }
        if flows.len() < page.limit {
            return Ok(None);
        }
    }
}

/// Prints page by page, oldest after `after` first, in constant memory.
fn print_pages(
    store: &dyn FlowStore,
    options: &ListOptions,
    mut after: Option<FlowId>,
    form: ListFormat,
) -> Result<(), CliError> {
    let table = FlowTable::streaming(true);
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let mut heading = form == ListFormat::Table;
    let mut left = options.limit;
    loop {
        let page = ListOptions { order: ListOrder::Oldest, after, limit: PAGE.min(left), ..options.clone() };
        let flows = store.list(&page)?;
        let printed = (|| {
            if std::mem::take(&mut heading) && !flows.is_empty() {
                table.heading(&mut out)?;
            }
            flows.iter().try_for_each(|flow| line(&mut out, flow, form, &table))?;
            out.flush()
        })();
        if printed.is_err() {
            return ignore_broken_pipe(printed);
        }
        left -= flows.len();
        after = flows.last().map(|f| f.id);
        if left == 0 || flows.len() < page.limit {
            return Ok(());
        }
    }
}

pub fn line(out: &mut (impl Write + ?Sized), flow: &FlowRow, form: ListFormat, table: &FlowTable) -> io::Result<()> {
    match form {
        ListFormat::Jsonl => {
            serde_json::to_writer(&mut *out, flow)?;
            out.write_all(b"\n")
        }
        ListFormat::Table => table.line(out, &flow.summary(Timestamp::now())),
    }
}
