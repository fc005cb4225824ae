//! The vocabulary of the house: what a flow is, its two legs, the heads and bodies that cross them, the phases
//! at which a stage may look, what it may answer, and what went wrong. No I/O happens here.
//!
//! Everything above this crate speaks in these words, so that a feature room never needs to know another one.
#![forbid(unsafe_code)]

mod authority;
mod body;
pub mod budget;
mod bytestr;
mod capture;
mod egress;
mod error;
mod extensions;
mod flow;
mod forwarded;
mod gateway;
mod head;
mod headers;
mod id;
mod original;
pub mod path;
pub mod percent;
mod request_id;
pub mod secret_names;
mod stage;
mod timings;
pub mod units;
pub mod wildcard;

pub use authority::{Authority, AuthorityError, Host, Scheme};
pub use body::{Body, BodyStream, CollectError, Frame};
pub use bytestr::ByteStr;
pub use capture::{Capture, DecryptedMedia, Direction, Message, MessageKind, Outcome, Recorder, TunnelBytes};
pub use egress::{BoxFuture, Egress, Reply};
pub use error::{Blame, Error, Kind, Result, Retry};
pub use extensions::{
    BodyPreview, DeferredWork, ErrorRenderer, MessagePolicy, NotRecorded, ResolvedNames, ResponseHeadFilter, UsageLabel,
};
pub use flow::{ClientInfo, ClientTls, Flow, Note, Passthrough, Process, Transport, UpstreamInfo, UpstreamTls};
pub use forwarded::{ForwardedBy, client_address};
pub use gateway::{Door, Handler, Knock, Mount, Mounted};
pub use head::{Method, Request, RequestHead, Response, ResponseHead, StatusCode, Target, Url, Version};
pub use headers::{Headers, HeadersIter, InvalidHeader, Names, name};
pub use id::{FlowId, FlowIdError};
pub use original::{Original, OriginalBody, Originals, Passing};
pub use request_id::RequestId;
pub use stage::{CertificateFiles, Injected, Interest, Phase, Scope, Shown, Stage, Step, TlsVersion, Verdict, Way};
pub use timings::{Clock, Micros, Timestamp, Timings};
