//! Formats of identifiers with letters and digits, most of them national: a table of patterns, checks and cues.

use super::{ScanState, national_ids};
use crate::Kind;
use crate::detect::check_digits::{self, any};
use crate::lexicon::topic;

/// One format. The first row that fits decides.
struct IdFormat(
    Kind,
    /// Patterns: `L` for a letter, `D` for a digit, `?` for either.
    &'static [&'static str],
    /// Check digits, letters of a register, plausible dates: of the identifier in capitals.
    fn(&[u8]) -> bool,
    IdCue,
    /// Confidence with the cue.
    u8,
    /// Confidence without it; 0 is not reported.
    u8,
);

/// What is expected near an identifier for its higher confidence.
enum IdCue {
    /// Nothing: the format and the check are enough.
    None,
    /// One of these words, in any case.
    Words(&'static [&'static str]),
    /// One of these topics of the lexicon.
    Topic(u32),
    /// One of these topics, within a few words.
    CloseTopic(u32),
}

impl IdCue {
    fn is_near(&self, scan: &ScanState<'_>, i: usize) -> bool {
        match self {
            Self::None => true,
            Self::Words(words) => scan.near_word(i, words, 6, 3),
            Self::Topic(topics) => scan.has_topic_near(i, *topics, 6, 3),
            Self::CloseTopic(topics) => scan.has_topic_near(i, *topics, 4, 2),
        }
    }
}

use IdCue::{CloseTopic, None as NoCue, Topic, Words};

#[rustfmt::skip]
const FORMATS: &[IdFormat] = &[
    IdFormat(Kind::CodiceFiscale, &["LLLLLLDDLDDLDDDL"], codice_fiscale, NoCue, 95, 95),
    IdFormat(Kind::Curp, &["LLLLDDDDDDLLLLLL?D"], |id| matches!(id[10], b'H' | b'M' | b'X'), NoCue, 92, 92),
    IdFormat(Kind::Rfc, RFC_PATTERNS, any, Words(&["rfc"]), 90, 0),
    IdFormat(Kind::Nir, &["DDDDDDLDDDDDDDD"], check_digits::nir, NoCue, 90, 90),
    IdFormat(Kind::Dni, &["DDDDDDDDL"], check_digits::mod23_letter, Words(&["dni", "nif"]), 95, 70),
    IdFormat(Kind::Nie, &["LDDDDDDDL"], check_digits::mod23_letter, NoCue, 85, 85),
    IdFormat(Kind::Nric, &["LDDDDDDDL"], nric, NoCue, 85, 85),
    IdFormat(Kind::Nino, &["LLDDDDDDL"], nino, Words(&["insurance", "nino", "ni", "national"]), 95, 70),
    IdFormat(Kind::InPan, &["LLLLLDDDDL"], indian_pan, Words(&["pan", "tax"]), 95, 65),
    IdFormat(Kind::Gstin, &["DDLLLLLDDDDL???"], |id| id[13] == b'Z', NoCue, 90, 90),
    IdFormat(Kind::Gstin, &["DDLLLLLDDDDL???"], any, Words(&["gst", "gstin"]), 90, 0),
    IdFormat(Kind::Personalausweis, &["?????????", "??????????"], check_digits::german_id_card,
        Words(&["personalausweis", "ausweis", "ausweisnummer", "ausweisnr"]), 90, 0),
    IdFormat(Kind::HealthInsurance, &["LDDDDDDDDD"], german_health_card, Topic(topic::HEALTH), 92, 60),
    IdFormat(Kind::SocialInsurance, &["DDDDDDDDLDDD"], german_pension_number, NoCue, 85, 85),
    IdFormat(Kind::DriversLicense, &["?????DDDDDD???LL"], british_driving_licence, NoCue, 85, 85),
    IdFormat(Kind::LicensePlate, &["LLDDLLDDDD", "LLDDLDDDD"], indian_plate, Topic(topic::PLATE | topic::VEHICLE), 90, 60),
    IdFormat(Kind::InVoter, &["LLLDDDDDDD"], any, Words(&["voter", "epic"]), 85, 0),
    IdFormat(Kind::Pps, &["DDDDDDDL", "DDDDDDDLL"], pps, Words(&["pps", "ppsn"]), 95, 45),
    IdFormat(Kind::Dea, &["LLDDDDDDD"], dea, Words(&["dea", "prescriber", "license", "registration"]), 95, 60),
    IdFormat(Kind::CnId, &["DDDDDDDDDDDDDDDDDL"], |id| id[17] == b'X' && cn_id(id), NoCue, 85, 85),
    IdFormat(Kind::Hetu, &["DDDDDDLDDDL", "DDDDDDLDDDD"], hetu, NoCue, 80, 80),
    IdFormat(Kind::Mbi, &["???????????"], mbi, Topic(topic::HEALTH), 92, 55),
    IdFormat(Kind::Vin, &["?????????????????"], vin, Topic(topic::VEHICLE), 97, 80),
    // Only North America requires the check digit; elsewhere the words around decide.
    IdFormat(Kind::Vin, &["?????????????????"], |id| !id.iter().any(|b| matches!(b, b'I' | b'O' | b'Q')),
        CloseTopic(topic::VEHICLE), 65, 0),
    IdFormat(Kind::Bic, &["LLLLLL??", "LLLLLL?????"], any, Words(&["bic", "swift"]), 85, 0),
    IdFormat(Kind::TrackingNumber, &["D?????????????????"], |id| id.starts_with(b"1Z"), NoCue, 90, 90),
    IdFormat(Kind::TrackingNumber, &["LLDDDDDDDDDLL"], any, NoCue, 70, 70),
];

/// Mexico: three letters for companies, four for persons, a date, and the characters that occur at the end.
const RFC_PATTERNS: &[&str] = &[
    "LLLLDDDDDDLLL",
    "LLLLDDDDDDLLD",
    "LLLLDDDDDDLDD",
    "LLLLDDDDDDDLD",
    "LLLLDDDDDDDDD",
    "LLLDDDDDDLLL",
    "LLLDDDDDDLLD",
];

/// The kind of the identifier at token `i`, in capitals, and the confidence.
pub(super) fn identify(scan: &ScanState<'_>, i: usize, upper: &[u8]) -> Option<(Kind, u8)> {
    let word = scan.list().get(i).map_or("", |t| scan.word(t));
    // `0x3877713c173f8f2`, `git9fa8646d`: a number of a program, and the name of a version.
    if word.starts_with("0x") || word.starts_with("git") && word[3..].bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    FORMATS
        .iter()
        .filter(|IdFormat(_, patterns, check, ..)| patterns.iter().any(|p| has_pattern(upper, p)) && check(upper))
        .map(|IdFormat(kind, _, _, cue, high, low)| (*kind, if cue.is_near(scan, i) { *high } else { *low }))
        .find(|(_, confidence)| *confidence > 0)
}

/// Whether letters and digits are where the pattern has `L` and `D`; `?` is either.
pub(super) fn has_pattern(text: &[u8], pattern: &str) -> bool {
    let fits = |(b, p): (&u8, u8)| p == b'?' || b.is_ascii_digit() == (p == b'D');
    text.len() == pattern.len() && text.iter().zip(pattern.bytes()).all(fits)
}

pub(super) fn digits(text: &[u8]) -> Vec<u8> {
    text.iter().filter(|b| b.is_ascii_digit()).map(|b| b - b'0').collect()
}

/// Singapore: a weighted sum selects a letter of a list that depends on the first letter.
fn nric(upper: &[u8]) -> bool {
    let sum = check_digits::weighted(&digits(&upper[1..8]), &[2, 7, 6, 5, 4, 3, 2]) as usize;
    let (letters, shift): (&[u8], usize) = match upper[0] {
        b'S' => (b"JZIHGFEDCBA", 0),
        b'T' => (b"JZIHGFEDCBA", 4),
        b'F' => (b"XWUTRQPNMLK", 0),
        b'G' => (b"XWUTRQPNMLK", 4),
        b'M' => (b"KLJNPQRTUWX", 3),
        _ => return false,
    };
    letters[(sum + shift) % 11] == upper[8]
}

/// The format of British national insurance numbers, without those that are never issued.
pub(super) fn nino(upper: &[u8]) -> bool {
    // What is never issued, so that product codes of the same form are left alone.
    let bad = |b: u8| matches!(b, b'D' | b'F' | b'I' | b'Q' | b'U' | b'V');
    let prefix = &upper[..2];
    !bad(upper[0])
        && !bad(upper[1])
        && upper[1] != b'O'
        && ![b"BG", b"GB", b"NK", b"KN", b"TN", b"NT", b"ZZ"].iter().any(|p| *p == prefix)
        && matches!(upper[8], b'A'..=b'D')
}

/// Ireland: a weighted sum modulo 23 selects the check letter.
fn pps(upper: &[u8]) -> bool {
    let second = upper.get(8).map_or(0, |b| u32::from(b.saturating_sub(b'A')) + 1);
    // The second letter counts times nine; W as second letter, like its absence, counts nothing.
    let second = if upper.get(8) == Some(&b'W') { 0 } else { second };
    let sum = check_digits::weighted(&digits(&upper[..7]), &[8, 7, 6, 5, 4, 3, 2]) + second * 9;
    upper[7] == b"WABCDEFGHIJKLMNOPQRSTUV"[(sum % 23) as usize]
}

/// The DEA's check digit, and the letters of its registrant types.
fn dea(upper: &[u8]) -> bool {
    let d = digits(&upper[2..]);
    let sum = u32::from(d[0] + d[2] + d[4]) + 2 * u32::from(d[1] + d[3] + d[5]);
    matches!(upper[0], b'A'..=b'H' | b'J'..=b'M' | b'P' | b'R'..=b'U' | b'X') && sum % 10 == u32::from(d[6])
}

/// German health insurance number: a letter as two digits, then nine with weights 1 and 2.
fn german_health_card(upper: &[u8]) -> bool {
    let letter = u32::from(upper[0] - b'A') + 1;
    let body = [letter / 10, letter % 10].into_iter().chain(upper[1..9].iter().map(|b| u32::from(b - b'0')));
    let sum: u32 = body.zip([1, 2].into_iter().cycle()).map(|(d, w)| (d * w) / 10 + (d * w) % 10).sum();
    sum % 10 == u32::from(upper[9] - b'0')
}

/// German pension insurance number: area, birth date, initial, serial, check digit.
fn german_pension_number(upper: &[u8]) -> bool {
    let letter = u32::from(upper[8].wrapping_sub(b'A')) + 1;
    let d = |i: usize| u32::from(upper[i].wrapping_sub(b'0'));
    let body = (0..8).map(d).chain([letter / 10, letter % 10, d(9), d(10)]);
    let sum: u32 = body.zip([2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1]).map(|(d, w)| (d * w) / 10 + (d * w) % 10).sum();
    (1..=31).contains(&((d(2) * 10 + d(3)) % 50)) && (1..=12).contains(&(d(4) * 10 + d(5))) && sum % 10 == d(11)
}

/// British driving licence: five letters of the name, the permuted birth date, initials.
fn british_driving_licence(upper: &[u8]) -> bool {
    let named = upper[..5].iter().all(|b| b.is_ascii_uppercase() || *b == b'9') && upper[0].is_ascii_uppercase();
    let number = |i: usize| u32::from(upper[i].wrapping_sub(b'0')) * 10 + u32::from(upper[i + 1].wrapping_sub(b'0'));
    // Of women, the month has 50 added.
    named && (1..=12).contains(&(number(6) % 50)) && (1..=31).contains(&number(8))
}

/// Indian plates begin with the state's letters.
fn indian_plate(upper: &[u8]) -> bool {
    const STATES: &[&[u8; 2]] = &[
        b"AN", b"AP", b"AR", b"AS", b"BR", b"CG", b"CH", b"DD", b"DL", b"DN", b"GA", b"GJ", b"HP", b"HR", b"JH", b"JK",
        b"KA", b"KL", b"LA", b"LD", b"MH", b"ML", b"MN", b"MP", b"MZ", b"NL", b"OD", b"OR", b"PB", b"PY", b"RJ", b"SK",
        b"TN", b"TR", b"TS", b"UK", b"UP", b"WB",
    ];
    STATES.iter().any(|s| upper.starts_with(*s))
}

/// China: the check character `X`, and a birth year in the last two centuries.
fn cn_id(upper: &[u8]) -> bool {
    national_ids::cn_check(&digits(&upper[..17])) == 10 && matches!(&upper[6..8], b"19" | b"20")
}

/// Finland: birth date, century sign, three digits and a check character.
pub(super) fn hetu(upper: &[u8]) -> bool {
    let Some((head, tail)) = upper.split_at_checked(6) else { return false };
    let [mark, serial @ .., check] = tail else { return false };
    let number: Option<u64> =
        [head, serial].concat().iter().try_fold(0u64, |n, b| b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0')));
    let day = digits(head).chunks(2).map(|c| c.iter().fold(0, |n, d| n * 10 + u32::from(*d))).collect::<Vec<_>>();
    serial.len() == 3
        && matches!(mark, b'+' | b'-' | b'A'..=b'F' | b'U'..=b'Y')
        && matches!(day.as_slice(), [1..=31, 1..=12, _])
        && number.is_some_and(|n| b"0123456789ABCDEFHJKLMNPRSTUVWXY"[(n % 31) as usize] == *check)
}

/// US Medicare: eleven positions with fixed character classes.
pub(super) fn mbi(upper: &[u8]) -> bool {
    // Letters that look like digits are not used.
    let letter = |b: u8| b.is_ascii_uppercase() && !matches!(b, b'S' | b'L' | b'O' | b'I' | b'B' | b'Z');
    let fits = |(b, class): (&u8, &u8)| match class {
        b'L' => letter(*b),
        b'D' => b.is_ascii_digit(),
        _ => letter(*b) || b.is_ascii_digit(),
    };
    upper.len() == 11 && upper[0] != b'0' && upper.iter().zip(b"DL?DL?DLLDD").all(fits)
}

/// Italy: the check letter over fifteen characters.
fn codice_fiscale(upper: &[u8]) -> bool {
    // At odd positions, by this table; digits have the values of the letters A to J.
    const ODD: [u32; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    let value = |b: u8| u32::from(if b.is_ascii_digit() { b - b'0' } else { b - b'A' });
    let sum: u32 = upper[..15]
        .iter()
        .enumerate()
        .map(|(i, b)| if i % 2 == 0 { ODD[value(*b) as usize % 26] } else { value(*b) })
        .sum();
    upper[15] == b'A' + (sum % 26) as u8
}

/// India: the fourth letter is the kind of holder.
fn indian_pan(upper: &[u8]) -> bool {
    matches!(upper[3], b'A' | b'B' | b'C' | b'F' | b'G' | b'H' | b'J' | b'L' | b'P' | b'T')
}

fn vin(upper: &[u8]) -> bool {
    check_digits::vin(upper) && upper.iter().filter(|b| b.is_ascii_digit()).count() >= 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_reached_and_reports_something() {
        for IdFormat(kind, _, _, cue, high, low) in FORMATS {
            assert!(high >= low && *high > 0, "{kind}");
            let certain = matches!(cue, IdCue::None);
            assert_eq!(certain, high == low, "{kind}: a cue that changes nothing");
        }
    }

    #[test]
    fn a_pattern_covers_the_whole_text() {
        for (text, pattern, fits) in
            [("AB12", "LLDD", true), ("AB12", "LL??", true), ("AB1", "LLDD", false), ("A112", "LLDD", false)]
        {
            assert_eq!(has_pattern(text.as_bytes(), pattern), fits, "{text} {pattern}");
        }
    }
}
