//! The stage that adds the DNS names of an address to a flow.

use std::sync::Arc;

use interflow_types::{
    EntryKind, Flow, Host, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict, ResolvedNames, Stage,
    TunnelVerdict,
};

use super::AddressNames;

/// Adds to a flow whose destination is a bare address the names that clients resolved to it, as a tag (`dns:NAME`)
/// and as [`ResolvedNames`].
pub struct DnsNamesStage {
    names: Arc<AddressNames>,
    enabled: bool,
}

impl DnsNamesStage {
    /// Without a DNS listener (`enabled` is false) the stage registers interest in no phase.
    pub fn new(names: Arc<AddressNames>, enabled: bool) -> Self {
        Self { names, enabled }
    }

    fn attach_names(&self, flow: &mut Flow) {
        // Runs at two phases of one flow, which must not be tagged twice.
        if let Host::Ip(ip) = &flow.authority.host
            && flow.extension::<ResolvedNames>().is_none()
        {
            let names = self.names.names_for(*ip);
            if let Some(name) = names.first() {
                flow.tag(format!("dns:{name}"));
                *flow.extension_mut() = ResolvedNames(names);
            }
        }
    }
}

impl Stage for DnsNamesStage {
    fn name(&self) -> &'static str {
        "dns-names"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        let by_address = matches!(scope.authority.host, Host::Ip(_));
        if self.enabled && by_address && scope.transport != EntryKind::Internal {
            PhaseSet::from_phase(Phase::Authority).with(Phase::RequestHead)
        } else {
            PhaseSet::NONE
        }
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.attach_names(flow);
        MaybeFuture::Ready(TunnelVerdict::Continue)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, _: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        self.attach_names(flow);
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}
