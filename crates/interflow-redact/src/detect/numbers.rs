//! Runs of digit groups: cards, social security numbers, IP addresses, dates, phone numbers and other ids with check
//! digits.
//!
//! The same digits can be grouped in many ways, so a run is collected once with its separators, and the matchers look
//! at the groups from each position on. The first that matches takes its groups; stricter formats come before looser
//! ones, and a phone number last.

use super::digit_run::{DigitRun, NumberMatch, collect_run};
use super::{ScanState, dates, labeled_values, national_ids, number_context, phone};
use crate::Kind;
use crate::detect::check_digits;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};

/// Examines the run of digit groups that begins at token `i`; returns the next token to examine.
pub(super) fn detect_run(scan: &mut ScanState<'_>, i: usize) -> usize {
    // A single number of one to three digits is the most frequent case, and can only be an age or part of an address.
    let Some(token) = scan.token(i) else { return i + 1 };
    if token.len() < 4 && !matches!(scan.byte_at(token.end()), b'.' | b'-' | b'/' | b' ' | b')' | b':') {
        return i + 1;
    }
    let Some(run) = collect_run(scan, i) else { return i + 1 };
    let before = scan.found.len();
    let next = detect_groups(scan, i, &run, token.len());
    // A number without a match may have a label.
    if scan.found.len() == before
        && let Some(labelled) = labeled_values::detect_labeled(scan, i)
    {
        return labelled;
    }
    next
}

/// Matches the groups of a run one after the other.
fn detect_groups(scan: &mut ScanState<'_>, i: usize, run: &DigitRun, length: usize) -> usize {
    let postcode =
        || length == 4 && scan.topics_near(i, 3, 0) & topic::ZIP != 0 || length == 3 && has_zip_label(scan, i);
    if run.groups.len() == 1 && length < 5 && !postcode() {
        return i + 1;
    }
    let (mut k, mut dated) = (0, 0);
    while k < run.groups.len() {
        match best_match(scan, run, k) {
            Some(mut hit) => {
                // The second date of a range has the confidence of the first.
                if hit.kind == Kind::Date {
                    hit.confidence = hit.confidence.max(dated);
                    dated = hit.confidence;
                }
                let (start, end) = run.span(k, hit.groups);
                scan.push(hit.kind, hit.start.unwrap_or(start), hit.end.unwrap_or(end), hit.confidence);
                k += hit.groups;
            }
            None => k += 1,
        }
    }
    i + run.groups.len()
}

/// The match that begins at group `k`, the stricter formats first.
fn best_match(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    if run.seps.first() == Some(&b'_') {
        return card(scan, run, k).filter(|_| k == 0 && !run.glued_left && !run.glued_right);
    }
    ip(scan, run, k)
        .or_else(|| dates::numeric_date(scan, run, k))
        .or_else(|| if is_decimal(run, k) || run.glued_left && k == 0 { None } else { plain_match(scan, run, k) })
}

/// The match of a number that is neither an address nor a date, and no fraction.
fn plain_match(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    imei(scan, run, k)
        .or_else(|| card(scan, run, k))
        .or_else(|| spaced_card(scan, run, k))
        .or_else(|| ssn(scan, run, k))
        .or_else(|| national_ids::numeric_id(scan, run, k))
        .or_else(|| contextual_match(scan, run, k))
        .or_else(|| phone::phone_number(scan, run, k))
        .filter(|_| !run.glued_right && !number_context::is_index(scan, run, k))
        .filter(|_| !number_context::is_hex_dump_line(scan, run.groups[k].0))
        .filter(|hit| {
            // Equal groups in a row are values of a table, and round numbers are amounts; only a personal word nearby
            // makes them ids.
            let at = run.first + k;
            let row = hit.groups > 1
                && run.separator_after(k) == b' '
                && hit.kind != Kind::CreditCard
                && hit.kind != Kind::Phone
                && run.group_len(k) == run.group_len(k + 1)
                && similar_groups_after(run, k, hit.groups) >= 2;
            let round =
                hit.kind != Kind::CreditCard && number_context::is_round_number(&run.digits(scan.bytes, k, hit.groups));
            let cell = hit.groups > 2
                && run.separator_after(k) == b' '
                && !matches!(hit.kind, Kind::CreditCard | Kind::Phone)
                && number_context::is_tabular(scan, run);
            let impersonal = row || cell || round || number_context::is_quantity(scan, run, k, hit.groups);
            // A postal code was told by its label.
            !impersonal || hit.kind == Kind::ZipCode || scan.has_topic_near(at, super::PERSONAL_TOPICS, 4, 0)
        })
}

/// `3.14159265`: a fraction, not two groups. Versions and dates have a second dot.
fn is_decimal(run: &DigitRun, k: usize) -> bool {
    let alone = |a: usize| {
        run.separator_after(a) == b'.'
            && (a == 0 || run.separator_after(a - 1) != b'.')
            && run.separator_after(a + 1) != b'.'
    };
    alone(k) || k > 0 && alone(k - 1)
}

fn ip(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    if !run.has_dotted_shape(k) || !scan.wants(Kind::IpAddress) {
        return None;
    }
    let mut parts = [0u32; 4];
    for (i, part) in parts.iter_mut().enumerate() {
        let length = run.group_len(k + i);
        *part = run.number(scan.bytes, k + i);
        if length > 3 || *part > 255 || length > 1 && scan.bytes[run.groups[k + i].0] == b'0' {
            // A leading zero is not written in addresses, but in versions and dates.
            return None;
        }
    }
    let confidence = match parts {
        [127 | 0, ..] | [255, ..] | [_, 0, 0, 0] => 20,
        // A network rather than a host: `198.18.0.0/15`.
        [.., 0] if scan.byte_at(run.span(k, 4).1) == b'/' => 40,
        [169, 254, ..] => 40,
        // Public resolvers and link-local addresses belong to nobody in particular.
        [1, 1, 1, 1] | [1, 0, 0, 1] | [8, 8, 8, 8] | [8, 8, 4, 4] | [9, 9, 9, 9] => 40,
        _ => number_context::address_or_version(scan, run, k, parts),
    };
    Some(NumberMatch::new(4, Kind::IpAddress, confidence))
}

/// The valid lengths by the first digits (ISO/IEC 7812 issuer ranges).
fn card_lengths(digits: &[u8]) -> &'static [usize] {
    let prefix = |n: usize| digits.iter().take(n).fold(0u32, |p, d| p * 10 + u32::from(*d));
    match (prefix(1), prefix(2), prefix(3), prefix(4)) {
        (4, ..) => &[13, 16, 19],
        (_, 51..=55, ..) | (_, _, _, 2221..=2720) => &[16],
        (_, 34 | 37, ..) => &[15],
        (_, 36 | 38 | 39, ..) | (_, _, 300..=305, _) => &[14, 16, 19],
        (_, 65, ..) | (_, _, 644..=649, _) | (_, _, _, 6011) => &[16, 19],
        (_, 62 | 81, ..) => &[16, 17, 18, 19],
        (_, 60 | 82, ..) | (_, _, 508 | 353 | 356, _) => &[16],
        (_, 35, ..) => &[16, 19],
        (_, 50 | 56..=59 | 63 | 67..=69, ..) => &[12, 13, 15, 16, 18, 19],
        (_, _, _, 2014 | 2149 | 2131 | 1800) => &[15],
        _ => &[],
    }
}

/// A card number of one or several groups. The check digit alone is not enough: one number in ten passes it.
fn card(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    if !scan.wants(Kind::CreditCard) {
        return None;
    }
    let mut best = None;
    // Of several lengths that match, the last and longest is taken.
    for n in 1..=(run.groups.len() - k).min(7) {
        if n > 1
            && !(matches!(run.separator_after(k + n - 2), b' ' | b'-' | b'n' | b'.' | b'/' | b'_')
                && run.separator_after(k + n - 2) == run.separator_after(k))
        {
            break;
        }
        let digits = run.digits(scan.bytes, k, n);
        if digits.len() > 19 {
            break;
        }
        if digits.len() < 12 || !card_lengths(&digits).contains(&digits.len()) || !card_groups(run, k, n, digits.len())
        {
            continue;
        }
        let near = scan.has_topic_near(run.first + k, topic::CARD, 8, 4);
        let confidence = match (check_digits::luhn(&digits), near) {
            (true, true) => 98,
            // A range of positions, an article number, and ids of 64 bits pass the check by chance.
            (true, false) if n == 2 && run.group_len(k) == 8 => 45,
            (true, false) if digits.len() == 13 && is_article_number(scan, run, k, &digits) => 40,
            (true, false) if n == 1 && digits.len() > 16 || number_context::has_serial_label(scan, run, k) => 45,
            (true, false) if matches!(digits.len(), 14..=16) => 90,
            // Short or long numbers pass the check by chance too often.
            (true, false) if digits.len() == 12 => continue,
            // A row of four-digit numbers.
            (true, false) if n > 1 && similar_groups_after(run, k, n) >= 2 && !is_beside_card(scan, run, k, n) => 40,
            (true, false) => 55,
            (false, true) if !scan.wants.valid_cards_only => 70,
            // A card with a wrong digit, for policies that report these.
            (false, true) if n > 1 || matches!(digits.len(), 15 | 16) => 45,
            _ => continue,
        };
        best = Some(NumberMatch::new(n, Kind::CreditCard, confidence));
    }
    best
}

/// A card number with the same space or hyphen between all its digits, or its pairs: a word for a card must be near, since
/// rows of a table look the same.
fn spaced_card(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let (size, sep) = (run.group_len(k), run.separator_after(k));
    if k > 0 || !matches!(size, 1 | 2) || !matches!(sep, b' ' | b'-') || !scan.wants(Kind::CreditCard) {
        return None;
    }
    let n = run.groups.len();
    let alike = (0..n).all(|g| run.group_len(g) == size) && run.seps.iter().all(|s| *s == sep);
    let digits = run.digits(scan.bytes, 0, n);
    let valid = alike && card_lengths(&digits).contains(&digits.len()) && check_digits::luhn(&digits);
    (valid && scan.has_topic_near(run.first, topic::CARD, 8, 0)).then(|| NumberMatch::new(n, Kind::CreditCard, 90))
}

/// The identity of a mobile phone: 15 digits with a check digit after its label, in one group or in those of its parts.
fn imei(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let grouped = run.has_shape(k, &[2, 6, 6, 1], b"- /") || run.has_shape(k, &[6, 2, 6, 1], b"- /");
    if !grouped && run.group_len(k) != 15 || !scan.wants(Kind::Imei) {
        return None;
    }
    let groups = if grouped { 4 } else { 1 };
    let valid = check_digits::luhn(&run.digits(scan.bytes, k, groups));
    let named = || scan.near_word(run.first + k, &["imei", "imeis", "imei1", "imei2"], 4, 2);
    (valid && named()).then(|| NumberMatch::new(groups, Kind::Imei, 90))
}

/// Whether a number of 13 digits is that of an article (EAN, ISBN) rather than of a card: its own check digit is valid,
/// and a word before it says so.
fn is_article_number(scan: &ScanState<'_>, run: &DigitRun, k: usize, digits: &[u8]) -> bool {
    let sum: u32 = digits.iter().enumerate().map(|(i, d)| u32::from(*d) * if i % 2 == 0 { 1 } else { 3 }).sum();
    sum.is_multiple_of(10) && scan.has_topic_near(run.first + k, topic::ORDER, 3, 0)
}

/// Whether the same number of adjacent groups is a card number too.
fn is_beside_card(scan: &ScanState<'_>, run: &DigitRun, k: usize, n: usize) -> bool {
    let card = |from: usize| from + n <= run.groups.len() && check_digits::luhn(&run.digits(scan.bytes, from, n));
    card(k + n) || k >= n && card(k - n)
}

/// The number of groups beside the `n` groups from `k` with the same length and separator.
fn similar_groups_after(run: &DigitRun, k: usize, n: usize) -> usize {
    let alike = |g: usize, sep: usize| {
        run.group_len(g) == run.group_len(k) && run.separator_after(sep) == run.separator_after(k)
    };
    let before = (0..k).rev().take_while(|g| alike(*g, *g)).count();
    before + (k + n..run.groups.len()).take_while(|g| alike(*g, *g - 1)).count()
}

/// One group, groups of four with a rest, or American Express's 4-6-5.
fn card_groups(run: &DigitRun, k: usize, n: usize, total: usize) -> bool {
    let lengths = || (k..k + n).map(|i| run.group_len(i));
    n == 1
        || lengths().take(n - 1).all(|l| l == 4) && lengths().next_back().is_some_and(|l| l <= 4)
        || total == 15 && n == 3 && lengths().eq([4, 6, 5])
        || total == 14 && n == 3 && lengths().eq([4, 6, 4])
        || total == 16 && n == 2 && lengths().eq([8, 8])
        || total == 19 && n == 2 && lengths().eq([6, 13])
}

/// A US social security number, or a taxpayer number of the same format.
fn ssn(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let dashed = run.has_shape(k, &[3, 2, 4], b"-n .") || run.has_wrapped_ssn_shape(k);
    let bare = run.group_len(k) == 9;
    let groups = if dashed { 3 } else { 1 };
    if !dashed && !bare || is_chained(run, k, groups) {
        return None;
    }
    let digits = run.digits(scan.bytes, k, groups);
    let number = |range: std::ops::Range<usize>| digits[range].iter().fold(0u32, |n, d| n * 10 + u32::from(*d));
    let (area, group, serial) = (number(0..3), number(3..5), number(5..9));
    let mut near = scan.has_topic_near(run.first + k, topic::SSN, 8, 5);
    if bare && near {
        // `SSN: …, license: 123456789`: the nearer word decides.
        let topics = scan.nearest_personal(run.first + k, 8);
        near = topics == 0 || topics & topic::SSN != 0;
    }
    // Areas from 900 on are not social security numbers but taxpayer numbers (ITIN), whose groups are limited.
    if area >= 900 {
        let itin = matches!(group, 50..=65 | 70..=88 | 90..=92 | 94..=99)
            && (dashed && !number_context::is_labelled_thing(scan, run, k) || near);
        return itin.then(|| NumberMatch::new(groups, Kind::Itin, if near { 95 } else { 80 }));
    }
    // What the administration never issues.
    let issued = area != 0 && area != 666 && group != 0 && serial != 0;
    let confidence = match (issued, dashed, near) {
        (true, true, true) => 98,
        (true, true, false) if number_context::is_labelled_thing(scan, run, k) => 45,
        (true, true, false) => match run.separator_after(k) {
            b'-' | b'n' => 88,
            _ => 45,
        },
        (true, false, true) => 85,
        (false, true, true) => 45,
        _ => return None,
    };
    Some(NumberMatch::new(groups, Kind::Ssn, confidence))
}

/// Whether more groups follow with the same separator, as in a table or a serial number; a second number of the same
/// format directly after it does not count.
fn is_chained(run: &DigitRun, k: usize, groups: usize) -> bool {
    groups > 1 && k + groups < run.groups.len() && {
        let sep = run.separator_after(k + groups - 1);
        sep == run.separator_after(k) && sep != b' ' && run.group_len(k + groups) != run.group_len(k)
    }
}

/// Numbers without a format of their own, identified only by words before them.
fn contextual_match(scan: &ScanState<'_>, run: &DigitRun, k: usize) -> Option<NumberMatch> {
    let at = run.first + k;
    let digits = run.group_len(k);
    if digits < 4 {
        // `My zip code is 880`: Iceland's and the Faroe Islands'.
        let labelled_code = digits == 3 && run.groups.len() == 1 && has_zip_label(scan, at);
        return labelled_code.then(|| NumberMatch::new(1, Kind::ZipCode, 70));
    }
    let topics = scan.topics_near(at, 4, 0);
    let labelled = scan.topics_near(at, 3, 0);
    if digits == 5 && labelled & topic::ZIP != 0 {
        let n = if run.separator_after(k) == b'-' && run.group_len(k + 1) == 4 { 2 } else { 1 };
        return Some(NumberMatch::new(n, Kind::ZipCode, 85));
    }
    if matches!(digits, 4 | 6) && labelled & topic::ZIP != 0 {
        return Some(NumberMatch::new(1, Kind::ZipCode, 70));
    }
    if run.groups.len() > k + 1 && matches!(run.separator_after(k), b'.' | b'/' | b':') {
        return None;
    }
    let word = |w: &[&str]| scan.near_word(at, w, 4, 0);
    let one = |kind, confidence| Some(NumberMatch::new(1, kind, confidence));
    match digits {
        7..=9 if topics & topic::PASSPORT != 0 => one(Kind::Passport, 80),
        5..=14
            if topics & topic::LICENCE != 0
                && word(&["license", "licence", "dl", "licences", "permit", "driver", "drivers"]) =>
        {
            one(Kind::DriversLicense, 75)
        }
        5..=12 if word(&["mrn", "medical"]) => one(Kind::MedicalRecord, 80),
        6..=17 if topics & topic::BANK != 0 && number_context::has_bank_account_label(scan, at) => {
            one(Kind::BankAccount, 70)
        }
        12 | 14 | 15 | 20 | 22 | 26 if topics & topic::TRACKING != 0 => one(Kind::TrackingNumber, 75),
        6..=14
            if topics & topic::NATIONAL_ID != 0
                && word(&["national", "identity", "identification", "citizen", "insurance", "voter"]) =>
        {
            one(Kind::NationalId, 65)
        }
        _ => None,
    }
}

/// Whether a word for a postal code directly precedes: `zip code is`, `postcode: `.
fn has_zip_label(scan: &ScanState<'_>, at: usize) -> bool {
    let zip =
        |back: usize| at.checked_sub(back).and_then(|p| scan.token(p)).is_some_and(|t| t.topics & topic::ZIP != 0);
    let gap = scan.gap_before(at);
    let is = gap == " " && scan.near_word(at, &["is"], 1, 0);
    is && (zip(2) || zip(3)) || gap == ": " && (zip(1) || zip(2))
}

/// Whether the token can be a house number.
pub(super) fn is_house_number(scan: &ScanState<'_>, token: &WordToken) -> bool {
    match token.shape {
        TokenShape::Digits => token.len() <= 5,
        // 12a, 14B
        TokenShape::Mixed => {
            let word = scan.word(token).as_bytes();
            matches!(word, [d @ .., l] if l.is_ascii_alphabetic() && !d.is_empty() && d.len() <= 4 && d.iter().all(u8::is_ascii_digit))
        }
        _ => false,
    }
}
