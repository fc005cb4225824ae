//! Services and bodies for the tests of both HTTP servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use interflow_types::{
    Body, BodyFrame, BodyStream, Error, ErrorKind, Headers, RequestTarget, Response, ResponseHead, StatusCode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::{HttpService, IncomingRequest, ServiceReply};

/// A service implemented by a function.
pub(crate) struct FunctionService<F>(pub F);

impl<F, T> HttpService for FunctionService<F>
where
    F: Fn(IncomingRequest) -> T + Send + Sync + 'static,
    T: Future<Output = ServiceReply> + Send,
{
    fn call(&self, request: IncomingRequest) -> impl Future<Output = ServiceReply> + Send {
        (self.0)(request)
    }

    fn error_response(&self, error: &Error) -> Response {
        let status = match error.kind() {
            ErrorKind::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Response { head: ResponseHead::new(status), body: Body::from(Bytes::from_static(b"no")) }
    }
}

/// A body of frames that are available at once.
pub(crate) struct FrameBody(pub std::vec::IntoIter<Result<BodyFrame, Error>>);

impl BodyStream for FrameBody {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        Poll::Ready(self.0.next())
    }
}

/// A body that a test feeds through a channel.
pub(crate) struct ChannelBody(pub mpsc::UnboundedReceiver<Result<BodyFrame, Error>>);

impl BodyStream for ChannelBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        self.0.poll_recv(cx)
    }
}

pub(crate) fn data(text: &str) -> Result<BodyFrame, Error> {
    Ok(BodyFrame::Data(Bytes::from(text.to_owned())))
}

pub(crate) fn frames(frames: Vec<Result<BodyFrame, Error>>) -> Body {
    Body::stream(FrameBody(frames.into_iter()))
}

pub(crate) fn ok(body: Body) -> ServiceReply {
    status(200, body)
}

pub(crate) fn status(code: u16, body: Body) -> ServiceReply {
    ServiceReply::Response(Response { head: ResponseHead::new(StatusCode::from_u16(code).unwrap()), body })
}

pub(crate) fn path(request: &IncomingRequest) -> String {
    match &request.target {
        RequestTarget::Origin(path) => path.to_string(),
        RequestTarget::Absolute(url) => url.path.to_string(),
        RequestTarget::Authority(a) => a.to_string(),
        RequestTarget::Asterisk => "*".into(),
    }
}

/// A service whose behaviour depends on the path.
pub(crate) async fn by_path(request: IncomingRequest) -> ServiceReply {
    let path = path(&request);
    match path.as_str() {
        "/echo" => {
            let method = request.method.clone();
            match request.body.collect(1 << 20).await {
                Ok((body, trailers)) => {
                    let trailers = trailers.and_then(|t| t.get_str("X-T").map(|t| format!("+{t}"))).unwrap_or_default();
                    let text = format!("{method}:{}{trailers}", String::from_utf8_lossy(&body));
                    ok(Body::from(Bytes::from(text)))
                }
                Err(_) => status(400, Body::Empty),
            }
        }
        "/back" => ok(request.body),
        "/ignore" => ok(Body::from(Bytes::from_static(b"ignored"))),
        "/chunks" => ok(frames(vec![data("one"), data("two")])),
        "/trailers" => {
            let trailers: Headers = [("X-Sum", "42")].into_iter().collect();
            ok(frames(vec![data("hello"), Ok(BodyFrame::Trailers(trailers))]))
        }
        "/big" => ok(Body::from(Bytes::from(vec![b'b'; 5000]))),
        "/204" => status(204, Body::Empty),
        "/trailers-only" => {
            let head = ResponseHead::new(StatusCode::OK).with_header("grpc-status", "5");
            ServiceReply::Response(Response { head, body: Body::Empty })
        }
        "/304" => {
            let head = ResponseHead::new(StatusCode::NOT_MODIFIED).with_header("Content-Length", "500");
            ServiceReply::Response(Response { head, body: Body::Empty })
        }
        "/hints" => {
            request.interim.send(ResponseHead::new(StatusCode::EARLY_HINTS).with_header("Link", "</a>"));
            tokio::task::yield_now().await;
            ok(Body::Empty)
        }
        "/close" => {
            let head = ResponseHead::new(StatusCode::OK).with_header("Connection", "close");
            ServiceReply::Response(Response { head, body: Body::Empty })
        }
        "/breaks" => ok(frames(vec![data("half"), Err(Error::new(ErrorKind::UpstreamClosed, "gone"))])),
        "/short" => {
            struct WrongLengthBody(bool);
            impl BodyStream for WrongLengthBody {
                fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
                    Poll::Ready((!std::mem::replace(&mut self.0, true)).then(|| data("abc")))
                }

                fn remaining(&self) -> Option<u64> {
                    Some(5)
                }
            }
            ok(Body::stream(WrongLengthBody(false)))
        }
        "/abort" => ServiceReply::Abort(Error::new(ErrorKind::Denied, "cut")),
        "tunnel:1" | "/ws" => ServiceReply::Upgrade(
            ResponseHead::new(StatusCode::OK).with_header("Content-Length", "0"),
            Box::new(|mut io| {
                Box::pin(async move {
                    let mut all = Vec::new();
                    io.read_to_end(&mut all).await.unwrap();
                    io.write_all(b"tunnelled:").await.unwrap();
                    io.write_all(&all).await.unwrap();
                    io.shutdown().await.unwrap();
                })
            }),
        ),
        _ => status(404, Body::from(Bytes::from_static(b"what?"))),
    }
}

/// Counts live instances.
pub(crate) struct AliveCounter(Arc<AtomicUsize>);

impl AliveCounter {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for AliveCounter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
