//! Invalid input from clients and providers: a clear error to the right side, nothing forwarded unredacted, and
//! service continues.

use std::io::Write;
use std::time::Duration;

use interflow_redact::{AddressRule, MediaRule, OutboundMode, RedactMode, UnknownRule};
use interflow_testkit::{Ending, Origin, Reply, Script, Wire};
use interflow_types::units::ByteSize;
use serde_json::{Value, json};

use super::{Gate, MAIL, SSN, arrived, parrot, provider};

#[tokio::test]
async fn unredactable_requests_are_refused_and_not_sent() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        r.redact.max_body = ByteSize(100 << 10);
        r.llm.max_body = ByteSize(100 << 10);
        r.redact.images = MediaRule::Refuse;
    })
    .await;
    let deep = format!("{{\"messages\":{}", "[".repeat(10_000));
    let large = format!("{{\"messages\":[{{\"content\":\"{SSN} {}\"}}]}}", "x".repeat(200 << 10));
    let image = json!({"messages": [{"content": [{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "QUJD".repeat(20))}}]}]}).to_string();
    let invalid = [b"{\"messages\":[{\"content\":\"".as_slice(), b"\xff\xfe 123-45-6789\"}]}"].concat();
    for (path, body, status, code) in [
        ("/v1/chat/completions", b"{\"model\":".to_vec(), 400, "bad_json"),
        ("/v1/chat/completions", b"<html>".to_vec(), 400, "bad_json"),
        ("/v1/chat/completions", deep.into_bytes(), 400, "bad_json"),
        ("/v1/chat/completions", invalid, 400, "bad_json"),
        ("/v1/chat/completions", large.into_bytes(), 413, "request_body_too_large"),
        ("/v1/chat/completions", image.into_bytes(), 403, "media_refused"),
        ("/v1/threads", format!("{{\"x\":\"{SSN}\"}}").into_bytes(), 400, "unknown_operation"),
        ("/openai/x/../v1/chat/completions", b"{}".to_vec(), 400, "path_not_canonical"),
        ("/openai/x/..;a/v1/chat/completions", b"{}".to_vec(), 400, "path_not_canonical"),
        ("/openai/x/%252e%252e/v1/chat/completions", b"{}".to_vec(), 400, "path_not_canonical"),
        ("/openai/v1//chat/completions", b"{}".to_vec(), 400, "path_not_canonical"),
        ("/openai/v1\\chat/completions", b"{}".to_vec(), 400, "path_not_canonical"),
    ] {
        let answer = gate.post(path, &body).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{path}: {}",
            answer.text()
        );
        assert!(answer.json()["error"]["request_id"].is_string());
        assert!(!answer.text().contains(SSN));
    }
    assert_eq!(origin.served(), 0);
    assert_eq!(gate.post("/v1/chat/completions", r#"{"messages":[]}"#).await.status, 200, "and on it goes");
}

#[tokio::test]
async fn lone_surrogates_do_not_hide_values_or_corrupt_the_body() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let body = r#"{"messages":[{"content":"\ud800 mail anna.berg@firm.com \udc00"}]}"#;
    assert_eq!(gate.post("/v1/chat/completions", body).await.status, 200);
    let got = arrived(&origin);
    assert!(
        got.starts_with(r#"{"messages":[{"content":"\ud800 mail EMAIL_"#) && got.ends_with(r#" \udc00"}]}"#),
        "{got}"
    );
}

#[tokio::test]
async fn bodies_that_the_client_compressed_are_redacted() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("mail {MAIL}")}]}).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let answer =
        gate.send("POST", "/v1/chat/completions", "Content-Encoding: gzip\r\n", &gzip.finish().unwrap()).await.unwrap();
    assert_eq!(answer.json()["choices"][0]["message"]["content"], format!("mail {MAIL}"));
    let got = origin.only_request();
    assert_eq!(got.header("content-encoding"), None);
    assert!(arrived(&origin).contains("EMAIL_"));
    for (coding, code) in [("gzip", "unsupported_content_encoding"), ("secret", "unsupported_content_encoding")] {
        let answer = gate
            .send("POST", "/v1/chat/completions", &format!("Content-Encoding: {coding}\r\n"), body.as_bytes())
            .await
            .unwrap();
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (400, Some(code)));
    }
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    bomb.write_all(json!({"model": "m", "prompt": "a".repeat(16 << 20)}).to_string().as_bytes()).unwrap();
    let bomb = bomb.finish().unwrap();
    let answer = gate.send("POST", "/v1/chat/completions", "Content-Encoding: gzip\r\n", &bomb).await.unwrap();
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (413, &json!("request_body_too_large")));
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn body_without_findings_is_forwarded_unchanged() {
    let origin = provider("application/json", "{ \"a\" : 1.0 }").await;
    let gate = Gate::start(&origin).await;
    let body = "{ \"model\" : \"m\",\n\t\"messages\": [ {\"content\":\"\\u0048ello \\/ there\"} ], \"x\": 1.0e+5, \"model\": \"twice\" }\n";
    let answer = gate.post("/v1/chat/completions", body).await;
    assert_eq!(arrived(&origin), body);
    assert_eq!(answer.text(), "{ \"a\" : 1.0 }");
}

#[tokio::test]
async fn html_error_of_a_provider_is_relayed_with_its_status() {
    let page = "<html><body>502 Bad Gateway</body></html>";
    let origin = Origin::http()
        .answering(move |_| Reply::status(502).header("Content-Type", "text/html").body(page))
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": MAIL}]}).to_string();
    let answer = gate.post("/v1/chat/completions", body).await;
    assert_eq!((answer.status, answer.text()), (502, page.to_owned()));
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_of_an_event_is_an_error_for_the_client() {
    let origin = Origin::http()
        .answering(|_| {
            let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"EMAIL";
            let cut = Reply::status(200).pieces(vec![piece.into()], Duration::ZERO).ending(Ending::Cut);
            cut.header("Content-Type", "text/event-stream")
        })
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": MAIL}]}).to_string();
    assert!(gate.send("POST", "/v1/chat/completions", "", body.as_bytes()).await.is_err());
    assert!(gate.proxy.flow().await.error().is_some());
}

#[tokio::test]
async fn multipart_forms_and_files_are_redacted() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let line = json!({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"content": format!("SSN {SSN}")}]}});
    let body = format!(
        "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.jsonl\"\r\n\r\n{line}\n{line}\n\r\n--B\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nmail {MAIL}\r\n--B--\r\n"
    );
    let answer = gate
        .send("POST", "/v1/files", "Content-Type: multipart/form-data; boundary=B\r\n", body.as_bytes())
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let got = arrived(&origin);
    assert!(!got.contains(SSN) && !got.contains(MAIL), "{got}");
    assert_eq!(got.matches("SSN_").count(), 2);
    assert!(
        got.starts_with("--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\n")
            && got.ends_with("\r\n--B--\r\n")
    );
}

#[tokio::test]
async fn images_are_dropped_by_rule_and_text_files_are_read() {
    use base64::Engine as _;
    let base64 = |t: &str| base64::engine::general_purpose::STANDARD.encode(t);
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.images = MediaRule::Drop).await;
    let text = base64(&format!("My mail is {MAIL}, and that is all there is to say."));
    let body = json!({"contents": [{"parts": [
        {"inlineData": {"mimeType": "image/png", "data": base64(&"x".repeat(60))}}, {"inlineData": {"mimeType": "text/plain", "data": text}}]}]});
    // Some encoders write `/` as `\/`.
    for body in [body.to_string(), body.to_string().replace('/', r"\/")] {
        assert_eq!(gate.post("/v1beta/models/m:generateContent", body).await.status, 200);
        let got: serde_json::Value = serde_json::from_str(&arrived(&origin)).unwrap();
        let parts = &got["contents"][0]["parts"];
        assert_eq!(parts[0], json!({"text": "[image removed]"}));
        let file =
            base64::engine::general_purpose::STANDARD.decode(parts[1]["inlineData"]["data"].as_str().unwrap()).unwrap();
        assert!(String::from_utf8(file).unwrap().starts_with("My mail is EMAIL_"));
    }
}

#[tokio::test]
async fn unknown_requests_pass_if_configured() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Pass).await;
    assert_eq!(gate.post("/v1/threads", "no JSON").await.status, 200);
    assert_eq!(arrived(&origin), "no JSON");
}

#[tokio::test]
async fn unknown_requests_are_scanned_as_text_if_configured() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Scan).await;
    for body in [
        json!({"model": MAIL, "type": SSN, "deep": [{"id": MAIL}]}).to_string(),
        json!({ MAIL: 1 }).to_string(),
        format!("no JSON, but {MAIL}"),
    ] {
        let answer = gate.post("/v1/threads", body.clone()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let got = arrived(&origin);
        assert!(!got.contains(MAIL) && !got.contains(SSN) && got.contains("EMAIL_"), "{body}: {got}");
    }
    let binary = gate.post("/v1/threads", [&[0xff, 0xfe][..], MAIL.as_bytes()].concat()).await;
    assert_eq!(binary.status, 400, "{}", binary.text());
}

/// The bytes of a text in UTF-16, little endian, without a byte order mark.
fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[tokio::test]
async fn form_files_of_text_that_is_not_utf8_are_refused() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let post = async |path, head: &str, content: &[u8]| {
        let head = format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n");
        let body = [head.as_bytes(), content, b"\r\n--B--\r\n"].concat();
        let answer = gate.send("POST", path, "Content-Type: multipart/form-data; boundary=B\r\n", &body).await.unwrap();
        (answer.status, answer.json()["error"]["code"].as_str().map(str::to_owned))
    };
    let refused = |code: &str| (400, Some(code.to_owned()));
    let latin = b"M\xfcller,anna@firm.com,4111111111111111\n";
    let batch = b"{\"body\":{\"messages\":[{\"content\":\"\xff anna@firm.com\"}]}}\n";
    let marked = [b"\xff\xfe".to_vec(), utf16("M\u{fc}ller,\u{142},anna@firm.com")].concat();
    for path in ["/v1/files", "/anthropic/v1/files"] {
        for (head, content) in [
            ("name=\"file\"; filename=\"a.csv\"\r\nContent-Type: text/csv", &latin[..]),
            ("name=\"file\"; filename=\"a\"\r\nContent-Type: text/csv", b"\x01\xfc anna@firm.com"),
            ("name=\"file\"; filename=\"a.csv\"\r\nContent-Type: application/vnd.ms-excel", b"\x01\xfc anna@firm.com"),
            ("name=\"file\"; filename=\"a\"\r\nContent-Type: application/octet-stream", &latin[..]),
            ("name=\"file\"; filename=\"b.jsonl\"", &batch[..]),
            ("name=\"file\"; filename=\"a\"", &marked),
            ("name=\"file\"; filename=\"a\"", &utf16("M\u{fc}ller,anna@firm.com")),
            ("name=\"file\"; filename=\"a\"", &utf16("anna@firm.com")),
        ] {
            assert_eq!(post(path, head, content).await, refused("bad_file"), "{path} {head}");
        }
    }
    let bytes = |words: &str, order: fn(u16) -> [u8; 2]| words.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    for words in [
        "\u{418}\u{432}\u{430}\u{43d}\u{43e}\u{432}",
        "\u{674e}\u{660e}",
        "\u{391}\u{3bd}\u{3bd}\u{3b1}\u{2014}\u{391}",
    ] {
        for content in [bytes(words, u16::to_le_bytes), bytes(words, u16::to_be_bytes)] {
            assert_eq!(
                post("/v1/files", "name=\"file\"; filename=\"a.txt\"", &content).await,
                refused("bad_file"),
                "{words}"
            );
        }
    }
    let encoded = "name=\"file\"; filename=\"a.txt\"\r\nContent-Transfer-Encoding: ";
    for (encoding, content) in [("quoted-printable", &b"SSN 123=2D45=2D6789"[..]), ("base64", b"U1NOIDEyMy00NS02Nzg5")]
    {
        assert_eq!(
            post("/v1/files", &format!("{encoded}{encoding}"), content).await,
            refused("bad_form"),
            "{encoding}"
        );
    }
    for folded in
        ["\r\n quoted-printable", "\n\tquoted-printable", " 8bit\rContent-Transfer-Encoding: quoted-printable"]
    {
        let head = format!("{}{folded}", encoded.trim_end());
        assert_eq!(post("/v1/files", &head, b"SSN 123=2D45=2D6789").await, refused("bad_form"), "{head:?}");
    }
    let charset = "name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain; charset=utf-7";
    assert_eq!(post("/v1/files", charset, b"+AGEAbgBuAGE-").await, refused("bad_form"));
    let field = "name=\"prompt\"\r\nContent-Type: text/plain; charset=utf-16le";
    assert_eq!(post("/v1/images/edits", field, &utf16(MAIL)).await, refused("bad_form"));
    let name = "name=\"file\"; filename*=UTF-16LE''a%00n%00n%00a%00";
    assert_eq!(post("/v1/files", name, b"text").await, refused("bad_form"));
    assert_eq!(origin.served(), 0);
    let pdf = "name=\"file\"; filename=\"a.pdf\"\r\nContent-Type: application/pdf";
    assert_eq!(post("/v1/files", pdf, b"%PDF-1.7\n\xe2\xe3\x01\0").await.0, 200, "a document is none of a text");
    for text in [&b"\x1b[1mbold\x1b[0m and 8=FIX.4.4\x0135=D\x01"[..], b"a\nb\nc\n"] {
        assert_eq!(post("/v1/files", &format!("{encoded}8bit"), text).await.0, 200, "controls in a text of ASCII");
    }
}

#[tokio::test]
async fn base64_of_text_in_utf16_is_refused() {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(utf16(&format!("name,mail\nAnna,{MAIL}\n")));
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let user = |part| json!([{"role": "user", "content": [part]}]);
    let source = json!({"type": "base64", "media_type": "text/csv", "data": data});
    let file = json!({"type": "input_file", "file_data": format!("data:text/csv;base64,{data}")});
    for (path, body) in [
        ("/v1/messages", json!({"model": "m", "messages": user(json!({"type": "document", "source": source}))})),
        ("/v1/responses", json!({"model": "m", "input": user(file)})),
        (
            "/v1beta/models/m:generateContent",
            json!({"contents": [{"parts": [{"inlineData": {"mimeType": "text/csv", "data": data}}]}]}),
        ),
    ] {
        let answer = gate.post(path, body.to_string()).await;
        assert!(
            answer.status == 400 && answer.text().contains("a text file in the request is not base64 of UTF-8"),
            "{path}"
        );
    }
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn unknown_bodies_in_utf16_are_refused_and_url_encoded_ones_are_read() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Scan).await;
    for text in [format!("mail {MAIL}"), json!({"mail": MAIL}).to_string()] {
        let answer = gate.post("/v1/threads", utf16(&text)).await;
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (400, Some("bad_form")), "{text}");
    }
    assert_eq!(origin.served(), 0);
    let fields = "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n";
    let wide = gate.send("POST", "/v1/threads", fields, b"mail=a%00n%00n%00a%00").await.unwrap();
    assert_eq!((wide.status, origin.served()), (400, 0), "{}", wide.text());
    let body = "a=b+c&card=4111+1111+1111+1111&mail=anna%40firm.com&phone=+493012345678&d=%C3%BC+e";
    let answer = gate.send("POST", "/v1/threads", fields, body.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let got = arrived(&origin);
    let values: Vec<_> = got.split('&').collect();
    assert!(values.len() == 5 && values[0] == "a=b+c" && values[4] == "d=%C3%BC+e", "{got}");
    assert!(!got.contains("1111") && !got.contains("anna") && !got.contains("3012"), "{got}");
    assert!(values[1].starts_with("card=CARD_") && values[2].starts_with("mail=EMAIL_"), "{got}");
}

#[tokio::test]
async fn a_key_in_the_query_injects_no_line_into_a_translated_request() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}).to_string();
    let fields = "Content-Type: application/json\r\n";
    for name in ["openai", "anthropic", "azure", "cohere", "ollama"] {
        for key in ["sk-a%0d%0aX-Evil:%201", "sk-a%0AX-Evil:%201", "sk-a%00", "%0dsk-a", "sk%01a"] {
            let mut wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
            let path = format!("/{name}/v1beta/models/m:generateContent?key={key}");
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: gate\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len());
            wire.send(head).await.unwrap();
            let answer = wire.answer_to("POST").await.unwrap();
            assert_eq!((answer.status, origin.served()), (400, 0), "{path}: {}", answer.text());
            assert!(answer.text().contains("control character"), "{path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn personal_data_as_the_name_of_a_model_in_the_path_is_refused() {
    let origin = provider("application/json", "{}").await;
    for rule in [AddressRule::Redact, AddressRule::Refuse] {
        let gate = Gate::with(&origin, |r| r.redact.url = rule).await;
        let body = json!({"contents": [{"parts": [{"text": "hi"}]}], "messages": []}).to_string();
        for path in [
            "/gemini/v1beta/models/anna.berg%40firm.com:generateContent",
            "/anthropic/v1beta/models/anna.berg%40firm.com:generateContent",
            "/gemini/v1beta/models/4111111111111111:generateContent",
            "/bedrock/model/anna.berg%40firm.com/converse",
        ] {
            let answer = gate.post(path, &body).await;
            assert!(answer.status == 403 && answer.text().contains("address_refused"), "{path}: {}", answer.text());
        }
        assert_eq!(origin.served(), 0);
    }
    let gate = Gate::start(&origin).await;
    for path in [
        "/gemini/v1beta/models/gemini-2.5-flash:generateContent",
        "/vertex/v1/projects/p/locations/us-central1/publishers/google/models/gemini-2.5-pro@20250514:generateContent",
        "/bedrock/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.a.b-v1%3A0/converse",
    ] {
        let answer = gate.post(path, json!({"contents": [], "messages": []}).to_string()).await;
        assert!(!answer.text().contains("address_refused"), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn text_is_read_whatever_its_media_type_says() {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let text = format!("Dear colleague >>>???~~~, mail {MAIL} or {SSN} today.");
    let user = |part| json!([{"role": "user", "content": [part]}]);
    let wrapped = STANDARD.encode(&text).as_bytes().chunks(20).collect::<Vec<_>>().join(&b'\n');
    let wrapped = String::from_utf8(wrapped).unwrap();
    for data in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text), wrapped] {
        for media_type in ["text/plain", "application/yaml", "application/x-python", "image/svg+xml", "audio/wav"] {
            let source = json!({"type": "base64", "media_type": media_type, "data": data});
            let file = json!({"type": "input_file", "file_data": format!("data:{media_type};base64,{data}")});
            let blob = json!({"mimeType": media_type, "data": data});
            let document = json!({"type": "document", "mime_type": media_type, "data": data});
            for (path, body) in [
                (
                    "/v1/messages",
                    json!({"model": "m", "messages": user(json!({"type": "document", "source": source}))}),
                ),
                ("/v1/responses", json!({"model": "m", "input": user(file)})),
                ("/v1beta/models/m:generateContent", json!({"contents": [{"parts": [{"inlineData": blob}]}]})),
                ("/v1beta/interactions", json!({"model": "m", "input": [document]})),
            ] {
                let answer = gate.post(path, body.to_string()).await;
                assert_eq!(answer.status, 200, "{path} {media_type}: {}", answer.text());
                let got = arrived(&origin);
                let at = got.find(&STANDARD.encode("Dear colleague >>>")).unwrap_or_else(|| panic!("{got}"));
                let end = got[at..].find('"').unwrap() + at;
                let read = String::from_utf8(STANDARD.decode(&got[at..end]).unwrap()).unwrap();
                assert!(read.contains("mail EMAIL_") && !read.contains(MAIL) && !read.contains(SSN), "{path}: {read}");
            }
        }
    }
    let fields = "Content-Type: multipart/form-data; boundary=XX\r\n";
    let part = |media_type: &str, content: &[u8]| {
        let head = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: {media_type}\r\n\r\n"
        );
        [head.as_bytes(), content, b"\r\n--XX--\r\n"].concat()
    };
    for media_type in ["image/svg+xml", "image/png", "audio/wav", "video/mp4", "application/pdf"] {
        let answer = gate.send("POST", "/v1/files", fields, &part(media_type, text.as_bytes())).await.unwrap();
        let got = arrived(&origin);
        assert!(answer.status == 200 && got.contains("mail EMAIL_") && !got.contains(MAIL), "{media_type}: {got}");
    }
    let png = b"\x89PNG\r\n\x1a\n\0\0anna.berg@firm.com";
    gate.send("POST", "/v1/files", fields, &part("image/png", png)).await.unwrap();
    assert!(origin.requests().last().unwrap().body.windows(png.len()).any(|bytes| bytes == png), "a medium stays");
}

#[tokio::test]
async fn text_in_another_encoding_is_read_under_the_type_of_a_medium() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let text = format!("Dear J\u{fc}rgen, mail {MAIL} or {SSN} today.");
    let big = |mark: &str| format!("{mark}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let wide = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect::<Vec<u8>>();
    let latin = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
    let gzip = |text: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    };
    let ask = |media_type: &str, bytes: &[u8]| {
        let blob = json!({"mimeType": media_type, "data": STANDARD.encode(bytes)});
        json!({"contents": [{"parts": [{"inlineData": blob}]}]}).to_string()
    };
    let path = "/v1beta/models/m:generateContent";
    let fields = "Content-Type: multipart/form-data; boundary=XX\r\n";
    let form = |media_type: &str, content: &[u8]| {
        let head = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: {media_type}\r\n\r\n"
        );
        [head.as_bytes(), content, b"\r\n--XX--\r\n"].concat()
    };
    for media_type in ["image/png", "audio/wav", "application/pdf", "application/octet-stream"] {
        for bytes in [utf16(&text), big(""), big("\u{feff}"), wide.clone(), latin.clone()] {
            let answer = gate.post(path, ask(media_type, &bytes)).await;
            assert_eq!(answer.status, 200, "{media_type}: {}", answer.text());
            let got: Value = serde_json::from_str(&arrived(&origin)).unwrap();
            let data = got["contents"][0]["parts"][0]["inlineData"]["data"].as_str().unwrap();
            let read = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
            assert!(
                read.contains("mail EMAIL_") && !read.contains(MAIL) && !read.contains(SSN),
                "{media_type}: {read}"
            );
        }
        // It cannot be replaced where it is compressed.
        let answer = gate.post(path, ask(media_type, &gzip(text.as_bytes()))).await;
        assert!(answer.status == 400 && answer.text().contains("bad_file"), "{media_type}: {}", answer.text());
        let harmless = ask(media_type, &gzip(b"nothing in here"));
        assert_eq!(gate.post(path, harmless.clone()).await.status, 200);
        assert_eq!(arrived(&origin), harmless);
    }
    let before = origin.served();
    for media_type in ["image/png", "audio/wav"] {
        let answer = gate.send("POST", "/v1/files", fields, &form(media_type, &utf16(&text))).await.unwrap();
        let got = arrived(&origin);
        assert!(answer.status == 200 && got.contains("mail EMAIL_"), "{media_type}: {got}");
        let answer = gate.send("POST", "/v1/files", fields, &form(media_type, &gzip(&latin))).await.unwrap();
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (400, Some("bad_file")), "{media_type}");
    }
    assert_eq!(origin.served(), before + 2);
}

#[tokio::test]
async fn a_charset_in_which_a_body_is_not_read_is_refused_or_marked() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |parts| parts.redact.unknown = UnknownRule::Scan).await;
    let url_encoded = "application/x-www-form-urlencoded";
    let form = |charset: &str| {
        let field = |name: &str, value: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        format!("{}{}--B--\r\n", field("_Charset_", charset), field("prompt", "+AGEAbgBuAGE-"))
    };
    let chat = r#"{"model": "m", "messages": [{"role": "user", "content": "+AGEAbgBuAGE-"}]}"#;
    let multipart = "multipart/form-data; boundary=B";
    let cases = [
        (multipart, "/v1/images/edits", form("utf-7"), 400),
        (multipart, "/v1/images/edits", form("windows-1252"), 200),
        (url_encoded, "/v1/threads", "a=%2BAGEAbgBuAGE-&%5fcharset_=UTF-7".to_owned(), 400),
        (url_encoded, "/v1/threads", "a=b&_charset_=UTF-8".to_owned(), 200),
        ("application/json; Charset = \"UTF-7\"", "/v1/chat/completions", chat.to_owned(), 400),
        ("application/json; charset=utf-8", "/v1/chat/completions", chat.to_owned(), 200),
    ];
    for (media_type, path, body, status) in &cases {
        let fields = format!("Content-Type: {media_type}\r\n");
        let answer = gate.send("POST", path, &fields, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, *status, "{media_type} {body}: {}", answer.text());
        let code = answer.json()["error"]["code"].as_str().map(str::to_owned);
        assert_eq!(code, (*status == 400).then(|| "bad_form".to_owned()), "{media_type} {body}");
    }
    for (media_type, path, body, status) in &cases[4..] {
        let gate = Gate::with(&origin, |parts| parts.redact.gateway = RedactMode::Flag).await;
        let fields = format!("Content-Type: {media_type}\r\n");
        assert_eq!(gate.send("POST", path, &fields, body.as_bytes()).await.unwrap().status, 200);
        let tags = gate.proxy.flow().await.tags;
        assert_eq!(tags.iter().any(|tag| *tag == "redact:unread"), *status == 400, "{media_type}: {tags:?}");
    }
    // Nor do guardrails read it.
    let gate = Gate::with(&origin, |parts| {
        parts.redact.gateway = RedactMode::Off;
        let guard = json!({"kind": "words", "action": "block", "words": ["anna"]});
        parts.llm.guardrail.insert("g".into(), serde_json::from_value(guard).unwrap());
    });
    let gate = gate.await;
    for (media_type, path, body, status) in &cases {
        let fields = format!("Content-Type: {media_type}\r\n");
        let answer = gate.send("POST", path, &fields, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, *status, "{media_type} {body}: {}", answer.text());
    }
}

#[tokio::test]
async fn guardrails_read_what_redaction_reads_of_forms() {
    let origin = provider("application/json", "{}").await;
    let with = |action: &'static str| {
        Gate::with(&origin, move |parts| {
            parts.redact.gateway = RedactMode::Off;
            let guard = json!({"kind": "words", "action": action, "words": ["anna"], "mask": "&m"});
            parts.llm.guardrail.insert("g".into(), serde_json::from_value(guard).unwrap());
        })
    };
    let gzip = |text: &str| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let multipart = "Content-Type: multipart/form-data; boundary=B\r\n";
    let form = |media_type: &str, content: &[u8]| {
        let head =
            format!("--B\r\nContent-Disposition: form-data; name=f; filename=a\r\nContent-Type: {media_type}\r\n\r\n");
        [head.as_bytes(), content, b"\r\n--B--\r\n"].concat()
    };
    let (blocking, masking) = (with("block").await, with("mask").await);
    for media_type in ["text/plain", "application/octet-stream", "image/png"] {
        for (content, is_found) in [
            (gzip("say anna"), true),
            (utf16("\u{416} say anna"), true),
            (b"say anna \xff\xfc".to_vec(), true),
            (gzip("say nothing"), false),
            (b"\x89PNG\r\n\x1a\n\x00\x01\x02anna".to_vec(), media_type == "text/plain"),
        ] {
            // What is masked could not be written back, so that it is blocked, too.
            for gate in [&blocking, &masking] {
                let answer = gate.send("POST", "/v1/files", multipart, &form(media_type, &content)).await.unwrap();
                let code = answer.json()["error"]["code"].as_str().map(str::to_owned);
                assert_eq!(code.as_deref(), is_found.then_some("guardrail_blocked"), "{media_type} {content:?}");
            }
        }
    }
    let url_encoded = "Content-Type: application/x-www-form-urlencoded\r\n";
    let body = b"prompt=say+an%6Ea+twice&x=1+2";
    let answer = blocking.send("POST", "/v1/threads", url_encoded, body).await.unwrap();
    assert_eq!(answer.json()["error"]["code"], "guardrail_blocked");
    let answer = masking.send("POST", "/v1/threads", url_encoded, body).await.unwrap();
    assert_eq!((answer.status, &*arrived(&origin)), (200, "prompt=say%20%26m%20twice&x=1+2"));
}

#[tokio::test]
async fn what_is_to_be_forwarded_as_it_comes_is_refused_where_it_must_be_read_as_a_whole() {
    let origin = provider("application/json", "{}").await;
    let send = async |gate: &Gate, value: &str, body: &str| {
        let mut wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json";
        let head = format!("{head}\r\nTransfer-Encoding: chunked\r\nIncremental: {value}\r\n\r\n");
        wire.send(head + body).await.unwrap();
        wire.answer().await.unwrap()
    };
    let refused = |answer: interflow_testkit::Answer| {
        let status = answer.header("proxy-status").unwrap_or_default().to_owned();
        assert_eq!((answer.status, &*status), (501, "interflow; error=incremental_refused"), "{}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "incremental_refused");
    };
    // The body does not end: nothing but a refusal answers it.
    let (begun, whole) = ("2\r\n{\"\r\n", "2\r\n{}\r\n0\r\n\r\n");
    let redacting = Gate::start(&origin).await;
    refused(send(&redacting, "?1", begun).await);
    refused(send(&redacting, "?1;a", begun).await);
    let guarded = Gate::with(&origin, |parts| {
        parts.redact.gateway = RedactMode::Off;
        let guard = json!({"kind": "words", "action": "block", "words": ["anna"]});
        parts.llm.guardrail.insert("g".into(), serde_json::from_value(guard).unwrap());
    });
    refused(send(&guarded.await, "?1", begun).await);
    let routed = Gate::with(&origin, |parts| {
        parts.redact.gateway = RedactMode::Off;
        parts.llm.provider.get_mut("openai").unwrap().attempts = 2;
    });
    refused(send(&routed.await, "?1", begun).await);
    assert_eq!(origin.served(), 0);
    for value in ["?0", "1", "?1, ?1"] {
        assert_eq!(send(&redacting, value, whole).await.status, 200, "{value}");
    }
    // Where nothing need be read, it is not.
    let open = Gate::with(&origin, |parts| parts.redact.gateway = RedactMode::Off).await;
    assert_eq!(send(&open, "?1", whole).await.status, 200);
    let arrived = origin.requests();
    assert_eq!(arrived.last().unwrap().header("incremental"), Some("?1"));
    // A response is refused likewise.
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nIncremental: ?1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let script = Script::new().request().send(format!("{head}{begun}")).stall();
    let origin = Origin::script(script).await;
    let scanning = Gate::with(&origin, |parts| parts.redact.responses = OutboundMode::Redact).await;
    refused(scanning.post("/v1/chat/completions", "{}").await);
    // One that is only flagged passes unread. It is still to come: it is too large to arrive with its head.
    let large = json!({ "a": "x".repeat(4 << 20) }).to_string();
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let flagging: [fn(&mut super::Components<'_>); 2] = [
        |parts| parts.redact.responses = OutboundMode::Flag,
        |parts| {
            let guard = json!({"kind": "words", "action": "flag", "words": ["anna"], "apply_to": "output"});
            parts.llm.guardrail.insert("g".into(), serde_json::from_value(guard).unwrap());
        },
    ];
    for (change, tag) in flagging.into_iter().zip(["redact:unread", "guardrail:unread"]) {
        let origin = Origin::script(Script::new().request().send(format!("{head}{chunked}"))).await;
        let gate = Gate::with(&origin, change).await;
        let answer = gate.post("/v1/chat/completions", "{}").await;
        assert!(answer.status == 200 && answer.text() == large, "{} {}", answer.status, answer.text().len());
        let tags = gate.proxy.flow().await.tags;
        assert!(tags.iter().any(|own| *own == tag), "{tags:?}");
    }
}
