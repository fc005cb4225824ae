//! Sends the requests of `object_store` through an [`HttpClient`] of Interflow's own.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use interflow_types::{
    Body, BodyFrame, Error, ErrorKind, Headers, HttpClient as InterflowClient, HttpVersion, Request, RequestHead, Url,
};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};

/// Makes the client of a store. Options of `object_store`'s own client do not apply: the client was made with its limits.
#[derive(Clone)]
pub(crate) struct Connector(pub Arc<dyn InterflowClient>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = interflow_request(request).map_err(http_error)?;
        let response = self.0.send(request).await.map_err(http_error)?;
        let mut head = http::Response::new(HttpResponseBody::new(ResponseBody(Mutex::new(response.body))));
        *head.status_mut() = response.head.status;
        for (name, value) in response.head.headers.iter() {
            // Fields that the `http` crate cannot hold mean nothing to a store.
            if let (Ok(name), Ok(value)) = (http::HeaderName::from_bytes(name), http::HeaderValue::from_bytes(value)) {
                head.headers_mut().append(name, value);
            }
        }
        Ok(head)
    }
}

pub(crate) fn interflow_request(request: HttpRequest) -> Result<Request, Error> {
    let (parts, body) = request.into_parts();
    let uri = parts.uri.to_string();
    let invalid = |e: interflow_types::UrlError| Error::new(ErrorKind::BadRequest, format!("`{uri}`: {e}"));
    let (scheme, authority, path) = Url::split(&uri).map_err(invalid)?;
    let path = if path.is_empty() { "/".into() } else { path.into() };
    let mut headers = Headers::new();
    if !parts.headers.contains_key(http::header::HOST) {
        headers.append_unchecked(b"host", authority.to_host_header(scheme).as_bytes());
    }
    for (name, value) in &parts.headers {
        headers.append_unchecked(name.as_str().as_bytes(), value.as_bytes());
    }
    // An empty body too: some servers answer 411 to a PUT or POST without a length.
    if !parts.headers.contains_key(http::header::CONTENT_LENGTH)
        && (body.content_length() > 0 || matches!(parts.method, http::Method::PUT | http::Method::POST))
    {
        headers.append_unchecked(b"content-length", body.content_length().to_string().as_bytes());
    }
    let head = RequestHead {
        method: parts.method,
        url: Url { scheme, authority, path },
        version: HttpVersion::Http11,
        headers,
        protocol: None,
    };
    Ok(Request { head, body: request_body(body) })
}

fn request_body(body: HttpRequestBody) -> Body {
    match body.as_bytes() {
        Some(bytes) => Body::from(bytes.clone()),
        None => Body::stream(UploadBody { left: body.content_length() as u64, body }),
    }
}

/// The parts of an upload, which are in memory.
struct UploadBody {
    body: HttpRequestBody,
    left: u64,
}

impl interflow_types::BodyStream for UploadBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        loop {
            return match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    // Data frames are never empty.
                    Ok(data) if !data.is_empty() => {
                        self.left = self.left.saturating_sub(data.len() as u64);
                        Poll::Ready(Some(Ok(BodyFrame::Data(data))))
                    }
                    _ => continue,
                },
                Poll::Ready(Some(Err(e))) => {
                    Poll::Ready(Some(Err(Error::new(ErrorKind::Internal, "the upload cannot be read").with_source(e))))
                }
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.left)
    }
}

/// A response's body. The lock is never contended: it is there because `object_store` demands `Sync`.
struct ResponseBody(Mutex<Body>);

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let body = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        body.poll_frame(cx).map(|frame| match frame? {
            Ok(BodyFrame::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyFrame::Trailers(_)) => None,
            Err(e) => Some(Err(http_error(e))),
        })
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The kind decides whether `object_store` sends the request again.
fn http_error(error: Error) -> HttpError {
    let kind = match error.kind() {
        ErrorKind::Dns | ErrorKind::Connect => HttpErrorKind::Connect,
        ErrorKind::UpstreamTimeout | ErrorKind::PoolTimeout => HttpErrorKind::Timeout,
        ErrorKind::UpstreamClosed => HttpErrorKind::Interrupted,
        ErrorKind::BadResponse => HttpErrorKind::Decode,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}
