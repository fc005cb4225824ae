//! Redacts requests to providers: buffers the body and rewrites its texts in place.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_llm::spans::{self, MarkedText, MediaSpan, SpanKind, multipart};
use interflow_llm::{LlmCall, LlmRefusal, Operation};
use interflow_redact::{
    AdditionalFindings, JsonPart, JsonSpan, MediaRule, RedactError, RedactMode, RedactionSession, Replacement,
    StopFlag, UnknownRule, decode_lossy, may_hold_json,
};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Body, CollectError, EarlyExit, Flow, Headers, RequestHead, StatusCode};

use crate::llm_telemetry::RedactionFindings;

use super::background_scan::BackgroundScan;
use super::detector_findings;
use super::effective_policy::{EffectivePolicy, MissingPolicy, RedactSettings};
use super::sessions::{SessionOwner, SharedSession, conversation_session, one_way_session};
use super::{RedactionService, RedactionState};
use crate::exchange::response::event_rewriter::{ByteReplacement, splice};

/// Larger bodies are processed off the worker thread, which serves other requests.
const MAX_INLINE_BYTES: usize = 128 << 10;

/// The result of redacting a body; `output` is `None` if it is unchanged.
#[derive(Default)]
pub(super) struct RedactionOutcome {
    pub output: Option<Vec<u8>>,
    pub found: BTreeMap<String, u64>,
    /// Whether there were media, kept or removed.
    pub media: bool,
}

/// The policy that the request's key selects does not exist. Fails closed: no other policy is used in its place.
pub(super) fn missing_policy(missing: &MissingPolicy) -> LlmRefusal {
    tracing::error!("{missing}");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "unknown_policy", missing.to_string())
}

/// A rejection with its cause; the status says whose fault it is.
fn refusal(status: StatusCode, class: &'static str, code: &'static str, message: impl Into<String>) -> LlmRefusal {
    LlmRefusal::new(status, class, code, message)
}

/// The process's memory budget is used up: 503, and worth a retry.
pub(crate) fn overloaded(e: &interflow_types::Error) -> LlmRefusal {
    let mut refusal = refusal(StatusCode::SERVICE_UNAVAILABLE, "capacity", "overloaded", e.message());
    refusal.retry_after = Some(Duration::from_secs(1));
    refusal
}

pub(crate) fn undecodable(e: std::io::Error) -> LlmRefusal {
    match coding::budget_error(&e) {
        Some(e) => overloaded(&e),
        None => bad_request("unsupported_content_encoding", format!("the body cannot be decoded: {e}")),
    }
}

pub(super) fn bad_request(code: &'static str, message: impl Into<String>) -> LlmRefusal {
    refusal(StatusCode::BAD_REQUEST, "invalid_request", code, message)
}

/// The stage's step in phase `RequestBody`: selects the policy, redacts URL and fields, then the body.
pub(super) async fn redact(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    head: &mut RequestHead,
    mut exchange: LlmCall,
    body: Body,
) -> Result<Body, EarlyExit> {
    let settings = service.settings();
    let choice = match settings.effective_policy(flow, head, &mut exchange) {
        Ok(choice) => Arc::new(choice),
        Err(missing) => return Err(service.refuse(flow, &missing_policy(&missing))),
    };
    if !exchange.others.is_empty() || flow.extension::<LlmCall>().is_some_and(|e| !e.others.is_empty()) {
        flow.extension_mut::<LlmCall>().others.clone_from(&exchange.others);
    }
    flow.extension_mut::<RedactionState>().choice = Some(Arc::clone(&choice));
    if let Err(refusal) = redact_url_and_headers(service, &settings, &choice, flow, &exchange, head) {
        return Err(service.refuse(flow, &refusal));
    }
    let outbound = choice.outbound != interflow_redact::OutboundMode::Off;
    if choice.mode == RedactMode::Off || body.is_empty() {
        // Compressed responses can be inspected too, but decoding costs time and memory.
        if outbound {
            request_identity_encoding(head);
        }
        return Ok(body);
    }
    let strict = choice.mode == RedactMode::Redact;
    // Without a known format, texts cannot be told from ids, so nothing can be redacted reliably.
    if !exchange.operation.is_known() || exchange.operation == Operation::Lookup {
        return handle_unknown_shape(service, &settings, flow, strict, body);
    }
    let raw = match body.collect(settings.max_body).await {
        Ok((raw, _)) => raw,
        Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
        Err(CollectError::TooLarge(body)) if !strict => {
            flow.tag("redact:unread");
            return Ok(body);
        }
        Err(CollectError::TooLarge(_)) => {
            let most = settings.max_body;
            let message = format!("the body is larger than {most} bytes (redact.max_body)");
            let refusal =
                refusal(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "request_body_too_large", message);
            return Err(service.refuse(flow, &refusal));
        }
    };
    service.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Flagging cannot change the request, so the scan runs while the request is already on its way.
    if !strict && !is_large_body(&head.headers, &raw) {
        let (headers, body) = (head.headers.clone(), raw.clone());
        let (settings, picked) = (Arc::clone(&settings), Arc::clone(&choice));
        let look = move || scan(settings, picked, &headers, body).ok();
        flow.defer(BackgroundScan::start(Arc::clone(service), choice, raw.len(), look));
        return Ok(raw.into());
    }
    let begun = Instant::now();
    let owner = SessionOwner::of(flow, head);
    let done = run_job(service, &settings, &choice, owner, head, &raw, strict).await;
    let (outcome, session) = match done {
        Ok(done) => done,
        Err(refusal) => {
            if strict {
                return Err(service.refuse(flow, &refusal));
            }
            flow.tag("redact:unread");
            return Ok(raw.into());
        }
    };
    record_outcome(service, flow, &choice, &outcome, begun.elapsed().as_micros() as u64);
    if !strict {
        return Ok(raw.into());
    }
    let restores = session.lock().vault().is_some_and(|v| !v.is_empty());
    let state = flow.extension_mut::<RedactionState>();
    (state.session, state.owner) = (Some(session), Some(owner));
    if restores || outbound {
        request_identity_encoding(head);
    }
    Ok(outcome.output.map_or_else(|| raw.into(), |output| replace_body(head, output)))
}

/// Scans a request's URL and header fields; done before the body, and also if there is none.
pub(super) fn redact_url_and_headers(
    service: &RedactionService,
    settings: &RedactSettings,
    choice: &EffectivePolicy,
    flow: &mut Flow,
    exchange: &LlmCall,
    head: &mut RequestHead,
) -> Result<(), LlmRefusal> {
    let mut outcome = RedactionOutcome::default();
    let done = super::url_and_headers::scan(settings, choice, flow, exchange, head, &mut outcome.found);
    if !outcome.found.is_empty() {
        record_outcome(service, flow, choice, &outcome, 0);
    }
    done
}

/// Records the findings in a request and the time taken, in microseconds. Values are never recorded, only their
/// types.
pub(super) fn record_outcome(
    service: &RedactionService,
    flow: &mut Flow,
    choice: &EffectivePolicy,
    outcome: &RedactionOutcome,
    micros: u64,
) {
    tag_and_count(service, flow, choice, outcome);
    let findings_of_flow = flow.extension_mut::<RedactionFindings>();
    let policy = choice.redactor.policy().name();
    findings_of_flow.policy = if policy.is_empty() { "default" } else { policy }.to_owned();
    for (kind, n) in &outcome.found {
        *findings_of_flow.request.entry(kind.clone()).or_default() += n;
    }
    findings_of_flow.micros += micros;
}

/// Scans a small body without changing it. Runs beside the request, on whichever thread is free.
fn scan(
    settings: Arc<RedactSettings>,
    choice: Arc<EffectivePolicy>,
    headers: &Headers,
    raw: Bytes,
) -> Result<RedactionOutcome, LlmRefusal> {
    let plain = coding::decode(headers, &raw, settings.max_body as u64).map_err(undecodable)?;
    let read = ParsedRequestBody::read(&settings, headers, raw, plain)?;
    let session = one_way_session(&choice);
    RedactionJob { settings, choice, session, read, findings: AdditionalFindings::default() }.run()
}

/// Parses a body, calls external detectors, and redacts it. Decoding and redaction of large bodies run on blocking
/// threads.
async fn run_job(
    service: &RedactionService,
    settings: &Arc<RedactSettings>,
    choice: &Arc<EffectivePolicy>,
    owner: SessionOwner,
    head: &RequestHead,
    raw: &Bytes,
    strict: bool,
) -> Result<(RedactionOutcome, SharedSession), LlmRefusal> {
    let plain = coding::decode_off_thread(&head.headers, raw, settings.max_body as u64).await.map_err(undecodable)?;
    let read = {
        let (settings, headers, raw) = (Arc::clone(settings), head.headers.clone(), raw.clone());
        let size = plain.as_ref().unwrap_or(&raw).len();
        run_off_worker(size, move || ParsedRequestBody::read(&settings, &headers, raw, plain)).await?
    };
    let session = session(service, choice, owner, head, &read, strict);
    let outcome = replace_request(settings, choice, &session, read, strict).await?;
    Ok((outcome, session))
}

/// Calls the detectors that are configured on a parsed body, and redacts it. Detectors get all texts together.
async fn replace_request(
    settings: &Arc<RedactSettings>,
    choice: &Arc<EffectivePolicy>,
    session: &SharedSession,
    read: ParsedRequestBody,
    strict: bool,
) -> Result<RedactionOutcome, LlmRefusal> {
    let size = read.body().len();
    let mut job = RedactionJob {
        settings: Arc::clone(settings),
        choice: Arc::clone(choice),
        session: Arc::clone(session),
        read,
        findings: AdditionalFindings::default(),
    };
    if strict && !settings.detectors.is_empty() {
        job.findings = detector_findings::collect(settings, &job.texts()).await?;
    }
    run_off_worker(size, move || job.run()).await
}

/// Redacts a client's WebSocket event: what is sent in its place, and the findings.
pub(super) async fn redact_event(
    settings: &Arc<RedactSettings>,
    choice: &Arc<EffectivePolicy>,
    session: &SharedSession,
    raw: Bytes,
    strict: bool,
) -> Result<RedactionOutcome, LlmRefusal> {
    let shape = RequestBodyShape::Json(mark_spans(&raw, settings)?);
    let read = ParsedRequestBody::with_reservation(raw, None, shape)?;
    replace_request(settings, choice, session, read, strict).await
}

/// Runs the work on a body of `size` bytes here, or, if it takes long, off the worker thread and within the bound on scans.
pub(super) async fn run_off_worker<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> Result<T, LlmRefusal> + Send + 'static,
) -> Result<T, LlmRefusal> {
    if size <= MAX_INLINE_BYTES {
        return work();
    }
    let capacity = interflow_redact::scan_capacity::reserve(size).await;
    let cut = |_| bad_request("request_failed", "the work on the body was cut short");
    // When the client disconnects, this future is dropped, which stops the work.
    let stop = StopFlag::default();
    let _left = stop.on_drop();
    let scan = move || {
        let _capacity = capacity;
        stop.run(work)
    };
    tokio::task::spawn_blocking(scan).await.map_err(cut).flatten()
}

/// Whether a body is processed off the worker thread. With a content coding, its decoded size is unknown, so a ratio
/// of 32 is assumed.
fn is_large_body(headers: &Headers, raw: &[u8]) -> bool {
    let most = if coding::has_content_coding(headers) { MAX_INLINE_BYTES / 32 } else { MAX_INLINE_BYTES };
    raw.len() > most
}

/// Asks for a response without content coding, so that it can be inspected; most providers comply. The others'
/// responses are decoded.
pub(crate) fn request_identity_encoding(head: &mut RequestHead) {
    head.headers.remove("accept-encoding");
    head.headers.append_unchecked(b"Accept-Encoding", b"identity");
}

/// Returns the new body and removes the fields that describe the old one: coding and digests. The length is set when
/// the request is sent.
pub(crate) fn replace_body(head: &mut RequestHead, output: Vec<u8>) -> Body {
    for name in ["content-encoding", "content-md5", "digest", "content-digest", "x-amz-content-sha256"] {
        head.headers.remove(name);
    }
    Body::from(Bytes::from(output))
}

/// A request whose format is unknown, so that its texts cannot be located. `redact.unknown` decides; the default
/// rejects it if redaction is on.
fn handle_unknown_shape(
    service: &RedactionService,
    settings: &RedactSettings,
    flow: &mut Flow,
    strict: bool,
    body: Body,
) -> Result<Body, EarlyExit> {
    if strict && settings.unknown == UnknownRule::Refuse {
        let message = "this request has no format that can be redacted reliably; redact.unknown = \"pass\" forwards such requests unchanged";
        return Err(service.refuse(flow, &bad_request("unknown_operation", message)));
    }
    flow.tag("redact:unknown");
    Ok(body)
}

/// Tags the flow and counts the findings by type.
pub(super) fn tag_and_count(
    service: &RedactionService,
    flow: &mut Flow,
    choice: &EffectivePolicy,
    outcome: &RedactionOutcome,
) {
    if outcome.media {
        flow.tag("redact:media");
    }
    if outcome.found.is_empty() {
        return;
    }
    if choice.mode == RedactMode::Redact {
        flow.tag("redacted");
    } else {
        flow.tag("redact:flagged");
        // How many findings the prompt still contains.
        flow.tag(format!("unredacted:{}", outcome.found.values().sum::<u64>()));
    }
    flow.tag(format!("redact:route:{}", choice.route));
    for kind in outcome.found.keys() {
        flow.tag(format!("found:{kind}"));
    }
    service.add_counts(interflow_types::Direction::Request, &outcome.found);
}

/// The session of this request, and whose it is: shared with its conversation, if the provider continues it by an id.
fn session(
    service: &RedactionService,
    choice: &EffectivePolicy,
    owner: SessionOwner,
    head: &RequestHead,
    read: &ParsedRequestBody,
    strict: bool,
) -> SharedSession {
    if !strict {
        return one_way_session(choice);
    }
    let (continues, first) = match &read.shape {
        RequestBodyShape::Json(marked) => (marked.continues.clone(), marked.first_message.clone()),
        RequestBodyShape::Form(_) => (None, None),
    };
    let text = |range: Option<Range<usize>>| range.and_then(|r| read.body().get(r));
    conversation_session(service, choice, owner, head, text(continues), text(first).unwrap_or_default())
}

struct ParsedRequestBody {
    raw: Bytes,
    /// The body without its content codings, if it had any.
    plain: Option<Bytes>,
    shape: RequestBodyShape,
    /// Memory reserved for processing it, released when the request is done.
    _working: MemoryReservation,
}

enum RequestBodyShape {
    Json(MarkedText),
    Form(multipart::Form),
}

/// Memory per text during redaction: its span, its findings, its edit.  In bytes.
const WORK_PER_TEXT: usize = 136;

impl RequestBodyShape {
    /// Memory for processing a body of this length besides the body: a rewritten copy, and bookkeeping for each text.
    fn working_bytes(&self, length: usize) -> u64 {
        let texts = match self {
            Self::Json(marked) => {
                marked.spans.capacity() * size_of::<spans::TextSpan>() + marked.spans.len() * WORK_PER_TEXT
            }
            Self::Form(form) => {
                let texts: usize = form.parts.iter().map(|part| part.texts.len()).sum();
                form.parts.len() * (size_of::<multipart::FormPart>() + WORK_PER_TEXT) + texts * WORK_PER_TEXT
            }
        };
        (length * 2 + texts) as u64
    }
}

impl ParsedRequestBody {
    fn read(
        settings: &RedactSettings,
        headers: &Headers,
        raw: Bytes,
        plain: Option<Bytes>,
    ) -> Result<Self, LlmRefusal> {
        let body = plain.as_deref().unwrap_or(&raw);
        let media_type = headers.get_str("content-type").unwrap_or_default();
        let shape = match multipart::boundary(media_type) {
            Some(boundary) => RequestBodyShape::Form(
                multipart::parse(body, &boundary).map_err(|e| bad_request("bad_form", e.to_string()))?,
            ),
            None => RequestBodyShape::Json(mark_spans(body, settings)?),
        };
        Self::with_reservation(raw, plain, shape)
    }

    /// Reserves the memory for processing it, from the budget of the process; fails if the budget is used up.
    fn with_reservation(raw: Bytes, plain: Option<Bytes>, shape: RequestBodyShape) -> Result<Self, LlmRefusal> {
        let length = plain.as_ref().unwrap_or(&raw).len();
        let _working = PROCESS_BUDGET.reserve(shape.working_bytes(length)).map_err(|e| overloaded(&e))?;
        Ok(Self { raw, plain, shape, _working })
    }

    fn body(&self) -> &[u8] {
        self.plain.as_deref().unwrap_or(&self.raw)
    }
}

fn mark_spans(body: &[u8], settings: &RedactSettings) -> Result<MarkedText, LlmRefusal> {
    spans::mark_body(body, settings.metadata).map_err(|e| match e {
        spans::MarkError::Overloaded(e) => overloaded(&e),
        spans::MarkError::Json(e) => bad_request("bad_json", format!("the body cannot be read: {e}")),
    })
}

/// Redacts one body, independently of its flow, so that it can run on another thread.
pub(super) struct RedactionJob {
    pub settings: Arc<RedactSettings>,
    pub choice: Arc<EffectivePolicy>,
    session: SharedSession,
    read: ParsedRequestBody,
    findings: AdditionalFindings,
}

impl RedactionJob {
    fn run(&self) -> Result<RedactionOutcome, LlmRefusal> {
        // Other requests of the conversation may wait for the session: findings of other detectors are for this one only.
        let mut session = self.session.lock();
        self.findings.apply_to(&mut session);
        self.redact_texts(&mut session)
    }

    /// Collects every text that redaction would process, by a dry run: external detectors must see exactly the texts
    /// that their findings apply to.
    fn texts(&self) -> Vec<String> {
        let mut session = RedactionSession::collecting();
        // Errors in the body are reported by the real run.
        let _ = self.redact_texts(&mut session);
        session.collected_texts()
    }

    fn redact_texts(&self, session: &mut RedactionSession) -> Result<RedactionOutcome, LlmRefusal> {
        let body = self.read.body();
        let mut work = RedactionRun { job: self, session, outcome: RedactionOutcome::default() };
        let output = match &self.read.shape {
            RequestBodyShape::Json(marked) => work.json(body, marked)?,
            RequestBodyShape::Form(form) => work.form(body, form)?,
        };
        let outcome = work.outcome;
        Ok(RedactionOutcome { output, ..outcome })
    }
}

pub(super) struct RedactionRun<'a> {
    pub job: &'a RedactionJob,
    pub session: &'a mut RedactionSession,
    pub outcome: RedactionOutcome,
}

impl RedactionRun<'_> {
    pub fn record_findings(&mut self, spans: &[Replacement]) {
        for span in spans {
            *self.outcome.found.entry(span.type_name.clone()).or_default() += 1;
        }
    }

    pub fn redaction_error(e: RedactError) -> LlmRefusal {
        let client = matches!(e, RedactError::Json { .. } | RedactError::Utf8 { .. });
        let message = format!("the request could not be redacted: {e}");
        if client {
            return bad_request("bad_json", message);
        }
        refusal(StatusCode::BAD_GATEWAY, "redaction_error", "request_failed", message)
    }

    fn json(&mut self, body: &[u8], marked: &MarkedText) -> Result<Option<Vec<u8>>, LlmRefusal> {
        let edits = self.media(body, marked)?;
        if edits.is_empty() {
            return self.texts(body, marked);
        }
        // Media go first. Their removal moves all texts, so the positions are determined anew.
        let edited = splice(body, &edits);
        let marked = mark_spans(&edited, &self.job.settings)?;
        Ok(self.texts(&edited, &marked)?.or(Some(edited)))
    }

    fn texts(&mut self, body: &[u8], marked: &MarkedText) -> Result<Option<Vec<u8>>, LlmRefusal> {
        let redactor = &self.job.choice.redactor;
        let redaction =
            redactor.redact_spans(body, json_spans(body, marked), self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        Ok(redaction.output)
    }

    /// Handles media, and text files in base64. Returns edits in the order of the body.
    fn media(&mut self, body: &[u8], marked: &MarkedText) -> Result<Vec<ByteReplacement>, LlmRefusal> {
        let mut edits: Vec<ByteReplacement> = Vec::new();
        for span in &marked.spans {
            match &span.kind {
                SpanKind::Base64Text => {
                    let text = body.get(span.range.clone()).unwrap_or_default();
                    if let Some(with) = self.base64(text)? {
                        edits.push((span.range.clone(), with));
                    }
                }
                SpanKind::Media(media) => {
                    self.outcome.media = true;
                    if let Some(edit) = self.medium(media, edits.last().map(|(r, _)| r))? {
                        edits.push(edit);
                    }
                }
                _ => {}
            }
        }
        Ok(edits)
    }

    /// Replaces a medium that must be removed; `last` is the previously removed range, which may contain it (a
    /// document with an image inside).
    fn medium(&self, media: &MediaSpan, last: Option<&Range<usize>>) -> Result<Option<ByteReplacement>, LlmRefusal> {
        match self.job.settings.media(media.kind) {
            MediaRule::Pass => Ok(None),
            MediaRule::Drop if last.is_some_and(|l| media.whole.start < l.end) => Ok(None),
            MediaRule::Drop => Ok(Some((media.whole.clone(), media.stand_in.clone()))),
            MediaRule::Refuse => Err(blocked_media(media.kind.as_str())),
        }
    }

    fn base64(&mut self, text: &[u8]) -> Result<Option<String>, LlmRefusal> {
        let wrong = || {
            bad_request("bad_file", "a text file in the request is not base64 of UTF-8, so that it cannot be redacted")
        };
        // Fails closed: a file that claims to be text and is not could contain anything.
        // Some encoders of JSON write `/` as `\/`.
        let (text, cut) = decode_lossy(std::str::from_utf8(text).map_err(|_| wrong())?);
        let bytes = STANDARD.decode(text.as_bytes()).ok().filter(|_| cut.is_empty()).ok_or_else(wrong)?;
        let text = String::from_utf8(bytes).map_err(|_| wrong())?;
        let redaction = self.job.choice.redactor.redact_text(&text, self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        Ok(redaction.output.map(|output| STANDARD.encode(output)))
    }

    /// Redacts a text file or a field: JSON, JSON lines (batch input), or plain text.
    pub fn file(&mut self, content: &[u8], is_file: bool) -> Result<Option<String>, LlmRefusal> {
        let text =
            std::str::from_utf8(content).map_err(|_| bad_request("bad_form", "a field of the form is not UTF-8"))?;
        if is_file && text.trim_start().starts_with('{') && text.lines().all(is_json_line) {
            return self.lines(text);
        }
        let redaction = self.job.choice.redactor.redact_text(text, self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        Ok(redaction.output)
    }

    fn lines(&mut self, text: &str) -> Result<Option<String>, LlmRefusal> {
        let mut out = String::with_capacity(text.len());
        let mut changed = false;
        for line in text.split_inclusive('\n') {
            let ends = line.len() - line.trim_end().len();
            let (json, end) = line.split_at(line.len() - ends);
            let redacted = match json.as_bytes() {
                [] => None,
                json => self.json(json, &mark_spans(json, &self.job.settings)?)?,
            };
            changed |= redacted.is_some();
            match redacted.map(String::from_utf8).transpose() {
                Ok(redacted) => out.push_str(redacted.as_deref().unwrap_or(json)),
                // The original must not be sent in its place.
                Err(e) => return Err(Self::redaction_error(RedactError::Utf8 { at: e.utf8_error().valid_up_to() })),
            }
            out.push_str(end);
        }
        Ok(changed.then_some(out))
    }
}

fn is_json_line(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('{') && spans::mark_body(line.as_bytes(), true).is_ok()
}

pub(super) fn blocked_media(word: &str) -> LlmRefusal {
    let class = "forbidden";
    let message =
        format!("the request contains an {word} that cannot be inspected, which the operator does not allow (redact)");
    refusal(StatusCode::FORBIDDEN, class, "media_refused", message.replace("an document", "a document"))
}

/// The spans as types of `interflow-redact`.
pub(super) fn json_spans<'m>(body: &'m [u8], marked: &'m MarkedText) -> impl Iterator<Item = JsonSpan> + 'm {
    marked.spans.iter().filter_map(|span| {
        let (nested, part) = match span.kind {
            SpanKind::Json => (true, JsonPart::Text),
            SpanKind::Text => (body.get(span.range.clone()).is_some_and(may_hold_json), JsonPart::Text),
            SpanKind::Name => (false, JsonPart::Name),
            SpanKind::Number => (false, JsonPart::Number),
            // The provider rejects them when they change.
            SpanKind::Signed | SpanKind::Base64Text | SpanKind::Media(_) => return None,
        };
        Some(JsonSpan {
            part,
            fixed: span.fixed,
            ..JsonSpan::with_nesting(span.range.clone(), nested, span.name.clone())
        })
    })
}
