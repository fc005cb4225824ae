//! Redaction of results of servers, which may contain images, audio and binary resources.

use interflow_redact::{MediaRule, RedactMode, SharedSession, ValuePolicy, media_members};
use serde_json::{Value, json};

use super::values::Redaction;
use crate::protocol::jsonrpc::{NOT_INSPECTED, RpcError};
use crate::upstream::server::McpServer;

impl<'a> Redaction<'a> {
    /// Of what a server sends.
    pub fn of_results(policy: &'a ValuePolicy, server: &McpServer, vault: &'a SharedSession) -> Self {
        Self::new(policy, server.config.results.unwrap_or(policy.mode), vault)
    }

    /// Redacts the result of a server, which may contain media.
    ///
    /// # Errors
    /// It cannot be inspected, so the client must not get it.
    pub async fn result(&mut self, server: &McpServer, result: String) -> Result<String, RpcError> {
        if self.mode != RedactMode::Redact || !may_have_media(&result) {
            return self.json(result).await;
        }
        let unreadable =
            |e: serde_json::Error| RpcError::new(NOT_INSPECTED, format!("the result is invalid JSON: {e}"));
        let mut value: Value = serde_json::from_str(&result).map_err(unreadable)?;
        let mut media = Vec::new();
        media_texts(&mut value, &mut |text| media.push(std::mem::take(text)));
        if media.is_empty() {
            return self.json(result).await;
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
        let redacted = self.json(value.to_string()).await?;
        if server.config.media == MediaRule::Drop {
            return Ok(redacted);
        }
        let mut value: Value = serde_json::from_str(&redacted).map_err(unreadable)?;
        let mut media = media.into_iter();
        media_texts(&mut value, &mut |text| *text = media.next().unwrap_or_default());
        Ok(value.to_string())
    }

    /// The error of a server for a client, redacted as its results are, without the data that came with it.
    pub async fn error(&mut self, error: &RpcError) -> RpcError {
        if error.has_own_link() { error.clone() } else { RpcError::new(error.code, self.text(&error.message).await) }
    }
}

/// A quick test, because most results have none.
fn may_have_media(result: &str) -> bool {
    ["\"data\"", "\"blob\"", "\\u"].iter().any(|mark| result.contains(mark))
}

/// Calls `visit` with the Base64 text of each medium.
fn media_texts(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| media_texts(item, visit)),
        Value::Object(members) => {
            for name in media_members(members) {
                if let Some(Value::String(base64)) = members.get_mut(name) {
                    visit(base64);
                }
            }
            // Structured content has the tool's own form.
            let inner = members.iter_mut().filter(|(name, _)| *name != "structuredContent");
            inner.for_each(|(_, inner)| media_texts(inner, visit));
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut media = Vec::new();
        media_texts(&mut value, &mut |text| media.push(text.clone()));
        assert_eq!(media, ["AAAA", "BBBB"]);
        replace_media(&mut value["content"]);
        let text = value["content"].to_string();
        assert!(!text.contains("AAAA") && !text.contains("BBBB"), "{text}");
        assert_eq!(value["content"][0]["text"], "[image removed by Interflow]");
    }
}
