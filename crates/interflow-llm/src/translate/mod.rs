//! Translation between the wire formats of providers: a client's request and its reply pass through the message model
//! (`crate::message`), so that a client of one API reaches the models of another.
//!
//! [`ChatRequest::parse`] reads the client's body, [`ChatRequest::write`] writes it for an upstream. A stream is read as
//! [`ChatEvent`]s by an [`EventTranslator`], and written by a [`ReplyWriter`], event by event; a whole reply by
//! [`whole_reply`]. What a format cannot express is named, not dropped silently: see [`Losses`].

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod argument_tests;
mod call_signature;
mod citations;
#[cfg(test)]
mod client_tests;
mod error;
mod events;
mod foreign_reasoning;
mod json_answer;
mod mistral;
#[cfg(test)]
mod option_tests;
mod reply;
mod request;
mod settings;
#[cfg(test)]
mod tests;
mod thought_binding;
mod unread;

pub use call_signature::without_call_signatures;
pub use error::TranslatedError;
pub use events::{EventTranslator, reply_events};
pub(crate) use foreign_reasoning::has_mark;
pub use foreign_reasoning::{Keeps, may_have_foreign_reasoning, without_foreign_reasoning};
pub use mistral::is_accepted as is_accepted_by_mistral;
pub use reply::{ReplyHead, ReplyWriter, whole_reply};
pub use request::{ChatRequest, Target, binds_thoughts, may_need_responses, refused_settings};
pub use thought_binding::{BINDING_BETA, is_bound_elsewhere, leave_out_unfitting_thoughts, may_have_signed_thoughts};

use citations::{Citation, Cited};
use foreign_reasoning::OPENAI_MARK;
use interflow_codec::json;
use serde_json::Value;

use crate::event_stream::StreamFraming;
use crate::message::{ApiFormat, Carried, ContentBlock, ModelReply, parse, take_value};
use crate::{Provider, usage};
use interflow_types::data_file::{self, has_word};
use interflow_types::{CallUsage, labelled_enum};

labelled_enum! {
    /// A wire format that requests are translated to, labelled as in configuration, tags and messages. Clients speak all
    /// but the last three.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum WireFormat {
        /// Google's Interactions, which no request is translated to.
        Interactions "interactions",
        /// Anthropic Messages.
        Anthropic "anthropic",
        /// OpenAI Chat Completions, also the API of most servers.
        #[default]
        OpenAiChat "openai_chat",
        /// OpenAI Responses.
        OpenAiResponses "openai_responses",
        /// `generateContent` of Gemini and Vertex AI.
        Gemini "gemini",
        /// Bedrock Converse.
        Bedrock "bedrock",
        /// Cohere's chat, version 2.
        Cohere "cohere",
        /// Ollama's own API.
        Ollama "ollama",
        /// Mistral's chat completions: OpenAI's with other members and stricter rules.
        Mistral "mistral",
    }
}

impl WireFormat {
    /// Whether providers sign the text of thoughts, which must come back as it was.
    pub const fn signs_thoughts(self) -> bool {
        matches!(self, Self::Anthropic | Self::Bedrock)
    }

    /// The format of upstreams by its name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().skip(1).find(|format| format.as_str() == name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        Self::ALL[1..].iter().map(|format| format.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether replies to a client have signatures of thoughts, by which it returns them to their provider.
    pub(crate) const fn returns_thoughts(self) -> bool {
        !matches!(self, Self::OpenAiChat | Self::OpenAiResponses)
    }

    /// The framing of the streams that a client gets; `grows` is Gemini's without `alt=sse`.
    pub const fn framing(self, grows: bool) -> StreamFraming {
        match self {
            Self::Bedrock => StreamFraming::EventStream,
            Self::Gemini if grows => StreamFraming::Array,
            _ => StreamFraming::Sse,
        }
    }

    /// The API whose errors and events a client of this format reads.
    pub const fn provider(self) -> Provider {
        match self {
            Self::Anthropic => Provider::Anthropic,
            Self::OpenAiChat | Self::OpenAiResponses => Provider::OpenAi,
            Self::Gemini | Self::Interactions => Provider::Gemini,
            Self::Bedrock => Provider::Bedrock,
            Self::Cohere => Provider::Cohere,
            Self::Ollama => Provider::Ollama,
            Self::Mistral => Provider::Mistral,
        }
    }

    /// The format of the message model; Cohere has its own reader.
    const fn api(self) -> Option<ApiFormat> {
        match self {
            Self::Anthropic => Some(ApiFormat::Anthropic),
            Self::OpenAiChat | Self::Mistral => Some(ApiFormat::Chat),
            Self::OpenAiResponses => Some(ApiFormat::Responses),
            Self::Interactions => Some(ApiFormat::Interactions),
            Self::Gemini => Some(ApiFormat::Gemini),
            Self::Bedrock => Some(ApiFormat::Converse),
            Self::Ollama => Some(ApiFormat::Ollama),
            Self::Cohere => None,
        }
    }
}

/// What a translation could not carry, by the names of the client's members: sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(std::collections::BTreeSet<String>);

/// The header field that names losses, and the comment in a stream.
pub const LOSS_HEADER: &str = "X-Interflow-Translation-Loss";
/// Names in one header field; a client may send any number of members that no API knows.
const MAX_LOSSES: usize = 32;
/// Length of one name.
const MAX_LOSS_LENGTH: usize = 64;

impl Losses {
    /// Adds a name. Characters that a header field cannot hold are replaced.
    pub fn add(&mut self, name: &str) {
        if self.0.len() < MAX_LOSSES {
            let safe = |c: char| if c.is_ascii_alphanumeric() || "_.-[]".contains(c) { c } else { '_' };
            self.0.insert(name.chars().take(MAX_LOSS_LENGTH).map(safe).collect());
        }
    }

    /// Adds the name of what a format does not have, if it was given.
    pub fn add_if(&mut self, name: &str, is_given: bool) {
        if is_given {
            self.add(name);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|name| self.add(name));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        f.write_str(&names.join(", "))
    }
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    /// The stop sequence that was generated, if the upstream says which.
    StopSequence(Option<String>),
    ToolUse,
    /// A filter or the model itself declined.
    Refusal,
    /// The model declined in words, in a member that OpenAI's APIs have for it.
    Declined,
}

/// Stands for [`StopReason::Declined`] in a [`ModelReply`], since OpenAI's APIs report a normal end.
const DECLINED: &str = "interflow_declined";

/// The names of [`StopReason::MaxTokens`].
const LIMITS: &str = "length max_tokens MAX_TOKENS max_output_tokens model_context_window_exceeded";

/// The names of [`StopReason::Refusal`].
const REFUSALS: &str = "content_filter refusal content_filtered guardrail_intervened SAFETY RECITATION PROHIBITED_CONTENT \
                        BLOCKLIST SPII IMAGE_SAFETY LANGUAGE OTHER";

impl StopReason {
    /// The reason under the name of any provider. An unknown name counts as a normal end.
    pub fn from_name(name: &str) -> Self {
        match name {
            name if has_word(LIMITS, name) => Self::MaxTokens,
            "stop_sequence" | "STOP_SEQUENCE" => Self::StopSequence(None),
            "tool_calls" | "tool_use" | "TOOL_CALL" | "function_call" => Self::ToolUse,
            DECLINED => Self::Declined,
            name if has_word(REFUSALS, name) => Self::Refusal,
            _ => Self::EndTurn,
        }
    }
}

/// The failure behind a stop reason under which an upstream reports success.
fn failure_message(reason: &str) -> Option<&'static str> {
    let mut failures = data_file::records(include_str!("../../data/failed_stops.txt"));
    failures.find(|[reasons, _]| has_word(reasons, reason)).map(|[_, message]| message)
}

/// Whether a stop reason is a failure, for which the model is not to blame.
pub(crate) fn is_failure(reason: &str) -> bool {
    failure_message(reason).is_some()
}

/// One step of a reply, in the order in which it is generated.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// The upstream's id and name for the reply and its model.
    Start {
        id: Option<String>,
        model: Option<String>,
    },
    Text(String),
    /// Words with which the model declines, where the API has a member of their own for them.
    Refusal(String),
    Thinking(String),
    /// The signature of the thinking before it.
    Signature(String),
    /// A call of a tool begins; `index` tells parallel calls apart.
    ToolStart {
        index: u64,
        id: String,
        name: String,
    },
    /// A piece of the arguments, which are JSON when all pieces are there.
    ToolInput {
        index: u64,
        json: String,
    },
    /// A page or a document that the text before it rests on.
    Citation(Citation),
    /// A block ends, in APIs whose replies are blocks: what is cited belongs to its text alone.
    BlockEnd,
    /// The upstream sent something that clients do not get, by its name.
    Loss(&'static str),
    /// Counts so far, running totals.
    Usage(CallUsage),
    Stop(StopReason),
    Error {
        kind: String,
        message: String,
    },
    /// The reply is complete.
    Done,
}

/// Parses a whole reply of an upstream; also returns what a client of the other format does not get of it.
pub fn parse_reply(format: WireFormat, client: WireFormat, body: &[u8]) -> (ModelReply, Losses) {
    // Null for what is not JSON, such as JSON lines.
    let mut value: Value = json::parse(body).unwrap_or_default();
    let cited = if Cited::is_possible(body) { Cited::in_value(&value) } else { Cited::default() };
    let mut losses = Losses::default();
    losses.add_if(unread::CITATIONS, cited.has_others || cited.pages.iter().any(|page| !page.is_carried_to(client)));
    let blocks = match format {
        WireFormat::Anthropic => value.pointer_mut("/content"),
        WireFormat::Bedrock => value.pointer_mut("/output/message/content"),
        _ => None,
    };
    let is_detached = blocks.map(citations::detach).is_some();
    let (declines, signatures) = (declines(format, &value), call_signatures(&value));
    let mut reply = match format.api() {
        Some(api) if value.is_null() => parse::reply_with_data(api, "application/json", 200, body),
        Some(api) => parse::json_reply(api, 200, value),
        None => cohere_reply(value),
    };
    let mut signatures = signatures.into_iter();
    for block in &mut reply.blocks {
        match block {
            ContentBlock::Thinking { signature, .. } if format == WireFormat::OpenAiResponses => {
                *signature = Carried::new(signature.get().map(|s| format!("{OPENAI_MARK}{s}")).unwrap_or_default());
            }
            ContentBlock::ToolUse { id, .. } if format == WireFormat::Gemini => {
                let signature = signatures.next().flatten();
                *id = call_signature::signed_id(std::mem::take(id), signature.as_deref());
            }
            _ => {}
        }
    }
    if !is_detached {
        let value: Value = cited.pages.iter().map(|page| page.location(format)).collect();
        let kind = unread::CITATIONS.to_owned();
        reply.blocks.extend(unread::is_filled(&value).then_some(ContentBlock::Other { kind, value }));
    }
    let is_failed = reply.blocks.iter().any(|block| matches!(block, ContentBlock::Error { .. }));
    let failed = reply.stop.as_deref().filter(|_| !is_failed).and_then(|stop| Some((stop, failure_message(stop)?)));
    if let Some((kind, message)) = failed {
        reply.blocks.push(ContentBlock::Error { kind: kind.to_owned(), message: message.to_owned() });
    }
    if declines {
        reply.stop = Some(DECLINED.to_owned());
    }
    json_answer::to_text(&mut reply);
    reply.blocks.retain(|block| !is_of_provider(format, block));
    (reply, losses)
}

/// The beginning of the ids of calls that Anthropic answers itself.
const PROVIDER_CALL: &str = "srvtoolu_";

/// Whether it is a call of a tool that the provider ran itself, or its result, by the id: no client can answer it, and no
/// other API has such calls.
fn is_of_provider(format: WireFormat, block: &ContentBlock) -> bool {
    let (ContentBlock::ToolUse { id, .. } | ContentBlock::ToolResult { id, .. }) = block else { return false };
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| id.starts_with(prefix));
    // Elsewhere, a call of the client's own may begin like one of Responses.
    begins(&[PROVIDER_CALL, "mcptoolu_"])
        || format == WireFormat::OpenAiResponses && begins(&["ws_", "ci_", "fs_", "ig_", "mcp_"])
}

/// Whether a whole reply of OpenAI's APIs is a refusal.
fn declines(format: WireFormat, body: &Value) -> bool {
    let message = &body["choices"][0]["message"]["refusal"];
    let items = body["output"].as_array().into_iter().flatten();
    let mut parts = items.filter_map(|item| item["content"].as_array()).flatten();
    matches!(format, WireFormat::OpenAiChat | WireFormat::OpenAiResponses)
        && (message.as_str().is_some_and(|text| !text.is_empty()) || parts.any(|part| part["type"] == "refusal"))
}

/// The signatures of the calls in a whole reply of Gemini.
fn call_signatures(body: &Value) -> Vec<Option<String>> {
    // Without `alt=sse` a stream is one list.
    let chunks = body.as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    let parts = chunks.iter().filter_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array()).flatten();
    let calls = parts.filter(|part| part.get("functionCall").is_some());
    calls.map(|part| part["thoughtSignature"].as_str().map(str::to_owned)).collect()
}

/// A whole reply of Cohere: Chat's messages without choices around them.
fn cohere_reply(mut body: Value) -> ModelReply {
    let usage = usage::summary_from_value(&body).usage;
    let id = body["id"].as_str().map(str::to_owned);
    let stop = body["finish_reason"].as_str().filter(|reason| !reason.is_empty()).map(str::to_owned);
    let mut message = take_value(&mut body, "message");
    // What the model says before it calls tools.
    let plan = message["tool_plan"].as_str().map(ContentBlock::text);
    let mut blocks: Vec<ContentBlock> = plan.into_iter().collect();
    let choice = serde_json::json!({ "choices": [{ "message": message.take() }] });
    blocks.extend(crate::message::chat_reply(choice).blocks);
    let complete = !blocks.is_empty() || stop.is_some();
    if let Some(kind) = stop.clone().filter(|stop| failure_message(stop).is_some()) {
        let message = body["message"].as_str().or_else(|| body["error"].as_str()).unwrap_or_default();
        let message = Some(message).filter(|m| !m.is_empty()).or_else(|| failure_message(&kind)).unwrap_or_default();
        blocks.push(ContentBlock::Error { message: message.to_owned(), kind });
    }
    ModelReply { id, blocks, stop, usage, complete, ..ModelReply::default() }
}
