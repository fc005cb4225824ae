//! The stage that writes down by which names an address is known.

use std::sync::Arc;

use interflow_flow::{Flow, Host, Interest, Phase, RequestHead, ResolvedNames, Scope, Stage, Step, Transport, Verdict};

use super::Names;

/// See the module.
pub struct DnsNamesStage {
    names: Arc<Names>,
    enabled: bool,
}

impl DnsNamesStage {
    /// The stage; it wants nothing where no DNS port listens.
    pub fn new(names: Arc<Names>, enabled: bool) -> Self {
        Self { names, enabled }
    }

    fn name_it(&self, flow: &mut Flow) -> Step<'static, Verdict> {
        if let Host::Ip(ip) = &flow.authority.host
            && flow.note::<ResolvedNames>().is_none()
        {
            let names = self.names.of(*ip);
            if let Some(name) = names.first() {
                flow.tag(format!("dns:{name}"));
                *flow.note_mut() = ResolvedNames(names);
            }
        }
        Step::Now(Verdict::Continue)
    }
}

impl Stage for DnsNamesStage {
    fn name(&self) -> &'static str {
        "dns-names"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        let by_address = matches!(scope.authority.host, Host::Ip(_));
        if self.enabled && by_address && scope.transport != Transport::Internal {
            Interest::of(Phase::Authority).and(Phase::RequestHead)
        } else {
            Interest::NONE
        }
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> Step<'a, Verdict> {
        self.name_it(flow)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, _: &'a mut RequestHead) -> Step<'a, Verdict> {
        self.name_it(flow)
    }
}
