//! Conversations as flows end: one thread that hears of them, reads each exchange once, and keeps what the assembler says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use interflow_llm::conversation::{ConversationAssembler, ParsedCall};
use interflow_query::Query;
use interflow_store::{
    ConversationUpdate, FlowFilterFn, FlowKind, FlowRow, FlowState, FlowStore, FlowSummary, ListOptions, ListOrder,
    StoreError, StoreEvent,
};
use interflow_types::{FlowId, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::endpoints::EndpointOverrides;
use super::from_recording::{self, WebSocketCallReader};
use super::mapping::{self, CallPricing};

/// Flows looked through at a time.
const PAGE_SIZE: usize = 500;
/// Exchanges that are kept at once.
const BATCH_SIZE: usize = 64;
/// Flows looked at that were recorded while the clock was set back.
const MAX_CLOCK_SKEW_FLOWS: usize = 10_000;
/// How far, in microseconds, a flow may have begun before one that was recorded earlier: flows get their rows when they end, or
/// after a moment. More than that means that the clock was set back.
const CLOCK_SKEW_MICROS: u64 = 2_000_000;
/// How long to wait after the store refused.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// What the thread is asked.
enum IndexerCommand {
    /// Put everything together anew.
    Rebuild(oneshot::Sender<Result<u64, StoreError>>),
    /// Read by another word of the owner's from now on.
    SetEndpoints(EndpointOverrides, oneshot::Sender<Result<u64, StoreError>>),
    /// Read everything that is recorded by now.
    Flush(oneshot::Sender<Result<u64, StoreError>>),
}

/// The way to the thread that puts conversations together. When the last clone is dropped, the thread ends.
#[derive(Clone)]
pub struct IndexerHandle {
    wishes: mpsc::Sender<IndexerCommand>,
    endpoints: Arc<ArcSwap<EndpointOverrides>>,
}

impl IndexerHandle {
    /// Starts the thread over a store that this process writes.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(store: Arc<dyn FlowStore>, pricing: Arc<CallPricing>) -> std::io::Result<Self> {
        let (wishes, mut asked) = mpsc::channel::<IndexerCommand>(4);
        // What is wrong with them is said when the thread reads them.
        let endpoints = Arc::new(ArcSwap::from_pointee(EndpointOverrides::load(&*store).unwrap_or_default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("conversations".into()).spawn(move || {
            runtime.block_on(async move {
                // Subscribed before looking back, so that nothing falls between.
                let mut news = store.subscribe_to(flow_filter());
                let mut keeper = ConversationIndexer::new(&*store, pricing);
                let mut behind = true;
                loop {
                    if behind {
                        match keeper.catch_up(&mut |_| {}) {
                            Ok(_) => behind = false,
                            Err(StoreError::Closed | StoreError::ReadOnly) => return,
                            Err(e) => {
                                tracing::warn!("conversations wait: {e}");
                                tokio::time::sleep(RETRY_DELAY).await;
                                continue;
                            }
                        }
                    }
                    tokio::select! {
                        event = news.next() => match event {
                            Some(StoreEvent::Flows(flows)) => behind = keeper.on_flows(&flows).is_err(),
                            Some(StoreEvent::Lagged(_)) => behind = true,
                            None => return,
                        },
                        wish = asked.recv() => match wish {
                            Some(IndexerCommand::Rebuild(reply)) => drop(reply.send(keeper.rebuild(&mut |_| {}))),
                            Some(IndexerCommand::SetEndpoints(endpoints, reply)) => drop(reply.send(keeper.set_endpoints(endpoints))),
                            Some(IndexerCommand::Flush(reply)) => drop(reply.send(keeper.catch_up(&mut |_| {}))),
                            None => return,
                        },
                    }
                }
            });
        })?;
        Ok(Self { wishes, endpoints })
    }

    /// Forgets all conversations and puts them together anew; how many exchanges there were.
    ///
    /// # Errors
    /// The store refused, or the thread has ended.
    pub async fn rebuild(&self) -> Result<u64, StoreError> {
        self.send_command(IndexerCommand::Rebuild).await
    }

    /// Waits until everything that is recorded by now has been read.
    ///
    /// # Errors
    /// The store refused, or the thread has ended.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.send_command(IndexerCommand::Flush).await.map(drop)
    }

    /// Keeps what the owner says of endpoints, and reads what ends from now on by it; [`rebuild`](Self::rebuild) reads the
    /// rest anew.
    ///
    /// # Errors
    /// The store refused, or the thread has ended.
    pub async fn set_endpoints(&self, endpoints: EndpointOverrides) -> Result<(), StoreError> {
        let kept = Arc::new(endpoints.clone());
        self.send_command(|reply| IndexerCommand::SetEndpoints(endpoints, reply)).await?;
        self.endpoints.store(kept);
        Ok(())
    }

    /// What the operator says of endpoints, as it is now: what a request is for that is under way.
    pub fn endpoints(&self) -> Arc<ArcSwap<EndpointOverrides>> {
        Arc::clone(&self.endpoints)
    }

    async fn send_command(
        &self,
        wish: impl FnOnce(oneshot::Sender<Result<u64, StoreError>>) -> IndexerCommand,
    ) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.wishes.send(wish(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

/// Shows exchanges to the assembler and keeps what it finds.
pub struct ConversationIndexer<'s> {
    store: &'s dyn FlowStore,
    pricing: Arc<CallPricing>,
    endpoints: EndpointOverrides,
    assembler: ConversationAssembler,
    findings: ConversationUpdate,
    /// Flows that may hold an exchange and still run; WebSockets with what has been read of them.
    running: BTreeMap<FlowId, Option<WebSocketCallReader>>,
    newest: Option<FlowId>,
    /// `newest` when the cursor was kept the last time.
    marked: Option<FlowId>,
}

/// Lets by what asks with a body, and WebSockets: a flow that is either stays so, and no other may hold an exchange. And once
/// a minute any flow: the cursor has to follow.
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
    /// One over a store that is open for writing.
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

    /// Forgets all conversations and puts them together anew; how many exchanges there were. `progress` is told of each.
    ///
    /// # Errors
    /// The store refused.
    pub fn rebuild(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
        self.store.forget_conversations()?;
        *self = Self::new(self.store, Arc::clone(&self.pricing));
        self.catch_up(progress)
    }

    /// Reads every exchange behind the cursor that was not read before, in the order in which they ended.
    ///
    /// # Errors
    /// The store refused; what was found until then is kept.
    pub fn catch_up(&mut self, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
        self.endpoints = EndpointOverrides::load(self.store).unwrap_or_else(|e| {
            tracing::warn!("what was said of endpoints does not count: {e}");
            EndpointOverrides::default()
        });
        self.assembler = ConversationAssembler::default();
        self.findings = ConversationUpdate::default();
        self.running.clear();
        let mut ended: Vec<CompletedFlow> = Vec::new();
        let mut after = self.store.cursor()?;
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
        self.save_findings()?;
        Ok(done)
    }

    /// Notes a recorded flow that may hold an exchange.
    fn note_recorded_flow(&mut self, row: &FlowRow, ended: &mut Vec<CompletedFlow>) -> Result<(), StoreError> {
        let summary = row.summary(Timestamp::now());
        if !from_recording::may_hold(&summary, &self.endpoints) {
        } else if row.state == FlowState::Open {
            self.running.insert(row.id, None);
        } else {
            let place = if row.imported { None } else { self.store.recorded_position(row.id)? };
            ended.push(CompletedFlow { id: row.id, started: row.started.micros(), duration: summary.duration, place });
        }
        Ok(())
    }

    fn set_endpoints(&mut self, endpoints: EndpointOverrides) -> Result<u64, StoreError> {
        endpoints.save(self.store)?;
        self.endpoints = endpoints;
        Ok(0)
    }

    /// Hears of flows that began, went on or ended.
    ///
    /// # Errors
    /// The store refused: it is time to catch up.
    pub fn on_flows(&mut self, flows: &[FlowSummary]) -> Result<(), StoreError> {
        let mut ended: Vec<(u64, FlowId)> = Vec::new();
        for flow in flows {
            self.newest = self.newest.max(Some(flow.id));
            if !from_recording::may_hold(flow, &self.endpoints) {
                self.running.remove(&flow.id);
            } else if flow.state != FlowState::Open {
                ended.push((flow.started.micros() + flow.duration, flow.id));
            } else if flow.kind == FlowKind::WebSocket {
                self.read_websocket(flow.id)?;
            } else {
                self.running.entry(flow.id).or_default();
            }
        }
        ended.sort_unstable();
        for (_, id) in ended {
            self.on_flow_completed(id)?;
            self.running.remove(&id);
        }
        // The cursor alone is worth a write only now and then.
        if !self.findings.is_empty() || self.marked.is_none_or(|m| self.newest.is_some_and(|n| is_far_apart(m, n))) {
            self.save_findings()?;
        }
        Ok(())
    }

    /// Reads what a flow that has ended holds; how many exchanges.
    fn on_flow_completed(&mut self, id: FlowId) -> Result<u64, StoreError> {
        let row = match self.store.get(id) {
            Ok(row) => row,
            Err(StoreError::NotFound(_)) => return Ok(0),
            Err(e) => return Err(e),
        };
        // What the exchange takes counts until the assembler has taken it in.
        let mut held = None;
        let found = match row.kind {
            FlowKind::WebSocket => self.finish_websocket(&row),
            _ if !self.store.exchanges_in(id)?.is_empty() => return Ok(0),
            _ => from_recording::read_call(self.store, &row, &self.endpoints).map(|read| {
                let (exchange, reserved) = read.unzip();
                held = reserved;
                exchange.into_iter().collect()
            }),
        };
        let found = match found {
            Ok(found) => found,
            Err(e @ StoreError::Damaged { .. }) => {
                tracing::warn!(flow = %id, "an exchange is left out: {e}");
                return Ok(0);
            }
            Err(e) => return Err(e),
        };
        let n = found.len() as u64;
        found.into_iter().try_for_each(|e| self.add_call(e))?;
        drop(held);
        Ok(n)
    }

    /// What came over a WebSocket since it was last looked at.
    fn read_websocket(&mut self, id: FlowId) -> Result<(), StoreError> {
        let row = self.store.get(id)?;
        let mut socket = match self.running.remove(&id).flatten() {
            Some(socket) => socket,
            None => self.resume_websocket(id)?,
        };
        let found = socket.read(self.store, &row, false)?;
        self.running.insert(id, Some(socket));
        found.into_iter().try_for_each(|e| self.add_call(e))
    }

    fn finish_websocket(&mut self, row: &FlowRow) -> Result<Vec<ParsedCall>, StoreError> {
        let mut socket = match self.running.remove(&row.id).flatten() {
            Some(socket) => socket,
            None => self.resume_websocket(row.id)?,
        };
        socket.read(self.store, row, true)
    }

    /// A WebSocket some of whose exchanges may have been kept before: reading goes on behind the last one.
    fn resume_websocket(&self, id: FlowId) -> Result<WebSocketCallReader, StoreError> {
        let kept = self.store.exchanges_in(id)?;
        Ok(WebSocketCallReader::starting_at(kept.iter().map(|e| e.part).max().unwrap_or_default()))
    }

    fn add_call(&mut self, exchange: ParsedCall) -> Result<(), StoreError> {
        let Self { store, findings, assembler, pricing, .. } = self;
        let found = assembler.add_call(exchange, |key| {
            // What the session is restored from must be there.
            if !findings.is_empty() {
                store.save_update(std::mem::take(findings))?;
            }
            mapping::stored_session(*store, key, ConversationAssembler::MAX_THREADS)
        })?;
        mapping::add_findings(findings, found, &**pricing);
        if findings.exchanges.len() >= BATCH_SIZE {
            store.save_update(std::mem::take(findings))?;
        }
        Ok(())
    }

    /// Keeps what was found, and how far everything has been looked at.
    fn save_findings(&mut self) -> Result<(), StoreError> {
        let mut findings = std::mem::take(&mut self.findings);
        let oldest = self.running.keys().next().map(|id| FlowId::from_u128(id.to_u128().saturating_sub(1)));
        findings.cursor = oldest.into_iter().chain(self.newest).min();
        self.store.save_update(findings)?;
        self.marked = self.newest;
        Ok(())
    }
}

/// A flow that has ended.
struct CompletedFlow {
    id: FlowId,
    /// In microseconds since the Unix epoch.
    started: u64,
    /// In microseconds.
    duration: u64,
    /// Its place in the order in which flows were recorded; `None` for one that was imported.
    place: Option<u64>,
}

/// Flows in the order in which they ended. Where the clock was set back between two that were recorded one after the other, the
/// later one and those behind it count from where the earlier ones ended: what went on from an answer comes behind it.
fn order_by_end(mut flows: Vec<CompletedFlow>) -> Vec<FlowId> {
    flows.sort_unstable_by_key(|f| f.place);
    let (mut latest, mut over, mut behind) = (0_u64, 0_u64, 0_u64);
    for flow in flows.iter_mut().filter(|f| f.place.is_some()) {
        let began = flow.started.saturating_add(behind);
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

/// More than a minute apart.
const fn is_far_apart(a: FlowId, b: FlowId) -> bool {
    b.unix_millis().saturating_sub(a.unix_millis()) > 60_000
}
