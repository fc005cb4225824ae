//! The kind `json_schema`: replies that are not JSON, or do not fit the schema.

use std::path::Path;

use interflow_llm::spans::TextPlace;
use interflow_types::MaybeFuture;
use serde_json::Value;

use super::super::check::{CheckInput, CheckResult, Finding, Guardrail};
use super::schema::Schema;

/// Maximum size of a schema's file.
const MAX_FILE: u64 = 1 << 20;

pub(super) struct JsonSchemaGuardrail(Schema);

impl JsonSchemaGuardrail {
    /// From the schema itself, or its file.
    pub fn new(schema: &str, base: &Path) -> Result<Self, String> {
        let text = match schema.trim_start().starts_with(['{', 't', 'f']) && !schema.ends_with(".json") {
            _ if schema.is_empty() => return Err("schema: it is empty; write the schema, or its file".into()),
            true => schema.to_owned(),
            false => {
                let path = base.join(schema);
                let at = |e: &dyn std::fmt::Display| format!("schema: {}: {e}", path.display());
                let size = std::fs::metadata(&path).map_err(|e| at(&e))?.len();
                if size > MAX_FILE {
                    return Err(at(&format!("larger than {MAX_FILE} bytes")));
                }
                std::fs::read_to_string(&path).map_err(|e| at(&e))?
            }
        };
        let value: Value = serde_json::from_str(&text).map_err(|e| format!("schema: it is not JSON: {e}"))?;
        Schema::new(&value).map(Self).map_err(|e| format!("schema: {e}"))
    }
}

impl Guardrail for JsonSchemaGuardrail {
    fn check<'a>(&'a self, input: CheckInput<'a>) -> MaybeFuture<'a, CheckResult> {
        // Thinking and tool calls are not the reply.
        let replies =
            input.texts().filter(|(_, place, text)| *place == TextPlace::Assistant && !text.trim().is_empty());
        let findings = replies.filter_map(|(text, _, content)| {
            let reason = match serde_json::from_str::<Value>(content) {
                Err(_) => "not JSON".to_owned(),
                Ok(value) => match self.0.check(&value) {
                    Ok(()) => return None,
                    Err(violation) => violation.to_string(),
                },
            };
            Some(Finding { text, range: 0..content.len(), score: 1.0, reason: reason.into(), replacement: None })
        });
        MaybeFuture::Ready(Ok(findings.collect()))
    }

    fn wants_replies_only(&self) -> bool {
        true
    }
}
