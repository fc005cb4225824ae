//! Log lines to standard error, for people or for programs.

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Starts logging. `INTERFLOW_LOG` overrides the level.
pub fn start(config: &LogConfig) -> Result<(), String> {
    let level = std::env::var("INTERFLOW_LOG").unwrap_or_else(|_| config.level.clone());
    let filter = EnvFilter::try_new(&level).map_err(|e| format!("log.level `{level}` is wrong: {e}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let started = match config.format {
        LogFormat::Text => builder.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // A second start in one process (tests) keeps the first.
    let _ = started;
    Ok(())
}
