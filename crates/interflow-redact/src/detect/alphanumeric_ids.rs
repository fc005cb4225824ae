//! Alphanumeric identifiers: IBANs, VINs, cryptocurrency addresses and national ids with letters.

use std::collections::HashMap;
use std::sync::LazyLock;

use interflow_types::data_file;

use super::id_formats::{digits, has_pattern, hetu, mbi, nino};
use super::{ScanState, id_formats, labeled_values, national_ids, net, number_context};
use crate::Kind;
use crate::detect::check_digits;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken};

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
    let mut buffer = [0; MAX_ID_LEN];
    match word.len() {
        2..=5 => {
            if dotted(scan, i, &token, upper_case(word, &mut buffer)) {
                return i + 1;
            }
            let hit = hyphened_mbi(scan, i, &token).or_else(|| spaced_nir(scan, i, &token));
            if let Some(next) = hit.or_else(|| labeled_values::detect_labeled(scan, i)) {
                return next;
            }
            postcode(scan, i, &token);
        }
        6..=MAX_ID_LEN => {
            if !national_id(scan, i, &token, upper_case(word, &mut buffer))
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

/// The longest national id in letters and digits, without separators.
const MAX_ID_LEN: usize = 26;

/// The word in capitals, in the buffer.
fn upper_case<'b>(word: &[u8], buffer: &'b mut [u8; MAX_ID_LEN]) -> &'b [u8] {
    let upper = &mut buffer[..word.len()];
    upper.copy_from_slice(word);
    upper.make_ascii_uppercase();
    upper
}

/// A word without digits that may still be one of these: hexadecimal pairs, cryptocurrency addresses.
pub(super) fn detect_word(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).copied() else { return };
    match token.len() {
        1 if scan.gap_before(i) == "-" => hyphened_letter(scan, i, &token),
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

/// Whether the token is part of a path or an identifier, so that its format means nothing.
fn is_glued(scan: &ScanState<'_>, token: &WordToken) -> bool {
    matches!(scan.byte_before(token.start()), b'_' | b'/' | b'\\') || matches!(scan.byte_at(token.end()), b'_')
}

/// `12345678-Z`, `12.345.678-Z`: the Spanish DNI, and with a `K` Chile's number, detected from the letter.
fn hyphened_letter(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    let Some(mut first) = i.checked_sub(1).filter(|p| scan.list()[*p].is_digits()) else { return };
    let is_group = |first: usize| scan.list()[first].len() == 3 && scan.gap_before(first) == ".";
    while first > i.saturating_sub(3) && is_group(first) && scan.list()[first - 1].is_digits() {
        first -= 1;
    }
    let start = scan.list()[first].start();
    if !matches!(token.start() - start, 8..=11) {
        return;
    }
    let mut text = scan.bytes[start..token.end()].to_ascii_uppercase();
    text.retain(u8::is_ascii_alphanumeric);
    let number = digits(&text);
    if text.ends_with(b"K") && matches!(number.len(), 7 | 8) && national_ids::rut_check(&number) == 10 {
        scan.push(Kind::Rut, start, token.end(), 85);
    }
    // A small letter after eight digits may also be that of a version.
    let is_named = || token.shape == TokenShape::Upper || scan.near_word(first, &["dni", "nif"], 6, 0);
    if check_digits::mod23_letter(&text) && is_named() {
        scan.push(Kind::Dni, start, token.end(), 85);
    }
}

/// `2 55 08 2A 168 026 96`: the French number of those born on Corsica, in groups, detected from the letter.
fn spaced_nir(scan: &mut ScanState<'_>, i: usize, token: &WordToken) -> Option<usize> {
    let first = i.checked_sub(3).filter(|_| ["2A", "2B"].contains(&scan.word(token)))?;
    let groups = scan.list().get(first..i + 4)?;
    let text: String = groups.iter().map(|t| scan.word(t)).collect();
    let spaced = (first..i + 3).all(|n| scan.gap(n) == " ");
    (spaced && text.len() == 15 && check_digits::nir(text.as_bytes())).then(|| {
        scan.push(Kind::Nir, groups[0].start(), groups[6].end(), 90);
        i + 4
    })
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
static IBAN_LENGTHS: LazyLock<HashMap<&[u8], usize>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../../data/iban_lengths.txt"));
    let countries = |[length, countries]: [&'static str; 2]| {
        let length = length.parse().expect("a number");
        countries.split(' ').map(move |country| (country.as_bytes(), length))
    };
    records.flat_map(countries).collect()
});

/// An IBAN in one piece or in groups; returns the next token to examine.
fn iban(scan: &mut ScanState<'_>, i: usize, token: &WordToken) -> Option<usize> {
    let word = scan.word(token).as_bytes();
    let country = word.get(..2)?.to_ascii_uppercase();
    if !word.get(2..4)?.iter().all(u8::is_ascii_digit) || is_glued(scan, token) {
        return None;
    }
    let length =
        IBAN_LENGTHS.get(&*country).copied().filter(|_| !number_context::is_hex_dump_line(scan, token.start()))?;
    let mut compact = Vec::with_capacity(length);
    let mut at = i;
    let mut end = token.end();
    loop {
        let part = scan.token(at)?;
        compact.extend(scan.word(part).bytes().map(|b| b.to_ascii_uppercase()));
        end = end.max(part.end());
        if compact.len() >= length || !matches!(scan.gap(at), " " | "-") || scan.token(at + 1)?.len() > 8 {
            break;
        }
        at += 1;
    }
    if compact.len() != length {
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
    let hit = id_formats::identify(scan, i, upper).filter(|(kind, _)| scan.wants(*kind));
    let Some((kind, confidence)) = hit else { return dotted(scan, i, token, upper) };
    scan.push(kind, token.start(), token.end(), confidence);
    true
}

/// Numbers with separators: Chile's `12.345.678-K` and Finland's `131052-308T`, detected from their end.
fn dotted(scan: &mut ScanState<'_>, i: usize, token: &WordToken, upper: &[u8]) -> bool {
    let Some(before) = i.checked_sub(1).and_then(|p| scan.token(p)).copied() else { return false };
    let joined = before.is_digits() && before.len() == 6 && matches!(scan.gap_before(i), "-" | "+");
    if joined && ["DDDL", "DDDD"].iter().any(|p| has_pattern(upper, p)) {
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
    let canadian = has_pattern(a, "LDL") && has_pattern(b, "DLD");
    let british =
        ["LD", "LDD", "LLD", "LLDD", "LDL", "LLDL"].iter().any(|p| has_pattern(a, p)) && has_pattern(b, "DLL");
    let upper = a.iter().chain(b).all(|b| !b.is_ascii_lowercase());
    if (canadian || british) && upper {
        scan.push(Kind::ZipCode, token.start(), next.end(), 80);
    }
}

/// A BIC is eight or eleven capitals like any others, so a word before it must say so.
fn bic(scan: &mut ScanState<'_>, i: usize, token: &WordToken) {
    if scan.near_word(i, &["bic", "swift"], 4, 2) {
        scan.push(Kind::Bic, token.start(), token.end(), 85);
    }
}

/// Addresses of Bitcoin, Litecoin, Dogecoin, Dash, Tron, Ripple, Ethereum and Monero.
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
        // Monero's checksum is not verified, so a word nearby must name a currency.
        [b'4' | b'8', ..] if word.len() == 95 && named() => Some((Kind::CryptoAddress, 90)),
        _ => None,
    };
    if let Some((kind, confidence)) = hit {
        scan.push(kind, token.start(), token.end(), confidence);
    }
}
