//! Locates errors in a policy's text by line and column.

use interflow_codec::document::from_toml;
use interflow_query::with_suggestion;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

use super::{Policy, PolicyFile};
use crate::RedactError;

/// An error in a policy's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, JsonSchema)]
#[error("line {line}, column {column}: {message}")]
pub struct PolicyProblem {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong, with the closest valid name.
    pub message: String,
}

impl Policy {
    /// As [`parse`](Self::parse), with the location of the error.
    ///
    /// # Errors
    /// The first error.
    pub fn check(text: &str) -> Result<Self, PolicyProblem> {
        Self::parse(text).map_err(|e| {
            let syntax = if text.trim_start().starts_with('{') { in_json(text) } else { in_toml(text) };
            syntax.unwrap_or_else(|| by_name(text, &e))
        })
    }
}

/// The first error of the TOML parser; `None` if it accepts the text.
fn in_toml(text: &str) -> Option<PolicyProblem> {
    let error = from_toml::<PolicyFile>(text).err()?;
    let (line, column) = error.position().unwrap_or((1, 1));
    Some(PolicyProblem { line, column, message: with_suggestion(error.message()) })
}

/// The first error of the JSON parser; `None` if it accepts the text.
fn in_json(text: &str) -> Option<PolicyProblem> {
    let error = serde_json::from_str::<serde_json::Value>(text).err()?;
    let (line, column) = (error.line().max(1), error.column().max(1));
    let problem = error.to_string();
    let message = problem.split(" at line ").next().unwrap_or_default().to_owned();
    Some(PolicyProblem { line, column, message })
}

/// The position of the first name that the message quotes, or the beginning if the text does not contain it.
fn by_name(text: &str, error: &RedactError) -> PolicyProblem {
    let message = match error {
        RedactError::Policy(message) => message.clone(),
        other => other.to_string(),
    };
    let at = message.split('`').skip(1).step_by(2).find_map(|word| text.find(word)).unwrap_or_default();
    let before = text.get(..at.min(text.len())).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |n| n + 1);
    PolicyProblem {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_errors_have_a_position_and_a_suggestion() {
        let table: &[(&str, usize, usize, &str)] = &[
            ("name = \"x\"\nexept = [\"date\"]\n", 2, 1, "unknown key `exept`: did you mean `except`?"),
            ("kinds = [\"ssn\",\n  \"emial-address\"]\n", 2, 4, "did you mean `email-address`?"),
            ("[[patterns]]\nname = \"é\"\npattern = \"(a\"\n", 3, 12, "the pattern `(a` cannot be used"),
            ("name = \n", 1, 8, ""),
            ("confidence = 300\n", 1, 14, ""),
            ("{\n  \"identifiers\": {,}\n}", 2, 19, "key must be a string"),
        ];
        for (text, line, column, words) in table {
            let problem = Policy::check(text).unwrap_err();
            assert_eq!((problem.line, problem.column), (*line, *column), "{text}: {problem}");
            assert!(problem.message.contains(words), "{text}: {problem}");
            assert!(!problem.message.contains("expected one of"), "{problem}");
        }
        assert_eq!(Policy::check("name = \"fine\"").unwrap().name(), "fine");
    }
}
