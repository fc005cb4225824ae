//! Clients of Gemini, Interactions and Converse, and what more than one API has: pages that are cited, tools that providers
//! run, thoughts that go back to their provider.

use serde_json::{Value, json};

use super::foreign_reasoning::{opened, sealed};
use super::tests::{chat_events, head, lost_in_reply, parsed_reply, streamed, target, written};
use super::{ChatRequest, Keeps, ReplyWriter, WireFormat, whole_reply, without_foreign_reasoning};
use crate::event_stream::StreamFraming;
use crate::message::{ApiFormat, ContentBlock};

const CLIENTS: [WireFormat; 6] = [
    WireFormat::Anthropic,
    WireFormat::OpenAiChat,
    WireFormat::OpenAiResponses,
    WireFormat::Gemini,
    WireFormat::Interactions,
    WireFormat::Bedrock,
];

#[test]
fn settings_of_google_and_amazon_have_their_equals_elsewhere() {
    let gemini = json!({
        "contents": { "role": "user", "parts": [{ "text": "hi" }] },
        "generation_config": { "temperature": 0.5, "topK": 4, "stop_sequences": ["x"], "max_output_tokens": 9,
            "thinkingConfig": { "thinking_budget": 2048 }, "candidateCount": 2 },
        "tool_config": { "function_calling_config": { "mode": "ANY", "allowed_function_names": ["f"] } },
        "tools": [{ "functionDeclarations": [{ "name": "f", "parameters": { "type": "OBJECT", "properties": {
            "type": { "type": "STRING", "nullable": true },
            "all": { "type": "ARRAY", "items": { "type": "INTEGER" }, "minItems": "1" } }, "propertyOrdering": ["type"] } }] }],
        "serviceTier": "standard", "safetySettings": [{ "category": "a" }],
    });
    let (body, losses) = written(WireFormat::Gemini, &target(WireFormat::OpenAiChat, "m"), gemini);
    assert_eq!(losses, "candidateCount, safetySettings");
    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({ "type": "object", "properties": { "type": { "type": ["string", "null"] },
            "all": { "type": "array", "items": { "type": "integer" }, "minItems": 1 } } })
    );
    assert_eq!(body["tool_choice"]["function"]["name"], "f");
    let members = ["temperature", "top_k", "max_tokens", "reasoning_effort", "service_tier"];
    let values = members.map(|name| body[name].clone());
    assert_eq!(json!(values), json!([0.5, 4, 9, "low", "default"]));

    let converse = json!({
        "messages": [{ "role": "user", "content": [{ "text": "hi" }, { "cachePoint": { "type": "default" } }] }],
        "inferenceConfig": { "topP": 0.5, "maxTokens": 9 },
        "toolConfig": { "tools": [{ "toolSpec": { "name": "f", "inputSchema": { "json": { "type": "object" } } } },
            { "systemTool": { "name": "nova_grounding" } }], "toolChoice": { "any": {} } },
        "additionalModelRequestFields": { "top_k": 4, "anthropic_beta": ["b"] },
        "requestMetadata": { "team": "a" }, "guardrailConfig": { "guardrailIdentifier": "g" },
    });
    let (body, losses) = written(WireFormat::Bedrock, &target(WireFormat::OpenAiChat, "m"), converse);
    assert_eq!(losses, "anthropic_beta, cachePoint, guardrailConfig, tools.systemTool");
    let values = ["top_p", "top_k", "tool_choice", "metadata"].map(|name| body[name].clone());
    assert_eq!(json!(values), json!([0.5, 4, "required", { "team": "a" }]));

    let interaction = json!({
        "model": "m", "input": "hi", "generation_config": { "seed": 7, "thinking_level": "high",
            "tool_choice": { "allowed_tools": { "mode": "any", "tools": ["f", "g"] } }, "speech_config": { "a": 1 } },
        "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }],
    });
    let (body, losses) = written(WireFormat::Interactions, &target(WireFormat::OpenAiChat, "m"), interaction);
    assert_eq!(losses, "speech_config, tool_choice");
    let values = ["seed", "reasoning_effort", "tool_choice"].map(|name| body[name].clone());
    assert_eq!(json!(values), json!([7, "high", "required"]));
}

#[test]
fn results_without_ids_belong_to_their_calls_and_structured_ones_are_text() {
    let call = |city: &str| json!({ "functionCall": { "name": "f", "args": { "city": city } } });
    let result = |value: Value| json!({ "functionResponse": { "name": "f", "response": value } });
    let gemini = json!({ "contents": [
        { "role": "model", "parts": [call("a"), call("b")] },
        { "role": "user", "parts": [result(json!({ "sky": "grey", "rain": 1 })), result(json!({ "output": "sun" }))] },
        { "role": "model", "parts": [call("c")] },
        { "role": "user", "parts": [result(json!({ "output": "snow" }))] },
    ] });
    let (body, _) = written(WireFormat::Gemini, &target(WireFormat::Anthropic, "m"), gemini);
    let ids = |message: usize, name: &str| -> Vec<String> {
        let blocks = body["messages"][message]["content"].as_array().unwrap().iter();
        blocks.map(|block| block[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(1, "id"), ids(2, "tool_use_id"));
    assert_eq!(ids(3, "id"), ids(4, "tool_use_id"));
    assert!(ids(1, "id")[0] != ids(1, "id")[1] && !ids(1, "id").contains(&ids(3, "id")[0]), "{body}");
    assert_eq!(body["messages"][2]["content"][0]["content"][0]["text"], r#"{"sky":"grey","rain":1}"#);
    // Gemini CLI sends a result twice when it resumes.
    let result = json!({ "functionResponse": { "id": "c", "name": "f", "response": { "output": "sun" } } });
    let resumed = json!({ "contents": [
        { "role": "model", "parts": [{ "functionCall": { "id": "c", "name": "f", "args": {} } }] },
        { "role": "user", "parts": [result, result] },
    ] });
    let (body, _) = written(WireFormat::Gemini, &target(WireFormat::Anthropic, "m"), resumed);
    assert_eq!(body["messages"][2]["content"].as_array().unwrap().len(), 1, "{body}");
    let converse = json!({ "messages": [
        { "role": "assistant", "content": [{ "toolUse": { "toolUseId": "t", "name": "f", "input": {} } }] },
        { "role": "user", "content": [{ "toolResult": { "toolUseId": "t", "content": [{ "json": { "a": 1 } }] } }] },
    ] });
    let (body, _) = written(WireFormat::Bedrock, &target(WireFormat::Anthropic, "m"), converse);
    assert_eq!(body["messages"][2]["content"][0]["content"][0]["text"], r#"{"a":1}"#);
}

#[test]
fn a_request_that_refers_to_state_is_refused() {
    for (client, body, name) in [
        (
            WireFormat::Interactions,
            json!({ "model": "m", "input": "a", "previous_interaction_id": "v1_a" }),
            "previous",
        ),
        (WireFormat::Interactions, json!({ "agent": "deep-research", "input": "a" }), "agent"),
        (WireFormat::Interactions, json!({ "model": "m", "input": "a", "background": true }), "background"),
        (WireFormat::Gemini, json!({ "contents": [{ "parts": [] }], "cachedContent": "c" }), "cachedContent"),
        (WireFormat::Gemini, json!({ "contents": [] }), "no messages"),
        (WireFormat::Bedrock, json!({ "messages": [] }), "no messages"),
    ] {
        let error = ChatRequest::parse(client, body).unwrap_err();
        assert!(error.contains(name), "{error}");
    }
}

/// The message of the assistant in a whole reply, as its client returns it with the history.
fn history(client: WireFormat, reply: &Value) -> Value {
    let user = "hello";
    match client {
        WireFormat::Gemini => json!({ "contents": [
            { "role": "user", "parts": [{ "text": user }] }, reply["candidates"][0]["content"],
            { "role": "user", "parts": [{ "text": "more" }] },
        ] }),
        WireFormat::Interactions => {
            let steps = reply["steps"].as_array().unwrap().iter().cloned();
            let said = |text: &str| json!({ "type": "user_input", "content": [{ "type": "text", "text": text }] });
            let input: Vec<Value> = [said(user)].into_iter().chain(steps).chain([said("more")]).collect();
            json!({ "model": "m", "input": input })
        }
        _ => json!({ "messages": [
            { "role": "user", "content": [{ "text": user }] }, reply["output"]["message"],
            { "role": "user", "content": [{ "text": "more" }] },
        ] }),
    }
}

#[test]
fn a_thought_goes_back_to_its_provider_only() {
    let anthropic = json!({ "id": "m1", "model": "c", "stop_reason": "end_turn", "usage": { "output_tokens": 1 }, "content": [
        { "type": "thinking", "thinking": "well", "signature": "c2ln" }, { "type": "text", "text": "Hello." } ] });
    let openai = json!({ "id": "r", "status": "completed", "output": [
        { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hello." }] } ] });
    for client in [WireFormat::Gemini, WireFormat::Interactions, WireFormat::Bedrock] {
        for (upstream, reply, other) in [
            (WireFormat::Anthropic, &anthropic, WireFormat::OpenAiResponses),
            (WireFormat::OpenAiResponses, &openai, WireFormat::Anthropic),
        ] {
            let reply = whole_reply(client, &head(), &parsed_reply(upstream, reply.to_string().as_bytes()));
            let history = history(client, &reply);
            let (body, losses) = written(client, &target(upstream, "m"), history.clone());
            let text = body.to_string();
            assert!(text.contains("c2ln") || text.contains("gAAA"), "{client:?} {upstream:?}: {text}");
            assert_eq!(losses, "", "{client:?} {upstream:?}");
            let (body, losses) = written(client, &target(other, "m"), history.clone());
            assert!(!body.to_string().contains("c2ln") && !body.to_string().contains("gAAA"), "{body}");
            assert!(losses == "thinking" || losses == "reasoning_content", "{losses}");
            // Nor to the provider whose API the client speaks. Claude on Bedrock reads signatures of Claude.
            let raw = history.to_string();
            let native = without_foreign_reasoning(client, Keeps::ItsOwn, raw.as_bytes());
            if client == WireFormat::Bedrock && upstream == WireFormat::Anthropic {
                assert_eq!(native, None);
                continue;
            }
            let native: Value = serde_json::from_slice(&native.expect("it has a foreign thought")).unwrap();
            let text = native.to_string();
            assert!(text.contains("Hello.") && text.contains("more"), "{text}");
            assert!(!text.contains("ignature"), "{text}");
        }
    }
    // Google's own signatures stay where they are, and go to nobody else.
    let own = json!({ "contents": [{ "role": "model", "parts": [
        { "text": "well", "thought": true, "thoughtSignature": "CiQB4/+signature" }, { "text": "Hello." } ] }] });
    assert_eq!(without_foreign_reasoning(WireFormat::Gemini, Keeps::ItsOwn, own.to_string().as_bytes()), None);
    let (body, losses) = written(WireFormat::Gemini, &target(WireFormat::Anthropic, "m"), own);
    assert!(!body.to_string().contains("CiQB4"), "{body}");
    assert_eq!(losses, "messages.assistant_first, reasoning_content");
    for signature in ["c2ln", "openai:rs_1:gAAA", "interflow:gemini"] {
        let urlsafe = sealed(signature).replace('+', "-").replace('/', "_");
        assert_eq!(opened(&urlsafe).as_deref(), Some(signature));
    }
}

#[test]
fn texts_of_a_converse_history_are_kept_whatever_block_they_are_in() {
    let cited = json!({ "citationsContent": { "content": [{ "text": "one " }, { "text": "two" }],
        "citations": [{ "title": "A", "location": { "web": { "url": "https://a.test/x" } } }] } });
    let search = json!({ "searchResult": { "source": "s-3", "title": "t-4", "content": [{ "text": "five" }] } });
    let ask = json!({
        "system": [{ "guardContent": { "text": { "text": "rules" } } }],
        "messages": [
            { "role": "user", "content": [{ "guardContent": { "text": { "text": "asks", "qualifiers": ["query"] } } }] },
            { "role": "assistant", "content": [cited, { "toolUse": { "toolUseId": "t", "name": "f", "input": {} } }] },
            { "role": "user", "content": [{ "toolResult": { "toolUseId": "t", "content": [search] } }] },
            { "role": "assistant", "content": [{ "unheardOf": { "a": 1 } }] },
            { "role": "user", "content": [search, { "text": "last" }] },
        ],
        "promptVariables": { "p": { "text": "v" } },
    });
    for upstream in CLIENTS {
        let (body, losses) = written(WireFormat::Bedrock, &target(upstream, "m"), ask.clone());
        for name in ["citations", "guardContent", "promptVariables", "searchResult", "unheardOf"] {
            let is_lost = name != "searchResult" || upstream != WireFormat::Anthropic;
            assert_eq!(losses.split(", ").any(|lost| lost == name), is_lost, "{upstream:?}: {name} in {losses}");
        }
        let out = body.to_string();
        for text in ["rules", "asks", "one two", "last"] {
            assert_eq!(out.matches(text).count(), 1, "{upstream:?}: {text} in {out}");
        }
        for text in ["s-3", "t-4", "five"] {
            assert_eq!(out.matches(text).count(), 2, "{upstream:?}: {text} in {out}");
        }
        if !matches!(upstream, WireFormat::OpenAiChat | WireFormat::OpenAiResponses) {
            let messages = body.get("messages").or_else(|| body.get("contents")).and_then(Value::as_array).unwrap();
            assert!(messages.windows(2).all(|two| two[0]["role"] != two[1]["role"]), "{upstream:?}: {out}");
        }
    }
    let reply =
        json!({ "stopReason": "end_turn", "output": { "message": { "role": "assistant", "content": [cited] } } });
    let reply = parsed_reply(WireFormat::Bedrock, reply.to_string().as_bytes());
    let chat = whole_reply(WireFormat::OpenAiChat, &head(), &reply);
    assert_eq!(chat["choices"][0]["message"]["content"], "one two");
}

#[test]
fn a_page_that_is_cited_reaches_every_client() {
    let page = "https://a.test/x";
    let anthropic = json!({ "type": "web_search_result_location", "url": page, "title": "A", "cited_text": "words" });
    let grounding = json!({ "webSearchQueries": ["q"], "groundingChunks": [{ "web": { "uri": page, "title": "A" } }],
        "groundingSupports": [{ "segment": { "endIndex": 3 }, "groundingChunkIndices": [0] }] });
    let annotation = json!({ "type": "url_citation", "url": page, "title": "A", "start_index": 0, "end_index": 3 });
    let wholes = [
        (
            WireFormat::Anthropic,
            json!({ "id": "m", "stop_reason": "end_turn", "content": [
                { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "q" } },
                { "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{ "type": "web_search_result", "url": page }] },
                { "type": "text", "text": "Yes", "citations": [anthropic, anthropic] } ] }),
        ),
        (
            WireFormat::OpenAiChat,
            json!({ "choices": [{ "finish_reason": "stop", "message": { "content": "Yes",
                "annotations": [{ "type": "url_citation", "url_citation": annotation }] } }] }),
        ),
        (
            WireFormat::OpenAiResponses,
            json!({ "id": "r", "status": "completed", "output": [
                { "type": "web_search_call", "id": "ws_1", "status": "completed", "action": { "type": "search" } },
                { "type": "message", "role": "assistant", "content": [
                    { "type": "output_text", "text": "Yes", "annotations": [annotation] } ] } ] }),
        ),
        (
            WireFormat::Gemini,
            json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": "Yes" }] }, "finishReason": "STOP",
                "groundingMetadata": grounding }] }),
        ),
        (
            WireFormat::Bedrock,
            json!({ "stopReason": "end_turn", "output": { "message": { "role": "assistant", "content": [
                { "text": "Yes" }, { "citationsContent": { "content": [], "citations": [
                    { "title": "A", "location": { "web": { "url": page } } } ] } } ] } } }),
        ),
    ];
    for (upstream, reply) in wholes {
        let reply = reply.to_string();
        assert!(lost_in_reply(upstream, WireFormat::OpenAiChat, reply.as_bytes()).is_empty(), "{reply}");
        let reply = parsed_reply(upstream, reply.as_bytes());
        for client in CLIENTS {
            let out = whole_reply(client, &head(), &reply).to_string();
            assert_eq!(out.matches(page).count(), 1, "{upstream:?} to {client:?}: {out}");
            assert!(out.contains("\"Yes\"") && !out.contains("web_search\""), "{upstream:?} to {client:?}: {out}");
        }
    }
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let stream: String = [
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        delta(json!({ "type": "text_delta", "text": "Yes" })),
        delta(json!({ "type": "citations_delta", "citation": anthropic })),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        json!({ "type": "message_stop" }),
    ]
    .map(|event| format!("data: {event}\n\n"))
    .concat();
    for client in CLIENTS.into_iter().filter(|client| *client != WireFormat::Bedrock) {
        let out = streamed(client, WireFormat::Anthropic, StreamFraming::Sse, stream.as_bytes());
        assert!(out.contains(page) && !out.contains("Translation-Loss"), "{client:?}: {out}");
    }
    // What the gateway wrote is not sent to a provider as its own.
    let marked = json!({ "messages": [{ "role": "assistant", "content": [{ "type": "text", "text": "Yes", "citations": [
        { "type": "web_search_result_location", "url": page, "encrypted_index": "interflow:openai_chat" } ] }] }] });
    let clean = without_foreign_reasoning(WireFormat::Anthropic, Keeps::ItsOwn, marked.to_string().as_bytes()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&clean).unwrap()["messages"][0]["content"],
        json!([{ "type": "text", "text": "Yes" }])
    );
}

#[test]
fn a_citation_belongs_to_its_block_and_a_page_is_cited_once_in_a_stream() {
    let page = |url: &str, words: &str| json!({ "type": "web_search_result_location", "url": url, "title": "A", "cited_text": words });
    let (a, b) = ("https://a.test/x", "https://b.test/y");
    let document = json!({ "type": "char_location", "document_index": 0, "cited_text": "q" });
    let reply = json!({ "id": "m", "stop_reason": "end_turn", "content": [
        { "type": "text", "text": "One", "citations": [page(a, "1"), document, page(a, "2")] },
        { "type": "text", "text": "Plain" }, { "type": "text", "text": "Two", "citations": [page(b, "3"), page(a, "4")] },
    ] });
    let reply = reply.to_string();
    assert_eq!(lost_in_reply(WireFormat::Anthropic, WireFormat::OpenAiChat, reply.as_bytes()), "citations");
    let grounding = json!({ "candidates": [{ "groundingMetadata": { "groundingChunks": [
        { "web": { "uri": a } }, { "retrievedContext": { "uri": "d" } } ] } }] });
    assert_eq!(
        lost_in_reply(WireFormat::Gemini, WireFormat::OpenAiChat, grounding.to_string().as_bytes()),
        "citations"
    );
    let reply = parsed_reply(WireFormat::Anthropic, reply.as_bytes());
    for (client, texts, cites) in [
        (WireFormat::Anthropic, "/content", ["/citations/0/url"; 3]),
        (WireFormat::Interactions, "/steps", ["/content/0/annotations/0/url"; 3]),
        (WireFormat::Bedrock, "/output/message/content", ["/citationsContent/citations/0/location/web/url"; 3]),
    ] {
        let out = whole_reply(client, &head(), &reply);
        let blocks = out.pointer(texts).and_then(Value::as_array).unwrap();
        let cited: Vec<_> =
            blocks.iter().zip(cites).map(|(block, at)| block.pointer(at).and_then(Value::as_str)).collect();
        assert_eq!(cited, [Some(a), None, Some(b)], "{client:?}: {out}");
        assert_eq!(
            (out.to_string().matches(a).count(), out.to_string().matches(b).count()),
            (2, 1),
            "{client:?}: {out}"
        );
    }
    for client in [WireFormat::OpenAiChat, WireFormat::OpenAiResponses, WireFormat::Gemini] {
        let out = whole_reply(client, &head(), &reply).to_string();
        assert_eq!((out.matches(a).count(), out.matches(b).count()), (1, 1), "{client:?}: {out}");
    }
    let delta = |index: u8, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let cite = |index: u8, page: Value| delta(index, json!({ "type": "citations_delta", "citation": page }));
    let stream: String = [
        delta(0, json!({ "type": "text_delta", "text": "One" })),
        cite(0, page(a, "1")),
        cite(0, page(a, "2")),
        delta(0, json!({ "type": "text_delta", "text": "Two" })),
        cite(0, page(b, "3")),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        json!({ "type": "message_stop" }),
    ]
    .map(|event| format!("data: {event}\n\n"))
    .concat();
    for client in [WireFormat::Gemini, WireFormat::Interactions] {
        let out = streamed(client, WireFormat::Anthropic, StreamFraming::Sse, stream.as_bytes());
        assert_eq!((out.matches(a).count(), out.matches(b).count()), (1, 1), "{client:?}: {out}");
    }
}

#[test]
fn tools_that_a_provider_runs_become_those_of_another() {
    let search = [
        (WireFormat::Anthropic, json!({ "type": "web_search_20260318", "name": "web_search", "max_uses": 3 })),
        (WireFormat::OpenAiResponses, json!({ "type": "web_search_preview" })),
        (WireFormat::Gemini, json!({ "googleSearch": {} })),
        (WireFormat::Interactions, json!({ "type": "google_search" })),
    ];
    for (client, tool) in search {
        let body = match client {
            WireFormat::Gemini => json!({ "contents": [{ "parts": [{ "text": "hi" }] }], "tools": [tool] }),
            WireFormat::Anthropic => json!({ "messages": [{ "role": "user", "content": "hi" }], "tools": [tool] }),
            _ => json!({ "model": "m", "input": "hi", "tools": [tool] }),
        };
        for (upstream, expected) in [
            (WireFormat::Anthropic, Some("web_search_20250305")),
            (WireFormat::OpenAiResponses, Some("\"web_search\"")),
            (WireFormat::Gemini, Some("googleSearch")),
            (WireFormat::OpenAiChat, None),
            (WireFormat::Bedrock, None),
        ] {
            let (body, losses) = written(client, &target(upstream, "m"), body.clone());
            let tools = body["tools"].to_string();
            assert_eq!(expected.map(|name| tools.contains(name)), expected.map(|_| true), "{client:?}: {body}");
            assert_eq!(losses.contains("tools."), expected.is_none(), "{client:?} to {upstream:?}: {losses}");
        }
    }
}

/// A text of Anthropic's API that cites a document at each kind of place, and a search result; the same of Converse.
fn citing_texts() -> (Value, Value) {
    let place = |kind: &str, unit: &str, at: u64| {
        let (start, end) = (format!("start_{unit}"), format!("end_{unit}"));
        json!({ "type": kind, "document_index": at, start: 1, end: 4, "cited_text": "words", "document_title": "Rooms" })
    };
    let own = [
        place("char_location", "char_index", 0),
        place("page_location", "page_number", 1),
        place("content_block_location", "block_index", 2),
        json!({ "type": "search_result_location", "search_result_index": 3, "start_block_index": 0, "end_block_index": 1,
            "source": "https://a.test/rooms", "cited_text": "words", "title": "Rooms" }),
    ];
    let location = |member: &str, at: u64| {
        let location = json!({ member: { "documentIndex": at, "start": 1, "end": 4 } });
        json!({ "title": "Rooms", "sourceContent": [{ "text": "words" }], "location": location })
    };
    let found = json!({ "title": "Rooms", "source": "https://a.test/rooms", "sourceContent": [{ "text": "words" }],
        "location": { "searchResultLocation": { "searchResultIndex": 3, "start": 0, "end": 1 } } });
    let converse = [location("documentChar", 0), location("documentPage", 1), location("documentChunk", 2), found];
    let (text, content) = ("B2 is free.", json!([{ "text": "B2 is free." }]));
    (
        json!({ "type": "text", "text": text, "citations": own }),
        json!({ "citationsContent": { "content": content, "citations": converse } }),
    )
}

#[test]
fn documents_are_cited_alike_in_requests_to_anthropic_and_amazon() {
    let (own, converse) = citing_texts();
    let source =
        json!({ "type": "content", "content": [{ "type": "text", "text": "A1" }, { "type": "text", "text": "B2" }] });
    let cited = json!({ "enabled": true });
    let document =
        json!({ "type": "document", "source": source, "title": "Rooms", "citations": cited, "context": "of today" });
    let plain = json!({ "type": "text", "text": "Anything else?" });
    let ask = json!({ "model": "m", "max_tokens": 99, "messages": [
        { "role": "user", "content": [document, { "type": "text", "text": "Which is free?" }] },
        { "role": "assistant", "content": [own, plain] },
        { "role": "user", "content": [{ "type": "text", "text": "Thanks" }] },
    ] });
    let to_amazon = target(WireFormat::Bedrock, "anthropic.claude-opus-5-5");
    let (body, losses) = written(WireFormat::Anthropic, &to_amazon, ask.clone());
    assert_eq!(losses, "");
    let sent = &body["messages"][0]["content"][0]["document"];
    let chunks = json!({ "content": [{ "text": "A1" }, { "text": "B2" }] });
    assert_eq!((&sent["source"], &sent["citations"], &sent["context"]), (&chunks, &cited, &"of today".into()));
    assert_eq!(body["messages"][1]["content"], json!([converse, { "text": "Anything else?" }]));
    let (back, losses) = written(WireFormat::Bedrock, &target(WireFormat::Anthropic, "claude-opus-5-5"), body);
    assert_eq!((losses.as_str(), &back["messages"]), ("", &ask["messages"]));
    // No other API has them.
    let (_, losses) = written(WireFormat::Anthropic, &target(WireFormat::Gemini, "m"), ask.clone());
    assert_eq!(losses, "citations, document.citations, document.context");
    // What a page's citation refers to is known to its provider alone.
    let page = json!({ "type": "web_search_result_location", "url": "https://a.test", "encrypted_index": "E" });
    let mut ask = ask;
    ask["messages"][1]["content"][0]["citations"] = json!([page]);
    let (body, losses) = written(WireFormat::Anthropic, &to_amazon, ask);
    assert_eq!((losses.as_str(), &body["messages"][1]["content"][0]), ("citations", &json!({ "text": "B2 is free." })));
}

#[test]
fn search_results_are_sent_as_such_to_anthropic_and_amazon_and_as_text_to_others() {
    let found = json!({ "type": "search_result", "source": "https://a.test/rooms", "title": "Rooms",
        "content": [{ "type": "text", "text": "A1" }, { "type": "text", "text": "B2" }], "citations": { "enabled": true } });
    let mut marked = found.clone();
    marked["cache_control"] = json!({ "type": "ephemeral" });
    let ask = json!({ "model": "m", "max_tokens": 99, "messages": [
        { "role": "user", "content": [marked, { "type": "text", "text": "Which is free?" }] },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "look", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": [found] }] },
    ] });
    let claude = "anthropic.claude-opus-5-5";
    let (body, losses) = written(WireFormat::Anthropic, &target(WireFormat::Bedrock, claude), ask.clone());
    let converse = json!({ "searchResult": { "source": "https://a.test/rooms", "title": "Rooms",
        "content": [{ "text": "A1" }, { "text": "B2" }], "citations": { "enabled": true } } });
    let point = json!({ "cachePoint": { "type": "default" } });
    assert_eq!((losses.as_str(), &body["messages"][0]["content"][0]), ("", &converse));
    assert_eq!(body["messages"][0]["content"][1], point);
    assert_eq!(body["messages"][2]["content"][0]["toolResult"]["content"], json!([converse]));
    let (back, losses) = written(WireFormat::Bedrock, &target(WireFormat::Anthropic, "claude-opus-5-5"), body);
    assert_eq!((losses.as_str(), &back["messages"][0]["content"][0]), ("cachePoint", &found));
    assert_eq!(back["messages"][2]["content"][0]["content"], json!([found]));
    for upstream in [target(WireFormat::Bedrock, "amazon.nova-pro"), target(WireFormat::OpenAiChat, "m")] {
        let (body, losses) = written(WireFormat::Anthropic, &upstream, ask.clone());
        let losses: Vec<_> = losses.split(", ").filter(|name| *name != "cache_control").collect();
        assert_eq!(losses, ["search_result"], "{upstream:?}");
        let text = r"Rooms\nhttps://a.test/rooms\nA1\nB2";
        assert_eq!(body.to_string().matches(text).count(), 2, "{upstream:?}: {body}");
    }
    // Conversations show their words.
    let shown = crate::message::parse::request(ApiFormat::Anthropic, "", ask);
    assert_eq!(shown.messages[0].blocks[0], ContentBlock::text("Rooms\nhttps://a.test/rooms\nA1\nB2"));
}

#[test]
fn documents_that_a_reply_cites_reach_clients_that_can_show_them() {
    let (own, converse) = citing_texts();
    let plain = json!({ "type": "text", "text": "Plain." });
    let anthropic = json!({ "id": "m", "stop_reason": "end_turn", "content": [plain, own] }).to_string();
    let amazon = json!({ "stopReason": "end_turn", "output": { "message": { "role": "assistant",
        "content": [{ "text": "Plain." }, converse] } } })
    .to_string();
    for (upstream, raw) in [(WireFormat::Anthropic, &anthropic), (WireFormat::Bedrock, &amazon)] {
        let reply = parsed_reply(upstream, raw.as_bytes());
        let whole = whole_reply(WireFormat::Anthropic, &head(), &reply);
        assert_eq!(whole["content"], json!([plain, own]), "{upstream:?}");
        let whole = whole_reply(WireFormat::Bedrock, &head(), &reply);
        assert_eq!(whole["output"]["message"]["content"], json!([{ "text": "Plain." }, converse]), "{upstream:?}");
        for (client, lost) in [
            (WireFormat::Bedrock, ""),
            (WireFormat::Anthropic, ""),
            (WireFormat::OpenAiChat, "citations"),
            (WireFormat::Gemini, "citations"),
        ] {
            assert_eq!(lost_in_reply(upstream, client, raw.as_bytes()), lost, "{upstream:?} to {client:?}");
            let out = whole_reply(client, &head(), &reply).to_string();
            assert_eq!(out.contains("words"), lost.is_empty(), "{upstream:?} to {client:?}: {out}");
        }
    }
    // In a stream a block ends where its citations do: as Converse has it, and back.
    let start = |index: u8| json!({ "type": "content_block_start", "index": index, "content_block": { "type": "text", "text": "" } });
    let delta = |index: u8, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let text = |index: u8, text: &str| delta(index, json!({ "type": "text_delta", "text": text }));
    let stop = |index: u8| json!({ "type": "content_block_stop", "index": index });
    let mut events = vec![start(0), text(0, "B2 is free.")];
    let cites = own["citations"].as_array().unwrap();
    events.extend(cites.iter().map(|cite| delta(0, json!({ "type": "citations_delta", "citation": cite }))));
    events.extend([stop(0), start(1), text(1, "Plain."), stop(1)]);
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
    events.push(json!({ "type": "message_stop" }));
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let (mut writer, mut out) = (ReplyWriter::new(WireFormat::Bedrock, head()), Vec::new());
    let read = chat_events(WireFormat::Anthropic, StreamFraming::Sse, stream.as_bytes());
    read.into_iter().for_each(|event| writer.write(event, &mut out));
    assert!(String::from_utf8_lossy(&out).contains(r#""documentPage":{"documentIndex":1,"start":1,"end":4}"#));
    let back = streamed(WireFormat::Anthropic, WireFormat::Bedrock, StreamFraming::EventStream, &out);
    let reply = crate::message::parse::reply(ApiFormat::Anthropic, "text/event-stream", 200, back.as_bytes());
    assert_eq!(reply.blocks, [ContentBlock::text("B2 is free."), ContentBlock::text("Plain.")]);
    let data = back.lines().filter_map(|line| line.strip_prefix("data: "));
    let data = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    let cited = data.filter(|event| event["delta"]["type"] == "citations_delta" && event["index"] == 0);
    assert_eq!(cited.map(|event| event["delta"]["citation"].clone()).collect::<Vec<_>>(), *cites);
    let chat = streamed(WireFormat::OpenAiChat, WireFormat::Anthropic, StreamFraming::Sse, stream.as_bytes());
    assert_eq!(chat.matches(": X-Interflow-Translation-Loss: citations\n\n").count(), 1, "{chat}");
}

#[test]
fn calls_that_a_provider_answered_itself_are_left_out_of_a_history() {
    let anthropic = json!({ "model": "m", "max_tokens": 99, "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": [
            { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "lost" } },
            { "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] },
            { "type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "s", "input": {} },
            { "type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": [{ "type": "text", "text": "lost" }] },
            { "type": "text", "text": "It is 4." },
        ] },
        { "role": "user", "content": "thanks" },
    ] });
    let responses = json!({ "model": "m", "input": [
        { "role": "user", "content": "q" },
        { "type": "web_search_call", "id": "ws_1", "status": "completed", "action": { "type": "search", "query": "lost" } },
        { "type": "code_interpreter_call", "id": "ci_1", "code": "lost", "container_id": "c" },
        { "type": "file_search_call", "id": "fs_1", "queries": ["lost"] },
        { "type": "image_generation_call", "id": "ig_1", "result": "lost" },
        { "type": "mcp_call", "id": "mcp_1", "name": "look", "arguments": "{}", "output": "lost" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "It is 4." }] },
        { "role": "user", "content": "thanks" },
    ] });
    for (client, ask) in [(WireFormat::Anthropic, anthropic), (WireFormat::OpenAiResponses, responses)] {
        for format in WireFormat::ALL.into_iter().filter(|format| *format != client) {
            let (body, losses) = written(client, &target(format, "m"), ask.clone());
            let text = body.to_string();
            let is_kept = text.contains("It is 4.") && text.contains("thanks");
            assert!(
                is_kept && !["lost", "look", "web_search", "toolu"].iter().any(|word| text.contains(word)),
                "{body}"
            );
            assert_eq!(losses, "provider_tool_calls", "{client:?} to {format:?}");
        }
    }
    // The id of a client's own call may begin alike.
    let call = json!({ "id": "mcp_1", "type": "function", "function": { "name": "look", "arguments": "{}" } });
    let own = json!({ "model": "m", "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "mcp_1", "content": "kept" },
    ] });
    let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Anthropic, "m"), own);
    assert!(losses.is_empty() && body.to_string().contains("kept"), "{body}");
}

#[test]
fn documents_of_one_title_have_names_of_their_own_that_last() {
    let document = |title: &str| {
        let source = json!({ "type": "text", "media_type": "text/plain", "data": "words" });
        json!({ "type": "document", "title": title, "source": source })
    };
    fn names(body: &Value, out: &mut Vec<String>) {
        match body {
            Value::Object(members) => {
                out.extend(body["document"]["name"].as_str().map(str::to_owned));
                members.values().for_each(|inner| names(inner, out));
            }
            Value::Array(all) => all.iter().for_each(|inner| names(inner, out)),
            _ => {}
        }
    }
    let mut messages = vec![
        json!({ "role": "user", "content": [document("Report"), document("Report"), document("Report-2")] }),
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "f", "input": {} }] }),
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": [document("Report")] }] }),
    ];
    let mut expected = vec!["Report", "Report-1", "Report-2", "Report-3"];
    for _ in 0..2 {
        let ask = json!({ "model": "m", "max_tokens": 99, "messages": messages });
        let (body, _) = written(WireFormat::Anthropic, &target(WireFormat::Bedrock, "anthropic.claude"), ask);
        let mut found = Vec::new();
        names(&body["messages"], &mut found);
        assert_eq!(found, expected);
        messages.push(json!({ "role": "assistant", "content": "ok" }));
        messages.push(json!({ "role": "user", "content": [document("Report")] }));
        expected.push("Report-4");
    }
}

#[test]
fn documents_in_results_are_named_where_an_api_has_none() {
    let result = json!({ "functionResponse": { "name": "f", "response": { "output": "see" },
        "parts": [{ "inlineData": { "mimeType": "application/pdf", "data": "QUJD" } }] } });
    let ask = json!({ "contents": [
        { "role": "model", "parts": [{ "functionCall": { "name": "f", "args": {} } }] },
        { "role": "user", "parts": [result] },
    ] });
    for (format, is_lost) in [(WireFormat::Anthropic, false), (WireFormat::Cohere, true), (WireFormat::Ollama, true)] {
        let (body, losses) = written(WireFormat::Gemini, &target(format, "m"), ask.clone());
        assert_eq!(losses.contains("tool_result.document"), is_lost, "{losses}");
        assert_eq!(body.to_string().contains("QUJD"), !is_lost, "{body}");
    }
}

#[test]
fn many_results_of_google_find_their_calls() {
    let n = 60_000;
    let call = |i: usize| json!({ "functionCall": { "id": format!("c{i}"), "name": format!("f{i}"), "args": {} } });
    // Half of them name the call.
    let result = |i: usize| match i % 2 {
        0 => json!({ "functionResponse": { "id": format!("c{i}"), "name": "f", "response": { "output": "r" } } }),
        _ => json!({ "functionResponse": { "name": format!("f{i}"), "response": { "output": "r" } } }),
    };
    let (calls, results): (Vec<_>, Vec<_>) = (0..n).map(|i| (call(i), result(n - 1 - i))).unzip();
    let body = json!({ "contents": [{ "role": "model", "parts": calls }, { "role": "user", "parts": results }] });
    let chat = ChatRequest::parse(WireFormat::Gemini, body).unwrap();
    let ids = chat.request.messages[1].blocks.iter().map(|block| match block {
        ContentBlock::ToolResult { id, .. } => id.clone(),
        other => panic!("{other:?}"),
    });
    assert!(ids.eq((0..n).rev().map(|i| format!("c{i}"))), "each result has its call");
}
