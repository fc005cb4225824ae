//! What a key may be used for: providers, models, paths. The axes are joined by and, the entries of one by or.

use serde::{Deserialize, Serialize};

/// Providers, models and paths that a key is good for; an empty list stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyScope {
    /// Providers by name; `*` stands for any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// Models by name; `*` stands for any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Paths; `*` stands for any run of characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// What a request wants to use.
#[derive(Clone, Copy, Debug)]
pub struct ScopeRequest<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The model, when the request names one.
    pub model: Option<&'a str>,
    /// The path without its query.
    pub path: &'a str,
}

/// The axis on which a key does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeViolation {
    /// The provider is not among the key's.
    #[error("the key is not good for this provider")]
    Provider,
    /// The model is not among the key's, or the request names none.
    #[error("the key is not good for this model")]
    Model,
    /// The path is not among the key's.
    #[error("the key is not good for this path")]
    Path,
}

impl ScopeViolation {
    /// The code in answers, audit lines and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Provider => "scope_denied_provider",
            Self::Model => "scope_denied_model",
            Self::Path => "scope_denied_path",
        }
    }
}

impl KeyScope {
    /// Whether a request stays within the scope.
    ///
    /// # Errors
    /// The first axis on which it does not.
    pub fn allows(&self, asked: &ScopeRequest<'_>) -> Result<(), ScopeViolation> {
        self.allows_provider_path(asked.provider, asked.path)?;
        // A request that names no model must not slip past a list of models.
        if !self.models.is_empty() && !asked.model.is_some_and(|m| self.allows_model(m)) {
            return Err(ScopeViolation::Model);
        }
        Ok(())
    }

    /// Whether the model is among the scope's.
    pub fn allows_model(&self, model: &str) -> bool {
        self.models.is_empty() || any_matches(&self.models, model)
    }

    /// The same before the model is known.
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

/// Whether one of the patterns matches.
pub(crate) fn any_matches(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|p| matches(p, text))
}

/// Whether a pattern with `*` for any run of characters matches the whole text. Linear: each part is looked for once,
/// behind the one before.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*').filter(|p| !p.is_empty()) {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_people_mean_them() {
        for (pattern, text, holds) in [
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5-mini", false),
            ("gpt-5*", "gpt-5-mini", true),
            ("*", "", true),
            ("*-mini", "gpt-5-mini", true),
            ("*-mini", "gpt-5-mini-2", false),
            ("claude-*-4*", "claude-opus-4-1", true),
            ("claude-*-4*", "claude-opus-3", false),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("/v1/*", "/v1/chat", true),
            ("/v1/*", "/v1", false),
        ] {
            assert_eq!(matches(pattern, text), holds, "{pattern} on {text}");
        }
    }

    #[test]
    fn each_axis_is_checked_and_an_unnamed_model_is_outside_of_a_list() {
        let scope = KeyScope {
            providers: vec!["openai".into()],
            models: vec!["gpt-5*".into()],
            paths: vec!["/v1/chat/*".into()],
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
