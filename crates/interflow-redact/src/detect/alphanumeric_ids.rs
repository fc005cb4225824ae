//! Alphanumeric identifiers: IBANs, VINs, cryptocurrency addresses and national ids with letters.

use super::{ScanState, labeled_values, national_ids, net};
use crate::lexicon::topic;
use crate::token::{TokenShape, WordToken};
use crate::{Kind, check_digits};

/// Examines a mixed token at `i`; returns the next token to examine.
pub(super) fn detect_token(scan: &mut ScanState<'_>, i: usize) -> usize {
    let Some(token) = scan.token(i).copied() else { return i + 1 };
    let word = scan.word(&token).as_bytes();
    // These may extend over several tokens, in any grouping, and are examined before single tokens.
    if let Some(next) = mac(scan, i, &token).or_else(|| iban(scan, i, &token)) {
        return next;
    }
    if is_glued(scan, &token) {
        return i + 1;
    }
    match word.len() {
        2..=5 => {
            let upper = word.to_ascii_uppercase();
            if dotted(scan, i, &token, &upper) {
                return i + 1;
            }
            if let Some(next) = hyphened_mbi(scan, i, &token).or_else(|| labeled_values::detect_labeled(scan, i)) {
                return next;
            }
            postcode(scan, i, &token);
        }
        6..=26 => {
            let upper = word.to_ascii_uppercase();
            if !national_id(scan, i, &token, &upper)
                && let Some(next) = labeled_values::detect_labeled(scan, i)
            {
                return next;
            }
        }
        _ => {}
    }
    if word.len() >= 26 {
        crypto_address(scan, i, &token);
    }
    i + 1
}

/// A word without digits that may still be one of these: hexadecimal pairs, cryptocurrency addresses.
pub(super) fn detect_word(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).copied() else { return };
    match token.len() {
        1 if scan.gap_before(i) == "-" => {
            if matches!(scan.word(&token), "K" | "k") {
                rut(scan, i, &token);
            }
            hyphened_dni(scan, i, &token);
        }
        2 if token.shape == TokenShape::Upper && scan.gap(i) == " " && spaced_nino(scan, i, &token) => {}
        1..=3 if token.shape == TokenShape::Upper && mac(scan, i, &token).is_none() => {
            labeled_values::license_plate(scan, i)
        }
        2 if scan.byte_at(token.end()) == b'-' => {
            mac(scan, i, &token);
        }
        8 | 11 if token.shape == TokenShape::Upper => bic(scan, i, &token),
        26..=90 => crypto_address(scan, i, &token),
        _ => {}
    }
}

fn is_glued(scan: &ScanState<'_>, token: &WordToken) -> bool {
    matches!(scan.byte_before(token.start()), b'_' | b'/' | b'\\') || matches!(scan.byte_at(token.end()), b'_')
}

/// `12345678-Z`: the Spanish DNI with its letter after a hyphen.
fn hyphened_dni(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    let Some(before) = i.checked_sub(1).and_then(|p| scan.token(p)).filter(|t| t.is_digits() && t.len() == 8) else {
        return;
    };
    let number = scan.word(before).bytes().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'));
    if scan.word(token).as_bytes() == [dni_letter(number)] {
        scan.push(Kind::Dni, before.start(), token.end(), 85);
    }
}

/// `AA 12 34 56 B`: the British national insurance number in groups.
fn spaced_nino(scan: &mut ScanState<'_>, i: usize, token: &WordToken) -> bool {
    let Some([a, b, c, d]) = scan.list().get(i + 1..i + 5) else { return false };
    let pairs = [a, b, c].iter().all(|t| t.is_digits() && t.len() == 2) && d.len() == 1;
    let spaced = pairs && (i..i + 4).all(|n| scan.gap(n) == " ");
    let all = [token, a, b, c, d].map(|t| scan.word(t)).concat();
    let end = d.end();
    let right = spaced && nino(all.as_bytes());
    if right {
        scan.push(Kind::Nino, token.start(), end, 90);
    }
    right
}

/// The US Medicare number as printed on the card: `1EG4-TE5-MK73`.
fn hyphened_mbi(scan: &mut ScanState<'_>, i: usize, token: &WordToken) -> Option<usize> {
    let (b, c) = (*scan.token(i + 1)?, *scan.token(i + 2)?);
    if [token.len(), b.len(), c.len()] != [4, 3, 4] || scan.gap(i) != "-" || scan.gap(i + 1) != "-" {
        return None;
    }
    let all = [scan.word(token), scan.word(&b), scan.word(&c)].concat();
    mbi(all.as_bytes()).then(|| {
        scan.push(Kind::Mbi, token.start(), c.end(), 85);
        i + 3
    })
}

/// A hardware address that begins with two digits and a hyphen.
#[inline]
pub(super) fn hyphened_mac(scan: &mut ScanState<'_>, i: usize) -> Option<usize> {
    let token = *scan.token(i)?;
    if token.len() != 2 || scan.byte_at(token.end()) != b'-' {
        return None;
    }
    mac(scan, i, &token)
}

fn mac(scan: &mut ScanState<'_>, i: usize, token: &WordToken) -> Option<usize> {
    let dashed = token.len() == 2 && scan.byte_at(token.end()) == b'-' && scan.byte_before(token.start()) != b'-';
    let text = scan.bytes.get(token.start()..token.start() + 17).filter(|_| dashed)?;
    let end = token.start() + 17;
    let alone = !scan.byte_at(end).is_ascii_alphanumeric() && scan.byte_at(end) != b'-';
    (net::is_mac(text) && alone).then(|| {
        scan.push(Kind::MacAddress, token.start(), end, 85);
        i + 6
    })
}

/// IBAN length by country (ISO 13616 registry).
fn iban_length(country: &[u8]) -> Option<usize> {
    Some(match country {
        b"NO" => 15,
        b"BE" => 16,
        b"DK" | b"FI" | b"FO" | b"GL" | b"NL" | b"SD" | b"FK" => 18,
        b"MK" | b"SI" => 19,
        b"AT" | b"BA" | b"EE" | b"KZ" | b"LT" | b"LU" | b"MN" | b"XK" => 20,
        b"CH" | b"HR" | b"LI" | b"LV" => 21,
        b"BG" | b"BH" | b"CR" | b"DE" | b"GB" | b"GE" | b"IE" | b"ME" | b"RS" | b"VA" => 22,
        b"AE" | b"GI" | b"IL" | b"IQ" | b"TL" | b"OM" | b"SO" => 23,
        b"AD" | b"CZ" | b"ES" | b"MD" | b"PK" | b"RO" | b"SA" | b"SE" | b"SK" | b"TN" | b"VG" => 24,
        b"LY" | b"PT" | b"ST" => 25,
        b"IS" | b"TR" => 26,
        b"BI" | b"DJ" | b"FR" | b"GR" | b"IT" | b"MC" | b"MR" | b"SM" => 27,
        b"AL" | b"AZ" | b"BY" | b"CY" | b"DO" | b"GT" | b"HU" | b"LB" | b"NI" | b"PL" | b"SV" => 28,
        b"BR" | b"EG" | b"PS" | b"QA" | b"UA" => 29,
        b"JO" | b"KW" | b"MU" | b"YE" => 30,
        b"MT" | b"SC" => 31,
        b"LC" => 32,
        b"RU" => 33,
        _ => return None,
    })
}

fn iban(scan: &mut ScanState<'_>, i: usize, token: &WordToken) -> Option<usize> {
    let word = scan.word(token).as_bytes();
    let country = word.get(..2)?.to_ascii_uppercase();
    if !word.get(2..4)?.iter().all(u8::is_ascii_digit) || is_glued(scan, token) {
        return None;
    }
    let wanted = iban_length(&country)?;
    let mut compact = Vec::with_capacity(wanted);
    let mut at = i;
    let mut end = token.end();
    loop {
        let part = scan.token(at)?;
        compact.extend(scan.word(part).bytes().map(|b| b.to_ascii_uppercase()));
        end = end.max(part.end());
        if compact.len() >= wanted || !matches!(scan.gap(at), " " | "-") || scan.token(at + 1)?.len() > 8 {
            break;
        }
        at += 1;
    }
    if compact.len() != wanted {
        return None;
    }
    let (head, tail) = compact.split_at_checked(4)?;
    // ISO 13616: country and check digits are moved to the end, and the number modulo 97 is 1.
    let valid = check_digits::mod97(tail.iter().chain(head).copied()) == Some(1);
    let near = scan.near_word(i, &["iban", "account", "konto", "bank", "transfer", "wire"], 6, 3);
    let confidence = match (valid, near) {
        (true, true) => 98,
        (true, false) => 92,
        // A label makes up for a wrong check digit, as in examples or after a typing error, at a lower confidence.
        (false, true) if !scan.wants.valid_ibans_only || scan.near_word(i, &["iban"], 4, 2) => 65,
        _ => return None,
    };
    scan.push(Kind::Iban, token.start(), end, confidence);
    Some(at + 1)
}

/// National ids whose format and check character are sufficient evidence. Returns whether one was found.
fn national_id(scan: &mut ScanState<'_>, i: usize, token: &WordToken, upper: &[u8]) -> bool {
    let near = |words: &[&str]| scan.near_word(i, words, 6, 3);
    let digit_value = |d: &[u8]| d.iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'));
    let hit = match (letter_digit_pattern(upper).as_str(), upper.len()) {
        ("LLLLLLDDLDDLDDDL", _) if codice_fiscale(upper) => Some((Kind::CodiceFiscale, 95)),
        ("LLLLDDDDDDLLLLLLDD" | "LLLLDDDDDDLLLLLLLD", _) if matches!(upper[10], b'H' | b'M' | b'X') => {
            Some((Kind::Curp, 92))
        }
        (
            "LLLLDDDDDDLLL" | "LLLLDDDDDDLLD" | "LLLLDDDDDDLDD" | "LLLLDDDDDDDLD" | "LLLLDDDDDDDDD" | "LLLDDDDDDLLL"
            | "LLLDDDDDDLLD",
            _,
        ) if near(&["rfc"]) => Some((Kind::Rfc, 90)),
        ("DDDDDDDDL", _) if upper[8] == dni_letter(digit_value(&upper[..8])) => {
            Some((Kind::Dni, if near(&["dni", "nif"]) { 95 } else { 70 }))
        }
        ("LDDDDDDDL", _) if nie(upper) => Some((Kind::Nie, 85)),
        ("LDDDDDDDL", _) if nric(upper) => Some((Kind::Nric, 85)),
        ("LLDDDDDDL", _) if nino(upper) => {
            Some((Kind::Nino, if near(&["insurance", "nino", "ni", "national"]) { 95 } else { 70 }))
        }
        ("LLLLLDDDDL", _)
            if matches!(upper[3], b'A' | b'B' | b'C' | b'F' | b'G' | b'H' | b'J' | b'L' | b'P' | b'T') =>
        {
            Some((Kind::InPan, if near(&["pan", "tax"]) { 95 } else { 65 }))
        }
        (p, 15) if p.starts_with("DDLLLLLDDDDLD") || p.starts_with("DDLLLLLDDDDLL") => {
            (upper[13] == b'Z' || near(&["gst", "gstin"])).then_some((Kind::Gstin, 90))
        }
        (_, 9 | 10)
            if near(&["personalausweis", "ausweis", "ausweisnummer", "ausweisnr"])
                && check_digits::german_id_card(upper) =>
        {
            Some((Kind::Personalausweis, 90))
        }
        ("LDDDDDDDDD", _) if german_health_card(upper) => {
            Some((Kind::HealthInsurance, if scan.has_topic_near(i, topic::HEALTH, 6, 3) { 92 } else { 60 }))
        }
        ("DDDDDDDDLDDD", _) if german_pension_number(upper) => Some((Kind::SocialInsurance, 85)),
        (p, 16) if british_driving_licence(p, upper) => Some((Kind::DriversLicense, 85)),
        ("LLDDLLDDDD" | "LLDDLDDDD", _) if indian_plate(upper) => Some((
            Kind::LicensePlate,
            if scan.has_topic_near(i, topic::PLATE | topic::VEHICLE, 6, 3) { 90 } else { 60 },
        )),
        ("LLLDDDDDDD", _) if near(&["voter", "epic"]) => Some((Kind::InVoter, 85)),
        ("DDDDDDDL" | "DDDDDDDLL", _) if pps(upper) => Some((Kind::Pps, if near(&["pps", "ppsn"]) { 95 } else { 45 })),
        ("LLDDDDDDD", _) if dea(upper) => {
            Some((Kind::Dea, if near(&["dea", "prescriber", "license", "registration"]) { 95 } else { 60 }))
        }
        ("DDDDDDDDDDDDDDDDDL", _) if upper[17] == b'X' && cn_id(upper) => Some((Kind::CnId, 85)),
        ("DDDDDDLDDDL" | "DDDDDDLDDDD", _) if hetu(upper) => Some((Kind::Hetu, 80)),
        (_, 11) if mbi(upper) => Some((Kind::Mbi, if scan.has_topic_near(i, topic::HEALTH, 6, 3) { 92 } else { 55 })),
        (_, 17) if check_digits::vin(upper) && upper.iter().filter(|b| b.is_ascii_digit()).count() >= 5 => {
            Some((Kind::Vin, if scan.has_topic_near(i, topic::VEHICLE, 6, 3) { 97 } else { 80 }))
        }
        (_, 17)
            // Only North America requires the check digit; elsewhere the words around decide.
            if scan.has_topic_near(i, topic::VEHICLE, 4, 2)
                && !upper.iter().any(|b| matches!(b, b'I' | b'O' | b'Q')) =>
        {
            Some((Kind::Vin, 65))
        }
        (p, 8 | 11) if p.starts_with("LLLLLL") && near(&["bic", "swift"]) => Some((Kind::Bic, 85)),
        (_, 18) if upper.starts_with(b"1Z") => Some((Kind::TrackingNumber, 90)),
        ("LLDDDDDDDDDLL", _) => Some((Kind::TrackingNumber, 70)),
        _ => None,
    };
    let Some((kind, confidence)) = hit.filter(|(k, _)| scan.wants(*k)) else { return dotted(scan, i, token, upper) };
    scan.push(kind, token.start(), token.end(), confidence);
    true
}

/// Numbers with separators: Chile's `12.345.678-K` and Finland's `131052-308T`, detected from their end.
fn dotted(scan: &mut ScanState<'_>, i: usize, token: &WordToken, upper: &[u8]) -> bool {
    let Some(before) = i.checked_sub(1).and_then(|p| scan.token(p)).copied() else { return false };
    let joined = before.is_digits() && before.len() == 6 && matches!(scan.gap_before(i), "-" | "+");
    if joined && matches!(letter_digit_pattern(upper).as_str(), "DDDL" | "DDDD") {
        let all = [scan.word(&before).as_bytes(), b"-", upper].concat();
        if hetu(&all) {
            scan.push(Kind::Hetu, before.start(), token.end(), 85);
            return true;
        }
    }
    false
}

/// British and Canadian postcodes, in two halves.
fn postcode(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    if !scan.wants(Kind::ZipCode) || token.shape != TokenShape::Mixed || !matches!(scan.gap(i), " ") {
        return;
    }
    let Some(next) = scan.token(i + 1).filter(|t| t.len() == 3).copied() else { return };
    let (a, b) = (scan.word(token).as_bytes(), scan.word(&next).as_bytes());
    let canadian = letter_digit_pattern(a) == "LDL" && letter_digit_pattern(b) == "DLD";
    let british = matches!(letter_digit_pattern(a).as_str(), "LD" | "LDD" | "LLD" | "LLDD" | "LDL" | "LLDL")
        && letter_digit_pattern(b) == "DLL";
    let upper = a.iter().chain(b).all(|b| !b.is_ascii_lowercase());
    if (canadian || british) && upper {
        scan.push(Kind::ZipCode, token.start(), next.end(), 80);
    }
}

/// `12.345.678-K`: the digits before the letter.
fn rut(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    let mut first = i;
    while first > 0
        && i - first < 3
        && scan.list()[first - 1].is_digits()
        && matches!(scan.gap_before(first), "-" | ".")
    {
        first -= 1;
    }
    let start = scan.list()[first].start();
    let number = digits(&scan.bytes[start..token.start()]);
    if matches!(number.len(), 7 | 8) && national_ids::rut_check(&number) == 10 {
        scan.push(Kind::Rut, start, token.end(), 85);
    }
}

fn bic(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    if scan.near_word(i, &["bic", "swift"], 4, 2) {
        scan.push(Kind::Bic, token.start(), token.end(), 85);
    }
}

fn crypto_address(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    if !scan.wants.kinds.any(&[Kind::Bitcoin, Kind::CryptoAddress]) || is_glued(scan, token) {
        return;
    }
    let word = scan.word(token);
    let named = || scan.has_topic_near(i, topic::CRYPTO, 6, 3);
    let hit = match word.as_bytes() {
        // Base58Check and Bech32 have checksums, which random text does not satisfy; Ethereum's form needs none, and is
        // weaker evidence.
        [b'1' | b'3', ..]
            if (26..=35).contains(&word.len())
                && matches!(check_digits::base58check(word.as_bytes()), Some((0 | 5, 20))) =>
        {
            Some((Kind::Bitcoin, 97))
        }
        [b'b' | b'B', b'c' | b'C', b'1', ..] if check_digits::bech32(word) => Some((Kind::Bitcoin, 97)),
        [b'l' | b'L', b't' | b'T', b'c' | b'C', b'1', ..] if check_digits::bech32(word) => {
            Some((Kind::CryptoAddress, 97))
        }
        [b'0', b'x', hex @ ..] if hex.len() == 40 && hex.iter().all(u8::is_ascii_hexdigit) => {
            Some((Kind::CryptoAddress, if named() { 95 } else { 75 }))
        }
        [b'L' | b'M' | b'D' | b'X' | b'T' | b'r', ..]
            if (26..=35).contains(&word.len())
                && matches!(check_digits::base58check(word.as_bytes()), Some((_, 20))) =>
        {
            Some((Kind::CryptoAddress, 95))
        }
        [b'4' | b'8', ..] if word.len() == 95 && named() => Some((Kind::CryptoAddress, 90)),
        _ => None,
    };
    if let Some((kind, confidence)) = hit {
        scan.push(kind, token.start(), token.end(), confidence);
    }
}

/// `L` for a letter, `D` for a digit.
fn letter_digit_pattern(upper: &[u8]) -> String {
    upper.iter().map(|b| if b.is_ascii_digit() { 'D' } else { 'L' }).collect()
}

fn digits(text: &[u8]) -> Vec<u8> {
    text.iter().filter(|b| b.is_ascii_digit()).map(|b| b - b'0').collect()
}

fn dni_letter(number: u64) -> u8 {
    b"TRWAGMYFPDXBNJZSQVHLCKE"[(number % 23) as usize]
}

fn nie(upper: &[u8]) -> bool {
    let Some(lead) = b"XYZ".iter().position(|l| *l == upper[0]) else { return false };
    let rest = digits(&upper[1..8]).iter().fold(lead as u64, |n, d| n * 10 + u64::from(*d));
    upper[8] == dni_letter(rest)
}

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

fn nino(upper: &[u8]) -> bool {
    // What is never issued, so that product codes of the same form are left alone.
    let bad = |b: u8| matches!(b, b'D' | b'F' | b'I' | b'Q' | b'U' | b'V');
    let prefix = &upper[..2];
    !bad(upper[0])
        && !bad(upper[1])
        && upper[1] != b'O'
        && ![b"BG", b"GB", b"NK", b"KN", b"TN", b"NT", b"ZZ"].iter().any(|p| *p == prefix)
        && matches!(upper[8], b'A'..=b'D')
}

fn pps(upper: &[u8]) -> bool {
    let second = upper.get(8).map_or(0, |b| u32::from(b.saturating_sub(b'A')) + 1);
    // The second letter counts times nine; W as second letter, like its absence, counts nothing.
    let second = if upper.get(8) == Some(&b'W') { 0 } else { second };
    let sum = check_digits::weighted(&digits(&upper[..7]), &[8, 7, 6, 5, 4, 3, 2]) + second * 9;
    upper[7] == b"WABCDEFGHIJKLMNOPQRSTUV"[(sum % 23) as usize]
}

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
fn british_driving_licence(pattern: &str, upper: &[u8]) -> bool {
    let named = upper[..5].iter().all(|b| b.is_ascii_uppercase() || *b == b'9') && upper[0].is_ascii_uppercase();
    let number = |i: usize| u32::from(upper[i].wrapping_sub(b'0')) * 10 + u32::from(upper[i + 1].wrapping_sub(b'0'));
    let dated = pattern.as_bytes()[5..11].iter().all(|b| *b == b'D');
    // Of women, the month has 50 added.
    named && dated && (1..=12).contains(&(number(6) % 50)) && (1..=31).contains(&number(8)) && pattern.ends_with("LL")
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

fn cn_id(upper: &[u8]) -> bool {
    national_ids::cn_check(&digits(&upper[..17])) == 10 && matches!(&upper[6..8], b"19" | b"20")
}

/// Finland: birth date, century sign, three digits and a check character.
fn hetu(upper: &[u8]) -> bool {
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
fn mbi(upper: &[u8]) -> bool {
    // Letters that look like digits are not used.
    let letter = |b: u8| b.is_ascii_uppercase() && !matches!(b, b'S' | b'L' | b'O' | b'I' | b'B' | b'Z');
    let any = |b: u8| letter(b) || b.is_ascii_digit();
    let digit = |b: u8| b.is_ascii_digit();
    let Ok([a, b, c, d, e, f, g, h, i, j, k]) = <[u8; 11]>::try_from(upper) else { return false };
    matches!(a, b'1'..=b'9')
        && letter(b)
        && any(c)
        && digit(d)
        && letter(e)
        && any(f)
        && digit(g)
        && letter(h)
        && letter(i)
        && digit(j)
        && digit(k)
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
