//! The text rewriters: one restores originals, one scans responses for personal data and secrets.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::TextRewriter;
use crate::llm_telemetry::ResponseFindings;
use interflow_llm::spans::SpanKind;
use interflow_redact::{
    EscapeLevel, JsonPart, JsonSpan, OutboundMode, PlaceholderRestorer, RedactError, RedactionSession, Redactor,
    Replacement, SharedSession, StreamRedactor, decode_lossy, escape_into, may_hold_json,
};

use super::RedactionService;
use super::effective_policy::EffectivePolicy;
use super::url_and_headers::{MIN_PERSONAL_DIGITS, is_identifier_like};

type Passed = Result<(), StreamAbort>;

/// Restores originals. Keeps, for each text in progress, the beginning of what may be a placeholder.
pub(super) struct RestoreRewriter {
    session: SharedSession,
    /// Whether thoughts may be signed by their provider.
    signed: bool,
    texts: HashMap<u64, PlaceholderRestorer>,
    passing: ResponseFindings,
}

impl RestoreRewriter {
    pub fn new(session: SharedSession, signed: bool, passing: ResponseFindings) -> Self {
        Self { session, signed, texts: HashMap::new(), passing }
    }

    /// Whether a text is never rewritten for the client: one signed by the provider, which the client sends back, or a
    /// number.
    fn is_final(&self, kind: &SpanKind) -> bool {
        *kind == SpanKind::Number || *kind == SpanKind::Signed && self.signed
    }
}

impl TextRewriter for RestoreRewriter {
    fn rewrite_whole(&mut self, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        let session = self.session.lock();
        let vault = session.vault().filter(|_| !self.is_final(kind));
        Ok(vault.and_then(|vault| vault.restore_string(raw, *kind == SpanKind::Json)))
    }

    fn rewrite_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        let session = self.session.lock();
        let Some(vault) = session.vault().filter(|_| !self.is_final(kind)) else { return Ok(None) };
        let restorer =
            self.texts.entry(channel).or_insert_with(|| PlaceholderRestorer::in_string(*kind == SpanKind::Json));
        Ok(restorer.rewrite(vault, raw))
    }

    fn finish(&mut self, channel: u64, out: &mut String) -> Passed {
        let Some(mut restorer) = self.texts.remove(&channel) else { return Ok(()) };
        let session = self.session.lock();
        let Some(vault) = session.vault() else { return Ok(()) };
        // A truncated placeholder is not shown to the client as text; the stream is cut off instead.
        restorer.finish(vault, out).map_err(|e| StreamAbort::new("open_placeholder", e.to_string()))
    }

    fn has_buffered(&self, channel: u64) -> bool {
        self.texts.get(&channel).is_some_and(PlaceholderRestorer::has_buffered)
    }

    fn is_strict(&self) -> bool {
        false
    }

    fn skipped(&mut self) {
        self.passing.mark_unread("restore:unread");
    }

    fn rewrite_plain(&mut self, text: &str) -> Result<Option<String>, StreamAbort> {
        let session = self.session.lock();
        let restored = session.vault().map(|vault| vault.restore(text));
        Ok(restored.filter(|restored| restored != text).map(Cow::into_owned))
    }
}

/// High surrogates at the end of a fragment, by channel. JSON escapes a character outside the BMP as two `\u` escapes
/// (RFC 8259 7), which providers may split between events.
#[derive(Default)]
struct SurrogateHalves(HashMap<u64, String>);

impl SurrogateHalves {
    /// Unescapes a raw fragment, preceded by what was left of the previous one.
    fn join<'r>(&mut self, channel: u64, raw: &'r str) -> Cow<'r, str> {
        let Some(mut before) = self.0.remove(&channel) else { return self.decoded(channel, raw) };
        before.push_str(raw);
        Cow::Owned(self.decoded(channel, &before).into_owned())
    }

    fn decoded<'r>(&mut self, channel: u64, raw: &'r str) -> Cow<'r, str> {
        let (text, rest) = decode_lossy(raw);
        if !rest.is_empty() {
            self.0.insert(channel, rest.to_owned());
        }
        text
    }
}

/// Scans responses for personal data and secrets. Replaces, blocks or only reports them, by `mode`.
pub(super) struct ScanRewriter {
    service: Arc<RedactionService>,
    redactor: Arc<Redactor>,
    mode: OutboundMode,
    /// Whether thoughts may be signed by their provider.
    signed: bool,
    session: RedactionSession,
    texts: HashMap<u64, StreamRedactor>,
    halves: SurrogateHalves,
    found: BTreeMap<String, u64>,
    /// Findings, shared with the flow and merged into it at its end, because the body outlives the stage's call.
    passing: ResponseFindings,
}

impl ScanRewriter {
    pub fn new(
        service: Arc<RedactionService>,
        choice: &EffectivePolicy,
        signed: bool,
        passing: ResponseFindings,
    ) -> Self {
        let session = RedactionSession::one_way().in_context(choice.context.clone());
        let (redactor, mode) = (Arc::clone(&choice.redactor), choice.outbound);
        let (texts, halves, found) = (HashMap::new(), SurrogateHalves::default(), BTreeMap::new());
        Self { service, redactor, mode, signed, session, texts, halves, found, passing }
    }

    /// Counts the findings; with `block`, the first one ends the response.
    pub fn record_findings(&mut self, spans: &[Replacement]) -> Passed {
        for span in spans {
            *self.found.entry(span.type_name.clone()).or_default() += 1;
            self.passing.record_finding(&span.type_name);
        }
        match spans.first() {
            Some(first) if self.mode == OutboundMode::Block => {
                Err(StreamAbort::new("outbound_blocked", format!("the response contains {}", first.type_name)))
            }
            _ => Ok(()),
        }
    }

    /// Text signed by a provider is not changed: the client sends it back, and the provider rejects it if its
    /// signature does not match.
    fn leaves_unchanged(&self, kind: &SpanKind) -> bool {
        self.mode == OutboundMode::Redact && self.signed && *kind == SpanKind::Signed
    }

    /// What was scanned; `None` if it cannot be, and passes unread: flag mode never cuts a response off.
    fn unless_unreadable<T>(&self, scanned: Result<T, RedactError>) -> Result<Option<T>, StreamAbort> {
        match scanned {
            Ok(scanned) => Ok(Some(scanned)),
            Err(_) if self.mode == OutboundMode::Flag => {
                self.passing.mark_unread("redact:unread");
                Ok(None)
            }
            Err(e) => {
                let message = format!("the response could not be inspected: {e}");
                Err(StreamAbort::new("response_unreadable", message))
            }
        }
    }

    fn push(&mut self, channel: u64, form: EscapeLevel, text: Option<&str>, out: &mut String) -> Passed {
        let stream = self.texts.entry(channel).or_insert_with(|| StreamRedactor::new(form, StreamRedactor::WINDOW));
        let mut plain = String::new();
        let begun = Instant::now();
        let spans = match text {
            Some(text) => stream.push(&self.redactor, &mut self.session, text, &mut plain),
            None => stream.finish(&self.redactor, &mut self.session, &mut plain),
        };
        self.passing.add_scan_time(begun.elapsed().as_micros() as u64);
        match self.unless_unreadable(spans)? {
            Some(spans) => self.record_findings(&spans)?,
            None => drop(self.texts.remove(&channel)),
        }
        if self.mode != OutboundMode::Flag {
            escape_into(&plain, out);
        }
        Ok(())
    }
}

impl TextRewriter for ScanRewriter {
    fn rewrite_whole(&mut self, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        if self.leaves_unchanged(kind) {
            return Ok(None);
        }
        // Tool arguments are JSON in a string: values in it are found only if it is parsed.
        let nested = *kind == SpanKind::Json || may_hold_json(raw.as_bytes());
        let part = match kind {
            SpanKind::Name => JsonPart::Name,
            SpanKind::Number => JsonPart::Number,
            _ => JsonPart::Text,
        };
        let span = JsonSpan { part, ..JsonSpan::with_nesting(0..raw.len(), nested, None) };
        let scanned = self.redactor.redact_spans(raw.as_bytes(), [span], &mut self.session);
        let Some(redaction) = self.unless_unreadable(scanned)? else { return Ok(None) };
        self.record_findings(&redaction.spans)?;
        let output = redaction.output.filter(|_| self.mode != OutboundMode::Flag);
        // The original must not be sent in place of a text that cannot be written back.
        output.map(String::from_utf8).transpose().map_err(|_| StreamAbort::not_written())
    }

    fn rewrite_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        if self.leaves_unchanged(kind) {
            return Ok(None);
        }
        let form = if *kind == SpanKind::Json { EscapeLevel::Json } else { EscapeLevel::Plain };
        let text = self.halves.join(channel, raw);
        let mut out = String::new();
        self.push(channel, form, Some(&text), &mut out)?;
        Ok((self.mode != OutboundMode::Flag).then_some(out))
    }

    fn finish(&mut self, channel: u64, out: &mut String) -> Passed {
        if !self.texts.contains_key(&channel) {
            return Ok(());
        }
        self.push(channel, EscapeLevel::Plain, None, out)?;
        self.texts.remove(&channel);
        if let Some(half) = self.halves.0.remove(&channel).filter(|_| self.mode != OutboundMode::Flag) {
            out.push_str(&half);
        }
        Ok(())
    }

    fn has_buffered(&self, channel: u64) -> bool {
        // Flagging forwards every fragment as it came, so nothing of it has to be sent later.
        self.mode != OutboundMode::Flag && self.texts.contains_key(&channel)
    }

    fn is_strict(&self) -> bool {
        self.mode != OutboundMode::Flag
    }

    fn skipped(&mut self) {
        self.passing.mark_unread("redact:unread");
    }

    fn drops(&mut self, field: &str) -> Result<bool, StreamAbort> {
        let (name, value) = field.split_once(':').unwrap_or(("", field));
        let is_counter = value.trim().len() < MIN_PERSONAL_DIGITS && value.trim().bytes().all(|b| b.is_ascii_digit());
        if matches!(name, "" | "event" | "id" | "retry") && (is_counter || is_identifier_like(value.trim())) {
            return Ok(false);
        }
        self.rewrite_plain(field).map(|with| with.is_some())
    }

    fn rewrite_plain(&mut self, text: &str) -> Result<Option<String>, StreamAbort> {
        let scanned = self.redactor.redact_text(text, &mut self.session);
        let Some(redaction) = self.unless_unreadable(scanned)? else { return Ok(None) };
        self.record_findings(&redaction.spans)?;
        Ok(redaction.output.filter(|_| self.mode == OutboundMode::Redact))
    }
}

impl Drop for ScanRewriter {
    fn drop(&mut self) {
        if !self.found.is_empty() {
            let kinds: Vec<&str> = self.found.keys().map(String::as_str).collect();
            match self.mode {
                // Redacted as configured; counters and audit log report it.
                OutboundMode::Redact => tracing::debug!("a response contained {}", kinds.join(", ")),
                _ => tracing::warn!("a response contained {}", kinds.join(", ")),
            }
            self.service.add_counts(interflow_types::Direction::Response, &self.found);
        }
    }
}
