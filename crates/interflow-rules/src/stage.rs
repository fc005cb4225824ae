//! The stages registered with the request pipeline: the active program, specialized for each plan's host.

use std::path::Path;
use std::sync::Arc;

use interflow_types::{
    Body, EarlyExit, EntryKind, Error, Flow, MaybeFuture, MessageVerdict, Phase, PhaseSet, PlanScope, RequestHead,
    RequestVerdict, ResponseHead, Result, Stage, StreamMessage, TunnelVerdict, UpstreamOverrides,
};
use parking_lot::RwLock;

use crate::compiled::program::RuleProgram;
use crate::config::RulesConfig;
use crate::error::{RuleLoadError, RuleProblem};
use crate::files::host_access;
use crate::files::sources::RuleFileSource;
use crate::host_rules::{HostRules, RulesByHost};
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
        let runtime = RuleRuntime::default()
            .with_formats(self.runtime.formats.clone())
            .with_private_files(self.runtime.private_files.clone());
        RuleProgram::from_sources(sources, &self.program().config, Arc::new(runtime))
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
}

impl ActiveRules {
    /// The stage for the phases up to the upstream connection, and for messages.
    pub fn request_stage(self: &Arc<Self>) -> Arc<dyn Stage> {
        Arc::new(RuleStage { rules: Arc::clone(self), responses: false })
    }

    /// The stage for responses. It has another position in the request pipeline, since the stages that undo changes of
    /// the request run in between.
    pub fn response_stage(self: &Arc<Self>) -> Arc<dyn Stage> {
        Arc::new(RuleStage { rules: Arc::clone(self), responses: true })
    }
}

/// The request or the response stage, before it is specialized for a plan.
struct RuleStage {
    rules: Arc<ActiveRules>,
    responses: bool,
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
        Some(Arc::new(HostRuleStage { bound, responses: self.responses, opens: tunnels && scope.intercepted }))
    }
}

/// The stage for one plan, with the rules that may match its host.
struct HostRuleStage {
    bound: Arc<HostRules>,
    responses: bool,
    /// Whether the plan is for intercepted tunnels, whose requests are matched one by one.
    opens: bool,
}

impl Stage for HostRuleStage {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        use Phase::{
            Authority, ClientHello, Done, Message, RequestBody, RequestHead, ResponseBody, ResponseHead,
            UpstreamConnect,
        };
        let own: &[Phase] = if self.responses {
            &[ResponseHead, ResponseBody, Done]
        } else {
            &[Authority, ClientHello, RequestHead, RequestBody, UpstreamConnect, Message]
        };
        let all = self.bound.interest(scope);
        own.iter().filter(|p| all.contains(**p)).fold(PhaseSet::NONE, |i, p| i.with(*p))
    }

    fn needs_inspection(&self, _scope: &PlanScope<'_>) -> bool {
        self.bound.needs_content()
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.bound.run_connect(Phase::Authority, flow, self.opens)
    }

    fn client_hello<'a>(&'a self, flow: &'a mut Flow) -> MaybeFuture<'a, TunnelVerdict> {
        self.bound.run_connect(Phase::ClientHello, flow, self.opens)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        self.bound.request_head(flow, head)
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        self.bound.request_body(flow, head, body)
    }

    fn upstream_connect<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: Option<&'a RequestHead>,
        way: &'a mut UpstreamOverrides,
    ) -> MaybeFuture<'a, RequestVerdict> {
        self.bound.upstream_connect(flow, head, way)
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        self.bound.response_head(flow, request, head)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        self.bound.response_body(flow, request, head, body)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        self.bound.message(flow, message)
    }

    fn unreadable_message<'a>(
        &'a self,
        flow: &'a mut Flow,
        message: &'a mut StreamMessage,
        why: &'a Error,
    ) -> MaybeFuture<'a, Result<()>> {
        self.bound.unreadable_message(flow, message, why)
    }

    fn done(&self, flow: &Flow) {
        // Nobody waits for these rules. Without a runtime, the process is ending.
        if let (MaybeFuture::Pending(rules), Ok(runtime)) =
            (self.bound.run_done(flow), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(rules);
        }
    }
}
