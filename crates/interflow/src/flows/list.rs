//! `interflow flows list`.

use std::io::{self, Write};

use interflow_flow::{FlowId, Timestamp};
use interflow_record::{FlowRow, ListOptions, Order, Store};

use super::table::Table;
use super::{Form, ListArgs, open, written};
use crate::Failure;

/// Flows taken from the store at a time.
const PAGE: usize = 500;
/// Of more flows than these only a page at a time is held.
const MOST_HELD: usize = 10 * PAGE;

/// Prints the latest flows of a query, the latest last, where the eye is.
pub fn list(store: &dyn Store, args: &ListArgs) -> Result<(), Failure> {
    let listed = print(store, args);
    open::tell_damage(store);
    listed
}

fn print(store: &dyn Store, args: &ListArgs) -> Result<(), Failure> {
    let query = open::query(&args.select.query)?;
    let newest = ListOptions { query, order: Order::Newest, after: None, limit: args.limit };
    if args.all {
        return paged(store, &ListOptions { limit: usize::MAX, ..newest }, None, args.format);
    }
    if args.limit > MOST_HELD {
        return paged(store, &newest, before(store, &newest)?, args.format);
    }
    let mut flows = store.list(&newest)?;
    flows.reverse();
    let now = Timestamp::now();
    let table = Table::of(&flows.iter().map(|f| f.summary(now)).collect::<Vec<_>>());
    let mut out = anstream::stdout().lock();
    let mut print = || {
        if args.format == Form::Table && !flows.is_empty() {
            table.heading(&mut out)?;
        }
        flows.iter().try_for_each(|flow| line(&mut out, flow, args.format, &table))
    };
    written(print())
}

/// The flow just before the latest `options.limit`; nothing when there are no more than those.
fn before(store: &dyn Store, options: &ListOptions) -> Result<Option<FlowId>, Failure> {
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

/// Page by page, the oldest behind `after` first, so that a store of any size is listed in flat memory.
fn paged(store: &dyn Store, options: &ListOptions, mut after: Option<FlowId>, form: Form) -> Result<(), Failure> {
    let table = Table::open(true);
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let mut heading = form == Form::Table;
    let mut left = options.limit;
    loop {
        let page = ListOptions { order: Order::Oldest, after, limit: PAGE.min(left), ..options.clone() };
        let flows = store.list(&page)?;
        let printed = (|| {
            if std::mem::take(&mut heading) && !flows.is_empty() {
                table.heading(&mut out)?;
            }
            flows.iter().try_for_each(|flow| line(&mut out, flow, form, &table))?;
            out.flush()
        })();
        if printed.is_err() {
            return written(printed);
        }
        left -= flows.len();
        after = flows.last().map(|f| f.id);
        if left == 0 || flows.len() < page.limit {
            return Ok(());
        }
    }
}

/// Writes one flow.
pub fn line(out: &mut (impl Write + ?Sized), flow: &FlowRow, form: Form, table: &Table) -> io::Result<()> {
    match form {
        Form::Jsonl => {
            serde_json::to_writer(&mut *out, flow)?;
            out.write_all(b"\n")
        }
        Form::Table => table.line(out, &flow.summary(Timestamp::now())),
    }
}
