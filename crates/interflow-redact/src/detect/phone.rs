//! Telephone numbers: international (E.164), North American, and the national formats with a leading zero.

use std::sync::LazyLock;

use interflow_types::data_file;

use super::digit_run::{DigitRun, NumberMatch};
use super::{ScanState, number_context};
use crate::Kind;
use crate::lexicon::topic;
use crate::text::token::TokenShape;

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

/// The phone number that begins at group `k`, with its extension.
pub(super) fn phone_number(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    if !scan.wants(Kind::Phone) || run.glued_right {
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

/// `x123`, `ext. 123`, `extension 123` after the number.
fn extension(scan: &ScanState<'_>, run: &DigitRun, group: usize, end: usize) -> Option<usize> {
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
    if token.shape == TokenShape::Mixed && word.len() <= 8 {
        let digits = word.strip_prefix('x').or_else(|| word.strip_prefix('X')).or_else(|| word.strip_prefix("ext"))?;
        return digits.bytes().all(|b| b.is_ascii_digit()).then_some(token.end());
    }
    let next = scan.token(i + 1).filter(|t| t.is_digits() && t.len() <= 6)?;
    let named = ["x", "ext", "extension"].iter().any(|w| word.eq_ignore_ascii_case(w));
    (named && matches!(scan.gap(i), " " | ". " | "." | ": " | "")).then_some(next.end())
}

/// The numbers of groups from `k` whose digits fit a phone number.
fn groups_for_length(run: &DigitRun, k: usize, least: usize, most: usize) -> Option<usize> {
    let mut total = 0;
    let mut fit = None;
    for n in 1..=(run.groups.len() - k).min(7) {
        if n > 1 && matches!(run.separator_after(k + n - 2), b':') {
            break;
        }
        total += run.group_len(k + n - 1);
        if total > most {
            break;
        }
        if total >= least {
            fit = Some(n);
        }
    }
    fit
}

/// A number with a calling code, after `+` or `00`.
fn international(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let start = run.groups[k].0;
    // In `2.4+20151223` the plus belongs to a version.
    let plus = scan.byte_before(start) == b'+' && !scan.byte_before(start - 1).is_ascii_digit()
        || scan.byte_before(start) == b'(' && scan.byte_before(start - 1) == b'+';
    let digits = run.digits(scan.bytes, k, 1);
    let zeros = if plus { 0 } else { digits.iter().take_while(|d| **d == 0).count() };
    // The middle of a longer number, and what is labelled as a thing's, has no calling code.
    let inside = k.checked_sub(1).is_some_and(|p| run.separator_after(p) == b'-');
    if !plus && (zeros != 2 || inside || number_context::is_numbered_thing(scan, run, k)) {
        return None;
    }
    let n = groups_for_length(run, k, 8 + zeros, 15 + zeros)?;
    let all = run.digits(scan.bytes, k, n);
    let code = calling_code(all.get(zeros..)?)?;
    let grouped = n > 1 || plus;
    // 001-234-567 and similar: without a plus, the grouping must be sufficient evidence.
    (grouped && all.len() - zeros > code + 4).then(|| NumberMatch::new(n, Kind::Phone, if plus { 95 } else { 75 }))
}

/// Numbers of the North American Numbering Plan: three, three and four digits.
fn north_american(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let near = || number_context::has_phone_context(scan, run.first + k, 8, 3);
    let lead = usize::from(
        run.group_len(k) == 1
            && scan.bytes[run.groups[k].0] == b'1'
            && matches!(run.separator_after(k), b'-' | b' ' | b'.' | b'('),
    );
    let a = k + lead;
    let separated = [3, 3, 4].iter().enumerate().all(|(i, l)| run.group_len(a + i) == *l)
        && matches!(run.separator_after(a), b'-' | b'.' | b' ' | b'(')
        && matches!(run.separator_after(a + 1), b'-' | b'.' | b' ');
    let area_first = |at: usize| run.groups.get(at).map_or(0, |g| scan.bytes[g.0]);
    if separated {
        // More groups with the same separator: a longer number, of which this is the beginning.
        if a + 3 < run.groups.len()
            && run.separator_after(a + 2) == run.separator_after(a + 1)
            && run.separator_after(a + 2) != b' '
        {
            return None;
        }
        // Area and exchange codes begin with 2 to 9 in the North American Numbering Plan.
        let home = scan.wants.phone_regions.iter().any(|r| matches!(r, b"US" | b"CA"));
        let valid = home && area_first(a) >= b'2' && area_first(a + 1) >= b'2';
        let paren = run.separator_after(a) == b'(' || scan.byte_before(run.groups[a].0) == b'(';
        // `batch 235-262-8742`, `part no. 415-555-0132`: the directly preceding word names another kind.
        let counted = number_context::is_numbered_thing(scan, run, k) && !near();
        let confidence = match (valid, run.separator_after(a + 1)) {
            _ if counted => 40,
            // `100-200-3000`: the bounds of a range.
            (_, b'-') if is_round_hundreds(scan, run, a) && !near() => 40,
            (true, b'-' | b'.') => 90,
            (true, _) if paren => 90,
            (true, _)
                if near()
                    || number_context::has_person_context(scan, run, k, 3 + lead)
                        && !number_context::is_tabular(scan, run) =>
            {
                70
            }
            (false, b'-' | b'.') => 65,
            (false, _) if paren || near() => 65,
            _ => 40,
        };
        return Some(NumberMatch::new(3 + lead, Kind::Phone, confidence));
    }
    // Unusual groupings are phone numbers only if something nearby says so.
    if (run.has_shape(k, &[3, 7], b"-. (") || run.has_shape(k, &[6, 4], b"- ")) && near() {
        return Some(NumberMatch::new(2, Kind::Phone, 70));
    }
    if run.has_shape(k, &[3, 4], b"-.") && run.groups.len() == k + 2 {
        return near().then(|| NumberMatch::new(2, Kind::Phone, 75));
    }
    let bare = run.group_len(k);
    let first = area_first(k);
    if bare == 10 && first >= b'2' && near() || bare == 11 && first == b'1' && near() {
        return Some(NumberMatch::new(1, Kind::Phone, 75));
    }
    None
}

/// Whether area and exchange are round hundreds.
fn is_round_hundreds(scan: &ScanState<'_>, run: &DigitRun, a: usize) -> bool {
    [a, a + 1].iter().all(|g| run.number(scan.bytes, *g).is_multiple_of(100))
}

/// Region, number of digits, and valid first digits.
type RegionalFormat = (&'static [u8], usize, &'static [u8]);

/// National numbers without a leading zero.
static REGIONAL: LazyLock<Vec<RegionalFormat>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../../data/regional_phone_numbers.txt"));
    records.map(|[region, n, first]| (region.as_bytes(), n.parse().expect("a number"), first.as_bytes())).collect()
});

/// Grouped digits that are a national number of a region in the policy.
fn regional(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let regions = &scan.wants.phone_regions;
    let start = *scan.bytes.get(run.groups.get(k)?.0)?;
    let fits = |n: &usize| {
        let digits: usize = (k..k + n).map(|i| run.group_len(i)).sum();
        let sep = |i: usize| matches!(run.separator_after(i), b' ' | b'-' | b'.' | b'(');
        (k..k + n - 1).all(sep)
            && REGIONAL
                .iter()
                .any(|(r, d, first)| *d == digits && first.contains(&start) && regions.iter().any(|region| region == r))
    };
    let n = (2..=(run.groups.len() - k).min(6)).find(fits)?;
    (k + n == run.groups.len() || run.separator_after(k + n - 1) == b' ').then(|| NumberMatch::new(n, Kind::Phone, 65))
}

/// Formats with a leading zero, in parentheses, or grouped digits in a telephone context.
fn national(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let (start, _) = run.groups[k];
    let at = run.first + k;
    let zero = scan.bytes[start] == b'0';
    let paren = scan.byte_before(start) == b'(' && run.separator_after(k) == b'(';
    // `fax`, `office` may also directly follow the number.
    let near = number_context::has_phone_context(scan, at, 6, run.groups.len() - k);
    let least = match (near, paren) {
        (true, _) if run.groups.len() > k + 1 => 6,
        (true, _) | (_, true) => 7,
        _ => 9,
    };
    let n = groups_for_length(run, k, least, 13)?;
    if run.seps[k..k + n - 1].iter().any(|s| matches!(s, b'/')) && !zero {
        return None;
    }
    // Rows of a table have more groups than a phone number.
    if (k > 0 || k + n < run.groups.len() && !near) && (!(paren || near) || k > 0 && run.separator_after(k - 1) != b' ')
    {
        return None;
    }
    let first = run.group_len(k);
    // 02110-1301 is a postal code, 2017-2020 are years, 16.11.10 is a version.
    let lengths = |wanted: &[usize]| n == wanted.len() && (0..n).all(|i| run.group_len(k + i) == wanted[i]);
    let year = |g: usize| (1900..2100).contains(&run.number(scan.bytes, g));
    let version =
        (k..k + n).all(|g| run.group_len(g) <= 2) && (k..k + n - 1).all(|g| run.separator_after(g) == b'.') && !zero;
    if lengths(&[5, 4]) && !near
        || lengths(&[4, 4]) && year(k) && year(k + 1)
        || version
        || is_in_hex_dump(scan, run, k, n)
    {
        return None;
    }
    // 2025-03 is a month.
    if first == 4 && n == 2 && run.group_len(k + 1) == 2 && (1900..2200).contains(&run.number(scan.bytes, k)) {
        return None;
    }
    let dotted = n > 1 && run.seps[k..k + n - 1].iter().all(|s| *s == b'.');
    let confidence = match (n, zero, paren, near) {
        (1, true, _, true) => 75,
        (1, _, _, true) if run.group_len(k) >= 8 && !scan.has_topic_near(at, topic::ORDER, 2, 0) => 60,
        (1, ..) => return None,
        (_, true, _, true) => 90,
        (_, _, true, true) => 90,
        (_, _, true, false) => 65,
        (_, _, _, true) => 70,
        (_, true, _, false) if (2..=6).contains(&first) && is_spread_out(run, k, n) && !dotted => {
            if number_context::is_tabular(scan, run) || scan.has_topic_near(at, topic::ORDER, 2, 0) {
                40
            } else {
                65
            }
        }
        _ => return None,
    };
    Some(NumberMatch::new(n, Kind::Phone, confidence))
}

/// Whether the groups look like a phone number: none of one digit, and not all of the same length except the five pairs
/// of a French number.
fn is_spread_out(run: &DigitRun, k: usize, n: usize) -> bool {
    let lengths: Vec<_> = (k..k + n).map(|i| run.group_len(i)).collect();
    let alike = lengths.windows(2).all(|w| w[0] == w[1]);
    lengths.iter().skip(1).all(|l| (2..=8).contains(l)) && (!alike || lengths == [2, 2, 2, 2, 2])
}

/// Whether the groups are in a hex dump: pairs beside other pairs of hexadecimal digits.
fn is_in_hex_dump(scan: &ScanState<'_>, run: &DigitRun, k: usize, n: usize) -> bool {
    let pair = |t: Option<&crate::text::token::WordToken>| {
        t.is_some_and(|t| t.len() == 2 && scan.word(t).bytes().all(|b| b.is_ascii_hexdigit()) && !t.is_digits())
    };
    let first = run.first + k;
    let before = first.checked_sub(1).and_then(|p| scan.token(p)).filter(|_| scan.gap_before(first).trim().is_empty());
    let last = first + n - 1;
    let after = scan.token(last + 1).filter(|_| scan.gap(last).trim().is_empty());
    (k..k + n).all(|g| run.group_len(g) == 2) && (pair(before) || pair(after))
}
