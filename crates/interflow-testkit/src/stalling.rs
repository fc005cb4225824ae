//! A client whose responses do not end.

use std::task::{Context, Poll};

use interflow_types::{Body, BodyFrame, BodyStream, HttpClient, Request, Response, ResponseFuture, Result, StatusCode};

/// Answers each request with this status, and with a body that never comes.
pub struct StallingService(pub StatusCode);

struct Never;

impl BodyStream for Never {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        Poll::Pending
    }
}

impl HttpClient for StallingService {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        let response = Response::full(self.0, "text/plain", "");
        Box::pin(async { Ok(Response { body: Body::stream(Never), ..response }) })
    }
}
