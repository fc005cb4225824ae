//! A response that is read as a whole: collected, decoded and parsed once for all stages that read it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_llm::LlmRefusal;
use interflow_llm::event_stream::begins_json;
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::spans::{self, MarkedText, TextSpan};
use interflow_types::budget::MemoryReservation;
use interflow_types::{Body, CollectError, EarlyExit, Error, Flow, Headers, ResponseHead};
use parking_lot::Mutex;

use crate::exchange::{BodyLimit, off_worker};

use super::abort::StreamAbort;
use super::body_copy::BodyCopy;
use super::stream::{EventObserver, ReadEnd, ResponseStream};

/// A response as its stages read it.
pub(crate) struct WholeResponse {
    raw: Bytes,
    plain: Bytes,
    marked: Option<Arc<MarkedText>>,
    /// The memory of the marks.
    held: MemoryReservation,
}

/// Why a response could not be read. What came of it may be forwarded.
pub(crate) enum UnreadResponse {
    TooLarge(Body),
    Undecodable(Bytes, io::Error),
}

impl UnreadResponse {
    /// What was received, to be forwarded unread.
    pub fn into_body(self) -> Body {
        match self {
            Self::TooLarge(body) => body,
            Self::Undecodable(raw, _) => raw.into(),
        }
    }
}

/// What a stage has read of a response that it did not change, for the next stage.
#[derive(Default)]
struct KeptResponse(Option<WholeResponse>);

/// A response that was read, or the body to forward unread.
type ReadResult<T> = Result<Result<T, UnreadResponse>, Error>;

/// Collects a body of at most `max` bytes and decodes it to as many: as it was received, and without its content coding.
///
/// # Errors
/// The transfer failed, the memory budget is exhausted, or a body that `must_be_read` must not be held; another such
/// counts as too large.
pub(crate) async fn read(headers: &Headers, mut body: Body, limit: BodyLimit) -> ReadResult<(Bytes, Bytes)> {
    let (max, must_be_read) = limit;
    // A stage that reads the body as it passes decodes it.
    let decoded = DecodedText { max, ..DecodedText::default() };
    if coding::has_content_coding(headers)
        && let Some(stream) = ResponseStream::of(&mut body, headers)
    {
        stream.observe(decoded.clone());
    }
    let raw = match body.collect_held(headers, max, must_be_read).await {
        Ok((raw, _)) => raw,
        Err(CollectError::Broken(e)) => return Err(e),
        Err(CollectError::TooLarge(body)) => {
            decoded.copy.lock().give_up();
            return Ok(Err(UnreadResponse::TooLarge(body)));
        }
    };
    let decoded = decoded.copy.lock().take();
    let plain = match decoded {
        Some(plain) => Ok(Some(plain)),
        // Nothing decoded it, or not to its end.
        None => coding::decode_off_thread(headers, &raw, max as u64).await,
    };
    Ok(match plain {
        Ok(plain) => Ok((raw.clone(), plain.unwrap_or(raw))),
        Err(e) => Err(UnreadResponse::Undecodable(raw, e)),
    })
}

/// The text of a body that is decoded while it is read.
#[derive(Clone, Default)]
struct DecodedText {
    max: usize,
    copy: Arc<Mutex<BodyCopy>>,
}

impl EventObserver for DecodedText {
    fn event(&mut self, event: &ParsedEvent) {
        self.copy.lock().push(event.raw(), self.max);
    }

    fn end(&mut self, end: ReadEnd) {
        if end != ReadEnd::Complete {
            self.copy.lock().give_up();
        }
    }
}

impl WholeResponse {
    /// Reads a response, unless the stage before kept what it read of the same bytes.
    pub async fn read(flow: &mut Flow, head: &ResponseHead, body: Body, limit: BodyLimit) -> ReadResult<Self> {
        let kept = flow.extension_mut::<KeptResponse>().0.take();
        if let (Some(kept), Body::Full(bytes)) = (kept, &body)
            && (bytes.as_ptr(), bytes.len()) == (kept.raw.as_ptr(), kept.raw.len())
            && bytes.len().max(kept.plain.len()) <= limit.0
        {
            return Ok(Ok(kept));
        }
        let read = read(&head.headers, body, limit).await?;
        Ok(read.map(|(raw, plain)| Self { raw, plain, marked: None, held: MemoryReservation::default() }))
    }

    /// As [`read`](Self::read), for a pass whose limit is `key`: `Err` has what passes unread.
    ///
    /// # Errors
    /// The transfer failed, or a strict pass cannot read it: then what `refuse` makes of that.
    pub async fn read_or(
        flow: &mut Flow,
        head: &ResponseHead,
        body: Body,
        (max, key, is_strict): (usize, &str, bool),
        refuse: impl FnOnce(&mut Flow, &LlmRefusal) -> EarlyExit,
    ) -> Result<Result<Self, Body>, EarlyExit> {
        match Self::read(flow, head, body, (max, is_strict)).await? {
            Ok(whole) => Ok(Ok(whole)),
            Err(unread) if !is_strict => Ok(Err(unread.into_body())),
            Err(UnreadResponse::TooLarge(_)) => {
                let why = format!("the response is larger than {max} bytes ({key}), so that it cannot be inspected");
                Err(refuse(flow, &StreamAbort::new("response_too_large", why).refusal()))
            }
            Err(UnreadResponse::Undecodable(_, e)) => Err(refuse(flow, &StreamAbort::unreadable(&e).refusal())),
        }
    }

    /// Its text, without a content coding.
    pub const fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// The texts in its JSON, located off this thread if it is large.
    ///
    /// # Errors
    /// It is not JSON.
    pub async fn marked(&mut self) -> Result<Arc<MarkedText>, StreamAbort> {
        if let Some(marked) = &self.marked {
            return Ok(Arc::clone(marked));
        }
        let body = self.plain.clone();
        let marked = match off_worker(body.len(), move || spans::mark_response(&body)).await {
            Some(marked) => Arc::new(marked.map_err(|e| StreamAbort::unreadable(&e))?),
            None => return Err(StreamAbort::unreadable(&"the work on the body was cut short")),
        };
        // Without room for them they are located again by the next stage.
        if self.held.resize(marked.spans.len() * size_of::<TextSpan>()).is_ok() {
            self.marked = Some(Arc::clone(&marked));
        }
        Ok(marked)
    }

    /// As [`marked`](Self::marked); `None` if it is plain text, such as a transcript (`response_format=text`). For a stage past
    /// which what it finds must not get, tokens with their probabilities are left out, as they have the text in pieces.
    ///
    /// # Errors
    /// It is neither JSON nor text.
    pub async fn marked_unless_text(
        &mut self,
        head: &mut ResponseHead,
        is_strict: bool,
    ) -> Result<Option<Arc<MarkedText>>, StreamAbort> {
        let media_type = head.headers.get_str("content-type").unwrap_or_default();
        let is_text = media_type.trim_start().to_ascii_lowercase().starts_with("text/");
        if is_text && !begins_json(&self.plain) {
            return Ok(None);
        }
        let mut marked = self.marked().await;
        let full = marked.as_ref().ok().filter(|_| is_strict);
        if let Some(rest) = full.and_then(|marked| marked.without_logprobs(&self.plain)) {
            coding::strip_stale_headers(&mut head.headers);
            self.raw = rest.into();
            (self.plain, self.marked) = (self.raw.clone(), None);
            marked = self.marked().await;
        }
        if is_text { Ok(marked.ok()) } else { marked.map(Some) }
    }

    /// The body as it is sent on.
    pub fn into_raw(self) -> Body {
        self.raw.into()
    }

    /// As [`into_raw`](Self::into_raw), for a stage after which another reads it, or calls [`forget`].
    pub fn keep(self, flow: &mut Flow) -> Body {
        let body = self.raw.clone().into();
        flow.extension_mut::<KeptResponse>().0 = Some(self);
        body
    }
}

/// Drops what was kept of a response.
pub(crate) fn forget(flow: &mut Flow) {
    if flow.extension::<KeptResponse>().is_some_and(|kept| kept.0.is_some()) {
        flow.extension_mut::<KeptResponse>().0 = None;
    }
}

/// Replaces a response's body.
pub(crate) fn replace_body(head: &mut ResponseHead, output: Vec<u8>) -> Body {
    coding::strip_stale_headers(&mut head.headers);
    Body::from(Bytes::from(output))
}
