//! JSON-RPC 2.0 messages as raw JSON: what is passed on keeps its bytes, so that no number is rounded and no member
//! changes its place.

use std::borrow::Cow;
use std::fmt::Display;

use interflow_codec::json::{JsonReader, JsonToken, children, whole_pairs};
use interflow_redact::decode_lossy;
use interflow_types::is_terminal_control;
use serde_json::{Value, json};

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// A server failed, cannot be reached, or did not answer in time.
pub(crate) const SERVER_FAILED: i64 = -32000;
/// The configuration, the client's key or a person does not allow the request.
pub(crate) const NOT_ALLOWED: i64 = -32010;
/// The message cannot be inspected, so it is not passed on.
pub(crate) const NOT_INSPECTED: i64 = -32011;
/// The user has to open a URL before the request can succeed (MCP 2025-11-25, elicitation).
pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;
/// A header field that says what is in the body is missing, occurs twice or differs (MCP 2026-07-28, transports).
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The server needs what the client did not declare on the request.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// The resource is unknown, as servers before MCP 2026-07-28 say it.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// The client cancelled the request.
pub(crate) const CANCELLED: i64 = -32800;

/// The error of a JSON-RPC response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct RpcError {
    pub code: i64,
    pub message: String,
    /// For the client, redacted.
    pub data: Option<Box<Value>>,
    /// What a server sent with the error, if it is of use. It goes to no client as it is.
    pub received_data: Option<Box<Value>>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, received_data: None }
    }

    pub fn server(message: impl Into<String>) -> Self {
        Self::new(SERVER_FAILED, message)
    }

    /// Whether it is the refusal of a version by a server that has this one.
    pub fn supports(&self, version: &str) -> bool {
        let supported = self.received_data.as_ref().and_then(|data| data["supported"].as_array());
        self.code == UNSUPPORTED_VERSION && supported.is_some_and(|all| all.iter().any(|own| own == version))
    }

    pub fn not_allowed(message: impl Into<String>) -> Self {
        Self::new(NOT_ALLOWED, message)
    }
}

/// The response to a request with this id as JSON: its result, as raw JSON, or its error.
pub(crate) fn response(id: &impl Display, result: &Result<String, RpcError>) -> String {
    match result {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Err(e) => {
            // Without its data, that code does not say what to do.
            let has_urls = e.code != URL_ELICITATION_REQUIRED || e.data.is_some();
            let mut error = json!({ "code": if has_urls { e.code } else { SERVER_FAILED }, "message": e.message });
            if let Some(data) = &e.data {
                error["data"] = Value::clone(data);
            }
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
        }
    }
}

/// A request, with params as raw JSON.
pub(crate) fn request(id: u64, method: &str, params: &str) -> String {
    let method = Value::from(method);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
}

pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

/// A message of a server.
pub(crate) enum ServerMessage {
    /// The response to the request with this id.
    Response(u64, Result<String, RpcError>),
    /// A request of the server's own.
    Request {
        /// As raw JSON: it may be a number of any length.
        id: String,
        method: String,
        /// As raw JSON; empty if there are none.
        params: String,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// What is none of these, such as a response to a request that was never sent.
    Other,
}

impl ServerMessage {
    /// # Errors
    /// The text is not JSON.
    pub fn parse(raw: &str) -> Result<Self, String> {
        let raw = &*whole_pairs(raw);
        let mut value: Value = serde_json::from_str(raw).map_err(|e| format!("it sent invalid JSON: {e}"))?;
        let id = member(raw, "id").filter(|id| *id != "null");
        let method = value.get("method").and_then(Value::as_str).map(str::to_owned);
        Ok(match (id, method) {
            (Some(id), Some(method)) => {
                let params = member(raw, "params").unwrap_or_default().to_owned();
                Self::Request { id: id.to_owned(), method, params }
            }
            (None, Some(method)) => {
                Self::Notification { method, params: value.get_mut("params").map(Value::take).unwrap_or_default() }
            }
            (Some(id), None) => match (id.parse().ok(), value.get("error").filter(|e| e.is_object())) {
                (None, _) => Self::Other,
                (Some(id), Some(error)) => Self::Response(id, Err(server_error(error))),
                (Some(id), None) => {
                    let neither = || RpcError::server("its response has neither a result nor an error");
                    Self::Response(id, member(raw, "result").map(str::to_owned).ok_or_else(neither))
                }
            },
            (None, None) => Self::Other,
        })
    }
}

/// The error of a response. Its data may be anything, and has to be redacted.
pub(crate) fn server_error(error: &Value) -> RpcError {
    let message = error["message"].as_str().unwrap_or("an error without a message");
    let code = error["code"].as_i64().unwrap_or(INTERNAL_ERROR);
    RpcError { received_data: error.get("data").cloned().map(Box::new), ..RpcError::new(code, message) }
}

/// A member's value in an object; of several with one name, the last, as parsers of values have it.
pub(crate) fn member<'j>(json: &'j str, name: &str) -> Option<&'j str> {
    members(json).into_iter().rfind(|(other, _)| other == name).map(|(_, value)| value)
}

/// A member that is a string.
pub(crate) fn text_member(json: &str, name: &str) -> Option<String> {
    serde_json::from_str(member(json, name)?).ok()
}

/// The request to which a text that is not valid JSON, such as one with `NaN`, seems to be the response.
pub(crate) fn response_id(text: &str) -> Option<u64> {
    // It may be before what is invalid, or after it.
    let before = member(text, "id").and_then(|id| id.parse().ok());
    before.or_else(|| {
        let rest = text.trim_end().strip_suffix('}')?.rsplit_once("\"id\"")?.1;
        rest.trim_start().strip_prefix(':')?.trim().parse().ok()
    })
}

/// The members of an object: their names, and their values as they are written.
pub(crate) fn members(json: &str) -> Vec<(String, &str)> {
    let mut members = Vec::new();
    // Those before an error are there.
    let _ = children(json.as_bytes(), 0..json.len(), |name, value| {
        let name = name.and_then(|name| Some(decode_lossy(json.get(name)?).0.into_owned()));
        members.extend(name.zip(json.get(value)));
    });
    members
}

/// An object of members whose values are raw JSON.
pub(crate) fn object<'v>(members: impl IntoIterator<Item = (impl AsRef<str>, &'v str)>) -> String {
    let members = members.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_ref())));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// An object without some of its members.
pub(crate) fn without(json: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    object(members(json).into_iter().filter(|(name, _)| !is_left_out(name)))
}

/// An object with the members of two. A member of the second wins, but for `_meta`, which has the members of both.
pub(crate) fn merged(first: &str, second: &str) -> String {
    let own = members(first).into_iter();
    let mut all: Vec<_> = own.map(|(name, value)| (name, Cow::Borrowed(value))).collect();
    for (name, value) in members(second) {
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, before)) if name == "_meta" => *before = merged(before, value).into(),
            Some((_, before)) => *before = value.into(),
            None => all.push((name, value.into())),
        }
    }
    object(all.iter().map(|(name, value)| (name, &**value)))
}

/// Bound on the arguments that a person is shown, in characters.
const MAX_SHOWN_ARGUMENTS: usize = 2_000;

/// How much of each text is shown if the whole is too long, in characters: the first that is short enough.
const SHOWN_OF_TEXTS: [usize; 3] = [400, 100, 20];

/// A JSON value for a person who decides on it: without white space that would push the rest out of sight, and with
/// marks that reorder text as escapes. If it is too long, texts are shown without their middle, so that every member is
/// seen; where even that is not enough, it begins with how much is not shown.
pub(crate) fn shown_arguments(json: &str) -> String {
    let text = json.split_whitespace().collect::<Vec<_>>().join(" ");
    let hidden = |text: &str| text.chars().count().saturating_sub(MAX_SHOWN_ARGUMENTS);
    let mut shown = text.clone();
    for most in SHOWN_OF_TEXTS {
        if hidden(&shown) > 0 {
            shown = with_short_texts(&text, most);
        }
    }
    let hidden = hidden(&shown);
    let mut out = if hidden > 0 { format!("({hidden} more characters are not shown) ") } else { String::new() };
    for c in shown.chars().take(MAX_SHOWN_ARGUMENTS) {
        match is_terminal_control(c) {
            true => out += &format!("\\u{:04x}", u32::from(c)),
            false => out.push(c),
        }
    }
    out
}

/// A JSON value whose long names, texts and numbers lack their middle.
fn with_short_texts(json: &str, most: usize) -> String {
    let (mut out, mut at, mut reader) = (String::new(), 0, JsonReader::new(json.as_bytes()));
    while let Ok(Some(token)) = reader.next_token() {
        if let JsonToken::Name(range) | JsonToken::Text(range) | JsonToken::Scalar(range) = token {
            out += json.get(at..range.start).unwrap_or_default();
            at = range.end;
            let text = json.get(range).unwrap_or_default();
            let length = text.chars().count();
            let first: String = text.chars().take(most / 2).collect();
            let last: String = text.chars().skip(length.saturating_sub(most / 2)).collect();
            // The quote of an escape would seem to end the text.
            let last = last.trim_start_matches('"');
            out += &match length.saturating_sub(most) {
                0..=40 => text.into(),
                hidden => format!("{first}… {hidden} characters not shown …{last}"),
            };
        }
    }
    out + json.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_they_are_sent() {
        let padded = format!("{{{}\"path\":\"a\u{202e}b\"}}", " ".repeat(3_000));
        assert_eq!(shown_arguments(&padded), r#"{ "path":"a\u202eb"}"#);
        let uri = "x".repeat(2_001);
        assert_eq!(shown_arguments(&uri), format!("(1 more characters are not shown) {}", &uri[1..]));
    }

    #[test]
    fn no_long_text_or_name_or_number_hides_another_member_from_who_decides() {
        for long in [
            format!(r#""text":"{}""#, "a".repeat(2_000)),
            format!(r#""{}":1"#, "é".repeat(2_000)),
            format!(r#""n":{}"#, "1".repeat(50_000)),
            format!(r#""text":"{}\",\"path\":\"/safe""#, r#"\""#.repeat(5_000)),
            (0..15).map(|i| format!(r#""{i}":"{}""#, "a".repeat(300))).collect::<Vec<_>>().join(","),
        ] {
            let shown = shown_arguments(&format!(r#"{{{long},"path":"/prod/all"}}"#));
            assert!(shown.ends_with(r#","path":"/prod/all"}"#) && shown.chars().count() <= 2_000, "{shown}");
            assert!(shown.contains(" characters not shown …"), "{shown}");
        }
        let many = format!(r#"{{"list":[{}],"path":"/prod/all"}}"#, ["0"; 2_000].join(","));
        assert!(shown_arguments(&many).starts_with("(2029 more characters are not shown) {\"list\":[0,"));
    }

    #[test]
    fn half_of_an_emoji_in_a_response_is_a_replacement_character() {
        let raw = r#"{"jsonrpc":"2.0","id":7,"result":{"text":"cut \ud83e","n":1.50}}"#;
        let Ok(ServerMessage::Response(7, result)) = ServerMessage::parse(raw) else { panic!("a response") };
        assert_eq!(result.unwrap(), r#"{"text":"cut \ufffd","n":1.50}"#);
    }

    #[test]
    fn the_value_of_a_member_is_found_as_it_was_written() {
        for (json, value) in [
            (r#"{"a": 1, "b": {"a": 2}}"#, Some("1")),
            (r#"{"b": {"a": 2}, "a": {"x": [1, 2.50]}}"#, Some(r#"{"x": [1, 2.50]}"#)),
            (r#"{"a": "x", "\u0061": "y"}"#, Some(r#""y""#)),
            (r#"{"a": 12345678901234567890123}"#, Some("12345678901234567890123")),
            (r#"{"b": [{"a": 1}]}"#, None),
            (r#"[{"a": 1}]"#, None),
            (r#"{"a": null}"#, Some("null")),
            ("", None),
        ] {
            assert_eq!(member(json, "a"), value, "{json}");
        }
    }

    #[test]
    fn an_invalid_response_is_of_the_request_that_it_names() {
        for (text, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":1,"n":NaN}}"#, Some(7)),
            (r#"{"result":{"id":1,"n":NaN},"jsonrpc":"2.0","id": 7 }"#, Some(7)),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"text":"cut"#, Some(7)),
            (r#"{"result":{"n":NaN,"id":1}}"#, None),
            (r#"{"id":"7","result":NaN}"#, None),
            ("listening on port 7", None),
        ] {
            assert_eq!(response_id(text), id, "{text}");
        }
    }

    #[test]
    fn members_of_two_objects_are_merged_as_they_were_written() {
        let (first, second) =
            (r#"{"a": 1.50, "_meta": {"x": 1}}"#, r#"{"_meta": {"y": 2.0, "x": 3}, "b": "\u0041", "a": []}"#);
        assert_eq!(merged(first, second), r#"{"a":[],"_meta":{"x":3,"y":2.0},"b":"\u0041"}"#);
        assert_eq!(merged("{}", "{}"), "{}");
    }

    #[test]
    fn responses_keep_the_bytes_of_the_result() {
        let raw = r#"{"jsonrpc":"2.0","id":7,"result":{"n":1.10,"big":12345678901234567890123}}"#;
        let Ok(ServerMessage::Response(7, result)) = ServerMessage::parse(raw) else { panic!("a response") };
        assert_eq!(response(&json!("x"), &result), raw.replace("7,", "\"x\","));
        let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"no","data":"secret"}}"#;
        let Ok(ServerMessage::Response(7, Err(e))) = ServerMessage::parse(error) else { panic!("an error") };
        assert!(!response(&json!(1), &Err(e)).contains("secret"), "its data has to be redacted first");
        let urls =
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32042,"message":"no","data":{"elicitations":"secret"}}}"#;
        let Ok(ServerMessage::Response(7, Err(e))) = ServerMessage::parse(urls) else { panic!("an error") };
        assert!(e.received_data.is_some(), "for who may redact it");
        let plain = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#;
        assert_eq!(response(&json!(1), &Err(e)), plain);
        assert!(matches!(ServerMessage::parse(r#"{"id":"a","result":1}"#), Ok(ServerMessage::Other)));
        let asked = ServerMessage::parse(r#"{"id":123456789012345678901234567890,"method":"ping"}"#);
        let Ok(ServerMessage::Request { id, .. }) = asked else { panic!("a request") };
        assert_eq!(
            response(&id, &Ok("{}".into())),
            r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"result":{}}"#
        );
        assert!(ServerMessage::parse("hello").is_err());
    }
}
