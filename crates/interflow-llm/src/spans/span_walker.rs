//! Walks a body and marks its texts, by the rules of `rules`.

use std::ops::Range;

use bytes::Bytes;
use interflow_codec::json::{JsonError, JsonReader, JsonToken};
use interflow_types::budget::MemoryReservation;
use tokio::sync::Semaphore;

use super::container_rules::{self, ContainerPosition, ContainerRule, StringRole};
use super::fields;
use super::media::{self, BlobContent};
use super::{MediaKind, MediaSpan, SpanKind, TextChannel, TextSpan};

/// The most texts of one body. Each costs a hundred bytes or so while it is worked on, whatever its length.
const MAX_TEXTS: usize = 1 << 20;

/// What was found in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedText {
    /// The strings, in order.
    pub spans: Vec<TextSpan>,
    /// The inside of the member `model`.
    pub model: Option<Range<usize>>,
    /// The member `stream`.
    pub stream: Option<bool>,
    /// The most tokens that the answer may have.
    pub max_output: Option<u64>,
    /// The first message of the conversation: what tells it from others.
    pub first_message: Option<Range<usize>>,
    /// The answer or conversation that this request continues at the provider.
    pub continues: Option<Range<usize>>,
    /// The id of an answer.
    pub id: Option<Range<usize>>,
    /// Bytes of text.
    pub text_bytes: usize,
    /// In an event: the texts that end with it.
    pub ended: Vec<EndedChannels>,
}

/// Which texts of a stream end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedChannels {
    /// Those of this choice or block.
    Group(u64),
    /// All.
    All,
}

/// Why the texts of a body cannot be marked.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// What is no JSON, is nested too deeply, or has too many texts.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The process's [budget](interflow_types::budget) of held bytes has no room for the marks.
    #[error("{}", .0.message())]
    Overloaded(interflow_types::Error),
}

/// Marks the texts of a request's or of a whole answer's body. While this works, the marks count towards the process's
/// budget of held bytes.
///
/// # Errors
/// What is no JSON, is nested too deeply, or has too many texts; a budget that is spent.
pub fn mark_body(json: &[u8], metadata: bool) -> Result<MarkedText, MarkError> {
    SpanWalker::new(json, metadata, false).run(b"")
}

/// A held body up to this size is read on the thread that asks.
const MAX_INLINE_BYTES: usize = 128 << 10;

/// How many large bodies are read at once; others wait.
static MARK_PERMITS: Semaphore = Semaphore::const_new(2);

/// What a body tells beside its texts, whose places are not kept: its model, how much text there is.
///
/// # Errors
/// As [`mark`].
pub fn facts(json: &[u8]) -> Result<MarkedText, MarkError> {
    let walk = SpanWalker { facts_only: true, ..SpanWalker::new(json, false, false) };
    walk.run(b"").map(|marked| MarkedText { spans: Vec::new(), ..marked })
}

/// As [`facts`], off the worker when the body is a large one.
///
/// # Errors
/// As [`mark`].
pub async fn facts_held(json: &Bytes) -> Result<MarkedText, MarkError> {
    let broken = JsonError { at: 0, reason: "the work on the body was cut short" };
    let held = json.clone();
    beside(json.len(), move || facts(&held)).await.ok_or(broken)?
}

/// Does work on a body of this length: here, or for a large one off the worker, of which few are worked on at once. `None`
/// when the work panicked. Who leaves while waiting for a place leaves no work behind.
pub async fn beside<T: Send + 'static>(length: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if length <= MAX_INLINE_BYTES {
        return Some(work());
    }
    let place = MARK_PERMITS.acquire().await.ok();
    tokio::task::spawn_blocking(move || {
        // The place is taken for as long as the work takes, also when nobody waits for it any more.
        let _place = place;
        work()
    })
    .await
    .ok()
}

/// Marks the texts of one event of a stream; `name` is the event's own name, where the payload does not hold it.
///
/// # Errors
/// As [`mark`].
pub fn mark_event(json: &[u8], name: Option<&str>) -> Result<MarkedText, MarkError> {
    SpanWalker::new(json, false, true).run(name.unwrap_or_default().as_bytes())
}

/// A container that is open.
struct ContainerFrame {
    zone: ContainerRule,
    object: bool,
    start: usize,
    /// The member's name, or that of the array it stands in.
    key: Range<usize>,
    /// The name of the member at hand.
    name: Range<usize>,
    /// The first span inside.
    first: usize,
    /// How many values an array has had.
    count: u64,
    kind: Option<Range<usize>>,
    media_type: Option<Range<usize>>,
    index: u64,
    in_delta: bool,
    finished: bool,
    /// Spans inside that hold a medium whose kind is open.
    media: Vec<usize>,
    role: Option<Range<usize>>,
    /// Whether it has a signature.
    signed: bool,
    /// Whether it is part of a client's fixed prompts.
    fixed: bool,
}

/// A list of spans shorter than this grows as it likes.
const FEW: usize = 32;

/// Shorter than any signature that a provider makes.
const MIN_SIGNATURE_LEN: usize = 8;

struct SpanWalker<'j> {
    json: &'j [u8],
    reader: JsonReader<'j>,
    frames: Vec<ContainerFrame>,
    metadata: bool,
    events: bool,
    /// Whether the places of texts are not wanted, only what else is told.
    facts_only: bool,
    out: MarkedText,
    /// Counts the spans.
    held: MemoryReservation,
}

impl<'j> SpanWalker<'j> {
    fn new(json: &'j [u8], metadata: bool, events: bool) -> Self {
        Self {
            json,
            reader: JsonReader::new(json),
            frames: Vec::with_capacity(8),
            metadata,
            events,
            facts_only: false,
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
        Ok(self.out)
    }

    /// Grows the list of spans, for which the budget must have bytes first: while it moves, it is there twice.
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

    /// The name of the value at hand: the member's, or the array's.
    fn key(&self) -> Range<usize> {
        match self.frames.last() {
            Some(f) if f.object => f.name.clone(),
            Some(f) => f.key.clone(),
            None => 0..0,
        }
    }

    fn open(&mut self, start: usize, object: bool) {
        let key = self.key();
        let name = self.bytes(&key);
        let around = self.frames.last();
        let parent = around.map_or(&b""[..], |f| self.bytes(&f.key));
        let place =
            ContainerPosition { zone: around.map_or(ContainerRule::Known, |f| f.zone), key: name, parent, object };
        let zone = match around {
            // What holds for a list holds for what stands in it.
            Some(f) if !f.object => f.zone,
            _ => container_rules::container_rule(&place),
        };
        let in_delta = around.is_some_and(|f| f.in_delta) && name != b"citation" || name == b"delta";
        let fixed = around.is_some_and(|f| f.fixed || f.zone == ContainerRule::Known && fields::is_fixed_prompt(name));
        self.frames.push(ContainerFrame {
            zone,
            object,
            start,
            key,
            name: 0..0,
            first: self.out.spans.len(),
            count: 0,
            kind: None,
            media_type: None,
            index: 0,
            in_delta,
            finished: false,
            media: Vec::new(),
            role: None,
            signed: false,
            fixed,
        });
    }

    /// Whether people or tools choose the names of members here.
    fn is_free(&self) -> bool {
        self.frames.last().is_some_and(|f| match f.zone {
            ContainerRule::Free | ContainerRule::Unknown => true,
            ContainerRule::Metadata => self.metadata,
            _ => false,
        })
    }

    fn name(&mut self, range: &Range<usize>) {
        if !range.is_empty() && self.is_free() {
            self.push(range.clone(), None, SpanKind::Name, None);
        }
    }

    fn push(&mut self, range: Range<usize>, name: Option<Range<usize>>, kind: SpanKind, channel: Option<TextChannel>) {
        // What a medium turns out to be decides whether it counts as text.
        if self.facts_only && !matches!(kind, SpanKind::Media(_)) {
            return;
        }
        let own = |n: &Range<usize>| fields::is_fixed_prompt(self.bytes(n));
        let fixed = !self.events
            && self
                .frames
                .last()
                .is_some_and(|f| f.fixed || f.zone == ContainerRule::Known && name.as_ref().is_some_and(own));
        self.out.spans.push(TextSpan { range, name, kind, channel, fixed });
    }

    fn text(&mut self, range: Range<usize>) {
        let key = self.key();
        let name = self.bytes(&key);
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else {
            return self.push_span(range, None, SpanKind::Text);
        };
        let zone = frame.zone;
        if frame.object && matches!(zone, ContainerRule::Known | ContainerRule::Unknown) {
            match name {
                b"type" | b"event_type" => frame.kind = Some(range.clone()),
                b"role" => frame.role = Some(range.clone()),
                b"signature" => frame.signed |= range.len() >= MIN_SIGNATURE_LEN,
                b"media_type" | b"mediaType" | b"mimeType" | b"mime_type" | b"format" => {
                    frame.media_type = Some(range.clone())
                }
                b"finish_reason" | b"finishReason" if !range.is_empty() => frame.finished = true,
                b"model" if depth == 1 => self.out.model = Some(range.clone()),
                b"id" | b"responseId" if depth == 1 => self.out.id = Some(range.clone()),
                // Several answers may be under way on one connection.
                b"response_id" if depth == 1 && self.events => {
                    frame.index = fnv1a(frame.index, self.json.get(range.clone()).unwrap_or_default());
                }
                b"previous_response_id" | b"conversation" if depth == 1 => self.out.continues = Some(range.clone()),
                _ => {}
            }
        }
        match container_rules::string_role(zone, name, self.is_named()) {
            StringRole::Structure => {}
            StringRole::Identifier if fields::is_opaque(self.bytes(&range)) => {}
            StringRole::Metadata | StringRole::Identifier if !self.metadata => {}
            StringRole::Text | StringRole::Metadata | StringRole::Identifier => {
                self.push_span(range, Some(key), SpanKind::Text)
            }
            StringRole::Json => self.push_span(range, Some(key), SpanKind::Json),
            StringRole::Blob => self.blob(range, key),
        }
    }

    /// Whether the object at hand is a message, whose name is its author's, or a document.
    fn is_named(&self) -> bool {
        let [.., list, object] = self.frames.as_slice() else { return false };
        let message = !list.object && self.bytes(&list.key) == b"messages";
        object.object && (message || self.bytes(&object.key) == b"document")
    }

    fn push_span(&mut self, range: Range<usize>, name: Option<Range<usize>>, kind: SpanKind) {
        if range.is_empty() {
            return;
        }
        if !matches!(kind, SpanKind::Media(_)) {
            self.out.text_bytes += range.len();
        }
        let channel = if self.events { self.channel(name.as_ref()) } else { None };
        let kind = match (kind, channel) {
            // Bedrock sends a tool call's arguments under a name that elsewhere holds text.
            (SpanKind::Text, Some(_)) if name.as_ref().is_some_and(|n| self.bytes(n) == b"input") => SpanKind::Json,
            (kind, _) => kind,
        };
        self.push(range, name, kind, channel);
    }

    /// Whether a string of an event continues a text, and which one, as far as its name tells.
    fn channel(&self, name: Option<&Range<usize>>) -> Option<TextChannel> {
        let key = name.map_or(&b""[..], |n| self.bytes(n));
        let frame = self.frames.last()?;
        let inside = |list: &[u8]| self.frames.iter().any(|f| self.bytes(&f.key) == list);
        let continues = frame.in_delta
            || match (self.frames.len(), key) {
                (1, b"delta" | b"response" | b"thinking" | b"completion" | b"outputText" | b"generation") => true,
                (2, b"content" | b"thinking") => self.bytes(&frame.key) == b"message",
                (_, b"text") => {
                    inside(b"choices") || inside(b"candidates") || inside(b"outputs") || inside(b"serverContent")
                }
                _ => false,
            };
        continues.then(|| TextChannel { id: fnv1a(0, key), group: 0 })
    }

    fn blob(&mut self, range: Range<usize>, key: Range<usize>) {
        match media::classify_blob(self.bytes(&range)) {
            BlobContent::Address => {}
            BlobContent::Text => self.push_span(range, Some(key), SpanKind::Text),
            BlobContent::Base64(skip, media_type) => {
                let media_type = media_type.map(|t| t.start + range.start..t.end + range.start);
                let open = MediaSpan {
                    kind: MediaKind::Document,
                    whole: range.start - 1..range.end + 1,
                    stand_in: "\"\"".into(),
                };
                let at = self.out.spans.len();
                self.push_span(range.start + skip..range.end, Some(key.clone()), SpanKind::Media(open));
                if self.out.spans.len() > at {
                    if let Some(t) = media_type {
                        self.classify_media(at, &t, &key);
                    }
                    if let Some(frame) = self.frames.last_mut() {
                        frame.media.push(at);
                    }
                }
            }
        }
    }

    /// Says what a medium is.
    fn classify_media(&mut self, at: usize, media_type: &Range<usize>, key: &Range<usize>) {
        let known = media::media_span_kind(self.bytes(media_type), self.bytes(key));
        if let Some(span) = self.out.spans.get_mut(at) {
            match (known, &mut span.kind) {
                (Ok(text), kind @ SpanKind::Media(_)) => {
                    self.out.text_bytes += span.range.len() * 3 / 4;
                    *kind = text;
                }
                (Err(found), SpanKind::Media(media)) => media.kind = found,
                _ => {}
            }
        }
    }

    fn scalar(&mut self, range: &Range<usize>) {
        let key = self.key();
        let (name, value) = (self.bytes(&key), self.bytes(range));
        let depth = self.frames.len();
        if self.is_free() && value.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-') {
            self.push(range.clone(), Some(key.clone()), SpanKind::Number, None);
        }
        let number = || std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        match name {
            b"stream" if depth == 1 => self.out.stream = Some(value == b"true"),
            b"max_tokens"
            | b"max_completion_tokens"
            | b"max_output_tokens"
            | b"maxOutputTokens"
            | b"maxTokens"
            | b"num_predict"
                if depth <= 2 =>
            {
                self.out.max_output = number().or(self.out.max_output);
            }
            b"done" if depth == 1 && value == b"true" && self.events => self.out.ended.push(EndedChannels::All),
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

    /// A value has ended: in an array, the next one is another.
    fn end_value(&mut self, range: Range<usize>) {
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else { return };
        frame.count += 1;
        let first = frame.count == 1;
        let name = if frame.object { frame.name.clone() } else { frame.key.clone() };
        if self.out.first_message.is_none() && !self.events {
            let conversation = matches!(self.bytes(&name), b"messages" | b"contents" | b"input" | b"prompt");
            let in_list = depth == 2 && first && self.frames.last().is_some_and(|f| !f.object);
            let alone = depth == 1 && self.json.get(range.start) == Some(&b'"');
            if conversation && (in_list || alone) {
                self.out.first_message = Some(range);
            }
        }
    }

    fn close(&mut self, end: usize, name: &[u8]) {
        let Some(frame) = self.frames.pop() else { return };
        let range = frame.start..end;
        let element = self.frames.last().is_some_and(|f| !f.object);
        self.close_signed(&frame, element);
        self.close_media(&frame, &range, element);
        if self.events {
            self.close_channels(&frame, name);
        }
        self.end_value(range);
    }

    /// What the provider signed goes back as it came, and what it encrypted is no text; what a system or developer
    /// message says is part of the fixed prompts.
    fn close_signed(&mut self, frame: &ContainerFrame, element: bool) {
        if frame.zone != ContainerRule::Known || !frame.object {
            return;
        }
        let kind = frame.kind.clone().map_or(&b""[..], |k| self.bytes(&k));
        if matches!(kind, b"redacted_thinking" | b"reasoning.encrypted") {
            self.out.spans.truncate(frame.first);
            return;
        }
        // In a stream, the signature comes when the text is over.
        let thinks = kind == b"thinking_delta" || kind == b"reasoning.text" && self.events;
        if frame.signed || thinks || self.events && self.bytes(&frame.key) == b"reasoningContent" {
            let json = self.json;
            let of = |s: &TextSpan| s.name.clone().and_then(|n| json.get(n)).unwrap_or_default();
            let own = self.out.spans.iter_mut().skip(frame.first);
            own.filter(|s| s.kind == SpanKind::Text && matches!(of(s), b"thinking" | b"text"))
                .for_each(|s| s.kind = SpanKind::Signed);
        }
        let role = frame.role.clone().map_or(&b""[..], |r| self.bytes(&r));
        if element && !self.events && matches!(role, b"system" | b"developer") {
            self.out.spans.iter_mut().skip(frame.first).for_each(|s| s.fixed = true);
        }
    }

    /// What a medium is, is told by the members around it; what takes it out is its content part.
    fn close_media(&mut self, frame: &ContainerFrame, range: &Range<usize>, element: bool) {
        for &at in &frame.media {
            if let Some(t) = frame.media_type.clone() {
                self.classify_media(at, &t, &frame.key);
            }
            let key = self.bytes(&frame.key);
            let part = self.media_at(at);
            let Some(media) = part else { continue };
            if media.kind == MediaKind::Document
                && let Err(kind) = media::media_span_kind(b"", key)
            {
                media.kind = kind;
            }
        }
        if !frame.object || !element {
            let list = !frame.object && self.bytes(&frame.key) == b"images";
            for &at in &frame.media {
                if list && let Some(media) = self.media_at(at) {
                    *media = MediaSpan {
                        kind: MediaKind::Image,
                        whole: range.start + 1..range.end - 1,
                        stand_in: String::new(),
                    };
                }
            }
            if !list && let Some(around) = self.frames.last_mut() {
                around.media.extend(&frame.media);
            }
            return;
        }
        let kind = frame.kind.clone().map(|k| self.bytes(&k));
        for &at in &frame.media {
            if let Some(media) = self.media_at(at) {
                media.whole = range.clone();
                media.stand_in = media::placeholder_part(kind, media.kind);
            }
        }
    }

    fn media_at(&mut self, at: usize) -> Option<&mut MediaSpan> {
        match &mut self.out.spans.get_mut(at)?.kind {
            SpanKind::Media(media) => Some(media),
            _ => None,
        }
    }

    /// Which text each piece continues follows from the names and indices on the way to it.
    fn close_channels(&mut self, frame: &ContainerFrame, name: &[u8]) {
        let root = self.frames.is_empty();
        let kind = frame.kind.clone().map_or(name, |k| self.bytes(&k));
        let place = match self.frames.last() {
            // An index is better than a place: a second choice may come alone.
            Some(list) if !list.object && frame.index == 0 => fnv1a(1, &list.count.to_le_bytes()),
            _ => fnv1a(frame.index, self.bytes(&frame.key)),
        };
        let choice = !root && matches!(self.bytes(&frame.key), b"choices" | b"candidates") && frame.object;
        let arguments = root && kind.ends_with(b"arguments.delta");
        if root && kind.ends_with(b"audio.delta") {
            // Sound in base64, whose pieces must stay what they are.
            self.out.spans.clear();
        }
        if root && container_rules::is_piece(kind) {
            for span in self.out.spans.iter_mut().filter(|s| s.channel.is_none()) {
                let key = span.name.clone().and_then(|n| self.json.get(n)).unwrap_or_default();
                if key == b"parameters" {
                    span.kind = SpanKind::Json;
                }
                span.channel = Some(TextChannel { id: fnv1a(0, key), group: 0 });
            }
        }
        for span in self.out.spans.iter_mut().skip(frame.first) {
            let Some(channel) = &mut span.channel else { continue };
            channel.id = fnv1a(channel.id, &place.to_le_bytes());
            if choice || root && channel.group == 0 {
                channel.group = place;
            }
            if root {
                let own = span.name.clone().is_some_and(|n| self.json.get(n) == Some(b"delta"));
                if own {
                    channel.id = fnv1a(channel.id, kind);
                }
                if own && arguments {
                    span.kind = SpanKind::Json;
                }
            }
        }
        if frame.finished {
            self.out.ended.push(if root { EndedChannels::All } else { EndedChannels::Group(place) });
        }
        if root && let Some(all) = container_rules::ends(kind) {
            self.out.ended.push(if all { EndedChannels::All } else { EndedChannels::Group(place) });
        }
    }
}

/// FNV-1a, one step per byte.
fn fnv1a(seed: u64, bytes: &[u8]) -> u64 {
    let start = seed ^ 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}
