//! If an origin echoes a secret in any encoding, neither the client nor the recording receives it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_testkit::{Origin, Reply, Request};

use super::{Running, drop_and_search, said, spoken, until};

/// A secret that contains every character that some encoding escapes.
const SECRET: &str = "planted /+=&\"<%' marker";

/// Echoes the request in many encodings.
fn repeat(request: &Request) -> Reply {
    let word = request.header("x-key").unwrap_or_default();
    let coded = |kept: &[u8], lower: bool| -> String {
        let one = |b: u8| match b {
            b if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) || kept.contains(&b) => char::from(b).to_string(),
            b if lower => format!("%{b:02x}"),
            b => format!("%{b:02X}"),
        };
        word.bytes().map(one).collect()
    };
    let html = word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let all = [
        word.to_owned(),
        serde_json::json!({ "key": word }).to_string(),
        coded(b"", false),
        coded(b"", true),
        coded(b"/", false),
        coded(b"!*'()", false),
        coded(b"", false).replace("%20", "+"),
        html,
        STANDARD.encode(word),
        request.header("authorization").unwrap_or_default().to_owned(),
    ];
    Reply::ok(all.join("\n")).header("Content-Type", "text/plain").header("X-Again", coded(b"", false))
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_secret_in_a_response_is_masked_with_its_placeholder() {
    let origin = Origin::http().answering(repeat).start().await;
    let it = Running::start("", &[]);
    let placeholder = it.add_secret(SECRET, origin.port());
    let at = format!("127.0.0.1:{}", origin.port());
    let basic = |word: &str| STANDARD.encode(format!("user:{word}"));
    let head = format!(
        "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX-Key: {placeholder}\r\nAuthorization: Basic {}\r\nConnection: close\r\n\r\n",
        basic(&placeholder)
    );
    let answer = spoken(it.proxy(), head.as_bytes());
    let came = origin.only_request();
    assert_eq!(
        (came.header("x-key"), came.header("authorization")),
        (Some(SECRET), Some(&*format!("Basic {}", basic(SECRET))))
    );
    assert_eq!(answer.matches(&placeholder).count(), 10, "each form of it, and the field: {answer}");
    assert!(answer.contains(&basic(&placeholder)), "{answer}");
    for form in ["planted", &STANDARD.encode("planted"), &basic(SECRET)] {
        assert!(!answer.contains(form), "{form}: {answer}");
    }
    until("the recording", || {
        said(it.command(&["flows", "list", "--format", "jsonl"])).contains("\"complete\"").then_some(())
    });
    drop_and_search(it, "planted");
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_body_gets_its_secret_injected_uncompressed() {
    let origin = Origin::http().answering(|_| Reply::ok("fine")).start().await;
    let it = Running::start("", &[]);
    let placeholder = it.add_secret(SECRET, origin.port());
    let send = |body: &[u8], coding: &str| {
        let at = format!("127.0.0.1:{}", origin.port());
        let head = format!(
            "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        assert!(spoken(it.proxy(), &[head.as_bytes(), body].concat()).starts_with("HTTP/1.1 200"));
        origin.requests().pop().unwrap()
    };
    let body = serde_json::json!({"key": placeholder, "more": "x".repeat(3000)}).to_string();
    let came = send(&stored(body.as_bytes()), "deflate");
    assert_eq!((came.header("content-encoding"), came.header("content-length").is_some()), (None, true));
    let said: serde_json::Value = serde_json::from_slice(&came.body).unwrap();
    assert_eq!(said["key"], SECRET);
    let without = stored(b"{\"key\": \"none\"}");
    let came = send(&without, "deflate");
    assert_eq!((came.header("content-encoding"), &came.body[..]), (Some("deflate"), &without[..]), "as it came");
    let came = send(b"no deflate at all", "deflate");
    assert_eq!(&came.body[..], b"no deflate at all");
    drop_and_search(it, "planted");
}

/// Raw deflate (RFC 1951 3.2.4) of one block that is not compressed.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), bytes].concat()
}
