//! The table of error codes of LLM traffic: the statuses with which a code is sent, its cause and its remedy.

use std::sync::LazyLock;

use serde::Deserialize;

/// The machine-readable cause of a refusal. Its name is constant, so that programs can tell causes apart.
#[derive(Debug, Deserialize)]
pub struct LlmErrorCode {
    pub code: String,
    /// The statuses with which it is sent.
    pub statuses: Vec<u16>,
    /// A phrase in Markdown.
    pub cause: String,
    /// What the client or the operator can do, in Markdown; empty if there is nothing to suggest.
    pub remedy: String,
}

/// Every code, by status.
pub static LLM_ERROR_CODES: LazyLock<Vec<LlmErrorCode>> =
    LazyLock::new(|| crate::built_in(include_str!("../data/error_codes.json")));

/// Whether the table has this code with this status.
pub(crate) fn is_listed(code: &str, status: u16) -> bool {
    LLM_ERROR_CODES.iter().any(|c| c.code == code && c.statuses.contains(&status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        let mut codes: Vec<_> = LLM_ERROR_CODES.iter().map(|c| &c.code).collect();
        let listed = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), listed);
    }
}
