//! The keys that seal links.

use chacha20poly1305::aead::Payload;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use hkdf::Hkdf;
use sha2::Sha256;

use super::{ChildKey, LinkGrant, TokenError, sealed};

/// The prefix of tokens of this format; the legacy formats never contain a dot.
const TOKEN_PREFIX: &str = "i1.";
/// Maximum size of a token, in bytes: it is part of a URL.
const MAX_TOKEN_LEN: usize = 16 * 1024;

/// The keys; the first one is used for sealing, all of them for opening, so that keys can be rotated.
pub struct LinkKeys {
    keys: Vec<LinkSealKey>,
}

struct LinkSealKey {
    id: String,
    seal: XChaCha20Poly1305,
    nonce: [u8; 32],
    child: [u8; 32],
}

/// Why configured secrets cannot be used to seal links.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkKeyError {
    #[error("there is no key to seal links with")]
    None,
    /// The id is not valid in a link, or longer than 16 characters.
    #[error("`{0}` is not a name for a key: use up to 16 letters and digits")]
    Name(String),
    /// Duplicate ids: a link would be ambiguous.
    #[error("two keys are named `{0}`")]
    Twice(String),
    /// The secret is too short to resist guessing offline.
    #[error("the secret of key `{0}` is shorter than 16 characters")]
    Short(String),
}

impl LinkKeys {
    /// From ids and secrets, the sealing key first. Keys for each purpose are derived by HKDF (RFC 5869).
    ///
    /// # Errors
    /// An invalid id or secret, or none at all.
    pub fn new(secrets: &[(String, Vec<u8>)]) -> Result<Self, LinkKeyError> {
        let mut keys: Vec<LinkSealKey> = Vec::new();
        for (id, secret) in secrets {
            if id.is_empty() || id.len() > 16 || !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err(LinkKeyError::Name(id.clone()));
            }
            if secret.len() < 16 {
                return Err(LinkKeyError::Short(id.clone()));
            }
            if keys.iter().any(|k| k.id == *id) {
                return Err(LinkKeyError::Twice(id.clone()));
            }
            keys.push(LinkSealKey::new(id, secret));
        }
        if keys.is_empty() { Err(LinkKeyError::None) } else { Ok(Self { keys }) }
    }

    /// The token for a grant. Equal grants give equal tokens: the nonce is derived from the content, so that players
    /// and caches see one URL per resource, and no nonce is used for two contents.
    pub fn seal(&self, grant: &LinkGrant) -> String {
        let key = &self.keys[0];
        let plain = serde_json::to_vec(grant).expect("a grant is plain data");
        let (nonce, aad) = (blake3::keyed_hash(&key.nonce, &plain), key.aad());
        let sealed = sealed::seal(&key.seal, &nonce, Payload { msg: &plain, aad: aad.as_bytes() });
        format!("{aad}{sealed}")
    }

    /// The grant in a token. Its conditions are not checked here: see [`LinkGrant::check`].
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn open(&self, token: &str) -> Result<LinkGrant, TokenError> {
        let (key, sealed) = self.find(token)?;
        // Version and key id are authenticated as well, so that a token cannot be passed off as one of another key.
        let plain = sealed::open(&key.seal, sealed, key.aad().as_bytes()).ok_or(TokenError::Foreign)?;
        serde_json::from_slice(&plain).map_err(|_| TokenError::Foreign)
    }

    /// The key for the child URLs of a token. Derived from the token's text, so a child URL is bound to its token.
    ///
    /// # Errors
    /// [`TokenError`] if the token names an unknown key; its authenticity is verified by [`open`](Self::open).
    pub fn child_key(&self, token: &str) -> Result<ChildKey, TokenError> {
        let (key, _) = self.find(token)?;
        Ok(ChildKey::new(blake3::keyed_hash(&key.child, token.as_bytes()).as_bytes()))
    }

    /// Whether a token has this format, not a legacy one; says nothing about its validity.
    pub fn is_sealed_token(token: &str) -> bool {
        token.starts_with(TOKEN_PREFIX)
    }

    fn find<'a>(&self, token: &'a str) -> Result<(&LinkSealKey, &'a str), TokenError> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(TokenError::Foreign);
        }
        let rest = token.strip_prefix(TOKEN_PREFIX).ok_or(TokenError::Foreign)?;
        let (id, sealed) = rest.split_once('.').ok_or(TokenError::Foreign)?;
        self.keys.iter().find(|k| k.id == id).map(|k| (k, sealed)).ok_or(TokenError::Retired)
    }
}

impl LinkSealKey {
    fn new(id: &str, secret: &[u8]) -> Self {
        let kdf = Hkdf::<Sha256>::new(Some(b"interflow media links"), secret);
        let derive = |purpose: &str| {
            let mut key = [0; 32];
            kdf.expand(purpose.as_bytes(), &mut key).expect("32 bytes are within what HKDF gives");
            key
        };
        let seal = XChaCha20Poly1305::new(&derive("seal").into());
        Self { id: id.to_owned(), seal, nonce: derive("nonce"), child: derive("child") }
    }

    fn aad(&self) -> String {
        format!("{TOKEN_PREFIX}{}.", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(list: &[(&str, &str)]) -> LinkKeys {
        let list: Vec<_> = list.iter().map(|(i, s)| (i.to_string(), s.as_bytes().to_vec())).collect();
        LinkKeys::new(&list).unwrap()
    }

    fn grant() -> LinkGrant {
        LinkGrant { q: vec![("d".into(), "http://a.test/x".into())], exp: Some(7), ..LinkGrant::default() }
    }

    #[test]
    fn sealing_is_deterministic_and_reversible() {
        let k = keys(&[("a", "0123456789abcdef")]);
        let token = k.seal(&grant());
        assert!(token.starts_with("i1.a.") && token == k.seal(&grant()) && !token.contains("a.test"));
        assert_eq!(k.open(&token), Ok(grant()));
    }

    #[test]
    fn keys_are_changed_without_breaking_links() {
        let old = keys(&[("a", "0123456789abcdef")]);
        let token = old.seal(&grant());
        let both = keys(&[("b", "fedcba9876543210"), ("a", "0123456789abcdef")]);
        assert_eq!(both.open(&token), Ok(grant()));
        assert!(both.seal(&grant()).starts_with("i1.b."));
        assert_eq!(keys(&[("b", "fedcba9876543210")]).open(&token), Err(TokenError::Retired));
        assert_eq!(keys(&[("a", "another secret 16")]).open(&token), Err(TokenError::Foreign));
    }

    #[test]
    fn invalid_link_keys_are_refused() {
        let new = |list: &[(&str, &str)]| {
            let list: Vec<_> = list.iter().map(|(i, s)| (i.to_string(), s.as_bytes().to_vec())).collect();
            LinkKeys::new(&list).err()
        };
        assert_eq!(new(&[]), Some(LinkKeyError::None));
        assert_eq!(new(&[("a.b", "0123456789abcdef")]), Some(LinkKeyError::Name("a.b".into())));
        assert_eq!(new(&[("a", "short")]), Some(LinkKeyError::Short("a".into())));
        let twice = [("a", "0123456789abcdef"), ("a", "0123456789abcdef")];
        assert_eq!(new(&twice), Some(LinkKeyError::Twice("a".into())));
    }

    proptest! {
        #[test]
        fn modified_token_is_never_accepted(at in 0usize..200, to in "[A-Za-z0-9_.-]") {
            let k = keys(&[("a", "0123456789abcdef")]);
            let token = k.seal(&grant());
            let at = at % token.len();
            let changed = format!("{}{to}{}", &token[..at], &token[at + 1..]);
            prop_assert!(changed == token || k.open(&changed).is_err());
        }

        #[test]
        fn arbitrary_tokens_never_panic(token in "(i1\\.a\\.)?[\\x00-\\x7f]{0,80}") {
            prop_assert!(keys(&[("a", "0123456789abcdef")]).open(&token).is_err());
        }
    }
}
