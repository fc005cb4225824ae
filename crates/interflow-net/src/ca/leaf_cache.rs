//! The cache of leaf certificates: bounded, one signature per miss, renewed before expiry, and optionally persisted.
//!
//! A miss inserts an empty slot under the lock and signs outside of it, so a slow signature delays only callers for the
//! same host. One lock suffices: a lookup holds it for some ten nanoseconds, a thousandth of the handshake that it is for.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hashlink::LruCache;
use interflow_files::{AtomicFile, FileAccess, is_leftover};
use interflow_types::{Error, Host};
use parking_lot::Mutex;
use rcgen::KeyPair;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files;
use super::issue::{IssuedLeaf, certified_key, sha256_hex};
use super::keys::LeafKey;
use crate::tls::{Alpn, ServerTls};

const WEEK_SECS: u64 = 7 * 86_400;

/// A signed leaf with its key, and the TLS configuration for each choice of ALPN.
pub(super) struct LeafCertificate {
    certified: Arc<CertifiedKey>,
    renew_at: u64,
    server_tls: [OnceLock<Arc<ServerTls>>; Alpn::COUNT],
    /// The same with the root at the end of the chain.
    with_root: [OnceLock<Arc<ServerTls>>; Alpn::COUNT],
}

impl LeafCertificate {
    pub(super) fn new(chain: Vec<CertificateDer<'static>>, key: &LeafKey, not_before: u64, not_after: u64) -> Self {
        // A week suffices for clients with long-lived connections. Short-lived leaves are renewed after two thirds of
        // their lifetime instead, since a week could be all of it.
        let spare = WEEK_SECS.min(not_after.saturating_sub(not_before) / 3);
        Self {
            certified: certified_key(chain, key),
            renew_at: not_after.saturating_sub(spare),
            server_tls: Default::default(),
            with_root: Default::default(),
        }
    }

    fn server_tls(&self, alpn: Alpn, root: Option<&CertificateDer<'static>>) -> Arc<ServerTls> {
        let Some(root) = root else {
            let made = || Arc::new(ServerTls::new(self.certified.clone(), alpn));
            return self.server_tls[alpn.index()].get_or_init(made).clone();
        };
        let made = || {
            let mut certified = (*self.certified).clone();
            // An intermediate CA is in the chain already.
            if !certified.cert.contains(root) {
                certified.cert.push(root.clone());
            }
            Arc::new(ServerTls::new(Arc::new(certified), alpn))
        };
        self.with_root[alpn.index()].get_or_init(made).clone()
    }
}

/// The least recently used leaf is evicted first.
pub(super) struct LeafCache(Mutex<LruCache<Host, LeafSlot>>);

/// An entry of the cache. It is inserted empty; the first caller to reach it signs the leaf, and concurrent callers for
/// the same host wait for that one.
type LeafSlot = Arc<OnceLock<LeafCertificate>>;

impl LeafCache {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Mutex::new(LruCache::new(capacity.max(1))))
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// The TLS configuration of a host's leaf. `make` issues a leaf if none is cached or the cached one is due for
    /// renewal; it runs at most once per slot. `root` is sent with the chain.
    pub(super) fn get(
        &self,
        host: &Host,
        now: u64,
        (alpn, root): (Alpn, Option<&CertificateDer<'static>>),
        make: impl FnOnce() -> LeafCertificate,
    ) -> Arc<ServerTls> {
        let slot = {
            let mut slots = self.0.lock();
            // An empty slot is being signed right now, and is never due.
            let is_due = |slot: &LeafSlot| slot.get().is_some_and(|leaf| now >= leaf.renew_at);
            let current = slots.get(host).filter(|slot| !is_due(slot)).cloned();
            current.unwrap_or_else(|| {
                // In place of one that is due: a caller that still holds it may finish a handshake with the old leaf.
                let slot = LeafSlot::default();
                slots.insert(host.clone(), slot.clone());
                slot
            })
        };
        // Outside of the lock. An evicted slot remains usable for those who hold it.
        slot.get_or_init(make).server_tls(alpn, root)
    }
}

/// One file per host. Its name is a hash, because host names can be long and contain characters that are special to a
/// file system.
fn leaf_file_name(host: &Host) -> String {
    format!("{}.pem", &sha256_hex(host.to_string().as_bytes())[..32])
}

/// How old a leftover temporary file must be before it is removed, since another process may be writing it.
const STALE_TEMP_FILE_AGE: Duration = Duration::from_secs(3_600);

/// The leaves on disk: one file per host in a folder named after the CA, no more than in memory; the oldest is
/// removed first.
pub(super) struct LeafStore {
    pub(super) folder: PathBuf,
    capacity: usize,
    names: Mutex<VecDeque<OsString>>,
}

impl LeafStore {
    /// Creates the folder, and removes files in excess of the capacity.
    pub(super) fn open(folder: PathBuf, capacity: usize) -> Result<Self, Error> {
        files::make_folder(&folder)?;
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(modified) = entry.metadata().ok().and_then(|m| m.modified().ok()) else { continue };
            let name = entry.file_name();
            // A crash between creation and rename leaves a temporary file behind.
            if !is_leftover(Path::new(&name)) {
                there.push((modified, name));
            } else if modified.elapsed().is_ok_and(|age| age > STALE_TEMP_FILE_AGE) {
                drop(std::fs::remove_file(entry.path()));
            }
        }
        // By age, so that the queue begins with the oldest file.
        there.sort_unstable();
        let store = Self { folder, capacity: capacity.max(1), names: Mutex::default() };
        there.into_iter().for_each(|(_, name)| store.record_written(name));
        Ok(store)
    }

    /// Registers a newly written file, and removes files in excess of the capacity.
    fn record_written(&self, name: OsString) {
        let mut names = self.names.lock();
        // A renewed leaf moves to the end of the queue.
        if let Some(before) = names.iter().position(|n| *n == name) {
            names.remove(before);
        }
        names.push_back(name);
        while names.len() > self.capacity
            && let Some(oldest) = names.pop_front()
        {
            let _ = std::fs::remove_file(self.folder.join(oldest));
        }
    }
}

/// The stored leaf of a host, unless it is due for renewal. The folder is named after the CA, so it is never another
/// CA's.
pub(super) fn load(kept: &LeafStore, host: &Host, now: u64) -> Option<LeafCertificate> {
    let path = kept.folder.join(leaf_file_name(host));
    let pem = std::fs::read_to_string(&path).ok()?;
    let leaf = parse(&pem).filter(|leaf| now < leaf.renew_at);
    if leaf.is_none() {
        // Expired, due for renewal, or damaged: the caller issues another one.
        let _ = std::fs::remove_file(&path);
    }
    leaf
}

fn parse(pem: &str) -> Option<LeafCertificate> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()?;
    let key = LeafKey::from_pair(KeyPair::from_pem(pem).ok()?)?;
    let (_, cert) = X509Certificate::from_der(chain.first()?).ok()?;
    // A file that was assembled wrongly would fail every handshake of its host.
    if cert.public_key().subject_public_key.data.as_ref() != key.pair.public_key_raw() {
        return None;
    }
    let not_before = u64::try_from(cert.validity().not_before.timestamp()).ok()?;
    let not_after = u64::try_from(cert.validity().not_after.timestamp()).ok()?;
    Some(LeafCertificate::new(chain, &key, not_before, not_after))
}

/// Stores a leaf. Failure is only logged, because the leaf can be used all the same.
pub(super) fn store(kept: &LeafStore, host: &Host, minted: &IssuedLeaf, key: &LeafKey) {
    let mut pem = key.pair.serialize_pem();
    for der in &minted.chain {
        pem.push_str(&crate::tls::pem("CERTIFICATE", der));
    }
    let name = leaf_file_name(host);
    let written = AtomicFile::create(&kept.folder.join(&name), FileAccess::Private).and_then(|mut file| {
        file.write_all(pem.as_bytes())?;
        // Without fsync: after a power failure, a missing leaf is simply issued again.
        file.commit_without_sync()
    });
    match written {
        Ok(()) => kept.record_written(name.into()),
        Err(error) => {
            tracing::warn!(%host, %error, "a leaf certificate could not be stored in {}", kept.folder.display())
        }
    }
}
