//! The audit log: JSON lines written in the background, hash-chained, in files that are rotated by size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use interflow_files::{optional, owner_only};
use interflow_tasks::{Sink, SinkBatch, SinkQueue, SinkWorker};
use interflow_types::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::audit_fields::{AUDIT_FIELDS, AuditLine, rfc3339};
use super::hash_chain::{ChainWriter, read_end, rotated_files};
use super::{AuditConfig, CallTelemetry};

/// Bytes that the hash chain adds to a line.
const CHAIN_OVERHEAD_BYTES: usize = 160;
/// Bound on lines queued for the writer.
const MAX_QUEUED_LINES: usize = 10_000;
/// How long the disk is waited for.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

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
            loop {
                // For each batch anew, so that what waits for the lock has its turn.
                let mut writer = queue.sink().0.lock();
                let Some(batch) = worker.next_batch() else { return };
                writer.write_batch(batch);
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
        let lines = SinkQueue::new(file, MAX_QUEUED_LINES, Arc::default());
        Ok(Self { lines, next: AtomicU64::new(1), has_lost: AtomicBool::new(false) })
    }

    /// Goes on with another configuration, once everything queued is written: the chain has one writer.
    ///
    /// # Errors
    /// As [`open`](Self::open), or the disk does not answer; the log then stays as it is.
    pub fn reopen(&self, config: &AuditConfig, home: &Path) -> Result<(), String> {
        let key = resolve_key(config)?;
        let writer = self.lines.sink().0.try_lock_for(DISK_TIMEOUT);
        let mut writer = writer.ok_or("audit.file: the disk of the log does not answer")?;
        writer.write_batch(self.lines.take());
        *writer = AuditWriter::open(config, home, key)?;
        Ok(())
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
        self.lines.counts().dropped.load(Relaxed)
    }

    /// Waits until everything queued is written, at most five seconds.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        let queue = Arc::clone(&self.lines);
        // A thread of its own: a disk that hangs must not hold up whatever ends.
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || {
            let mut writer = queue.sink().0.lock();
            writer.write_batch(queue.take());
            // The waiting side may have given up.
            let _ = done.send(());
        });
        if thread.is_ok() {
            let _ = written.recv_timeout(DISK_TIMEOUT);
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
    /// The file that `out` writes to, unless that is standard output.
    file: Option<File>,
    /// Of the lines that are complete.
    size: u64,
    rotate: u64,
    keep: u32,
    chain: Option<ChainWriter>,
    /// The last line may be written in part.
    is_torn: bool,
    failing: bool,
}

impl AuditWriter {
    fn open(config: &AuditConfig, home: &Path, key: Option<Vec<u8>>) -> Result<Self, String> {
        let path = (config.file != Path::new("-")).then(|| home.join(&config.file));
        let wrong = |e: io::Error| format!("audit.file: {} cannot be opened: {e}", config.file.display());
        let file = path.as_deref().map(append).transpose().map_err(wrong)?;
        let (mut out, mut end, mut size): (Box<dyn Write + Send>, _, _) = (Box::new(io::stdout()), None, 0);
        if let (Some(path), Some(file)) = (&path, &file) {
            let found = file.metadata().map_err(wrong)?;
            // A pipe or a device has no lines to continue.
            if found.is_file() {
                (end, size) = read_end(path).map_err(wrong)?;
            }
            if size < found.len() {
                tracing::warn!("audit: {}: an incomplete last line was removed", path.display());
                file.set_len(size).map_err(wrong)?;
            }
            out = Box::new(file.try_clone().map_err(wrong)?);
        }
        let chain = config.chain.then(|| ChainWriter::open(path.as_deref(), key, end)).transpose()?;
        let (rotate, keep) = (config.rotate.0.max(1), config.keep);
        Ok(Self { path, out, file, size, rotate, keep, chain, is_torn: false, failing: false })
    }

    /// Writes lines; those that cannot be written count as dropped.
    fn write_batch(&mut self, mut batch: SinkBatch<AuditFile>) {
        let (mut written, mut result) = (0, Ok(()));
        for open in &batch.items {
            let is_full = self.size > 0 && self.size + (open.len() + CHAIN_OVERHEAD_BYTES) as u64 > self.rotate;
            // Without another file this one goes on.
            let rotated = if is_full { self.rotate() } else { Ok(()) };
            let line = self.write_line(open);
            written += usize::from(line.is_ok());
            result = result.and(rotated).and(line);
        }
        let flushed = self.out.flush().and_then(|()| self.chain.as_mut().map_or(Ok(()), ChainWriter::write_head));
        self.log_write_result(result.and(flushed));
        batch.settle(written, true);
    }

    /// Writes a line in one piece. The chain goes on with it only once it is written.
    fn write_line(&mut self, open: &str) -> io::Result<()> {
        self.cut_torn_line()?;
        let sealed = self.chain.as_ref().map(|chain| chain.seal_line(open)).unzip();
        let line = sealed.0.unwrap_or_else(|| format!("{open}}}")) + "\n";
        self.is_torn = true;
        self.out.write_all(line.as_bytes())?;
        self.is_torn = false;
        self.size += line.len() as u64;
        self.chain.iter_mut().zip(sealed.1).for_each(|(chain, head)| chain.head = head);
        Ok(())
    }

    fn cut_torn_line(&mut self) -> io::Result<()> {
        if let (Some(file), true) = (&self.file, self.is_torn) {
            file.set_len(self.size)?;
        }
        self.is_torn = false;
        Ok(())
    }

    /// Begins another file. Whatever fails, no line that was written is lost, however often this is tried again.
    fn rotate(&mut self) -> io::Result<()> {
        self.cut_torn_line()?;
        let Some(path) = &self.path else { return Ok(()) };
        let numbered = |n: u32| PathBuf::from(format!("{}.{n}", path.display()));
        // Opened before anything is renamed: the disk may be full, or too many files open.
        let next = PathBuf::from(format!("{}.next", path.display()));
        let out = append(&next)?;
        let file = out.try_clone()?;
        // More of them are there if `keep` was larger. The oldest first: what is left has no gap.
        for (_, file) in rotated_files(path)?.iter().filter(|(n, _)| *n > self.keep) {
            fs::remove_file(file)?;
        }
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
        (self.out, self.file, self.size) = (Box::new(out), Some(file), 0);
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
    fn the_chain_may_be_switched_off_and_on_and_no_line_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        let (on, off) = (config(1 << 20), AuditConfig { chain: false, ..config(1 << 20) });
        for (config, lines, all) in [(&off, 3, 3), (&on, 2, 5), (&off, 1, 6), (&on, 1, 7)] {
            // A line that was cut by a crash is no line.
            append(&log).unwrap().write_all(b"{\"half").unwrap();
            write(config, dir.path(), lines);
            let text = fs::read_to_string(&log).unwrap();
            assert!(text.lines().count() == all && !text.contains("half"), "{text}");
        }
    }

    #[test]
    fn a_rotated_file_that_is_missing_is_found_and_fewer_may_be_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        let rotated = |n: u32| dir.path().join(format!("audit.jsonl.{n}"));
        let other = dir.path().join("audit.jsonl.20261130");
        fs::write(&other, "a copy of somebody's").unwrap();
        write(&AuditConfig { keep: 4, ..config(700) }, dir.path(), 20);
        assert_eq!(hash_chain::verify(&log, None).unwrap().files, 5);
        fs::rename(rotated(1), dir.path().join("away")).unwrap();
        assert!(hash_chain::verify(&log, None).unwrap_err().why.contains("missing"));
        fs::rename(dir.path().join("away"), rotated(1)).unwrap();
        write(&AuditConfig { keep: 1, ..config(700) }, dir.path(), 4);
        assert_eq!(hash_chain::verify(&log, None).map(|v| v.files), Ok(2));
        assert!(!rotated(2).exists() && !rotated(4).exists() && other.exists());
    }

    /// A disk on which only so many bytes are left.
    struct FullDisk(File, usize);

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = self.0.write(&bytes[..bytes.len().min(self.1)])?;
            self.1 -= written;
            if written == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(written) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted_and_leave_the_chain_whole() {
        // The line after them fits into the file, or begins another one.
        for (chain, rotate) in [(true, 1 << 20), (false, 1 << 20), (true, 1000)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("audit.jsonl");
            let log = AuditLog::open(&AuditConfig { chain, ..config(rotate) }, dir.path()).unwrap();
            let write = |texts: &[&str]| {
                texts.iter().for_each(|text| assert!(log.lines.push(format!("{{\"text\":\"{text}\""))));
                log.flush();
            };
            let set_disk = |out: Box<dyn Write + Send>| log.lines.sink().0.lock().out = out;
            write(&["a", "b"]);
            // Room for the first of them and a part of the second.
            let line = fs::metadata(&path).unwrap().len() as usize / 2;
            set_disk(Box::new(FullDisk(append(&path).unwrap(), line + line / 2)));
            write(&["c", "d", "e"]);
            assert_eq!(log.lost_lines(), 2);
            set_disk(Box::new(append(&path).unwrap()));
            write(&[&"f".repeat(400)]);
            let rotated = optional(fs::read_to_string(dir.path().join("audit.jsonl.1"))).unwrap();
            assert_eq!(rotated.is_some(), rotate == 1000);
            let text = rotated.unwrap_or_default() + &fs::read_to_string(&path).unwrap();
            let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
            assert!(text.lines().count() == 4 && text.lines().all(is_json), "{text}");
            assert_eq!(log.lost_lines(), 2);
            if chain {
                assert_eq!(hash_chain::verify(&path, None).map(|v| (v.lines, v.anchored)), Ok((4, true)));
            }
        }
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
