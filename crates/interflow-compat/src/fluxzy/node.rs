//! A node of a Fluxzy file with case-insensitive keys; tracks which keys were read, and collects errors and notes.

use std::cell::RefCell;

use interflow_rules::RuleProblem;
use interflow_rules::format::{ConvertedRules, ParsedRuleFile, PathSegment, TextTemplate, unknown_key_message};
use interflow_types::data_file;
use serde_json::{Map, Value};

use crate::draft::scalar_text;

/// Collects errors and notes while a rule is read.
pub(crate) struct ImportLog<'p> {
    pub parsed: &'p ParsedRuleFile,
    pub rule: String,
    pub read: ConvertedRules,
    pub errors: NetworkErrorUse,
}

/// How network errors count in a filter, which are known only when the flow has ended.
#[derive(Default)]
pub(crate) struct NetworkErrorUse {
    /// Whether the filter tests for them.
    pub seen: bool,
    /// Whether they match.
    pub count: bool,
}

pub(crate) struct FluxzyNode<'v> {
    value: &'v Value,
    pub log: &'v RefCell<ImportLog<'v>>,
    pub path: Vec<PathSegment<'v>>,
    used: RefCell<Vec<String>>,
}

impl<'v> FluxzyNode<'v> {
    pub fn root(value: &'v Value, log: &'v RefCell<ImportLog<'v>>) -> Self {
        Self { value, log, path: Vec::new(), used: RefCell::default() }
    }

    pub fn problem_here(&self, message: impl Into<String>) -> RuleProblem {
        let log = self.log.borrow();
        log.parsed.problem(&self.path, Some(&log.rule), message.into())
    }

    /// Reports an error.
    pub fn problem(&self, message: impl Into<String>) {
        let problem = self.problem_here(message);
        self.log.borrow_mut().read.problems.push(problem);
    }

    /// Reports an error of something that is then not there.
    pub fn refuse<T>(&self, message: impl Into<String>) -> Option<T> {
        self.problem(message);
        None
    }

    /// Reports a note.
    pub fn note(&self, message: impl Into<String>) {
        let note = self.problem_here(message);
        let notes = &mut self.log.borrow_mut().read.notes;
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    fn below(&self, value: &'v Value, step: PathSegment<'v>) -> Self {
        let path = self.path.iter().copied().chain([step]).collect();
        Self { value, log: self.log, path, used: RefCell::default() }
    }

    fn map(&self) -> Option<&'v Map<String, Value>> {
        self.value.as_object()
    }

    /// The value of a key, case-insensitive.
    pub fn get(&self, key: &str) -> Option<Self> {
        self.used.borrow_mut().push(key.to_ascii_lowercase());
        let (name, value) = self.map()?.iter().find(|(k, _)| k.eq_ignore_ascii_case(key))?;
        Some(self.below(value, PathSegment::Key(name)))
    }

    /// The items of a list; a single value counts as a list of one.
    pub fn items(&self) -> Vec<Self> {
        let only = || vec![Self { path: self.path.clone(), ..Self::root(self.value, self.log) }];
        let Some(list) = self.value.as_array() else { return only() };
        list.iter().enumerate().map(|(i, value)| self.below(value, PathSegment::Index(i))).collect()
    }

    /// The items of the list of a key.
    pub fn items_of(&self, key: &str) -> Vec<Self> {
        self.get(key).map(|list| list.items()).unwrap_or_default()
    }

    /// A text; numbers and booleans are converted.
    pub fn text(&self) -> Option<String> {
        scalar_text(self.value)
    }

    pub fn text_of(&self, key: &str) -> Option<String> {
        self.get(key)?.text()
    }

    /// A boolean in YAML 1.1 spelling, or the default.
    pub fn bool_value(&self, key: &str, default: bool) -> bool {
        let Some(node) = self.get(key) else { return default };
        let Some(text) = node.text().filter(|t| !t.is_empty()) else {
            if !node.value.is_null() {
                node.problem(format!("`{key}` must be true or false"));
            }
            return default;
        };
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "y" | "on" => true,
            "false" | "no" | "n" | "off" => false,
            _ => {
                node.problem(format!("`{key}` is `{text}`, and must be true or false"));
                default
            }
        }
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        let node = self.get(key)?;
        let number = node.text().and_then(|t| t.trim().parse().ok());
        if number.is_none() {
            node.problem(format!("`{key}` must be a whole number"));
        }
        number
    }

    /// A text that may contain variables.
    pub fn template(&self, key: &str) -> Option<TextTemplate> {
        let node = self.get(key)?;
        let text = node.text()?;
        Some(template(&node, &text))
    }

    /// As `template`; a missing key is an error.
    pub fn required_template(&self, key: &str) -> TextTemplate {
        self.template(key).or_else(|| self.refuse(format!("`{key}` is missing"))).unwrap_or_default()
    }

    /// The tag that it names, by itself or as an object.
    pub fn tag(&self) -> String {
        self.get("tag").and_then(|tag| tag.text().or_else(|| tag.text_of("value"))).unwrap_or_default()
    }

    /// Reports the keys that were not read: Fluxzy ignores them silently.
    pub fn report_unknown(&self) {
        let used = self.used.borrow();
        for key in self.map().into_iter().flat_map(|m| m.keys()) {
            let lower = key.to_ascii_lowercase();
            if used.contains(&lower) || ["typekind", "description"].contains(&lower.as_str()) {
                continue;
            }
            let keys: Vec<&str> = used.iter().map(String::as_str).collect();
            let what = unknown_key_message("key", key, &keys);
            self.note(format!("{what} Fluxzy ignores it, and it has no effect here either"));
        }
    }

    /// Reports the note that a table of kinds has for every import of this one.
    pub fn note_of_kind(&self, table: &'static str, kind: &str) {
        for [_, note] in data_file::records(table).filter(|[k, note]| *k == kind && !note.is_empty()) {
            self.note(note);
        }
    }

    /// The `typeKind` of the filter or action, without its suffix, in lower case.
    pub fn kind(&self, ending: &str) -> Option<String> {
        let Some(kind) = self.text_of("typeKind") else {
            return self.refuse(match self.text_of("type") {
                Some(_) => "`typeKind` is missing: older pages call it `type`, which Fluxzy does not read either",
                None => "`typeKind` is missing",
            });
        };
        let lower = kind.to_ascii_lowercase();
        Some(lower.strip_suffix(ending).filter(|k| !k.is_empty()).unwrap_or(&lower).to_owned())
    }
}

/// Parses a text with Fluxzy's variables.
pub(crate) fn template(node: &FluxzyNode<'_>, text: &str) -> TextTemplate {
    let (template, unknown) = TextTemplate::parse_renamed(&text.replace("{{previous}}", "${previous}"), &own_variable);
    for name in unknown {
        node.note(format!("the variable `{name}` does not exist: it is empty, there and here"));
    }
    if template.variables().next().is_some() {
        node.note("Fluxzy keeps `user.` variables in one store for all exchanges, which overwrite one another; here each flow has its own");
    }
    template
}

/// Interflow's name of a variable.
fn own_variable(name: &str) -> String {
    let own = data_file::records(include_str!("../../data/fluxzy_variables.txt")).find(|[theirs, _]| *theirs == name);
    match (own, name.strip_prefix("user.")) {
        (Some([_, own]), _) => own.to_owned(),
        (None, Some(rest)) => format!("var.{rest}"),
        (None, None) => name.to_owned(),
    }
}
