//! Check digit algorithms, which distinguish issued numbers from arbitrary ones.

/// For values without a check digit.
pub const fn any(_: &[u8]) -> bool {
    true
}

/// Luhn, as on payment cards (ISO/IEC 7812-1 annex B). The last digit is the check digit.
pub fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| {
            let d = u32::from(*d);
            if i % 2 == 0 { d } else { d * 2 / 10 + d * 2 % 10 }
        })
        .sum();
    !digits.is_empty() && sum.is_multiple_of(10)
}

/// The remainder modulo 97 of digits and capital letters, letters counting 10 to 35 (ISO 7064); `None` for other
/// characters.
pub fn mod97(mut text: impl Iterator<Item = u8>) -> Option<u32> {
    text.try_fold(0, |rest, b| match b {
        b'0'..=b'9' => Some((rest * 10 + u32::from(b - b'0')) % 97),
        b'A'..=b'Z' => Some((rest * 100 + u32::from(b - b'A') + 10) % 97),
        _ => None,
    })
}

/// Verhoeff's algorithm in the dihedral group of order ten, as on Aadhaar: `D` is the group's multiplication, `STEP`
/// the permutation applied once more for each position.
pub fn verhoeff(digits: &[u8]) -> bool {
    const STEP: [u8; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    const D: [[u8; 10]; 10] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        [1, 2, 3, 4, 0, 6, 7, 8, 9, 5],
        [2, 3, 4, 0, 1, 7, 8, 9, 5, 6],
        [3, 4, 0, 1, 2, 8, 9, 5, 6, 7],
        [4, 0, 1, 2, 3, 9, 5, 6, 7, 8],
        [5, 9, 8, 7, 6, 0, 4, 3, 2, 1],
        [6, 5, 9, 8, 7, 1, 0, 4, 3, 2],
        [7, 6, 5, 9, 8, 2, 1, 0, 4, 3],
        [8, 7, 6, 5, 9, 3, 2, 1, 0, 4],
        [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    ];
    let mut c = 0u8;
    for (i, digit) in digits.iter().rev().enumerate() {
        let mut d = *digit;
        for _ in 0..i % 8 {
            let Some(next) = STEP.get(usize::from(d)) else { return false };
            d = *next;
        }
        c = D[usize::from(c % 10)][usize::from(d % 10)];
    }
    c == 0 && !digits.is_empty()
}

/// The sum of digits times weights; what is beyond the shorter of the two does not count.
pub fn weighted(digits: &[u8], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(d, w)| u32::from(*d) * w).sum()
}

/// ISO 7064 MOD 11,10: German tax numbers, Croatian OIB.
pub fn mod11_10(digits: &[u8]) -> bool {
    let Some((check, body)) = digits.split_last() else { return false };
    let product = body.iter().fold(10, |product, d| {
        let sum = (u32::from(*d) + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == u32::from(*check)
}

/// One or two check digits modulo 11 with rising weights from the right, as on CPF and CNPJ.
pub fn mod11(digits: &[u8]) -> bool {
    // A repeated digit satisfies the sums, and is never issued.
    if digits.windows(2).all(|w| w[0] == w[1]) {
        return false;
    }
    // CNPJ has 14 digits and weights that start again after 9; CPF has 11 and two check digits as well.
    let (wrap, checks) = if digits.len() == 14 { (8, 2) } else { (u32::MAX, if digits.len() == 11 { 2 } else { 1 }) };
    (0..checks).all(|i| {
        let body = &digits[..digits.len() - checks + i];
        let sum: u32 = body.iter().rev().zip(0u32..).map(|(d, w)| u32::from(*d) * (2 + w % wrap)).sum();
        let check = match sum % 11 {
            0 | 1 => 0,
            r => 11 - r,
        };
        digits.get(body.len()).is_some_and(|d| u32::from(*d) == check)
    })
}

/// Spain's check letter: the number modulo 23; a leading X, Y or Z counts 0, 1 or 2.
pub fn mod23_letter(upper: &[u8]) -> bool {
    let Some((letter, body)) = upper.split_last() else { return false };
    let number = body.iter().enumerate().try_fold(0u64, |n, (i, b)| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        b'X'..=b'Z' if i == 0 => Some(u64::from(b - b'X')),
        _ => None,
    });
    body.len() == 8 && number.is_some_and(|n| b"TRWAGMYFPDXBNJZSQVHLCKE"[(n % 23) as usize] == *letter)
}

/// German identity card: nine characters, optionally with the check digit, weights 7, 3, 1 (ICAO 9303).
pub fn german_id_card(upper: &[u8]) -> bool {
    let Some((body, check)) = upper.split_at_checked(9) else { return false };
    let value = |b: &u8| u32::from(if b.is_ascii_digit() { b - b'0' } else { b.wrapping_sub(b'A').wrapping_add(10) });
    let sum: u32 = body.iter().zip([7, 3, 1].into_iter().cycle()).map(|(b, w)| value(b) * w).sum();
    let written = |b: &u8| b.is_ascii_digit() || b.is_ascii_uppercase() && !b"ABDEIOQSU".contains(b);
    check.len() <= 1
        && upper.iter().all(written)
        && check.first().is_none_or(|c| u32::from(c.wrapping_sub(b'0')) == sum % 10)
}

/// French NIR: sex, month, and check digits modulo 97 over thirteen digits; `2A` and `2B` are Corsica.
pub fn nir(upper: &[u8]) -> bool {
    // Corsica's letters count as 0, minus one or two million.
    let island = match upper.get(5..7) {
        Some(b"2A") => 1_000_000,
        Some(b"2B") => 2_000_000,
        _ => 0,
    };
    let mut digits = upper.to_vec();
    if island > 0 {
        digits[6] = b'0';
    }
    let number = |from, to| std::str::from_utf8(digits.get(from..to)?).ok()?.parse::<u64>().ok();
    let (Some(month), Some(body), Some(check)) = (number(3, 5), number(0, 13), number(13, 15)) else { return false };
    // Months from 20 on stand for an unknown date of birth.
    matches!(upper[0], b'1'..=b'4' | b'7' | b'8')
        && (matches!(month, 1..=12) || month >= 20)
        && body > island
        && 97 - (body - island) % 97 == check
}

/// The format of a bank identifier code: bank, country, location, optional branch (ISO 9362).
pub fn bic(upper: &[u8]) -> bool {
    matches!(upper.len(), 8 | 11)
        && upper[..6].iter().all(u8::is_ascii_uppercase)
        && upper.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

/// Spanish companies: a letter, seven digits, and a check digit or letter.
pub fn cif(upper: &[u8]) -> bool {
    let Some(([kind, body @ ..], control)) = upper.split_at_checked(8).filter(|(_, c)| c.len() == 1) else {
        return false;
    };
    if !b"ABCDEFGHJKLMNPQRSUVW".contains(kind) || !body.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = body
        .iter()
        .enumerate()
        .map(|(i, b)| {
            let d = u32::from(b - b'0') * if i % 2 == 0 { 2 } else { 1 };
            // The digits of the product, as in Luhn's algorithm.
            d / 10 + d % 10
        })
        .sum();
    let check = (10 - sum % 10) % 10;
    let (digit, letter) = (b'0' + check as u8, b"JABCDEFGHI"[check as usize]);
    match kind {
        // Kinds of organisation whose check character is always a letter, and those where it is always a digit.
        b'K' | b'P' | b'Q' | b'R' | b'S' | b'N' | b'W' => control[0] == letter,
        b'A' | b'B' | b'E' | b'H' => control[0] == digit,
        _ => control[0] == digit || control[0] == letter,
    }
}

/// A vehicle identification number's check digit (49 CFR 565.15).
pub fn vin(text: &[u8]) -> bool {
    const WEIGHTS: [u32; 17] = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2];
    let value = |b: u8| match b {
        b'0'..=b'9' => Some(u32::from(b - b'0')),
        b'A'..=b'H' => Some(u32::from(b - b'A') + 1),
        b'J'..=b'N' => Some(u32::from(b - b'J') + 1),
        b'P' => Some(7),
        b'R' => Some(9),
        b'S'..=b'Z' => Some(u32::from(b - b'S') + 2),
        _ => None,
    };
    let Some(sum) = text.iter().zip(WEIGHTS).try_fold(0, |sum, (b, w)| Some(sum + value(*b)? * w)) else {
        return false;
    };
    text.len() == 17
        && match (sum % 11, text[8]) {
            (10, b'X') => true,
            (rest, check) => rest < 10 && check == b'0' + rest as u8,
        }
}

/// Decodes base58 and verifies the four checksum bytes (double SHA-256). Returns the version byte and the payload's
/// length.
pub fn base58check(text: &[u8]) -> Option<(u8, usize)> {
    use sha2::{Digest, Sha256};
    const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    // The longest address that is recognized is far shorter; the arithmetic is quadratic.
    if text.len() > 64 {
        return None;
    }
    let mut bytes: Vec<u8> = Vec::with_capacity(48);
    for b in text {
        let mut carry = ALPHABET.iter().position(|a| a == b)?;
        for byte in &mut bytes {
            carry += usize::from(*byte) * 58;
            *byte = carry as u8;
            carry >>= 8;
        }
        while carry > 0 {
            bytes.push(carry as u8);
            carry >>= 8;
        }
    }
    // Each leading `1` is a zero byte.
    bytes.extend(text.iter().take_while(|b| **b == b'1').map(|_| 0));
    bytes.reverse();
    let (payload, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    let hash = Sha256::digest(Sha256::digest(payload));
    (hash.get(..4)? == sum).then_some(())?;
    Some((*payload.first()?, payload.len() - 1))
}

/// Checks a bech32 or bech32m text (BIP 173, BIP 350) in lower or upper case.
pub fn bech32(text: &str) -> bool {
    const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    if text.bytes().any(|b| b.is_ascii_lowercase()) && text.bytes().any(|b| b.is_ascii_uppercase()) {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let Some((prefix, data)) = text.rsplit_once('1') else { return false };
    if prefix.is_empty() || data.len() < 6 || text.len() > 90 {
        return false;
    }
    let mut sum = 1u32;
    let mut feed = |value: u32| {
        let top = sum >> 25;
        sum = (sum & 0x01ff_ffff) << 5 ^ value;
        for (i, g) in GENERATOR.iter().enumerate() {
            if top >> i & 1 == 1 {
                sum ^= g;
            }
        }
    };
    prefix.bytes().for_each(|b| feed(u32::from(b >> 5)));
    feed(0);
    prefix.bytes().for_each(|b| feed(u32::from(b & 31)));
    for b in data.bytes() {
        let Some(value) = ALPHABET.iter().position(|a| *a == b) else { return false };
        feed(value as u32);
    }
    // The constants of bech32 and bech32m.
    matches!(sum, 1 | 0x2bc8_30a3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(s: &str) -> Vec<u8> {
        s.bytes().filter(u8::is_ascii_digit).map(|b| b - b'0').collect()
    }

    #[test]
    fn luhn_accepts_issued_numbers_and_rejects_changed_digits() {
        for good in ["4111111111111111", "378282246310005", "6011111111111117"] {
            assert!(luhn(&digits(good)), "{good}");
            let mut bad = digits(good);
            bad[3] = (bad[3] + 1) % 10;
            assert!(!luhn(&bad), "{good} changed");
        }
        assert!(!luhn(&[]));
    }

    #[test]
    fn verhoeff_and_iso_7064_accept_the_published_examples() {
        assert!(verhoeff(&digits("2363")) && !verhoeff(&digits("2364")));
        assert!(mod11_10(&digits("86095742719")) && !mod11_10(&digits("86095742718")));
        assert_eq!(mod97(b"WEST12345698765432GB82".iter().copied()), Some(1));
    }

    #[test]
    fn modulo_11_and_23_accept_the_published_examples() {
        assert!(mod11(&digits("52998224725")) && !mod11(&digits("52998224724")));
        assert!(mod11(&digits("11222333000181")) && !mod11(&digits("11222333000182")));
        assert!(mod23_letter(b"12345678Z") && mod23_letter(b"X1234567L") && !mod23_letter(b"12345678A"));
        assert!(!mod11(&[]) && !mod23_letter(&[]));
    }

    #[test]
    fn numbers_of_banks_companies_and_cards_are_checked() {
        assert!(bic(b"DEUTDEFF") && bic(b"DEUTDEFF500") && !bic(b"DEUTDEF") && !bic(b"DEU1DEFF"));
        assert!(
            cif(b"A58818501") && cif(b"B12345674") && !cif(b"A58818502") && !cif(b"I58818501") && !cif(b"A5881850")
        );
        assert!(german_id_card(b"L01X00T471") && !german_id_card(b"L01X00T472") && !german_id_card(b"L01X"));
        assert!(nir(b"255081416802538") && !nir(b"255081416802539") && !nir(b"2"));
        assert!(nir(b"255082A16802696") && !nir(b"255082B16802696") && !nir(b"25508A116802696"));
    }

    #[test]
    fn vins_are_checked() {
        assert!(vin(b"1M8GDM9AXKP042788") && !vin(b"1M8GDM9A1KP042788") && !vin(b"1M8GDM9AXKP04278"));
    }

    #[test]
    fn cryptocurrency_address_checksums_are_verified() {
        assert_eq!(base58check(b"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"), Some((0, 20)));
        assert_eq!(base58check(b"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb"), None);
        assert!(bech32("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"));
        assert!(bech32("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"));
        assert!(!bech32("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5"));
    }
}
