//! The request id shared by client, gateway and provider: the client's `X-Request-Id` if it sent a usable one, else
//! the flow's id.

use crate::{Flow, FlowId, Headers};

pub const FIELD: &str = "x-request-id";

/// The field that carries the provider's own id when it differs.
const UPSTREAM_FIELD: &str = "x-upstream-request-id";

/// Longer ids from clients are ignored, since the id is written to logs and sent upstream.
const MAX_LEN: usize = 128;

/// The id of a request: an extension of its flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestId(Option<String>);

impl RequestId {
    /// Takes the id from the client's header fields, else from the flow.
    pub fn new(headers: &Headers, flow: FlowId) -> Self {
        Self(Some(of_client(headers).map_or_else(|| flow.to_string(), str::to_owned)))
    }

    /// The id of a flow: the extension's, else the flow's own.
    pub fn of(flow: &Flow) -> String {
        flow.extension::<Self>().and_then(|id| id.0.clone()).unwrap_or_else(|| flow.id.to_string())
    }

    /// Sets the id in the response of its flow, if one was assigned. A different id from the provider moves to
    /// `X-Upstream-Request-Id`.
    pub fn echo(flow: &Flow, headers: &mut Headers) {
        let Some(id) = flow.extension::<Self>().and_then(|id| id.0.as_deref()) else { return };
        // Providers often echo the id that was sent to them.
        if let Some(other) = headers.get_str(FIELD).filter(|other| *other != id).map(str::to_owned) {
            // A value taken from a header is a valid header value.
            let _ = headers.set(UPSTREAM_FIELD, other);
        }
        put(headers, id);
    }

    pub fn put(&self, headers: &mut Headers) {
        if let Some(id) = &self.0 {
            put(headers, id);
        }
    }
}

fn put(headers: &mut Headers, id: &str) {
    headers.remove(FIELD);
    // The id is printable ASCII, hence a valid field value.
    headers.append_unchecked(b"X-Request-Id", id.as_bytes());
}

/// The client's own id: exactly one value, of 1 to 128 printable ASCII characters.
fn of_client(headers: &Headers) -> Option<&str> {
    let mut all = headers.get_all(FIELD);
    // Two values are ambiguous, so neither is used.
    let only = std::str::from_utf8(all.next()?).ok()?.trim();
    // Printable ASCII cannot inject lines into logs or fields.
    let fits = !only.is_empty() && only.len() <= MAX_LEN && only.bytes().all(|b| (b' '..=b'~').contains(&b));
    (fits && all.next().is_none()).then_some(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_request_id_is_accepted_if_single_short_and_printable() {
        let of = |values: &[&str]| {
            let headers: Headers = values.iter().map(|v| ("X-Request-Id", *v)).collect();
            of_client(&headers).map(str::to_owned)
        };
        let longest = "x".repeat(128);
        assert_eq!(of(&["req 1~"]).as_deref(), Some("req 1~"));
        assert_eq!(of(&[&longest]), Some(longest.clone()));
        for bad in [vec![], vec![""], vec!["a\tb"], vec!["é"], vec!["a", "b"]] {
            assert_eq!(of(&bad), None, "{bad:?}");
        }
        assert_eq!(of(&[&(longest + "x")]), None);
    }
}
