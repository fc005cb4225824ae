//! The certificate authority: its files, and the leaf certificates it issues for intercepted hosts.

mod files;
mod issue;
mod keys;
mod leaf_cache;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use interflow_types::{Error, ErrorKind, ErrorSource, Host, Timestamp};
use rustls_pki_types::CertificateDer;

use crate::tls::{Alpn, ServerTls};
pub use files::machine_name;
use issue::LeafIssuer;
use keys::KeyPool;
use leaf_cache::{LeafCache, LeafCertificate, LeafStore};

options! {
    /// Options for leaf certificates. `leaves` is how many are cached in memory (at least 1; the least recently used is
    /// evicted), `leaf_days` their validity (2 to 90 days). With `persist_leaves`, as many leaves and their keys are also
    /// stored in the CA's folder, so that clients see the same ones after a restart. By default 10,000 leaves of 90 days, in
    /// memory only.
    #[derive(Clone, Debug)]
    pub struct CaOptions {
        pub leaves: usize = 10_000,
        pub leaf_days: u32 = 90,
        pub persist_leaves: bool,
    }
}

/// The certificate authority of this installation. Shared by all workers; a cache hit takes the read lock of one of
/// many shards.
pub struct CertificateAuthority {
    pem: String,
    der: CertificateDer<'static>,
    not_after: u64,
    minter: LeafIssuer,
    keys: Arc<KeyPool>,
    leaves: LeafCache,
    store: Option<LeafStore>,
}

impl CertificateAuthority {
    /// Reads `ca.pem` and `ca.key` from a folder, or creates them on the first start. Blocks on file I/O.
    ///
    /// # Errors
    /// A folder that is not writable, a key that others can read, files that do not belong together, or an expired
    /// CA; attributed to the configuration, with a remedy.
    pub fn open_or_create(dir: &Path) -> Result<Self, Error> {
        Self::open_with(dir, &CaOptions::default())
    }

    /// As [`open_or_create`](Self::open_or_create), with options.
    ///
    /// # Errors
    /// As [`Self::open_or_create`].
    pub fn open_with(dir: &Path, options: &CaOptions) -> Result<Self, Error> {
        // Held until the files are read or written, so that two processes do not create one CA each.
        let _lock = files::lock(dir)?;
        let files = files::read(dir)?.map_or_else(|| files::create(dir), Ok)?;
        Self::from_files(dir, files, options)
    }

    /// Replaces the CA with a new one. The old certificate is kept as `ca-<fingerprint>.pem`, so that it can be
    /// removed from trust stores; the old key is deleted.
    ///
    /// # Errors
    /// As [`Self::open_or_create`].
    pub fn rotate(dir: &Path, options: &CaOptions) -> Result<Self, Error> {
        let _lock = files::lock(dir)?;
        files::archive(dir)?;
        let files = files::create(dir)?;
        Self::from_files(dir, files, options)
    }

    /// Creates a CA in a folder that has none, for use elsewhere. Blocks on file I/O.
    ///
    /// # Errors
    /// As [`Self::open_or_create`], and a folder that has a CA.
    pub fn create(dir: &Path) -> Result<Self, Error> {
        let _lock = files::lock(dir)?;
        if files::read(dir)?.is_some() {
            let message = format!("there is a CA in {} already: name another folder", dir.display());
            return Err(Error::new(ErrorKind::Internal, message).with_error_source(ErrorSource::Config));
        }
        Self::from_files(dir, files::create(dir)?, &CaOptions::default())
    }

    /// Makes the CA of these texts in PEM, a certificate and its key, that of the folder; returns whether it was another
    /// one. Nothing changes unless they can be used. The former CA is kept as with [`rotate`](Self::rotate).
    ///
    /// # Errors
    /// As [`Self::open_or_create`]; `source` says where the texts are from.
    pub fn adopt(dir: &Path, certificate: &str, key: &str, source: &str) -> Result<bool, Error> {
        // As they are, since another form of the key might not be read again.
        let (pem, key) = (certificate.trim().to_owned() + "\n", key.trim().to_owned() + "\n");
        check_files(files::parse(pem.clone(), &key, source, source)?, Path::new(source))?;
        let _lock = files::lock(dir)?;
        if files::is_same(dir, &pem, &key) {
            return Ok(false);
        }
        files::archive(dir)?;
        files::write(dir, &pem, &key)?;
        Ok(true)
    }

    /// Whether the CA of the folder could be opened; one that is missing would be made.
    ///
    /// # Errors
    /// As [`Self::open_or_create`].
    pub fn check(dir: &Path) -> Result<(), Error> {
        files::read(dir)?.map_or(Ok(()), |files| check_files(files, dir))
    }

    /// Whether the CA of these texts in PEM could be [adopted](Self::adopt).
    ///
    /// # Errors
    /// As [`Self::open_or_create`]; `source` says where the texts are from.
    pub fn check_pair(certificate: &str, key: &str, source: &str) -> Result<(), Error> {
        check_files(files::parse(certificate.trim().to_owned() + "\n", key, source, source)?, Path::new(source))
    }

    fn from_files(dir: &Path, files: files::CaFiles, options: &CaOptions) -> Result<Self, Error> {
        let files::CaFiles { pem, chain, key } = files;
        let (minter, der, not_after) = LeafIssuer::new(chain, key, options.leaf_days, dir)?;
        let keys = Arc::new(KeyPool::default());
        // The keys are made while the rest of the program starts.
        KeyPool::refill(&keys);
        let fingerprint = issue::sha256_hex(&der);
        // Named after the CA, so that leaves of a rotated CA are never used.
        let folder = options.persist_leaves.then(|| dir.join("leaves").join(&fingerprint[..16]));
        let store = folder.map(|folder| LeafStore::open(folder, options.leaves)).transpose()?;
        Ok(Self { pem, der, not_after, minter, keys, leaves: LeafCache::new(options.leaves), store })
    }

    /// The CA's certificate in PEM, followed by those above it, if any.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    pub fn certificate_der(&self) -> &[u8] {
        &self.der
    }

    /// The SHA-256 fingerprint of the CA's certificate in the form that browsers use: `AB:CD:…`.
    pub fn fingerprint_sha256(&self) -> String {
        let hex = issue::sha256_hex(&self.der).to_ascii_uppercase();
        let pairs: Vec<_> = hex.as_bytes().chunks(2).map(String::from_utf8_lossy).collect();
        pairs.join(":")
    }

    /// The SHA-256 of the CA's `SubjectPublicKeyInfo` (RFC 7469 2.4), by which a browser can be told to accept the CA.
    pub fn spki_sha256(&self) -> [u8; 32] {
        self.minter.spki_sha256
    }

    /// The CA's name as trust stores display it.
    pub fn name(&self) -> &str {
        &self.minter.name
    }

    pub fn not_after(&self) -> Timestamp {
        Timestamp::from_micros(self.not_after.saturating_mul(1_000_000))
    }

    /// How long the CA's certificate is still valid; zero if it has expired.
    pub fn remaining(&self) -> Duration {
        Duration::from_secs(self.not_after.saturating_sub(now()))
    }

    /// How many leaves were signed since the start.
    pub fn leaves_signed(&self) -> u64 {
        self.minter.signed.load(Ordering::Relaxed)
    }

    pub fn leaves_cached(&self) -> usize {
        self.leaves.len()
    }

    /// The TLS configuration to present to a client that connects to `host`. A cache miss signs a leaf, and
    /// concurrent requests for the same host share it. Signing takes tens of microseconds and does not block other
    /// hosts.
    pub fn server_tls(&self, host: &Host, alpn: Alpn) -> Arc<ServerTls> {
        self.leaves.get(host, now(), (alpn, None), || self.leaf(host))
    }

    /// As [`server_tls`](Self::server_tls), with the CA's certificate in the chain: for clients that do not have it, and
    /// recognise it by its [key](Self::spki_sha256).
    pub fn server_tls_with_root(&self, host: &Host, alpn: Alpn) -> Arc<ServerTls> {
        self.leaves.get(host, now(), (alpn, Some(&self.der)), || self.leaf(host))
    }

    fn leaf(&self, host: &Host) -> LeafCertificate {
        let now = now();
        if let Some(store) = &self.store
            // Signed again if the file is missing, damaged or due.
            && let Some(leaf) = leaf_cache::load(store, host, now)
        {
            return leaf;
        }
        let key = KeyPool::take(&self.keys);
        let minted = self.minter.issue(host, &key, now);
        if let Some(store) = &self.store {
            leaf_cache::store(store, host, &minted, &key);
        }
        LeafCertificate::new(minted.chain, &key, minted.not_before, minted.not_after)
    }
}

fn check_files(files: files::CaFiles, place: &Path) -> Result<(), Error> {
    LeafIssuer::new(files.chain, files.key, CaOptions::default().leaf_days, place).map(drop)
}

fn now() -> u64 {
    Timestamp::now().secs()
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
