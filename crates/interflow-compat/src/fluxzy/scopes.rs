//! Fluxzy's scopes in terms of rules.

use interflow_rules::format::unknown_key_message;
use interflow_rules::phase_names;
use interflow_types::Phase;

use super::node::FluxzyNode;

/// Fluxzy's scopes, with the phase that each is here.
const SCOPES: [(&str, Phase); 6] = [
    ("onAuthorityReceived", Phase::Authority),
    ("requestHeaderReceivedFromClient", Phase::RequestHead),
    ("requestBodyReceivedFromClient", Phase::RequestBody),
    ("dnsSolveDone", Phase::UpstreamConnect),
    ("responseHeaderReceivedFromRemote", Phase::ResponseHead),
    ("responseBodyReceivedFromRemote", Phase::ResponseBody),
];

/// The phase for a scope; Interflow's names are known, too.
pub(crate) fn phase_by_name(node: &FluxzyNode<'_>, text: &str) -> Option<Phase> {
    let scope = SCOPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, phase)| *phase);
    let phase = scope.or_else(|| phase_names::find(text));
    match phase {
        None => node.problem(unknown_key_message("moment", text, &SCOPES.map(|(name, _)| name))),
        Some(Phase::RequestBody | Phase::ResponseBody) => {
            node.note("Fluxzy never reaches this moment; here it is reached");
        }
        Some(_) => {}
    }
    phase
}
