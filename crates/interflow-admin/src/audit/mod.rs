//! The audit trail of the admin side: who looked at contents and who changed what, as JSON lines in a rotated file.

pub mod last_editors;
pub mod shared;
pub mod trail;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_types::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::audit::last_editors::LastEditors;
use crate::audit::shared::SharedAudit;
use crate::audit::trail::{AuditFiles, AuditRecord, AuditStore};
use crate::config::AdminAuditConfig;
use crate::identity::Identity;
use crate::identity::shared::SharedIdentity;

/// The status of a request whose client disconnected before the response: that of nginx's log.
pub(crate) const CLIENT_CLOSED_REQUEST: u16 = 499;
/// Bound on a recorded path with its query, in bytes.
const MAX_TARGET: usize = 2000;

/// A line to be written.
pub(crate) struct AuditEntry<'a> {
    /// `None` before a login.
    pub identity: Option<&'a Identity>,
    pub address: Option<IpAddr>,
    /// Method and path of the operation as the API documents it, or `login`.
    pub operation: &'a str,
    /// The path that was asked for, with its query.
    pub target: &'a str,
    pub status: u16,
    pub detail: Option<Value>,
}

impl AuditEntry<'_> {
    /// A hash of the caller and something of theirs.
    fn caller_hash(&self, of: &str) -> [u8; 32] {
        let who = self.identity.map(|i| (i.name.as_str(), i.token.as_deref(), i.subject.as_deref()));
        blake3::hash(format!("{who:?} {:?} {of}", self.address).as_bytes()).into()
    }
}

/// A read that somebody repeats within this time is one line: pages of the UI load what they show again and again.
const REPEAT_WITHIN: Duration = Duration::from_secs(60);
/// Bound on the reads that are remembered for that.
const MAX_RECENT: usize = 1024;

/// Refusals of one caller that are written within [`REPEAT_WITHIN`]; what exceeds them is counted in the next line, so
/// that nobody can fill the trail with what they may not do.
const MAX_REFUSALS: u32 = 20;
/// Bound on the callers whose refusals are counted.
const MAX_REFUSED_CALLERS: usize = 1024;

/// Refusals of one caller since a time.
struct RefusalCount {
    since: Instant,
    written: u32,
    left_out: u64,
}

/// The trail of an instance; nothing is written if the operator turned it off.
#[derive(Default)]
pub(crate) struct AdminAudit {
    store: Option<Box<dyn AuditStore>>,
    /// The time of the last line: each line has its own, so that it tells which lines are after another.
    last: Mutex<u64>,
    /// Hashes of recent reads.
    recent: Mutex<HashMap<[u8; 32], Instant>>,
    refusals: Mutex<HashMap<[u8; 32], RefusalCount>>,
    pub editors: Arc<LastEditors>,
}

impl AdminAudit {
    /// # Errors
    /// The file cannot be opened, or its key cannot be resolved.
    pub fn new(config: &AdminAuditConfig, data_dir: &Path, shared: Option<&SharedIdentity>) -> Result<Self, String> {
        if !config.enabled {
            return Ok(Self::with_store(None));
        }
        let files = AuditFiles::open(config, data_dir)?;
        Ok(Self::with_store(Some(match shared {
            None => Box::new(files) as Box<dyn AuditStore>,
            Some(SharedIdentity { store, replica }) => {
                let (store, replica) = (Arc::clone(store), replica.clone());
                Box::new(SharedAudit::start(files, store, replica, config.max_age.0, data_dir)?)
            }
        })))
    }

    /// Writes to this store, or nowhere.
    pub fn with_store(store: Option<Box<dyn AuditStore>>) -> Self {
        Self { store, ..Self::default() }
    }

    pub fn store(&self) -> Option<&dyn AuditStore> {
        self.store.as_deref()
    }

    /// Whether the same person or token has read the same a moment ago.
    fn is_repeated(&self, entry: &AuditEntry<'_>) -> bool {
        let is_read = entry.operation.starts_with("GET ");
        if !is_read || (entry.status >= 400 && entry.status != CLIENT_CLOSED_REQUEST) {
            return false;
        }
        let mut recent = self.recent.lock();
        if recent.len() >= MAX_RECENT {
            recent.retain(|_, at| at.elapsed() < REPEAT_WITHIN);
        }
        // Full of reads within the time: what does not fit is written once more, never left out.
        if recent.len() >= MAX_RECENT {
            recent.clear();
        }
        let key = entry.caller_hash(entry.target);
        // Its own time is not renewed, so that a page that keeps asking is a line each minute.
        if recent.get(&key).is_some_and(|at| at.elapsed() < REPEAT_WITHIN) {
            return true;
        }
        recent.insert(key, Instant::now());
        false
    }

    /// Whether a refusal is written, and how many of the caller were left out before it.
    fn count_refusal(&self, entry: &AuditEntry<'_>) -> Option<u64> {
        let mut refusals = self.refusals.lock();
        let key = entry.caller_hash("");
        if refusals.len() >= MAX_REFUSED_CALLERS && !refusals.contains_key(&key) {
            refusals.retain(|_, count| count.since.elapsed() < REPEAT_WITHIN);
            if refusals.len() >= MAX_REFUSED_CALLERS {
                return None;
            }
        }
        let begun = || RefusalCount { since: Instant::now(), written: 0, left_out: 0 };
        let count = refusals.entry(key).or_insert_with(begun);
        if count.since.elapsed() >= REPEAT_WITHIN {
            *count = RefusalCount { left_out: count.left_out, ..begun() };
        }
        if count.written >= MAX_REFUSALS {
            count.left_out += 1;
            return None;
        }
        count.written += 1;
        Some(std::mem::take(&mut count.left_out))
    }

    pub fn record(&self, entry: &AuditEntry<'_>) {
        let Some(store) = &self.store else { return };
        if self.is_repeated(entry) {
            return;
        }
        let mut detail = entry.detail.clone();
        if entry.status == 403 && entry.identity.is_some() {
            match self.count_refusal(entry) {
                Some(0) => {}
                Some(n) => detail.get_or_insert_with(|| json!({}))["refusals_left_out"] = json!(n),
                None => return,
            }
        }
        let mut target = entry.target.to_owned();
        if target.len() > MAX_TARGET {
            target.truncate(target.floor_char_boundary(MAX_TARGET));
        }
        let identity = entry.identity;
        let kind = identity.map(|i| json!(i.kind)).and_then(|kind| kind.as_str().map(ToOwned::to_owned));
        // Held while it is appended, so that lines are in the order of their times. Appending does not block.
        let mut last = self.last.lock();
        *last = Timestamp::now().micros().max(*last + 1);
        store.append(&AuditRecord {
            time: String::new(),
            at: *last,
            actor: identity.map(|i| i.name.clone()).unwrap_or_default(),
            actor_kind: kind.unwrap_or_default(),
            actor_id: identity.and_then(|i| i.token.clone().or_else(|| i.subject.clone())),
            role: identity.map(|i| i.role.as_str().to_owned()).unwrap_or_default(),
            client_ip: entry.address.map(|a| a.to_canonical().to_string()).unwrap_or_default(),
            operation: entry.operation.to_owned(),
            target,
            status: entry.status,
            detail,
            replica: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::trail::AuditFilter;
    use interflow_types::units::ByteSize;

    fn entry<'a>(identity: &'a Identity, target: &'a str) -> AuditEntry<'a> {
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        AuditEntry { identity: Some(identity), address, operation: "GET /x", target, status: 200, detail: None }
    }

    #[test]
    fn newest_lines_are_read_over_rotated_files_and_the_chain_is_intact() {
        let dir = tempfile::tempdir().unwrap();
        let config = AdminAuditConfig { rotate: ByteSize(1500), keep: 3, ..AdminAuditConfig::default() };
        let audit = AdminAudit::new(&config, dir.path(), None).unwrap();
        let admin = Identity::admin_token();
        for n in 0..12 {
            audit.record(&entry(&admin, &format!("/flows/{n}/response/body")));
            // Reading the same again is not a line of its own.
            audit.record(&entry(&admin, &format!("/flows/{n}/response/body")));
        }
        let filter = AuditFilter { limit: 7, ..AuditFilter::default() };
        let page = audit.store().unwrap().newest(&filter).unwrap();
        let targets: Vec<_> = page.iter().map(|r| r.target.as_str()).collect();
        assert_eq!((targets[0], targets[6]), ("/flows/11/response/body", "/flows/5/response/body"));
        assert_eq!((page[0].actor.as_str(), page[0].client_ip.as_str()), ("admin token", "192.0.2.1"));
        assert!(page[0].time.ends_with('Z'), "{:?}", page[0]);
        let older = AuditFilter { before: Some(page[6].at), limit: 1, ..AuditFilter::default() };
        assert!(audit.store().unwrap().newest(&older).unwrap().iter().all(|r| r.at < page[6].at));
        let one = AuditFilter { text: "/FLOWS/9/".into(), limit: 9, ..AuditFilter::default() };
        assert_eq!(audit.store().unwrap().newest(&one).unwrap().len(), 1);
        let file = dir.path().join(&config.file);
        assert!(std::fs::metadata(&file).unwrap().len() <= 1500);
        interflow_llm_gateway::llm_telemetry::verify(&file, None).unwrap();
    }
}
