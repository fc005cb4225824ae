//! Errors and notes about rule files, with their location.

use std::fmt;

use interflow_types::schema::JsonSchema;
use serde::Serialize;

/// An error or a note about a rule file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RuleProblem {
    /// The file's name as given in the configuration.
    pub file: String,
    /// The line, from 1; 0 if unknown.
    pub line: usize,
    /// The column, from 1; 0 if unknown.
    pub column: usize,
    pub rule: Option<String>,
    /// What is wrong and how to correct it.
    pub message: String,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(f, "{}: ", self.file)?,
            (line, 0) => write!(f, "{}:{line}: ", self.file)?,
            (line, column) => write!(f, "{}:{line}:{column}: ", self.file)?,
        }
        if let Some(rule) = &self.rule {
            write!(f, "rule `{rule}`: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Rules that could not be loaded. The whole set is rejected: a file with an error is never applied in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLoadError {
    /// All errors, in the order of the files.
    pub problems: Vec<RuleProblem>,
    /// Notes that are not errors, such as parts of a foreign file that have no equivalent.
    pub notes: Vec<RuleProblem>,
}

impl fmt::Display for RuleLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for RuleLoadError {}

impl From<RuleProblem> for RuleLoadError {
    fn from(problem: RuleProblem) -> Self {
        Self { problems: vec![problem], notes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_displayed_with_its_position() {
        let mut p = RuleProblem { file: "r.toml".into(), message: "no".into(), ..RuleProblem::default() };
        assert_eq!(p.to_string(), "r.toml: no");
        (p.line, p.column, p.rule) = (3, 7, Some("a".into()));
        assert_eq!(p.to_string(), "r.toml:3:7: rule `a`: no");
    }
}
