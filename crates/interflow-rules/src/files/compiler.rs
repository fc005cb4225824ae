//! Compiles rule files to a [`RuleProgram`], and collects the errors in them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use interflow_types::Phase;
use regex::bytes::Regex;

use crate::action::Action;
use crate::compiled::action_phase::phase_for;
use crate::compiled::action_templates::visit_templates;
use crate::compiled::program::{CompiledRule, RuleProgram};
use crate::config::RulesConfig;
use crate::error::{RuleLoadError, RuleProblem};
use crate::files::rule_file::{RuleDef, RuleFile};
use crate::files::rule_format::ConvertedRules;
use crate::files::sources::{ParsedRuleFile, PathSegment, RuleFileContent, RuleFileSource, read_all};
use crate::files::value_checks::check_values;
use crate::matching::condition::ConditionExpr;
use crate::matching::index::HostIndex;
use crate::matching::path_mode::PathMatchMode;
use crate::matching::text_predicate::{TextField, group_names};
use crate::service::{ExternalService, ServiceDef};
use crate::state::runtime::RuleRuntime;

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
        let parsed = read_all(sources, &around)?;
        let mut compiler = Compiler::new(config, around);
        for one in parsed {
            compiler.add_parsed(one);
        }
        compiler.finish().map(Arc::new)
    }
}

/// Compiles rules and collects errors, so that all of them are reported at once.
struct Compiler {
    program: RuleProgram,
    services: Vec<(String, ServiceDef)>,
    problems: Vec<RuleProblem>,
    /// Variables that are read, with the location for the error if nothing sets them.
    read: Vec<(String, RuleProblem)>,
    /// Variables that something sets: constants, actions, named groups.
    set: Vec<String>,
}

impl Compiler {
    fn new(config: &RulesConfig, runtime: Arc<RuleRuntime>) -> Self {
        let program = RuleProgram {
            rules: Vec::new(),
            tests: Vec::new(),
            notes: Vec::new(),
            files: Vec::new(),
            config: config.clone(),
            constants: Vec::new(),
            runtime,
            services: HashMap::new(),
            scripts: crate::script::ScriptRunner::new(config),
            hosts: HostIndex::default(),
        };
        Self { program, services: Vec::new(), problems: Vec::new(), read: Vec::new(), set: Vec::new() }
    }

    fn add_parsed(&mut self, mut parsed: ParsedRuleFile) {
        self.program.files.extend(parsed.source.path.clone());
        match std::mem::replace(&mut parsed.content, RuleFileContent::Own(RuleFile::default())) {
            RuleFileContent::Own(file) => self.add_own_file(&parsed, file),
            RuleFileContent::Foreign(format, value) => self.add_converted(format.convert(&value, &parsed)),
        }
    }

    fn add_own_file(&mut self, parsed: &ParsedRuleFile, file: RuleFile) {
        for (name, value) in file.variables {
            self.set.push(name.clone());
            match self.program.constants.binary_search_by(|(n, _)| n.cmp(&name)) {
                Ok(at) => self.program.constants[at].1 = value.text,
                Err(at) => self.program.constants.insert(at, (name, value.text)),
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
            self.program.tests.push(test);
        }
    }

    fn rule(&mut self, parsed: &ParsedRuleFile, i: usize, def: RuleDef) {
        let name = def.name.unwrap_or_else(|| format!("rule {}", self.program.rules.len() + 1));
        let at = [PathSegment::Key("rules"), PathSegment::Index(i)];
        if self.program.rules.iter().any(|r| r.name == name) {
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
            crate::files::path_checks::resolve_relative(&mut action, folder);
            let checks = [
                check_values(&action),
                crate::files::path_checks::check_files(&action, &self.program.config, &self.program.runtime),
            ];
            let wrong = checks.into_iter().filter_map(Result::err);
            self.problems.extend(wrong.map(|message| parsed.problem(&at, Some(&name), message)));
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
            cond: def.when.0,
            actions,
            ..CompiledRule::default()
        };
        self.add(rule, parsed.problem(&at, Some(&name), ""));
    }

    fn check_service_names(
        &mut self,
        parsed: &ParsedRuleFile,
        at: &[PathSegment<'_>],
        rule: &str,
        names: &crate::text::string_list::OneOrManyStrings,
    ) {
        let service_names: Vec<&str> = self.services.iter().map(|(n, _)| n.as_str()).collect();
        let message = match &names.0[..] {
            [name] if service_names.contains(&name.as_str()) => return,
            [name] if service_names.is_empty() => format!("there is no service `{name}`: write it under `services`"),
            [name] => interflow_query::unknown_key_message("service", name, &service_names),
            _ => "`call` takes the name of one service".into(),
        };
        self.problems.push(parsed.problem(at, Some(rule), message));
    }

    fn add(&mut self, mut rule: CompiledRule, place: RuleProblem) {
        rule.captures = capturing_regexes(&rule.cond);
        rule.remembers = rule.phases().len() > 1;
        rule.judged = PathMatchMode::for_rule(&rule.cond, &rule.actions, rule.stop);
        let mut read = Vec::new();
        for (_, action) in &rule.actions {
            visit_templates(action, &mut |t| read.extend(t.variables().map(ToOwned::to_owned)));
            self.set.extend(assigned_variables(action));
        }
        rule.cond.visit(&mut |leaf| {
            if let ConditionExpr::Text(TextField::Variable(name), _) = leaf {
                read.push(name.clone());
            }
            read.extend(leaf.templates().flat_map(|t| t.variables()).map(ToOwned::to_owned));
        });
        self.set.extend(rule.captures.iter().flat_map(|(_, r)| group_names(r).map(ToOwned::to_owned)));
        self.read.extend(read.into_iter().map(|name| (name, place.clone())));
        self.program.rules.push(rule);
    }

    fn add_converted(&mut self, converted: ConvertedRules) {
        self.problems.extend(converted.problems);
        self.program.notes.extend(converted.notes);
        for rule in converted.rules {
            let mut n = 1;
            let mut name = rule.name.clone();
            while self.program.rules.iter().any(|r| r.name == name) {
                n += 1;
                name = format!("{} ({n})", rule.name);
            }
            for (_, action) in &rule.actions {
                if let Err(message) =
                    crate::files::path_checks::check_files(action, &self.program.config, &self.program.runtime)
                {
                    self.problems.push(RuleProblem { message, ..rule.place.clone() });
                }
            }
            let compiled = CompiledRule {
                name,
                file: rule.place.file.clone(),
                line: rule.place.line,
                enabled: true,
                cond: rule.condition,
                actions: rule.actions,
                ..CompiledRule::default()
            };
            self.add(compiled, rule.place);
        }
    }

    fn finish(mut self) -> Result<RuleProgram, RuleLoadError> {
        for (name, mut place) in std::mem::take(&mut self.read) {
            if self.set.contains(&name) {
                continue;
            }
            let names = self.set.iter().map(String::as_str);
            place.message = match interflow_query::closest_name(&name, names) {
                Some(near) => format!("nothing sets the variable `{name}`: did you mean `{near}`?"),
                None => format!(
                    "nothing sets the variable `{name}`: set it with set_variable, capture, a named group, or under `variables`"
                ),
            };
            self.problems.push(place);
        }
        if !self.problems.is_empty() {
            return Err(RuleLoadError { problems: self.problems, notes: self.program.notes });
        }
        let mut program = self.program;
        for (name, def) in self.services {
            match program.runtime.service(&name, def) {
                Ok(Some(service)) => drop(program.services.insert(name, service)),
                Ok(None) => {}
                Err(e) => {
                    let message = format!("the service `{name}`: {e}");
                    return Err(RuleProblem { file: "services".into(), message, ..RuleProblem::default() }.into());
                }
            }
        }
        for (i, rule) in program.rules.iter_mut().enumerate() {
            // By name, so that the count of an unchanged rule survives a reload.
            rule.matches = program.runtime.counter(&rule.name);
            if rule.enabled {
                program.hosts.add(i as u32, &rule.cond);
            }
        }
        Ok(program)
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
            let position = match (term.key, &term.name) {
                (Key::Host, _) => TextField::Host,
                (Key::Url | Key::Word, _) => TextField::Url,
                (Key::Path, _) => TextField::Path,
                (Key::Query, _) => TextField::Query,
                (Key::Method, _) => TextField::Method,
                (Key::ReqHeader, Some(name)) => TextField::Header(Request, name.clone()),
                (Key::RespHeader, Some(name)) => TextField::Header(Response, name.clone()),
                (Key::ReqBody, _) => TextField::Body(Request),
                (Key::RespBody, _) => TextField::Body(Response),
                _ => return,
            };
            if let Ok(regex) = crate::matching::regex_limits::build_regex(source.source(), source.ignore_case)
                && group_names(&regex).next().is_some()
            {
                all.push((position, regex));
            }
        }),
        _ => {}
    });
    all
}
