//! The phases of a flow, handed to the rules of its host.

use super::*;

impl Stage for HostRules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, _scope: &PlanScope<'_>) -> PhaseSet {
        self.interest
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.run_connect(Phase::Authority, flow, false)
    }

    fn client_hello<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.run_connect(Phase::ClientHello, flow, false)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        if self.answers_at_connect
            && let Some(answer) = flow.extension_mut::<RuleState>().answer.get_mut().take()
        {
            return MaybeFuture::Ready(RequestVerdict::Answer(answer));
        }
        if self.marks_at_connect && !flow.extension::<RuleState>().is_some_and(|s| s.connected) {
            self.apply_connect_marks(flow);
        }
        if self.keeps_request {
            flow.extension_mut::<RuleState>().request = Some(Arc::new(head.clone()));
        } else if self.is_idle(Phase::RequestHead, flow, head, None) {
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        self.run_without_body(ActionContext {
            request: RequestAccess::Changing(head),
            ..ActionContext::new(Phase::RequestHead, flow)
        })
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        if self.is_idle(Phase::RequestBody, flow, head, None) {
            return MaybeFuture::Ready(Ok(body));
        }
        self.run_with_body(
            ActionContext { request: RequestAccess::Changing(head), ..ActionContext::new(Phase::RequestBody, flow) },
            body,
        )
    }

    fn upstream_connect<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: Option<&'a RequestHead>,
        way: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let request = head.map_or(RequestAccess::None, RequestAccess::Seen);
        self.run_without_body(ActionContext {
            request,
            overrides: Some(way),
            ..ActionContext::new(Phase::UpstreamConnect, flow)
        })
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let mut before = None;
        if let Some(state) = flow.extension::<RuleState>() {
            if state.sticky {
                let at = ActionContext::new(Phase::ResponseHead, flow);
                let host = at.view(&self.program).with_host(ToOwned::to_owned);
                self.program.runtime.sessions.store_cookies(&host, &head.headers);
            }
            if flow.extension::<RuleState>().is_some_and(|s| s.uncached) {
                before = Some(Box::new(originals::HeadBeforeEdit::Response(head.clone())));
                disable_caching(&mut head.headers);
            }
        }
        if self.keeps_response {
            flow.extension_mut::<RuleState>().response = Some(Arc::new(head.clone()));
        } else if before.is_none() && self.is_idle(Phase::ResponseHead, flow, request, Some(head)) {
            return MaybeFuture::Ready(RequestVerdict::Continue);
        }
        let at = ActionContext::new(Phase::ResponseHead, flow);
        self.run_without_body(ActionContext {
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
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        if self.is_idle(Phase::ResponseBody, flow, request, Some(head)) {
            return MaybeFuture::Ready(Ok(body));
        }
        let at = ActionContext::new(Phase::ResponseBody, flow);
        self.run_with_body(ActionContext { request: RequestAccess::Seen(request), response: Some(head), ..at }, body)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        let request = flow.extension::<RuleState>().and_then(|s| s.request.clone());
        let request = request.map_or(RequestAccess::None, RequestAccess::Kept);
        self.run_without_body(ActionContext {
            request,
            message: Some(message),
            ..ActionContext::new(Phase::Message, flow)
        })
    }

    fn done(&self, flow: &Flow) {
        let mut copy = crate::view::copy_facts(flow);
        let (request, mut response) =
            flow.extension::<RuleState>().map_or((None, None), |s| (s.request.clone(), s.response.as_deref().cloned()));
        let request = request.map_or(RequestAccess::None, RequestAccess::Kept);
        let mut at =
            ActionContext { request, response: response.as_mut(), ..ActionContext::new(Phase::Done, &mut copy) };
        self.run_rules(&mut at, None, RuleCursor::default());
    }
}
