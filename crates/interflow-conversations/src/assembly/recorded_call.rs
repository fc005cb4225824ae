//! A recorded LLM call, parsed and ready to be assembled.

use interflow_types::{CallUsage, FlowId, Headers, ServiceTier, Timestamp};
use serde_json::Value;

use super::client_agent::{ClientAgent, detect_agent};
use interflow_llm::message::{ApiFormat, ContentBlock, ModelReply, ModelRequest, parse};
use interflow_llm::provider::by_shape;

/// The recorded data of a call, before its bodies are parsed.
#[derive(Clone, Debug)]
pub struct RawCall<'a> {
    pub flow: FlowId,
    /// For a WebSocket, the number of the message that started the call; else 0.
    pub part: u64,
    /// The lane of a WebSocket; empty if it has none.
    pub lane: &'a str,
    pub started: Timestamp,
    /// Microseconds from the start until the first byte of the response.
    pub first_byte: Option<u64>,
    /// Microseconds from the start until the end of the response.
    pub duration: u64,
    pub host: &'a str,
    pub path: &'a str,
    /// The provider whose API is used, if known.
    pub provider: &'a str,
    pub user: &'a str,
    /// The client's address without the port.
    pub peer: &'a str,
    pub headers: &'a Headers,
    /// The response's status; 0 if there was no response.
    pub status: u16,
    pub fault: Option<&'a str>,
}

/// A call whose bodies were parsed, ready to be inserted.
#[derive(Clone, Debug)]
pub struct ParsedCall {
    pub(super) flow: FlowId,
    pub(super) part: u64,
    pub(super) lane: String,
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
    /// Whether the usage was estimated by the gateway.
    pub(super) is_estimated: bool,
    /// Whether it only counts tokens or keeps a cache warm, and has no reply.
    pub(super) counts: bool,
}

/// Path suffixes, in lower case, of endpoints that count tokens or keep a cache warm.
const TOKEN_COUNT_PATHS: [&str; 4] = ["/count_tokens", ":counttokens", "/input_tokens", "/cache_touch"];

impl ParsedCall {
    /// Parses a call of this API format. The reply's media type must be lower case without parameters; bodies must be
    /// decoded.
    pub fn parse_as(shape: ApiFormat, seen: &RawCall<'_>, request: Value, media_type: &str, reply: &[u8]) -> Self {
        let request = parse::request(shape, seen.path, request);
        let reply = match seen.status {
            0 => ModelReply::default(),
            status => parse::reply(shape, media_type, status, reply),
        };
        Self::from_parts(seen, request, reply, shape)
    }

    /// A call whose two sides have already been parsed: from messages of a WebSocket.
    pub fn from_parts(seen: &RawCall<'_>, mut request: ModelRequest, mut reply: ModelReply, shape: ApiFormat) -> Self {
        let agent = detect_agent(seen.headers, &request);
        // An id in the body takes precedence over one in a header field.
        let session = request.session.take().or_else(|| agent.session.clone());
        let named = session.is_some();
        let key = match session {
            Some(id) => format!("session {id}"),
            // Without a session id, calls of the same program for the same user, address and host are related.
            None => format!("client {} {} {} {}", agent.name, seen.user, seen.peer, seen.host),
        };
        // The reply ends in the middle; the error says why.
        if let Some(fault) = seen.fault
            && !reply.complete
        {
            reply.blocks.push(ContentBlock::Error { kind: "cut".into(), message: fault.to_owned() });
        }
        let path = seen.path.split('?').next().unwrap_or_default().to_ascii_lowercase();
        let provider = match seen.provider {
            "" => by_shape(shape, "", false).provider.as_str(),
            provider => provider,
        };
        Self {
            flow: seen.flow,
            part: seen.part,
            lane: seen.lane.to_owned(),
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
            is_estimated: false,
            counts: TOKEN_COUNT_PATHS.iter().any(|end| path.ends_with(end)),
        }
    }

    /// Makes it a call that cost nothing, because the gateway's cache answered it: the usage in the response is that of
    /// the call that it was made for.
    pub fn make_free(&mut self) {
        (self.reply.usage, self.reply.cost) = (None, Some(0.0));
    }

    /// Takes the tokens that the gateway charged for a call whose provider did not report them, or not all of them.
    pub fn set_estimate(&mut self, input: u64, output: u64) {
        self.reply.usage = Some(CallUsage { input, output, ..self.reply.usage.unwrap_or_default() });
        self.is_estimated = true;
    }

    /// Takes the tokens of the attempt that answered, if the client's response states none: it may have been translated.
    pub fn complete_usage(&mut self, input: u64, output: u64, is_estimated: bool) {
        if self.reply.usage.is_none_or(|usage| usage.total() == 0) && self.reply.cost.is_none() {
            self.reply.usage = Some(CallUsage { input, output, ..CallUsage::default() });
            self.is_estimated = is_estimated;
        }
    }

    /// Takes the level of service that the head of the response names, if its body names none.
    pub fn complete_tier(&mut self, name: Option<&str>) {
        if let (Some(usage), Some(name)) = (&mut self.reply.usage, name) {
            usage.tier = usage.tier.or_else(|| Some(ServiceTier::from_name(name)));
        }
    }

    pub fn into_request(self) -> ModelRequest {
        self.request
    }

    /// The number of the message that started the call, plus one; 0 for the call of an HTTP flow.
    pub const fn part(&self) -> u64 {
        self.part
    }

    /// The key that relates it to other calls: the client's session id, or the client's identity.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The model that replied, else the requested one.
    pub(super) fn model(&self) -> &str {
        self.reply.model.as_deref().filter(|m| !m.is_empty()).unwrap_or(&self.request.model)
    }
}
