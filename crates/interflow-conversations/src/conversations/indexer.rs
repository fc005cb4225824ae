//! Builds conversations as flows end: one thread parses each LLM call once, and stores the assembler's results.
//!
//! The order of calls matters, because a call continues what earlier ones said; it is the order in which they *ended*,
//! since a client sends the next request after it has the reply. Which flows come next is the matter of a [`FlowCursor`];
//! what it stands for is stored together with the results. After a crash, or an error, everything after it is read again;
//! calls that are already stored are recognised and skipped.
//!
//! Where several processes record to one store, a session whose calls went through different ones may become visible out
//! of order, for instance after one of them could not reach the store for a while: its calls are added as they come, and a
//! little later its conversations are put together again from all its flows, as a rebuild would do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::assembly::{Conversation, ConversationAssembler, ParsedCall};
use arc_swap::ArcSwap;
use interflow_store::{
    ConversationUpdate, FlowKind, FlowParts, FlowRecord, FlowState, FlowStore, IndexProgress, LoadedFlow, RecordedFlow,
    Result, StoreError, TotalsRange,
};
use interflow_types::budget::MemoryReservation;
use interflow_types::{FlowId, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::cursor::{FlowCursor, LocalCursor, SharedCursor};
use super::endpoints::EndpointOverrides;
use super::from_recording::{self, WebSocketCallReader};
use super::late_sessions::LateSessions;
use super::mapping::{self, CallPricing};

/// Calls stored per transaction at most: a local one waits for the disk.
const BATCH_SIZE: usize = 64;
/// Sessions with more flows are continued in the order in which their calls become visible.
const MAX_REASSEMBLED_FLOWS: usize = 500;
/// Delay before retrying after the store failed, while the cursor stays where it is.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often endpoint overrides are read, which another process may have changed.
const ENDPOINTS_INTERVAL: Duration = Duration::from_secs(2);
/// How long a command waits for the process that indexes.
const PATIENCE: Duration = Duration::from_secs(60);
const WAIT_STEP: Duration = Duration::from_millis(50);

/// What another thread asks of the indexer.
type IndexerCommand = Box<dyn FnOnce(&mut ConversationIndexer<'_>) + Send>;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStep {
    /// Another process indexes.
    Following,
    /// Nothing is left to index.
    UpToDate,
    /// Some flows were read, and there are more.
    Underway,
}

/// A handle to the indexer thread, which ends when the last clone is dropped.
#[derive(Clone)]
pub struct IndexerHandle {
    commands: mpsc::Sender<IndexerCommand>,
    endpoints: Arc<ArcSwap<EndpointOverrides>>,
}

impl IndexerHandle {
    /// Starts the thread over a store that this process writes to, alone or with others.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(store: Arc<dyn FlowStore>, pricing: Arc<CallPricing>) -> std::io::Result<Self> {
        let (sender, commands) = mpsc::channel::<IndexerCommand>(4);
        // The thread reports errors when it loads them.
        let endpoints = Arc::new(ArcSwap::from_pointee(EndpointOverrides::load(&*store).unwrap_or_default()));
        // A runtime of its own, only for waiting: the store blocks and must not be used within one.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let current = Arc::clone(&endpoints);
        std::thread::Builder::new().name("conversations".into()).spawn(move || {
            let indexer = ConversationIndexer::with_endpoints(&*store, pricing, current, true);
            indexer.run(commands, &runtime);
        })?;
        Ok(Self { commands: sender, endpoints })
    }

    /// Deletes all conversations and rebuilds them; returns the number of calls.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn rebuild(&self) -> Result<u64> {
        self.send_command(|indexer| indexer.rebuild(&mut |_| {})).await
    }

    /// Whether a flow may contain a call, by its record.
    pub fn may_hold_call(&self, flow: &FlowRecord) -> bool {
        from_recording::record_may_hold(flow, &self.endpoints.load())
    }

    /// Indexes imported flows, which a store of this process alone does not announce, in the order of their ends. A session
    /// that is stored in part is continued with them; [`rebuild`](Self::rebuild) puts it in order.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn add_imported(&self, flows: Vec<FlowId>) -> Result<()> {
        self.send_command(move |indexer| indexer.add_imported(&flows).inspect_err(|_| indexer.reset())).await
    }

    /// Waits until everything recorded so far is indexed.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn flush(&self) -> Result<()> {
        self.send_command(|indexer| indexer.catch_up(&mut |_| {}).map(drop)).await
    }

    /// Saves endpoint overrides and applies them to flows that end from now on; [`rebuild`](Self::rebuild) applies
    /// them to the rest.
    ///
    /// # Errors
    /// The store failed, or the thread has ended.
    pub async fn save_endpoints(&self, endpoints: EndpointOverrides) -> Result<()> {
        self.send_command(|indexer| {
            endpoints.save(indexer.store)?;
            // Published only when they are saved: both must agree after a restart.
            indexer.endpoints.store(Arc::new(endpoints));
            Ok(())
        })
        .await
    }

    /// The current endpoint overrides, also for requests in progress.
    pub fn endpoints(&self) -> Arc<ArcSwap<EndpointOverrides>> {
        Arc::clone(&self.endpoints)
    }

    async fn send_command<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut ConversationIndexer<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, result) = oneshot::channel();
        let command: IndexerCommand = Box::new(|indexer| drop(reply.send(command(indexer))));
        self.commands.send(command).await.map_err(|_| StoreError::Closed)?;
        result.await.map_err(|_| StoreError::Closed)?
    }
}

/// Feeds calls to the assembler and stores its results.
pub struct ConversationIndexer<'s> {
    store: &'s dyn FlowStore,
    pricing: Arc<CallPricing>,
    endpoints: Arc<ArcSwap<EndpointOverrides>>,
    endpoints_read: Option<Instant>,
    cursor: Box<dyn FlowCursor + 's>,
    assembler: ConversationAssembler,
    findings: ConversationUpdate,
    /// The last state of each conversation that changed.
    changed: BTreeMap<String, Conversation>,
    /// WebSockets that are open and were read in part.
    sockets: HashMap<FlowId, WebSocketCallReader>,
    /// Calls since this indexer began.
    calls: u64,
    late: LateSessions,
    /// Those of them that the store does not know yet.
    newly_late: Vec<String>,
    /// The store refused what the last page held: its flows are stored one by one, to find the one that is the reason.
    is_careful: bool,
}

impl<'s> ConversationIndexer<'s> {
    pub fn new(store: &'s dyn FlowStore, pricing: Arc<CallPricing>) -> Self {
        Self::with_endpoints(store, pricing, Arc::default(), false)
    }

    fn with_endpoints(
        store: &'s dyn FlowStore,
        pricing: Arc<CallPricing>,
        endpoints: Arc<ArcSwap<EndpointOverrides>>,
        is_live: bool,
    ) -> Self {
        let cursor: Box<dyn FlowCursor + 's> = match store.shared_index() {
            Some(index) => Box::new(SharedCursor::new(index)),
            None => Box::new(LocalCursor::new(store, is_live)),
        };
        Self {
            store,
            pricing,
            endpoints,
            endpoints_read: None,
            cursor,
            assembler: Default::default(),
            findings: Default::default(),
            changed: Default::default(),
            sockets: Default::default(),
            calls: 0,
            late: Default::default(),
            newly_late: Default::default(),
            is_careful: false,
        }
    }

    /// Indexes until the store is closed, or the last handle is dropped.
    fn run(mut self, mut commands: mpsc::Receiver<IndexerCommand>, runtime: &tokio::runtime::Runtime) {
        let mut has_failed = false;
        loop {
            let step = self.step();
            let delay = match &step {
                Ok(IndexStep::Underway) => Some(Duration::ZERO),
                Ok(IndexStep::Following | IndexStep::UpToDate) => None,
                Err(StoreError::Closed | StoreError::ReadOnly) => return,
                // Another process took over, or everything is read again.
                Err(StoreError::Stale(_)) => Some(WAIT_STEP),
                // Any other error may pass: a full disk, a locked file, a database that is restarted.
                Err(error) => {
                    // The first of a series is enough for the log.
                    if !has_failed {
                        tracing::warn!(%error, "cannot index conversations for now");
                    }
                    Some(RETRY_DELAY)
                }
            };
            has_failed = matches!(step, Err(ref e) if !matches!(e, StoreError::Stale(_)));
            // A command is answered also while the store fails, if only with the error.
            let command = runtime.block_on(async {
                let pause = async {
                    if let Some(delay) = delay { tokio::time::sleep(delay).await } else { self.cursor.wait().await }
                };
                tokio::select! {
                    command = commands.recv() => Some(command),
                    () = pause => None,
                }
            });
            match command {
                None => {}
                Some(Some(command)) => command(&mut self),
                Some(None) => return,
            }
        }
    }

    /// Deletes all conversations and waits until they are built again, by this process or by the one whose turn it is;
    /// returns the number of calls. `progress` is called with the count so far.
    ///
    /// # Errors
    /// The store failed, or no process indexed for a minute.
    pub fn rebuild(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        // Deleted first: ids are derived from the calls, so the new rows replace the old ones.
        self.store.forget_conversations()?;
        self.reset();
        self.catch_up(progress)?;
        let ever = TotalsRange {
            since: Timestamp::from_micros(0),
            until: Timestamp::from_micros(i64::MAX as u64),
            span: i64::MAX as u64,
            offset: 0,
        };
        Ok(self.store.totals(ever)?.iter().map(|total| total.used.exchanges).sum())
    }

    /// Waits until every call recorded so far is indexed, and in order if this process indexes; returns how many it
    /// indexed.
    ///
    /// # Errors
    /// The store failed, or no process indexed for a minute; results up to then are stored.
    pub fn catch_up(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        self.endpoints_read = None;
        let (before, newest) = (self.calls, self.cursor.newest()?);
        let (mut reached, mut since) = (0, Instant::now());
        loop {
            match self.step_with(&mut |calls| progress(calls - before)) {
                Ok(IndexStep::Following) => std::thread::sleep(WAIT_STEP),
                Ok(IndexStep::UpToDate | IndexStep::Underway) | Err(StoreError::Stale(_)) => {}
                Err(e) => return Err(e),
            }
            let indexed = self.cursor.indexed()?;
            if indexed >= newest {
                let ordered = self.put_in_order(true);
                if ordered.is_err() {
                    self.reset();
                }
                // Otherwise another process took over, and does that now.
                if !matches!(ordered, Err(StoreError::Stale(_))) {
                    return ordered.map(|()| self.calls - before);
                }
            }
            if indexed != reached {
                (reached, since) = (indexed, Instant::now());
            } else if since.elapsed() > PATIENCE {
                let what = "no process has indexed conversations for a minute; see the log of the one whose turn it is";
                return Err(StoreError::Shared(what.into()));
            }
        }
    }

    fn add_imported(&mut self, ids: &[FlowId]) -> Result<()> {
        for flow in self.load_by_end(ids)? {
            self.index_flow(&RecordedFlow { id: flow.row.id, ended: flow.row.ended() })?;
        }
        self.save(IndexProgress::default())
    }

    /// The records of those of the flows that may contain calls, in the order in which they ended.
    fn load_by_end(&self, ids: &[FlowId]) -> Result<Vec<LoadedFlow>> {
        let flows = ids.iter().filter_map(|id| self.load(*id, FlowParts::Row).transpose());
        let mut flows = flows.collect::<Result<Vec<_>>>()?;
        flows.sort_unstable_by_key(|flow| (flow.row.ended(), flow.row.id));
        Ok(flows)
    }

    /// Indexes the next flows, if it is this process's turn.
    ///
    /// # Errors
    /// The store failed, or it is no longer this process's turn; the next step continues with what is stored.
    pub fn step(&mut self) -> Result<IndexStep> {
        self.step_with(&mut |_| {})
    }

    fn step_with(&mut self, progress: &mut dyn FnMut(u64)) -> Result<IndexStep> {
        let was_careful = self.is_careful;
        let step = self.follow_endpoints().and_then(|()| self.index_page(progress));
        if step.is_err() {
            // Results that were not stored are found again by reading.
            self.reset();
        }
        match step {
            Err(StoreError::Refused(_)) if !was_careful => {
                self.is_careful = true;
                Ok(IndexStep::Underway)
            }
            step => step,
        }
    }

    /// Indexes flows as if the store had announced them.
    #[cfg(test)]
    pub(super) fn on_flows(&mut self, flows: &[interflow_store::FlowSummary]) -> Result<()> {
        if self.cursor.indexed()? == 0 {
            self.step()?;
        }
        self.cursor.announce(flows);
        self.step().map(drop)
    }

    fn index_page(&mut self, progress: &mut dyn FnMut(u64)) -> Result<IndexStep> {
        let endpoints = self.endpoints.load_full();
        let Some(page) = self.cursor.next_page(&endpoints)? else {
            self.reset();
            return Ok(IndexStep::Following);
        };
        if let Some(late) = page.restart {
            self.forget();
            self.late.clear();
            let now = Instant::now();
            late.iter().for_each(|session| self.late.add_session(session, now));
        }
        for flow in &page.flows {
            self.cursor.renew()?;
            if self.is_careful {
                self.index_flow_alone(flow)?;
            } else {
                self.index_flow(flow)?;
            }
            progress(self.calls);
        }
        if let Some((newest, position)) = self.cursor.end_page(!self.findings.is_empty()) {
            self.findings.cursor = newest;
            self.save(IndexProgress { position, ..IndexProgress::default() })?;
            self.cursor.set_stored();
        }
        self.is_careful = false;
        self.put_in_order(false)?;
        Ok(if page.is_last { IndexStep::UpToDate } else { IndexStep::Underway })
    }

    /// Forgets what it has in memory, and reads what is not stored again.
    fn reset(&mut self) {
        self.forget();
        self.late.clear();
        self.cursor.rewind();
    }

    fn forget(&mut self) {
        self.assembler = ConversationAssembler::default();
        self.findings = ConversationUpdate::default();
        self.changed.clear();
        self.sockets.clear();
        self.newly_late.clear();
    }

    /// Indexes and stores a flow that ended; leaves it out if the store refuses its calls: to stop there would stop the
    /// conversations of all replicas.
    fn index_flow_alone(&mut self, flow: &RecordedFlow) -> Result<()> {
        match self.index_flow(flow).and_then(|()| self.save(IndexProgress::default())) {
            Err(StoreError::Refused(error)) => {
                tracing::error!(flow = %flow.id, error, "cannot store the LLM calls of a flow: conversations lack them");
                self.forget();
                Ok(())
            }
            stored => stored,
        }
    }

    /// Indexes a flow that ended, or what is new in a WebSocket, whose calls end one by one while it is open.
    fn index_flow(&mut self, flow: &RecordedFlow) -> Result<()> {
        let Some(loaded) = self.load(flow.id, FlowParts::Bodies)? else {
            self.sockets.remove(&flow.id);
            return Ok(());
        };
        // Indexed before, for example before a crash, or before another process took over.
        let stored = if self.sockets.contains_key(&flow.id) { Vec::new() } else { self.store.exchanges_in(flow.id)? };
        if loaded.row.kind != FlowKind::WebSocket && !stored.is_empty() {
            return Ok(());
        }
        let (calls, reservation) = self.read_calls(&loaded, stored.iter().map(|call| call.part).collect())?;
        for call in calls {
            let session = call.key().to_owned();
            let is_late = self.ended_before_its_session(&session, flow.ended)?;
            self.add_call(call)?;
            if self.late.add_call(&session, is_late, Instant::now()) {
                self.newly_late.push(session);
            }
        }
        drop(reservation);
        Ok(())
    }

    /// The calls of a flow, and the memory that they take until the assembler has consumed them; of a WebSocket those
    /// after what was read of it, or else those whose numbers are not `known`.
    fn read_calls(
        &mut self,
        flow: &LoadedFlow,
        known: BTreeSet<u64>,
    ) -> Result<(Vec<ParsedCall>, Option<MemoryReservation>)> {
        let row = &flow.row;
        let read = if row.kind == FlowKind::WebSocket {
            let is_over = row.state != FlowState::Open;
            let reader = self.sockets.remove(&row.id);
            let mut reader = reader.unwrap_or_else(|| WebSocketCallReader::leaving_out(known));
            let calls = reader.read(self.store, row, is_over);
            if !is_over {
                self.sockets.insert(row.id, reader);
            }
            calls.map(|calls| (calls, None))
        } else {
            from_recording::read_call(self.store, flow, &self.endpoints.load()).map(|read| {
                let (call, reservation) = read.unzip();
                (call.into_iter().collect(), reservation)
            })
        };
        read.or_else(|e| from_recording::skip_damaged(row.id, e).map(|()| (Vec::new(), None)))
    }

    /// A flow that may contain a call; `None` if it does not, was deleted meanwhile, or is damaged.
    fn load(&self, id: FlowId, parts: FlowParts) -> Result<Option<LoadedFlow>> {
        match self.store.get_loaded(id, parts) {
            Ok(flow) if from_recording::record_may_hold(&flow.row, &self.endpoints.load()) => Ok(Some(flow)),
            Ok(_) | Err(StoreError::NotFound(_)) => Ok(None),
            Err(e) => from_recording::skip_damaged(id, e).map(|()| None),
        }
    }

    /// Whether calls of the session that ended later are indexed already. In a store that only this process writes to,
    /// flows come in the order of their ends.
    fn ended_before_its_session(&self, key: &str, ended: u64) -> Result<bool> {
        if self.store.shared_index().is_none() {
            return Ok(false);
        }
        let latest = match self.assembler.last_activity(key) {
            Some(latest) => Some(latest),
            None => self.store.session(key, 1)?.pop().map(|row| row.updated),
        };
        Ok(latest.is_some_and(|latest| latest.micros() > ended))
    }

    /// Puts sessions in order that have calls out of order and are due, or all of them.
    fn put_in_order(&mut self, all: bool) -> Result<()> {
        while let Some(session) = self.late.due(all, Instant::now()) {
            let flows = match self.reassemble(&session) {
                Err(StoreError::Refused(error)) => {
                    tracing::error!(
                        error,
                        "cannot store a session in order: its calls stay in the order in which they came"
                    );
                    self.forget();
                    None
                }
                flows => flows?,
            };
            if flows.is_none() {
                self.save(IndexProgress { in_order: vec![session.clone()], ..IndexProgress::default() })?;
            }
            self.late.set_in_order(&session, flows);
        }
        Ok(())
    }

    /// Puts a session together again from all its flows; returns how many these are, or `None` if they are too many.
    fn reassemble(&mut self, key: &str) -> Result<Option<usize>> {
        self.save(IndexProgress::default())?;
        let Some(index) = self.store.shared_index() else { return Ok(None) };
        let ids = index.flows_of_session(key, MAX_REASSEMBLED_FLOWS + 1)?;
        if ids.len() > MAX_REASSEMBLED_FLOWS {
            return Ok(None);
        }
        let flows = self.load_by_end(&ids)?;
        self.assembler.drop_session(key);
        let mut is_first = true;
        for flow in flows {
            self.cursor.renew()?;
            let (calls, reservation) = self.read_calls(&flow, BTreeSet::new())?;
            for call in calls.into_iter().filter(|call| call.key() == key) {
                // What is stored of the session is replaced.
                self.assemble(call, !std::mem::take(&mut is_first))?;
            }
            drop(reservation);
        }
        let in_order = vec![key.to_owned()];
        self.save(IndexProgress { reassembled: in_order.clone(), in_order, ..IndexProgress::default() })?;
        Ok(Some(ids.len()))
    }

    fn add_call(&mut self, call: ParsedCall) -> Result<()> {
        if self.assembler.last_activity(call.key()).is_none() {
            // The session is restored from the store, so pending results must be stored first.
            self.save(IndexProgress::default())?;
        }
        self.assemble(call, true)?;
        self.calls += 1;
        if self.findings.exchanges.len() >= BATCH_SIZE {
            self.save(IndexProgress::default())?;
        }
        Ok(())
    }

    /// Adds a call to its session, of which the store may have a part.
    fn assemble(&mut self, call: ParsedCall, is_stored: bool) -> Result<()> {
        let mut update = self.assembler.add_call(call, |key| match is_stored {
            true => mapping::stored_session(self.store, key, ConversationAssembler::MAX_THREADS),
            false => Ok(Vec::new()),
        })?;
        let changed = std::mem::take(&mut update.conversations);
        self.changed.extend(changed.into_iter().map(|c| (c.row.id.clone(), c)));
        mapping::add_findings(&mut self.findings, update, &*self.pricing);
        Ok(())
    }

    /// Stores what was found, and how far the index is then.
    fn save(&mut self, mut progress: IndexProgress) -> Result<()> {
        let mut findings = std::mem::take(&mut self.findings);
        findings.conversations =
            std::mem::take(&mut self.changed).into_values().map(mapping::conversation_row).collect();
        progress.late = std::mem::take(&mut self.newly_late);
        if findings.is_empty() && progress == IndexProgress::default() {
            return Ok(());
        }
        match self.store.shared_index() {
            Some(index) => index.save(findings, progress),
            None => self.store.save_update(findings),
        }
    }

    /// Reads the endpoint overrides now and then, and publishes them for requests in progress.
    fn follow_endpoints(&mut self) -> Result<()> {
        if self.endpoints_read.is_some_and(|at| at.elapsed() < ENDPOINTS_INTERVAL) {
            return Ok(());
        }
        match EndpointOverrides::load(self.store) {
            Ok(endpoints) if **self.endpoints.load() == endpoints => {}
            Ok(endpoints) => self.endpoints.store(Arc::new(endpoints)),
            Err(error @ (StoreError::Damaged { .. } | StoreError::Io { .. })) => {
                tracing::warn!(%error, "cannot read the endpoint overrides: they are ignored");
            }
            Err(e) => return Err(e),
        }
        self.endpoints_read = Some(Instant::now());
        Ok(())
    }
}
