//! Requests to endpoints of OAuth: forms, which are answered with JSON.

use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Url};

/// Bound on a response, in bytes.
const MAX_RESPONSE: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn form_request(url: &Url, form: String) -> Request {
    let mut headers = Headers::new();
    headers.append_unchecked(b"Accept", b"application/json");
    headers.append_unchecked(b"Content-Type", b"application/x-www-form-urlencoded");
    let (method, version) = (Method::POST, HttpVersion::Http11);
    let head = RequestHead { method, url: url.clone(), version, headers, protocol: None };
    Request { head, body: Body::from(Bytes::from(form)) }
}

/// The body of a successful response.
///
/// # Errors
/// Why there is none. Nothing of the response is part of it: it may have secrets.
pub(crate) async fn response_of(client: &dyn HttpClient, request: Request) -> Result<Bytes, String> {
    let answered = async {
        let response = client.send(request).await.map_err(|e| e.to_string())?;
        if !response.head.status.is_success() {
            return Err(format!("status {}", response.head.status.as_u16()));
        }
        let (raw, _) = response.body.collect(MAX_RESPONSE).await.map_err(|_| "its response broke off")?;
        Ok(raw)
    };
    tokio::time::timeout(TIMEOUT, answered).await.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}
