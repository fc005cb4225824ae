//! Parse errors with position and remedy.

use std::fmt;

use crate::QuerySpan;

/// Why a query could not be parsed, where, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// The position in the text, in bytes.
    pub span: QuerySpan,
    /// The column of its first character, starting at 1, counted in characters as a terminal displays them.
    pub column: usize,
    pub message: String,
    /// What to write instead, or what was expected.
    pub remedy: Option<String>,
}

impl QueryError {
    pub(crate) fn new(text: &str, span: QuerySpan, message: impl Into<String>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        Self { span, column: before.chars().count() + 1, message: message.into(), remedy: None }
    }

    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The query's text with the position underlined, and the error; for a terminal. Control characters are displayed
    /// as spaces.
    pub fn render(&self, text: &str) -> String {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let width = text.get(self.span.start..self.span.end).map_or(0, |s| s.chars().count()).max(1);
        format!("{line}\n{}{}\n{self}", " ".repeat(self.column - 1), "^".repeat(width))
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for QueryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_marker_is_below_its_position() {
        let text = "é stats:4";
        let error =
            QueryError::new(text, QuerySpan::new(3, 8), "unknown key 'stats'").with_remedy("did you mean 'status'?");
        assert_eq!(error.render(text), "é stats:4\n  ^^^^^\ncolumn 3: unknown key 'stats': did you mean 'status'?");
    }
}
