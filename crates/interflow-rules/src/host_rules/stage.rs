//! The phases of a flow, handed to the rules of its host.

use futures_util::FutureExt as _;

use super::*;
use crate::body::accept_encoding;

/// The rules of a host as a stage of the request pipeline, for one plan.
pub(crate) struct HostRuleStage {
    pub bound: Arc<HostRules>,
    /// The phases of which the stage takes part in those for which there are rules.
    pub phases: &'static [Phase],
    /// Whether the plan is for intercepted tunnels, whose requests are matched one by one.
    pub opens: bool,
}

impl Stage for HostRuleStage {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, _scope: &PlanScope<'_>) -> PhaseSet {
        let own = self.phases.iter().filter(|phase| self.bound.interest.contains(**phase));
        own.fold(PhaseSet::NONE, |all, phase| all.with(*phase))
    }

    fn needs_inspection(&self, _scope: &PlanScope<'_>) -> bool {
        self.bound.needs_content()
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.bound.run_connect(Phase::Authority, flow, self.opens)
    }

    fn client_hello<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.bound.run_connect(Phase::ClientHello, flow, self.opens)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        // Decided while the tunnel was held; this is the first phase that can answer.
        if self.bound.answers_at_connect
            && let Some(answer) = flow.extension_mut::<RuleState>().answer.get_mut().take()
        {
            return MaybeFuture::Ready(RequestVerdict::Answer(answer));
        }
        if self.bound.marks_at_connect && !flow.extension::<RuleState>().is_some_and(|s| s.connected) {
            if self.bound.marks_wait {
                return MaybeFuture::pending(async move {
                    self.bound.apply_connect_marks(flow).await;
                    self.bound.run_request_head(flow, head).resolve().await
                });
            }
            // Without programs to run there is nothing to wait for, and so no future to box.
            let ready = self.bound.apply_connect_marks(flow).now_or_never();
            debug_assert!(ready.is_some(), "only programs are waited for");
        }
        self.bound.run_request_head(flow, head)
    }

    fn request_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        if self.bound.is_idle(Phase::RequestBody, flow, head, None) {
            return MaybeFuture::Ready(Ok(body));
        }
        self.bound.run_with_body(
            ActionContext { request: RequestAccess::Changing(head), ..self.bound.context(Phase::RequestBody, flow) },
            body,
        )
    }

    fn upstream_connect<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: Option<&'a RequestHead>,
        overrides: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let request = head.map_or(RequestAccess::None, RequestAccess::Seen);
        self.bound.run_without_body(ActionContext {
            request,
            overrides: Some(overrides),
            ..self.bound.context(Phase::UpstreamConnect, flow)
        })
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let mut before = None;
        // Before the fast path: the state of these actions needs no rule in this phase.
        if let Some(state) = flow.extension::<RuleState>() {
            if state.sticky {
                let at = self.bound.context(Phase::ResponseHead, flow);
                let host = at.view().with_host(ToOwned::to_owned);
                self.bound.program.runtime.sessions.store_cookies(&host, &head.headers);
            }
            if flow.extension::<RuleState>().is_some_and(|s| s.uncached) {
                before = Some(crate::actions::HeadBeforeEdit::response(head));
                disable_caching(&mut head.headers);
            }
        }
        if self.bound.keeps_response {
            flow.extension_mut::<RuleState>().response = Some(Arc::new(head.clone()));
        } else if before.is_none() && self.bound.is_idle(Phase::ResponseHead, flow, request, Some(head)) {
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        let at = self.bound.context(Phase::ResponseHead, flow);
        self.bound.run_without_body(ActionContext {
            request: RequestAccess::Seen(request),
            response: Some(head),
            before,
            ..at
        })
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        if self.bound.is_idle(Phase::ResponseBody, flow, request, Some(head)) {
            return MaybeFuture::Ready(Ok(body));
        }
        let at = self.bound.context(Phase::ResponseBody, flow);
        self.bound
            .run_with_body(ActionContext { request: RequestAccess::Seen(request), response: Some(head), ..at }, body)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        self.bound.run_without_body(self.bound.message_context(flow, message))
    }

    fn unreadable_message<'a>(
        &'a self,
        flow: &'a mut Flow,
        message: &'a mut StreamMessage,
        why: &'a Error,
    ) -> MaybeFuture<'a, Result<()>> {
        let why = Error::new(why.kind(), why.message().to_owned());
        let at = ActionContext { unread_message: Some(Arc::new(why)), ..self.bound.message_context(flow, message) };
        let ended = |verdict| match verdict {
            MessageVerdict::Continue | MessageVerdict::Drop => Ok(()),
            MessageVerdict::Deny(e) => Err(e),
        };
        match self.bound.run_without_body::<MessageVerdict>(at) {
            MaybeFuture::Ready(verdict) => MaybeFuture::Ready(ended(verdict)),
            later => MaybeFuture::pending(async move { ended(later.resolve().await) }),
        }
    }

    fn finish(&self, flow: &mut Flow) {
        if self.bound.messages {
            for tags in std::mem::take(&mut flow.extension_mut::<RuleState>().event_tags) {
                tags.lock().drain(..).for_each(|tag| flow.tag(tag));
            }
        }
    }

    fn done(&self, flow: &Flow) {
        if self.bound.phase_rules(Phase::Done).entries.is_empty() {
            return;
        }
        // Nothing waits for these rules. Without a runtime, the process is ending.
        if let (MaybeFuture::Pending(rules), Ok(runtime)) =
            (self.bound.run_done(flow), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(rules);
        }
    }
}

impl HostRules {
    pub(super) fn context<'a>(&'a self, phase: Phase, flow: &'a mut Flow) -> ActionContext<'a> {
        ActionContext::new(&self.program, phase, flow)
    }

    fn message_context<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> ActionContext<'a> {
        let request = flow.extension::<RuleState>().and_then(|s| s.request.clone());
        let request = request.map_or(RequestAccess::None, RequestAccess::Kept);
        ActionContext { request, message: Some(message), ..self.context(Phase::Message, flow) }
    }

    fn run_request_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let accepts_others =
            self.reads_responses && (accept_encoding::accepts_others(&head.headers) || head.headers.contains("range"));
        if self.keeps_request {
            flow.extension_mut::<RuleState>().request = Some(Arc::new(head.clone()));
        } else if !accepts_others && self.is_idle(Phase::RequestHead, flow, head, None) {
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        let mut at = ActionContext { request: RequestAccess::Changing(head), ..self.context(Phase::RequestHead, flow) };
        // Before the rules, which may ask for something else.
        if accepts_others {
            let (reads_body, reads) = self.may_read_response(&at);
            if reads {
                at.snapshot_head();
            }
            if let Some(headers) = at.head_mut().filter(|_| reads) {
                if accept_encoding::accepts_others(headers) {
                    accept_encoding::keep_readable(headers);
                }
                // A part of a body can neither be judged nor edited as the whole.
                if reads_body {
                    headers.remove("range");
                    headers.remove("if-range");
                }
            }
        }
        self.run_without_body(at)
    }

    /// Runs the rules at the end of a flow, on a copy: their changes are not recorded. They have to be waited for
    /// only if they need a program or a file.
    pub fn run_done(self: &Arc<Self>, flow: &Flow) -> MaybeFuture<'static, ()> {
        let mut copy = crate::flow::view::copy_facts(flow);
        let (request, mut response) =
            flow.extension::<RuleState>().map_or((None, None), |s| (s.request.clone(), s.response.as_deref().cloned()));
        let request = request.map_or(RequestAccess::None, RequestAccess::Kept);
        let this = Arc::clone(self);
        let rules = async move {
            let mut at = ActionContext { request, response: response.as_mut(), ..this.context(Phase::Done, &mut copy) };
            this.run_to_end(&mut at).await;
        };
        if self.done_waits {
            return MaybeFuture::pending(rules);
        }
        rules.now_or_never();
        MaybeFuture::Ready(())
    }
}
