//! The audit trail of the admin side: who looked at contents and who changed what, as JSON lines in a rotated file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_llm_gateway::llm_telemetry::{AuditConfig, AuditLog};
use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::AdminAuditConfig;
use crate::identity::Identity;
use crate::identity::caller::CLIENT_CLOSED_REQUEST;
use crate::identity::shared::SharedIdentity;
use crate::last_editors::LastEditors;
use crate::shared_audit::SharedAudit;

/// How much of the end of each file is read for a page of the trail.
const MAX_READ: u64 = 32 << 20;
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

/// Who looked at or changed something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// RFC 3339, UTC.
    pub time: String,
    /// The same, in microseconds since the Unix epoch.
    pub at: u64,
    /// Who it was: a person, or a token's name; empty before a login.
    #[serde(default)]
    pub actor: String,
    /// `admin-token`, `person`, `personal-token` or `service-token`.
    #[serde(default)]
    pub actor_kind: String,
    /// The person, as the issuer names them, or the token's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(default)]
    pub role: String,
    #[serde(default)]
    pub client_ip: String,
    /// The operation, such as `GET /flows/{id}/{side}/body`, or `login`.
    pub operation: String,
    /// The path that was asked for, with its query.
    pub target: String,
    /// The status of the response.
    pub status: u16,
    /// What was changed, if the path does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
    /// The replica that answered, where several share a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

impl AuditRecord {
    /// What a filter looks in.
    pub(crate) fn searched(&self) -> String {
        let replica = self.replica.as_deref().unwrap_or_default();
        [&self.actor, &self.operation, &self.target, &self.client_ip, &self.actor_kind, replica].join("\n")
    }
}

/// Selects lines of the trail.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only lines in which this text occurs, in any case.
    pub text: String,
    /// Only lines before this time, in microseconds since the Unix epoch.
    pub before: Option<u64>,
    pub limit: usize,
    /// Only what this replica wrote down, from its own files.
    pub only_local: bool,
}

impl AuditFilter {
    fn selects(&self, record: &AuditRecord) -> bool {
        let has_text = self.text.is_empty() || record.searched().to_lowercase().contains(&self.text.to_lowercase());
        has_text && self.before.is_none_or(|before| record.at < before)
    }
}

/// Where the trail is kept: a file, or a table that several instances share.
pub trait AuditStore: Send + Sync {
    /// Appends a line without blocking.
    fn append(&self, record: &AuditRecord);

    /// The newest lines of a filter, the newest first. Blocks.
    ///
    /// # Errors
    /// The trail cannot be read.
    fn newest(&self, filter: &AuditFilter) -> io::Result<Vec<AuditRecord>>;

    /// Lines that were lost because the disk was too slow.
    fn lost_lines(&self) -> u64;

    /// Lines that are not in the shared table yet.
    fn unsent_lines(&self) -> u64 {
        0
    }
}

/// The trail in rotated files of the data directory.
pub struct AuditFiles {
    /// `None` for reading only.
    log: Option<AuditLog>,
    path: PathBuf,
    keep: u32,
}

fn log_config(config: &AdminAuditConfig) -> AuditConfig {
    let AdminAuditConfig { enabled, file, key, rotate, keep, .. } = config.clone();
    AuditConfig { enabled, file, chain: true, key, rotate, keep }
}

impl AuditFiles {
    /// Opens the files for writing.
    ///
    /// # Errors
    /// The file cannot be opened, or its key cannot be resolved.
    pub fn open(config: &AdminAuditConfig, data_dir: &Path) -> Result<Self, String> {
        let log = AuditLog::open(&log_config(config), data_dir).map_err(|e| format!("admin.{e}"))?;
        Ok(Self { log: Some(log), ..Self::read_only(config, data_dir) })
    }

    /// Whether the files could be opened, without opening them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check(config: &AdminAuditConfig, data_dir: &Path) -> Result<(), String> {
        AuditLog::check(&log_config(config), data_dir).map_err(|e| format!("admin.{e}"))
    }

    /// The files for reading, whether an instance runs or not.
    pub fn read_only(config: &AdminAuditConfig, data_dir: &Path) -> Self {
        Self { log: None, path: data_dir.join(&config.file), keep: config.keep }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The current file for 0, and those before it.
    fn numbered(&self, n: u32) -> PathBuf {
        if n == 0 { self.path.clone() } else { PathBuf::from(format!("{}.{n}", self.path.display())) }
    }

    /// The lines of a file, in order; none if it does not exist.
    fn lines(&self, n: u32) -> io::Result<Vec<AuditRecord>> {
        match read_end(&self.numbered(n)) {
            Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// The first lines after a time, in microseconds since the Unix epoch, the oldest first. Blocks.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn after(&self, at: u64, limit: usize) -> io::Result<Vec<AuditRecord>> {
        if let Some(log) = &self.log {
            log.flush();
        }
        let mut files = Vec::new();
        for n in 0..=self.keep {
            let lines = self.lines(n)?;
            let has_older = lines.first().is_some_and(|line| line.at <= at);
            files.push(lines);
            if has_older {
                break;
            }
        }
        let lines = files.into_iter().rev().flatten().filter(|line| line.at > at);
        Ok(lines.take(limit).collect())
    }
}

impl AuditStore for AuditFiles {
    fn append(&self, record: &AuditRecord) {
        let Ok(Value::Object(members)) = serde_json::to_value(record) else { return };
        // The log writes the time itself.
        let named = |(name, value): (&'static str, Option<&Value>)| value.map(|v| (name, v.clone()));
        let members = RECORD_MEMBERS.map(|name| (name, members.get(name))).into_iter().filter_map(named);
        if let Some(log) = &self.log {
            log.write_event("admin", members);
        }
    }

    fn newest(&self, filter: &AuditFilter) -> io::Result<Vec<AuditRecord>> {
        if let Some(log) = &self.log {
            log.flush();
        }
        let mut found = Vec::new();
        for n in 0..=self.keep {
            let lines = self.lines(n)?.into_iter().rev().filter(|record| filter.selects(record));
            found.extend(lines.take(filter.limit - found.len()));
            if found.len() >= filter.limit {
                break;
            }
        }
        Ok(found)
    }

    fn lost_lines(&self) -> u64 {
        self.log.as_ref().map_or(0, AuditLog::lost_lines)
    }
}

/// The members of a line, without the time, which the log sets.
const RECORD_MEMBERS: [&str; 11] = [
    "at",
    "actor",
    "actor_kind",
    "actor_id",
    "role",
    "client_ip",
    "operation",
    "target",
    "status",
    "detail",
    "replica",
];

/// The end of a file. An incomplete first line is no JSON and is skipped by the reader.
fn read_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_READ)))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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

    fn with_store(store: Option<Box<dyn AuditStore>>) -> Self {
        Self {
            store,
            last: Mutex::default(),
            recent: Mutex::default(),
            refusals: Mutex::default(),
            editors: Arc::default(),
        }
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
            // Reading the same again is no line of its own.
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
