//! Redacts forms (`multipart/form-data`): fields, text files, their names, and what is around the parts.

use std::ops::Range;

use interflow_llm::LlmRefusal;
use interflow_llm::spans::MediaKind;
use interflow_llm::spans::multipart::{Form, FormPart, HeadEncoding};
use interflow_redact::MediaRule;
use interflow_types::percent;

use super::request_body::{RedactionRun, blocked_media};
use crate::exchange::bad_request;
use crate::exchange::response::event_rewriter::{ByteReplacement, splice};

impl RedactionRun<'_> {
    pub fn form(&mut self, body: &[u8], form: &Form) -> Result<Option<Vec<u8>>, LlmRefusal> {
        let [preamble, epilogue] = &form.around;
        let mut edits = Vec::new();
        self.form_text(body, preamble, HeadEncoding::Plain, &mut edits)?;
        for part in &form.parts {
            for text in &part.texts {
                self.form_text(body, &text.range, text.encoding, &mut edits)?;
            }
            let content = body.get(part.range.clone()).unwrap_or_default();
            if let Some((kind, word)) = media_kind(part, content) {
                self.outcome.media = true;
                // A part of a form cannot be dropped: its field would be missing, and the provider would reject the
                // request.
                if self.job.settings.media(kind) != MediaRule::Pass {
                    return Err(blocked_media(word));
                }
                continue;
            }
            if let Some(with) = self.file(content, part.file.is_some())? {
                edits.push((part.range.clone(), with));
            }
        }
        self.form_text(body, epilogue, HeadEncoding::Plain, &mut edits)?;
        Ok((!edits.is_empty()).then(|| splice(body, &edits)))
    }

    /// Redacts a text that is not a content of a part, such as the name of a file.
    fn form_text(
        &mut self,
        body: &[u8],
        range: &Range<usize>,
        encoding: HeadEncoding,
        edits: &mut Vec<ByteReplacement>,
    ) -> Result<(), LlmRefusal> {
        let raw = std::str::from_utf8(body.get(range.clone()).unwrap_or_default())
            .map_err(|_| bad_request("bad_form", "a name or a field of a part of the form is not UTF-8"))?;
        let is_percent = encoding == HeadEncoding::Percent;
        let text = if is_percent { percent::decoded_lossy(raw) } else { raw.to_owned() };
        let redaction = self.job.choice.redactor.redact_text(&text, self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        let (mut out, mut at) = (String::new(), 0);
        for span in &redaction.spans {
            out.push_str(&text[at..span.start]);
            // A replacement must not end the quoted string or the line.
            let with = &span.replacement;
            out.push_str(&with.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A").replace('\\', "%5C"));
            at = span.end;
        }
        if !redaction.spans.is_empty() {
            out.push_str(&text[at..]);
            edits.push((range.clone(), if is_percent { percent::encoded(&out) } else { out }));
        }
        Ok(())
    }
}

/// The kind of a part's content that is not text, and its name in errors.
fn media_kind(part: &FormPart, content: &[u8]) -> Option<(MediaKind, &'static str)> {
    let media_type = part.media_type.as_deref().unwrap_or_default();
    if media_type.starts_with("audio/") || media_type.starts_with("video/") {
        Some((MediaKind::Audio, "audio"))
    } else if media_type.starts_with("image/") {
        Some((MediaKind::Image, "image"))
    } else {
        let is_binary = part.file.is_some() && std::str::from_utf8(content).is_err();
        is_binary.then_some((MediaKind::Document, "document"))
    }
}
