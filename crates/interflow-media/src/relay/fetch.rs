//! Fetches with redirects, where each hop is subject to the client's address filter.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{
    Body, CollectError, Error, ErrorKind, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Response,
    Result, StatusCode, Url,
};

use interflow_codec::content_coding;

use super::address::{BaseUrl, parse};
use super::cookie_jar::CookieJar;
use crate::token::LinkGrant;

#[derive(Clone)]
pub struct FetchRequest {
    pub method: Method,
    pub url: Url,
    /// The header fields to send, except `Host`, which follows from the URL.
    pub headers: Headers,
    /// The link whose host restrictions apply to every hop; `None` if nothing restricts the request.
    pub scope: Option<Arc<LinkGrant>>,
    /// The bodies are keys or a licence: they are neither recorded nor written to the disk cache.
    pub is_secret: bool,
    /// Cookies of the link, sent on every hop that they are for.
    pub cookies: CookieJar,
}

impl FetchRequest {
    /// The request for more of a response that came from this URL: credentials are not sent to another origin.
    pub fn continued(self, url: Url, cookies: CookieJar) -> Self {
        let mut request = Self { cookies, ..self };
        request.move_to(url);
        request
    }

    fn move_to(&mut self, url: Url) {
        // Same origin: scheme, host and port (RFC 6454 4). Other fields carry no secrets of the client.
        if url.authority != self.url.authority || url.scheme != self.url.scheme {
            self.headers.remove("authorization");
            self.headers.remove("cookie");
        }
        self.url = url;
    }
}

/// The result of a fetch, with the final URL: redirects have been followed, so the response is never one.
pub struct FetchedResponse {
    pub url: Url,
    pub response: Response,
    /// The cookies of the request, with those that the responses on the way and this one set.
    pub cookies: CookieJar,
}

pub struct MediaFetcher {
    egress: Arc<dyn HttpClient>,
    key_egress: Arc<dyn HttpClient>,
    redirects: u8,
}

impl MediaFetcher {
    /// A fetcher that follows at most `redirects` redirects. Secret bodies are fetched by `key_egress`.
    pub fn new(egress: Arc<dyn HttpClient>, key_egress: Arc<dyn HttpClient>, redirects: u8) -> Self {
        Self { egress, key_egress, redirects }
    }

    /// Sends the request and follows redirects. Credentials are not sent to another origin.
    ///
    /// # Errors
    /// Errors of the HTTP client; [`ErrorKind::Denied`] if the link does not allow a host on the way;
    /// [`ErrorKind::BadResponse`] for too many redirects or an invalid target.
    pub async fn send(&self, ask: FetchRequest) -> Result<FetchedResponse> {
        self.send_with(ask, Body::Empty).await
    }

    /// Like [`send`](Self::send) with a body, which is sent to the first origin only: a redirect is followed with GET,
    /// or not at all (RFC 9110 15.4).
    ///
    /// # Errors
    /// As for [`send`](Self::send); [`ErrorKind::BadResponse`] for a redirect that requires the body to be sent again.
    pub async fn send_with(&self, mut ask: FetchRequest, mut body: Body) -> Result<FetchedResponse> {
        let egress = if ask.is_secret { &self.key_egress } else { &self.egress };
        let mut cookies = std::mem::take(&mut ask.cookies);
        cookies.send(&ask.url, &mut ask.headers);
        for _ in 0..=self.redirects {
            // Before every hop: a redirect must not lead out of the link's hosts.
            if let Some(refused) = ask.scope.as_ref().and_then(|s| s.check_host(&ask.url.authority).err()) {
                return Err(Error::new(ErrorKind::Denied, format!("{refused}: {}", ask.url.authority.host)));
            }
            let had_body = !body.is_empty();
            let response = egress.send(request(&ask, std::mem::take(&mut body))).await?;
            cookies.keep(&ask.url, &response.head.headers);
            let is_redirect = matches!(response.head.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(location) = response.head.headers.get_str("location").filter(|_| is_redirect) else {
                return Ok(FetchedResponse { url: ask.url, response, cookies });
            };
            let next = parse(&BaseUrl::from_url(&ask.url).resolve(location)).map_err(|e| {
                Error::new(ErrorKind::BadResponse, format!("{} redirects to nowhere", ask.url.authority)).with_source(e)
            })?;
            // RFC 9110 15.4: 301 to 303 may be followed with GET, 307 and 308 must keep the method and the body.
            if had_body || !matches!(ask.method, Method::GET | Method::HEAD) {
                if matches!(response.head.status.as_u16(), 307 | 308) {
                    let text =
                        format!("{} redirects a request with a body, which is not sent twice", ask.url.authority);
                    return Err(Error::new(ErrorKind::BadResponse, text));
                }
                ask.method = Method::GET;
                ask.headers.remove("content-type");
                ask.headers.remove("content-encoding");
            }
            ask.move_to(next.url);
            // Credentials in the target's URL were written by the origin for that target.
            if let Some(basic) = next.basic {
                let _ = ask.headers.set("Authorization", basic);
            }
            cookies.send(&ask.url, &mut ask.headers);
        }
        let text = format!("{} and others redirect without end: {} are followed", ask.url.authority, self.redirects);
        Err(Error::new(ErrorKind::BadResponse, text))
    }

    /// The complete body of the response, decoded. The status is left to the caller.
    ///
    /// # Errors
    /// As for [`send`](Self::send); [`ErrorKind::BadResponse`] for a body over `cap` bytes.
    pub async fn document(&self, ask: FetchRequest, cap: u64) -> Result<FetchedDocument> {
        collect_within(self.send(ask).await?, (cap, "media.document_bytes")).await
    }
}

/// Reads a complete response and removes content codings that were applied without being requested. The limit comes with
/// its configuration key.
///
/// # Errors
/// [`ErrorKind::BadResponse`] for a body over `cap` bytes or an undecodable coding; errors of the body.
pub async fn collect_within(fetched: FetchedResponse, (cap, key): (u64, &str)) -> Result<FetchedDocument> {
    let FetchedResponse { url, response: Response { head, body }, cookies } = fetched;
    let (status, mut headers) = (head.status, head.headers);
    let too_large = || {
        let text = format!("the document at {} is larger than {cap} bytes ({key})", url.authority);
        Error::new(ErrorKind::BadResponse, text)
    };
    // The declared length first: nothing of a body that is too large is read.
    if status.is_success() && body.remaining().is_some_and(|l| l > cap) {
        return Err(too_large());
    }
    let mut body = match body.collect(usize::try_from(cap).unwrap_or(usize::MAX)).await {
        Ok((body, _)) => body,
        Err(CollectError::TooLarge(_)) => return Err(too_large()),
        Err(CollectError::Broken(e)) => return Err(e),
    };
    if status.is_success() && content_coding::has_content_coding(&headers) {
        let decoded = content_coding::decode_off_thread(&headers, &body, cap).await.map_err(|e| {
            content_coding::budget_error(&e).unwrap_or_else(|| {
                let coding = headers.get_str("content-encoding").unwrap_or_default();
                let text = format!("the document at {} came as {coding} and cannot be decoded: {e}", url.authority);
                Error::new(ErrorKind::BadResponse, text)
            })
        })?;
        body = decoded.unwrap_or(body);
        content_coding::strip_stale_headers(&mut headers);
    }
    Ok(FetchedDocument { url, status, headers, body, userinfo: None, cookies })
}

/// A document read completely, with the final URL after redirects, against which its references are resolved.
#[derive(Clone, Debug)]
pub struct FetchedDocument {
    pub url: Url,
    pub status: StatusCode,
    pub headers: Headers,
    pub body: Bytes,
    /// Credentials of its URL (`user:password@`), which its references inherit.
    pub userinfo: Option<String>,
    /// Cookies for its references.
    pub cookies: CookieJar,
}

impl FetchedDocument {
    /// The base of its references.
    pub fn base(&self) -> BaseUrl {
        BaseUrl::from_url(&self.url).with_userinfo(self.userinfo.as_deref())
    }
}

fn request(ask: &FetchRequest, body: Body) -> Request {
    let head = RequestHead {
        method: ask.method.clone(),
        url: ask.url.clone(),
        version: HttpVersion::Http11,
        headers: ask.headers.clone(),
        protocol: None,
    };
    Request { head, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_sent_to_another_origin_for_the_rest_of_a_body() {
        let url = |text: &str| parse(text).unwrap().url;
        for (rest, sent) in [
            ("https://a.test/moved", true),
            ("http://a.test/moved", false),
            ("https://a.test:8443/moved", false),
            ("https://cdn.test/moved", false),
        ] {
            let mut headers = Headers::new();
            for (name, value) in [("Authorization", "Basic dTpw"), ("Cookie", "s=1"), ("Range", "bytes=5-")] {
                headers.append(name, value).unwrap();
            }
            let ask = FetchRequest {
                method: Method::GET,
                url: url("https://a.test/file"),
                headers,
                scope: None,
                is_secret: false,
                cookies: CookieJar::default(),
            };
            let next = ask.continued(url(rest), CookieJar::default());
            let has = |name| next.headers.contains(name);
            assert_eq!([has("authorization"), has("cookie"), has("range")], [sent, sent, true], "{rest}");
            assert_eq!(next.url, url(rest));
        }
    }
}
