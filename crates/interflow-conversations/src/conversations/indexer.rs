//! Builds conversations as flows end: one thread parses each LLM call once, and stores the assembler's results.
//!
//! The order of calls matters, because a call continues what earlier ones said; it is the order in which they *ended*,
//! since a client sends the next request after it has the reply. Notifications come in about this order, and a catch-up
//! restores it from the recording.
//!
//! The cursor, stored together with the results, is the newest flow before which all calls are indexed. Flows that are
//! still running hold it back. After a crash, or a gap in the notifications, everything after the cursor is read again;
//! calls that are already stored are recognised and skipped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::assembly::{ConversationAssembler, ParsedCall};
use arc_swap::ArcSwap;
use interflow_query::Query;
use interflow_store::{
    ConversationUpdate, FlowFilterFn, FlowKind, FlowRecord, FlowState, FlowStore, FlowSummary, ListOptions, ListOrder,
    StoreError, StoreEvent,
};
use interflow_types::{FlowId, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::endpoints::EndpointOverrides;
use super::from_recording::{self, WebSocketCallReader};
use super::mapping::{self, CallPricing};
use super::shared_indexer::{self, SharedIndexer};

/// Flows read per query while catching up, which bounds the memory for rows.
const PAGE_SIZE: usize = 500;
/// Calls stored per transaction: each one waits for the disk.
const BATCH_SIZE: usize = 64;
/// Bound on flows that are re-checked after the clock was set back.
const MAX_CLOCK_SKEW_FLOWS: usize = 10_000;
/// How much earlier, in microseconds, a flow may have begun than one recorded before it: rows are written when flows
/// end, or after a delay. More than that means that the clock was set back.
const CLOCK_SKEW_MICROS: u64 = 2_000_000;
/// Delay before retrying after the store failed, while the cursor stays where it is.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(5);

pub enum IndexerCommand {
    Rebuild(oneshot::Sender<Result<u64, StoreError>>),
    /// Use other endpoint overrides for new flows.
    SetEndpoints(EndpointOverrides, oneshot::Sender<Result<u64, StoreError>>),
    /// Index everything recorded so far, and reply then.
    Flush(oneshot::Sender<Result<u64, StoreError>>),
}

/// A handle to the indexer thread, which ends when the last clone is dropped.
#[derive(Clone)]
pub struct IndexerHandle {
    commands: mpsc::Sender<IndexerCommand>,
    endpoints: Arc<ArcSwap<EndpointOverrides>>,
}

impl IndexerHandle {
    /// Starts the thread over a store that this process writes to.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(store: Arc<dyn FlowStore>, pricing: Arc<CallPricing>) -> std::io::Result<Self> {
        let (commands, mut asked) = mpsc::channel::<IndexerCommand>(4);
        // The thread reports errors when it loads them.
        let endpoints = Arc::new(ArcSwap::from_pointee(EndpointOverrides::load(&*store).unwrap_or_default()));
        // A runtime of its own: the indexer blocks on the store, which would hold up other tasks.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let current_endpoints = Arc::clone(&endpoints);
        std::thread::Builder::new().name("conversations".into()).spawn(move || {
            if let Some(index) = store.shared_index() {
                return shared_indexer::run(&*store, index, pricing, &mut asked, &current_endpoints, &runtime);
            }
            runtime.block_on(async move {
                // Subscribed before catching up, so that no flow is missed.
                let mut events = store.subscribe_to(flow_filter());
                let mut indexer = ConversationIndexer::new(&*store, pricing);
                // A start is like a gap: everything after the cursor is read first.
                let mut behind = true;
                loop {
                    if behind {
                        match indexer.catch_up(&mut |_| {}) {
                            Ok(_) => behind = false,
                            Err(StoreError::Closed | StoreError::ReadOnly) => return,
                            Err(e) => {
                                // Any other error may pass: a full disk, a locked file.
                                tracing::warn!("conversations wait: {e}");
                                // Whoever asks meanwhile gets an answer, if only the error.
                                match tokio::time::timeout(RETRY_DELAY, asked.recv()).await {
                                    Ok(Some(command)) => indexer.run_command(command),
                                    Ok(None) => return,
                                    Err(_) => {}
                                }
                                continue;
                            }
                        }
                    }
                    tokio::select! {
                        event = events.next() => match event {
                            // An error may leave half of the batch indexed; catching up starts from the cursor again.
                            Some(StoreEvent::Flows(flows)) => behind = indexer.on_flows(&flows).is_err(),
                            // Some notifications were lost, so the recording is read from the cursor on.
                            Some(StoreEvent::Lagged(_)) => behind = true,
                            None => return,
                        },
                        command = asked.recv() => match command {
                            Some(command) => indexer.run_command(command),
                            None => return,
                        },
                    }
                }
            });
        })?;
        Ok(Self { commands, endpoints })
    }

    /// Deletes all conversations and rebuilds them; returns the number of calls.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn rebuild(&self) -> Result<u64, StoreError> {
        self.send_command(IndexerCommand::Rebuild).await
    }

    /// Waits until everything recorded so far is indexed.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.send_command(IndexerCommand::Flush).await.map(drop)
    }

    /// Saves endpoint overrides and applies them to flows that end from now on; [`rebuild`](Self::rebuild) applies
    /// them to the rest.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn save_endpoints(&self, endpoints: EndpointOverrides) -> Result<(), StoreError> {
        let saved = Arc::new(endpoints.clone());
        self.send_command(|reply| IndexerCommand::SetEndpoints(endpoints, reply)).await?;
        // Published only when they are saved: both must agree after a restart.
        self.endpoints.store(saved);
        Ok(())
    }

    /// The current endpoint overrides, also for requests in progress.
    pub fn endpoints(&self) -> Arc<ArcSwap<EndpointOverrides>> {
        Arc::clone(&self.endpoints)
    }

    async fn send_command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<u64, StoreError>>) -> IndexerCommand,
    ) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

/// Feeds calls to the assembler and stores its results.
pub struct ConversationIndexer<'s> {
    store: &'s dyn FlowStore,
    pricing: Arc<CallPricing>,
    endpoints: EndpointOverrides,
    assembler: ConversationAssembler,
    findings: ConversationUpdate,
    /// Flows in progress that may contain a call; WebSockets with their reading state.
    running: BTreeMap<FlowId, Option<WebSocketCallReader>>,
    newest: Option<FlowId>,
    /// `newest` when the cursor was last stored.
    marked: Option<FlowId>,
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

impl<'s> ConversationIndexer<'s> {
    pub fn new(store: &'s dyn FlowStore, pricing: Arc<CallPricing>) -> Self {
        Self {
            store,
            pricing,
            endpoints: EndpointOverrides::default(),
            assembler: ConversationAssembler::default(),
            findings: ConversationUpdate::default(),
            running: BTreeMap::new(),
            newest: None,
            marked: None,
        }
    }

    /// Deletes all conversations and rebuilds them; returns the number of calls. `progress` is called with the count
    /// so far.
    ///
    /// # Errors
    /// The store failed.
    pub fn rebuild(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
        if let Some(index) = self.store.shared_index() {
            let rebuilt = SharedIndexer::new(self.store, index, Arc::clone(&self.pricing)).rebuild(progress);
            // For those who index all the time, if it was this process's turn.
            return index.resign().and(rebuilt);
        }
        // Deleted first: ids are derived from the calls, so the new rows replace the old ones.
        self.store.forget_conversations()?;
        *self = Self::new(self.store, Arc::clone(&self.pricing));
        self.catch_up(progress)
    }

    /// Indexes every call after the cursor that was not indexed before, in the order in which the calls ended.
    ///
    /// # Errors
    /// The store failed; results up to then are stored.
    pub fn catch_up(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
        self.endpoints = EndpointOverrides::load(self.store).unwrap_or_else(|e| {
            tracing::warn!("the endpoint overrides are ignored: {e}");
            EndpointOverrides::default()
        });
        // Results that were not stored yet are found again by reading.
        self.assembler = ConversationAssembler::default();
        self.findings = ConversationUpdate::default();
        self.running.clear();
        let mut ended: Vec<CompletedFlow> = Vec::new();
        let mut after = self.store.cursor()?;
        // Flows that were recorded after the cursor but begin before it, because the clock was set back.
        for id in
            after.map_or_else(|| Ok(Vec::new()), |cursor| self.store.rewind_cursor(cursor, MAX_CLOCK_SKEW_FLOWS))?
        {
            match self.store.get(id) {
                Ok(row) if !row.imported => self.note_recorded_flow(&row, &mut ended)?,
                Ok(_) | Err(StoreError::NotFound(_)) => {}
                Err(e) => return Err(e),
            }
        }
        loop {
            let page = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: PAGE_SIZE };
            let rows = self.store.list(&page)?;
            for row in &rows {
                self.newest = self.newest.max(Some(row.id));
                self.note_recorded_flow(row, &mut ended)?;
            }
            after = rows.last().map(|r| r.id);
            if rows.len() < PAGE_SIZE {
                break;
            }
        }
        let mut done = 0;
        for id in order_by_end(ended) {
            done += self.on_flow_completed(id)?;
            progress(done);
        }
        // Stores the cursor, even if no call was found.
        self.save_findings()?;
        Ok(done)
    }

    /// Registers a recorded flow that may contain a call.
    fn note_recorded_flow(&mut self, row: &FlowRecord, ended: &mut Vec<CompletedFlow>) -> Result<(), StoreError> {
        let summary = row.summary(Timestamp::now());
        if !from_recording::may_hold(&summary, &self.endpoints) {
        } else if row.state == FlowState::Open {
            // It will be indexed when it ends; until then it holds the cursor back.
            self.running.insert(row.id, None);
        } else {
            let position = if row.imported { None } else { self.store.recorded_position(row.id)? };
            ended.push(CompletedFlow {
                id: row.id,
                started: row.started.micros(),
                duration: summary.duration,
                place: position,
            });
        }
        Ok(())
    }

    fn run_command(&mut self, command: IndexerCommand) {
        match command {
            IndexerCommand::Rebuild(reply) => drop(reply.send(self.rebuild(&mut |_| {}))),
            IndexerCommand::SetEndpoints(endpoints, reply) => drop(reply.send(self.set_endpoints(endpoints))),
            IndexerCommand::Flush(reply) => drop(reply.send(self.catch_up(&mut |_| {}))),
        }
    }

    fn set_endpoints(&mut self, endpoints: EndpointOverrides) -> Result<u64, StoreError> {
        endpoints.save(self.store)?;
        self.endpoints = endpoints;
        Ok(0)
    }

    /// Processes notifications of flows that began, continued or ended.
    ///
    /// # Errors
    /// The store failed: call [`catch_up`](Self::catch_up).
    pub fn on_flows(&mut self, flows: &[FlowSummary]) -> Result<(), StoreError> {
        let mut ended: Vec<(u64, FlowId)> = Vec::new();
        for flow in flows {
            self.newest = self.newest.max(Some(flow.id));
            if !from_recording::may_hold(flow, &self.endpoints) {
                // It may turn out to hold no call once its response is known.
                self.running.remove(&flow.id);
            } else if flow.state != FlowState::Open {
                ended.push((flow.started.micros() + flow.duration, flow.id));
            } else if flow.kind == FlowKind::WebSocket {
                self.read_websocket(flow.id)?;
            } else {
                self.running.entry(flow.id).or_default();
            }
        }
        // Ends within one notification are ordered; across notifications they come in about this order.
        ended.sort_unstable();
        for (_, id) in ended {
            self.on_flow_completed(id)?;
            // Removed only now: if indexing failed, the flow still holds the cursor back.
            self.running.remove(&id);
        }
        // The cursor alone is stored only now and then.
        if !self.findings.is_empty() || self.marked.is_none_or(|m| self.newest.is_some_and(|n| is_far_apart(m, n))) {
            self.save_findings()?;
        }
        Ok(())
    }

    /// Indexes a completed flow; returns the number of calls.
    fn on_flow_completed(&mut self, id: FlowId) -> Result<u64, StoreError> {
        let row = match self.store.get(id) {
            Ok(row) => row,
            // Deleted by retention in the meantime.
            Err(StoreError::NotFound(_)) => return Ok(0),
            Err(e) => return Err(e),
        };
        // The call's memory is reserved until the assembler has consumed it.
        let mut held = None;
        let calls = match row.kind {
            FlowKind::WebSocket => self.finish_websocket(&row),
            // Indexed before, for example before a crash.
            _ if !self.store.exchanges_in(id)?.is_empty() => return Ok(0),
            _ => from_recording::read_call(self.store, &row, &self.endpoints).map(|read| {
                let (exchange, reserved) = read.unzip();
                held = reserved;
                exchange.into_iter().collect()
            }),
        };
        let calls = match calls {
            Ok(calls) => calls,
            // A damaged record stays damaged: to stop here would stop all conversations.
            Err(e @ StoreError::Damaged { .. }) => {
                tracing::warn!(flow = %id, "an LLM call is skipped: {e}");
                return Ok(0);
            }
            Err(e) => return Err(e),
        };
        let n = calls.len() as u64;
        calls.into_iter().try_for_each(|e| self.add_call(e))?;
        drop(held);
        Ok(n)
    }

    /// Reads the new messages of a WebSocket, whose calls end one by one while it is open.
    fn read_websocket(&mut self, id: FlowId) -> Result<(), StoreError> {
        let row = self.store.get(id)?;
        let mut socket = match self.running.remove(&id).flatten() {
            Some(socket) => socket,
            None => self.resume_websocket(id)?,
        };
        let calls = socket.read(self.store, &row, false)?;
        // Kept before the calls are added: messages that were read must not be read again.
        self.running.insert(id, Some(socket));
        calls.into_iter().try_for_each(|e| self.add_call(e))
    }

    fn finish_websocket(&mut self, row: &FlowRecord) -> Result<Vec<ParsedCall>, StoreError> {
        let mut socket = match self.running.remove(&row.id).flatten() {
            Some(socket) => socket,
            None => self.resume_websocket(row.id)?,
        };
        socket.read(self.store, row, true)
    }

    /// The state of a WebSocket some of whose calls may already be stored: reading continues after the last one.
    fn resume_websocket(&self, id: FlowId) -> Result<WebSocketCallReader, StoreError> {
        let exchanges = self.store.exchanges_in(id)?;
        // The number of a call is the index of its request plus one, so reading continues right behind it.
        Ok(WebSocketCallReader::starting_at(exchanges.iter().map(|e| e.part).max().unwrap_or_default()))
    }

    fn add_call(&mut self, exchange: ParsedCall) -> Result<(), StoreError> {
        let Self { store, findings, assembler, pricing, .. } = self;
        let update = assembler.add_call(exchange, |key| {
            // The session is restored from the store, so pending results must be stored first.
            if !findings.is_empty() {
                store.save_update(std::mem::take(findings))?;
            }
            mapping::stored_session(*store, key, ConversationAssembler::MAX_THREADS)
        })?;
        mapping::add_findings(findings, update, &**pricing);
        if findings.exchanges.len() >= BATCH_SIZE {
            store.save_update(std::mem::take(findings))?;
        }
        Ok(())
    }

    /// Stores the results and the cursor in one transaction.
    fn save_findings(&mut self) -> Result<(), StoreError> {
        let mut findings = std::mem::take(&mut self.findings);
        // One less than the oldest running flow, which is then read again after a restart.
        let oldest = self.running.keys().next().map(|id| FlowId::from_u128(id.to_u128().saturating_sub(1)));
        findings.cursor = oldest.into_iter().chain(self.newest).min();
        self.store.save_update(findings)?;
        self.marked = self.newest;
        Ok(())
    }
}

/// A flow that has ended. Times are in microseconds, the start since the Unix epoch.
struct CompletedFlow {
    id: FlowId,
    started: u64,
    duration: u64,
    /// Its position in recording order; `None` if it was imported.
    place: Option<u64>,
}

/// Flows in the order in which they ended. If the clock was set back between two flows recorded in sequence, the
/// later ones are ordered after the end of the earlier ones: a continuation must follow the response it continues.
fn order_by_end(mut flows: Vec<CompletedFlow>) -> Vec<FlowId> {
    flows.sort_unstable_by_key(|f| f.place);
    let (mut latest, mut over, mut behind) = (0_u64, 0_u64, 0_u64);
    // `behind` is by how much later times are corrected, `over` the latest end so far, `latest` the latest start.
    for flow in flows.iter_mut().filter(|f| f.place.is_some()) {
        let began = flow.started.saturating_add(behind);
        // Earlier than a flow recorded before it, by more than rows are delayed: the clock was set back here.
        if began.saturating_add(CLOCK_SKEW_MICROS) < latest {
            behind = behind.saturating_add(over.saturating_sub(began));
        }
        flow.started = flow.started.saturating_add(behind);
        latest = latest.max(flow.started);
        over = over.max(flow.started.saturating_add(flow.duration));
    }
    flows.sort_unstable_by_key(|f| (f.started.saturating_add(f.duration), f.place, f.id));
    flows.into_iter().map(|f| f.id).collect()
}

/// Whether `b` began more than a minute after `a`.
const fn is_far_apart(a: FlowId, b: FlowId) -> bool {
    b.unix_millis().saturating_sub(a.unix_millis()) > 60_000
}
