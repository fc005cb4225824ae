//! Requests of Interflow's own to services: how they are built, and read to the end of their response.

use bytes::Bytes;
use interflow_types::percent::encoded;
use interflow_types::{
    Body, CollectError, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, ResponseHead, StatusCode, Url,
};

/// The media type of [`form`].
pub const FORM: &str = "application/x-www-form-urlencoded";

/// Names and values as in a query or a form; a space is `%20`.
pub fn form(fields: &[(&str, &str)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&")
}

/// A request without a body, whose answer is JSON.
pub fn get(url: Url) -> Request {
    let mut headers = Headers::new();
    headers.append_unchecked(b"Accept", b"application/json");
    let head = RequestHead { method: Method::GET, url, version: HttpVersion::Http11, headers, protocol: None };
    Request { head, body: Body::Empty }
}

/// A request that posts a body, and whose answer is JSON.
pub fn post(url: Url, media_type: &str, body: impl Into<Bytes>) -> Request {
    let mut request = get(url);
    (request.head.method, request.body) = (Method::POST, Body::from(body.into()));
    request.head.headers.append_unchecked(b"Content-Type", media_type.as_bytes());
    request
}

/// Adds the credential for a service.
///
/// # Errors
/// It has what no header field may have.
pub fn authorize(headers: &mut Headers, token: Option<&str>) -> Result<(), String> {
    let Some(token) = token else { return Ok(()) };
    headers.append("Authorization", format!("Bearer {token}")).map_err(|e| e.to_string())
}

/// Sends a request, and reads the response, of at most `max` bytes, also that of an error, which says what is wrong.
/// Nothing of either is in the error.
///
/// # Errors
/// Why there is none, or not all of it.
pub async fn fetch(client: &dyn HttpClient, request: Request, max: usize) -> Result<(ResponseHead, Bytes), String> {
    let response = client.send(request).await.map_err(|e| e.to_string())?;
    match read(response.body, max).await {
        // An error status says enough.
        Err(_) if !response.head.status.is_success() => Ok((response.head, Bytes::new())),
        body => Ok((response.head, body?)),
    }
}

/// Sends a request, and reads the response, of at most `max` bytes, unless its status is refused: then its body is not
/// awaited. Nothing of either is in the error.
///
/// # Errors
/// Why there is none, or not all of it, or what `refusal` says of its status.
pub async fn fetch_accepted(
    client: &dyn HttpClient,
    request: Request,
    max: usize,
    refusal: impl FnOnce(StatusCode) -> Option<String>,
) -> Result<Bytes, String> {
    let response = client.send(request).await.map_err(|e| e.to_string())?;
    match refusal(response.head.status) {
        Some(why) => Err(why),
        None => read(response.body, max).await,
    }
}

async fn read(body: Body, max: usize) -> Result<Bytes, String> {
    let body = body.collect(max).await.map_err(|e| match e {
        CollectError::Broken(e) => format!("its answer broke off: {e}"),
        CollectError::TooLarge(_) => format!("its answer is larger than {max} bytes"),
    });
    Ok(body?.0)
}

#[cfg(test)]
mod tests {
    use interflow_types::{Error, ErrorKind, Response, ResponseFuture};

    use super::*;

    struct Service(StatusCode, &'static str);

    impl HttpClient for Service {
        fn send(&self, request: Request) -> ResponseFuture<'_> {
            let path = request.head.url.path;
            Box::pin(async move {
                match path.as_str() {
                    "/" => Ok(Response::full(self.0, "text/plain", self.1)),
                    _ => Err(Error::new(ErrorKind::Connect, "no such origin")),
                }
            })
        }
    }

    #[test]
    fn forms_are_encoded_and_credentials_checked() {
        assert_eq!(form(&[("a", "b c"), ("d", "&é")]), "a=b%20c&d=%26%C3%A9");
        let mut headers = Headers::new();
        assert!(authorize(&mut headers, Some("a\nb")).is_err() && authorize(&mut headers, None).is_ok());
        authorize(&mut headers, Some("x")).unwrap();
        assert_eq!(headers.get_str("authorization"), Some("Bearer x"));
    }

    #[tokio::test]
    async fn responses_are_read_up_to_a_bound_and_errors_need_no_body() {
        let url = |path: &str| Url::of_service(&format!("https://a.test{path}")).unwrap();
        let request = || post(url("/"), "text/plain", "x");
        let answered = fetch(&Service(StatusCode::OK, "abc"), request(), 3).await.unwrap();
        assert_eq!((answered.0.status, &*answered.1), (StatusCode::OK, &b"abc"[..]));
        assert!(
            fetch(&Service(StatusCode::OK, "abcd"), request(), 3).await.unwrap_err().contains("larger than 3 bytes")
        );
        let (head, body) = fetch(&Service(StatusCode::FORBIDDEN, "abcd"), request(), 3).await.unwrap();
        assert_eq!((head.status, body.len()), (StatusCode::FORBIDDEN, 0));
        assert!(fetch(&Service(StatusCode::OK, ""), get(url("/x")), 3).await.unwrap_err().contains("no such origin"));
    }
}
