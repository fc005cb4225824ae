//! Recorded bytes on their way to a browser. They come from strangers: whatever they claim to be, they are handed out as
//! something that no browser runs, draws or guesses at.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

/// Nothing may be loaded, nothing may run, and the page, should there ever be one, has an origin of its own.
const POLICY: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'");

/// Bytes as they were recorded, offered as a file.
pub(crate) fn raw_response(status: StatusCode, file: &str, body: Body) -> Response {
    let mut response = sandboxed_response(status, HeaderValue::from_static("application/octet-stream"), body);
    set_header(&mut response, header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{file}\""));
    response
}

/// Recorded content as text, which a browser shows and does not interpret.
pub(crate) fn text_response(body: impl Into<Body>) -> Response {
    sandboxed_response(StatusCode::OK, HeaderValue::from_static("text/plain; charset=utf-8"), body.into())
}

/// An archive or a script, offered as a file.
pub(crate) fn file_response(media: &'static str, file: &str, body: Body) -> Response {
    let mut response = sandboxed_response(StatusCode::OK, HeaderValue::from_static(media), body);
    set_header(&mut response, header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{file}\""));
    response
}

fn sandboxed_response(status: StatusCode, media: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// Sets a field whose value is made of our own text; a value that is no field value is left out.
pub(crate) fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
