//! The rules made ready: conditions and actions by phase, indexed by what a flow must have for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use interflow_flow::{Host, Phase};
use parking_lot::Mutex;
use regex::bytes::Regex;

use crate::action::Action;
use crate::bound::Bound;
use crate::cond::Cond;
use crate::config::RulesConfig;
use crate::error::{LoadError, Problem};
use crate::expect::Expectation;
use crate::file::{RuleDef, RuleFile};
use crate::given::{AnswerBody, CaptureFrom, Edit, InjectText, JsonValue};
use crate::index::HostIndex;
use crate::phases;
use crate::read::{Content, Parsed, Seg, Source, read_all};
use crate::readings::Judged;
use crate::service::{Service, ServiceDef};
use crate::surroundings::Surroundings;
use crate::template::Template;
use crate::text::{Place, TextTest, names};
use crate::view::Constants;

/// A rule made ready.
#[derive(Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The file it stands in.
    pub file: String,
    /// Its line there; 0 when it is not known.
    pub line: usize,
    /// Which flows it is for.
    pub cond: Cond,
    /// What it does, each action with its phase.
    pub actions: Vec<(Phase, Action)>,
    /// Whether it is in force.
    pub enabled: bool,
    /// Whether no later rule is asked in its phase once it matched.
    pub stop: bool,
    /// Regexes of the condition whose groups become variables.
    pub(crate) captures: Vec<(Place, Regex)>,
    /// Whether it acts in several phases, so that the first decision holds for the others.
    pub(crate) remembers: bool,
    /// Of which readings of the path its condition must hold.
    pub(crate) judged: Judged,
    /// How often it matched; kept over a reload.
    pub(crate) matches: Arc<AtomicU64>,
}

impl Rule {
    /// How often it matched.
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

/// All rules in force.
#[derive(Debug)]
pub struct Program {
    /// The rules, in the order in which they are asked.
    pub rules: Vec<Rule>,
    /// Expectations written beside the rules.
    pub tests: Vec<Expectation>,
    /// What is worth knowing about them.
    pub notes: Vec<Problem>,
    /// The files they came from, includes and all.
    pub files: Vec<PathBuf>,
    pub(crate) config: RulesConfig,
    pub(crate) constants: Constants,
    pub(crate) around: Arc<Surroundings>,
    pub(crate) services: HashMap<String, Arc<Service>>,
    pub(crate) scripts: crate::script::Scripts,
    hosts: HostIndex,
    bound: Mutex<HashMap<Vec<u32>, Arc<Bound>>>,
}

/// The most sets of rules that are kept ready for plans.
const MOST_BOUND: usize = 4096;

impl Program {
    /// Reads the rule files of a configuration.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(config: &RulesConfig, around: Arc<Surroundings>) -> Result<Arc<Self>, LoadError> {
        let mut sources = Vec::new();
        let mut problems = Vec::new();
        for path in &config.files {
            match Source::read(path) {
                Ok(source) => sources.push(source),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(LoadError { problems, notes: Vec::new() });
        }
        Self::from_sources(sources, config, around)
    }

    /// The same from texts.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_sources(
        sources: Vec<Source>,
        config: &RulesConfig,
        around: Arc<Surroundings>,
    ) -> Result<Arc<Self>, LoadError> {
        let parsed = read_all(sources)?;
        let mut compiler = Compiler::new(config, around);
        for one in parsed {
            compiler.take(one);
        }
        compiler.finish(config).map(Arc::new)
    }

    /// The rules that a host can match, ready to be asked.
    pub(crate) fn bind(self: &Arc<Self>, host: &Host) -> Option<Arc<Bound>> {
        let candidates = self.hosts.candidates(host);
        if candidates.is_empty() {
            return None;
        }
        let mut bound = self.bound.lock();
        if let Some(ready) = bound.get(&candidates) {
            return Some(Arc::clone(ready));
        }
        if bound.len() >= MOST_BOUND {
            bound.clear();
        }
        let ready = Arc::new(Bound::new(Arc::clone(self), &candidates));
        bound.insert(candidates, Arc::clone(&ready));
        Some(ready)
    }

    /// Drops what was bound, which names the program itself.
    pub(crate) fn retire(&self) {
        self.bound.lock().clear();
    }

    /// Flows that wait for a decision.
    pub fn holds(&self) -> Arc<crate::hold::Holds> {
        Arc::clone(&self.around.holds)
    }

    /// A rule by name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|r| r.name == name)
    }
}

/// Makes rules ready, and gathers what is wrong.
struct Compiler<'c> {
    config: &'c RulesConfig,
    around: Arc<Surroundings>,
    rules: Vec<Rule>,
    tests: Vec<Expectation>,
    constants: Constants,
    services: Vec<(String, ServiceDef)>,
    problems: Vec<Problem>,
    notes: Vec<Problem>,
    files: Vec<PathBuf>,
    /// Variables that are read, and where.
    read: Vec<(String, Problem)>,
    /// Variables that something sets.
    set: Vec<String>,
}

impl<'c> Compiler<'c> {
    fn new(config: &'c RulesConfig, around: Arc<Surroundings>) -> Self {
        Self {
            config,
            around,
            rules: Vec::new(),
            tests: Vec::new(),
            constants: Vec::new(),
            services: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            files: Vec::new(),
            read: Vec::new(),
            set: Vec::new(),
        }
    }

    fn take(&mut self, mut parsed: Parsed) {
        self.files.extend(parsed.source.path.clone());
        match std::mem::replace(&mut parsed.content, Content::Own(RuleFile::default())) {
            Content::Own(file) => self.own(&parsed, file),
            Content::Fluxzy(value) => self.fluxzy(&parsed, &value),
        }
    }

    fn own(&mut self, parsed: &Parsed, file: RuleFile) {
        for (name, value) in file.variables {
            self.set.push(name.clone());
            match self.constants.binary_search_by(|(n, _)| n.cmp(&name)) {
                Ok(at) => self.constants[at].1 = value.0,
                Err(at) => self.constants.insert(at, (name, value.0)),
            }
        }
        for (name, def) in file.services {
            let at = [Seg::Key("services"), Seg::Key(&name)];
            if let Err(message) = Service::check(&def) {
                self.problems.push(parsed.problem(&at, None, format!("the service `{name}`: {message}")));
            }
            self.services.push((name, def));
        }
        for (i, def) in file.rules.into_iter().enumerate() {
            self.rule(parsed, i, def);
        }
        for mut test in file.tests {
            test.file.clone_from(&parsed.source.name);
            self.tests.push(test);
        }
    }

    fn rule(&mut self, parsed: &Parsed, i: usize, def: RuleDef) {
        let name = def.name.unwrap_or_else(|| format!("rule {}", self.rules.len() + 1));
        let at = [Seg::Key("rules"), Seg::Index(i)];
        if self.rules.iter().any(|r| r.name == name) {
            let message = "a rule of this name stands further up: give each a name of its own";
            self.problems.push(parsed.problem(&[at[0], at[1], Seg::Key("name")], Some(&name), message));
        }
        if def.then.0.is_empty() {
            self.problems.push(parsed.problem(&at, Some(&name), "it does nothing: give it actions with `then`"));
        }
        let folder = parsed.source.path.as_deref().and_then(Path::parent);
        let mut actions = Vec::new();
        for (j, mut action) in def.then.0.into_iter().enumerate() {
            let at = [at[0], at[1], Seg::Key("then"), Seg::Index(j)];
            crate::paths::resolve(&mut action, folder);
            if let Err(message) = crate::paths::check(&action, self.config, &self.around) {
                self.problems.push(parsed.problem(&at, Some(&name), message));
            }
            if let Action::Call(names) = &action {
                self.call(parsed, &at, &name, names);
                // The service says itself which of the two it wants.
                if def.phase.is_none() && phase_for(&action, &def.when.0, Some(Phase::RequestBody), None).is_ok() {
                    actions.push((Phase::ResponseBody, action.clone()));
                }
            }
            let before = actions.last().map(|(p, _)| *p).filter(|_| !matches!(action, Action::Call(_)));
            match phase_for(&action, &def.when.0, def.phase.map(|p| p.0), before) {
                Ok(phase) => actions.push((phase, action)),
                Err(message) => self.problems.push(parsed.problem(&at, Some(&name), message)),
            }
        }
        let line = parsed.problem(&at, None, "").line;
        let rule = Rule {
            name: name.clone(),
            file: parsed.source.name.clone(),
            line,
            enabled: def.enabled.unwrap_or(true),
            stop: def.stop,
            captures: captures(&def.when.0),
            cond: def.when.0,
            actions,
            remembers: false,
            judged: Judged::default(),
            matches: Arc::default(),
        };
        self.add(rule, parsed.problem(&at, Some(&name), ""));
    }

    fn call(&mut self, parsed: &Parsed, at: &[Seg<'_>], rule: &str, names: &crate::when::Texts) {
        let known: Vec<&str> = self.services.iter().map(|(n, _)| n.as_str()).collect();
        let message = match &names.0[..] {
            [name] if known.contains(&name.as_str()) => return,
            [name] if known.is_empty() => format!("there is no service `{name}`: write it under `services`"),
            [name] => crate::error::unknown("service", name, &known),
            _ => "`call` takes the name of one service".into(),
        };
        self.problems.push(parsed.problem(at, Some(rule), message));
    }

    fn add(&mut self, mut rule: Rule, place: Problem) {
        rule.remembers = rule.phases().len() > 1;
        rule.judged = Judged::of(&rule);
        let mut read = Vec::new();
        for (_, action) in &rule.actions {
            templates(action, &mut |t| read.extend(t.variables().map(ToOwned::to_owned)));
            self.set.extend(sets(action));
        }
        rule.cond.visit(&mut |leaf| match leaf {
            Cond::Text(place, test) => {
                if let Place::Variable(name) = place {
                    read.push(name.clone());
                }
                if let TextTest::Filled(_, t, _) = test {
                    read.extend(t.variables().map(ToOwned::to_owned));
                }
            }
            Cond::Exec(exec) => {
                let all = exec.arguments.iter().chain([&exec.program]);
                all.for_each(|t| read.extend(t.variables().map(ToOwned::to_owned)));
            }
            _ => {}
        });
        self.set.extend(rule.captures.iter().flat_map(|(_, r)| names(r).map(ToOwned::to_owned)));
        self.read.extend(read.into_iter().map(|name| (name, place.clone())));
        self.rules.push(rule);
    }

    fn fluxzy(&mut self, parsed: &Parsed, value: &serde_json::Value) {
        let read = crate::fluxzy::read(parsed, value);
        self.problems.extend(read.problems);
        self.notes.extend(read.notes);
        for (mut rule, place) in read.rules {
            let mut n = 1;
            let base = rule.name.clone();
            while self.rules.iter().any(|r| r.name == rule.name) {
                n += 1;
                rule.name = format!("{base} ({n})");
            }
            for (_, action) in &rule.actions {
                if let Err(message) = crate::paths::check(action, self.config, &self.around) {
                    self.problems.push(Problem { message, ..place.clone() });
                }
            }
            rule.captures = captures(&rule.cond);
            // What nothing sets is empty there, and said so.
            self.add(rule, place);
        }
    }

    fn finish(mut self, config: &RulesConfig) -> Result<Program, LoadError> {
        let around = self.around;
        for (name, mut place) in std::mem::take(&mut self.read) {
            if self.set.contains(&name) {
                continue;
            }
            let known = self.set.iter().map(String::as_str);
            place.message = match crate::error::nearest(&name, known) {
                Some(near) => format!("nothing sets the variable `{name}`: did you mean `{near}`?"),
                None => format!(
                    "nothing sets the variable `{name}`: set it with set_variable, capture, a named group, or under `variables`"
                ),
            };
            self.problems.push(place);
        }
        if !self.problems.is_empty() {
            return Err(LoadError { problems: self.problems, notes: self.notes });
        }
        let mut services = HashMap::new();
        for (name, def) in self.services {
            match around.service(&name, def) {
                Ok(Some(service)) => drop(services.insert(name, service)),
                Ok(None) => {}
                Err(e) => {
                    let message = format!("the service `{name}`: {e}");
                    return Err(Problem { file: "services".into(), message, ..Problem::default() }.into());
                }
            }
        }
        let mut hosts = HostIndex::default();
        for (i, rule) in self.rules.iter_mut().enumerate() {
            rule.matches = around.counter(&rule.name);
            if rule.enabled {
                hosts.add(i as u32, &rule.cond);
            }
        }
        Ok(Program {
            rules: self.rules,
            tests: self.tests,
            notes: self.notes,
            files: self.files,
            config: config.clone(),
            constants: self.constants,
            around,
            services,
            scripts: crate::script::Scripts::new(config),
            hosts,
            bound: Mutex::default(),
        })
    }
}

/// The phase in which an action of a rule runs.
///
/// # Errors
/// The condition asks for what comes only later, or the phase that was wished for is none of the action's.
///
/// `before` is the phase of the action that stands before it in its rule: what can follow it does.
pub(crate) fn phase_for(
    action: &Action,
    cond: &Cond,
    wished: Option<Phase>,
    before: Option<Phase>,
) -> Result<Phase, String> {
    let info = action.info();
    let (needs, from) = needs(action, cond);
    if needs > info.latest {
        return Err(format!(
            "`{}` acts in the phase {} at the latest, but the rule asks for what is known in the phase {} only ({from}): it would never act. \
             Ask for something that is known earlier, or use an action of that phase",
            info.name,
            phases::name(info.latest),
            phases::name(needs),
        ));
    }
    let Some(wished) = wished else {
        let mut natural = info.natural.max(needs);
        if matches!(action, Action::Hold(_)) && natural == Phase::ResponseHead {
            // Whoever decides about a response sees its body too.
            natural = Phase::ResponseBody;
        }
        return Ok(before.filter(|b| *b <= info.latest).map_or(natural, |b| natural.max(b)));
    };
    if wished < info.earliest || wished > info.latest {
        let range = if info.earliest == info.latest {
            format!("in the phase {} only", phases::name(info.latest))
        } else {
            format!("from the phase {} to {}", phases::name(info.earliest), phases::name(info.latest))
        };
        return Err(format!("`{}` acts {range}, not in {}", info.name, phases::name(wished)));
    }
    if wished < needs {
        return Err(format!(
            "the rule is set to the phase {}, but asks for what is known in the phase {} only ({from})",
            phases::name(wished),
            phases::name(needs)
        ));
    }
    Ok(wished)
}

/// From which phase on all is known that the condition and the action's texts ask for, and what comes last.
fn needs(action: &Action, cond: &Cond) -> (Phase, String) {
    let mut latest = Phase::Authority;
    let mut from = String::new();
    cond.visit(&mut |leaf| {
        if leaf.phase() > latest {
            (latest, from) = (leaf.phase(), leaf.describe());
        }
    });
    let mut raise = |phase: Phase, what: &str| {
        if phase > latest {
            (latest, from) = (phase, what.to_owned());
        }
    };
    templates(action, &mut |t| {
        let (request, response) = t.wants_bodies();
        if t.wants_message() {
            raise(Phase::Message, "${message}");
        } else if response {
            raise(Phase::ResponseBody, "${resp.body}");
        } else if t.wants_response() {
            raise(Phase::ResponseHead, "a variable of the response");
        } else if request {
            raise(Phase::RequestBody, "${req.body}");
        } else if t.wants_request() {
            raise(Phase::RequestHead, "a variable of the request");
        }
    });
    if let Action::Capture(c) = action
        && let CaptureFrom::Json(side, path) = &c.source
    {
        let phase = if *side == interflow_flow::Direction::Request { Phase::RequestBody } else { Phase::ResponseBody };
        raise(phase, &path.to_string());
    }
    (latest, from)
}

/// Every text of an action that may hold variables.
pub(crate) fn templates<'a>(action: &'a Action, see: &mut dyn FnMut(&'a Template)) {
    let mut pairs = |pairs: &'a [(Template, Template)]| {
        for (a, b) in pairs {
            see(a);
            see(b);
        }
    };
    match action {
        Action::AddRequestHeader(p)
        | Action::SetRequestHeader(p)
        | Action::UpdateRequestHeader(p)
        | Action::SetQuery(p)
        | Action::SetRequestCookie(p)
        | Action::AddResponseHeader(p)
        | Action::SetResponseHeader(p)
        | Action::UpdateResponseHeader(p) => pairs(&p.0),
        Action::RemoveRequestHeader(n)
        | Action::RemoveQuery(n)
        | Action::RemoveRequestCookie(n)
        | Action::RemoveResponseHeader(n)
        | Action::RemoveResponseCookie(n) => n.0.iter().for_each(see),
        Action::ReplaceRequestHeader(r) | Action::ReplaceResponseHeader(r) => {
            see(&r.name);
            see(&r.with.0);
        }
        Action::SetMethod(t)
        | Action::SetPath(t)
        | Action::SetUrl(t)
        | Action::BearerToken(t)
        | Action::SetStatus(t)
        | Action::SaveResponseBody(t)
        | Action::Tag(t)
        | Action::Comment(t)
        | Action::Print(t)
        | Action::PrintError(t) => see(t),
        Action::BasicAuth(b) => [&b.user, &b.password].into_iter().for_each(see),
        Action::MapRemote(r) => see(&r.to.0),
        Action::MapLocal(l) => see(&l.path.0),
        Action::Redirect(r) => see(&r.to),
        Action::UpstreamProxy(b) => b.via.iter().for_each(see),
        Action::ConnectTo(s) => see(&s.to),
        Action::Answer(a) => {
            pairs(&a.headers);
            a.content_type.iter().for_each(&mut *see);
            body_template(&a.body).into_iter().for_each(see);
        }
        Action::Block(b) => b.message.iter().chain(&b.content_type).for_each(see),
        Action::SetResponseCookie(c) => {
            [Some(&c.name), Some(&c.value), c.path.as_ref(), c.domain.as_ref()].into_iter().flatten().for_each(see);
        }
        Action::EditRequestBody(e) | Action::EditResponseBody(e) | Action::EditMessage(e) => match e {
            Edit::Find(a, b) => [a, b].into_iter().for_each(see),
            Edit::Regex(_, with) => see(&with.0),
            Edit::Set(t) | Edit::File(t) => see(t),
            Edit::JsonSet(sets) => sets.iter().for_each(|(_, v)| {
                if let JsonValue::Filled(t) = v {
                    see(t);
                }
            }),
            Edit::JsonRemove(_) | Edit::JsonPatch(_) => {}
        },
        Action::InjectMessage(i) => {
            if let InjectText::Text(t) = &i.text {
                see(t);
            }
        }
        Action::InjectHtml(h) => body_template(&h.html).into_iter().for_each(see),
        Action::SetVariable(v) => v.0.iter().for_each(|(_, t)| see(t)),
        Action::Capture(c) => {
            if let CaptureFrom::Text(t) = &c.source {
                see(t);
            }
        }
        Action::Log(l) => see(&l.text),
        Action::AppendFile(a) => [&a.file, &a.text].into_iter().for_each(see),
        Action::Hold(h) => h.note.iter().for_each(see),
        Action::ApplySession(s) | Action::ClearSession(s) => s.domain.iter().for_each(see),
        _ => {}
    }
}

fn body_template(body: &AnswerBody) -> Option<&Template> {
    match body {
        AnswerBody::Text(t) | AnswerBody::File(t) => Some(t),
        AnswerBody::Bytes(_) => None,
    }
}

fn sets(action: &Action) -> Vec<String> {
    match action {
        Action::SetVariable(v) => v.0.iter().map(|(n, _)| n.clone()).collect(),
        Action::Capture(c) => {
            let groups = c.regex.iter().flat_map(|r| names(r).map(ToOwned::to_owned));
            groups.chain([c.name.clone()]).collect()
        }
        _ => Vec::new(),
    }
}

/// Regexes of a condition whose named groups become variables when it holds.
fn captures(cond: &Cond) -> Vec<(Place, Regex)> {
    use interflow_flow::Direction::{Request, Response};
    use interflow_query::{Key, Pattern, Test};
    let mut all = Vec::new();
    cond.visit(&mut |leaf| match leaf {
        Cond::Text(place, test) => all.extend(test.capturing().map(|r| (place.clone(), r.clone()))),
        Cond::Query(query) => query.expr().visit(&mut |term| {
            let Test::Text(Pattern::Regex(source)) = &term.test else { return };
            let place = match (term.key, &term.name) {
                (Key::Host, _) => Place::Host,
                (Key::Url | Key::Word, _) => Place::Url,
                (Key::Path, _) => Place::Path,
                (Key::Query, _) => Place::Target,
                (Key::Method, _) => Place::Method,
                (Key::ReqHeader, Some(name)) => Place::Header(Request, name.clone()),
                (Key::RespHeader, Some(name)) => Place::Header(Response, name.clone()),
                (Key::ReqBody, _) => Place::Body(Request),
                (Key::RespBody, _) => Place::Body(Response),
                _ => return,
            };
            if let Ok(regex) = crate::text::regex(source.source(), source.ignore_case)
                && names(&regex).next().is_some()
            {
                all.push((place, regex));
            }
        }),
        _ => {}
    });
    all
}
