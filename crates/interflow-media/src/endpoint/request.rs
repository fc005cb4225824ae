//! One authorised request to a media endpoint, with what the endpoints need to serve it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use interflow_types::{Body, Flow, RequestHead};

use super::access::AuthorizedRequest;
use super::state::MediaState;

/// One request with its context; endpoints are methods of it. Cheap to copy.
#[derive(Clone, Copy)]
pub struct MediaRequest<'a> {
    pub state: &'a Arc<MediaState>,
    pub marks: &'a ResponseMarks,
    pub flow: &'a Flow,
    pub asked: &'a AuthorizedRequest,
    pub head: &'a RequestHead,
}

impl MediaRequest<'_> {
    /// Counts the body of a response among the running streams.
    pub fn track(&self, body: Body, kind: &'static str, origin: String) -> Body {
        self.state.streams.track(body, kind, origin, self.flow.client.peer, self.flow.user.clone())
    }

    /// Marks the response as decrypted media, for the recorder.
    pub fn note_decryption(&self) {
        self.marks.decrypted.store(true, Relaxed);
    }
}

/// What a response contains that the recorder must not keep.
#[derive(Default)]
pub struct ResponseMarks {
    pub decrypted: AtomicBool,
    pub has_keys: AtomicBool,
}
