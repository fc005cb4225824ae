//! Translation: clients of six formats reach upstreams of every format. The fake provider refuses what the real ones
//! refuse, and the clients read as strictly as their SDKs.

use serde_json::{Value, json};

use crate::instance::{Home, Running};
use crate::translated_replies::Client::{self, Anthropic, Chat, Converse, Gemini, Interactions, Responses};

const CLIENTS: [Client; 6] = [Chat, Responses, Anthropic, Gemini, Interactions, Converse];
/// Name, kind and other settings of the upstreams.
const UPSTREAMS: [(&str, &str, &str); 9] = [
    ("anthropic", "anthropic", "api_key = \"k\""),
    ("chat", "openai", "api_key = \"k\"\nformat = \"openai_chat\""),
    ("responses", "openai", "api_key = \"k\"\nformat = \"openai_responses\""),
    ("mistral", "mistral", "api_key = \"k\""),
    // Without `format`, interactions would not be translated for it.
    ("gemini", "gemini", "api_key = \"k\"\nformat = \"gemini\""),
    ("vertexclaude", "vertex", "api_key = \"k\"\nproject = \"p\"\nformat = \"anthropic\""),
    ("bedrock", "bedrock", "access_key = \"A\"\nsecret_key = \"s\""),
    ("cohere", "cohere", "api_key = \"k\""),
    ("ollama", "ollama", "format = \"ollama\""),
];
/// What the upstream does.
const BEHAVIOURS: [(&str, &str); 7] = [
    ("text", "strict=1"),
    ("tool", "strict=1&tool=weather"),
    ("parallel", "strict=1&tool=weather&calls=2"),
    ("thinking", "strict=1&thinking=1"),
    ("limited", "strict=1&status=429"),
    ("overloaded", "strict=1&status=529"),
    ("broken", "strict=1&status=500"),
];
const SAID: &str = "The quick brown fox jumps over the lazy dog. The quick brown fox";
const PNG: &str = "iVBORw0KGgo=";
/// A text in base64, `Grüße vom Amt`, and the beginning of a PDF.
const NOTE: &str = "R3LDvMOfZSB2b20gQW10";
const PDF: &str = "JVBERi0xLjcK";

/// An upstream for each kind and behaviour, `anthropic-text` and so on.
fn config(home: &Home) -> String {
    let mut config = String::new();
    for (name, kind, settings) in UPSTREAMS {
        for (behaviour, knobs) in BEHAVIOURS {
            let more = if name == "mistral" { "&mistral=1" } else { "" };
            let url = home.provider.url(&format!("/~{knobs}{more}"));
            config += &format!("[llm.provider.{name}-{behaviour}]\nkind = \"{kind}\"\nurl = \"{url}\"\n{settings}\n");
        }
    }
    config
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "city": { "type": "string" } }, "additionalProperties": false })
}

fn body(client: Client, stream: bool, more: Value) -> Value {
    let mut body = match client {
        Chat => json!({
            "model": "m", "max_completion_tokens": 8000, "stream": stream, "stream_options": { "include_usage": true },
            "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hello" }],
        }),
        Responses => json!({
            "model": "m", "max_output_tokens": 8000, "stream": stream, "instructions": "Be brief.", "input": "Hello",
        }),
        Anthropic => json!({
            "model": "m", "max_tokens": 8000, "stream": stream, "system": [{ "type": "text", "text": "Be brief." }],
            "messages": [{ "role": "user", "content": "Hello" }],
        }),
        Gemini => json!({
            "stream": stream, "systemInstruction": { "parts": [{ "text": "Be brief." }] },
            "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }],
            "generationConfig": { "maxOutputTokens": 8000 },
        }),
        Interactions => json!({
            "model": "m", "stream": stream, "system_instruction": "Be brief.", "input": "Hello",
            "generation_config": { "max_output_tokens": 8000 },
        }),
        Converse => json!({
            "stream": stream, "system": [{ "text": "Be brief." }], "inferenceConfig": { "maxTokens": 8000 },
            "messages": [{ "role": "user", "content": [{ "text": "Hello" }] }],
        }),
    };
    if client == Chat && !stream {
        body.as_object_mut().unwrap().remove("stream_options");
    }
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    body
}

/// Tools, and a history with two parallel calls and their results.
fn with_tools(client: Client) -> Value {
    match client {
        Chat => json!({
            "tools": [{ "type": "function", "function": { "name": "weather", "description": "Tells it", "parameters": schema() } }],
            "tool_choice": "auto",
            "messages": [
                { "role": "developer", "content": "Be brief." },
                { "role": "user", "content": "Weather in Paris and Rome?" },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "call_1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\":\"Paris\"}" } },
                    { "id": "functions.weather:1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\":\"Rome\"}" } },
                ] },
                { "role": "tool", "tool_call_id": "call_1", "content": "rain" },
                { "role": "tool", "tool_call_id": "functions.weather:1", "content": "sun" },
                { "role": "user", "content": "And then?" },
            ],
        }),
        Responses => json!({
            "tools": [{ "type": "function", "name": "weather", "parameters": schema(), "strict": true }],
            "input": [
                { "role": "user", "content": "Weather in Paris and Rome?" },
                { "type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Paris\"}" },
                { "type": "function_call", "call_id": "call_2", "name": "weather", "arguments": "{\"city\":\"Rome\"}" },
                { "type": "function_call_output", "call_id": "call_1", "output": "rain" },
                { "type": "function_call_output", "call_id": "call_2", "output": "sun" },
                { "role": "user", "content": [{ "type": "input_text", "text": "And then?" }] },
            ],
        }),
        Anthropic => json!({
            "tools": [{ "name": "weather", "description": "Tells it", "input_schema": schema() }],
            "tool_choice": { "type": "auto", "disable_parallel_tool_use": false },
            "messages": [
                { "role": "user", "content": "Weather in Paris and Rome?" },
                { "role": "assistant", "content": [
                    { "type": "text", "text": "I look." },
                    { "type": "tool_use", "id": "toolu_1", "name": "weather", "input": { "city": "Paris" } },
                    { "type": "tool_use", "id": "toolu_2", "name": "weather", "input": { "city": "Rome" } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "toolu_1", "content": "rain" },
                    { "type": "tool_result", "tool_use_id": "toolu_2", "content": [{ "type": "text", "text": "sun" }] },
                    { "type": "text", "text": "And then?" },
                ] },
            ],
        }),
        // As its SDK without ids, and with types of OpenAPI.
        Gemini => json!({
            "tools": [{ "functionDeclarations": [{ "name": "weather", "description": "Tells it", "parameters": {
                "type": "OBJECT", "properties": { "city": { "type": "STRING", "nullable": true } },
                "propertyOrdering": ["city"] } }] }],
            "toolConfig": { "functionCallingConfig": { "mode": "AUTO" } },
            "contents": [
                { "role": "user", "parts": [{ "text": "Weather in Paris and Rome?" }] },
                { "role": "model", "parts": [
                    { "functionCall": { "name": "weather", "args": { "city": "Paris" } } },
                    { "functionCall": { "name": "weather", "args": { "city": "Rome" } } },
                ] },
                { "role": "user", "parts": [
                    { "functionResponse": { "name": "weather", "response": { "output": "rain" } } },
                    { "functionResponse": { "name": "weather", "response": { "output": "sun" } } },
                    { "text": "And then?" },
                ] },
            ],
        }),
        Interactions => json!({
            "tools": [{ "type": "function", "name": "weather", "parameters": schema() }],
            "input": [
                { "type": "user_input", "content": "Weather in Paris and Rome?" },
                { "type": "function_call", "id": "call_1", "name": "weather", "arguments": { "city": "Paris" } },
                { "type": "function_call", "id": "call_2", "name": "weather", "arguments": { "city": "Rome" } },
                { "type": "function_result", "call_id": "call_1", "name": "weather", "result": "rain" },
                { "type": "function_result", "call_id": "call_2", "name": "weather", "result": [{ "type": "text", "text": "sun" }] },
                { "type": "user_input", "content": [{ "type": "text", "text": "And then?" }] },
            ],
        }),
        Converse => json!({
            "toolConfig": {
                "tools": [{ "toolSpec": { "name": "weather", "description": "Tells it", "inputSchema": { "json": schema() } } }],
                "toolChoice": { "auto": {} },
            },
            "messages": [
                { "role": "user", "content": [{ "text": "Weather in Paris and Rome?" }] },
                { "role": "assistant", "content": [
                    { "text": "I look." },
                    { "toolUse": { "toolUseId": "tooluse_1", "name": "weather", "input": { "city": "Paris" } } },
                    { "toolUse": { "toolUseId": "tooluse_2", "name": "weather", "input": { "city": "Rome" } } },
                ] },
                { "role": "user", "content": [
                    { "toolResult": { "toolUseId": "tooluse_1", "content": [{ "text": "rain" }], "status": "success" } },
                    { "toolResult": { "toolUseId": "tooluse_2", "content": [{ "text": "sun" }] } },
                    { "text": "And then?" },
                ] },
            ],
        }),
    }
}

fn with_image(client: Client) -> Value {
    let url = format!("data:image/png;base64,{PNG}");
    match client {
        Chat => json!({ "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "What is it?" }, { "type": "image_url", "image_url": { "url": url } },
        ] }] }),
        Responses => json!({ "input": [{ "role": "user", "content": [
            { "type": "input_text", "text": "What is it?" }, { "type": "input_image", "image_url": url },
        ] }] }),
        Anthropic => json!({ "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "What is it?" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": PNG } },
        ] }] }),
        Gemini => json!({ "contents": [{ "role": "user", "parts": [
            { "text": "What is it?" }, { "inlineData": { "mimeType": "image/png", "data": PNG } },
        ] }] }),
        Interactions => json!({ "input": [
            { "type": "text", "text": "What is it?" }, { "type": "image", "mime_type": "image/png", "data": PNG },
        ] }),
        Converse => json!({ "messages": [{ "role": "user", "content": [
            { "text": "What is it?" }, { "image": { "format": "png", "source": { "bytes": PNG } } },
        ] }] }),
    }
}

/// A text file and a PDF, as clients send them.
fn with_documents(client: Client) -> Value {
    let text = format!("data:text/plain;base64,{NOTE}");
    let pdf = format!("data:application/pdf;base64,{PDF}");
    match client {
        Chat => json!({ "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "What do they say?" },
            { "type": "file", "file": { "filename": "note.txt", "file_data": text } },
            { "type": "file", "file": { "filename": "paper.pdf", "file_data": pdf } },
        ] }] }),
        Responses => json!({ "input": [{ "role": "user", "content": [
            { "type": "input_text", "text": "What do they say?" },
            { "type": "input_file", "filename": "note.txt", "file_data": text },
            { "type": "input_file", "filename": "paper.pdf", "file_data": pdf },
        ] }] }),
        Anthropic => json!({ "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "What do they say?" },
            { "type": "document", "title": "note.txt",
              "source": { "type": "text", "media_type": "text/plain", "data": "Grüße vom Amt" } },
            { "type": "document", "title": "paper.pdf",
              "source": { "type": "base64", "media_type": "application/pdf", "data": PDF } },
        ] }] }),
        Gemini => json!({ "contents": [{ "role": "user", "parts": [
            { "text": "What do they say?" },
            { "inlineData": { "mimeType": "text/plain", "data": NOTE } },
            { "inlineData": { "mimeType": "application/pdf", "data": PDF } },
        ] }] }),
        Interactions => json!({ "input": [
            { "type": "text", "text": "What do they say?" },
            { "type": "document", "mime_type": "text/plain", "data": NOTE },
            { "type": "document", "mime_type": "application/pdf", "data": PDF },
        ] }),
        Converse => json!({ "messages": [{ "role": "user", "content": [
            { "text": "What do they say?" },
            { "document": { "format": "txt", "name": "note", "source": { "bytes": NOTE } } },
            { "document": { "format": "pdf", "name": "paper", "source": { "bytes": PDF } } },
        ] }] }),
    }
}

fn with_json_output(client: Client) -> Value {
    let format = json!({ "type": "json_schema", "name": "place", "schema": schema() });
    match client {
        Chat => json!({ "response_format": { "type": "json_schema", "json_schema": format } }),
        Responses => json!({ "text": { "format": format } }),
        Anthropic => json!({ "output_config": { "format": { "type": "json_schema", "schema": schema() } } }),
        Gemini => json!({ "generationConfig": {
            "maxOutputTokens": 8000, "responseMimeType": "application/json", "responseJsonSchema": schema(),
        } }),
        Interactions => json!({
            "response_format": { "type": "text", "mime_type": "application/json", "schema": schema() },
        }),
        Converse => json!({ "outputConfig": { "textFormat": { "type": "json_schema",
            "structure": { "jsonSchema": { "name": "place", "schema": schema().to_string() } } } } }),
    }
}

fn with_temperature(client: Client) -> Value {
    match client {
        Gemini => json!({ "generationConfig": { "maxOutputTokens": 8000, "temperature": 0.5 } }),
        Interactions => json!({ "generation_config": { "max_output_tokens": 8000, "temperature": 0.5 } }),
        Converse => json!({ "inferenceConfig": { "maxTokens": 8000, "temperature": 0.5 } }),
        Chat | Responses | Anthropic => json!({ "temperature": 0.5 }),
    }
}

fn with_thinking(client: Client) -> Value {
    match client {
        Chat => json!({ "reasoning_effort": "low" }),
        Responses => json!({ "reasoning": { "effort": "low" } }),
        Anthropic => json!({ "thinking": { "type": "enabled", "budget_tokens": 2048 } }),
        Gemini => json!({ "generationConfig": {
            "maxOutputTokens": 8000, "thinkingConfig": { "includeThoughts": true, "thinkingBudget": 2048 },
        } }),
        Interactions => json!({ "generation_config": { "max_output_tokens": 8000, "thinking_level": "low" } }),
        Converse => json!({
            "additionalModelRequestFields": { "thinking": { "type": "enabled", "budget_tokens": 2048 } },
        }),
    }
}

async fn ask(running: &Running, upstream: &str, client: Client, body: &Value) -> interflow_testkit::Answer {
    let fields = if client == Anthropic { "anthropic-version: 2023-06-01\r\n" } else { "" };
    let (mut body, stream) = (body.clone(), body["stream"] == true);
    if matches!(client, Gemini | Converse) {
        // The path says it.
        body.as_object_mut().unwrap().shift_remove("stream");
    }
    running.post(&format!("/{upstream}{}", client.path(stream)), fields, &body.to_string()).await
}

/// What a case adds to the request of a client.
type RequestPart = fn(Client) -> Value;

#[tokio::test]
async fn every_client_format_reaches_every_upstream_format() {
    let home = Home::new().await;
    let running = home.start(&config(&home));
    let cases: [(&str, &str, RequestPart); 8] = [
        ("text", "text", with_temperature),
        ("history of tools", "text", with_tools),
        ("tool", "tool", with_tools),
        ("parallel tools", "parallel", with_tools),
        ("image", "text", with_image),
        ("documents", "text", with_documents),
        ("thinking", "thinking", with_thinking),
        ("JSON by a schema", "text", with_json_output),
    ];
    for client in CLIENTS {
        for (upstream, ..) in UPSTREAMS {
            for (case, behaviour, more) in cases {
                for stream in [false, true] {
                    let at = format!("{client:?} to {upstream}, {case}, stream: {stream}");
                    let upstream = format!("{upstream}-{behaviour}");
                    let answer = ask(&running, &upstream, client, &body(client, stream, more(client))).await;
                    assert_eq!(answer.status, 200, "{at}: {}", answer.text());
                    let said = client.read(&answer, stream);
                    assert_eq!(said.text, SAID, "{at}");
                    let calls = match behaviour {
                        "tool" => 1,
                        "parallel" => 2,
                        _ => 0,
                    };
                    assert_eq!(said.calls.len(), calls, "{at}: {said:?}");
                    for (id, name, input) in &said.calls {
                        assert_eq!((name.as_str(), input), ("weather", &json!({ "city": "Paris", "days": 3 })), "{at}");
                        // The fake Gemini gives its calls no ids, and its client gets what it says.
                        if client == Gemini && upstream.starts_with("gemini") {
                            continue;
                        }
                        assert!(!id.is_empty() && said.calls.iter().filter(|c| c.0 == *id).count() == 1, "{at}: {id}");
                    }
                    let stop = match (client, calls) {
                        (Chat, 0) => "stop",
                        (Chat, _) => "tool_calls",
                        (Anthropic, 0) => "end_turn",
                        (Anthropic, _) => "tool_use",
                        (Responses, _) | (Interactions, 0) => "completed",
                        (Gemini, _) => "STOP",
                        (Interactions, _) => "requires_action",
                        (Converse, 0) => "end_turn",
                        (Converse, _) => "tool_use",
                    };
                    assert_eq!(said.stop, stop, "{at}");
                    let thought = if case == "thinking" { "The user wants a short answer." } else { "" };
                    assert_eq!(said.thinking, thought, "{at}");
                    assert!(said.output == 16 && said.input > 5, "{at}: {said:?}");
                    let sent = home.provider.requests().pop().unwrap();
                    let sent = String::from_utf8_lossy(&sent.body).into_owned();
                    if case == "image" {
                        assert!(sent.contains(PNG), "{at}: {sent}");
                    }
                    if case == "JSON by a schema" {
                        assert!(sent.contains("additionalProperties"), "{at}: {sent}");
                        assert_eq!(answer.header("x-interflow-translation-loss"), None, "{at}");
                    }
                    if case == "documents" {
                        let is_native = answer.header("x-interflow-translated").is_none();
                        let note = sent.contains("Grüße vom Amt");
                        // Bedrock has documents in base64 only.
                        let encoded = upstream.starts_with("bedrock") || is_native && client != Anthropic;
                        assert!(if encoded { sent.contains(NOTE) } else { note }, "{at}: {sent}");
                        let lost = ["cohere", "ollama"].iter().any(|name| upstream.starts_with(name));
                        assert_eq!(sent.contains(PDF), !lost, "{at}: {sent}");
                        let named = answer.header("x-interflow-translation-loss");
                        assert_eq!(named, lost.then_some("document"), "{at}");
                    }
                    if case.contains("tool") {
                        assert!(
                            ["Be brief.", "rain", "sun", "And then?"].iter().all(|t| sent.contains(t)),
                            "{at}: {sent}"
                        );
                    }
                }
            }
        }
    }
    running.stop();
}

#[tokio::test]
async fn errors_of_every_upstream_have_the_clients_format() {
    let home = Home::new().await;
    let running = home.start(&config(&home));
    for client in CLIENTS {
        for (upstream, ..) in UPSTREAMS {
            for (behaviour, chat_status, anthropic_status, openai, anthropic) in [
                ("limited", 429, 429, "rate_limit_error", "rate_limit_error"),
                ("overloaded", 503, 529, "server_error", "overloaded_error"),
                ("broken", 500, 500, "server_error", "api_error"),
            ] {
                let upstream = format!("{upstream}-{behaviour}");
                let own = (client, &upstream[..]);
                // Formats that need no translation are not touched.
                let same = own.0 == Anthropic && own.1.starts_with("anthropic")
                    || own.0 == Chat && own.1.starts_with("chat")
                    || own.0 == Responses && own.1.starts_with("responses")
                    || own.0 == Gemini && own.1.starts_with("gemini")
                    || own.0 == Converse && own.1.starts_with("bedrock");
                if same {
                    continue;
                }
                let answer = ask(&running, &upstream, client, &body(client, true, json!({}))).await;
                let (status, kind) = match client {
                    Anthropic => (anthropic_status, anthropic),
                    _ => (chat_status, openai),
                };
                let error = answer.json();
                if matches!(client, Gemini | Interactions | Converse) {
                    let (google, aws) = match behaviour {
                        "limited" => ("RESOURCE_EXHAUSTED", "ThrottlingException"),
                        "overloaded" => ("UNAVAILABLE", "ServiceUnavailableException"),
                        _ => ("INTERNAL", "InternalServerException"),
                    };
                    let named =
                        if client == Converse { (&error["__type"], aws) } else { (&error["error"]["status"], google) };
                    assert_eq!(
                        (answer.status, named.0.as_str()),
                        (status, Some(named.1)),
                        "{client:?} {upstream}: {error}"
                    );
                    continue;
                }
                assert_eq!(
                    (answer.status, error["error"]["type"].as_str()),
                    (status, Some(kind)),
                    "{client:?} {upstream}"
                );
                assert!(!error["error"]["message"].as_str().unwrap().is_empty());
                assert_eq!(answer.header("retry-after"), (behaviour == "limited").then_some("1"), "{upstream}");
                assert_eq!(error["type"] == "error", client == Anthropic);
            }
        }
    }
    running.stop();
}

#[tokio::test]
async fn what_a_format_cannot_carry_is_named() {
    let home = Home::new().await;
    let running = home.start(&config(&home));
    let cached = json!({ "top_k": 5, "messages": [{ "role": "user", "content": [
        { "type": "text", "text": "Hello", "cache_control": { "type": "ephemeral" } },
    ] }] });
    let penalty = json!({ "frequency_penalty": 0.5, "logprobs": true, "n": 2 });
    for (client, upstream, more, lost) in [
        (Anthropic, "responses-text", cached.clone(), Some("cache_control, top_k")),
        (Anthropic, "gemini-text", cached, Some("cache_control")),
        (Chat, "anthropic-text", penalty, Some("frequency_penalty, logprobs, n")),
        (Chat, "cohere-text", json!({ "frequency_penalty": 0.5 }), None),
        (Chat, "ollama-text", json!({ "store": true, "n": 1 }), None),
        (Anthropic, "bedrock-text", json!({ "top_k": 5 }), Some("top_k")),
        (Responses, "bedrock-text", json!({ "text": { "verbosity": "low" } }), Some("text.verbosity")),
    ] {
        let answer = ask(&running, upstream, client, &body(client, false, more)).await;
        assert_eq!(answer.status, 200, "{upstream}: {}", answer.text());
        assert_eq!(answer.header("x-interflow-translation-loss"), lost, "{upstream}");
    }
    let state = json!({ "previous_response_id": "resp_1" });
    let refused = ask(&running, "anthropic-text", Responses, &body(Responses, false, state)).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (400, Some("untranslatable_request")));
    running.stop();
}

#[tokio::test]
async fn a_chat_request_takes_the_form_of_mistral_wherever_it_comes_from() {
    let home = Home::new().await;
    let broken = home.provider.url("/~status=500");
    let running = home.start(&format!(
        "{}[llm.provider.first]\nkind = \"openai\"\nurl = \"{broken}\"\napi_key = \"k\"\nfallback = [\"mistral-thinking\"]\n",
        config(&home)
    ));
    let more = json!({ "seed": 7, "tool_choice": "required", "logit_bias": { "5": 1 }, "safe_prompt": true });
    for upstream in ["mistral-thinking", "first"] {
        for stream in [false, true] {
            let mut body = body(Chat, stream, with_tools(Chat));
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answer = ask(&running, upstream, Chat, &body).await;
            assert_eq!(answer.status, 200, "{upstream}: {}", answer.text());
            assert_eq!(answer.header("x-interflow-translated"), Some("mistral"));
            assert_eq!(answer.header("x-interflow-translation-loss"), Some("logit_bias"));
            assert_eq!(Chat.read(&answer, stream).thinking, "The user wants a short answer.");
            let sent: Value = serde_json::from_slice(&home.provider.requests().pop().unwrap().body).unwrap();
            assert_eq!(
                (&sent["random_seed"], &sent["tool_choice"], &sent["safe_prompt"]),
                (&json!(7), &json!("any"), &json!(true))
            );
        }
    }
    // A request that Mistral takes as it is, but that was meant for another API: its client reads that one's replies.
    let answer =
        ask(&running, "first", Chat, &json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] })).await;
    assert_eq!(Chat.read(&answer, false).thinking, "The user wants a short answer.");
    running.stop();
}

#[tokio::test]
async fn a_request_in_the_upstreams_own_format_is_not_touched() {
    let home = Home::new().await;
    let running = home.start(&config(&home));
    let odd = r#"{ "model":"m",  "messages":[{"role":"user","content":"Hello"}], "temperature":0.10 }"#;
    let own = r#"{ "model":"m",  "messages":[{"role":"user","content":"Hello"}], "random_seed":1 }"#;
    for (upstream, path, odd) in [
        ("chat-text", "/v1/chat/completions", odd),
        ("mistral-text", "/v1/chat/completions", odd),
        ("mistral-text", "/v1/chat/completions", own),
    ] {
        let answer = running.post(&format!("/{upstream}{path}"), "", odd).await;
        assert_eq!((answer.status, answer.header("x-interflow-translated")), (200, None));
        assert_eq!(home.provider.requests().pop().unwrap().body, odd.as_bytes());
    }
    running.stop();
}

#[tokio::test]
async fn redaction_and_restoring_surround_the_translation() {
    let home = Home::new().await;
    let url = home.provider.url("/~strict=1&echo=1");
    let running =
        home.start(&format!("[llm.provider.claude]\nkind = \"anthropic\"\nurl = \"{url}\"\napi_key = \"k\"\n"));
    let secret = "anna.berg@firm.com";
    for client in [Chat, Responses, Gemini, Interactions, Converse] {
        for stream in [false, true] {
            let words = format!("Write to {secret} today, and again tomorrow, please.");
            let more = match client {
                Responses | Interactions => json!({ "input": words }),
                Gemini => json!({ "contents": [{ "role": "user", "parts": [{ "text": words }] }] }),
                Converse => json!({ "messages": [{ "role": "user", "content": [{ "text": words }] }] }),
                _ => json!({ "messages": [{ "role": "user", "content": words }] }),
            };
            let answer = ask(&running, "claude", client, &body(client, stream, more)).await;
            assert_eq!(client.read(&answer, stream).text, words, "{client:?} {stream}");
            let sent = home.provider.requests().pop().unwrap();
            let sent = String::from_utf8_lossy(&sent.body).into_owned();
            assert!(!sent.contains(secret) && sent.contains("EMAIL_"), "{sent}");
        }
    }
    running.stop();
}

#[tokio::test]
async fn fallback_crosses_wire_formats() {
    let home = Home::new().await;
    let (broken, good) = (home.provider.url("/~strict=1&status=500"), home.provider.url("/~strict=1&tool=weather"));
    let running = home.start(&format!(
        "[llm.provider.first]\nurl = \"{broken}\"\napi_key = \"k\"\nfallback = [\"second\", \"third\"]\n\
         [llm.provider.second]\nkind = \"bedrock\"\nurl = \"{broken}\"\naccess_key = \"A\"\nsecret_key = \"s\"\n\
         [llm.provider.third]\nformat = \"anthropic\"\nurl = \"{good}\"\napi_key = \"other\"\nmodels = {{ m = \"claude\" }}\n"
    ));
    for stream in [false, true] {
        let answer =
            ask(&running, "first", Chat, &body(Chat, stream, json!({ "tools": with_tools(Chat)["tools"] }))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-interflow-translated"), Some("anthropic"));
        assert_eq!(Chat.read(&answer, stream).calls.len(), 1);
        let sent = home.provider.requests().pop().unwrap();
        assert_eq!(sent.header("x-api-key"), Some("other"));
        let sent: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(sent["model"], "claude");
    }
    // An embedding has no counterpart there.
    let answer = running.post("/first/v1/embeddings", "", r#"{"model":"m","input":"x"}"#).await;
    assert_ne!(answer.status, 200);
    running.stop();
}

#[tokio::test]
async fn the_clients_own_key_is_sent_where_the_upstream_expects_it() {
    let home = Home::new().await;
    let url = home.provider.url("/~strict=1");
    let running = home.start(&format!(
        "[llm.provider.claude]\nkind = \"anthropic\"\nurl = \"{url}\"\n[llm.provider.gem]\nkind = \"gemini\"\nurl = \"{url}\"\n\
         [llm.provider.local]\nurl = \"{url}\"\n"
    ));
    for (upstream, client, field, expected) in [
        ("claude", Chat, "Authorization: Bearer mine\r\n", ("x-api-key", "mine")),
        ("gem", Responses, "Authorization: Bearer mine\r\n", ("x-goog-api-key", "mine")),
        ("local", Anthropic, "x-api-key: mine\r\nanthropic-version: 2023-06-01\r\n", ("authorization", "Bearer mine")),
        ("claude", Gemini, "x-goog-api-key: mine\r\n", ("x-api-key", "mine")),
        ("local", Interactions, "x-goog-api-key: mine\r\n", ("authorization", "Bearer mine")),
        ("claude", Converse, "Authorization: Bearer mine\r\n", ("x-api-key", "mine")),
    ] {
        let text = body(client, false, json!({})).to_string();
        let answer = running.post(&format!("/{upstream}{}", client.path(false)), field, &text).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = home.provider.requests().pop().unwrap();
        assert_eq!(sent.header(expected.0), Some(expected.1));
        let others = ["x-api-key", "x-goog-api-key", "authorization"].iter().filter(|n| sent.header(n).is_some());
        assert_eq!(others.count(), 1, "{sent:?}");
    }
    running.stop();
}

#[tokio::test]
async fn impossible_combinations_are_refused_at_startup() {
    let home = Home::new().await;
    for (config, says) in [
        ("[llm.provider.openai]\nformat = \"klingon\"\n", "llm.provider.openai.format: `klingon` is not a wire format"),
        ("[llm.provider.gemini]\nformat = \"bedrock\"\n", "an upstream of the kind gemini speaks gemini, not bedrock"),
        ("[llm.provider.openai]\nfallback = [\"vertex\"]\n", "set llm.provider.vertex.project"),
    ] {
        let said = home.refuses_to_start(config);
        assert!(said.contains(says), "{says}: {said}");
    }
}
