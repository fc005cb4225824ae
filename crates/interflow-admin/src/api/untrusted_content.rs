//! Delivers recorded bytes to a browser. They are untrusted: whatever type they claim, they are sent in a form that a
//! browser neither executes, renders nor sniffs.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

/// Nothing may be loaded or executed, and the document, if rendered at all, has an opaque origin.
const POLICY: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'");

/// Recorded bytes, offered as a file: a browser saves them and does not display them.
pub(crate) fn raw_response(status: StatusCode, file: &str, body: Body) -> Response {
    let mut response = file_response("application/octet-stream", file, body);
    *response.status_mut() = status;
    response
}

/// Recorded content as plain text, which a browser displays without interpreting it.
pub(crate) fn text_response(body: impl Into<Body>) -> Response {
    sandboxed_response("text/plain; charset=utf-8", body.into())
}

/// An archive or a script, offered as a file.
pub(crate) fn file_response(media: &'static str, file: &str, body: Body) -> Response {
    let mut response = sandboxed_response(media, body);
    set_header(&mut response, header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{file}\""));
    response
}

fn sandboxed_response(media: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Applies if the response is opened in a tab of its own.
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    // Recorded bytes must not stay in a shared or a disk cache.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// Sets a field to a locally generated value; an invalid value is omitted.
pub(crate) fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
