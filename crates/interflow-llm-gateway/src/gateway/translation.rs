//! Requests that are translated for an upstream with another wire format than the client's, and the responses to them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{
    Body, Error, ErrorKind, Flow, Headers, Method, Request, RequestHead, RequestId, Response, Result, StatusCode,
    Timestamp,
};

use super::translated_stream::TranslationStep;
use super::upstream_error::{MAX_ERROR_BYTES, read_error};
use super::upstream_request::{OriginalRequest, sign, upstream_model};
use super::wire_format::ClientRequest;
use super::{LlmUpstream, UpstreamTable, reasoning, token_count};
use crate::credentials::{client_keys, set_provider_key};
use crate::exchange::response::stream;
use crate::exchange::response::whole::{self, UnreadResponse};
use crate::exchange::{LlmExchange, ReadError, RequestBody, bad_request, off_worker, unless_unreadable};
use interflow_llm::event_stream::{ResponseForm, StreamFraming};
use interflow_llm::message::ContentBlock;
use interflow_llm::translate::{
    ChatRequest, EventTranslator, Losses, ReplyHead, ReplyWriter, Target, TranslatedError, WireFormat,
    is_accepted_by_mistral, leave_out_unfitting_thoughts, parse_reply, reply_events, whole_reply,
    without_foreign_reasoning,
};
use interflow_llm::{LlmCall, LlmRefusal, Provider, ResponseSummary};

/// Names the wire format of the upstream that answered.
pub(super) const FORMAT_HEADER: &str = "X-Interflow-Translated";
/// The version of Anthropic's API that requests are written for.
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// The version of Anthropic's API on Vertex AI.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// The inner error is for the client, unless another upstream serves it.
pub(super) type Translated<T> = std::result::Result<T, LlmRefusal>;

/// The translation of one client request, for as many upstreams as are tried.
#[derive(Clone)]
pub(super) struct Translation {
    /// What the client asks for; `None` if its requests cannot be translated.
    client: Option<ClientRequest>,
    /// The client only asks for the number of tokens.
    counts_tokens: bool,
    /// The provider of the upstream that the client addressed, whose requests need no translation.
    exchange: LlmCall,
    request_id: String,
    flow_id: String,
    created: Timestamp,
    max_body: usize,
    /// Parsed for the first upstream that needs it.
    parsed: Option<Translated<Arc<ChatRequest>>>,
    /// What is known of the client's request, shared by all that is made of it.
    pub shared: LlmExchange,
    /// The first upstream's provider.
    native: Option<Provider>,
}

impl Translation {
    pub fn new(table: &UpstreamTable, head: &RequestHead, exchange: &LlmCall, flow: &Flow) -> Self {
        let route = table.find_route(&head.url.path, head.headers.contains("anthropic-version"));
        let client = route.as_ref().and_then(|route| ClientRequest::from_path(route.rest));
        let client = client.filter(|_| head.method == Method::POST);
        Self {
            client,
            counts_tokens: client.is_some_and(|client| client.counts_tokens),
            exchange: exchange.clone(),
            request_id: RequestId::of(flow),
            flow_id: flow.id.to_string(),
            created: Timestamp::now(),
            max_body: table.max_body,
            parsed: None,
            shared: LlmExchange::of(flow),
            native: route.map(|route| route.upstream.provider),
        }
    }

    /// Whether a format is the client's own: the upstream takes its messages, though not its request.
    pub fn is_own(&self, format: WireFormat) -> bool {
        self.client.is_some_and(|client| client.format == format)
    }

    /// Whether the client asks for a number of tokens that an upstream of this format cannot tell.
    pub fn has_to_estimate(&self, upstream: &LlmUpstream, format: WireFormat) -> bool {
        self.counts_tokens && upstream.count_path(format, "").is_none()
    }

    /// The format to translate a request for a model to; `None` if the upstream takes the request as it is.
    ///
    /// # Errors
    /// The upstream has another API, and the request cannot be translated.
    pub fn needed_for(&self, upstream: &LlmUpstream, model: Option<&str>) -> Translated<Option<WireFormat>> {
        match (self.client, upstream.format_for(model.unwrap_or_default())) {
            (Some(client), _) if upstream.takes_from(client) => Ok(None),
            (Some(_), Some(format)) => match upstream.missing_for_translation() {
                Some(missing) => Err(untranslatable(format!("requests are not translated for it: {missing}"))),
                // Only the newer of OpenAI's two APIs counts.
                None if self.counts_tokens && format == WireFormat::OpenAiChat => Ok(Some(WireFormat::OpenAiResponses)),
                None => Ok(Some(format)),
            },
            _ if self.native == Some(upstream.provider) => Ok(None),
            _ => Err(untranslatable(format!(
                "the upstream {} has another API, and only chat requests of OpenAI's, Anthropic's and Gemini's API, Interactions and Converse are translated",
                upstream.name
            ))),
        }
    }

    /// Whether an upstream of nearly the client's format, which the client addressed, takes this request as it is.
    pub async fn is_accepted(
        &mut self,
        upstream: &LlmUpstream,
        format: WireFormat,
        original: &OriginalRequest<'_>,
    ) -> Result<bool> {
        let is_near = format == WireFormat::Mistral && self.is_own(WireFormat::OpenAiChat);
        if !is_near || self.native != Some(Provider::Mistral) {
            return Ok(false);
        }
        let follows_tools = !upstream.assistant_after_tools;
        let look = move |body: &RequestBody| {
            Ok(interflow_codec::json::parse(body.plain())
                .is_ok_and(|body| is_accepted_by_mistral(&body, follows_tools)))
        };
        let accepted = async { self.body(original).await?.read_tree(look).await };
        Ok(unless_unreadable(accepted.await)?.unwrap_or_default())
    }

    /// The format in place of this one for requests that OpenAI refuses in Chat Completions. One that cannot be parsed
    /// stays as it is: the provider reports what is wrong with it.
    pub async fn moved_to_responses(
        &mut self,
        upstream: &LlmUpstream,
        format: Option<WireFormat>,
        model: Option<&str>,
        original: &OriginalRequest<'_>,
    ) -> Result<Option<WireFormat>> {
        let is_chat = format.or(self.client.map(|client| client.format)) == Some(WireFormat::OpenAiChat);
        let Some(model) = model.filter(|_| is_chat && upstream.serves_responses()) else { return Ok(format) };
        let is_moved = self.chat(original).await?.is_ok_and(|chat| chat.needs_responses(&upstream.name, model));
        Ok(if is_moved { Some(WireFormat::OpenAiResponses) } else { format })
    }

    async fn body(&mut self, original: &OriginalRequest<'_>) -> std::result::Result<Arc<RequestBody>, ReadError> {
        self.shared.request(&original.head.headers, original.raw, self.max_body).await
    }

    /// The translated request, and what it could not carry.
    pub async fn request(
        &mut self,
        table: &UpstreamTable,
        upstream: &LlmUpstream,
        format: WireFormat,
        original: &OriginalRequest<'_>,
    ) -> Result<Translated<(Request, Losses)>> {
        let chat = match self.chat(original).await? {
            Ok(chat) => chat,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let model = upstream_model(table, upstream, original.exchange).unwrap_or(&chat.request.model).to_owned();
        if let Err(refusal) = upstream.check_model(&model) {
            return Ok(Err(refusal));
        }
        let counts = self.counts_tokens;
        let path = match counts {
            true => upstream.count_path(format, &model).unwrap_or_default(),
            // A client of Gemini gets the stream as it comes.
            false if self.exchange.grows && self.is_own(format) => {
                upstream.chat_path(format, &model, true).replace("?alt=sse", "")
            }
            false => upstream.chat_path(format, &model, chat.request.stream),
        };
        let Some(url) = upstream.url(&path, &original.head.headers) else { return Ok(Err(upstream.disabled())) };
        let (is_openai, keeps) = (upstream.is_openai(), upstream.keeps(format));
        let (provider, max_tokens, name) = (upstream.provider, upstream.max_tokens, upstream.name.clone());
        let assistant_after_tools = upstream.assistant_after_tools;
        let is_unbound =
            original.is_unbound && matches!(format, WireFormat::Anthropic | WireFormat::Bedrock) && !self.counts_tokens;
        let (is_own, body) = (self.is_own(format), self.body(original).await);
        let not_written =
            || Error::new(ErrorKind::Internal, "the request could not be translated; please report what it was");
        let body = body.map_err(|_| not_written())?;
        let written = body.read(move |body| {
            let (model, upstream) = (model.as_str(), name.as_str());
            let target = Target { format, provider, upstream, model, max_tokens, is_openai, assistant_after_tools };
            // A request in its client's own format loses nothing, whatever the model of messages knows.
            let own = is_own.then(|| body.plain()).and_then(|plain| {
                let (clean, mut losses) = (without_foreign_reasoning(format, keeps, plain), Losses::default());
                if clean.is_some() {
                    losses.add(reasoning::LOST);
                }
                let body = interflow_codec::json::parse::<serde_json::Value>(clean.as_deref().unwrap_or(plain)).ok()?;
                Some((body, losses))
            });
            let (mut body, mut losses) = own.unwrap_or_else(|| chat.write(&target));
            if is_unbound {
                leave_out_unfitting_thoughts(format, &mut body);
                losses.add(reasoning::UNBOUND);
            }
            if provider == Provider::Vertex && format == WireFormat::Anthropic {
                claude_on_vertex(&mut body, counts.then_some(model));
            } else if counts {
                body = token_count::request(&target, body);
            }
            Ok((body.to_string(), losses))
        });
        let (body, mut losses) = written.await.map_err(|_| not_written())?;
        let mut headers = headers(original.head, format, self.exchange.stream);
        match original.head.headers.get("anthropic-beta") {
            Some(betas) if self.is_own(format) => headers.append_unchecked(b"anthropic-beta", betas),
            Some(_) => losses.add("anthropic-beta"),
            None => {}
        }
        if is_unbound && format == WireFormat::Anthropic {
            reasoning::ask_for_binding(&mut headers);
        }
        let held = PROCESS_BUDGET.reserve(body.len() as u64)?;
        let body = Body::from(held.attach_to(body.into_bytes()));
        let mut head = RequestHead { url, headers, ..original.head.clone() };
        upstream.authorize(&mut head, original.token);
        // The client's own key, only for the host that it addressed.
        let key = client_keys(original.head).next().filter(|_| !original.foreign && !upstream.has_key());
        // One of the query may hold any character.
        if key.is_some_and(|key| set_provider_key(&mut head, provider, &key).is_err()) {
            return Ok(Err(bad_request("bad_credentials", "the API key has a control character")));
        }
        if upstream.signs()
            && let Err(refusal) = sign(upstream, original.token, &mut head, &body)
        {
            return Ok(Err(refusal));
        }
        Ok(Ok((Request { head, body }, losses)))
    }

    /// The client's request in the message model, parsed once.
    async fn chat(&mut self, original: &OriginalRequest<'_>) -> Result<Translated<Arc<ChatRequest>>> {
        if let Some(parsed) = &self.parsed {
            return Ok(parsed.clone());
        }
        let client = self.client;
        let (model, stream) = (self.exchange.model.clone(), self.exchange.stream);
        let look = move |body: &RequestBody| {
            Ok(parse(client, body.plain()).map(|mut chat| {
                // Limits and routes were told this one, which the path may name.
                if let Some(model) = model {
                    chat.request.model = model.to_string();
                }
                chat.request.stream |= stream;
                chat
            }))
        };
        let parsed = async { self.body(original).await?.read_tree(look).await };
        let parsed = match parsed.await {
            Ok(parsed) => parsed.map(Arc::new),
            Err(ReadError::Overloaded(e)) => return Err(e),
            Err(ReadError::Undecodable(e)) => Err(unreadable(&e.to_string())),
            Err(ReadError::Malformed(..)) => Err(unreadable("")),
        };
        self.parsed = Some(parsed.clone());
        Ok(parsed)
    }

    /// The upstream's response for the client: a stream is translated as it arrives, anything else as a whole.
    /// An error is read for two seconds at most, and not beyond `deadline`.
    pub async fn response(
        &self,
        format: WireFormat,
        response: Response,
        mut losses: Losses,
        deadline: Instant,
    ) -> Result<Response> {
        // An error may be the cloud's, in a format of its own.
        if self.is_own(format) && response.head.status.is_success() {
            return Ok(response);
        }
        let Response { head, body } = response;
        if head.status.is_success() {
            self.exchange.merge_head(&head.headers);
        }
        let mut translated = if self.counts_tokens && token_count::has_no_endpoint(head.status) {
            let raw = read_error(&head.headers, body, deadline).await;
            let error = TranslatedError::parse(head.status.as_u16(), None, &raw);
            token_count::estimate_unless_model(&self.exchange, &raw).unwrap_or_else(|| self.error_response(&error))
        } else if self.counts_tokens && head.status.is_success() {
            let raw = read(&head.headers, body, MAX_ERROR_BYTES).await?;
            match token_count::parse(&raw) {
                Some(tokens) => token_count::response(self.client_format().provider(), tokens, "exact"),
                None => self.unreadable(),
            }
        } else if !head.status.is_success() {
            let raw = read_error(&head.headers, body, deadline).await;
            let kind = head.headers.get_str("x-amzn-errortype");
            self.error_response(&TranslatedError::parse(head.status.as_u16(), kind, &raw))
        } else if self.exchange.stream {
            self.stream(format, &head.headers, body, &mut losses).await?
        } else {
            self.whole(format, &head.headers, body, &mut losses).await?
        };
        let headers = &mut translated.head.headers;
        for (name, value) in head.headers.iter().filter(|(name, _)| is_passed_on(name)) {
            headers.append_unchecked(name, value);
        }
        headers.append_unchecked(FORMAT_HEADER.as_bytes(), format.as_str().as_bytes());
        reasoning::name_losses(headers, &losses);
        Ok(translated)
    }

    fn client_format(&self) -> WireFormat {
        self.client.map_or(WireFormat::OpenAiChat, |client| client.format)
    }

    fn unreadable(&self) -> Response {
        let message = "the upstream's response is not one of its API".to_owned();
        let kind = "response_unreadable".to_owned();
        self.error_response(&TranslatedError { status: 502, kind, message })
    }

    fn error_response(&self, error: &TranslatedError) -> Response {
        let client = self.client_format();
        let status = StatusCode::from_u16(error.status_for(client)).unwrap_or(StatusCode::BAD_GATEWAY);
        Response::full(status, "application/json", error.body(client, &self.request_id).to_string())
    }

    async fn whole(&self, format: WireFormat, headers: &Headers, body: Body, losses: &mut Losses) -> Result<Response> {
        let raw = read(headers, body, self.max_body).await?;
        let held = PROCESS_BUDGET.reserve(raw.len() as u64 * 2)?;
        let client = self.client_format();
        let parsed = off_worker(raw.len(), move || {
            // Clients that read the provider's reply themselves read one with a mark or invalid bytes, too.
            let plain = raw.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&raw);
            let valid = std::str::from_utf8(plain).map_or_else(|_| String::from_utf8_lossy(plain), Into::into);
            (parse_reply(format, client, valid.as_bytes()), held)
        });
        let Some(((reply, lost), held)) = parsed.await else { return Ok(self.unreadable()) };
        losses.merge(&lost);
        self.exchange.merge_summary(&ResponseSummary {
            usage: reply.usage,
            model: reply.model.as_deref().map(Into::into),
            id: reply.id.as_deref().map(Into::into),
            ..ResponseSummary::default()
        });
        let failed = reply.blocks.iter().find_map(|block| match block {
            ContentBlock::Error { kind, message } => Some((kind.clone(), message.clone())),
            _ => None,
        });
        if let Some((kind, message)) = failed {
            return Ok(self.error_response(&TranslatedError { status: 502, kind, message }));
        }
        if !reply.complete {
            return Ok(self.unreadable());
        }
        let (media_type, body) = if self.exchange.stream {
            let (mut writer, mut out) = (ReplyWriter::new(client, self.reply_head(format)), Vec::new());
            reply_events(&reply).into_iter().for_each(|event| writer.write(event, &mut out));
            (media_type(writer.framing()), out)
        } else {
            ("application/json", whole_reply(client, &self.reply_head(format), &reply).to_string().into_bytes())
        };
        Ok(Response::full(StatusCode::OK, media_type, held.attach_to(body)))
    }

    async fn stream(&self, format: WireFormat, headers: &Headers, body: Body, losses: &mut Losses) -> Result<Response> {
        let has_lines = format == WireFormat::Ollama;
        let form = ResponseForm { is_stream: true, has_lines, is_reply: true, ..ResponseForm::default() };
        let (body, framing, _) = stream::sniff(body, headers, form.framing(headers)).await;
        if framing == StreamFraming::Whole {
            // Some servers give a whole reply although a stream was asked for.
            return self.whole(format, headers, body, losses).await;
        }
        let writer = ReplyWriter::new(self.client_format(), self.reply_head(format));
        let sent = writer.framing();
        let step = TranslationStep::new(EventTranslator::new(format), writer, self.exchange.clone());
        let body = stream::rewrite(body, &mut headers.clone(), framing, u64::MAX, step, sent)
            .map_err(|e| Error::new(ErrorKind::BadResponse, format!("the upstream's stream cannot be decoded: {e}")))?;
        let mut response = Response::full(StatusCode::OK, media_type(sent), Bytes::new());
        response.head.headers.remove("content-length");
        response.head.headers.append_unchecked(b"Cache-Control", b"no-cache");
        response.body = body;
        Ok(response)
    }

    fn reply_head(&self, upstream: WireFormat) -> ReplyHead {
        let chat = self.parsed.as_ref().and_then(|parsed| parsed.as_ref().ok());
        ReplyHead {
            id: self.flow_id.to_ascii_lowercase(),
            model: self.exchange.model.as_deref().unwrap_or_default().to_owned(),
            created: self.created,
            grows: self.exchange.grows,
            stream_usage: chat.is_some_and(|chat| chat.settings.stream_usage),
            custom_tools: chat.map(|chat| chat.custom_tools()).unwrap_or_default(),
            upstream,
        }
    }
}

fn parse(client: Option<ClientRequest>, body: &[u8]) -> Translated<ChatRequest> {
    let Some(client) = client else { return Err(untranslatable("requests of this API are not translated")) };
    let mut body = interflow_codec::json::parse(body).map_err(|e| unreadable(&e.to_string()))?;
    if client.counts_tokens {
        body = token_count::counted(client.format, body);
    }
    ChatRequest::parse(client.format, body).map_err(untranslatable)
}

const fn media_type(framing: StreamFraming) -> &'static str {
    match framing {
        StreamFraming::EventStream => "application/vnd.amazon.eventstream",
        StreamFraming::Array => "application/json; charset=UTF-8",
        _ => "text/event-stream; charset=utf-8",
    }
}

fn unreadable(why: &str) -> LlmRefusal {
    let message = format!("the body cannot be read, as a translation for the upstream demands: {why}");
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "bad_json", message)
}

fn untranslatable(message: impl Into<String>) -> LlmRefusal {
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "untranslatable_request", message)
}

/// Makes a request of Anthropic's API one of Vertex AI, whose path names the model and whose body the version. Only a
/// count of tokens names its model in the body.
fn claude_on_vertex(body: &mut serde_json::Value, model: Option<&str>) {
    let Some(members) = body.as_object_mut() else { return };
    match model {
        Some(model) => drop(members.insert("model".to_owned(), model.into())),
        None => drop(members.shift_remove("model")),
    }
    members.insert("anthropic_version".to_owned(), VERTEX_VERSION.into());
}

/// The fields of a translated request. Those of the client's SDK are for its own API.
fn headers(client: &RequestHead, format: WireFormat, stream: bool) -> Headers {
    let mut headers = Headers::default();
    for name in ["user-agent", "x-request-id", "traceparent", "tracestate"] {
        if let Some(value) = client.headers.get(name) {
            headers.append_unchecked(name.as_bytes(), value);
        }
    }
    headers.append_unchecked(b"Content-Type", b"application/json");
    let accept: &[u8] = match format {
        WireFormat::Bedrock if stream => b"application/vnd.amazon.eventstream",
        _ if stream => b"text/event-stream, application/x-ndjson, application/json",
        _ => b"application/json",
    };
    headers.append_unchecked(b"Accept", accept);
    if format == WireFormat::Anthropic {
        headers.append_unchecked(b"anthropic-version", ANTHROPIC_VERSION.as_bytes());
    }
    headers
}

/// Fields of the upstream's response that its client's SDK understands: ids, and when to try again.
fn is_passed_on(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with(b"x-ratelimit-")
        || name.starts_with(b"anthropic-ratelimit-")
        || [&b"retry-after"[..], b"retry-after-ms", b"request-id", b"x-request-id", b"x-amzn-requestid"]
            .contains(&name.as_slice())
}

/// A whole body without its content coding.
async fn read(headers: &Headers, body: Body, max: usize) -> Result<Bytes> {
    match whole::read(headers, body, (max, true)).await? {
        Ok((_, plain)) => Ok(plain),
        Err(UnreadResponse::TooLarge(_)) => {
            let message = "the upstream's response is larger than llm.max_body and cannot be translated";
            Err(Error::new(ErrorKind::BadResponse, message))
        }
        Err(UnreadResponse::Undecodable(_, e)) => {
            let why = format!("the upstream's response cannot be decoded: {e}");
            Err(coding::budget_error(&e).unwrap_or_else(|| Error::new(ErrorKind::BadResponse, why)))
        }
    }
}
