//! Thoughts that are signed over all that precedes them: what Interflow changes in a history stays the same in each of its
//! requests, and where that is not possible the provider is told to leave them out.

use interflow_llm::LlmUpstreamConfig;
use interflow_redact::RedactMode;
use interflow_testkit::{Answer, Origin, llm};
use serde_json::{Value, json};

use super::{Components, Gate, MAIL, SSN};

const CLAUDE: &str = "claude-opus-5-5";
const LOSS: &str = "x-interflow-translation-loss";

/// A provider that signs, and refuses what the real ones refuse.
async fn provider() -> (Origin, std::sync::Arc<llm::Received>) {
    let (origin, received) = llm::start().await;
    [SSN, MAIL].iter().for_each(|marker| received.watch_for(marker));
    (origin, received)
}

fn at(origin: &Origin, knobs: &str) -> LlmUpstreamConfig {
    LlmUpstreamConfig { url: Some(origin.url(&format!("/~{knobs}"))), ..LlmUpstreamConfig::default() }
}

/// An instance: Claude, and OpenAI behind it on the route `mixed`.
async fn instance(origin: &Origin, claude: &str, change: impl FnOnce(&mut Components<'_>)) -> Gate {
    Gate::with(origin, |parts| {
        parts.llm.provider.insert("anthropic".into(), at(origin, claude));
        parts.llm.provider.insert("openai".into(), at(origin, "strict=1&thinking=1&tool=look"));
        let route = json!({ "cooldown_failures": 100, "deployments": [
            { "provider": "anthropic", "model": CLAUDE }, { "provider": "openai", "model": "gpt-6.2-sol", "priority": 1 },
        ] });
        parts.llm.route.insert("mixed".into(), serde_json::from_value(route).unwrap());
        change(parts);
    })
    .await
}

fn request(model: &str, history: &[Value]) -> Value {
    json!({
        "model": model, "max_tokens": 4096, "messages": history, "thinking": { "type": "adaptive" },
        "system": [{ "type": "text", "text": format!("Answer {MAIL}."), "cache_control": { "type": "ephemeral" } }],
        "tools": [{ "name": "look", "description": "Looks", "input_schema": { "type": "object" } }],
    })
}

/// A client whose sign-in is renewed with each request.
async fn ask(gate: &Gate, path: &str, body: &Value) -> Answer {
    let token = fastrand::u64(..);
    let fields = format!(
        "Content-Type: application/json\r\nanthropic-version: 2026-10-21\r\nAuthorization: Bearer sk-ant-oat01-{token}\r\n\
         x-claude-code-session-id: 5f0c\r\n"
    );
    gate.send("POST", path, &fields, body.to_string().as_bytes()).await.unwrap()
}

/// The answer of the model, and the result of the tool that it calls.
fn go_on(history: &mut Vec<Value>, answer: &Answer, turn: usize) {
    let content = answer.json()["content"].clone();
    let call = content.as_array().unwrap().iter().find(|block| block["type"] == "tool_use").expect("a call").clone();
    history.push(json!({ "role": "assistant", "content": content }));
    let said = format!("{turn}: SSN {SSN}, write to {MAIL} or someone{turn}@firm.com");
    history.push(json!({ "role": "user", "content": [
        { "type": "tool_result", "tool_use_id": call["id"], "content": said },
        { "type": "text", "text": format!("And then, {MAIL}?") },
    ] }));
}

fn begun() -> Vec<Value> {
    vec![json!({ "role": "user", "content": format!("I am Anna Berg, {MAIL}.") })]
}

#[tokio::test]
async fn fifty_turns_keep_their_signatures_through_redaction_two_instances_and_a_fallback() {
    let (origin, received) = provider().await;
    let claude = "strict=1&thinking=1&tool=look";
    let (first, second) = (instance(&origin, claude, |_| ()).await, instance(&origin, claude, |_| ()).await);
    let without_claude = instance(&origin, "status=503", |_| ()).await;
    let mut history = begun();
    for turn in 0..50 {
        let (gate, path, model) = match turn {
            0..10 => (&first, "/anthropic/v1/messages", CLAUDE),
            10..20 => (if turn % 2 == 0 { &first } else { &second }, "/anthropic/v1/messages", CLAUDE),
            20..25 => (&without_claude, "/v1/messages", "mixed"),
            _ => (&second, "/v1/messages", "mixed"),
        };
        let answer = ask(gate, path, &request(model, &history)).await;
        assert_eq!(answer.status, 200, "turn {turn}: {}", answer.text());
        let thought = answer.json()["content"][0].clone();
        let is_claude = thought["signature"].as_str().is_some_and(|signature| signature.starts_with("Eq"));
        // Claude shows nothing of its thoughts; what is signed comes back nevertheless.
        assert_eq!((&thought["type"], is_claude), (&json!("thinking"), !(20..25).contains(&turn)), "{turn}: {thought}");
        assert_eq!(is_claude, thought["thinking"] == "", "{thought}");
        go_on(&mut history, &answer, turn);
    }
    assert_eq!(received.refused(), 0, "no request had to be repeated");
    received.assert_nothing_leaked();
}

#[tokio::test]
async fn after_a_change_of_the_policy_the_provider_leaves_out_what_does_not_fit_any_more() {
    let (origin, received) = provider().await;
    let claude = "strict=1&thinking=1&tool=look";
    let redacting = instance(&origin, claude, |_| ()).await;
    let open = instance(&origin, claude, |parts| parts.redact.gateway = RedactMode::Off).await;
    for (path, model) in [("/anthropic/v1/messages", CLAUDE), ("/v1/messages", "mixed")] {
        let mut history = begun();
        // A conversation of its own for each of the two.
        history[0]["content"] = format!("I am Anna Berg, {MAIL}. {model}").into();
        for turn in 0..3 {
            let answer = ask(&redacting, path, &request(model, &history)).await;
            assert_eq!((answer.status, answer.header(LOSS)), (200, None), "{}", answer.text());
            go_on(&mut history, &answer, turn);
        }
        let before = received.refused();
        for (turn, refused) in [(3, 1), (4, 1), (5, 1)] {
            let session = format!("x-session-id: {model}\r\n");
            let fields = format!("anthropic-version: 2026-10-21\r\nanthropic-beta: a-beta\r\n{session}");
            let answer =
                open.send("POST", path, &fields, request(model, &history).to_string().as_bytes()).await.unwrap();
            assert_eq!((answer.status, answer.header(LOSS)), (200, Some("thinking.signature")), "{}", answer.text());
            assert_eq!(received.refused() - before, refused, "only the first request of the conversation is repeated");
            let sent = origin.requests().pop().unwrap();
            assert_eq!(sent.header("anthropic-beta"), Some("a-beta,thinking-binding-controls-2026-08-01"));
            let sent: Value = serde_json::from_slice(&sent.body).unwrap();
            let binding = json!({ "type": "adaptive", "block_binding": { "prefix_mismatch_behavior": "drop_block" } });
            assert_eq!(sent["thinking"], binding);
            go_on(&mut history, &answer, turn);
        }
    }
}

#[tokio::test]
async fn a_client_of_responses_returns_what_claude_signed() {
    let (origin, received) = provider().await;
    let gate = instance(&origin, "strict=1&thinking=1&tool=look", |_| ()).await;
    let mut input = vec![json!({ "role": "user", "content": format!("I am Anna Berg, {MAIL}.") })];
    for turn in 0..5 {
        let body = json!({
            "model": CLAUDE, "input": input, "store": false, "instructions": "Be brief.", "reasoning": { "effort": "xhigh" },
            "tools": [{ "type": "function", "name": "look", "parameters": { "type": "object", "properties": {} } }],
        });
        let answer = gate.post("/anthropic/v1/responses", body.to_string()).await;
        assert_eq!((answer.status, answer.header(LOSS)), (200, None), "{}", answer.text());
        let output = answer.json()["output"].clone();
        let call = output.as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap().clone();
        assert!(output[0]["encrypted_content"].as_str().unwrap().starts_with("anthropic:Eq"), "{output}");
        input.extend(output.as_array().unwrap().iter().cloned());
        let result = format!("{turn}: SSN {SSN}");
        input.push(json!({ "type": "function_call_output", "call_id": call["call_id"], "output": result }));
    }
    assert_eq!(received.refused(), 0);
    received.assert_nothing_leaked();
}
