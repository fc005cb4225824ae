//! An event of a response that several readers look at: its JSON is decoded and its texts are located once for all of
//! them.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_codec::aws_event_stream;
use interflow_codec::sse::SseEvent;
use interflow_types::ByteStr;

use crate::event_stream::{StreamEvent, StreamFraming};
use crate::spans::{MarkError, MarkedText, mark_event};

/// The beginning of the payload in which Bedrock's InvokeModel wraps the provider's JSON, in base64.
const CHUNK_PREFIX: &[u8] = b"{\"bytes\":\"";

/// An event, with what was read of it so far.
#[derive(Debug)]
pub struct ParsedEvent {
    event: StreamEvent,
    /// The JSON inside InvokeModel's payload.
    inner: OnceLock<Option<Vec<u8>>>,
    marked: OnceLock<Result<MarkedText, MarkError>>,
}

impl From<StreamEvent> for ParsedEvent {
    fn from(event: StreamEvent) -> Self {
        Self { event, inner: OnceLock::new(), marked: OnceLock::new() }
    }
}

impl ParsedEvent {
    pub const fn event(&self) -> &StreamEvent {
        &self.event
    }

    pub fn into_event(self) -> StreamEvent {
        self.event
    }

    /// All bytes as they are sent.
    pub const fn raw(&self) -> &Bytes {
        &self.event.raw
    }

    pub fn name(&self) -> Option<&str> {
        self.event.name.as_deref()
    }

    /// The provider's JSON, or the word in its place.
    pub fn json(&self) -> &[u8] {
        self.inner().unwrap_or(&self.event.data)
    }

    fn inner(&self) -> Option<&[u8]> {
        let decode = || {
            let text = self.event.data.strip_prefix(CHUNK_PREFIX)?;
            STANDARD.decode(text.get(..memchr::memchr(b'"', text)?)?).ok()
        };
        self.inner.get_or_init(decode).as_deref()
    }

    /// The texts in its JSON.
    ///
    /// # Errors
    /// As [`mark_event`].
    pub fn marked(&self) -> Result<&MarkedText, &MarkError> {
        self.marked.get_or_init(|| mark_event(self.json(), self.name())).as_ref()
    }

    /// The event with other JSON. Everything else, headers and field order included, stays as the provider sent it.
    ///
    /// # Errors
    /// The framing cannot have this JSON, and why.
    pub fn with_json(&self, json: &[u8]) -> Result<StreamEvent, String> {
        let Self { event, .. } = self;
        let wrapped;
        let data = if self.inner().is_some() {
            let rest = event.data.get(CHUNK_PREFIX.len()..).unwrap_or_default();
            let rest = memchr::memchr(b'"', rest).and_then(|end| rest.get(end..)).unwrap_or_default();
            wrapped = [CHUNK_PREFIX, STANDARD.encode(json).as_bytes(), rest].concat();
            &wrapped[..]
        } else {
            json
        };
        // AWS event streams have checksums over the whole message, so it is written anew.
        if !event.headers.is_empty() {
            let mut out = Vec::new();
            aws_event_stream::write_message(&mut out, &event.headers, data).map_err(|e| e.to_string())?;
            return Ok(StreamEvent::from_raw(StreamFraming::EventStream, out.into()));
        }
        if let Some(at) = event.at {
            let before = event.raw.get(..at).unwrap_or_default();
            let after = event.raw.get(at + event.data.len()..).unwrap_or_default();
            let raw = Bytes::from([before, data, after].concat());
            let data = raw.slice(at..at + data.len());
            return Ok(StreamEvent { raw, data, at: Some(at), name: event.name.clone(), ..event.clone() });
        }
        let text = std::str::from_utf8(data).map_err(|_| "an event is not UTF-8".to_owned())?;
        let (name, data) = (event.name.as_ref().map(ByteStr::to_string), Some(text.to_owned()));
        let mut out = Vec::new();
        SseEvent { event: name, data, ..SseEvent::default() }.write_to(&mut out);
        Ok(StreamEvent::from_raw(StreamFraming::Sse, out.into()))
    }
}
