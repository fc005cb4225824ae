//! Where a run of words that is written like a name begins and ends.

use super::super::ScanState;
use crate::lexicon::mark::*;
use crate::text::token::{TokenShape, WordToken};

/// `J` of `J. Smith`.
pub(super) fn is_initial(token: &WordToken) -> bool {
    token.shape == TokenShape::Upper && token.len() == 1
}

/// Whether the surrounding bytes allow a word of prose here, rather than code, a path or a longer name.
pub(super) fn has_clean_start(scan: &ScanState<'_>, token: &WordToken) -> bool {
    match scan.byte_before(token.start()) {
        b'_' | b'/' | b'\\' | b'=' | b'$' | b'#' | b'&' | b'~' | b'^' | b'%' => false,
        // `<Anna Lindholm>`; `<Anna>` and `<Box width=…>` are elements.
        b'<' => {
            let next = |at: usize| scan.byte_at(token.end() + at);
            token.has(FIRST) && !token.has(COMMON | WORD | TECH) && next(0) == b' ' && next(1).is_ascii_uppercase()
        }
        // `@Tomasz, can you …` addresses a person; `@Test` and `a@b` do not.
        b'@' => {
            let spoken_to = token.has(FIRST) && !token.has(COMMON | WORD | TECH);
            spoken_to && matches!(scan.byte_before(token.start() - 1), b' ' | b'\n' | b'"')
        }
        b'.' => !scan.byte_before(token.start() - 1).is_ascii_alphanumeric() || initials_before(scan, token.start()),
        b':' => scan.byte_before(token.start() - 1) != b':',
        b'-' => scan.byte_before(token.start() - 1) != b'-' || token.start() < 2,
        _ => true,
    }
}

/// `J.Smith`: a full stop after a single capital.
fn initials_before(scan: &ScanState<'_>, at: usize) -> bool {
    at >= 2 && scan.bytes[at - 2].is_ascii_uppercase() && !scan.byte_before(at - 2).is_ascii_alphanumeric()
}

/// Whether the bytes behind allow a word of prose to end here.
pub(super) fn has_clean_end(scan: &ScanState<'_>, token: &WordToken) -> bool {
    let (a, b) = (scan.byte_at(token.end()), scan.byte_at(token.end() + 1));
    match a {
        // The end of an element: `<name>Anna</name>`.
        b'<' => b == b'/',
        b'_' | b'/' | b'(' | b'=' | b'[' | b'{' | b'$' | b'#' | b'@' | b'&' | b'|' | b'~' | b'^' | b'+' => false,
        b'.' => !b.is_ascii_alphanumeric(),
        b':' => b != b':',
        // `Aren't`
        b'\'' => b != b't' || scan.byte_at(token.end() + 2).is_ascii_alphanumeric(),
        b'\\' => matches!(b, b'n' | b'"' | b'\'' | b't' | b'r' | b','),
        _ => true,
    }
}

/// The end of the run of words written as a name.
pub(super) fn run_end(scan: &ScanState<'_>, i: usize) -> usize {
    let mut last = i;
    while last < i + 7 {
        let Some(next) = scan.token(last + 1) else { break };
        let gap = scan.gap(last);
        let current = scan.list()[last];
        let initial = current.shape == TokenShape::Upper && current.len() == 1;
        let joined = match gap {
            " " | "-" | "'" | "’" => true,
            ". " | "." => initial || current.has(ABBR) || matches!(scan.word(&current), "St" | "Jr" | "Mt" | "Ft"),
            " & " => next.is_capital(),
            ", " => next.has(CREDENTIAL | ORG_SUFFIX) && next.is_capital() && next.marks & (COMMON | FIRST) == 0,
            _ => false,
        };
        if !joined {
            break;
        }
        if next.is_capital() {
            if next.has(STOP) && !next.has(PARTICLE | CREDENTIAL) {
                break;
            }
            last += 1;
            continue;
        }
        // van der, de la: lower-case particles inside a name, followed by a capital.
        let mut ahead = last + 1;
        while ahead <= last + 3
            && scan.token(ahead).is_some_and(|t| t.has(PARTICLE) && t.shape == TokenShape::Lower)
            && matches!(scan.gap(ahead), " " | "'" | "’")
        {
            ahead += 1;
        }
        let particle = ahead > last + 1 && scan.token(ahead).is_some_and(|t| t.is_capital() && !t.has(STOP));
        if !particle || gap == " & " {
            break;
        }
        last = ahead;
    }
    last
}
