//! A persistent connection to an external service: connect, handshake, reconnect with backoff.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use interflow_tasks::{Backoff, ErrorOutput, LineProcess, LineReader, LineWriter, ProcessExit, ProcessSpec};
use interflow_types::{Authority, BoxFuture, Error};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Request};
use tokio_tungstenite::tungstenite::{Message, protocol::WebSocketConfig};

use crate::files::constant::FileConstant;

use super::message::{QueuedMessage, ServiceHandshake, ServiceStatus};

/// From the start of the connection to the reply to the greeting.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses before a reconnect, each with 20 % jitter, and how long a connection has to last for them to begin anew.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2), Duration::from_secs(5));
/// Maximum size of a message from a service in bytes: 64 MiB.
const MAX_MESSAGE_SIZE: usize = 64 << 20;

/// A bidirectional byte stream.
pub trait ServiceTransport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ServiceTransport for T {}

/// Opens verified TLS connections to services. Implemented outside this crate.
pub trait TlsConnector: Send + Sync {
    /// Connects over TLS, offering HTTP/1.1.
    fn connect<'a>(&'a self, authority: &'a Authority) -> BoxFuture<'a, Result<Box<dyn ServiceTransport>, Error>>;
}

/// The target of a connection, validated.
pub(crate) enum ServiceTarget {
    /// A WebSocket of this authority, over TLS or not.
    WebSocket {
        request: Box<Request<()>>,
        authority: Authority,
        secure: bool,
    },
    Process(ProcessSpec),
}

impl ServiceTarget {
    pub fn web_socket(url: &str, auth: Option<&str>) -> Result<Self, String> {
        let (url, secure) = match url.split_once("://") {
            Some(("http" | "ws", rest)) => (format!("ws://{rest}"), false),
            Some(("https" | "wss", rest)) => (format!("wss://{rest}"), true),
            _ => return Err(format!("`{url}` is not the URL of a service: write it as ws://127.0.0.1:9000/path")),
        };
        let mut request = url.as_str().into_client_request().map_err(|e| format!("`{url}` is not a URL: {e}"))?;
        if let Some(auth) = auth {
            let (name, value) = auth.split_once(':').ok_or("`auth_header` is written as Name: value")?;
            let name: HeaderName = name.trim().parse().map_err(|_| format!("`{name}` is not a header name"))?;
            let value: HeaderValue =
                value.trim().parse().map_err(|_| "`auth_header` has a value that none may have")?;
            request.headers_mut().insert(name, value);
        }
        let authority = request.uri().authority().map(|a| a.as_str()).unwrap_or_default();
        let port = if secure { 443 } else { 80 };
        let authority = Authority::parse(authority, Some(port)).map_err(|e| format!("`{url}`: {e}"))?;
        Ok(Self::WebSocket { request: Box::new(request), authority, secure })
    }

    pub fn command(words: &[String], env: &BTreeMap<String, FileConstant>) -> Result<Self, String> {
        let Some((program, args)) = words.split_first() else { return Err("`command` names no program".into()) };
        if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("`{name}` is not the name of an environment variable"));
        }
        let variables = env.iter().map(|(name, value)| (name.clone(), value.text.clone()));
        Ok(Self::Process(ProcessSpec {
            program: program.clone(),
            args: args.to_vec(),
            env: variables.collect(),
            directory: None,
            max_line: MAX_MESSAGE_SIZE,
            errors: ErrorOutput::Inherit,
        }))
    }

    async fn open(&self, opener: Option<&dyn TlsConnector>) -> Result<(ServiceSender, ServiceReceiver), String> {
        let unreachable = |e: &dyn std::fmt::Display| format!("it cannot be reached: {e}");
        match self {
            Self::WebSocket { request, authority, secure } => {
                let io = if *secure {
                    let opener = opener.ok_or("no HTTP client is available here")?;
                    opener.connect(authority).await.map_err(|e| unreachable(&e))?
                } else {
                    connect_plain(authority).await.map_err(|e| unreachable(&e))?
                };
                let config = WebSocketConfig::default();
                // The same limit for frames as for messages, so that services need not fragment.
                let config = config.max_message_size(Some(MAX_MESSAGE_SIZE)).max_frame_size(Some(MAX_MESSAGE_SIZE));
                let opened = tokio_tungstenite::client_async_with_config((**request).clone(), io, Some(config)).await;
                let (sender, receiver) = opened.map_err(|e| unreachable(&e))?.0.split();
                Ok((ServiceSender::WebSocket(sender), ServiceReceiver::WebSocket(receiver)))
            }
            Self::Process(process) => {
                let LineProcess { input, output, exit } = process.start()?;
                Ok((ServiceSender::Process(input), ServiceReceiver::Process(Box::new(output), Box::new(exit))))
            }
        }
    }
}

async fn connect_plain(authority: &Authority) -> std::io::Result<Box<dyn ServiceTransport>> {
    let tcp = TcpStream::connect(authority.to_string()).await?;
    tcp.set_nodelay(true)?;
    Ok(Box::new(tcp))
}

type ServiceWebSocket = WebSocketStream<Box<dyn ServiceTransport>>;

/// The sending half of a connection. It waits while the service does not read, which may itself wait until its replies
/// are received.
enum ServiceSender {
    WebSocket(SplitSink<ServiceWebSocket, Message>),
    Process(LineWriter<ChildStdin>),
}

/// The receiving half.
enum ServiceReceiver {
    WebSocket(SplitStream<ServiceWebSocket>),
    Process(Box<LineReader<ChildStdout>>, Box<ProcessExit>),
}

impl ServiceSender {
    async fn send(&mut self, text: &str) -> Result<(), String> {
        match self {
            Self::WebSocket(ws) => ws.send(Message::text(text)).await.map_err(|e| e.to_string()),
            Self::Process(input) => input.send(text).await.map_err(|e| e.to_string()),
        }
    }
}

impl ServiceReceiver {
    /// The next message; texts that are not JSON are skipped with a warning. Cancel-safe.
    async fn next(&mut self) -> Result<Value, String> {
        loop {
            let text = match self {
                Self::WebSocket(ws) => match ws.next().await {
                    Some(Ok(Message::Text(text))) => text.as_bytes().to_vec(),
                    Some(Ok(Message::Close(_))) | None => return Err("it closed the connection".into()),
                    // Such as a ping, which the library answers.
                    Some(Ok(_)) => continue,
                    Some(Err(e)) => return Err(e.to_string()),
                },
                Self::Process(output, exit) => match output.next().await {
                    Ok(Some(line)) => line,
                    Ok(None) => return Err(exit.reason(None).await.to_string()),
                    Err(e) => return Err(e.to_string()),
                },
            };
            match serde_json::from_slice(&text) {
                Ok(value) => return Ok(value),
                Err(e) => tracing::warn!("ignored a message of a service that is not JSON: {e}"),
            }
        }
    }
}

/// Keeps the connection up until all senders are dropped.
pub(crate) async fn run_connection(
    name: &str,
    target: &ServiceTarget,
    opener: Option<&dyn TlsConnector>,
    mut queued: mpsc::Receiver<QueuedMessage>,
    status: watch::Sender<ServiceStatus>,
) {
    let mut backoff = BACKOFF;
    loop {
        let mut connected = None;
        let why = match connect(target, opener).await {
            Ok((sender, receiver, hello)) => {
                tracing::info!(
                    "service {name}: connected to {}",
                    hello.name.as_deref().unwrap_or("one without a name")
                );
                let _ = status.send(ServiceStatus::Up(Arc::new(hello)));
                connected = Some(Instant::now());
                match exchange_messages(sender, receiver, &mut queued).await {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            Err(why) => why,
        };
        tracing::warn!("service {name} failed: {why}");
        let _ = status.send(ServiceStatus::Down(why));
        let wait = backoff.pause(connected.map(|since| since.elapsed()));
        // Messages received during the pause are dropped, which fails their callers.
        let pause = tokio::time::sleep(crate::body::fault_injection::with_jitter(wait, wait / 5));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                message = queued.recv() => if message.is_none() { return },
            }
        }
    }
}

/// Connects and greets, within [`HANDSHAKE_TIMEOUT`].
async fn connect(
    target: &ServiceTarget,
    opener: Option<&dyn TlsConnector>,
) -> Result<(ServiceSender, ServiceReceiver, ServiceHandshake), String> {
    let greeted = async {
        let (mut sender, mut receiver) = target.open(opener).await?;
        sender.send(&json!({ "type": "hello", "version": 1 }).to_string()).await?;
        let hello = ServiceHandshake::parse(&receiver.next().await?)?;
        Ok((sender, receiver, hello))
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, greeted).await.unwrap_or_else(|_| Err("it did not greet within 5 s".into()))
}

/// Exchanges messages; replies may come in any order, by id. `Ok` when all senders are dropped.
async fn exchange_messages(
    mut sender: ServiceSender,
    mut receiver: ServiceReceiver,
    queued: &mut mpsc::Receiver<QueuedMessage>,
) -> Result<(), String> {
    let waiting: RefCell<HashMap<String, oneshot::Sender<Value>>> = RefCell::default();
    let sending = async {
        while let Some(QueuedMessage { id, text, answer }) = queued.recv().await {
            // Forget callers that stopped waiting before the list grows.
            waiting.borrow_mut().retain(|_, w| !w.is_closed());
            waiting.borrow_mut().insert(id, answer);
            sender.send(&text).await?;
        }
        Ok(())
    };
    let receiving = async {
        loop {
            let answer = receiver.next().await?;
            match answer["id"].as_str().and_then(|id| waiting.borrow_mut().remove(id)) {
                Some(waiter) => drop(waiter.send(answer)),
                None => tracing::debug!("a service sent a reply to no pending request"),
            }
        }
    };
    tokio::select! {
        ended = sending => ended,
        failed = receiving => failed,
    }
}
