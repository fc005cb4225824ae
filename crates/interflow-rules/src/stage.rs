//! The stage that the engine is handed: the program in force, bound to each plan's host.

use std::path::Path;
use std::sync::Arc;

use interflow_flow::{
    Body, Flow, Interest, Message, Phase, RequestHead, ResponseHead, Scope, Stage, Step, Transport, Verdict, Way,
};
use parking_lot::RwLock;

use crate::bound::Bound;

use crate::config::RulesConfig;
use crate::error::LoadError;
use crate::program::Program;
use crate::read::Source;
use crate::surroundings::Surroundings;

/// The rules in force.
pub struct Rules {
    around: Arc<Surroundings>,
    program: RwLock<Arc<Program>>,
}

impl Rules {
    /// Reads the rule files of a configuration.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn new(config: &RulesConfig, around: Arc<Surroundings>) -> Result<Self, LoadError> {
        let program = Program::load(config, Arc::clone(&around))?;
        Ok(Self { around, program: RwLock::new(program) })
    }

    /// Reads the files of a configuration without putting them in force.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn prepare(&self, config: &RulesConfig) -> Result<Arc<Program>, LoadError> {
        Program::load(config, Arc::clone(&self.around))
    }

    /// Reads texts as rules, without putting them in force or counting with them.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn check(&self, sources: Vec<Source>) -> Result<Arc<Program>, LoadError> {
        Program::from_sources(sources, &self.program().config, Arc::new(Surroundings::default()))
    }

    /// The rules as they would be if one of the configured files had this text; `None` when it is none of them.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn replaced(&self, file: &Path, text: &str) -> Result<Option<Arc<Program>>, LoadError> {
        let config = self.program().config.clone();
        if !config.files.iter().any(|f| f == file) {
            return Ok(None);
        }
        let mut sources = Vec::new();
        for path in &config.files {
            let mut source = Source::read(path)?;
            if path == file {
                text.clone_into(&mut source.text);
            }
            sources.push(source);
        }
        Program::from_sources(sources, &config, Arc::clone(&self.around)).map(Some)
    }

    /// Puts prepared rules in force for plans made from now on; flows under way keep what they began with.
    pub fn put(&self, program: Arc<Program>) {
        let old = std::mem::replace(&mut *self.program.write(), program);
        old.retire();
    }

    /// The rules in force.
    pub fn program(&self) -> Arc<Program> {
        Arc::clone(&self.program.read())
    }

    /// What outlives a reload: held flows, sessions, counters.
    pub fn surroundings(&self) -> &Arc<Surroundings> {
        &self.around
    }
}

impl Rules {
    /// The stage for everything up to the origin.
    pub fn requests(self: &Arc<Self>) -> Arc<dyn Stage> {
        Arc::new(Half { rules: Arc::clone(self), responses: false })
    }

    /// The stage for responses: another place in the corridor, since what undid the request's changes stands between.
    pub fn responses(self: &Arc<Self>) -> Arc<dyn Stage> {
        Arc::new(Half { rules: Arc::clone(self), responses: true })
    }
}

/// One of the two places of rules in the corridor.
struct Half {
    rules: Arc<Rules>,
    responses: bool,
}

impl Stage for Half {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, _scope: &Scope<'_>) -> Interest {
        Interest::NONE
    }

    fn bind(&self, scope: &Scope<'_>) -> Option<Arc<dyn Stage>> {
        let bound = self.rules.program().bind(&scope.authority.host)?;
        let tunnels = !matches!(scope.transport, Transport::Absolute | Transport::Gateway | Transport::Internal);
        Some(Arc::new(HalfBound { bound, responses: self.responses, opens: tunnels && scope.intercepted }))
    }
}

/// The same for one plan.
struct HalfBound {
    bound: Arc<Bound>,
    responses: bool,
    /// Whether the plan is for tunnels that are looked into.
    opens: bool,
}

impl Stage for HalfBound {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        use Phase::{
            Authority, ClientHello, Dial, Done, Message, RequestBody, RequestHead, ResponseBody, ResponseHead,
        };
        let own: &[Phase] = if self.responses {
            &[ResponseHead, ResponseBody, Done]
        } else {
            &[Authority, ClientHello, RequestHead, RequestBody, Dial, Message]
        };
        let all = self.bound.interest(scope);
        own.iter().filter(|p| all.has(**p)).fold(Interest::NONE, |i, p| i.and(*p))
    }

    fn needs_inspection(&self, _scope: &Scope<'_>) -> bool {
        self.bound.needs_content()
    }

    fn authority<'a>(&'a self, flow: &'a mut Flow) -> Step<'a, Verdict> {
        self.bound.connect(Phase::Authority, flow, self.opens)
    }

    fn client_hello<'a>(&'a self, flow: &'a mut Flow) -> Step<'a, Verdict> {
        self.bound.connect(Phase::ClientHello, flow, self.opens)
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        self.bound.request_head(flow, head)
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        self.bound.request_body(flow, head, body)
    }

    fn dial<'a>(&'a self, flow: &'a mut Flow, head: Option<&'a RequestHead>, way: &'a mut Way) -> Step<'a, Verdict> {
        self.bound.dial(flow, head, way)
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> Step<'a, Verdict> {
        self.bound.response_head(flow, request, head)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        self.bound.response_body(flow, request, head, body)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        self.bound.message(flow, message)
    }

    fn done(&self, flow: &Flow) {
        self.bound.done(flow);
    }
}
