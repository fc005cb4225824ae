//! Spans by OpenTelemetry's GenAI conventions.

use interflow_llm::otlp::{self, name};
use interflow_llm::{Operation, Provider};
use interflow_types::{ByteStr, CallUsage, Flow, RequestHead};
use serde_json::{Value, json};

use super::otel_env::Sampler;
use super::{AttributeSet, CallTelemetry, RedactionFindings, bounded};

/// A flow's trace context.
#[derive(Clone, Debug)]
pub struct TraceContext {
    pub(super) trace: String,
    pub(super) span: String,
    parent: Option<String>,
    sampled: bool,
    /// The client's id of the conversation, if its header has one.
    session: Option<String>,
}

impl TraceContext {
    /// Continues the client's trace or begins one, and propagates it to the provider (W3C Trace Context).
    pub(super) fn from_request(flow: &Flow, head: &mut RequestHead, sampler: Sampler) -> Self {
        let id = flow.id.to_u128();
        let span = format!("{:016x}", (id as u64) ^ (id >> 64) as u64);
        let (trace, parent, decided) = match head.headers.get_str("traceparent").and_then(parse_traceparent) {
            Some((trace, parent, sampled)) => (trace, Some(parent), Some(sampled)),
            None => (format!("{id:032x}"), None, None),
        };
        let sampled = sampler.samples(&trace, decided);
        let session = otlp::conversation_id(&head.headers).map(|id| bounded(id).to_owned());
        let told = format!("00-{trace}-{span}-{:02x}", u8::from(sampled));
        // Hexadecimal digits and dashes are valid in a header.
        let _ = head.headers.set("traceparent", told);
        Self { trace, span, parent, sampled, session }
    }

    pub(super) const fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub(super) fn id(&self) -> &str {
        &self.trace
    }
}

/// Trace id, parent span id, and whether the parent is sampled.
fn parse_traceparent(text: &str) -> Option<(String, String, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |s: &str, n: usize| {
        s.len() == n
            && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            && s.bytes().any(|b| b != b'0')
    };
    let fits = version.len() == 2 && version != "ff" && hex(trace, 32) && hex(parent, 16);
    let flags = parts.next().and_then(|f| u8::from_str_radix(f, 16).ok()).unwrap_or_default();
    fits.then(|| (trace.to_owned(), parent.to_owned(), flags & 1 == 1))
}

pub(super) fn build_span(f: &CallTelemetry<'_>, trace: &TraceContext, sets: &[AttributeSet]) -> Value {
    let operation = operation_name(f.exchange.operation, f.exchange.provider);
    let includes = |of: AttributeSet| of == AttributeSet::GenAi || sets.contains(&of);
    // Two sets may have a name in common.
    let is_first =
        |at: usize| !SPAN_ATTRIBUTES[..at].iter().any(|a| a.name == SPAN_ATTRIBUTES[at].name && includes(a.set));
    let attributes: Vec<Value> = SPAN_ATTRIBUTES
        .iter()
        .enumerate()
        .filter(|(at, attribute)| includes(attribute.set) && is_first(*at))
        .map(|(_, attribute)| attribute)
        .filter_map(|attribute| Some(otlp::attribute(attribute.name, (attribute.value)(f)?)))
        .collect();
    let start = f.flow.clock.started_at().micros();
    let end = start + f.flow.timings.done.unwrap_or_default();
    json!({
        "traceId": trace.trace,
        "spanId": trace.span,
        "parentSpanId": trace.parent.as_deref().unwrap_or_default(),
        "name": format!("{operation} {}", f.model().unwrap_or_default()).trim_end(),
        "kind": 3,
        "startTimeUnixNano": format!("{start}000"),
        "endTimeUnixNano": format!("{end}000"),
        "attributes": attributes,
        "status": { "code": if f.error().is_some() { 2 } else { 1 } }
    })
}

/// An attribute of the span of a call.
pub struct SpanAttribute {
    pub name: &'static str,
    /// What it is, as a phrase in Markdown.
    pub doc: &'static str,
    /// Spans have those of `gen_ai` always, and others if `telemetry.attributes` names their set.
    pub set: AttributeSet,
    value: AttributeReader,
}

type AttributeReader = fn(&CallTelemetry<'_>) -> Option<Value>;

const fn attribute(name: &'static str, doc: &'static str, value: AttributeReader) -> SpanAttribute {
    SpanAttribute { name, doc, set: AttributeSet::GenAi, value }
}

impl SpanAttribute {
    const fn of(self, set: AttributeSet) -> Self {
        Self { set, ..self }
    }
}

fn tags(f: &CallTelemetry<'_>) -> Option<Value> {
    Some(f.tags()).filter(|tags| !tags.is_empty()).map(Value::from)
}

/// The model that answered, else the one asked for.
fn any_model(f: &CallTelemetry<'_>) -> Option<Value> {
    f.response_model().map(Value::from).or_else(|| f.model().map(Value::from))
}

fn session(f: &CallTelemetry<'_>) -> Option<Value> {
    f.trace?.session.as_deref().map(Value::from)
}

fn dollars(f: &CallTelemetry<'_>) -> Option<f64> {
    f.micros.map(|micros| micros as f64 / 1e6)
}

/// A part of the tokens by what they stand for, of calls that had more than text.
fn modality(f: &CallTelemetry<'_>, tokens: fn(&CallUsage) -> u64) -> Option<Value> {
    let u = f.usage?;
    let has_more = beside_text(&u) + u.audio_output + u.image_output > 0;
    Some(tokens(&u)).filter(|count| has_more && *count > 0).map(Value::from)
}

/// The tokens of the prompt that are not text.
const fn beside_text(u: &CallUsage) -> u64 {
    u.audio_input + u.audio_cache_read + u.image_input + u.image_cache_read + u.video_input
}

/// Usage with the names of Langfuse, in which no token is counted twice.
fn usage_details(f: &CallTelemetry<'_>) -> Option<Value> {
    let u = f.usage?;
    let details = json!({
        "input": u.input.saturating_sub(u.cache_read).saturating_sub(u.cache_write),
        "input_cache_read": u.cache_read,
        "input_cache_creation": u.cache_write,
        "output": u.output.saturating_sub(u.reasoning),
        "output_reasoning": u.reasoning,
        "total": u.total(),
    });
    Some(details.to_string().into())
}

const fn span_kind(operation: Operation) -> &'static str {
    match operation {
        Operation::Embeddings => "EMBEDDING",
        Operation::Rerank => "RERANKER",
        _ => "LLM",
    }
}

/// A service tier, whose attributes are OpenAI's.
fn openai_tier(f: &CallTelemetry<'_>, tier: Option<&ByteStr>) -> Option<Value> {
    tier.filter(|_| matches!(f.exchange.provider, Provider::OpenAi | Provider::Azure)).map(|tier| tier.as_str().into())
}

/// When the first text of a stream came, as a JSON string (RFC 3339).
fn first_text_time(f: &CallTelemetry<'_>) -> Option<Value> {
    let at = f.flow.clock.started_at().micros() + f.exchange.first_token.get()?;
    Some(json!(super::audit_fields::rfc3339(at)).to_string().into())
}

/// The attributes of a span; those without a value are left out.
#[rustfmt::skip]
pub const SPAN_ATTRIBUTES: &[SpanAttribute] = &[
    attribute(name::OPERATION, "operation, such as `chat`", |f| Some(json!(operation_name(f.exchange.operation, f.exchange.provider)))),
    attribute(name::PROVIDER, "provider, by the conventions' names", |f| Some(json!(otlp::provider_name(f.exchange.provider.as_str())))),
    attribute("server.address", "host of the provider", |f| Some(json!(f.flow.authority.host.to_string()))),
    attribute("server.port", "port of the provider", |f| Some(json!(f.flow.authority.port))),
    attribute("interflow.flow", "id of the flow", |f| Some(json!(f.flow.id.to_string()))),
    attribute(name::REQUEST_MODEL, "model that the client asked for", |f| f.model().map(Value::from)),
    attribute(name::RESPONSE_MODEL, "model that answered", |f| f.response_model().map(Value::from)),
    attribute(name::RESPONSE_ID, "id of the response", |f| f.exchange.summary().id.as_deref().map(|id| bounded(id).into())),
    attribute("interflow.key", "id of the virtual key", |f| f.key.map(Value::from)),
    attribute("error.type", "[code or kind](../reference/errors.md) of the error or refusal, or the status of the provider's error", |f| f.error().map(|e| json!(e.1))),
    attribute(name::MAX_TOKENS, "limit of output tokens in the request", |f| f.exchange.max_output.map(Value::from)),
    attribute(name::INPUT, "tokens of the prompt", |f| f.usage.map(|u| json!(u.input))),
    attribute(name::OUTPUT, "tokens of the answer", |f| f.usage.map(|u| json!(u.output))),
    attribute(name::CACHE_READ, "tokens read from the provider's cache", |f| f.usage.map(|u| json!(u.cache_read))),
    attribute(name::CACHE_WRITE, "tokens written to the provider's cache", |f| f.usage.map(|u| json!(u.cache_write))),
    attribute(name::CACHE_CREATION, "tokens written to the provider's cache", |f| f.usage.map(|u| json!(u.cache_write))).of(AttributeSet::GenAiLegacy),
    attribute(name::TEXT_INPUT, "the part of the prompt's tokens that is text, of calls with audio, images or video; so the following", |f| modality(f, |u| u.input.saturating_sub(beside_text(u)))),
    attribute(name::TEXT_CACHE_READ, "tokens of text read from the provider's cache", |f| modality(f, |u| u.cache_read.saturating_sub(u.audio_cache_read + u.image_cache_read))),
    attribute(name::TEXT_OUTPUT, "tokens of the answer that are text", |f| modality(f, |u| u.output.saturating_sub(u.audio_output + u.image_output))),
    attribute(name::AUDIO_INPUT, "tokens of audio in the prompt, with those from the cache", |f| modality(f, |u| u.audio_input + u.audio_cache_read)),
    attribute(name::AUDIO_CACHE_READ, "tokens of audio read from the provider's cache", |f| modality(f, |u| u.audio_cache_read)),
    attribute(name::AUDIO_OUTPUT, "tokens of the answer that are audio", |f| modality(f, |u| u.audio_output)),
    attribute(name::IMAGE_INPUT, "tokens of images in the prompt, with those from the cache", |f| modality(f, |u| u.image_input + u.image_cache_read)),
    attribute(name::IMAGE_CACHE_READ, "tokens of images read from the provider's cache", |f| modality(f, |u| u.image_cache_read)),
    attribute(name::IMAGE_OUTPUT, "tokens of the answer that are images", |f| modality(f, |u| u.image_output)),
    attribute(name::PREVIOUS_RESPONSE, "response that the request continues at the provider", |f| f.exchange.previous_response.as_deref().map(Value::from)),
    attribute(name::REASONING, "tokens of the answer that are reasoning", |f| f.usage.filter(|u| u.reasoning > 0).map(|u| json!(u.reasoning))),
    attribute(name::REASONING_LEVEL, "how much the model is asked to think", |f| f.exchange.reasoning_level.as_deref().map(Value::from)),
    attribute(name::STATUS, "what became of a response of Responses or Interactions, such as `queued`", |f| f.exchange.summary().status.as_deref().map(Value::from)),
    attribute("openai.request.service_tier", "service tier in the request", |f| openai_tier(f, f.exchange.service_tier.as_ref())),
    attribute("openai.response.service_tier", "service tier that answered", |f| openai_tier(f, f.exchange.summary().service_tier.as_ref())),
    attribute(name::STREAM, "whether the client asked for a stream", |f| f.exchange.stream.then_some(true.into())),
    attribute(name::FIRST_CHUNK, "seconds until the first text of a stream", |f| f.exchange.first_token.get().map(|us| json!(*us as f64 / 1e6))),
    attribute(name::CONVERSATION, "the client's id of the conversation, from its session header", session),
    attribute("user.id", "the authenticated user", |f| f.flow.user.as_deref().map(Value::from)),
    attribute("interflow.cost_usd", "cost in US dollars, if the price is known", |f| dollars(f).map(Value::from)),
    attribute("interflow.tags", "tags of the flow, such as `cache:hit`, without the findings of guardrails", tags),
    attribute("interflow.entities", "findings in request and response", |f| f.found.map(RedactionFindings::total).map(Value::from)),
    attribute("http.response.status_code", "status of the response", |f| f.flow.status.map(|s| json!(s.as_u16()))),
    attribute("openinference.span.kind", "`LLM`, `EMBEDDING` or `RERANKER`", |f| Some(json!(span_kind(f.exchange.operation)))).of(AttributeSet::OpenInference),
    attribute("llm.system", "API of the provider", |f| Some(json!(f.exchange.provider.as_str()))).of(AttributeSet::OpenInference),
    attribute("llm.provider", "the gateway's name of the provider", |f| Some(json!(f.provider()))).of(AttributeSet::OpenInference),
    attribute("llm.model_name", "model that answered, else the one asked for", any_model).of(AttributeSet::OpenInference),
    attribute("llm.request.model_name", "model that the client asked for", |f| f.model().map(Value::from)).of(AttributeSet::OpenInference),
    attribute("llm.response.model_name", "model that answered", |f| f.response_model().map(Value::from)).of(AttributeSet::OpenInference),
    attribute("llm.token_count.prompt", "tokens of the prompt", |f| f.usage.map(|u| json!(u.input))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.completion", "tokens of the answer", |f| f.usage.map(|u| json!(u.output))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.total", "both", |f| f.usage.map(|u| u.total().into())).of(AttributeSet::OpenInference),
    attribute("llm.token_count.prompt_details.cache_read", "tokens read from the provider's cache", |f| f.usage.map(|u| json!(u.cache_read))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.prompt_details.cache_write", "tokens written to it", |f| f.usage.map(|u| json!(u.cache_write))).of(AttributeSet::OpenInference),
    attribute("llm.token_count.completion_details.reasoning", "tokens of the answer that are reasoning", |f| f.usage.map(|u| json!(u.reasoning))).of(AttributeSet::OpenInference),
    attribute("llm.cost.total", "cost in US dollars", |f| dollars(f).map(Value::from)).of(AttributeSet::OpenInference),
    attribute("session.id", "the client's id of the conversation", session).of(AttributeSet::OpenInference),
    attribute("tag.tags", "tags of the flow", tags).of(AttributeSet::OpenInference),
    attribute("langfuse.observation.type", "`generation` or `embedding`", |f| Some(json!(if f.exchange.operation == Operation::Embeddings { "embedding" } else { "generation" }))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.model.name", "model that answered, else the one asked for", any_model).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.usage_details", "tokens, as JSON", usage_details).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.cost_details", "cost in US dollars, as JSON", |f| dollars(f).map(|cost| json!(json!({"total": cost}).to_string()))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.level", "`ERROR` if it failed", |f| f.error().map(|_| json!("ERROR"))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.status_message", "[code or kind](../reference/errors.md) of the error", |f| f.error().map(|e| json!(e.1))).of(AttributeSet::Langfuse),
    attribute("langfuse.observation.completion_start_time", "when the first text of a stream came, as JSON", first_text_time).of(AttributeSet::Langfuse),
    attribute("session.id", "the client's id of the conversation", session).of(AttributeSet::Langfuse),
    attribute("langfuse.trace.tags", "tags of the flow", tags).of(AttributeSet::Langfuse),
];

const fn operation_name(operation: Operation, provider: Provider) -> &'static str {
    match (operation, provider) {
        (Operation::Chat, Provider::Gemini | Provider::Vertex) => "generate_content",
        (Operation::Chat | Operation::Responses | Operation::Realtime, _) => "chat",
        (Operation::Completions, _) => "text_completion",
        (other, _) => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_client_trace_context_is_continued() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, parent, sampled) = parse_traceparent(good).unwrap();
        assert_eq!((trace.as_str(), parent.as_str()), ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"));
        assert!(sampled && !parse_traceparent(&good.replace("-01", "-00")).unwrap().2);
        for bad in [
            "",
            "00-4bf92f-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }
}
