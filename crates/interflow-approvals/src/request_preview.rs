//! The preview of a pending request: its head, and its body if it is short and has arrived.

use interflow_types::{BodyPreview, Flow, RequestHead};

/// The preview of a pending request. Nothing in it is masked; whoever displays it has to.
#[derive(Clone, Debug)]
pub struct RequestPreview {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// The declared length of its body.
    pub size: Option<u64>,
    body: Option<BodyPreview>,
}

impl RequestPreview {
    pub(super) fn from_request(flow: &Flow, head: &RequestHead) -> Self {
        Self { body: flow.extension::<BodyPreview>().cloned(), ..Self::without_body(head) }
    }

    /// The preview of a request whose body is not to be shown, nor edited.
    pub(super) fn without_body(head: &RequestHead) -> Self {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Self {
            url: head.url.to_string(),
            headers: head.headers.iter().map(|(n, v)| (text(n), text(v))).collect(),
            size: head.headers.get_str("content-length").and_then(|n| n.parse().ok()),
            body: None,
        }
    }

    /// The body, once it is complete, if it is text; `None` if it is empty, long, encoded, or incomplete.
    pub fn body(&self) -> Option<String> {
        self.body.as_ref()?.current().and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// Replaces the body. Only one that [was presented](Self::body) can be edited.
    pub(super) fn edit(&self, body: String) {
        if let Some(preview) = &self.body {
            preview.replace(body.into());
        }
    }
}
