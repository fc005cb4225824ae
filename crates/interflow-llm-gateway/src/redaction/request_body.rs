//! Redacts requests to providers: buffers the body and rewrites its texts in place.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_llm::spans::{MarkedText, MediaSpan, SpanKind};
use interflow_llm::{LlmCall, LlmRefusal, Operation};
use interflow_redact::{
    AdditionalDetectors, JsonPart, JsonSpan, MediaRule, RedactError, RedactMode, RedactionSession, Replacement,
    SharedSession, UnknownRule, may_hold_json,
};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Body, EarlyExit, Flow, Headers, Method, RequestHead, StatusCode};

use crate::exchange::background::Background;
use crate::exchange::{
    self, BodyContent, BodyShape, MediumText, Pass, ReadError, RequestBody, bad_request, bytes_of_file, mark_json,
    off_worker, overloaded, request_identity_encoding, text_of_medium, utf8_text,
};
use crate::gateway::response_in_path;
use crate::llm_telemetry::RedactionFindings;

use super::effective_policy::{EffectivePolicy, MissingPolicy, RedactSettings};
use super::sessions::{SessionOwner, conversation_session, one_way_session};
use super::{RedactionService, RedactionState, upload};
use crate::exchange::response::event_rewriter::{ByteReplacement, splice};

/// Larger bodies that are only flagged are scanned before they are sent, within the bound on scans.
const MAX_BACKGROUND_BYTES: usize = 128 << 10;

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
    LlmRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "unknown_policy", missing.to_string())
}

/// A detector failed, and redaction is configured to fail closed. The client is not told which one.
pub(super) fn detector_failed(e: &RedactError) -> LlmRefusal {
    tracing::error!("{e}");
    let message = "a detector of redaction is unavailable; the request was not sent";
    LlmRefusal::new(StatusCode::BAD_GATEWAY, "redaction_error", "request_failed", message)
}

/// The pass over a request: selects the policy, redacts URL and fields, then the body.
pub(crate) async fn redact(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    head: &mut RequestHead,
    exchange: &mut LlmCall,
    body: Body,
) -> Result<Body, EarlyExit> {
    let settings = service.settings();
    let choice = settings.effective_policy(flow, head, exchange);
    let choice = Arc::new(choice.map_err(|missing| service.refuse(flow, &missing_policy(&missing)))?);
    if !exchange.others.is_empty() || flow.extension::<LlmCall>().is_some_and(|e| !e.others.is_empty()) {
        flow.extension_mut::<LlmCall>().others.clone_from(&exchange.others);
    }
    flow.extension_mut::<RedactionState>().choice = Some(Arc::clone(&choice));
    redact_url_and_headers(service, &settings, &choice, flow, exchange, head)
        .map_err(|refusal| service.refuse(flow, &refusal))?;
    let outbound = choice.outbound != interflow_redact::OutboundMode::Off;
    let is_lookup = exchange.operation == Operation::Lookup;
    // What cancels a response or a batch has an empty body, or none: any text in it is read.
    let is_cancel = is_lookup && head.method == Method::POST;
    if (body.is_empty() && is_lookup || is_cancel) && choice.mode == RedactMode::Redact {
        resume_session(service, flow, head);
    }
    if choice.mode == RedactMode::Off || body.is_empty() {
        // Compressed responses can be inspected too, but decoding costs time and memory.
        if outbound {
            request_identity_encoding(head);
        }
        return Ok(body);
    }
    let strict = choice.mode == RedactMode::Redact;
    // Without a known format, texts cannot be told from ids, so nothing can be redacted reliably.
    let is_unknown = !exchange.operation.is_known() || is_lookup;
    if is_unknown && !is_cancel && settings.unknown != UnknownRule::Scan {
        if strict && settings.unknown == UnknownRule::Refuse {
            let message = "this request has no format that can be redacted reliably; redact.unknown = \"scan\" takes all of such requests for text, and \"pass\" forwards them unchanged";
            return Err(service.refuse(flow, &bad_request("unknown_operation", message)));
        }
        flow.tag("redact:unknown");
        return Ok(body);
    }
    let is_upload = upload::is_upload(exchange.provider, head);
    if is_upload && strict {
        // The text of the file that is announced is going to change.
        head.headers.remove("x-goog-upload-header-content-length");
    }
    let is_upload = is_upload && exchange::is_upload(&head.headers);
    let is_unknown = is_unknown || is_upload;
    let max_body = settings.max_body;
    let pass = Pass { name: "redact", section: "redact", max_body, is_strict: strict };
    let raw = match pass.collect(flow, &head.headers, body, |flow, refusal| service.refuse(flow, refusal)).await? {
        Ok(raw) => raw,
        Err(body) => return Ok(body),
    };
    service.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Flagging cannot change the request, so the scan runs while the request is already on its way.
    if !strict && !is_large_body(&head.headers, &raw) {
        let request = exchange::current(flow, &head.headers, &raw).ok_or_else(|| (head.headers.clone(), raw.clone()));
        let (settings, picked) = (Arc::clone(&settings), Arc::clone(&choice));
        let look = move || {
            let begun = Instant::now();
            let outcome = scan(settings, picked, request, is_unknown).ok()?;
            Some((outcome, begun.elapsed().as_micros() as u64))
        };
        let service = Arc::clone(service);
        let record = move |flow: &mut Flow, scanned: Option<Option<_>>| match scanned.flatten().flatten() {
            Some((outcome, micros)) => record_outcome(&service, flow, &choice, &outcome, micros),
            None => flow.tag("redact:unread"),
        };
        flow.defer(Background::start(off_worker(raw.len(), look), true, record));
        return Ok(raw.into());
    }
    let begun = Instant::now();
    let owner = SessionOwner::of(flow, head);
    let done = match exchange::request_body(flow, &head.headers, &raw, max_body).await {
        Ok(request) => match upload::check_piece(head, is_upload, request.plain()) {
            Ok(()) => run_job(service, &settings, &choice, owner, head, request, (strict, is_unknown)).await,
            Err(refusal) => Err(refusal),
        },
        Err(e) => Err(e.into()),
    };
    let (outcome, session) = match done {
        Ok(done) => done,
        Err(refusal) => {
            if strict {
                return Err(service.refuse(flow, &refusal));
            }
            pass.tag_unread(flow);
            return Ok(raw.into());
        }
    };
    record_outcome(service, flow, &choice, &outcome, begun.elapsed().as_micros() as u64);
    if !strict {
        return Ok(raw.into());
    }
    let restores = session.lock().vault().is_some_and(|v| !v.is_empty());
    let state = flow.extension_mut::<RedactionState>();
    if !is_cancel || state.session.is_none() {
        (state.session, state.owner) = (Some(session), Some(owner));
    }
    if restores || outbound {
        request_identity_encoding(head);
    }
    let Some(output) = outcome.output else { return Ok(raw.into()) };
    exchange::replace(flow, head, output).map_err(|refusal| service.refuse(flow, &refusal))
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
    if outcome.media {
        flow.tag("redact:media");
    }
    if !outcome.found.is_empty() {
        if choice.mode == RedactMode::Redact {
            flow.tag("redacted");
        } else {
            flow.tag("redact:flagged");
            // How many findings the prompt still contains.
            flow.tag(format!("unredacted:{}", outcome.found.values().sum::<u64>()));
        }
        flow.tag(format!("redact:route:{}", choice.route));
        outcome.found.keys().for_each(|kind| flow.tag(format!("found:{kind}")));
        service.add_counts(interflow_types::Direction::Request, &outcome.found);
    }
    let findings_of_flow = flow.extension_mut::<RedactionFindings>();
    let policy = choice.redactor.policy().name();
    findings_of_flow.policy = if policy.is_empty() { "default" } else { policy }.to_owned();
    for (kind, n) in &outcome.found {
        *findings_of_flow.request.entry(kind.clone()).or_default() += n;
    }
    findings_of_flow.micros += micros;
}

/// Scans a small body without changing it. Runs beside the request, on whichever thread is free. A body that no stage has
/// decoded comes with its fields.
fn scan(
    settings: Arc<RedactSettings>,
    choice: Arc<EffectivePolicy>,
    request: Result<Arc<RequestBody>, (Headers, Bytes)>,
    is_unknown: bool,
) -> Result<RedactionOutcome, LlmRefusal> {
    let max = settings.max_body;
    let request = request.map_or_else(
        |(headers, raw)| RequestBody::decode_now(&headers, &raw, max).map(Arc::new),
        |request| request.within(max),
    )?;
    let content = content_now(&settings, &request, is_unknown)?;
    let session = one_way_session(&choice);
    RedactionJob::new(settings, choice, request, content)?.redact_texts(&mut session.lock())
}

/// Parses a body, calls external detectors, and redacts it.
async fn run_job(
    service: &RedactionService,
    settings: &Arc<RedactSettings>,
    choice: &Arc<EffectivePolicy>,
    owner: SessionOwner,
    head: &RequestHead,
    request: Arc<RequestBody>,
    (strict, is_unknown): (bool, bool),
) -> Result<(RedactionOutcome, SharedSession), LlmRefusal> {
    let content = match is_unknown {
        true => request.read(RequestBody::everything).await?,
        false => request.content(settings.metadata).await?,
    };
    let session = if strict {
        let (continues, first) = match &content.shape {
            BodyShape::Json(marked) => (marked.continues.clone(), marked.first_message.clone()),
            BodyShape::Form(_) => (None, None),
        };
        let text = |range: Option<Range<usize>>| range.and_then(|r| request.plain().get(r));
        conversation_session(service, choice, owner, head, text(continues), text(first).unwrap_or_default())
    } else {
        one_way_session(choice)
    };
    let job = RedactionJob::new(Arc::clone(settings), Arc::clone(choice), request, content)?;
    let outcome = job.run_with_detectors(&session, strict).await?;
    Ok((outcome, session))
}

/// The positions of a body's texts, on this thread.
fn content_now(settings: &RedactSettings, request: &RequestBody, all: bool) -> Result<Arc<BodyContent>, ReadError> {
    if all { request.everything() } else { request.content_now(settings.metadata) }
}

/// Redacts a client's WebSocket event: what is sent in its place, and the findings.
pub(super) async fn redact_event(
    settings: &Arc<RedactSettings>,
    choice: &Arc<EffectivePolicy>,
    session: &SharedSession,
    raw: Bytes,
    (strict, is_unknown): (bool, bool),
) -> Result<RedactionOutcome, LlmRefusal> {
    let request = Arc::new(RequestBody::plain_text(&Headers::new(), raw));
    let content = content_now(settings, &request, is_unknown)?;
    let job = RedactionJob::new(Arc::clone(settings), Arc::clone(choice), request, content)?;
    job.run_with_detectors(session, strict).await
}

/// Whether a body is processed off the worker thread. With a content coding, its decoded size is unknown, so a ratio
/// of 32 is assumed.
fn is_large_body(headers: &Headers, raw: &[u8]) -> bool {
    let ratio = if coding::has_content_coding(headers) { 32 } else { 1 };
    raw.len() > MAX_BACKGROUND_BYTES / ratio
}

/// The session of a response that is asked for by its id: one that the provider made in the background.
fn resume_session(service: &RedactionService, flow: &mut Flow, head: &mut RequestHead) {
    let id = response_in_path(&head.url.path);
    let owner = SessionOwner::of(flow, head);
    let Some(session) = id.and_then(|id| service.kept.get(owner, &id)) else { return };
    let state = flow.extension_mut::<RedactionState>();
    (state.session, state.owner) = (Some(session), Some(owner));
    request_identity_encoding(head);
}

/// Memory per text during redaction: its findings, its edit. In bytes.
const WORK_PER_TEXT: usize = 136;

/// Memory for redacting a body of this length besides the body: a rewritten copy, and bookkeeping for each text.
fn working_bytes(length: usize, content: &BodyContent) -> u64 {
    let texts = match &content.shape {
        BodyShape::Json(marked) => marked.spans.len(),
        BodyShape::Form(form) => form.parts.iter().map(|part| part.texts.len() + 1).sum(),
    };
    (length * 2 + texts * WORK_PER_TEXT) as u64
}

/// Redacts one body, independently of its flow, so that it can run on another thread.
pub(super) struct RedactionJob {
    pub settings: Arc<RedactSettings>,
    pub choice: Arc<EffectivePolicy>,
    request: Arc<RequestBody>,
    content: Arc<BodyContent>,
    /// Memory reserved for it, released when the request is done.
    _working: MemoryReservation,
}

impl RedactionJob {
    /// # Errors
    /// The memory budget is exhausted.
    fn new(
        settings: Arc<RedactSettings>,
        choice: Arc<EffectivePolicy>,
        request: Arc<RequestBody>,
        content: Arc<BodyContent>,
    ) -> Result<Self, LlmRefusal> {
        let working = working_bytes(request.plain().len(), &content);
        let _working = PROCESS_BUDGET.reserve(working).map_err(|e| overloaded(&e))?;
        Ok(Self { settings, choice, request, content, _working })
    }

    /// Calls the detectors that are configured, and redacts.
    async fn run_with_detectors(self, session: &SharedSession, strict: bool) -> Result<RedactionOutcome, LlmRefusal> {
        let detectors = if strict { self.settings.detectors.clone() } else { AdditionalDetectors::default() };
        let size = self.request.plain().len();
        let done = detectors.redact(size, session, move |session| self.redact_texts(session)).await;
        let cut = || bad_request("request_failed", "the work on the body was cut short");
        done.map_err(|e| detector_failed(&e))?.ok_or_else(cut)?
    }

    fn redact_texts(&self, session: &mut RedactionSession) -> Result<RedactionOutcome, LlmRefusal> {
        let body = self.request.plain();
        let mut work = RedactionRun { job: self, session, outcome: RedactionOutcome::default() };
        let output = match &self.content.shape {
            BodyShape::Json(marked) => work.json(body, marked)?,
            BodyShape::Form(form) => work.form(body, form)?,
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
        LlmRefusal::new(StatusCode::BAD_GATEWAY, "redaction_error", "request_failed", message)
    }

    fn json(&mut self, body: &[u8], marked: &MarkedText) -> Result<Option<Vec<u8>>, LlmRefusal> {
        let edits = self.media(body, marked)?;
        if edits.is_empty() {
            return self.texts(body, marked);
        }
        // Media go first. Their removal moves all texts, so the positions are determined anew.
        let edited = splice(body, &edits);
        let marked = mark_json(&edited, self.job.settings.metadata)?;
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
                    let is_kept = self.job.settings.media(media.kind) == MediaRule::Pass
                        && edits.last().is_none_or(|(removed, _)| removed.end <= span.range.start);
                    if is_kept && let Some(text) = body.get(span.range.clone()).and_then(text_of_medium) {
                        let with = self.medium_as_text(&text)?.map(|output| STANDARD.encode(output));
                        edits.extend(with.map(|with| (span.range.clone(), with)));
                        continue;
                    }
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
        let bytes = bytes_of_file(text).ok_or_else(wrong)?;
        Ok(self.text(utf8_text(&bytes).ok_or_else(wrong)?)?.map(|output| STANDARD.encode(output)))
    }

    /// What stands in the place of a text; `None` if nothing was found.
    fn text(&mut self, text: &str) -> Result<Option<String>, LlmRefusal> {
        let redaction = self.job.choice.redactor.redact_text(text, self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        Ok(redaction.output)
    }

    /// What stands in the place of a medium that is a text, in UTF-8.
    pub fn medium_as_text(&mut self, medium: &MediumText) -> Result<Option<String>, LlmRefusal> {
        let output = self.text(&medium.text)?;
        if output.is_some() && medium.is_compressed && self.job.choice.mode == RedactMode::Redact {
            let message = "a compressed file in the request has values that must be redacted: send it uncompressed";
            return Err(bad_request("bad_file", message));
        }
        Ok(output)
    }

    /// Redacts a text file or a field: JSON, JSON lines (batch input), or plain text.
    pub fn file(&mut self, content: &[u8], is_file: bool) -> Result<Option<String>, LlmRefusal> {
        let text = utf8_text(content).ok_or_else(|| match is_file {
            true => bad_request("bad_file", "a text file in the form is not UTF-8, so that it cannot be redacted"),
            false => bad_request("bad_form", "a field of the form, or the body, is not text in UTF-8"),
        })?;
        if is_file && text.trim_start().starts_with('{') && text.lines().all(is_json_line) {
            return self.lines(text);
        }
        self.text(text)
    }

    fn lines(&mut self, text: &str) -> Result<Option<String>, LlmRefusal> {
        let mut out = String::with_capacity(text.len());
        let mut changed = false;
        for line in text.split_inclusive('\n') {
            let ends = line.len() - line.trim_end().len();
            let (json, end) = line.split_at(line.len() - ends);
            let redacted = match json.as_bytes() {
                [] => None,
                json => self.json(json, &mark_json(json, self.job.settings.metadata)?)?,
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
    line.trim().is_empty() || line.trim_start().starts_with('{') && mark_json(line.as_bytes(), true).is_ok()
}

pub(super) fn blocked_media(word: &str) -> LlmRefusal {
    let class = "forbidden";
    let message =
        format!("the request contains an {word} that cannot be inspected, which the operator does not allow (redact)");
    LlmRefusal::new(StatusCode::FORBIDDEN, class, "media_refused", message.replace("an document", "a document"))
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
        let nesting = JsonSpan::with_nesting(span.range.clone(), nested, span.name.clone());
        Some(JsonSpan { part, fixed: span.fixed, ..nesting })
    })
}
