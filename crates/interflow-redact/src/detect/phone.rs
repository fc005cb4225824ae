//! Telephone numbers: international (E.164), North American, and the national formats with a leading zero.

use super::numbers::{Hit, Run};
use super::{Scan, figures};
use crate::Kind;
use crate::lexicon::topic;
use crate::token::Shape;

/// Country calling codes (ITU-T E.164), one, two or three digits.
fn calling_code(digits: &[u8]) -> Option<usize> {
    match digits {
        [1 | 7, ..] => Some(1),
        [2, 0 | 7, ..]
        | [3, 0..=4 | 6 | 9, ..]
        | [4, 0 | 1 | 3..=9, ..]
        | [5, 1..=8, ..]
        | [6, 0..=6, ..]
        | [8, 1 | 2 | 4 | 6, ..]
        | [9, 0..=5 | 8, ..] => Some(2),
        [2, 1..=6 | 8 | 9, _, ..]
        | [3, 5 | 7 | 8, _, ..]
        | [4, 2, _, ..]
        | [5, 0 | 9, _, ..]
        | [6, 7..=9, _, ..]
        | [8, 0 | 5 | 7 | 8, _, ..]
        | [9, 6 | 7 | 9, _, ..] => Some(3),
        _ => None,
    }
}

/// The number that begins at group `k`, with its extension.
pub(super) fn number(scan: &Scan<'_>, run: &Run, k: usize) -> Option<Hit> {
    if !scan.want(Kind::Phone) || run.glued_right {
        return None;
    }
    let start = run.groups[k].0;
    let mut hit = international(scan, run, k)
        .or_else(|| north_american(scan, run, k))
        .or_else(|| regional(scan, run, k))
        .or_else(|| national(scan, run, k))?;
    let mut end = run.groups[k + hit.groups - 1].1;
    let mut from = hit.start.unwrap_or(start);
    if scan.byte_before(from) == b'(' && scan.bytes[from..end].contains(&b')') {
        from -= 1;
    }
    if scan.byte_before(from) == b'+' {
        from -= 1;
    }
    if let Some(written) = run.extension.filter(|_| k + hit.groups == run.groups.len()) {
        end = written;
        hit.confidence = hit.confidence.max(65);
    } else if let Some(longer) = extension(scan, run, k + hit.groups, end) {
        end = longer;
    }
    hit.start = Some(from);
    hit.end = Some(end);
    Some(hit)
}

/// `x123`, `ext. 123`, `extension 123` behind the number.
fn extension(scan: &Scan<'_>, run: &Run, group: usize, end: usize) -> Option<usize> {
    if group < run.groups.len() {
        return None;
    }
    let i = run.first + group;
    let token = scan.token(i)?;
    let gap = scan.text.get(end..token.start())?;
    if gap.len() > 3 || gap.contains('\n') {
        return None;
    }
    let word = scan.word(token);
    if token.shape == Shape::Mixed && word.len() <= 8 {
        let digits = word.strip_prefix('x').or_else(|| word.strip_prefix('X')).or_else(|| word.strip_prefix("ext"))?;
        return digits.bytes().all(|b| b.is_ascii_digit()).then_some(token.end());
    }
    let next = scan.token(i + 1).filter(|t| t.is_digits() && t.len() <= 6)?;
    let named = ["x", "ext", "extension"].iter().any(|w| word.eq_ignore_ascii_case(w));
    (named && matches!(scan.gap(i), " " | ". " | "." | ": " | "")).then_some(next.end())
}

/// How many groups from `k` on could belong to one telephone number, with their digits counted.
fn reach(run: &Run, k: usize, least: usize, most: usize) -> Option<usize> {
    let mut total = 0;
    let mut fit = None;
    for n in 1..=(run.groups.len() - k).min(7) {
        if n > 1 && matches!(run.sep(k + n - 2), b':') {
            break;
        }
        total += run.len_of(k + n - 1);
        if total > most {
            break;
        }
        if total >= least {
            fit = Some(n);
        }
    }
    fit
}

fn international(scan: &Scan<'_>, run: &Run, k: usize) -> Option<Hit> {
    let start = run.groups[k].0;
    let plus =
        scan.byte_before(start) == b'+' || scan.byte_before(start) == b'(' && scan.byte_before(start - 1) == b'+';
    let digits = run.digits(scan.bytes, k, 1);
    let zeros = if plus { 0 } else { digits.iter().take_while(|d| **d == 0).count() };
    if !plus && (zeros != 2 || scan.near(run.first + k, topic::ORDER, 2, 0)) {
        return None;
    }
    let n = reach(run, k, 8 + zeros, 15 + zeros)?;
    let all = run.digits(scan.bytes, k, n);
    let code = calling_code(all.get(zeros..)?)?;
    let grouped = n > 1 || plus;
    // 001-234-567 and the like: without a plus the grouping must speak for it.
    (grouped && all.len() - zeros > code + 4).then(|| Hit::new(n, Kind::Phone, if plus { 95 } else { 75 }))
}

fn north_american(scan: &Scan<'_>, run: &Run, k: usize) -> Option<Hit> {
    let near = || figures::telephone_told(scan, run.first + k, 8, 3);
    let lead = usize::from(
        run.len_of(k) == 1 && scan.bytes[run.groups[k].0] == b'1' && matches!(run.sep(k), b'-' | b' ' | b'.' | b'('),
    );
    let a = k + lead;
    let separated = [3, 3, 4].iter().enumerate().all(|(i, l)| run.len_of(a + i) == *l)
        && matches!(run.sep(a), b'-' | b'.' | b' ' | b'(')
        && matches!(run.sep(a + 1), b'-' | b'.' | b' ');
    let area_first = |at: usize| run.groups.get(at).map_or(0, |g| scan.bytes[g.0]);
    if separated {
        if a + 3 < run.groups.len() && run.sep(a + 2) == run.sep(a + 1) && run.sep(a + 2) != b' ' {
            return None;
        }
        let home = scan.wants.phone_regions.iter().any(|r| matches!(r, b"US" | b"CA"));
        let valid = home && area_first(a) >= b'2' && area_first(a + 1) >= b'2';
        let paren = run.sep(a) == b'(' || scan.byte_before(run.groups[a].0) == b'(';
        // `batch 235-262-8742`, `part no. 415-555-0132`: the word right before it says what it is.
        let counted = scan.near(run.first + k, topic::ORDER, 2, 0) && !near();
        let confidence = match (valid, run.sep(a + 1)) {
            _ if counted => 40,
            // `100-200-3000`: the bounds of a range.
            (_, b'-') if hundreds(scan, run, a) && !near() => 40,
            (true, b'-' | b'.') => 90,
            (true, _) if paren => 90,
            (true, _) if near() || figures::personal(scan, run, k, 3 + lead) && !figures::tabled(scan, run) => 70,
            (false, b'-' | b'.') => 65,
            (false, _) if paren || near() => 65,
            _ => 40,
        };
        return Some(Hit::new(3 + lead, Kind::Phone, confidence));
    }
    if (run.shaped(k, &[3, 7], b"-. (") || run.shaped(k, &[6, 4], b"- ")) && near() {
        return Some(Hit::new(2, Kind::Phone, 70));
    }
    if run.shaped(k, &[3, 4], b"-.") && run.groups.len() == k + 2 {
        return near().then(|| Hit::new(2, Kind::Phone, 75));
    }
    let bare = run.len_of(k);
    let first = area_first(k);
    if bare == 10 && first >= b'2' && near() || bare == 11 && first == b'1' && near() {
        return Some(Hit::new(1, Kind::Phone, 75));
    }
    None
}

/// Whether area and exchange are round hundreds.
fn hundreds(scan: &Scan<'_>, run: &Run, a: usize) -> bool {
    [a, a + 1].iter().all(|g| run.number(scan.bytes, *g).is_multiple_of(100))
}

/// National numbers without a leading zero: region, digits, and what the first may be.
const REGIONAL: &[(&[u8; 2], usize, &[u8])] = &[
    (b"ES", 9, b"6789"),
    (b"PT", 9, b"29"),
    (b"PL", 9, b"12345678"),
    (b"CZ", 9, b"234567"),
    (b"SK", 9, b"9"),
    (b"GR", 10, b"26"),
    (b"IT", 10, b"3"),
    (b"NO", 8, b"23456789"),
    (b"DK", 8, b"23456789"),
    (b"SG", 8, b"3689"),
    (b"HK", 8, b"2356789"),
    (b"IN", 10, b"6789"),
    (b"MX", 10, b"23456789"),
    (b"BR", 10, b"123456789"),
    (b"BR", 11, b"123456789"),
    (b"AR", 10, b"12389"),
    (b"CO", 10, b"36"),
    (b"CL", 9, b"29"),
];

/// Grouped digits that are a national number of a region the policy names.
fn regional(scan: &Scan<'_>, run: &Run, k: usize) -> Option<Hit> {
    let regions = &scan.wants.phone_regions;
    let start = *scan.bytes.get(run.groups.get(k)?.0)?;
    let fits = |n: &usize| {
        let digits: usize = (k..k + n).map(|i| run.len_of(i)).sum();
        let sep = |i: usize| matches!(run.sep(i), b' ' | b'-' | b'.' | b'(');
        (k..k + n - 1).all(sep)
            && REGIONAL.iter().any(|(r, d, first)| *d == digits && first.contains(&start) && regions.contains(r))
    };
    let n = (2..=(run.groups.len() - k).min(6)).find(fits)?;
    (k + n == run.groups.len() || run.sep(k + n - 1) == b' ').then(|| Hit::new(n, Kind::Phone, 65))
}

/// Formats with a leading zero, in parentheses, or grouped digits where a telephone is spoken of.
fn national(scan: &Scan<'_>, run: &Run, k: usize) -> Option<Hit> {
    let (start, _) = run.groups[k];
    let at = run.first + k;
    let zero = scan.bytes[start] == b'0';
    let paren = scan.byte_before(start) == b'(' && run.sep(k) == b'(';
    // `fax`, `office` may also stand right behind the number.
    let near = figures::telephone_told(scan, at, 6, run.groups.len() - k);
    let least = match (near, paren) {
        (true, _) if run.groups.len() > k + 1 => 6,
        (true, _) | (_, true) => 7,
        _ => 9,
    };
    let n = reach(run, k, least, 13)?;
    if run.seps[k..k + n - 1].iter().any(|s| matches!(s, b'/')) && !zero {
        return None;
    }
    // Rows of a table have more groups than a telephone number.
    if (k > 0 || k + n < run.groups.len() && !near) && (!(paren || near) || k > 0 && run.sep(k - 1) != b' ') {
        return None;
    }
    let first = run.len_of(k);
    // 02110-1301 is a postal code, 2017-2020 are years, 16.11.10 is a version.
    let lengths = |wanted: &[usize]| n == wanted.len() && (0..n).all(|i| run.len_of(k + i) == wanted[i]);
    let year = |g: usize| (1900..2100).contains(&run.number(scan.bytes, g));
    let version = (k..k + n).all(|g| run.len_of(g) <= 2) && (k..k + n - 1).all(|g| run.sep(g) == b'.') && !zero;
    if lengths(&[5, 4]) && !near || lengths(&[4, 4]) && year(k) && year(k + 1) || version || dumped(scan, run, k, n) {
        return None;
    }
    // 2025-03 is a month.
    if first == 4 && n == 2 && run.len_of(k + 1) == 2 && (1900..2200).contains(&run.number(scan.bytes, k)) {
        return None;
    }
    let dotted = n > 1 && run.seps[k..k + n - 1].iter().all(|s| *s == b'.');
    let confidence = match (n, zero, paren, near) {
        (1, true, _, true) => 75,
        (1, _, _, true) if run.len_of(k) >= 8 && !scan.near(at, topic::ORDER, 2, 0) => 60,
        (1, ..) => return None,
        (_, true, _, true) => 90,
        (_, _, true, true) => 90,
        (_, _, true, false) => 65,
        (_, _, _, true) => 70,
        (_, true, _, false) if (2..=6).contains(&first) && spread(run, k, n) && !dotted => {
            if figures::tabled(scan, run) { 40 } else { 65 }
        }
        _ => return None,
    };
    Some(Hit::new(n, Kind::Phone, confidence))
}

/// Whether the groups look like a telephone number's: none of one digit, not all alike unless they are the five
/// pairs of a French number.
fn spread(run: &Run, k: usize, n: usize) -> bool {
    let lengths: Vec<_> = (k..k + n).map(|i| run.len_of(i)).collect();
    let alike = lengths.windows(2).all(|w| w[0] == w[1]);
    lengths.iter().skip(1).all(|l| (2..=8).contains(l)) && (!alike || lengths == [2, 2, 2, 2, 2])
}

/// Whether the groups stand in a dump of bytes: pairs with another pair of hexadecimal digits beside them.
fn dumped(scan: &Scan<'_>, run: &Run, k: usize, n: usize) -> bool {
    let pair = |t: Option<&crate::token::Token>| {
        t.is_some_and(|t| t.len() == 2 && scan.word(t).bytes().all(|b| b.is_ascii_hexdigit()) && !t.is_digits())
    };
    let first = run.first + k;
    let before = first.checked_sub(1).and_then(|p| scan.token(p)).filter(|_| scan.gap_before(first).trim().is_empty());
    let last = first + n - 1;
    let after = scan.token(last + 1).filter(|_| scan.gap(last).trim().is_empty());
    (k..k + n).all(|g| run.len_of(g) == 2) && (pair(before) || pair(after))
}
