//! Redacts forms (`multipart/form-data`): fields, text files, their names, and what is around the parts.

use std::ops::Range;

use interflow_llm::LlmRefusal;
use interflow_llm::spans::multipart::{Form, HeadEncoding};
use interflow_redact::{MediaRule, Replacement};
use interflow_types::percent;

use super::request_body::{RedactionRun, blocked_media};
use super::upload::media_kind;
use crate::exchange::response::event_rewriter::{ByteReplacement, splice};
use crate::exchange::{bad_request, check_encoding, medium_text, url_encoded, utf8_text};

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
                // A text is read whatever its type says.
                if utf8_text(content).is_none() {
                    let text = medium_text(content).map(|text| self.medium_as_text(&text)).transpose()?.flatten();
                    edits.extend(text.map(|with| (part.range.clone(), with)));
                    continue;
                }
            }
            check_encoding(part.is_encoded)?;
            let redacted = match url_encoded(part, content)? {
                Some(raw) => self.url_encoded(raw)?,
                None => self.file(content, part.file.is_some())?,
            };
            if let Some(with) = redacted {
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
        let wrong = || bad_request("bad_form", "a name or a field of a part of the form is not UTF-8");
        let raw = std::str::from_utf8(body.get(range.clone()).unwrap_or_default()).map_err(|_| wrong())?;
        let is_percent = encoding == HeadEncoding::Percent;
        let text = if is_percent { percent::decoded_lossy(raw) } else { raw.to_owned() };
        let text = utf8_text(text.as_bytes()).ok_or_else(wrong)?;
        let redaction = self.job.choice.redactor.redact_text(text, self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        // A replacement must not end the quoted string or the line.
        let quoted =
            |with: &str| with.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A").replace('\\', "%5C");
        if let Some(out) = replaced(text, &redaction.spans, quoted) {
            edits.push((range.clone(), if is_percent { percent::encoded(&out) } else { out }));
        }
        Ok(())
    }

    /// Redacts a form in the syntax of a URL's query. The detectors decode what is percent-encoded.
    fn url_encoded(&mut self, raw: &str) -> Result<Option<String>, LlmRefusal> {
        // At the beginning of a value, it is the sign of a phone number that was not encoded.
        let text = raw.replace('+', " ").replace("= ", "=+");
        let redaction = self.job.choice.redactor.redact_text(&text, self.session).map_err(Self::redaction_error)?;
        self.record_findings(&redaction.spans);
        Ok(replaced(raw, &redaction.spans, percent::encoded))
    }
}

/// The text with its replacements, encoded; `None` if there are none.
fn replaced(text: &str, spans: &[Replacement], encode: impl Fn(&str) -> String) -> Option<String> {
    let edits: Vec<_> = spans.iter().map(|span| (span.start..span.end, encode(&span.replacement))).collect();
    (!edits.is_empty()).then(|| String::from_utf8_lossy(&splice(text.as_bytes(), &edits)).into_owned())
}
