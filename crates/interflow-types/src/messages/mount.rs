//! Gateway endpoints: how a feature crate claims requests on the gateway listener, and forwards or answers them.

use std::sync::Arc;

use crate::{BoxFuture, ByteStr, Flow, Headers, Host, Method, Request, RequestHead, Response, Result, Url};

/// What is known of a request on the gateway listener before it is routed.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRequest<'a> {
    pub method: &'a Method,
    /// Path and query.
    pub path: &'a ByteStr,
    /// The host from the `Host` field or `:authority`.
    pub host: Option<&'a Host>,
    pub headers: &'a Headers,
}

/// The target of a request that a [`GatewayMount`] claims.
pub enum MountTarget {
    /// Forward to an origin, through the whole request pipeline.
    Forward {
        /// The effective URL at the origin.
        url: Url,
        /// Whether to send the client's `Host` to the origin instead of the origin's own name.
        keep_host: bool,
        /// Which endpoint was used, as the mount's stages will find it in the flow's [`EndpointId`].
        endpoint: Option<ByteStr>,
    },
    /// Answer locally, through the request pipeline, with this handler in place of the origin.
    Serve(Arc<dyn LocalHandler>),
}

/// The endpoint through which a request came: an extension of its flow, by which stages of the same feature recognise
/// it. The URL alone would not do, because two endpoints may lead to one origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointId(pub Option<ByteStr>);

/// Who answers a request in its origin's place: an extension of its flow, which a stage may set as long as the request is
/// not sent. For requests whose body decides on it.
#[derive(Clone, Default)]
pub struct ServedBy(pub Option<Arc<dyn LocalHandler>>);

/// Claims requests on the gateway listener, by path, host or header. Routes configured by the operator take
/// precedence.
///
/// ```
/// use std::sync::Arc;
///
/// use interflow_types::{
///     BoxFuture, Flow, GatewayMount, GatewayRequest, LocalHandler, MountTarget, Request, Response, Result, StatusCode,
/// };
///
/// /// Serves `/ping`.
/// struct Ping;
///
/// impl LocalHandler for Ping {
///     fn serve<'a>(&'a self, _flow: &'a mut Flow, _request: Request) -> BoxFuture<'a, Result<Response>> {
///         Box::pin(async { Ok(Response::full(StatusCode::OK, "text/plain", "pong\n")) })
///     }
/// }
///
/// struct PingMount(Arc<Ping>);
///
/// impl GatewayMount for PingMount {
///     fn name(&self) -> &'static str {
///         "ping"
///     }
///
///     fn find(&self, request: &GatewayRequest<'_>) -> Option<MountTarget> {
///         (request.path.as_str() == "/ping").then(|| MountTarget::Serve(self.0.clone()))
///     }
/// }
/// ```
pub trait GatewayMount: Send + Sync {
    /// A short name by which log messages refer to the mount.
    fn name(&self) -> &'static str;

    /// Where this request goes; `None` if it is not for this mount. Called for every request on the listener until a
    /// mount claims it, so it must be cheap.
    fn find(&self, request: &GatewayRequest<'_>) -> Option<MountTarget>;

    /// Whether the mount authorizes requests itself, including cross-site requests from browsers. If false, the
    /// gateway listener checks `Host` and `Origin` before it calls the mount.
    fn authorizes_requests(&self) -> bool {
        false
    }

    /// Whether the request is for a page to which links and redirects of other sites may lead a browser. What such a page
    /// does needs more than the request for it.
    fn is_page(&self, _request: &GatewayRequest<'_>) -> bool {
        false
    }
}

/// Answers requests in place of an origin: an API, a media endpoint, a built-in page. Stages see the request before
/// it and the response after it, and both are recorded, as with any origin. See [`GatewayMount`] for an example.
pub trait LocalHandler: Send + Sync {
    /// Whether its flows must not be recorded, because they carry text that is not redacted yet.
    fn is_private(&self) -> bool {
        false
    }

    /// Adds to the flow before any stage sees the request: the user, if the handler authenticates requests itself,
    /// and extensions such as [`UsageLabel`](crate::UsageLabel).
    fn identify_client(&self, _flow: &mut Flow, _head: &RequestHead) {}

    /// Answers a request. The URL has the authority that the client requested.
    ///
    /// # Errors
    /// The proxy's error table maps the error to the response.
    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>>;
}
