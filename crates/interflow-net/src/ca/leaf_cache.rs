//! The cache of leaves: bounded, one signature per first hit, and renewed before they end; kept on disk on wish.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interflow_types::{Error, Host};
use parking_lot::{Mutex, RwLock};
use rcgen::KeyPair;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files;
use super::issue::{IssuedLeaf, certified_key, sha256_hex};
use super::keys::LeafKey;
use crate::tls::{Alpn, ServerTls};

/// Workers meet in a shard only when their hosts fall into the same one.
const SHARD_COUNT: usize = 16;
const WEEK_SECS: u64 = 7 * 86_400;

/// A signed leaf with its key, and what is shown to clients with each choice of protocols.
pub(super) struct LeafCertificate {
    certified: Arc<CertifiedKey>,
    renew_at: u64,
    shown: [OnceLock<Arc<ServerTls>>; Alpn::COUNT],
}

impl LeafCertificate {
    pub(super) fn new(chain: Vec<CertificateDer<'static>>, key: &LeafKey, not_before: u64, not_after: u64) -> Self {
        // A week is enough for clients that hold on to a connection; a short-lived leaf gives a third of its life.
        let spare = WEEK_SECS.min(not_after.saturating_sub(not_before) / 3);
        Self {
            certified: certified_key(chain, key),
            renew_at: not_after.saturating_sub(spare),
            shown: Default::default(),
        }
    }

    fn server_tls(&self, alpn: Alpn) -> Arc<ServerTls> {
        self.shown[alpn.index()].get_or_init(|| Arc::new(ServerTls::new(self.certified.clone(), alpn))).clone()
    }
}

/// A leaf's place in the cache: whoever comes first signs, the others wait for that.
#[derive(Default)]
struct LeafSlot {
    leaf: OnceLock<LeafCertificate>,
    used: AtomicU64,
}

impl LeafSlot {
    fn is_due(&self, now: u64) -> bool {
        self.leaf.get().is_some_and(|leaf| now >= leaf.renew_at)
    }
}

#[derive(Default)]
struct LeafShard {
    slots: RwLock<HashMap<Host, Arc<LeafSlot>>>,
    /// Counts uses, to know which slot was used longest ago.
    clock: AtomicU64,
}

/// The leaves at hand.
pub(super) struct LeafCache {
    shards: [LeafShard; SHARD_COUNT],
    per_shard: usize,
    hasher: RandomState,
}

impl LeafCache {
    /// A cache of `capacity` leaves, rounded up to a whole number per shard.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            shards: Default::default(),
            per_shard: capacity.max(1).div_ceil(SHARD_COUNT),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.slots.read().len()).sum()
    }

    /// What to show for a host; `make` makes its leaf when there is none, or none that lasts.
    pub(super) fn get(
        &self,
        host: &Host,
        now: u64,
        alpn: Alpn,
        make: impl FnOnce() -> LeafCertificate,
    ) -> Arc<ServerTls> {
        let shard = &self.shards[self.hasher.hash_one(host) as usize % SHARD_COUNT];
        let found = shard.slots.read().get(host).filter(|slot| !slot.is_due(now)).cloned();
        let slot = found.unwrap_or_else(|| self.insert_slot(shard, host, now));
        slot.used.store(shard.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.leaf.get_or_init(make).server_tls(alpn)
    }

    /// An empty slot for the host, unless another has just put one there.
    fn insert_slot(&self, shard: &LeafShard, host: &Host, now: u64) -> Arc<LeafSlot> {
        let mut slots = shard.slots.write();
        if let Some(slot) = slots.get(host).filter(|slot| !slot.is_due(now)) {
            return slot.clone();
        }
        slots.remove(host);
        while slots.len() >= self.per_shard {
            let oldest = slots.iter().min_by_key(|(_, slot)| slot.used.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(host, _)| host.clone()) else { break };
            slots.remove(&oldest);
        }
        let slot = Arc::new(LeafSlot::default());
        slot.used.store(shard.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        slots.insert(host.clone(), slot.clone());
        slot
    }
}

/// A file per host; its name is a hash, since a host may have any length and its characters any meaning to a file
/// system.
fn leaf_file_name(host: &Host) -> String {
    format!("{}.pem", &sha256_hex(host.to_string().as_bytes())[..32])
}

/// How long a file that was never renamed into its place may be another process's work.
const STALE_TEMP_FILE_AGE: Duration = Duration::from_secs(3_600);

/// The leaves on disk: a file per host in a folder named after the CA, no more of them than leaves in memory; the one that was
/// written longest ago gives way.
pub(super) struct LeafStore {
    pub(super) folder: PathBuf,
    capacity: usize,
    /// The names of the files, the oldest first.
    names: Mutex<VecDeque<OsString>>,
}

impl LeafStore {
    /// Makes the folder, and removes what is there beyond the capacity.
    pub(super) fn open(folder: PathBuf, capacity: usize) -> Result<Self, Error> {
        files::make_folder(&folder)?;
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(modified) = entry.metadata().ok().and_then(|m| m.modified().ok()) else { continue };
            let name = entry.file_name();
            match Path::new(&name).extension() {
                Some(_) => there.push((modified, name)),
                None if modified.elapsed().is_ok_and(|age| age > STALE_TEMP_FILE_AGE) => {
                    drop(std::fs::remove_file(entry.path()))
                }
                None => {}
            }
        }
        there.sort_unstable();
        let kept = Self { folder, capacity: capacity.max(1), names: Mutex::default() };
        there.into_iter().for_each(|(_, name)| kept.record_written(name));
        Ok(kept)
    }

    /// Notes a file that was written last, and removes those beyond the capacity.
    fn record_written(&self, name: OsString) {
        let mut names = self.names.lock();
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

/// The leaf kept for a host, when there is one that lasts. The folder is named after the CA, so it is never of
/// another one.
pub(super) fn load(kept: &LeafStore, host: &Host, now: u64) -> Option<LeafCertificate> {
    let path = kept.folder.join(leaf_file_name(host));
    let pem = std::fs::read_to_string(&path).ok()?;
    let leaf = parse(&pem).filter(|leaf| now < leaf.renew_at);
    if leaf.is_none() {
        let _ = std::fs::remove_file(&path);
    }
    leaf
}

fn parse(pem: &str) -> Option<LeafCertificate> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()?;
    let key = LeafKey::from_pair(KeyPair::from_pem(pem).ok()?)?;
    let (_, cert) = X509Certificate::from_der(chain.first()?).ok()?;
    if cert.public_key().subject_public_key.data.as_ref() != key.pair.public_key_raw() {
        return None;
    }
    let not_before = u64::try_from(cert.validity().not_before.timestamp()).ok()?;
    let not_after = u64::try_from(cert.validity().not_after.timestamp()).ok()?;
    Some(LeafCertificate::new(chain, &key, not_before, not_after))
}

/// Keeps a leaf. One that cannot be kept is only worth a word in the log: it works all the same.
pub(super) fn store(kept: &LeafStore, host: &Host, minted: &IssuedLeaf, key: &LeafKey) {
    let mut pem = key.pair.serialize_pem();
    for der in &minted.chain {
        pem.push_str(&files::certificate_pem(der));
    }
    let name = leaf_file_name(host);
    let written = files::private_temporary(&kept.folder).and_then(|(mut file, temporary)| {
        file.write_all(pem.as_bytes())?;
        std::fs::rename(&temporary, kept.folder.join(&name))
    });
    match written {
        Ok(()) => kept.record_written(name.into()),
        Err(error) => tracing::warn!(%host, %error, "a leaf could not be kept in {}", kept.folder.display()),
    }
}
