//! Responses in Redis. Contents are encrypted (AES-256-GCM) with a key of their own, bound to their name.

use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use interflow_limits::RedisValues;

use super::entry::StoredResponse;
use super::key::{CacheKey, CacheSecrets};

const NONCE_BYTES: usize = 12;

pub(super) struct RedisStore {
    values: Box<dyn RedisValues>,
    prefix: String,
}

impl RedisStore {
    pub fn new(values: Box<dyn RedisValues>, prefix: String) -> Self {
        Self { values, prefix }
    }

    fn name(&self, key: &CacheKey) -> Vec<u8> {
        format!("{}{}", self.prefix, hex::encode(key.0)).into_bytes()
    }

    pub async fn get(&self, secrets: &CacheSecrets, key: &CacheKey) -> Result<Option<StoredResponse>, String> {
        let Some(sealed) = self.values.get(&self.name(key)).await? else { return Ok(None) };
        // Written by somebody with another secret, or changed: not a response to this request.
        Ok(open(secrets, key, sealed).and_then(StoredResponse::decode))
    }

    pub async fn put(
        &self,
        secrets: &CacheSecrets,
        key: &CacheKey,
        entry: &StoredResponse,
        ttl: Duration,
    ) -> Result<(), String> {
        let sealed = seal(secrets, key, entry.encode()).ok_or("llm.cache: a response cannot be encrypted")?;
        self.values.set(&self.name(key), &sealed, ttl).await
    }
}

fn cipher(secrets: &CacheSecrets, key: &CacheKey) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, &secrets.content_key(key)).ok().map(LessSafeKey::new)
}

fn seal(secrets: &CacheSecrets, key: &CacheKey, mut plain: Vec<u8>) -> Option<Vec<u8>> {
    let nonce = interflow_types::random_bytes::<NONCE_BYTES>();
    let cipher = cipher(secrets, key)?;
    cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(key.0), &mut plain).ok()?;
    Some([&nonce[..], &plain].concat())
}

fn open(secrets: &CacheSecrets, key: &CacheKey, mut sealed: Vec<u8>) -> Option<Vec<u8>> {
    if sealed.len() < NONCE_BYTES {
        return None;
    }
    let mut text = sealed.split_off(NONCE_BYTES);
    let nonce = Nonce::try_assume_unique_for_key(&sealed).ok()?;
    let length = cipher(secrets, key)?.open_in_place(nonce, Aad::from(key.0), &mut text).ok()?.len();
    text.truncate(length);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_opened_with_its_own_secret_and_name_only() {
        let (ours, others) = (CacheSecrets::new(b"one secret"), CacheSecrets::new(b"another"));
        let (key, other) = (CacheKey([1; 32]), CacheKey([2; 32]));
        let sealed = seal(&ours, &key, b"private text".to_vec()).unwrap();
        assert!(!sealed.windows(7).any(|w| w == b"private"));
        assert_eq!(open(&ours, &key, sealed.clone()).as_deref(), Some(&b"private text"[..]));
        assert_eq!(open(&others, &key, sealed.clone()), None);
        assert_eq!(open(&ours, &other, sealed.clone()), None, "moved under another name");
        let mut changed = sealed;
        changed[NONCE_BYTES] ^= 1;
        assert_eq!(open(&ours, &key, changed), None);
        assert_eq!(open(&ours, &key, b"short".to_vec()), None);
    }
}
