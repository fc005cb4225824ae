//! What someone may have meant whose search found nothing.

use std::collections::BTreeSet;

use crate::ast::{Expr, QuerySpan, Term, TermTest, TextPattern};
use crate::key::{Key, ValueKind};
use crate::query::Query;
use crate::suggestion::closest_name;

/// Signs that people write in the place of the colon, the longer ones first, with what stands behind the colon.
const SIGNS: [(&str, &str); 7] =
    [(">=", ">="), ("<=", "<="), ("!=", "!="), ("==", ""), ("=", ""), (">", ">"), ("<", "<")];

impl Query {
    /// Another query, if a search for this one found nothing: `status>=400` is searched as a word, and
    /// `status:>=400` was probably meant. Slips come first; without one, a host that was recorded and has a similar name,
    /// and whole texts are searched as parts. `text` is what the query was parsed from, `hosts` are those that were
    /// recorded. `None` if there is no better query.
    pub fn did_you_mean(&self, text: &str, hosts: &BTreeSet<String>) -> Option<String> {
        let mut edits = Vec::new();
        if let Some(hint) = self.hint() {
            edits.push((hint.span, text.get(hint.span.start..hint.span.end)?.to_ascii_uppercase()));
        }
        self.expr().visit(&mut |term| edits.extend(as_key(term, text)));
        if edits.is_empty() {
            widened(self.expr(), text, hosts, &mut edits);
        }
        let better = edited(text, edits)?;
        let query = Self::parse(&better).ok()?;
        (query != *self).then_some(better)
    }
}

/// A word such as `status>=400` or `header:server=demo` as a term of its key.
fn as_key(term: &Term, text: &str) -> Option<(QuerySpan, String)> {
    let written = text.get(term.span.start..term.span.end)?;
    let (name, rest, operator) = match term.key {
        // A quoted text begins with a quote, and no key does.
        Key::Word => {
            let at = written.find(['=', '<', '>', '!'])?;
            let (sign, operator) = SIGNS.iter().find(|(sign, _)| written[at..].starts_with(sign))?;
            let key = Key::find(&written[..at])?;
            (key.name().to_owned(), &written[at + sign.len()..], *operator)
        }
        key if key.kind() == ValueKind::Header && term.name.is_none() => {
            let (field, value) = written.split_once(':')?.1.split_once('=')?;
            (format!("{}.{}", key.name(), field.to_ascii_lowercase()), value, "")
        }
        _ => return None,
    };
    let better = format!("{name}:{operator}{rest}");
    (!rest.is_empty() && Query::parse(&better).is_ok()).then_some((term.span, better))
}

/// Adds the terms that select more with another text; those under a negation would select less.
fn widened(expr: &Expr, text: &str, hosts: &BTreeSet<String>, edits: &mut Vec<(QuerySpan, String)>) {
    match expr {
        Expr::All | Expr::Not(_) => {}
        Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| widened(part, text, hosts, edits)),
        Expr::Term(term) => edits.extend(as_found(term, text, hosts)),
    }
}

/// The host that is spelled like this one, or a text that must match as a whole, as a part.
fn as_found(term: &Term, text: &str, hosts: &BTreeSet<String>) -> Option<(QuerySpan, String)> {
    // A value among others of its key has no key of its own.
    let (name, _) = text.get(term.span.start..term.span.end)?.split_once(':')?;
    if Key::find(name) != Some(term.key) {
        return None;
    }
    let TermTest::Text(TextPattern::Text(part) | TextPattern::Exact(part)) = &term.test else { return None };
    let is_whole = term.key.kind() == ValueKind::Whole || matches!(term.test, TermTest::Text(TextPattern::Exact(_)));
    let is_host = term.key == Key::Host && !hosts.iter().any(|host| host.contains(&part.to_ascii_lowercase()));
    let pattern = match closest_name(part, hosts.iter().map(String::as_str)) {
        Some(host) if is_host => TextPattern::Text(host.to_owned()),
        _ if !is_whole || part.is_empty() => return None,
        _ => TextPattern::Glob(vec![String::new(), part.clone(), String::new()]),
    };
    let wider = Term { test: TermTest::Text(pattern), ..term.clone() };
    Some((term.span, Expr::Term(wider).to_string()))
}

/// The text with these replacements; `None` without any, or if two of them overlap.
fn edited(text: &str, mut edits: Vec<(QuerySpan, String)>) -> Option<String> {
    edits.sort_by_key(|(span, _)| span.start);
    let mut better = String::new();
    let mut at = 0;
    for (span, replacement) in &edits {
        better.push_str(text.get(at..span.start)?);
        better.push_str(replacement);
        at = span.end;
    }
    better.push_str(text.get(at..)?);
    (!edits.is_empty()).then_some(better)
}
