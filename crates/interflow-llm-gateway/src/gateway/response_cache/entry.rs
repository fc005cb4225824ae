//! A stored response: the part of its head that is repeated, and its body.

use bytes::Bytes;
use interflow_types::{Body, Headers, Response, ResponseHead, StatusCode};
use serde::{Deserialize, Serialize};

use super::CACHE_HEADER;

/// Header fields that are stored with a body. The rest belongs to the exchange that it was received in.
const STORED_HEADERS: [&str; 3] = ["content-type", "x-interflow-translated", "x-interflow-translation-loss"];

/// In Redis, what precedes the body is one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredResponse {
    /// In microseconds since the Unix epoch.
    pub stored_at: u64,
    pub headers: Vec<(String, String)>,
    #[serde(skip)]
    pub body: Bytes,
}

impl StoredResponse {
    pub fn headers_of(head: &ResponseHead) -> Vec<(String, String)> {
        let value = |name: &str| Some((name.to_owned(), head.headers.get_str(name)?.to_owned()));
        STORED_HEADERS.iter().filter_map(|name| value(name)).collect()
    }

    /// Bytes in memory, about.
    pub fn size(&self) -> u64 {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        (self.body.len() + headers + 256) as u64
    }

    /// The response to another client; `age` in seconds.
    pub fn into_response(self, age: u64) -> Response {
        let mut headers = Headers::new();
        for (name, value) in &self.headers {
            // What was a field before is valid.
            let _ = headers.append(name, value);
        }
        headers.append_unchecked(CACHE_HEADER, b"HIT");
        headers.append_unchecked(b"Age", age.to_string().as_bytes());
        let mut head = ResponseHead::new(StatusCode::OK);
        head.headers = headers;
        Response { head, body: Body::from(self.body) }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = serde_json::to_vec(self).unwrap_or_default();
        out.push(b'\n');
        out.extend_from_slice(&self.body);
        out
    }

    pub fn decode(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Bytes::from(bytes);
        let line = bytes.iter().position(|b| *b == b'\n')?;
        let head: Self = serde_json::from_slice(bytes.get(..line)?).ok()?;
        Some(Self { body: bytes.slice(line + 1..), ..head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_decoded_as_it_was_encoded() {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let entry = StoredResponse { stored_at: 7, headers, body: Bytes::from_static(b"{\n}") };
        assert_eq!(StoredResponse::decode(entry.encode()), Some(entry));
        assert_eq!(StoredResponse::decode(b"{}".to_vec()), None);
    }
}
