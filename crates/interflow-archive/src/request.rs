//! A recorded request in replayable form: the fields to write, and the body.

use std::io::{self, Read};

use interflow_types::{Direction, Headers};

use super::BodySource;
use interflow_store::{FlowKind, FlowRow};

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
    /// Why the body differs from the one sent.
    pub note: Option<String>,
}

impl ReplayableRequest {
    /// `None` for a tunnel, which has no request.
    pub fn read(row: &FlowRow, contents: &dyn BodySource) -> io::Result<Option<Self>> {
        let Some(request) = &row.request else { return Ok(None) };
        let mut body = Vec::new();
        contents.body(row, Direction::Request)?.read_to_end(&mut body)?;
        let note = request
            .body
            .missing
            .map(|_| format!("only {} of the {} bytes of the body were kept", request.body.kept, request.body.size));
        Ok(Some(Self {
            method: request.method.clone(),
            url: row.url(),
            path: request.path.clone(),
            version: request.version.to_string(),
            headers: replay_headers(&request.headers, row),
            body,
            note,
        }))
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
pub(super) fn replay_headers(headers: &Headers, row: &FlowRow) -> Headers {
    let web_socket = row.kind == FlowKind::WebSocket;
    let host = row.authority.to_host_header(row.scheme);
    // Fields that `Connection` names belong to the connection as well (RFC 9110 section 7.6.1).
    let named: Vec<Vec<u8>> = headers.list_items("connection").map(<[u8]>::to_ascii_lowercase).collect();
    let mut kept = headers.clone();
    kept.retain(|name, value| {
        let name = name.to_ascii_lowercase();
        match name.as_slice() {
            b"connection" | b"upgrade" => web_socket,
            b"content-length" | b"transfer-encoding" | b"keep-alive" | b"te" | b"trailer" => false,
            b"proxy-connection" | b"proxy-authorization" => false,
            b"host" => !value.eq_ignore_ascii_case(host.as_bytes()),
            other => web_socket || !named.iter().any(|n| n == other),
        }
    });
    kept
}

/// `*** (51 bytes)`, optionally after an authentication scheme.
pub(super) fn is_masked(value: &[u8]) -> bool {
    let stars = value.strip_suffix(b" bytes)").and_then(|v| v.rsplit(|&b| b == b'(').nth(1));
    stars.is_some_and(|s| s == b"*** " || s.ends_with(b" *** "))
}
