//! A test of one argument of a call.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use interflow_codec::json::unescape_pointer_token;
use interflow_limits::any_matches;
use interflow_redact::looks_of;
use interflow_types::{HostPattern, wildcard};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::readings::{Match, PathPatterns, host_matches, text_readings};
use crate::config::ArgumentTest;

/// How deep JSON in strings is read, as some servers do.
const MAX_LAYERS: usize = 4;

/// A test with the argument that it is about.
pub(super) struct CompiledTest {
    /// Names of members, indexes, or `*` for all, from the outside in.
    steps: Vec<String>,
    check: Check,
}

enum Check {
    OneOf(Vec<Value>),
    Glob(Vec<String>),
    /// Anywhere in a text, and for the whole text.
    Regex(Regex, Regex),
    Path(PathPatterns),
    Host(Vec<HostPattern>),
    Range(RangeInclusive<f64>),
    Absent(bool),
}

impl CompiledTest {
    /// `argument` is a name, or a JSON pointer with `*` for all members.
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(argument: &str, test: &ArgumentTest) -> Result<Self, String> {
        let steps = match argument.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescape_pointer_token).collect(),
            None => vec![argument.to_owned()],
        };
        if steps.iter().all(String::is_empty) {
            return Err("an argument has a name".to_owned());
        }
        let is_plain = |value: &Value| !value.is_object() && !value.is_array();
        let check = match test {
            ArgumentTest::Equals(value) if is_plain(value) => Check::OneOf(vec![value.clone()]),
            ArgumentTest::OneOf(values) if values.iter().all(is_plain) => Check::OneOf(values.clone()),
            ArgumentTest::Equals(_) | ArgumentTest::OneOf(_) => {
                return Err("a value is a string, a number or a boolean".to_owned());
            }
            ArgumentTest::Glob(patterns) => Check::Glob(patterns.clone()),
            ArgumentTest::Regex(text) if text.is_empty() => {
                return Err("an empty expression matches everything: write one, or leave the test out".to_owned());
            }
            ArgumentTest::Regex(text) => {
                let anywhere = RegexBuilder::new(text).case_insensitive(true).build().map_err(|e| e.to_string())?;
                let whole = Regex::new(&format!(r"\A(?:{text})\z")).map_err(|e| e.to_string())?;
                Check::Regex(anywhere, whole)
            }
            ArgumentTest::Path(patterns) => Check::Path(PathPatterns::new(patterns)?),
            ArgumentTest::Host(hosts) => {
                let hosts = hosts.iter().map(|host| host.parse::<HostPattern>().map_err(|e| e.to_string()));
                Check::Host(hosts.collect::<Result<_, _>>()?)
            }
            ArgumentTest::Range { min, max } => {
                let range = min.unwrap_or(f64::NEG_INFINITY)..=max.unwrap_or(f64::INFINITY);
                match min.or(*max) {
                    None => return Err("a range has `min`, `max`, or both".to_owned()),
                    Some(_) if range.is_empty() => return Err("no number is in it: `min` is above `max`".to_owned()),
                    Some(_) => Check::Range(range),
                }
            }
            ArgumentTest::Absent(is_absent) => Check::Absent(*is_absent),
        };
        Ok(Self { steps, check })
    }

    pub fn matches(&self, arguments: &Value) -> Match {
        let (mut exact, mut nulls, mut all) = (0, 0, true);
        let is_complete = visit(arguments, &self.steps, None, &mut |value| {
            exact += 1;
            nulls += usize::from(value.is_null());
            all &= self.check.must_match(value);
        });
        let may_match = |leaf: &Value| {
            let text = leaf.as_str().map_or_else(|| Cow::Owned(leaf.to_string()), Cow::Borrowed);
            self.check.may_match(leaf, &text)
        };
        let (mut loose, mut any) = (0, false);
        visit(arguments, &self.steps, Some(MAX_LAYERS), &mut |value| {
            loose += 1;
            any = any || any_leaf(value, MAX_LAYERS, &may_match);
        });
        match self.check {
            Check::Absent(true) => Match { any: exact == 0 || nulls > 0 || !is_complete, all: loose == 0 },
            Check::Absent(false) => Match { any: loose > 0, all: exact > 0 && nulls == 0 && is_complete },
            // A server that takes `Path` for `path`, too, could use either; and of an item without it, it uses a default.
            _ => Match { any, all: all && exact > 0 && exact == loose && is_complete },
        }
    }
}

impl Check {
    /// Whether one reading of a value that is no object or array matches. What cannot be compared may.
    fn may_match(&self, leaf: &Value, text: &str) -> bool {
        let like = |matches: &dyn Fn(&str) -> bool| text_readings(text).iter().any(|reading| matches(reading));
        match self {
            Self::OneOf(values) => values.iter().any(|expected| match expected {
                Value::String(expected) => like(&|text| text == looks_of(expected)),
                Value::Number(expected) => number(leaf).is_none_or(|number| Some(number) == expected.as_f64()),
                other => !leaf.is_boolean() || leaf == other,
            }),
            Self::Glob(patterns) => patterns
                .iter()
                .map(|pattern| looks_of(pattern))
                .any(|pattern| like(&|text| wildcard::matches(&pattern, text))),
            Self::Regex(anywhere, _) => anywhere.is_match(text) || like(&|text| anywhere.is_match(text)),
            Self::Path(patterns) => patterns.matches(text).any,
            Self::Host(patterns) => host_matches(patterns, text).any,
            Self::Range(range) => number(leaf).is_none_or(|number| range.contains(&number)),
            Self::Absent(_) => false,
        }
    }

    /// Whether a value matches as it is written.
    fn must_match(&self, value: &Value) -> bool {
        let text = |matches: &dyn Fn(&str) -> bool| value.as_str().is_some_and(matches);
        match self {
            Self::OneOf(values) => values.iter().any(|expected| {
                let is_rounded = value.is_f64() || expected.is_f64();
                value == expected || is_rounded && value.as_f64() == expected.as_f64()
            }),
            Self::Glob(patterns) => text(&|text| any_matches(patterns, text)),
            Self::Regex(_, whole) => text(&|text| whole.is_match(text)),
            Self::Path(patterns) => text(&|text| patterns.matches(text).all),
            Self::Host(patterns) => text(&|text| host_matches(patterns, text).all),
            Self::Range(range) => value.as_f64().is_some_and(|number| range.contains(&number)),
            Self::Absent(_) => false,
        }
    }
}

/// Visits what the steps lead to. With `layers`, also by names that look like them, through arrays, and through JSON in
/// strings, that many deep. Without them, whether each of what `*` stands for has it.
fn visit(value: &Value, steps: &[String], layers: Option<usize>, visitor: &mut dyn FnMut(&Value)) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        visitor(value);
        return true;
    };
    let (is_any, mut has_value, mut is_complete) = (step == "*", false, true);
    let mut go_on = |value: &Value, rest: &[String], layers| {
        has_value = true;
        is_complete &= visit(value, rest, layers, visitor);
    };
    match value {
        Value::Object(members) => {
            let is_like = |name: &str| is_any || name == step || layers.is_some() && looks_of(name) == looks_of(step);
            let like = members.iter().filter(|(name, _)| is_like(name));
            like.for_each(|(_, value)| go_on(value, rest, layers));
        }
        Value::Array(items) => match step.parse::<usize>() {
            Ok(at) => items.get(at).into_iter().for_each(|item| go_on(item, rest, layers)),
            Err(_) if is_any => items.iter().for_each(|item| go_on(item, rest, layers)),
            Err(_) if layers.is_some() => items.iter().for_each(|item| go_on(item, steps, layers)),
            Err(_) => {}
        },
        Value::String(text) => {
            if let Some((layers, value)) = layers.and_then(|layers| Some((layers, json_in(text, layers)?))) {
                go_on(&value, steps, Some(layers - 1));
            }
        }
        _ => {}
    }
    is_complete && (has_value || is_any && (value.is_array() || value.is_object()))
}

/// Whether something holds for a string, a number or the like at any depth, or for a name there.
fn any_leaf(value: &Value, layers: usize, holds: &dyn Fn(&Value) -> bool) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| any_leaf(item, layers, holds)),
        Value::Object(members) => {
            let named = |name: &String| holds(&Value::from(name.as_str()));
            members.iter().any(|(name, value)| named(name) || any_leaf(value, layers, holds))
        }
        Value::String(text) => {
            holds(value) || json_in(text, layers).is_some_and(|inner| any_leaf(&inner, layers - 1, holds))
        }
        _ => holds(value),
    }
}

/// The JSON that a string holds.
fn json_in(text: &str, layers: usize) -> Option<Value> {
    let may_be = layers > 0 && text.trim_start().starts_with(['{', '[', '"']);
    may_be.then(|| serde_json::from_str(text).ok()).flatten()
}

/// A number, or a text that stands for one; `None` if it cannot be compared.
fn number(value: &Value) -> Option<f64> {
    let text = |text: &str| looks_of(text).parse().ok().filter(|number: &f64| number.is_finite());
    value.as_f64().or_else(|| value.as_str().and_then(text))
}
