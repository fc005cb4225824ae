//! Prepares a recorded request for replay, with edits.

use std::str::FromStr;

use bytes::Bytes;
use interflow_types::{Body, ByteStr, HttpVersion, Method, Request, RequestHead, Scheme, Url};

use super::request::{is_masked, replay_headers};
use interflow_store::{FlowKind, FlowRecord, MissingReason};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestEdits {
    pub method: Option<Method>,
    /// Replaces the URL, or path and query at the same origin.
    pub url: Option<UrlEdit>,
    /// Edits of header fields, in order.
    pub headers: Vec<HeaderEdit>,
    /// Replaces the body and removes its content coding.
    pub body: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum UrlEdit {
    Whole(Url),
    /// Path and query, with the leading slash. Scheme and host stay those of the recorded request.
    Path(String),
}

/// An edit of a header field, in the syntax of curl's `-H`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    /// `Name: value` replaces all existing values. `Name;` sets an empty one.
    Set(String, String),
    /// `Name:` removes the field.
    Remove(String),
}

pub type Result<T, E = ReplayError> = std::result::Result<T, E>;

/// Why a request cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("'{0}' is not a method: write one word such as POST")]
    Method(String),
    #[error("'{0}' is not a URL: write http://host/path, https://host/path, or /path for the same origin")]
    Url(String),
    #[error("'{0}' is not a header: write 'Name: value' to set it, 'Name:' to remove it, 'Name;' for an empty value")]
    Header(String),
    #[error("flow {0} is a tunnel: there is no request to send again")]
    Tunnel(String),
    /// Replaying a WebSocket's request would not replay its messages.
    #[error("flow {0} is a WebSocket: its messages cannot be sent again")]
    WebSocket(String),
    /// The body was not recorded completely.
    #[error("of flow {flow} only {kept} of {size} bytes of the request's body were kept: give another with --body")]
    Body {
        flow: String,
        /// Bytes that were recorded.
        kept: u64,
        /// Bytes that were sent.
        size: u64,
        missing: MissingReason,
    },
}

impl FromStr for UrlEdit {
    type Err = ReplayError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || ReplayError::Url(text.to_owned());
        // A space would end the request target, and a line end the field.
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(wrong());
        }
        if text.starts_with('/') {
            return Ok(Self::Path(text.to_owned()));
        }
        let (scheme, authority, rest) = Url::split(text).map_err(|_| wrong())?;
        // A fragment is not sent.
        let path = rest.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self::Whole(Url { scheme, authority, path: format!("{slash}{path}").into() }))
    }
}

impl FromStr for HeaderEdit {
    type Err = ReplayError;

    fn from_str(text: &str) -> Result<Self> {
        let edit = match text.split_once(':') {
            Some((name, value)) if value.trim().is_empty() => Self::Remove(name.trim().to_owned()),
            Some((name, value)) => Self::Set(name.trim().to_owned(), value.trim().to_owned()),
            None => match text.strip_suffix(';') {
                Some(name) => Self::Set(name.trim().to_owned(), String::new()),
                None => return Err(ReplayError::Header(text.to_owned())),
            },
        };
        // Checked here, so that a wrong argument is reported before anything is sent.
        let fits = match &edit {
            Self::Set(name, value) => is_field(name.as_bytes(), value.as_bytes()),
            Self::Remove(name) => is_field(name.as_bytes(), b""),
        };
        if fits { Ok(edit) } else { Err(ReplayError::Header(text.to_owned())) }
    }
}

fn is_field(name: &[u8], value: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| interflow_types::Headers::new().append(name, value).is_ok())
}

/// The fields whose values were not masked when recorded.
pub fn unmasked(headers: &interflow_types::Headers) -> interflow_types::Headers {
    let mut headers = headers.clone();
    headers.retain(|_, value| !is_masked(value));
    headers
}

/// Fields of the recorded request with masked values, which are not sent unless an edit sets them, and with a `?` in
/// front the parameters of its query, which are sent masked unless an edit replaces the URL.
pub fn masked_fields(row: &FlowRecord) -> Vec<String> {
    let headers = row.request.iter().flat_map(|r| r.headers.iter()).filter(|(_, v)| is_masked(v));
    let query = row.request.iter().filter_map(|r| r.path.split_once('?')).flat_map(|(_, query)| query.split('&'));
    let parameters = query.filter_map(|p| p.split_once('=').filter(|(_, value)| value.contains("***")));
    let headers = headers.map(|(n, _)| String::from_utf8_lossy(n).into_owned());
    headers.chain(parameters.map(|(name, _)| format!("?{name}"))).collect()
}

/// A request that was written from nothing.
#[derive(Clone, Debug)]
pub struct ComposedParts {
    pub head: RequestHead,
    pub body: Bytes,
}

impl ComposedParts {
    /// Checks the parts. Fields of the connection and of the body's length are left out: the sender writes them.
    ///
    /// # Errors
    /// The part that is wrong, and what is expected of it.
    pub fn parse(method: &str, url: &str, fields: &[(String, String)], body: Bytes) -> Result<Self> {
        let method = method.parse().map_err(|_| ReplayError::Method(method.to_owned()))?;
        let UrlEdit::Whole(target) = url.parse()? else { return Err(ReplayError::Url(url.to_owned())) };
        let mut headers = interflow_types::Headers::new();
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            headers.append_unchecked(b"Host", target.authority.to_host_header(target.scheme).as_bytes());
        }
        for (name, value) in fields {
            let wrong = || ReplayError::Header(format!("{name}: {value}"));
            headers.append(name, value.trim()).map_err(|_| wrong())?;
        }
        headers.retain(|name, value| !is_framing(name, value));
        // gRPC needs HTTP/2, which is not negotiated in plain text.
        let grpc = headers.get_str("content-type").is_some_and(|t| t.starts_with("application/grpc"));
        let version = if grpc { HttpVersion::H2 } else { HttpVersion::Http11 };
        Ok(Self { head: RequestHead { method, url: target, version, headers, protocol: None }, body })
    }

    /// The request that opens a WebSocket at a URL with the scheme `ws`, `wss`, `http` or `https`. The sender makes the
    /// key; extensions are not offered, so that messages are sent as they are.
    ///
    /// # Errors
    /// As of [`parse`](Self::parse).
    pub fn web_socket(url: &str, fields: &[(String, String)]) -> Result<Self> {
        let scheme = url.split("://").next().unwrap_or_default();
        let target = match scheme.to_ascii_lowercase().as_str() {
            "ws" | "wss" => format!("http{}", &url[2..]),
            _ => url.to_owned(),
        };
        let mut parts = Self::parse("GET", &target, fields, Bytes::new())?;
        for name in ["sec-websocket-key", "sec-websocket-extensions", "sec-websocket-version"] {
            parts.head.headers.remove(name);
        }
        parts.head.headers.append_unchecked(b"Sec-WebSocket-Version", b"13");
        parts.head.protocol = Some("websocket".into());
        Ok(parts)
    }

    pub fn into_request(self) -> Request {
        Request { head: self.head, body: if self.body.is_empty() { Body::Empty } else { Body::from(self.body) } }
    }
}

/// Fields that belong to one connection, or that describe how the body is sent.
fn is_framing(name: &[u8], value: &[u8]) -> bool {
    const FIELDS: &str = "connection content-length keep-alive proxy-authorization proxy-connection trailer \
                          transfer-encoding upgrade";
    // gRPC servers require `TE: trailers`.
    let codings = name.eq_ignore_ascii_case(b"te") && !value.eq_ignore_ascii_case(b"trailers");
    codings || FIELDS.split(' ').any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
}

impl RequestEdits {
    /// Parses command line arguments.
    ///
    /// # Errors
    /// An invalid argument; the error explains the syntax.
    pub fn parse(method: Option<&str>, url: Option<&str>, headers: &[String], body: Option<Bytes>) -> Result<Self> {
        let method = method.map(|m| m.parse().map_err(|_| ReplayError::Method(m.to_owned()))).transpose()?;
        let url = url.map(str::parse).transpose()?;
        let headers = headers.iter().map(|h| h.parse()).collect::<Result<_, _>>()?;
        Ok(Self { method, url, headers, body })
    }

    /// The request to send. Connection and framing fields are left to the sender.
    ///
    /// # Errors
    /// The flow is not an HTTP exchange, or its body is incomplete and not replaced.
    pub fn apply(&self, row: &FlowRecord, body: Bytes) -> Result<Request> {
        let request = row.request.as_ref().ok_or_else(|| ReplayError::Tunnel(row.id.to_string()))?;
        if row.kind == FlowKind::WebSocket {
            return Err(ReplayError::WebSocket(row.id.to_string()));
        }
        // A shortened body would be another request.
        if let (None, Some(missing)) = (&self.body, request.body.missing) {
            let (kept, size) = (request.body.kept, request.body.size);
            return Err(ReplayError::Body { flow: row.id.to_string(), kept, size, missing });
        }
        let method = match &self.method {
            Some(method) => method.clone(),
            None => request.method.parse().map_err(|_| ReplayError::Method(request.method.clone()))?,
        };
        let url = self.target(row, &request.path);
        let mut headers = replay_headers(&request.headers, row);
        // A mask is not the value that was sent, and what an edited store holds may not be a field.
        headers.retain(|name, value| !is_masked(value) && is_field(name, value));
        let moved = url.authority != row.authority || url.scheme != row.scheme;
        // `Host` must name the new destination, and comes first as RFC 9110 section 7.2 recommends.
        if moved || !headers.contains("host") {
            let host = url.authority.to_host_header(url.scheme);
            let mut with_host: interflow_types::Headers = [("Host", host)].into_iter().collect();
            headers
                .iter()
                .filter(|(n, _)| !n.eq_ignore_ascii_case(b"host"))
                .for_each(|(n, v)| with_host.append_unchecked(n, v));
            headers = with_host;
        }
        // The given body has no content coding.
        if self.body.is_some() {
            headers.remove("content-encoding");
        }
        // After the fields above, so that an edit can set whatever was removed.
        for edit in &self.headers {
            match edit {
                HeaderEdit::Remove(name) => {
                    headers.remove(name);
                }
                HeaderEdit::Set(name, value) => {
                    headers.set(name, value).map_err(|_| ReplayError::Header(format!("{name}: {value}")))?;
                }
            }
        }
        let body = self.body.clone().unwrap_or(body);
        // The version is what the client asked with; with TLS, the upstream connection negotiates its own. In plain text
        // it is sent with the version that the origin was spoken to.
        let spoken = row.upstream.as_ref().filter(|u| url.scheme == Scheme::Http && !u.version.is_empty());
        let version = if request.version == "HTTP/1.0" {
            HttpVersion::Http10
        } else if spoken.map_or(&request.version, |u| &u.version).starts_with("HTTP/1") {
            HttpVersion::Http11
        // Later versions are sent as HTTP/2.
        } else {
            HttpVersion::H2
        };
        Ok(Request {
            head: RequestHead { method, url, version, headers, protocol: None },
            body: if body.is_empty() { Body::Empty } else { Body::from(body) },
        })
    }

    fn target(&self, row: &FlowRecord, path: &str) -> Url {
        let path = match &self.url {
            Some(UrlEdit::Whole(url)) => return url.clone(),
            Some(UrlEdit::Path(path)) => path,
            None => path,
        };
        Url { scheme: row.scheme, authority: row.authority.clone(), path: ByteStr::from(path) }
    }
}
