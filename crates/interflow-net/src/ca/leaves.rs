//! The cache of leaves: bounded, one signature per first hit, and renewed before they end; kept on disk on wish.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interflow_flow::{Error, Host};
use parking_lot::{Mutex, RwLock};
use rcgen::KeyPair;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files;
use super::keys::LeafKey;
use super::mint::{Minted, certified, sha256_hex};
use crate::tls::{Alpn, ServerTls};

/// Workers meet in a shard only when their hosts fall into the same one.
const SHARDS: usize = 16;
const WEEK: u64 = 7 * 86_400;

/// A signed leaf with its key, and what is shown to clients with each choice of protocols.
pub(super) struct Leaf {
    certified: Arc<CertifiedKey>,
    renew_at: u64,
    shown: [OnceLock<Arc<ServerTls>>; Alpn::COUNT],
}

impl Leaf {
    pub(super) fn new(chain: Vec<CertificateDer<'static>>, key: &LeafKey, not_before: u64, not_after: u64) -> Self {
        // A week is enough for clients that hold on to a connection; a short-lived leaf gives a third of its life.
        let spare = WEEK.min(not_after.saturating_sub(not_before) / 3);
        Self { certified: certified(chain, key), renew_at: not_after.saturating_sub(spare), shown: Default::default() }
    }

    fn server_tls(&self, alpn: Alpn) -> Arc<ServerTls> {
        self.shown[alpn.index()].get_or_init(|| Arc::new(ServerTls::new(self.certified.clone(), alpn))).clone()
    }
}

/// A leaf's place in the cache: whoever comes first signs, the others wait for that.
#[derive(Default)]
struct Slot {
    leaf: OnceLock<Leaf>,
    used: AtomicU64,
}

impl Slot {
    fn is_due(&self, now: u64) -> bool {
        self.leaf.get().is_some_and(|leaf| now >= leaf.renew_at)
    }
}

#[derive(Default)]
struct Shard {
    slots: RwLock<HashMap<Host, Arc<Slot>>>,
    /// Counts uses, to know which slot was used longest ago.
    clock: AtomicU64,
}

/// The leaves at hand.
pub(super) struct Leaves {
    shards: [Shard; SHARDS],
    per_shard: usize,
    hasher: RandomState,
}

impl Leaves {
    /// A cache of `capacity` leaves, rounded up to a whole number per shard.
    pub(super) fn new(capacity: usize) -> Self {
        Self { shards: Default::default(), per_shard: capacity.max(1).div_ceil(SHARDS), hasher: RandomState::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.slots.read().len()).sum()
    }

    /// What to show for a host; `make` makes its leaf when there is none, or none that lasts.
    pub(super) fn get(&self, host: &Host, now: u64, alpn: Alpn, make: impl FnOnce() -> Leaf) -> Arc<ServerTls> {
        let shard = &self.shards[self.hasher.hash_one(host) as usize % SHARDS];
        let found = shard.slots.read().get(host).filter(|slot| !slot.is_due(now)).cloned();
        let slot = found.unwrap_or_else(|| self.enter(shard, host, now));
        slot.used.store(shard.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.leaf.get_or_init(make).server_tls(alpn)
    }

    /// An empty slot for the host, unless another has just put one there.
    fn enter(&self, shard: &Shard, host: &Host, now: u64) -> Arc<Slot> {
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
        let slot = Arc::new(Slot::default());
        slot.used.store(shard.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        slots.insert(host.clone(), slot.clone());
        slot
    }
}

/// A file per host; its name is a hash, since a host may have any length and its characters any meaning to a file
/// system.
fn file_of(host: &Host) -> String {
    format!("{}.pem", &sha256_hex(host.to_string().as_bytes())[..32])
}

/// How long a file that was never renamed into its place may be another process's work.
const STALE: Duration = Duration::from_secs(3_600);

/// The leaves on disk: a file per host in a folder named after the CA, no more of them than leaves in memory; the one that was
/// written longest ago gives way.
pub(super) struct Kept {
    pub(super) folder: PathBuf,
    capacity: usize,
    /// The names of the files, the oldest first.
    names: Mutex<VecDeque<OsString>>,
}

impl Kept {
    /// Makes the folder, and removes what is there beyond the capacity.
    pub(super) fn open(folder: PathBuf, capacity: usize) -> Result<Self, Error> {
        files::make_folder(&folder)?;
        let mut there = Vec::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Some(modified) = entry.metadata().ok().and_then(|m| m.modified().ok()) else { continue };
            let name = entry.file_name();
            match Path::new(&name).extension() {
                Some(_) => there.push((modified, name)),
                None if modified.elapsed().is_ok_and(|age| age > STALE) => drop(std::fs::remove_file(entry.path())),
                None => {}
            }
        }
        there.sort_unstable();
        let kept = Self { folder, capacity: capacity.max(1), names: Mutex::default() };
        there.into_iter().for_each(|(_, name)| kept.note(name));
        Ok(kept)
    }

    /// Notes a file that was written last, and removes those beyond the capacity.
    fn note(&self, name: OsString) {
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
pub(super) fn load(kept: &Kept, host: &Host, now: u64) -> Option<Leaf> {
    let path = kept.folder.join(file_of(host));
    let pem = std::fs::read_to_string(&path).ok()?;
    let leaf = parse(&pem).filter(|leaf| now < leaf.renew_at);
    if leaf.is_none() {
        let _ = std::fs::remove_file(&path);
    }
    leaf
}

fn parse(pem: &str) -> Option<Leaf> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()?;
    let key = LeafKey::from_pair(KeyPair::from_pem(pem).ok()?)?;
    let (_, cert) = X509Certificate::from_der(chain.first()?).ok()?;
    if cert.public_key().subject_public_key.data.as_ref() != key.pair.public_key_raw() {
        return None;
    }
    let not_before = u64::try_from(cert.validity().not_before.timestamp()).ok()?;
    let not_after = u64::try_from(cert.validity().not_after.timestamp()).ok()?;
    Some(Leaf::new(chain, &key, not_before, not_after))
}

/// Keeps a leaf. One that cannot be kept is only worth a word in the log: it works all the same.
pub(super) fn store(kept: &Kept, host: &Host, minted: &Minted, key: &LeafKey) {
    let mut pem = key.pair.serialize_pem();
    for der in &minted.chain {
        pem.push_str(&files::certificate_pem(der));
    }
    let name = file_of(host);
    let written = files::private_temporary(&kept.folder).and_then(|(mut file, temporary)| {
        file.write_all(pem.as_bytes())?;
        std::fs::rename(&temporary, kept.folder.join(&name))
    });
    match written {
        Ok(()) => kept.note(name.into()),
        Err(error) => tracing::warn!(%host, %error, "a leaf could not be kept in {}", kept.folder.display()),
    }
}
