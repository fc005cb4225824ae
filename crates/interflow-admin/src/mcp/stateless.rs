//! Requests of the version without sessions (MCP 2026-07-28): each says in `_meta` what it needs, and header fields repeat
//! a part of that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{INSTRUCTIONS, VERSIONS, capabilities, failure, server_info};

pub(super) const STATELESS: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// How long a client may keep what does not change while the process runs, in milliseconds.
const TTL: u64 = 60_000;
/// Methods that only versions with sessions have.
const OF_SESSIONS: [&str; 2] = ["initialize", "ping"];

/// The header fields of a request over HTTP that repeat what is in its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingFields {
    pub version: Option<String>,
    pub method: Option<String>,
    pub name: Option<String>,
    /// One of them occurs twice.
    pub is_ambiguous: bool,
}

/// Whether a message is of the version without sessions. `fields` are those of HTTP.
///
/// # Errors
/// The JSON-RPC error response to a message that is invalid, or of a version that is not supported.
pub fn is_stateless(message: &Value, fields: Option<&RoutingFields>) -> Result<bool, Value> {
    let (params, id) = (&message["params"], &message["id"]);
    let meta = &params["_meta"];
    let header = fields.and_then(|fields| fields.version.as_deref());
    let Some(version) = meta.get(VERSION_KEY).or(Some(&Value::Null).filter(|_| header == Some(STATELESS))) else {
        return match header.filter(|version| !VERSIONS.contains(version)) {
            Some(other) => Err(unsupported(id, other)),
            None => Ok(false),
        };
    };
    if message.is_array() {
        return Err(failure(&Value::Null, -32600, "this version has no batches: send one message"));
    }
    if id.is_null() {
        // A notification has no envelope.
        return Ok(true);
    }
    if let Some(key) = [VERSION_KEY, CAPABILITIES_KEY].iter().find(|key| meta.get(**key).is_none()) {
        return Err(failure(id, -32602, &format!("`_meta` of the params has no {key}")));
    }
    if let Some(fields) = fields {
        let is_same = |field: &Option<String>, value: &Value| field.as_deref().and_then(decoded) == text(value);
        let name = match message["method"].as_str() {
            Some("tools/call" | "prompts/get") => &params["name"],
            Some("resources/read") => &params["uri"],
            _ => &Value::Null,
        };
        let is_named = name.is_null() || is_same(&fields.name, name);
        if fields.is_ambiguous
            || !is_same(&fields.version, version)
            || !is_same(&fields.method, &message["method"])
            || !is_named
        {
            let why = "MCP-Protocol-Version, Mcp-Method or Mcp-Name is missing, occurs twice or differs from the body";
            return Err(failure(id, -32020, why));
        }
    }
    match version.as_str() {
        Some(STATELESS) => Ok(true),
        other => Err(unsupported(id, other.unwrap_or_default())),
    }
}

/// The answer to a message that only this version has, or that it does not have; `None` for every other message.
pub(super) fn answer(id: &Value, method: &str) -> Option<Value> {
    if OF_SESSIONS.contains(&method) {
        let why =
            format!("MCP {STATELESS} has no method `{method}`; supported versions are {}", supported().join(", "));
        return Some(failure(id, -32601, &why));
    }
    let found = json!({
        "supportedVersions": supported(), "capabilities": capabilities(), "instructions": INSTRUCTIONS,
    });
    (method == "server/discover").then(|| super::success(id, found))
}

/// The answer as clients of this version expect it, and its status over HTTP.
pub fn finish(message: &Value, mut answer: Value) -> (u16, Value) {
    let method = message["method"].as_str().unwrap_or_default();
    if let Some(error) = answer.get_mut("error") {
        // An unknown resource.
        if error["code"] == -32002 {
            error["code"] = (-32602).into();
        }
        let status = match error["code"].as_i64() {
            Some(-32601) => 404,
            Some(-32700 | -32600 | -32602 | -32022..=-32020) => 400,
            _ => 200,
        };
        return (status, answer);
    }
    let result = &mut answer["result"];
    result["resultType"] = "complete".into();
    result["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server_info() });
    let is_cacheable = method == "server/discover" || method.ends_with("/list");
    if is_cacheable || method == "resources/read" {
        result["ttlMs"] = if is_cacheable { TTL } else { 0 }.into();
        // What a client gets depends on its rights.
        result["cacheScope"] = "private".into();
    }
    (200, answer)
}

fn supported() -> Vec<&'static str> {
    std::iter::once(STATELESS).chain(VERSIONS.into_iter().rev()).collect()
}

fn unsupported(id: &Value, requested: &str) -> Value {
    let supported = supported();
    let why = format!("MCP {requested:?} is not supported; supported are {}", supported.join(", "));
    let mut answer = failure(id, -32022, &why);
    answer["error"]["data"] = json!({ "supported": supported, "requested": requested });
    answer
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The value of a header field; `None` if its encoding is broken.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(version: &str, method: &str, name: &str) -> RoutingFields {
        let field = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        RoutingFields { version: field(version), method: field(method), name: field(name), is_ambiguous: false }
    }

    #[test]
    fn header_fields_agree_with_the_envelope_of_a_message() {
        let meta = json!({ VERSION_KEY: STATELESS, CAPABILITIES_KEY: {} });
        let read = json!({ "id": 1, "method": "resources/read", "params": { "uri": "a:é", "_meta": meta } });
        let old = json!({ "id": 1, "method": "resources/read", "params": { "uri": "a:é" } });
        let mut other = read.clone();
        other["params"]["_meta"][VERSION_KEY] = "2099-01-01".into();
        let (uri, encoded) = ("a:é", "=?base64?YTrDqQ==?=");
        for (message, fields, expected) in [
            (&read, fields(STATELESS, "resources/read", encoded), Ok(true)),
            (&read, fields(STATELESS, "resources/read", uri), Ok(true)),
            (&read, fields(STATELESS, "resources/read", "b"), Err(-32020)),
            (&read, fields(STATELESS, "resources/read", ""), Err(-32020)),
            (&read, fields(STATELESS, "tools/call", uri), Err(-32020)),
            (&read, fields("2025-06-18", "resources/read", uri), Err(-32020)),
            (&read, fields("", "resources/read", uri), Err(-32020)),
            (&other, fields("2099-01-01", "resources/read", uri), Err(-32022)),
            (&old, fields(STATELESS, "resources/read", uri), Err(-32602)),
            (&old, fields("2099-01-01", "", ""), Err(-32022)),
            (&json!([old]), fields(STATELESS, "resources/read", uri), Err(-32600)),
            (&old, fields("2025-11-25", "", ""), Ok(false)),
            (&old, fields("", "", ""), Ok(false)),
        ] {
            let checked = is_stateless(message, Some(&fields)).map_err(|e| e["error"]["code"].as_i64().unwrap());
            assert_eq!(checked, expected, "{fields:?} {message}");
        }
        let twice = RoutingFields { is_ambiguous: true, ..fields(STATELESS, "resources/read", uri) };
        assert!(is_stateless(&read, Some(&twice)).is_err());
        assert_eq!(is_stateless(&read, None), Ok(true), "standard streams have no header fields");
    }

    #[test]
    fn answers_say_how_long_they_are_good_for_and_errors_have_their_status() {
        let message = |method: &str| json!({ "id": 1, "method": method });
        let found = answer(&json!(1), "server/discover").unwrap();
        let (status, found) = finish(&message("server/discover"), found);
        let found = &found["result"];
        assert_eq!((status, &found["supportedVersions"][0], &found["ttlMs"]), (200, &json!(STATELESS), &json!(TTL)));
        assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")));
        for (code, status, given) in [(-32002, 400, -32602), (-32601, 404, -32601), (-32603, 200, -32603)] {
            let (got, answer) = finish(&message("resources/read"), failure(&json!(1), code, "no"));
            assert_eq!((got, &answer["error"]["code"]), (status, &json!(given)));
        }
        assert_eq!(answer(&json!(1), "ping").unwrap()["error"]["code"], -32601);
        assert_eq!(answer(&json!(1), "tools/list"), None);
    }
}
