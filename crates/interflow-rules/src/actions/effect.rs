//! What an action leads to: the next action, the end of the flow, or an operation to wait for.

use std::time::Duration;

use interflow_types::{BoxFuture, Error, ErrorKind};

use super::context::ActionContext;
use crate::compiled::program::CompiledRule;
use crate::config::OnFailure;
use crate::disk::FileTask;
use crate::flow::exec_run::ExecRun;
use crate::flow::json_answers::JsonRun;
use crate::flow::verdict::RuleVerdict;
use crate::params::CaptureParams;

pub(crate) enum ActionEffect {
    Continue,
    /// The flow ends with this verdict, or takes another route.
    End(RuleVerdict),
    /// Skip the remaining rules of this phase (`stop`).
    Stop,
    /// An asynchronous operation must complete first; the following actions run after it.
    Wait(PendingAction),
}

/// The operation that an action, or a condition, waits for.
pub(crate) enum PendingAction {
    /// The program of a condition, which is evaluated again after it.
    Exec(Box<ExecRun>),
    /// The JSONPath of a condition, which is evaluated again after it.
    Json(Box<JsonRun>),
    /// The JSONPath of a variable, which is set after it.
    Capture(Box<(JsonRun, CaptureParams)>),
    Sleep(Duration),
    Service(std::sync::Arc<crate::service::ExternalService>),
    Script(Box<crate::script::ScriptRun>),
    File(FileTask),
    Decision(BoxFuture<'static, Option<crate::state::hold::HoldDecision>>, bool),
}

/// An action failed: the flow ends or continues, depending on `on_failure`.
pub(crate) fn action_failed(at: &mut ActionContext<'_>, rule: &CompiledRule, error: Error) -> ActionEffect {
    at.flow.tag("rule_failed");
    match at.program.config.on_failure {
        OnFailure::Deny => ActionEffect::End(RuleVerdict::Deny(error)),
        OnFailure::Pass => {
            tracing::warn!(flow = %at.flow.id, rule = rule.name, "the rule is passed over: {error}");
            ActionEffect::Continue
        }
    }
}

/// The error for a rendered template that is not a valid value of its kind.
pub(crate) fn invalid_value_error(rule: &CompiledRule, what: &str, text: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::StageFailed, format!("rule `{}`: the {what} `{text}` cannot be used: {why}", rule.name))
}

/// As [`action_failed`], for a rendered template that is not a valid value of its kind.
pub(crate) fn invalid_value(
    at: &mut ActionContext<'_>,
    rule: &CompiledRule,
    what: &str,
    text: &str,
    why: impl std::fmt::Display,
) -> ActionEffect {
    action_failed(at, rule, invalid_value_error(rule, what, text, why))
}
