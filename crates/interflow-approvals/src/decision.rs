//! Turns a resolution of a pending request into a rule that decides similar requests.

use super::config::{ApprovalAction, RuleSpec};
use super::pending::PendingRequest;
use super::{PendingQuestion, Resolution, ResolutionScope, bracket_ipv6};

/// The rule that corresponds to a resolution.
pub(super) fn rule_from_resolution(question: &PendingQuestion, answer: &Resolution) -> RuleSpec {
    let mut rule = RuleSpec::new(answer.action);
    let host = bracket_ipv6(&question.host);
    let is_address = question.host.parse::<std::net::IpAddr>().is_ok();
    rule.hosts = vec![match answer.scope {
        // Not what is beside the host: the domain above it may be shared, such as `github.io` or `co.uk`. A name without a
        // dot may be such a domain itself, and an address has no subdomains.
        ResolutionScope::Subdomains if host.contains('.') && !is_address => format!(".{host}"),
        _ => host,
    }];
    if matches!(answer.scope, ResolutionScope::Path | ResolutionScope::Host) {
        rule.ports = vec![question.port.to_string()];
    }
    // The port is left open for the wider scopes.
    if answer.scope == ResolutionScope::Path {
        rule.methods = question.method.iter().cloned().collect();
        rule.paths = question.path.as_deref().map(escape_glob).into_iter().collect();
    }
    // The rule is as narrow as the question: only clients with the same properties.
    if !answer.everyone {
        rule.users = question.user.iter().cloned().collect();
        rule.processes = question.process.iter().cloned().collect();
        rule.containers = question.container.iter().cloned().collect();
        rule.sessions = question.sessions.clone();
    }
    rule.note.clone_from(&answer.note);
    // A time too far in the future to be represented counts as unlimited.
    let until = answer.lasting.and_then(|span| jiff::Timestamp::now().checked_add(span.0).ok());
    rule.until = until.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    rule
}

/// Checks that the pending request's body can be edited.
pub(super) fn check_edit(held: &PendingRequest, answer: &Resolution) -> Result<(), String> {
    // A body that is denied is not sent.
    if answer.action != ApprovalAction::Allow {
        return Err("`body` needs the action `allow`, but the action is `deny`".to_owned());
    }
    // Only for a single flow: flows that wait together have no body in common.
    if held.question.alone.is_none() || held.asked.as_ref().is_none_or(|asked| asked.body().is_none()) {
        return Err("this body cannot be edited: only text of at most 64 KiB, uncoded and of known length, that has come whole \
                    (`body` in GET /api/v1/pending); a rule with `hold` holds others"
            .to_owned());
    }
    Ok(())
}

/// Escapes a path to a glob that matches only it.
fn escape_glob(path: &str) -> String {
    path.chars().map(|c| if r"*?[]{}\!".contains(c) { format!("[{c}]") } else { c.to_string() }).collect()
}
