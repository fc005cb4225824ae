//! What one load run does, as the harness writes it and the generator process reads it (JSON).

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One load run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// How requests reach the origin.
    pub via: Via,
    /// Whether the origin is spoken to over TLS.
    pub tls: bool,
    /// HTTP version of the downstream side.
    pub version: Version,
    /// What is asked, in turn.
    pub exchanges: Vec<Exchange>,
    /// Fields of every request.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// User and password for the proxy (Basic, or RFC 1929).
    #[serde(default)]
    pub login: Option<(String, String)>,
    /// When requests are sent.
    pub pace: Pace,
    /// A new connection for each request.
    #[serde(default)]
    pub new_connection: bool,
    /// Whether a new TLS connection may resume an earlier session.
    #[serde(default)]
    pub resume_tls: bool,
    /// Every so many requests of a closed loop one is broken off: in turn before its answer, and within it, by a close
    /// and by a reset. 0: none.
    #[serde(default)]
    pub cancel_every: u32,
    /// Whose certificate must be seen; any will do when it is not said.
    #[serde(default)]
    pub certificate: Option<Certificate>,
    /// Seconds before counting begins.
    pub warm_up: f64,
    /// Seconds of counting.
    pub seconds: f64,
    /// Generator threads.
    pub threads: usize,
}

/// Whose certificate a TLS handshake must show, so that a tunnel cannot pass for an interception or the other way round.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certificate {
    /// The origin's own, the first in this PEM file.
    Origin(PathBuf),
    /// Any but the origin's own.
    NotOrigin(PathBuf),
}

/// One request and what must come back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// `host:port` of the origin; the host is a name that means loopback, or an address.
    pub authority: String,
    /// Path and query.
    pub path: String,
    /// A file with the request body; a `POST` when there is one, else a `GET`.
    #[serde(default)]
    pub body: Option<PathBuf>,
    /// Fields of this request alone.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// What the response must be.
    pub check: Check,
}

/// What a response must be. Any status but 200 is an error in every other case than [`Refused`](Self::Refused).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Byte for byte the content of this file.
    File(PathBuf),
    /// Any body that holds this text.
    Holds(String),
    /// A stream of this many bytes with this many stamped events, each of whose delays is measured.
    Stamped {
        /// Body length; unset where a gateway writes the events anew.
        #[serde(default)]
        bytes: Option<usize>,
        /// Stamped events.
        events: usize,
    },
    /// The status 401 or 403, over HTTP/1.1.
    Refused,
}

/// The route from the client to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Straight to the origin.
    Direct,
    /// Origin-form requests to this address, which stands for the origin (reverse proxies, relays); with TLS, the handshake too.
    Reverse(SocketAddr),
    /// Absolute-form requests to this proxy.
    Absolute(SocketAddr),
    /// A CONNECT tunnel through this proxy.
    Connect(SocketAddr),
    /// A SOCKS5 tunnel through this proxy.
    Socks5(SocketAddr),
}

/// HTTP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// HTTP/1.1.
    H1,
    /// HTTP/2: ALPN over TLS, prior knowledge without; so many connections share the concurrency.
    H2 {
        /// Connections.
        connections: usize,
    },
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// The next as soon as the last is answered, at this concurrency.
    Closed(usize),
    /// At this many per second whatever happens; latency counts from the intended send time.
    Open(f64),
    /// So many connections are opened (with a tunnel, for CONNECT and SOCKS5) and kept without traffic.
    Hold(usize),
}

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests answered as they must be, within the counted time.
    pub ok: u64,
    /// Requests answered as they must be since the start, before and after the counted time too.
    pub answered: u64,
    /// Requests that failed in any way, within the counted time.
    pub errors: u64,
    /// Requests broken off on purpose.
    #[serde(default)]
    pub cancelled: u64,
    /// Kept connections found closed before a first byte, and retried on a new one (RFC 9112 9.3.1).
    pub stale: u64,
    /// The first few errors.
    pub messages: Vec<String>,
    /// Counted seconds.
    pub seconds: f64,
    /// Response body bytes.
    pub body_bytes: u64,
    /// Connections opened in the counted time.
    pub connects: u64,
    /// Whole duration of a request in microseconds.
    pub total: Quantiles,
    /// Time to the first byte of the response in microseconds.
    pub ttfb: Quantiles,
    /// Age of stamped events on arrival in microseconds.
    pub event_delay: Quantiles,
    /// The generator's own CPU in microseconds per request.
    pub own_cpu_us: f64,
}

impl Outcome {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.ok as f64 / self.seconds.max(1e-9)
    }
}

/// A distribution in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}
