//! Detection of a request's API format: by its path if the body agrees, else by its body.

use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::outline::{Name, Outline, sign};

/// An API format, named after its creator; other providers may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApiFormat {
    Anthropic,
    Chat,
    Responses,
    Gemini,
    /// Google's Interactions.
    Interactions,
    Converse,
    /// Ollama's native API.
    Ollama,
}

/// Path suffixes, lower case and without the query, that identify a format. Prefixes vary between providers and
/// resellers.
static PATH_SUFFIXES: LazyLock<Vec<(ApiFormat, Vec<&str>)>> =
    LazyLock::new(|| crate::built_in(include_str!("../../data/api_paths.json")));

impl ApiFormat {
    /// The format that a path suggests. [`detect`](Self::detect) also checks the body, since other services use some
    /// of these paths.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/').to_ascii_lowercase();
        let fits = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
        PATH_SUFFIXES.iter().find(|(_, ends)| fits(ends)).map(|(format, _)| *format)
    }

    /// The format of a request body on this path; `None` if it is not an LLM call.
    pub fn detect(path: &str, body: &Value) -> Option<Self> {
        Self::detect_with_override(None, path, &Outline::of(body))
    }

    /// As [`detect`](Self::detect), with the operator's override, which takes precedence over the path if the body is
    /// compatible with it.
    pub fn detect_with_override(told: Option<Self>, path: &str, body: &Outline) -> Option<Self> {
        let mut formats = [told, Self::from_path(path)].into_iter().flatten();
        formats.find(|shape| shape.fits(body)).or_else(|| Self::from_body(body))
    }

    /// Whether a body can have this format: it has the member that the format's API requires.
    fn fits(self, body: &Outline) -> bool {
        match self {
            Self::Anthropic | Self::Converse => body.at(Name::Messages).is_list(),
            Self::Chat | Self::Ollama => body.at(Name::Messages).is_list() || body.at(Name::Prompt).is_given(),
            Self::Responses => body.at(Name::Input).is_text_or_list() || body.at(Name::PreviousResponseId).is_text(),
            Self::Gemini => body.at(Name::Contents).is_list() || body.at(Name::Request).any(sign::CONTENTS),
            Self::Interactions => {
                body.at(Name::Input).is_given() && (body.at(Name::Model).is_text() || body.at(Name::Agent).is_text())
            }
        }
    }

    /// The format of a body on an unknown path: gateways and resellers serve the known formats at paths of their own.
    fn from_body(body: &Outline) -> Option<Self> {
        let model = body.at(Name::Model).is_text();
        if body.at(Name::Contents).any(sign::PARTS) {
            return Some(Self::Gemini);
        }
        // `messages` alone says little, since several formats have it: their other members decide, the most distinctive
        // first.
        let talks = body.at(Name::Messages).any(sign::ROLE);
        if talks && (body.at(Name::AnthropicVersion).is_text() || model && is_anthropic(body)) {
            return Some(Self::Anthropic);
        }
        if talks && model {
            return Some(Self::Chat);
        }
        let has_role = body.at(Name::Input).any(sign::ROLE | sign::TYPE);
        if model && (has_role || body.at(Name::Instructions).is_text() && body.at(Name::Input).is_text()) {
            return Some(Self::Responses);
        }
        (talks && body.at(Name::Messages).any(sign::HOLDS_UNTYPED_TEXT)).then_some(Self::Converse)
    }
}

/// Whether a body has a feature that only Anthropic's format has, of those that share `messages` with Chat
/// Completions.
fn is_anthropic(body: &Outline) -> bool {
    body.at(Name::System).is_text()
        || body.at(Name::System).any(sign::TYPE_TEXT)
        || body.at(Name::Tools).any(sign::SCHEMA)
        || body.at(Name::Messages).any(sign::HOLDS_ANTHROPIC)
}
