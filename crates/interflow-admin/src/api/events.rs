//! The event socket: summaries of flows as they begin, go on and end, in batches, filtered by a query.
//!
//! Nothing is sent before the query is known, from the address or from the client's first message. The client numbers its
//! queries, and every message says by its `generation` which one it answers, so that no row of an earlier query can be taken
//! for one of the present query.
//!
//! Every client has a bounded store of what it has not been sent; what does not fit is counted and told. A client that
//! takes nothing is cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use interflow_flow::FlowId;
use interflow_query::{Query, Truth};
use interflow_record::{Event, FlowSummary, Subscription};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};

use super::error::{ApiError, Result};
use super::input::Params;
use super::subject::Whole;
use super::work::ask;
use crate::server::AdminState;

/// Clients at a time.
const MAX_CLIENTS: usize = 64;
/// How long summaries are gathered before they are sent.
const GATHER: Duration = Duration::from_millis(100);
/// Flows that wait for a client.
const MAX_WAITING: usize = 4000;
/// Flows in one message.
const BATCH: usize = 500;
/// Flows looked up in the store between two messages, when their summaries do not say whether the query selects them.
const LOOKUPS: usize = 200;
/// How often a client is asked whether it is there.
const PING: Duration = Duration::from_secs(20);
/// The longest message that a client may send, in bytes.
const MAX_MESSAGE: usize = 64 << 10;

/// Who is connected, and what became of those who were.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    open: AtomicUsize,
    cut: AtomicU64,
    passed_by: AtomicU64,
}

impl Viewers {
    /// Connected now.
    pub(crate) fn count(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Cut because they took nothing.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Relaxed)
    }

    /// Summaries that a client was too slow for.
    pub(crate) fn passed_by(&self) -> u64 {
        self.passed_by.load(Relaxed)
    }
}

/// A place among the viewers, given back when dropped.
struct Seat(Arc<AdminState>);

impl Seat {
    fn take(state: &Arc<AdminState>) -> Result<Self> {
        let seat = Self(Arc::clone(state));
        if state.viewers.open.fetch_add(1, Relaxed) >= MAX_CLIENTS { Err(ApiError::busy()) } else { Ok(seat) }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.viewers.open.fetch_sub(1, Relaxed);
    }
}

/// The first query, in the address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstQuery {
    /// Left out, the first message names it.
    query: Option<String>,
    #[serde(default)]
    generation: u64,
}

/// `GET /events?query=&generation=`
pub(crate) async fn events(
    State(state): State<Arc<AdminState>>,
    Params(first): Params<FirstQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let upgrade = upgrade.map_err(|e| {
        ApiError::new(StatusCode::UPGRADE_REQUIRED, "websocket", e.body_text()).remedy("open it as a WebSocket")
    })?;
    let seat = Seat::take(&state)?;
    let news = state.store()?.subscribe();
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let patience = seat.0.events_patience;
        let viewer =
            Viewer { socket, patience, selection: None, paused: false, waiting: Waiting::default(), _seat: seat };
        viewer.serve(news, first).await;
    }))
}

/// What a client may say.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Wish {
    /// From now on only flows that the query selects.
    Subscribe {
        query: String,
        #[serde(default)]
        generation: u64,
    },
    /// Nothing until `resume`, but for the pings.
    Pause(bool),
}

/// What a client has not been sent yet.
#[derive(Default)]
struct Waiting {
    /// Selected for certain.
    ready: BTreeMap<FlowId, FlowSummary>,
    /// The summary does not say whether the query selects them.
    unsure: BTreeMap<FlowId, FlowSummary>,
    /// Batches of the store, and flows, that this client was too slow for.
    missed: (u64, u64),
}

impl Waiting {
    fn add(&mut self, flow: &FlowSummary, filter: Option<&Query>) {
        let list = match filter.map_or(Truth::Known(true), |q| q.evaluate(flow)) {
            Truth::Known(true) => &mut self.ready,
            Truth::Known(false) => return,
            Truth::NotYet => &mut self.unsure,
        };
        list.insert(flow.id, flow.clone());
        if list.len() > MAX_WAITING {
            list.pop_first();
            self.missed.1 += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.unsure.is_empty() && self.missed == (0, 0)
    }
}

/// What a client wants to be told of.
struct Selection {
    /// `None` for all flows.
    query: Option<Query>,
    /// The client's number of this query.
    generation: u64,
}

/// One client.
struct Viewer {
    socket: WebSocket,
    patience: Duration,
    /// `None` until the client has named a query.
    selection: Option<Selection>,
    paused: bool,
    waiting: Waiting,
    _seat: Seat,
}

/// The client is gone, or has been cut.
struct Gone;

impl Viewer {
    async fn serve(mut self, mut news: Subscription, first: FirstQuery) {
        let mut gathered = interval(GATHER);
        gathered.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ping = interval_at(Instant::now() + PING, PING);
        let mut heard = Instant::now();
        let hello = json!({"type": "hello", "version": env!("CARGO_PKG_VERSION")});
        let mut going = self.say(&hello).await;
        if let (Ok(()), Some(query)) = (&going, first.query) {
            let answer = self.subscribe(&query, first.generation);
            going = self.say(&answer).await;
        }
        while going.is_ok() {
            going = tokio::select! {
                event = news.next() => match event {
                    Some(event) => { self.take(event); Ok(()) }
                    None => self.close(close_code::AWAY, "recording has ended").await,
                },
                _ = gathered.tick(), if !self.paused && !self.waiting.is_empty() => self.tell().await,
                said = self.socket.recv() => {
                    heard = Instant::now();
                    match said {
                        Some(Ok(Message::Text(text))) => self.obey(text.as_str()).await,
                        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Gone),
                        Some(Ok(_)) => Ok(()),
                    }
                }
                _ = ping.tick() => {
                    if heard.elapsed() > PING * 3 {
                        self.close(close_code::POLICY, "no answer to pings").await
                    } else {
                        self.send(Message::Ping(Bytes::new())).await
                    }
                }
            };
        }
    }

    fn take(&mut self, event: Event) {
        let Some(selection) = &self.selection else { return };
        match event {
            Event::Flows(flows) => flows.iter().for_each(|f| self.waiting.add(f, selection.query.as_ref())),
            Event::Lagged(batches) => self.waiting.missed.0 += batches,
        }
    }

    async fn obey(&mut self, text: &str) -> Result<(), Gone> {
        let answer = match serde_json::from_str::<Wish>(text) {
            Ok(Wish::Pause(paused)) => {
                self.paused = paused;
                json!({"type": "paused", "paused": paused})
            }
            Ok(Wish::Subscribe { query, generation }) => self.subscribe(&query, generation),
            Err(e) => told(
                &ApiError::bad_request(format!("this is no wish: {e}"))
                    .remedy("say {\"subscribe\": {\"query\": \"…\"}} or {\"pause\": true}"),
            ),
        };
        self.say(&answer).await
    }

    /// Selects flows from now on; the answer.
    fn subscribe(&mut self, query: &str, generation: u64) -> Value {
        match Query::parse(query) {
            Ok(query) => {
                let text = query.to_string();
                self.selection = Some(Selection { query: (!query.is_all()).then_some(query), generation });
                self.waiting = Waiting::default();
                json!({"type": "subscribed", "query": text, "generation": generation})
            }
            Err(e) => {
                let mut answer = told(&e.into());
                answer["generation"] = generation.into();
                answer
            }
        }
    }

    /// Sends what has been gathered.
    async fn tell(&mut self) -> Result<(), Gone> {
        self.look_up().await;
        let Some(generation) = self.selection.as_ref().map(|s| s.generation) else { return Ok(()) };
        let (batches, flows) = std::mem::take(&mut self.waiting.missed);
        if batches + flows > 0 {
            self._seat.0.viewers.passed_by.fetch_add(batches + flows, Relaxed);
            self.say(&json!({"type": "lag", "batches": batches, "flows": flows, "generation": generation})).await?;
        }
        let ready: Vec<FlowSummary> = std::mem::take(&mut self.waiting.ready).into_values().collect();
        for batch in ready.chunks(BATCH) {
            self.say(&json!({"type": "flows", "flows": batch, "generation": generation})).await?;
        }
        Ok(())
    }

    /// Asks the store about flows whose summaries do not say enough: headers, bodies, certificates.
    async fn look_up(&mut self) {
        let query = self.selection.as_ref().and_then(|s| s.query.clone());
        let Some(query) = query.filter(|_| !self.waiting.unsure.is_empty()) else { return };
        let mut asked = Vec::new();
        while asked.len() < LOOKUPS
            && let Some((_, flow)) = self.waiting.unsure.pop_first()
        {
            asked.push(flow);
        }
        let selected = ask(&self._seat.0, move |store, _| {
            asked.retain(|f| store.get(f.id).is_ok_and(|row| query.matches(&Whole { row: &row, store })));
            Ok(asked)
        });
        if let Ok(selected) = selected.await {
            self.waiting.ready.extend(selected.into_iter().map(|f| (f.id, f)));
        }
    }

    async fn say(&mut self, value: &Value) -> Result<(), Gone> {
        self.send(Message::text(value.to_string())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        match timeout(self.patience, self.socket.send(message)).await {
            Ok(sent) => sent.map_err(|_| Gone),
            Err(_) => {
                self._seat.0.viewers.cut.fetch_add(1, Relaxed);
                tracing::info!("admin: an event client took nothing for {:?} and was cut", self.patience);
                Err(Gone)
            }
        }
    }

    async fn close(&mut self, code: u16, reason: &'static str) -> Result<(), Gone> {
        let frame = CloseFrame { code, reason: reason.into() };
        let _ = self.send(Message::Close(Some(frame))).await;
        Err(Gone)
    }
}

fn told(error: &ApiError) -> Value {
    let mut value = error.to_json();
    value["type"] = "error".into();
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_flow::{Scheme, Timestamp, Transport};
    use interflow_record::FlowRow;

    fn summary(host: &str) -> FlowSummary {
        let at = Timestamp::now();
        let authority = format!("{host}:80").parse().unwrap();
        FlowRow::new(FlowId::new(at), at, Transport::Absolute, Scheme::Http, authority).summary(at)
    }

    #[test]
    fn what_waits_is_bounded_and_the_rest_is_counted() {
        let mut waiting = Waiting::default();
        for _ in 0..MAX_WAITING + 7 {
            waiting.add(&summary("a.test"), None);
        }
        assert_eq!((waiting.ready.len(), waiting.missed), (MAX_WAITING, (0, 7)));
    }

    #[test]
    fn the_latest_word_on_a_flow_replaces_the_earlier() {
        let (mut waiting, flow) = (Waiting::default(), summary("a.test"));
        waiting.add(&flow, None);
        waiting.add(&FlowSummary { status: Some(204), ..flow }, None);
        assert_eq!(waiting.ready.into_values().map(|f| f.status).collect::<Vec<_>>(), [Some(204)]);
    }

    #[test]
    fn a_filter_sorts_into_selected_unsure_and_neither() {
        let query = Query::parse("host:a.test").unwrap();
        let mut waiting = Waiting::default();
        waiting.add(&summary("a.test"), Some(&query));
        waiting.add(&summary("b.test"), Some(&query));
        let deep = Query::parse("header:x-trace").unwrap();
        waiting.add(&summary("a.test"), Some(&deep));
        assert_eq!((waiting.ready.len(), waiting.unsure.len()), (1, 1));
    }
}
