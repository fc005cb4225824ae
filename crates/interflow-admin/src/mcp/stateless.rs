//! Requests of the version without sessions (MCP 2026-07-28): each says in `_meta` what it needs.

use interflow_mcp_gateway::{stateless_status, supported_versions};
use serde_json::{Value, json};

use super::{INSTRUCTIONS, capabilities, failure, server_info, success};

/// How long a client may keep what does not change while the process runs, in milliseconds.
const TTL: u64 = 60_000;

/// The answer to a message that only this version has, or that it does not have; `None` for every other message.
pub(super) fn answer(id: &Value, method: &str) -> Option<Value> {
    if matches!(method, "initialize" | "ping") {
        let versions = supported_versions().join(", ");
        let why = format!("this version has no method `{method}`; supported versions are {versions}");
        return Some(failure(id, -32601, &why));
    }
    let (versions, capabilities) = (supported_versions(), capabilities());
    let discovery =
        json!({ "supportedVersions": versions, "capabilities": capabilities, "instructions": INSTRUCTIONS });
    (method == "server/discover").then(|| success(id, discovery))
}

/// The answer as clients of this version expect it, and its status over HTTP.
pub fn finish(message: &Value, mut answer: Value) -> (u16, Value) {
    let method = message["method"].as_str().unwrap_or_default();
    if let Some(error) = answer.get_mut("error") {
        // An unknown resource.
        if error["code"] == -32002 {
            error["code"] = (-32602).into();
        }
        return (stateless_status(error["code"].as_i64().unwrap_or_default()).as_u16(), answer);
    }
    let result = &mut answer["result"];
    result["resultType"] = "complete".into();
    result["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": server_info() });
    let is_list = method == "server/discover" || method.ends_with("/list");
    if is_list || method == "resources/read" {
        result["ttlMs"] = if is_list { TTL } else { 0 }.into();
        // What a client gets depends on its rights.
        result["cacheScope"] = "private".into();
    }
    (200, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_how_long_they_are_good_for_and_errors_have_their_status() {
        let message = |method: &str| json!({ "id": 1, "method": method });
        let found = answer(&json!(1), "server/discover").unwrap();
        let (status, found) = finish(&message("server/discover"), found);
        let found = &found["result"];
        assert_eq!((status, &found["supportedVersions"][0], &found["ttlMs"]), (200, &json!("2026-07-28"), &json!(TTL)));
        assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")));
        for (code, status, given) in [(-32002, 400, -32602), (-32601, 404, -32601), (-32603, 200, -32603)] {
            let (got, answer) = finish(&message("resources/read"), failure(&json!(1), code, "no"));
            assert_eq!((got, &answer["error"]["code"]), (status, &json!(given)));
        }
        assert_eq!(answer(&json!(1), "ping").unwrap()["error"]["code"], -32601);
        assert_eq!(answer(&json!(1), "tools/list"), None);
    }
}
