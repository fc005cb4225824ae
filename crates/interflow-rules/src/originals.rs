//! What rules edit, as it was before: kept on the flow for the recorder.

use interflow_flow::{Body, Original, OriginalBody, Originals, Phase, RequestHead, ResponseHead};

use crate::act::{At, RequestAt};
use crate::body::Seen;

/// A head before rules acted on it.
#[derive(Debug)]
pub(crate) enum Before {
    /// The request's.
    Request(RequestHead),
    /// The response's.
    Response(ResponseHead),
}

impl At<'_> {
    /// Copies the head of this phase's side, once, before a rule that may edit it acts.
    pub fn remember(&mut self) {
        if self.before.is_some() {
            return;
        }
        let before = match (self.phase, &self.request, &self.response) {
            (Phase::RequestHead | Phase::RequestBody, RequestAt::Changing(head), _) => Before::Request((*head).clone()),
            (Phase::ResponseHead | Phase::ResponseBody, _, Some(head)) => Before::Response((*head).clone()),
            _ => return,
        };
        self.before = Some(Box::new(before));
    }

    /// At the end of a phase: keeps what the message was when its head is another one now, or `body` was edited. What an
    /// earlier phase kept stays.
    pub fn keep_original(&mut self, body: Option<OriginalBody>) {
        let Some(before) = self.before.take() else { return };
        match *before {
            Before::Request(head) => {
                if body.is_none() && self.request() == Some(&head) {
                    return;
                }
                keep(&mut self.flow.note_mut::<Originals>().request, head, body);
            }
            Before::Response(head) => {
                if body.is_none() && self.response.as_deref() == Some(&head) {
                    return;
                }
                keep(&mut self.flow.note_mut::<Originals>().response, head, body);
            }
        }
    }
}

fn keep<H>(kept: &mut Option<Box<Original<H>>>, head: H, body: Option<OriginalBody>) {
    match kept {
        Some(kept) => kept.body = kept.body.take().or(body),
        None => *kept = Some(Box::new(Original { head, body })),
    }
}

/// The body to edit, and in `original` the same as it is now.
pub(crate) fn seen(seen: Seen, original: &mut Option<OriginalBody>) -> Seen {
    match seen {
        Seen::Whole(whole) => {
            *original = Some(OriginalBody::Full(whole.raw.clone()));
            Seen::Whole(whole)
        }
        Seen::Stream(body) => {
            let (kept, body) = OriginalBody::of(body);
            *original = Some(kept);
            Seen::Stream(body)
        }
    }
}

/// Whether the body that goes on is another one, as far as that is known by now.
pub(crate) fn differs(original: &OriginalBody, body: &Body) -> bool {
    match (original, body) {
        (OriginalBody::Full(before), Body::Full(now)) => before != now,
        (OriginalBody::Full(before), Body::Empty) => !before.is_empty(),
        _ => true,
    }
}
