//! `/ws`: live events, and commands.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use interflow_approvals::NotifierGuard;
use interflow_approvals::config::ApprovalAction;
use interflow_store::{ConversationOptions, FlowKind, FlowState, FlowSummary, StoreEvent, Subscription};
use interflow_types::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::pending::DecisionInput;
use super::{GreyproxyApiState, GreyproxyState, json_format, pending};
use interflow_admin::run_query;

/// Timeout for writing one message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval for sessions and conversations.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of a client message, in bytes.
const MAX_MESSAGE: usize = 64 << 10;

/// `GET /ws`
pub(super) async fn socket(State(grey): GreyproxyApiState, upgrade: WebSocketUpgrade) -> Response {
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    upgrade.on_upgrade(|socket| async move {
        let mut client = GreyproxyClient {
            waiting: pending_requests(&grey),
            used: secret_uses(&grey),
            answered: grey.approvals.history().first().map_or(0, |a| a.at.micros()),
            updated: Timestamp::now().micros(),
            grey,
            socket,
            wanted: None,
            claim: None,
            moved: false,
            told: HashSet::new(),
        };
        let _ = client.serve().await;
    })
}

/// The client has gone away or does not read.
struct GreyproxyDisconnected;

struct GreyproxyClient {
    grey: Arc<GreyproxyState>,
    socket: WebSocket,
    /// The event types it subscribed to; all if it named none.
    wanted: Option<HashSet<String>>,
    claim: Option<NotifierGuard>,
    /// Pending requests, with the number of flows waiting, as last sent.
    waiting: BTreeMap<u64, (usize, Value)>,
    /// How often each session's credentials were injected.
    used: BTreeMap<String, u64>,
    /// The latest decision it was notified of.
    answered: u64,
    /// The latest conversation it was notified of.
    updated: u64,
    /// Whether flows have ended since conversations were last polled.
    moved: bool,
    /// Flows it was recently notified of.
    told: HashSet<String>,
}

#[derive(Deserialize)]
struct GreyproxyCommand {
    command: String,
    #[serde(default)]
    pending_id: u64,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    duration: String,
    #[serde(default)]
    notes: Option<String>,
    #[serde(default)]
    event_type: String,
}

fn now() -> String {
    json_format::format_micros(Timestamp::now().micros())
}

fn pending_requests(grey: &GreyproxyState) -> BTreeMap<u64, (usize, Value)> {
    grey.approvals.pending_requests().iter().map(|h| (h.id, (h.waiting, json_format::pending(h)))).collect()
}

fn secret_uses(grey: &GreyproxyState) -> BTreeMap<String, u64> {
    grey.approvals.sessions().into_iter().map(|s| (s.id, s.secrets.iter().map(|s| s.used).sum())).collect()
}

/// The next event of the store; never resolves if nothing is recorded.
async fn next_flow_event(flows: &mut Option<Subscription>) -> Option<StoreEvent> {
    match flows {
        Some(flows) => flows.next().await,
        None => std::future::pending().await,
    }
}

impl GreyproxyClient {
    async fn serve(&mut self) -> Result<(), GreyproxyDisconnected> {
        let mut news = self.grey.news.subscribe();
        let mut flows = self.grey.admin.store().ok().map(|s| s.subscribe());
        let mut look = interval(POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let approvals = Arc::clone(&self.grey.approvals);
        let mut version = approvals.version();
        self.send(
            &json!({"type": "connected", "message": "Connected to Interflow's event stream", "timestamp": now()}),
        )
        .await?;
        loop {
            tokio::select! {
                said = self.socket.recv() => match said {
                    Some(Ok(Message::Text(text))) => self.handle_command(text.as_str()).await?,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(GreyproxyDisconnected),
                    Some(Ok(_)) => {}
                },
                () = approvals.changed_since(version) => {
                    version = approvals.version();
                    self.approvals().await?;
                }
                told = news.recv() => match told {
                    Ok(message) => self.event(&message).await?,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Ok(()),
                },
                event = next_flow_event(&mut flows) => match event {
                    Some(StoreEvent::Flows(batch)) => self.flows(&batch).await?,
                    Some(StoreEvent::Lagged(_)) => {}
                    None => flows = None,
                },
                _ = look.tick() => self.poll_changes().await?,
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), GreyproxyDisconnected> {
        let sent = timeout(WRITE_TIMEOUT, self.socket.send(Message::Text(message.to_string().into()))).await;
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(GreyproxyDisconnected) }
    }

    /// Sends an event if the client subscribed to it.
    async fn event(&mut self, message: &Value) -> Result<(), GreyproxyDisconnected> {
        let kind = message["type"].as_str().unwrap_or_default();
        if kind == "session.deleted"
            && let Some(id) = message["data"].as_str()
        {
            self.used.remove(id);
        }
        if self.wanted.as_ref().is_some_and(|w| !w.contains(kind)) {
            return Ok(());
        }
        self.send(message).await
    }

    async fn send_event(&mut self, kind: &str, data: Value) -> Result<(), GreyproxyDisconnected> {
        self.event(&json!({"type": kind, "data": data})).await
    }

    /// Sends changes of the pending requests.
    async fn approvals(&mut self) -> Result<(), GreyproxyDisconnected> {
        let current = pending_requests(&self.grey);
        for (id, (count, shape)) in &current {
            let before = self.waiting.get(id).map(|(n, _)| *n);
            match before {
                None => self.send_event("pending_request.created", shape.clone()).await?,
                Some(n) if n != *count => self.send_event("pending_request.updated", shape.clone()).await?,
                Some(_) => continue,
            }
            self.send_waiter_count(shape, before.unwrap_or(0), *count).await?;
        }
        let rules = self.grey.approvals.rules();
        let history = self.grey.approvals.history();
        for (id, (count, shape)) in std::mem::replace(&mut self.waiting, current) {
            if self.waiting.contains_key(&id) {
                continue;
            }
            let answered = history.iter().find(|a| a.held.id == id);
            let rule = answered.and_then(|a| rules.iter().find(|r| r.id == a.by)).map(json_format::rule);
            let allowed = answered.is_some_and(|a| a.action == Some(ApprovalAction::Allow));
            let kind = if allowed { "pending_request.allowed" } else { "pending_request.dismissed" };
            self.send_event(kind, json!({"pending_id": id, "rule": rule})).await?;
            self.send_waiter_count(&shape, count, 0).await?;
        }
        self.answered = history.first().map_or(self.answered, |a| a.at.micros());
        Ok(())
    }

    async fn send_waiter_count(
        &mut self,
        shape: &Value,
        before: usize,
        after: usize,
    ) -> Result<(), GreyproxyDisconnected> {
        let data = json!({
            "container_name": shape["container_name"], "host": shape["destination_host"],
            "port": shape["destination_port"], "previous_count": before, "current_count": after,
        });
        self.send_event("waiters.changed", data).await
    }

    /// Sends exchanges that ended.
    async fn flows(&mut self, batch: &[FlowSummary]) -> Result<(), GreyproxyDisconnected> {
        let ended = |f: &&FlowSummary| f.kind != FlowKind::Tunnel && f.state != FlowState::Open;
        for flow in batch.iter().filter(ended) {
            self.moved = true;
            if self.told.len() > 10_000 {
                self.told.clear();
            }
            if !self.told.insert(flow.id.to_string()) {
                continue;
            }
            let data = json!({
                "id": flow.started.micros(),
                "timestamp": json_format::format_micros(flow.started.micros()),
                "container_name": flow.user.as_deref().unwrap_or_default(),
                "destination_host": flow.authority.host.to_string(),
                "destination_port": flow.authority.port,
                "method": flow.method,
                "url": format!("{}://{}{}", flow.scheme, flow.authority.to_host_header(flow.scheme),
                    flow.path.as_deref().unwrap_or_default()),
                "status_code": flow.status,
                "duration_ms": flow.duration / 1000,
                "result": if flow.error.as_deref() == Some("denied") { "blocked" } else { "auto" },
                "flow_id": flow.id.to_string(),
            });
            self.send_event("transaction.new", data).await?;
        }
        Ok(())
    }

    /// Sends expired sessions, injected credentials and updated conversations.
    async fn poll_changes(&mut self) -> Result<(), GreyproxyDisconnected> {
        let current = secret_uses(&self.grey);
        for (id, count) in std::mem::replace(&mut self.used, current.clone()) {
            match current.get(&id) {
                None => self.send_event("session.expired", json!(id)).await?,
                Some(n) if *n > count => {
                    self.send_event("session.substitution", json!({"session_id": id, "count": n})).await?;
                }
                Some(_) => {}
            }
        }
        if !std::mem::take(&mut self.moved) {
            return Ok(());
        }
        let options = ConversationOptions { all: true, limit: 50, ..ConversationOptions::default() };
        let found =
            run_query(&self.grey.admin, move |store, _| Ok(store.conversations(&options)?)).await.unwrap_or_default();
        let new = found.iter().filter(|c| c.row.updated.micros() > self.updated);
        let new: Vec<(u64, Value)> = new.map(|c| (c.row.updated.micros(), json_format::conversation(c))).collect();
        for (at, shape) in new {
            self.updated = self.updated.max(at);
            self.send_event("conversation.updated", json!({"conversation_id": shape["id"], "conversation": shape}))
                .await?;
        }
        Ok(())
    }

    async fn handle_command(&mut self, text: &str) -> Result<(), GreyproxyDisconnected> {
        let wrong = |why: String| json!({"type": "error", "error": why, "timestamp": now()});
        let Ok(command) = serde_json::from_str::<GreyproxyCommand>(text) else {
            return self.send(&wrong("invalid JSON".to_owned())).await;
        };
        let done = |rule: Value| {
            json!({"type": "command_success", "command": command.command, "pending_id": command.pending_id,
                "rule_id": rule, "timestamp": now()})
        };
        let answer = match command.command.as_str() {
            "ping" => json!({"type": "pong", "timestamp": now()}),
            "allow" => {
                let decided = DecisionInput::new(&command.scope, &command.duration, command.notes.clone());
                match pending::decide(&self.grey, command.pending_id, "allow", &decided).await {
                    Ok(rule) => done(rule["id"].clone()),
                    Err(e) => wrong(e.1),
                }
            }
            "dismiss" if pending::drop_one(&self.grey, command.pending_id) => done(Value::Null),
            "dismiss" => wrong("pending request not found".to_owned()),
            "subscribe" | "unsubscribe" if command.event_type.is_empty() => {
                wrong(format!("event_type is required for {}", command.command))
            }
            "subscribe" => {
                let wanted = self.wanted.get_or_insert_default();
                if wanted.len() < 100 {
                    wanted.insert(command.event_type.clone());
                }
                json!({"type": "subscribed", "event_type": command.event_type, "timestamp": now()})
            }
            "unsubscribe" => {
                if let Some(wanted) = &mut self.wanted {
                    wanted.remove(&command.event_type);
                }
                json!({"type": "unsubscribed", "event_type": command.event_type, "timestamp": now()})
            }
            "claim_notifications" => {
                self.claim.get_or_insert_with(|| self.grey.approvals.register_notifier());
                let claims = self.grey.approvals.notifier_count();
                self.grey.broadcast_event("notification.claims_changed", json!({"claims": claims}));
                json!({"type": "command_success", "command": "claim_notifications", "timestamp": now()})
            }
            other => wrong(format!("unknown command: {other}")),
        };
        self.send(&answer).await
    }
}

impl Drop for GreyproxyClient {
    fn drop(&mut self) {
        if self.claim.take().is_some() {
            let claims = self.grey.approvals.notifier_count();
            self.grey.broadcast_event("notification.claims_changed", json!({"claims": claims}));
        }
    }
}
