//! Redaction of whole documents, for the command line: text or JSON, with an explanation.

use serde::Serialize;

use crate::scan::redactor::{RedactionResult, RedactionSession, Redactor, Replacement};
use crate::text::json;
use crate::{FeatureContribution, RedactError, Result};

/// How a document was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DocumentFormat {
    Text,
    Json,
}

/// The replacements in a document, for explanation. Contains no original values.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentExplanation<'a> {
    pub policy: &'a str,
    /// The first 16 hexadecimal digits of the policy's fingerprint.
    pub policy_version: String,
    pub format: DocumentFormat,
    pub spans: Vec<ExplainedReplacement<'a>>,
}

/// A replacement with the reasons for it.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedReplacement<'a> {
    #[serde(flatten)]
    pub replacement: &'a Replacement,
    /// For names: what each feature of the span and its surroundings counts for the type. The sum, of at most 95, is the
    /// confidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contributions: Vec<FeatureContribution>,
}

impl<'a> ExplainedReplacement<'a> {
    fn of(replacement: &'a Replacement) -> Self {
        let contributions = replacement.evidence.map(|e| e.contributions(replacement.kind)).unwrap_or_default();
        Self { replacement, contributions }
    }
}

impl Redactor {
    /// Redacts a document: as JSON if it is a JSON object or array, otherwise as text.
    ///
    /// # Errors
    /// The document is not UTF-8, or a strategy cannot be applied.
    pub fn redact_document(
        &self,
        document: &[u8],
        session: &mut RedactionSession,
    ) -> Result<(DocumentFormat, RedactionResult<Vec<u8>>)> {
        let bracket = document.iter().find(|b| !b.is_ascii_whitespace());
        if matches!(bracket, Some(b'{' | b'[')) && json::string_values(document).is_ok() {
            return Ok((DocumentFormat::Json, self.redact_json(document, session)?));
        }
        let text = std::str::from_utf8(document).map_err(|e| RedactError::Utf8 { at: e.valid_up_to() })?;
        let redaction = self.redact_text(text, session)?;
        Ok((
            DocumentFormat::Text,
            RedactionResult { output: redaction.output.map(String::into_bytes), spans: redaction.spans },
        ))
    }

    /// Explains the replacements of a document.
    pub fn explain<'a>(&'a self, format: DocumentFormat, spans: &'a [Replacement]) -> DocumentExplanation<'a> {
        let version = hex::encode(&self.policy().version()[..8]);
        let spans = spans.iter().map(ExplainedReplacement::of).collect();
        DocumentExplanation { policy: self.policy().name(), policy_version: version, format, spans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_documents_are_edited_as_json_and_others_as_text() {
        let redactor = Redactor::default();
        let mut session = RedactionSession::one_way();
        let (format, out) =
            redactor.redact_document(br#" {"n": 1.0, "mail":"anna@firm.com"}"#, &mut session).expect("JSON");
        assert_eq!(format, DocumentFormat::Json);
        assert_eq!(out.output.as_deref(), Some(br#" {"n": 1.0, "mail":"{{{REDACTED-email-address}}}"}"#.as_slice()));
        let (format, out) = redactor.redact_document(b"{not json} anna@firm.com", &mut session).expect("text");
        assert_eq!((format, out.spans.len()), (DocumentFormat::Text, 1));
        assert!(matches!(redactor.redact_document(b"a \xff", &mut session), Err(RedactError::Utf8 { at: 2 })));
    }

    #[test]
    fn an_explanation_of_a_name_has_its_features_and_their_weights_add_up_to_the_confidence() {
        let redactor = Redactor::default();
        for (text, feature) in [
            ("I met Ilmari in town.", "given"),
            ("Please ask Dr. Wojciechowska.", "honorific"),
            ("She lives in Reykjavik now", "place_cue_known"),
            ("Bank of Norwood raised its rates.", "institution_of"),
            ("talk to Ludwig van Beethoven now", "given_family"),
        ] {
            let (format, out) =
                redactor.redact_document(text.as_bytes(), &mut RedactionSession::one_way()).expect("text");
            let json = serde_json::to_value(redactor.explain(format, &out.spans)).expect("JSON");
            let span = json["spans"].as_array().and_then(|s| s.last()).expect("a span");
            let parts = span["contributions"].as_array().expect("contributions");
            assert!(parts.iter().any(|p| p["feature"] == feature), "{text}: {parts:?}");
            let sum: i64 = parts.iter().filter_map(|p| p["weight"].as_i64()).sum();
            assert_eq!(span["confidence"].as_i64(), Some(sum.min(95)), "{text}: {parts:?}");
        }
        let (format, out) =
            redactor.redact_document(b"mail anna@firm.com", &mut RedactionSession::one_way()).expect("text");
        let json = serde_json::to_value(redactor.explain(format, &out.spans)).expect("JSON");
        assert!(json["spans"][0].get("contributions").is_none(), "only names are sums of features");
    }

    #[test]
    fn an_explanation_holds_no_original() {
        let redactor = Redactor::default();
        let (format, out) =
            redactor.redact_document(b"mail anna@firm.com", &mut RedactionSession::one_way()).expect("text");
        let json = serde_json::to_value(redactor.explain(format, &out.spans)).expect("JSON");
        assert_eq!(json["spans"][0]["type"], "email-address");
        assert_eq!((json["spans"][0]["start"].as_u64(), json["spans"][0]["end"].as_u64()), (Some(5), Some(18)));
        assert!(!json.to_string().contains("anna"));
    }
}
