//! What is shown of a request that waits for a decision: its head, and its body if it is short and has arrived.

use interflow_types::{BodyPreview, Flow, RequestHead};

/// A request that waits.
#[derive(Clone, Debug)]
pub struct RequestPreview {
    /// Its URL, with the query.
    pub url: String,
    /// Its fields.
    pub headers: Vec<(String, String)>,
    /// How long its body is, as far as the client said.
    pub size: Option<u64>,
    body: Option<BodyPreview>,
}

impl RequestPreview {
    pub(super) fn from_request(flow: &Flow, head: &RequestHead) -> Self {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Self {
            url: head.url.to_string(),
            headers: head.headers.iter().map(|(n, v)| (text(n), text(v))).collect(),
            size: head.headers.get_str("content-length").and_then(|n| n.parse().ok()),
            body: flow.extension::<BodyPreview>().cloned(),
        }
    }

    /// The body, once all of it has come: as text, when it is one, and none when it is empty, long, coded, or still coming.
    pub fn body(&self) -> Option<String> {
        self.body.as_ref()?.current().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// Whoever decides wants another body to be sent. Only one that [was shown](Self::body) can be edited.
    pub(super) fn edit(&self, body: String) {
        if let Some(preview) = &self.body {
            preview.replace(body.into());
        }
    }
}
