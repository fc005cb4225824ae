//! Groups of digits with single separators between them, and what matchers say of them.

use smallvec::SmallVec;

use super::ScanState;
use crate::Kind;
use crate::text::token::{TokenShape, WordToken};

/// Maximum number of groups examined as one run.
const MAX_GROUPS: usize = 24;

/// Groups of digits with single separators between them.
pub(super) struct DigitRun {
    /// Index of the token of the first group.
    pub first: usize,
    /// Start and end of each group, in bytes of the text.
    pub groups: SmallVec<[(usize, usize); 6]>,
    /// The separator after each group but the last; `(` means parentheses with or without a space, `n` a hyphen and a
    /// line break.
    pub seps: SmallVec<[u8; 8]>,
    /// The run is joined to letters on its left by a hyphen or an underscore.
    pub glued_left: bool,
    /// The run is joined to letters on its right.
    pub glued_right: bool,
    /// The end of an extension written to the last group (`3994x1887`).
    pub extension: Option<usize>,
}

impl DigitRun {
    pub fn group_len(&self, k: usize) -> usize {
        self.groups.get(k).map_or(0, |(s, e)| e - s)
    }

    /// The separator after group `k`; 0 after the last.
    pub fn separator_after(&self, k: usize) -> u8 {
        self.seps.get(k).copied().unwrap_or(0)
    }

    /// The digits of `n` groups from `k` on.
    pub fn digits(&self, bytes: &[u8], k: usize, n: usize) -> SmallVec<[u8; 24]> {
        let groups = self.groups.get(k..k + n).unwrap_or_default();
        groups.iter().flat_map(|(s, e)| bytes[*s..*e].iter().map(|b| b - b'0')).collect()
    }

    /// Start and end of `n` groups from `k` on, in bytes.
    pub fn span(&self, k: usize, n: usize) -> (usize, usize) {
        (self.groups[k].0, self.groups[k + n - 1].1)
    }

    /// Whether the groups from `k` on have these lengths, with the same separator (one of `seps`) between them.
    pub fn has_shape(&self, k: usize, lengths: &[usize], seps: &[u8]) -> bool {
        let groups = k + lengths.len() <= self.groups.len()
            && lengths.iter().enumerate().all(|(i, l)| self.group_len(k + i) == *l);
        groups
            && (k..k + lengths.len() - 1)
                .all(|i| seps.contains(&self.separator_after(i)) && self.separator_after(i) == self.separator_after(k))
    }

    /// The value of a group; `u32::MAX` if it is absent or too large.
    pub fn number(&self, bytes: &[u8], k: usize) -> u32 {
        let Some((s, e)) = self.groups.get(k) else { return u32::MAX };
        bytes[*s..*e]
            .iter()
            .try_fold(0u32, |n, b| n.checked_mul(10)?.checked_add(u32::from(b - b'0')))
            .unwrap_or(u32::MAX)
    }

    /// Four groups with dots between them and none around.
    pub fn has_dotted_shape(&self, k: usize) -> bool {
        k + 4 <= self.groups.len()
            && (k..k + 3).all(|i| self.separator_after(i) == b'.')
            && self.separator_after(k + 3) != b'.'
            && (k == 0 || self.separator_after(k - 1) != b'.')
    }

    /// 3-2-4 with a line break after one of the hyphens.
    pub fn has_wrapped_ssn_shape(&self, k: usize) -> bool {
        let seps = [self.separator_after(k), self.separator_after(k + 1)];
        [3, 2, 4].iter().enumerate().all(|(i, l)| self.group_len(k + i) == *l)
            && seps.iter().all(|s| matches!(s, b'-' | b'n'))
    }
}

/// The result of a matcher: the number of groups, and their kind.
pub(super) struct NumberMatch {
    pub groups: usize,
    pub kind: Kind,
    pub confidence: u8,
    /// The span, if it extends beyond the groups.
    pub start: Option<usize>,
    pub end: Option<usize>,
}

impl NumberMatch {
    pub const fn new(groups: usize, kind: Kind, confidence: u8) -> Self {
        Self { groups, kind, confidence, start: None, end: None }
    }
}

/// The separator that joins two groups to one number; `None` if they are separate.
fn separator(gap: &str) -> Option<u8> {
    match gap.as_bytes() {
        [b @ (b' ' | b'-' | b'.' | b'/' | b':' | b'_' | b'+')] => Some(*b),
        [b')'] | [b')', b' ' | b'-' | b'.'] | [b' ', b'('] | [b'('] | [b'-', b'('] => Some(b'('),
        [b' ', b'-', b' '] => Some(b'-'),
        [b'-', b'\n'] | [b'-', b'\r', b'\n'] => Some(b'n'),
        _ => None,
    }
}

/// The number of digits before the extension in `3994x1887`.
fn extension_number(word: &str) -> Option<usize> {
    let (number, extension) = word.split_once(['x', 'X'])?;
    let digits = |s: &str, most: usize| !s.is_empty() && s.len() <= most && s.bytes().all(|b| b.is_ascii_digit());
    (number.len() >= 2 && digits(number, 7) && digits(extension, 6)).then_some(number.len())
}

/// `4111_1111_…`: an underscore joins the groups of a card, and nothing else; `811218+9876`: a plus those of a Swedish number
/// of a person over a hundred.
fn may_join(run: &DigitRun, separator: u8, next: &WordToken) -> bool {
    let first = run.group_len(0);
    match separator {
        b'_' => next.is_digits() && first == 4 && matches!(next.len(), 3..=6) && run.seps.iter().all(|s| *s == b'_'),
        b'+' => next.is_digits() && matches!(first, 6 | 8) && next.len() == 4 && run.seps.is_empty(),
        _ => true,
    }
}

/// Collects the run of groups that begins at token `i`.
pub(super) fn collect_run(scan: &ScanState<'_>, i: usize) -> Option<DigitRun> {
    let first = scan.token(i)?;
    let mut run = DigitRun {
        first: i,
        groups: SmallVec::new(),
        seps: SmallVec::new(),
        glued_left: false,
        glued_right: false,
        extension: None,
    };
    run.groups.push((first.start(), first.end()));
    let mut at = i;
    while run.groups.len() < MAX_GROUPS {
        let Some(next) = scan.token(at + 1) else { break };
        let Some(sep) = separator(scan.gap(at)).filter(|s| may_join(&run, *s, next)) else { break };
        if next.shape != TokenShape::Digits {
            if let Some(digits) = extension_number(scan.word(next)) {
                run.seps.push(sep);
                run.groups.push((next.start(), next.start() + digits));
                run.extension = Some(next.end());
            }
            break;
        }
        run.seps.push(sep);
        run.groups.push((next.start(), next.end()));
        at += 1;
    }
    run.glued_left = is_glued_left(scan, i, first);
    let end = run.groups.last()?.1;
    let next = scan.token(at + 1);
    run.glued_right = match scan.byte_at(end) {
        b'_' => true,
        _ if run.extension.is_some() => false,
        b'-' => next.is_some_and(|t| t.start() == end + 1 && t.shape == TokenShape::Mixed),
        b'%' => true,
        _ => false,
    };
    Some(run)
}

/// Whether the number is the end of something else: `CVE-2024-1`, `id_12`, `3.5` after a letter.
fn is_glued_left(scan: &ScanState<'_>, i: usize, first: &WordToken) -> bool {
    match scan.byte_before(first.start()) {
        b'_' | b'$' => true,
        b'-' | b'.' => {
            let Some(before) = i.checked_sub(1).and_then(|p| scan.token(p)) else { return false };
            before.end() + 1 == first.start() && before.topics & super::PERSONAL_TOPICS == 0
        }
        _ => false,
    }
}
