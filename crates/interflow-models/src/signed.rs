//! Catalogs that come after this version: signed, and never older than the one in use.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use interflow_types::Timestamp;

use crate::catalog::{Catalog, current};
use crate::day;

/// Whose catalogs are taken: a catalog file followed by the 64 bytes of its Ed25519 signature.
#[derive(Clone, Debug)]
pub struct CatalogSource {
    key: Vec<u8>,
    pin: Option<String>,
}

impl CatalogSource {
    /// `key` is the signer's public key, 64 hexadecimal digits; `pin`, `sha256:` and the digest of the only file that is
    /// taken.
    ///
    /// # Errors
    /// Either has another form.
    pub fn new(key: &str, pin: Option<&str>) -> Result<Self, String> {
        let key = hex::decode(key).ok().filter(|key| key.len() == 32);
        let key = key.ok_or("quota.catalog.key: write an Ed25519 public key as 64 hexadecimal digits")?;
        if pin.is_some_and(|pin| pin.strip_prefix("sha256:").is_none_or(|digits| digits.len() != 64)) {
            return Err("quota.catalog.pin: write sha256: and 64 hexadecimal digits".to_owned());
        }
        Ok(Self { key, pin: pin.map(str::to_ascii_lowercase) })
    }

    /// Checks a file and reads it.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn open(&self, file: &[u8], now: Timestamp) -> Result<Catalog, String> {
        let digest = format!("sha256:{}", hex::encode(digest(&SHA256, file)));
        if let Some(pin) = self.pin.as_ref().filter(|pin| **pin != digest) {
            return Err(format!("it is {digest}, but quota.catalog.pin takes only {pin}"));
        }
        let (text, signature) = file.split_last_chunk::<64>().ok_or("it is too short to be signed")?;
        let signed = UnparsedPublicKey::new(&ED25519, &self.key).verify(text, signature);
        signed.map_err(|_| "it has no valid signature by quota.catalog.key")?;
        let catalog = Catalog::read(text)?;
        catalog.check()?;
        let in_use = current();
        let (used, new) = (&in_use.header().as_of, &catalog.header().as_of);
        if new < used {
            return Err(format!("it is as of {new}, older than the one in use, as of {used}"));
        }
        if *new > day(now.after(Duration::from_secs(86_400))) {
            return Err(format!("it is as of {new}, which is in the future; check the clock of this machine"));
        }
        Ok(catalog)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn only_a_signed_catalog_that_is_neither_older_nor_from_the_future_is_taken() {
        let pair = Ed25519KeyPair::generate().unwrap();
        let key = hex::encode(pair.public_key());
        let signed = |text: &str| {
            let mut file = zstd::bulk::compress(text.as_bytes(), 3).unwrap();
            let signature = pair.sign(&file);
            file.extend_from_slice(signature.as_ref());
            file
        };
        let catalog = |as_of: &str, lines: &str| {
            signed(&format!("{{\"format\":1,\"as_of\":\"{as_of}\",\"sources\":[],\"families\":[]}}\n{lines}"))
        };
        let model = "openai/gpt-9\t{\"prices\":[{\"input\":1,\"output\":2}]}\n";
        // 2026-12-24.
        let now = Timestamp::from_secs(1_798_070_400);
        let source = CatalogSource::new(&key, None).unwrap();
        let good = catalog("2026-12-24", model);
        assert!(source.open(&good, now).unwrap().model("openai", "gpt-9").is_some());
        let mut unsigned = good.clone();
        *unsigned.last_mut().unwrap() ^= 1;
        let other = CatalogSource::new(&"0".repeat(64), None).unwrap();
        let pinned = CatalogSource::new(&key, Some(&format!("sha256:{}", "0".repeat(64)))).unwrap();
        for (source, file, why) in [
            (&source, unsigned, "no valid signature"),
            (&other, good.clone(), "no valid signature"),
            (&source, b"short".to_vec(), "too short"),
            (&source, catalog("2026-11-27", model), "older than the one in use"),
            (&source, catalog("2026-12-26", model), "in the future"),
            (&source, catalog("soon", model), "`soon`"),
            (&source, signed("{\"format\":2,\"as_of\":\"2026-12-24\",\"sources\":[],\"families\":[]}\n"), "form 2"),
            (&source, signed("nonsense"), "line 1"),
            (&source, catalog("2026-12-24", &format!("{model}{model}")), "line 3"),
            (&source, catalog("2026-12-24", "openai/gpt-9\t{\"prices\":[{\"money\":1}]}\n"), "line 2"),
            (&source, catalog("2026-12-24", "gpt-9\topenai/gpt-9\n"), "line 2"),
            (&pinned, good.clone(), "quota.catalog.pin takes only"),
        ] {
            let error = source.open(&file, now).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        let pin = format!("sha256:{}", hex::encode(digest(&SHA256, &good)));
        assert!(CatalogSource::new(&key, Some(&pin)).unwrap().open(&good, now).is_ok());
        assert!(CatalogSource::new("abc", None).unwrap_err().contains("64 hexadecimal digits"));
        assert!(CatalogSource::new(&key, Some("md5:1")).unwrap_err().contains("sha256:"));
    }
}
