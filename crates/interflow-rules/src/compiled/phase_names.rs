//! Names of phases in rule files and reports.

use interflow_types::Phase;

/// A phase that a rule may name: name, other names, and what is known then.
#[derive(Debug)]
pub struct PhaseInfo {
    pub phase: Phase,
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// A phrase in Markdown.
    pub doc: &'static str,
}

const fn phase(phase: Phase, name: &'static str, aliases: &'static [&'static str], doc: &'static str) -> PhaseInfo {
    PhaseInfo { phase, name, aliases, doc }
}

/// Every phase that a rule may name, in their order.
pub const PHASES: &[PhaseInfo] = &[
    phase(Phase::Authority, "connect", &["authority"], "client, user, and host and port of the origin are known"),
    phase(Phase::ClientHello, "hello", &["client_hello"], "the client's TLS hello was read: server name, fingerprints"),
    phase(Phase::RequestHead, "request", &["request_head"], "the request's method, URL and header fields are known"),
    phase(Phase::RequestBody, "request_body", &[], "the request's body can be read and changed"),
    phase(Phase::UpstreamConnect, "dial", &[], "the connection to the origin is about to be chosen or opened"),
    phase(Phase::ResponseHead, "response", &["response_head"], "the response's status and header fields are known"),
    phase(Phase::ResponseBody, "response_body", &[], "the response's body can be read and changed"),
    phase(Phase::Message, "message", &[], "a message of a WebSocket, gRPC stream or event stream arrived"),
    phase(Phase::Done, "done", &[], "the flow has ended; only actions that annotate or log"),
];

pub fn name(phase: Phase) -> &'static str {
    PHASES.iter().find(|p| p.phase == phase).map_or("send", |p| p.name)
}

/// Finds a phase by its name or an alias, ignoring case.
pub fn find(text: &str) -> Option<Phase> {
    let is = |n: &str| n.eq_ignore_ascii_case(text);
    PHASES.iter().find(|p| is(p.name) || p.aliases.iter().any(|o| is(o))).map(|p| p.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_names_and_aliases_resolve_to_their_phase() {
        for info in PHASES {
            assert_eq!(find(info.name), Some(info.phase));
            assert!(info.aliases.iter().all(|o| find(o) == Some(info.phase)), "{}", info.name);
        }
        assert_eq!((find("never"), name(Phase::BeforeSend)), (None, "send"));
    }
}
