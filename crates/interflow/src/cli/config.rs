//! `interflow config`: check, print, schema, reference.

use std::io::Write as _;
use std::path::Path;

use clap::Subcommand;
use interflow_llm::gateway::LlmGateway;

use crate::CliError;
use crate::instance::config::{InterflowConfig, LoadError, LoadedConfig, key_position, reference};
use crate::instance::exposure;

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Validate the configuration.
    Check,
    /// Print the effective configuration, including defaults and environment variables.
    Print,
    /// Print the JSON Schema of the configuration file.
    Schema,
    /// Print the configuration reference in Markdown.
    Reference,
}

/// Runs one of the commands on the configuration.
pub fn run(command: &ConfigCommand, loaded: Result<LoadedConfig, LoadError>) -> Result<(), CliError> {
    let text = match command {
        ConfigCommand::Check => {
            let loaded = loaded?;
            interflow_proxy::check(&loaded.config.engine()).map_err(|e| {
                let file = loaded.file.as_ref().map(|f| key_location(f, &e.place)).unwrap_or_default();
                CliError::Failed(format!("{file}{e}"))
            })?;
            #[cfg(feature = "media")]
            loaded.config.media.check().map_err(|e| {
                let key = e.split(':').next().unwrap_or_default();
                let file = loaded.file.as_ref().map(|f| key_location(f, key)).unwrap_or_default();
                CliError::Failed(format!("{file}{e}"))
            })?;
            // A secret may be missing here that is there where it runs.
            LlmGateway::compile(&loaded.config.llm, &|text| Ok(text.to_owned())).map_err(|e| {
                let key = e.split(": ").next().unwrap_or_default();
                let file = loaded.file.as_ref().map(|f| key_location(f, key)).unwrap_or_default();
                CliError::Failed(format!("{file}{e}"))
            })?;
            exposure::config_warnings(&loaded.config).iter().for_each(|text| crate::warn(text));
            match loaded.file {
                Some(file) => format!("{}: ok\n", file.display()),
                None => "no file given (-c FILE): using the defaults\n".into(),
            }
        }
        ConfigCommand::Print => toml::to_string_pretty(&loaded?.config)
            .map_err(|e| format!("the configuration cannot be serialized: {e}"))?,
        ConfigCommand::Schema => {
            serde_json::to_string_pretty(&InterflowConfig::schema()).expect("a schema is JSON") + "\n"
        }
        ConfigCommand::Reference => reference::markdown(),
    };
    // A reader that has seen enough (`head`) is no error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// The file, and the line and column of the key where the file has it.
fn key_location(file: &Path, key: &str) -> String {
    let shown = file.display();
    match std::fs::read_to_string(file).ok().and_then(|text| key_position(&text, key)) {
        Some((line, column)) => format!("{shown}:{line}:{column}: "),
        None => format!("{shown}: "),
    }
}
