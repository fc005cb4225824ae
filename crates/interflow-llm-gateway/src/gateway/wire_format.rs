//! The wire formats of upstreams, and the paths at which they take requests.

use std::borrow::Cow;

use interflow_types::percent::{self, AsciiSet, COMPONENT, encoded_as};
use interflow_types::{Method, StatusCode};

use super::upstream::LlmUpstream;
use interflow_llm::provider::verb_in_path;
use interflow_llm::translate::WireFormat;
use interflow_llm::{LlmRefusal, Provider};

/// Models of Vertex AI have an `@` before their version, which the API expects literally.
pub(super) const MODEL_IN_PATH: &AsciiSet = &COMPONENT.remove(b'@');

impl LlmUpstream {
    /// The client's format, if a request has to be translated from it; `path` is the one at the upstream.
    pub(crate) fn translates(&self, method: &Method, path: &str) -> Option<WireFormat> {
        let client = ClientRequest::from_path(path).filter(|_| *method == Method::POST)?;
        (!self.takes_from(client)).then_some(client.format)
    }

    /// The API whose errors and events a client reads, if its request may have to be translated from `client`.
    pub(crate) fn client_api(&self, client: Option<WireFormat>) -> Provider {
        match client {
            // Its API is a form of OpenAI's.
            Some(WireFormat::OpenAiChat) if self.provider == Provider::Mistral => Provider::Mistral,
            client => client.map_or(self.provider, WireFormat::provider),
        }
    }

    /// Whether it takes a client's request as it is.
    pub(super) fn takes_from(&self, client: ClientRequest) -> bool {
        if client.is_vertex { self.provider == Provider::Vertex } else { self.takes(client.format) }
    }

    /// Whether it takes requests of this format at the client's path. Vertex AI has no path of another API.
    pub(super) fn takes(&self, format: WireFormat) -> bool {
        self.provider != Provider::Vertex && self.formats.contains(&format)
    }

    /// Whether it is OpenAI with both of its APIs, of which the newer takes what the older refuses.
    pub(super) fn serves_responses(&self) -> bool {
        self.is_openai() && self.formats.contains(&WireFormat::OpenAiResponses)
    }

    /// The format that requests for a model are translated to.
    pub(super) fn format_for(&self, model: &str) -> Option<WireFormat> {
        let has_claude = self.provider == Provider::Vertex && self.formats.contains(&WireFormat::Anthropic);
        if has_claude && model.starts_with("claude-") {
            return Some(WireFormat::Anthropic);
        }
        self.formats.first().copied()
    }

    /// What the configuration lacks for translated requests.
    pub(super) fn missing_for_translation(&self) -> Option<String> {
        let name = &self.name;
        (self.provider == Provider::Vertex && self.project.is_none())
            .then(|| format!("set llm.provider.{name}.project, which paths of Vertex AI name"))
    }

    /// Why a model cannot be named in a path here: some names would make it another path.
    ///
    /// # Errors
    /// For the client: 400.
    pub(super) fn check_model(&self, model: &str) -> Result<(), LlmRefusal> {
        let in_path = matches!(self.provider, Provider::Gemini | Provider::Vertex | Provider::Bedrock)
            || self.provider == Provider::Azure && self.api_version.is_some();
        if !in_path || is_path_segment(model.trim_start_matches("models/")) {
            return Ok(());
        }
        let message = format!(
            "the model's name holds empty, . or .. segments, and the upstream {} takes it in its path",
            self.name
        );
        Err(LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "path_not_canonical", message))
    }

    /// The path of a chat request for a model.
    pub(super) fn chat_path(&self, format: WireFormat, model: &str, stream: bool) -> String {
        let encoded = encoded_as(model, COMPONENT);
        match format {
            WireFormat::Anthropic if self.provider == Provider::Vertex => {
                let verb = if stream { "streamRawPredict" } else { "rawPredict" };
                self.vertex_path("anthropic", model, verb)
            }
            WireFormat::Anthropic => "/v1/messages".to_owned(),
            WireFormat::OpenAiChat if self.provider == Provider::Azure => match &self.api_version {
                Some(_) => format!("/openai/deployments/{encoded}/chat/completions"),
                None => "/openai/v1/chat/completions".to_owned(),
            },
            WireFormat::OpenAiResponses if self.provider == Provider::Azure => match &self.api_version {
                Some(_) => "/openai/responses".to_owned(),
                None => "/openai/v1/responses".to_owned(),
            },
            WireFormat::OpenAiChat | WireFormat::Mistral => "/v1/chat/completions".to_owned(),
            WireFormat::OpenAiResponses => "/v1/responses".to_owned(),
            WireFormat::Gemini | WireFormat::Interactions => {
                let verb = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
                self.gemini_path(model, verb)
            }
            WireFormat::Bedrock => {
                let verb = if stream { "converse-stream" } else { "converse" };
                format!("/model/{encoded}/{verb}")
            }
            WireFormat::Cohere => "/v2/chat".to_owned(),
            WireFormat::Ollama => "/api/chat".to_owned(),
        }
    }

    /// The path that counts the tokens of a request for a model; `None` if the API has none.
    pub(super) fn count_path(&self, format: WireFormat, model: &str) -> Option<String> {
        match format {
            WireFormat::Anthropic if self.provider == Provider::Vertex => {
                Some(self.vertex_path("anthropic", "count-tokens", "rawPredict"))
            }
            WireFormat::Anthropic => Some("/v1/messages/count_tokens".to_owned()),
            WireFormat::Gemini | WireFormat::Interactions => Some(self.gemini_path(model, "countTokens")),
            WireFormat::Bedrock => Some(format!("/model/{}/count-tokens", encoded_as(model, COMPONENT))),
            WireFormat::OpenAiResponses if self.is_service("openai", "api.openai.com") => {
                Some("/v1/responses/input_tokens".to_owned())
            }
            WireFormat::OpenAiChat
            | WireFormat::OpenAiResponses
            | WireFormat::Cohere
            | WireFormat::Ollama
            | WireFormat::Mistral => None,
        }
    }

    fn gemini_path(&self, model: &str, verb: &str) -> String {
        let model = model.trim_start_matches("models/");
        match self.provider {
            Provider::Vertex => self.vertex_path("google", model, verb),
            _ => format!("/v1beta/models/{}:{verb}", encoded_as(model, COMPONENT)),
        }
    }

    fn vertex_path(&self, publisher: &str, model: &str, verb: &str) -> String {
        let project = self.project.as_deref().unwrap_or_default();
        let location = self.region.as_deref().unwrap_or("global");
        let model = encoded_as(model, MODEL_IN_PATH);
        format!("/v1/projects/{project}/locations/{location}/publishers/{publisher}/models/{model}:{verb}")
    }
}

/// How often a path is decoded at most: each server on its way may do so once.
pub(crate) const MAX_DECODINGS: usize = 4;

/// Whether a path has only one reading, however often it is decoded: no `.` and `..` segments, not with a backslash
/// either, nor with parameters (`..;x`).
pub(crate) fn is_canonical(path: &str) -> bool {
    let mut path = Cow::Borrowed(path);
    for _ in 0..MAX_DECODINGS {
        let is_dots = |segment: &str| matches!(segment.split(';').next().unwrap_or_default().trim(), "." | "..");
        if path.split(['/', '\\']).any(is_dots) || path.bytes().any(|b| b.is_ascii_control()) {
            return false;
        }
        let decoded = percent::decoded_lossy(&path);
        if decoded == path {
            return true;
        }
        path = Cow::Owned(decoded);
    }
    false
}

/// Whether a model's name stays one segment of a path, also where an upstream decodes it before it resolves the path.
/// Names of some clouds have slashes (ARNs).
pub(super) fn is_path_segment(model: &str) -> bool {
    !model.contains('\\') && model.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// What a client asks for, by its path within an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientRequest {
    pub format: WireFormat,
    /// It only asks how many tokens a chat request has.
    pub counts_tokens: bool,
    /// It has Vertex AI's path of Gemini's API.
    pub is_vertex: bool,
}

impl ClientRequest {
    /// `None` if requests to this path are not translated.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        let (format, counts_tokens) = match path {
            "/v1/messages" => (WireFormat::Anthropic, false),
            "/v1/messages/count_tokens" => (WireFormat::Anthropic, true),
            "/v1/chat/completions" | "/chat/completions" => (WireFormat::OpenAiChat, false),
            "/v1/responses" | "/responses" => (WireFormat::OpenAiResponses, false),
            "/v1beta/interactions" | "/v1/interactions" => (WireFormat::Interactions, false),
            _ => match verb_in_path(path)? {
                "generateContent" | "streamGenerateContent" => (WireFormat::Gemini, false),
                "countTokens" => (WireFormat::Gemini, true),
                "converse" | "converse-stream" => (WireFormat::Bedrock, false),
                "count-tokens" => (WireFormat::Bedrock, true),
                _ => return None,
            },
        };
        Some(Self { format, counts_tokens, is_vertex: path.contains("/publishers/") || path.contains("/projects/") })
    }
}
