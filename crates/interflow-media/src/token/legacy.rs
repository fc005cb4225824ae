//! Links sealed by another media proxy (`media.compat`): AES-256-CBC over JSON, with the password as key. Read, never
//! written.

use aes::Aes256;
use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt as _, KeyIvInit as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use serde_json::{Map, Value};

use super::{LinkGrant, TokenError};

/// The grant in a link of either legacy format. Their encryption is not authenticated, so all errors are reported
/// alike, to avoid an oracle.
///
/// # Errors
/// [`TokenError::Foreign`].
pub fn read_legacy(token: &str, password: &str) -> Result<LinkGrant, TokenError> {
    let sealed = B64.decode(token.trim_end_matches('=')).map_err(|_| TokenError::Foreign)?;
    let (iv, text) = sealed.split_at_checked(16).ok_or(TokenError::Foreign)?;
    // Both programs pad the password with spaces to the length of the key.
    let mut key = [b' '; 32];
    key.iter_mut().zip(password.bytes()).for_each(|(k, p)| *k = p);
    let cipher = cbc::Decryptor::<Aes256>::new_from_slices(&key, iv).map_err(|_| TokenError::Foreign)?;
    let mut buffer = text.to_vec();
    let plain = cipher.decrypt_padded::<Pkcs7>(&mut buffer).map_err(|_| TokenError::Foreign)?;
    let fields: Map<String, Value> = serde_json::from_slice(plain).map_err(|_| TokenError::Foreign)?;
    let mut grant = read(fields);
    if grant.get("api_password").is_some_and(|given| given != password) {
        return Err(TokenError::Foreign);
    }
    // The password inside the link has done its service, and must not reach playlists.
    grant.q.retain(|(name, _)| name != "api_password");
    // What these links hid stays hidden in their children.
    grant.hide = true;
    Ok(grant)
}

/// Reads both formats: flat parameters, or `destination` with `query_params`, `request_headers`, `response_headers`.
fn read(fields: Map<String, Value>) -> LinkGrant {
    let mut grant = LinkGrant::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("exp", value) => grant.exp = seconds(&value),
            ("ip", Value::String(ip)) if !ip.is_empty() => grant.ip = Some(ip),
            ("destination", Value::String(d)) => grant.q.push(("d".into(), d)),
            ("query_params", Value::Object(pairs)) => add(&mut grant, "", pairs),
            ("request_headers", Value::Object(pairs)) => add(&mut grant, "h_", pairs),
            ("response_headers", Value::Object(pairs)) => add(&mut grant, "r_", pairs),
            (_, value) => grant.q.extend(text(&value).map(|text| (name, text))),
        }
    }
    grant
}

fn seconds(value: &Value) -> Option<u64> {
    // An invalid expiry counts as expired.
    if value.is_null() { None } else { Some(value.as_f64().filter(|n| *n >= 0.0).map_or(0, |n| n as u64)) }
}

fn add(grant: &mut LinkGrant, prefix: &str, pairs: Map<String, Value>) {
    grant.q.extend(pairs.into_iter().filter_map(|(name, value)| Some((format!("{prefix}{name}"), text(&value)?))));
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        Value::Array(items) => Some(items.iter().filter_map(text).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::BlockModeEncrypt as _;

    fn sealed(json: &str, password: &str) -> String {
        let mut key = [b' '; 32];
        key.iter_mut().zip(password.bytes()).for_each(|(k, p)| *k = p);
        let mut buffer = json.as_bytes().to_vec();
        buffer.resize(json.len() + 16, 0);
        let cipher = cbc::Encryptor::<Aes256>::new_from_slices(&key, &[9; 16]).unwrap();
        let text = cipher.encrypt_padded::<Pkcs7>(&mut buffer, json.len()).unwrap();
        B64.encode([&[9; 16], text].concat())
    }

    #[test]
    fn both_legacy_token_forms_are_accepted() {
        let flat =
            r#"{"d":"http://a/x","h_referer":"r","api_password":"pw","exp":1700000000,"ip":"1.2.3.4","key":"k"}"#;
        let nested = r#"{"destination":"http://a/x","query_params":{"key":"k"},"request_headers":{"referer":"r"},"exp":1700000000,"ip":"1.2.3.4"}"#;
        for json in [flat, nested] {
            let grant = read_legacy(&sealed(json, "pw"), "pw").unwrap();
            assert_eq!((grant.exp, grant.ip.as_deref()), (Some(1_700_000_000), Some("1.2.3.4")), "{json}");
            for (name, value) in [("d", "http://a/x"), ("h_referer", "r"), ("key", "k")] {
                assert_eq!(grant.get(name), Some(value), "{json}");
            }
            assert!(grant.hide && grant.get("api_password").is_none());
        }
    }

    #[test]
    fn wrong_password_or_form_is_refused() {
        let token = sealed(r#"{"d":"http://a/x","api_password":"other"}"#, "pw");
        assert!(read_legacy(&token, "pw").is_err(), "the password inside is another");
        let long = "A".repeat(64);
        for (token, password) in [(token.as_str(), "px"), ("", "pw"), ("AAAA", "pw"), (&long, "pw"), ("!", "pw")] {
            assert_eq!(read_legacy(token, password), Err(TokenError::Foreign));
        }
    }
}
