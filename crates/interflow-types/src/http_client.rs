//! The door to the outside that a feature room is handed when it needs a request of its own.

use std::pin::Pin;

use crate::{Request, Response, Result};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an outgoing request comes back with.
pub type ResponseFuture<'a> = BoxFuture<'a, Result<Response>>;

/// Sends requests over the engine's pools, DNS, upstream routes and guards.
pub trait HttpClient: Send + Sync {
    /// Sends one request. Its URL decides where; hop-by-hop fields and framing are the engine's business.
    fn send(&self, request: Request) -> ResponseFuture<'_>;
}
