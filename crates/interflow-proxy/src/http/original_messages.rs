//! Passes messages as received, before stages edited them, to the recorder; unless a stage withholds them because
//! they contain what it removes.

use std::sync::Arc;

use interflow_types::{
    Direction, Flow, OriginalBody, OriginalMessage, OriginalMessages, Phase, RequestHead, ResponseHead,
};

use crate::observe::flow_guard::SharedCapture;
use crate::upstream::plan::RequestPlan;

/// The tag of flows whose original request or response is recorded beside the edited one.
const EDITED_TAG: &str = "edited";

/// The original request, if it was edited and may be recorded.
pub(crate) fn take_request(flow: &mut Flow, plan: &RequestPlan) -> Option<Box<OriginalMessage<RequestHead>>> {
    flow.extension::<OriginalMessages>()?;
    let original = flow.extension_mut::<OriginalMessages>().request.take();
    if_recordable(flow, plan, original)
}

/// The original response, if it was edited and may be recorded.
pub(crate) fn take_response(flow: &mut Flow, plan: &RequestPlan) -> Option<Box<OriginalMessage<ResponseHead>>> {
    flow.extension::<OriginalMessages>()?;
    let original = flow.extension_mut::<OriginalMessages>().response.take();
    if_recordable(flow, plan, original)
}

fn if_recordable<T>(flow: &mut Flow, plan: &RequestPlan, original: Option<T>) -> Option<T> {
    let original = original?;
    if plan.stages(Phase::RequestBody).any(|s| s.withholds_originals(flow)) {
        return None;
    }
    flow.tag(EDITED_TAG);
    Some(original)
}

impl SharedCapture {
    /// Records a request as received.
    pub(crate) fn original_request(self: &Arc<Self>, original: OriginalMessage<RequestHead>) {
        let OriginalMessage { head, body } = original;
        if let Some(capture) = self.capture.lock().as_mut() {
            capture.original_request(&head, body.is_some());
        }
        self.original_body(Direction::Request, body);
    }

    /// Records a response as received.
    pub(crate) fn original_response(self: &Arc<Self>, flow: &Flow, original: OriginalMessage<ResponseHead>) {
        let OriginalMessage { head, body } = original;
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
                let shown = passing.subscribe(move |bytes| {
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
