//! Recorded requests as HTTPie commands, JavaScript and Python.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::BodySource;
use super::curl::quote;
use super::request::{MAX_INLINE, ReplayableRequest};
use interflow_store::FlowRow;

/// Writes an HTTPie command line.
///
/// # Errors
/// The body cannot be read, or the output cannot be written.
pub fn httpie(out: &mut dyn Write, row: &FlowRow, contents: &dyn BodySource) -> io::Result<()> {
    write_snippet(out, row, contents, "#", |request| {
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
            // A semicolon in place of the colon is HTTPie's form of an empty value.
            let sign: &[u8] = if value.is_empty() { b";" } else { b":" };
            words.push(quote(&[name, sign, value].concat()));
        }
        format!("{before}{}\n", words.join(" "))
    })
}

/// Writes a call of `fetch` for a browser's console or Node.
///
/// # Errors
/// The body cannot be read, or the output cannot be written.
pub fn fetch(out: &mut dyn Write, row: &FlowRow, contents: &dyn BodySource) -> io::Result<()> {
    write_snippet(out, row, contents, "//", |request| {
        let headers: Vec<_> = request
            // A list of pairs, because an object could not repeat a name.
            .headers
            .iter()
            .map(|(n, v)| serde_json::json!([String::from_utf8_lossy(n), String::from_utf8_lossy(v)]).to_string())
            .collect();
        let mut lines = vec![format!("  method: {}", json(&request.method))];
        if !headers.is_empty() {
            lines.push(format!("  headers: [\n    {}\n  ]", headers.join(",\n    ")));
        }
        if request.has_body() {
            lines.push(match std::str::from_utf8(&request.body) {
                Ok(text) => format!("  body: {}", json(text)),
                Err(_) => {
                    let packed = json(&STANDARD.encode(&request.body));
                    format!("  body: Uint8Array.from(atob({packed}), (c) => c.charCodeAt(0))")
                }
            });
        }
        format!("await fetch({}, {{\n{}\n}});\n", json(&request.url), lines.join(",\n"))
    })
}

/// Writes a call of Python's `requests`.
///
/// # Errors
/// The body cannot be read, or the output cannot be written.
pub fn python(out: &mut dyn Write, row: &FlowRow, contents: &dyn BodySource) -> io::Result<()> {
    write_snippet(out, row, contents, "#", |request| {
        let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, value) in &request.headers {
            let name = String::from_utf8_lossy(name).into_owned();
            // A dict has unique keys: lists are joined as RFC 9110 5.3 allows.
            match headers.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(&name)) {
                Some((_, before)) => {
                    let between: &[u8] = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
                    *before = [before, between, value].concat();
                }
                None => headers.push((name, value.to_vec())),
            }
        }
        let fields: Vec<_> = headers.iter().map(|(n, v)| format!("        {}: {},", json(n), bytes(v))).collect();
        let mut call = format!("    {},\n    {},\n", json(&request.method), json(&request.url));
        if !fields.is_empty() {
            call.push_str(&format!("    headers={{\n{}\n    }},\n", fields.join("\n")));
        }
        if request.has_body() {
            call.push_str(&format!("    data={},\n", bytes(&request.body)));
        }
        format!(
            "import requests\n\nresponse = requests.request(\n{call}    allow_redirects=False,\n)\nprint(response.status_code, response.text)\n"
        )
    })
}

fn write_snippet(
    out: &mut dyn Write,
    row: &FlowRow,
    contents: &dyn BodySource,
    comment: &str,
    show: impl Fn(&ReplayableRequest) -> String,
) -> io::Result<()> {
    let Some(request) = ReplayableRequest::read(row, contents)? else {
        return writeln!(out, "{comment} {} {}: a tunnel has no request", row.id, row.authority);
    };
    if let Some(note) = &request.note {
        writeln!(out, "{comment} {note}")?;
    }
    out.write_all(show(&request).as_bytes())
}

/// A string literal valid in JavaScript and Python.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    // Unicode's two line separators terminate lines in JavaScript before 2019.
    quoted.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").replace('\u{7f}', "\\u007f")
}

/// A bytes literal of Python.
fn bytes(value: &[u8]) -> String {
    let mut out = String::from("b\"");
    for &b in value {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(b)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            0x20..0x7f => out.push(char::from(b)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('"');
    out
}
