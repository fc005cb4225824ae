//! Masks secrets in everything sent to agents, regardless of the recorder's settings.

use interflow_types::Headers;
use interflow_types::secret_names::{is_secret_header, is_secret_parameter};
use serde_json::Value;

const MASKED: &str = "[masked]";

/// Whether a field, parameter or key of this name holds a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    if is_secret_header(name.as_bytes()) {
        return true;
    }
    // Compared without punctuation and case: `api_key`, `api-key` and `apiKey` are equal.
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // Token counts are not secrets, and are commonly needed.
    if name.ends_with("tokens") || name.ends_with("tokencount") || name.contains("tokensdetails") {
        return false;
    }
    const WHOLE: [&str; 8] =
        ["authorization", "proxyauthorization", "cookie", "setcookie", "auth", "key", "sig", "pwd"];
    const PARTS: [&str; 11] = [
        "accesskey",
        "apikey",
        "token",
        "secret",
        "passphrase",
        "password",
        "passwd",
        "credential",
        "privatekey",
        "signature",
        "sessionkey",
    ];
    WHOLE.contains(&name.as_str()) || PARTS.iter().any(|p| name.contains(p))
}

/// The fields of a head, one per line, with secret values masked.
pub fn mask_headers(headers: &Headers) -> String {
    let line = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name);
        let value = if is_secret(&name) { MASKED.into() } else { String::from_utf8_lossy(value) };
        format!("{name}: {value}\n")
    };
    headers.iter().map(line).collect()
}

/// The same fields, with secret values masked.
pub fn mask_header_values(headers: &Headers) -> Headers {
    let value = |(name, value): (&[u8], &[u8])| {
        let masked = is_secret(&String::from_utf8_lossy(name));
        (name.to_vec(), if masked { MASKED.as_bytes().to_vec() } else { value.to_vec() })
    };
    headers.iter().map(value).collect()
}

/// A path with secret query parameters masked.
pub fn mask_path(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) || is_secret_parameter(name) => format!("{name}={MASKED}"),
        _ => pair.to_owned(),
    };
    format!("{path}?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&"))
}

/// A body as text, with secrets in JSON and forms masked; `None` if it is not text. `whole` is whether `body` is
/// complete.
pub fn mask_body(media: &str, body: &[u8], whole: bool) -> Option<String> {
    if media == "application/x-www-form-urlencoded" {
        let text = std::str::from_utf8(body).ok()?;
        return Some(mask_path(&format!("?{text}")).split_off(1));
    }
    if let Ok(mut value) = serde_json::from_slice::<Value>(body) {
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
    // Line by line, for event streams and JSON lines. Other text is not masked.
    Some(text.lines().map(|l| mask_line(l) + "\n").collect())
}

/// A line of an event stream or of JSON lines.
fn mask_line(text: &str) -> String {
    let (head, rest) = text.strip_prefix("data:").map_or(("", text), |rest| ("data: ", rest));
    match serde_json::from_str::<Value>(rest) {
        // Numbers and texts alone have no keys.
        Ok(mut value @ (Value::Object(_) | Value::Array(_))) => {
            mask_json(&mut value);
            format!("{head}{value}")
        }
        _ => text.to_owned(),
    }
}

/// Masks the texts of secret keys at any depth. Numbers and empty texts stay.
pub fn mask_json(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(s) if is_secret(key) && !s.is_empty() => *value = MASKED.into(),
                    value => mask_json(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask_json),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognised() {
        for name in
            ["Authorization", "x-api-key", "X-Goog-Api-Key", "access_token", "clientSecret", "password", "key", "sig"]
        {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "max_tokens",
            "input_tokens",
            "Content-Type",
            "author",
            "keyboard",
            "prompt_tokens_details",
            "totalTokenCount",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn event_streams_and_cut_bodies_are_masked_line_by_line() {
        let sse = b"event: x\ndata: {\"token\": \"abc\", \"text\": \"hi\"}\n\ndata: {\"token\": \"ab";
        let shown = mask_body("text/event-stream", sse, false).unwrap();
        assert!(shown.contains("hi") && !shown.contains("abc"), "{shown}");
        assert_eq!(
            mask_body("application/x-www-form-urlencoded", b"user=a&password=b", true).unwrap(),
            "user=a&password=[masked]"
        );
        assert_eq!(mask_body("image/png", &[0x89, 0xff, 0, 1, 2, 3], true), None);
    }
}
