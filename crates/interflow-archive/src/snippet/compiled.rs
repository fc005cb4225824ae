//! Go, Java, C# and Rust: whole programs, ready to be run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::literal::{hex_escaped, latin1, utf16};
use crate::request::ReplayableRequest;

pub(super) fn go(request: &ReplayableRequest) -> String {
    let text = |t: &str| hex_escaped(t.as_bytes());
    let (import, body) = match request.has_body() {
        true => ("\n\t\"strings\"", format!("strings.NewReader({})", hex_escaped(&request.body))),
        false => ("", "nil".to_owned()),
    };
    let mut fields = String::new();
    for (name, value) in &request.headers {
        if name.eq_ignore_ascii_case(b"host") {
            // Go takes the host from this member, and ignores the field.
            fields.push_str(&format!("\trequest.Host = {}\n", hex_escaped(value)));
        } else {
            fields.push_str(&format!("\trequest.Header.Add({}, {})\n", hex_escaped(name), hex_escaped(value)));
        }
    }
    format!(
        "package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"net/http\"{import}\n)\n\nfunc main() {{\n\
         \trequest, err := http.NewRequest({}, {}, {body})\n\tif err != nil {{\n\t\tpanic(err)\n\t}}\n{fields}\
         \tresponse, err := http.DefaultTransport.RoundTrip(request)\n\tif err != nil {{\n\t\tpanic(err)\n\t}}\n\
         \tdefer response.Body.Close()\n\tbody, err := io.ReadAll(response.Body)\n\tif err != nil {{\n\t\tpanic(err)\n\t}}\n\
         \tfmt.Println(response.Status)\n\tfmt.Println(string(body))\n}}\n",
        text(&request.method),
        text(&request.url)
    )
}

/// Maximum length of a Java string constant's text here; the limit of the class file is 65,535 bytes.
const JAVA_PART: usize = 10_000;

pub(super) fn java(request: &ReplayableRequest) -> String {
    let body = match std::str::from_utf8(&request.body) {
        _ if !request.has_body() => "BodyPublishers.noBody()".to_owned(),
        Ok(text) => format!("BodyPublishers.ofString({})", java_text(text)),
        Err(_) => {
            let packed = java_text(&STANDARD.encode(&request.body));
            format!("BodyPublishers.ofByteArray(java.util.Base64.getDecoder().decode({packed}))")
        }
    };
    // Java refuses a program that sets this field, unless this property allows it.
    let host = match request.header("host") {
        Some(_) => "        System.setProperty(\"jdk.httpclient.allowRestrictedHeaders\", \"host\");\n",
        None => "",
    };
    let fields: String = request
        .headers
        .iter()
        .map(|(n, v)| format!("            .header({}, {})\n", utf16(&latin1(n)), utf16(&latin1(v))))
        .collect();
    format!(
        "import java.net.URI;\nimport java.net.http.HttpClient;\nimport java.net.http.HttpRequest;\n\
         import java.net.http.HttpRequest.BodyPublishers;\nimport java.net.http.HttpResponse.BodyHandlers;\n\n\
         public class Main {{\n    public static void main(String[] args) throws Exception {{\n{host}\
         \x20       var request = HttpRequest.newBuilder(URI.create({}))\n            .method({}, {body})\n{fields}\
         \x20           .build();\n        var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());\n\
         \x20       System.out.println(response.statusCode());\n        System.out.println(response.body());\n    }}\n}}\n",
        utf16(&request.url),
        utf16(&request.method)
    )
}

fn java_text(text: &str) -> String {
    if text.len() <= JAVA_PART {
        return utf16(text);
    }
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(JAVA_PART));
        parts.push(utf16(part));
        rest = after;
    }
    // Not added together: a sum of constants is a constant.
    format!("String.join(\"\", {})", parts.join(", "))
}

pub(super) fn csharp(request: &ReplayableRequest) -> String {
    let mut fields = String::new();
    let mut content_fields = String::new();
    for (name, value) in request.joined_headers() {
        let call = format!("Headers.TryAddWithoutValidation({}, {});\n", utf16(&name), utf16(&latin1(&value)));
        // Fields of the content belong to the content; the request would drop them.
        let is_content = name.to_ascii_lowercase().starts_with("content-") || name.eq_ignore_ascii_case("expires");
        match is_content {
            true if request.has_body() => content_fields.push_str(&format!("request.Content.{call}")),
            true => {}
            false => fields.push_str(&format!("request.{call}")),
        }
    }
    let content = match request.has_body() {
        true => {
            let bytes = match std::str::from_utf8(&request.body) {
                Ok(text) => format!("System.Text.Encoding.UTF8.GetBytes({})", utf16(text)),
                Err(_) => format!("System.Convert.FromBase64String({})", utf16(&STANDARD.encode(&request.body))),
            };
            format!("request.Content = new ByteArrayContent({bytes});\n{content_fields}")
        }
        false => String::new(),
    };
    format!(
        "using System.Net.Http;\n\nusing var client = new HttpClient(new HttpClientHandler {{ AllowAutoRedirect = false, UseCookies = false }});\n\
         using var request = new HttpRequestMessage(new HttpMethod({}), {});\n{fields}{content}\
         using var response = await client.SendAsync(request);\nSystem.Console.WriteLine((int)response.StatusCode);\n\
         System.Console.WriteLine(await response.Content.ReadAsStringAsync());\n",
        utf16(&request.method),
        utf16(&request.url)
    )
}

/// Rust with `reqwest`, feature `blocking`.
pub(super) fn rust(request: &ReplayableRequest) -> String {
    let bytes = |value: &[u8]| format!("b{}", hex_escaped(value));
    let mut lines = vec![format!(
        "client.request(reqwest::Method::from_bytes({})?, {})",
        bytes(request.method.as_bytes()),
        rust_text(&request.url)
    )];
    for (name, value) in &request.headers {
        lines.push(format!(".header({}, &{}[..])", rust_text(&String::from_utf8_lossy(name)), bytes(value)));
    }
    if request.has_body() {
        lines.push(format!(".body(&{}[..])", bytes(&request.body)));
    }
    lines.push(".send()?;".to_owned());
    format!(
        "// [dependencies] reqwest = {{ version = \"0.12\", features = [\"blocking\"] }}\n\
         fn main() -> Result<(), Box<dyn std::error::Error>> {{\n\
         \x20   let client = reqwest::blocking::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;\n\
         \x20   let response = {}\n    println!(\"{{}}\", response.status());\n    println!(\"{{}}\", response.text()?);\n    Ok(())\n}}\n",
        lines.join("\n        ")
    )
}

/// A Rust string: `\x` goes to 7f only.
fn rust_text(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}
