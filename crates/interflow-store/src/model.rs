//! The recorded flow as data: what a store keeps, what lists and archives are made from.
//!
//! Everything here is owned, `Clone` and serde-able. Bytes that may be no UTF-8 become `{"base64": "…"}` in text formats.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{
    Authority, Direction, EntryKind, FlowId, FlowTimings, Headers, Host, MessageKind, Scheme, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::originals::OriginalRow;
use crate::serde_repr;

/// Text that is usually a constant: protocol versions, error kinds.
pub type StaticLabel = Cow<'static, str>;

/// How far a flow has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowState {
    /// It is still running.
    #[default]
    Open,
    /// It ended as it should.
    Complete,
    /// It ended with an error.
    Failed,
    /// Its recording was cut off: the process ended, or the capture was dropped, before the flow was over.
    Cut,
}

/// What a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowKind {
    /// An HTTP exchange (event streams and gRPC are told by their messages).
    #[default]
    Http,
    /// A WebSocket.
    WebSocket,
    /// A raw tunnel.
    Tunnel,
}

/// One recorded flow without the bytes of its bodies and messages, which are asked for by its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Its name.
    #[serde(with = "serde_repr::text")]
    pub id: FlowId,
    /// How far it has come.
    pub state: FlowState,
    /// What it is.
    pub kind: FlowKind,
    /// When it began.
    #[serde(with = "serde_repr::micros")]
    pub started: Timestamp,
    /// How the client asked for the origin.
    #[serde(with = "serde_repr::transport")]
    pub transport: EntryKind,
    /// Scheme of the origin.
    #[serde(with = "serde_repr::scheme")]
    pub scheme: Scheme,
    /// Host and port of the origin.
    #[serde(with = "serde_repr::text")]
    pub authority: Authority,
    /// The authenticated user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    /// The client's leg.
    pub client: ClientRow,
    /// The upstream leg, once there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamRow>,
    /// The request; none for a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRow>,
    /// Interim responses (1xx) that were relayed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interim: Vec<InterimRow>,
    /// The response, once its head had come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseRow>,
    /// The request and the response as they came in, where they were edited here; `request` and `response` are what went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Box<OriginalRow>>,
    /// Moments in microseconds after `started`, and durations in microseconds.
    #[serde(with = "serde_repr::timings")]
    pub timings: FlowTimings,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRow>,
    /// Bytes that crossed a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelRow>,
    /// Why a tunnel was passed through uninspected: the label of an [`interflow_types::Passthrough`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<StaticLabel>,
    /// How many messages are kept.
    #[serde(default)]
    pub messages: u64,
    /// Marks put on by stages and by the owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The owner's comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The flow this one was made from: what was replayed.
    #[serde(default, with = "serde_repr::maybe_text", skip_serializing_if = "Option::is_none")]
    pub parent: Option<FlowId>,
    /// It came from an archive, not from the wire.
    #[serde(default)]
    pub imported: bool,
    /// What the archive said of it that has no place above (HAR's `_initiator`), so that it can be said again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
}

/// The client's leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientRow {
    /// A number of the connection, unique within the process that recorded it.
    pub connection: u64,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// The address that accepted it.
    pub local: Option<SocketAddr>,
    /// The listener's name.
    pub listener: Arc<str>,
    /// When the connection was accepted.
    #[serde(with = "serde_repr::micros")]
    pub accepted: Timestamp,
    /// Its TLS, when it was terminated here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTlsRow>,
    /// How it opened its HTTP/2 connection: Akamai's fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<String>,
    /// The shape of its request: JA4H.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja4h: Option<String>,
    /// Its process, when that was looked for and found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessRow>,
    /// The name of its Docker or Podman container, when that was looked for and found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// A process of the machine that recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// The file name of its program.
    pub name: String,
}

/// The TLS of the client's leg, with its fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientTlsRow {
    /// Server name asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// Protocol version agreed on: `TLSv1.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<StaticLabel>,
    /// Cipher suite agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// Application protocols offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alpn_offered: Vec<String>,
    /// Application protocol agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// JA3 fingerprint (MD5 in hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja3: Option<String>,
    /// JA4 fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja4: Option<String>,
}

/// The upstream leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpstreamRow {
    /// The address connected to: the origin's or the upstream proxy's.
    pub peer: Option<SocketAddr>,
    /// Our own address on that connection.
    pub local: Option<SocketAddr>,
    /// The upstream proxy's name, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Arc<str>>,
    /// The protocol spoken: `HTTP/1.1`, `HTTP/2`.
    pub version: StaticLabel,
    /// A number of the connection, unique within the process that recorded it.
    pub connection: u64,
    /// Whether the connection had carried a request before.
    pub reused: bool,
    /// Its TLS, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTlsRow>,
}

/// The TLS of the upstream leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpstreamTlsRow {
    /// Protocol version agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<StaticLabel>,
    /// Cipher suite agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// Application protocol agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// The origin's certificate was not verified, by the owner's wish.
    #[serde(default)]
    pub unverified: bool,
    /// What is wrong with the certificate that was not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The handshake resumed an earlier session.
    #[serde(default)]
    pub resumed: bool,
    /// Whose fingerprint the connection had, when it was not our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// A request's head and what is known of its body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The method, case as sent.
    pub method: String,
    /// Path and query as the client wrote them; `*` for a server-wide OPTIONS.
    pub path: String,
    /// The version on the client's leg: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` (an import may bring others).
    pub version: StaticLabel,
    /// The protocol asked for by an upgrade or extended CONNECT: `websocket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The fields, in order, secrets masked.
    #[serde(with = "serde_repr::headers")]
    pub headers: Headers,
    /// The trailer section.
    #[serde(default, with = "serde_repr::headers", skip_serializing_if = "Headers::is_empty")]
    pub trailers: Headers,
    /// The body.
    #[serde(default)]
    pub body: BodyRow,
}

/// An interim response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterimRow {
    /// 100 to 199.
    pub status: u16,
    /// The fields, in order, secrets masked.
    #[serde(with = "serde_repr::headers")]
    pub headers: Headers,
}

/// A response's head and what is known of its body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseRow {
    /// The status code.
    pub status: u16,
    /// The reason phrase as it stood on the wire; empty over HTTP/2.
    #[serde(default, with = "serde_repr::raw", skip_serializing_if = "Bytes::is_empty")]
    pub reason: Bytes,
    /// The version on the leg it came by.
    pub version: StaticLabel,
    /// The fields, in order, secrets masked.
    #[serde(with = "serde_repr::headers")]
    pub headers: Headers,
    /// The trailer section.
    #[serde(default, with = "serde_repr::headers", skip_serializing_if = "Headers::is_empty")]
    pub trailers: Headers,
    /// The body.
    #[serde(default)]
    pub body: BodyRow,
}

/// What is known of a body; its bytes are asked for by flow id and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyRow {
    /// Bytes as sent: transfer coding removed, content coding kept.
    pub size: u64,
    /// Bytes that were kept of it, from its beginning.
    pub kept: u64,
    /// Why less was kept than sent, when that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingReason>,
    /// SHA-256 of the kept bytes of a body that was recorded as a head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_sha256: Option<Sha256Digest>,
}

impl BodyRow {
    /// A body of this size that was kept whole.
    pub const fn whole(size: u64) -> Self {
        Self { size, kept: size, missing: None, head_sha256: None }
    }

    /// What was kept of a body, and why less than was sent.
    pub const fn partial(size: u64, kept: u64, missing: Option<MissingReason>) -> Self {
        Self { size, kept, missing, head_sha256: None }
    }

    /// Says why less was kept than was sent; nothing for a body that is here whole.
    pub fn missing_explanation(&self) -> Option<&'static str> {
        self.missing.map(MissingReason::explanation)
    }
}

/// A SHA-256, in hex where it is text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sha256Digest(pub [u8; 32]);

impl std::fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl std::fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Sha256Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "a SHA-256 has 64 digits in hex";
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return Err(wrong);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a body is not here whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingReason {
    /// The owner's cap (`record.max_body`) or `record.bodies = false`.
    Capped,
    /// The recorder was too far behind and set to drop, or the disk was full.
    Dropped,
    /// It was lost when the process or machine went down, or its bytes on disk are damaged.
    Lost,
    /// A medium or a large body, of which the first part is recorded (`record.large_bodies`).
    Head,
    /// A medium that was decrypted here, of which nothing is recorded (`record.decrypted_media`).
    Decrypted,
}

impl MissingReason {
    /// Its label: `capped`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capped => "capped",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
            Self::Head => "head",
            Self::Decrypted => "decrypted",
        }
    }

    /// The same in words.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Capped => "capped by the configuration",
            Self::Dropped => "the recorder could not follow, or the disk was full",
            Self::Lost => "lost or damaged on disk",
            Self::Head => "recorded as a head: media or a large body; record.large_bodies = \"full\" records it whole",
            Self::Decrypted => "decrypted media is not recorded; record.decrypted_media = true records it",
        }
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorRow {
    /// The label of the error's kind, such as `upstream_timeout`.
    pub kind: StaticLabel,
    /// Whose fault it was: `client`, `upstream`, `config` or `internal`.
    pub blame: StaticLabel,
    /// What happened.
    pub message: String,
}

/// Bytes that crossed a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRow {
    /// From the client to the upstream.
    pub sent: u64,
    /// From the upstream to the client.
    pub received: u64,
}

/// One message of a WebSocket, event stream or gRPC stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageRow {
    /// Its place among the flow's messages, from 0.
    pub index: u64,
    /// Which way it went.
    #[serde(with = "serde_repr::direction")]
    pub direction: Direction,
    /// What it is.
    #[serde(with = "serde_repr::message_kind")]
    pub kind: MessageKind,
    /// When its last byte had come.
    #[serde(with = "serde_repr::micros")]
    pub at: Timestamp,
    /// Bytes of the payload as it passed.
    pub size: u64,
    /// The payload; shorter than `size` when it was capped.
    #[serde(with = "serde_repr::raw")]
    pub payload: Bytes,
}

/// The few words on a flow that a live view needs; never headers, never bodies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Its name.
    #[serde(with = "serde_repr::text")]
    pub id: FlowId,
    /// How far it has come.
    pub state: FlowState,
    /// What it is.
    pub kind: FlowKind,
    /// When it began.
    #[serde(with = "serde_repr::micros")]
    pub started: Timestamp,
    /// Microseconds from its beginning to its end, or to now while it is open.
    pub duration: u64,
    /// Scheme of the origin.
    #[serde(with = "serde_repr::scheme")]
    pub scheme: Scheme,
    /// Host and port of the origin.
    #[serde(with = "serde_repr::text")]
    pub authority: Authority,
    /// The method, when there is a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path and query, when there is a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The status, once there is a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The version on the client's leg.
    pub version: StaticLabel,
    /// The authenticated user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// Bytes sent to the origin: body or tunnel.
    pub request_size: u64,
    /// Bytes received from the origin: body or tunnel.
    pub response_size: u64,
    /// The request's media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_type: Option<String>,
    /// The response's media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_type: Option<String>,
    /// How many messages are kept.
    pub messages: u64,
    /// The label of the error's kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StaticLabel>,
    /// Why a tunnel was passed through uninspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<StaticLabel>,
    /// Marks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The flow this one was made from: what was replayed.
    #[serde(default, with = "serde_repr::maybe_text", skip_serializing_if = "Option::is_none")]
    pub parent: Option<FlowId>,
}

impl FlowRow {
    /// A row with nothing but what every flow has; importers fill in the rest.
    pub fn new(id: FlowId, started: Timestamp, transport: EntryKind, scheme: Scheme, authority: Authority) -> Self {
        Self {
            id,
            state: FlowState::Open,
            kind: FlowKind::Http,
            started,
            transport,
            scheme,
            authority,
            user: None,
            client: ClientRow::default(),
            upstream: None,
            request: None,
            interim: Vec::new(),
            response: None,
            original: None,
            timings: FlowTimings::default(),
            error: None,
            tunnel: None,
            passthrough: None,
            messages: 0,
            tags: Vec::new(),
            comment: None,
            parent: None,
            imported: false,
            archive: None,
        }
    }

    /// The host without brackets or port.
    pub fn host(&self) -> Cow<'_, str> {
        match &self.authority.host {
            Host::Name(name) => Cow::Borrowed(name),
            Host::Ip(ip) => Cow::Owned(ip.to_string()),
        }
    }

    /// The URL as people write it; `host:port` for a tunnel.
    pub fn url(&self) -> String {
        match &self.request {
            None => self.authority.to_string(),
            Some(r) => {
                let path = if r.path == "*" { "" } else { r.path.as_str() };
                format!("{}://{}{path}", self.scheme, self.authority.to_host_header(self.scheme))
            }
        }
    }

    /// Microseconds from its beginning to its end; `None` while it is open.
    pub fn duration(&self) -> Option<u64> {
        self.timings.done.or(match self.state {
            FlowState::Open => None,
            _ => self.timings.last_byte.or(self.timings.first_byte),
        })
    }

    /// What is known of the body that went this way.
    pub fn body(&self, direction: Direction) -> Option<&BodyRow> {
        match direction {
            Direction::Request => self.request.as_ref().map(|r| &r.body),
            Direction::Response => self.response.as_ref().map(|r| &r.body),
        }
    }

    /// The head's fields that went this way.
    pub fn headers(&self, direction: Direction) -> Option<&Headers> {
        match direction {
            Direction::Request => self.request.as_ref().map(|r| &r.headers),
            Direction::Response => self.response.as_ref().map(|r| &r.headers),
        }
    }

    /// The media type of the body that went this way, lower case, without parameters.
    pub fn media_type(&self, direction: Direction) -> Option<String> {
        media_type(self.headers(direction)?)
    }

    /// The few words on it that a live view needs. `now` stands for the end of a flow that is still open.
    pub fn summary(&self, now: Timestamp) -> FlowSummary {
        let running = now.micros().saturating_sub(self.started.micros());
        let sizes = self.tunnel.unwrap_or_else(|| TunnelRow {
            sent: self.request.as_ref().map_or(0, |r| r.body.size),
            received: self.response.as_ref().map_or(0, |r| r.body.size),
        });
        FlowSummary {
            id: self.id,
            state: self.state,
            kind: self.kind,
            started: self.started,
            duration: self.duration().unwrap_or(if self.state == FlowState::Open { running } else { 0 }),
            scheme: self.scheme,
            authority: self.authority.clone(),
            method: self.request.as_ref().map(|r| r.method.clone()),
            path: self.request.as_ref().map(|r| r.path.clone()),
            status: self.response.as_ref().map(|r| r.status),
            version: self.request.as_ref().map_or(Cow::Borrowed(""), |r| r.version.clone()),
            user: self.user.clone(),
            client: self.client.peer,
            request_size: sizes.sent,
            response_size: sizes.received,
            request_type: self.media_type(Direction::Request),
            response_type: self.media_type(Direction::Response),
            messages: self.messages,
            error: self.error.as_ref().map(|e| e.kind.clone()),
            passthrough: self.passthrough.clone(),
            tags: self.tags.clone(),
            parent: self.parent,
        }
    }
}

/// The media type in a head, lower case, without parameters.
pub fn media_type(headers: &Headers) -> Option<String> {
    media_essence(headers).map(Cow::into_owned)
}

/// The same, borrowed where it is written in lower case.
pub(crate) fn media_essence(headers: &Headers) -> Option<Cow<'_, str>> {
    let value = headers.get_str("content-type")?;
    let end = value.bytes().position(|b| b == b';').unwrap_or(value.len());
    let essence = value[..end].trim_ascii();
    match essence.bytes().any(|b| b.is_ascii_uppercase()) {
        true => Some(essence.to_ascii_lowercase().into()),
        false => (!essence.is_empty()).then_some(essence.into()),
    }
}
