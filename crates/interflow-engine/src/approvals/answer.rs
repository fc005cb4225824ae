//! What an answer to a question makes: a rule that decides what is like it.

use super::config::RuleSpec;
use super::{Answer, HeldQuestion, Scope, bracketed};

/// The rule that an answer makes of a question.
pub(super) fn rule_of(question: &HeldQuestion, answer: &Answer) -> RuleSpec {
    let mut rule = RuleSpec::new(answer.action);
    let host = bracketed(&question.host);
    rule.hosts = vec![match answer.scope {
        Scope::Subdomains => match question.host.split_once('.') {
            // A name of two labels is the domain itself.
            Some((_, parent)) if parent.contains('.') && question.host.parse::<std::net::IpAddr>().is_err() => {
                format!("*.{parent}")
            }
            _ => host,
        },
        _ => host,
    }];
    if matches!(answer.scope, Scope::Path | Scope::Host) {
        rule.ports = vec![question.port.to_string()];
    }
    if answer.scope == Scope::Path {
        rule.methods = question.method.iter().cloned().collect();
        rule.paths = question.path.as_deref().map(literal).into_iter().collect();
    }
    if !answer.everyone {
        rule.users = question.user.iter().cloned().collect();
        rule.processes = question.process.iter().cloned().collect();
        rule.containers = question.container.iter().cloned().collect();
        rule.sessions = question.sessions.clone();
    }
    rule.note.clone_from(&answer.note);
    let until = answer.lasting.and_then(|span| jiff::Timestamp::now().checked_add(span.0).ok());
    rule.until = until.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    rule
}

/// A path as a glob that matches nothing else.
fn literal(path: &str) -> String {
    path.chars().fold(String::new(), |mut out, c| {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            out.extend(['[', c, ']']);
        } else {
            out.push(c);
        }
        out
    })
}
