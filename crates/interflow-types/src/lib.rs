//! The vocabulary of the house: what a flow is, its two legs, the heads and bodies that cross them, the phases
//! at which a stage may look, what it may answer, and what went wrong. No I/O happens here.
//!
//! Everything above this crate speaks in these words, so that a feature room never needs to know another one.
#![forbid(unsafe_code)]

mod authority;
mod body;
pub mod budget;
mod bytestr;
mod error;
mod extensions;
mod flow;
mod forwarded;
mod headers;
mod http_client;
mod id;
mod message;
mod mount;
mod original;
pub mod path;
pub mod percent;
mod recorder;
mod request_id;
pub mod secret_names;
mod stage;
mod timings;
pub mod units;
pub mod wildcard;

pub use authority::{Authority, AuthorityError, Host, Scheme};
pub use body::{Body, BodyFrame, BodyStream, CollectError};
pub use bytestr::ByteStr;
pub use error::{Error, ErrorKind, ErrorSource, Result, Retryable};
pub use extensions::{
    BodyPreview, DeferredWork, ErrorRenderer, MessagePolicy, NotRecorded, ResolvedNames, ResponseHeadFilter, UsageLabel,
};
pub use flow::{
    ClientInfo, ClientProcess, ClientTls, EntryKind, Extension, Flow, Passthrough, UpstreamInfo, UpstreamTls,
};
pub use forwarded::{ForwardedBy, client_address};
pub use headers::{HeaderNameMask, Headers, HeadersIter, InvalidHeader, name};
pub use http_client::{BoxFuture, HttpClient, ResponseFuture};
pub use id::{FlowId, FlowIdError};
pub use message::{HttpVersion, Method, Request, RequestHead, RequestTarget, Response, ResponseHead, StatusCode, Url};
pub use mount::{EndpointId, GatewayMount, GatewayRequest, LocalHandler, MountTarget};
pub use original::{OriginalBody, OriginalBodyTap, OriginalMessage, OriginalMessages};
pub use recorder::{
    ByteCounts, DecryptedMedia, Direction, FlowOutcome, FlowRecording, MessageKind, Recorder, StreamMessage,
};
pub use request_id::RequestId;
pub use stage::{
    CertificateFiles, ClientTlsOverride, InjectedMessages, MaybeFuture, Phase, PhaseSet, PlanScope, Stage,
    StageVerdict, TlsVersion, UpstreamOverrides,
};
pub use timings::{FlowClock, FlowTimings, Microseconds, Timestamp};
