//! Conversations that several providers have a part in: the reasoning of one is never sent to another. The providers are
//! origins that refuse reasoning which is not theirs, as the real ones do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use interflow_llm::LlmUpstreamConfig;
use interflow_testkit::{Answer, Origin, Reply, Request};
use serde_json::{Value, json};

use super::Gate;

const SIGNATURE: &str = "EqQBCkYIBxgCKkB";
const SEALED: &str = "gAAAAABo-sealed";
const REASONING_ID: &str = "rs_68af4030baa48193b0b43b4c2a176a1a";

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

fn refused(what: &str) -> Reply {
    Reply::status(400).body(json!({ "error": { "type": "invalid_request_error", "message": what } }).to_string())
}

/// Claude: thinks, and calls a tool without arguments.
fn claude(request: &Request) -> Reply {
    let asked = body(request);
    let blocks = list(&asked["messages"]).flat_map(|message| list(&message["content"]));
    let mut thoughts = blocks.filter(|block| block["type"].as_str().is_some_and(|kind| kind.ends_with("thinking")));
    if thoughts.any(|block| block["signature"] != SIGNATURE) {
        return refused("Invalid `signature` in `thinking` block");
    }
    Reply::json(&json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [
        { "type": "thinking", "thinking": "hm", "signature": SIGNATURE },
        { "type": "tool_use", "id": "toolu_1", "name": "look", "input": {} },
    ], "stop_reason": "tool_use", "usage": { "input_tokens": 1, "output_tokens": 1 } }))
}

/// OpenAI with both of its APIs.
fn openai(request: &Request) -> Reply {
    let asked = body(request);
    if request.path().ends_with("/chat/completions") {
        let is_foreign = |message: &Value| {
            message.get("reasoning_content").is_some() || list(&message["content"]).any(|p| p["type"] == "thinking")
        };
        if list(&asked["messages"]).any(is_foreign) {
            return refused("Unknown parameter: messages[1].reasoning_content");
        }
        let call = json!({ "id": "call_1", "type": "function", "function": { "name": "look", "arguments": "" } });
        let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
        return Reply::json(&json!({ "id": "c", "choices": [{ "message": message, "finish_reason": "tool_calls" }] }));
    }
    let is_foreign = |item: &Value| item["type"] == "reasoning" && item["encrypted_content"] != SEALED;
    if list(&asked["input"]).any(is_foreign) {
        return refused("The encrypted content could not be verified");
    }
    Reply::json(&json!({ "id": "resp_1", "object": "response", "status": "completed", "model": "gpt", "output": [
        { "type": "reasoning", "id": REASONING_ID, "encrypted_content": SEALED,
            "summary": [{ "type": "summary_text", "text": "hm" }] },
        { "type": "reasoning", "id": "rs_2", "summary": [{ "type": "summary_text", "text": "unsealed" }] },
        { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "" },
    ] }))
}

/// Gemini, whose thoughts are plain text.
fn gemini(_: &Request) -> Reply {
    Reply::json(&json!({ "candidates": [{ "content": { "parts": [
        { "text": "hm", "thought": true },
        { "functionCall": { "name": "look" }, "thoughtSignature": "CiQB" },
    ] }, "finishReason": "STOP" }] }))
}

fn answering(name: &str) -> fn(&Request) -> Reply {
    match name {
        "anthropic" => claude,
        "openai" => openai,
        _ => gemini,
    }
}

/// The route `mixed`: the first provider, until it fails, then the second.
struct Mixed {
    gate: Gate,
    origins: Vec<Origin>,
    is_down: Arc<AtomicBool>,
}

impl Mixed {
    async fn start(first: &str, second: &str, format: Option<&str>) -> Self {
        let is_down = Arc::new(AtomicBool::new(false));
        let (down, answer) = (Arc::clone(&is_down), answering(first));
        let a = Origin::http().answering(move |r| if down.load(SeqCst) { Reply::status(503) } else { answer(r) });
        let origins = vec![a.start().await, Origin::http().answering(answering(second)).start().await];
        let gate = Gate::with(&origins[0], |parts| {
            for (name, origin) in [first, second].into_iter().zip(&origins) {
                let format = format.filter(|_| name == "openai").map(str::to_owned);
                let at = LlmUpstreamConfig { url: Some(origin.url("")), format, ..LlmUpstreamConfig::default() };
                parts.llm.provider.insert(name.into(), at);
            }
            let route = json!({ "deployments": [{ "provider": first }, { "provider": second, "priority": 1 }],
                "cooldown_failures": 100 });
            parts.llm.route.insert("mixed".into(), serde_json::from_value(route).unwrap());
        })
        .await;
        Self { gate, origins, is_down }
    }

    async fn ask(&self, path: &str, body: &Value) -> Answer {
        let version = if path.ends_with("/messages") { "anthropic-version: 2023-06-01\r\n" } else { "" };
        let fields = format!("Content-Type: application/json\r\n{version}");
        let answer = self.gate.send("POST", path, &fields, body.to_string().as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer
    }

    /// What the provider at this position got last.
    fn got(&self, at: usize) -> Value {
        body(self.origins[at].requests().last().expect("a request arrived"))
    }
}

fn messages_request(history: &[Value]) -> Value {
    json!({ "model": "mixed", "max_tokens": 4096, "thinking": { "type": "enabled", "budget_tokens": 1024 },
        "tools": [{ "name": "look", "input_schema": { "type": "object" } }], "messages": history })
}

fn responses_request(input: &[Value]) -> Value {
    json!({ "model": "mixed", "store": false, "reasoning": { "effort": "low" }, "input": input,
        "tools": [{ "type": "function", "name": "look", "parameters": { "type": "object" } }] })
}

fn chat_request(history: &[Value]) -> Value {
    let tool = json!({ "type": "function", "function": { "name": "look", "parameters": { "type": "object" } } });
    json!({ "model": "mixed", "reasoning_effort": "low", "tools": [tool], "messages": history })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// Appends a turn of Messages, and the result of its call.
fn go_on(history: &mut Vec<Value>, answer: &Answer) {
    let content = answer.json()["content"].clone();
    let id = list(&content).find(|block| block["type"] == "tool_use").expect("a call")["id"].clone();
    history.push(json!({ "role": "assistant", "content": content }));
    history.push(json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "x" }] }));
}

#[tokio::test]
async fn claude_gets_no_thoughts_of_openai_or_gemini_and_its_own_as_they_were() {
    for (first, format) in [("openai", Some("openai_responses")), ("openai", Some("openai_chat")), ("gemini", None)] {
        let mixed = Mixed::start(first, "anthropic", format).await;
        let mut history = vec![user("q")];
        for _ in 0..2 {
            let answer = mixed.ask("/v1/messages", &messages_request(&history)).await;
            go_on(&mut history, &answer);
        }
        let thoughts = history.iter().flat_map(|m| list(&m["content"])).filter(|b| b["type"] == "thinking");
        assert!(thoughts.clone().all(|b| b["signature"] != ""), "{history:?}");
        assert_eq!(
            thoughts.count(),
            if format == Some("openai_chat") {
                0
            } else if first == "gemini" {
                2
            } else {
                4
            }
        );
        if first == "openai" && format == Some("openai_responses") {
            let sent = mixed.got(0)["input"].clone();
            let sealed: Vec<_> = list(&sent).filter(|item| item["type"] == "reasoning").collect();
            assert_eq!(sealed.len(), 1, "its own reasoning goes back to OpenAI: {sent}");
            assert_eq!((&sealed[0]["id"], &sealed[0]["encrypted_content"]), (&REASONING_ID.into(), &SEALED.into()));
        }

        mixed.is_down.store(true, SeqCst);
        let answer = mixed.ask("/v1/messages", &messages_request(&history)).await;
        let lost = (format != Some("openai_chat")).then_some("thinking");
        assert_eq!(answer.header("x-interflow-translation-loss"), lost, "{first}");
        let before = mixed.got(1)["messages"].clone();
        // Claude's own thought comes back, the others never do, and what was sent before stays the same.
        go_on(&mut history, &answer);
        mixed.ask("/v1/messages", &messages_request(&history)).await;
        let after = mixed.got(1)["messages"].clone();
        let kept = before.as_array().unwrap().len();
        assert_eq!(before.as_array().unwrap()[..], after.as_array().unwrap()[..kept]);
        let own: Vec<_> = list(&after).flat_map(|m| list(&m["content"])).filter(|b| b["type"] == "thinking").collect();
        assert_eq!(own, [&json!({ "type": "thinking", "thinking": "hm", "signature": SIGNATURE })]);
        // To the provider itself, past the route.
        mixed.ask("/anthropic/v1/messages", &messages_request(&history)).await;
        assert_eq!(mixed.got(1)["messages"], after);
    }
}

#[tokio::test]
async fn openai_gets_no_reasoning_of_claude_or_gemini() {
    for first in ["anthropic", "gemini"] {
        let mixed = Mixed::start(first, "openai", None).await;
        let mut input = vec![user("q")];
        let answer = mixed.ask("/v1/responses", &responses_request(&input)).await.json();
        input.extend(list(&answer["output"]).cloned());
        let call = list(&answer["output"]).find(|item| item["type"] == "function_call").expect("a call").clone();
        assert_eq!(call["arguments"], "{}");
        input.push(json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "x" }));
        mixed.ask("/v1/responses", &responses_request(&input)).await;
        if first == "anthropic" {
            let back = mixed.got(0)["messages"][1]["content"][0].clone();
            assert_eq!(back, json!({ "type": "thinking", "thinking": "hm", "signature": SIGNATURE }));
        }

        mixed.is_down.store(true, SeqCst);
        // Agents send items of reasoning without their ids.
        for is_bare in [false, true] {
            let mut input = input.clone();
            if is_bare {
                input.iter_mut().for_each(|item| drop(item.as_object_mut().unwrap().remove("id")));
            }
            let answer = mixed.ask("/v1/responses", &responses_request(&input)).await;
            assert_eq!(answer.header("x-interflow-translation-loss"), Some("thinking"));
            assert!(list(&mixed.got(1)["input"]).all(|item| item["type"] != "reasoning"));
            // OpenAI's own comes back as it was.
            input.extend(list(&answer.json()["output"]).filter(|item| item["id"] == REASONING_ID).cloned());
            mixed.ask("/v1/responses", &responses_request(&input)).await;
            let got = mixed.got(1)["input"].clone();
            let own: Vec<_> = list(&got).filter(|item| item["type"] == "reasoning").collect();
            assert_eq!(own.len(), 1, "{got}");
        }
    }
}

#[tokio::test]
async fn openai_gets_no_thoughts_of_others_in_chat_completions() {
    for first in ["anthropic", "gemini"] {
        let mixed = Mixed::start(first, "openai", Some("openai_chat")).await;
        let answer = mixed.ask("/v1/chat/completions", &chat_request(&[user("q")])).await.json();
        let said = answer["choices"][0]["message"].clone();
        assert_eq!(
            (said["reasoning_content"].as_str(), &said["tool_calls"][0]["function"]["arguments"]),
            (Some("hm"), &"{}".into())
        );
        let result = json!({ "role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "x" });
        mixed.is_down.store(true, SeqCst);
        mixed.ask("/v1/chat/completions", &chat_request(&[user("q"), said.clone(), result])).await;
        let got = mixed.got(1)["messages"][1].clone();
        assert_eq!(
            (got.get("reasoning_content"), &got["tool_calls"][0]["function"]),
            (None, &said["tool_calls"][0]["function"])
        );
    }
}

#[tokio::test]
async fn a_history_of_one_provider_is_sent_byte_for_byte() {
    let mixed = Mixed::start("anthropic", "openai", None).await;
    let spaced = format!(
        r#"{{ "model": "m", "max_tokens": 9.0, "messages": [ {{"role":"user","content":"\u00e9"}}, {{"role":"assistant","content":[ {{"type":"thinking","thinking":"","signature":"{SIGNATURE}"}} ]}}, {{"role":"user","content":"q"}} ] }}"#
    );
    let fields = "Content-Type: application/json\r\nanthropic-version: 2023-06-01\r\n";
    mixed.gate.send("POST", "/anthropic/v1/messages", fields, spaced.as_bytes()).await.unwrap();
    assert_eq!(mixed.origins[0].requests().last().unwrap().body, spaced.as_bytes());
    let item =
        format!(r#"{{ "type":"reasoning","id":"{REASONING_ID}","summary":[ ],"encrypted_content":"{SEALED}" }}"#);
    let spaced = format!(r#"{{ "model": "m", "input": [ {item} , {{"role":"user","content":"\/"}} ] }}"#);
    mixed
        .gate
        .send("POST", "/openai/v1/responses", "Content-Type: application/json\r\n", spaced.as_bytes())
        .await
        .unwrap();
    assert_eq!(mixed.origins[1].requests().last().unwrap().body, spaced.as_bytes());
}
