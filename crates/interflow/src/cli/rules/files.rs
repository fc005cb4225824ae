//! Commands on rule files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_rules::action::ACTIONS;
use interflow_rules::{
    RuleFileSource, RuleProblem, RuleProgram, RuleRuntime, RulesConfig, explain as explaining, phase_names, simulate,
};
use interflow_types::units::pluralize;
use serde_json::{Value, json};

use super::{ExplainArgs, FilesArgs, RuleListArgs};
use crate::cli::flows::open;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TableFormat, members, print_json};
use crate::components::{BuildCapabilities, RecordingArchives, rule_formats};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

fn sources(files: &[PathBuf]) -> Result<Vec<RuleFileSource>> {
    files.iter().map(|f| source(f)).collect()
}

fn source(path: &Path) -> Result<RuleFileSource> {
    if path != Path::new("-") {
        return RuleFileSource::read(path).map_err(|p| CliError::Failed(p.to_string()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| format!("standard input cannot be read: {e}"))?;
    Ok(RuleFileSource::from_text("standard input", text))
}

/// For rules that are only checked, recordings come from archives, not from a store.
pub fn offline_runtime() -> RuleRuntime {
    RuleRuntime::default()
        .with_recordings(Arc::new(RecordingArchives::Looking))
        .with_capabilities(Arc::new(BuildCapabilities))
        .with_formats(rule_formats())
}

fn load(files: &[PathBuf], config: &RulesConfig) -> Result<Arc<RuleProgram>> {
    RuleProgram::from_sources(sources(files)?, config, Arc::new(offline_runtime()))
        .map_err(|e| CliError::Failed(e.to_string()))
}

/// `rules check`
pub fn check(args: &FilesArgs, config: &InterflowConfig) -> Result<()> {
    let read = RuleProgram::from_sources(sources(&args.files)?, &config.rules, Arc::new(offline_runtime()));
    let (rules, problems, notes) = match &read {
        Ok(program) => (program.rules.len(), &[][..], &program.notes[..]),
        Err(e) => (0, &e.problems[..], &e.notes[..]),
    };
    if args.format.is_json() {
        print_json(
            &json!({ "ok": read.is_ok(), "rules": rules, "problems": problems_json(problems), "notes": problems_json(notes) }),
        )?;
    } else {
        notes.iter().for_each(|n| interflow_host::outln!("{n}"));
        if read.is_ok() {
            let verb = if rules == 1 { "is" } else { "are" };
            interflow_host::outln!("{} {verb} valid", pluralize(rules as u64, "rule"));
        }
    }
    read.map(drop).map_err(|e| CliError::Failed(e.to_string()))
}

fn problems_json(problems: &[RuleProblem]) -> Vec<Value> {
    let one = |p: &RuleProblem| json!({ "file": p.file, "line": p.line, "column": p.column, "rule": p.rule, "message": p.message });
    problems.iter().map(one).collect()
}

/// `rules list FILE`
pub fn list(args: &RuleListArgs, config: &InterflowConfig) -> Result<()> {
    let program = load(&args.files, &config.rules)?;
    let rules: Vec<Value> = program
        .rules
        .iter()
        .map(|r| {
            let actions: Vec<Value> =
                r.actions.iter().map(|(p, a)| json!({ "name": a.info().name, "phase": phase_names::name(*p) })).collect();
            json!({ "name": r.name, "file": r.file, "line": r.line, "when": r.cond.describe(), "actions": actions, "enabled": r.enabled })
        })
        .collect();
    args.format.print(&json!({ "rules": rules }), || rules.iter().map(rule_lines).collect())
}

/// Name, place, condition and actions of a rule.
fn rule_lines(rule: &Value) -> String {
    let bold = anstyle::Style::new().bold();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let actions = members(rule, "actions").map(|a| format!("{} ({})", text(a, "name"), text(a, "phase")));
    let actions = actions.collect::<Vec<_>>().join(", ");
    let off = if rule["enabled"] == false { "  off" } else { "" };
    let matches = rule["matches"].as_u64().map(|n| format!("  {}", pluralize(n, "match"))).unwrap_or_default();
    let [name, file, when] = ["name", "file", "when"].map(|key| text(rule, key));
    let line = &rule["line"];
    format!("{bold}{name}{bold:#}{off}{matches}\n    {file}:{line}\n    when {when}\n    then {actions}\n")
}

/// `rules list` without files: the rules of the running instance.
pub fn active_rules(format: &FormatArgs<TableFormat>, home: &DataDir) -> Result<()> {
    let active = InstanceApi::require(home)?.call(&OperationId::ListRules.call())?;
    format.print(&active, || members(&active, "rules").map(rule_lines).collect())
}

/// `rules list --actions`
pub fn actions(format: &FormatArgs<TableFormat>) -> Result<()> {
    let one = |a: &interflow_rules::action::ActionInfo| {
        let [earliest, natural, latest] = [a.earliest, a.natural, a.latest].map(phase_names::name);
        json!({ "name": a.name, "earliest": earliest, "natural": natural, "latest": latest, "doc": a.doc.trim() })
    };
    format.print(&ACTIONS.iter().map(one).collect::<Vec<_>>(), || {
        let line = |a: &interflow_rules::action::ActionInfo| {
            format!("{:<26} {:<14} {}\n", a.name, phase_names::name(a.natural), a.doc.trim())
        };
        ACTIONS.iter().map(line).collect()
    })
}

/// `rules explain FLOW`
pub fn explain(args: &ExplainArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let files = if args.files.is_empty() { &config.rules.files } else { &args.files };
    if files.is_empty() {
        return Err(CliError::Usage("no rule files: give --rules FILE or set rules.files in the configuration".into()));
    }
    let program = load(files, &config.rules)?;
    let store = open::open_for_reading(config, home)?;
    let row = open::find(&*store, &args.flow)?;
    let sample = interflow_admin::flow_fixture(&*store, &row)?;
    let all = explaining::explain(&program, &sample);
    if args.format.is_json() {
        return print_json(&json!({ "flow": row.id.to_string(), "rules": all }));
    }
    interflow_host::outln!("{} {}", row.id, row.url());
    let bold = anstyle::Style::new().bold();
    for rule in all {
        let word = if rule.matches { "matched" } else { "did not match" };
        interflow_host::outln!("{bold}{}{bold:#}  {word}  ({})", rule.rule, rule.location);
        for p in rule.phases {
            let (outcome, actions) = (p.outcome.as_str(), p.actions.join(", "));
            interflow_host::outln!("    {:<14} {outcome:<8} {}  [{actions}]", p.phase, p.why);
        }
    }
    Ok(())
}

/// `rules test FILE`
pub fn test(args: &FilesArgs, config: &InterflowConfig) -> Result<()> {
    let program = load(&args.files, &config.rules)?;
    if program.tests.is_empty() {
        return Err(CliError::Failed("no tests: add them under `tests` in the rule files".into()));
    }
    let runtime = crate::runtime()?;
    let mut failed = 0;
    let mut results = Vec::new();
    for test in &program.tests {
        let name = test.name.clone().unwrap_or_else(|| test.request.url.clone());
        let wrong = runtime.block_on(simulate::check_expectation(&program, test)).unwrap_or_else(|e| vec![e]);
        failed += usize::from(!wrong.is_empty());
        if !args.format.is_json() {
            interflow_host::outln!("{} {name}", if wrong.is_empty() { "ok    " } else { "FAILED" });
            wrong.iter().for_each(|w| interflow_host::outln!("       {w}"));
        }
        results.push(json!({ "name": name, "file": test.file, "ok": wrong.is_empty(), "wrong": wrong }));
    }
    if args.format.is_json() {
        print_json(&results)?;
    }
    match failed {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{n} of {} tests failed", program.tests.len()))),
    }
}
