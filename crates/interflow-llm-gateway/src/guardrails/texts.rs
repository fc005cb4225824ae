//! The texts of a body as guardrails see them, decoded, and the edits of the body that replace parts of them.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_llm::spans::{MarkedText, SpanKind, TextPlace, TextSpan, multipart};
use interflow_redact::escaped;
use interflow_types::percent;

use super::escapes::{decode, raw_range};
use crate::exchange::response::event_rewriter::ByteReplacement;
use crate::exchange::{ReadError, check_encoding, part_text, text_of_file, text_of_medium, url_encoded, utf8_text};

/// A text, and where it is in its body.
#[derive(Clone, Debug)]
pub(super) struct GuardText {
    pub place: TextPlace,
    pub text: String,
    /// Bytes of the body.
    range: Range<usize>,
    encoding: Encoding,
    /// Whether it precedes the model's last reply in a request.
    pub is_history: bool,
    /// Whether it is the next part of the message that the text before it belongs to.
    pub continues: bool,
}

/// How a text is written in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Plain,
    /// The content of a JSON string.
    Json,
    /// JSON within the content of a JSON string: a tool call's arguments.
    NestedJson,
    /// A number without quotes.
    Number,
    /// A text file in base64.
    Base64,
    /// Percent-encoded, as in a URL's query.
    Percent,
    /// In a file that is compressed.
    Compressed,
    /// The content of a JSON string that must not change, because the provider signed it.
    Signed,
}

/// A part of a text to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextEdit {
    /// The text's index.
    pub text: usize,
    pub range: Range<usize>,
    pub with: String,
}

/// A replacement would break the JSON around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unmaskable;

/// The text of one span; `None` for media that are no text, and for files that cannot be decoded.
pub(super) fn text_of_span(body: &[u8], span: &TextSpan) -> Option<GuardText> {
    // Providers read texts with invalid bytes as well, with a mark in their place.
    let raw = &*String::from_utf8_lossy(body.get(span.range.clone())?);
    let (text, encoding) = match &span.kind {
        SpanKind::Media(_) | SpanKind::Base64Text => {
            let text_of = if span.kind == SpanKind::Base64Text { text_of_file } else { text_of_medium };
            let medium = text_of(raw.as_bytes())?;
            (medium.text, if medium.is_compressed { Encoding::Compressed } else { Encoding::Base64 })
        }
        SpanKind::Number => (raw.to_owned(), Encoding::Number),
        SpanKind::Signed => (decode(raw).into_owned(), Encoding::Signed),
        SpanKind::Json => (decode(&decode(raw)).into_owned(), Encoding::NestedJson),
        SpanKind::Text | SpanKind::Name => {
            let text = decode(raw).into_owned();
            match holds_escapes(&text) {
                true => (decode(&text).into_owned(), Encoding::NestedJson),
                false => (text, Encoding::Json),
            }
        }
    };
    let place = match (&span.kind, span.place) {
        (SpanKind::Json, TextPlace::Unknown) => TextPlace::ToolCall,
        (SpanKind::Signed, TextPlace::Unknown) => TextPlace::Thinking,
        (_, place) => place,
    };
    Some(GuardText::new(place, text, span.range.clone(), encoding))
}

/// Whether a text is itself JSON with escapes, as tool results often are: a phrase after an escaped line break would
/// otherwise not be seen as beginning with a word.
fn holds_escapes(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
        && text.contains('\\')
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The texts of a JSON body, in its order.
pub(super) fn texts_of_json(body: &[u8], marked: &MarkedText) -> Vec<GuardText> {
    let mut texts: Vec<GuardText> = marked.spans.iter().filter_map(|s| text_of_span(body, s)).collect();
    let mut last: Option<(TextPlace, usize)> = None;
    for text in &mut texts {
        let between =
            last.filter(|(place, _)| *place == text.place).and_then(|(_, end)| body.get(end..text.range.start));
        text.continues = between.is_some_and(is_within_message);
        last = Some((text.place, text.range.end));
    }
    let replied = |t: &GuardText| matches!(t.place, TextPlace::Assistant | TextPlace::ToolCall | TextPlace::Thinking);
    if let Some(last) = texts.iter().rposition(replied) {
        let constant = |t: &GuardText| matches!(t.place, TextPlace::System | TextPlace::ToolDefinition);
        texts.iter_mut().take(last + 1).filter(|t| !constant(t)).for_each(|t| t.is_history = true);
    }
    texts
}

/// Longest JSON between two parts of a message, in bytes: members of a part besides its text.
const MAX_BETWEEN_PARTS: usize = 256;

/// Whether the JSON between two texts ends no message and begins none.
fn is_within_message(between: &[u8]) -> bool {
    between.len() <= MAX_BETWEEN_PARTS
        && memchr::memchr(b'{', between).is_some()
        && memchr::memchr(b']', between).is_none()
        && memchr::memmem::find(between, b"\"role\"").is_none()
}

/// The fields and files of a form that are text, their names, and what is around the parts.
///
/// # Errors
/// A part is in a charset or an encoding in which it is not read.
pub(super) fn texts_of_form(body: &[u8], form: &multipart::Form) -> Result<Vec<GuardText>, ReadError> {
    let text = |range: &Range<usize>, place| {
        let text = String::from_utf8_lossy(body.get(range.clone())?).replace('\0', "");
        let (text, range) = (Some(text).filter(|text| !text.trim().is_empty())?, range.clone());
        Some(GuardText::new(place, text, range, Encoding::Plain))
    };
    let mut texts: Vec<GuardText> = form.around.iter().filter_map(|range| text(range, TextPlace::Unknown)).collect();
    for part in &form.parts {
        check_encoding(part.is_encoded)?;
        let place = if part.file.is_some() { TextPlace::Document } else { TextPlace::User };
        texts.extend(part.texts.iter().filter_map(|head| text(&head.range, place)));
        let content = body.get(part.range.clone()).unwrap_or_default();
        if let Some(raw) = url_encoded(part, content)? {
            let mut end = part.range.start;
            texts.extend(raw.split(['&', '=']).map(|raw| {
                let range = end..end + raw.len();
                end = range.end + 1;
                let text = percent::decoded_lossy(&raw.replace('+', " "));
                GuardText::new(place, text, range, Encoding::Percent)
            }));
        } else if let Some(read) = part_text(part, content).filter(|read| !read.text.trim().is_empty()) {
            let encoding = if read.is_compressed { Encoding::Compressed } else { Encoding::Plain };
            texts.push(GuardText::new(place, read.text, part.range.clone(), encoding));
        }
    }
    Ok(texts)
}

/// A body that is one text.
pub(super) fn whole_text(body: &str, place: TextPlace) -> GuardText {
    GuardText::new(place, body.to_owned(), 0..body.len(), Encoding::Plain)
}

/// A text that was put together from a stream, and is not a part of a body.
pub(super) fn streamed_text(text: &str, place: TextPlace, is_json: bool, is_signed: bool) -> GuardText {
    let text = if is_json { decode(text).into_owned() } else { text.to_owned() };
    let encoding = if is_signed { Encoding::Signed } else { Encoding::Plain };
    GuardText::new(place, text, 0..0, encoding)
}

impl GuardText {
    fn new(place: TextPlace, text: String, range: Range<usize>, encoding: Encoding) -> Self {
        Self { place, text, range, encoding, is_history: false, continues: false }
    }

    /// Whether parts of it can be replaced.
    pub fn is_editable(&self) -> bool {
        self.encoding != Encoding::Signed
    }

    /// The edit of the body that makes these edits of the text, which are sorted and do not overlap.
    fn edit(&self, body: &[u8], edits: &[&TextEdit]) -> Result<Vec<ByteReplacement>, Unmaskable> {
        let raw = body.get(self.range.clone()).and_then(utf8_text).ok_or(Unmaskable)?;
        let at = |range: Range<usize>| range.start + self.range.start..range.end + self.range.start;
        match self.encoding {
            Encoding::Plain => Ok(edits.iter().map(|e| (at(e.range.clone()), e.with.clone())).collect()),
            Encoding::Json => Ok(edits.iter().map(|e| (at(raw_range(raw, &e.range)), escaped(&e.with))).collect()),
            Encoding::NestedJson => {
                let inner = decode(raw);
                let inside: Vec<_> = edits.iter().map(|e| (raw_range(&inner, &e.range), escaped(&e.with))).collect();
                // A match may cover quotes and braces; a tool call must stay one.
                if is_json(&inner) && !is_json(&replaced(&inner, &inside)) {
                    return Err(Unmaskable);
                }
                Ok(inside.into_iter().map(|(r, with)| (at(raw_range(raw, &r)), escaped(&with))).collect())
            }
            Encoding::Number => {
                let with = edits.first().map(|e| format!("\"{}\"", escaped(&e.with))).unwrap_or_default();
                Ok(vec![(self.range.clone(), with)])
            }
            Encoding::Base64 => Ok(vec![(self.range.clone(), STANDARD.encode(masked_text(&self.text, edits)))]),
            Encoding::Percent => Ok(vec![(self.range.clone(), percent::encoded(&masked_text(&self.text, edits)))]),
            Encoding::Compressed => Err(Unmaskable),
            Encoding::Signed => Ok(Vec::new()),
        }
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

pub(super) fn replaced(text: &str, edits: &[ByteReplacement]) -> String {
    String::from_utf8(crate::exchange::response::event_rewriter::splice(text.as_bytes(), edits)).unwrap_or_default()
}

/// A text with these edits, which are sorted and do not overlap.
pub(super) fn masked_text(text: &str, edits: &[&TextEdit]) -> String {
    let edits: Vec<_> = edits.iter().map(|edit| (edit.range.clone(), edit.with.clone())).collect();
    replaced(text, &edits)
}

/// Sorts edits, and joins those that overlap; the first one's replacement stays.
pub(super) fn merge_edits(mut edits: Vec<TextEdit>) -> Vec<TextEdit> {
    edits.sort_by_key(|e| (e.text, e.range.start, e.range.end));
    let mut merged: Vec<TextEdit> = Vec::with_capacity(edits.len());
    for edit in edits {
        match merged.last_mut() {
            Some(last) if last.text == edit.text && edit.range.start < last.range.end => {
                last.range.end = last.range.end.max(edit.range.end);
            }
            _ => merged.push(edit),
        }
    }
    merged
}

/// The edits of a body that replace these parts of its texts, sorted.
pub(super) fn body_edits(
    body: &[u8],
    texts: &[GuardText],
    edits: Vec<TextEdit>,
) -> Result<Vec<ByteReplacement>, Unmaskable> {
    let edits = merge_edits(edits);
    let mut out = Vec::new();
    for group in edits.chunk_by(|a, b| a.text == b.text) {
        let Some(text) = group.first().and_then(|e| texts.get(e.text)) else { continue };
        out.extend(text.edit(body, &group.iter().collect::<Vec<_>>())?);
    }
    out.sort_by_key(|(range, _)| range.start);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use interflow_llm::spans::mark_body;
    use serde_json::{Value, json};

    use super::*;
    use crate::exchange::response::event_rewriter::splice;

    fn mask(body: &Value, find: &str) -> Result<Value, Unmaskable> {
        let bytes = body.to_string().into_bytes();
        let texts = texts_of_json(&bytes, &mark_body(&bytes, true).unwrap());
        let edits = texts.iter().enumerate().filter_map(|(i, t)| {
            let at = t.text.find(find)?;
            Some(TextEdit { text: i, range: at..at + find.len(), with: "<\"m\">".into() })
        });
        let edits = body_edits(&bytes, &texts, edits.collect())?;
        Ok(serde_json::from_slice(&splice(&bytes, &edits)).unwrap())
    }

    #[test]
    fn parts_of_texts_are_replaced_in_every_encoding() {
        let args = json!({"cmd": "rm -rf \"/\"", "n": 1}).to_string();
        let body = json!({
            "messages": [
                {"role": "user", "content": "say \"secret\" 😀 twice\nhere"},
                {"role": "assistant", "tool_calls": [{"function": {"name": "t", "arguments": args}}]},
                {"role": "tool", "content": "{\"a\": \"x\\nsecret\"}"}]
        });
        let masked = mask(&body, "secret").unwrap();
        assert_eq!(masked["messages"][0]["content"], "say \"<\"m\">\" 😀 twice\nhere");
        assert_eq!(masked["messages"][2]["content"], "{\"a\": \"x\\n<\\\"m\\\">\"}");
        let masked = mask(&body, "rm -rf").unwrap();
        let args = masked["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(args).unwrap()["cmd"], "<\"m\"> \"/\"");
        assert_eq!(mask(&body, "\"cmd\":"), Err(Unmaskable), "the arguments would not be JSON any more");
    }

    #[test]
    fn nested_json_is_seen_without_its_escapes() {
        let body = json!({"messages": [{"role": "tool", "content": "{\"a\":\"one\\nignore\"}"}]}).to_string();
        let texts = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
        assert_eq!((texts[0].text.as_str(), texts[0].place), ("{\"a\":\"one\nignore\"}", TextPlace::ToolResult));
    }

    #[test]
    fn history_ends_with_the_last_reply() {
        let body = json!({
            "system": "s",
            "messages": [{"role": "user", "content": "old"}, {"role": "assistant", "content": "reply"},
                {"role": "user", "content": "new"}]
        })
        .to_string();
        let texts = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
        let is_history = |text: &str| texts.iter().find(|t| t.text == text).unwrap().is_history;
        assert!(is_history("old") && is_history("reply") && !is_history("new") && !is_history("s"));
    }

    #[test]
    fn parts_of_one_message_are_told_from_other_messages() {
        let part = |text: &str| json!({"type": "text", "text": text});
        let body = json!({"messages": [
            {"role": "user", "content": [part("a"), part("b")]}, {"role": "user", "content": [part("c")]},
            {"role": "user", "content": "d"}, {"role": "user", "content": "e"}],
            "contents": [{"parts": [{"text": "f"}, {"text": "g"}], "role": "user"}]})
        .to_string();
        let texts = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
        let continuing: Vec<_> = texts.iter().filter(|t| t.continues).map(|t| t.text.as_str()).collect();
        assert_eq!(continuing, ["b", "g"]);
    }

    #[test]
    fn overlapping_edits_are_joined() {
        let edit = |range: Range<usize>| TextEdit { text: 0, range, with: "x".into() };
        assert_eq!(merge_edits(vec![edit(5..9), edit(0..3), edit(2..6)]), [edit(0..9)]);
    }
}
