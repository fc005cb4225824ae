//! The vocabulary that all other crates share: [`Flow`], message heads and [`Body`], [`Headers`], the phases of the
//! request pipeline and the [`Stage`] trait, its verdicts and [`Error`]. No I/O happens here.
//!
//! Feature crates depend on this crate and not on one another. A feature joins the proxy by implementing one of these
//! traits:
//!
//! | trait | called for |
//! |---|---|
//! | [`Stage`] | flows, at the phases it registered for |
//! | [`GatewayMount`] | requests on the gateway listener, to claim them |
//! | [`LocalHandler`] | requests that are answered here instead of by an origin |
//! | [`Recorder`] | every flow, to record it |
//!
//! and sends its own requests through an [`HttpClient`].
#![forbid(unsafe_code)]

pub mod budget;
mod bytestr;
mod certificates;
pub mod data_file;
mod error;
mod flow;
pub mod host_pattern;
pub mod media_type;
mod messages;
pub mod path;
pub mod percent;
mod process_environment;
mod random;
pub mod schema;
pub mod secret_names;
mod stage;
mod terminal_controls;
mod text_form;
pub mod units;
mod usage;
pub mod wildcard;

pub use bytestr::ByteStr;
pub use certificates::CertificateChain;
pub use error::{Error, ErrorKind, ErrorSource, Result, Retryable};
pub use flow::attempts::{Attempt, AttemptHandle, AttemptState, Attempts};
pub use flow::extensions::{
    BodyPreview, ClientResponseFields, DeferredWork, DialedAuthority, ErrorRenderer, MessagePolicy, NotRecorded,
    OutlivesClient, ResolvedNames, ResponseHeadFilter, TunnelOrigin, UsageLabel,
};
pub use flow::id::{FlowId, FlowIdError, random_token};
pub use flow::original::{OriginalBody, OriginalBodyTap, OriginalMessage, OriginalMessages};
pub use flow::recorder::{
    ByteCounts, DecryptedMedia, Direction, FlowOutcome, FlowRecording, FlowStored, MessageKind, Recorder, SecretBodies,
    StreamMessage,
};
pub use flow::timings::{FlowClock, FlowTimings, Microseconds, Timestamp};
pub use flow::{
    ClientInfo, ClientProcess, ClientTls, EntryKind, Extension, Flow, Passthrough, UpstreamInfo, UpstreamTls,
};
pub use host_pattern::{HostIndexKey, HostMatch, HostPattern, HostPatternError, HostPatterns};
pub use messages::authority::{Authority, AuthorityError, Host, Scheme};
pub use messages::body::{Body, BodyFrame, BodyStream, BodyTap, CollectError};
pub use messages::forwarded::{FORWARDING_FIELDS, ForwardedBy, client_address, is_forwarded};
pub use messages::headers::{HeaderNameMask, Headers, HeadersIter, InvalidHeader, name};
pub use messages::http_client::{BoxFuture, HttpClient, ResponseFuture};
pub use messages::message::{
    HttpVersion, Method, Request, RequestHead, RequestTarget, Response, ResponseHead, StatusCode, Url, UrlError,
};
pub use messages::mount::{EndpointId, GatewayMount, GatewayRequest, LocalHandler, MountTarget, ServedBy};
pub use messages::request_id::RequestId;
pub use messages::requested_range::RequestedRange;
pub use process_environment::INHERITED_VARIABLES;
pub use random::random_bytes;
pub use stage::{
    BodyFuture, CertificateFiles, ClientTlsOverride, EarlyExit, InjectedMessages, MaybeFuture, MessageVerdict, Phase,
    PhaseSet, PlanScope, RequestVerdict, Stage, TlsVersion, TunnelVerdict, UpstreamOverrides,
};
pub use terminal_controls::is_terminal_control;
pub use text_form::{is_unset, not_empty};
pub use usage::{CallUsage, ServiceRegion, ServiceTier};
