//! Keys of TLS records, derived from the secrets of a key log: TLS 1.3 (RFC 8446 5.2 and 7.3) and TLS 1.2 with AEAD suites
//! (RFC 5246 6.3, 5288, 7905).

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce};
use chacha20poly1305::ChaCha20Poly1305;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsVersion {
    Tls12,
    Tls13,
}

#[derive(Clone, Copy)]
enum Algorithm {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
}

/// A cipher suite, as far as records depend on it.
#[derive(Clone, Copy)]
pub(super) struct Suite {
    pub version: TlsVersion,
    algorithm: Algorithm,
    hash: Hash,
}

impl Suite {
    /// From its registered number; `None` if it is not supported.
    pub fn from_number(number: [u8; 2]) -> Option<Self> {
        use Algorithm::{Aes128Gcm, Aes256Gcm, ChaCha20Poly1305};
        use TlsVersion::{Tls12, Tls13};
        let (version, algorithm, hash) = match number {
            [0x13, 0x01] => (Tls13, Aes128Gcm, Hash::Sha256),
            [0x13, 0x02] => (Tls13, Aes256Gcm, Hash::Sha384),
            [0x13, 0x03] => (Tls13, ChaCha20Poly1305, Hash::Sha256),
            // RSA, DHE-RSA, ECDHE-ECDSA, ECDHE-RSA: the key exchange is over when the secrets are known.
            [0x00, 0x9c | 0x9e] | [0xc0, 0x2b | 0x2f] => (Tls12, Aes128Gcm, Hash::Sha256),
            [0x00, 0x9d | 0x9f] | [0xc0, 0x2c | 0x30] => (Tls12, Aes256Gcm, Hash::Sha384),
            // ECDHE-RSA, ECDHE-ECDSA, DHE-RSA.
            [0xcc, 0xa8..=0xaa] => (Tls12, ChaCha20Poly1305, Hash::Sha256),
            _ => return None,
        };
        Some(Self { version, algorithm, hash })
    }

    const fn key_length(self) -> usize {
        match self.algorithm {
            Algorithm::Aes128Gcm => 16,
            Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => 32,
        }
    }

    fn hmac(self, secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn mac<M: Mac + KeyInit>(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(secret).expect("HMAC takes keys of any length");
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }
        match self.hash {
            Hash::Sha256 => mac::<Hmac<Sha256>>(secret, parts),
            Hash::Sha384 => mac::<Hmac<Sha384>>(secret, parts),
        }
    }

    /// HKDF-Expand-Label with an empty context (RFC 8446 7.1), one block of HMAC at most.
    fn expand(self, secret: &[u8], label: &str, length: usize) -> Vec<u8> {
        let label = format!("tls13 {label}");
        let info = [&(length as u16).to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[0, 1]];
        let mut block = self.hmac(secret, &info);
        // A secret of a wrong length in the file asks for more than a block; its records fail to decrypt.
        block.resize(length, 0);
        block
    }

    /// The pseudo-random function of TLS 1.2 (RFC 5246 5).
    fn prf(self, secret: &[u8], seed: &[&[u8]], length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut chained = self.hmac(secret, seed);
        while out.len() < length {
            let parts: Vec<&[u8]> = std::iter::once(&chained[..]).chain(seed.iter().copied()).collect();
            out.extend(self.hmac(secret, &parts));
            chained = self.hmac(secret, &[&chained]);
        }
        out.truncate(length);
        out
    }
}

enum RecordCipher {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
    ChaCha20(Box<ChaCha20Poly1305>),
}

impl RecordCipher {
    /// With a key of at least the suite's length.
    fn new(suite: Suite, key: &[u8]) -> Self {
        let mut whole = [0; 32];
        whole.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        match suite.algorithm {
            Algorithm::Aes128Gcm => {
                let (short, _) = whole.split_first_chunk::<16>().expect("a part of the array");
                Self::Aes128(Box::new(Aes128Gcm::new(&(*short).into())))
            }
            Algorithm::Aes256Gcm => Self::Aes256(Box::new(Aes256Gcm::new(&whole.into()))),
            Algorithm::ChaCha20Poly1305 => Self::ChaCha20(Box::new(ChaCha20Poly1305::new(&whole.into()))),
        }
    }

    fn open(&self, nonce: [u8; 12], header: &[u8], body: &mut Vec<u8>) -> Option<()> {
        let nonce = Nonce::from(nonce);
        match self {
            Self::Aes128(cipher) => cipher.decrypt_in_place(&nonce, header, body).ok(),
            Self::Aes256(cipher) => cipher.decrypt_in_place(&nonce, header, body).ok(),
            Self::ChaCha20(cipher) => cipher.decrypt_in_place(&nonce, header, body).ok(),
        }
    }
}

/// The keys of one direction.
pub(super) struct RecordKeys {
    suite: Suite,
    /// The traffic secret from which TLS 1.3 derives the next one.
    secret: Vec<u8>,
    cipher: RecordCipher,
    iv: [u8; 12],
    number: u64,
}

/// The length of the tag that follows what is encrypted.
const TAG: usize = 16;
/// What TLS 1.2 sends of the nonce of AES-GCM with each record (RFC 5288 3).
const EXPLICIT_NONCE: usize = 8;

impl RecordKeys {
    /// Keys of TLS 1.3 from a traffic secret.
    pub fn tls13(suite: Suite, secret: &[u8]) -> Self {
        let key = suite.expand(secret, "key", suite.key_length());
        let iv = suite.expand(secret, "iv", 12);
        Self::new(suite, secret.to_vec(), &key, &iv)
    }

    /// The keys of the client's records and the server's in TLS 1.2, from the master secret and both random numbers.
    pub fn tls12(suite: Suite, master: &[u8], client_random: &[u8; 32], server_random: &[u8; 32]) -> [Self; 2] {
        let key = suite.key_length();
        let iv = if matches!(suite.algorithm, Algorithm::ChaCha20Poly1305) { 12 } else { 12 - EXPLICIT_NONCE };
        let block = suite.prf(master, &[b"key expansion", server_random, client_random], 2 * (key + iv));
        let (keys, ivs) = block.split_at(2 * key);
        [0, 1].map(|side| Self::new(suite, Vec::new(), &keys[side * key..], &ivs[side * iv..(side + 1) * iv]))
    }

    fn new(suite: Suite, secret: Vec<u8>, key: &[u8], start: &[u8]) -> Self {
        let mut iv = [0; 12];
        iv.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
        Self { suite, secret, cipher: RecordCipher::new(suite, key), iv, number: 0 }
    }

    /// The keys behind a KeyUpdate (RFC 8446 7.2).
    pub fn next(&self) -> Self {
        Self::tls13(self.suite, &self.suite.expand(&self.secret, "traffic upd", self.secret.len()))
    }

    /// Decrypts a record in place; returns its type.
    pub fn open(&mut self, header: &[u8], body: &mut Vec<u8>) -> Option<u8> {
        let number = self.number.to_be_bytes();
        self.number += 1;
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(number).for_each(|(n, b)| *n ^= b);
        if self.suite.version == TlsVersion::Tls13 {
            self.cipher.open(nonce, header, body)?;
            // Padding of zeros follows the type.
            let end = body.iter().rposition(|b| *b != 0)?;
            let kind = body[end];
            body.truncate(end);
            return Some(kind);
        }
        if !matches!(self.suite.algorithm, Algorithm::ChaCha20Poly1305) {
            let explicit = body.split_first_chunk::<EXPLICIT_NONCE>().map(|(explicit, _)| *explicit)?;
            nonce[4..].copy_from_slice(&explicit);
            body.drain(..EXPLICIT_NONCE);
        }
        let length = body.len().checked_sub(TAG)? as u16;
        let kind = *header.first()?;
        let protected = [&number[..], header.get(..3)?, &length.to_be_bytes()].concat();
        self.cipher.open(nonce, &protected, body)?;
        Some(kind)
    }
}
