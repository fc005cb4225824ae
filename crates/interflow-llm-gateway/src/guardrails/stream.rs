//! Guardrails on streamed responses: text rewriters that collect texts, replace parts of them, or find matches in
//! fragments while they pass.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use interflow_llm::GuardrailAction;
use interflow_llm::spans::{SpanKind, TextPlace, TextSpan};
use interflow_redact::{NormalizedText, escaped};
use interflow_types::Direction;
use interflow_types::budget::MemoryReservation;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::GuardrailService;
use super::check::Finding;
use super::escapes::{decode, open_escape, raw_range};
use super::evaluate::blocked_refusal;
use super::kinds::matcher::{MatcherCaches, TextMatcher};
use super::record::{GuardrailRecord, GuardrailResult};
use super::settings::Guard;
use super::texts::{GuardText, TextEdit, merge_edits, replaced, streamed_text, text_of_span};
use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::{TextRewriter, splice};

/// Bytes before the next fragment that look-behind may see.
const MAX_CONTEXT: usize = 64;

/// How many times longer a match may be written than it reads, with invisible characters in it, for example.
const DISGUISE_FACTOR: usize = 8;

/// The complete texts of a stream, in the order in which they began.
#[derive(Clone, Default)]
pub(super) struct StreamedTexts(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    texts: Vec<CollectedText>,
    /// Index of a channel's text.
    channels: HashMap<u64, usize>,
}

struct CollectedText {
    text: String,
    place: TextPlace,
    is_json: bool,
    is_signed: bool,
    /// An incomplete escape at the end of the last fragment.
    rest: String,
    is_fragmented: bool,
}

impl CollectedText {
    fn new(kind: &SpanKind, place: TextPlace, is_fragmented: bool) -> Self {
        let (is_json, is_signed) = (*kind == SpanKind::Json, *kind == SpanKind::Signed);
        Self { text: String::new(), place, is_json, is_signed, rest: String::new(), is_fragmented }
    }
}

/// Streams are of the model: a fragment without a place is its reply.
fn place_of(span: Option<&(SpanKind, TextPlace)>) -> TextPlace {
    match span {
        Some((SpanKind::Json, _)) => TextPlace::ToolCall,
        Some((SpanKind::Signed, _)) => TextPlace::Thinking,
        Some((_, TextPlace::Unknown)) | None => TextPlace::Assistant,
        Some((_, place)) => *place,
    }
}

impl Collected {
    fn add_whole(&mut self, raw: &str, kind: &SpanKind, place: TextPlace) {
        self.texts.push(CollectedText { text: decode(raw).into_owned(), ..CollectedText::new(kind, place, false) });
    }

    fn add_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind, place: TextPlace) {
        let next = self.texts.len();
        let index = *self.channels.entry(channel).or_insert(next);
        if index == next {
            self.texts.push(CollectedText::new(kind, place, true));
        }
        if let Some(open) = self.texts.get_mut(index) {
            let joined = std::mem::take(&mut open.rest) + raw;
            let (now, later) = joined.split_at(joined.len() - open_escape(&joined));
            open.text.push_str(&decode(now));
            later.clone_into(&mut open.rest);
        }
    }

    fn end(&mut self, channel: u64) {
        self.channels.remove(&channel);
    }

    /// Events at the end repeat what came in fragments: such texts are dropped where all of it is judged.
    fn into_texts(self) -> Vec<GuardText> {
        let has_fragments = self.texts.iter().any(|t| t.is_fragmented);
        let place = |t: &CollectedText| match (t.place, t.is_fragmented || !has_fragments) {
            (TextPlace::Assistant, false) => TextPlace::Unknown,
            (place, _) => place,
        };
        let text = |t: CollectedText| streamed_text(&t.text, place(&t), t.is_json, t.is_signed);
        self.texts.into_iter().map(text).collect()
    }
}

/// The texts of a stream at its end, with the memory that they take.
pub(super) type CollectedTexts = (Vec<GuardText>, MemoryReservation);

impl StreamedTexts {
    pub fn take(&self) -> Vec<GuardText> {
        std::mem::take(&mut *self.0.lock()).into_texts()
    }
}

/// Collects the texts of a stream, which it does not change.
pub(super) struct CollectRewriter {
    into: StreamedTexts,
    next: Option<(SpanKind, TextPlace)>,
}

impl CollectRewriter {
    pub fn new(into: StreamedTexts) -> Self {
        Self { into, next: None }
    }
}

impl TextRewriter for CollectRewriter {
    fn rewrite_whole(&mut self, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        self.into.0.lock().add_whole(raw, kind, place_of(self.next.as_ref()));
        Ok(None)
    }

    fn rewrite_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        self.into.0.lock().add_piece(channel, raw, kind, place_of(self.next.as_ref()));
        Ok(None)
    }

    fn finish(&mut self, channel: u64, _out: &mut String) -> Result<(), StreamAbort> {
        self.into.0.lock().end(channel);
        Ok(())
    }

    fn has_buffered(&self, _channel: u64) -> bool {
        // Asked to be told of the end of each text, whose channel a later one may use again.
        true
    }

    fn next_span(&mut self, span: &TextSpan) {
        self.next = Some((span.kind.clone(), span.place));
    }
}

/// Replaces parts of the texts that [`CollectRewriter`] collected from the same stream.
pub(super) struct EditRewriter {
    edits: BTreeMap<usize, Vec<TextEdit>>,
    /// How many texts began.
    begun: usize,
    channels: HashMap<u64, EditedText>,
}

struct EditedText {
    index: usize,
    /// The length of what came of the decoded text.
    at: usize,
    rest: String,
    is_json: bool,
}

impl EditRewriter {
    pub fn new(edits: Vec<TextEdit>) -> Self {
        let mut by_text: BTreeMap<usize, Vec<TextEdit>> = BTreeMap::new();
        for edit in merge_edits(edits) {
            by_text.entry(edit.text).or_default().push(edit);
        }
        Self { edits: by_text, begun: 0, channels: HashMap::new() }
    }

    fn begin(&mut self) -> usize {
        self.begun += 1;
        self.begun - 1
    }
}

impl TextRewriter for EditRewriter {
    fn rewrite_whole(&mut self, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        let index = self.begin();
        let Some(edits) = self.edits.get(&index) else { return Ok(None) };
        let is_json = *kind == SpanKind::Json;
        let edits: Vec<_> = edits.iter().map(|e| (e.range.clone(), e.with.clone())).collect();
        Ok(Some(edit_raw(raw, is_json, &edits)))
    }

    fn rewrite_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        if !self.channels.contains_key(&channel) {
            let (index, is_json) = (self.begin(), *kind == SpanKind::Json);
            self.channels.insert(channel, EditedText { index, at: 0, rest: String::new(), is_json });
        }
        let Some(open) = self.channels.get_mut(&channel) else { return Ok(None) };
        let Some(edits) = self.edits.get(&open.index) else { return Ok(None) };
        let mut joined = std::mem::take(&mut open.rest) + raw;
        open.rest = joined.split_off(joined.len() - open_escape(&joined));
        if open.is_json {
            // An escape of the JSON inside may be open too.
            let inner = decode(&joined);
            let open_at = inner.len() - open_escape(&inner);
            if open_at < inner.len() {
                let rest = joined.split_off(raw_range(&joined, &(open_at..inner.len())).start);
                open.rest.insert_str(0, &rest);
            }
        }
        let level = decode(&joined);
        let length = if open.is_json { decode(&level).len() } else { level.len() };
        let here = open.at..open.at + length;
        open.at = here.end;
        // An edit is written where it begins; its other fragments lose their part.
        let parts = edits.iter().filter(|e| e.range.start < here.end && e.range.end > here.start);
        let parts: Vec<(Range<usize>, String)> = parts
            .map(|e| {
                let with = if e.range.start >= here.start { e.with.clone() } else { String::new() };
                (e.range.start.max(here.start) - here.start..e.range.end.min(here.end) - here.start, with)
            })
            .collect();
        let out = if parts.is_empty() { joined } else { edit_raw(&joined, open.is_json, &parts) };
        Ok((out != raw).then_some(out))
    }

    fn finish(&mut self, channel: u64, out: &mut String) -> Result<(), StreamAbort> {
        if let Some(open) = self.channels.remove(&channel) {
            out.push_str(&open.rest);
        }
        Ok(())
    }

    fn has_buffered(&self, channel: u64) -> bool {
        self.channels.contains_key(&channel)
    }
}

/// Replaces parts of the decoded form of a raw text.
fn edit_raw(raw: &str, is_json: bool, edits: &[(Range<usize>, String)]) -> String {
    let level = decode(raw);
    let edits: Vec<(Range<usize>, String)> = edits
        .iter()
        .map(|(range, with)| match is_json {
            true => (raw_range(raw, &raw_range(&level, range)), escaped(&escaped(with))),
            false => (raw_range(raw, range), escaped(with)),
        })
        .collect();
    replaced(raw, &edits)
}

/// Finds matches in fragments as they pass. Holds back what may be part of a match where one is masked or blocks.
pub(super) struct MatchRewriter {
    service: Arc<GuardrailService>,
    guards: Vec<MatchingGuard>,
    record: GuardrailRecord,
    /// Where the texts go at the end, for guardrails that need the whole and only flag.
    collector: Option<oneshot::Sender<CollectedTexts>>,
    collected: StreamedTexts,
    collected_bytes: usize,
    /// Their memory.
    held: MemoryReservation,
    is_full: bool,
    max_body: usize,
    texts: HashMap<u64, PassingText>,
    next: Option<(SpanKind, TextPlace)>,
    strict: bool,
    /// The longest window of the guardrails.
    window: usize,
}

struct MatchingGuard {
    guard: Arc<Guard>,
    caches: MatcherCaches,
}

/// A text of which the end may be held back.
struct PassingText {
    /// What was sent of it last, up to [`MAX_CONTEXT`] bytes, and what is held back; decoded once.
    text: String,
    /// Where what is held back begins.
    held: usize,
    rest: String,
    is_json: bool,
    /// What a provider signed cannot be changed; it is still searched.
    is_signed: bool,
    place: TextPlace,
}

impl MatchRewriter {
    pub fn new(
        service: Arc<GuardrailService>,
        guards: Vec<Arc<Guard>>,
        record: GuardrailRecord,
        collector: Option<oneshot::Sender<CollectedTexts>>,
        max_body: usize,
    ) -> Self {
        let strict = guards.iter().any(|g| g.is_strict());
        let with_caches = |guard: Arc<Guard>| {
            let caches = guard.check.matcher()?.caches();
            Some(MatchingGuard { guard, caches })
        };
        let window = guards.iter().filter_map(|g| g.check.matcher()).map(TextMatcher::window).max().unwrap_or(0);
        let guards = guards.into_iter().filter_map(with_caches).collect();
        Self {
            service,
            guards,
            record,
            collector,
            collected: StreamedTexts::default(),
            collected_bytes: 0,
            held: MemoryReservation::default(),
            is_full: false,
            max_body,
            texts: HashMap::new(),
            next: None,
            strict,
            window,
        }
    }

    /// Whether there is room for more text to be checked at the end. What there is none for passes unread.
    fn collects(&mut self, raw: &str) -> bool {
        if self.collector.is_none() || self.is_full {
            return false;
        }
        self.collected_bytes += raw.len();
        self.is_full = self.collected_bytes > self.max_body || self.held.resize(self.collected_bytes).is_err();
        if self.is_full {
            self.record.mark_unread();
        }
        !self.is_full
    }

    fn found(&self, guard: &Guard, reason: std::borrow::Cow<'static, str>) -> Result<(), StreamAbort> {
        let result = GuardrailResult::of_action(guard.config.action);
        let finding = Finding { text: 0, range: 0..0, score: 1.0, reason: reason.clone(), replacement: None };
        self.service.record(&self.record, guard, Direction::Response, result, &[finding]);
        match guard.config.action {
            GuardrailAction::Block => {
                let refusal = blocked_refusal(guard, Direction::Response, &reason);
                Err(StreamAbort::new("guardrail_blocked", refusal.message))
            }
            _ => Ok(()),
        }
    }

    /// Finds what is decided of a text, and returns what may be sent of it.
    fn release(&mut self, text: &mut PassingText, ends: bool) -> Result<String, StreamAbort> {
        // JSON within a string is searched without its escapes.
        let view = if text.is_json { decode(&text.text) } else { text.text.as_str().into() };
        let view_range = |at: usize| if text.is_json { raw_range(&text.text, &(at..at)).start } else { at };
        let from = if text.is_json { decode(&text.text[..text.held]).len() } else { text.held };
        let mut cut = view.len();
        let mut edits: Vec<TextEdit> = Vec::new();
        let mut hits = Vec::new();
        // A match may be disguised. Spelled words are not joined here, since they are only known to be when they end.
        let readings = NormalizedText::readings(&view, false);
        // What has no end is not held back: invisible characters without number, for example.
        let max_held = if ends { view.len() } else { self.window * DISGUISE_FACTOR + MAX_CONTEXT };
        let least = view.floor_char_boundary(view.len().saturating_sub(max_held)).max(from);
        for (i, MatchingGuard { guard, caches }) in self.guards.iter_mut().enumerate() {
            let Some(matcher) = guard.check.matcher().filter(|_| guard.wants_place(Direction::Response, text.place))
            else {
                continue;
            };
            let as_written = std::iter::once(None).chain(readings.iter().map(Some));
            for reading in as_written {
                let (seen, seen_from) = reading.map_or((&*view, from), |r| (r.text.as_str(), r.derived(from)));
                let original = |range: Range<usize>| reading.map_or(range.clone(), |r| r.original_range(&range));
                let open = if ends { seen.len() } else { matcher.open_from(caches, seen, seen_from) };
                if open < seen.len() {
                    cut = cut.min(original(open..open).start.max(least));
                }
                for (range, expression) in matcher.find(seen, seen_from) {
                    // A match at the end may become longer, or turn out to be part of a word.
                    if range.start >= open && !ends {
                        break;
                    }
                    let range = original(range);
                    hits.push((i, range.clone(), expression));
                    if guard.config.action == GuardrailAction::Mask {
                        edits.push(TextEdit { text: 0, range, with: guard.config.mask.clone() });
                    }
                }
            }
        }
        let mut edits = merge_edits(edits);
        // A match that is not released whole is found again with the next fragment, unless it is longer than what may
        // be held back.
        let longest = view.len().saturating_sub(self.window);
        while let Some(last) = edits.last().filter(|e| e.range.end > cut) {
            if last.range.start < longest {
                cut = last.range.end;
                break;
            }
            cut = cut.min(last.range.start);
            edits.pop();
        }
        for (i, range, expression) in hits {
            let blocks = self.guards[i].guard.config.action == GuardrailAction::Block;
            if range.end <= cut || blocks {
                let guard = Arc::clone(&self.guards[i].guard);
                let reason = guard.check.matcher().map(|m| m.reason(expression)).unwrap_or_default();
                self.found(&guard, reason)?;
            }
        }
        let cut = view_range(cut);
        let parts: Vec<(Range<usize>, String)> = edits
            .into_iter()
            .map(|e| match text.is_json {
                true => (raw_range(&text.text, &e.range), escaped(&e.with)),
                false => (e.range, e.with),
            })
            .filter(|(range, _)| range.start >= text.held)
            .map(|(range, with)| (range.start - text.held..range.end - text.held, with))
            .collect();
        let sent = text.text.get(text.held..cut.max(text.held)).unwrap_or_default();
        let out = replaced(sent, &parts);
        text.held = cut.max(text.held);
        let forget = text.text.floor_char_boundary(text.held.saturating_sub(MAX_CONTEXT));
        let forget = forget - open_escape(&text.text[..forget]);
        text.text.drain(..forget);
        text.held -= forget;
        Ok(out)
    }
}

impl TextRewriter for MatchRewriter {
    fn rewrite_whole(&mut self, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        let place = place_of(self.next.as_ref());
        if self.collects(raw) {
            self.collected.0.lock().add_whole(raw, kind, place);
        }
        let body = raw.as_bytes();
        let span = TextSpan { range: 0..raw.len(), name: None, kind: kind.clone(), channel: None, fixed: false, place };
        let Some(text) = text_of_span(body, &span) else { return Ok(None) };
        let mut edits = Vec::new();
        let guards: Vec<Arc<Guard>> = self.guards.iter().map(|g| Arc::clone(&g.guard)).collect();
        for guard in guards.iter().filter(|g| g.wants_place(Direction::Response, text.place)) {
            let Some(matcher) = guard.check.matcher() else { continue };
            for (range, expression) in matcher.find_all(&text.text) {
                self.found(guard, matcher.reason(expression))?;
                if guard.config.action == GuardrailAction::Mask && text.is_editable() {
                    edits.push(TextEdit { text: 0, range, with: guard.config.mask.clone() });
                }
            }
        }
        if edits.is_empty() {
            return Ok(None);
        }
        match super::texts::body_edits(body, &[text], edits) {
            Ok(edits) => String::from_utf8(splice(body, &edits)).map(Some).map_err(|_| StreamAbort::not_written()),
            Err(_) => Err(StreamAbort::new(
                "guardrail_blocked",
                super::request::unmaskable(&guards, Direction::Response).message,
            )),
        }
    }

    fn rewrite_piece(&mut self, channel: u64, raw: &str, kind: &SpanKind) -> Result<Option<String>, StreamAbort> {
        let place = place_of(self.next.as_ref());
        if self.collects(raw) {
            self.collected.0.lock().add_piece(channel, raw, kind, place);
        }
        let is_json = *kind == SpanKind::Json;
        let mut text = self.texts.remove(&channel).unwrap_or_else(|| PassingText {
            text: String::new(),
            held: 0,
            rest: String::new(),
            is_json,
            is_signed: *kind == SpanKind::Signed,
            place,
        });
        let was_held = text.held < text.text.len() || !text.rest.is_empty();
        let joined = std::mem::take(&mut text.rest) + raw;
        let (now, later) = joined.split_at(joined.len() - open_escape(&joined));
        text.text.push_str(&decode(now));
        later.clone_into(&mut text.rest);
        // An escape of the JSON inside is completed by the next fragment.
        let inner = if is_json { open_escape(&text.text) } else { 0 };
        let open = text.text.split_off(text.text.len() - inner);
        let sent = self.release(&mut text, false);
        text.text.push_str(&open);
        let unchanged =
            |sent: &str| !was_held && later.is_empty() && text.held == text.text.len() && *sent == *decode(raw);
        let out = sent.map(|sent| (!unchanged(&sent)).then(|| escaped(&sent)));
        let is_signed = text.is_signed;
        self.texts.insert(channel, text);
        match out? {
            Some(out) if self.strict && !is_signed => Ok(Some(out)),
            _ => Ok(None),
        }
    }

    fn finish(&mut self, channel: u64, out: &mut String) -> Result<(), StreamAbort> {
        self.collected.0.lock().end(channel);
        let Some(mut text) = self.texts.remove(&channel) else { return Ok(()) };
        let sent = self.release(&mut text, true)?;
        if self.strict && !text.is_signed {
            out.push_str(&escaped(&sent));
            out.push_str(&text.rest);
        }
        Ok(())
    }

    fn has_buffered(&self, channel: u64) -> bool {
        self.strict
            && self.texts.get(&channel).is_some_and(|t| !t.is_signed && (t.held < t.text.len() || !t.rest.is_empty()))
    }

    fn is_strict(&self) -> bool {
        self.strict
    }

    fn skipped(&mut self) {
        self.record.mark_unread();
    }

    fn next_span(&mut self, span: &TextSpan) {
        self.next = Some((span.kind.clone(), span.place));
    }
}

impl Drop for MatchRewriter {
    fn drop(&mut self) {
        if let Some(collector) = self.collector.take() {
            // Nobody waits any more if the process ends.
            let _ = collector.send((self.collected.take(), std::mem::take(&mut self.held)));
        }
    }
}
