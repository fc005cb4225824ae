//! Builds the conversations of a store that several processes record to: one of them at a time does it for all.
//!
//! Flows are read in the order in which they became visible in the store, which is about that in which they ended. A
//! session whose calls went through different replicas may become visible out of order, for instance after one of them
//! could not reach the store for a while: its calls are added as they come, and a little later its conversations are put
//! together again from all its flows, in the order in which they ended, as a rebuild would do. What is found is stored with
//! the position up to which the flows were read; a process that takes over continues there, and recognises calls that are
//! stored already.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::assembly::{ConversationAssembler, ParsedCall};
use arc_swap::ArcSwap;
use interflow_store::{
    ConversationUpdate, FlowKind, FlowRecord, FlowStore, IndexProgress, RecordedFlow, SharedIndex, StoreError,
    TotalsRange,
};
use interflow_types::budget::MemoryReservation;
use interflow_types::{FlowId, Timestamp};
use tokio::sync::mpsc;

use super::endpoints::EndpointOverrides;
use super::from_recording::{self, WebSocketCallReader};
use super::indexer::{IndexerCommand, RETRY_DELAY};
use super::late_sessions::LateSessions;
use super::mapping::{self, CallPricing};

/// Flows read per step.
const PAGE_SIZE: usize = 200;
/// How often the store is asked for new flows, which also keeps the right to index.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often endpoint overrides are read, which another process may have changed.
const ENDPOINTS_INTERVAL: Duration = Duration::from_secs(2);
/// The right to index is renewed this often within a step.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);
/// Sessions with more flows are continued in the order in which their calls become visible.
const MAX_REASSEMBLED_FLOWS: usize = 500;
/// How long a command waits for the process that indexes.
const PATIENCE: Duration = Duration::from_secs(60);
const WAIT_STEP: Duration = Duration::from_millis(50);

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStep {
    /// Another process indexes.
    Following,
    /// Nothing is left to index.
    UpToDate,
    /// This many calls were indexed, and there is more.
    Indexed(u64),
}

/// The thread of a process that shares its store.
pub fn run(
    store: &dyn FlowStore,
    index: &dyn SharedIndex,
    pricing: Arc<CallPricing>,
    commands: &mut mpsc::Receiver<IndexerCommand>,
    current_endpoints: &ArcSwap<EndpointOverrides>,
    runtime: &tokio::runtime::Runtime,
) {
    let mut indexer = SharedIndexer::new(store, index, pricing);
    let mut has_failed = false;
    loop {
        let step = indexer.follow_endpoints(current_endpoints).and_then(|()| indexer.step());
        let wait = match step {
            Ok(IndexStep::Indexed(_)) => Duration::ZERO,
            Ok(IndexStep::Following | IndexStep::UpToDate) => POLL_INTERVAL,
            Err(StoreError::Closed | StoreError::ReadOnly) => return,
            // Another process took over, or everything is read again.
            Err(StoreError::Stale(_)) => WAIT_STEP,
            Err(ref e) => {
                // The first of a series is enough for the log.
                if !has_failed {
                    tracing::warn!("conversations wait: {e}");
                }
                RETRY_DELAY
            }
        };
        has_failed = matches!(step, Err(ref e) if !matches!(e, StoreError::Stale(_)));
        // The store blocks and must not be used within the runtime, which is only for this wait.
        match runtime.block_on(async { tokio::time::timeout(wait, commands.recv()).await }) {
            Err(_) => {}
            Ok(Some(IndexerCommand::Rebuild(reply))) => drop(reply.send(indexer.rebuild(&mut |_| {}))),
            Ok(Some(IndexerCommand::SetEndpoints(endpoints, reply))) => {
                drop(reply.send(endpoints.save(store).map(|()| 0)));
                indexer.endpoints_read = None;
            }
            Ok(Some(IndexerCommand::Flush(reply))) => drop(reply.send(indexer.flush(&mut |_| {}).map(|()| 0))),
            Ok(None) => {
                // Another process need not wait until the right expires.
                let _ = index.resign();
                return;
            }
        }
    }
}

/// Feeds the calls of all replicas to the assembler, and stores its results.
pub struct SharedIndexer<'s> {
    store: &'s dyn FlowStore,
    index: &'s dyn SharedIndex,
    pricing: Arc<CallPricing>,
    endpoints: EndpointOverrides,
    endpoints_read: Option<Instant>,
    /// What is in memory was read in this epoch of the index.
    epoch: Option<u64>,
    renewed: Instant,
    assembler: ConversationAssembler,
    findings: ConversationUpdate,
    saved_position: Option<u64>,
    late: LateSessions,
    /// Those of them that the store does not know yet.
    newly_late: Vec<String>,
    /// The store refused what the last page held: its flows are stored one by one, to find the one that is the reason.
    is_careful: bool,
}

impl<'s> SharedIndexer<'s> {
    pub fn new(store: &'s dyn FlowStore, index: &'s dyn SharedIndex, pricing: Arc<CallPricing>) -> Self {
        Self {
            store,
            index,
            pricing,
            endpoints: EndpointOverrides::default(),
            endpoints_read: None,
            epoch: None,
            renewed: Instant::now(),
            assembler: ConversationAssembler::default(),
            findings: ConversationUpdate::default(),
            saved_position: None,
            late: LateSessions::default(),
            newly_late: Vec::new(),
            is_careful: false,
        }
    }

    /// Indexes the next flows, if it is this process's turn.
    ///
    /// # Errors
    /// The store failed, or it is no longer this process's turn; the next step continues with what is stored.
    pub fn step(&mut self) -> Result<IndexStep, StoreError> {
        let was_careful = self.is_careful;
        let done = self.index_page();
        if done.is_err() {
            // Results that were not stored are found again by reading.
            self.reset(None);
        }
        match done {
            Err(StoreError::Refused(_)) if !was_careful => {
                self.is_careful = true;
                Ok(IndexStep::Indexed(0))
            }
            done => done,
        }
    }

    fn index_page(&mut self) -> Result<IndexStep, StoreError> {
        if !self.take_turn()? {
            return Ok(IndexStep::Following);
        }
        let mut page = self.index.unindexed(PAGE_SIZE)?;
        page.flows.sort_unstable_by_key(|flow| (flow.ended, flow.id));
        let mut done = 0;
        for flow in &page.flows {
            self.renew()?;
            done += if self.is_careful { self.index_flow_alone(flow)? } else { self.index_flow(flow)? };
        }
        // Without news, the position is as it was stored.
        if !page.flows.is_empty() || self.saved_position != Some(page.through) {
            self.findings.cursor = page.flows.iter().map(|flow| flow.id).max();
            self.save(IndexProgress { position: Some(page.through), ..IndexProgress::default() })?;
            self.saved_position = Some(page.through);
        }
        self.is_careful = false;
        self.put_in_order(false)?;
        Ok(if page.is_last { IndexStep::UpToDate } else { IndexStep::Indexed(done) })
    }

    /// Takes or keeps the right to index. What is in memory is discarded if somebody else changed the index since.
    fn take_turn(&mut self) -> Result<bool, StoreError> {
        let epoch = self.index.lead()?;
        self.renewed = Instant::now();
        if epoch.is_none() || epoch != self.epoch {
            self.reset(epoch);
            if epoch.is_some() {
                let (late, now) = (self.index.late_sessions()?, Instant::now());
                late.iter().for_each(|session| self.late.add_session(session, now));
            }
        }
        Ok(epoch.is_some())
    }

    /// Keeps the right to index during a long step.
    fn renew(&mut self) -> Result<(), StoreError> {
        if self.renewed.elapsed() < RENEWAL_INTERVAL {
            return Ok(());
        }
        let before = self.epoch;
        if self.take_turn()? && self.epoch == before {
            return Ok(());
        }
        Err(StoreError::Stale("all: another process indexes now".into()))
    }

    fn reset(&mut self, epoch: Option<u64>) {
        self.assembler = ConversationAssembler::default();
        self.findings = ConversationUpdate::default();
        self.saved_position = None;
        self.newly_late.clear();
        if self.epoch != epoch {
            self.late.clear();
        }
        self.epoch = epoch;
    }

    /// Indexes and stores a flow that ended; leaves it out if the store refuses its calls: to stop there would stop the
    /// conversations of all replicas.
    fn index_flow_alone(&mut self, flow: &RecordedFlow) -> Result<u64, StoreError> {
        let stored = self.index_flow(flow).and_then(|done| self.save(IndexProgress::default()).map(|()| done));
        match stored {
            Err(StoreError::Refused(why)) => {
                tracing::error!(flow = %flow.id, "the LLM calls of a flow cannot be stored, and are left out of conversations: {why}");
                let epoch = self.epoch;
                self.reset(epoch);
                Ok(0)
            }
            stored => stored,
        }
    }

    /// Indexes a flow that ended; returns the number of its calls.
    fn index_flow(&mut self, flow: &RecordedFlow) -> Result<u64, StoreError> {
        let Some(row) = self.row(flow.id)? else { return Ok(0) };
        // Indexed before, for example before another process took over.
        if !self.store.exchanges_in(flow.id)?.is_empty() {
            return Ok(0);
        }
        let (calls, held) = self.read_calls(&row)?;
        let done = calls.len() as u64;
        for call in calls {
            let session = call.key().to_owned();
            let is_late = self.ended_before_its_session(&session, flow.ended)?;
            self.add_call(call)?;
            if self.late.add_call(&session, is_late, Instant::now()) {
                self.newly_late.push(session);
            }
        }
        drop(held);
        Ok(done)
    }

    /// A flow that may contain a call; `None` if it does not, was deleted meanwhile, or is damaged.
    fn row(&self, id: FlowId) -> Result<Option<FlowRecord>, StoreError> {
        match self.store.get(id) {
            Ok(row) => {
                let may_hold = from_recording::may_hold(&row.summary(Timestamp::now()), &self.endpoints);
                Ok(Some(row).filter(|_| may_hold))
            }
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(e) => skip_damaged(id, e).map(|()| None),
        }
    }

    /// The calls of a flow, and the memory that they take.
    fn read_calls(&self, row: &FlowRecord) -> Result<(Vec<ParsedCall>, Option<MemoryReservation>), StoreError> {
        let read = match row.kind {
            FlowKind::WebSocket => {
                WebSocketCallReader::default().read(self.store, row, true).map(|calls| (calls, None))
            }
            _ => from_recording::read_call(self.store, row, &self.endpoints).map(|read| {
                let (call, held) = read.unzip();
                (call.into_iter().collect(), held)
            }),
        };
        read.or_else(|e| skip_damaged(row.id, e).map(|()| (Vec::new(), None)))
    }

    /// Whether calls of the session that ended later are indexed already.
    fn ended_before_its_session(&self, key: &str, ended: u64) -> Result<bool, StoreError> {
        let latest = match self.assembler.last_activity(key) {
            Some(latest) => Some(latest),
            None => self.store.session(key, 1)?.pop().map(|row| row.updated),
        };
        Ok(latest.is_some_and(|latest| latest.micros() > ended))
    }

    /// Puts sessions in order that have calls out of order and are due, or all of them.
    fn put_in_order(&mut self, all: bool) -> Result<(), StoreError> {
        while let Some(session) = self.late.due(all, Instant::now()) {
            let flows = match self.reassemble(&session) {
                Err(StoreError::Refused(why)) => {
                    tracing::error!("the calls of a session stay in the order in which they came: {why}");
                    let epoch = self.epoch;
                    self.reset(epoch);
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
    fn reassemble(&mut self, key: &str) -> Result<Option<usize>, StoreError> {
        self.save(IndexProgress::default())?;
        let ids = self.index.flows_of_session(key, MAX_REASSEMBLED_FLOWS + 1)?;
        if ids.len() > MAX_REASSEMBLED_FLOWS {
            return Ok(None);
        }
        let count = ids.len();
        let mut flows = Vec::new();
        for id in ids {
            if let Some(row) = self.row(id)? {
                let ended = row.started.micros().saturating_add(row.duration().unwrap_or_default());
                flows.push((ended, id, row));
            }
        }
        flows.sort_unstable_by_key(|(ended, id, _)| (*ended, *id));
        self.assembler.drop_session(key);
        let mut is_first = true;
        for (_, _, row) in flows {
            self.renew()?;
            let (calls, held) = self.read_calls(&row)?;
            for call in calls.into_iter().filter(|call| call.key() == key) {
                let Self { store, findings, assembler, pricing, .. } = self;
                let update = assembler.add_call(call, |key| match std::mem::take(&mut is_first) {
                    // What is stored of the session is replaced.
                    true => Ok(Vec::new()),
                    false => mapping::stored_session(*store, key, ConversationAssembler::MAX_THREADS),
                })?;
                mapping::add_findings(findings, update, &**pricing);
            }
            drop(held);
        }
        let in_order = vec![key.to_owned()];
        self.save(IndexProgress { reassembled: in_order.clone(), in_order, ..IndexProgress::default() })?;
        Ok(Some(count))
    }

    fn add_call(&mut self, call: ParsedCall) -> Result<(), StoreError> {
        let Self { store, index, findings, assembler, pricing, newly_late, .. } = self;
        let update = assembler.add_call(call, |key| {
            // The session is restored from the store, so pending results must be stored first.
            if !findings.is_empty() {
                let progress = IndexProgress { late: std::mem::take(newly_late), ..IndexProgress::default() };
                index.save(std::mem::take(findings), progress)?;
            }
            mapping::stored_session(*store, key, ConversationAssembler::MAX_THREADS)
        })?;
        mapping::add_findings(findings, update, &**pricing);
        Ok(())
    }

    /// Stores what was found, and how far the index is then.
    fn save(&mut self, mut progress: IndexProgress) -> Result<(), StoreError> {
        let findings = std::mem::take(&mut self.findings);
        progress.late = std::mem::take(&mut self.newly_late);
        if findings.is_empty() && progress == IndexProgress::default() {
            return Ok(());
        }
        self.index.save(findings, progress)
    }

    /// Reads the endpoint overrides now and then, and publishes them for requests in progress.
    fn follow_endpoints(&mut self, current: &ArcSwap<EndpointOverrides>) -> Result<(), StoreError> {
        if self.endpoints_read.is_some_and(|at| at.elapsed() < ENDPOINTS_INTERVAL) {
            return Ok(());
        }
        match EndpointOverrides::load(self.store) {
            Ok(endpoints) => {
                if **current.load() != endpoints {
                    current.store(Arc::new(endpoints.clone()));
                }
                self.endpoints = endpoints;
            }
            Err(e @ StoreError::Damaged { .. }) => tracing::warn!("the endpoint overrides are ignored: {e}"),
            Err(e) => return Err(e),
        }
        self.endpoints_read = Some(Instant::now());
        Ok(())
    }

    /// Deletes all conversations and waits until they are built again, by this process or by the one whose turn it is;
    /// returns the number of calls.
    ///
    /// # Errors
    /// The store failed, or nobody indexed for a minute.
    pub fn rebuild(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
        self.index.flush_recorded()?;
        self.store.forget_conversations()?;
        self.wait_until_indexed(progress)?;
        let ever = TotalsRange {
            since: Timestamp::from_micros(0),
            until: Timestamp::from_micros(i64::MAX as u64),
            span: i64::MAX as u64,
            offset: 0,
        };
        Ok(self.store.totals(ever)?.iter().map(|total| total.used.exchanges).sum())
    }

    /// Waits until everything recorded so far is indexed, and in order if this process indexes.
    ///
    /// # Errors
    /// As for [`rebuild`](Self::rebuild).
    pub fn flush(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        self.index.flush_recorded()?;
        self.wait_until_indexed(progress)
    }

    fn wait_until_indexed(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        if self.endpoints_read.is_none() {
            self.endpoints = EndpointOverrides::load(self.store)?;
        }
        let (wanted, mut done) = (self.index.lag()?.newest, 0);
        let (mut reached, mut since) = (0, Instant::now());
        loop {
            match self.step() {
                Ok(IndexStep::Indexed(calls)) => {
                    done += calls;
                    progress(done);
                }
                Ok(IndexStep::UpToDate) | Err(StoreError::Stale(_)) => {}
                Ok(IndexStep::Following) => std::thread::sleep(WAIT_STEP),
                Err(e) => return Err(e),
            }
            let indexed = self.index.lag()?.indexed;
            if indexed >= wanted {
                let done = self.put_in_order(true);
                if done.is_err() {
                    self.reset(None);
                }
                // Otherwise another process took over, and does that now.
                if !matches!(done, Err(StoreError::Stale(_))) {
                    return done;
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
}

/// A damaged record stays damaged: to stop there would stop all conversations.
fn skip_damaged(flow: FlowId, error: StoreError) -> Result<(), StoreError> {
    match error {
        e @ StoreError::Damaged { .. } => {
            tracing::warn!(%flow, "an LLM call is skipped: {e}");
            Ok(())
        }
        e => Err(e),
    }
}
