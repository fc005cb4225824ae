//! JavaScript, Python and PHP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::curl;
use super::literal::{hex_escaped, json, latin1, php as php_literal};
use crate::request::ReplayableRequest;

/// A call of `fetch` for a browser's console or Node.
pub(super) fn fetch(request: &ReplayableRequest) -> String {
    let headers: Vec<_> = request
        // A list of pairs, because an object could not repeat a name.
        .headers
        .iter()
        // `fetch` sends the characters of a value as the bytes with the same numbers.
        .map(|(n, v)| format!("[{}, {}]", json(&latin1(n)), json(&latin1(v))))
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
}

/// A call of Python's `requests`.
pub(super) fn python(request: &ReplayableRequest) -> String {
    let bytes = |value: &[u8]| format!("b{}", hex_escaped(value));
    let headers = request.joined_headers();
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
}

/// PHP with its curl extension.
pub(super) fn php(request: &ReplayableRequest) -> String {
    let literal = |text: &str| php_literal(text.as_bytes());
    let mut options = vec![format!("CURLOPT_CUSTOMREQUEST => {}", literal(&request.method))];
    if request.method == "HEAD" {
        options.push("CURLOPT_NOBODY => true".to_owned());
    }
    let fields: Vec<_> =
        request.headers.iter().map(|(n, v)| format!("        {},\n", php_literal(&curl::header(n, v)))).collect();
    if !fields.is_empty() {
        options.push(format!("CURLOPT_HTTPHEADER => [\n{}    ]", fields.concat()));
    }
    if request.has_body() {
        options.push(format!("CURLOPT_POSTFIELDS => {}", php_literal(&request.body)));
    }
    options.push("CURLOPT_RETURNTRANSFER => true".to_owned());
    format!(
        "$curl = curl_init({});\ncurl_setopt_array($curl, [\n    {},\n]);\n$body = curl_exec($curl);\n\
         echo curl_getinfo($curl, CURLINFO_RESPONSE_CODE), \"\\n\", $body;\n",
        literal(&request.url),
        options.join(",\n    ")
    )
}
