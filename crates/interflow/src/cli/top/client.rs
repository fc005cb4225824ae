//! What `interflow top` asks of the running instance, and what follows it: the event socket, the pending requests, and
//! the figures. All of it goes on when the instance is gone, and finds the next one.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use interflow_archive::text::size;
use interflow_archive::view::body_text::is_text;
use interflow_host::data_dir::DataDir;
use interflow_types::{Direction, FlowId};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::app::{FlowPage, TopEvent};
use super::command::TopCommand;
use super::hold_rule;
use super::pane::{BODY_LIMIT, BodyText, HEX_LIMIT};
use crate::CliError;
use crate::cli::instance::event_socket::{EventSocket, SocketEvent};
use crate::cli::operations::{self, InstanceApi, OperationCall, OperationId, Operations as _};

/// Flows of a page.
const PAGE: usize = 500;
/// Interval at which an instance is looked for.
const RECONNECT: Duration = Duration::from_millis(500);
/// Interval of the figures.
const FIGURES: Duration = Duration::from_secs(1);
/// Commands to the event socket that may wait.
const MAX_WAITING: usize = 64;

pub struct TopClient {
    home: Arc<DataDir>,
    events: mpsc::Sender<TopEvent>,
    socket: mpsc::Sender<TopCommand>,
}

impl TopClient {
    /// Starts to follow the instance. Needs a Tokio runtime.
    pub fn start(home: &Arc<DataDir>, query: String, generation: u64, events: mpsc::Sender<TopEvent>) -> Self {
        let (socket, commands) = mpsc::channel(MAX_WAITING);
        tokio::spawn(follow(Arc::clone(home), (query, generation), commands, events.clone()));
        let (data_dir, sink) = (Arc::clone(home), events.clone());
        thread::spawn(move || watch_figures(&data_dir, &sink));
        let (data_dir, sink) = (Arc::clone(home), events.clone());
        thread::spawn(move || watch_pending(&data_dir, &sink));
        Self { home: Arc::clone(home), events, socket }
    }

    /// Sends a command; its outcome is an event.
    pub fn run(&self, command: TopCommand) {
        match command {
            // A queue that is full is not read any more; the next connection has the current query anyway.
            TopCommand::Subscribe { .. } | TopCommand::Pause(_) => drop(self.socket.try_send(command)),
            command => {
                let (home, events) = (Arc::clone(&self.home), self.events.clone());
                tokio::task::spawn_blocking(move || {
                    let _ = events.blocking_send(outcome(&home, command));
                });
            }
        }
    }
}

/// Follows the event socket until the screen is gone.
async fn follow(
    home: Arc<DataDir>,
    (mut query, mut generation): (String, u64),
    mut commands: mpsc::Receiver<TopCommand>,
    events: mpsc::Sender<TopEvent>,
) {
    loop {
        let mut socket = match InstanceApi::unprobed(&home) {
            Ok(Some(api)) => EventSocket::connect(&api, &query, generation).await,
            _ => None,
        };
        let state = if socket.is_some() { TopEvent::Connected } else { TopEvent::Gone };
        if events.send(state).await.is_err() {
            return;
        }
        let retry = Instant::now() + RECONNECT;
        loop {
            let event = async {
                match &mut socket {
                    Some(socket) => socket.next().await,
                    None => {
                        sleep_until(retry).await;
                        None
                    }
                }
            };
            let command = tokio::select! {
                event = event => {
                    let message = match event {
                        Some(SocketEvent::Flows { flows, generation }) => TopEvent::Flows { flows, generation },
                        Some(SocketEvent::Lag) => TopEvent::Lagged { generation },
                        Some(SocketEvent::Other) => continue,
                        None => break,
                    };
                    if events.send(message).await.is_err() {
                        return;
                    }
                    continue;
                }
                command = commands.recv() => command,
            };
            let sent = match (command, &mut socket) {
                (None, _) => return,
                (Some(TopCommand::Subscribe { query: new, generation: number }), socket) => {
                    (query, generation) = (new, number);
                    if let Some(socket) = socket { socket.subscribe(&query, generation).await } else { Some(()) }
                }
                (Some(TopCommand::Pause(paused)), Some(socket)) => socket.pause(paused).await,
                (Some(_), _) => Some(()),
            };
            if sent.is_none() {
                break;
            }
        }
        if socket.is_some() && events.send(TopEvent::Gone).await.is_err() {
            return;
        }
    }
}

/// An instance, connected to again when it is another one.
struct Connection<'a> {
    home: &'a DataDir,
    api: Option<InstanceApi>,
}

impl Connection<'_> {
    fn call(&mut self, call: &OperationCall) -> Option<Value> {
        if self.api.is_none() {
            self.api = InstanceApi::unprobed(self.home).ok()?;
        }
        let answer = self.api.as_ref()?.call(call).ok();
        if answer.is_none() {
            self.api = None;
        }
        answer
    }
}

fn watch_figures(home: &DataDir, events: &mpsc::Sender<TopEvent>) {
    let mut instance = Connection { home, api: None };
    loop {
        let sent = instance
            .call(&OperationId::Stats.call())
            .map(|stats| events.blocking_send(TopEvent::Stats(Box::new(stats))));
        if matches!(sent, Some(Err(_))) {
            return;
        }
        thread::sleep(FIGURES);
    }
}

fn watch_pending(home: &DataDir, events: &mpsc::Sender<TopEvent>) {
    let mut instance = Connection { home, api: None };
    let mut call = OperationId::ListPending.call();
    loop {
        match instance.call(&call) {
            Some(mut answer) => {
                call = OperationId::ListPending.call().query("after", &answer["version"]).query("wait", "30s");
                let items = match answer["pending"].take() {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                };
                if events.blocking_send(TopEvent::Pending(items)).is_err() {
                    return;
                }
            }
            None => {
                call = OperationId::ListPending.call();
                thread::sleep(RECONNECT);
            }
        }
    }
}

/// Does what a command asks for.
fn outcome(home: &DataDir, command: TopCommand) -> TopEvent {
    let api = || InstanceApi::require(home).map_err(said);
    match command {
        TopCommand::List { query, generation, before } => {
            let page = api().and_then(|api| list(&api, &query, before));
            TopEvent::Listed { generation, older: before.is_some(), page }
        }
        TopCommand::Check(query) => {
            let check = OperationId::CheckQuery.call().query("q", &query);
            let checked = api().and_then(|api| api.call(&check).map_err(said));
            let error = match checked {
                Ok(mut checked) => Some(checked["error"].take()).filter(|e| !e.is_null()),
                Err(message) => Some(json!({ "message": message })),
            };
            TopEvent::Checked { query, error }
        }
        TopCommand::Load(id) => TopEvent::Loaded { id, flow: api().and_then(|api| load(&api, id)) },
        TopCommand::LoadBody { id, side, hex } => {
            TopEvent::Body { id, side, body: api().and_then(|api| body(&api, id, side, hex)) }
        }
        TopCommand::CopyAsCurl(id) => {
            let export = OperationId::ExportFlow.call().path(id).query("format", "curl");
            TopEvent::Copied(api().and_then(|api| operations::text(&api, &export).map_err(said)))
        }
        TopCommand::Replay(id) => TopEvent::Done(api().and_then(|api| replay(&api, id))),
        TopCommand::Decide { id, action } => TopEvent::Done(api().and_then(|api| decide(&api, &id, action))),
        TopCommand::Change { id, decision } => {
            let decide = OperationId::DecidePending.call().path(&id).body(decision);
            let sent = api().and_then(|api| api.call(&decide).map_err(said));
            TopEvent::Done(sent.map(|_| format!("{id}: changed, and continues")))
        }
        TopCommand::AddHold(target) => match api().and_then(|api| hold_rule::add(&api, &target)) {
            Ok(rule) => TopEvent::HoldAdded(Box::new(rule)),
            Err(why) => TopEvent::Done(Err(why)),
        },
        TopCommand::RemoveHold(rule) => match api().and_then(|api| hold_rule::remove(&api, &rule)) {
            Ok(text) => TopEvent::HoldRemoved(text),
            Err(why) => TopEvent::Done(Err(why)),
        },
        TopCommand::Subscribe { .. } | TopCommand::Pause(_) => TopEvent::Redraw,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn said(error: CliError) -> String {
    error.to_string()
}

fn list(api: &InstanceApi, query: &str, before: Option<FlowId>) -> Result<FlowPage, String> {
    let list = OperationId::ListFlows.call().query("query", query).query("limit", PAGE).query_if("after", before);
    let mut page = api.call(&list).map_err(said)?;
    let flows = serde_json::from_value(page["flows"].take()).map_err(unreadable)?;
    Ok(FlowPage { flows, has_older: !page["next"].is_null() })
}

fn load(api: &InstanceApi, id: FlowId) -> Result<Box<interflow_store::FlowRecord>, String> {
    let flow = api.call(&OperationId::ShowFlow.call().path(id)).map_err(said)?;
    serde_json::from_value(flow).map(Box::new).map_err(unreadable)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: serde_json::Error) -> String {
    format!("the instance answers in a form that this version cannot read: {error}")
}

/// A body as text; as a hex dump if it is none, or the operator wants that.
fn body(api: &InstanceApi, id: FlowId, side: Direction, hex: bool) -> Result<BodyText, String> {
    let view = |view: &str, limit: usize| {
        let body = OperationId::FlowBody.call().path(id).path(side.as_str());
        operations::text(api, &body.query("view", view).query("limit", limit)).map_err(said)
    };
    let text = if hex { None } else { view("pretty", BODY_LIMIT).ok().filter(|text| is_text(text)) };
    match text {
        // Rendered text can be longer than what it was made from, so it may be said to be cut when it is not.
        Some(text) => Ok(BodyText { truncated: text.len() >= BODY_LIMIT, text }),
        None => view("hex", HEX_LIMIT).map(|text| BodyText { truncated: text.len() >= HEX_LIMIT * 4, text }),
    }
}

fn replay(api: &InstanceApi, id: FlowId) -> Result<String, String> {
    let done = api.call(&OperationId::ReplayFlow.call().path(id)).map_err(said)?;
    let omitted: Vec<&str> = done["omitted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let omitted = match omitted.is_empty() {
        true => String::new(),
        false => format!("; not sent, since recorded with masked values: {}", omitted.join(", ")),
    };
    match done["error"]["message"].as_str() {
        Some(error) => Err(format!("sent again, and it failed: {error}{omitted}")),
        None => {
            let bytes = size(done["response"]["size"].as_u64().unwrap_or_default());
            Ok(format!("sent again: status {}, {bytes}{omitted}", done["response"]["status"]))
        }
    }
}

fn decide(api: &InstanceApi, id: &str, action: &str) -> Result<String, String> {
    let mut decision = json!({ "action": action });
    if !id.starts_with("rule-") {
        decision["scope"] = "once".into();
    }
    api.call(&OperationId::DecidePending.call().path(id).body(decision)).map_err(said)?;
    Ok(format!("{id}: {action}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_instance_that_does_not_answer_does_not_stop_the_screen() {
        let dir = tempfile::tempdir().unwrap();
        let home = Arc::new(DataDir::find(Some(dir.path())).unwrap());
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let instance = json!({ "pid": std::process::id(), "proxy": [address], "admin": address });
        let _announced = home.write_instance_file(&serde_json::from_value(instance).unwrap()).unwrap().unwrap();
        let (events, _screen) = mpsc::channel(8);
        let begun = Instant::now();
        let _client = TopClient::start(&home, String::new(), 0, events);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }

    #[test]
    fn binary_bodies_are_told_from_text() {
        assert!(is_text("{\n\t\"a\": 1\r\n}") && is_text("") && is_text(&format!("{}\u{fffd}", "naïve ".repeat(9))));
        assert!(!is_text("\u{fffd}PNG\r\n\u{1a}\n\0\0\0\rIHDR"));
    }
}
