//! External services that decide about messages: a process on its standard streams or a WebSocket server, both using
//! the service protocol, version 1, or an HTTP server that receives the same messages.

mod connection;
mod message;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_tasks::own_request;
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use interflow_types::{HttpClient, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::OnFailure;
use crate::files::constant::FileConstant;
use crate::text::string_list::OneOrManyStrings;

use connection::ServiceTarget;
pub use connection::{ServiceTransport, TlsConnector};
use message::{QueuedMessage, ServiceStatus};
pub(crate) use message::{ServiceDecision, ServiceMessageKind};

/// Messages queued for a service; with more, callers fail at once rather than wait.
const QUEUE_MESSAGES: usize = 1024;

/// A service as defined in a rule file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceDef {
    /// A WebSocket server: `ws://host:port/path`, or `wss://…`, whose certificate is verified; `http://` and `https://`
    /// are equivalent.
    pub url: Option<String>,
    /// A program and its arguments, used over its standard streams, one JSON message per line.
    pub command: Option<OneOrManyStrings>,
    /// Environment variables of the program of `command`; a text may contain `${env.NAME}`. Of Interflow's own it gets
    /// only a few such as `PATH` and `HOME`, since the others may be secrets.
    pub env: BTreeMap<String, FileConstant>,
    /// An HTTP server to which each message is posted as JSON.
    pub post: Option<String>,
    /// Time limit of a reply; 10 s when absent.
    pub timeout: Option<HumanDuration>,
    /// What happens without a reply: `deny` or `pass`.
    pub on_failure: OnFailure,
    /// A field for the handshake or each post: `X-Secret: abc`.
    pub auth_header: Option<String>,
}

/// A running service. Its connection ends when the last reference is dropped.
pub struct ExternalService {
    pub name: String,
    pub(crate) def: ServiceDef,
    kind: ServiceKind,
}

enum ServiceKind {
    /// Over a persistent connection.
    Link { queue: mpsc::Sender<QueuedMessage>, status: watch::Receiver<ServiceStatus> },
    /// By HTTP POST.
    Post { url: Url, egress: Option<Arc<dyn HttpClient>> },
}

/// Where a definition says that a service is.
enum ServiceEndpoint {
    Link(ServiceTarget),
    Post(Url),
}

impl ServiceEndpoint {
    fn of(def: &ServiceDef) -> Result<Self, String> {
        if !def.env.is_empty() && def.command.is_none() {
            return Err("`env` is for the program of `command`, and there is none".into());
        }
        match (&def.url, &def.command, &def.post) {
            (Some(url), None, None) => ServiceTarget::web_socket(url, def.auth_header.as_deref()).map(Self::Link),
            (None, Some(command), None) => ServiceTarget::command(&command.0, &def.env).map(Self::Link),
            (None, None, Some(post)) => crate::text::url::parse_url(post).map(Self::Post),
            _ => Err("a service has one of url, command and post".into()),
        }
    }
}

impl std::fmt::Debug for ExternalService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ExternalService {
    /// Starts a service; it connects immediately.
    ///
    /// # Errors
    /// An invalid definition.
    pub fn new(
        name: &str,
        def: ServiceDef,
        egress: Option<Arc<dyn HttpClient>>,
        opener: Option<Arc<dyn TlsConnector>>,
    ) -> Result<Arc<Self>, String> {
        let kind = match ServiceEndpoint::of(&def)? {
            ServiceEndpoint::Link(target) => start_connection(name, target, opener)?,
            ServiceEndpoint::Post(url) => ServiceKind::Post { url, egress },
        };
        Ok(Arc::new(Self { name: name.to_owned(), def, kind }))
    }

    /// Validates a definition without connecting.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(def: &ServiceDef) -> Result<(), String> {
        ServiceEndpoint::of(def).map(drop)
    }

    fn timeout(&self) -> Duration {
        self.def.timeout.map_or(Duration::from_secs(10), |t| t.0)
    }

    /// The handshake, if it is complete; a service by HTTP has none.
    pub(crate) fn handshake_if_ready(&self) -> Option<Arc<message::ServiceHandshake>> {
        match &self.kind {
            ServiceKind::Post { .. } => None,
            ServiceKind::Link { status, .. } => match &*status.borrow() {
                ServiceStatus::Up(hello) => Some(Arc::clone(hello)),
                _ => None,
            },
        }
    }

    /// The handshake; waits during the first connection attempt, up to the service's timeout.
    pub(crate) async fn handshake(&self) -> Result<Arc<message::ServiceHandshake>, String> {
        let ServiceKind::Link { status, .. } = &self.kind else {
            return Ok(Arc::new(message::ServiceHandshake::accept_all()));
        };
        let mut status = status.clone();
        let up = async {
            loop {
                match status.borrow_and_update().clone() {
                    ServiceStatus::Up(hello) => return Ok(hello),
                    ServiceStatus::Down(why) => return Err(why),
                    ServiceStatus::Starting => {}
                }
                if status.changed().await.is_err() {
                    return Err("its link has ended".to_owned());
                }
            }
        };
        tokio::time::timeout(self.timeout(), up).await.unwrap_or_else(|_| Err("it is not connected yet".into()))
    }

    /// Sends a message and waits for the reply. Cancel-safe: a late reply is dropped.
    ///
    /// # Errors
    /// The service is down, or the reply timed out.
    pub(crate) async fn ask(&self, id: &str, message: Value) -> Result<ServiceDecision, String> {
        let handshake = async {
            let answer = match &self.kind {
                ServiceKind::Link { queue, .. } => {
                    let (answer, answered) = oneshot::channel();
                    let queued = QueuedMessage { id: id.to_owned(), text: message.to_string(), answer };
                    // Not a waiting send: a queue that is full means that the service is too slow.
                    queue.try_send(queued).map_err(|_| "too many messages wait for it".to_owned())?;
                    answered.await.map_err(|_| "its link broke before it answered".to_owned())?
                }
                ServiceKind::Post { url, egress } => self.post(url, egress.as_ref(), &message).await?,
            };
            message::parse_decision(&self.name, &answer)
        };
        let late = |_| Err(format!("it did not answer within {:?}", self.timeout()));
        tokio::time::timeout(self.timeout(), handshake).await.unwrap_or_else(late)
    }

    /// Posts a message; the reply is at most 64 MiB.
    async fn post(&self, url: &Url, egress: Option<&Arc<dyn HttpClient>>, message: &Value) -> Result<Value, String> {
        let egress = egress.ok_or("no HTTP client is available here")?;
        let mut request = own_request::post(url.clone(), "application/json", message.to_string());
        let headers = &mut request.head.headers;
        headers.append_unchecked(b"Host", url.authority.to_host_header(url.scheme).as_bytes());
        if let Some((name, value)) = self.def.auth_header.as_deref().and_then(|h| h.split_once(':')) {
            headers.append(name.trim(), value.trim()).map_err(|e| e.to_string())?;
        }
        let body = own_request::fetch_accepted(&**egress, request, 64 << 20, |status| {
            (!status.is_success()).then(|| format!("it answered {status}"))
        });
        serde_json::from_slice(&body.await?).map_err(|e| format!("its answer is not JSON: {e}"))
    }
}

/// Starts the thread that keeps the connection.
fn start_connection(
    name: &str,
    target: ServiceTarget,
    opener: Option<Arc<dyn TlsConnector>>,
) -> Result<ServiceKind, String> {
    let (queue, queued) = mpsc::channel(QUEUE_MESSAGES);
    let (says, status) = watch::channel(ServiceStatus::Starting);
    let name = name.to_owned();
    // A separate thread: the connection outlives the worker that first called it.
    let started = std::thread::Builder::new().name(format!("service-{name}")).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                runtime.block_on(connection::run_connection(&name, &target, opener.as_deref(), queued, says))
            }
            Err(e) => tracing::error!("the service {name} has no runtime: {e}"),
        }
    });
    started.map_err(|e| format!("no thread for it: {e}"))?;
    Ok(ServiceKind::Link { queue, status })
}
