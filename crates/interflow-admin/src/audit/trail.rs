//! The lines of the trail, and the rotated files that have them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use interflow_files::optional;
use interflow_llm_gateway::llm_telemetry::{AuditConfig, AuditLog};
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::AdminAuditConfig;

/// How much of the end of each file is read for a page of the trail.
const MAX_READ: u64 = 32 << 20;

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
        let text = optional(read_end(&self.numbered(n)))?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
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
        let members = RECORD_MEMBERS.split(' ').filter_map(|name| Some((name, members.get(name)?.clone())));
        if let Some(log) = &self.log {
            log.write_event("admin", members);
        }
    }

    fn newest(&self, filter: &AuditFilter) -> io::Result<Vec<AuditRecord>> {
        if let Some(log) = &self.log {
            log.flush();
        }
        let mut records = Vec::new();
        for n in 0..=self.keep {
            let lines = self.lines(n)?.into_iter().rev().filter(|record| filter.selects(record));
            records.extend(lines.take(filter.limit - records.len()));
            if records.len() >= filter.limit {
                break;
            }
        }
        Ok(records)
    }

    fn lost_lines(&self) -> u64 {
        self.log.as_ref().map_or(0, AuditLog::lost_lines)
    }
}

/// The members of a line, without the time, which the log sets.
const RECORD_MEMBERS: &str = "at actor actor_kind actor_id role client_ip operation target status detail replica";

/// The end of a file. An incomplete first line is not JSON and is skipped by the reader.
fn read_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_READ)))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
