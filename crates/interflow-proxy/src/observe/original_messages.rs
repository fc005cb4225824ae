//! Passes messages as received, before stages edited them, to the recorder; unless a stage withholds them because
//! they contain what it removes.

use interflow_types::{Flow, OriginalMessages, Phase};

use crate::upstream::plan::RequestPlan;

const EDITED_TAG: &str = "edited";

/// The original request or response, if it was edited and may be recorded. The extension is emptied in any case, to
/// release the body.
pub(crate) fn take<T>(
    flow: &mut Flow,
    plan: &RequestPlan,
    original: fn(&mut OriginalMessages) -> &mut Option<T>,
) -> Option<T> {
    // Most flows have none, and `extension_mut` would create it.
    flow.extension::<OriginalMessages>()?;
    let original = original(flow.extension_mut()).take()?;
    // One stage that redacts suffices: an original would contain what it removed.
    if plan.stages(Phase::RequestBody).any(|s| s.withholds_originals(flow)) {
        return None;
    }
    flow.tag(EDITED_TAG);
    Some(original)
}
