//! Logging to stderr as text or JSON; the size is bounded if stderr is a file.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tracing_subscriber::EnvFilter;

use crate::instance::config::{LogConfig, LogFormat};

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
    let bounded =
        Arc::new(BoundedLogFile { file: standard_error(), limit: config.max_size.0, full: AtomicBool::new(false) });
    let writer = move || LogLines(Arc::clone(&bounded));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
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
    let level = &config.level;
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
            out.write_all(b"the log has reached log.max_size: no more lines are written until it is truncated\n")?;
        }
        Ok(())
    }
}

struct LogLines(Arc<BoundedLogFile>);

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line, &mut io::stderr())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
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
        let log = BoundedLogFile { file: Some(out.try_clone().unwrap()), limit: 1000, full: AtomicBool::new(false) };
        let mut write = || (0..200).for_each(|_| log.write(b"one more line\n", &mut out).unwrap());
        write();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() < 1100 && text.ends_with("until it is truncated\n"), "{}", text.len());
        assert_eq!(text.matches("log.max_size").count(), 1);
        std::fs::write(&path, "").unwrap();
        write();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("one more line\n"));
    }
}
