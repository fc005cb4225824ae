//! `interflow flows list`.

use std::io::{self, Write};

use interflow_flow::Timestamp;
use interflow_record::{EmbeddedStore, FlowRow, ListOptions, Order, Store as _};

use super::{Form, ListArgs, open};
use crate::Failure;

/// Prints the latest flows of a query, the latest last, where the eye is.
pub fn list(store: &EmbeddedStore, args: &ListArgs) -> Result<(), Failure> {
    let options =
        ListOptions { query: open::query(&args.query)?, order: Order::Newest, after: None, limit: args.limit };
    let mut flows = store.list(&options).map_err(|e| e.to_string())?;
    flows.reverse();
    let mut out = anstream::stdout().lock();
    for flow in &flows {
        // A reader that has seen enough (`head`) is no error.
        if line(&mut out, flow, args.format).is_err() {
            break;
        }
    }
    Ok(())
}

fn line(out: &mut impl Write, flow: &FlowRow, form: Form) -> io::Result<()> {
    match form {
        Form::Jsonl => {
            serde_json::to_writer(&mut *out, flow)?;
            out.write_all(b"\n")
        }
        Form::Table => {
            let s = flow.summary(Timestamp::now());
            let status = s.status.map_or_else(|| s.error.map_or("...".into(), |e| e.to_string()), |s| s.to_string());
            let method = s.method.as_deref().unwrap_or("TUNNEL");
            writeln!(
                out,
                "{}  {status:<4} {method:<7} {}  {} B  {} ms",
                s.id,
                flow.url(),
                s.response_size,
                s.duration / 1000
            )
        }
    }
}
