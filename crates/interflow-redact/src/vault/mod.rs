//! The placeholder vault: the mapping of placeholders to originals for one request or one conversation.
//!
//! A placeholder is a keyed hash of kind and value, so equal values get the same placeholder in every turn without
//! stored state; only the reverse mapping is stored here. A vault is never shared between conversations: with the key
//! of another one, neither the placeholders nor their equality reveals anything.
//!
//! Stable placeholders matter for cost as well: providers cache prompts by prefix, and a placeholder that changed with
//! every turn would defeat their caches. The fixed prompts of a client (system prompt, tools) have a key of the
//! installation, so that they are cached across conversations too.

mod known_originals;
pub(crate) mod own_placeholders;
pub(crate) mod restore;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::strategy::random;
use crate::{Kind, RedactError, Result};

/// Maximum number of placeholders in one vault.
const MAX_ENTRIES: usize = 100_000;
/// Length of a placeholder's code in characters of 5 bits: 40 bits.
pub(crate) const CODE_LENGTH: usize = 8;
/// Lower-case letters and digits without `i`, `l`, `o` and `1`, which are easily confused.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";

/// Whether these bytes may be the code of a placeholder; the length is the caller's concern.
pub(crate) fn is_code(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| ALPHABET.contains(b))
}

/// The secret from which a conversation's placeholders are derived. Never logged or stored.
#[derive(Clone)]
pub struct VaultKey([u8; 32]);

impl VaultKey {
    /// A fresh key: placeholders mean nothing outside of the conversation.
    ///
    /// # Errors
    /// The operating system provides no random bytes.
    pub fn random() -> Result<Self> {
        random().map(Self)
    }

    /// The key of one conversation, derived from a master secret and the conversation's id, so that a conversation gets
    /// the same placeholders after a restart and on every replica.
    pub fn for_conversation(master: &[u8; 32], conversation: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(master);
        hasher.update(b"interflow redact conversation\0").update(conversation);
        Self(*hasher.finalize().as_bytes())
    }

    /// The key for an installation's fixed prompts: system prompts and tool definitions.
    pub fn for_installation(master: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(master);
        hasher.update(b"interflow redact installation\0");
        Self(*hasher.finalize().as_bytes())
    }
}

impl std::fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VaultKey")
    }
}

fn mac_of(key: &VaultKey) -> Hmac<Sha256> {
    Hmac::new_from_slice(&key.0).expect("HMAC takes keys of any length")
}

/// The code of a value. `attempt` distinguishes it from a value with the same code.
fn code(mac: &Hmac<Sha256>, kind: Kind, value: &str, attempt: u32) -> String {
    let mut mac = mac.clone();
    mac.update(kind.as_str().as_bytes());
    mac.update(&attempt.to_le_bytes());
    mac.update(value.as_bytes());
    let tag = mac.finalize().into_bytes();
    let bits = tag.iter().take(8).fold(0u64, |n, b| n << 8 | u64::from(*b));
    (0..CODE_LENGTH).map(|i| char::from(ALPHABET[(bits >> (5 * i)) as usize & 31])).collect()
}

/// The index of an ASCII letter, ignoring case.
fn letter(b: u8) -> Option<usize> {
    b.is_ascii_alphabetic().then(|| usize::from(b.to_ascii_lowercase() - b'a'))
}

/// The key of fixed prompts, and the values that occurred in them.
type FixedPrompts = (Hmac<Sha256>, HashSet<(Kind, String)>);

/// Originals with their placeholders, by their first bytes and by length. Shorter ones may be parts of anything.
type KnownOriginals = HashMap<[u8; 4], BTreeMap<usize, HashMap<String, String>>>;

/// The placeholders of a conversation, and their originals. The time of a search hardly depends on their number.
pub struct PlaceholderVault {
    mac: Hmac<Sha256>,
    /// For values in fixed prompts, which have the same placeholder in all conversations.
    fixed: Option<FixedPrompts>,
    /// Originals by placeholder in lower case.
    originals: HashMap<String, String>,
    /// Placeholders in lower case, sorted, for the search by prefix; built on first use.
    sorted: OnceLock<Vec<Box<str>>>,
    /// Originals, for the search of them; built on first use.
    known: OnceLock<KnownOriginals>,
    /// The first bytes of placeholders, in both cases.
    first: [bool; 256],
    /// For each first letter, a bit set of the possible second letters; the highest bit means any other character.
    second: [u32; 26],
    limit: usize,
}

impl std::fmt::Debug for PlaceholderVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vault({} placeholders)", self.originals.len())
    }
}

impl PlaceholderVault {
    /// An empty vault.
    pub fn new(key: &VaultKey) -> Self {
        Self {
            mac: mac_of(key),
            fixed: None,
            originals: HashMap::new(),
            sorted: OnceLock::new(),
            known: OnceLock::new(),
            first: [false; 256],
            second: [0; 26],
            limit: MAX_ENTRIES,
        }
    }

    /// Adds a key for values in fixed prompts, so that they have the same placeholders in every conversation of an
    /// installation.
    pub fn with_fixed(mut self, key: &VaultKey) -> Self {
        self.fixed = Some((mac_of(key), HashSet::new()));
        self
    }

    pub fn len(&self) -> usize {
        self.originals.len()
    }

    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// The placeholder for a value: the kind's label, `_`, and eight lower-case letters or digits.
    ///
    /// # Errors
    /// The vault is full.
    pub fn placeholder(&mut self, kind: Kind, label: &str, value: &str) -> Result<String> {
        self.placeholder_for(kind, label, value, false)
    }

    /// The same; `fixed` means that the value occurs in a fixed prompt. Such a value keeps that placeholder in the
    /// whole conversation.
    ///
    /// # Errors
    /// As [`placeholder`](Self::placeholder).
    pub fn placeholder_for(&mut self, kind: Kind, label: &str, value: &str, fixed: bool) -> Result<String> {
        let mac = match &mut self.fixed {
            // A value that occurred in a fixed prompt keeps that placeholder elsewhere, otherwise a model would see two
            // names for one thing.
            Some((mac, values)) if !values.is_empty() || fixed => {
                let key = (kind, value.to_owned());
                let exists = values.contains(&key);
                if fixed && !exists {
                    if values.len() >= self.limit {
                        return Err(RedactError::VaultFull { limit: self.limit });
                    }
                    values.insert(key);
                }
                if fixed || exists { mac.clone() } else { self.mac.clone() }
            }
            _ => self.mac.clone(),
        };
        // Ends: each attempt is a new code, and codes in use are limited by `limit`.
        for attempt in 0u32.. {
            let code = code(&mac, kind, value, attempt);
            let placeholder = format!("{label}_{code}");
            let key = placeholder.to_ascii_lowercase();
            match self.originals.get(&key) {
                Some(exists) if exists == value => return Ok(placeholder),
                // Another value has this code: probability 2^-40.
                Some(_) => {}
                None if self.originals.len() >= self.limit => break,
                None => {
                    self.insert_original(key, value);
                    return Ok(placeholder);
                }
            }
        }
        Err(RedactError::VaultFull { limit: self.limit })
    }

    fn insert_original(&mut self, key: String, value: &str) {
        self.index_first_bytes(&key);
        // Built again at the next search. Values are added while a request is redacted and searched while its response
        // is restored, so this happens once.
        self.sorted = OnceLock::new();
        if let Some(known) = self.known.get_mut() {
            known_originals::add(known, &key, value);
        }
        self.originals.insert(key, value.to_owned());
    }

    /// Matches a placeholder at the beginning of a text. With `more_may_come`, a text that ends within one is
    /// reported as open.
    pub(crate) fn match_at_start<'v>(&'v self, text: &[u8], more_may_come: bool) -> PlaceholderPrefix<'v> {
        let sorted = self.sorted.get_or_init(|| {
            let mut keys: Vec<Box<str>> = self.originals.keys().map(|k| k.as_str().into()).collect();
            keys.sort_unstable();
            keys
        });
        let (mut low, mut high) = (0, sorted.len());
        let (mut read, mut matched) = (0, 0);
        // `low..high` are the placeholders that begin with the bytes matched so far; each byte narrows the range.
        while low < high {
            let key = &sorted[low];
            // The first complete one wins; none is a prefix of another, since all codes have the same length.
            if key.len() == matched {
                let original = self.originals.get(&**key).map_or("", String::as_str);
                return PlaceholderPrefix::Found { len: read, original };
            }
            let Some(&byte) = text.get(read) else {
                return if more_may_come && matched > 0 { PlaceholderPrefix::Open } else { PlaceholderPrefix::Not };
            };
            read += 1;
            let byte = byte.to_ascii_lowercase();
            // Models that write Markdown escape the underscore.
            if byte == b'\\' && matched > 0 && key.as_bytes()[matched] == b'_' {
                continue;
            }
            let keys = &sorted[low..high];
            let from = keys.partition_point(|k| k.as_bytes()[matched] < byte);
            let to = keys.partition_point(|k| k.as_bytes()[matched] <= byte);
            (low, high) = (low + from, low + to);
            matched += 1;
        }
        PlaceholderPrefix::Not
    }

    /// Adds a placeholder to the filter of [`next_start`](Self::next_start).
    fn index_first_bytes(&mut self, key: &str) {
        let &[a, b, ..] = key.as_bytes() else { return };
        self.first[usize::from(a)] = true;
        self.first[usize::from(a.to_ascii_uppercase())] = true;
        if let Some(mask) = letter(a).and_then(|a| self.second.get_mut(a)) {
            *mask |= 1 << letter(b).unwrap_or(31);
        }
    }

    /// Whether the second byte allows a placeholder here; at the end of a fragment it is not known yet.
    fn may_continue(&self, text: &[u8]) -> bool {
        let &[a, b, ..] = text else { return true };
        let Some(mask) = letter(a).and_then(|a| self.second.get(a)) else { return true };
        mask & (1 << letter(b).unwrap_or(31)) != 0
    }

    /// The next position at which a placeholder may begin: a filter on two bytes, so that most text is skipped
    /// quickly.
    pub(crate) fn next_start(&self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let rest = text.get(at..)?;
            at += rest.iter().position(|b| self.first[usize::from(*b)])?;
            if self.may_continue(&text[at..]) {
                return Some(at);
            }
            at += 1;
        }
    }
}

/// The result of matching at the beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlaceholderPrefix<'v> {
    Not,
    /// A possible placeholder if more text follows.
    Open,
    /// A placeholder of `len` bytes, and its original.
    Found {
        len: usize,
        original: &'v str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vault() -> PlaceholderVault {
        PlaceholderVault::new(&VaultKey([7; 32]))
    }

    #[test]
    fn placeholder_is_stable_within_a_conversation_and_differs_between_them() {
        let key = VaultKey::for_conversation(&[1; 32], b"a");
        let first = PlaceholderVault::new(&key).placeholder(Kind::Person, "PERSON", "Anna").expect("room");
        assert_eq!(PlaceholderVault::new(&key).placeholder(Kind::Person, "PERSON", "Anna").expect("room"), first);
        let other = VaultKey::for_conversation(&[1; 32], b"b");
        assert_ne!(PlaceholderVault::new(&other).placeholder(Kind::Person, "PERSON", "Anna").expect("room"), first);
        assert_eq!(first.len(), "PERSON_".len() + CODE_LENGTH);
    }

    #[test]
    fn fixed_prompt_values_have_one_placeholder_per_installation() {
        let vault = |master: u8, conversation: &[u8]| {
            let master = [master; 32];
            PlaceholderVault::new(&VaultKey::for_conversation(&master, conversation))
                .with_fixed(&VaultKey::for_installation(&master))
        };
        let fixed =
            |v: &mut PlaceholderVault, fixed| v.placeholder_for(Kind::Person, "PERSON", "Anna", fixed).expect("room");
        let (mut a, mut b) = (vault(1, b"a"), vault(1, b"b"));
        assert_ne!(fixed(&mut a, false), fixed(&mut b, false));
        let known = fixed(&mut a, true);
        assert_eq!(fixed(&mut b, true), known);
        assert_eq!(fixed(&mut a, false), known, "and keeps it in the conversation");
        assert_ne!(fixed(&mut vault(2, b"a"), true), known);
        assert_eq!(a.restore(&known), "Anna");
    }

    #[test]
    fn placeholders_are_restored_despite_case_and_markdown_escapes() {
        let mut vault = vault();
        let p = vault.placeholder(Kind::Person, "PERSON", "Anna").expect("room");
        let text = format!("{p}, {}'s and {}!", p.to_uppercase(), p.replace('_', "\\_"));
        assert_eq!(vault.restore(&text), "Anna, Anna's and Anna!");
        assert_eq!(vault.restore("PERSON_ nobody PERSON_zzzzzzzz"), "PERSON_ nobody PERSON_zzzzzzzz");
    }

    #[test]
    fn full_vault_is_an_error_for_new_values() {
        let mut vault = PlaceholderVault { limit: 1, ..vault() };
        vault.placeholder(Kind::Person, "PERSON", "Anna").expect("room");
        assert!(matches!(vault.placeholder(Kind::Person, "PERSON", "Berta"), Err(RedactError::VaultFull { limit: 1 })));
        assert!(vault.placeholder(Kind::Person, "PERSON", "Anna").is_ok());
    }

    #[test]
    fn vault_debug_output_contains_no_originals() {
        let mut vault = vault();
        vault.placeholder(Kind::Person, "PERSON", "Anna").expect("room");
        assert_eq!(format!("{vault:?} {:?}", VaultKey([7; 32])), "Vault(1 placeholders) VaultKey");
    }

    proptest! {
        #[test]
        fn vault_restores_all_placeholders(values in prop::collection::vec("[A-Za-z0-9 é@.\"\\\\]{1,12}", 1..8), between in "[ -~é]{0,10}") {
            let mut vault = vault();
            let mut text = String::new();
            let mut wanted = String::new();
            for value in &values {
                text.push_str(&vault.placeholder(Kind::Email, "EMAIL", value).expect("room"));
                text.push(' ');
                text.push_str(&between);
                wanted.push_str(value);
                wanted.push(' ');
                wanted.push_str(&between);
            }
            prop_assert_eq!(vault.restore(&text), wanted);
        }
    }
}
