//! The audit log: JSON lines written by a thread of their own, hash-chained, in files that are rotated by size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use interflow_files::owner_only;
use interflow_types::RequestId;
use serde_json::json;

use super::hash_chain::{self, ChainHead, GENESIS_HASH};
use super::{AuditConfig, RequestRecord};

/// Bytes that the hash chain adds to a line.
const CHAIN_OVERHEAD_BYTES: usize = 160;
/// Bound on lines queued for the writer.
const MAX_QUEUED_LINES: usize = 10_000;

enum AuditLogCommand {
    Line(String),
    Flush(SyncSender<()>),
}

pub(super) struct AuditLog {
    jobs: SyncSender<AuditLogCommand>,
    next: AtomicU64,
    lost: AtomicU64,
}

impl AuditLog {
    /// Opens the file and starts its writer.
    ///
    /// # Errors
    /// The file cannot be opened, or the key cannot be resolved.
    pub fn open(config: &AuditConfig, home: &Path) -> Result<Self, String> {
        let key = config.key.as_deref().map(interflow_files::resolve_secret_ref).transpose();
        let key = key.map_err(|e| format!("audit.key: {e}"))?.map(String::into_bytes);
        let writer = AuditWriter::open(config, home, key)?;
        let (jobs, work) = sync_channel(MAX_QUEUED_LINES);
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || writer.run(&work))
            .map_err(|e| format!("audit: cannot start its thread: {e}"))?;
        Ok(Self { jobs, next: AtomicU64::new(1), lost: AtomicU64::new(0) })
    }

    /// Queues a line. If the queue is full it is lost, and the next line's sequence number reveals it.
    pub fn write(&self, facts: &RequestRecord<'_>) {
        let seq = self.next.fetch_add(1, Relaxed);
        if self.jobs.try_send(AuditLogCommand::Line(format_line(facts, seq))).is_err()
            && self.lost.fetch_add(1, Relaxed) == 0
        {
            tracing::error!(
                "audit: the disk is too slow, lines are lost; interflow_audit_lost_lines_total counts them"
            );
        }
    }

    pub fn lost_lines(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Waits until everything queued is written.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.jobs.send(AuditLogCommand::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(std::time::Duration::from_secs(5));
        }
    }
}

/// A line without its closing brace. Member names are a contract: those of Philter's proxy, followed by Interflow's
/// own.
fn format_line(f: &RequestRecord<'_>, seq: u64) -> String {
    let born = rfc3339(f.flow.clock.started_at().micros());
    let sum = |m: &std::collections::BTreeMap<String, u64>| m.values().sum::<u64>();
    let found = f.found.cloned().unwrap_or_default();
    let mut types: Vec<&String> = found.request.keys().chain(found.response.keys()).collect();
    types.sort();
    types.dedup();
    let error = f.error();
    let settled = f.exchange.summary();
    let value = json!({
        "time": born,
        "level": if error.is_some() { "warn" } else { "info" },
        "msg": "request",
        "request_id": RequestId::of(f.flow),
        "direction": if found.request.is_empty() && !found.response.is_empty() { "outbound" } else { "inbound" },
        "provider": f.provider(),
        "model": f.exchange.model.as_deref(),
        "policy_name": f.policy(),
        "document_id": f.flow.id.to_string(),
        "fields_redacted": sum(&found.request),
        "entity_count": sum(&found.request) + sum(&found.response),
        "entity_types": types,
        "redact_latency_ms": found.micros as f64 / 1e3,
        "client_ip": f.flow.client.peer.ip().to_string(),
        "key_id": f.key,
        "http_status": f.status(),
        "error_type": error.map(|e| e.0),
        "error_code": error.map(|e| e.1),
        "trace_id": f.trace.map(super::TraceContext::id),
        "seq": seq,
        "user": f.flow.user.as_deref(),
        "transport": f.flow.transport.as_str(),
        "operation": f.exchange.operation.as_str(),
        "outbound_entity_count": sum(&found.response),
        "response_model": settled.model.as_deref(),
        "input_tokens": f.usage.map(|u| u.input),
        "output_tokens": f.usage.map(|u| u.output),
        "dollars": f.micros.map(|m| m as f64 / 1e6),
        "duration_ms": f.flow.timings.done.map(|us| us as f64 / 1e3)
    });
    let mut text = value.to_string();
    text.pop();
    text
}

/// Microseconds since the Unix epoch as RFC 3339 in UTC.
fn rfc3339(micros: u64) -> String {
    let (seconds, millis) = (micros / 1_000_000, micros / 1_000 % 1_000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil calendar algorithm, with years that begin in March.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (h, m, s) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{millis:03}Z")
}

struct AuditWriter {
    path: Option<PathBuf>,
    out: Box<dyn Write + Send>,
    size: u64,
    rotate: u64,
    keep: u32,
    chain: Option<ChainWriter>,
    failing: bool,
}

/// Writes the hash chain.
struct ChainWriter {
    key: Option<Vec<u8>>,
    /// The current file, and the hash that the next line refers to.
    head: ChainHead,
    /// The `.head` file; none for standard output.
    beside: Option<File>,
}

impl ChainWriter {
    /// Continues at the end of the log. If the log is shorter than its `.head` file says, the chain continues as if
    /// it were complete, so that verification finds the gap.
    fn open(path: Option<&Path>, key: Option<Vec<u8>>) -> Result<(Self, u64), String> {
        let Some(path) = path else {
            return Ok((
                Self { key, head: ChainHead { file: 1, lines: 0, hash: GENESIS_HASH.into() }, beside: None },
                0,
            ));
        };
        let wrong = |e: io::Error| format!("audit.file: {} cannot be opened: {e}", path.display());
        let told = ChainHead::read(path, key.as_deref()).unwrap_or_else(|broken| {
            tracing::error!("audit: {broken}; the log goes on without it");
            None
        });
        let end = hash_chain::read_last_head(path).map_err(wrong)?;
        let size = end.as_ref().map_or(0, |(_, size)| *size);
        let head = match (told, end.map(|(head, _)| head)) {
            (Some(told), Some(end)) if told.file == end.file && told.lines > end.lines => {
                tracing::error!("audit: {}: the last lines are gone", path.display());
                ChainHead { lines: end.lines, ..told }
            }
            (_, Some(end)) => end,
            (Some(told), None) => ChainHead { file: told.file + 1, lines: 0, hash: told.hash },
            (None, None) => ChainHead { file: 1, lines: 0, hash: GENESIS_HASH.into() },
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let beside = owner_only(&mut options).open(ChainHead::path(path)).map_err(wrong)?;
        Ok((Self { key, head, beside: Some(beside) }, size))
    }

    fn seal_line(&mut self, open: &str) -> String {
        let first = (self.head.lines == 0).then_some(self.head.file);
        let (line, hash) = hash_chain::seal_line(open, first, &self.head.hash, self.key.as_deref());
        self.head = ChainHead { file: self.head.file, lines: self.head.lines + 1, hash };
        line
    }

    fn write_head(&mut self) -> io::Result<()> {
        let Some(file) = self.beside.as_mut().filter(|_| self.head.lines > 0) else { return Ok(()) };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(self.head.to_line(self.key.as_deref()).as_bytes())
    }
}

impl AuditWriter {
    fn open(config: &AuditConfig, home: &Path, key: Option<Vec<u8>>) -> Result<Self, String> {
        let path = (config.file != Path::new("-")).then(|| home.join(&config.file));
        let wrong = |e: io::Error| format!("audit.file: {} cannot be opened: {e}", config.file.display());
        let chain = config.chain.then(|| ChainWriter::open(path.as_deref(), key)).transpose()?;
        let (out, size): (Box<dyn Write + Send>, u64) = match &path {
            None => (Box::new(io::stdout()), 0),
            Some(path) => {
                let file = append(path).map_err(wrong)?;
                let mut size = file.metadata().map_err(wrong)?.len();
                if let Some((_, whole)) = chain.as_ref().filter(|(_, whole)| *whole < size) {
                    tracing::warn!("audit: {}: an incomplete last line was removed", path.display());
                    file.set_len(*whole).map_err(wrong)?;
                    size = *whole;
                }
                (Box::new(io::BufWriter::new(file)), size)
            }
        };
        let chain = chain.map(|(chain, _)| chain);
        Ok(Self { path, out, size, rotate: config.rotate.0.max(1), keep: config.keep, chain, failing: false })
    }

    fn run(mut self, work: &Receiver<AuditLogCommand>) {
        while let Ok(job) = work.recv() {
            let mut next = Some(job);
            let mut waiting = Vec::new();
            while let Some(job) = next {
                match job {
                    AuditLogCommand::Line(line) => self.write_line(&line),
                    AuditLogCommand::Flush(done) => waiting.push(done),
                }
                next = work.try_recv().ok();
            }
            let flushed = self.out.flush().and_then(|()| self.chain.as_mut().map_or(Ok(()), ChainWriter::write_head));
            self.log_write_result(flushed);
            for done in waiting {
                // The waiting side may have given up.
                let _ = done.send(());
            }
        }
    }

    fn write_line(&mut self, open: &str) {
        if self.size > 0 && self.size + (open.len() + CHAIN_OVERHEAD_BYTES) as u64 > self.rotate {
            let rotated = self.rotate();
            self.log_write_result(rotated);
        }
        let line = match &mut self.chain {
            Some(chain) => chain.seal_line(open),
            None => format!("{open}}}"),
        };
        self.size += line.len() as u64 + 1;
        let written = writeln!(self.out, "{line}");
        self.log_write_result(written);
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.out.flush()?;
        let numbered = |n: u32| PathBuf::from(format!("{}.{n}", path.display()));
        for n in (1..self.keep).rev() {
            if numbered(n).exists() {
                fs::rename(numbered(n), numbered(n + 1))?;
            }
        }
        if self.keep > 0 {
            fs::rename(path, numbered(1))?;
        } else {
            fs::remove_file(path)?;
        }
        self.out = Box::new(io::BufWriter::new(append(path)?));
        self.size = 0;
        if let Some(chain) = &mut self.chain {
            chain.head = ChainHead { file: chain.head.file + 1, lines: 0, ..chain.head.clone() };
        }
        Ok(())
    }

    /// Logs once that writing fails, and once that it works again.
    fn log_write_result(&mut self, result: io::Result<()>) {
        match result {
            Err(e) if !self.failing => {
                tracing::error!("audit: the log cannot be written: {e}");
                self.failing = true;
            }
            Ok(()) if self.failing => {
                tracing::info!("audit: the log is written again");
                self.failing = false;
            }
            _ => {}
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    owner_only(OpenOptions::new().append(true).create(true)).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rotate: u64) -> AuditConfig {
        AuditConfig {
            enabled: true,
            rotate: interflow_types::units::ByteSize(rotate),
            keep: 2,
            ..AuditConfig::default()
        }
    }

    fn write(config: &AuditConfig, home: &Path, lines: usize) {
        let log = AuditLog::open(config, home).unwrap();
        for i in 0..lines {
            log.jobs.send(AuditLogCommand::Line(format!("{{\"n\":{i}"))).unwrap();
        }
        log.flush();
    }

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_709_208_000_123_456, "2024-02-29T12:00:00.123Z"),
            (1_735_689_599_999_000, "2024-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(micros), text);
        }
    }

    #[test]
    fn hash_chain_continues_over_restarts_and_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        write(&config(1 << 20), dir.path(), 3);
        write(&config(1 << 20), dir.path(), 2);
        let verified = || hash_chain::verify(&log, None).unwrap();
        assert_eq!((verified().lines, verified().files, verified().anchored), (5, 1, true));
        write(&config(700), dir.path(), 9);
        let now = verified();
        assert!(
            now.lines >= 6 && now.files == 3 && now.oldest > 1 && now.anchored,
            "old files beyond `keep` go: {now:?}"
        );
        assert!(!dir.path().join("audit.jsonl.3").exists());
    }

    #[test]
    fn lines_removed_between_runs_break_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        write(&config(1 << 20), dir.path(), 3);
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, text.lines().take(2).map(|l| format!("{l}\n")).collect::<String>()).unwrap();
        write(&config(1 << 20), dir.path(), 2);
        let broken = hash_chain::verify(&log, None).unwrap_err();
        assert_eq!((broken.line, broken.why.contains("another")), (3, true), "{broken}");
    }

    #[test]
    fn partial_last_line_after_a_kill_does_not_break_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        write(&config(1 << 20), dir.path(), 3);
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, format!("{text}{{\"half")).unwrap();
        write(&config(1 << 20), dir.path(), 1);
        assert_eq!(hash_chain::verify(&log, None).map(|v| v.lines), Ok(4));
    }

    #[test]
    fn unusable_audit_log_is_reported_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = AuditConfig { file: "no/such/folder/a.jsonl".into(), ..config(1) };
        assert!(AuditLog::open(&file, dir.path()).err().unwrap().contains("audit.file"));
        let key = AuditConfig { key: Some("env:NOT_SET_ANYWHERE".into()), ..config(1) };
        assert!(AuditLog::open(&key, dir.path()).err().unwrap().contains("audit.key"));
    }
}
