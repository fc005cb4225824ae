//! Compiled rules: conditions and actions by phase, indexed by what a flow must have for them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use interflow_types::Phase;
use regex::bytes::Regex;

use crate::action::Action;
use crate::compiled::expect::Expectation;
use crate::config::RulesConfig;
use crate::error::RuleProblem;
use crate::flow::view::RuleConstants;
use crate::matching::condition::ConditionExpr;
use crate::matching::index::HostIndex;
use crate::matching::path_mode::PathMatchMode;
use crate::matching::text_predicate::TextField;
use crate::service::ExternalService;
use crate::state::runtime::RuleRuntime;

#[derive(Debug, Default)]
pub struct CompiledRule {
    pub name: String,
    pub file: String,
    /// Its line in the file, from 1; 0 if unknown.
    pub line: usize,
    pub cond: ConditionExpr,
    /// Its actions in order, each with the phase in which it runs.
    pub actions: Vec<(Phase, Action)>,
    pub enabled: bool,
    /// Whether later rules of the phase are skipped once it matched.
    pub stop: bool,
    /// Regexes of the condition whose named groups become variables.
    pub(crate) captures: Vec<(TextField, Regex)>,
    /// Whether it acts in several phases, so that its first decision applies to the others.
    pub(crate) remembers: bool,
    /// On which interpretations of the path its condition must hold.
    pub(crate) judged: PathMatchMode,
    /// Number of matches; kept over a reload.
    pub(crate) matches: Arc<AtomicU64>,
}

impl CompiledRule {
    /// Number of matches since the start of the process.
    pub fn matches(&self) -> u64 {
        self.matches.load(Relaxed)
    }

    /// The phases in which it acts, in order.
    pub fn phases(&self) -> Vec<Phase> {
        let mut all: Vec<Phase> = self.actions.iter().map(|(p, _)| *p).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The compiled rules of a configuration. Immutable; a reload compiles a new one.
#[derive(Debug)]
pub struct RuleProgram {
    /// The rules in order of evaluation.
    pub rules: Vec<CompiledRule>,
    /// Tests written in the rule files.
    pub tests: Vec<Expectation>,
    /// Notes on the rules that are not errors.
    pub notes: Vec<RuleProblem>,
    /// The rule files, including included ones.
    pub files: Vec<PathBuf>,
    pub(crate) config: RulesConfig,
    pub(crate) constants: RuleConstants,
    pub(crate) runtime: Arc<RuleRuntime>,
    pub(crate) services: HashMap<String, Arc<ExternalService>>,
    pub(crate) scripts: crate::script::ScriptRunner,
    pub(crate) hosts: HostIndex,
}

impl RuleProgram {
    /// The queue of held flows, shared by all programs of the process.
    pub fn holds(&self) -> Arc<crate::state::hold::HoldQueue> {
        Arc::clone(&self.runtime.holds)
    }

    pub fn rule(&self, name: &str) -> Option<&CompiledRule> {
        self.rules.iter().find(|r| r.name == name)
    }
}
