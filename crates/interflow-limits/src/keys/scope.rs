//! Key scopes: providers, models, paths. A request must match every axis; an axis matches if any of its entries does,
//! or if it has none.

use interflow_types::percent;
use interflow_types::schema::JsonSchema;
use interflow_types::wildcard::matches_case as matches;
use serde::{Deserialize, Serialize};

/// Providers, models and paths that a key may use; an empty list allows all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeyScope {
    /// Provider names; `*` matches any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// Model names; `*` matches any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Paths; `*` matches any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// MCP servers and their tools: `SERVER` or `SERVER/TOOL`; `*` matches any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<String>,
}

/// What separates the name of a server from that of its tool.
pub const MCP_SEPARATOR: &str = "__";
/// Longest name of a server. Names of tools, with that of their server before them, have 64 characters at some
/// providers of models.
const MAX_MCP_NAME: usize = 32;

/// Checks the name of an MCP server.
///
/// # Errors
/// What a name may have.
pub fn check_mcp_name(name: &str) -> Result<(), String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_valid = !name.is_empty()
        && name.len() <= MAX_MCP_NAME
        && name.chars().all(valid)
        && !name.contains(MCP_SEPARATOR)
        && !name.ends_with('_');
    is_valid.then_some(()).ok_or_else(|| {
        format!("a name has letters, digits, `-` and single `_` within, and at most {MAX_MCP_NAME} of them")
    })
}

#[derive(Clone, Copy, Debug)]
pub struct ScopeRequest<'a> {
    pub provider: &'a str,
    /// The model, if the request names one.
    pub model: Option<&'a str>,
    pub path: &'a str,
}

/// The axis that the key does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeViolation {
    #[error("the key is not good for this provider")]
    Provider,
    /// The model is not allowed, or the request names none.
    #[error("the key is not good for this model")]
    Model,
    #[error("the key is not good for this path")]
    Path,
    /// The path may be another one to whom it is sent.
    #[error("the path holds . or .. segments, encoded or not; write it without")]
    PathNotCanonical,
}

impl ScopeViolation {
    /// The code in responses, audit records and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Provider => "scope_denied_provider",
            Self::Model => "scope_denied_model",
            Self::Path => "scope_denied_path",
            Self::PathNotCanonical => "path_not_canonical",
        }
    }
}

impl KeyScope {
    /// Checks a request against the scope.
    ///
    /// # Errors
    /// The first axis that it violates.
    pub fn allows(&self, asked: &ScopeRequest<'_>) -> Result<(), ScopeViolation> {
        self.allows_provider_path(asked.provider, asked.path)?;
        // A request without a model must not bypass a model list.
        if !self.models.is_empty() && !asked.model.is_some_and(|m| self.allows_model(m)) {
            return Err(ScopeViolation::Model);
        }
        Ok(())
    }

    pub fn allows_model(&self, model: &str) -> bool {
        self.models.is_empty() || matches_model(&self.models, model)
    }

    /// As [`allows`](Self::allows), before the model is known.
    ///
    /// # Errors
    /// As [`allows`](Self::allows).
    pub fn allows_provider_path(&self, provider: &str, path: &str) -> Result<(), ScopeViolation> {
        if !self.providers.is_empty() && !any_matches(&self.providers, provider) {
            return Err(ScopeViolation::Provider);
        }
        if !self.paths.is_empty() && !any_matches(&self.paths, path) {
            return Err(ScopeViolation::Path);
        }
        Ok(())
    }
}

/// Whether a list of `SERVER` and `SERVER/TOOL` allows a tool of an MCP server; without a tool, all that the server
/// offers. An empty list allows everything.
pub(super) fn allows_mcp(patterns: &[String], server: &str, tool: Option<&str>) -> bool {
    let allows = |pattern: &String| match (pattern.split_once('/'), tool) {
        (None, _) => matches(pattern, server),
        (Some((name, tools)), Some(tool)) => matches(name, server) && matches(tools, tool),
        (Some((name, tools)), None) => matches(name, server) && tools == "*",
    };
    patterns.is_empty() || patterns.iter().any(allows)
}

/// Whether the patterns allow an MCP server, or some of its tools.
pub(super) fn reaches_mcp(patterns: &[String], server: &str) -> bool {
    let name = |pattern: &String| matches(pattern.split_once('/').map_or(pattern, |(name, _)| name), server);
    patterns.is_empty() || patterns.iter().any(name)
}

/// Whether one of the patterns, in which `*` stands for any characters, matches the whole text.
pub fn any_matches(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|p| matches(p, text))
}

/// As [`any_matches`], for the name of a model: both with or without the collection and the vendor before them.
pub fn matches_model(patterns: &[String], model: &str) -> bool {
    patterns.iter().any(|pattern| model_matches(pattern, model))
}

/// As [`matches_model`], for what is limited or guarded: the name may be written as a provider takes it, in other letters
/// or, in a path, percent-encoded.
pub fn covers_model(patterns: &[String], model: &str) -> bool {
    let model = percent::decoded_lossy(model).to_ascii_lowercase();
    patterns.iter().any(|pattern| model_matches(&pattern.to_ascii_lowercase(), &model))
}

/// As [`matches_model`], for one pattern.
pub(crate) fn model_matches(pattern: &str, model: &str) -> bool {
    let name = interflow_models::plain_name(model);
    matches(pattern, model) || matches(interflow_models::plain_pattern(pattern), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reaches_a_server_of_which_it_may_use_one_tool() {
        for (patterns, reaches) in [
            (&[][..], true),
            (&["files"], true),
            (&["files/read_*"], true),
            (&["f*"], true),
            (&["db", "filesx/*"], false),
        ] {
            let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            assert_eq!(reaches_mcp(&patterns, "files"), reaches, "{patterns:?}");
        }
    }

    #[test]
    fn names_of_servers_can_be_told_from_those_of_their_tools() {
        for (name, is_valid) in [
            ("github", true),
            ("a_b-2", true),
            ("_a", true),
            ("a__b", false),
            ("a_", false),
            ("", false),
            ("a.b", false),
            ("a23456789012345678901234567890123", false),
        ] {
            assert_eq!(check_mcp_name(name).is_ok(), is_valid, "{name}");
        }
    }

    #[test]
    fn mcp_patterns_name_a_server_or_tools_of_it() {
        for (pattern, server, tool, holds) in [
            ("github", "github", Some("get_issue"), true),
            ("github", "github", None, true),
            ("github", "gitlab", Some("get_issue"), false),
            ("git*", "gitlab", None, true),
            ("github/get_*", "github", Some("get_issue"), true),
            ("github/get_*", "github", Some("delete_repo"), false),
            ("github/get_*", "github", None, false),
            ("github/*", "github", None, true),
            ("*", "any", Some("tool"), true),
            ("*/get_*", "any", Some("get_x"), true),
        ] {
            assert_eq!(allows_mcp(&[pattern.into()], server, tool), holds, "{pattern} on {server}/{tool:?}");
        }
        assert!(allows_mcp(&[], "any", None));
    }

    #[test]
    fn each_scope_axis_is_checked_and_missing_models_are_refused() {
        let scope = KeyScope {
            providers: vec!["openai".into()],
            models: vec!["gpt-5*".into()],
            paths: vec!["/v1/chat/*".into()],
            mcp: Vec::new(),
        };
        let ask = |provider, model, path| scope.allows(&ScopeRequest { provider, model, path });
        assert_eq!(ask("openai", Some("gpt-5-mini"), "/v1/chat/completions"), Ok(()));
        assert_eq!(ask("anthropic", Some("gpt-5"), "/v1/chat/completions"), Err(ScopeViolation::Provider));
        assert_eq!(ask("openai", Some("o9"), "/v1/chat/completions"), Err(ScopeViolation::Model));
        assert_eq!(ask("openai", None, "/v1/chat/completions"), Err(ScopeViolation::Model));
        assert_eq!(ask("openai", Some("gpt-5"), "/v1/embeddings"), Err(ScopeViolation::Path));
        assert_eq!(KeyScope::default().allows(&ScopeRequest { provider: "x", model: None, path: "/" }), Ok(()));
    }
}
