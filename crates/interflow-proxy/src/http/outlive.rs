//! Exchanges that go on when their client leaves: what they cost does not depend on who is there to read the response.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use interflow_net::ingress::ServiceReply;
use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, OutlivesClient, Result};

use crate::observe::login_watch::LoginWatch;

/// Runs an exchange that a stage asked to [outlive its client](OutlivesClient).
///
/// # Cancellation
/// If the future, or the response's body, is dropped before its end, the rest runs in a task of its own, unless the login
/// that allowed it has ended.
pub(crate) async fn outlive_client(
    terms: OutlivesClient,
    login: Option<LoginWatch>,
    exchange: impl Future<Output = ServiceReply> + Send + 'static,
) -> ServiceReply {
    let limit = terms.limit.unwrap_or_default();
    let terms = DetachTerms { limit, is_abandoned: terms.is_abandoned, login };
    let exchange: BoxFuture<'static, ServiceReply> = Box::pin(exchange);
    let reply = DetachableExchange { exchange: Some(exchange), terms: terms.clone() }.await;
    match reply {
        ServiceReply::Response(mut response) if matches!(response.body, Body::Stream(_)) => {
            let body = std::mem::take(&mut response.body);
            response.body = Body::stream(DetachableBody { body: Some(body), terms });
            ServiceReply::Response(response)
        }
        reply => reply,
    }
}

#[derive(Clone)]
struct DetachTerms {
    limit: Duration,
    is_abandoned: Arc<AtomicBool>,
    login: Option<LoginWatch>,
}

impl DetachTerms {
    /// Runs what is left without a client.
    fn detach(&self, rest: impl Future<Output = ()> + Send + 'static) {
        let is_allowed = self.login.as_ref().is_none_or(|login| !login.is_ended());
        // Without a runtime the process is ending.
        if let (true, Ok(runtime)) = (is_allowed, tokio::runtime::Handle::try_current()) {
            self.is_abandoned.store(true, Relaxed);
            runtime.spawn(tokio::time::timeout(self.limit, rest));
        }
    }
}

struct DetachableExchange {
    /// `None` once it replied.
    exchange: Option<BoxFuture<'static, ServiceReply>>,
    terms: DetachTerms,
}

impl Future for DetachableExchange {
    type Output = ServiceReply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ServiceReply> {
        let Some(exchange) = &mut self.exchange else { return Poll::Pending };
        let reply = std::task::ready!(exchange.as_mut().poll(cx));
        self.exchange = None;
        Poll::Ready(reply)
    }
}

impl Drop for DetachableExchange {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.terms.detach(async move {
                if let ServiceReply::Response(response) = exchange.await {
                    discard(response.body).await;
                }
            });
        }
    }
}

struct DetachableBody {
    /// `None` after its end.
    body: Option<Body>,
    terms: DetachTerms,
}

impl BodyStream for DetachableBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = std::task::ready!(body.poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.as_ref().map_or(Some(0), Body::remaining)
    }
}

impl Drop for DetachableBody {
    fn drop(&mut self) {
        // A reader need not poll for the end of a body of which nothing is left.
        if let Some(body) = self.body.take().filter(|body| body.remaining() != Some(0)) {
            self.terms.detach(discard(body));
        }
    }
}

async fn discard(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}
