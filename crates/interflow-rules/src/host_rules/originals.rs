//! Saves messages as they were before rules edited them, for the recorder.

use interflow_types::{Body, OriginalBody, OriginalMessage, OriginalMessages, Phase, ResponseHead};

use crate::actions::{ActionContext, HeadBeforeEdit, RequestAccess};
use crate::body::BodyReadState;

impl HeadBeforeEdit {
    pub fn response(head: &ResponseHead) -> Self {
        Self::Response(Box::new(OriginalMessage { head: head.clone(), body: None }))
    }
}

impl ActionContext<'_> {
    /// Copies the head of this phase's side once, before the first rule that may edit it.
    pub fn snapshot_head(&mut self) {
        if self.before.is_some() {
            return;
        }
        let before = match (self.phase, &self.request, &self.response) {
            (Phase::RequestHead | Phase::RequestBody, RequestAccess::Changing(head), _) => {
                HeadBeforeEdit::Request(Box::new(OriginalMessage { head: (*head).clone(), body: None }))
            }
            (Phase::ResponseHead | Phase::ResponseBody, _, Some(head)) => HeadBeforeEdit::response(head),
            _ => return,
        };
        self.before = Some(before);
    }

    /// At the end of a phase: saves the original message if its head changed or `body` was edited. An original saved by
    /// an earlier phase is kept.
    pub fn keep_original(&mut self, body: Option<OriginalBody>) {
        let Some(before) = self.before.take() else { return };
        match before {
            HeadBeforeEdit::Request(original) => {
                if body.is_some() || self.request() != Some(&original.head) {
                    store_original(&mut self.flow.extension_mut::<OriginalMessages>().request, original, body);
                }
            }
            HeadBeforeEdit::Response(original) => {
                if body.is_some() || self.response.as_deref() != Some(&original.head) {
                    store_original(&mut self.flow.extension_mut::<OriginalMessages>().response, original, body);
                }
            }
        }
    }
}

fn store_original<H>(
    stored: &mut Option<Box<OriginalMessage<H>>>,
    original: Box<OriginalMessage<H>>,
    body: Option<OriginalBody>,
) {
    // The head of an earlier phase is the true original; only a body may be missing.
    let stored = stored.get_or_insert(original);
    stored.body = stored.body.take().or(body);
}

/// Returns the body to edit and stores a copy in `original`; a stream is copied as it passes.
pub(crate) fn tee_original(seen: BodyReadState, original: &mut Option<OriginalBody>) -> BodyReadState {
    match seen {
        BodyReadState::Whole(whole) => {
            *original = Some(OriginalBody::Full(whole.raw.clone()));
            BodyReadState::Whole(whole)
        }
        BodyReadState::Stream(body) => {
            let (kept, body) = OriginalBody::from_body(body);
            *original = Some(kept);
            BodyReadState::Stream(body)
        }
    }
}

/// Whether the outgoing body differs, as far as is known; a stream counts as different.
pub(crate) fn is_different(original: &OriginalBody, body: &Body) -> bool {
    match (original, body) {
        (OriginalBody::Full(before), Body::Full(now)) => before != now,
        (OriginalBody::Full(before), Body::Empty) => !before.is_empty(),
        _ => true,
    }
}
