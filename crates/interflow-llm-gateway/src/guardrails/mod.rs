//! Guardrails: checks of the texts of LLM requests and responses, with an action for what they find.
//!
//! One stage carries them all. It runs after redaction, so that services are sent redacted texts, and before originals
//! are restored. Texts come from `interflow-llm`'s spans, which know their place in the message; a guardrail
//! ([`Guardrail`]) turns texts into findings, and [`evaluate`] carries out the actions.

mod check;
mod escapes;
mod evaluate;
pub mod kinds;
mod mcp_values;
mod record;
mod request;
mod response;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use interflow_llm::{GuardrailKind, LlmCall, LlmConfig, LlmRefusal, Operation, detect_call, realtime};
use interflow_types::{
    Body, BodyFuture, BoxFuture, EntryKind, Flow, Headers, HttpClient, MaybeFuture, Method, Phase, PhaseSet, PlanScope,
    RequestHead, RequestVerdict, ResponseHead, Result, Stage, StatusCode,
};

pub use check::{CallFacts, CheckInput, CheckResult, Finding, Guardrail};
pub use mcp_values::McpCallGuards;
pub use record::{GuardrailCounts, GuardrailRecord, GuardrailResult};
pub use settings::GuardrailSettings;

use crate::gateway::LlmGateway;
use crate::llm_telemetry::ResponseFindings;
use kinds::KindDeps;
use record::Counters;
use settings::ActiveGuards;

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
    reviewer: OnceLock<Reviewer>,
    counters: Counters,
}

impl GuardrailService {
    /// Relative paths are resolved against `base`. Requests sent by `egress` must not be recorded.
    ///
    /// # Errors
    /// A guardrail is wrong: its key, and why.
    pub fn new(
        config: &LlmConfig,
        base: &Path,
        gateway: Arc<LlmGateway>,
        egress: Arc<dyn HttpClient>,
    ) -> Result<Arc<Self>, String> {
        let settings = GuardrailSettings::new(config, &KindDeps { base, gateway: &gateway, egress: &egress })?;
        let settings = ArcSwap::from_pointee(settings);
        Ok(Arc::new(Self { settings, gateway, egress, reviewer: OnceLock::new(), counters: Counters::default() }))
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

    /// Sets who is asked about findings with the action `ask`. May be set once.
    pub fn set_reviewer(
        &self,
        reviewer: impl for<'a> Fn(&'a Flow, &'a RequestHead, String) -> BoxFuture<'static, Result<(), String>>
        + Send
        + Sync
        + 'static,
    ) {
        let _ = self.reviewer.set(Box::new(reviewer));
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

    /// The stage, for after redaction and before restoring.
    pub fn stage(self: &Arc<Self>) -> Arc<dyn Stage> {
        Arc::new(GuardrailStage(Arc::clone(self)))
    }
}

/// Adds the field that names what was found so far.
fn add_header(flow: &Flow, headers: &mut Headers) {
    let found = GuardrailRecord::summary(flow);
    if !found.is_empty() {
        headers.append_unchecked(HEADER.as_bytes(), found.join(", ").as_bytes());
    }
}

/// What the stage keeps with a flow.
#[derive(Default)]
struct GuardrailState {
    active: ActiveGuards,
    /// Whether something was replaced in the request: then the original must not be recorded.
    masked: bool,
}

struct GuardrailStage(Arc<GuardrailService>);

impl GuardrailStage {
    /// A WebSocket's messages are not checked: where something may have to be blocked or changed, it is not opened.
    fn refuse_websocket(&self, flow: &mut Flow, head: &RequestHead, call: &LlmCall) -> RequestVerdict {
        if !realtime::is_websocket(head) && call.operation != Operation::Realtime {
            return RequestVerdict::Continue;
        }
        let active = self.0.settings.load().for_flow(flow, call);
        let strict = active.input.iter().chain(&active.output).find(|g| g.is_strict());
        let Some(guard) = strict else { return RequestVerdict::Continue };
        let message = format!(
            "the guardrail `{}` cannot check WebSockets, so that none is opened; use HTTP, or exempt it by the \
             guardrail's filters (llm.guardrail.{}.models, keys, …)",
            guard.name, guard.name
        );
        let refusal = LlmRefusal::new(StatusCode::NOT_IMPLEMENTED, "invalid_request", "websocket_unscannable", message);
        self.0.refuse(flow, &refusal).into()
    }
}

impl Stage for GuardrailStage {
    fn name(&self) -> &'static str {
        "guardrails"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let seen = scope.intercepted || matches!(scope.transport, EntryKind::Absolute | EntryKind::Gateway);
        if !seen || scope.transport == EntryKind::Internal || self.0.settings.load().is_empty() {
            return PhaseSet::NONE;
        }
        PhaseSet::from_phase(Phase::RequestHead)
            .with(Phase::RequestBody)
            .with(Phase::ResponseHead)
            .with(Phase::ResponseBody)
            .with(Phase::Done)
    }

    /// A provider's own host must not be reached around a guardrail that blocks. Other hosts are not known to be
    /// providers until a request is read.
    fn needs_inspection(&self, scope: &PlanScope<'_>) -> bool {
        let (host, port) = (&scope.authority.host, scope.authority.port);
        let by_host = || detect_call(host, port, &Method::POST, "/", &Headers::new()).is_some();
        self.0.settings.load().is_strict() && by_host()
    }

    fn withholds_originals(&self, flow: &Flow) -> bool {
        flow.extension::<GuardrailState>().is_some_and(|s| s.masked)
    }

    fn finish(&self, flow: &mut Flow) {
        // Streams that were cut off are noted there.
        ResponseFindings::merge_into_flow(flow);
        GuardrailRecord::tag(flow);
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let verdict = match flow.extension::<LlmCall>().cloned() {
            Some(call) => self.refuse_websocket(flow, head, &call),
            None => RequestVerdict::Continue,
        };
        MaybeFuture::Ready(verdict)
    }

    fn request_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        let Some(call) = flow.extension::<LlmCall>().cloned() else { return MaybeFuture::Ready(Ok(body)) };
        if call.exempt || matches!(call.operation, Operation::Lookup | Operation::Telemetry | Operation::Realtime) {
            return MaybeFuture::Ready(Ok(body));
        }
        MaybeFuture::pending(request::check(&self.0, flow, head, call, body))
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        // What the upstream says about guardrails of its own is not Interflow's.
        head.headers.remove(HEADER);
        add_header(flow, &mut head.headers);
        MaybeFuture::Ready(RequestVerdict::Continue)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        let active = flow.extension::<GuardrailState>().map(|s| s.active.clone()).unwrap_or_default();
        // An error is not what a model said.
        if active.output.is_empty() || body.is_empty() || !head.status.is_success() {
            return MaybeFuture::Ready(Ok(body));
        }
        let check = response::ResponseCheck { service: &self.0, flow, request, active };
        MaybeFuture::pending(check.run(head, body))
    }
}
