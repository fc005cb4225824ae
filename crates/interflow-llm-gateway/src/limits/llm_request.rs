//! The attributes of an LLM request that limits and keys depend on: provider, model and estimated usage.

use std::borrow::Cow;
use std::sync::Arc;

use interflow_limits::{UsageEstimate, VirtualKey};
use interflow_llm::provider::{is_own_host, starts_run};
use interflow_llm::{DetectedCall, LlmCall, Operation, Provider, detect_call, model_in_path, spans, usage};
use interflow_types::{Flow, Headers, RequestHead, ServiceTier};

use super::named_models::NamedModels;
use crate::exchange::{BodyShape, RequestBody, is_form};

#[derive(Debug)]
pub(super) struct LlmRequest {
    pub call: DetectedCall,
    /// The gateway's name of the upstream, or else the provider's.
    pub name: Arc<str>,
    /// The gateway's name of the upstream.
    pub route: Option<Arc<str>>,
    pub model: Option<Arc<str>>,
    /// Input tokens that the request is estimated at; 0 until the body was read.
    pub estimated: u64,
    pub max_output: Option<u64>,
    pub is_max_output_invalid: bool,
    pub choices: u64,
    /// Characters of text to speech.
    pub characters: u64,
    /// The level of service that is asked for.
    pub tier: Option<ServiceTier>,
    /// Whether the path names the model, which then wins over the body: it is what the provider uses.
    pub by_path: bool,
}

impl LlmRequest {
    /// From the gateway's call extension on the flow, or else from the request head.
    pub fn from_request(flow: &Flow, head: &RequestHead) -> Option<Self> {
        let url = &head.url;
        // The extension was set by the detector, which also knows the gateway's routes. Without it, the head alone
        // has to do.
        let note = flow.extension::<LlmCall>().filter(|e| e.provider != Provider::Unknown || e.upstream.is_some());
        let call = match note {
            Some(note) => DetectedCall {
                provider: note.provider,
                operation: note.operation,
                model: note.model.clone(),
                stream: Some(note.stream),
                grows: false,
            },
            None => detect_call(&url.authority.host, url.authority.port, &head.method, &url.path, &head.headers)?,
        };
        let note = note.map_or_else(|| Cow::Owned(LlmCall::default()), Cow::Borrowed);
        let route: Option<Arc<str>> = note.upstream.as_ref().map(|u| u.as_str().into());
        Some(Self {
            name: route.clone().unwrap_or_else(|| call.provider.as_str().into()),
            route,
            model: call.model.as_ref().map(|m| m.as_str().into()),
            estimated: note.estimated_input,
            max_output: note.max_output,
            is_max_output_invalid: note.is_max_output_invalid,
            choices: note.choices,
            characters: note.characters,
            tier: note.service_tier.as_deref().map(ServiceTier::from_name),
            by_path: model_in_path(call.provider, &url.path).is_some(),
            call,
        })
    }

    /// Adds the usage requested by the body. The larger of two estimates counts, so that a limit is not evaded by a
    /// body that reads differently here. Returns the models that the body names.
    pub fn merge_usage(&mut self, mut requested: RequestedUsage) -> NamedModels {
        if !self.by_path {
            self.model = requested.model.or(self.model.take());
        }
        // The agent of an interaction decides what is used, also beside a model.
        if self.call.operation == Operation::Responses
            && let Some(agent) = requested.named.agent.take()
        {
            let model = self.model.replace(agent.into());
            requested.named.others.extend(model.as_deref().map(str::to_owned));
        }
        self.estimated = self.estimated.max(requested.estimated);
        self.max_output = self.max_output.max(requested.max_output);
        self.is_max_output_invalid |= requested.is_max_output_invalid;
        self.choices = self.choices.max(requested.choices);
        self.tier = requested.tier.or(self.tier);
        requested.named
    }

    /// The most that the request uses: its own maximum, if it states one.
    pub fn usage_estimate(&self) -> UsageEstimate {
        let operation = self.call.operation;
        if operation.is_free() {
            return UsageEstimate { max_output: Some(0), ..UsageEstimate::default() };
        }
        let max_output = match operation {
            Operation::Batches => Some(self.max_output.unwrap_or_default()),
            operation if operation.generates() => self.max_output,
            _ => Some(0),
        };
        UsageEstimate {
            input: self.estimated,
            max_output,
            choices: self.choices,
            needs_model: false,
            is_uncounted: operation == Operation::Speech,
            characters: self.characters,
            images: if operation == Operation::Images { self.choices.max(1) } else { 0 },
            tier: self.tier,
        }
    }

    /// Whether the request is billed by the price of a model. It may still name none: then the provider takes one of an
    /// agent, a stored prompt or its own choice. A key with a list of paths may use files of batches.
    pub fn needs_model(&self, key: Option<&VirtualKey>, path: &str) -> bool {
        /// What ends or stops a job.
        const CONTROLS: [&str; 4] = ["/cancel", "/archive", "/pause", "/hangup"];
        let path = path.trim_end_matches('/');
        match self.call.operation {
            Operation::Batches => key.is_none_or(|key| key.scope.paths.is_empty()),
            Operation::Jobs => !CONTROLS.iter().any(|end| path.ends_with(end)),
            operation => operation.is_billed_by_model() || starts_run(path),
        }
    }

    /// Names under which a provider key for this request may be stored: the upstream's, the host's, and the
    /// provider's only if the host is the provider's own, so that no key is sent to a host it was not meant for.
    pub fn key_names(&self, flow: &Flow) -> Vec<String> {
        let own = is_own_host(&flow.authority.host).then(|| self.call.provider.as_str().to_owned());
        let hosts = [flow.authority.to_string(), flow.authority.host.to_string()];
        self.route.iter().map(|r| r.to_ascii_lowercase()).chain(hosts).chain(own).collect()
    }
}

/// The usage that a body requests, as far as limits depend on it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedUsage {
    pub model: Option<Arc<str>>,
    pub estimated: u64,
    pub max_output: Option<u64>,
    pub is_max_output_invalid: bool,
    pub choices: u64,
    pub tier: Option<ServiceTier>,
    /// Whether the model is ambiguous, so that no scope with a list of models can allow it.
    pub unclear: bool,
    pub named: NamedModels,
}

/// Parses the usage that a JSON body of this size requests. A duplicate `model` makes the model ambiguous, because the
/// provider's parser might use the other value.
pub(super) async fn requested_usage(headers: &Headers, size: usize, body: Option<Arc<RequestBody>>) -> RequestedUsage {
    // The estimate is replaced by the provider's count at the end.
    let estimated = estimated_by_length(headers, size);
    let unclear = RequestedUsage { estimated, unclear: true, ..RequestedUsage::default() };
    let Some(body) = body else { return unclear };
    if is_form(headers) {
        let of_form = body.read(|body| Ok(usage_of_form(body))).await.ok().flatten();
        return RequestedUsage { estimated, unclear: true, ..of_form.unwrap_or_default() };
    }
    let named = body.read(|body| Ok(interflow_codec::json::parse::<NamedModels>(body.plain()).ok()));
    let Ok(Some(named)) = named.await else { return unclear };
    let facts = body.facts(false).await.unwrap_or_default();
    RequestedUsage {
        model: named.model.as_deref().map(Into::into),
        estimated,
        max_output: facts.max_output.max(named.most_of_batch()),
        is_max_output_invalid: facts.is_max_output_invalid || named.has_invalid_maximum(),
        choices: facts.choices,
        tier: spans::string_at(body.plain(), facts.service_tier.clone()).as_deref().map(ServiceTier::from_name),
        unclear: named.is_unclear,
        named,
    }
}

/// Bytes of a form per token: most of it is audio, or an image.
const FORM_BYTES_PER_TOKEN: usize = 1_000;

/// The model that a form names, once, and how many images it asks for. Limits price the request by them; for a scope the
/// model stays unclear, because parsers of forms differ.
fn usage_of_form(body: &RequestBody) -> Option<RequestedUsage> {
    let content = body.content_now(false).ok()?;
    let BodyShape::Form(form) = &content.shape else { return None };
    let fields = |name: &'static str| {
        let named = form.parts.iter().filter(move |part| part.name == name && part.file.is_none());
        named.filter_map(|part| std::str::from_utf8(body.plain().get(part.range.clone())?).ok())
    };
    let field = |name| Some(fields(name)).filter(|all| all.clone().count() == 1)?.next();
    // A call of the Realtime API names it in the settings of its session.
    let of_session =
        || serde_json::from_str::<serde_json::Value>(field("session")?).ok()?["model"].as_str().map(Into::into);
    let choices = fields("n").filter_map(|count| count.trim().parse().ok()).max().unwrap_or_default();
    let model = field("model").map(Into::into).or_else(of_session);
    Some(RequestedUsage { model, choices, ..RequestedUsage::default() })
}

/// Input tokens of a body whose texts and media are not located.
pub(crate) fn estimated_by_length(headers: &Headers, length: usize) -> u64 {
    if is_form(headers) { length.div_ceil(FORM_BYTES_PER_TOKEN) as u64 } else { usage::estimated_tokens(length) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use interflow_types::{Authority, ClientInfo, EntryKind, HttpVersion, Method, Scheme, Timestamp, Url};

    use super::*;

    async fn usage_of(headers: &Headers, body: &'static str) -> RequestedUsage {
        let request = RequestBody::decode(headers, &Bytes::from_static(body.as_bytes()), 1 << 20).await;
        requested_usage(headers, body.len(), request.ok().map(Arc::new)).await
    }

    #[tokio::test]
    async fn model_and_max_output_tokens_are_read_from_the_body() {
        for (body, model, most) in [
            (r#"{"model":"gpt-5","max_completion_tokens":7}"#, Some("gpt-5"), Some(7)),
            (r#"{"max_tokens":1,"messages":[{"model":"x"}],"model":"c"}"#, Some("c"), Some(1)),
            (r#"{"contents":[],"generationConfig":{"maxOutputTokens":9}}"#, None, Some(9)),
            (r#"{"inferenceConfig":{"maxTokens":3}}"#, None, Some(3)),
            (r#"{"model":"a","model":"b"}"#, None, None),
            (r#"{"model":5,"max_tokens":"many"}"#, None, None),
            ("[]", None, None),
            ("", None, None),
            ("{", None, None),
        ] {
            let w = usage_of(&Headers::new(), body).await;
            assert_eq!((w.model.as_deref(), w.max_output), (model, most), "{body}");
            assert_eq!(w.estimated, body.len().div_ceil(4) as u64);
        }
    }

    #[tokio::test]
    async fn the_level_of_service_that_is_asked_for_is_estimated() {
        let peer = "127.0.0.1:1".parse().unwrap();
        let (connection, accepted) = (1, Timestamp::now());
        let (process, container) = (None, None);
        let client = ClientInfo { connection, peer, local: peer, listener: "g".into(), accepted, process, container };
        let authority: Authority = "api.openai.com:443".parse().unwrap();
        let mut flow = Flow::begin(Arc::new(client), EntryKind::Gateway, Scheme::Https, authority.clone());
        let url = Url { scheme: Scheme::Https, authority, path: "/v1/responses".into() };
        let (method, version, headers) = (Method::POST, HttpVersion::Http11, Headers::new());
        let head = RequestHead { method, url, version, headers, protocol: None };
        let call = LlmCall { provider: Provider::OpenAi, operation: Operation::Responses, ..LlmCall::default() };
        for (noted, body, tier) in [
            (None, r#"{"model":"a"}"#, None),
            (Some("flex"), r#"{"model":"a"}"#, Some(ServiceTier::Flex)),
            (None, r#"{"service_tier":"ultrafast"}"#, Some(ServiceTier::Ultrafast)),
            (Some("flex"), r#"{"service_tier":"priority"}"#, Some(ServiceTier::Priority)),
        ] {
            *flow.extension_mut() = LlmCall { service_tier: noted.map(Into::into), ..call.clone() };
            let mut called = LlmRequest::from_request(&flow, &head).unwrap();
            called.merge_usage(usage_of(&Headers::new(), body).await);
            assert_eq!(called.usage_estimate().tier, tier, "{body}");
        }
    }

    #[tokio::test]
    async fn the_model_of_a_form_is_read_however_its_type_is_spelled() {
        let headers = [("Content-Type", "Multipart/Form-Data; boundary=XX")].into_iter().collect();
        let body = "--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--XX--";
        let usage = usage_of(&headers, body).await;
        assert_eq!((usage.model.as_deref(), usage.estimated), (Some("whisper-1"), 1));
    }

    #[tokio::test]
    async fn body_that_cannot_be_decoded_is_marked_unclear() {
        let headers = |coding: &str| [("Content-Encoding", coding)].into_iter().collect::<Headers>();
        for (coding, model) in [("identity", Some("a")), ("gzip", None), ("rot13", None)] {
            let w = usage_of(&headers(coding), r#"{"model":"a"}"#).await;
            assert_eq!((w.model.as_deref(), w.unclear), (model, model.is_none()), "{coding}");
        }
    }

    #[test]
    fn only_a_providers_own_hosts_get_its_key() {
        for (host, own) in [
            ("api.openai.com", true),
            ("eu.api.openai.com", true),
            ("evilapi.openai.com.test", false),
            ("api.groq.com", false),
            ("x.openai.azure.com", true),
            ("europe-west1-aiplatform.googleapis.com", true),
            ("bedrock-runtime.us-east-1.amazonaws.com", true),
            ("bedrock-runtime.evil.test", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(is_own_host(&interflow_types::Host::parse(host).unwrap()), own, "{host}");
        }
    }
}
