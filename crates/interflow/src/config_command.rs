//! `interflow config`: check, print, schema, reference.

use std::io::Write as _;

use crate::Failure;
use crate::cli::ConfigCommand;
use crate::config::{Config, LoadError, Loaded, reference};

/// Runs one of the commands on the configuration.
pub fn run(command: &ConfigCommand, loaded: Result<Loaded, LoadError>) -> Result<(), Failure> {
    let text = match command {
        ConfigCommand::Check => {
            let loaded = loaded?;
            interflow_engine::check(&loaded.config.engine()).map_err(|e| {
                let file = loaded.file.as_ref().map(|f| format!("{}: ", f.display())).unwrap_or_default();
                Failure::Failed(format!("{file}{e}"))
            })?;
            match loaded.file {
                Some(file) => format!("{}: ok\n", file.display()),
                None => "no file given (-c FILE): the defaults are in force\n".into(),
            }
        }
        ConfigCommand::Print => {
            toml::to_string_pretty(&loaded?.config).map_err(|e| format!("the configuration cannot be shown: {e}"))?
        }
        ConfigCommand::Schema => serde_json::to_string_pretty(&Config::schema()).expect("a schema is JSON") + "\n",
        ConfigCommand::Reference => reference::markdown(),
    };
    // A reader that has seen enough (`head`) is no error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}
