//! The stages of requests to the endpoints.

mod call_policy;
mod oauth;
mod prepare;
mod request_redaction;
mod restore;
mod subscribed;
mod target;

use std::sync::Arc;

use interflow_types::Stage;

use self::oauth::OAuthStage;
use self::prepare::PrepareStage;
use self::restore::RestoreStage;
use crate::service::McpService;

impl McpService {
    /// The stages, in order: one that checks access tokens before virtual keys are checked, one that parses and redacts
    /// requests before the recorder takes its copy, and one that restores originals in responses after it.
    pub fn stages(self: &Arc<Self>) -> [Arc<dyn Stage>; 3] {
        let service = || Arc::clone(self);
        [Arc::new(OAuthStage(service())), Arc::new(PrepareStage(service())), Arc::new(RestoreStage(service()))]
    }
}
