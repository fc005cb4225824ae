//! What rules edit, as it was before: kept on the flow for the recorder.

use interflow_types::{Body, OriginalBody, OriginalMessage, OriginalMessages, Phase, RequestHead, ResponseHead};

use crate::actions::{ActionContext, RequestAccess};
use crate::body::BodyReadState;

/// A head before rules acted on it.
#[derive(Debug)]
pub(crate) enum HeadBeforeEdit {
    /// The request's.
    Request(RequestHead),
    /// The response's.
    Response(ResponseHead),
}

impl ActionContext<'_> {
    /// Copies the head of this phase's side, once, before a rule that may edit it acts.
    pub fn snapshot_head(&mut self) {
        if self.before.is_some() {
            return;
        }
        let before = match (self.phase, &self.request, &self.response) {
            (Phase::RequestHead | Phase::RequestBody, RequestAccess::Changing(head), _) => {
                HeadBeforeEdit::Request((*head).clone())
            }
            (Phase::ResponseHead | Phase::ResponseBody, _, Some(head)) => HeadBeforeEdit::Response((*head).clone()),
            _ => return,
        };
        self.before = Some(Box::new(before));
    }

    /// At the end of a phase: keeps what the message was when its head is another one now, or `body` was edited. What an
    /// earlier phase kept stays.
    pub fn keep_original(&mut self, body: Option<OriginalBody>) {
        let Some(before) = self.before.take() else { return };
        match *before {
            HeadBeforeEdit::Request(head) => {
                if body.is_none() && self.request() == Some(&head) {
                    return;
                }
                store_original(&mut self.flow.extension_mut::<OriginalMessages>().request, head, body);
            }
            HeadBeforeEdit::Response(head) => {
                if body.is_none() && self.response.as_deref() == Some(&head) {
                    return;
                }
                store_original(&mut self.flow.extension_mut::<OriginalMessages>().response, head, body);
            }
        }
    }
}

fn store_original<H>(kept: &mut Option<Box<OriginalMessage<H>>>, head: H, body: Option<OriginalBody>) {
    match kept {
        Some(kept) => kept.body = kept.body.take().or(body),
        None => *kept = Some(Box::new(OriginalMessage { head, body })),
    }
}

/// The body to edit, and in `original` the same as it is now.
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

/// Whether the body that goes on is another one, as far as that is known by now.
pub(crate) fn is_different(original: &OriginalBody, body: &Body) -> bool {
    match (original, body) {
        (OriginalBody::Full(before), Body::Full(now)) => before != now,
        (OriginalBody::Full(before), Body::Empty) => !before.is_empty(),
        _ => true,
    }
}
