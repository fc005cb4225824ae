//! The recorded flow as plain data: what the store keeps and what lists and archives are built from.
//!
//! All types are owned, `Clone` and serializable. Bytes that are not UTF-8 become `{"base64": "…"}` in text formats.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use interflow_types::schema::JsonSchema;
use interflow_types::{
    Attempt, Authority, Direction, EntryKind, FlowId, FlowTimings, Headers, Host, MessageKind, Scheme, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::originals::OriginalRecord;
use crate::serde_repr;

/// Text that is usually a constant, such as protocol versions and error kinds, and is then not allocated.
pub type StaticLabel = Cow<'static, str>;

interflow_types::labelled_enum! {
    /// The recording state of a flow.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum FlowState {
        // Stored as its number in this order.
        /// Still running, or running when its process ended without a final write.
        #[default]
        Open "open",
        /// Ended without an error.
        Complete "complete",
        /// Ended with an error.
        Failed "failed",
        /// Recording stopped before the flow ended: the process exited, or the capture was dropped.
        Cut "cut",
    }
}

interflow_types::labelled_enum! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum FlowKind {
        // Stored as its number in this order.
        /// An HTTP exchange. Event streams and gRPC are recognised by their messages.
        #[default]
        Http "http",
        /// A WebSocket, with its handshake as request and response.
        WebSocket "websocket",
        /// A tunnel whose bytes were passed through, so that it has no request.
        Tunnel "tunnel",
    }
}

/// One recorded flow, without the bytes of its bodies and messages, which are read separately by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Flow")]
pub struct FlowRecord {
    pub id: FlowId,
    pub state: FlowState,
    pub kind: FlowKind,
    pub started: Timestamp,
    /// How the client addressed the proxy.
    pub transport: EntryKind,
    pub scheme: Scheme,
    pub authority: Authority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    pub client: ClientRecord,
    /// The upstream side, if a connection was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamRecord>,
    /// The request; absent for a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRecord>,
    /// Interim responses (1xx) that were relayed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interim: Vec<InterimRecord>,
    /// The response, once its head has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseRecord>,
    /// Request and response as received, if they were edited; `request` and `response` are what was sent on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Box<OriginalRecord>>,
    /// Points in time in microseconds after `started`, and durations in microseconds.
    pub timings: FlowTimings,
    /// The attempts at which a gateway sent the request, if it was the one that sent it: to several providers, or several
    /// times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The error, if the flow failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorRecord>,
    /// Bytes transferred through a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelRecord>,
    /// Why a tunnel was passed through uninspected: such as `excluded` or `pinning_bypass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<StaticLabel>,
    /// Number of recorded messages.
    #[serde(default)]
    pub messages: u64,
    /// Tags set by stages and by the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The operator's comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The flow that this one replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<FlowId>,
    /// Whether the flow was imported from an archive.
    #[serde(default)]
    pub imported: bool,
    /// Archive fields without a counterpart here (such as HAR's `_initiator`), kept so that an export can restore them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Client")]
pub struct ClientRecord {
    /// Connection number, unique within the recording process.
    pub connection: u64,
    pub peer: Option<SocketAddr>,
    /// The local address that accepted the connection.
    pub local: Option<SocketAddr>,
    pub listener: Arc<str>,
    pub accepted: Timestamp,
    /// TLS parameters, if TLS was terminated here; absent for plain HTTP and for tunnels that were passed through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTlsRecord>,
    /// Akamai fingerprint of its HTTP/2 connection preface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<String>,
    /// JA4H fingerprint of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja4h: Option<String>,
    /// The client process, if lookup is enabled and found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessRecord>,
    /// The name of the client's Docker or Podman container, if lookup is enabled and found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// A process of the recording machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Process")]
pub struct ProcessRecord {
    pub pid: u32,
    /// The file name of its executable.
    pub name: String,
}

/// TLS parameters and fingerprints of the downstream side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClientTls")]
pub struct ClientTlsRecord {
    /// The requested server name (SNI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// Negotiated protocol version, such as `TLSv1.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<StaticLabel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alpn_offered: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// JA3 fingerprint (MD5 in hex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja3: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ja4: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Upstream")]
pub struct UpstreamRecord {
    /// The address connected to: the origin's or the upstream proxy's.
    pub peer: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    /// The upstream proxy's name, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Arc<str>>,
    /// The protocol version: `HTTP/1.1`, `HTTP/2`.
    pub version: StaticLabel,
    /// Connection number, unique within the recording process.
    pub connection: u64,
    /// Whether the connection had carried an earlier request.
    pub reused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTlsRecord>,
}

/// TLS parameters of the upstream side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UpstreamTls")]
pub struct UpstreamTlsRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<StaticLabel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpn: Option<String>,
    /// The origin's certificate was not verified, because the configuration disables verification.
    #[serde(default)]
    pub unverified: bool,
    /// The verification error of a certificate that was accepted unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether the handshake resumed an earlier session.
    #[serde(default)]
    pub resumed: bool,
    /// The impersonated fingerprint, if not Interflow's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Request")]
pub struct RequestRecord {
    pub method: String,
    /// Path and query as the client wrote them; `*` for a server-wide OPTIONS.
    pub path: String,
    /// The downstream version: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` (an import may contain others).
    pub version: StaticLabel,
    /// The protocol requested by an upgrade or extended CONNECT, such as `websocket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The header fields in order, with secrets masked.
    #[serde(with = "serde_repr::headers")]
    #[schemars(with = "serde_repr::HeaderList")]
    pub headers: Headers,
    /// The trailer section (RFC 9110 6.5), with secrets masked.
    #[serde(default, with = "serde_repr::headers", skip_serializing_if = "Headers::is_empty")]
    #[schemars(with = "serde_repr::HeaderList")]
    pub trailers: Headers,
    #[serde(default)]
    pub body: BodyRecord,
}

/// An interim response (RFC 9110 15.2) that was relayed to the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Interim")]
pub struct InterimRecord {
    pub status: u16,
    /// The header fields in order, with secrets masked.
    #[serde(with = "serde_repr::headers")]
    #[schemars(with = "serde_repr::HeaderList")]
    pub headers: Headers,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Response")]
pub struct ResponseRecord {
    pub status: u16,
    /// The reason phrase as received; empty over HTTP/2.
    #[serde(default, with = "serde_repr::raw", skip_serializing_if = "Bytes::is_empty")]
    #[schemars(with = "serde_repr::BytesRepr<\'static>")]
    pub reason: Bytes,
    /// The version on the side it was received from.
    pub version: StaticLabel,
    /// The header fields in order, with secrets masked.
    #[serde(with = "serde_repr::headers")]
    #[schemars(with = "serde_repr::HeaderList")]
    pub headers: Headers,
    /// The trailer section (RFC 9110 6.5), with secrets masked.
    #[serde(default, with = "serde_repr::headers", skip_serializing_if = "Headers::is_empty")]
    #[schemars(with = "serde_repr::HeaderList")]
    pub trailers: Headers,
    #[serde(default)]
    pub body: BodyRecord,
}

/// Metadata of a body; its bytes are read separately by flow id and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Body")]
pub struct BodyRecord {
    /// Size as transferred: transfer coding removed, content coding kept.
    pub size: u64,
    /// Bytes recorded, always from the beginning of the body.
    pub kept: u64,
    /// Why `kept` is less than `size`, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingReason>,
    /// SHA-256 of the kept bytes, if only a head was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_sha256: Option<Sha256Digest>,
}

impl BodyRecord {
    pub const fn whole(size: u64) -> Self {
        Self { size, kept: size, missing: None, head_sha256: None }
    }

    pub const fn partial(size: u64, kept: u64, missing: Option<MissingReason>) -> Self {
        Self { size, kept, missing, head_sha256: None }
    }

    /// Explains why less was recorded than transferred; `None` for a complete body.
    pub fn missing_explanation(&self) -> Option<&'static str> {
        self.missing.map(MissingReason::explanation)
    }
}

/// A SHA-256 digest, in hex in text formats.
#[derive(Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(inline)]
pub struct Sha256Digest(#[schemars(with = "String")] pub [u8; 32]);

impl std::fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
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
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| "a SHA-256 has 64 digits in hex")?;
        Ok(Self(bytes))
    }
}

interflow_types::serialize_as_text!(Sha256Digest);

interflow_types::labelled_enum! {
    /// Why a body is not recorded in full.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum MissingReason {
        /// Limited by `record.max_body` or `record.bodies = false`.
        Capped "capped",
        /// The recorder was too far behind and configured to drop, or the disk was full.
        Dropped "dropped",
        /// Lost when the process or machine crashed, or damaged on disk.
        Lost "lost",
        /// Media or a large body, of which only the first part is recorded (`record.large_bodies`).
        Head "head",
        /// Media decrypted here, of which nothing is recorded (`record.decrypted_media`).
        Decrypted "decrypted",
        /// A key or a licence, or a text that contains keys: never recorded.
        Secret "secret",
        /// The flow runs at another replica, which has its bodies until it has ended.
        Elsewhere "elsewhere",
    }
}

impl MissingReason {
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Capped => "capped by the configuration",
            Self::Dropped => "the recorder could not follow, or the disk was full",
            Self::Lost => "lost or damaged on disk",
            Self::Head => "recorded as a head: media or a large body; record.large_bodies = \"full\" records it whole",
            Self::Decrypted => "decrypted media is not recorded; record.decrypted_media = true records it",
            Self::Secret => "keys and licences are never recorded",
            Self::Elsewhere => "the flow runs at another replica; its bodies can be read here once it has ended",
        }
    }
}

/// The error that ended a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowError")]
pub struct ErrorRecord {
    /// The label of the error's kind, such as `upstream_timeout`.
    pub kind: StaticLabel,
    /// Who caused it: `client`, `upstream`, `config` or `internal`.
    pub blame: StaticLabel,
    pub message: String,
}

/// Bytes transferred through a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TunnelBytes")]
pub struct TunnelRecord {
    pub sent: u64,
    pub received: u64,
}

/// One message of a WebSocket, event stream or gRPC stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RecordedMessage")]
pub struct MessageRecord {
    /// Its position among the flow's messages, from 0.
    pub index: u64,
    pub direction: Direction,
    pub kind: MessageKind,
    /// When its last byte arrived.
    pub at: Timestamp,
    /// Size of the payload as transferred.
    pub size: u64,
    /// The payload; shorter than `size` if capped.
    #[serde(with = "serde_repr::raw")]
    #[schemars(with = "serde_repr::BytesRepr<\'static>")]
    pub payload: Bytes,
}

/// The summary of a flow for live views; contains no headers or bodies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSummary {
    pub id: FlowId,
    pub state: FlowState,
    pub kind: FlowKind,
    pub started: Timestamp,
    /// Duration in microseconds, up to now while the flow is open.
    pub duration: u64,
    pub scheme: Scheme,
    pub authority: Authority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub version: StaticLabel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    pub client: Option<SocketAddr>,
    /// Bytes sent to the origin: body or tunnel.
    pub request_size: u64,
    /// Bytes received from the origin: body or tunnel.
    pub response_size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_type: Option<String>,
    /// Number of recorded messages.
    pub messages: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StaticLabel>,
    /// Why a tunnel was passed through uninspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<StaticLabel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The flow that this one replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<FlowId>,
}

impl FlowRecord {
    /// The version of its serialised form, which every line of an export names. A member may be added without a new one;
    /// a member that is renamed, removed, or given another meaning needs one.
    pub const VERSION: u32 = 1;

    /// A row with only the mandatory fields; importers fill in the rest.
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
            client: ClientRecord::default(),
            upstream: None,
            request: None,
            interim: Vec::new(),
            response: None,
            original: None,
            attempts: Vec::new(),
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

    pub fn host(&self) -> Cow<'_, str> {
        match &self.authority.host {
            Host::Name(name) => Cow::Borrowed(name),
            Host::Ip(ip) => Cow::Owned(ip.to_string()),
        }
    }

    /// The URL as shown to users; `host:port` for a tunnel.
    pub fn url(&self) -> String {
        match &self.request {
            None => self.authority.to_string(),
            Some(r) => url_of(self.scheme, &self.authority, &r.path),
        }
    }

    /// Duration in microseconds; `None` while the flow is open.
    pub fn duration(&self) -> Option<u64> {
        // Flows that were cut off have no end; their last known event is the best estimate.
        self.timings.done.or(match self.state {
            FlowState::Open => None,
            _ => self.timings.last_byte.or(self.timings.first_byte),
        })
    }

    /// When it ended, as far as that is known, in microseconds since the Unix epoch.
    pub fn ended(&self) -> u64 {
        self.started.micros().saturating_add(self.duration().unwrap_or_default())
    }

    pub fn body(&self, direction: Direction) -> Option<&BodyRecord> {
        match direction {
            Direction::Request => self.request.as_ref().map(|r| &r.body),
            Direction::Response => self.response.as_ref().map(|r| &r.body),
        }
    }

    pub fn headers(&self, direction: Direction) -> Option<&Headers> {
        match direction {
            Direction::Request => self.request.as_ref().map(|r| &r.headers),
            Direction::Response => self.response.as_ref().map(|r| &r.headers),
        }
    }

    /// The media type of the body in this direction, in lower case, without parameters.
    pub fn media_type(&self, direction: Direction) -> Option<String> {
        media_type(self.headers(direction)?)
    }

    /// The flow's summary. `now` is the assumed end of a flow that is still open.
    pub fn summary(&self, now: Timestamp) -> FlowSummary {
        let running = now.micros().saturating_sub(self.started.micros());
        let (request_size, response_size) = self.sizes();
        FlowSummary {
            id: self.id,
            state: self.state,
            kind: self.kind,
            started: self.started,
            // A flow that ended without any timing has no duration, rather than one that grows.
            duration: self.duration().unwrap_or(if self.state == FlowState::Open { running } else { 0 }),
            scheme: self.scheme,
            authority: self.authority.clone(),
            method: self.request.as_ref().map(|r| r.method.clone()),
            path: self.request.as_ref().map(|r| r.path.clone()),
            status: self.response.as_ref().map(|r| r.status),
            version: self.request.as_ref().map_or(Cow::Borrowed(""), |r| r.version.clone()),
            user: self.user.clone(),
            client: self.client.peer,
            request_size,
            response_size,
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

/// The media type in a message head, in lower case, without parameters.
pub fn media_type(headers: &Headers) -> Option<String> {
    media_essence(headers).map(Cow::into_owned)
}

/// A count as SQL has it: its integers are signed.
pub fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// The URL of a request.
pub fn url_of(scheme: Scheme, authority: &Authority, path: &str) -> String {
    // A server-wide OPTIONS has no path.
    let path = if path == "*" { "" } else { path };
    format!("{scheme}://{}{path}", authority.to_host_header(scheme))
}

/// Like [`media_type`], borrowed if it is already in lower case.
pub(crate) fn media_essence(headers: &Headers) -> Option<Cow<'_, str>> {
    let value = headers.get_str("content-type")?;
    let end = value.bytes().position(|b| b == b';').unwrap_or(value.len());
    let essence = value[..end].trim_ascii();
    match essence.bytes().any(|b| b.is_ascii_uppercase()) {
        true => Some(essence.to_ascii_lowercase().into()),
        false => (!essence.is_empty()).then_some(essence.into()),
    }
}
