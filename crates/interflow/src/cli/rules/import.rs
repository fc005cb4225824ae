//! `interflow rules import`: converts mitmproxy's options to rules.

use std::path::Path;
use std::sync::Arc;

use interflow_compat::mitmproxy;
use interflow_rules::{RuleFileSource, RuleProgram};

use super::ImportArgs;
use super::files::offline_runtime;
use crate::CliError;
use crate::instance::config::InterflowConfig;

pub fn import(args: &ImportArgs, config: &InterflowConfig) -> Result<(), CliError> {
    let file = Path::new(&args.option);
    let options = if args.specs.is_empty() && file.is_file() {
        from_config(file)?
    } else {
        let specs = if args.specs.is_empty() { vec![String::new()] } else { args.specs.clone() };
        let made = mitmproxy::import_option(&args.option, &specs).map_err(CliError::Usage)?;
        vec![(args.option.clone(), made)]
    };
    let (mut rules, mut notes) = (Vec::new(), Vec::new());
    for (option, made) in options {
        // The generated rules are validated by the loader.
        let text = mitmproxy::to_yaml(made.rules.clone());
        RuleProgram::from_sources(
            vec![RuleFileSource::from_text("rule", text)],
            &config.rules,
            Arc::new(offline_runtime()),
        )
        .map_err(|e| CliError::Failed(format!("{option} cannot be imported: {e}")))?;
        rules.extend(made.rules);
        notes.extend(made.notes);
    }
    notes.iter().for_each(|n| anstream::eprintln!("note: {n}"));
    anstream::print!("{}", mitmproxy::to_yaml(rules));
    Ok(())
}

/// Converts the options of mitmproxy's `config.yaml` that correspond to rules.
fn from_config(path: &Path) -> Result<Vec<(String, mitmproxy::ImportedRules)>, CliError> {
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
