//! Format-preserving encryption: FF3-1 (NIST SP 800-38G revision 1), and FF3 for values encrypted with an eight-byte
//! tweak.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256, Block};

use crate::{RedactError, Result};

/// The cipher with its key, and the two halves of the tweak.
pub(crate) struct Ff3Cipher {
    cipher: AesBlockCipher,
    left: [u8; 4],
    right: [u8; 4],
}

enum AesBlockCipher {
    K128(Box<Aes128>),
    K192(Box<Aes192>),
    K256(Box<Aes256>),
}

/// Minimum number of possible values: one million (SP 800-38G r1). Fewer could be tried out.
const MIN_DOMAIN: u128 = 1_000_000;

impl Ff3Cipher {
    /// A key of 16, 24 or 32 bytes; a tweak of 7 bytes (FF3-1) or 8 (FF3).
    pub fn new(key: &[u8], tweak: &[u8]) -> Result<Self> {
        // FF3 uses the key and the blocks in reversed byte order (REVB).
        let reversed: Vec<u8> = key.iter().rev().copied().collect();
        let bad = |what: &str| RedactError::Policy(format!("fpe: {what}"));
        let cipher = match key.len() {
            16 => Aes128::new_from_slice(&reversed).ok().map(|c| AesBlockCipher::K128(Box::new(c))),
            24 => Aes192::new_from_slice(&reversed).ok().map(|c| AesBlockCipher::K192(Box::new(c))),
            32 => Aes256::new_from_slice(&reversed).ok().map(|c| AesBlockCipher::K256(Box::new(c))),
            _ => None,
        };
        let cipher = cipher.ok_or_else(|| bad("the key must have 16, 24 or 32 bytes in hexadecimal"))?;
        let (left, right) = match *tweak {
            // FF3-1 splits the 56-bit tweak into two halves of 28 bits, each padded with zeros.
            [a, b, c, d, e, f, g] => ([a, b, c, d & 0xf0], [e, f, g, d << 4]),
            [a, b, c, d, e, f, g, h] => ([a, b, c, d], [e, f, g, h]),
            _ => return Err(bad("the tweak must have 7 or 8 bytes in hexadecimal")),
        };
        Ok(Self { cipher, left, right })
    }

    /// One block of the cipher, with REVB before and after.
    fn block(&self, mut p: [u8; 16]) -> u128 {
        p.reverse();
        let mut block = Block::from(p);
        match &self.cipher {
            AesBlockCipher::K128(c) => c.encrypt_block(&mut block),
            AesBlockCipher::K192(c) => c.encrypt_block(&mut block),
            AesBlockCipher::K256(c) => c.encrypt_block(&mut block),
        }
        u128::from_le_bytes(block.into())
    }

    /// The round function of the half that does not change.
    fn round(&self, i: u8, half: &[u8], radix: u128) -> u128 {
        let mut p = [0u8; 16];
        p[..4].copy_from_slice(if i.is_multiple_of(2) { &self.right } else { &self.left });
        p[3] ^= i;
        p[4..].copy_from_slice(&number(half, radix).to_be_bytes()[4..]);
        self.block(p)
    }

    /// The Feistel network of eight rounds, in place.
    fn encrypt(&self, numerals: &mut [u8], radix: u128) {
        let u = numerals.len().div_ceil(2);
        let (a, b) = numerals.split_at(u);
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        for i in 0..8 {
            let m = if i % 2 == 0 { u } else { numerals.len() - u };
            let modulus = radix.pow(m as u32);
            let c = (number(&a, radix) + self.round(i, &b, radix) % modulus) % modulus;
            a = std::mem::replace(&mut b, digits(c, radix, m));
        }
        numerals[..a.len()].copy_from_slice(&a);
        numerals[a.len()..].copy_from_slice(&b);
    }

    /// Encrypts the digits of a value if there are enough of them, else its letters and digits; other characters keep
    /// their position. `None` if the value is too short to be safe, or too long.
    pub fn encrypt_value(&self, value: &str) -> Option<String> {
        rewrite(value, |numerals, radix| self.encrypt(numerals, radix))
    }
}

/// The numerals of radix 62; the first ten are those of radix 10.
const NUMERALS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// In which radix a value is encrypted: its digits alone, or its letters, too.
fn radix_of(value: &str) -> u128 {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    if digits >= 6 && letters <= 4 { 10 } else { 62 }
}

/// Applies a permutation to the numerals of a value, again until the result has the radix of the value: otherwise it could
/// not be undone (cycle walking).
fn rewrite(value: &str, permute: impl Fn(&mut [u8], u128)) -> Option<String> {
    let radix = radix_of(value);
    let numeral = |b: u8| NUMERALS[..radix as usize].iter().position(|n| *n == b);
    let mut numerals: Vec<u8> = value.bytes().filter_map(numeral).map(|n| n as u8).collect();
    // SP 800-38G: twice the number of numerals that fit 96 bits.
    let longest = if radix == 10 { 56 } else { 32 };
    if !(2..=longest).contains(&numerals.len())
        || radix.checked_pow(numerals.len() as u32).is_some_and(|n| n < MIN_DOMAIN)
    {
        return None;
    }
    loop {
        permute(&mut numerals, radix);
        let mut next = numerals.iter().map(|n| char::from(NUMERALS[usize::from(*n)]));
        let is_numeral = |c: char| u8::try_from(c).is_ok_and(|b| numeral(b).is_some());
        let result: Option<String> = value.chars().map(|c| if is_numeral(c) { next.next() } else { Some(c) }).collect();
        if result.as_deref().is_none_or(|result| radix_of(result) == radix) {
            return result;
        }
    }
}

/// NUM(REV(half)): the last numeral is the most significant.
fn number(half: &[u8], radix: u128) -> u128 {
    half.iter().rev().fold(0, |n, d| n * radix + u128::from(*d))
}

/// REV(STR(number)) with `m` numerals.
fn digits(mut number: u128, radix: u128, m: usize) -> Vec<u8> {
    (0..m)
        .map(|_| {
            let digit = (number % radix) as u8;
            number /= radix;
            digit
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        text.as_bytes()
            .chunks(2)
            .map(|c| u8::from_str_radix(std::str::from_utf8(c).expect("ascii"), 16).expect("hex"))
            .collect()
    }

    impl Ff3Cipher {
        /// The rounds of encryption backwards, with subtraction.
        fn decrypt_value(&self, value: &str) -> Option<String> {
            rewrite(value, |numerals, radix| {
                let u = numerals.len().div_ceil(2);
                let (mut a, mut b) = (numerals[..u].to_vec(), numerals[u..].to_vec());
                for i in (0..8).rev() {
                    let m = if i % 2 == 0 { u } else { numerals.len() - u };
                    let modulus = radix.pow(m as u32);
                    let c = (number(&b, radix) + modulus - self.round(i, &a, radix) % modulus) % modulus;
                    b = std::mem::replace(&mut a, digits(c, radix, m));
                }
                numerals[..a.len()].copy_from_slice(&a);
                numerals[a.len()..].copy_from_slice(&b);
            })
        }
    }

    fn cipher(key: &str, tweak: &str) -> Ff3Cipher {
        Ff3Cipher::new(&hex(key), &hex(tweak)).expect("a key")
    }

    #[test]
    fn fpe_matches_published_test_vectors() {
        for (key, tweak, plain, sealed) in [
            ("EF4359D8D580AA4F7F036D6F04FC6A94", "D8E7920AFA330A73", "890121234567890000", "750918814058654607"),
            ("EF4359D8D580AA4F7F036D6F04FC6A94", "9A768A92F60E12D8", "890121234567890000", "018989839189395384"),
            ("2DE79D232DF5585D68CE47882AE256D6", "CBD09280979564", "3992520240", "8901801106"),
        ] {
            let cipher = cipher(key, tweak);
            assert_eq!(cipher.encrypt_value(plain).as_deref(), Some(sealed));
            assert_eq!(cipher.decrypt_value(sealed).as_deref(), Some(plain));
        }
    }

    #[test]
    fn short_and_long_values_are_refused() {
        let cipher = cipher("2DE79D232DF5585D68CE47882AE256D6", "CBD09280979564");
        for value in ["", "123", "aB1", &"1".repeat(57), &"a".repeat(33)] {
            assert_eq!(cipher.encrypt_value(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn fpe_round_trips_digits_and_separators(value in "[0-9]{6,10}(-[0-9]{1,4}){0,2}") {
            let cipher = cipher("2DE79D232DF5585D68CE47882AE256D6", "CBD09280979564");
            let sealed = cipher.encrypt_value(&value).expect("long enough");
            let form = |s: &str| s.bytes().map(|b| b.is_ascii_digit()).collect::<Vec<_>>();
            prop_assert_eq!(form(&sealed), form(&value));
            prop_assert_eq!(cipher.decrypt_value(&sealed), Some(value));
        }

        #[test]
        fn fpe_round_trips_letters_in_any_case(value in "[A-Za-z0-9]{6,20}") {
            let cipher = cipher("2DE79D232DF5585D68CE47882AE256D6", "CBD09280979564");
            let sealed = cipher.encrypt_value(&value).expect("long enough");
            prop_assert_eq!(sealed.len(), value.len());
            prop_assert_eq!(cipher.decrypt_value(&sealed), Some(value));
        }
    }
}
