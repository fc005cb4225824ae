//! Serves the admin ports, with limits on the number of connections and on the time for receiving a request head.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::AdminConfig;

/// Maximum size of a request head, in bytes.
const MAX_HEAD: usize = 128 << 10;
/// Pause of accepting when the system has no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Rate limit for logging that.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// How long connections may take to finish when the port closes.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLimits {
    header_timeout: Duration,
    max_connections: usize,
}

impl PortLimits {
    pub(crate) fn new(config: &AdminConfig) -> Self {
        Self { header_timeout: config.header_timeout.0, max_connections: config.max_connections.max(1) }
    }
}

#[derive(Default)]
struct AdminConnection {
    /// Whether it has carried a request.
    asked: AtomicBool,
    /// Asks the connection to close in favour of a new one.
    leaves: Notify,
}

/// The open connections, oldest first.
#[derive(Default)]
struct AdminConnections {
    next: u64,
    open: BTreeMap<u64, Arc<AdminConnection>>,
}

impl AdminConnections {
    /// Registers a new connection. At the limit, the oldest connection without a request is closed; `None` if all have
    /// carried one.
    fn insert(&mut self, most: usize) -> Option<(u64, Arc<AdminConnection>)> {
        if self.open.len() >= most {
            let silent = self.open.iter().find(|(_, c)| !c.asked.load(Relaxed)).map(|(id, _)| *id)?;
            if let Some(left) = self.open.remove(&silent) {
                left.leaves.notify_one();
            }
        }
        let (id, connection) = (self.next, Arc::default());
        self.next += 1;
        self.open.insert(id, Arc::clone(&connection));
        Some((id, connection))
    }
}

struct ConnectionSlot(Arc<Mutex<AdminConnections>>, u64);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.lock().open.remove(&self.1);
    }
}

/// Serves until `end` resolves, then lets requests in progress finish. Handlers get the client's address from
/// [`ConnectInfo`].
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: PortLimits,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let connections = Arc::new(Mutex::new(AdminConnections::default()));
    let (closing, open) = watch::channel(false);
    let mut http = http1::Builder::new();
    // Without a timer, the timeout for the head would never fire.
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(MAX_HEAD);
    let mut logged: Option<Instant> = None;
    let mut due = move || {
        let due = logged.is_none_or(|at| at.elapsed() >= LOG_EVERY);
        if due {
            logged = Some(Instant::now());
        }
        due
    };
    let mut end = std::pin::pin!(end);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // The listener is dropped below, so that a new instance can bind the port while requests end.
            () = &mut end => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) if is_of_one_connection(&e) => continue,
            Err(e) => {
                if due() {
                    tracing::warn!(error = %e, "admin: cannot accept a connection");
                }
                // An error such as too many open files lasts; without the pause, the loop would run hot.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // The lock is held only for this statement.
        let entered = connections.lock().insert(limits.max_connections);
        let Some((id, entered)) = entered else {
            if due() {
                tracing::warn!(%peer, "admin: {} connections are open (admin.max_connections)", limits.max_connections);
            }
            reject_over_limit(&stream);
            continue;
        };
        let slot = ConnectionSlot(Arc::clone(&connections), id);
        // Responses are small; waiting to fill a segment would only delay them.
        let _ = stream.set_nodelay(true);
        let asking = Arc::clone(&entered);
        let inner = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            // Set with the first request: from then on the connection is not closed in favour of others.
            asking.asked.store(true, Relaxed);
            request.extensions_mut().insert(ConnectInfo::<SocketAddr>(peer));
            inner.call(request)
        });
        let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let mut closes = open.clone();
        tokio::spawn(async move {
            let _place = slot;
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                // Dropped without a response: it has not sent a request.
                () = entered.leaves.notified() => return,
                () = async { drop(closes.wait_for(|closes| *closes).await) } => {
                    // A request in progress is finished, and the connection is not reused.
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(e) = ended {
                tracing::debug!(%peer, "admin: the connection ended: {e}");
            }
        });
    }
    drop(listener);
    // The receiver of this function would keep `closed` from resolving.
    drop(open);
    let _ = closing.send(true);
    // Waits until all connections have dropped their receivers.
    let _ = tokio::time::timeout(CLOSE_WITHIN, closing.closed()).await;
    Ok(())
}

/// Sends a 503 without blocking: only as much as the socket takes at once.
fn reject_over_limit(stream: &TcpStream) {
    let _ = stream.try_write(
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
}

/// Whether the error concerns only the connection being accepted, not the listener.
fn is_of_one_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
