//! Redaction of JSON values and of texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use interflow_redact::{
    RedactMode, RedactionResult, RedactionSession, Redactor, SharedSession, ValuePolicy, json_parts,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::protocol::jsonrpc::{INTERNAL_ERROR, NOT_INSPECTED, RpcError};
use crate::session::listed_names::SchemaValues;

/// Findings by type.
pub(crate) type Findings = BTreeMap<String, u64>;

/// How values are redacted, and what is found in them.
pub(crate) struct Redaction<'a> {
    pub policy: &'a ValuePolicy,
    pub mode: RedactMode,
    pub vault: &'a SharedSession,
    pub findings: Findings,
}

impl<'a> Redaction<'a> {
    pub fn new(policy: &'a ValuePolicy, mode: RedactMode, vault: &'a SharedSession) -> Self {
        Self { policy, mode, vault, findings: Findings::new() }
    }

    /// Redacts a JSON value. What is found is added to `findings`; it is replaced if the mode says so.
    ///
    /// # Errors
    /// The value cannot be inspected, so it must not be passed on.
    pub async fn json(&mut self, json: String) -> Result<String, RpcError> {
        self.arguments(json, &Arc::default()).await
    }

    /// Redacts a JSON value, but for what the schema of its tool names.
    ///
    /// # Errors
    /// As [`json`](Self::json).
    pub async fn arguments(&mut self, json: String, listed: &Arc<SchemaValues>) -> Result<String, RpcError> {
        if self.mode == RedactMode::Off {
            return Ok(json);
        }
        match self.scan(json.clone(), listed).await {
            Ok(Some(redacted)) if self.mode == RedactMode::Redact => Ok(redacted),
            Ok(_) => Ok(json),
            Err(why) if self.mode == RedactMode::Redact => {
                Err(RpcError::new(NOT_INSPECTED, format!("not passed on, because it cannot be inspected: {why}")))
            }
            // What is only flagged is passed on in any case.
            Err(why) => {
                tracing::warn!("an MCP message was not inspected: {why}");
                Ok(json)
            }
        }
    }

    /// Redacts a text that is not a value of its own, such as an error message. If it cannot be inspected, a note takes its
    /// place.
    pub async fn text(&mut self, text: &str) -> String {
        let done = self.json(Value::from(text).to_string()).await;
        let done = done.ok().and_then(|json| serde_json::from_str(&json).ok());
        done.unwrap_or_else(|| "[not inspected]".to_owned())
    }

    /// Redacts a URI.
    ///
    /// # Errors
    /// As [`json`](Self::json).
    pub async fn uri(&mut self, uri: &mut String) -> Result<(), RpcError> {
        let json = self.json(Value::from(uri.as_str()).to_string()).await?;
        *uri = serde_json::from_str(&json).map_err(|e| RpcError::new(INTERNAL_ERROR, e.to_string()))?;
        Ok(())
    }

    async fn scan(&mut self, json: String, listed: &Arc<SchemaValues>) -> Result<Option<String>, String> {
        let (policy, size) = (self.policy, json.len());
        if size > policy.max_size {
            return Err(format!("it is larger than {} bytes (redact.max_body)", policy.max_size));
        }
        let session = match self.mode {
            RedactMode::Redact => Arc::clone(self.vault),
            // What stays as it is must not be restored from elsewhere.
            _ => Arc::new(Mutex::new(RedactionSession::one_way().in_context(policy.context.clone()))),
        };
        let (redactor, listed) = (Arc::clone(&policy.redactor), Arc::clone(listed));
        let redact = move |session: &mut RedactionSession| redact_unlisted(&redactor, &json, &listed, session);
        // The client is not told which detector failed. When it disconnects, this future is dropped, which stops the work.
        let done = policy.detectors.redact(size, &session, redact).await.map_err(|e| {
            tracing::error!("{e}");
            "a detector is unavailable"
        })?;
        let done = done.ok_or("the scan was cut short")??;
        for span in &done.spans {
            *self.findings.entry(span.type_name.clone()).or_default() += 1;
        }
        done.output.map(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())).transpose()
    }
}

fn redact_unlisted(
    redactor: &Redactor,
    json: &str,
    listed: &SchemaValues,
    session: &mut RedactionSession,
) -> Result<RedactionResult<Vec<u8>>, String> {
    let mut parts = json_parts(json.as_bytes()).map_err(|e| e.to_string())?;
    parts.retain(|part| !listed.contains(json, part));
    redactor.redact_spans(json.as_bytes(), parts, session).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use interflow_redact::AdditionalDetectors;

    use super::*;
    use crate::redaction::restoring::restore_json;
    use crate::session::client_session::McpSession;

    fn policy() -> ValuePolicy {
        ValuePolicy {
            mode: RedactMode::Redact,
            redactor: Arc::new(Redactor::default()),
            detectors: AdditionalDetectors::default(),
            restore: true,
            context: String::new(),
            max_size: 1 << 20,
            guard: None,
        }
    }

    #[tokio::test]
    async fn values_are_replaced_by_placeholders_and_restored_from_their_vault_alone() {
        let session = McpSession::of_test(None, None);
        let json = r#"{"to": "ann.lee@example.com", "n": 1.50, "inner": "{\"mail\": \"ann.lee@example.com\"}"}"#;
        let policy = policy();
        let mut redaction = Redaction::new(&policy, RedactMode::Redact, &session.from_client);
        let redacted = redaction.json(json.into()).await.unwrap();
        assert!(!redacted.contains("ann.lee") && redacted.contains("1.50"), "{redacted}");
        assert_eq!(redaction.findings.values().sum::<u64>(), 2, "{:?}", redaction.findings);
        assert_eq!(restore_json(&session.from_client, &redacted).as_deref(), Some(json));
        assert_eq!(restore_json(&session.from_servers, &redacted), None);
    }

    #[tokio::test]
    async fn what_is_only_flagged_stays_and_cannot_be_restored() {
        let session = McpSession::of_test(None, None);
        let json = r#"{"to": "ann.lee@example.com"}"#;
        let policy = policy();
        let mut redaction = Redaction::new(&policy, RedactMode::Flag, &session.from_client);
        let same = redaction.json(json.into()).await;
        assert_eq!((same.as_deref(), redaction.findings.len()), (Ok(json), 1));
        assert!(session.from_client.lock().vault().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_inspected_is_refused() {
        let session = McpSession::of_test(None, None);
        let small = ValuePolicy { max_size: 4, ..policy() };
        for (policy, json) in [(&small, r#"{"a": "b"}"#), (&policy(), "no json")] {
            let done = Redaction::new(policy, RedactMode::Redact, &session.from_client).json(json.into()).await;
            assert_eq!(done.unwrap_err().code, NOT_INSPECTED, "{json}");
            let flagged = Redaction::new(policy, RedactMode::Flag, &session.from_client).json(json.into()).await;
            assert_eq!(flagged.as_deref(), Ok(json));
        }
    }
}
