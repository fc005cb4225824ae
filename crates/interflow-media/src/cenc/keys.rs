//! Parsing of keys, and the keyring that maps KIDs to keys.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aes::Aes128;
use aes::cipher::{Array, KeyInit as _};
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::{Engine as _, alphabet};
use hex::FromHex as _;

/// The id of a key: 16 bytes, mostly a UUID in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 16]);

impl KeyId {
    /// The id in PlayReady's byte order: the first three fields of the UUID are little-endian. Applying it twice
    /// gives the original.
    pub fn as_guid(self) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0;
        let [i, j, k, l, m, n, o, p] = rest;
        Self([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A content key of AES-128. `Debug` does not reveal it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentKey(pub [u8; 16]);

impl ContentKey {
    /// Reads 16 bytes in hex or base64; `None` for any other length.
    pub fn parse(text: &str) -> Option<Self> {
        bytes(text.trim()).map(Self)
    }
}

impl fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// An AES-128 key with its expanded schedule, which is computed once per key. Uses hardware AES where available.
pub struct AesKey(pub(super) Aes128);

impl AesKey {
    pub fn new(key: &ContentKey) -> Self {
        Self(Aes128::new(&Array(key.0)))
    }
}

/// Why key parameters are not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// Not 16 bytes in hex or base64.
    #[error("a key or key id must be 16 bytes: 32 hex digits, a UUID, or base64url (the {0}. of the list is not)")]
    Bytes(usize),
    /// Key ids and keys are paired by position.
    #[error("there are {ids} key ids, but {keys} keys: give one key for each key id, in the same order")]
    Uneven { ids: usize, keys: usize },
    /// The same KID twice with different keys: one of them must be wrong.
    #[error("key id {0} is given twice, with different keys")]
    Twice(KeyId),
    /// Several keys without ids.
    #[error("several keys need their key ids: write KID:KEY,KID:KEY")]
    NoIds,
}

/// The given keys with their expanded schedules. Cheap to clone, and shared by all segments of a link.
#[derive(Clone, Default)]
pub struct ContentKeyRing(Arc<KeyRingEntries>);

#[derive(Default)]
struct KeyRingEntries {
    keys: BTreeMap<KeyId, Arc<AesKey>>,
    any: Option<Arc<AesKey>>,
}

impl ContentKeyRing {
    /// From pairs of id and key; the last pair of an id wins.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (KeyId, ContentKey)>) -> Self {
        let keys = pairs.into_iter().map(|(kid, key)| (kid, Arc::new(AesKey::new(&key)))).collect();
        Self(Arc::new(KeyRingEntries { keys, any: None }))
    }

    /// A ring with one key, which is used for every KID.
    pub fn any(key: ContentKey) -> Self {
        Self(Arc::new(KeyRingEntries { keys: BTreeMap::new(), any: Some(Arc::new(AesKey::new(&key))) }))
    }

    /// Reads the parameters `key_id` and `key`: comma-separated lists paired by position, or `key` alone as
    /// `KID:KEY,KID:KEY`, or a single key used for any KID. Each is hex, a UUID, or base64 with or without padding, of
    /// either alphabet.
    ///
    /// # Errors
    /// If a value is not 16 bytes or the lists do not pair up.
    pub fn parse(key_id: Option<&str>, key: &str) -> Result<Self, KeyRingError> {
        let keys: Vec<&str> = list(key);
        let ids: Vec<&str> = key_id.map(list).unwrap_or_default();
        // A single key needs no id, since there is nothing to choose from.
        if ids.is_empty() && keys.len() == 1 && !key.contains(':') {
            return bytes(keys[0]).map(|k| Self::any(ContentKey(k))).ok_or(KeyRingError::Bytes(1));
        }
        let mut pairs: Vec<(KeyId, ContentKey)> = Vec::new();
        let mut add = |at: usize, kid: &str, key: &str| {
            let (Some(kid), Some(key)) = (bytes(kid).map(KeyId), bytes(key).map(ContentKey)) else {
                return Err(KeyRingError::Bytes(at + 1));
            };
            if pairs.iter().any(|(k, other)| *k == kid && *other != key) {
                return Err(KeyRingError::Twice(kid));
            }
            pairs.push((kid, key));
            Ok(())
        };
        if ids.is_empty() {
            for (i, pair) in keys.iter().enumerate() {
                let (kid, key) = pair.split_once(':').ok_or(KeyRingError::NoIds)?;
                add(i, kid.trim(), key.trim())?;
            }
        } else if ids.len() == keys.len() {
            for (i, (kid, key)) in ids.iter().zip(&keys).enumerate() {
                // Some writers give `KID:KEY` pairs in addition to the ids.
                add(i, kid, key.rsplit(':').next().unwrap_or(key))?;
            }
        } else {
            return Err(KeyRingError::Uneven { ids: ids.len(), keys: keys.len() });
        }
        Ok(Self::from_pairs(pairs))
    }

    /// The key of an id; also matches if one of the two is written as a PlayReady GUID.
    pub fn find(&self, kid: KeyId) -> Option<&Arc<AesKey>> {
        self.0.keys.get(&kid).or_else(|| self.0.keys.get(&kid.as_guid())).or(self.0.any.as_ref())
    }

    pub fn is_empty(&self) -> bool {
        self.0.keys.is_empty() && self.0.any.is_none()
    }
}

impl fmt::Debug for ContentKeyRing {
    /// Prints the ids only, so that keys do not get into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("kids", &self.0.keys.keys()).field("any", &self.0.any.is_some()).finish()
    }
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty()).collect()
}

/// Sixteen bytes in hex (dashes allowed, as in a UUID) or base64. Hex first: 32 hex digits would also be base64, of
/// 24 bytes.
fn bytes(text: &str) -> Option<[u8; 16]> {
    let bare: String = text.chars().filter(|c| *c != '-').collect();
    <[u8; 16]>::from_hex(bare).ok().or_else(|| base64(text))
}

/// Base64 of either alphabet, with or without padding. Bits left over at the end are ignored.
fn base64(text: &str) -> Option<[u8; 16]> {
    const LENIENT: GeneralPurpose =
        GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));
    let standard = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    LENIENT.decode(standard).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KID: &str = "00112233445566778899aabbccddeeff";
    const OTHER: &str = "ffeeddccbbaa99887766554433221100";

    fn kid(text: &str) -> KeyId {
        KeyId(bytes(text).unwrap())
    }

    #[test]
    fn keys_are_parsed_in_every_form() {
        for text in [KID, "00112233-4455-6677-8899-AABBCCDDEEFF", "ABEiM0RVZneImaq7zN3u/w==", "ABEiM0RVZneImaq7zN3u_w"]
        {
            assert_eq!(kid(text), kid(KID), "{text}");
        }
        for bad in
            ["", "0011", "001122334455667788 9aabbccddeeff", "ABEiM0RVZneImaq7zN3u", "zz112233445566778899aabbccddeeff"]
        {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn key_ids_and_keys_are_paired_by_position_or_colon() {
        for (ids, keys) in [
            (Some(format!("{KID},{OTHER}")), format!("{OTHER},{KID}")),
            (None, format!("{KID}:{OTHER}, {OTHER}:{KID}")),
            (Some(String::new()), format!("{KID}:{OTHER},{OTHER}:{KID}")),
        ] {
            let ring = ContentKeyRing::parse(ids.as_deref(), &keys).unwrap();
            assert!(ring.find(kid(KID)).is_some() && ring.find(kid(OTHER)).is_some());
            assert!(ring.find(KeyId([1; 16])).is_none());
        }
    }

    #[test]
    fn single_key_matches_any_kid_and_guid_byte_order_is_tried() {
        assert!(ContentKeyRing::parse(None, KID).unwrap().find(KeyId([9; 16])).is_some());
        let guid = "33221100-5544-7766-8899-aabbccddeeff";
        let ring = ContentKeyRing::parse(Some(guid), OTHER).unwrap();
        assert!(ring.find(kid(KID)).is_some());
    }

    #[test]
    fn unpaired_keys_are_refused_without_revealing_them() {
        use KeyRingError::*;
        for (ids, keys, error) in [
            (None, "xyz".to_owned(), Bytes(1)),
            (None, format!("{KID},{OTHER}"), NoIds),
            (Some(KID.to_owned()), format!("{KID},{OTHER}"), Uneven { ids: 1, keys: 2 }),
            (Some(KID.to_owned()), "short".to_owned(), Bytes(1)),
            (None, format!("{KID}:{KID},{KID}:{OTHER}"), Twice(kid(KID))),
        ] {
            assert_eq!(ContentKeyRing::parse(ids.as_deref(), &keys).unwrap_err(), error);
        }
        let ring = ContentKeyRing::parse(Some(KID), OTHER).unwrap();
        assert!(!format!("{ring:?}").contains(OTHER));
    }
}
