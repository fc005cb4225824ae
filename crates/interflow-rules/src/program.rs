//! Compiled rules: conditions and actions by phase, indexed by what a flow must have for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashlink::LruCache;
use interflow_types::{Host, Phase};
use parking_lot::Mutex;
use regex::bytes::Regex;

use crate::action::Action;
use crate::condition::ConditionExpr;
use crate::config::RulesConfig;
use crate::error::{RuleLoadError, RuleProblem};
use crate::expect::Expectation;
use crate::host_rules::HostRules;
use crate::index::HostIndex;
use crate::params::{AnswerBody, CaptureSource, EditParams, InjectText, JsonTemplate};
use crate::path_variants::PathMatchMode;
use crate::phase_names;
use crate::rule_file::{RuleDef, RuleFile};
use crate::runtime::RuleRuntime;
use crate::service::{ExternalService, ServiceDef};
use crate::sources::{ParsedRuleFile, PathSegment, RuleFileContent, RuleFileSource, read_all};
use crate::template::TextTemplate;
use crate::text_predicate::{TextField, TextPredicate, group_names};
use crate::view::RuleConstants;

#[derive(Debug)]
pub struct CompiledRule {
    pub name: String,
    pub file: String,
    /// Its line; 0 if unknown.
    pub line: usize,
    pub cond: ConditionExpr,
    /// Its actions with their phases.
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
    /// Number of matches.
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

/// The compiled rules of a configuration.
#[derive(Debug)]
pub struct RuleProgram {
    /// The rules in order of evaluation.
    pub rules: Vec<CompiledRule>,
    /// Tests written in the rule files.
    pub tests: Vec<Expectation>,
    /// Notes on the rules.
    pub notes: Vec<RuleProblem>,
    /// The rule files, including included ones.
    pub files: Vec<PathBuf>,
    pub(crate) config: RulesConfig,
    pub(crate) constants: RuleConstants,
    pub(crate) runtime: Arc<RuleRuntime>,
    pub(crate) services: HashMap<String, Arc<ExternalService>>,
    pub(crate) scripts: crate::script::ScriptRunner,
    hosts: HostIndex,
    host_rule_cache: Mutex<LruCache<Vec<u32>, Arc<HostRules>>>,
}

/// Maximum number of cached per-host rule sets; the least recently used ones go.
const MAX_HOST_RULE_SETS: usize = 4096;

impl RuleProgram {
    /// Loads the rule files of a configuration.
    ///
    /// # Errors
    /// All errors in them.
    pub fn load(config: &RulesConfig, around: Arc<RuleRuntime>) -> Result<Arc<Self>, RuleLoadError> {
        let mut sources = Vec::new();
        let mut problems = Vec::new();
        for path in &config.files {
            match RuleFileSource::read(path) {
                Ok(source) => sources.push(source),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(RuleLoadError { problems, notes: Vec::new() });
        }
        Self::from_sources(sources, config, around)
    }

    /// Loads rules from texts.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_sources(
        sources: Vec<RuleFileSource>,
        config: &RulesConfig,
        around: Arc<RuleRuntime>,
    ) -> Result<Arc<Self>, RuleLoadError> {
        let parsed = read_all(sources)?;
        let mut compiler = Compiler::new(config, around);
        for one in parsed {
            compiler.add_parsed(one);
        }
        compiler.finish(config).map(Arc::new)
    }

    /// The rules that can match a host; `None` if there are none.
    pub(crate) fn host_rules(self: &Arc<Self>, host: &Host) -> Option<Arc<HostRules>> {
        let candidates = self.hosts.candidates(host);
        if candidates.is_empty() {
            return None;
        }
        let mut bound = self.host_rule_cache.lock();
        if let Some(ready) = bound.get(&candidates) {
            return Some(Arc::clone(ready));
        }
        let ready = Arc::new(HostRules::new(Arc::clone(self), &candidates));
        bound.insert(candidates, Arc::clone(&ready));
        Some(ready)
    }

    /// Clears the per-host rule sets, which refer to the program itself (a reference cycle).
    pub(crate) fn clear_cache(&self) {
        self.host_rule_cache.lock().clear();
    }

    /// The queue of held flows.
    pub fn holds(&self) -> Arc<crate::hold::HoldQueue> {
        Arc::clone(&self.runtime.holds)
    }

    pub fn rule(&self, name: &str) -> Option<&CompiledRule> {
        self.rules.iter().find(|r| r.name == name)
    }
}

/// Compiles rules and collects errors.
struct Compiler<'c> {
    config: &'c RulesConfig,
    around: Arc<RuleRuntime>,
    rules: Vec<CompiledRule>,
    tests: Vec<Expectation>,
    constants: RuleConstants,
    services: Vec<(String, ServiceDef)>,
    problems: Vec<RuleProblem>,
    notes: Vec<RuleProblem>,
    files: Vec<PathBuf>,
    /// Variables that are read, with the location.
    read: Vec<(String, RuleProblem)>,
    /// Variables that something sets.
    set: Vec<String>,
}

impl<'c> Compiler<'c> {
    fn new(config: &'c RulesConfig, around: Arc<RuleRuntime>) -> Self {
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

    fn add_parsed(&mut self, mut parsed: ParsedRuleFile) {
        self.files.extend(parsed.source.path.clone());
        match std::mem::replace(&mut parsed.content, RuleFileContent::Own(RuleFile::default())) {
            RuleFileContent::Own(file) => self.add_own_file(&parsed, file),
            RuleFileContent::Fluxzy(value) => self.fluxzy(&parsed, &value),
        }
    }

    fn add_own_file(&mut self, parsed: &ParsedRuleFile, file: RuleFile) {
        for (name, value) in file.variables {
            self.set.push(name.clone());
            match self.constants.binary_search_by(|(n, _)| n.cmp(&name)) {
                Ok(at) => self.constants[at].1 = value.0,
                Err(at) => self.constants.insert(at, (name, value.0)),
            }
        }
        for (name, def) in file.services {
            let at = [PathSegment::Key("services"), PathSegment::Key(&name)];
            if let Err(message) = ExternalService::check(&def) {
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

    fn rule(&mut self, parsed: &ParsedRuleFile, i: usize, def: RuleDef) {
        let name = def.name.unwrap_or_else(|| format!("rule {}", self.rules.len() + 1));
        let at = [PathSegment::Key("rules"), PathSegment::Index(i)];
        if self.rules.iter().any(|r| r.name == name) {
            let message = "a rule of this name already exists: give each rule its own name";
            self.problems.push(parsed.problem(&[at[0], at[1], PathSegment::Key("name")], Some(&name), message));
        }
        if def.then.0.is_empty() {
            self.problems.push(parsed.problem(&at, Some(&name), "it does nothing: give it actions with `then`"));
        }
        let folder = parsed.source.path.as_deref().and_then(Path::parent);
        let mut actions = Vec::new();
        for (j, mut action) in def.then.0.into_iter().enumerate() {
            let at = [at[0], at[1], PathSegment::Key("then"), PathSegment::Index(j)];
            crate::path_checks::resolve_relative(&mut action, folder);
            if let Err(message) = crate::path_checks::check_files(&action, self.config, &self.around) {
                self.problems.push(parsed.problem(&at, Some(&name), message));
            }
            if let Action::Call(names) = &action {
                self.check_service_names(parsed, &at, &name, names);
                // The service's handshake determines which of the two it handles.
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
        let rule = CompiledRule {
            name: name.clone(),
            file: parsed.source.name.clone(),
            line,
            enabled: def.enabled.unwrap_or(true),
            stop: def.stop,
            captures: capturing_regexes(&def.when.0),
            cond: def.when.0,
            actions,
            remembers: false,
            judged: PathMatchMode::default(),
            matches: Arc::default(),
        };
        self.add(rule, parsed.problem(&at, Some(&name), ""));
    }

    fn check_service_names(
        &mut self,
        parsed: &ParsedRuleFile,
        at: &[PathSegment<'_>],
        rule: &str,
        names: &crate::string_list::OneOrManyStrings,
    ) {
        let known: Vec<&str> = self.services.iter().map(|(n, _)| n.as_str()).collect();
        let message = match &names.0[..] {
            [name] if known.contains(&name.as_str()) => return,
            [name] if known.is_empty() => format!("there is no service `{name}`: write it under `services`"),
            [name] => crate::error::unknown_key_message("service", name, &known),
            _ => "`call` takes the name of one service".into(),
        };
        self.problems.push(parsed.problem(at, Some(rule), message));
    }

    fn add(&mut self, mut rule: CompiledRule, place: RuleProblem) {
        rule.remembers = rule.phases().len() > 1;
        rule.judged = PathMatchMode::for_rule(&rule);
        let mut read = Vec::new();
        for (_, action) in &rule.actions {
            visit_templates(action, &mut |t| read.extend(t.variables().map(ToOwned::to_owned)));
            self.set.extend(assigned_variables(action));
        }
        rule.cond.visit(&mut |leaf| match leaf {
            ConditionExpr::Text(place, test) => {
                if let TextField::Variable(name) = place {
                    read.push(name.clone());
                }
                if let TextPredicate::Filled(_, t, _) = test {
                    read.extend(t.variables().map(ToOwned::to_owned));
                }
            }
            ConditionExpr::Exec(exec) => {
                let all = exec.arguments.iter().chain([&exec.program]);
                all.for_each(|t| read.extend(t.variables().map(ToOwned::to_owned)));
            }
            _ => {}
        });
        self.set.extend(rule.captures.iter().flat_map(|(_, r)| group_names(r).map(ToOwned::to_owned)));
        self.read.extend(read.into_iter().map(|name| (name, place.clone())));
        self.rules.push(rule);
    }

    fn fluxzy(&mut self, parsed: &ParsedRuleFile, value: &serde_json::Value) {
        let read = crate::fluxzy::import_rules(parsed, value);
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
                if let Err(message) = crate::path_checks::check_files(action, self.config, &self.around) {
                    self.problems.push(RuleProblem { message, ..place.clone() });
                }
            }
            rule.captures = capturing_regexes(&rule.cond);
            // A variable that nothing sets is empty, which is worth a note.
            self.add(rule, place);
        }
    }

    fn finish(mut self, config: &RulesConfig) -> Result<RuleProgram, RuleLoadError> {
        let around = self.around;
        for (name, mut place) in std::mem::take(&mut self.read) {
            if self.set.contains(&name) {
                continue;
            }
            let known = self.set.iter().map(String::as_str);
            place.message = match crate::error::closest_name(&name, known) {
                Some(near) => format!("nothing sets the variable `{name}`: did you mean `{near}`?"),
                None => format!(
                    "nothing sets the variable `{name}`: set it with set_variable, capture, a named group, or under `variables`"
                ),
            };
            self.problems.push(place);
        }
        if !self.problems.is_empty() {
            return Err(RuleLoadError { problems: self.problems, notes: self.notes });
        }
        let mut services = HashMap::new();
        for (name, def) in self.services {
            match around.service(&name, def) {
                Ok(Some(service)) => drop(services.insert(name, service)),
                Ok(None) => {}
                Err(e) => {
                    let message = format!("the service `{name}`: {e}");
                    return Err(RuleProblem { file: "services".into(), message, ..RuleProblem::default() }.into());
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
        Ok(RuleProgram {
            rules: self.rules,
            tests: self.tests,
            notes: self.notes,
            files: self.files,
            config: config.clone(),
            constants: self.constants,
            runtime: around,
            services,
            scripts: crate::script::ScriptRunner::new(config),
            hosts,
            host_rule_cache: Mutex::new(LruCache::new(MAX_HOST_RULE_SETS)),
        })
    }
}

/// Determines the phase in which an action runs.
///
/// # Errors
/// The condition reads data of a later phase, or the requested phase is outside the action's range.
///
/// `before` is the phase of the preceding action of the rule; later actions run in that phase if they can.
pub(crate) fn phase_for(
    action: &Action,
    cond: &ConditionExpr,
    requested: Option<Phase>,
    before: Option<Phase>,
) -> Result<Phase, String> {
    let info = action.info();
    let (needs, from) = required_phase(action, cond);
    if needs > info.latest {
        return Err(format!(
            "`{}` acts in the phase {} at the latest, but the rule asks for what is known in the phase {} only ({from}): it would never act. \
             Ask for something that is known earlier, or use an action of that phase",
            info.name,
            phase_names::name(info.latest),
            phase_names::name(needs),
        ));
    }
    let Some(requested) = requested else {
        let mut natural = info.natural.max(needs);
        if matches!(action, Action::Hold(_)) && natural == Phase::ResponseHead {
            // A decision about a response includes its body.
            natural = Phase::ResponseBody;
        }
        return Ok(before.filter(|b| *b <= info.latest).map_or(natural, |b| natural.max(b)));
    };
    if requested < info.earliest || requested > info.latest {
        let range = if info.earliest == info.latest {
            format!("in the phase {} only", phase_names::name(info.latest))
        } else {
            format!("from the phase {} to {}", phase_names::name(info.earliest), phase_names::name(info.latest))
        };
        return Err(format!("`{}` acts {range}, not in {}", info.name, phase_names::name(requested)));
    }
    if requested < needs {
        return Err(format!(
            "the rule is set to the phase {}, but asks for what is known in the phase {} only ({from})",
            phase_names::name(requested),
            phase_names::name(needs)
        ));
    }
    Ok(requested)
}

/// The earliest phase in which the condition and the templates are known, and the item that determines it.
fn required_phase(action: &Action, cond: &ConditionExpr) -> (Phase, String) {
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
    visit_templates(action, &mut |t| {
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
        && let CaptureSource::Json(side, path) = &c.source
    {
        let phase = if *side == interflow_types::Direction::Request { Phase::RequestBody } else { Phase::ResponseBody };
        raise(phase, &path.to_string());
    }
    (latest, from)
}

/// Every template of an action.
pub(crate) fn visit_templates<'a>(action: &'a Action, see: &mut dyn FnMut(&'a TextTemplate)) {
    let mut pairs = |pairs: &'a [(TextTemplate, TextTemplate)]| {
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
            EditParams::Find(a, b) => [a, b].into_iter().for_each(see),
            EditParams::Regex(_, with) => see(&with.0),
            EditParams::Set(t) | EditParams::File(t) => see(t),
            EditParams::JsonSet(sets) => sets.iter().for_each(|(_, v)| {
                if let JsonTemplate::Filled(t) = v {
                    see(t);
                }
            }),
            EditParams::JsonRemove(_) | EditParams::JsonPatch(_) => {}
        },
        Action::InjectMessage(i) => {
            if let InjectText::Text(t) = &i.text {
                see(t);
            }
        }
        Action::InjectHtml(h) => body_template(&h.html).into_iter().for_each(see),
        Action::SetVariable(v) => v.0.iter().for_each(|(_, t)| see(t)),
        Action::Capture(c) => {
            if let CaptureSource::Text(t) = &c.source {
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

fn body_template(body: &AnswerBody) -> Option<&TextTemplate> {
    match body {
        AnswerBody::Text(t) | AnswerBody::File(t) => Some(t),
        AnswerBody::Bytes(_) => None,
    }
}

fn assigned_variables(action: &Action) -> Vec<String> {
    match action {
        Action::SetVariable(v) => v.0.iter().map(|(n, _)| n.clone()).collect(),
        Action::Capture(c) => {
            let groups = c.regex.iter().flat_map(|r| group_names(r).map(ToOwned::to_owned));
            groups.chain([c.name.clone()]).collect()
        }
        _ => Vec::new(),
    }
}

/// Regexes of a condition whose named groups become variables when it matches.
fn capturing_regexes(cond: &ConditionExpr) -> Vec<(TextField, Regex)> {
    use interflow_query::{Key, TermTest, TextPattern};
    use interflow_types::Direction::{Request, Response};
    let mut all = Vec::new();
    cond.visit(&mut |leaf| match leaf {
        ConditionExpr::Text(place, test) => all.extend(test.capturing_regex().map(|r| (place.clone(), r.clone()))),
        ConditionExpr::Query(query) => query.expr().visit(&mut |term| {
            let TermTest::Text(TextPattern::Regex(source)) = &term.test else { return };
            let place = match (term.key, &term.name) {
                (Key::Host, _) => TextField::Host,
                (Key::Url | Key::Word, _) => TextField::Url,
                (Key::Path, _) => TextField::Path,
                (Key::Query, _) => TextField::Target,
                (Key::Method, _) => TextField::Method,
                (Key::ReqHeader, Some(name)) => TextField::Header(Request, name.clone()),
                (Key::RespHeader, Some(name)) => TextField::Header(Response, name.clone()),
                (Key::ReqBody, _) => TextField::Body(Request),
                (Key::RespBody, _) => TextField::Body(Response),
                _ => return,
            };
            if let Ok(regex) = crate::text_predicate::build_regex(source.source(), source.ignore_case)
                && group_names(&regex).next().is_some()
            {
                all.push((place, regex));
            }
        }),
        _ => {}
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_a_busy_host_survive_a_crawl_of_many() {
        let hosts: Vec<String> = (0..MAX_HOST_RULE_SETS + 50).map(|i| format!("h{i}.test")).collect();
        let rule = |host: &String| format!("- name: {host}\n  when: {{host: {host}}}\n  then: {{tag: x}}\n");
        let text: String = std::iter::once("rules:\n".to_owned()).chain(hosts.iter().map(rule)).collect();
        let source = RuleFileSource::from_text("r.yaml", text);
        let program = RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::default()).unwrap();
        let rules_of = |host: &str| program.host_rules(&Host::parse(host).unwrap()).unwrap();
        let busy = rules_of("h0.test");
        for (i, host) in hosts.iter().enumerate() {
            rules_of(host);
            if i % 1000 == 0 {
                assert!(Arc::ptr_eq(&busy, &rules_of("h0.test")), "after {i} others");
            }
        }
        assert_eq!(program.host_rule_cache.lock().len(), MAX_HOST_RULE_SETS);
        program.clear_cache();
    }
}
