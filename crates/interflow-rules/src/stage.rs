//! The stages registered with the request pipeline: the active program, specialized for each plan's host.

use std::path::Path;
use std::sync::Arc;

use interflow_types::{EntryKind, Phase, PhaseSet, PlanScope, Stage};
use parking_lot::RwLock;

use crate::compiled::program::RuleProgram;
use crate::config::RulesConfig;
use crate::error::{RuleLoadError, RuleProblem};
use crate::files::host_access;
use crate::files::sources::RuleFileSource;
use crate::host_rules::{HostRuleStage, RulesByHost};
use crate::state::runtime::RuleRuntime;

/// The active rules, with the state that outlives a reload.
pub struct ActiveRules {
    runtime: Arc<RuleRuntime>,
    active: RwLock<Arc<RulesByHost>>,
}

impl ActiveRules {
    /// Loads the rule files of a configuration.
    ///
    /// # Errors
    /// All errors in them, not only the first.
    pub fn new(config: &RulesConfig, around: Arc<RuleRuntime>) -> Result<Self, RuleLoadError> {
        let program = RuleProgram::load(config, Arc::clone(&around))?;
        Ok(Self { runtime: around, active: RwLock::new(RulesByHost::new(program)) })
    }

    /// Loads the files of a configuration without activating them.
    ///
    /// # Errors
    /// All errors in them.
    pub fn prepare(&self, config: &RulesConfig) -> Result<Arc<RuleProgram>, RuleLoadError> {
        RuleProgram::load(config, Arc::clone(&self.runtime))
    }

    /// Compiles texts as rules without activating them or counting matches.
    ///
    /// # Errors
    /// All errors in them.
    pub fn check(&self, sources: Vec<RuleFileSource>) -> Result<Arc<RuleProgram>, RuleLoadError> {
        RuleProgram::from_sources(sources, &self.program().config, Arc::new(self.runtime.for_checks()))
    }

    /// What a text uses of this machine beyond the traffic (files, programs, environment variables), with the places. Only
    /// the text is read, nothing that it names.
    ///
    /// # Errors
    /// The text cannot be parsed.
    pub fn host_access(&self, source: RuleFileSource) -> Result<Vec<RuleProblem>, RuleProblem> {
        source.parse(&self.runtime.formats).map(|parsed| host_access::find(&parsed))
    }

    /// The rules as they would be if one of the configured files had this text; `None` if the file is not configured.
    /// The other files are read from disk.
    ///
    /// # Errors
    /// All errors in them.
    pub fn check_with_file(&self, file: &Path, text: &str) -> Result<Option<Arc<RuleProgram>>, RuleLoadError> {
        let config = self.program().config.clone();
        if !config.files.iter().any(|f| f == file) {
            return Ok(None);
        }
        let mut sources = Vec::new();
        for path in &config.files {
            let mut source = RuleFileSource::read(path)?;
            if path == file {
                text.clone_into(&mut source.text);
            }
            sources.push(source);
        }
        RuleProgram::from_sources(sources, &config, Arc::clone(&self.runtime)).map(Some)
    }

    /// Activates prepared rules for new plans; flows in flight keep their rules.
    pub fn activate(&self, program: Arc<RuleProgram>) {
        let old = std::mem::replace(&mut *self.active.write(), RulesByHost::new(program));
        // The cache refers to the old rules, and they to it.
        old.clear_cache();
    }

    pub fn program(&self) -> Arc<RuleProgram> {
        Arc::clone(&self.active.read().program)
    }

    /// State that outlives a reload: held flows, sessions, counters.
    pub fn runtime(&self) -> &Arc<RuleRuntime> {
        &self.runtime
    }

    /// The stage for the phases up to the upstream connection, and for messages.
    pub fn request_stage(self: &Arc<Self>) -> Arc<dyn Stage> {
        use Phase::{Authority, ClientHello, Message, RequestBody, RequestHead, UpstreamConnect};
        let phases = &[Authority, ClientHello, RequestHead, RequestBody, UpstreamConnect, Message];
        Arc::new(RuleStage { rules: Arc::clone(self), phases })
    }

    /// The stage for responses. It has another position in the request pipeline, since the stages that undo changes of
    /// the request run in between.
    pub fn response_stage(self: &Arc<Self>) -> Arc<dyn Stage> {
        let phases = &[Phase::ResponseHead, Phase::ResponseBody, Phase::Done];
        Arc::new(RuleStage { rules: Arc::clone(self), phases })
    }
}

/// The request or the response stage, before it is specialized for a plan.
struct RuleStage {
    rules: Arc<ActiveRules>,
    phases: &'static [Phase],
}

impl Stage for RuleStage {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, _scope: &PlanScope<'_>) -> PhaseSet {
        // Only specialized stages run: a host to which no rule applies has none.
        PhaseSet::NONE
    }

    fn specialize(&self, scope: &PlanScope<'_>) -> Option<Arc<dyn Stage>> {
        let active = Arc::clone(&self.rules.active.read());
        let bound = active.rules_for(&scope.authority.host)?;
        let tunnels = !matches!(scope.transport, EntryKind::Absolute | EntryKind::Gateway | EntryKind::Internal);
        Some(Arc::new(HostRuleStage { bound, phases: self.phases, opens: tunnels && scope.intercepted }))
    }
}
