//! Excludes false findings that Interflow or the client generated: existing placeholders, and the current date in
//! system prompts.

use std::collections::HashSet;
use std::ops::Range;

use crate::detect::Finding;
use crate::vault::{CODE_LENGTH, is_code};
use crate::word_lists::{WordList, words};

/// Removes the placeholders in a text from its findings. The rest of a finding that contains one remains a finding.
pub(crate) fn exclude_placeholders(text: &str, labels: &HashSet<String>, found: &mut Vec<Finding>) {
    if found.is_empty() {
        return;
    }
    let own = placeholder_ranges(text, labels);
    if own.is_empty() {
        return;
    }
    let mut rest = Vec::with_capacity(found.len());
    for finding in found.drain(..) {
        let mut at = finding.start;
        let inside = &own[own.partition_point(|p| p.end <= finding.start)..];
        for p in inside.iter().take_while(|p| p.start < finding.end).chain([&(finding.end..finding.end)]) {
            let piece = text.get(at..p.start.max(at).min(finding.end)).unwrap_or_default();
            if at == finding.start && p.start == finding.end || piece.contains(char::is_alphanumeric) {
                rest.push(Finding { start: at, end: at + piece.len(), ..finding });
            }
            at = p.end.max(at);
        }
    }
    *found = rest;
}

/// Whether a text has placeholders of any policy: what stands for other values elsewhere.
pub fn holds_placeholder(text: &str) -> bool {
    !ranges_with_label(text, |label| label.len() > 1 && label.starts_with(|c: char| c.is_ascii_uppercase())).is_empty()
}

/// The ranges of placeholders with a label of the policy.
fn placeholder_ranges(text: &str, labels: &HashSet<String>) -> Vec<Range<usize>> {
    ranges_with_label(text, |label| labels.contains(label))
}

/// The ranges of placeholders: a label, `_`, and a code, not joined to other characters.
fn ranges_with_label(text: &str, is_label: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let word = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut all = Vec::new();
    for line in memchr::memchr_iter(b'_', bytes) {
        let end = line + 1 + CODE_LENGTH;
        if !bytes.get(line + 1..end).is_some_and(is_code) || word(end) {
            continue;
        }
        // Models that write Markdown escape the underscore.
        let behind = if line > 0 && bytes.get(line - 1) == Some(&b'\\') { line - 1 } else { line };
        let before = bytes.get(..behind).unwrap_or_default();
        let letters = before.iter().rev().take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit()).count();
        let start = behind - letters;
        let starts = start.checked_sub(1).is_none_or(|b| !word(b));
        if starts && text.get(start..behind).is_some_and(&is_label) {
            all.push(start..end);
        }
    }
    all
}

/// Phrases before the current date, or a model's knowledge cutoff, in system prompts; in lower case.
static TODAY_PHRASES: WordList = WordList::new(|| words("today_phrases"));
/// Number of bytes examined before a date: a phrase and a few words.
const MAX_LOOKBACK: usize = 48;

/// Whether the date that begins here is the current date: it is not personal, and the model needs it.
pub(crate) fn is_current_date(text: &str, start: usize) -> bool {
    let from = text.floor_char_boundary(start.saturating_sub(MAX_LOOKBACK));
    let before = text.get(from..start).unwrap_or_default().to_lowercase();
    let mut rest = before.as_str();
    loop {
        let trimmed = rest.trim_end_matches(|c: char| !c.is_alphanumeric());
        let words = ["is", "it", "now", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        let word = words.iter().find(|w| {
            trimmed.strip_suffix(*w).is_some_and(|r| r.is_empty() || r.ends_with(|c: char| !c.is_alphanumeric()))
        });
        // Words such as `is Monday` may stand between the phrase and the date.
        match word {
            Some(word) => rest = trimmed.strip_suffix(word).unwrap_or_default(),
            None => return TODAY_PHRASES.iter().any(|t| trimmed.ends_with(t)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlaceholderVault, Policy, RedactionSession, Redactor, VaultKey};

    fn session() -> RedactionSession {
        RedactionSession::reversible(PlaceholderVault::new(&VaultKey::for_conversation(&[5; 32], b"t")))
    }

    #[test]
    fn placeholders_are_never_replaced_again() {
        let redactor = Redactor::default();
        let mut one = session();
        let text = "Jenny Gibson, jenny@firm.com, born 1980-02-03, SSN 536-22-8726, card 4111 1111 1111 1111, \
                    password: hunter2x, key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD";
        let first = redactor.redact_text(text, &mut one).expect("text").output.expect("changed");
        for again in [first.clone(), first.replace('_', "\\_"), format!("password: {first} token={first}")] {
            let out = redactor.redact_text(&again, &mut session()).expect("text");
            assert!(out.output.is_none(), "{again}: {out:?}");
        }
        // The text around it is still scanned.
        let mixed = format!("{} mail anna.berg@firm.com", first);
        let out = redactor.redact_text(&mixed, &mut session()).expect("text").output.expect("changed");
        assert!(out.starts_with(&first) && !out.contains("anna.berg"), "{out}");
    }

    #[test]
    fn placeholders_are_excluded_in_linear_time() {
        let labels = HashSet::from(["EMAIL".to_owned()]);
        let took = |n: usize| {
            let text = "EMAIL_abcdefgh 4111, ".repeat(n);
            let finding = |i: usize| Finding::new(crate::Kind::Ssn, i * 21 + 15..i * 21 + 19, 90);
            let mut found: Vec<Finding> = (0..n).map(finding).collect();
            let begun = std::time::Instant::now();
            exclude_placeholders(&text, &labels, &mut found);
            assert_eq!(found.len(), n);
            begun.elapsed()
        };
        let (short, long) = (took(8_000).max(std::time::Duration::from_millis(20)), took(64_000));
        assert!(long < short * 40, "{short:?}, {long:?}");
    }

    #[test]
    fn placeholder_lookalikes_are_still_findings() {
        let labels: HashSet<String> = Policy::default().labels().map(str::to_owned).collect();
        for text in [
            "email_abcdefgh",
            "EMAIL_abcdefghj",
            "EMAIL_abcdefg",
            "xEMAIL_abcdefgh",
            "NOLABEL_abcdefgh",
            "EMAIL_ABCDEFGH",
        ] {
            assert!(placeholder_ranges(text, &labels).is_empty(), "{text}");
        }
        assert_eq!(placeholder_ranges("an EMAIL_abcdefgh.", &labels), vec![3..17]);
    }

    #[test]
    fn placeholders_of_any_policy_are_recognised() {
        for (text, holds) in [
            ("write to EMAIL_vjqr2dzw.", true),
            ("(CARD_vjqr2dzw)", true),
            ("write to email_vjqr2dzw", false),
            ("MAX_TOKENS and A_vjqr2dzw", false),
            ("EMAIL_vjqr2dzwx", false),
        ] {
            assert_eq!(holds_placeholder(text), holds, "{text}");
        }
    }

    #[test]
    fn current_date_is_not_redacted_and_other_dates_are() {
        let redactor = Redactor::default();
        for text in [
            "Today's date: 2025-11-22",
            "Today\u{2019}s date is 2025-11-22.",
            "<current_date>2025-11-22</current_date>",
            "Today is Saturday, 22 November 2025.",
            "The current date is November 22, 2025",
        ] {
            let out = redactor.redact_text(text, &mut session()).expect("text");
            assert!(out.output.is_none(), "{text}: {out:?}");
        }
        let out =
            redactor.redact_text("Today's date: 2025-11-22. She was born 1980-02-03.", &mut session()).expect("text");
        let out = out.output.expect("changed");
        assert!(out.contains("2025-11-22") && !out.contains("1980"), "{out}");
    }
}
