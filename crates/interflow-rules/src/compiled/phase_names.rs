//! Names of phases in rule files and reports.

use interflow_types::Phase;

/// Every phase that a rule may name, with its other names.
pub const PHASE_NAMES: &[(Phase, &str, &[&str])] = &[
    (Phase::Authority, "connect", &["authority"]),
    (Phase::ClientHello, "hello", &["client_hello"]),
    (Phase::RequestHead, "request", &["request_head"]),
    (Phase::RequestBody, "request_body", &[]),
    (Phase::UpstreamConnect, "dial", &[]),
    (Phase::ResponseHead, "response", &["response_head"]),
    (Phase::ResponseBody, "response_body", &[]),
    (Phase::Message, "message", &[]),
    (Phase::Done, "done", &[]),
];

pub fn name(phase: Phase) -> &'static str {
    PHASE_NAMES.iter().find(|(p, ..)| *p == phase).map_or("send", |(_, n, _)| n)
}

/// Finds a phase by its name or an alias, ignoring case.
pub fn find(text: &str) -> Option<Phase> {
    let is = |n: &str| n.eq_ignore_ascii_case(text);
    PHASE_NAMES.iter().find(|(_, n, others)| is(n) || others.iter().any(|o| is(o))).map(|(p, ..)| *p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_names_and_aliases_resolve_to_their_phase() {
        for (phase, n, others) in PHASE_NAMES {
            assert_eq!(find(n), Some(*phase));
            assert!(others.iter().all(|o| find(o) == Some(*phase)), "{n}");
        }
        assert_eq!((find("never"), name(Phase::BeforeSend)), (None, "send"));
    }
}
