//! Questions of other components: a person decides about one flow, whatever the rules and the mode say.

use std::sync::Arc;

use interflow_types::{Flow, RequestHead};

use super::config::ApprovalAction;
use super::pending::{PendingQuestion, PendingRequester};
use super::request_preview::RequestPreview;
use super::{Approvals, bracket_ipv6};

impl Approvals {
    /// Asks a person about this flow; `reason` is shown to them. `Err` says why it is not allowed: it was denied,
    /// nobody decided in time, or too many wait already. Cancel-safe: dropping the future withdraws the question.
    pub fn review(
        self: &Arc<Self>,
        flow: &Flow,
        head: &RequestHead,
        reason: String,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let (sessions, _) = self.sessions_of(&flow.client, flow.user.as_deref());
        let to = &head.url.authority;
        let question = PendingQuestion {
            host: bracket_ipv6(&to.host.canonical_text()),
            method: Some(head.method.to_string()),
            path: Some(head.url.path_only().to_owned()),
            reason: Some(reason),
            alone: Some(flow.id),
            ..PendingQuestion::about(flow, &sessions, &to.host, to.port)
        };
        // Without its body: an edit of it would come too late.
        let requester = PendingRequester { flow: flow.id, asked: Some(RequestPreview::without_body(head)) };
        let approvals = Arc::clone(self);
        async move {
            let (patience, most) = (approvals.timeout(), approvals.settings.load().max_held);
            let began = std::time::Instant::now();
            match approvals.waiting.wait_for_decision(question, requester, patience, most).await {
                Some(ApprovalAction::Allow) => Ok(()),
                Some(ApprovalAction::Deny) => Err("the operator denied it".to_owned()),
                None if approvals.waiting.is_closed() => Err("it was pending when Interflow stopped".to_owned()),
                None if began.elapsed() < patience => {
                    Err(format!("{most} requests are pending already (approvals.max_held)"))
                }
                None => Err("it was not allowed in time".to_owned()),
            }
        }
    }
}
