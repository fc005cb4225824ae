//! Doors that rooms open on the gateway port: requests that they send on to an origin, or answer themselves.

use std::sync::Arc;

use crate::{BoxFuture, ByteStr, Flow, Headers, Host, Method, Request, RequestHead, Response, Result, Url};

/// What the gateway port knows of a request before anything is decided.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, with its query.
    pub path: &'a ByteStr,
    /// The host that the client named.
    pub host: Option<&'a Host>,
    /// The header fields.
    pub headers: &'a Headers,
}

/// Where a request of the gateway port goes.
pub enum MountTarget {
    /// To this URL at an origin, through the whole corridor.
    Forward {
        /// The URL at the origin.
        url: Url,
        /// Whether the client's `Host` goes to the origin, rather than the origin's own name.
        keep_host: bool,
        /// What the room wants to know of the flow again: [`EndpointId`].
        endpoint: Option<ByteStr>,
    },
    /// To a room, in the origin's place.
    Serve(Arc<dyn LocalHandler>),
}

/// Which of a room's doors a request came through: a note on its flow. Two doors may lead to one origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointId(pub Option<ByteStr>);

/// A room with doors of its own on the gateway port. The owner's routes are asked before it.
pub trait GatewayMount: Send + Sync {
    /// The name in logs.
    fn name(&self) -> &'static str;

    /// Where this request goes; `None` when it is none of this room's.
    fn find(&self, knock: &GatewayRequest<'_>) -> Option<MountTarget>;

    /// Whether it decides by itself who may send a request, web pages of other sites included. Otherwise the gateway port
    /// checks `Host` and `Origin` before it is asked.
    fn authorizes_requests(&self) -> bool {
        false
    }
}

/// A room that stands in an origin's place. The stages see the request before it and the response after it, and the
/// recorder sees both, as with any origin.
pub trait LocalHandler: Send + Sync {
    /// Whether its flows must not be recorded, since they carry what is yet to be redacted.
    fn is_private(&self) -> bool {
        false
    }

    /// Completes the flow before any stage sees the request: the user, when the handler authenticates requests itself, and
    /// extensions such as [`UsageLabel`](crate::UsageLabel).
    fn identify_client(&self, _flow: &mut Flow, _head: &RequestHead) {}

    /// Answers. The request's URL carries the authority that the client named.
    ///
    /// # Errors
    /// What the engine's table turns into the response.
    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>>;
}
