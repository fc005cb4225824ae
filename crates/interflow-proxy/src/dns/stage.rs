//! The stage that adds the DNS names of an address to a flow.

use std::sync::Arc;

use interflow_types::{
    DialedAuthority, EntryKind, Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict,
    ResolvedNames, Stage, TunnelVerdict,
};

use super::AddressNames;

/// Adds to a flow that goes to a bare address the names that clients resolved to it, as a tag (`dns:NAME`)
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
        // The address behind a name that only `Host` says.
        let dialed = flow.extension::<DialedAuthority>().and_then(|dialed| dialed.0.as_ref());
        // Runs at two phases of one flow, which must not be tagged twice.
        if let Some(ip) = dialed.unwrap_or(&flow.authority).host.ip()
            && flow.extension::<ResolvedNames>().is_none()
        {
            let names = self.names.names_for(ip);
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
        let by_address = scope.authority.host.ip().is_some() || scope.transport == EntryKind::Transparent;
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

#[cfg(test)]
mod tests {
    use interflow_codec::dns::{AddressRecords, DnsQuestion};
    use interflow_types::{ClientInfo, Scheme, Timestamp};

    use super::*;
    use crate::dns::config::DnsConfig;

    #[test]
    fn a_flow_gets_the_names_of_the_address_that_it_goes_to() {
        let names = Arc::new(AddressNames::new(&DnsConfig::default()));
        let addresses = vec![("203.0.113.9".parse().unwrap(), 60)];
        let question = DnsQuestion { id: 1, name: "docs.test".into(), kind: 1 };
        names.record_answer(&AddressRecords { question, addresses, ..AddressRecords::default() });
        let stage = DnsNamesStage::new(names, true);
        let client = Arc::new(ClientInfo {
            peer: "192.0.2.1:9".parse().unwrap(),
            local: "192.0.2.2:7073".parse().unwrap(),
            connection: 1,
            listener: "transparent".into(),
            accepted: Timestamp::now(),
            process: None,
            container: None,
        });
        for (authority, dialed, known) in [
            ("203.0.113.9:80", None, true),
            ("claimed.test:80", Some("203.0.113.9:80"), true),
            ("claimed.test:80", Some("203.0.113.10:80"), false),
            ("claimed.test:80", Some("docs.test:80"), false),
            ("claimed.test:80", None, false),
        ] {
            let authority = authority.parse().unwrap();
            let mut flow = Flow::begin(Arc::clone(&client), EntryKind::Transparent, Scheme::Http, authority);
            let scope = PlanScope {
                listener: &client.listener,
                user: None,
                authority: &flow.authority,
                transport: EntryKind::Transparent,
                intercepted: true,
            };
            assert!(stage.interest(&scope).contains(Phase::RequestHead));
            *flow.extension_mut() = DialedAuthority(dialed.map(|dialed| dialed.parse().unwrap()));
            stage.attach_names(&mut flow);
            assert_eq!(flow.tags.contains(&"dns:docs.test".into()), known, "{dialed:?}");
        }
    }
}
