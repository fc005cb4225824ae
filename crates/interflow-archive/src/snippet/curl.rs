//! curl commands that replay a recorded request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::request::{MAX_INLINE, ReplayableRequest};

pub(super) fn command(request: &ReplayableRequest) -> String {
    let mut words = vec!["curl".to_owned()];
    method(request, &mut words);
    if let Some(option) = version(request) {
        words.push(option.to_owned());
    }
    // curl would expand brackets and braces in a URL as ranges and sets.
    if request.url.contains(['[', ']', '{', '}']) {
        words.push("--globoff".to_owned());
    }
    // curl removes dot segments from a path before it sends it.
    if request.path.contains("/.") {
        words.push("--path-as-is".to_owned());
    }
    // The request of the server itself, usually `OPTIONS *`, which no URL can express.
    if request.path == "*" {
        words.extend(["--request-target".to_owned(), "'*'".to_owned()]);
    }
    words.push(quote(request.url.as_bytes()));
    for (name, value) in &request.headers {
        words.push("-H".to_owned());
        words.push(field_word(request, name, &header(name, value)));
    }
    // Without a body, curl sends no length.
    if request.declares_empty {
        words.extend(["-H".to_owned(), "'Content-Length: 0'".to_owned()]);
    }
    for name in unwanted_defaults(request) {
        words.push("-H".to_owned());
        words.push(quote(format!("{name}:").as_bytes()));
    }
    // With this option curl also decodes the response, as the recorded client did.
    if request.header("accept-encoding").is_some() {
        words.push("--compressed".to_owned());
    }
    let before = body(request, &mut words);
    format!("{before}{}\n", words.join(" "))
}

fn method(request: &ReplayableRequest, words: &mut Vec<String>) {
    match (request.method.as_str(), request.has_body()) {
        // What curl sends by itself: GET, or POST with a body.
        ("GET", false) | ("POST", true) => {}
        // `-X HEAD` would make curl wait for a body.
        ("HEAD", false) => words.push("--head".to_owned()),
        (other, _) => words.extend(["-X".to_owned(), quote(other.as_bytes())]),
    }
}

fn version(request: &ReplayableRequest) -> Option<&'static str> {
    match request.version.as_str() {
        "HTTP/1.0" => Some("--http1.0"),
        "HTTP/1.1" => Some("--http1.1"),
        // Over plain text, curl would offer an upgrade instead of HTTP/2 from the start.
        "HTTP/2" if request.url.starts_with("http:") => Some("--http2-prior-knowledge"),
        "HTTP/2" => Some("--http2"),
        "HTTP/3" => Some("--http3"),
        _ => None,
    }
}

/// curl drops a field with an empty value, unless a semicolon replaces the colon.
pub(super) fn header(name: &[u8], value: &[u8]) -> Vec<u8> {
    if value.is_empty() { [name, b";"].concat() } else { [name, b": ", value].concat() }
}

/// Suppresses fields that curl would add although they were not sent.
fn unwanted_defaults(request: &ReplayableRequest) -> Vec<&'static str> {
    let mut names = vec!["User-Agent", "Accept"];
    if request.has_body() {
        names.push("Content-Type");
        names.push("Expect");
    }
    names.retain(|n| request.header(n).is_none());
    // curl adds `Expect` only for bodies of at least 1 MiB.
    if request.body.len() < 1 << 20 {
        names.retain(|n| *n != "Expect");
    }
    names
}

/// Appends the body's arguments; returns what must precede the command.
fn body(request: &ReplayableRequest, words: &mut Vec<String>) -> String {
    let body = &request.body;
    if body.is_empty() {
        return String::new();
    }
    // A NUL byte cannot be part of an argument, and the length of arguments is limited.
    if body.len() > MAX_INLINE || body.contains(&0) {
        words.extend(["--data-binary".to_owned(), "@-".to_owned()]);
        return format!("printf %s {} | base64 -d | ", STANDARD.encode(body));
    }
    words.extend(["--data-raw".to_owned(), quote(body)]);
    String::new()
}

/// A header field as an argument. In one whose value was masked, the shell replaces the variable.
pub(super) fn field_word(request: &ReplayableRequest, name: &[u8], field: &[u8]) -> String {
    match request.placeholder(name).and_then(|variable| field.strip_suffix(variable.as_bytes())) {
        Some(start) => format!("{}\"{}\"", quote(start), request.placeholder(name).unwrap_or_default()),
        None => quote(field),
    }
}

/// Quotes an argument for a POSIX shell; in the `$'…'` form of bash, ksh, zsh and POSIX 2024 if its bytes require it.
pub(super) fn quote(word: &[u8]) -> String {
    // Line ends and tabs are unchanged within single quotes.
    if let Ok(text) = std::str::from_utf8(word)
        && !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        let plain = |b: u8| {
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':' | b'@' | b'%' | b'+' | b',')
        };
        if !text.is_empty() && text.bytes().all(plain) {
            return text.to_owned();
        }
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    // Octal escapes, because the hexadecimal form has no fixed length in all shells.
    let mut out = String::from("$'");
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => c.to_string().bytes().for_each(|b| out.push_str(&format!("\\{b:03o}"))),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\{b:03o}")));
    }
    out.push('\'');
    out
}
