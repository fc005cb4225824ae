//! The stage of LLM traffic, and the order of its passes at each phase.
//!
//! It is registered at four places of the pipeline's order (`StagePlace`): rules run between them, and the recorder takes its
//! copy of a response before originals are restored. Each method of `LlmStage` has the passes of its phase, place by place:
//!
//! | place | request | response | end |
//! |---|---|---|---|
//! | `Admit` | detection, telemetry, copy for spans, keys and limits | masks of credentials, usage, lists of models | usage, telemetry, settlement |
//! | `Inspect` | redaction, guardrails, copy for spans | scan, guardrails, copy for spans | findings |
//! | `Restore` | | restoring, copy for spans | session of the response |
//! | `Send` | credentials, names of models, signature | usage that the client did not ask for | circuit breaker, cache |
//!
//! A pass is a function of the flow with its call and of what is sent. What passes see of a request's body is parsed once
//! (`exchange`); what they read or change of a streamed response are steps of one decoded stream.

use std::sync::Arc;

use interflow_llm::{LlmCall, Operation};
use interflow_types::{
    Body, BodyFuture, Direction, EarlyExit, EntryKind, Flow, MaybeFuture, MessageKind, MessageVerdict, Phase, PhaseSet,
    PlanScope, RequestHead, RequestVerdict, ResponseHead, Stage, StreamMessage,
};

use crate::detector::{self, ProviderDetector};
use crate::exchange::response::whole;
use crate::gateway::{CredentialMask, Dispatcher, LlmGateway, hides_usage, is_bedrock};
use crate::guardrails::response::ResponseCheck;
use crate::guardrails::{self, GuardrailRecord, GuardrailService};
use crate::limits::{self, LimitPass};
use crate::llm_telemetry::{ContentMode, LlmTelemetry, ResponseFindings};
use crate::redaction::{self, RedactionService, websocket};

/// Where in the pipeline's order the stage runs.
#[derive(Clone, Copy, PartialEq)]
enum StagePlace {
    /// Before rules: what is refused costs nothing more, and what a provider's error says of keys reaches no other stage.
    Admit,
    /// After rules of requests, so that text that they insert is redacted too. Guardrails see redacted texts, since some
    /// send them to services.
    Inspect,
    /// Once the recorder has its copy.
    Restore,
    /// Last, because a signature covers the final request.
    Send,
}

/// What the passes use.
struct LlmPasses {
    mask: CredentialMask,
    detector: ProviderDetector,
    telemetry: Arc<LlmTelemetry>,
    limits: Arc<LimitPass>,
    redaction: Arc<RedactionService>,
    guardrails: Arc<GuardrailService>,
    dispatcher: Dispatcher,
}

/// The stage at one place, for one plan: with what it does there.
struct LlmStage {
    passes: Arc<LlmPasses>,
    place: StagePlace,
    /// Requests of clients. Of Interflow's own, credentials in the response are masked, and nothing more.
    is_client: bool,
    limits: bool,
    redaction: bool,
    guardrails: bool,
    phases: PhaseSet,
    name: &'static str,
}

/// The stages of LLM traffic: before the rules of requests; after them; after these, once the recorder has its copy of a
/// response; and last.
pub fn stages(
    gateway: &Arc<LlmGateway>,
    telemetry: Arc<LlmTelemetry>,
    limits: Arc<LimitPass>,
    redaction: Arc<RedactionService>,
    guardrails: Arc<GuardrailService>,
) -> [Arc<dyn Stage>; 4] {
    let (mask, dispatcher) = (CredentialMask::default(), Dispatcher(Arc::clone(gateway)));
    let detector = ProviderDetector::new(Arc::clone(gateway));
    let passes = Arc::new(LlmPasses { mask, detector, telemetry, limits, redaction, guardrails, dispatcher });
    let (is_client, limits, redaction, guardrails) = (false, false, false, false);
    [StagePlace::Admit, StagePlace::Inspect, StagePlace::Restore, StagePlace::Send].map(|place| {
        let (passes, phases) = (Arc::clone(&passes), PhaseSet::NONE);
        Arc::new(LlmStage { passes, place, is_client, limits, redaction, guardrails, phases, name: "llm" }) as _
    })
}

impl LlmPasses {
    /// The pass at a place that must see the traffic of a scope, so that none is passed through.
    fn protecting(&self, place: StagePlace, scope: &PlanScope<'_>) -> Option<&'static str> {
        match place {
            // Keys and quotas can only be checked on decrypted requests.
            StagePlace::Admit => self.limits.applies(scope).then_some("limits"),
            StagePlace::Inspect if self.redaction.settings().protects(scope) => Some("redact"),
            StagePlace::Inspect => self.guardrails.protects(scope).then_some("guardrails"),
            StagePlace::Restore | StagePlace::Send => None,
        }
    }
}

fn is_realtime(flow: &Flow) -> bool {
    flow.extension::<LlmCall>().is_some_and(|call| call.operation == Operation::Realtime)
}

impl LlmStage {
    fn admit_head(&self, flow: &mut Flow, head: &mut RequestHead) -> Result<(), EarlyExit> {
        self.passes.detector.request_head(flow, head)?;
        // What is refused from here on is counted, too.
        self.passes.telemetry.begin(flow, head);
        if self.limits { self.passes.limits.request_head(flow, head) } else { Ok(()) }
    }

    fn inspect_head(&self, flow: &mut Flow, head: &mut RequestHead) -> Result<(), EarlyExit> {
        // Of other requests the body is looked at.
        let changes = |call: &&LlmCall| head.protocol.is_some() || call.operation == Operation::Realtime;
        let Some(call) = flow.extension::<LlmCall>().filter(changes).cloned() else { return Ok(()) };
        if self.redaction {
            self.passes.redaction.request_head(flow, head, &call)?;
        }
        if self.guardrails { self.passes.guardrails.request_head(flow, head, &call) } else { Ok(()) }
    }

    fn admit_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, mut body: Body) -> BodyFuture<'a> {
        let passes = &*self.passes;
        passes.mask.request_body(flow, head);
        let read = passes.detector.body_read(flow, head, &body);
        if read.is_none() && !self.limits {
            return MaybeFuture::Ready(Ok(body));
        }
        MaybeFuture::pending(async move {
            if let Some(read) = read {
                body = passes.detector.request_body(read, flow, head, body).await?;
                passes.telemetry.copy_request(ContentMode::Full, flow, head, &body);
            }
            if self.limits { passes.limits.reserve(flow, head, body).await } else { Ok(body) }
        })
    }

    fn inspect_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, mut body: Body) -> BodyFuture<'a> {
        let Some(mut call) = flow.extension::<LlmCall>().cloned() else { return MaybeFuture::Ready(Ok(body)) };
        MaybeFuture::pending(async move {
            if self.redaction {
                body = redaction::request_body::redact(&self.passes.redaction, flow, head, &mut call, body).await?;
            }
            if self.guardrails && GuardrailService::checks(&call) {
                body = guardrails::request::check(&self.passes.guardrails, flow, head, &call, body).await?;
            }
            self.passes.telemetry.copy_request(ContentMode::Redacted, flow, head, &body);
            Ok(body)
        })
    }

    fn admit_response<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        let body = match self.passes.mask.response_body(flow, request, head, body) {
            Ok(body) if self.is_client => self.passes.detector.response_body(flow, head, body),
            masked => return MaybeFuture::Ready(masked),
        };
        match self.limits {
            true => self.passes.limits.response_body(flow, request, head, body),
            false => MaybeFuture::Ready(Ok(body)),
        }
    }

    fn inspect_response<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        mut body: Body,
    ) -> BodyFuture<'a> {
        let telemetry = &self.passes.telemetry;
        let policy = RedactionService::scanning_policy(flow, &body);
        let guards = GuardrailService::response_guards(flow, head, &body);
        if policy.is_none() && guards.is_none() {
            return MaybeFuture::Ready(Ok(telemetry.copy_response(ContentMode::Redacted, flow, head, body)));
        }
        MaybeFuture::pending(async move {
            if let Some(policy) = policy {
                body = redaction::response_body::scan(&self.passes.redaction, flow, policy, head, body).await?;
            }
            if let Some(active) = guards {
                let service = &self.passes.guardrails;
                body = ResponseCheck { service, flow, request, active }.run(head, body).await?;
            }
            Ok(telemetry.copy_response(ContentMode::Redacted, flow, head, body))
        })
    }

    fn restore_response<'a>(&'a self, flow: &'a mut Flow, head: &'a mut ResponseHead, body: Body) -> BodyFuture<'a> {
        let telemetry = &self.passes.telemetry;
        let session = RedactionService::restored_session(flow);
        if session.is_none() {
            whole::forget(flow);
        }
        let Some(session) = session.filter(|_| !body.is_empty()) else {
            return MaybeFuture::Ready(Ok(telemetry.copy_response(ContentMode::Full, flow, head, body)));
        };
        MaybeFuture::pending(async move {
            let body = redaction::response_body::restore(&self.passes.redaction, flow, session, head, body).await?;
            Ok(telemetry.copy_response(ContentMode::Full, flow, head, body))
        })
    }

    /// An event that a client or a provider sent over a WebSocket.
    fn admit_event(&self, flow: &mut Flow, message: &StreamMessage) -> MessageVerdict {
        if !is_realtime(flow) || !matches!(message.kind, MessageKind::Text | MessageKind::Binary) {
            return MessageVerdict::Continue;
        }
        detector::read_message(flow.extension_mut::<LlmCall>(), message);
        match message.direction {
            Direction::Request if self.limits => self.passes.limits.admit_event(flow, message),
            _ => MessageVerdict::Continue,
        }
    }
}

impl Stage for LlmStage {
    fn name(&self) -> &'static str {
        self.name
    }

    fn interest(&self, _scope: &PlanScope<'_>) -> PhaseSet {
        self.phases
    }

    fn specialize(&self, scope: &PlanScope<'_>) -> Option<Arc<dyn Stage>> {
        let (passes, place) = (Arc::clone(&self.passes), self.place);
        let is_internal = scope.transport == EntryKind::Internal;
        let is_gateway = scope.transport == EntryKind::Gateway;
        let is_client = !is_internal && (scope.intercepted || is_gateway || scope.transport == EntryKind::Absolute);
        let limits = is_client && passes.limits.applies(scope);
        let redaction = is_client && passes.redaction.settings().wants(scope.transport);
        let guardrails = is_client && passes.guardrails.is_active();
        let content = if is_client { passes.telemetry.content_mode() } else { ContentMode::None };
        let of_response = PhaseSet::from_phase(Phase::ResponseBody).with(Phase::Message).with(Phase::Done);
        let all = of_response.with(Phase::RequestHead).with(Phase::RequestBody).with(Phase::ResponseHead);
        let phases = match place {
            // The responses to Interflow's own requests are shown to stages of this phase alone.
            StagePlace::Admit if is_internal => PhaseSet::from_phase(Phase::BeforeSend),
            StagePlace::Admit if is_client => all,
            StagePlace::Inspect if redaction || guardrails || content == ContentMode::Redacted => all,
            StagePlace::Restore if redaction || content == ContentMode::Full => of_response,
            StagePlace::Send if is_gateway => all,
            // A client's own signature is invalid for a redacted body.
            StagePlace::Send if is_bedrock(scope) => PhaseSet::from_phase(Phase::RequestBody),
            _ => PhaseSet::NONE,
        };
        let name = passes.protecting(place, scope).unwrap_or(self.name);
        Some(Arc::new(Self { passes, place, is_client, limits, redaction, guardrails, phases, name }))
    }

    fn needs_inspection(&self, scope: &PlanScope<'_>) -> bool {
        self.passes.protecting(self.place, scope).is_some()
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let admitted = match self.place {
            StagePlace::Admit if self.is_client => self.admit_head(flow, head),
            StagePlace::Inspect => self.inspect_head(flow, head),
            StagePlace::Send => return self.passes.dispatcher.request_head(flow, head),
            // A replay was admitted when it was recorded.
            StagePlace::Admit | StagePlace::Restore => Ok(()),
        };
        MaybeFuture::Ready(admitted.into())
    }

    fn request_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        match self.place {
            StagePlace::Admit => self.admit_body(flow, head, body),
            StagePlace::Inspect => self.inspect_body(flow, head, body),
            StagePlace::Restore => MaybeFuture::Ready(Ok(body)),
            StagePlace::Send => self.passes.dispatcher.request_body(flow, head, body),
        }
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        match self.place {
            StagePlace::Admit => {
                self.passes.mask.response_head(flow, request, head);
                if self.limits {
                    self.passes.limits.response_head(flow, head);
                }
            }
            StagePlace::Inspect if self.guardrails => GuardrailService::response_head(flow, head),
            StagePlace::Inspect | StagePlace::Restore => {}
            StagePlace::Send => Dispatcher::response_head(flow, head),
        }
        MaybeFuture::Ready(RequestVerdict::Continue)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        match self.place {
            StagePlace::Admit => self.admit_response(flow, request, head, body),
            StagePlace::Inspect => self.inspect_response(flow, request, head, body),
            StagePlace::Restore => self.restore_response(flow, head, body),
            StagePlace::Send => Dispatcher::response_body(flow, request, head, body),
        }
    }

    fn restores_secrets(&self, flow: &Flow) -> bool {
        match self.place {
            StagePlace::Admit | StagePlace::Inspect => false,
            StagePlace::Restore => RedactionService::restored_session(flow).is_some(),
            // The record has the report that the client did not ask for: conversations take the usage from it.
            StagePlace::Send => hides_usage(flow),
        }
    }

    fn wants_messages(&self, flow: &Flow) -> bool {
        match self.place {
            StagePlace::Admit => is_realtime(flow) || CredentialMask::wants_messages(flow),
            StagePlace::Inspect | StagePlace::Restore => websocket::wants_messages(flow),
            StagePlace::Send => is_realtime(flow),
        }
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        let redaction = &self.passes.redaction;
        MaybeFuture::Ready(match (self.place, message.direction) {
            (StagePlace::Admit, _) => {
                CredentialMask::message(flow, message);
                self.admit_event(flow, message)
            }
            (StagePlace::Inspect, Direction::Request) => {
                return MaybeFuture::pending(websocket::redact_message(redaction, flow, message));
            }
            (StagePlace::Inspect, Direction::Response) => websocket::scan_message(redaction, flow, message),
            (StagePlace::Restore, Direction::Request) => MessageVerdict::Continue,
            (StagePlace::Restore, Direction::Response) => websocket::restore_message(flow, message),
            (StagePlace::Send, _) => self.passes.dispatcher.message(flow, message),
        })
    }

    fn inspects_injected_messages(&self) -> bool {
        matches!(self.place, StagePlace::Inspect | StagePlace::Send)
    }

    fn withholds_originals(&self, flow: &Flow) -> bool {
        self.place == StagePlace::Inspect
            && (self.redaction && redaction::withholds_originals(flow) || GuardrailService::withholds_originals(flow))
    }

    fn finish(&self, flow: &mut Flow) {
        match self.place {
            StagePlace::Admit if self.limits => self.passes.limits.finish(flow),
            StagePlace::Inspect => {
                // Streams that were cut off are noted there.
                ResponseFindings::merge_into_flow(flow);
                GuardrailRecord::tag(flow);
            }
            _ => {}
        }
    }

    fn done(&self, flow: &Flow) {
        match self.place {
            StagePlace::Admit => {
                self.passes.telemetry.done(flow);
                limits::settle(flow);
            }
            StagePlace::Inspect => {}
            StagePlace::Restore => self.passes.redaction.remember_response(flow),
            StagePlace::Send => Dispatcher::done(flow),
        }
    }
}
