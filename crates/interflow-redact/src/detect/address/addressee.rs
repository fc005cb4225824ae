//! The lines above an address: the person and the organisation it is addressed to.

use super::super::ScanState;
use crate::Kind;
use crate::lexicon::mark;
use crate::text::token::WordToken;

/// Maximum number of lines above an address that belong to it.
const MAX_LINES: usize = 4;

/// Reports the capitalized lines right before an address block: an organisation, or a person whose name the lexicon
/// does not have. Known names between them are found elsewhere.
pub(super) fn addressee(scan: &mut ScanState<'_>, first: usize) {
    let mut at = first;
    for _ in 0..MAX_LINES {
        let Some((start, end)) = line_above(scan, at) else { return };
        let list = scan.list();
        let line = &list[start..=end];
        let written =
            line.iter().all(|t| t.is_capital() || t.has(mark::PARTICLE) || !t.is_word() || scan.word(t) == "and");
        if !written || line.iter().all(|t| !t.is_word() || t.has(mark::STOP)) {
            return;
        }
        at = start;
        if line[0].has(mark::HONORIFIC)
            || line[0].has(mark::FIRST) && !line[0].has(mark::COMMON | mark::WORD) && line.len() < 4
        {
            continue;
        }
        // `Csenger Gábor` above an organisation: two words, of which neither is one of English.
        let topmost = || at != first && line_above(scan, start).is_none();
        let person = line.len() == 2 && line.iter().all(may_be_name) && topmost();
        let kind = if person { Kind::Person } else { Kind::Organization };
        let (from, to) = (line[0].start(), line[line.len() - 1].end());
        scan.push(kind, from, to, 52);
    }
}

/// A word of no language or list, or one of names alone.
fn may_be_name(token: &WordToken) -> bool {
    const THINGS: u32 = mark::COMMON | mark::WORD | mark::TECH | mark::ORG | mark::ORG_WORD | mark::ORG_SUFFIX;
    token.is_word() && !token.has(THINGS | mark::PLACE | mark::REGION | mark::STOP)
}

/// The tokens of the line above token `at`, if that is at the beginning of a line too: quoted or not.
fn line_above(scan: &ScanState<'_>, at: usize) -> Option<(usize, usize)> {
    let end = at.checked_sub(1)?;
    let gap = scan.gap(end);
    let quoted = |c: char| c.is_whitespace() || matches!(c, '>' | '?' | ',' | '|');
    if !gap.contains('\n') || gap.len() > 8 || !gap.chars().all(quoted) {
        return None;
    }
    let mut start = end;
    while start > 0 && !scan.gap(start - 1).contains('\n') && end - start < 6 {
        start -= 1;
    }
    let begins = start == 0 || scan.gap(start - 1).contains('\n');
    (begins && end - start < 5).then_some((start, end))
}
