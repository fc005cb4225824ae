//! Traverses a body and marks its text, according to `container_rules`.
//!
//! The body is read token by token without building a tree. What is known of each open container is kept in a
//! [`ContainerFrame`]; facts that are written after the text that they concern (a signature, a media type, a role, an
//! index) are applied when the container closes.

mod media_spans;

use std::borrow::Cow;
use std::ops::Range;

use interflow_codec::json::{JsonError, JsonReader, JsonToken};
use interflow_types::budget::MemoryReservation;

use crate::realtime::unescaped;
use crate::translate::has_mark;

use super::container_rules::{self, ContainerPosition, ContainerRule, StringRole};
use super::fields::{self, FieldScope};
use super::media;
use super::places::{self, ContainerNames};
use super::{EndedChannels, MarkedText, SpanKind, TextChannel, TextPlace, TextSpan, words};

/// Maximum number of texts in one body. Each takes about a hundred bytes during processing, whatever its length.
const MAX_TEXTS: usize = 1 << 20;

/// Why the text of a body cannot be marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// It is not JSON, is nested too deeply, or has too many texts.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The [budget](interflow_types::budget) of held bytes is exhausted.
    #[error("{}", .0.message())]
    Overloaded(interflow_types::Error),
}

/// Marks the text of a request's or a complete response's body. Meanwhile the marks count towards the process's budget
/// of held bytes.
///
/// # Errors
/// The body is not JSON, is nested too deeply, or has too many texts; or the budget is exhausted.
pub fn mark_body(json: &[u8], metadata: bool) -> Result<MarkedText, MarkError> {
    SpanWalker::new(json, metadata, false).run(b"")
}

/// As [`mark_body`], for a complete response, whose numbers and tokens are no text.
///
/// # Errors
/// As [`mark_body`].
pub fn mark_response(json: &[u8]) -> Result<MarkedText, MarkError> {
    SpanWalker { is_response: true, ..SpanWalker::new(json, true, false) }.run(b"")
}

/// As [`mark_body`], for JSON of an unknown format: every string, number and name is text.
///
/// # Errors
/// As [`mark_body`].
pub fn mark_everything(json: &[u8]) -> Result<MarkedText, MarkError> {
    SpanWalker { root: ContainerRule::Free, ..SpanWalker::new(json, true, false) }.run(b"")
}

/// Reads the facts of a body without the positions of its text: model, text length, limits. Takes less memory than
/// [`mark_body`].
///
/// # Errors
/// As [`mark_body`].
pub fn facts(json: &[u8]) -> Result<MarkedText, MarkError> {
    let walk = SpanWalker { facts_only: true, ..SpanWalker::new(json, false, false) };
    walk.run(b"").map(|marked| MarkedText { spans: Vec::new(), ..marked })
}

/// Marks the text of one stream event; `name` is the event's name if the payload does not contain it.
///
/// # Errors
/// As [`mark_body`].
pub fn mark_event(json: &[u8], name: Option<&str>) -> Result<MarkedText, MarkError> {
    SpanWalker::new(json, false, true).run(name.unwrap_or_default().as_bytes())
}

/// An open container: what has been read of it, and the index of the first span inside, `first`, from which on a
/// later fact applies.
#[derive(Default)]
struct ContainerFrame {
    zone: ContainerRule,
    object: bool,
    start: usize,
    /// The member's name, or that of the enclosing array.
    key: Range<usize>,
    name: Range<usize>,
    first: usize,
    /// Number of values so far; an array's element is identified by it.
    count: u64,
    kind: Option<Range<usize>>,
    media_type: Option<Range<usize>>,
    index: u64,
    in_delta: bool,
    /// Whether it is an event of one of several responses that share a connection.
    has_lane: bool,
    finished: bool,
    /// Whether the next event has more of the same argument.
    goes_on: bool,
    /// Media spans inside whose kind is not known yet.
    media: Vec<usize>,
    role: Option<Range<usize>>,
    signed: bool,
    /// Whether it belongs to a client's fixed prompts.
    fixed: bool,
    in_tool: bool,
}

/// Span lists shorter than this are not accounted for: the accounting would cost more than they do.
const FEW: usize = 32;

/// Shorter than any provider's signature. An empty or tiny one does not make a text signed.
const MIN_SIGNATURE_LEN: usize = 8;

struct SpanWalker<'j> {
    json: &'j [u8],
    reader: JsonReader<'j>,
    frames: Vec<ContainerFrame>,
    /// The rule of the outermost container.
    root: ContainerRule,
    metadata: bool,
    events: bool,
    is_response: bool,
    /// How many prompts are answered, if there are several.
    prompts: u64,
    /// Whether only facts are wanted, not the positions of text.
    facts_only: bool,
    /// Whether a word of the API may be written with escapes.
    has_escapes: bool,
    out: MarkedText,
    /// Accounts for the memory of the spans.
    held: MemoryReservation,
}

impl<'j> SpanWalker<'j> {
    fn new(json: &'j [u8], metadata: bool, events: bool) -> Self {
        Self {
            json,
            reader: JsonReader::new(json),
            frames: Vec::with_capacity(8),
            root: ContainerRule::Known,
            metadata,
            events,
            is_response: events,
            prompts: 1,
            facts_only: false,
            // Some encoders write `/` as `\/`, also in media types.
            has_escapes: memchr::memchr_iter(b'\\', json)
                .any(|at| json[at + 1..].starts_with(b"/") || json[at + 1..].starts_with(b"u00")),
            out: MarkedText::default(),
            held: MemoryReservation::default(),
        }
    }

    fn run(mut self, name: &[u8]) -> Result<MarkedText, MarkError> {
        while let Some(token) = self.reader.next_token()? {
            match token {
                JsonToken::Object(at) => self.open(at, true),
                JsonToken::Array(at) => self.open(at, false),
                JsonToken::Name(range) => {
                    self.name(&range);
                    if let Some(frame) = self.frames.last_mut() {
                        frame.name = range;
                    }
                }
                JsonToken::Text(range) => {
                    // Some providers take a number as a string.
                    self.read_amount(&range);
                    self.text(range.clone());
                    self.end_value(range.start - 1..range.end + 1);
                }
                JsonToken::Scalar(range) => {
                    self.scalar(&range);
                    self.end_value(range);
                }
                JsonToken::End(end) => self.close(end, name),
            }
            if self.out.spans.len() > MAX_TEXTS {
                let at = self.out.spans.last().map_or(0, |span| span.range.start);
                return Err(JsonError { at, reason: "the body has too many texts" }.into());
            }
            self.make_room()?;
        }
        if self.prompts > 1 {
            self.out.choices = self.out.choices.max(1).saturating_mul(self.prompts);
        }
        // A response says more than the conversation that it is in.
        self.out.continues = self.out.previous_response.clone().or(self.out.continues.take());
        // At the end, because the kind of media may be known only after its data. Base64 has four characters for three
        // bytes.
        for span in &self.out.spans {
            if let SpanKind::Media(media) = &span.kind {
                let tokens = media.kind.estimated_tokens(span.range.len() * 3 / 4);
                self.out.media_tokens = self.out.media_tokens.saturating_add(tokens);
            }
        }
        Ok(self.out)
    }

    /// Grows the list of spans after reserving memory: while it is moved, it exists twice. Growing by half bounds the
    /// waste.
    fn make_room(&mut self) -> Result<(), MarkError> {
        let spans = &mut self.out.spans;
        let capacity = spans.capacity();
        if spans.len() < capacity || capacity < FEW {
            return Ok(());
        }
        let more = capacity / 2;
        self.held.resize((capacity * 2 + more) * size_of::<TextSpan>()).map_err(MarkError::Overloaded)?;
        spans.reserve_exact(more);
        self.held.resize(spans.capacity() * size_of::<TextSpan>()).map_err(MarkError::Overloaded)
    }

    fn bytes(&self, range: &Range<usize>) -> &'j [u8] {
        self.json.get(range.clone()).unwrap_or_default()
    }

    /// A name or a word of the API as it reads: some encoders write letters as escapes.
    fn word(&self, range: &Range<usize>) -> Cow<'j, [u8]> {
        if self.has_escapes { unescaped(self.json, range) } else { Cow::Borrowed(self.bytes(range)) }
    }

    fn optional_word(&self, range: Option<&Range<usize>>) -> Cow<'j, [u8]> {
        range.map_or(Cow::Borrowed(b""), |range| self.word(range))
    }

    /// The name of the current value: the member's, or, in an array, the array's.
    fn key(&self) -> Range<usize> {
        match self.frames.last() {
            Some(f) if f.object => f.name.clone(),
            Some(f) => f.key.clone(),
            None => 0..0,
        }
    }

    fn open(&mut self, start: usize, object: bool) {
        let key = self.key();
        let name = &*self.word(&key);
        let around = self.frames.last();
        let parent = &*self.optional_word(around.map(|f| &f.key));
        let around_zone = around.map_or(self.root, |f| f.zone);
        let starts_tools = around_zone == ContainerRule::Known && fields::defines_tools(name, parent);
        let in_tool = starts_tools || around.is_some_and(|f| f.in_tool);
        let scope = FieldScope { is_response: self.is_response, in_tool };
        let span_place = ContainerPosition { zone: around_zone, key: name, parent, object, scope };
        let zone = match around {
            // The rule of a list applies to its elements.
            Some(f) if !f.object => f.zone,
            _ => container_rules::container_rule(&span_place),
        };
        let in_delta = around.is_some_and(|f| f.in_delta) && name != b"citation" || name == b"delta";
        let fixed = around.is_some_and(|f| f.fixed || f.zone == ContainerRule::Known && fields::is_fixed_prompt(name));
        self.frames.push(ContainerFrame {
            zone,
            object,
            start,
            key,
            first: self.out.spans.len(),
            in_delta,
            fixed,
            in_tool,
            ..ContainerFrame::default()
        });
    }

    /// Whether people or tools choose the names of members here, so that names and numbers may be personal data too.
    fn is_free(&self) -> bool {
        self.frames.last().is_some_and(|f| match f.zone {
            ContainerRule::Free | ContainerRule::Unknown => true,
            ContainerRule::Metadata => self.metadata,
            _ => false,
        })
    }

    /// Where an API chooses the names, one that does not look like it is read, too.
    fn name(&mut self, range: &Range<usize>) {
        let is_known = |f: &ContainerFrame| {
            matches!(f.zone, ContainerRule::Known | ContainerRule::Schema | ContainerRule::Settings)
        };
        let is_odd = || self.frames.last().is_some_and(is_known) && !words::is_api_name(self.bytes(range));
        if !range.is_empty() && (self.is_free() || is_odd()) {
            self.push(range.clone(), None, SpanKind::Name, None);
        }
    }

    /// Whether a number of a request stands where settings of the API do, and does not look like one.
    fn is_odd_number(&self, name: &[u8], value: &[u8]) -> bool {
        let is_known = |f: &ContainerFrame| matches!(f.zone, ContainerRule::Known | ContainerRule::Settings);
        !self.events && self.frames.last().is_some_and(is_known) && !fields::is_number_of_api(name, value)
    }

    fn push(&mut self, range: Range<usize>, name: Option<Range<usize>>, kind: SpanKind, channel: Option<TextChannel>) {
        // Whether media counts as text is decided by its kind, so it is kept until then.
        if self.facts_only && !matches!(kind, SpanKind::Media(_)) {
            return;
        }
        let own = |n: &Range<usize>| fields::is_fixed_prompt(&self.word(n));
        let fixed = !self.events
            && self
                .frames
                .last()
                .is_some_and(|f| f.fixed || f.zone == ContainerRule::Known && name.as_ref().is_some_and(own));
        let at_root = self.frames.len() == 1;
        let span_place = places::place_of_string(&self.optional_word(name.as_ref()), at_root);
        self.out.spans.push(TextSpan { range, name, kind, channel, fixed, place: span_place });
    }

    fn text(&mut self, range: Range<usize>) {
        let key = self.key();
        let name = &*self.word(&key);
        let depth = self.frames.len();
        let parent = &*self.optional_word(self.frames.last().filter(|_| depth == 2).map(|frame| &frame.key));
        let Some(frame) = self.frames.last_mut() else {
            return self.push_span(range, None, SpanKind::Text);
        };
        let zone = frame.zone;
        let scope = FieldScope { is_response: self.is_response, in_tool: frame.in_tool };
        if frame.object && matches!(zone, ContainerRule::Known | ContainerRule::Unknown) {
            match name {
                b"type" | b"event_type" => frame.kind = Some(range.clone()),
                b"role" => frame.role = Some(range.clone()),
                b"signature" => {
                    let signature = self.json.get(range.clone()).unwrap_or_default();
                    frame.signed |= range.len() >= MIN_SIGNATURE_LEN && !has_mark(signature);
                }
                b"media_type" | b"mediaType" | b"mimeType" | b"mime_type" | b"format" => {
                    frame.media_type = Some(range.clone())
                }
                b"finish_reason" | b"finishReason" if !range.is_empty() => frame.finished = true,
                // Parsers differ in which of two members they take, and Ollama's ignores the case of names.
                b"model" if depth == 1 => {
                    self.out.is_model_unclear |= self.out.model.replace(range.clone()).is_some();
                }
                name if depth == 1 && name.eq_ignore_ascii_case(b"model") => self.out.is_model_unclear = true,
                b"model" if matches!(parent, b"session" | b"setup" | b"interaction") => {
                    self.out.session_model = Some(range.clone());
                }
                // It decides what is used, also beside a model.
                b"agent" if parent == b"interaction" => self.out.agent = Some(range.clone()),
                b"id" | b"responseId" if depth == 1 => self.out.id = Some(range.clone()),
                // Several responses may be in flight on one connection, and several arguments of one call (Vertex).
                b"response_id" | b"stream_id" | b"jsonPath" if self.events && (depth == 1 || name == b"jsonPath") => {
                    frame.has_lane |= name == b"stream_id";
                    frame.index = fnv1a(frame.index, self.json.get(range.clone()).unwrap_or_default());
                }
                b"effort" | b"reasoning_effort" | b"thinking_level" | b"thinkingLevel" if depth <= 3 => {
                    self.out.effort.get_or_insert_with(|| range.clone());
                }
                b"service_tier" if depth == 1 => self.out.service_tier = Some(range.clone()),
                b"conversation" if depth == 1 => self.out.continues = Some(range.clone()),
                b"id" if parent == b"conversation" => self.out.continues = Some(range.clone()),
                b"previous_response_id" | b"previous_interaction_id" if depth == 1 => {
                    self.out.previous_response = Some(range.clone());
                }
                _ => {}
            }
        }
        match container_rules::string_role(zone, name, self.is_named(), scope) {
            StringRole::Structure => {}
            StringRole::Address if media::is_address(self.bytes(&range)) => {
                if !self.events {
                    self.address(&range);
                }
            }
            StringRole::Address | StringRole::Word if words::is_word(self.bytes(&range)) => {}
            StringRole::Id if words::is_id(self.bytes(&range)) => {}
            StringRole::Identifier if fields::is_opaque(self.bytes(&range)) => {}
            StringRole::Metadata | StringRole::Identifier if !self.metadata => {}
            StringRole::Metadata | StringRole::Identifier => {
                self.out.metadata_bytes += range.len();
                self.push_span(range, Some(key), SpanKind::Text);
            }
            StringRole::Text | StringRole::Address | StringRole::Word | StringRole::Id => {
                self.push_span(range, Some(key), SpanKind::Text);
            }
            StringRole::Json => self.push_span(range, Some(key), SpanKind::Json),
            StringRole::Blob => self.blob(range, key),
        }
    }

    /// Whether the current object is a message, whose name is its author's, or a document, whose name is a file's.
    fn is_named(&self) -> bool {
        let [.., list, object] = self.frames.as_slice() else { return false };
        let message = !list.object && *self.word(&list.key) == *b"messages";
        object.object && (message || *self.word(&object.key) == *b"document")
    }

    fn push_span(&mut self, range: Range<usize>, name: Option<Range<usize>>, kind: SpanKind) {
        if range.is_empty() {
            return;
        }
        if !matches!(kind, SpanKind::Media(_)) {
            // Raw length, escapes included: it only estimates tokens.
            self.out.text_bytes += range.len();
        }
        let channel = if self.events { self.channel(name.as_ref()) } else { None };
        let kind = match (kind, channel) {
            // Bedrock sends tool call arguments under a name that is text elsewhere.
            (SpanKind::Text, Some(_)) if *self.optional_word(name.as_ref()) == *b"input" => SpanKind::Json,
            (kind, _) => kind,
        };
        self.push(range, name, kind, channel);
    }

    /// The text that a string of an event continues, as far as its name tells. The containers around it extend the id
    /// when they close.
    fn channel(&self, name: Option<&Range<usize>>) -> Option<TextChannel> {
        let key = &*self.optional_word(name);
        let frame = self.frames.last()?;
        let inside = |list: &[u8]| self.frames.iter().any(|f| *self.word(&f.key) == *list);
        let continues = frame.in_delta
            || match (self.frames.len(), key) {
                (1, b"delta" | b"response" | b"thinking" | b"completion" | b"outputText" | b"generation") => true,
                (2, b"content" | b"thinking") => *self.word(&frame.key) == *b"message",
                (_, b"stringValue") => frame.zone != ContainerRule::Free && *self.word(&frame.key) == *b"partialArgs",
                (_, b"text") => {
                    inside(b"choices") || inside(b"candidates") || inside(b"outputs") || inside(b"serverContent")
                }
                _ => false,
            };
        continues.then(|| TextChannel { id: fnv1a(0, key), group: 0 })
    }

    /// The parts of an address that are text.
    fn address(&mut self, range: &Range<usize>) {
        for (name, value) in media::address_texts(self.bytes(range)) {
            let name = name.map(|n| n.start + range.start..n.end + range.start);
            self.push_span(value.start + range.start..value.end + range.start, name, SpanKind::Text);
        }
    }

    /// Reads how much is asked for, from a number or a string.
    fn read_amount(&mut self, range: &Range<usize>) {
        let (depth, name) = (self.frames.len(), &*self.word(&self.key()));
        if depth <= 2 && fields::limits_output(name) {
            let limit = fields::output_limit(name, self.word(range).trim_ascii(), depth);
            self.out.is_max_output_invalid |= limit.is_err();
            self.out.max_output = limit.unwrap_or_default().max(self.out.max_output);
        }
        if fields::counts_choices(name, depth) {
            let count = fields::whole_number(self.word(range).trim_ascii());
            self.out.choices = count.unwrap_or_default().max(self.out.choices);
        }
    }

    fn scalar(&mut self, range: &Range<usize>) {
        let key = self.key();
        let (name, value) = (&*self.word(&key), self.bytes(range));
        let depth = self.frames.len();
        let is_number = value.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-');
        let is_read = is_number && (self.is_free() || self.is_odd_number(name, value));
        self.read_amount(range);
        if is_read {
            self.push(range.clone(), Some(key.clone()), SpanKind::Number, None);
        }
        match name {
            b"stream" if depth == 1 => self.out.stream = Some(value == b"true"),
            b"done" if depth == 1 && value == b"true" && self.events => self.out.ended.push(EndedChannels::All),
            b"willContinue" if value == b"true" => self.frames.last_mut().into_iter().for_each(|f| f.goes_on = true),
            b"turnComplete" | b"generationComplete" if value == b"true" && self.events => {
                self.out.ended.push(EndedChannels::All);
            }
            _ if self.events && container_rules::is_index(name) => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.index = fnv1a(fnv1a(frame.index, name), value);
                }
            }
            _ => {}
        }
    }

    /// A value has ended: in an array, the next one is a different text. Also notices the first message of a
    /// conversation.
    fn end_value(&mut self, range: Range<usize>) {
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else { return };
        frame.count += 1;
        let first = frame.count == 1;
        let name = if frame.object { frame.name.clone() } else { frame.key.clone() };
        if self.out.first_message.is_none() && !self.events {
            let conversation = matches!(&*self.word(&name), b"messages" | b"contents" | b"input" | b"prompt");
            let in_list = depth == 2 && first && self.frames.last().is_some_and(|f| !f.object);
            let alone = depth == 1 && matches!(self.json.get(range.start), Some(b'"' | b'{'));
            if conversation && (in_list || alone) {
                self.out.first_message = Some(range);
            }
        }
    }

    fn close(&mut self, end: usize, name: &[u8]) {
        let Some(frame) = self.frames.pop() else { return };
        let range = frame.start..end;
        // The order matters: signatures and media refer to spans by index, which closing the channels may clear.
        let element = self.frames.last().is_some_and(|f| !f.object);
        self.close_signed(&frame, element);
        self.close_place(&frame);
        self.close_media(&frame, &range, element);
        self.close_list(&frame, &range);
        if self.events {
            self.close_channels(&frame, name);
        }
        self.end_value(range);
    }

    /// Notes what repeats the tokens of an answer, and how many prompts a request has.
    fn close_list(&mut self, frame: &ContainerFrame, range: &Range<usize>) {
        let key = &*self.word(&frame.key);
        let is_outermost = self.frames.last().is_some_and(|f| f.zone != ContainerRule::Skip);
        if frame.zone == ContainerRule::Skip && is_outermost && fields::repeats_tokens(key) && range.len() > 2 {
            self.out.logprobs.push(range.clone());
        }
        if self.frames.len() == 1 && !frame.object && fields::is_list_of_prompts(key, self.bytes(range)) {
            self.prompts = self.prompts.max(frame.count);
        }
    }

    /// Signed content is returned unchanged, and encrypted content is not text; the content of a system or developer
    /// message belongs to the fixed prompts.
    fn close_signed(&mut self, frame: &ContainerFrame, element: bool) {
        if frame.zone != ContainerRule::Known || !frame.object {
            return;
        }
        let kind = &*self.optional_word(frame.kind.as_ref());
        // What a provider encrypted has no text for anyone but itself.
        if matches!(kind, b"redacted_thinking" | b"reasoning.encrypted") {
            self.out.spans.truncate(frame.first);
            return;
        }
        // In a stream, the signature follows the text.
        let thinks = kind == b"thinking_delta" || kind == b"reasoning.text" && self.events;
        // What signs the thought of an interaction does not cover the summary of it.
        if frame.signed && kind != b"thought" || thinks || self.events && *self.word(&frame.key) == *b"reasoningContent"
        {
            for at in frame.first..self.out.spans.len() {
                let name = self.optional_word(self.out.spans[at].name.as_ref());
                let span = &mut self.out.spans[at];
                if span.kind == SpanKind::Text && matches!(&*name, b"thinking" | b"text") {
                    span.kind = SpanKind::Signed;
                }
            }
        }
        let role = &*self.optional_word(frame.role.as_ref());
        if element && !self.events && matches!(role, b"system" | b"developer") {
            self.out.spans.iter_mut().skip(frame.first).for_each(|s| s.fixed = true);
        }
    }

    /// The container says whose texts those in it are, unless one inside it said so already.
    fn close_place(&mut self, frame: &ContainerFrame) {
        if frame.zone != ContainerRule::Known || frame.first == self.out.spans.len() {
            return;
        }
        let names = ContainerNames {
            key: &self.word(&frame.key),
            kind: &self.optional_word(frame.kind.as_ref()),
            role: &self.optional_word(frame.role.as_ref()),
            depth: self.frames.len(),
        };
        let span_place = places::place_of_container(&names);
        if span_place != TextPlace::Unknown {
            let open = self.out.spans.iter_mut().skip(frame.first).filter(|s| s.place == TextPlace::Unknown);
            open.for_each(|s| s.place = span_place);
        }
    }

    /// The text that a fragment continues is determined by the names and indices on the path to it.
    fn close_channels(&mut self, frame: &ContainerFrame, name: &[u8]) {
        let root = self.frames.is_empty();
        let word = frame.kind.as_ref().map(|kind| self.word(kind));
        let kind = word.as_deref().unwrap_or(name);
        let span_place = match self.frames.last() {
            // An index is better than a position: a second choice may come alone.
            Some(list) if !list.object && frame.index == 0 => fnv1a(1, &list.count.to_le_bytes()),
            _ => fnv1a(frame.index, &self.word(&frame.key)),
        };
        let is_argument = frame.object && *self.word(&frame.key) == *b"partialArgs";
        let choice = !root && matches!(&*self.word(&frame.key), b"choices" | b"candidates") && frame.object;
        let arguments = root && kind.ends_with(b"arguments.delta");
        if root && kind.ends_with(b"audio.delta") {
            // Base64 audio, whose fragments must not be changed.
            self.out.spans.clear();
        }
        if root && container_rules::is_piece(kind) {
            for at in 0..self.out.spans.len() {
                let key = self.optional_word(self.out.spans[at].name.as_ref());
                let span = &mut self.out.spans[at];
                // Neither names nor numbers come in fragments.
                if span.channel.is_some() || matches!(span.kind, SpanKind::Name | SpanKind::Number) {
                    continue;
                }
                if *key == *b"parameters" {
                    span.kind = SpanKind::Json;
                }
                span.channel = Some(TextChannel { id: fnv1a(0, &key), group: 0 });
            }
        }
        for at in frame.first..self.out.spans.len() {
            let is_delta = root && *self.optional_word(self.out.spans[at].name.as_ref()) == *b"delta";
            let span = &mut self.out.spans[at];
            let Some(channel) = &mut span.channel else { continue };
            // Ids are extended from the inside out: in the end each has the names and indices of the whole path.
            channel.id = fnv1a(channel.id, &span_place.to_le_bytes());
            if channel.group == 0 && (choice || root || is_argument) {
                channel.group = span_place;
            }
            if is_delta {
                channel.id = fnv1a(channel.id, kind);
                if arguments {
                    span.kind = SpanKind::Json;
                }
            }
        }
        if frame.finished || is_argument && !frame.goes_on {
            // A finish reason ends the texts of its choice, and an argument those of its pieces.
            self.out.ended.push(if root { EndedChannels::All } else { EndedChannels::Group(span_place) });
        }
        // The texts of a complete response have ended one by one, and those of another lane go on.
        let is_of_lane = frame.has_lane && kind == b"response.completed";
        if root
            && !is_of_lane
            && let Some(all) = container_rules::ends(kind)
        {
            self.out.ended.push(if all { EndedChannels::All } else { EndedChannels::Group(span_place) });
        }
    }
}

/// Continues an FNV-1a hash, which identifies texts within one stream only. A collision would join two texts of one
/// stream; nobody gains anything by causing it.
fn fnv1a(seed: u64, bytes: &[u8]) -> u64 {
    let start = seed ^ 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}
