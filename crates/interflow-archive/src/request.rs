//! A recorded request in replayable form: the fields to write, and the body.

use std::io::{self, Read};

use interflow_types::{Direction, Headers, RequestHead};

use super::BodySource;
use interflow_store::{FlowKind, FlowRecord};

/// Bodies above this size, in bytes, are not inlined into commands and snippets.
pub(super) const MAX_INLINE: usize = 64 * 1024;

/// The input of commands and snippets.
pub(super) struct ReplayableRequest {
    pub method: String,
    pub url: String,
    pub path: String,
    pub version: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    /// Whether it said that its body is empty.
    pub declares_empty: bool,
    /// What differs from the request that was sent, a line each.
    pub notes: Vec<String>,
    /// Fields whose recorded values were masked, and the variables in their place.
    placeholders: Vec<(Vec<u8>, String)>,
}

impl ReplayableRequest {
    /// `None` for a tunnel, which has no request.
    pub fn read(row: &FlowRecord, contents: &dyn BodySource) -> io::Result<Option<Self>> {
        let Some(request) = &row.request else { return Ok(None) };
        let mut body = Vec::new();
        contents.body(row, Direction::Request)?.read_to_end(&mut body)?;
        let mut notes = Vec::new();
        if request.body.missing.is_some() {
            notes.push(format!("only {} of the {} bytes of the body were kept", request.body.kept, request.body.size));
        }
        let (headers, placeholders) = with_placeholders(&replay_headers(&request.headers, row), &mut notes);
        Ok(Some(Self {
            method: request.method.clone(),
            url: row.url(),
            path: request.path.clone(),
            version: request.version.to_string(),
            headers,
            declares_empty: request.headers.get("content-length") == Some(b"0"),
            body,
            notes,
            placeholders,
        }))
    }

    /// A request that was not recorded.
    pub fn from_head(head: &RequestHead, body: &[u8]) -> Self {
        Self {
            method: head.method.as_str().to_owned(),
            url: head.url.to_string(),
            path: head.url.path.to_string(),
            version: head.version.as_str().to_owned(),
            headers: head.headers.clone(),
            declares_empty: false,
            body: body.to_vec(),
            notes: Vec::new(),
            placeholders: Vec::new(),
        }
    }

    /// The variable in place of a masked field's value, such as `$AUTHORIZATION`.
    pub fn placeholder(&self, name: &[u8]) -> Option<&str> {
        self.placeholders.iter().find(|(n, _)| n.as_slice() == name).map(|(_, variable)| variable.as_str())
    }

    /// Each name once: lists are joined as RFC 9110 section 5.3 allows, for languages whose tables have unique keys.
    pub fn joined_headers(&self) -> Vec<(String, Vec<u8>)> {
        let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, value) in &self.headers {
            let name = String::from_utf8_lossy(name).into_owned();
            match headers.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(&name)) {
                Some((_, before)) => {
                    let between: &[u8] = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
                    *before = [before, between, value].concat();
                }
                None => headers.push((name, value.to_vec())),
            }
        }
        headers
    }

    pub fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name)
    }
}

/// Removes the fields that a client writes itself: connection, framing and proxy fields, and `Host` if it matches the
/// URL. A WebSocket keeps its upgrade fields.
pub(super) fn replay_headers(headers: &Headers, row: &FlowRecord) -> Headers {
    let web_socket = row.kind == FlowKind::WebSocket;
    let host = row.authority.to_host_header(row.scheme);
    // Fields that `Connection` names belong to the connection as well (RFC 9110 section 7.6.1).
    let named: Vec<Vec<u8>> = headers.list_items("connection").map(<[u8]>::to_ascii_lowercase).collect();
    let mut fields = headers.clone();
    fields.retain(|name, value| {
        let name = name.to_ascii_lowercase();
        match name.as_slice() {
            b"connection" | b"upgrade" => web_socket,
            b"content-length" | b"transfer-encoding" | b"keep-alive" | b"trailer" => false,
            // gRPC servers require it; transfer codings are the sender's.
            b"te" => value.eq_ignore_ascii_case(b"trailers"),
            b"proxy-connection" | b"proxy-authorization" => false,
            b"host" => !value.eq_ignore_ascii_case(host.as_bytes()),
            other => web_socket || !named.iter().any(|n| n == other),
        }
    });
    fields
}

/// Replaces masked values by variables, and notes which.
fn with_placeholders(headers: &Headers, notes: &mut Vec<String>) -> (Headers, Vec<(Vec<u8>, String)>) {
    let mut placeholders = Vec::new();
    let mut replaced = Headers::new();
    for (name, value) in headers {
        let Some(at) = is_masked(value).then(|| memchr::memmem::rfind(value, b"*** (")).flatten() else {
            replaced.append_unchecked(name, value);
            continue;
        };
        let word: String = name
            .iter()
            .map(|b| if b.is_ascii_alphanumeric() { char::from(b.to_ascii_uppercase()) } else { '_' })
            .collect();
        let variable = format!("${word}");
        notes.push(format!(
            "The value of {} was masked in the recording: fill in {variable}",
            String::from_utf8_lossy(name)
        ));
        replaced.append_unchecked(name, &[&value[..at], variable.as_bytes()].concat());
        placeholders.push((name.to_vec(), variable));
    }
    (replaced, placeholders)
}

/// `*** (51 bytes)`, optionally after an authentication scheme.
pub(super) fn is_masked(value: &[u8]) -> bool {
    let stars = value.strip_suffix(b" bytes)").and_then(|v| v.rsplit(|&b| b == b'(').nth(1));
    stars.is_some_and(|s| s == b"*** " || s.ends_with(b" *** "))
}
