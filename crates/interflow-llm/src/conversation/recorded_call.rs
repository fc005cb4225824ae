//! An exchange as it was recorded, read and ready to be put in its place.

use interflow_types::{FlowId, Headers, Timestamp};
use serde_json::Value;

use super::client_agent::{ClientAgent, detect_agent};
use crate::message::{ApiFormat, ContentBlock, ModelReply, ModelRequest, parse};

/// What was recorded of an exchange.
#[derive(Clone, Debug)]
pub struct RawCall<'a> {
    /// The flow it passed in.
    pub flow: FlowId,
    /// The number of the message that began it in a WebSocket, else 0.
    pub part: u64,
    /// When it began.
    pub started: Timestamp,
    /// Microseconds until the first byte of the answer.
    pub first_byte: Option<u64>,
    /// Microseconds until its end.
    pub duration: u64,
    /// The origin's host.
    pub host: &'a str,
    /// The path, with the query.
    pub path: &'a str,
    /// Whose API is spoken, where it is known.
    pub provider: &'a str,
    /// The authenticated user.
    pub user: &'a str,
    /// The client's address without the port.
    pub peer: &'a str,
    /// The request's fields.
    pub headers: &'a Headers,
    /// The response's status; 0 when there was no response.
    pub status: u16,
    /// What went wrong with the flow.
    pub fault: Option<&'a str>,
}

/// An exchange, read.
#[derive(Clone, Debug)]
pub struct ParsedCall {
    pub(super) flow: FlowId,
    pub(super) part: u64,
    pub(super) started: Timestamp,
    pub(super) first_byte: Option<u64>,
    pub(super) duration: u64,
    pub(super) host: String,
    pub(super) provider: String,
    pub(super) user: String,
    pub(super) status: u16,
    pub(super) agent: ClientAgent,
    pub(super) named: bool,
    pub(super) key: String,
    pub(super) request: ModelRequest,
    pub(super) reply: ModelReply,
    /// It only asks how many tokens a question would have.
    pub(super) counts: bool,
}

/// Ends of paths, in lower case, that ask how many tokens a question would have.
const TOKEN_COUNT_PATHS: [&str; 3] = ["/count_tokens", ":counttokens", "/input_tokens"];

impl ParsedCall {
    /// Reads an exchange; `None` when the request is no question to a language model. The reply's media type is told
    /// without parameters, in lower case; the bodies without content coding.
    pub fn parse(seen: &RawCall<'_>, request: Value, media_type: &str, reply: &[u8]) -> Option<Self> {
        let shape = ApiFormat::detect(seen.path, &request)?;
        Some(Self::parse_as(shape, seen, request, media_type, reply))
    }

    /// As [`read`](Self::read), for a shape that is known.
    pub fn parse_as(shape: ApiFormat, seen: &RawCall<'_>, request: Value, media_type: &str, reply: &[u8]) -> Self {
        let request = parse::request(shape, seen.path, request);
        let reply = match seen.status {
            0 => ModelReply::default(),
            status => parse::reply(shape, media_type, status, reply),
        };
        Self::from_parts(seen, request, reply, shape)
    }

    /// An exchange whose two sides have been read already: of a WebSocket's messages.
    pub fn from_parts(seen: &RawCall<'_>, mut request: ModelRequest, mut reply: ModelReply, shape: ApiFormat) -> Self {
        let agent = detect_agent(seen.headers, &request);
        let session = request.session.take().or_else(|| agent.session.clone());
        let named = session.is_some();
        let key = match session {
            Some(id) => format!("session {id}"),
            None => format!("client {} {} {} {}", agent.name, seen.user, seen.peer, seen.host),
        };
        if let Some(fault) = seen.fault
            && !reply.complete
        {
            reply.blocks.push(ContentBlock::Error { kind: "cut".into(), message: fault.to_owned() });
        }
        let path = seen.path.split('?').next().unwrap_or_default().to_ascii_lowercase();
        let provider = if seen.provider.is_empty() { provider_of(shape) } else { seen.provider };
        Self {
            flow: seen.flow,
            part: seen.part,
            started: seen.started,
            first_byte: seen.first_byte,
            duration: seen.duration,
            host: seen.host.to_owned(),
            provider: provider.to_owned(),
            user: seen.user.to_owned(),
            status: seen.status,
            agent,
            named,
            key,
            request,
            reply,
            counts: TOKEN_COUNT_PATHS.iter().any(|end| path.ends_with(end)),
        }
    }

    /// What ties it to other exchanges: the client's own session, or where it came from.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The name of the model: that which answered, else that which was asked.
    pub(super) fn model(&self) -> &str {
        self.reply.model.as_deref().filter(|m| !m.is_empty()).unwrap_or(&self.request.model)
    }
}

const fn provider_of(shape: ApiFormat) -> &'static str {
    match shape {
        ApiFormat::Anthropic => "anthropic",
        ApiFormat::Chat | ApiFormat::Responses => "openai",
        ApiFormat::Gemini => "gemini",
        ApiFormat::Converse => "bedrock",
        ApiFormat::Ollama => "ollama",
    }
}
