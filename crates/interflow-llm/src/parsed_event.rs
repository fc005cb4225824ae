//! An event of a response that several readers look at: its JSON is decoded and its texts are located once for all of
//! them.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_codec::aws_event_stream;
use interflow_codec::json::{JsonError, children, replace_ranges};
use interflow_codec::sse::SseEvent;
use interflow_types::ByteStr;
use memchr::memmem::Finder;

use crate::event_stream::{StreamEvent, StreamFraming};
use crate::spans::{MarkError, MarkedText, mark_event, string_at};

/// The events in which Bedrock's InvokeModel wraps the model's JSON: in base64, in the member `bytes`.
const CHUNK: &str = "chunk";

/// The member's name, which most events do not have.
static WRAPPER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"bytes\""));

/// An event, with what was read of it so far.
#[derive(Debug)]
pub struct ParsedEvent {
    event: StreamEvent,
    inner: OnceLock<Result<Option<WrappedJson>, JsonError>>,
    marked: OnceLock<Result<MarkedText, MarkError>>,
}

/// The JSON inside InvokeModel's payload, and the range of the string that it is in.
#[derive(Debug)]
struct WrappedJson {
    json: Vec<u8>,
    range: Range<usize>,
}

impl WrappedJson {
    /// `None` if the event is not a chunk. One that cannot be read as one is an error, so that nothing passes unread.
    fn of(event: &StreamEvent) -> Result<Option<Self>, JsonError> {
        let (data, is_chunk) = (&event.data, event.name.as_deref() == Some(CHUNK) && !event.headers.is_empty());
        if !is_chunk && WRAPPER.find(data).is_none() {
            return Ok(None);
        }
        let (mut found, mut count) = (None, 0);
        let read = children(data, 0..data.len(), |name, value| {
            if string_at(data, name).is_some_and(|name| name == "bytes") {
                (count, found) = (count + 1, Self::read(data, value));
            }
        });
        match found.filter(|_| count == 1 && read.is_ok()) {
            None if is_chunk => Err(JsonError { at: 0, reason: "a chunk without the JSON of a model in base64" }),
            found => Ok(found),
        }
    }

    /// Reads the value of the member.
    fn read(data: &[u8], value: Range<usize>) -> Option<Self> {
        data.get(value.start).filter(|byte| **byte == b'"')?;
        let range = value.start + 1..value.end - 1;
        let json = STANDARD.decode(string_at(data, Some(range.clone()))?).ok()?;
        Some(Self { json, range })
    }
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
        if let Ok(Some(inner)) = self.inner() { &inner.json } else { &self.event.data }
    }

    fn inner(&self) -> Result<Option<&WrappedJson>, JsonError> {
        self.inner.get_or_init(|| WrappedJson::of(&self.event)).as_ref().map(Option::as_ref).map_err(|e| *e)
    }

    /// The texts in its JSON.
    ///
    /// # Errors
    /// As [`mark_event`], or it is a chunk that cannot be read.
    pub fn marked(&self) -> Result<&MarkedText, &MarkError> {
        let mark = || self.inner().map_err(MarkError::from).and_then(|_| mark_event(self.json(), self.name()));
        self.marked.get_or_init(mark).as_ref()
    }

    /// The event with other JSON. Everything else, headers and field order included, stays as the provider sent it.
    ///
    /// # Errors
    /// The framing cannot have this JSON, and why.
    pub fn with_json(&self, json: &[u8]) -> Result<StreamEvent, String> {
        let Self { event, .. } = self;
        let wrap = |inner: &WrappedJson| {
            let base64 = STANDARD.encode(json);
            replace_ranges(&event.data, [(inner.range.clone(), base64.as_bytes())].into_iter())
        };
        let wrapped = self.inner().map_err(|e| e.to_string())?.map(wrap);
        let data = wrapped.as_deref().unwrap_or(json);
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

#[cfg(test)]
mod tests {
    use interflow_codec::aws_event_stream::HeaderValue;

    use super::*;
    use crate::usage::UsageReader;

    fn event(name: &str, payload: &str) -> ParsedEvent {
        let (mut raw, name) = (Vec::new(), (":event-type".into(), HeaderValue::String(name.into())));
        aws_event_stream::write_message(&mut raw, &[name], payload.as_bytes()).unwrap();
        StreamEvent::from_raw(StreamFraming::EventStream, raw.into()).into()
    }

    #[test]
    fn the_json_of_a_chunk_is_read_and_replaced_wherever_it_is_in_the_payload() {
        let json = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a/b?>~"}}"#;
        for payload in [
            r#"{"bytes":"*","p":"ab"}"#,
            r#"{"bytes": "*", "p": "ab"}"#,
            r#"{ "bytes" : "*" }"#,
            r#"{"p":"ab","bytes":"*"}"#,
            r#"{"p":{"bytes":"x"},"b\u0079tes":"*"}"#,
            "\n{\r\n\"bytes\":\n\"*\"}\n",
        ] {
            let of = |json: &str| payload.replace('*', &STANDARD.encode(json));
            let chunk = event("chunk", &of(json));
            assert_eq!(String::from_utf8_lossy(chunk.json()), json, "{payload}");
            assert_eq!(chunk.marked().unwrap().spans.len(), 1, "{payload}");
            let mut usage = UsageReader::default();
            usage.read(&chunk);
            assert!(usage.has_text() && usage.unreported_output() > 0, "{payload}");
            let (other, name) = (chunk.with_json(b"{}").unwrap(), Some("chunk"));
            assert_eq!((&other.data[..], other.name.as_deref()), (of("{}").as_bytes(), name), "{payload}");
        }
        // Some encoders write `/` as `\/`.
        let escaped = STANDARD.encode(json).replace('/', r"\/");
        assert!(escaped.contains('\\'));
        assert_eq!(event("chunk", &format!(r#"{{"bytes":"{escaped}"}}"#)).json(), json.as_bytes());
    }

    #[test]
    fn a_chunk_without_readable_json_of_the_model_is_an_error() {
        let json = STANDARD.encode("{}");
        for payload in [
            format!(r#"{{"bytes":"{json}","bytes":"{json}"}}"#),
            format!(r#"{{"bytes":"{json}","\u0062ytes":7}}"#),
            format!(r#"{{"Bytes":"{json}"}}"#),
            format!(r#"[{{"bytes":"{json}"}}]"#),
            format!(r#"{{"bytes":"{json}"#),
            format!(r#"{{"bytes":["{json}"]}}"#),
            r#"{"bytes":"e30"}"#.to_owned(),
            r#"{"bytes":null}"#.to_owned(),
            r#"{"type":"ping"}"#.to_owned(),
        ] {
            let chunk = event("chunk", &payload);
            assert!(chunk.marked().is_err() && chunk.with_json(b"{}").is_err(), "{payload}");
        }
        // Other events may have such a member.
        for payload in [r#"{"bytes":null}"#, r#"{"delta":{"bytes":"e30="}}"#] {
            let other = event("contentBlockDelta", payload);
            assert!(other.marked().is_ok() && other.json() == payload.as_bytes(), "{payload}");
        }
    }
}
