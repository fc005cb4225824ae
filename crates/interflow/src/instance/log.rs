//! Logging to stderr as text or JSON. What one place of the program writes is bounded, and the size if stderr is a file.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::instance::config::{LogConfig, LogFormat};

/// How many lines one place of the program writes within [`LINE_WINDOW`].
const MAX_LINES_IN_WINDOW: u32 = 100;
const LINE_WINDOW: Duration = Duration::from_mins(1);

/// Replaces the filter of the running log. Absent if an option or `INTERFLOW_LOG` determines the level.
static SET_FILTER: OnceLock<SetFilterFn> = OnceLock::new();

type SetFilterFn = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Starts logging. `INTERFLOW_LOG` overrides the level.
pub fn start(config: &LogConfig) -> Result<(), String> {
    start_with_level(config, None)
}

/// Starts logging at this level, or else at that of `INTERFLOW_LOG` or the configuration.
pub fn start_with_level(config: &LogConfig, level: Option<&str>) -> Result<(), String> {
    let level = level.map(str::to_owned).or_else(|| std::env::var("INTERFLOW_LOG").ok());
    let is_pinned = level.is_some();
    let level = level.unwrap_or_else(|| config.level.clone());
    let filter = EnvFilter::try_new(&level).map_err(|e| format!("the log level `{level}` is invalid: {e}"))?;
    let file = BoundedLogFile {
        file: standard_error(),
        limit: config.max_size.0,
        format: config.format,
        full: AtomicBool::new(false),
    };
    let writer = LogWriter { file: Arc::new(file), limits: LineLimits(Mutex::default()) };
    // It would report a failed write by another write to stderr, and panic if that fails, too.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    let colours = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    let (started, set_filter): (_, SetFilterFn) = match config.format {
        LogFormat::Text => {
            let builder = builder.with_ansi(colours).with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            (builder.try_init(), Box::new(move |filter| drop(handle.reload(filter))))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            (builder.try_init(), Box::new(move |filter| drop(handle.reload(filter))))
        }
    };
    if started.is_ok() && !is_pinned {
        let _ = SET_FILTER.set(set_filter);
    }
    // If logging has already started in this process (tests), the first setup is kept.
    let _ = started;
    Ok(())
}

/// Whether the level is valid.
///
/// # Errors
/// It is not.
pub fn check(config: &LogConfig) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let level = &config.level;
    // The filter would take another word for a module, and log nothing else.
    let is_word = |part: &&str| !part.contains(['=', ':', '[']) && !LEVELS.iter().any(|l| l.eq_ignore_ascii_case(part));
    if let Some(word) = level.split(',').map(str::trim).find(is_word) {
        return Err(format!("log.level: {}", interflow_query::unknown_key_message("level", word, &LEVELS)));
    }
    EnvFilter::try_new(level).map(drop).map_err(|e| format!("log.level: the log level `{level}` is invalid: {e}"))
}

/// Changes the level of the running log, unless an option or `INTERFLOW_LOG` determines it.
pub fn set_level(config: &LogConfig) {
    if let (Some(set), Ok(filter)) = (SET_FILTER.get(), EnvFilter::try_new(&config.level)) {
        set(filter);
    }
}

/// Size limit of the log file. Writing resumes after the file is truncated (`logrotate` with `copytruncate`).
struct BoundedLogFile {
    /// Stderr, if it is a file.
    file: Option<File>,
    /// Maximum size in bytes; 0 means unlimited.
    limit: u64,
    format: LogFormat,
    full: AtomicBool,
}

impl BoundedLogFile {
    fn write(&self, line: &[u8], out: &mut impl Write) -> io::Result<()> {
        // Measured for every line, because others may write to the file, too.
        let over = |file: &File| file.metadata().is_ok_and(|m| m.len().saturating_add(line.len() as u64) > self.limit);
        if self.limit == 0 || !self.file.as_ref().is_some_and(over) {
            self.full.store(false, Relaxed);
            return out.write_all(line);
        }
        // The notice is written once, until the file accepts lines again.
        if !self.full.swap(true, Relaxed) {
            let text = "the log has reached log.max_size: no more lines are written until it is truncated";
            out.write_all(self.notice(text).as_bytes())?;
        }
        Ok(())
    }

    /// A line about the log itself, in its format.
    fn notice(&self, text: &str) -> String {
        let time = jiff::Timestamp::now();
        match self.format {
            LogFormat::Text => format!("{time:.6}  WARN {text}\n"),
            LogFormat::Json => {
                let time = format!("{time:.6}");
                json!({"timestamp": time, "level": "WARN", "message": text, "target": "log"}).to_string() + "\n"
            }
        }
    }
}

/// Bounds how many lines one place of the program writes, so that what clients cause does not fill the log: malformed
/// requests, for example. A line says when some are left out, and another one how many.
struct LineLimits<K>(Mutex<HashMap<K, LineWindow>>);

struct LineWindow {
    began: Instant,
    lines: u32,
    left_out: u64,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum LineAdmission {
    Write,
    /// Preceded by the number of lines that were left out before it.
    WriteAfter(u64),
    /// The first that is left out.
    LeaveOutFirst,
    LeaveOut,
}

impl<K: Hash + Eq> LineLimits<K> {
    fn admit(&self, place: K, now: Instant) -> LineAdmission {
        let mut windows = self.0.lock();
        let window = windows.entry(place).or_insert(LineWindow { began: now, lines: 0, left_out: 0 });
        if now.duration_since(window.began) >= LINE_WINDOW {
            let left_out = window.left_out;
            *window = LineWindow { began: now, lines: 1, left_out: 0 };
            return if left_out == 0 { LineAdmission::Write } else { LineAdmission::WriteAfter(left_out) };
        }
        if window.lines < MAX_LINES_IN_WINDOW {
            window.lines += 1;
            return LineAdmission::Write;
        }
        window.left_out += 1;
        if window.left_out == 1 { LineAdmission::LeaveOutFirst } else { LineAdmission::LeaveOut }
    }
}

struct LogWriter {
    file: Arc<BoundedLogFile>,
    limits: LineLimits<Identifier>,
}

impl<'w> MakeWriter<'w> for LogWriter {
    type Writer = LogLines;

    fn make_writer(&'w self) -> LogLines {
        LogLines { file: Arc::clone(&self.file), is_left_out: false }
    }

    fn make_writer_for(&'w self, meta: &Metadata<'_>) -> LogLines {
        let mut lines = self.make_writer();
        // Finer levels are asked for. Those of other crates are left out: they write bytes of connections, and so tokens.
        if *meta.level() > Level::INFO {
            lines.is_left_out = !meta.target().starts_with("interflow");
            return lines;
        }
        let target = meta.target();
        match self.limits.admit(meta.callsite(), Instant::now()) {
            LineAdmission::Write => {}
            LineAdmission::WriteAfter(1) => lines.write_notice(&format!("1 line of {target} was left out")),
            LineAdmission::WriteAfter(n) => lines.write_notice(&format!("{n} lines of {target} were left out")),
            LineAdmission::LeaveOutFirst => {
                let limit = format!("{MAX_LINES_IN_WINDOW} within {} s", LINE_WINDOW.as_secs());
                lines.write_notice(&format!(
                    "lines like the last one of {target} are left out for now: more than {limit}"
                ));
                lines.is_left_out = true;
            }
            LineAdmission::LeaveOut => lines.is_left_out = true,
        }
        lines
    }
}

struct LogLines {
    file: Arc<BoundedLogFile>,
    is_left_out: bool,
}

impl LogLines {
    fn write_notice(&self, text: &str) {
        let _ = self.file.write(self.file.notice(text).as_bytes(), &mut io::stderr());
    }
}

/// Never fails: the terminal or the reader of the log may be gone, which must not end what is logged.
impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.is_left_out {
            let _ = self.file.write(line, &mut io::stderr());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

fn standard_error() -> Option<File> {
    #[cfg(unix)]
    {
        // A duplicate, so that the descriptor stays open if stderr is replaced.
        let file = File::from(std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned().ok()?);
        file.metadata().is_ok_and(|m| m.is_file()).then_some(file)
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_grows_to_its_bound_and_resumes_when_it_is_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut out = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let (file, full) = (Some(out.try_clone().unwrap()), AtomicBool::new(false));
        let log = BoundedLogFile { file, limit: 1000, format: LogFormat::Text, full };
        let mut write = || (0..200).for_each(|_| log.write(b"one more line\n", &mut out).unwrap());
        write();
        let text = std::fs::read_to_string(&path).unwrap();
        let notice = text.lines().last().unwrap();
        let bound = 1000 + "one more line\n".len() + notice.len() + 1;
        assert!(text.len() <= bound && notice.ends_with("until it is truncated"), "{text}");
        assert_eq!(text.matches("log.max_size").count(), 1);
        std::fs::write(&path, "").unwrap();
        write();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("one more line\n"));
    }

    #[test]
    fn one_place_cannot_fill_the_log_and_what_is_left_out_is_said() {
        let (limits, began) = (LineLimits(Mutex::default()), Instant::now());
        for _ in 0..MAX_LINES_IN_WINDOW {
            assert_eq!(limits.admit("a", began), LineAdmission::Write);
        }
        assert_eq!(limits.admit("a", began), LineAdmission::LeaveOutFirst);
        assert_eq!(limits.admit("a", began + LINE_WINDOW / 2), LineAdmission::LeaveOut);
        assert_eq!(limits.admit("b", began), LineAdmission::Write, "another place has lines of its own");
        assert_eq!(limits.admit("a", began + LINE_WINDOW), LineAdmission::WriteAfter(2));
        assert_eq!(limits.admit("a", began + LINE_WINDOW), LineAdmission::Write);
    }

    #[test]
    fn fine_levels_are_those_of_interflow_alone() {
        let file = BoundedLogFile { file: None, limit: 0, format: LogFormat::Text, full: AtomicBool::new(false) };
        let writer = Arc::new(LogWriter { file: Arc::new(file), limits: LineLimits(Mutex::default()) });
        let left_out = Arc::new(Mutex::new(Vec::new()));
        struct Observed(Arc<LogWriter>, Arc<Mutex<Vec<bool>>>);
        impl<'w> MakeWriter<'w> for Observed {
            type Writer = io::Sink;
            fn make_writer(&'w self) -> io::Sink {
                io::sink()
            }
            fn make_writer_for(&'w self, meta: &Metadata<'_>) -> io::Sink {
                self.1.lock().push(self.0.make_writer_for(meta).is_left_out);
                io::sink()
            }
        }
        let observed = Observed(writer, Arc::clone(&left_out));
        let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(observed).finish();
        tracing::subscriber::with_default(log, || {
            tracing::trace!(target: "ureq::unversioned", "Authorization: Bearer s");
            tracing::debug!(target: "h2::codec", "frame");
            tracing::info!(target: "h2::codec", "connection closed");
            tracing::trace!(target: "interflow_net::egress", "connected");
        });
        assert_eq!(*left_out.lock(), [true, true, false, false]);
    }

    #[test]
    fn notices_have_the_format_of_the_log() {
        let log = |format| BoundedLogFile { file: None, limit: 0, format, full: AtomicBool::new(false) };
        assert!(log(LogFormat::Text).notice("x").ends_with("  WARN x\n"));
        let line: serde_json::Value = serde_json::from_str(&log(LogFormat::Json).notice("x")).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&json!("WARN"), &json!("x")));
    }
}
