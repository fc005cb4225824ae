//! HTTPie command lines and PowerShell.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::curl::{field_word, quote};
use super::literal::{latin1, powershell as literal};
use crate::request::{MAX_INLINE, ReplayableRequest};

pub(super) fn httpie(request: &ReplayableRequest) -> String {
    let mut words = vec!["http".to_owned(), "--ignore-stdin".to_owned()];
    let mut before = String::new();
    if request.body.len() > MAX_INLINE || request.body.contains(&0) {
        // The body comes from standard input, which `--ignore-stdin` would switch off.
        words.pop();
        before = format!("printf %s {} | base64 -d | ", STANDARD.encode(&request.body));
    } else if request.has_body() {
        words.extend(["--raw".to_owned(), quote(&request.body)]);
    }
    words.push(quote(request.method.as_bytes()));
    words.push(quote(request.url.as_bytes()));
    for (name, value) in &request.headers {
        // A semicolon in place of the colon is HTTPie's form of an empty value. Behind a colon, `@` would name a file to
        // send, and `=` begin JSON.
        let sign: &[u8] = match value.first() {
            None => b";",
            Some(b'=' | b'@') => b":\\",
            Some(_) => b":",
        };
        words.push(field_word(request, name, &[name, sign, value].concat()));
    }
    format!("{before}{}\n", words.join(" "))
}

/// Methods that `-Method` takes; others need `-CustomMethod`.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "OPTIONS", "MERGE", "PATCH"];

pub(super) fn powershell(request: &ReplayableRequest) -> String {
    let option = if METHODS.contains(&request.method.as_str()) { "-Method" } else { "-CustomMethod" };
    let mut lines = vec![format!(
        "$response = Invoke-WebRequest -Uri {} {option} {}",
        literal(&request.url),
        literal(&request.method)
    )];
    let headers = request.joined_headers();
    if !headers.is_empty() {
        let fields: Vec<_> =
            headers.iter().map(|(n, v)| format!("    {} = {}\n", literal(n), literal(&latin1(v)))).collect();
        lines.push(format!("-Headers @{{\n{}  }}", fields.concat()));
    }
    if request.has_body() {
        // As bytes, because a string would be sent in an encoding that the Content-Type decides.
        lines.push(match std::str::from_utf8(&request.body) {
            Ok(text) if !text.contains('\0') => format!("-Body ([Text.Encoding]::UTF8.GetBytes({}))", literal(text)),
            _ => format!("-Body ([Convert]::FromBase64String({}))", literal(&STANDARD.encode(&request.body))),
        });
    }
    lines.push("-MaximumRedirection 0 -SkipHeaderValidation -SkipHttpErrorCheck".to_owned());
    format!("{}\n$response.StatusCode\n$response.Content\n", lines.join(" `\n  "))
}
