//! The intact bytes of a store's flows: a damaged body ends at the damage, so that it does not abort a whole export.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;

use bytes::{Buf as _, Bytes};
use interflow_query::Query;
use interflow_types::{Direction, FlowId};

use super::{BodySource, MessageIter, PAGE, StoreBodySource};
use interflow_store::{
    BODIES, BodyReader, BodyRecord, FlowParts, FlowRecord, FlowStore, ListOptions, ListOrder, LoadedFlow,
    MessageRecord, MissingReason, Result, StoreError,
};

/// Flows of a page.
const FLOWS: usize = 256;

/// Calls `each` with the flows of a query, the oldest first, until it fails. Returns what it returned last, and how many flows
/// were damaged. Pages are read on a second thread, at most two ahead; it ends when `each` has failed. What is not wanted is
/// not read, nor is it known then whether it is damaged.
///
/// # Errors
/// A database or disk error, or `watch` broke it off.
pub fn for_each_readable(
    store: &dyn FlowStore,
    query: Query,
    parts: FlowParts,
    watch: &(dyn Fn() -> ControlFlow<()> + Sync),
    each: &mut dyn FnMut(&FlowRecord, &dyn BodySource) -> io::Result<()>,
) -> Result<(u64, io::Result<()>)> {
    let (readable, failed) = (ReadableBodySource::new(store), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, pages) = sync_channel(1);
        scope.spawn(move || {
            // Pages are separate reads: flows recorded meanwhile appear at the end, because the oldest come first.
            let mut options = ListOptions { query, order: ListOrder::Oldest, after: None, limit: FLOWS };
            loop {
                // A page may take as long as a search.
                let mut watch = || if failed.load(Relaxed) { ControlFlow::Break(()) } else { watch() };
                let page = store.list_loaded(&options, parts, &mut watch);
                let last = page.as_ref().ok().filter(|page| page.len() == FLOWS).and_then(|page| page.last());
                options.after = last.map(|flow| flow.row.id);
                if sender.send(page).is_err() || options.after.is_none() {
                    return;
                }
            }
        });
        for page in pages {
            for flow in page? {
                if let Err(e) = each(&readable.row(flow)?, &readable) {
                    failed.store(true, Relaxed);
                    return Ok((readable.truncated_flows(), Err(e)));
                }
            }
        }
        Ok((readable.truncated_flows(), Ok(())))
    })
}

/// Reads intact data, and counts damaged flows. Damage is found by reading, so a body that is not held in memory is read
/// twice: for its row, and for its bytes.
pub struct ReadableBodySource<'s> {
    store: StoreBodySource<'s>,
    cut: Cell<u64>,
    /// The flow whose row was asked for last, with what was loaded of it.
    held: RefCell<Option<HeldContents>>,
}

type HeldContents = (FlowId, [Option<Bytes>; BODIES.len()], Option<Vec<MessageRecord>>);

impl<'s> ReadableBodySource<'s> {
    pub fn new(store: &'s dyn FlowStore) -> Self {
        Self { store: StoreBodySource(store), cut: Cell::new(0), held: RefCell::default() }
    }

    /// Number of flows with damage so far.
    pub const fn truncated_flows(&self) -> u64 {
        self.cut.get()
    }

    /// The row, adjusted to the readable part of what is wanted, with damage marked. What was not loaded is read to find out. Its
    /// bytes are held until the next call.
    ///
    /// # Errors
    /// A database or disk error; damage is not an error.
    pub fn row(&self, flow: LoadedFlow) -> Result<FlowRecord> {
        let LoadedFlow { mut row, parts, bodies, messages, .. } = flow;
        let mut is_cut = false;
        for ((direction, received), loaded) in BODIES.into_iter().zip(&bodies).take(parts.bodies()) {
            let Some(body) = row.recorded_body(direction, received).copied().filter(|b| b.kept > 0) else { continue };
            let readable = match loaded {
                Some(bytes) => bytes.len() as u64,
                None if received => readable_bytes(self.store.0.original_body(row.id, direction, 0..body.kept))?,
                None => readable_bytes(self.store.0.body(row.id, direction, 0..body.kept))?,
            };
            // The row must agree with the bytes that follow, because formats write the length before the body.
            if readable < body.kept {
                is_cut = true;
                let cut = BodyRecord::partial(body.size, readable, Some(MissingReason::Lost));
                row.recorded_body_mut(direction, received).into_iter().for_each(|body| *body = cut);
            }
        }
        if parts == FlowParts::All && messages.is_none() {
            let readable = self.readable_messages(&row)?;
            is_cut |= readable < row.messages;
            row.messages = readable;
        }
        self.cut.set(self.cut.get() + u64::from(is_cut));
        self.held.replace(Some((row.id, bodies, messages)));
        Ok(row)
    }

    fn readable_messages(&self, row: &FlowRecord) -> Result<u64> {
        let mut first = 0;
        while first < row.messages {
            // Whole pages only: a page with damage is left out completely.
            match self.store.0.messages(row.id, first..first + PAGE) {
                Ok(_) => first += PAGE,
                Err(e) if e.is_lost_data() => return Ok(first),
                // They are at the replica where the flow runs, and not damaged.
                Err(StoreError::Elsewhere { .. }) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(row.messages)
    }

    /// What was loaded of this flow.
    fn held<T>(&self, flow: FlowId, of: impl FnOnce(&HeldContents) -> Option<T>) -> Option<T> {
        self.held.borrow().as_ref().filter(|held| held.0 == flow).and_then(of)
    }

    fn held_body<'a>(&self, flow: &FlowRecord, direction: Direction, received: bool) -> Option<Box<dyn Read + 'a>> {
        // An exporter may have taken away what was received.
        flow.recorded_body(direction, received)?;
        let side = BODIES.iter().position(|body| *body == (direction, received))?;
        let bytes = self.held(flow.id, |held| held.1[side].clone())?;
        Some(Box::new(bytes.reader()))
    }
}

fn readable_bytes(opened: Result<BodyReader>) -> Result<u64> {
    let mut reader = match opened {
        Err(e) if e.is_lost_data() => return Ok(0),
        opened => opened?,
    };
    let mut readable = 0;
    loop {
        // The bytes before the damage remain readable.
        match reader.next_piece() {
            Ok(Some(piece)) => readable += piece.len() as u64,
            Ok(None) => return Ok(readable),
            Err(e) if e.is_lost_data() => return Ok(readable),
            Err(e) => return Err(e),
        }
    }
}

impl BodySource for ReadableBodySource<'_> {
    fn body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        self.held_body(flow, direction, false).map_or_else(|| self.store.body(flow, direction), Ok)
    }

    fn original_body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        self.held_body(flow, direction, true).map_or_else(|| self.store.original_body(flow, direction), Ok)
    }

    fn messages<'a>(&'a self, flow: &'a FlowRecord) -> io::Result<MessageIter<'a>> {
        let held = self.held(flow.id, |held| held.2.clone());
        held.map_or_else(|| self.store.messages(flow), |all| Ok(Box::new(all.into_iter().map(Ok))))
    }
}
