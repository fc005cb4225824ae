//! Where the indexer is in a recording: which flows come next, and how what is found in them is stored.
//!
//! A store that only this process writes to is read from the newest flow before which all calls are indexed
//! ([`LocalCursor`]); flows that are still running hold that flow back. A store that several processes record to is read in
//! the order in which flows became visible in it, by the one of them whose turn it is ([`SharedCursor`]).

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use interflow_query::Query;
use interflow_store::{
    FlowFilterFn, FlowKind, FlowRecord, FlowState, FlowStore, FlowSummary, ListOptions, ListOrder, RecordedFlow,
    Result, SharedIndex, StoreError, StoreEvent, Subscription,
};
use interflow_types::{FlowId, Timestamp};

use super::endpoints::EndpointOverrides;
use super::from_recording;

/// Flows read per query of a local store, which bounds the memory for rows.
const LOCAL_PAGE: usize = 500;
/// Flows read per page of a shared store.
const SHARED_PAGE: usize = 200;
/// How often a shared store is asked for new flows, which also keeps the right to index.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The right to index is renewed this often within a page.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);
/// Bound on flows that are re-checked after the clock was set back.
const MAX_CLOCK_SKEW_FLOWS: usize = 10_000;
/// How much earlier, in microseconds, a flow may have begun than one recorded before it: rows are written when flows
/// end, or after a delay. More than that means that the clock was set back.
const CLOCK_SKEW_MICROS: u64 = 2_000_000;

/// Flows that have ended, and WebSockets with new messages, in the order in which they are indexed.
pub(super) struct FlowPage {
    pub(super) flows: Vec<RecordedFlow>,
    /// What the indexer has in memory does not continue in this page; the sessions that have calls out of order.
    pub(super) restart: Option<Vec<String>>,
    /// Whether there are no more flows for now.
    pub(super) is_last: bool,
}

pub(super) trait FlowCursor {
    /// The next flows that may contain a call; `None` while another process indexes.
    fn next_page(&mut self, endpoints: &EndpointOverrides) -> Result<Option<FlowPage>>;

    /// Keeps the right to index during a long page.
    fn renew(&mut self) -> Result<()> {
        Ok(())
    }

    /// All flows of the page are indexed: what is to be stored of that, the newest flow and the position before which all
    /// are. It may be left for later where nothing was found.
    fn end_page(&mut self, has_findings: bool) -> Option<(Option<FlowId>, Option<u64>)>;

    /// What [`end_page`](Self::end_page) gave is stored.
    fn set_stored(&mut self);

    /// After an error: what is not stored is read again.
    fn rewind(&mut self);

    /// The position of the newest flow recorded so far, which a command waits for.
    fn newest(&mut self) -> Result<u64>;

    /// The position up to which everything is indexed.
    fn indexed(&mut self) -> Result<u64>;

    /// Waits until there may be new flows. Cancel-safe.
    fn wait(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    #[cfg(test)]
    fn announce(&mut self, _: &[FlowSummary]) {}
}

/// The cursor of a store that only this process writes to. It is told of flows as they begin and end; after a start, an
/// error, or a gap in the notifications, everything after the stored flow is read again.
pub(super) struct LocalCursor<'s> {
    store: &'s dyn FlowStore,
    events: Option<Subscription>,
    is_closed: bool,
    is_behind: bool,
    announced: Vec<FlowSummary>,
    /// Flows in progress that may contain a call.
    running: BTreeSet<FlowId>,
    /// Those of the current page that have ended.
    ended: Vec<FlowId>,
    newest: Option<FlowId>,
    /// `newest` when the cursor was last stored.
    stored: Option<FlowId>,
}

impl<'s> LocalCursor<'s> {
    /// With `is_live`, it is told of new flows; otherwise it ends with what is recorded now.
    pub(super) fn new(store: &'s dyn FlowStore, is_live: bool) -> Self {
        // Subscribed before anything is read, so that no flow is missed.
        let events = is_live.then(|| store.subscribe_to(flow_filter()));
        let (announced, running, ended) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { store, events, is_closed: false, is_behind: true, announced, running, ended, newest: None, stored: None }
    }

    /// Everything after the stored flow, in the order in which the flows ended.
    fn recorded_flows(&mut self, endpoints: &EndpointOverrides) -> Result<Vec<RecordedFlow>> {
        self.announced.clear();
        self.running.clear();
        let mut ended: Vec<CompletedFlow> = Vec::new();
        let mut after = self.store.cursor()?;
        // Flows that were recorded after the cursor but begin before it, because the clock was set back.
        let earlier = after.map(|cursor| self.store.rewind_cursor(cursor, MAX_CLOCK_SKEW_FLOWS)).transpose()?;
        for id in earlier.unwrap_or_default() {
            match self.store.get(id) {
                Ok(row) if !row.imported => ended.extend(self.add_recorded(&row, endpoints)?),
                Ok(_) | Err(StoreError::NotFound(_)) => {}
                Err(e) => return Err(e),
            }
        }
        loop {
            let page = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: LOCAL_PAGE };
            let rows = self.store.list(&page)?;
            for row in &rows {
                self.newest = self.newest.max(Some(row.id));
                ended.extend(self.add_recorded(row, endpoints)?);
            }
            after = rows.last().map(|r| r.id);
            if rows.len() < LOCAL_PAGE {
                return Ok(order_by_end(ended));
            }
        }
    }

    fn add_recorded(&mut self, row: &FlowRecord, endpoints: &EndpointOverrides) -> Result<Option<CompletedFlow>> {
        let Some(flow) = self.add(&row.summary(Timestamp::now()), endpoints) else { return Ok(None) };
        let position = if row.imported { None } else { self.store.recorded_position(row.id)? };
        Ok(Some(CompletedFlow { flow, started: row.started.micros(), position }))
    }

    /// Notes the state of a flow, and returns it if it may contain a call and has ended.
    fn add(&mut self, flow: &FlowSummary, endpoints: &EndpointOverrides) -> Option<RecordedFlow> {
        if !from_recording::may_hold(flow, endpoints) {
            // It may turn out to hold no call once its response is known.
            self.running.remove(&flow.id);
            return None;
        }
        if flow.state == FlowState::Open {
            // It will be indexed when it ends.
            self.running.insert(flow.id);
            return None;
        }
        // Until it is indexed, it holds the cursor back if it did.
        self.ended.push(flow.id);
        Some(RecordedFlow { id: flow.id, ended: flow.started.micros().saturating_add(flow.duration) })
    }

    /// What the notifications since the last page say.
    fn announced_flows(&mut self, endpoints: &EndpointOverrides) -> Vec<RecordedFlow> {
        let (mut sockets, mut ended) = (Vec::new(), Vec::new());
        for flow in std::mem::take(&mut self.announced) {
            self.newest = self.newest.max(Some(flow.id));
            let done = self.add(&flow, endpoints);
            if done.is_none() && flow.kind == FlowKind::WebSocket && self.running.contains(&flow.id) {
                sockets.push(RecordedFlow { id: flow.id, ended: flow.started.micros().saturating_add(flow.duration) });
            }
            ended.extend(done);
        }
        // Ends within one notification are ordered; across notifications they come in about this order.
        ended.sort_unstable_by_key(|flow| (flow.ended, flow.id));
        // What is stored of a flow tells what is known of it, but not within a page.
        ended.dedup_by_key(|flow| flow.id);
        sockets.retain(|socket| ended.iter().all(|flow| flow.id != socket.id));
        sockets.extend(ended);
        sockets
    }
}

impl FlowCursor for LocalCursor<'_> {
    fn next_page(&mut self, endpoints: &EndpointOverrides) -> Result<Option<FlowPage>> {
        if self.is_closed {
            return Err(StoreError::Closed);
        }
        self.ended.clear();
        let restart = self.is_behind.then(Vec::new);
        let flows = if self.is_behind { self.recorded_flows(endpoints)? } else { self.announced_flows(endpoints) };
        Ok(Some(FlowPage { flows, restart, is_last: true }))
    }

    fn end_page(&mut self, has_findings: bool) -> Option<(Option<FlowId>, Option<u64>)> {
        for id in &self.ended {
            self.running.remove(id);
        }
        // The flow alone is stored only now and then.
        let is_far = self.stored.is_none_or(|stored| self.newest.is_some_and(|newest| is_far_apart(stored, newest)));
        // One less than the oldest running flow, which is then read again after a restart.
        let oldest = self.running.first().map(|id| FlowId::from_u128(id.to_u128().saturating_sub(1)));
        (self.is_behind || is_far || has_findings).then(|| (oldest.into_iter().chain(self.newest).min(), None))
    }

    fn set_stored(&mut self) {
        self.stored = self.newest;
        self.is_behind = false;
    }

    fn rewind(&mut self) {
        self.is_behind = true;
    }

    fn newest(&mut self) -> Result<u64> {
        // Notifications come a little later than the flows: everything is read again.
        self.is_behind = true;
        Ok(1)
    }

    fn indexed(&mut self) -> Result<u64> {
        Ok(u64::from(!self.is_behind))
    }

    fn wait(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async {
            let Some(events) = &mut self.events else { return };
            match events.next().await {
                Some(StoreEvent::Flows(flows)) => self.announced.extend_from_slice(&flows),
                // Some notifications were lost.
                Some(StoreEvent::Lagged(_)) => self.is_behind = true,
                None => self.is_closed = true,
            }
        })
    }

    #[cfg(test)]
    fn announce(&mut self, flows: &[FlowSummary]) {
        self.announced.extend_from_slice(flows);
    }
}

/// Selects flows whose request has a body, and WebSockets; no other flow can contain a call, and these properties
/// never change. Also any flow once a minute, so that the cursor advances.
pub fn flow_filter() -> FlowFilterFn {
    let mut last = None;
    Box::new(move |row| {
        let may = row.kind == FlowKind::WebSocket || row.request.as_ref().is_some_and(|r| r.body.size > 0);
        let by = may || last.is_none_or(|l| is_far_apart(l, row.id));
        if by {
            last = last.max(Some(row.id));
        }
        by
    })
}

/// A flow that has ended.
struct CompletedFlow {
    flow: RecordedFlow,
    /// When it began, in microseconds since the Unix epoch.
    started: u64,
    /// Its position in recording order; `None` if it was imported.
    position: Option<u64>,
}

/// Flows in the order in which they ended. If the clock was set back between two flows recorded in sequence, the
/// later ones are ordered after the end of the earlier ones: a continuation must follow the response it continues.
fn order_by_end(mut flows: Vec<CompletedFlow>) -> Vec<RecordedFlow> {
    flows.sort_unstable_by_key(|f| f.position);
    let (mut latest, mut over, mut behind) = (0_u64, 0_u64, 0_u64);
    // `behind` is by how much later times are corrected, `over` the latest end so far, `latest` the latest start.
    for CompletedFlow { flow, started, .. } in flows.iter_mut().filter(|f| f.position.is_some()) {
        let began = started.saturating_add(behind);
        // Earlier than a flow recorded before it, by more than rows are delayed: the clock was set back here.
        if began.saturating_add(CLOCK_SKEW_MICROS) < latest {
            behind = behind.saturating_add(over.saturating_sub(began));
        }
        flow.ended = flow.ended.saturating_add(behind);
        latest = latest.max(started.saturating_add(behind));
        over = over.max(flow.ended);
    }
    flows.sort_unstable_by_key(|f| (f.flow.ended, f.position, f.flow.id));
    flows.into_iter().map(|f| f.flow).collect()
}

/// Whether `b` began more than a minute after `a`.
const fn is_far_apart(a: FlowId, b: FlowId) -> bool {
    b.unix_millis().saturating_sub(a.unix_millis()) > 60_000
}

/// The cursor of a store that several processes record to: a position that is stored with what was found up to it, so that
/// a process that takes over continues there. Gives up the right to index when it is dropped.
pub(super) struct SharedCursor<'s> {
    index: &'s dyn SharedIndex,
    /// What the indexer has in memory was read in this epoch of the index.
    epoch: Option<u64>,
    /// Whether it had the right to index.
    has_led: bool,
    renewed: Instant,
    /// The newest flow of the current page, and the position after it.
    newest: Option<FlowId>,
    through: u64,
    stored: Option<u64>,
}

impl<'s> SharedCursor<'s> {
    pub(super) fn new(index: &'s dyn SharedIndex) -> Self {
        Self { index, epoch: None, has_led: false, renewed: Instant::now(), newest: None, through: 0, stored: None }
    }
}

impl Drop for SharedCursor<'_> {
    fn drop(&mut self) {
        if self.has_led {
            // Another process need not wait until the right expires.
            let _ = self.index.resign();
        }
    }
}

impl FlowCursor for SharedCursor<'_> {
    fn next_page(&mut self, _: &EndpointOverrides) -> Result<Option<FlowPage>> {
        let epoch = self.index.lead()?;
        self.renewed = Instant::now();
        let is_other = epoch != self.epoch;
        self.epoch = epoch;
        if epoch.is_none() {
            return Ok(None);
        }
        self.has_led = true;
        let restart = is_other.then(|| self.index.late_sessions()).transpose()?;
        if is_other {
            self.stored = None;
        }
        let mut page = self.index.unindexed(SHARED_PAGE)?;
        page.flows.sort_unstable_by_key(|flow| (flow.ended, flow.id));
        self.through = page.through;
        self.newest = page.flows.iter().map(|flow| flow.id).max();
        Ok(Some(FlowPage { flows: page.flows, restart, is_last: page.is_last }))
    }

    fn renew(&mut self) -> Result<()> {
        if self.renewed.elapsed() < RENEWAL_INTERVAL {
            return Ok(());
        }
        let epoch = self.index.lead()?;
        self.renewed = Instant::now();
        if epoch.is_some() && epoch == self.epoch {
            return Ok(());
        }
        Err(StoreError::Stale("all: another process indexes now".into()))
    }

    fn end_page(&mut self, _: bool) -> Option<(Option<FlowId>, Option<u64>)> {
        // Without news, the position is as it was stored.
        (self.newest.is_some() || self.stored != Some(self.through)).then_some((self.newest, Some(self.through)))
    }

    fn set_stored(&mut self) {
        self.stored = Some(self.through);
    }

    fn rewind(&mut self) {
        (self.epoch, self.stored) = (None, None);
    }

    fn newest(&mut self) -> Result<u64> {
        self.index.flush_recorded()?;
        Ok(self.index.lag()?.newest)
    }

    fn indexed(&mut self) -> Result<u64> {
        Ok(self.index.lag()?.indexed)
    }

    fn wait(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(tokio::time::sleep(POLL_INTERVAL))
    }
}
