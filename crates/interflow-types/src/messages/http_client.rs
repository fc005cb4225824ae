//! The client through which feature crates send requests of their own.

use std::pin::Pin;
use std::time::Instant;

use crate::{AttemptHandle, ByteStr, Request, Response, Result};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub type ResponseFuture<'a> = BoxFuture<'a, Result<Response>>;

/// Sends HTTP requests through the proxy's connection pools, DNS, upstream routes and address filters. Feature crates
/// receive one of these instead of opening connections themselves.
///
/// ```
/// use interflow_types::{Body, Error, ErrorKind, HttpClient, Request, Response, ResponseFuture, StatusCode};
///
/// /// A test double: serves `ok` for paths below `/health`.
/// struct FakeOrigin;
///
/// impl HttpClient for FakeOrigin {
///     fn send(&self, request: Request) -> ResponseFuture<'_> {
///         Box::pin(async move {
///             match request.head.url.path_only().starts_with("/health") {
///                 true => Ok(Response::full(StatusCode::OK, "text/plain", "ok")),
///                 false => Err(Error::new(ErrorKind::Connect, "no such origin")),
///             }
///         })
///     }
/// }
/// ```
pub trait HttpClient: Send + Sync {
    /// Sends one request to the origin in its URL. The client sets framing and hop-by-hop fields.
    ///
    /// # Errors
    /// Those of any flow: see [`ErrorKind`](crate::ErrorKind). A response with an error status is not an error.
    fn send(&self, request: Request) -> ResponseFuture<'_>;

    /// Sends a request whose flow is recorded with these tags. The response has to begin before `until`; else the flow is
    /// recorded as timed out. A client that cannot do so does not limit: the caller bounds its wait in any case.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`ErrorKind::UpstreamTimeout`](crate::ErrorKind::UpstreamTimeout).
    fn send_until(&self, request: Request, tags: Vec<ByteStr>, until: Instant) -> ResponseFuture<'_> {
        let _ = (tags, until);
        self.send(request)
    }

    /// Sends an attempt at a client's request, whose flow records it: the attempt's own is not recorded. The response has
    /// to begin before `until`, as for [`send_until`](Self::send_until).
    ///
    /// # Errors
    /// As [`send_until`](Self::send_until).
    fn send_attempt(&self, request: Request, attempt: AttemptHandle, until: Instant) -> ResponseFuture<'_> {
        let _ = attempt;
        self.send_until(request, Vec::new(), until)
    }
}
