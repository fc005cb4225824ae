//! The body of a streamed response, with the steps that its events go through.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use interflow_codec::content_coding::{self as coding, ContentDecoder};
use interflow_llm::event_stream::{EventError, EventReader, StreamFraming, begins_json};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_types::{Body, BodyFrame, BodyStream, BodyTap, Error, Headers, Result};

use super::abort::StreamAbort;

/// The largest event that is parsed. A larger one ends a stream that is rewritten, because its texts could not be
/// inspected.
const MAX_EVENT_BYTES: usize = 16 << 20;
/// Maximum decoded size of a stream up to which it is read, if nothing in it is rewritten. Protects against a compressed
/// response that never ends.
const MAX_DECODED_BYTES: u64 = 4 << 30;
/// Of a compressed body in memory, so much is decoded to learn how it begins.
const MAX_SNIFFED: usize = 256 << 10;

/// Reads events, and changes nothing.
pub(crate) trait EventObserver: Send + 'static {
    fn event(&mut self, event: &ParsedEvent);

    /// Nothing more is read. Not called if the client left.
    fn end(&mut self, end: ReadEnd);
}

/// Why nothing more is read of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    Complete,
    /// All was received, but its content coding ends too early.
    Truncated,
    /// The transfer failed.
    Broken,
    /// It cannot be decoded, or is too large.
    Unreadable,
}

/// Whether a stream that was cut is complete all the same.
pub(crate) type Rescue = Result<(), AbortCause>;

/// What a stream ended in instead of a complete event, and is sent last.
pub(crate) type StreamRest = Result<Option<ParsedEvent>, StreamAbort>;

/// Changes events. What it does not change it passes on as it is.
pub(crate) trait EventStep: Send {
    /// Processes an event: appends to `out` what is sent in its place.
    fn event(&mut self, event: ParsedEvent, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort>;

    /// The end of the stream, and what it ended in instead of a complete event. Returns the bytes that are sent last.
    fn finish(&mut self, rest: Option<ParsedEvent>, out: &mut Vec<ParsedEvent>) -> StreamRest;

    /// The end of a stream whose coding ends too early.
    fn finish_truncated(&mut self, why: AbortCause, _rest: Option<ParsedEvent>, _out: &mut Vec<ParsedEvent>) -> Rescue {
        Err(why)
    }

    /// The stream is cut off: appends what the client is told. `is_begun` says whether it has received anything yet.
    fn abort(&mut self, cause: AbortCause, is_begun: bool, out: &mut Vec<ParsedEvent>) -> StreamEnd;

    /// Data has arrived and was processed; whether the stream ends here.
    fn after_data(&mut self, _out: &mut Vec<ParsedEvent>) -> bool {
        false
    }

    fn forwards_trailers(&self) -> bool {
        true
    }
}

/// Why a stream is cut off at a step.
pub(crate) enum AbortCause {
    /// The step failed.
    Step(StreamAbort),
    /// The content coding cannot be decoded.
    Coding(io::Error),
    /// The stream cannot be divided into events.
    Framing(EventError),
    /// The transfer failed.
    Transfer(Error),
}

impl AbortCause {
    /// The reason by its code.
    ///
    /// # Errors
    /// The transfer failed.
    pub fn into_abort(self) -> Result<StreamAbort> {
        match self {
            Self::Step(halt) => Ok(halt),
            Self::Coding(e) => Ok(StreamAbort::broken(e)),
            Self::Framing(e) => Ok(StreamAbort::broken(e)),
            Self::Transfer(e) => Err(e),
        }
    }
}

/// How a stream ends after its last bytes.
pub(crate) enum StreamEnd {
    Complete,
    /// It fails, so that the client does not take it for complete.
    Failed(Error),
}

/// What was read ahead of a stream.
pub(crate) enum ReadAhead {
    /// So many bytes.
    Data(usize),
    End,
    /// The transfer failed.
    Failed(String),
    /// It cannot be decoded or divided into events.
    Unreadable,
}

enum Station {
    /// Observes bytes.
    Tap(Box<dyn BodyTap>),
    /// `None` after its end.
    Observer(Option<Box<dyn EventObserver>>),
    /// The flag says whether it has sent anything.
    Step(Box<dyn EventStep>, bool),
}

/// What goes from station to station: the events of a frame.
#[derive(Default)]
struct Batch {
    /// The frame as it was received, until a step has seen it.
    frame: Option<Bytes>,
    events: Vec<ParsedEvent>,
    /// Why the stream cannot be read any further.
    fault: Option<AbortCause>,
    /// Its coding ends too early. What was read before is all that observers get of it.
    truncation: Option<AbortCause>,
    /// What the stream ended in: an incomplete event; after a failed transfer, all that was not passed on.
    rest: Vec<ParsedEvent>,
    /// Trailers, with which the stream ends.
    trailers: Option<BodyFrame>,
    end: Option<StreamEnd>,
}

/// A response body whose events are read, and may be changed, while it is relayed. Not more than one incomplete event is
/// buffered, and what steps hold back.
pub(crate) struct ResponseStream {
    source: Body,
    decoder: Option<ContentDecoder>,
    /// `None` once nothing more can be read.
    events: Option<EventReader>,
    /// What was read before it was asked for.
    ahead: VecDeque<Batch>,
    stations: Vec<Station>,
    has_steps: bool,
    /// The framing of what leaves the last station, as far as it is known: that of its media type, or of its first bytes.
    pub framing: StreamFraming,
    /// The codings that its head names.
    codings: Vec<Bytes>,
    /// Whether it begins as a JSON object or array does.
    pub is_json: bool,
    is_begun: bool,
    /// The stations know that the stream has ended.
    is_over: bool,
    /// Sent after all that the stations make of the end.
    trailers: Option<BodyFrame>,
    failure: Option<Error>,
}

/// The content codings that a head names.
fn codings(headers: &Headers) -> Vec<Bytes> {
    headers.list_items("content-encoding").map(Bytes::copy_from_slice).collect()
}

/// The body, the framing that it has, and whether it begins as JSON does: its media type may be wrong. Unless that is the type
/// of a stream, the first bytes are awaited.
pub(crate) async fn sniff(mut body: Body, headers: &Headers, expected: StreamFraming) -> (Body, StreamFraming, bool) {
    if !matches!(body, Body::Full(_)) {
        body = ResponseStream::open(body, headers, expected).unwrap_or_else(|(body, _)| body);
    }
    if let Some(stream) = ResponseStream::of(&mut body, headers) {
        while stream.is_undecided() && matches!(stream.read_ahead(|_| {}).await, ReadAhead::Data(_)) {}
    }
    let (framing, is_json) = known_framing(&mut body, headers, expected);
    (body, framing, is_json)
}

/// The framing of a body as far as it was read, and whether it begins as JSON does.
pub(crate) fn known_framing(body: &mut Body, headers: &Headers, expected: StreamFraming) -> (StreamFraming, bool) {
    if let Body::Full(bytes) = body {
        let begun = bytes.get(..MAX_SNIFFED).unwrap_or(bytes);
        let decoder = ContentDecoder::new(headers, MAX_DECODED_BYTES).ok().flatten();
        let begun = decoder.and_then(|mut d| d.push(begun).ok()).map_or(Cow::Borrowed(begun), Cow::Owned);
        return (expected.sniff(&begun).unwrap_or(expected), begins_json(&begun));
    }
    ResponseStream::of(body, headers).map_or((expected, false), |stream| (stream.framing, stream.is_json))
}

/// The body with an observer of its events. One in memory is read at once; one in an unknown coding stays unread.
pub(crate) fn observe(body: Body, headers: &Headers, framing: StreamFraming, mut observer: impl EventObserver) -> Body {
    if let Body::Full(bytes) = &body {
        match ResponseStream::new(Body::Full(bytes.clone()), headers, framing) {
            Ok(mut stream) => {
                stream.observe(observer);
                let mut cx = Context::from_waker(Waker::noop());
                while let Poll::Ready(Some(Ok(_))) = stream.poll_frame(&mut cx) {}
            }
            Err(_) => observer.end(ReadEnd::Unreadable),
        }
        return body;
    }
    match ResponseStream::open(body, headers, framing) {
        Ok(mut body) => {
            if let Some(stream) = body.stream_mut::<ResponseStream>() {
                stream.observe(observer);
            }
            body
        }
        Err((body, _)) => {
            observer.end(ReadEnd::Unreadable);
            body
        }
    }
}

/// The body with a step through which its events go; its head loses what is not valid any more. At most `max_decoded` bytes
/// are decoded, and `sent` is the framing of what the step sends.
///
/// # Errors
/// The body has a coding that cannot be decoded.
pub(crate) fn rewrite(
    body: Body,
    headers: &mut Headers,
    framing: StreamFraming,
    max_decoded: u64,
    step: impl EventStep + 'static,
    sent: StreamFraming,
) -> io::Result<Body> {
    let mut body = ResponseStream::open(body, headers, framing).map_err(|(_, e)| e)?;
    // The rewritten stream is sent without a content coding and without a length.
    coding::strip_stale_headers(headers);
    if let Some(stream) = body.stream_mut::<ResponseStream>() {
        stream.stations.push(Station::Step(Box::new(step), false));
        stream.has_steps = true;
        (stream.framing, stream.codings) = (sent, Vec::new());
        if let Some(decoder) = &mut stream.decoder {
            decoder.set_max(max_decoded);
        }
    }
    Ok(body)
}

/// Divides a complete stream, in these pieces, into events; returns what it ended in.
pub(crate) fn for_each_event<'b>(
    framing: StreamFraming,
    pieces: impl IntoIterator<Item = &'b [u8]>,
    mut process: impl FnMut(ParsedEvent) -> Result<(), StreamAbort>,
) -> StreamRest {
    let mut events = EventReader::new(framing, MAX_EVENT_BYTES);
    for piece in pieces {
        events.push(piece);
        while let Some(event) = events.next_event().map_err(StreamAbort::broken)? {
            process(event.into())?;
        }
    }
    Ok(events.finish().map(ParsedEvent::from))
}

impl ResponseStream {
    fn new(source: Body, headers: &Headers, framing: StreamFraming) -> Result<Self, (Body, io::Error)> {
        let decoder = match ContentDecoder::new(headers, MAX_DECODED_BYTES) {
            Ok(decoder) => decoder,
            Err(e) => return Err((source, e)),
        };
        Ok(Self {
            source,
            decoder,
            events: Some(EventReader::new(framing, MAX_EVENT_BYTES)),
            ahead: VecDeque::new(),
            stations: Vec::new(),
            has_steps: false,
            framing,
            codings: codings(headers),
            is_json: false,
            is_begun: false,
            is_over: false,
            trailers: None,
            failure: None,
        })
    }

    /// The body as such a stream. One that is one already, and of the same coding at its end, stays the same: it is neither
    /// decoded nor divided into events again. Of another, this framing is expected.
    pub fn open(mut body: Body, headers: &Headers, expected: StreamFraming) -> Result<Body, (Body, io::Error)> {
        if Self::of(&mut body, headers).is_some() {
            return Ok(body);
        }
        Self::new(body, headers, expected).map(Body::stream)
    }

    /// The body, if it is such a stream to which more can be added.
    pub fn of<'b>(body: &'b mut Body, headers: &Headers) -> Option<&'b mut Self> {
        let codings = codings(headers);
        body.stream_mut::<Self>().filter(|stream| !stream.is_begun && stream.codings == codings)
    }

    /// Whether its first bytes may still tell that it is a stream, which its media type does not say.
    pub fn is_undecided(&self) -> bool {
        let is_unread = || self.events.as_ref().is_some_and(|events| events.framing().is_none());
        matches!(self.framing, StreamFraming::Whole | StreamFraming::Lines) && !self.has_steps && is_unread()
    }

    pub fn observe(&mut self, observer: impl EventObserver) {
        self.stations.push(Station::Observer(Some(Box::new(observer))));
    }

    /// Divides received bytes into events.
    fn read(&mut self, data: &[u8], batch: &mut Batch) {
        let Some(events) = &mut self.events else { return };
        let pushed = match &mut self.decoder {
            None => {
                events.push(data);
                Ok(())
            }
            Some(decoder) => decoder.push(data).map(|plain| events.push(&plain)),
        };
        batch.fault = pushed.err().map(AbortCause::Coding);
        if let Some(framing) = events.framing().filter(|_| !self.has_steps) {
            (self.framing, self.is_json) = (framing, events.is_json());
        }
        if batch.fault.is_none() {
            self.take_events(batch);
        }
        if batch.fault.is_some() {
            self.events = None;
        }
    }

    fn take_events(&mut self, batch: &mut Batch) {
        let Some(events) = &mut self.events else { return };
        loop {
            match events.next_event() {
                Ok(Some(event)) => batch.events.push(event.into()),
                Ok(None) => return,
                Err(e) => {
                    batch.fault = Some(AbortCause::Framing(e));
                    return;
                }
            }
        }
    }

    /// The end of the received bytes.
    fn read_end(&mut self, batch: &mut Batch) {
        let Some(events) = &mut self.events else { return };
        match self.decoder.as_mut().map(ContentDecoder::finish) {
            None => {}
            Some(Ok(plain)) => {
                events.push(&plain);
                self.take_events(batch);
            }
            Some(Err(e)) => batch.truncation = Some(AbortCause::Coding(e)),
        }
        batch.rest.extend(self.events.take().and_then(|mut events| events.finish()).map(ParsedEvent::from));
    }

    /// Passes a batch through the stations.
    fn run(&mut self, mut batch: Batch) -> Batch {
        let is_end = batch.end.is_some();
        for station in &mut self.stations {
            match station {
                Station::Tap(tap) => batch.show(&mut **tap),
                Station::Observer(observer) => batch.read_by(observer),
                Station::Step(step, is_begun) => batch.go_through(&mut **step, is_begun, !is_end),
            }
        }
        batch
    }

    fn deliver(&mut self, batch: Batch) -> Option<Bytes> {
        let mut batch = self.run(batch);
        let bytes = batch.bytes();
        if let Some(end) = batch.end {
            self.is_over = true;
            // A step behind observers may have ended the stream: what they counted is settled before the body is dropped.
            self.stations.retain(|station| !matches!(station, Station::Observer(_)));
            match end {
                StreamEnd::Complete => self.trailers = batch.trailers,
                StreamEnd::Failed(e) => self.failure = Some(e),
            }
        }
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    /// Reads the next frame.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Batch> {
        let mut batch = Batch { frame: Some(Bytes::new()), ..Batch::default() };
        match ready!(self.source.poll_frame(cx)) {
            Some(Ok(BodyFrame::Data(data))) => {
                self.read(&data, &mut batch);
                batch.frame = Some(data);
            }
            // Nothing follows them (RFC 9112 7.1.2, RFC 9113 8.1).
            Some(Ok(trailers @ BodyFrame::Trailers(_))) => {
                batch.trailers = Some(trailers);
                self.read_end(&mut batch);
                batch.end = Some(StreamEnd::Complete);
            }
            Some(Err(e)) => {
                self.read_end(&mut batch);
                // Steps do not send it.
                batch.rest.splice(..0, batch.events.drain(..));
                batch.truncation = None;
                batch.end = Some(StreamEnd::Failed(e));
            }
            None => {
                self.source = Body::Empty;
                self.read_end(&mut batch);
                batch.end = Some(StreamEnd::Complete);
            }
        }
        Poll::Ready(batch)
    }

    /// Reads the next frame before it is asked for, and shows its events. It stays to be relayed.
    ///
    /// # Cancellation
    /// Nothing is lost if the future is dropped.
    pub async fn read_ahead(&mut self, mut see: impl FnMut(&ParsedEvent)) -> ReadAhead {
        let batch = poll_fn(|cx| self.poll_batch(cx)).await;
        batch.events.iter().chain(&batch.rest).for_each(&mut see);
        let read = match &batch.end {
            _ if batch.fault.is_some() => ReadAhead::Unreadable,
            None => ReadAhead::Data(batch.frame.as_ref().map_or(0, Bytes::len)),
            Some(StreamEnd::Complete) => ReadAhead::End,
            Some(StreamEnd::Failed(e)) => ReadAhead::Failed(e.to_string()),
        };
        match self.ahead.back_mut() {
            // A reader that knows that nothing follows does not ask for the end.
            Some(last) if batch.end.is_some() => {
                last.events.extend(batch.events);
                last.rest.extend(batch.rest);
                (last.fault, last.truncation) = (last.fault.take().or(batch.fault), batch.truncation);
                (last.trailers, last.end) = (batch.trailers, batch.end);
            }
            _ => self.ahead.push_back(batch),
        }
        read
    }
}

impl Batch {
    /// The bytes at this point.
    fn bytes(&mut self) -> Bytes {
        if let Some(frame) = &self.frame {
            return frame.clone();
        }
        match (&self.events[..], &self.rest[..]) {
            ([], []) => Bytes::new(),
            ([event], []) => event.raw().clone(),
            (events, rest) => {
                let raw: Vec<&[u8]> = events.iter().chain(rest).map(|event| &event.raw()[..]).collect();
                raw.concat().into()
            }
        }
    }

    fn show(&mut self, tap: &mut dyn BodyTap) {
        let bytes = self.bytes();
        if !bytes.is_empty() {
            tap.frame(Some(Ok(&BodyFrame::Data(bytes))));
        }
        if let Some(trailers) = &self.trailers {
            tap.frame(Some(Ok(trailers)));
        }
        match &self.end {
            None => {}
            Some(StreamEnd::Complete) => tap.frame(None),
            Some(StreamEnd::Failed(e)) => tap.frame(Some(Err(e))),
        }
    }

    fn read_by(&mut self, station: &mut Option<Box<dyn EventObserver>>) {
        let Some(observer) = station else { return };
        self.events.iter().for_each(|event| observer.event(event));
        let end = match (&self.fault, &self.end) {
            (Some(_), _) => ReadEnd::Unreadable,
            (None, None) => return,
            (None, Some(StreamEnd::Complete)) if self.truncation.is_some() => ReadEnd::Truncated,
            (None, Some(StreamEnd::Complete)) => ReadEnd::Complete,
            (None, Some(StreamEnd::Failed(_))) => ReadEnd::Broken,
        };
        self.rest.iter().for_each(|event| observer.event(event));
        observer.end(end);
        *station = None;
    }

    fn go_through(&mut self, step: &mut dyn EventStep, is_begun: &mut bool, is_data: bool) {
        self.frame = None;
        self.trailers = self.trailers.take().filter(|_| step.forwards_trailers());
        let mut out = Vec::new();
        let (fault, truncation) = (self.fault.take(), self.truncation.take());
        let processed = std::mem::take(&mut self.events).into_iter().try_for_each(|event| step.event(event, &mut out));
        let mut cause = processed.err().map(AbortCause::Step).or(fault);
        let rest = std::mem::take(&mut self.rest).pop();
        if cause.is_none() {
            match self.end.take() {
                None if is_data && step.after_data(&mut out) => self.end = Some(StreamEnd::Complete),
                None => {}
                Some(StreamEnd::Complete) => {
                    let finished = match truncation {
                        None => step.finish(rest, &mut out).map_err(AbortCause::Step),
                        Some(why) => step.finish_truncated(why, rest, &mut out).map(|()| None),
                    };
                    match finished {
                        Ok(rest) => self.rest.extend(rest),
                        Err(why) => cause = Some(why),
                    }
                    self.end = Some(StreamEnd::Complete);
                }
                Some(StreamEnd::Failed(e)) => cause = Some(AbortCause::Transfer(e)),
            }
        }
        if let Some(cause) = cause {
            self.rest.clear();
            self.trailers = None;
            self.end = Some(step.abort(cause, *is_begun || !out.is_empty(), &mut out));
        }
        *is_begun |= !out.is_empty();
        self.events = out;
    }
}

impl BodyStream for ResponseStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        self.is_begun = true;
        loop {
            if let Some(e) = self.failure.take() {
                return Poll::Ready(Some(Err(e)));
            }
            if self.is_over {
                if let Some(trailers) = self.trailers.take() {
                    return Poll::Ready(Some(Ok(trailers)));
                }
                // A stream that was polled after its end must not be read again.
                return if self.has_steps { Poll::Ready(None) } else { self.source.poll_frame(cx) };
            }
            for station in &mut self.stations {
                if let Station::Tap(tap) = station {
                    ready!(tap.poll_ready(cx));
                }
            }
            let mut batch = match self.ahead.pop_front() {
                Some(batch) => batch,
                None => ready!(self.poll_batch(cx)),
            };
            // A reader that knows that nothing follows does not poll again.
            if batch.end.is_none() && self.remaining() == Some(0) {
                self.read_end(&mut batch);
                batch.end = Some(StreamEnd::Complete);
            }
            // A chunk may yield no output, while its event is incomplete: then the next one is awaited.
            if let Some(bytes) = self.deliver(batch) {
                return Poll::Ready(Some(Ok(BodyFrame::Data(bytes))));
            }
        }
    }

    fn add_tap(&mut self, tap: Box<dyn BodyTap>) -> Option<Box<dyn BodyTap>> {
        if self.is_begun {
            return Some(tap);
        }
        self.stations.push(Station::Tap(tap));
        None
    }

    fn remaining(&self) -> Option<u64> {
        if self.has_steps {
            return None;
        }
        let ahead = self.ahead.iter().map(|batch| match (&batch.frame, &batch.trailers, &batch.end) {
            (Some(frame), None, None | Some(StreamEnd::Complete)) => Some(frame.len() as u64),
            _ => None,
        });
        Some(ahead.sum::<Option<u64>>()? + self.source.remaining()?)
    }
}
