//! Detects numbers without personal meaning: a four-part version, a table cell, a list of constants, a count.

use super::ScanState;
use super::digit_run::DigitRun;
use crate::lexicon::{mark, topic};
use crate::text::token::WordToken;
use crate::word_lists::{WordList, WordSet, words};

/// Number of bytes of the line examined on either side of a number.
const MAX_LINE_BYTES: usize = 96;

/// The part of the line before `at`, at most [`MAX_LINE_BYTES`] bytes of it.
fn line_before<'t>(scan: &ScanState<'t>, at: usize) -> &'t [u8] {
    let head = &scan.bytes[at.saturating_sub(MAX_LINE_BYTES)..at];
    &head[memchr::memrchr(b'\n', head).map_or(0, |n| n + 1)..]
}

/// The part of the line after `at`, at most [`MAX_LINE_BYTES`] bytes of it.
fn line_after<'t>(scan: &ScanState<'t>, at: usize) -> &'t [u8] {
    let right = scan.bytes.get(at..(at + MAX_LINE_BYTES).min(scan.bytes.len())).unwrap_or_default();
    &right[..memchr::memchr(b'\n', right).unwrap_or(right.len())]
}

/// Whether the span is the whole text: the value of a field that was passed separately.
fn is_whole_text(scan: &ScanState<'_>, start: usize, end: usize) -> bool {
    start < MAX_LINE_BYTES
        && scan.bytes.len() - end < MAX_LINE_BYTES
        && scan.text.trim() == scan.text[start..end].trim()
}

/// The confidence that four numbers up to 255 with dots between them are an IPv4 address rather than a version.
pub(super) fn address_or_version(scan: &ScanState<'_>, run: &DigitRun, k: usize, parts: [u32; 4]) -> u8 {
    let at = run.first + k;
    let (start, end) = run.span(k, 4);
    let private = matches!(parts, [10, ..] | [192, 168, ..] | [172, 16..=31, ..]);
    let is_address = has_address_context(scan, at, start, end);
    if private && network(scan, end, parts) {
        return 40;
    }
    // Versions begin with a small number, and their third part is rarely large.
    let low = parts[0] <= 30 && parts[2] <= 99;
    let tiny = parts[0] != 10 && parts.iter().all(|p| *p < 16);
    match (has_version_context(scan, at, start), is_address) {
        (true, false) if private => 45,
        (true, false) => 30,
        (true, true) if low => 55,
        (false, false) if private && !tiny => 80,
        (false, false) if tiny => 40,
        (false, false) if low => {
            let led = scan.gap_before(at) == " " && scan.near_word(at, &["from", "at", "via"], 1, 0);
            if led || is_whole_text(scan, start, end) { 60 } else { 45 }
        }
        _ if private => 80,
        _ => 90,
    }
}

/// `192.168.0.128/25`: a network rather than a host.
fn network(scan: &ScanState<'_>, end: usize, parts: [u32; 4]) -> bool {
    let after = scan.bytes.get(end..(end + 4).min(scan.bytes.len())).unwrap_or_default();
    let [b'/', bits @ ..] = after else { return false };
    let bits = bits.iter().take(2).take_while(|b| b.is_ascii_digit()).fold(0, |n, b| n * 10 + u32::from(b - b'0'));
    let address = parts.iter().fold(0u32, |all, p| all << 8 | p & 0xff);
    (1..=31).contains(&bits) && address << bits == 0
}

/// Whether the context indicates an address: a networking term, a port, a login or a URL, the format of an access log.
fn has_address_context(scan: &ScanState<'_>, at: usize, start: usize, end: usize) -> bool {
    let (before, after) = (line_before(scan, start), line_after(scan, end));
    let port = after.first() == Some(&b':') && after.get(1).is_some_and(u8::is_ascii_digit);
    let url = before.ends_with(b"//");
    let login = before.strip_suffix(b"@").is_some_and(|b| {
        let name = b.iter().rev().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.')).count();
        name > 0 && !b[..b.len() - name].ends_with(b"/")
    });
    let logged = before.trim_ascii().is_empty() && (after.starts_with(b" - ") || after.starts_with(b" ["));
    let network = after.first() == Some(&b'/') && after.get(1).is_some_and(u8::is_ascii_digit);
    port || url || login || logged || network || scan.has_topic_near(at, topic::NETWORK, 4, 6)
}

/// Whether the context indicates a version: a software term, a comparison, a heading, a file name.
fn has_version_context(scan: &ScanState<'_>, at: usize, start: usize) -> bool {
    let before = line_before(scan, start);
    let compared = [&b">="[..], b"==", b"<=", b"~>", b"~=", b"^", b"~", b">= ", b"== ", b"<= ", b"~> "]
        .iter()
        .any(|sign| before.ends_with(sign));
    let heading = before.first() == Some(&b'#') && before.iter().all(|b| matches!(b, b'#' | b' ' | b'[' | b'v' | b'V'));
    let package = before.strip_suffix(b"@").is_some_and(|b| b.iter().rev().take(64).any(|c| *c == b'/'));
    let named = scan.has_topic_near(at, topic::VERSION, 2, 0) || scan.has_topic_near(at, topic::SOFTWARE, 6, 3);
    let glued = matches!(before, [.., b'a'..=b'z' | b'0'..=b'9', b'-' | b'.']);
    compared || heading || package || named || glued
}

/// Whether the context indicates that a pair of fractions is a location, and not part of a row of numbers.
pub(super) fn has_coordinate_context(scan: &ScanState<'_>, at: usize, start: usize, end: usize) -> bool {
    if is_in_number_row(scan, start, end) {
        return false;
    }
    let words = [
        "at", "near", "located", "map", "maps", "here", "meet", "met", "where", "pin", "address", "home", "house",
        "parked", "spot", "live", "lives", "seen", "found",
    ];
    is_whole_text(scan, start, end) || scan.near_word(at, &words, 5, 0) && !super::names::is_code_line(scan, at)
}

/// Whether the line has more numbers beside it, in the same brackets or in brackets of their own.
fn is_in_number_row(scan: &ScanState<'_>, start: usize, end: usize) -> bool {
    let between =
        |b: &u8| matches!(b, b' ' | b'\t' | b',' | b';' | b'|' | b'-' | b'+' | b'(' | b')' | b'[' | b']' | b'{' | b'}');
    let (before, after) = (line_before(scan, start), line_after(scan, end));
    let previous = before.iter().rev().find(|b| !between(b));
    let right = after.iter().find(|b| !between(b));
    previous.is_some_and(u8::is_ascii_digit) || right.is_some_and(u8::is_ascii_digit)
}

/// Whether the run of digit groups is part of a row of numbers: another one on the line, with no word between.
pub(super) fn is_tabular(scan: &ScanState<'_>, run: &DigitRun) -> bool {
    let Some(end) = run.groups.last().map(|g| g.1) else { return false };
    is_in_number_row(scan, run.groups[0].0, end)
}

/// Telephone terms that often have another meaning.
static AMBIGUOUS_PHONE_WORDS: WordList = WordList::new(|| words("ambiguous_phone_words"));

/// Words that give such a term another meaning: `call stack`, `number of`, `cell count`.
static NON_PHONE_FOLLOWERS: WordList = WordList::new(|| words("non_phone_followers"));

/// Words for those who can be called.
const CALLABLE_WORDS: &[&str] = &[
    "me", "my", "us", "our", "him", "his", "her", "them", "their", "your", "you", "i", "customer", "client", "patient",
];

/// Whether token `i` is in a telephone context; ambiguous terms also need a person, or must directly precede the
/// number.
pub(super) fn has_phone_context(scan: &ScanState<'_>, i: usize, back: usize, ahead: usize) -> bool {
    if !scan.has_topic_near(i, topic::PHONE, back, ahead) {
        return false;
    }
    let list = scan.list();
    let window = i.saturating_sub(back)..(i + 1 + ahead).min(list.len());
    window.filter(|n| *n != i && scan.has_topic_near(*n + 1, topic::PHONE, 1, 0)).any(|n| {
        let is = |token: Option<&WordToken>, words: &[&str]| {
            token.is_some_and(|t| words.iter().any(|w| scan.word(t).eq_ignore_ascii_case(w)))
        };
        if !is(scan.token(n), &AMBIGUOUS_PHONE_WORDS) {
            return true;
        }
        if is(scan.token(n + 1), &NON_PHONE_FOLLOWERS) && scan.gap(n) == " " {
            return false;
        }
        let number = is(scan.token(n), &["number"]);
        let leads = n + 1 == i || n + 2 == i && is(scan.token(n + 1), &["at", "on", "is", "no", "nr", "number", "s"]);
        let whom = n.saturating_sub(3)..(n + 4).min(list.len());
        !number && leads && !super::names::is_code_line(scan, n)
            || whom.into_iter().any(|w| w != n && is(scan.token(w), CALLABLE_WORDS))
            || n > i
                && n <= i + 8
                && is(scan.token(n), &["office", "cell", "mob", "ph"])
                && (i..n).all(|between| !scan.gap(between).contains('\n'))
    })
}

/// Whether a person precedes the number, or the number is alone on its line.
pub(super) fn has_person_context(scan: &ScanState<'_>, run: &DigitRun, k: usize, groups: usize) -> bool {
    let at = run.first + k;
    let (start, end) = run.span(k, groups);
    let own_line =
        line_before(scan, start).iter().all(|b| matches!(b, b' ' | b'\t' | b'>' | b'?' | b'*' | b'(' | b'+'))
            && line_after(scan, end).iter().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'.' | b',' | b'\\'));
    let back = scan.list().get(at.saturating_sub(10)..at).unwrap_or_default();
    let named = back.iter().any(|t| {
        t.has(mark::HONORIFIC) && t.is_capital()
            || t.is_capital() && t.has(mark::FIRST | mark::LAST_TOP) && !t.has(mark::COMMON | mark::WORD | mark::TECH)
    });
    let ats = &scan.tokens.ats;
    let near = ats.partition_point(|a| *a as usize + MAX_LINE_BYTES <= start);
    let mail = ats.get(near).is_some_and(|a| (*a as usize) < start + MAX_LINE_BYTES);
    own_line || named || mail || run.groups.len() == groups && is_whole_text(scan, start, end)
}

/// Words before a number of a thing that no topic covers, since they also occur near telephones.
const THING_WORDS: &[&str] = &["code", "error", "status", "proposal", "load", "channel", "dimension", "dimensions"];

/// Whether a word or an abbreviation right before the number says that it is a thing's: `grant 123-45-6789`, `P/N 415-…`.
pub(super) fn is_numbered_thing(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> bool {
    let at = run.first + k;
    has_abbreviation(scan, run, k)
        || scan.has_topic_near(at, topic::ORDER, 2, 0)
        || scan.near_word(at, THING_WORDS, 1, 0)
}

/// The same for numbers in the format of a social security number: only words for things that have no holder.
pub(super) fn is_labelled_thing(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> bool {
    let words =
        ["batch", "lot", "part", "drawing", "sku", "item", "model", "serial", "catalog", "docket", "shard", "grant"];
    let at = run.first + k;
    has_abbreviation(scan, run, k) || scan.near_word(at, THING_WORDS, 1, 0) || scan.near_word(at, &words, 1, 0)
}

/// Whether an abbreviation of part or serial number precedes the number.
fn has_abbreviation(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> bool {
    let head = line_before(scan, run.groups[k].0).trim_ascii_end();
    let head = head.strip_suffix(b":").or_else(|| head.strip_suffix(b"#")).unwrap_or(head);
    let ends = |end: &&[u8]| {
        head.len().checked_sub(end.len()).and_then(|n| head.get(n..)).is_some_and(|l| l.eq_ignore_ascii_case(end))
    };
    [&b"p/n"[..], b"s/n", b"w/o"].iter().any(ends)
}

/// Whether the number is labelled as what is printed on goods: `S/N 5759-…`, `barcode 3654…`.
pub(super) fn has_serial_label(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> bool {
    let words = ["barcode", "gtin", "ean", "upc", "sscc", "imei", "serial"];
    has_abbreviation(scan, run, k) || scan.near_word(run.first + k, &words, 1, 0)
}

/// Units of measurement after a number.
static UNITS: WordSet = WordSet::new(|| words("units"));

/// Whether the word is a unit that is written like no word of a name or a street.
pub(super) fn is_unit(word: &str) -> bool {
    UNITS.contains(word)
}

/// Whether a unit follows the number: `826 kN`. Digits of a quantity are grouped in threes, those of cards and numbers of
/// persons are not: `4111 1111 1111 1111 MW`.
pub(super) fn is_quantity(scan: &ScanState<'_>, run: &DigitRun, k: usize, groups: usize) -> bool {
    let (_, end) = run.span(k, groups);
    if groups > 2 && (k + 1..k + groups).any(|group| run.group_len(group) != 3) {
        return false;
    }
    let next = scan.token(run.first + k + groups);
    next.is_some_and(|t| t.start() == end + 1 && scan.byte_at(end) == b' ' && is_unit(scan.word(t)))
}

/// Whether the number is in brackets after an identifier: `test_offsets[415-555-0132]`.
pub(super) fn is_index(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> bool {
    let head = scan.bytes.get(..run.groups[k].0).unwrap_or_default();
    matches!(head, [.., b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_', b'['])
}

/// Whether the line is one of a hex dump: an offset of seven digits or more, then at least five pairs or fours of
/// hexadecimal digits.
pub(super) fn is_hex_dump_line(scan: &ScanState<'_>, at: usize) -> bool {
    let before = line_before(scan, at);
    let hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let offset = before.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (Some(line), 7..=16) = (scan.bytes.get(at - before.len()..), offset) else { return false };
    let line = &line[..line.len().min(MAX_LINE_BYTES)];
    let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())];
    let rest = line[offset..].strip_prefix(b":").unwrap_or(&line[offset..]);
    let groups = rest.split(|b| *b == b' ').filter(|g| !g.is_empty());
    groups.take_while(|g| matches!(g.len(), 2 | 4) && hex(g)).count() >= 5
}

/// Whether the two letters at token `i` are in a row of hexadecimal pairs: `CC DD AB 0C 9F`.
pub(super) fn is_in_hex_pairs(scan: &ScanState<'_>, i: usize) -> bool {
    let hex = |t: &WordToken| t.len() == 2 && scan.word(t).bytes().all(|b| b.is_ascii_hexdigit());
    let list = scan.list();
    let before = list[..i].iter().rev().take(4).take_while(|t| hex(t)).count();
    let after = list[i..].iter().take(5).take_while(|t| hex(t)).count();
    after > 0 && before + after >= 5
}

/// Whether the number is labelled as that of a bank account: it is the first number after the word, which is not about
/// bookkeeping (`GL account 400120`).
pub(super) fn has_bank_account_label(scan: &ScanState<'_>, at: usize) -> bool {
    let words = ["account", "acct", "konto", "checking", "savings"];
    let from = at.saturating_sub(4);
    let Some(label) = (from..at)
        .rev()
        .find(|i| scan.token(*i).is_some_and(|t| words.iter().any(|w| scan.word(t).eq_ignore_ascii_case(w))))
    else {
        return false;
    };
    let other = (label + 1..at).any(|i| scan.token(i).is_some_and(|t| t.is_digits() && t.len() >= 5));
    !other && !scan.near_word(label, &["gl", "ledger", "cost", "contra", "revenue", "expense"], 1, 0)
}

/// Mostly zeros: `10 000 000 000` is a count, whatever its check digit.
pub(super) fn is_round_number(digits: &[u8]) -> bool {
    digits.len() >= 8 && digits.iter().filter(|d| **d == 0).count() * 4 >= digits.len() * 3
}
