//! Masks secrets in everything sent to agents, regardless of the recorder's settings.

use interflow_codec::json::{self, JsonReader, JsonToken};
use interflow_types::Headers;
use interflow_types::secret_names::{is_secret_header, is_secret_name, secret_parameter};
use serde_json::Value;

const MASKED: &str = "[masked]";

/// The fields of a head, one per line, with secret values masked.
pub fn mask_headers(headers: &Headers) -> String {
    let line = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name);
        let value = if is_secret_name(&name) { MASKED.into() } else { String::from_utf8_lossy(value) };
        format!("{name}: {value}\n")
    };
    headers.iter().map(line).collect()
}

/// The same fields, with secret values masked.
pub fn mask_header_values(headers: &Headers) -> Headers {
    let value = |(name, value): (&[u8], &[u8])| {
        let masked = is_secret_name(&String::from_utf8_lossy(name));
        (name.to_vec(), if masked { MASKED.as_bytes().to_vec() } else { value.to_vec() })
    };
    headers.iter().map(value).collect()
}

/// A path with secret query parameters masked.
pub fn mask_path(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let pair = |pair: &str| secret_parameter(pair).map_or_else(|| pair.to_owned(), |name| format!("{name}={MASKED}"));
    format!("{path}?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&"))
}

/// A body as text, with secrets in JSON and forms masked; `None` if it is not text. `whole` is whether `body` is
/// complete.
pub fn mask_body(media: &str, body: &[u8], whole: bool) -> Option<String> {
    if media == "application/x-www-form-urlencoded" {
        let text = std::str::from_utf8(body).ok()?;
        return Some(mask_path(&format!("?{text}")).split_off(1));
    }
    if let Ok(mut value) = json::parse::<Value>(body) {
        mask_json(&mut value);
        return serde_json::to_string_pretty(&value).ok();
    }
    // A truncated body may end within a character.
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // A character of UTF-8 has at most four bytes.
        Err(e) if !whole && e.valid_up_to() + 4 > body.len() => {
            std::str::from_utf8(body.get(..e.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    if let Some(mut value) = close_json(text).filter(|_| !whole) {
        mask_json(&mut value);
        return serde_json::to_string_pretty(&value).ok();
    }
    // Line by line, for event streams and JSON lines. Other text is not masked.
    let mut lines = text.lines().peekable();
    let mut masked = String::new();
    while let Some(line) = lines.next() {
        masked += &mask_line(line, !whole && lines.peek().is_none());
        masked.push('\n');
    }
    Some(masked)
}

/// A line of an event stream or of JSON lines, which may be cut.
fn mask_line(text: &str, is_cut: bool) -> String {
    let (head, rest) = text.strip_prefix("data:").map_or(("", text), |rest| ("data: ", rest));
    let value = serde_json::from_str::<Value>(rest).ok().or_else(|| close_json(rest).filter(|_| is_cut));
    match value {
        // Numbers and texts alone have no keys.
        Some(mut value @ (Value::Object(_) | Value::Array(_))) => {
            mask_json(&mut value);
            format!("{head}{value}")
        }
        _ => text.to_owned(),
    }
}

/// The complete values of an object or an array that is cut; `None` if the text is something else.
fn close_json(text: &str) -> Option<Value> {
    let mut reader = JsonReader::new(text.as_bytes());
    let (mut closers, mut end) = (Vec::new(), 0);
    while let Ok(Some(token)) = reader.next_token() {
        match token {
            JsonToken::Object(at) | JsonToken::Array(at) => {
                closers.push(if matches!(token, JsonToken::Object(_)) { '}' } else { ']' });
                end = at + 1;
            }
            JsonToken::End(at) => {
                closers.pop();
                end = at;
            }
            JsonToken::Text(range) => end = range.end + 1,
            JsonToken::Scalar(range) => end = range.end,
            // Without its value it is left out.
            JsonToken::Name(_) => {}
        }
    }
    if closers.is_empty() {
        return None;
    }
    let closed: String = text.get(..end)?.chars().chain(closers.into_iter().rev()).collect();
    // A line of a log may begin with a bracket, too.
    serde_json::from_str(&closed).ok().filter(|value: &Value| !value.as_array().is_some_and(Vec::is_empty))
}

/// Depth of JSON in strings that is masked, as in arguments of tools.
const MAX_NESTED_JSON: usize = 4;

/// Masks the texts of secret keys at any depth, in whatever JSON they are wrapped: lists, objects, pairs of a name and a
/// value, and JSON in strings. Numbers stay unless a password is expected, and so do empty texts.
pub fn mask_json(value: &mut Value) {
    mask_value(value, MAX_NESTED_JSON);
}

fn mask_value(value: &mut Value, nested: usize) {
    match value {
        Value::Object(map) => {
            let names_secret =
                map.iter().any(|(key, value)| is_name_of_pair(key) && value.as_str().is_some_and(is_secret_name));
            for (key, value) in map {
                if is_secret_name(key) || names_secret && is_value_of_pair(key) {
                    mask_all(value, is_password(key));
                } else {
                    mask_value(value, nested);
                }
            }
        }
        Value::Array(list) => {
            // Header fields as pairs, or one after the other as Node has them.
            let mut follows_name = false;
            for value in list {
                if std::mem::take(&mut follows_name) && value.is_string() {
                    mask_all(value, false);
                } else {
                    follows_name = value.as_str().is_some_and(|name| is_secret_header(name.as_bytes()));
                    mask_value(value, nested);
                }
            }
        }
        Value::String(text) if nested > 0 && text.trim_start().starts_with(['{', '[']) => {
            if let Ok(mut inner) = serde_json::from_str::<Value>(text) {
                let before = inner.clone();
                mask_value(&mut inner, nested - 1);
                if inner != before {
                    *text = inner.to_string();
                }
            }
        }
        _ => {}
    }
}

/// Masks every text in a value, and numbers if these are secrets too.
fn mask_all(value: &mut Value, with_numbers: bool) {
    match value {
        Value::String(text) if !text.is_empty() => *value = MASKED.into(),
        Value::Number(_) if with_numbers => *value = MASKED.into(),
        Value::Array(list) => list.iter_mut().for_each(|value| mask_all(value, with_numbers)),
        Value::Object(map) => map.values_mut().for_each(|value| mask_all(value, with_numbers)),
        _ => {}
    }
}

/// Members that name what another member of the same object has, as in `{"name": "Authorization", "value": "..."}`.
fn is_name_of_pair(key: &str) -> bool {
    ["name", "key", "header", "field", "param", "parameter"].iter().any(|name| key.eq_ignore_ascii_case(name))
}

fn is_value_of_pair(key: &str) -> bool {
    ["value", "values", "val"].iter().any(|name| key.eq_ignore_ascii_case(name))
}

/// Whether people choose digits for what has this name. Numbers under other secret names are mostly counts.
fn is_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["pass", "pwd", "secret"].iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_streams_and_cut_bodies_are_masked_line_by_line() {
        let sse = b"event: x\ndata: {\"token\": \"abc\", \"text\": \"hi\"}\n\ndata: {\"token\": \"ab";
        let shown = mask_body("text/event-stream", sse, false).unwrap();
        assert!(shown.contains("hi") && !shown.contains("abc") && !shown.contains("ab\""), "{shown}");
        // Wherever a text of JSON is cut, no part of a secret is shown.
        let json = r#"{"a": [1, {"token": ["s3cret"], "b": "hi"}], "api_key": "s3cret"}"#;
        for end in 1..json.len() {
            let shown = mask_body("application/json", &json.as_bytes()[..end], false).unwrap();
            assert!(!shown.contains("s3"), "{shown}");
            assert!(end < 50 || shown.contains("hi"), "{shown}");
        }
        assert_eq!(mask_body("text/plain", b"[INFO] a\n[INFO] b", false).unwrap(), "[INFO] a\n[INFO] b\n");
        assert_eq!(
            mask_body("application/x-www-form-urlencoded", b"user=a&password=b", true).unwrap(),
            "user=a&password=[masked]"
        );
        assert_eq!(mask_body("image/png", &[0x89, 0xff, 0, 1, 2, 3], true), None);
    }

    #[test]
    fn secrets_are_masked_in_whatever_json_they_are_wrapped() {
        for (json, masked) in [
            (r#"{"Authorization":["Bearer s3cret"]}"#, r#"{"Authorization":["[masked]"]}"#),
            (r#"{"api_key":{"value":"s3cret","n":1}}"#, r#"{"api_key":{"n":1,"value":"[masked]"}}"#),
            (r#"[{"name":"Authorization","value":"s3cret"}]"#, r#"[{"name":"Authorization","value":"[masked]"}]"#),
            (r#"{"value":["s3cret"],"Name":"X-Api-Key"}"#, r#"{"Name":"X-Api-Key","value":["[masked]"]}"#),
            (r#"{"headers":[["authorization","s3cret"]]}"#, r#"{"headers":[["authorization","[masked]"]]}"#),
            (r#"["Host","a.test","Cookie","s3cret"]"#, r#"["Host","a.test","Cookie","[masked]"]"#),
            (r#"{"password":12345678}"#, r#"{"password":"[masked]"}"#),
            (r#"{"token":[["s3cret"]]}"#, r#"{"token":[["[masked]"]]}"#),
            (r#"{"arguments":"{\"token\":\"s3cret\"}"}"#, r#"{"arguments":"{\"token\":\"[masked]\"}"}"#),
            // What is no secret stays, and as it was written.
            (r#"{"arguments":"{ \"n\": 1 }"}"#, r#"{"arguments":"{ \"n\": 1 }"}"#),
            (r#"{"name":"Host","value":"a.test","key":5}"#, r#"{"key":5,"name":"Host","value":"a.test"}"#),
            (
                r#"{"usage":{"input_tokens":{"text":3}},"token":0}"#,
                r#"{"token":0,"usage":{"input_tokens":{"text":3}}}"#,
            ),
        ] {
            let shown: Value =
                serde_json::from_str(&mask_body("application/json", json.as_bytes(), true).unwrap()).unwrap();
            assert_eq!(shown, serde_json::from_str::<Value>(masked).unwrap(), "{json}");
            assert!(!shown.to_string().contains("s3cret"), "{shown}");
        }
    }
}
