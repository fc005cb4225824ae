//! Servers over standard streams: a process that all sessions share, or one for each, started with the first request and
//! started again with growing pauses if it ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use interflow_tasks::{AbortOnDrop, Backoff, EndReason, ErrorOutput, LineError, LineProcess, LineWriter, ProcessSpec};
use parking_lot::Mutex;
use serde_json::json;
use tokio::process::ChildStdin;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

use super::event_sink::{EventSink, Listeners, own_answer};
use super::http::DISCOVERY_WAIT;
use super::server_hello::{ServerHello, UpstreamClient, initialize_params};
use super::server_secrets::{SecretMask, ServerSecrets};
use crate::config::McpServerConfig;
use crate::protocol::client_message::DISCOVER;
use crate::protocol::jsonrpc::{self, RpcError, ServerMessage, response_id};
use crate::protocol::listen_filter::LISTEN;
use crate::protocol::log_level;

/// The pauses before a process is started again, and how long it has to run for them to begin anew.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(30));
/// How long a process may take to end after its standard input was closed.
const END_GRACE: Duration = Duration::from_secs(3);
/// Bound on requests in progress at one server.
const MAX_PENDING: usize = 1024;
/// Bound on messages that wait to be written.
const MAX_QUEUED: usize = 64;

/// The thread that serves the streams of all processes: they must not end with a worker's. It starts with the first.
#[derive(Default)]
pub(crate) struct StdioRuntime(Mutex<RuntimeState>);

#[derive(Default)]
enum RuntimeState {
    #[default]
    Idle,
    Running(Runtime),
    Closed,
}

impl StdioRuntime {
    fn handle(&self) -> Result<Handle, RpcError> {
        let mut state = self.0.lock();
        match &*state {
            RuntimeState::Running(runtime) => Ok(runtime.handle().clone()),
            RuntimeState::Closed => Err(RpcError::server("Interflow is stopping")),
            RuntimeState::Idle => {
                let built = Builder::new_multi_thread().worker_threads(1).thread_name("mcp-stdio").enable_all().build();
                let runtime = built.map_err(|e| RpcError::server(format!("no thread for it: {e}")))?;
                let handle = runtime.handle().clone();
                *state = RuntimeState::Running(runtime);
                Ok(handle)
            }
        }
    }

    /// Ends all processes, for good.
    pub fn close(&self) {
        if let RuntimeState::Running(runtime) = std::mem::replace(&mut *self.0.lock(), RuntimeState::Closed) {
            // Its tasks are dropped, and each kills its process.
            runtime.shutdown_background();
        }
    }
}

impl Drop for StdioRuntime {
    fn drop(&mut self) {
        self.close();
    }
}

pub(crate) struct StdioServer {
    parts: StdioParts,
    runtime: Arc<StdioRuntime>,
    state: tokio::sync::Mutex<ProcessState>,
}

/// What a process is started with.
#[derive(Clone)]
struct StdioParts {
    name: Arc<str>,
    process: Arc<ProcessSpec>,
    mask: SecretMask,
    /// The client of its session; `None` if several sessions share it.
    client: Option<UpstreamClient>,
    listeners: Arc<Listeners>,
    /// It was found to have sessions, so that it is not asked again.
    has_sessions: Arc<AtomicBool>,
}

struct ProcessState {
    connection: Option<Arc<StdioConnection>>,
    backoff: Backoff,
    last_failure: String,
    not_before: Option<Instant>,
}

impl Default for ProcessState {
    fn default() -> Self {
        Self { connection: None, backoff: BACKOFF, last_failure: String::new(), not_before: None }
    }
}

impl StdioServer {
    pub fn new(
        name: &Arc<str>,
        program: &str,
        config: &McpServerConfig,
        secrets: &ServerSecrets,
        max_message: usize,
        runtime: Arc<StdioRuntime>,
    ) -> Self {
        let McpServerConfig { args, directory, .. } = config.clone();
        let (program, env) = (program.to_owned(), secrets.values.clone().into_iter().collect());
        let errors = ErrorOutput::Collect;
        let process = ProcessSpec { program, args, env, directory, max_line: max_message, errors };
        let (name, process) = (Arc::clone(name), Arc::new(process));
        let (listeners, has_sessions, state) = Default::default();
        let parts = StdioParts { name, process, mask: secrets.mask(), client: None, listeners, has_sessions };
        Self { parts, runtime, state }
    }

    /// The same server with a process for one session, of this client.
    pub fn fork(&self, client: UpstreamClient) -> Self {
        let parts = StdioParts { client: Some(client), listeners: Arc::default(), ..self.parts.clone() };
        Self { parts, runtime: Arc::clone(&self.runtime), state: Default::default() }
    }

    /// Passes on what the process sends outside of requests, until the sink is closed. Does not start the process.
    pub fn listen(&self, sink: EventSink) {
        self.parts.listeners.add(sink);
    }

    pub async fn hello(&self, start: Duration) -> Result<ServerHello, RpcError> {
        self.connection(start).await.map(|connection| connection.hello.clone())
    }

    pub async fn request(
        &self,
        client: &UpstreamClient,
        start: Duration,
        method: &str,
        params: &str,
        sink: Option<EventSink>,
    ) -> Result<String, RpcError> {
        let connection = self.connection(start).await?;
        let params = |token| client.params(&connection.hello, params, token);
        connection.link.request(method, &params, sink).await
    }

    /// Asks a process without sessions to tell of changes to the resources of a client.
    pub async fn subscribe(&self, client: &UpstreamClient, start: Duration) -> Result<(), RpcError> {
        let connection = self.connection(start).await?;
        connection.link.tell(LISTEN, &client.listen_params(&connection.hello)).await
    }

    /// The running process, started if need be. Requests wait here together.
    async fn connection(&self, start: Duration) -> Result<Arc<StdioConnection>, RpcError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            let Some((why, at)) = connection.link.end() else { return Ok(Arc::clone(connection)) };
            let lasted = at.saturating_duration_since(connection.began);
            state.connection = None;
            state.record_failure(&self.parts.name, why, at, Some(lasted));
        }
        if let Some(wait) = state.not_before.map(|at| at.saturating_duration_since(Instant::now()))
            && !wait.is_zero()
        {
            let (why, seconds) = (&state.last_failure, wait.as_secs() + 1);
            return Err(RpcError::server(format!("{why}; it is started again in {seconds} s")));
        }
        let parts = self.parts.clone();
        let starting = self.runtime.handle()?.spawn(async move { StdioConnection::start(&parts).await });
        let limit = interflow_types::units::HumanDuration(start);
        let started = match tokio::time::timeout(start, AbortOnDrop(starting)).await {
            Ok(Ok(started)) => started,
            Ok(Err(e)) => Err(format!("its start was cut short: {e}").into()),
            Err(_) => Err(format!("it did not answer within {limit} of its start (start_timeout)").into()),
        };
        match started {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(why) => {
                state.record_failure(&self.parts.name, why.clone(), Instant::now(), None);
                Err(RpcError::server(why.to_string()))
            }
        }
    }
}

impl ProcessState {
    fn record_failure(&mut self, name: &str, why: EndReason, at: Instant, lasted: Option<Duration>) {
        // Without what the server wrote.
        tracing::warn!("MCP server {name} failed: {}", why.why);
        self.last_failure = why.to_string();
        self.not_before = Some(at + self.backoff.pause(lasted));
    }
}

/// A running process that said hello.
struct StdioConnection {
    link: StdioLink,
    hello: ServerHello,
    began: Instant,
}

/// The way to a process: when the last handle is dropped, its standard input is closed and it ends.
#[derive(Clone)]
struct StdioLink {
    outgoing: mpsc::Sender<String>,
    pending: Arc<Mutex<PendingReplies>>,
    next_id: Arc<AtomicU64>,
}

#[derive(Default)]
struct PendingReplies {
    waiting: HashMap<u64, PendingReply>,
    /// Why the process ended, and when.
    ended: Option<(EndReason, Instant)>,
}

struct PendingReply {
    reply: oneshot::Sender<Result<String, RpcError>>,
    sink: Option<EventSink>,
}

impl StdioConnection {
    async fn start(parts: &StdioParts) -> Result<Self, EndReason> {
        let client = parts.client.as_ref();
        let mut link = StdioLink::start(parts)?;
        if !parts.has_sessions.swap(false, Relaxed) {
            if let Some(hello) = link.discover(client).await {
                return Ok(Self { link, hello, began: Instant::now() });
            }
            // Some servers end with a first message that they do not know.
            if link.end().is_some() {
                link = StdioLink::start(parts)?;
            }
        }
        let capabilities = client.map_or_else(|| json!({}), |client| client.capabilities.clone());
        let params = initialize_params(&capabilities);
        let result = link.request("initialize", &|_| params.clone(), None).await.map_err(|e| link.refusal(&e))?;
        let hello = ServerHello::parse(&result).map_err(|e| link.refusal(&e))?;
        let initialized = jsonrpc::notification("notifications/initialized", &json!({}));
        link.send(initialized).await.map_err(|e| link.refusal(&e))?;
        if let Some(params) = client.and_then(|client| client.log_level_params(&hello)) {
            // Without it the server sends more than the client gets.
            let _ = link.request(log_level::SET_LEVEL, &|_| params.clone(), None).await;
        }
        parts.has_sessions.store(true, Relaxed);
        Ok(Self { link, hello, began: Instant::now() })
    }
}

impl StdioLink {
    fn start(parts: &StdioParts) -> Result<Self, String> {
        let process = parts.process.start()?;
        let (outgoing, queued) = mpsc::channel(MAX_QUEUED);
        let link = Self { outgoing, pending: Arc::default(), next_id: Arc::new(AtomicU64::new(1)) };
        let (pending, answers) = (Arc::clone(&link.pending), link.outgoing.downgrade());
        let StdioParts { name, mask, listeners, client, .. } = parts.clone();
        let incoming = Incoming { name, mask, pending, answers, listeners, is_shared: client.is_none() };
        tokio::spawn(supervise(incoming, process, queued));
        Ok(link)
    }

    /// What a process without sessions says of itself, which is then asked to tell of changes. Any other answer, or none,
    /// means that it has sessions.
    async fn discover(&self, client: Option<&UpstreamClient>) -> Option<ServerHello> {
        let shared = UpstreamClient::default();
        let (client, hello) = (client.unwrap_or(&shared), ServerHello::stateless());
        let params = |token| client.params(&hello, "{}", token);
        let answered = self.request(DISCOVER, &params, None);
        let result = tokio::time::timeout(DISCOVERY_WAIT, answered).await.ok()?.ok()?;
        let hello = ServerHello::parse_discovery(&result)?;
        self.tell(LISTEN, &client.listen_params(&hello)).await.ok()?;
        Some(hello)
    }

    /// Sends a request whose response is of no consequence.
    async fn tell(&self, method: &str, params: &str) -> Result<(), RpcError> {
        self.send(jsonrpc::request(self.next_id.fetch_add(1, Relaxed), method, params)).await
    }

    /// Why the process ended, and when.
    fn end(&self) -> Option<(EndReason, Instant)> {
        self.pending.lock().ended.clone()
    }

    fn ended(&self) -> RpcError {
        RpcError::server(self.end().map_or_else(|| "it ended".to_owned(), |(why, _)| why.to_string()))
    }

    /// Why a process does not begin, whose error may be its own text.
    fn refusal(&self, error: &RpcError) -> EndReason {
        let refused =
            || EndReason { why: format!("it refused `initialize` ({})", error.code), errors: error.message.clone() };
        self.end().map_or_else(refused, |(why, _)| why)
    }

    async fn send(&self, text: String) -> Result<(), RpcError> {
        self.outgoing.send(text).await.map_err(|_| self.ended())
    }

    async fn request(
        &self,
        method: &str,
        params: &(dyn Fn(Option<u64>) -> String + Sync),
        sink: Option<EventSink>,
    ) -> Result<String, RpcError> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let token = sink.as_ref().is_some_and(|sink| sink.wants_progress).then_some(id);
        let text = jsonrpc::request(id, method, &params(token));
        let (reply, answered) = oneshot::channel();
        {
            let mut pending = self.pending.lock();
            if let Some((why, _)) = &pending.ended {
                return Err(RpcError::server(why.to_string()));
            }
            if pending.waiting.len() >= MAX_PENDING {
                return Err(RpcError::server(format!("{MAX_PENDING} requests wait for it already")));
            }
            pending.waiting.insert(id, PendingReply { reply, sink });
        }
        let _guard = PendingGuard { link: self, id };
        self.send(text).await?;
        answered.await.unwrap_or_else(|_| Err(self.ended()))
    }
}

/// Removes a request that ended without its response, and tells the server.
struct PendingGuard<'l> {
    link: &'l StdioLink,
    id: u64,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let was_waiting = self.link.pending.lock().waiting.remove(&self.id).is_some();
        if was_waiting {
            let text = jsonrpc::notification("notifications/cancelled", &json!({ "requestId": self.id }));
            // If the queue is full, the server does work that is not needed.
            let _ = self.link.outgoing.try_send(text);
        }
    }
}

/// Serves the streams of a process until it ends or no request needs it any more.
async fn supervise(incoming: Incoming, process: LineProcess, queued: mpsc::Receiver<String>) {
    let LineProcess { input, mut output, mut exit } = process;
    // Wakes all waiters on every exit path.
    let end = EndGuard(Arc::clone(&incoming.pending));
    let reading = async {
        loop {
            match output.next().await {
                Ok(Some(line)) => incoming.handle_line(&line),
                Ok(None) => return None,
                Err(e @ LineError::TooLong(_)) => return Some(format!("{e} (mcp.max_message)")),
                Err(e) => return Some(e.to_string()),
            }
        }
    };
    tokio::pin!(reading);
    let why = tokio::select! {
        why = &mut reading => why,
        () = write_queued(input, queued) => {
            // Its input is closed: a server ends by itself.
            tokio::time::timeout(END_GRACE, reading).await.unwrap_or_default()
        }
    };
    let mut reason = exit.reason(why).await;
    reason.errors = incoming.mask.masked(&reason.errors).into_owned();
    end.0.lock().ended.get_or_insert((reason, Instant::now()));
}

async fn write_queued(mut input: LineWriter<ChildStdin>, mut queued: mpsc::Receiver<String>) {
    while let Some(text) = queued.recv().await {
        if input.send(&text).await.is_err() {
            return;
        }
    }
}

/// Where the lines of a process go to.
struct Incoming {
    name: Arc<str>,
    mask: SecretMask,
    pending: Arc<Mutex<PendingReplies>>,
    answers: mpsc::WeakSender<String>,
    listeners: Arc<Listeners>,
    /// Several sessions share the process, so that its requests belong to none of them.
    is_shared: bool,
}

impl Incoming {
    fn handle_line(&self, line: &[u8]) {
        let name = &self.name;
        let text = std::str::from_utf8(line).map_err(|_| "it sent a message that is not UTF-8".to_owned());
        match text.and_then(|text| ServerMessage::parse(&self.mask.masked(text))) {
            Ok(ServerMessage::Response(id, result)) => {
                if let Some(waiting) = self.pending.lock().waiting.remove(&id) {
                    let _ = waiting.reply.send(result);
                }
            }
            Ok(ServerMessage::Notification { method, params }) if method == "notifications/progress" => {
                let token = params["progressToken"].as_u64();
                let sink = token.and_then(|id| self.pending.lock().waiting.get(&id)?.sink.clone());
                if let Some(sink) = sink {
                    sink.notify(method, params);
                }
            }
            Ok(ServerMessage::Notification { method, params }) => {
                self.listeners.open().iter().for_each(|sink| sink.notify(method.clone(), params.clone()));
            }
            Ok(ServerMessage::Request { id, method, params }) => self.answer(id, method, params),
            Ok(ServerMessage::Other) => {}
            // Some programs write their log to standard output, against the protocol.
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(why) => {
                let id = response_id(&String::from_utf8_lossy(line));
                match id.and_then(|id| self.pending.lock().waiting.remove(&id)) {
                    Some(waiting) => drop(waiting.reply.send(Err(RpcError::server(why)))),
                    None => tracing::debug!("MCP server {name}: ignored a line that is not JSON"),
                }
            }
        }
    }

    /// Answers a request of the process, so that it does not wait for it.
    fn answer(&self, id: String, method: String, params: String) {
        let Some(answers) = self.answers.upgrade() else { return };
        let sink = if self.is_shared { None } else { self.client() };
        if let Some(answer) = own_answer(&method, sink.is_some()) {
            let _ = answers.try_send(jsonrpc::response(&id, &answer));
            return;
        }
        let answers = answers.downgrade();
        tokio::spawn(async move {
            let Some(sink) = sink else { return };
            let answer = sink.ask(method, params).await;
            if let Some(answers) = answers.upgrade() {
                let _ = answers.send(jsonrpc::response(&id, &answer)).await;
            }
        });
    }

    /// Where the client of the only session listens: outside of its requests, or else to the latest one. One that went
    /// away may resume its stream, if it has no request in progress.
    fn client(&self) -> Option<EventSink> {
        let mut listening = self.listeners.open();
        if let Some(attended) = listening.iter().rposition(EventSink::is_attended) {
            return Some(listening.swap_remove(attended));
        }
        let pending = self.pending.lock();
        let in_progress = pending.waiting.iter().filter_map(|(id, reply)| Some((id, reply.sink.as_ref()?)));
        in_progress.max_by_key(|(id, _)| **id).map(|(_, sink)| sink.clone()).or_else(|| listening.pop())
    }
}

/// Fails all requests in progress when the process ends.
struct EndGuard(Arc<Mutex<PendingReplies>>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let mut pending = self.0.lock();
        pending.ended.get_or_insert_with(|| ("it was stopped".to_owned().into(), Instant::now()));
        // Their senders are dropped, and each reads why from `ended`.
        pending.waiting.clear();
    }
}
