//! Hands messages as they came in, before stages edited them, to the recorder; unless a stage withholds them because they hold
//! what it removes.

use std::sync::Arc;

use interflow_flow::{Direction, Flow, Original, OriginalBody, Originals, Phase, RequestHead, ResponseHead};

use crate::plan::Plan;
use crate::tracker::Shared;

/// The mark of flows whose request or response as it came in is recorded beside what went on.
const EDITED: &str = "edited";

/// The request as it came in, when it was edited and may be recorded.
pub(crate) fn of_request(flow: &mut Flow, plan: &Plan) -> Option<Box<Original<RequestHead>>> {
    flow.note::<Originals>()?;
    let original = flow.note_mut::<Originals>().request.take();
    allowed(flow, plan, original)
}

/// The response as it came in, when it was edited and may be recorded.
pub(crate) fn of_response(flow: &mut Flow, plan: &Plan) -> Option<Box<Original<ResponseHead>>> {
    flow.note::<Originals>()?;
    let original = flow.note_mut::<Originals>().response.take();
    allowed(flow, plan, original)
}

fn allowed<T>(flow: &mut Flow, plan: &Plan, original: Option<T>) -> Option<T> {
    let original = original?;
    if plan.stages(Phase::RequestBody).any(|s| s.withholds_originals(flow)) {
        return None;
    }
    flow.tag(EDITED);
    Some(original)
}

impl Shared {
    /// Shows the recorder a request as it came in.
    pub(crate) fn original_request(self: &Arc<Self>, original: Original<RequestHead>) {
        let Original { head, body } = original;
        if let Some(capture) = self.capture.lock().as_mut() {
            capture.original_request(&head, body.is_some());
        }
        self.original_body(Direction::Request, body);
    }

    /// Shows the recorder a response as it came in.
    pub(crate) fn original_response(self: &Arc<Self>, flow: &Flow, original: Original<ResponseHead>) {
        let Original { head, body } = original;
        if let Some(capture) = self.capture.lock().as_mut() {
            capture.original_response(flow, &head, body.is_some());
        }
        self.original_body(Direction::Response, body);
    }

    fn original_body(self: &Arc<Self>, direction: Direction, body: Option<OriginalBody>) {
        match body {
            None => {}
            Some(OriginalBody::Full(bytes)) => {
                if let Some(capture) = self.capture.lock().as_mut() {
                    capture.original_data(direction, &bytes);
                }
            }
            Some(OriginalBody::Passing(passing)) => {
                let shared = Arc::clone(self);
                let shown = passing.show(move |bytes| {
                    if let Some(capture) = shared.capture.lock().as_mut() {
                        capture.original_data(direction, bytes);
                    }
                });
                if !shown && let Some(capture) = self.capture.lock().as_mut() {
                    capture.original_lost(direction);
                }
            }
        }
    }
}
