//! `interflow config`: init, check, print, get, set, unset, env, schema, reference.

mod set;

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use interflow_admin::config_masking::mask_config;
use interflow_host::data_dir::DataDir;
use interflow_limits::VirtualKeyRing;
use serde_json::Value as Json;

use crate::cli::output::{print, print_json};
use crate::components::separate_limits_warning;
use crate::instance::config::{ConfigFile, InterflowConfig, LoadError, LoadedConfig, key_position, mistakes};
use crate::instance::start_check::ConfigMistake;
use crate::instance::{exposure, start_check};
use crate::{CliError, Result};

/// Every key with its description and default. All of it is comments, so it is valid as it is, and equal to the defaults.
/// This and the page are made from the schema of the configuration, and a test compares them with it.
const ANNOTATED_FILE: &str = include_str!("../../../../../docs/reference/interflow.toml");
const REFERENCE_PAGE: &str = include_str!("../../../../../docs/reference/configuration.md");

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write an annotated configuration file: every key with its description and default, commented out.
    Init {
        /// File to create; an existing file is not replaced [default: stdout].
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Validate the configuration, and open what it names as `run` does: files, secrets, certificates.
    ///
    /// Ports and the recording are not opened, so that an instance may be running meanwhile; databases and other servers
    /// are not contacted.
    Check {
        /// Configuration file; `-` for stdin [default: that of --config].
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Do not open rules, policies, keys and secrets, for a machine that does not have them.
        #[arg(long)]
        values_only: bool,
    },
    /// Print the effective configuration, including defaults and environment variables. Secrets are masked.
    Print {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t = PrintFormat::Toml)]
        format: PrintFormat,
        /// Same as `--format json`.
        #[arg(long, conflicts_with = "format")]
        json: bool,
    },
    /// Print the effective value of a key, as JSON.
    Get {
        /// Key, such as `intercept.mode`.
        key: String,
    },
    /// Set a key in the configuration file; comments and everything else in it stay.
    ///
    /// The file is checked as a whole before it is written. A running instance of the data directory reloads it.
    Set {
        /// Key, such as `intercept.mode`.
        key: String,
        /// Value as in the file, such as `false`, `30d` or `["a.test"]`; quotes around a text may be left out.
        value: String,
        /// Show the change without making it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a key from the configuration file, so that its default applies.
    Unset {
        /// Key, such as `intercept.mode`.
        key: String,
        /// Show the change without making it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the names of all environment variables.
    Env,
    /// Print the JSON Schema of the configuration file.
    Schema,
    /// Print the configuration reference in Markdown.
    Reference,
}

/// Formats of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrintFormat {
    /// TOML, as in the file.
    Toml,
    /// One JSON document.
    Json,
}

/// Runs one of the commands on the configuration, which is loaded where it is needed.
pub fn run(
    command: &ConfigCommand,
    file: &ConfigFile,
    data_dir: Option<&Path>,
    load: impl Fn(Option<&Path>) -> Result<LoadedConfig, LoadError>,
) -> Result<()> {
    let text = match command {
        ConfigCommand::Init { file: Some(file) } => return init(file),
        ConfigCommand::Init { file: None } => ANNOTATED_FILE.to_owned(),
        ConfigCommand::Env => crate::cli::manual::environment_variables(),
        ConfigCommand::Check { file: given, values_only } => {
            let read = given.as_deref().or_else(|| file.to_load());
            let loaded = load(given.as_deref()).map_err(|first| with_others(first, read))?;
            let checked = if *values_only {
                start_check::check_values(&loaded.config)
            } else {
                let home = DataDir::find(data_dir.or(loaded.config.data_dir.as_deref()))?;
                start_check::check(&loaded.config, &home)
            };
            checked.map_err(|ConfigMistake { key, what }| {
                let file = loaded.file.as_ref().map(|f| key_location(f, &key)).unwrap_or_default();
                CliError::Failed(format!("{file}{what}"))
            })?;
            let limits = separate_limits_warning(&loaded.config, &VirtualKeyRing::default());
            // `run --listen-proxy` replaces what the file says.
            let mdns = start_check::check_mdns(&loaded.config, &loaded.config.proxy.listen).err();
            let exposed = exposure::config_warnings(&loaded.config);
            exposed.iter().chain(&limits).chain(&mdns).for_each(|text| crate::warn(text));
            match loaded.file {
                Some(file) => format!("{}: ok\n", file.display()),
                None => "no file given: the defaults are valid\n".into(),
            }
        }
        ConfigCommand::Print { format, json } => {
            let config = load(None)?.config;
            if *json || *format == PrintFormat::Json {
                return print_json(&masked(&config)?);
            }
            as_toml(&config)?
        }
        ConfigCommand::Get { key } => return set::get(key, &load(None)?.config),
        ConfigCommand::Set { key, value, dry_run } => {
            return set::set(file, data_dir, key, Some(value), *dry_run);
        }
        ConfigCommand::Unset { key, dry_run } => return set::set(file, data_dir, key, None, *dry_run),
        ConfigCommand::Schema => {
            serde_json::to_string_pretty(InterflowConfig::schema()).expect("a schema is JSON") + "\n"
        }
        ConfigCommand::Reference => REFERENCE_PAGE.to_owned(),
    };
    print(&text);
    Ok(())
}

/// The configuration as it may be shown.
fn masked(config: &InterflowConfig) -> Result<Json> {
    let mut config = serde_json::to_value(config).map_err(cannot_serialize)?;
    mask_config(&mut config);
    Ok(config)
}

/// As [`masked`], in the format of the configuration file.
pub fn as_toml(config: &InterflowConfig) -> Result<String> {
    let mut printed = masked(config)?;
    drop_nulls(&mut printed);
    toml::to_string_pretty(&printed).map_err(cannot_serialize)
}

fn cannot_serialize(error: impl fmt::Display) -> CliError {
    CliError::Failed(format!("the configuration cannot be serialized: {error}"))
}

/// TOML has no value for what is not set.
fn drop_nulls(value: &mut Json) {
    match value {
        Json::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Json::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The error of a file with its other mistakes, one per line. Standard input was read already.
fn with_others(first: LoadError, file: Option<&Path>) -> LoadError {
    let Some(file) = file else { return first };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let others = mistakes(&text, &file.display().to_string()).into_iter().filter(|m| *m != first);
    let what = others.fold(first.what.clone(), |all, mistake| format!("{all}\n{mistake}"));
    LoadError { what, ..first }
}

/// Writes the annotated file.
fn init(file: &Path) -> Result<()> {
    let failed = |e: std::io::Error| {
        let why = match e.kind() {
            std::io::ErrorKind::AlreadyExists => "it exists already; give another name or remove it first".to_owned(),
            _ => e.to_string(),
        };
        CliError::Failed(format!("{} is not written: {why}", file.display()))
    };
    let mut out = std::fs::File::create_new(file).map_err(failed)?;
    out.write_all(ANNOTATED_FILE.as_bytes()).map_err(failed)?;
    let path = file.display();
    interflow_host::errln!("interflow: {path} is written; `interflow -c {path} run` uses it");
    Ok(())
}

/// The file, and the line and column of the key where the file has it.
fn key_location(file: &Path, key: &str) -> String {
    let path = file.display();
    let position = std::fs::read_to_string(file).ok().and_then(|text| key_position(&text, key));
    position.map_or_else(|| format!("{path}: "), |(line, column)| format!("{path}:{line}:{column}: "))
}
