//! Guardrails: checks of the texts of LLM requests and responses, with an action for what they find.
//!
//! One pass carries them all. It runs after redaction, so that services are sent redacted texts, and before originals
//! are restored. Texts come from `interflow-llm`'s spans, which know their place in the message; a guardrail
//! ([`Guardrail`]) turns texts into findings, and [`evaluate`] carries out the actions.

mod check;
mod escapes;
mod evaluate;
pub mod kinds;
mod mcp_values;
mod record;
pub(crate) mod request;
pub(crate) mod response;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use interflow_llm::{GuardrailKind, LlmCall, LlmConfig, LlmRefusal, Operation, detect_call, realtime};
use interflow_types::{
    Body, BoxFuture, EarlyExit, Flow, Headers, HttpClient, Method, PlanScope, RequestHead, ResponseHead, Result,
    StatusCode,
};

pub use check::{CallFacts, CheckInput, CheckResult, Finding, Guardrail};
pub use record::{GuardrailCounts, GuardrailRecord, GuardrailResult};
pub use settings::GuardrailSettings;

use crate::gateway::LlmGateway;
use kinds::KindDeps;
use record::Counters;
pub(crate) use settings::ActiveGuards;

/// The field in which a client is told which guardrails found something.
const HEADER: &str = "X-Interflow-Guardrail";

/// Asks a person about a flow: the request's head, and what was found. `Err` says why it is not allowed.
pub type Reviewer =
    Box<dyn for<'a> Fn(&'a Flow, &'a RequestHead, String) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The guardrails of the process; their settings change on reload.
pub struct GuardrailService {
    settings: ArcSwap<GuardrailSettings>,
    gateway: Arc<LlmGateway>,
    /// The client for services; its requests are not recorded.
    egress: Arc<dyn HttpClient>,
    reviewer: Reviewer,
    counters: Counters,
}

impl GuardrailService {
    /// Relative paths are resolved against `base`. Requests sent by `egress` must not be recorded. `reviewer` is asked about
    /// findings with the action `ask`.
    ///
    /// # Errors
    /// A guardrail is wrong: its key, and why.
    pub fn new(
        config: &LlmConfig,
        base: &Path,
        gateway: Arc<LlmGateway>,
        egress: Arc<dyn HttpClient>,
        reviewer: Reviewer,
    ) -> Result<Arc<Self>, String> {
        let settings = GuardrailSettings::new(config, &KindDeps { base, gateway: &gateway, egress: &egress })?;
        let settings = ArcSwap::from_pointee(settings);
        Ok(Arc::new(Self { settings, gateway, egress, reviewer, counters: Counters::default() }))
    }

    /// Compiles another configuration, without activating it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn compile(&self, config: &LlmConfig, base: &Path) -> Result<GuardrailSettings, String> {
        GuardrailSettings::new(config, &KindDeps { base, gateway: &self.gateway, egress: &self.egress })
    }

    /// Activates settings. Flows in progress keep theirs.
    pub fn activate(&self, settings: GuardrailSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// The files that a configuration names.
    pub fn files(config: &LlmConfig, base: &Path) -> Vec<PathBuf> {
        let schemas = config.guardrail.values().filter(|g| g.kind == GuardrailKind::JsonSchema);
        schemas.filter(|g| g.schema.ends_with(".json")).map(|g| base.join(&g.schema)).collect()
    }

    /// What was counted since the start.
    pub fn counts(&self) -> GuardrailCounts {
        self.counters.get()
    }

    /// Whether there are guardrails.
    pub(crate) fn is_active(&self) -> bool {
        !self.settings.load().is_empty()
    }

    /// A provider's own host must not be reached around a guardrail that blocks. Other hosts are not known to be
    /// providers until a request is read.
    pub(crate) fn protects(&self, scope: &PlanScope<'_>) -> bool {
        let (host, port) = (&scope.authority.host, scope.authority.port);
        let by_host = || detect_call(host, port, &Method::POST, "/", &Headers::new()).is_some();
        self.settings.load().is_strict() && by_host()
    }

    /// Whether something was replaced in the request.
    pub(crate) fn withholds_originals(flow: &Flow) -> bool {
        flow.extension::<GuardrailState>().is_some_and(|s| s.masked)
    }

    /// A WebSocket's messages are not checked: where something may have to be blocked or changed, it is not opened.
    pub(crate) fn request_head(&self, flow: &mut Flow, head: &RequestHead, call: &LlmCall) -> Result<(), EarlyExit> {
        if !realtime::is_websocket(head) && call.operation != Operation::Realtime {
            return Ok(());
        }
        let active = self.settings.load().for_flow(flow, call);
        let strict = active.input.iter().chain(&active.output).find(|g| g.is_strict());
        let Some(guard) = strict else { return Ok(()) };
        let message = format!(
            "the guardrail `{}` cannot check WebSockets, so that none is opened; use HTTP, or exempt it by the \
             guardrail's filters (llm.guardrail.{}.models, keys, …)",
            guard.name, guard.name
        );
        let refusal = LlmRefusal::new(StatusCode::NOT_IMPLEMENTED, "invalid_request", "websocket_unscannable", message);
        Err(self.refuse(flow, &refusal))
    }

    /// Whether the texts of a request are checked.
    pub(crate) fn checks(call: &LlmCall) -> bool {
        !call.exempt && !matches!(call.operation, Operation::Lookup | Operation::Telemetry | Operation::Realtime)
    }

    pub(crate) fn response_head(flow: &Flow, head: &mut ResponseHead) {
        // What the upstream says about guardrails of its own is not Interflow's.
        head.headers.remove(HEADER);
        add_header(flow, &mut head.headers);
    }

    /// What checks a response. An error is not what a model said.
    pub(crate) fn response_guards(flow: &Flow, head: &ResponseHead, body: &Body) -> Option<ActiveGuards> {
        let active = &flow.extension::<GuardrailState>()?.active;
        (!active.output.is_empty() && !body.is_empty() && head.status.is_success()).then(|| active.clone())
    }
}

/// Adds the field that names what was found so far.
fn add_header(flow: &Flow, headers: &mut Headers) {
    let found = GuardrailRecord::summary(flow);
    if !found.is_empty() {
        headers.append_unchecked(HEADER.as_bytes(), found.join(", ").as_bytes());
    }
}

/// What is kept with a flow.
#[derive(Default)]
struct GuardrailState {
    active: ActiveGuards,
    /// Whether something was replaced in the request: then the original must not be recorded.
    masked: bool,
}
