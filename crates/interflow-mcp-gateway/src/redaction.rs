//! Redaction of arguments, which clients send, and of results, which servers send.

use std::collections::BTreeMap;
use std::sync::Arc;

use interflow_redact::{
    JsonPart, MediaRule, PlaceholderRestorer, RedactMode, RedactionResult, RedactionSession, Redactor, StopFlag,
    ValuePolicy, json_parts, scan_capacity,
};
use serde_json::{Value, json};

use crate::jsonrpc::{NOT_INSPECTED, RpcError};
use crate::listed_names::SchemaValues;
use crate::sessions::{McpSession, SharedVault};
use crate::settings::McpServer;

/// Larger values are scanned off the worker thread, which serves other requests.
const MAX_INLINE: usize = 32 << 10;

/// Findings by type.
pub(crate) type Findings = BTreeMap<String, u64>;

/// Redacts a JSON value. What is found is added to `found`; it is replaced if the mode says so.
///
/// # Errors
/// The value cannot be inspected, so it must not be passed on.
pub(crate) async fn redact_json(
    policy: &ValuePolicy,
    mode: RedactMode,
    vault: &SharedVault,
    json: String,
    found: &mut Findings,
) -> Result<String, RpcError> {
    redact_arguments(policy, mode, vault, json, &Arc::default(), found).await
}

/// Redacts a JSON value, but for what the schema of its tool names.
///
/// # Errors
/// As [`redact_json`].
pub(crate) async fn redact_arguments(
    policy: &ValuePolicy,
    mode: RedactMode,
    vault: &SharedVault,
    json: String,
    listed: &Arc<SchemaValues>,
    found: &mut Findings,
) -> Result<String, RpcError> {
    if mode == RedactMode::Off {
        return Ok(json);
    }
    match scan(policy, mode, vault, json.clone(), listed, found).await {
        Ok(Some(redacted)) if mode == RedactMode::Redact => Ok(redacted),
        Ok(_) => Ok(json),
        Err(why) if mode == RedactMode::Redact => {
            Err(RpcError::new(NOT_INSPECTED, format!("not passed on, because it cannot be inspected: {why}")))
        }
        // What is only flagged is passed on in any case.
        Err(why) => {
            tracing::warn!("an MCP message was not inspected: {why}");
            Ok(json)
        }
    }
}

async fn scan(
    policy: &ValuePolicy,
    mode: RedactMode,
    vault: &SharedVault,
    json: String,
    listed: &Arc<SchemaValues>,
    found: &mut Findings,
) -> Result<Option<String>, String> {
    if json.len() > policy.max_size {
        return Err(format!("it is larger than {} bytes (redact.max_body)", policy.max_size));
    }
    let mut further = None;
    if !policy.detectors.is_empty() {
        let mut texts = RedactionSession::collecting();
        redact_unlisted(&policy.redactor, &json, listed, &mut texts)?;
        let findings = policy.detectors.find_all(&texts.collected_texts()).await;
        // The client is not told which detector failed.
        further = Some(findings.map_err(|e| {
            tracing::error!("{e}");
            "a detector is unavailable"
        })?);
    }
    let (redactor, vault, size) = (Arc::clone(&policy.redactor), Arc::clone(vault), json.len());
    let (context, listed) = (policy.context.clone(), Arc::clone(listed));
    let work = move || {
        let mut one_way;
        let mut shared;
        let session = if mode == RedactMode::Redact {
            shared = vault.lock();
            &mut *shared
        } else {
            // What stays as it is must not be restored from elsewhere.
            one_way = RedactionSession::one_way().in_context(context);
            &mut one_way
        };
        if let Some(further) = further {
            further.apply_to(session);
        }
        redact_unlisted(&redactor, &json, &listed, session)
    };
    let done = if size <= MAX_INLINE {
        work()?
    } else {
        // When the client disconnects, this future is dropped, which stops the work.
        let stop = StopFlag::default();
        let _left = stop.on_drop();
        let capacity = scan_capacity::reserve(size).await;
        let scan = move || {
            let _capacity = capacity;
            stop.run(work)
        };
        tokio::task::spawn_blocking(scan).await.map_err(|_| "the scan was cut short".to_owned())??
    };
    for span in &done.spans {
        *found.entry(span.type_name.clone()).or_default() += 1;
    }
    done.output.map(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())).transpose()
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

/// Redacts the result of a server, which may contain media.
///
/// # Errors
/// It cannot be inspected, so the client must not get it.
pub(crate) async fn redact_result(
    policy: &ValuePolicy,
    server: &McpServer,
    vault: &SharedVault,
    result: String,
    found: &mut Findings,
) -> Result<String, RpcError> {
    let mode = server.config.results.unwrap_or(policy.mode);
    if mode != RedactMode::Redact || !may_have_media(&result) {
        return redact_json(policy, mode, vault, result, found).await;
    }
    let unreadable = |e: serde_json::Error| RpcError::new(NOT_INSPECTED, format!("the result is no JSON: {e}"));
    let mut value: Value = serde_json::from_str(&result).map_err(unreadable)?;
    let mut taken = Vec::new();
    media_texts(&mut value, &mut |text| taken.push(std::mem::take(text)));
    if taken.is_empty() {
        return redact_json(policy, mode, vault, result, found).await;
    }
    match server.config.media {
        MediaRule::Refuse => {
            let name = &server.name;
            let message = format!(
                "the result of the MCP server {name} contains an image, audio or a binary resource, which cannot be \
                 inspected; the operator can let it pass with mcp.server.{name}.media = \"pass\", or remove it with \"drop\""
            );
            return Err(RpcError::new(NOT_INSPECTED, message));
        }
        MediaRule::Drop => replace_media(&mut value),
        MediaRule::Pass => {}
    }
    let redacted = redact_json(policy, mode, vault, value.to_string(), found).await?;
    if server.config.media == MediaRule::Drop {
        return Ok(redacted);
    }
    let mut value: Value = serde_json::from_str(&redacted).map_err(unreadable)?;
    let mut taken = taken.into_iter();
    media_texts(&mut value, &mut |text| *text = taken.next().unwrap_or_default());
    Ok(value.to_string())
}

/// A quick test, because most results have none.
fn may_have_media(result: &str) -> bool {
    ["\"data\"", "\"blob\"", "\\u"].iter().any(|mark| result.contains(mark))
}

/// Calls `see` with the Base64 text of each medium: the `data` of image and audio content, the `blob` of a resource.
fn media_texts(value: &mut Value, see: &mut impl FnMut(&mut String)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| media_texts(item, see)),
        Value::Object(members) => {
            let is_medium = matches!(members.get("type").and_then(Value::as_str), Some("image" | "audio"));
            if is_medium && let Some(Value::String(data)) = members.get_mut("data") {
                see(data);
            }
            let is_resource = members.contains_key("uri");
            if is_resource && let Some(Value::String(blob)) = members.get_mut("blob") {
                see(blob);
            }
            // Structured content has the tool's own form.
            let inner = members.iter_mut().filter(|(name, _)| *name != "structuredContent");
            inner.for_each(|(_, inner)| media_texts(inner, see));
        }
        _ => {}
    }
}

/// Replaces each medium by a note.
fn replace_media(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(replace_media),
        Value::Object(members) => {
            let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
            if matches!(kind, "image" | "audio") && members.contains_key("data") {
                *value = json!({ "type": "text", "text": format!("[{kind} removed by Interflow]") });
                return;
            }
            if members.contains_key("uri") && members.remove("blob").is_some() {
                members.insert("text".into(), "[binary resource removed by Interflow]".into());
            }
            members.iter_mut().for_each(|(_, inner)| replace_media(inner));
        }
        _ => {}
    }
}

/// Redacts a text that is not a value of its own, such as an error message. If it cannot be inspected, a note takes its
/// place.
pub(crate) async fn redact_text(
    policy: &ValuePolicy,
    mode: RedactMode,
    vault: &SharedVault,
    text: &str,
    found: &mut Findings,
) -> String {
    let done = redact_json(policy, mode, vault, Value::from(text).to_string(), found).await;
    let done = done.ok().and_then(|json| serde_json::from_str(&json).ok());
    done.unwrap_or_else(|| "[not inspected]".to_owned())
}

/// Restores in JSON for a server what it may have: what the client sent, if only the recording was to be without it, and
/// what servers sent, if they may share it.
pub(crate) fn restore_for_server(
    server: &McpServer,
    policy: &ValuePolicy,
    session: &McpSession,
    json: String,
) -> String {
    let restored = |vault: &SharedVault, may_have: bool, json: String| {
        may_have.then(|| restore_json(vault, &json)).flatten().unwrap_or(json)
    };
    let json = restored(&session.from_client, server.arguments_are_restored(policy), json);
    restored(&session.from_servers, server.results_are_restored(), json)
}

/// Restores originals in the strings and names of a JSON value; `None` if there is nothing to restore.
pub(crate) fn restore_json(vault: &SharedVault, json: &str) -> Option<String> {
    let session = vault.lock();
    let vault = session.vault().filter(|vault| !vault.is_empty())?;
    let (mut out, mut copied) = (String::new(), 0);
    for span in json_parts(json.as_bytes()).ok()?.into_iter().filter(|span| span.part != JsonPart::Number) {
        let raw = json.get(span.range.clone())?;
        let mut restorer = PlaceholderRestorer::in_string(false);
        let mut restored = String::new();
        restorer.push(vault, raw, &mut restored);
        restored.push_str(&restorer.end(vault));
        if restored != raw {
            out.push_str(json.get(copied..span.range.start)?);
            out.push_str(&restored);
            copied = span.range.end;
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(json.get(copied..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use interflow_redact::AdditionalDetectors;

    use super::*;
    use crate::client_capabilities::ClientCapabilities;

    fn policy() -> ValuePolicy {
        ValuePolicy {
            mode: RedactMode::Redact,
            redactor: Arc::new(Redactor::default()),
            detectors: AdditionalDetectors::default(),
            restore: true,
            context: String::new(),
            max_size: 1 << 20,
        }
    }

    #[tokio::test]
    async fn values_are_replaced_by_placeholders_and_restored_from_their_vault_alone() {
        let session = McpSession::new(None, None, "", ClientCapabilities::default()).unwrap();
        let json = r#"{"to": "ann.lee@example.com", "n": 1.50, "inner": "{\"mail\": \"ann.lee@example.com\"}"}"#;
        let mut found = Findings::new();
        let redacted =
            redact_json(&policy(), RedactMode::Redact, &session.from_client, json.into(), &mut found).await.unwrap();
        assert!(!redacted.contains("ann.lee") && redacted.contains("1.50"), "{redacted}");
        assert_eq!(found.values().sum::<u64>(), 2, "{found:?}");
        assert_eq!(restore_json(&session.from_client, &redacted).as_deref(), Some(json));
        assert_eq!(restore_json(&session.from_servers, &redacted), None);
    }

    #[tokio::test]
    async fn what_is_only_flagged_stays_and_cannot_be_restored() {
        let session = McpSession::new(None, None, "", ClientCapabilities::default()).unwrap();
        let json = r#"{"to": "ann.lee@example.com"}"#;
        let mut found = Findings::new();
        let same = redact_json(&policy(), RedactMode::Flag, &session.from_client, json.into(), &mut found).await;
        assert_eq!((same.as_deref(), found.len()), (Ok(json), 1));
        assert!(session.from_client.lock().vault().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_inspected_is_refused() {
        let session = McpSession::new(None, None, "", ClientCapabilities::default()).unwrap();
        let small = ValuePolicy { max_size: 4, ..policy() };
        for (policy, json) in [(&small, r#"{"a": "b"}"#), (&policy(), "no json")] {
            let mut found = Findings::new();
            let done = redact_json(policy, RedactMode::Redact, &session.from_client, json.into(), &mut found).await;
            assert_eq!(done.unwrap_err().code, NOT_INSPECTED, "{json}");
            let flagged = redact_json(policy, RedactMode::Flag, &session.from_client, json.into(), &mut found).await;
            assert_eq!(flagged.as_deref(), Ok(json));
        }
    }

    #[test]
    fn media_are_found_where_the_protocol_has_them() {
        let mut value = json!({
            "content": [
                { "type": "image", "data": "AAAA", "mimeType": "image/png" },
                { "type": "text", "text": "x", "data": "not a medium" },
                { "type": "resource", "resource": { "uri": "file:///a", "blob": "BBBB" } },
            ],
            "structuredContent": { "type": "image", "data": "the tool's own" },
        });
        let mut seen = Vec::new();
        media_texts(&mut value, &mut |text| seen.push(text.clone()));
        assert_eq!(seen, ["AAAA", "BBBB"]);
        replace_media(&mut value["content"]);
        let text = value["content"].to_string();
        assert!(!text.contains("AAAA") && !text.contains("BBBB"), "{text}");
        assert_eq!(value["content"][0]["text"], "[image removed by Interflow]");
    }
}
