//! Passes messages as received, before stages edited them, to the recorder; unless a stage withholds them because
//! they contain what it removes.

use interflow_types::{Flow, OriginalMessage, OriginalMessages, Phase, RequestHead, ResponseHead};

use crate::upstream::plan::RequestPlan;

const EDITED_TAG: &str = "edited";

/// The original request, if it was edited and may be recorded. The extension is emptied in any case, to release the
/// body.
pub(crate) fn take_request(flow: &mut Flow, plan: &RequestPlan) -> Option<Box<OriginalMessage<RequestHead>>> {
    // Most flows have none, and `extension_mut` would create it.
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
    // One stage that redacts suffices: an original would contain what it removed.
    if plan.stages(Phase::RequestBody).any(|s| s.withholds_originals(flow)) {
        return None;
    }
    flow.tag(EDITED_TAG);
    Some(original)
}
