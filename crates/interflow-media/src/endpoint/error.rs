//! Responses and errors of the media endpoints.

use bytes::Bytes;
use interflow_types::secret_names::mask_urls;
use interflow_types::{Error, ErrorKind, Response, StatusCode};

pub type Result<T, E = MediaError> = std::result::Result<T, E>;

/// Why a request is not served.
#[derive(Debug)]
pub enum MediaError {
    /// An error with an HTTP status and a text for the client.
    Status(StatusCode, String),
    /// An error for the proxy's error table, which finds its status, log level and metric.
    Failed(Error),
}

pub type EndpointResult = Result<Response>;

impl From<Error> for MediaError {
    fn from(e: Error) -> Self {
        Self::Failed(e)
    }
}

impl MediaError {
    /// Converts to a flow error, for cases where the response has already begun and cannot get another status.
    pub fn into_error(self) -> Error {
        match self {
            Self::Status(_, text) => Error::new(ErrorKind::BadResponse, text),
            Self::Failed(error) => error,
        }
    }

    /// The error for a client that must not learn what its sealed link holds: the origin, its addresses and tokens, which
    /// are in the log.
    pub fn without_details(self) -> Self {
        match self {
            Self::Status(status, text) => {
                tracing::info!(error = mask_urls(&text), "cannot serve a sealed link");
                let reason = if status.is_server_error() { "its origin failed" } else { "it names what is not served" };
                Self::Status(status, format!("this link cannot be served: {reason}; the gateway's log says more"))
            }
            Self::Failed(error) => {
                let (kind, source, retryable) = (error.kind(), error.error_source(), error.retryable());
                tracing::info!(error = mask_urls(&error.to_string()), "cannot serve a sealed link");
                let text = format!("this link cannot be served ({}); the gateway's log says more", kind.as_str());
                Self::Failed(Error::new(kind, text).with_error_source(source).with_retryable(retryable))
            }
        }
    }

    pub fn bad_request(text: impl ToString) -> Self {
        Self::Status(StatusCode::BAD_REQUEST, text.to_string())
    }

    /// A request that lacks a parameter.
    pub fn missing(name: &str) -> Self {
        Self::bad_request(format!("the parameter `{name}` is missing"))
    }

    pub fn forbidden(text: impl ToString) -> Self {
        Self::Status(StatusCode::FORBIDDEN, text.to_string())
    }

    pub fn not_found(text: impl ToString) -> Self {
        Self::Status(StatusCode::NOT_FOUND, text.to_string())
    }

    pub fn upstream(text: impl ToString) -> Self {
        Self::Status(StatusCode::BAD_GATEWAY, text.to_string())
    }
}

/// A short plain-text response, which must not be cached.
pub fn text_response(status: StatusCode, text: &str) -> Response {
    let mut response = Response::full(status, "text/plain; charset=utf-8", format!("{text}\n"));
    response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
    response
}

pub fn json_response(value: &serde_json::Value) -> Response {
    let mut response = Response::full(StatusCode::OK, "application/json", value.to_string());
    response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
    response
}

/// A generated playlist as a response. Caches must revalidate it, since its links may expire.
pub fn playlist_response(body: impl Into<Bytes>) -> Response {
    let mut response = Response::full(StatusCode::OK, "application/vnd.apple.mpegurl", body);
    response.head.headers.append_unchecked(b"Cache-Control", b"no-cache");
    response
}
