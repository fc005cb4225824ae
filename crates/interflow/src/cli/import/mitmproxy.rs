//! `interflow import mitmproxy`: recorded flows go to the store; options become a rule file, which is printed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use interflow_archive::ArchiveFormat;
use interflow_compat::mitmproxy;
use interflow_host::data_dir::DataDir;
use interflow_rules::{RuleFileSource, RuleProgram};

use super::is_yaml;
use crate::cli::flows::import_archives;
use crate::cli::output::print;
use crate::cli::rules::files::offline_runtime;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Args)]
#[command(
    after_long_help = "Options that become rules: map_local, map_remote, modify_headers, modify_body, block_list, \
    ignore_hosts, allow_hosts, stickycookie, stickyauth, anticache, anticomp, server_replay."
)]
pub struct MitmproxyArgs {
    /// Recorded flows to import (`-` for stdin), or option files (`config.yaml`) to convert.
    #[arg(value_name = "FILE", required_unless_present = "set")]
    pub files: Vec<PathBuf>,
    /// Option to convert, as in mitmproxy: `--set 'map_remote=|http://a/|http://b/'` (repeatable).
    #[arg(long, value_name = "OPTION[=VALUE]")]
    pub set: Vec<String>,
}

pub fn run(args: &MitmproxyArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let (options, flows): (Vec<_>, Vec<_>) = args.files.iter().cloned().partition(|f| is_yaml(f));
    if !options.is_empty() || !args.set.is_empty() {
        convert(&options, &args.set, config)?;
    }
    if flows.is_empty() { Ok(()) } else { import_archives(&flows, Some(ArchiveFormat::Mitm), config, home) }
}

/// Prints the rules that these options become. The loader validates them first.
fn convert(files: &[PathBuf], set: &[String], config: &InterflowConfig) -> Result<()> {
    let mut all = Vec::new();
    for file in files {
        all.extend(from_config(file)?);
    }
    for (option, values) in by_option(set) {
        let made = mitmproxy::import_option(&option, &values).map_err(CliError::Usage)?;
        all.push((option, made));
    }
    let (mut rules, mut notes) = (Vec::new(), Vec::new());
    for (option, made) in all {
        let text = mitmproxy::to_yaml(made.rules.clone());
        let source = vec![RuleFileSource::from_text("rule", text)];
        RuleProgram::from_sources(source, &config.rules, Arc::new(offline_runtime()))
            .map_err(|e| CliError::Failed(format!("{option} cannot be imported: {e}")))?;
        rules.extend(made.rules);
        notes.extend(made.notes);
    }
    notes.iter().for_each(|n| interflow_host::errln!("note: {n}"));
    print(&mitmproxy::to_yaml(rules));
    Ok(())
}

/// Options with their values, in the order of the command line.
fn by_option(set: &[String]) -> Vec<(String, Vec<String>)> {
    let mut options: Vec<(String, Vec<String>)> = Vec::new();
    for text in set {
        let (option, value) = text.split_once('=').unwrap_or((text, ""));
        match options.iter_mut().find(|(known, _)| known == option) {
            Some((_, values)) => values.push(value.to_owned()),
            None => options.push((option.to_owned(), vec![value.to_owned()])),
        }
    }
    options
}

/// Converts the options of mitmproxy's `config.yaml` that correspond to rules.
fn from_config(path: &Path) -> Result<Vec<(String, mitmproxy::ImportedRules)>> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let failed = |e: String| CliError::Failed(format!("{}: {e}", path.display()));
    let (options, notes) = mitmproxy::config_options(&text).map_err(failed)?;
    let replays = mitmproxy::server_replay(&text).map_err(failed)?;
    let mut all = vec![
        ("options".to_owned(), mitmproxy::ImportedRules { notes, ..Default::default() }),
        ("server_replay".to_owned(), mitmproxy::ImportedRules { rules: replays, ..Default::default() }),
    ];
    for (option, specs) in options {
        let made = mitmproxy::import_option(&option, &specs).map_err(|e| failed(format!("{option}: {e}")))?;
        all.push((option, made));
    }
    Ok(all)
}
