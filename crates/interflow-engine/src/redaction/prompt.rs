//! Requests on their way to a provider: read as a whole, their texts redacted where they stand.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_flow::budget::{HELD, Reservation};
use interflow_flow::{Body, ByteStr, CollectError, Flow, Headers, RequestHead, StatusCode, Verdict};
use interflow_llm::spans::{self, Marked, Media, SpanKind, form};
use interflow_llm::{Exchange, Operation, Refusal};
use interflow_redact::{
    JsonPart, JsonSpan, MediaRule, RedactError, RedactMode, Redacted, SecondOpinion, Session, Stop, UnknownRule, Vault,
    VaultKey, may_hold_json,
};
use interflow_wire::content_coding as coding;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::accounts::Found;

use super::aside::Aside;
use super::choice::{Choice, MissingPolicy, RedactSettings};
use super::edit::{Edit, splice};
use super::{Note, Redaction, SharedSession};

/// Bodies larger than this are worked on beside the worker's thread, which has others to serve.
const LARGE: usize = 128 << 10;

/// What became of a body.
#[derive(Default)]
pub(super) struct Outcome {
    pub output: Option<Vec<u8>>,
    pub found: BTreeMap<String, u64>,
    /// Media that went through or were taken out.
    media: bool,
}

/// The policy of the request's key is not there.
pub(super) fn missing_policy(missing: &MissingPolicy) -> Refusal {
    tracing::error!("{missing}");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "unknown_policy", missing.to_string())
}

/// A refusal with its cause; the status says whose fault it is.
fn refusal(status: StatusCode, class: &'static str, code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(status, class, code, message)
}

/// The memory for held bodies is spent.
fn overloaded(e: &interflow_flow::Error) -> Refusal {
    let mut refusal = refusal(StatusCode::SERVICE_UNAVAILABLE, "capacity", "overloaded", e.message());
    refusal.retry_after = Some(Duration::from_secs(1));
    refusal
}

fn undecodable(e: std::io::Error) -> Refusal {
    match coding::overloaded(&e) {
        Some(e) => overloaded(&e),
        None => bad("unsupported_content_encoding", format!("the body cannot be decoded: {e}")),
    }
}

fn bad(code: &'static str, message: impl Into<String>) -> Refusal {
    refusal(StatusCode::BAD_REQUEST, "invalid_request", code, message)
}

/// A service that was to give a second opinion failed, and the owner wants that to refuse.
pub(super) fn backend_failed(e: &RedactError) -> Refusal {
    tracing::error!("{e}");
    let message = "a service that must look at the request first does not answer as it should";
    refusal(StatusCode::BAD_GATEWAY, "philter_error", "request_failed", message)
}

/// The step of the phase `RequestBody`.
pub(super) async fn redact(
    room: &Arc<Redaction>,
    flow: &mut Flow,
    head: &mut RequestHead,
    mut exchange: Exchange,
    body: Body,
) -> Result<Body, Verdict> {
    let settings = room.settings();
    let choice = match settings.choose(flow, head, &mut exchange) {
        Ok(choice) => Arc::new(choice),
        Err(missing) => return Err(room.refuse(flow, &missing_policy(&missing))),
    };
    if !exchange.others.is_empty() || flow.note::<Exchange>().is_some_and(|e| !e.others.is_empty()) {
        flow.note_mut::<Exchange>().others.clone_from(&exchange.others);
    }
    flow.note_mut::<Note>().choice = Some(Arc::clone(&choice));
    if let Err(refusal) = address(room, &settings, &choice, flow, &exchange, head) {
        return Err(room.refuse(flow, &refusal));
    }
    let outbound = choice.outbound != interflow_redact::OutboundMode::Off;
    if choice.mode == RedactMode::Off || body.is_empty() {
        if outbound {
            plain_answer(head);
        }
        return Ok(body);
    }
    let strict = choice.mode == RedactMode::Redact;
    if !exchange.operation.is_known() || exchange.operation == Operation::Lookup {
        return unknown(room, &settings, flow, strict, body);
    }
    let raw = match body.collect(settings.max_body).await {
        Ok((raw, _)) => raw,
        Err(CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
        Err(CollectError::TooLarge(body)) if !strict => return Ok(body),
        Err(CollectError::TooLarge(_)) => {
            let most = settings.max_body;
            let message = format!("the body is larger than {most} bytes (redact.max_body)");
            let refusal =
                refusal(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "request_body_too_large", message);
            return Err(room.refuse(flow, &refusal));
        }
    };
    room.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if !strict && !is_large(&head.headers, &raw) {
        let (headers, body) = (head.headers.clone(), raw.clone());
        let (settings, picked) = (Arc::clone(&settings), Arc::clone(&choice));
        let look = move || look(settings, picked, &headers, body).ok();
        flow.defer(Aside::begin(Arc::clone(room), choice, raw.len(), look));
        return Ok(raw.into());
    }
    let begun = Instant::now();
    let done = work(room, &settings, &choice, flow, head, &raw, strict).await;
    let (outcome, session) = match done {
        Ok(done) => done,
        Err(refusal) => {
            if strict {
                return Err(room.refuse(flow, &refusal));
            }
            flow.tag("redact:unread");
            return Ok(raw.into());
        }
    };
    note(room, flow, &choice, &outcome, begun.elapsed().as_micros() as u64);
    if !strict {
        return Ok(raw.into());
    }
    let restores = session.lock().vault().is_some_and(|v| !v.is_empty());
    flow.note_mut::<Note>().session = Some(session);
    if restores || outbound {
        plain_answer(head);
    }
    Ok(outcome.output.map_or_else(|| raw.into(), |output| changed(head, output)))
}

/// Looks at a request's URL and header fields.
pub(super) fn address(
    room: &Redaction,
    settings: &RedactSettings,
    choice: &Choice,
    flow: &mut Flow,
    exchange: &Exchange,
    head: &mut RequestHead,
) -> Result<(), Refusal> {
    let mut outcome = Outcome::default();
    let done = super::address::scan(settings, choice, flow, exchange, head, &mut outcome.found);
    if !outcome.found.is_empty() {
        note(room, flow, choice, &outcome, 0);
    }
    done
}

/// Notes what was found in a request, and how long that took.
pub(super) fn note(room: &Redaction, flow: &mut Flow, choice: &Choice, outcome: &Outcome, micros: u64) {
    tell(room, flow, choice, outcome);
    let told = flow.note_mut::<Found>();
    let policy = choice.redactor.policy().name();
    told.policy = if policy.is_empty() { "default" } else { policy }.to_owned();
    for (kind, n) in &outcome.found {
        *told.request.entry(kind.clone()).or_default() += n;
    }
    told.micros += micros;
}

/// Looks at a small body that stays as it is.
fn look(settings: Arc<RedactSettings>, choice: Arc<Choice>, headers: &Headers, raw: Bytes) -> Result<Outcome, Refusal> {
    let plain = coding::decode(headers, &raw, settings.max_body as u64).map_err(undecodable)?;
    let read = Prompt::read(&settings, headers, raw, plain)?;
    let session = one_way(&choice);
    Job { settings, choice, session, read, opinion: SecondOpinion::default() }.run()
}

fn one_way(choice: &Choice) -> SharedSession {
    Arc::new(Mutex::new(Session::one_way().in_context(choice.context.clone())))
}

/// Reads a body, asks for second opinions, and redacts it.
async fn work(
    room: &Redaction,
    settings: &Arc<RedactSettings>,
    choice: &Arc<Choice>,
    flow: &Flow,
    head: &RequestHead,
    raw: &Bytes,
    strict: bool,
) -> Result<(Outcome, SharedSession), Refusal> {
    let large = is_large(&head.headers, raw);
    let plain = coding::decode_held(&head.headers, raw, settings.max_body as u64).await.map_err(undecodable)?;
    let read = {
        let (settings, headers, raw) = (Arc::clone(settings), head.headers.clone(), raw.clone());
        let large = large || plain.as_ref().is_some_and(|plain| plain.len() > LARGE);
        beside(large, move || Prompt::read(&settings, &headers, raw, plain)).await?
    };
    let session = session(room, choice, flow, head, &read, strict);
    let outcome = finish(settings, choice, &session, read, strict).await?;
    Ok((outcome, session))
}

/// Asks for second opinions on a body that was read, and redacts it.
async fn finish(
    settings: &Arc<RedactSettings>,
    choice: &Arc<Choice>,
    session: &SharedSession,
    read: Prompt,
    strict: bool,
) -> Result<Outcome, Refusal> {
    let large = read.body().len() > LARGE;
    let mut job = Job {
        settings: Arc::clone(settings),
        choice: Arc::clone(choice),
        session: Arc::clone(session),
        read,
        opinion: SecondOpinion::default(),
    };
    if let Some(backends) = settings.backends.as_ref().filter(|_| strict) {
        job.opinion = backends.spans(&job.texts()).await.map_err(|e| backend_failed(&e))?;
    }
    beside(large, move || job.run()).await
}

/// One event of a client over a WebSocket: what goes on in its place, and what was found.
pub(super) async fn event(
    settings: &Arc<RedactSettings>,
    choice: &Arc<Choice>,
    session: &SharedSession,
    raw: Bytes,
    strict: bool,
) -> Result<Outcome, Refusal> {
    let shape = Shape::Json(mark(&raw, settings)?);
    let read = Prompt::of(raw, None, shape)?;
    finish(settings, choice, session, read, strict).await
}

/// What tells one client's WebSocket from another's; `first` is what its conversation begins with.
pub(super) fn key_of(room: &Redaction, flow: &Flow, head: &RequestHead, first: &[u8]) -> VaultKey {
    VaultKey::for_conversation(&room.master, &conversation(flow, &head.headers, first))
}

/// Does it here, or, when it takes long, beside the worker's thread.
pub(super) async fn beside<T: Send + 'static>(
    large: bool,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if !large {
        return work();
    }
    let cut = |_| bad("request_failed", "the work on the body was cut short");
    // When the client leaves, this future is dropped, and the work ends with it.
    let stop = Stop::default();
    let _left = stop.on_drop();
    tokio::task::spawn_blocking(move || stop.during(work)).await.map_err(cut).flatten()
}

/// Whether a body is worked on beside the worker's thread. What one with a content coding grows to is not known before.
fn is_large(headers: &Headers, raw: &[u8]) -> bool {
    let most = if coding::is_coded(headers) { LARGE / 32 } else { LARGE };
    raw.len() > most
}

/// What is looked into must come without content coding; most providers obey.
fn plain_answer(head: &mut RequestHead) {
    head.headers.remove("accept-encoding");
    head.headers.append_parsed(b"Accept-Encoding", b"identity");
}

/// A body that is another now, and a head that fits it.
fn changed(head: &mut RequestHead, output: Vec<u8>) -> Body {
    for name in ["content-encoding", "content-md5", "digest", "content-digest", "x-amz-content-sha256"] {
        head.headers.remove(name);
    }
    Body::from(Bytes::from(output))
}

/// A request whose texts' places are not known.
fn unknown(
    room: &Redaction,
    settings: &RedactSettings,
    flow: &mut Flow,
    strict: bool,
    body: Body,
) -> Result<Body, Verdict> {
    if strict && settings.unknown == UnknownRule::Refuse {
        let message = "this request is of no shape that can be redacted for certain; redact.unknown = \"pass\" lets such requests through as they are";
        return Err(room.refuse(flow, &bad("unknown_operation", message)));
    }
    flow.tag("redact:unknown");
    Ok(body)
}

/// Tags and counts what was found.
pub(super) fn tell(room: &Redaction, flow: &mut Flow, choice: &Choice, outcome: &Outcome) {
    if outcome.media {
        flow.tag("redact:media");
    }
    if outcome.found.is_empty() {
        return;
    }
    flow.tag(if choice.mode == RedactMode::Redact { "redacted" } else { "redact:flagged" });
    flow.tag(format!("redact:route:{}", choice.route));
    for kind in outcome.found.keys() {
        flow.tag(format!("found:{kind}"));
    }
    room.count(&outcome.found);
}

/// The session of this request: a conversation's own, when the provider continues it by an id.
fn session(
    room: &Redaction,
    choice: &Choice,
    flow: &Flow,
    head: &RequestHead,
    read: &Prompt,
    strict: bool,
) -> SharedSession {
    if !strict {
        return one_way(choice);
    }
    let body = read.body();
    let (continues, first) = match &read.shape {
        Shape::Json(marked) => (marked.continues.clone(), marked.first_message.clone()),
        Shape::Form(_) => (None, None),
    };
    let id = continues.and_then(|r| std::str::from_utf8(body.get(r)?).ok());
    if let Some(known) = id.and_then(|id| room.kept(&ByteStr::from(id))) {
        return known;
    }
    let first = first.and_then(|r| body.get(r)).unwrap_or_default();
    let key = VaultKey::for_conversation(&room.master, &conversation(flow, &head.headers, first));
    Arc::new(Mutex::new(Session::reversible(vault(room, &key)).in_context(choice.context.clone())))
}

/// A conversation's vault. What stands in fixed prompts has the same placeholders in all of them, so that a provider's
/// prompt cache holds for the next one too.
pub(super) fn vault(room: &Redaction, key: &VaultKey) -> Vault {
    Vault::new(key).with_fixed(&VaultKey::for_installation(&room.master))
}

/// Names by which clients tell their conversations apart.
const SESSION_HEADERS: [&str; 4] = ["x-claude-code-session-id", "session_id", "x-session-id", "x-conversation-id"];

/// What tells a conversation from others: whose it is, and its own name or first message.
fn conversation(flow: &Flow, headers: &Headers, first: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key"] {
        add(headers.get(name).unwrap_or_default());
    }
    add(flow.user.as_deref().unwrap_or_default().as_bytes());
    // Behind virtual keys all clients share the provider's.
    add(flow.tags.iter().find(|t| t.starts_with("key:")).map_or(&b""[..], |t| t.as_bytes()));
    match SESSION_HEADERS.iter().find_map(|name| headers.get(name)) {
        Some(named) => add(named),
        None => add(first),
    }
    hash.finalize().to_vec()
}

/// A request's body, read.
struct Prompt {
    raw: Bytes,
    /// Without its content codings, when it has any.
    plain: Option<Bytes>,
    shape: Shape,
    /// What the work on it takes besides.
    _working: Reservation,
}

enum Shape {
    Json(Marked),
    Form(Vec<form::Part>),
}

/// What a text takes while it is looked at, beside its place: its span in the redactor's words, its findings, its edit.
const WORK_PER_TEXT: usize = 136;

impl Shape {
    /// What the work on a body of this length takes besides the body: a copy with other texts, and notes on each of them.
    fn working_bytes(&self, length: usize) -> u64 {
        let texts = match self {
            Self::Json(marked) => {
                marked.spans.capacity() * size_of::<spans::Span>() + marked.spans.len() * WORK_PER_TEXT
            }
            Self::Form(parts) => parts.len() * (size_of::<form::Part>() + WORK_PER_TEXT),
        };
        (length * 2 + texts) as u64
    }
}

impl Prompt {
    fn read(settings: &RedactSettings, headers: &Headers, raw: Bytes, plain: Option<Bytes>) -> Result<Self, Refusal> {
        let body = plain.as_deref().unwrap_or(&raw);
        let media_type = headers.get_str("content-type").unwrap_or_default();
        let shape = match form::boundary(media_type) {
            Some(boundary) => Shape::Form(form::parts(body, &boundary).map_err(|e| bad("bad_form", e.to_string()))?),
            None => Shape::Json(mark(body, settings)?),
        };
        Self::of(raw, plain, shape)
    }

    /// Reserves what the work on it takes.
    fn of(raw: Bytes, plain: Option<Bytes>, shape: Shape) -> Result<Self, Refusal> {
        let length = plain.as_ref().unwrap_or(&raw).len();
        let _working = HELD.reserve(shape.working_bytes(length)).map_err(|e| overloaded(&e))?;
        Ok(Self { raw, plain, shape, _working })
    }

    fn body(&self) -> &[u8] {
        self.plain.as_deref().unwrap_or(&self.raw)
    }
}

fn mark(body: &[u8], settings: &RedactSettings) -> Result<Marked, Refusal> {
    spans::mark(body, settings.metadata).map_err(|e| match e {
        spans::MarkError::Overloaded(e) => overloaded(&e),
        spans::MarkError::Json(e) => bad("bad_json", format!("the body cannot be read: {e}")),
    })
}

/// The work on one body, which needs nothing of the flow.
struct Job {
    settings: Arc<RedactSettings>,
    choice: Arc<Choice>,
    session: SharedSession,
    read: Prompt,
    opinion: SecondOpinion,
}

impl Job {
    fn run(&self) -> Result<Outcome, Refusal> {
        // Other requests of the conversation may wait for the session: the opinion is this one's only.
        let mut session = self.session.lock();
        session.set_opinion(self.opinion.clone());
        self.work(&mut session)
    }

    /// Every text that is going to be looked at: the same work, by one who only listens.
    fn texts(&self) -> Vec<String> {
        let mut session = Session::listening();
        // What is wrong with the body is told by the work itself.
        let _ = self.work(&mut session);
        session.heard()
    }

    fn work(&self, session: &mut Session) -> Result<Outcome, Refusal> {
        let body = self.read.body();
        let mut work = Work { job: self, session, outcome: Outcome::default() };
        let output = match &self.read.shape {
            Shape::Json(marked) => work.json(body, marked)?,
            Shape::Form(parts) => work.form(body, parts)?,
        };
        let outcome = work.outcome;
        Ok(Outcome { output, ..outcome })
    }
}

struct Work<'a> {
    job: &'a Job,
    session: &'a mut Session,
    outcome: Outcome,
}

impl Work<'_> {
    fn told(&mut self, spans: &[Redacted]) {
        for span in spans {
            *self.outcome.found.entry(span.type_name.clone()).or_default() += 1;
        }
    }

    fn failed(e: RedactError) -> Refusal {
        let client = matches!(e, RedactError::Json { .. } | RedactError::Utf8 { .. });
        let message = format!("the request could not be redacted: {e}");
        if client {
            return bad("bad_json", message);
        }
        refusal(StatusCode::BAD_GATEWAY, "redaction_error", "request_failed", message)
    }

    fn json(&mut self, body: &[u8], marked: &Marked) -> Result<Option<Vec<u8>>, Refusal> {
        let edits = self.media(body, marked)?;
        if edits.is_empty() {
            return self.texts(body, marked);
        }
        let edited = splice(body, &edits);
        let marked = mark(&edited, &self.job.settings)?;
        Ok(self.texts(&edited, &marked)?.or(Some(edited)))
    }

    fn texts(&mut self, body: &[u8], marked: &Marked) -> Result<Option<Vec<u8>>, Refusal> {
        let redactor = &self.job.choice.redactor;
        let redaction = redactor.redact_spans(body, json_spans(body, marked), self.session).map_err(Self::failed)?;
        self.told(&redaction.spans);
        Ok(redaction.output)
    }

    /// What is done with media, and with text files in base64.
    fn media(&mut self, body: &[u8], marked: &Marked) -> Result<Vec<Edit>, Refusal> {
        let mut edits: Vec<Edit> = Vec::new();
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

    /// A medium that must go; `last` is what was taken out before it, which may hold it.
    fn medium(&self, media: &Media, last: Option<&Range<usize>>) -> Result<Option<Edit>, Refusal> {
        match self.job.settings.media(media.kind) {
            MediaRule::Pass => Ok(None),
            MediaRule::Drop if last.is_some_and(|l| media.whole.start < l.end) => Ok(None),
            MediaRule::Drop => Ok(Some((media.whole.clone(), media.stand_in.clone()))),
            MediaRule::Refuse => Err(refused(media.kind.as_str())),
        }
    }

    fn base64(&mut self, text: &[u8]) -> Result<Option<String>, Refusal> {
        let wrong =
            || bad("bad_file", "a text file in the request is not base64 of UTF-8, so that it cannot be redacted");
        let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
        let text = String::from_utf8(bytes).map_err(|_| wrong())?;
        let redaction = self.job.choice.redactor.redact_text(&text, self.session).map_err(Self::failed)?;
        self.told(&redaction.spans);
        Ok(redaction.output.map(|output| STANDARD.encode(output)))
    }

    fn form(&mut self, body: &[u8], parts: &[form::Part]) -> Result<Option<Vec<u8>>, Refusal> {
        let mut edits = Vec::new();
        for part in parts {
            let content = body.get(part.range.clone()).unwrap_or_default();
            let media_type = part.media_type.as_deref().unwrap_or_default();
            let (rule, word) = if media_type.starts_with("audio/") || media_type.starts_with("video/") {
                (Some(self.job.settings.media(spans::MediaKind::Audio)), "audio")
            } else if media_type.starts_with("image/") {
                (Some(self.job.settings.media(spans::MediaKind::Image)), "image")
            } else if part.file.is_some() && std::str::from_utf8(content).is_err() {
                (Some(self.job.settings.media(spans::MediaKind::Document)), "document")
            } else {
                (None, "")
            };
            if let Some(rule) = rule {
                self.outcome.media = true;
                if rule != MediaRule::Pass {
                    return Err(refused(word));
                }
                continue;
            }
            if let Some(with) = self.file(content, part.file.is_some())? {
                edits.push((part.range.clone(), with));
            }
        }
        Ok((!edits.is_empty()).then(|| splice(body, &edits)))
    }

    /// A text file or a field: JSON, lines of JSON, or words.
    fn file(&mut self, content: &[u8], is_file: bool) -> Result<Option<String>, Refusal> {
        let text = std::str::from_utf8(content).map_err(|_| bad("bad_form", "a field of the form is not UTF-8"))?;
        if is_file && text.trim_start().starts_with('{') && text.lines().all(is_json_line) {
            return self.lines(text);
        }
        let redaction = self.job.choice.redactor.redact_text(text, self.session).map_err(Self::failed)?;
        self.told(&redaction.spans);
        Ok(redaction.output)
    }

    fn lines(&mut self, text: &str) -> Result<Option<String>, Refusal> {
        let mut out = String::with_capacity(text.len());
        let mut changed = false;
        for line in text.split_inclusive('\n') {
            let ends = line.len() - line.trim_end().len();
            let (json, end) = line.split_at(line.len() - ends);
            let redacted = match json.as_bytes() {
                [] => None,
                json => self.json(json, &mark(json, &self.job.settings)?)?,
            };
            changed |= redacted.is_some();
            match redacted.map(String::from_utf8) {
                Some(Ok(redacted)) => out.push_str(&redacted),
                _ => out.push_str(json),
            }
            out.push_str(end);
        }
        Ok(changed.then_some(out))
    }
}

fn is_json_line(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('{') && spans::mark(line.as_bytes(), true).is_ok()
}

fn refused(word: &str) -> Refusal {
    let class = "forbidden";
    let message = format!("the request holds an {word} that cannot be looked into; the owner refuses those (redact)");
    refusal(StatusCode::FORBIDDEN, class, "media_refused", message.replace("an document", "a document"))
}

/// The spans in the words of `redact`.
pub(super) fn json_spans<'m>(body: &'m [u8], marked: &'m Marked) -> impl Iterator<Item = JsonSpan> + 'm {
    marked.spans.iter().filter_map(|span| {
        let (nested, part) = match span.kind {
            SpanKind::Json => (true, JsonPart::Text),
            SpanKind::Text => (body.get(span.range.clone()).is_some_and(may_hold_json), JsonPart::Text),
            SpanKind::Name => (false, JsonPart::Name),
            SpanKind::Number => (false, JsonPart::Number),
            // Another byte, and the provider takes it back no more.
            SpanKind::Signed | SpanKind::Base64Text | SpanKind::Media(_) => return None,
        };
        Some(JsonSpan { part, fixed: span.fixed, ..JsonSpan::of(span.range.clone(), nested, span.name.clone()) })
    })
}
