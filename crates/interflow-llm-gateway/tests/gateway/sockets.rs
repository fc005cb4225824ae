//! WebSockets to providers by gateway and proxy: client events redacted, server events restored.

use futures_util::{SinkExt, StreamExt};
use interflow_redact::{AddressRule, OutboundMode, RedactMode, UnknownRule};
use interflow_testkit::{Origin, Wire, llm};
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::key_scopes::key;
use super::{Gate, MAIL, SSN};

type Socket = WebSocketStream<Wire>;

async fn open(gate: &Gate, path: &str) -> Socket {
    let wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let (socket, answer) =
        tokio_tungstenite::client_async(format!("ws://gate{path}"), wire.patience(None)).await.unwrap();
    assert_eq!(answer.status(), 101);
    socket
}

/// As [`open`], with the virtual key of [`metered`].
async fn open_metered(gate: &Gate, path: &str) -> Socket {
    let wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let mut request = format!("ws://gate{path}").into_client_request().unwrap();
    request.headers_mut().insert("authorization", "Bearer ifk_k".parse().unwrap());
    tokio_tungstenite::client_async(request, wire.patience(None)).await.unwrap().0
}

#[tokio::test]
async fn a_websocket_is_redacted_however_its_protocol_is_spelled() {
    let (origin, received) = provider().await;
    let gate = Gate::start(&origin).await;
    let wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let mut request = "ws://gate/openai/v1/responses?echo=1".into_client_request().unwrap();
    request.headers_mut().insert("upgrade", "WebSocket".parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::client_async(request, wire.patience(None)).await.unwrap();
    let said = format!("SSN {SSN}");
    tell(&mut socket, ask(&said)).await;
    assert_eq!(deltas(&until(&mut socket, "response.completed").await), said);
    received.assert_nothing_leaked();
}

async fn metered(origin: &Origin) -> Gate {
    Gate::with(origin, |parts| parts.keys = key("k", "")).await
}

async fn tell(socket: &mut Socket, event: Value) {
    socket.send(Frame::text(event.to_string())).await.unwrap();
}

/// Events up to one of this type.
async fn until(socket: &mut Socket, last: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let message = socket.next().await.expect("an event").unwrap();
        let event = serde_json::from_str(message.to_text().unwrap());
        let event: Value = event.unwrap_or_else(|e| panic!("{e}: {message:?}"));
        let over = event["type"] == last;
        all.push(event);
        if over {
            return all;
        }
    }
}

fn deltas(events: &[Value]) -> String {
    let own = events.iter().filter(|e| e["type"] == "response.output_text.delta");
    own.map(|e| e["delta"].as_str().unwrap()).collect()
}

async fn provider() -> (Origin, std::sync::Arc<llm::Received>) {
    let (builder, received) = llm::provider(Origin::http());
    received.watch_for(SSN);
    received.watch_for(MAIL);
    (builder.start().await, received)
}

fn ask(text: &str) -> Value {
    json!({"type": "response.create", "model": "m", "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]})
}

#[tokio::test]
async fn responses_over_a_websocket_are_redacted_and_restored() {
    let (origin, received) = provider().await;
    let gate = Gate::start(&origin).await;
    let mut socket = open(&gate, "/openai/v1/responses?echo=1&chunks=20").await;
    // Ends with a possible placeholder prefix, which is then sent as an event of its own.
    let said = format!("mail {MAIL}, SSN {SSN}, grade E");
    for _ in 0..2 {
        tell(&mut socket, ask(&said)).await;
        let events = until(&mut socket, "response.completed").await;
        assert_eq!(deltas(&events), said);
        let whole = &events.last().unwrap()["response"]["output"][0]["content"][0]["text"];
        assert_eq!(whole, said.as_str());
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    received.assert_nothing_leaked();
    let flow = gate.proxy.flow().await;
    assert!(flow.messages.len() > 20, "{}", flow.messages.len());
    for message in &flow.messages {
        let text = String::from_utf8_lossy(&message.payload);
        assert!(!text.contains(SSN) && !text.contains(MAIL), "recorded: {text}");
    }
    for tag in ["redacted", "found:email-address", "found:ssn"] {
        assert!(flow.tags.iter().any(|t| t == tag), "{:?}", flow.tags);
    }
}

async fn pong(socket: &mut Socket, ping: impl Into<tokio_tungstenite::tungstenite::Bytes>) -> Vec<u8> {
    socket.send(Frame::Ping(ping.into())).await.unwrap();
    match socket.next().await {
        Some(Ok(Frame::Pong(payload))) => payload.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_text_of_control_frames_is_redacted_and_restored() {
    let (origin, received) = provider().await;
    let gate = Gate::start(&origin).await;
    let mut socket = open(&gate, "/openai/v1/responses?echo=1").await;
    tell(&mut socket, ask(&format!("mail {MAIL}"))).await;
    until(&mut socket, "response.completed").await;
    for payload in [&b""[..], b"\xff\x00\xfe\x01", b"1733059200", format!("of {MAIL}").as_bytes()] {
        assert_eq!(pong(&mut socket, payload.to_vec()).await, payload);
    }
    // The placeholders would take more than a control frame holds.
    let many: Vec<String> = (0..12).map(|n| format!("a{n}@b.io")).collect();
    assert_eq!(pong(&mut socket, many.join(" ").into_bytes()).await, b"");
    socket.send(Frame::Pong(MAIL.into())).await.unwrap();
    let reason = tokio_tungstenite::tungstenite::protocol::CloseFrame {
        code: CloseCode::Iana(3001),
        reason: format!("bye {MAIL}").into(),
    };
    socket.close(Some(reason.clone())).await.unwrap();
    // The provider's close frame repeats the reason.
    assert_eq!(socket.next().await.unwrap().unwrap(), Frame::Close(Some(reason)));
    drop(socket);
    received.assert_nothing_leaked();
    let flow = gate.proxy.flow().await;
    let said: Vec<_> = flow.messages.iter().map(|message| String::from_utf8_lossy(&message.payload)).collect();
    assert!(said.iter().all(|text| !text.contains(MAIL) && !text.contains("a1@b.io")), "recorded: {said:?}");
    assert!(said.iter().any(|text| text.contains("bye EMAIL_")), "recorded: {said:?}");
}

#[tokio::test]
async fn the_text_of_control_frames_is_flagged_in_both_directions() {
    let (origin, _) = provider().await;
    let gate = Gate::with(&origin, |r| {
        (r.redact.gateway, r.redact.responses) = (RedactMode::Flag, OutboundMode::Flag);
    })
    .await;
    let mut socket = open(&gate, "/openai/v1/responses?echo=1").await;
    let said = format!("SSN {SSN}");
    assert_eq!(pong(&mut socket, said.clone()).await, said.as_bytes());
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    let flow = gate.proxy.flow().await;
    for tag in ["redact:flagged", "found:ssn", "answer:ssn"] {
        assert!(flow.tags.iter().any(|t| t == tag), "{:?}", flow.tags);
    }
}

/// The placeholder of the mail address in an event.
fn placeholder(event: &str) -> &str {
    let from = &event[event.find("EMAIL_").unwrap_or_else(|| panic!("no placeholder: {event}"))..];
    from.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap()
}

#[tokio::test]
async fn lanes_of_a_websocket_are_restored_and_metered_apart_and_steering_is_redacted() {
    // Answers the steering of two lanes with fragments of the mail address that alternate between them.
    let talk = |text: &str| -> Vec<String> {
        assert!(!text.contains(MAIL), "{text}");
        if !text.contains("response.steer") {
            return vec![json!({"type": "response.created", "stream_id": "a", "response": {"id": "r1"}}).to_string()];
        }
        let mail = placeholder(text);
        let (first, second) = mail.split_at(8);
        let delta = |lane: &str, delta: &str| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "stream_id": lane, "delta": delta});
        let done = |lane: &str| {
            let usage = json!({"input_tokens": 10, "output_tokens": 2});
            json!({"type": "response.completed", "stream_id": lane, "response": {"id": lane, "usage": usage}})
        };
        let events = [
            delta("a", first),
            delta("b", first),
            delta("a", second),
            delta("a", "."),
            done("a"),
            delta("b", second),
            delta("b", "."),
            done("b"),
        ];
        events.iter().map(Value::to_string).collect()
    };
    let origin = Origin::http().answering(move |_| interflow_testkit::Reply::websocket(talk)).start().await;
    let gate = metered(&origin).await;
    let mut socket = open_metered(&gate, "/openai/v1/responses").await;
    tell(&mut socket, ask("plan it")).await;
    until(&mut socket, "response.created").await;
    let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": MAIL}]}]);
    tell(&mut socket, json!({"type": "response.steer", "previous_response_id": "r1", "input": input})).await;
    let mut events = until(&mut socket, "response.completed").await;
    events.extend(until(&mut socket, "response.completed").await);
    for lane in ["a", "b"] {
        let own: Vec<Value> = events.iter().filter(|event| event["stream_id"] == lane).cloned().collect();
        assert_eq!(deltas(&own), format!("{MAIL}."), "{events:?}");
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    gate.proxy.flow().await;
    super::support::until("the charge", || !gate.limits.usage().rows().is_empty()).await;
    let used = gate.limits.usage().rows();
    assert_eq!(used.iter().map(|row| (row.input_tokens, row.output_tokens)).collect::<Vec<_>>(), [(20, 4)]);
}

#[tokio::test]
async fn live_interactions_are_redacted_and_their_running_totals_are_not_added_up() {
    let talk = |text: &str| -> Vec<String> {
        assert!(!text.contains(MAIL), "{text}");
        let mail = placeholder(text);
        let (first, second) = mail.split_at(8);
        let delta =
            |text: &str| json!({"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": text}});
        let usage = |output: u64| json!({"total_input_tokens": 10, "total_output_tokens": output});
        let events = [
            delta(first),
            delta(second),
            json!({"event_type": "step.stop", "index": 0, "usage": usage(2)}),
            json!({"event_type": "interaction.completed", "type": "last", "status": "completed", "usage": usage(3)}),
        ];
        events.iter().map(Value::to_string).collect()
    };
    let origin = Origin::http().answering(move |_| interflow_testkit::Reply::websocket(talk)).start().await;
    let gate = metered(&origin).await;
    let mut socket = open_metered(&gate, "/gemini/v1beta/interactions/live").await;
    let event = json!({"event_type": "input", "content": [{"type": "text", "text": format!("I am {MAIL}")}]});
    tell(&mut socket, json!({"events": [event, {"event_type": "interaction.complete"}]})).await;
    let events = until(&mut socket, "last").await;
    let said: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(said, MAIL);
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    gate.proxy.flow().await;
    super::support::until("the charge", || !gate.limits.usage().rows().is_empty()).await;
    let used = gate.limits.usage().rows();
    assert_eq!(used.iter().map(|row| (row.input_tokens, row.output_tokens)).collect::<Vec<_>>(), [(10, 3)]);
}

#[tokio::test]
async fn realtime_events_are_redacted_and_restored() {
    let (origin, received) = provider().await;
    let gate = Gate::start(&origin).await;
    let mut socket = open(&gate, "/v1/realtime?model=m&echo=1&chunks=9").await;
    tell(&mut socket, json!({"type": "session.update", "session": {"instructions": format!("for {MAIL}")}})).await;
    let events = until(&mut socket, "session.updated").await;
    assert_eq!(events[0]["session"]["instructions"], format!("for {MAIL}"));
    let item =
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": format!("I am {SSN}")}]});
    tell(&mut socket, json!({"type": "conversation.item.create", "item": item})).await;
    tell(&mut socket, json!({"type": "response.create"})).await;
    let events = until(&mut socket, "response.done").await;
    assert_eq!(deltas(&events), format!("I am {SSN}"));
    received.assert_nothing_leaked();
}

#[tokio::test]
async fn unknown_realtime_event_is_refused_and_the_connection_stays_open() {
    let (origin, received) = provider().await;
    let gate = Gate::start(&origin).await;
    let mut socket = open(&gate, "/v1/realtime?model=m").await;
    for event in [json!({"type": "new.thing", "text": SSN}).to_string(), format!("no JSON: {SSN}")] {
        socket.send(Frame::text(event)).await.unwrap();
        let refused = until(&mut socket, "error").await;
        assert_eq!(refused[0]["error"]["code"], "unknown_event");
    }
    tell(&mut socket, json!({"type": "session.update", "session": {}})).await;
    until(&mut socket, "session.updated").await;
    received.assert_nothing_leaked();

    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Pass).await;
    let mut socket = open(&gate, "/v1/realtime?model=m").await;
    tell(&mut socket, json!({"type": "new.thing", "text": "words"})).await;
    let answer = until(&mut socket, "error").await;
    assert_eq!(answer[0]["error"]["message"], "the event's type is not known", "the provider itself says so");

    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Scan).await;
    let mut socket = open(&gate, "/v1/realtime?model=m").await;
    tell(&mut socket, json!({"type": "new.thing", "role": SSN})).await;
    assert_eq!(until(&mut socket, "error").await[0]["error"]["message"], "the event's type is not known");
    received.assert_nothing_leaked();
}

#[tokio::test]
async fn websocket_on_an_unsupported_path_is_refused() {
    let (origin, _) = provider().await;
    let gate = Gate::start(&origin).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = gate.send("GET", "/openai/v1/voices", upgrade, b"").await.unwrap();
    assert_eq!(answer.status, 501);
    assert_eq!(answer.json()["error"]["code"], "websocket_unscannable");
    // Nor can another protocol be smuggled in behind a chat.
    let upgrade = "Connection: Upgrade\r\nUpgrade: raw\r\n";
    let answer = gate.send("POST", "/openai/v1/chat/completions", upgrade, b"{}").await.unwrap();
    assert_eq!(answer.status, 501, "{}", answer.text());
}

#[tokio::test]
async fn blocked_response_closes_the_websocket_with_its_reason() {
    let (origin, _) = provider().await;
    let gate = Gate::with(&origin, |r| {
        r.redact.responses = OutboundMode::Block;
        // The query tells the origin what to answer.
        r.redact.url = AddressRule::Pass;
    })
    .await;
    let mut socket = open(&gate, "/v1/responses?chunks=4&text=my+SSN+is+123-45-6789,+as+you+know").await;
    tell(&mut socket, ask("hello")).await;
    let events = until(&mut socket, "error").await;
    assert_eq!(events.last().unwrap()["error"]["code"], "outbound_blocked");
    assert!(!format!("{events:?}").contains(SSN));
    match socket.next().await {
        Some(Ok(Frame::Close(Some(end)))) => assert_eq!(end.code, CloseCode::Policy),
        other => panic!("{other:?}"),
    }
    let flow = gate.proxy.flow().await;
    assert!(flow.tags.iter().any(|t| t == "answer:ssn"), "{:?}", flow.tags);
}

#[tokio::test]
async fn invalid_websocket_data_closes_the_connection_and_is_not_forwarded() {
    let (origin, received) = provider().await;
    let gate = Gate::start(&origin).await;
    let mut wire = open(&gate, "/v1/responses").await.into_inner();
    wire.send(format!("junk {SSN} and more of it")).await.unwrap();
    let end = wire.exactly(4).await.unwrap();
    assert_eq!((end[0], &end[2..4]), (0x88, &1008_u16.to_be_bytes()[..]));
    received.assert_nothing_leaked();
}

#[tokio::test]
async fn an_intercepted_websocket_is_flagged_or_redacted_as_configured() {
    for (mode, tag, leaks) in [(RedactMode::Flag, "redact:flagged", 1), (RedactMode::Redact, "redacted", 0)] {
        let (origin, received) = provider().await;
        let gate = Gate::with(&origin, |r| r.redact.proxied = mode).await;
        let wire = gate.proxy.tunnel(&origin.authority()).await.patience(None);
        let url = format!("ws://{}/v1/responses?echo=1&chunks=7", origin.authority());
        let (mut socket, _) = tokio_tungstenite::client_async(url, wire).await.unwrap();
        let said = format!("SSN {SSN}");
        tell(&mut socket, ask(&said)).await;
        assert_eq!(deltas(&until(&mut socket, "response.completed").await), said);
        socket.close(None).await.unwrap();
        while socket.next().await.is_some() {}
        drop(socket);
        assert_eq!(received.sightings()[0].1, leaks, "{mode:?}");
        let flow = gate.proxy.flow().await;
        assert!(flow.tags.iter().any(|t| t == tag), "{:?}", flow.tags);
    }
}

/// A provider that answers each `response.create` with 1,000 tokens of input and of output of the model that it names.
async fn billing_provider() -> Origin {
    let talk = |text: &str| -> Vec<String> {
        let event: Value = serde_json::from_str(text).unwrap();
        let usage = json!({"input_tokens": 1000, "output_tokens": 1000, "total_tokens": 2000});
        let response = json!({"id": "r", "model": event["model"], "usage": usage});
        vec![json!({"type": "response.completed", "response": response}).to_string()]
    };
    Origin::http().answering(move |_| interflow_testkit::Reply::websocket(talk)).start().await
}

fn create(model: &Value) -> Value {
    json!({"type": "response.create", "model": model, "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]})
}

#[tokio::test]
async fn each_event_of_a_websocket_needs_a_model_with_a_price_and_is_charged_by_it() {
    let origin = billing_provider().await;
    let gate = Gate::with(&origin, |parts| parts.keys = key("k", "limits = { money_per_day = 5.0 }")).await;
    let mut socket = open_metered(&gate, "/openai/v1/responses").await;
    for (model, part) in [(json!("unk"), "the price of openai/unk is not known"), (Value::Null, "names no model")] {
        tell(&mut socket, create(&model)).await;
        let refused = &until(&mut socket, "error").await[0]["error"];
        assert_eq!(refused["code"], "model_unpriced", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(part), "{refused}");
    }
    // $2.50 and $10 per million tokens of input and of output, then $0.15 and $0.60.
    for model in ["gpt-4o", "gpt-4o-mini"] {
        tell(&mut socket, create(&json!(model))).await;
        until(&mut socket, "response.completed").await;
    }
    tell(&mut socket, create(&json!("unk"))).await;
    until(&mut socket, "error").await;
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    gate.proxy.flow().await;
    super::support::until("the charge", || gate.limits.usage().rows().iter().any(|row| row.requests == 1)).await;
    let rows = gate.limits.usage().rows();
    let sum = |count: fn(&interflow_limits::UsageRow) -> f64| rows.iter().map(count).sum::<f64>();
    assert_eq!((sum(|s| s.input_tokens as f64), sum(|s| s.output_tokens as f64)), (2000.0, 2000.0), "{rows:?}");
    let dollars = sum(|s| s.dollars);
    assert!((dollars - 0.01325).abs() < 1e-9, "{dollars}: {rows:?}");
}

#[tokio::test]
async fn a_session_of_gemini_live_needs_a_model_with_a_price_before_anything_is_sent() {
    let talk = |text: &str| vec![json!({"heard": text}).to_string()];
    let origin = Origin::http().answering(move |_| interflow_testkit::Reply::websocket(talk)).start().await;
    let path = "/gemini/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";
    let said = json!({"clientContent": {"turns": []}});
    let setup = |model: &str| json!({"setup": {"model": model}});
    for (events, query, passes) in [
        (vec![said.clone()], "", false),
        (vec![said.clone()], "?model=gemini-2.5-flash", true),
        (vec![json!({"setup": {}})], "", false),
        (vec![setup("models/unk")], "?model=gemini-2.5-flash", false),
        (vec![json!({"model": "gemini-2.5-flash", "setup": {"model": "models/unk"}})], "", false),
        (vec![setup("models/gemini-2.5-flash"), said.clone()], "", true),
    ] {
        let gate = Gate::with(&origin, |parts| parts.keys = key("k", "limits = { money_per_day = 5.0 }")).await;
        let mut socket = open_metered(&gate, &format!("{path}{query}")).await;
        for event in events {
            tell(&mut socket, event.clone()).await;
            let message = socket.next().await.expect("an event").unwrap();
            let answer: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
            assert_eq!(answer.get("heard").is_some(), passes, "{event} {query}: {answer}");
            assert!(passes || answer.to_string().contains("model_unpriced"), "{answer}");
        }
    }
}

#[tokio::test]
async fn the_agent_of_an_interaction_over_a_websocket_stands_for_its_model() {
    let talk = |text: &str| vec![json!({"heard": text}).to_string()];
    let origin = Origin::http().answering(move |_| interflow_testkit::Reply::websocket(talk)).start().await;
    let create =
        |interaction: Value| json!({"event_type": "interaction.create", "interaction": interaction, "input": []});
    for (interaction, passes) in
        [(json!({"model": "gemini-2.5-flash"}), true), (json!({"model": "gemini-2.5-flash", "agent": "a"}), false)]
    {
        let gate = Gate::with(&origin, |parts| parts.keys = key("k", "limits = { money_per_day = 5.0 }")).await;
        let mut socket = open_metered(&gate, "/gemini/v1beta/interactions/live?model=gemini-2.5-pro").await;
        tell(&mut socket, create(interaction.clone())).await;
        let message = socket.next().await.expect("an event").unwrap();
        let answer = message.to_text().unwrap();
        assert_eq!((answer.contains("heard"), answer.contains("model_unpriced")), (passes, !passes), "{answer}");
    }
}

#[tokio::test]
async fn what_writes_down_speech_in_a_session_needs_a_price_and_is_charged_its_own() {
    let talk = |text: &str| -> Vec<String> {
        let event: Value = serde_json::from_str(text).unwrap();
        match event["type"].as_str() {
            Some("session.update") => {
                vec![json!({"type": "session.updated", "session": event["session"]}).to_string()]
            }
            _ => {
                let heard = "conversation.item.input_audio_transcription.completed";
                let heard = json!({"type": heard, "transcript": "x", "usage": {"type": "duration", "seconds": 60}});
                let done = json!({"type": "response.done", "response": {"usage": {"input_tokens": 0, "output_tokens": 1_000_000}}});
                vec![heard.to_string(), done.to_string()]
            }
        }
    };
    let origin = Origin::http().answering(move |_| interflow_testkit::Reply::websocket(talk)).start().await;
    let gate = Gate::with(&origin, |parts| parts.keys = key("k", "limits = { money_per_day = 50.0 }")).await;
    let mut socket = open_metered(&gate, "/openai/v1/realtime?model=gpt-realtime-2.1-mini").await;
    let update = |settings: Value| json!({"type": "session.update", "session": settings});
    let new = |model: &str| update(json!({"audio": {"input": {"transcription": {"model": model}}}}));
    let old = |model: &str| update(json!({"input_audio_transcription": {"model": model}}));
    for event in [new("unknown-1"), old("unknown-1")] {
        tell(&mut socket, event.clone()).await;
        let refused = until(&mut socket, "error").await;
        assert_eq!(refused.last().unwrap()["error"]["code"], "model_unpriced", "{event}");
    }
    tell(&mut socket, new("whisper-1")).await;
    until(&mut socket, "session.updated").await;
    tell(&mut socket, json!({"type": "response.create"})).await;
    until(&mut socket, "response.done").await;
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    let charged = || gate.limits.usage().rows().iter().map(|row| row.dollars).sum::<f64>();
    super::support::until("the charge", || charged() > 0.0).await;
    let dollars = charged();
    // A minute, and a million tokens of text.
    assert!((dollars - (0.006 + 2.4)).abs() < 1e-6, "{dollars}");
}
