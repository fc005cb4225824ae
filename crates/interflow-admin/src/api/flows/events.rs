//! The event socket: batches of summaries of flows as they begin, change and end, filtered by a query.
//!
//! Nothing is sent before the query is known, from the URL or from the client's first message. The client numbers its
//! queries, and each message carries the `generation` of its query, so that rows of an earlier query cannot be mistaken
//! for rows of the current one.
//!
//! The backlog per client is bounded; dropped summaries are counted and reported. A client that does not read is
//! disconnected.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use interflow_query::{Query, Tristate};
use interflow_store::{FlowSummary, StoreEvent, Subscription, flow_matches};
use interflow_types::FlowId;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::api::blocking::run_query;
use crate::api::input::StrictQuery;
use crate::api::operations::handler::{Socket, SocketUpgrade};
use crate::error::{ApiError, ErrorDetails, Result};
use crate::identity::caller::Caller;
use crate::identity::enforce::check_query_rights;
use crate::state::SharedState;

const MAX_CLIENTS: usize = 64;
/// How long summaries are collected before they are sent.
const GATHER_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of flows in a client's backlog. Beyond it, the oldest is dropped and counted.
const MAX_WAITING: usize = 4000;
const BATCH: usize = 500;
/// Flows loaded from the store between two messages, if their summaries do not decide whether the query selects them.
const MAX_LOOKUPS: usize = 200;
/// Interval of WebSocket pings. A client that sends nothing, not even pongs, for three intervals is disconnected.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum size of a client message, in bytes.
const MAX_MESSAGE: usize = 64 << 10;

/// A connected client's slot, released when dropped.
struct ClientSlot(SharedState);

impl ClientSlot {
    fn acquire(state: &SharedState) -> Result<Self> {
        let slot = Self(Arc::clone(state));
        // Counted before the check, so that two clients cannot both take the last slot; the drop of `seat` undoes it.
        if state.viewers.open.fetch_add(1, Relaxed) >= MAX_CLIENTS { Err(ApiError::busy()) } else { Ok(slot) }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.viewers.open.fetch_sub(1, Relaxed);
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstQuery {
    /// If absent, nothing is sent until the client subscribes.
    query: Option<String>,
    /// The client's number of the query.
    #[serde(default)]
    generation: u64,
}

/// `GET /events?query=&generation=`
pub async fn events(
    state: SharedState,
    caller: Caller,
    StrictQuery(first): StrictQuery<FirstQuery>,
    SocketUpgrade(response, connection): SocketUpgrade,
) -> Result<Socket<ClientCommand, EventMessage>> {
    let slot = ClientSlot::acquire(&state)?;
    // Subscribed before the upgrade, so that no event between the two is missed.
    let events = state.records.store()?.subscribe();
    let limits = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    tokio::spawn(async move {
        // A client that left meanwhile.
        let Ok(connection) = connection.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, Some(limits)).await;
        let patience = slot.0.events_patience;
        let viewer = EventClient {
            socket,
            caller,
            patience,
            selection: None,
            paused: false,
            waiting: PendingEvents::default(),
            _seat: slot,
        };
        viewer.serve(events, first).await;
    });
    Ok(Socket(response, PhantomData))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum ClientCommand {
    /// Send only flows that the query selects from now on.
    Subscribe {
        query: String,
        #[serde(default)]
        generation: u64,
    },
    /// Whether to send nothing but pings.
    Pause(bool),
}

/// A message to the client. Those about a query carry the client's number of it.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum EventMessage {
    Hello {
        version: &'static str,
    },
    Subscribed {
        /// The query in its canonical form.
        query: String,
        generation: u64,
    },
    Paused {
        paused: bool,
    },
    /// Flows that began, changed or ended.
    Flows {
        flows: Vec<FlowSummary>,
        generation: u64,
    },
    /// The client was too slow: what it did not receive.
    Lag {
        /// Batches of the recorder, of an unknown number of flows.
        batches: u64,
        flows: u64,
        generation: u64,
    },
    Error {
        error: ErrorDetails,
        /// Absent unless a query was wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        generation: Option<u64>,
    },
}

#[derive(Default)]
struct PendingEvents {
    /// Flows that the query selects. A newer summary replaces an older one of the same flow, so a client that lags
    /// gets the latest state.
    ready: BTreeMap<FlowId, FlowSummary>,
    /// Flows whose summary does not decide whether the query selects them.
    unsure: BTreeMap<FlowId, FlowSummary>,
    /// Store batches and flows that this client was too slow for.
    missed: (u64, u64),
}

impl PendingEvents {
    fn add(&mut self, flow: &FlowSummary, filter: Option<&Query>) {
        // What waits of this flow is older, and may have been selected for what no longer holds.
        self.ready.remove(&flow.id);
        self.unsure.remove(&flow.id);
        let list = match filter.map_or(Tristate::Known(true), |q| q.evaluate(flow)) {
            Tristate::Known(true) => &mut self.ready,
            Tristate::Known(false) => return,
            Tristate::NotYet => &mut self.unsure,
        };
        list.insert(flow.id, flow.clone());
        if list.len() > MAX_WAITING {
            // Ids grow with time: the first is the oldest flow.
            list.pop_first();
            self.missed.1 += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.unsure.is_empty() && self.missed == (0, 0)
    }
}

struct EventSelection {
    /// `None` for all flows.
    query: Option<Query>,
    /// The client's number of this query.
    generation: u64,
}

struct EventClient {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    caller: Caller,
    patience: Duration,
    /// `None` until the client has sent a query; events are ignored until then.
    selection: Option<EventSelection>,
    paused: bool,
    waiting: PendingEvents,
    _seat: ClientSlot,
}

/// The client has gone away or was disconnected.
struct Disconnected;

impl EventClient {
    async fn serve(mut self, mut news: Subscription, first: FirstQuery) {
        let mut gathered = interval(GATHER_INTERVAL);
        // A delay shifts the following ticks instead of sending them in a burst.
        gathered.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ping = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        let mut heard = Instant::now();
        let mut going = self.send_event(&EventMessage::Hello { version: env!("CARGO_PKG_VERSION") }).await;
        if let (Ok(()), Some(query)) = (&going, first.query) {
            let answer = self.subscribe(&query, first.generation);
            going = self.send_event(&answer).await;
        }
        while going.is_ok() {
            going = tokio::select! {
                event = news.next() => match event {
                    Some(event) => { self.add_event(event); Ok(()) }
                    None => self.close(CloseCode::Away, "recording has ended").await,
                },
                // Kept back while paused: the backlog is bounded, and its latest state is sent afterwards.
                _ = gathered.tick(), if !self.paused && !self.waiting.is_empty() => self.send_pending().await,
                said = self.socket.next() => {
                    heard = Instant::now();
                    match said {
                        Some(Ok(Message::Text(text))) => self.handle_command(text.as_str()).await,
                        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Disconnected),
                        // Pongs and other frames only show that the client is there.
                        Some(Ok(_)) => Ok(()),
                    }
                }
                _ = ping.tick() => {
                    if heard.elapsed() > PING_INTERVAL * 3 {
                        self.close(CloseCode::Policy, "no answer to pings").await
                    } else {
                        self.send(Message::Ping(Bytes::new())).await
                    }
                }
            };
        }
    }

    fn add_event(&mut self, event: StoreEvent) {
        let Some(selection) = &self.selection else { return };
        match event {
            StoreEvent::Flows(flows) => flows.iter().for_each(|f| self.waiting.add(f, selection.query.as_ref())),
            StoreEvent::Lagged(batches) => self.waiting.missed.0 += batches,
        }
    }

    async fn handle_command(&mut self, text: &str) -> Result<(), Disconnected> {
        let answer = match serde_json::from_str::<ClientCommand>(text) {
            Ok(ClientCommand::Pause(paused)) => {
                self.paused = paused;
                EventMessage::Paused { paused }
            }
            Ok(ClientCommand::Subscribe { query, generation }) => self.subscribe(&query, generation),
            Err(e) => {
                let error = ApiError::bad_request(format!("invalid message: {e}"))
                    .remedy("say {\"subscribe\": {\"query\": \"…\"}} or {\"pause\": true}");
                EventMessage::Error { error: error.into_details(), generation: None }
            }
        };
        self.send_event(&answer).await
    }

    /// Starts a new selection; returns the reply.
    fn subscribe(&mut self, query: &str, generation: u64) -> EventMessage {
        if let Err(e) = check_query_rights(&self.caller, query) {
            return EventMessage::Error { error: e.into_details(), generation: Some(generation) };
        }
        match Query::parse(query) {
            Ok(query) => {
                let canonical = query.to_string();
                self.selection = Some(EventSelection { query: (!query.is_all()).then_some(query), generation });
                // Rows of the old query must not appear as results of the new one.
                self.waiting = PendingEvents::default();
                EventMessage::Subscribed { query: canonical, generation }
            }
            Err(e) => EventMessage::Error { error: ApiError::from(e).into_details(), generation: Some(generation) },
        }
    }

    async fn send_pending(&mut self) -> Result<(), Disconnected> {
        // A token may be revoked while the socket is open; nothing is sent from then on.
        if !self.caller.is_active() {
            return self.close(CloseCode::Policy, "the token was revoked, or the session has ended").await;
        }
        self.resolve_uncertain().await;
        let Some(generation) = self.selection.as_ref().map(|s| s.generation) else { return Ok(()) };
        let (batches, flows) = std::mem::take(&mut self.waiting.missed);
        // Told before the flows, so that the client knows of the gap when it shows them.
        if batches + flows > 0 {
            self._seat.0.viewers.passed_by.fetch_add(batches + flows, Relaxed);
            self.send_event(&EventMessage::Lag { batches, flows, generation }).await?;
        }
        let ready: Vec<FlowSummary> = std::mem::take(&mut self.waiting.ready).into_values().collect();
        for batch in ready.chunks(BATCH) {
            self.send_event(&EventMessage::Flows { flows: batch.to_vec(), generation }).await?;
        }
        Ok(())
    }

    /// Loads flows whose summaries are insufficient for the query: it concerns headers, bodies or certificates.
    async fn resolve_uncertain(&mut self) {
        let query = self.selection.as_ref().and_then(|s| s.query.clone());
        let Some(query) = query.filter(|_| !self.waiting.unsure.is_empty()) else { return };
        // Bounded, because each one costs a read of the store; the rest waits for the next tick.
        let mut requests = Vec::new();
        while requests.len() < MAX_LOOKUPS
            && let Some((_, flow)) = self.waiting.unsure.pop_first()
        {
            requests.push(flow);
        }
        let selected = run_query(&self._seat.0, move |store, _| {
            // A flow that cannot be read is left out, for example because it was deleted.
            requests.retain(|f| store.get(f.id).is_ok_and(|row| flow_matches(store, &row, &query)));
            Ok(requests)
        });
        if let Ok(selected) = selected.await {
            self.waiting.ready.extend(selected.into_iter().map(|f| (f.id, f)));
        }
    }

    async fn send_event(&mut self, event: &EventMessage) -> Result<(), Disconnected> {
        let text = serde_json::to_string(event).expect("an event is plain data");
        self.send(Message::text(text)).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Disconnected> {
        match timeout(self.patience, self.socket.send(message)).await {
            Ok(sent) => sent.map_err(|_| Disconnected),
            Err(_) => {
                self._seat.0.viewers.cut.fetch_add(1, Relaxed);
                tracing::info!(patience = ?self.patience, "event client timed out: it reads nothing, and was disconnected");
                Err(Disconnected)
            }
        }
    }

    async fn close(&mut self, code: CloseCode, reason: &'static str) -> Result<(), Disconnected> {
        let frame = CloseFrame { code, reason: reason.into() };
        // Whether the frame arrives does not matter: the connection is closed in any case.
        let _ = self.send(Message::Close(Some(frame))).await;
        Err(Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_store::FlowRecord;
    use interflow_types::{EntryKind, Scheme, Timestamp};

    fn summary(host: &str) -> FlowSummary {
        let at = Timestamp::now();
        let authority = format!("{host}:80").parse().unwrap();
        FlowRecord::new(FlowId::new(at), at, EntryKind::Absolute, Scheme::Http, authority).summary(at)
    }

    #[test]
    fn pending_events_are_bounded_and_dropped_ones_counted() {
        let mut waiting = PendingEvents::default();
        for _ in 0..MAX_WAITING + 7 {
            waiting.add(&summary("a.test"), None);
        }
        assert_eq!((waiting.ready.len(), waiting.missed), (MAX_WAITING, (0, 7)));
    }

    #[test]
    fn a_flow_that_no_longer_matches_does_not_wait() {
        for query in ["is:open", "-status:500"] {
            let query = Query::parse(query).unwrap();
            let (mut waiting, flow) = (PendingEvents::default(), summary("a.test"));
            waiting.add(&flow, Some(&query));
            assert_eq!(waiting.ready.len(), 1);
            let state = interflow_store::FlowState::Complete;
            waiting.add(&FlowSummary { state, status: Some(500), ..flow }, Some(&query));
            assert!(waiting.is_empty());
        }
    }

    #[test]
    fn latest_summary_of_a_flow_replaces_the_pending_one() {
        let (mut waiting, flow) = (PendingEvents::default(), summary("a.test"));
        waiting.add(&flow, None);
        waiting.add(&FlowSummary { status: Some(204), ..flow }, None);
        assert_eq!(waiting.ready.into_values().map(|f| f.status).collect::<Vec<_>>(), [Some(204)]);
    }

    #[test]
    fn filter_sorts_events_into_matching_undecided_and_rejected() {
        let query = Query::parse("host:a.test").unwrap();
        let mut waiting = PendingEvents::default();
        waiting.add(&summary("a.test"), Some(&query));
        waiting.add(&summary("b.test"), Some(&query));
        let deep = Query::parse("header:x-trace").unwrap();
        waiting.add(&summary("a.test"), Some(&deep));
        assert_eq!((waiting.ready.len(), waiting.unsure.len()), (1, 1));
    }
}
