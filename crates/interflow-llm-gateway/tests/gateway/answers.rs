//! Streaming responses: buffered no more than necessary, ended properly, cut off when required.

use std::time::Duration;

use bytes::Bytes;
use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_redact::OutboundMode;
use interflow_testkit::{Origin, Reply, Wire};
use interflow_types::ErrorKind;
use serde_json::{Value, json};

use super::{Gate, MAIL, chat_text, sse};

/// A provider that streams what `pieces` makes of the address's placeholder.
async fn streaming(media_type: &'static str, pieces: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    let answer = move |r: &interflow_testkit::Request| {
        let text = String::from_utf8_lossy(&r.body).into_owned();
        let at = text.find("EMAIL_").expect("a placeholder");
        Reply::ok(pieces(&text[at..at + 14])).header("Content-Type", media_type)
    };
    Origin::http().answering(answer).start().await
}

/// As [`streaming`], of any type or none.
async fn typed(media_type: &'static str, pieces: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Origin {
    let answer = move |r: &interflow_testkit::Request| {
        let text = String::from_utf8_lossy(&r.body).into_owned();
        let reply = Reply::ok(pieces(text.find("EMAIL_").map_or("", |at| &text[at..at + 14])));
        if media_type.is_empty() { reply } else { reply.header("Content-Type", media_type) }
    };
    Origin::http().answering(answer).start().await
}

fn delta(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn ask() -> String {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": MAIL}]}).to_string()
}

#[tokio::test]
async fn buffered_text_is_sent_before_the_final_event() {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let origin = streaming("text/event-stream", move |p| sse(&[delta(p), delta(" grade E"), end.clone()])).await;
    let gate = Gate::start(&origin).await;
    let got = gate.post("/v1/chat/completions", ask()).await.text();
    assert_eq!(chat_text(&got), format!("{MAIL} grade E"));
    let last = got.find("\"E\"").expect("the letter comes in an event of its own");
    assert!(last < got.find("\"stop\"").unwrap(), "{got}");
}

#[tokio::test]
async fn stream_ending_inside_a_placeholder_is_an_error() {
    let origin = streaming("text/event-stream", |p| sse(&[delta("mail "), delta(&p[..10])])).await;
    let gate = Gate::start(&origin).await;
    let mut wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let body = ask();
    wire.send(format!("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        .await
        .unwrap();
    wire.answer_head().await.unwrap();
    let mut got = Vec::new();
    while let Ok(Some(chunk)) = wire.chunk().await {
        got.extend_from_slice(&chunk);
    }
    let got = String::from_utf8(got).unwrap();
    assert!(got.contains("open_placeholder") && !got.contains("EMAIL_"), "{got}");
    assert_eq!(gate.proxy.flow().await.error(), Some(ErrorKind::BadResponse));
}

/// A chat stream with a number in two fragments.
async fn telling() -> Origin {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let events = [delta("It is 123-45"), delta("-6789, is it not?"), end];
    super::provider("text/event-stream", sse(&events)).await
}

#[tokio::test]
async fn findings_in_a_streamed_response_tag_the_flow() {
    for (mode, clear) in [(OutboundMode::Flag, true), (OutboundMode::Redact, false)] {
        let origin = telling().await;
        let gate = Gate::with(&origin, |r| r.redact.responses = mode).await;
        let got = gate.post("/v1/chat/completions", ask()).await.text();
        assert_eq!(chat_text(&got).contains("123-45-6789"), clear, "{mode:?}: {got}");
        let flow = gate.proxy.flow().await;
        assert!(flow.tags.iter().any(|t| t == "answer:ssn"), "{mode:?}: {:?}", flow.tags);
    }
}

#[tokio::test]
async fn blocked_stream_ends_with_the_providers_error_format() {
    for (path, body, marks) in [
        ("/v1/chat/completions", ask(), ["data: {\"error\"", "\"code\":\"outbound_blocked\""]),
        ("/v1/messages", ask(), ["event: error\ndata: {", "\"type\":\"permission_error\""]),
    ] {
        let origin = telling().await;
        let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Block).await;
        let answer = gate.send("POST", path, "Content-Type: application/json\r\n", body.as_bytes()).await;
        let got = answer.expect("the body ends in good order").text();
        assert!(!got.contains("6789") && marks.iter().all(|m| got.contains(m)), "{got}");
        let flow = gate.proxy.flow().await;
        for tag in ["answer:ssn", "refused:outbound_blocked"] {
            assert!(flow.tags.iter().any(|t| t == tag), "{:?}", flow.tags);
        }
    }
}

const WRONG_TYPES: [&str; 7] = [
    "",
    "application/octet-stream",
    "text/plain",
    "text/html",
    "audio/mpeg",
    "text/event-stream",
    "application/vnd.amazon.eventstream",
];

#[tokio::test]
async fn a_wrong_media_type_hides_no_text_from_restoring() {
    for media_type in WRONG_TYPES {
        for is_stream in [true, false] {
            let whole = |p: &str| {
                json!({"choices": [{"message": {"role": "assistant", "content": format!("{p}\n\"E\"")}}]})
                    .to_string()
                    .into()
            };
            let events = |p: &str| sse(&[delta(&p[..4]), delta(&p[4..]), delta("\n\"E\"")]);
            let origin = typed(media_type, move |p| if is_stream { events(p) } else { whole(p) }).await;
            let gate = Gate::start(&origin).await;
            for asks in [true, false] {
                let body = json!({"model": "m", "stream": asks, "messages": [{"role": "user", "content": MAIL}]});
                let answer = gate.post("/v1/chat/completions", body.to_string()).await;
                let text = match is_stream {
                    true => chat_text(&answer.text()),
                    false => answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
                };
                assert_eq!(text, format!("{MAIL}\n\"E\""), "{media_type} {is_stream} {asks}");
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_media_type_hides_no_text_from_a_block() {
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let stream = sse(&[delta("It is 123-45"), delta("-6789, is it not?"), end]);
    let whole = json!({"choices": [{"message": {"role": "assistant", "content": "123-45-6789"}}]}).to_string();
    for body in [stream, whole.into_bytes(), b"\xff\x00 123-45-6789".into(), b"My number is 123-45-6789".into()] {
        for media_type in WRONG_TYPES.into_iter().chain(["application/json", "application/x-ndjson"]) {
            let sent = body.clone();
            let origin = typed(media_type, move |_| sent.clone()).await;
            let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Block).await;
            for (n, asks) in [true, false].into_iter().enumerate() {
                let request = json!({"model": "m", "stream": asks, "messages": [{"role": "user", "content": "hi"}]});
                let head = "Content-Type: application/json\r\n";
                let answer = gate.send("POST", "/v1/chat/completions", head, request.to_string().as_bytes()).await;
                let got = answer.map(|answer| answer.text()).unwrap_or_default();
                assert!(!got.contains("6789"), "{media_type} {asks}: {got}");
                let tags = gate.proxy.flows(n + 1).await.remove(n).tags;
                assert!(tags.iter().any(|tag| tag.starts_with("refused:")), "{media_type} {asks}: {tags:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_of_a_reply_is_tagged() {
    let origin = typed("application/octet-stream", |_| b"\xff\x00 123-45-6789".into()).await;
    let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Flag).await;
    let got = gate.post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#).await;
    assert_eq!(got.body, b"\xff\x00 123-45-6789"[..]);
    let tags = gate.proxy.flow().await.tags;
    assert!(tags.iter().any(|tag| tag == "redact:unread"), "{tags:?}");
    // A file is not a reply.
    let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Block).await;
    let got = gate.send("GET", "/openai/v1/files/f/content", "", b"").await.unwrap();
    assert_eq!((got.status, &got.body[..]), (200, &b"\xff\x00 123-45-6789"[..]));
}

#[tokio::test]
async fn the_results_of_a_batch_are_read() {
    let line = |text: &str| format!("{}\n", json!({"custom_id": "1", "response": {"body": {"output_text": text}}}));
    let file = [line("My number is 123-45-6789"), line("fine")].concat();
    let origin = super::provider("application/octet-stream", file.clone()).await;
    for (mode, is_read) in [(OutboundMode::Off, true), (OutboundMode::Redact, false)] {
        let gate = Gate::with(&origin, |r| r.redact.responses = mode).await;
        let got = gate.send("GET", "/openai/v1/files/f/content", "", b"").await.unwrap().text();
        assert_eq!((got.contains("6789"), got.lines().count()), (is_read, 2), "{got}");
    }
}

#[tokio::test]
async fn an_error_event_of_a_responses_stream_has_the_type_of_one() {
    let delta = |text: &str| json!({"type": "response.output_text.delta", "item_id": "i", "delta": text});
    let origin = super::provider("text/event-stream", sse(&[delta("123-45"), delta("-6789 is it. ")])).await;
    let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Block).await;
    let got = gate.post("/v1/responses", r#"{"model":"m","stream":true,"input":"hi"}"#).await.text();
    let event = got.split("event: error\ndata: ").nth(1).and_then(|data| data.lines().next()).expect(&got);
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!((&event["type"], &event["code"]), (&json!("error"), &json!("outbound_blocked")), "{got}");
    assert!(event["message"].is_string() && event["sequence_number"].is_u64(), "{got}");
}

#[tokio::test]
async fn thoughts_of_a_translated_reply_are_restored_and_come_back_redacted() {
    for is_stream in [true, false] {
        let thought = move |p: &str| match is_stream {
            true => {
                let delta = |d: Value| json!({"choices": [{"index": 0, "delta": d, "finish_reason": null}]});
                let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
                sse(&[
                    delta(json!({"reasoning_content": &p[..5]})),
                    delta(json!({"reasoning_content": format!("{} it is", &p[5..])})),
                    delta(json!({"content": p})),
                    end,
                ])
            }
            false => {
                let message = json!({"role": "assistant", "reasoning_content": p, "content": p});
                json!({"choices": [{"message": message, "finish_reason": "stop"}]}).to_string().into_bytes()
            }
        };
        let origin = typed(if is_stream { "text/event-stream" } else { "application/json" }, thought).await;
        let gate = Gate::with(&origin, |parts| {
            let route = json!({ "deployments": [{ "provider": "openai" }] });
            parts.llm.route.insert("mixed".into(), serde_json::from_value(route).unwrap());
        })
        .await;
        let ask = |messages: Value| {
            json!({"model": "mixed", "max_tokens": 9, "stream": is_stream, "messages": messages}).to_string()
        };
        let cache = gate.gateway.cache();
        let stored = serde_json::from_value(json!({"store": "memory"})).unwrap();
        cache.activate(cache.prepare(&stored, None, &[7; 32]).unwrap());
        let user = json!({"role": "user", "content": MAIL});
        for from in ["MISS", "HIT"] {
            let got = gate.post("/v1/messages", ask(json!([user]))).await;
            assert_eq!(got.header("x-interflow-cache"), Some(from));
            let got = got.text();
            assert!(!got.contains("EMAIL_") && got.matches(MAIL).count() == 2, "{from}: {got}");
        }
        let thinking = json!({"type": "thinking", "thinking": MAIL, "signature": "interflow:openai_chat"});
        let back = json!([user, {"role": "assistant", "content": [thinking]}, user]);
        gate.post("/v1/messages", ask(back)).await;
        let sent = super::arrived(&origin);
        assert!(!sent.contains(MAIL), "{sent}");
    }
}

#[tokio::test]
async fn ordinary_text_is_not_delayed() {
    let (send, hold) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let hold = std::sync::Mutex::new(Some(hold));
    let origin = Origin::http()
        .answering(move |_| {
            let hold = hold.lock().unwrap().take().expect("one request");
            let stream = futures_util::stream::unfold(hold, |mut h| async move { h.recv().await.map(|b| (b, h)) });
            Reply::status(200).header("Content-Type", "text/event-stream").stream(stream)
        })
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    let mut wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let body = ask();
    wire.send(format!("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        .await
        .unwrap();
    for text in ["Hello", " you", ", what", " is it? "] {
        let event = format!("data: {}\n\n", delta(text));
        send.send(event.clone().into()).unwrap();
        let got = tokio::time::timeout(Duration::from_secs(10), async {
            if text == "Hello" {
                wire.answer_head().await.unwrap();
            }
            wire.chunk().await.unwrap().unwrap()
        });
        assert_eq!(got.await.expect("at once"), event);
    }
}

#[tokio::test]
async fn originals_are_restored_in_bedrock_event_streams() {
    let frame = |name: &str, payload: &Value| {
        let headers = [
            (":event-type".into(), HeaderValue::String(name.into())),
            (":message-type".into(), HeaderValue::String("event".into())),
        ];
        let mut out = Vec::new();
        aws_event_stream::write_message(&mut out, &headers, payload.to_string().as_bytes()).unwrap();
        out
    };
    let origin = streaming("application/vnd.amazon.eventstream", move |p| {
        let text =
            |t: &str| frame("contentBlockDelta", &json!({"contentBlockIndex": 0, "delta": {"text": t}, "p": "abc"}));
        let stop = frame("contentBlockStop", &json!({"contentBlockIndex": 0}));
        [text(&p[..4]), text(&p[4..9]), text(&p[9..]), text(" E"), stop].concat()
    })
    .await;
    let gate = Gate::start(&origin).await;
    let body = json!({"messages": [{"role": "user", "content": [{"text": MAIL}]}]}).to_string();
    let got = gate.post("/model/m/converse-stream", body).await;
    let mut buf = bytes::BytesMut::from(&got.body[..]);
    let mut text = String::new();
    while let Some(message) = aws_event_stream::next_message(&mut buf, 1 << 20).expect("checksums hold") {
        let payload: Value = serde_json::from_slice(&message.payload).unwrap();
        text += payload["delta"]["text"].as_str().unwrap_or_default();
    }
    assert_eq!((text, buf.len()), (format!("{MAIL} E"), 0));
}

#[tokio::test]
async fn originals_are_restored_in_json_lines() {
    let origin = streaming("application/x-ndjson", |p| {
        let line = |t: &str, done: bool| {
            format!("{}\n", json!({"message": {"role": "assistant", "content": t}, "done": done}))
        };
        [line(&p[..8], false), line(&p[8..], false), line("", true)].concat().into_bytes()
    })
    .await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": MAIL}]}).to_string();
    let got = gate.post("/api/chat", body).await.text();
    let text: String = got
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["message"]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, MAIL);
}

#[tokio::test]
async fn ids_and_names_in_a_response_are_not_restored() {
    let origin = streaming("application/json", |p| {
        json!({"id": p, "choices": [{"message": {"content": p, "tool_calls": [{"id": p, "function": {"name": p, "arguments": format!("{{\"to\":\"{p}\"}}")}}]}}]}).to_string().into_bytes()
    })
    .await;
    let gate = Gate::start(&origin).await;
    let got = gate.post("/v1/chat/completions", ask()).await.json();
    let call = &got["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(got["choices"][0]["message"]["content"], MAIL);
    assert_eq!(call["function"]["arguments"], format!("{{\"to\":\"{MAIL}\"}}"));
    for stays in [&got["id"], &call["id"], &call["function"]["name"]] {
        assert!(stays.as_str().unwrap().starts_with("EMAIL_"), "{got}");
    }
}

#[tokio::test]
async fn what_stands_beside_the_data_of_events_is_scanned_too() {
    let data = format!("data: {}\n\n", delta("fine"));
    for (beside, is_clean) in [
        (format!(": told by {MAIL}\n"), false),
        (format!("event: {MAIL}\n"), false),
        (format!("id: {MAIL}\n"), false),
        (format!("note: {MAIL}\n"), false),
        (format!("data-note: {MAIL}\r\n"), false),
        (
            ": OPENROUTER PROCESSING\n\n: ping\n\nevent: response.output_text.delta\nid: 17\nretry: 3000\n".to_owned(),
            true,
        ),
    ] {
        let mut orders = vec![format!("{beside}{data}"), format!("{data}{beside}\n")];
        // An unknown field that does not end makes the stream one that was cut.
        orders.extend((!beside.contains("note")).then(|| format!("{data}{beside}")));
        for order in orders {
            let raw = order + if is_clean { "\n" } else { "" };
            let origin = super::provider("text/event-stream", raw.clone()).await;
            for mode in [OutboundMode::Redact, OutboundMode::Block, OutboundMode::Flag] {
                let gate = Gate::with(&origin, |parts| parts.redact.responses = mode).await;
                let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "x"}]});
                let got = gate.post("/v1/chat/completions", body.to_string()).await.text();
                let shows = got.contains(MAIL);
                assert_eq!(shows, mode == OutboundMode::Flag && !is_clean, "{mode:?} {raw}: {got}");
                assert_eq!(got.contains("outbound_blocked"), mode == OutboundMode::Block && !is_clean, "{raw}: {got}");
                assert!(!is_clean || beside.lines().all(|line| got.contains(line)), "{mode:?}: {got}");
                let flow = gate.proxy.flow().await;
                let found = flow.tags.iter().any(|tag| tag.contains("email-address"));
                assert_eq!(found, !is_clean, "{mode:?} {raw}: {:?}", flow.tags);
            }
        }
    }
}

#[tokio::test]
async fn what_is_replaced_or_blocked_is_not_in_the_tokens_beside_the_text_either() {
    let token = |text: &str| json!({"token": text, "logprob": -0.1, "bytes": text.as_bytes(), "top_logprobs": []});
    let logprobs = json!({"content": [token("ZED"), token("-12"), token("34")], "refusal": null});
    let whole = json!({"choices": [{"message": {"content": "is ZED-1234 ok"}, "logprobs": logprobs}]});
    let events = sse(&[
        json!({"choices": [{"index": 0, "delta": {"content": "is ZED-12"}, "logprobs": logprobs}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "34 ok"}, "logprobs": logprobs}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": null}]}),
    ]);
    for (media_type, raw) in [("application/json", whole.to_string().into_bytes()), ("text/event-stream", events)] {
        let is_stream = media_type != "application/json";
        let origin = super::provider(media_type, raw.clone()).await;
        // A schema needs the whole of a stream.
        for (kind, action, shows) in [
            (json!({"kind": "regex", "patterns": ["ZED-[0-9]{4}"]}), "mask", false),
            (json!({"kind": "regex", "patterns": ["nothing"]}), "block", false),
            (json!({"kind": "http", "url": origin.url("/none"), "on_error": "open"}), "block", false),
            (json!({"kind": "regex", "patterns": ["ZED-[0-9]{4}"]}), "flag", true),
        ] {
            let mut guard = kind.clone();
            (guard["apply_to"], guard["action"]) = (json!("output"), json!(action));
            let gate = Gate::with(&origin, |parts| {
                parts.llm.guardrail.insert("g".into(), serde_json::from_value(guard).unwrap());
            })
            .await;
            let body = json!({"model": "m", "stream": is_stream, "logprobs": true, "messages": []});
            let answer = gate.post("/v1/chat/completions", body.to_string()).await;
            let got = answer.text();
            assert_eq!((answer.status, got.contains("\"token\"")), (200, shows), "{kind} {action}: {got}");
            assert_eq!(got.contains("ZED-12"), action != "mask", "{kind} {action}: {got}");
            assert!(got.contains("\"logprobs\":null") || shows, "{got}");
        }
        for (mode, shows) in [(OutboundMode::Redact, false), (OutboundMode::Block, false), (OutboundMode::Flag, true)] {
            let gate = Gate::with(&origin, |parts| parts.redact.responses = mode).await;
            let body = json!({"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": "x"}]});
            let got = gate.post("/v1/chat/completions", body.to_string()).await.text();
            assert_eq!(got.contains("\"token\""), shows, "{mode:?}: {got}");
            assert!(got.contains("ZED-12"), "{mode:?}: {got}");
        }
    }
}
