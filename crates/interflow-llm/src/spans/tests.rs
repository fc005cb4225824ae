//! What is marked as text in each provider's bodies, and what is not.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn texts(json: &str) -> Vec<String> {
    let marked = mark_body(json.as_bytes(), true).unwrap();
    marked
        .spans
        .iter()
        .filter(|s| !matches!(s.kind, SpanKind::Media(_) | SpanKind::Name | SpanKind::Number | SpanKind::Signed))
        .map(|s| json[s.range.clone()].to_owned())
        .collect()
}

fn check(body: serde_json::Value, wanted: &[&str]) {
    let json = body.to_string();
    assert_eq!(texts(&json), wanted, "{json}");
}

#[test]
fn the_largest_limit_on_output_and_the_number_of_choices_are_read() {
    for (body, most, choices) in [
        (json!({"max_tokens": 9}), Some(9), 0),
        (json!({"max_tokens": 30_000, "max_completion_tokens": 5, "n": 4}), Some(30_000), 4),
        (json!({"max_output_tokens": 7, "metadata": {"max_tokens": 1, "n": 9}}), Some(7), 0),
        (json!({"generationConfig": {"maxOutputTokens": 8, "candidateCount": 3}}), Some(8), 3),
        (json!({"inferenceConfig": {"maxTokens": 6}}), Some(6), 0),
        (json!({"max_gen_len": 5}), Some(5), 0),
        (json!({"textGenerationConfig": {"maxTokenCount": 5}}), Some(5), 0),
        (json!({"options": {"num_predict": -1}}), None, 0),
        (json!({"max_tokens": 2.5e4, "n": 1, "best_of": 2}), Some(25_000), 2),
        (json!({"max_tokens": "many", "messages": [{"max_tokens": 4, "n": 4}]}), None, 0),
        (json!({"max_tokens": " 100000", "inferenceConfig": {"maxTokens": "6"}}), Some(100_000), 0),
        (json!({"max_tokens": 9, "n": " 90"}), Some(9), 90),
        (json!({"generation_config": {"max_output_tokens": 8, "candidate_count": "3"}}), Some(8), 3),
        (json!({"max_tokens": 9, "prompt": vec!["x"; 90]}), Some(9), 90),
        (json!({"prompt": [[1, 2], [3]], "n": 5}), None, 10),
        (json!({"n": 2, "prompt": [1, 2, 3]}), None, 2),
        (json!({"instances": [{"prompt": "a"}, {"prompt": "b"}], "parameters": {"sampleCount": 4}}), None, 8),
    ] {
        let text = body.to_string();
        let marked = facts(text.as_bytes()).unwrap();
        assert_eq!((marked.max_output, marked.choices), (most, choices), "{body}");
    }
}

#[test]
fn openai_chat() {
    check(
        json!({
            "model": "gpt-5", "stream": true, "user": "anna",
            "messages": [
                {"role": "system", "content": "sys"},
                {"role": "user", "name": "Anna_Berg", "content": [{"type": "text", "text": "part"}, {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}}]},
                {"role": "assistant", "content": null, "refusal": "no", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "result"}
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "desc", "parameters": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "description": "inner", "enum": ["one"]}}}}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "metadata": {"id": "m"}, "prediction": {"type": "content", "content": "guess"}
        }),
        &["anna", "sys", "Anna_Berg", "part", "no", "{}", "result", "desc", "inner", "one", "m", "guess"],
    );
}

#[test]
fn a_text_of_escapes_is_no_base64_and_base64_may_have_escapes() {
    let data = |data: &str| {
        let json = format!(
            r#"{{"messages":[{{"content":[{{"type":"document","source":{{"media_type":"text/plain","data":"{data}"}}}}]}}]}}"#
        );
        mark_body(json.as_bytes(), true).unwrap().spans.last().unwrap().kind.clone()
    };
    let text = "Anna Berg is here".chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<String>();
    assert_eq!(data(&text), SpanKind::Text);
    assert_eq!(data(&"\\u4f60\\u597d".repeat(9)), SpanKind::Text);
    for base64 in
        ["YW5uYS5iZXJnQGZpcm0uY29t", r"YW5uYS5iZXJnQGZpcm0uY29\u002bYQ\u003d\u003d", r"YW5uYS5iZXJnQGZpcm0uY29t\/YWFh"]
    {
        assert_eq!(data(base64), SpanKind::Base64Text, "{base64}");
    }
}

#[test]
fn values_in_the_query_of_an_address_are_text_but_its_signature_is_not() {
    let at = |url: &str| json!({"messages": [{"content": [{"type": "image_url", "image_url": {"url": url}}]}]});
    check(at("https://a/b.png?owner=anna%40firm.com&size=2"), &["anna%40firm.com", "2"]);
    check(at("https://a/b.png?X-Amz-Credential=AKIA&sig=abc&sv=2024-01-01&note&q="), &["note"]);
    check(at("https://a/b.png"), &[]);
}

#[test]
fn what_is_no_setting_among_settings_is_text() {
    let body = json!({
        "stream_options": {"include_usage": true, "x": "anna@firm.com"}, "include": ["reasoning.encrypted_content", "Anna Berg"],
        "logit_bias": {"1234": 1}, "modalities": ["text", "audio"],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "part", "cache_control": {"type": "ephemeral", "ttl": "5m", "note": "to anna@firm.com"}}]}]
    });
    let mut found = texts(&body.to_string());
    found.sort_unstable();
    assert_eq!(found, ["Anna Berg", "anna@firm.com", "part", "to anna@firm.com"]);
    assert_eq!(of_kind(r#"{"logit_bias":{"anna@firm.com":1,"50256":-100}}"#, &SpanKind::Name), ["anna@firm.com"]);
}

#[test]
fn long_numbers_beside_the_settings_are_marked() {
    let json = r#"{"zz":4111111111111111,"yy":4.111111111111111e15,"xx":411111111111111.1E+1,"seed":4111111111111111,
        "temperature":0.7000000000000001,"top_k":40,"max_tokens":1000000000,"created":1731234567,"expires_at":1731234567}"#;
    assert_eq!(of_kind(json, &SpanKind::Number), ["4111111111111111", "4.111111111111111e15", "411111111111111.1E+1"]);
}

#[test]
fn texts_of_every_block_of_converse_are_found() {
    check(
        json!({
            "system": [{"guardContent": {"text": {"text": "a"}}}],
            "messages": [{"role": "user", "content": [
                {"guardContent": {"text": {"text": "b"}}},
                {"searchResult": {"source": "c", "title": "d", "content": [{"text": "e"}]}},
                {"citationsContent": {"content": [{"text": "f"}], "citations": [{"title": "g", "sourceContent": [{"text": "h"}]}]}},
                {"toolResult": {"toolUseId": "t", "content": [{"searchResult": {"content": [{"text": "i"}]}}]}},
            ]}],
            "promptVariables": {"p": {"text": "j"}},
        }),
        &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
    );
}

#[test]
fn texts_beside_the_content_of_media_are_found() {
    let at = |url: &str| json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]});
    check(at("data:image/png;name=anna@firm.com;base64,iVBORw0KGgo="), &["name=anna@firm.com"]);
    check(at("data:image/png;base64,iVBORw0KGgo="), &[]);
    check(at("https://anna%40firm.com:pw@x.com/a.png"), &["anna%40firm.com:pw"]);
    check(at("https://x.com/a.png?sig=anna@firm.com"), &["anna@firm.com"]);
    check(at("https://x.com/a.png?sig=ab%2Bcd&X-Goog-Credential=a%40b.iam.gserviceaccount.com"), &[]);
}

#[test]
fn openai_responses() {
    check(
        json!({
            "model": "gpt-5", "instructions": "ins", "previous_response_id": "resp_1", "include": ["reasoning.encrypted_content"],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"},
                {"type": "function_call_output", "call_id": "c", "output": "out"},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "sum"}], "encrypted_content": "gAAAA"}
            ],
            "prompt": {"id": "pmpt_1", "variables": {"name": "Anna"}}, "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "description": "d"}}}
        }),
        &["ins", "hello", "{\\\"a\\\":1}", "out", "sum", "Anna", "d"],
    );
    check(json!({"model": "m", "input": "alone"}), &["alone"]);
    check(json!({"model": "m", "input": ["one", "two"]}), &["one", "two"]);
}

#[test]
fn anthropic() {
    check(
        json!({
            "model": "claude", "max_tokens": 5, "stream": true, "metadata": {"user_id": "u"},
            "system": [{"type": "text", "text": "sys", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "some words"}}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "QUJDREVGR0hJSktMTU5PUFFSU1RVVg=="}, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"id": "x", "type": "y"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "res"}]}]}
            ],
            "tools": [{"name": "f", "description": "desc", "input_schema": {"type": "object"}}]
        }),
        &["u", "sys", "T", "some words", "hm", "x", "y", "res", "desc"],
    );
    check(json!({"system": "sys", "messages": [{"role": "user", "content": "hi"}]}), &["sys", "hi"]);
    check(
        json!({"requests": [{"custom_id": "c", "params": {"model": "m", "messages": [{"role": "user", "content": "hi"}]}}]}),
        &["hi"],
    );
}

#[test]
fn gemini() {
    check(
        json!({
            "systemInstruction": {"parts": [{"text": "sys"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}, {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/x"}}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"name": "Anna"}}, "thoughtSignature": "abc"}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"name": "Berg"}}}]}
            ],
            "generationConfig": {"maxOutputTokens": 5, "responseMimeType": "text/plain", "stopSequences": ["END"]},
            "tools": [{"functionDeclarations": [{"name": "f", "description": "desc", "parameters": {"type": "OBJECT"}}]}]
        }),
        &["sys", "hi", "Anna", "Berg", "text/plain", "END", "desc"],
    );
}

#[test]
fn the_level_of_reasoning_and_the_tier_of_a_request_are_read() {
    for (body, effort, tier) in [
        (json!({"reasoning": {"effort": "xhigh"}, "service_tier": "flex"}), Some("xhigh"), Some("flex")),
        (json!({"reasoning_effort": "low"}), Some("low"), None),
        (json!({"output_config": {"effort": "max"}}), Some("max"), None),
        (json!({"generation_config": {"thinking_level": "high"}}), Some("high"), None),
        (json!({"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}), Some("low"), None),
        (json!({"messages": [{"content": [{"effort": "none"}]}], "x": {"service_tier": "y"}}), None, None),
    ] {
        let text = body.to_string();
        let marked = facts(text.as_bytes()).unwrap();
        let word = |range: Option<Range<usize>>| range.map(|range| text[range].to_owned());
        assert_eq!((word(marked.effort).as_deref(), word(marked.service_tier).as_deref()), (effort, tier), "{body}");
    }
}

#[test]
fn interactions() {
    check(
        json!({
            "model": "gemini-4-argon", "system_instruction": "sys", "previous_interaction_id": "v1_a", "store": false,
            "input": [
                {"type": "user_input", "content": [{"type": "text", "text": "part"},
                    {"type": "document", "mime_type": "application/pdf", "uri": "https://files.test/v1beta/files/abc"}]},
                {"type": "thought", "signature": "c2lnbmF0dXJl", "summary": [{"type": "text", "text": "summed up"}]},
                {"type": "function_call", "id": "c1", "name": "ls", "arguments": {"of": "call"}},
                {"type": "function_result", "call_id": "c1", "name": "ls", "result": {"name": "anna"}},
                {"type": "function_result", "call_id": "c1", "name": "ls", "result": [{"type": "text", "text": "inner"}]}
            ],
            "tools": [{"type": "function", "name": "ls", "description": "desc", "parameters": {"type": "object"}}],
            "generation_config": {"thinking_level": "high", "tool_choice": "auto", "stop_sequences": ["stop"]},
            "service_tier": "flex"
        }),
        &["sys", "part", "summed up", "call", "anna", "inner", "desc", "stop"],
    );
    check(json!({"model": "m", "input": {"type": "text", "text": "alone"}}), &["alone"]);
    let marked = mark_body(
        br#"{"model":"m","input":{"type":"image","mime_type":"image/png","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"}}"#,
        true,
    );
    assert!(matches!(marked.unwrap().spans[0].kind, SpanKind::Media(_)));
}

#[test]
fn bedrock_ollama_cohere() {
    check(
        json!({
            "system": [{"text": "sys"}],
            "messages": [{"role": "user", "content": [
                {"text": "hi"}, {"toolResult": {"toolUseId": "t", "content": [{"json": {"name": "Anna"}}, {"text": "res"}], "status": "success"}},
                {"toolUse": {"toolUseId": "t", "name": "f", "input": {"name": "Berg"}}}]}],
            "toolConfig": {"tools": [{"toolSpec": {"name": "f", "description": "desc", "inputSchema": {"json": {"type": "object"}}}}]},
            "inferenceConfig": {"maxTokens": 5}
        }),
        &["sys", "hi", "Anna", "res", "Berg", "desc"],
    );
    check(
        json!({"model": "m", "stream": false, "options": {"num_predict": 3}, "system": "sys", "prompt": "p",
            "messages": [{"role": "assistant", "content": "c", "tool_calls": [{"function": {"name": "f", "arguments": {"name": "Anna"}}}]}]}),
        &["sys", "p", "c", "Anna"],
    );
    check(
        json!({"messages": [{"content": [{"document": {"format": "txt", "name": "CV of Anna", "source": {"text": "t"}}}]}]}),
        &["CV of Anna", "t"],
    );
    check(
        json!({"message": "hi", "chat_history": [{"role": "USER", "message": "old"}], "documents": [{"id": "d", "title": "T"}]}),
        &["hi", "old", "d", "T"],
    );
}

#[test]
fn media_are_classified_and_can_be_removed() {
    let base64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB";
    let all = [
        (
            json!({"messages": [{"content": [{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{base64}")}}]}]}),
            MediaKind::Image,
            "{\"type\":\"text\",\"text\":\"[image removed]\"}",
        ),
        (
            json!({"input": [{"content": [{"type": "input_image", "image_url": format!("data:image/png;base64,{base64}")}]}]}),
            MediaKind::Image,
            "{\"type\":\"input_text\",\"text\":\"[image removed]\"}",
        ),
        (
            json!({"messages": [{"content": [{"type": "input_audio", "input_audio": {"data": base64, "format": "wav"}}]}]}),
            MediaKind::Audio,
            "{\"type\":\"text\",\"text\":\"[audio removed]\"}",
        ),
        (
            json!({"messages": [{"content": [{"source": {"data": base64, "type": "base64", "media_type": "application/pdf"}, "type": "document"}]}]}),
            MediaKind::Document,
            "{\"type\":\"text\",\"text\":\"[document removed]\"}",
        ),
        (
            json!({"messages": [{"content": [{"source": {"data": base64, "type": "base64", "media_type": "image/png"}, "type": "image"}]}]}),
            MediaKind::Image,
            "{\"type\":\"text\",\"text\":\"[image removed]\"}",
        ),
        (
            json!({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": base64}}]}]}),
            MediaKind::Image,
            "{\"text\":\"[image removed]\"}",
        ),
        (
            json!({"messages": [{"content": [{"image": {"format": "png", "source": {"bytes": base64}}}]}]}),
            MediaKind::Image,
            "{\"text\":\"[image removed]\"}",
        ),
        (json!({"messages": [{"role": "user", "images": [base64, base64]}]}), MediaKind::Image, ""),
    ];
    for (body, kind, stand_in) in all {
        let json = body.to_string();
        let marked = mark_body(json.as_bytes(), true).unwrap();
        let [TextSpan { kind: SpanKind::Media(media), .. }, ..] = &marked.spans[..] else {
            panic!("{json}: {marked:?}")
        };
        assert_eq!((media.kind, media.stand_in.as_str()), (kind, stand_in), "{json}");
        let slashed = json.replace('/', r"\/");
        let marked_slashed = mark_body(slashed.as_bytes(), true).unwrap();
        let medium = |span: &TextSpan| if let SpanKind::Media(medium) = &span.kind { Some(medium.kind) } else { None };
        assert_eq!(marked_slashed.spans.iter().find_map(medium), Some(kind), "{slashed}");
        let without = format!("{}{stand_in}{}", &json[..media.whole.start], &json[media.whole.end..]);
        let value: serde_json::Value = serde_json::from_str(&without).unwrap();
        assert!(!value.to_string().contains(base64), "{value}");
    }
}

#[test]
fn base64_text_files_are_treated_as_text() {
    let base64 = "TXkgbmFtZSBpcyBBbm5hIEJlcmcuIE15";
    for body in [
        json!({"contents": [{"parts": [{"inlineData": {"data": base64, "mimeType": "text/plain"}}]}]}),
        json!({"messages": [{"content": [{"document": {"source": {"bytes": base64}, "format": "txt", "name": "n"}}]}]}),
        json!({"contents": [{"parts": [{"inlineData": {"data": base64, "mimeType": "application/yaml; charset=utf-8"}}]}]}),
        json!({"input": [{"content": [{"type": "input_file", "file_data": format!("data:text/csv;base64,{base64}")}]}]}),
    ] {
        let json = body.to_string();
        let marked = mark_body(json.as_bytes(), true).unwrap();
        let found: Vec<_> =
            marked.spans.iter().filter(|s| s.kind == SpanKind::Base64Text).map(|s| &json[s.range.clone()]).collect();
        assert_eq!(found, [base64], "{json}");
    }
}

#[test]
fn request_facts_are_extracted() {
    let json = r#"{"model":"m","stream":true,"max_tokens":9,"previous_response_id":"r","messages":[{"content":"first"},{"content":"second"}]}"#;
    let marked = mark_body(json.as_bytes(), false).unwrap();
    assert_eq!(&json[marked.model.unwrap()], "m");
    assert_eq!(marked.continues, marked.previous_response);
    assert_eq!(&json[marked.continues.unwrap()], "r");
    assert_eq!(&json[marked.first_message.unwrap()], "{\"content\":\"first\"}");
    for (json, continues) in [
        (r#"{"previous_response_id":"r","conversation":"c"}"#, Some("r")),
        (r#"{"conversation":{"id":"c"},"previous_response_id":"r"}"#, Some("r")),
        (r#"{"previous_response_id":"r","conversation":{"id":"c"}}"#, Some("r")),
        (r#"{"conversation":"c"}"#, Some("c")),
        (r#"{"conversation":{"id":"c"}}"#, Some("c")),
        (r#"{"id":"i","metadata":{"id":"c","conversation":"c"}}"#, None),
    ] {
        let continued = mark_body(json.as_bytes(), false).unwrap().continues;
        assert_eq!(continued.map(|range| &json[range]), continues, "{json}");
    }
    assert_eq!((marked.stream, marked.max_output, marked.text_bytes), (Some(true), Some(9), 11));
    let json = r#"{"input":"only","user":"u"}"#;
    let marked = mark_body(json.as_bytes(), false).unwrap();
    assert_eq!(&json[marked.first_message.unwrap()], "\"only\"");
    assert_eq!(marked.spans.len(), 1, "metadata is left out");
}

fn of_kind(json: &str, kind: &SpanKind) -> Vec<String> {
    let marked = mark_body(json.as_bytes(), true).unwrap();
    marked.spans.into_iter().filter(|s| s.kind == *kind).map(|s| json[s.range].to_owned()).collect()
}

#[test]
fn user_defined_keys_and_numbers_are_marked() {
    let json = json!({
        "max_tokens": 4111, "seed": 5,
        "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"anna@firm.com": {"card": 4111111111111111u64}}}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"minimum": 7}}}}],
        "my_extension": {"ssn": 536228726, "id": "anna", "n": true}, "temperature": 0.5
    })
    .to_string();
    assert_eq!(of_kind(&json, &SpanKind::Name), ["anna@firm.com", "card", "ssn", "id", "n"]);
    assert_eq!(of_kind(&json, &SpanKind::Number), ["4111111111111111", "536228726"]);
    assert_eq!(texts(&json), ["anna"], "what no API knows is text whatever it is called");
}

#[test]
fn members_for_numbers_and_tools_are_text_where_a_request_has_a_text_there() {
    for name in ["usage", "step_usage", "usageMetadata", "logprobs", "top_logprobs", "logprobsResult", "timings"]
        .into_iter()
        .chain(["embedding", "embeddings", "headers", "user_location", "allowed_domains", "authorization"])
    {
        check(json!({ name: "a@firm.com", "messages": [] }), &["a@firm.com"]);
        check(json!({ name: {"x": ["a@firm.com"], "n": 0.5} }), &["a@firm.com"]);
        check(json!({"messages": [{"role": "user", "content": "x", name: "a@firm.com"}]}), &["x", "a@firm.com"]);
        let part = json!({"type": "text", "text": "x", name: [{"y": "a@firm.com"}], "tools": [{ name: "b@firm.com" }]});
        check(json!({"messages": [{"content": [part]}]}), &["x", "a@firm.com", "b@firm.com"]);
    }
    let tool = json!({"type": "mcp", "server_url": "https://a.test", "authorization": "t0k", "headers": {"X-A": "a@firm.com"}});
    check(json!({"input": "x", "tools": [tool]}), &["x"]);
    check(json!({"session": {"tools": [tool]}, "mcp_servers": [{"authorization_token": "t0k"}]}), &[]);
    check(json!({"input": "x", "web_search_options": {"user_location": {"city": "Oslo"}}}), &["x"]);
    let answer = json!({"usage": {"note": "x"}, "data": [{"embedding": "AAAA"}]}).to_string();
    assert!(mark_response(answer.as_bytes()).unwrap().spans.is_empty());
    assert_eq!(of_kind(&json!({"usage": {"card": 4111111111111111u64}}).to_string(), &SpanKind::Number).len(), 1);
}

#[test]
fn the_tokens_of_an_answer_are_left_out_of_it() {
    let token = json!([{"token": "ZED", "logprob": -0.1, "bytes": [90], "top_logprobs": [{"token": "A"}]}]);
    let arguments = json!([{"type": "tool_use", "name": "f", "input": {"logprobs": ["stays"]}}]);
    let empty = |full: &serde_json::Value| if full.is_array() { json!([]) } else { json!(null) };
    let shape = |list: &serde_json::Value, object: &serde_json::Value| {
        [
            json!({"choices": [{"message": {"content": arguments}, "logprobs": object}]}),
            json!({"output": [{"content": [{"type": "output_text", "text": "ZED", "logprobs": list}]}]}),
            json!({"candidates": [{"logprobsResult": object, "avgLogprobs": -0.5}], "logprobs": list}),
            json!({"type": "response.output_text.delta", "delta": "Z", "logprobs": list}),
        ]
    };
    let object = json!({"content": token, "top_logprobs": [{"Z": -1}]});
    let bare = shape(&empty(&token), &empty(&object));
    for (full, bare) in shape(&token, &object).iter().zip(bare) {
        for marked in [mark_response(full.to_string().as_bytes()), mark_event(full.to_string().as_bytes(), None)] {
            let rest = marked.unwrap().without_logprobs(full.to_string().as_bytes()).unwrap();
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&rest).unwrap(), bare, "{full}");
            assert_eq!(mark_response(&rest).unwrap().without_logprobs(&rest), None);
        }
    }
}

#[test]
fn a_second_member_for_the_model_makes_it_unclear() {
    for (body, is_unclear) in [
        (r#"{"model":"a","messages":[{"model":"b"}]}"#, false),
        (r#"{"model":"a","model":"b"}"#, true),
        (r#"{"model":"a","Model":"b"}"#, true),
        (r#"{"MODEL":"b","model":"a"}"#, true),
        (r#"{"model":"a","mod\u0065l":"b"}"#, true),
    ] {
        assert_eq!(facts(body.as_bytes()).unwrap().is_model_unclear, is_unclear, "{body}");
    }
}

#[test]
fn routing_fields_are_structure_and_lookalikes_are_text() {
    check(
        json!({"prompt_cache_key": "019aab12-7c3d", "user": "u-8f3a", "safety_identifier": "anna.berg1@firm.com", "session_id": "s1",
            "input": "hi", "tools": [{"type": "web_search", "filters": {"allowed_domains": ["anna-berg.com"]}, "allowed_domains": ["x.com"],
            "user_location": {"type": "approximate", "city": "Oslo", "country": "NO"}}]}),
        &["anna.berg1@firm.com", "hi"],
    );
    check(
        json!({"metadata": {"user_id": "user_ab12_account__session_9f-1", "note": "Anna"}, "messages": []}),
        &["Anna"],
    );
}

#[test]
fn signed_and_encrypted_content_is_not_marked_for_editing() {
    let json = json!({"messages": [{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Anna", "signature": "EqQBCgIYAhIM"},
        {"type": "thinking", "thinking": "unsigned", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "QUJDREVGR0hJSktMTU5PUFFSU1RVVg=="},
        {"reasoningContent": {"reasoningText": {"text": "Berg", "signature": "EqQBCgIYAhIM"}}}]}]})
    .to_string();
    assert_eq!(of_kind(&json, &SpanKind::Signed), ["Anna", "Berg"]);
    assert_eq!(texts(&json), ["unsigned"]);
    assert_eq!(mark_body(json.as_bytes(), true).unwrap().spans.len(), 3);
    for delta in [
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "a"}}),
        json!({"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "a"}}}),
    ] {
        assert_eq!(channels(&[delta])[0].2, SpanKind::Signed);
    }
}

#[test]
fn fixed_prompts_are_distinguished_from_the_conversation() {
    for body in [
        json!({"messages": [{"content": "sys", "role": "system"}, {"role": "user", "content": "no"}], "tools": [{"function": {"description": "d"}}]}),
        json!({"system": [{"type": "text", "text": "sys"}], "messages": [{"role": "user", "content": "no"}], "tools": [{"description": "d"}]}),
        json!({"instructions": "sys", "input": [{"role": "user", "content": "no"}, {"role": "developer", "content": [{"type": "input_text", "text": "d"}]}]}),
        json!({"systemInstruction": {"parts": [{"text": "sys"}]}, "contents": [{"role": "user", "parts": [{"text": "no"}]}], "tools": [{"functionDeclarations": [{"description": "d"}]}]}),
    ] {
        let json = body.to_string();
        let marked = mark_body(json.as_bytes(), true).unwrap();
        for span in &marked.spans {
            assert_eq!(span.fixed, &json[span.range.clone()] != "no", "{json}: {span:?}");
        }
    }
}

fn channels(events: &[serde_json::Value]) -> Vec<(String, Option<TextChannel>, SpanKind)> {
    let mut all = Vec::new();
    for e in events {
        let json = e.to_string();
        let marked = mark_event(json.as_bytes(), None).unwrap();
        let texts = marked.spans.into_iter().filter(|s| !matches!(s.kind, SpanKind::Name | SpanKind::Number));
        all.extend(texts.map(|s| (json[s.range].to_owned(), s.channel, s.kind)));
    }
    all
}

#[test]
fn deltas_of_one_text_share_a_channel() {
    let chat =
        |choice: u32, delta| json!({"object": "chat.completion.chunk", "choices": [{"index": choice, "delta": delta}]});
    let call = |index: u32, arguments| json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]});
    let found = channels(&[
        chat(0, json!({"content": "a"})),
        chat(1, json!({"content": "b"})),
        chat(0, json!({"content": "c"})),
        chat(0, json!({"reasoning_content": "d"})),
        chat(0, call(0, "e")),
        chat(0, call(1, "f")),
        chat(0, call(0, "g")),
    ]);
    let id = |i: usize| found[i].1.unwrap().id;
    assert_eq!(id(0), id(2));
    assert_eq!(id(4), id(6));
    let distinct: std::collections::HashSet<_> = [0, 1, 3, 4, 5].map(id).into();
    assert_eq!(distinct.len(), 5);
    assert_eq!((&found[0].2, &found[4].2), (&SpanKind::Text, &SpanKind::Json));
    assert_eq!(found[0].1.unwrap().group, found[4].1.unwrap().group);
    assert_ne!(found[0].1.unwrap().group, found[1].1.unwrap().group);
}

#[test]
fn deltas_of_every_provider_are_recognised() {
    for (event, texts) in [
        (json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}), vec!["a"]),
        (
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a"}}),
            vec!["{\\\"a"],
        ),
        (
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "a"}}),
            vec!["a"],
        ),
        (json!({"item_id": "i", "output_index": 0, "delta": "a", "type": "response.output_text.delta"}), vec!["a"]),
        (json!({"delta": "a", "type": "response.function_call_arguments.delta", "output_index": 1}), vec!["a"]),
        (json!({"candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}}]}), vec!["a"]),
        (json!({"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{\"a"}}}), vec!["{\\\"a"]),
        (json!({"model": "m", "message": {"role": "assistant", "content": "a"}, "done": false}), vec!["a"]),
        (json!({"model": "m", "response": "a", "done": false}), vec!["a"]),
        (json!({"choices": [{"index": 0, "text": "a"}]}), vec!["a"]),
        (
            json!({"candidates": [{"content": {"parts": [{"functionCall": {"args": {"partialArgs": [{"stringValue": "b"}]},
                "partialArgs": [{"jsonPath": "$.x", "stringValue": "a"}]}}]}}]}),
            vec!["a"],
        ),
        (json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "a"}}}}), vec!["a"]),
    ] {
        let found = channels(std::slice::from_ref(&event));
        let deltas: Vec<_> = found.iter().filter(|f| f.1.is_some()).map(|f| f.0.as_str()).collect();
        assert_eq!(deltas, texts, "{event}");
    }
}

#[test]
fn whole_texts_in_events_are_not_deltas() {
    for event in [
        json!({"type": "response.output_text.done", "output_index": 0, "text": "whole"}),
        json!({"type": "response.completed", "response": {"output": [{"content": [{"type": "output_text", "text": "whole"}]}]}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "whole"}}),
        json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {"text": 1, "a": "whole"}}}]}}]}),
        json!({"message": {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "whole"}}}]}}),
    ] {
        let found = channels(std::slice::from_ref(&event));
        assert_eq!(found.iter().map(|f| (f.0.as_str(), f.1)).collect::<Vec<_>>(), [("whole", None)], "{event}");
    }
}

#[test]
fn end_of_a_text_is_reported() {
    let ended = |e: serde_json::Value| mark_event(e.to_string().as_bytes(), None).unwrap().ended;
    let group =
        |e: serde_json::Value| mark_event(e.to_string().as_bytes(), None).unwrap().spans[0].channel.unwrap().group;
    let delta = json!({"type": "content_block_delta", "index": 1, "delta": {"text": "a"}});
    assert_eq!(ended(json!({"type": "content_block_stop", "index": 1})), [EndedChannels::Group(group(delta))]);
    let chunk = |index: u32, reason: Option<&str>| json!({"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": reason}]});
    assert_eq!(ended(chunk(1, Some("stop"))), [EndedChannels::Group(group(chunk(1, None)))]);
    assert_ne!(group(chunk(0, None)), group(chunk(1, None)));
    assert_eq!(ended(chunk(0, None)), []);
    assert_eq!(ended(json!({"type": "message_stop"})), [EndedChannels::All]);
    assert_eq!(ended(json!({"response": "", "done": true})), [EndedChannels::All]);
    assert_eq!(ended(json!({"type": "ping"})), []);
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"});
    assert_eq!(
        ended(json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "a"})),
        [EndedChannels::Group(group(text))]
    );
}

#[test]
fn invalid_json_is_refused() {
    for body in ["", "<html>", "{\"a\":", "{\"messages\":[}"] {
        assert!(mark_body(body.as_bytes(), true).is_err(), "{body}");
    }
}

proptest! {
    #[test]
    fn spans_are_in_order_and_inside_of_strings(keys in prop::collection::vec("messages|content|text|input|arguments|data|images|type|metadata|response|delta|choices", 1..12), text in "[ -~é\\PC]{0,40}", events: bool) {
        let mut value = json!({"text": text.clone(), "data": "QUJDREVGR0hJSktMTU5PUFFSU1RVVg=="});
        for (i, key) in keys.iter().enumerate() {
            value = if i % 2 == 0 { json!({key.clone(): [value, text.clone()]}) } else { json!({key.clone(): value, "content": text.clone()}) };
        }
        let json = value.to_string();
        let marked = if events { mark_event(json.as_bytes(), None) } else { mark_body(json.as_bytes(), true) }.unwrap();
        let mut at = 0;
        for span in &marked.spans {
            prop_assert!(span.range.start >= at && span.range.end <= json.len());
            if span.kind != SpanKind::Number {
                prop_assert_eq!(&json[span.range.end..=span.range.end], "\"");
            }
            at = span.range.end;
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = mark_body(&bytes, true);
        let _ = mark_event(&bytes, Some("x"));
        let _ = multipart::parse(&bytes, "x");
    }
}

#[test]
fn a_body_of_millions_of_texts_is_refused() {
    let many = |n: usize| format!("{{\"input\": [{}\"x\"]}}", "\"x\",".repeat(n));
    assert_eq!(mark_body(many(999).as_bytes(), true).unwrap().spans.len(), 1000);
    assert!(mark_body(many(2 << 20).as_bytes(), true).unwrap_err().to_string().contains("too many"));
}

#[test]
fn media_have_a_weight_by_their_kind() {
    let data = "A".repeat(400_000);
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
    for (part, expected) in [
        (image.clone(), 1_000),
        (json!({"type": "image_url", "image_url": {"url": "https://a.test/a.png"}}), 1_000),
        (json!({"type": "input_image", "image_url": "https://a.test/a.png"}), 1_000),
        (json!({"type": "image", "source": {"type": "url", "url": "https://a.test/a.png"}}), 1_000),
        (
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data.clone()}}),
            1_000,
        ),
        (json!({"inlineData": {"data": data.clone(), "mimeType": "image/png"}}), 1_000),
        (json!({"type": "input_audio", "input_audio": {"data": data.clone(), "format": "wav"}}), 300),
        (
            json!({"type": "file", "file": {"filename": "a.pdf",
                "file_data": format!("data:application/pdf;base64,{data}")}}),
            3_000,
        ),
        (json!({"type": "text", "text": "four"}), 0),
    ] {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": [part]}]}).to_string();
        let facts = facts(body.as_bytes()).unwrap();
        assert_eq!(facts.media_tokens, expected, "{}", &body[..200.min(body.len())]);
    }
    let two =
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "four"}, image.clone(), image]}]});
    assert_eq!(facts(two.to_string().as_bytes()).unwrap().estimated_tokens(), 2_001);
}

#[test]
fn facts_only_mode_extracts_the_same_facts_as_marking() {
    for body in [
        r#"{"model":"m","stream":true,"max_tokens":7,"messages":[{"role":"user","content":"hello"},{"role":"user","content":[{"type":"text","text":"x"}]}]}"#,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"SGVsbG8gd29ybGQsIGhlbGxv"}}]}]}"#,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgoAAAANSUhEUgAAAAUA"}}]}]}"#,
    ] {
        let (all, facts) = (mark_body(body.as_bytes(), false).unwrap(), facts(body.as_bytes()).unwrap());
        assert_eq!(facts, MarkedText { spans: Vec::new(), ..all }, "{body}");
    }
    // Texts whose positions are not kept use no memory, however many there are.
    let many = format!("{{\"model\": \"m\", \"input\": [{}\"x\"]}}", "\"x\",".repeat(2 << 20));
    assert_eq!(facts(many.as_bytes()).unwrap().text_bytes, (2 << 20) + 1);
}
