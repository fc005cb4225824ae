//! The audit log: JSON lines written in the background, hash-chained, in files that are rotated by size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use interflow_files::{optional, owner_only};
use interflow_tasks::{Sink, SinkQueue, SinkWorker};
use interflow_types::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::audit_fields::{AUDIT_FIELDS, AuditLine, rfc3339};
use super::hash_chain::ChainWriter;
use super::{AuditConfig, CallTelemetry};

/// Bytes that the hash chain adds to a line.
const CHAIN_OVERHEAD_BYTES: usize = 160;
/// Bound on lines queued for the writer.
const MAX_QUEUED_LINES: usize = 10_000;
/// How long a flush waits for the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Lines in a file that is rotated by size, hash-chained, and written in the background.
pub struct AuditLog {
    lines: Arc<SinkQueue<AuditFile>>,
    next: AtomicU64,
    has_lost: AtomicBool,
}

/// The lines are written under the lock in which they are taken from the queue, so that their order stays.
struct AuditFile(Mutex<AuditWriter>);

impl Sink for AuditFile {
    type Item = String;

    fn start(mut worker: SinkWorker<Self>, runtime: &Handle) {
        runtime.spawn_blocking(move || {
            let queue = Arc::clone(worker.queue());
            let mut writer = queue.sink().0.lock();
            while let Some(mut batch) = worker.next_batch() {
                writer.write(&batch.items);
                batch.settle(batch.items.len(), true);
            }
        });
    }
}

impl AuditLog {
    /// Opens the file.
    ///
    /// # Errors
    /// The file cannot be opened, or the key cannot be resolved.
    pub fn open(config: &AuditConfig, home: &Path) -> Result<Self, String> {
        let key = resolve_key(config)?;
        let file = AuditFile(Mutex::new(AuditWriter::open(config, home, key)?));
        let lines = SinkQueue::new(file, MAX_QUEUED_LINES);
        Ok(Self { lines, next: AtomicU64::new(1), has_lost: AtomicBool::new(false) })
    }

    /// Whether the log could be opened, without opening it: its only writer may be another process.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn check(config: &AuditConfig, home: &Path) -> Result<(), String> {
        if !config.enabled {
            return Ok(());
        }
        resolve_key(config)?;
        if config.file == Path::new("-") {
            return Ok(());
        }
        let path = home.join(&config.file);
        let opened = optional(OpenOptions::new().append(true).open(&path)).and_then(|file| match path.parent() {
            // It would be created; the data directory, too.
            Some(folder) if file.is_none() && folder != home => fs::metadata(folder).map(drop),
            _ => Ok(()),
        });
        opened.map_err(|e| format!("audit.file: {} cannot be opened: {e}", config.file.display()))
    }

    pub(super) fn write(&self, facts: &CallTelemetry<'_>) {
        self.queue(|seq| format_line(facts, seq));
    }

    /// Writes an event other than an LLM request: `msg` names its kind.
    pub fn write_event(&self, msg: &str, members: impl IntoIterator<Item = (&'static str, Value)>) {
        let time = rfc3339(Timestamp::now().micros());
        self.queue(|seq| {
            let head = [("time", json!(time)), ("level", json!("info")), ("msg", json!(msg))];
            let all = head.into_iter().chain(members).chain([("seq", json!(seq))]);
            open_object(all.map(|(name, value)| (name.to_owned(), value)))
        });
    }

    /// Queues a line. If the queue is full it is lost, and the next line's sequence number reveals it.
    fn queue(&self, line: impl FnOnce(u64) -> String) {
        let seq = self.next.fetch_add(1, Relaxed);
        if !self.lines.push(line(seq)) && !self.has_lost.swap(true, Relaxed) {
            tracing::error!(
                "audit: the disk is too slow, lines are lost; interflow_audit_lost_lines_total counts them"
            );
        }
    }

    pub fn lost_lines(&self) -> u64 {
        self.lines.dropped()
    }

    /// Waits until everything queued is written, at most five seconds.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        let queue = Arc::clone(&self.lines);
        // A thread of its own: a disk that hangs must not hold up whatever ends.
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || {
            let mut writer = queue.sink().0.lock();
            let mut batch = queue.take();
            writer.write(&batch.items);
            batch.settle(batch.items.len(), true);
            // The waiting side may have given up.
            let _ = done.send(());
        });
        if thread.is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// What waits is written, also if no runtime is left for it.
impl Drop for AuditLog {
    fn drop(&mut self) {
        if !self.lines.is_idle() {
            self.flush();
        }
    }
}

fn resolve_key(config: &AuditConfig) -> Result<Option<Vec<u8>>, String> {
    let key = config.key.as_deref().map(interflow_files::resolve_secret_ref).transpose();
    Ok(key.map_err(|e| format!("audit.key: {e}"))?.map(String::into_bytes))
}

fn format_line(record: &CallTelemetry<'_>, seq: u64) -> String {
    let line = AuditLine::new(record, seq);
    open_object(AUDIT_FIELDS.iter().map(|field| (field.name.to_owned(), (field.value)(&line))))
}

/// A line without its closing brace, which the hash chain adds.
fn open_object(members: impl IntoIterator<Item = (String, Value)>) -> String {
    let mut text = Value::Object(members.into_iter().collect()).to_string();
    text.pop();
    text
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

    fn write<'l>(&mut self, lines: impl IntoIterator<Item = &'l String>) {
        lines.into_iter().for_each(|line| self.write_line(line));
        let flushed = self.out.flush().and_then(|()| self.chain.as_mut().map_or(Ok(()), ChainWriter::write_head));
        self.log_write_result(flushed);
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

    /// Begins another file. Whatever fails, no line that was written is lost, however often this is tried again.
    fn rotate(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.out.flush()?;
        let numbered = |n: u32| PathBuf::from(format!("{}.{n}", path.display()));
        // Opened before anything is renamed: the disk may be full, or too many files open.
        let next = PathBuf::from(format!("{}.next", path.display()));
        let out = append(&next)?;
        if self.keep > 0 {
            // Only up to the first free number, which an attempt that failed may have left: the rest has moved already.
            let free = (1..self.keep).find(|n| !numbered(*n).exists()).unwrap_or(self.keep);
            for n in (1..free).rev() {
                fs::rename(numbered(n), numbered(n + 1))?;
            }
            // It is not there if an attempt failed after this step.
            optional(fs::rename(path, numbered(1)))?;
        }
        fs::rename(&next, path)?;
        self.out = Box::new(io::BufWriter::new(out));
        self.size = 0;
        self.chain.iter_mut().for_each(ChainWriter::begin_file);
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
    use super::super::hash_chain;
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
            assert!(log.lines.push(format!("{{\"n\":{i}")));
        }
        log.flush();
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
    fn a_rotation_that_fails_overwrites_no_history_however_often_it_is_tried() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        let config = AuditConfig { keep: 3, ..config(700) };
        write(&config, dir.path(), 9);
        let before = hash_chain::verify(&log, None).unwrap();
        assert!(before.files >= 3, "{before:?}");
        let oldest = |n: u32| fs::read_to_string(dir.path().join(format!("audit.jsonl.{n}"))).unwrap();
        let history = [oldest(1), oldest(2)];
        // The next file cannot be opened.
        let obstacle = dir.path().join("audit.jsonl.next");
        fs::create_dir(&obstacle).unwrap();
        write(&config, dir.path(), 12);
        assert_eq!([oldest(1), oldest(2)], history);
        let failed = hash_chain::verify(&log, None).unwrap();
        assert_eq!((failed.lines, failed.files, failed.anchored), (before.lines + 12, before.files, true));
        fs::remove_dir(&obstacle).unwrap();
        write(&config, dir.path(), 1);
        let now = hash_chain::verify(&log, None).unwrap();
        assert_eq!((now.lines, now.files), (failed.lines + 1, before.files + 1), "it goes on where it could not");
    }

    #[test]
    fn no_line_is_lost_when_the_runtime_ends_before_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = AuditLog::open(&config(1 << 20), dir.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { (0..3).for_each(|_| log.write_event("settings", [])) });
        drop(runtime);
        log.write_event("settings", []);
        drop(log);
        let verified = hash_chain::verify(&dir.path().join("audit.jsonl"), None).unwrap();
        assert_eq!((verified.lines, verified.anchored), (4, true));
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
    fn a_removed_end_is_found_though_its_head_file_was_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        write(&config(1 << 20), dir.path(), 3);
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, text.lines().take(2).map(|l| format!("{l}\n")).collect::<String>()).unwrap();
        fs::remove_file(dir.path().join("audit.jsonl.head")).unwrap();
        let cut = hash_chain::verify(&log, None).unwrap();
        assert!(!cut.anchored && !cut.is_unused, "{cut:?}");
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
