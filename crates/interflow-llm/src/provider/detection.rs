//! Detects the provider and operation of a request by host, path and headers.
//!
//! This runs for every request that passes through the proxy, nearly all of which are no LLM calls: bit sets of lengths
//! and letters, and path segments, exclude most of them before any name is compared.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::LazyLock;

use interflow_types::{Headers, Host, Method, data_file, percent};
use serde::Deserialize;

use super::{DetectedCall, Operation, Provider};
use crate::message::{ApiFormat, Outline};

/// A row of `data/provider_hosts.txt`.
struct ProviderHost {
    /// A leading dot matches any subdomain.
    pattern: &'static str,
    provider: Provider,
    /// `own`, `shared` or nothing.
    whose: &'static str,
}

static PROVIDER_HOSTS: LazyLock<Vec<ProviderHost>> = LazyLock::new(|| {
    let row = |[pattern, provider, whose]: [&'static str; 3]| {
        let provider = Provider::from_name(provider).expect("a provider in the built-in file");
        ProviderHost { pattern, provider, whose }
    };
    data_file::records(include_str!("../../data/provider_hosts.txt")).map(row).collect()
});

/// Detects a call by its host or, for an unknown host, by a path that no other API has. `path` may include a query.
/// `None` if it is not a known call.
pub fn detect_call(host: &Host, port: u16, method: &Method, path: &str, headers: &Headers) -> Option<DetectedCall> {
    let (only_path, query) = path.split_once('?').unwrap_or((path, ""));
    let by_host = host.name().and_then(provider_of_host);
    let provider = match by_host {
        Some(provider) => provider,
        None => provider_of_path(only_path, port, headers)?,
    };
    let call = call_for_path(provider, method, only_path, query);
    // On a shared host, an unknown path is the website's or another service's.
    let mixed = host.name().and_then(provider_host).is_some_and(|host| host.whose == "shared");
    let spoken = match call.operation {
        Operation::Other => false,
        Operation::Telemetry => !mixed || only_path.contains("/codex/"),
        Operation::Lookup => !mixed || operation_by_path(provider, only_path).is_known(),
        _ => true,
    };
    (spoken || by_host.is_some() && !mixed).then_some(call)
}

/// Whether only the body can tell if a request at this path is a call: local models and resellers use paths that other
/// programs may use too.
pub fn may_be_call(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    ApiFormat::from_path(path).is_some() || ["/api/embed", "/api/embeddings"].iter().any(|end| path.ends_with(end))
}

const fn of_shape(shape: ApiFormat) -> (Provider, Operation) {
    match shape {
        ApiFormat::Anthropic => (Provider::Anthropic, Operation::Chat),
        ApiFormat::Chat => (Provider::OpenAi, Operation::Chat),
        ApiFormat::Responses => (Provider::OpenAi, Operation::Responses),
        ApiFormat::Gemini => (Provider::Gemini, Operation::Chat),
        ApiFormat::Interactions => (Provider::Gemini, Operation::Responses),
        ApiFormat::Converse => (Provider::Bedrock, Operation::Chat),
        ApiFormat::Ollama => (Provider::Ollama, Operation::Chat),
    }
}

/// The call for an API format named by the operator. The model in the path is decoded, the one in the body is read
/// later.
pub fn by_shape(shape: ApiFormat, path: &str, websocket: bool) -> DetectedCall {
    let (provider, operation) = of_shape(shape);
    let model = model_in_path(provider, path).and_then(|at| path.get(at)).map(|m| percent::decoded(m).as_ref().into());
    let grows = provider == Provider::Gemini && path.contains("treamGenerateContent") && !path.contains("alt=sse");
    let operation = if websocket { Operation::Realtime } else { operation };
    DetectedCall { provider, operation, model, stream: None, grows }
}

/// Detects a call by its body, on any host and path, with the same test as conversation assembly, so that nothing is
/// displayed as a conversation that was not detected here first.
pub fn detect_by_body(path: &str, body: &Outline) -> Option<DetectedCall> {
    let only_path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let of = |provider, operation| {
        let grows = provider == Provider::Gemini && path.contains("treamGenerateContent") && !path.contains("alt=sse");
        DetectedCall { provider, operation, model: None, stream: None, grows }
    };
    if let Some(shape) = ApiFormat::detect_with_override(None, path, body) {
        let (provider, operation) = of_shape(shape);
        let text = body.completes() && matches!(shape, ApiFormat::Chat | ApiFormat::Ollama);
        return Some(of(provider, if text { Operation::Completions } else { operation }));
    }
    let embeds = ["/api/embed", "/api/embeddings"].iter().any(|end| only_path.ends_with(end));
    (embeds && body.embeds()).then(|| of(Provider::Ollama, Operation::Embeddings))
}

/// The call of a body that names a model and has a text for it, on any host and path. Other programs have such bodies too,
/// so this counts only where requests must be redacted.
pub fn detect_by_members(body: &Outline) -> Option<DetectedCall> {
    let (provider, operation) = if body.chats() {
        (Provider::Cohere, Operation::Chat)
    } else if body.embeds() {
        (Provider::OpenAi, if body.completes() { Operation::Completions } else { Operation::Embeddings })
    } else {
        return None;
    };
    Some(DetectedCall { provider, operation, model: None, stream: None, grows: false })
}

/// The call of a request to a known provider, such as one routed by the gateway.
pub fn call_for_path(provider: Provider, method: &Method, path: &str, query: &str) -> DetectedCall {
    let mut call = DetectedCall { provider, operation: Operation::Other, model: None, stream: None, grows: false };
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS) {
        call.operation = Operation::Lookup;
        return call;
    }
    let path = path.trim_end_matches('/');
    match provider {
        Provider::Gemini | Provider::Vertex => google(&mut call, path, query),
        Provider::Bedrock => bedrock(&mut call, path),
        _ => call.operation = operation_by_path(provider, path),
    }
    call.model =
        model_in_path(provider, path).and_then(|at| path.get(at)).map(|model| percent::decoded(model).as_ref().into());
    call
}

/// The range of the model's name in the path (and query), for providers that put it there. The body's `model` is
/// ignored for these.
pub fn model_in_path(provider: Provider, path: &str) -> Option<Range<usize>> {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let model = match provider {
        Provider::Gemini | Provider::Vertex => {
            let spoken = google_verb(path).map(|(model, _)| model);
            spoken.or_else(|| path.strip_suffix(":predict")?.rsplit('/').next())?
        }
        Provider::Bedrock => bedrock_verb(path)?.0,
        Provider::Azure => after(path, "/deployments/")?,
        _ => return None,
    };
    let start = model.as_ptr().addr().checked_sub(path.as_ptr().addr())?;
    Some(start..start + model.len())
}

impl ProviderHost {
    fn fits(&self, host: &str) -> bool {
        if self.pattern.starts_with('.') { host.ends_with(self.pattern) } else { host == self.pattern }
    }
}

/// Bit sets of the lengths of the host names and patterns, and of the low five bits of their last letters, as a fast
/// filter.
static HOST_FILTER: LazyLock<(u64, u32)> = LazyLock::new(|| {
    PROVIDER_HOSTS.iter().fold((0, 0), |(lengths, ends), host| {
        let length = host.pattern.len();
        let fitting = if host.pattern.starts_with('.') { u64::MAX << length } else { 1 << length };
        (lengths | fitting, ends | last_letter(host.pattern))
    })
});

fn last_letter(host: &str) -> u32 {
    host.bytes().last().map_or(0, |b| 1 << (b & 31))
}

fn provider_host(host: &str) -> Option<&'static ProviderHost> {
    let (lengths, ends) = *HOST_FILTER;
    let is_possible = ends & last_letter(host) != 0 && lengths & 1 << host.len().min(63) != 0;
    if is_possible { PROVIDER_HOSTS.iter().find(|own| own.fits(host)) } else { None }
}

/// Whether the host is a provider's own, rather than another service with the same API: a provider key configured by the
/// provider's name is sent to these only.
pub fn is_own_host(host: &Host) -> bool {
    host.name().is_some_and(|name| {
        PROVIDER_HOSTS.iter().any(|own| own.whose == "own" && own.fits(name))
            || name.ends_with("-aiplatform.googleapis.com")
            || name.starts_with("bedrock-runtime") && name.ends_with(".amazonaws.com")
    })
}

fn provider_of_host(host: &str) -> Option<Provider> {
    if let Some(own) = provider_host(host) {
        return Some(own.provider);
    }
    if host.ends_with("-aiplatform.googleapis.com") {
        return Some(Provider::Vertex);
    }
    let bedrock = host.starts_with("bedrock-runtime.") || host.starts_with("bedrock-runtime-fips.");
    (bedrock && host.contains(".amazonaws.com")).then_some(Provider::Bedrock)
}

/// How paths of OpenAI's API end.
const OPENAI_PATHS: &str = "/chat/completions /v1/responses /v1/realtime /v1/completions /v1/embeddings /v1/moderations \
    /v1/audio/speech /v1/audio/transcriptions /v1/images/generations /v1/images/edits /v1/images/variations";

/// The provider for unknown hosts: local models, resellers, test servers. Only paths that no other API has are
/// accepted.
fn provider_of_path(path: &str, port: u16, headers: &Headers) -> Option<Provider> {
    if !path.as_bytes().split(|&b| b == b'/').any(is_api_segment) {
        return None;
    }
    let ends = |ending: &str| path.ends_with(ending);
    if path.contains("/openai/deployments/") {
        return Some(Provider::Azure);
    }
    // Other services have messages, too; the field is required by Anthropic's API.
    if path.contains("/v1/messages") && headers.contains("anthropic-version") {
        return Some(Provider::Anthropic);
    }
    if path.contains("/projects/") && path.contains("/publishers/") && google_verb(path).is_some() {
        return Some(Provider::Vertex);
    }
    if path.contains("/models/") && google_verb(path).is_some() || ends("/v1beta/interactions") {
        return Some(Provider::Gemini);
    }
    if bedrock_verb(path).is_some() {
        return Some(Provider::Bedrock);
    }
    if port == 11434 && path.starts_with("/api/") {
        return Some(Provider::Ollama);
    }
    OPENAI_PATHS.split(' ').any(ends).then_some(Provider::OpenAi)
}

/// Fast filter: whether a path with this segment needs a closer look. Must cover every path that [`provider_of_path`]
/// accepts.
fn is_api_segment(segment: &[u8]) -> bool {
    match segment {
        b"openai" | b"projects" | b"models" | b"model" | b"api" | b"completions" | b"responses" | b"interactions"
        | b"realtime" | b"embeddings" | b"moderations" | b"speech" | b"transcriptions" | b"generations" | b"edits"
        | b"variations" => true,
        _ => segment.starts_with(b"messages"),
    }
}

/// How an operation is known by a path; where several rows fit, the later of these decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PathRule {
    /// The path behind the version, or the whole path, begins so: what lies below is of the same operation.
    Begins,
    /// The whole path begins so. Agents sign in there: bodies are credentials, and never prompts.
    SignsIn,
    Contains,
    Ends,
}

/// Provider (`any` for all), rule, operation, path.
#[derive(Deserialize)]
struct Endpoint(&'static str, PathRule, &'static str, &'static str);

/// The operations of the providers by path, so that the first that fits decides.
static ENDPOINTS: LazyLock<Vec<Endpoint>> = LazyLock::new(|| {
    let mut endpoints: Vec<Endpoint> = crate::built_in(include_str!("../../data/operations.json"));
    // The provider's own paths first, since some of them end like those of others.
    endpoints.reverse();
    endpoints.sort_by_key(|endpoint| Reverse((endpoint.1, endpoint.0 != "any", endpoint.3.len())));
    endpoints
});

impl Endpoint {
    /// `behind` is the path [behind its version](behind_version).
    fn fits(&self, provider: Provider, path: &str, behind: &str) -> bool {
        // Azure serves OpenAI's API.
        let is_providers = match self.0 {
            "any" => true,
            "openai" => matches!(provider, Provider::OpenAi | Provider::Azure),
            name => name == provider.as_str(),
        };
        // A path that an origin may read as another one, with `..` or an escape, is below none.
        let is_of_path = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'.' | b':');
        let is_plain = || path.bytes().all(is_of_path) && !path.contains("..");
        let is_below = |path: &str| {
            let rest = path.strip_prefix(self.3).filter(|_| is_plain());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.3.ends_with('/'))
        };
        is_providers
            && match self.1 {
                PathRule::Begins => is_below(path) || is_below(behind),
                PathRule::SignsIn => is_below(path),
                PathRule::Contains => path.contains(self.3),
                PathRule::Ends => path.ends_with(self.3),
            }
    }
}

/// The path behind its version: `/skills` of `/openai/v1/skills`.
fn behind_version(path: &str) -> &str {
    let mut rest = path;
    while let Some((_, behind)) = rest.split_once('/') {
        match behind.split_once('/') {
            Some((segment @ ("v1" | "v1beta" | "v1beta1"), _)) => {
                return behind.get(segment.len()..).unwrap_or_default();
            }
            _ => rest = behind,
        }
    }
    ""
}

/// The collection that a path is in, such as `/openai/v1/threads`: up to the segment behind the version, or the second
/// one, without ids and names.
pub fn endpoint_name(path: &str) -> String {
    let is_word = |segment: &str| segment.bytes().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-'));
    let is_version = |segment: &str| matches!(segment, "v1" | "v2" | "v1beta" | "v1beta1");
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let end = segments.iter().position(|segment| is_version(segment)).map_or(2, |at| at + 2);
    let shown = segments.iter().take(end).map(|s| if is_word(s) || is_version(s) { s } else { "…" });
    shown.fold(String::new(), |name, segment| name + "/" + segment)
}

/// Whether a path is one at which agents of this provider sign in. Credentials that are redacted are of no use.
pub fn is_sign_in(provider: Provider, path: &str) -> bool {
    ENDPOINTS.iter().any(|endpoint| endpoint.1 == PathRule::SignsIn && endpoint.fits(provider, path, ""))
}

fn operation_by_path(provider: Provider, path: &str) -> Operation {
    let behind = behind_version(path);
    let best = ENDPOINTS.iter().find(|endpoint| endpoint.fits(provider, path, behind));
    if best.is_none_or(|endpoint| endpoint.1 == PathRule::Begins)
        && (path.ends_with("/cancel") || path.ends_with(":cancel"))
        && ["/batches/", "/responses/", "/interactions/"].iter().any(|list| path.contains(list))
    {
        return Operation::Lookup;
    }
    if best.is_none() && path.ends_with("/envelope") && path.contains("/api/") {
        return Operation::Telemetry;
    }
    best.and_then(|endpoint| Operation::from_name(endpoint.2)).unwrap_or_default()
}

/// Whether a path starts or continues a run of OpenAI's Assistants, which generates after it was answered.
pub fn starts_run(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let is_run = path.ends_with("/runs") || path.ends_with("/submit_tool_outputs");
    is_run && path.contains("/threads/")
}

/// Splits `…/models/{model}:{verb}` of Gemini and Vertex; `None` for an unknown verb. A model of another provider may have
/// slashes in its name.
fn google_verb(path: &str) -> Option<(&str, &str)> {
    let last = path.rsplit_once("/models/").map_or_else(|| path.rsplit('/').next(), |(_, last)| Some(last))?;
    let (model, verb) = last.rsplit_once(':')?;
    const VERBS: &str = "generateContent streamGenerateContent countTokens embedContent batchEmbedContents \
        batchGenerateContent asyncBatchEmbedContent rawPredict streamRawPredict";
    data_file::has_word(VERBS, verb).then_some((model, verb))
}

/// What a path of Google or of Bedrock does with the model that it names: `generateContent`, `converse`.
pub fn verb_in_path(path: &str) -> Option<&str> {
    let google = google_verb(path).filter(|_| path.contains("/models/"));
    google.or_else(|| bedrock_verb(path)).map(|(_, verb)| verb)
}

fn google(call: &mut DetectedCall, path: &str, query: &str) {
    let Some((_, verb)) = google_verb(path) else {
        let predicts = path.ends_with(":predict");
        call.operation = if predicts { Operation::Embeddings } else { operation_by_path(call.provider, path) };
        return;
    };
    let sse = query.split('&').any(|pair| pair == "alt=sse");
    let (operation, stream) = match verb {
        "streamGenerateContent" => (Operation::Chat, Some(true)),
        "generateContent" => (Operation::Chat, Some(false)),
        "streamRawPredict" | "rawPredict" => (Operation::Chat, None),
        "countTokens" => (Operation::CountTokens, Some(false)),
        "batchGenerateContent" | "asyncBatchEmbedContent" => (Operation::Batches, Some(false)),
        _ => (Operation::Embeddings, Some(false)),
    };
    call.operation = operation;
    call.stream = stream;
    call.grows = verb == "streamGenerateContent" && !sse;
}

/// Splits `/model/{model}/{verb}` of Bedrock. The model may contain slashes (an ARN), so the verb is the last
/// segment.
fn bedrock_verb(path: &str) -> Option<(&str, &str)> {
    let (model, verb) = after_first(path, "/model/")?.rsplit_once('/')?;
    let is_known =
        matches!(verb, "converse" | "converse-stream" | "invoke" | "invoke-with-response-stream" | "count-tokens");
    (is_known && !model.is_empty()).then_some((model, verb))
}

/// Whether a path belongs to Bedrock's runtime API.
pub fn is_bedrock(path: &str) -> bool {
    bedrock_verb(path).is_some()
}

fn bedrock(call: &mut DetectedCall, path: &str) {
    let Some((_, verb)) = bedrock_verb(path) else { return };
    call.operation = if verb == "count-tokens" { Operation::CountTokens } else { Operation::Chat };
    call.stream = Some(matches!(verb, "converse-stream" | "invoke-with-response-stream"));
}

fn after_first<'p>(path: &'p str, mark: &str) -> Option<&'p str> {
    path.split_once(mark).map(|(_, rest)| rest)
}

/// The segment that follows a marker in the path; `None` if it is empty.
fn after<'p>(path: &'p str, mark: &str) -> Option<&'p str> {
    after_first(path, mark)?.split('/').next().filter(|s| !s.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(
        host: &str,
        method: &str,
        path: &str,
        header: Option<&str>,
    ) -> Option<(&'static str, &'static str, Option<String>)> {
        let headers = header.into_iter().map(|h| (h, "x")).collect();
        let (host, port) = host.split_once(':').map_or((host, 443), |(h, p)| (h, p.parse().unwrap()));
        let call = detect_call(
            &Host::parse(host).unwrap(),
            port,
            &Method::from_bytes(method.as_bytes()).unwrap(),
            path,
            &headers,
        )?;
        Some((call.provider.as_str(), call.operation.as_str(), call.model.map(|m| m.to_string())))
    }

    #[test]
    fn requests_are_recognised_by_host_and_path() {
        let m = |model: &str| Some(model.to_owned());
        for (host, path, wanted) in [
            ("api.openai.com", "/v1/chat/completions", ("openai", "chat", None)),
            ("api.openai.com", "/v1/responses", ("openai", "responses", None)),
            ("api.openai.com", "/v1/completions", ("openai", "completions", None)),
            ("api.openai.com", "/v1/threads", ("openai", "other", None)),
            ("eu.api.openai.com", "/v1/embeddings", ("openai", "embeddings", None)),
            ("api.groq.com", "/openai/v1/chat/completions", ("openai", "chat", None)),
            ("chatgpt.com", "/backend-api/codex/responses", ("openai", "responses", None)),
            ("api.anthropic.com", "/v1/messages?beta=true", ("anthropic", "chat", None)),
            ("api.anthropic.com", "/v1/messages/count_tokens", ("anthropic", "count_tokens", None)),
            ("api.anthropic.com", "/v1/messages/batches", ("anthropic", "batches", None)),
            (
                "x.openai.azure.com",
                "/openai/deployments/gpt%2D4/chat/completions?api-version=1",
                ("azure", "chat", m("gpt-4")),
            ),
            ("generativelanguage.googleapis.com", "/v1beta/models/g-2:generateContent", ("gemini", "chat", m("g-2"))),
            ("generativelanguage.googleapis.com", "/v1beta/openai/chat/completions", ("gemini", "chat", None)),
            (
                "generativelanguage.googleapis.com",
                "/v1beta/models/g-2:batchGenerateContent",
                ("gemini", "batches", m("g-2")),
            ),
            ("api.mistral.ai", "/v1/batch/jobs", ("mistral", "batches", None)),
            (
                "us-east5-aiplatform.googleapis.com",
                "/v1/projects/p/locations/l/publishers/anthropic/models/c@1:streamRawPredict",
                ("vertex", "chat", m("c@1")),
            ),
            (
                "bedrock-runtime.us-east-1.amazonaws.com",
                "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse-stream",
                ("bedrock", "chat", m("arn:aws:bedrock:us-east-1:1:inference-profile/x")),
            ),
            ("localhost:11434", "/api/chat", ("ollama", "chat", None)),
            ("api.cohere.com", "/v2/chat", ("cohere", "chat", None)),
            ("api.mistral.ai", "/v1/fim/completions", ("mistral", "completions", None)),
            ("127.0.0.1:8000", "/v1/chat/completions", ("openai", "chat", None)),
            ("generativelanguage.googleapis.com", "/v1beta/interactions", ("gemini", "responses", None)),
            ("generativelanguage.googleapis.com", "/v1beta/interactions/v1_a/cancel", ("gemini", "lookup", None)),
            ("generativelanguage.googleapis.com", "/v1beta/decisions", ("gemini", "moderations", None)),
            (
                "aiplatform.googleapis.com",
                "/v1beta1/projects/p/locations/l/interactions?alt=sse",
                ("vertex", "responses", None),
            ),
            ("127.0.0.1:8000", "/v1beta/interactions", ("gemini", "responses", None)),
            ("api.openai.com", "/v1/decisions", ("openai", "moderations", None)),
            ("api.openai.com", "/v1/videos", ("openai", "jobs", None)),
            ("api.openai.com", "/v1/videos/v_1/remix", ("openai", "jobs", None)),
            ("api.openai.com", "/v1/videos/characters", ("openai", "side", None)),
            ("api.openai.com", "/v1/agents/sessions/s/events", ("openai", "jobs", None)),
            ("api.openai.com", "/v1/agents", ("openai", "side", None)),
            ("api.openai.com", "/v1/live/sessions", ("openai", "jobs", None)),
            ("api.openai.com", "/v1/conversations/c/items", ("openai", "side", None)),
            ("api.openai.com", "/v1/skills", ("openai", "side", None)),
            ("api.openai.com", "/v1/responses/r_1/cancel", ("openai", "lookup", None)),
            ("api.openai.com", "/v1/uploads/u_1/parts", ("openai", "files", None)),
            ("x.openai.azure.com", "/openai/v1/containers", ("azure", "side", None)),
            ("10.0.0.1:80", "/model/m/invoke", ("bedrock", "chat", m("m"))),
        ] {
            assert_eq!(seen(host, "POST", path, None), Some(wanted), "{host}{path}");
        }
        assert_eq!(
            seen("a.test", "POST", "/v1/messages", Some("anthropic-version")),
            Some(("anthropic", "chat", None))
        );
        assert_eq!(seen("api.openai.com", "GET", "/v1/models", None), Some(("openai", "lookup", None)));
    }

    #[test]
    fn other_traffic_is_not_llm_traffic() {
        assert_eq!(seen("chatgpt.com", "GET", "/backend-api/me", None), None);
        assert!(seen("chatgpt.com", "GET", "/backend-api/codex/responses", None).is_some(), "a WebSocket perhaps");
        for (host, path) in [
            ("a.test", "/v1/messages"),
            ("chatgpt.com", "/backend-api/me"),
            ("a.test", "/"),
            ("a.test:80", "/api/chat"),
            ("a.test", "/model/x"),
            ("www.googleapis.com", "/models/x:other"),
        ] {
            assert_eq!(seen(host, "POST", path, None), None, "{host}{path}");
        }
    }

    #[test]
    fn a_model_and_a_text_for_it_are_a_call_where_redaction_must_not_be_evaded() {
        for (body, wanted) in [
            (r#"{"model":"m","prompt":"p"}"#, Some(("openai", "completions"))),
            (r#"{"model":"m","input":["a"]}"#, Some(("openai", "embeddings"))),
            (r#"{"model":"m","message":"hi","chat_history":[]}"#, Some(("cohere", "chat"))),
            (r#"{"model":"m"}"#, None),
            (r#"{"prompt":"p"}"#, None),
            (r#"{"room":"lobby","message":"hi"}"#, None),
        ] {
            let outline = Outline::read(body.as_bytes()).unwrap();
            assert!(detect_by_body("/any", &outline).is_none(), "{body}");
            let call = detect_by_members(&outline).map(|c| (c.provider.as_str(), c.operation.as_str()));
            assert_eq!(call, wanted, "{body}");
        }
    }

    #[test]
    fn image_routes_are_recognised_on_any_host_and_port_and_ollama_by_its_bodies() {
        for path in ["/v1/images/generations", "/v1/images/edits", "/v1/images/variations"] {
            assert_eq!(seen("localhost:5005", "POST", path, None), Some(("openai", "images", None)), "{path}");
        }
        for (path, body, wanted) in [
            ("/api/chat", r#"{"model":"m","messages":[]}"#, Some(("ollama", "chat"))),
            ("/x/api/generate", r#"{"model":"m","prompt":"p"}"#, Some(("ollama", "completions"))),
            ("/api/embed", r#"{"model":"m","input":["a"]}"#, Some(("ollama", "embeddings"))),
            ("/api/embeddings", r#"{"model":"m","prompt":"a"}"#, Some(("ollama", "embeddings"))),
            ("/api/chat", r#"{"room":"lobby"}"#, None),
            ("/api/embed", r#"{"input":"a"}"#, None),
            ("/any", r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#, Some(("openai", "chat"))),
            ("/any", r#"{"contents":[{"parts":[{"text":"x"}]}]}"#, Some(("gemini", "chat"))),
            ("/any", r#"{"messages":["x"]}"#, None),
        ] {
            let call = detect_by_body(path, &Outline::read(body.as_bytes()).unwrap());
            assert_eq!(call.map(|c| (c.provider.as_str(), c.operation.as_str())), wanted, "{path} {body}");
        }
        assert!(may_be_call("/api/embed?x") && may_be_call("/V1/Chat/Completions") && !may_be_call("/api/rooms"));
    }

    #[test]
    fn agent_telemetry_is_distinguished_from_model_requests() {
        for (host, path) in [
            ("api.anthropic.com", "/api/event_logging/batch"),
            ("api.anthropic.com", "/api/claude_code/metrics"),
            ("api.openai.com", "/v1/traces/ingest"),
            ("api.openai.com", "/otlp/v1/metrics"),
            ("chatgpt.com", "/backend-api/codex/analytics-events/events"),
        ] {
            assert_eq!(seen(host, "POST", path, None).map(|s| s.1), Some("telemetry"), "{host}{path}");
        }
        assert_eq!(seen("chatgpt.com", "POST", "/ces/v1/rgstr", None), None);
        assert_eq!(seen("api.openai.com", "POST", "/v1/threads", None).unwrap().1, "other");
    }

    #[test]
    fn other_endpoints_of_agents_are_read_where_they_may_have_text() {
        for (path, operation) in [
            ("/api/eval/sdk-zAZezfDKGoZuXXKe", "side"),
            ("/v1/memory_stores/ms_1/memories", "side"),
            ("/v1/sessions/s_1/events", "jobs"),
            ("/v1/deployments/d_1/run", "jobs"),
            ("/v1/skills/../messages", "other"),
            ("/v1/skillset", "other"),
            ("/v1/code/sessions/s/events?beta=true", "side"),
            ("/v1/skills", "side"),
            ("/v1/messages/cache_touch?beta=true", "count_tokens"),
            ("/v1/oauth/token", "lookup"),
            ("/api/oauth/claude_cli/create_api_key", "lookup"),
            ("/v1/files", "files"),
            ("/x/v1/oauth/token", "other"),
            ("/v1/oauth/../messages", "other"),
            ("/v1/oauth/%2e%2e/messages", "other"),
            ("/api/unknown", "other"),
        ] {
            assert_eq!(seen("api.anthropic.com", "POST", path, None).map(|s| s.1), Some(operation), "{path}");
        }
        assert_eq!(seen("api.openai.com", "POST", "/api/eval/sdk-x", None).map(|s| s.1), Some("other"));
        assert_eq!(seen("a.test", "POST", "/api/eval/sdk-x", None), None);
    }

    #[test]
    fn names_of_endpoints_have_no_ids() {
        for (path, name) in [
            ("/openai/v1/threads/thread_1/runs", "/openai/v1/threads"),
            ("/v1beta/anna@firm.com/x", "/v1beta/…"),
            ("/api/unknown/anna", "/api/unknown"),
            ("/", "/"),
        ] {
            assert_eq!(endpoint_name(path), name);
        }
    }

    #[test]
    fn gemini_stream_is_an_array_unless_sse_is_requested() {
        let of = |query| call_for_path(Provider::Gemini, &Method::POST, "/v1/models/m:streamGenerateContent", query);
        assert!(of("key=k").grows && !of("key=k&alt=sse").grows);
        assert_eq!(of("").stream, Some(true));
    }
}
