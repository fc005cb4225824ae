//! Numbers identified only by a preceding label: a plate, a membership number, a driving licence.
//!
//! These formats vary too much between countries, or are too plain, to be recognised by themselves. A label within
//! three or four words before the value is required, and the value's length must fit the label's kind.

use super::ScanState;
use crate::Kind::{self, *};
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};

/// The expected format of a label's value.
struct ValueLabel {
    kind: Kind,
    words: &'static [&'static str],
    /// Number of letters and digits, separators not counted.
    length: std::ops::RangeInclusive<usize>,
    /// Minimum number of digits among them, which excludes words after the label.
    digits: usize,
    /// Groups may be joined by spaces: `34 ABC 123`.
    spaced: bool,
}

const fn label(
    kind: Kind,
    words: &'static [&'static str],
    least: usize,
    most: usize,
    digits: usize,
    spaced: bool,
) -> ValueLabel {
    ValueLabel { kind, words, length: least..=most, digits, spaced }
}

/// In order of decreasing specificity: the first label that fits determines the kind.
static LABELS: &[ValueLabel] = &[
    label(
        Passport,
        &[
            "passport",
            "passports",
            "passeport",
            "reisepass",
            "pasaporte",
            "passaporto",
            "paspoort",
            "passnummer",
            "pasaport",
        ],
        6,
        9,
        1,
        false,
    ),
    label(
        LicensePlate,
        &[
            "plate",
            "plates",
            "kennzeichen",
            "plaka",
            "targa",
            "matricula",
            "matrícula",
            "immatriculation",
            "kenteken",
            "numberplate",
            "registration",
            "reg",
        ],
        5,
        9,
        1,
        true,
    ),
    label(
        DriversLicense,
        &[
            "license",
            "licence",
            "dl",
            "licences",
            "permit",
            "führerschein",
            "fuehrerschein",
            "führerscheinnummer",
            "fuehrerscheinnummer",
            "patente",
            "permis",
            "rijbewijs",
            "rijbewijsnummer",
            "körkort",
            "conducir",
            "driver",
            "drivers",
            "driving",
        ],
        5,
        18,
        4,
        false,
    ),
    label(
        SocialInsurance,
        &[
            "rentenversicherungsnummer",
            "sozialversicherungsnummer",
            "svnr",
            "rvnr",
            "sozialversicherung",
            "rentenversicherung",
        ],
        9,
        12,
        8,
        true,
    ),
    label(
        VatNumber,
        &["vat", "ust", "ustid", "ustidnr", "umsatzsteuer", "mwst", "btw", "tva", "moms", "uid"],
        8,
        14,
        6,
        false,
    ),
    label(
        CompanyNumber,
        &[
            "uen",
            "handelsregister",
            "hrb",
            "hra",
            "handelsregisternummer",
            "krs",
            "regon",
            "kvk",
            "cvr",
            "companies",
            "registernummer",
        ],
        5,
        14,
        4,
        false,
    ),
    label(TaxNumber, &["steuernummer", "utr", "tin", "sars", "steuernr", "taxpayer"], 8, 14, 8, false),
    label(
        HealthInsurance,
        &[
            "member",
            "subscriber",
            "claim",
            "prescription",
            "rx",
            "referral",
            "authorization",
            "kvnr",
            "lanr",
            "bsnr",
            "krankenversichertennummer",
            "versichertennummer",
            "medicaid",
            "policyholder",
            "beneficiary",
            "betriebsstättennummer",
            "arztnummer",
            "krankenversicherung",
        ],
        6,
        18,
        5,
        false,
    ),
    label(MedicalRecord, &["mrn", "medical"], 5, 14, 4, false),
    label(TrackingNumber, &["tracking", "track", "parcel", "package", "shipment"], 8, 26, 4, false),
    label(
        NationalId,
        &[
            "personalausweis",
            "ausweis",
            "ausweisnummer",
            "identity",
            "national",
            "identità",
            "identita",
            "nin",
            "umid",
            "frn",
            "cedula",
            "cédula",
            "dui",
            "kimlik",
            "aima",
            "identification",
            "alien",
            "nationalid",
            "carte",
            "dowód",
            "dowod",
            "traffic",
        ],
        6,
        14,
        4,
        false,
    ),
];

/// Topics of which one must be near before the labels are compared.
const LABEL_TOPICS: u32 = topic::PASSPORT
    | topic::LICENCE
    | topic::PLATE
    | topic::TAX
    | topic::HEALTH
    | topic::NATIONAL_ID
    | topic::TRACKING
    | topic::VEHICLE;

/// The value at token `i` if a label precedes it; returns the next token to examine.
pub(super) fn detect_labeled(scan: &mut ScanState<'_>, i: usize) -> Option<usize> {
    let token = *scan.token(i)?;
    // The topics of the words around are known already, so most numbers are refused before any label is compared.
    if scan.topics_near(i, 5, 0) & LABEL_TOPICS == 0 || !is_standalone(scan, i, &token) {
        return None;
    }
    for label in LABELS.iter().filter(|l| scan.wants(l.kind)) {
        if !scan.near_word(i, label.words, if label.spaced { 3 } else { 4 }, 0) {
            continue;
        }
        let Some(last) = value_end(scan, i, label) else { continue };
        let end = scan.list().get(last)?.end();
        scan.push(label.kind, token.start(), end, 75);
        return Some(last + 1);
    }
    None
}

/// Whether the value is separate, not part of a path, a name or a longer chain.
fn is_standalone(scan: &ScanState<'_>, i: usize, token: &WordToken) -> bool {
    let before = scan.byte_before(token.start());
    let chained = matches!(before, b'-' | b'.' | b'/') && i > 0 && scan.gap_before(i).len() == 1;
    !chained
        && !matches!(before, b'_' | b'\\' | b'$' | b'@')
        && !matches!(scan.byte_at(token.end()), b'_' | b'@' | b'(')
}

/// The last token of the value, which may consist of several groups.
fn value_end(scan: &ScanState<'_>, i: usize, label: &ValueLabel) -> Option<usize> {
    let list = scan.list();
    let (mut letters, mut digits, mut best) = (0, 0, None);
    for (at, token) in list.iter().enumerate().skip(i).take(5) {
        let fits = match token.shape {
            TokenShape::Digits => true,
            // Lower case only for a single word: `a5631933`.
            TokenShape::Mixed => {
                let digits = || scan.word(token).bytes().filter(u8::is_ascii_digit).count();
                // `package libpng16-16`: tracking numbers have capitals.
                let small = !label.spaced
                    && label.kind != TrackingNumber
                    && token.len() >= 6
                    && (label.kind != Passport || digits() >= 5);
                scan.word(token)
                    .bytes()
                    .all(|b| b.is_ascii_digit() || b.is_ascii_uppercase() || small && b.is_ascii_lowercase())
            }
            TokenShape::Upper => token.len() <= 4,
            _ => false,
        };
        let gap = if at > i { scan.gap(at - 1) } else { "" };
        let joined = matches!(gap, "" | "-" | "/" | ".") || label.spaced && gap == " ";
        if !fits || !joined {
            break;
        }
        let count = scan.word(token).bytes().filter(u8::is_ascii_digit).count();
        digits += count;
        letters += token.len() - count;
        // The longest value that fits is taken; shorter ones are its beginning.
        if label.length.contains(&(digits + letters)) && digits >= label.digits {
            best = Some(at);
        }
    }
    // Except in a few countries, a plate contains letters.
    best.filter(|last| {
        let chained = matches!(scan.gap(*last), "-" | "/") && list.get(last + 1).is_some_and(WordToken::is_digits);
        // `License: GPLv3+ … 2017-2020`, `12.20.0`: software licences.
        let software = label.kind == DriversLicense
            && list[i..=*last].iter().all(WordToken::is_digits)
            && ((i..*last).any(|g| scan.gap(g) == ".")
                || list[i..=*last].iter().all(|t| t.len() == 4) && *last == i + 1);
        !chained && !software && (label.kind != Kind::LicensePlate || letters > 0) && (*last > i || !list[i].is_word())
    })
}

/// A plate that begins with letters: `B-AB 1234`, `ABC-123DE`.
#[inline]
pub(super) fn license_plate(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).filter(|t| t.shape == TokenShape::Upper && t.len() <= 3) else { return };
    let next = scan.token(i + 1).is_some_and(|t| !t.is_word() || t.shape == TokenShape::Upper && t.len() <= 3);
    if next
        && token.flags() & crate::lexicon::mark::STOP == 0
        && matches!(scan.gap(i), "-" | " " | " - ")
        && scan.topics_near(i, 4, 0) & (topic::PLATE | topic::VEHICLE) != 0
    {
        detect_labeled(scan, i);
    }
}
