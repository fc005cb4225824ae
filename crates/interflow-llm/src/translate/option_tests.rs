//! Tests of what a request has beside its messages: settings that the upstream has too are carried, under its names.

use serde_json::{Value, json};

use super::tests::{parsed_reply, target, written};
use super::*;

fn at<'t>(format: WireFormat, provider: Provider) -> Target<'t> {
    Target { provider, is_openai: provider == Provider::OpenAi, ..target(format, "gpt-6-sol") }
}

fn chat(members: Value) -> Value {
    with(json!({ "messages": [{ "role": "user", "content": "q" }] }), members)
}

fn responses(members: Value) -> Value {
    with(json!({ "input": "q" }), members)
}

fn with(mut body: Value, members: Value) -> Value {
    let members = members.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(members);
    body
}

#[test]
fn what_both_apis_of_openai_have_is_carried_between_them() {
    let shared = json!({
        "prompt_cache_key": "k", "prompt_cache_options": { "mode": "explicit", "ttl": "30m" },
        "prompt_cache_retention": "24h", "safety_identifier": "s", "user": "u", "service_tier": "flex",
        "metadata": { "team": "blue" }, "store": true, "moderation": { "model": "omni-moderation-latest" },
    });
    let mut ask = chat(shared.clone());
    (ask["verbosity"], ask["stream"]) = ("low".into(), true.into());
    ask["stream_options"] = json!({ "include_obfuscation": false });
    let to = at(WireFormat::OpenAiResponses, Provider::OpenAi);
    let (body, losses) = written(WireFormat::OpenAiChat, &to, ask);
    for (name, value) in shared.as_object().unwrap() {
        assert_eq!(&body[name], value, "{name}: {body}");
    }
    assert_eq!((&body["text"]["verbosity"], losses.as_str()), (&"low".into(), ""));
    assert_eq!(body["stream_options"], json!({ "include_obfuscation": false }));

    let format = json!({ "type": "json_object" });
    let mut ask = responses(shared.clone());
    ask["text"] = json!({ "verbosity": "high", "format": format });
    (ask["stream"], ask["stream_options"]) = (true.into(), json!({ "include_obfuscation": false }));
    let to = at(WireFormat::OpenAiChat, Provider::OpenAi);
    let (body, losses) = written(WireFormat::OpenAiResponses, &to, ask);
    for (name, value) in shared.as_object().unwrap() {
        assert_eq!(&body[name], value, "{name}: {body}");
    }
    assert_eq!((&body["verbosity"], &body["response_format"], losses.as_str()), (&"high".into(), &format, ""));
    assert_eq!(body["stream_options"], json!({ "include_usage": true, "include_obfuscation": false }));

    // What only the Responses API knows of them.
    let ask =
        responses(json!({ "service_tier": "ultrafast", "prompt_cache_options": { "ttl": "12h", "prewarm": true } }));
    let (body, losses) = written(WireFormat::OpenAiResponses, &to, ask);
    assert_eq!((body.get("service_tier"), &body["prompt_cache_options"]), (None, &json!({})));
    assert_eq!(losses, "prompt_cache_options.prewarm, prompt_cache_options.ttl, service_tier");
}

#[test]
fn what_is_openais_alone_does_not_go_to_other_servers_with_its_api() {
    let ask = responses(json!({
        "prompt_cache_key": "k", "prompt_cache_options": { "ttl": "30m" }, "safety_identifier": "s", "user": "u",
        "service_tier": "flex", "metadata": { "team": "blue" }, "store": false, "text": { "verbosity": "low" },
        "stream": true, "stream_options": { "include_obfuscation": false },
    }));
    let to = Target { is_openai: false, upstream: "groq", ..at(WireFormat::OpenAiChat, Provider::OpenAi) };
    let (body, losses) = written(WireFormat::OpenAiResponses, &to, ask);
    let mut names: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["messages", "metadata", "model", "service_tier", "stream", "stream_options", "user"], "{body}");
    assert_eq!(body["stream_options"], json!({ "include_usage": true }));
    assert_eq!(losses, "prompt_cache_options, text.verbosity");
}

#[test]
fn a_request_is_stored_only_where_its_client_says_so() {
    let to = at(WireFormat::OpenAiResponses, Provider::OpenAi);
    for (ask, stored) in [(json!({}), false), (json!({ "store": false }), false), (json!({ "store": true }), true)] {
        assert_eq!(written(WireFormat::OpenAiChat, &to, chat(ask)).0["store"], stored);
    }
}

#[test]
fn tiers_of_service_and_metadata_take_the_form_of_each_api() {
    let metadata = json!({ "team": "blue" });
    let ask = |tier: &str| chat(json!({ "service_tier": tier, "metadata": metadata }));
    for (format, provider, tier, pointer, expected, lost) in [
        (WireFormat::Anthropic, Provider::Anthropic, "default", "/service_tier", json!("standard_only"), "metadata"),
        (WireFormat::Anthropic, Provider::Anthropic, "auto", "/service_tier", Value::Null, "metadata"),
        (WireFormat::Anthropic, Provider::Anthropic, "flex", "/service_tier", Value::Null, "metadata, service_tier"),
        (WireFormat::Gemini, Provider::Gemini, "flex", "/serviceTier", json!("flex"), "metadata"),
        (WireFormat::Gemini, Provider::Vertex, "default", "/serviceTier", json!("standard"), ""),
        (WireFormat::Gemini, Provider::Vertex, "default", "/labels", metadata.clone(), ""),
        (WireFormat::Bedrock, Provider::Bedrock, "priority", "/serviceTier", json!({ "type": "priority" }), ""),
        (WireFormat::Bedrock, Provider::Bedrock, "auto", "/requestMetadata", metadata.clone(), ""),
        (WireFormat::Mistral, Provider::Mistral, "auto", "/metadata", metadata.clone(), ""),
        (WireFormat::Cohere, Provider::Cohere, "flex", "/service_tier", Value::Null, "metadata, service_tier"),
        (WireFormat::Ollama, Provider::Ollama, "auto", "/metadata", Value::Null, "metadata"),
    ] {
        let (body, losses) = written(WireFormat::OpenAiChat, &at(format, provider), ask(tier));
        let found = body.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!((found, losses.as_str()), (expected, lost), "{format:?} {tier} {pointer}: {body}");
    }
    let ask = json!({ "service_tier": "standard_only", "messages": [{ "role": "user", "content": "q" }] });
    let to = at(WireFormat::OpenAiResponses, Provider::OpenAi);
    let (body, losses) = written(WireFormat::Anthropic, &to, ask);
    assert_eq!((&body["service_tier"], losses.as_str()), (&"default".into(), ""));
    // Names and values that the API would refuse.
    let odd = chat(json!({ "metadata": { "Team": "Blue!", "n": 1 } }));
    for (format, provider) in [(WireFormat::Gemini, Provider::Vertex), (WireFormat::Bedrock, Provider::Bedrock)] {
        assert_eq!(written(WireFormat::OpenAiChat, &at(format, provider), odd.clone()).1, "metadata");
    }
}

#[test]
fn a_lone_system_prompt_is_the_users_words_where_an_api_demands_them() {
    let asks = [
        (WireFormat::OpenAiChat, json!({ "messages": [{ "role": "system", "content": "Tell a joke." }] })),
        (
            WireFormat::OpenAiChat,
            json!({ "messages": [
            { "role": "developer", "content": "Tell a joke." }, { "role": "user", "content": "" }] }),
        ),
        (WireFormat::OpenAiResponses, json!({ "instructions": "Tell a joke.", "input": [] })),
        (WireFormat::OpenAiResponses, json!({ "input": [{ "role": "system", "content": "Tell a joke." }] })),
    ];
    for (client, ask) in asks {
        for (format, pointer) in [
            (WireFormat::Anthropic, "/messages/0/content/0/text"),
            (WireFormat::Bedrock, "/messages/0/content/0/text"),
            (WireFormat::Gemini, "/contents/0/parts/0/text"),
            (WireFormat::Cohere, "/messages/0/content"),
            (WireFormat::Mistral, "/messages/0/content"),
            (WireFormat::OpenAiResponses, "/input/0/content/0/text"),
        ] {
            let (body, losses) = written(client, &target(format, "m"), ask.clone());
            let said = body.pointer(pointer).cloned().unwrap_or_default();
            assert_eq!((said, losses.as_str()), ("Tell a joke.".into(), "messages.system"), "{format:?} {ask}: {body}");
            assert!(!body.to_string().contains("system"), "said once: {body}");
        }
        for format in [WireFormat::OpenAiChat, WireFormat::Ollama] {
            let (body, losses) = written(client, &target(format, "m"), ask.clone());
            assert_eq!((&body["messages"][0]["role"], losses.as_str()), (&"system".into(), ""), "{format:?}: {body}");
        }
    }
}

#[test]
fn tokens_written_to_a_cache_are_told_to_every_client() {
    let usage = json!({ "input_tokens": 4, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 5, "output_tokens": 1 });
    let reply = json!({ "type": "message", "content": [{ "type": "text", "text": "a" }], "usage": usage });
    let reply = parsed_reply(WireFormat::Anthropic, reply.to_string().as_bytes());
    let details = json!({ "cached_tokens": 6, "cache_write_tokens": 5 });
    let chat = whole_reply(WireFormat::OpenAiChat, &super::tests::head(), &reply);
    assert_eq!((&chat["usage"]["prompt_tokens"], &chat["usage"]["prompt_tokens_details"]), (&15.into(), &details));
    let responses = whole_reply(WireFormat::OpenAiResponses, &super::tests::head(), &reply);
    assert_eq!(responses["usage"]["input_tokens_details"], details);
}

#[test]
fn thoughts_are_asked_for_where_the_model_decides_how_much_to_think() {
    let ask = |model| {
        let to = Target { model, ..at(WireFormat::OpenAiResponses, Provider::OpenAi) };
        let body = chat(json!({ "max_tokens": 50, "thinking": { "type": "adaptive" } }));
        written(WireFormat::Anthropic, &to, body)
    };
    for model in ["gpt-6.1-sol", "a-model-that-the-catalog-lacks"] {
        let (body, losses) = ask(model);
        assert_eq!(body["reasoning"], json!({ "summary": "auto" }), "{model}");
        assert_eq!(body["include"], json!(["reasoning.encrypted_content"]), "{model}");
        assert!(losses.is_empty(), "{model}: {losses:?}");
    }
    assert_eq!(ask("gpt-4o").0.get("reasoning"), None);
}

#[test]
fn messages_without_content_are_left_out_and_a_request_of_nothing_else_is_refused() {
    let user = |content: Value| json!({ "role": "user", "content": content });
    for body in [
        json!({ "messages": [] }),
        json!({ "messages": [user("".into())] }),
        json!({ "messages": [user(json!([]))] }),
        json!({ "messages": [user(Value::Null), { "role": "assistant", "content": " " }] }),
    ] {
        for client in [WireFormat::OpenAiChat, WireFormat::Anthropic] {
            let refused = ChatRequest::parse(client, body.clone()).unwrap_err();
            assert!(refused.contains("none with content"), "{body}: {refused}");
        }
    }
    for input in [json!(""), json!([]), json!([user("".into())])] {
        assert!(ChatRequest::parse(WireFormat::OpenAiResponses, json!({ "input": input })).is_err(), "{input}");
    }
    let silent = json!({ "messages": [user("a".into()), { "role": "assistant", "content": "" }, user("b".into())] });
    let (body, _) = written(WireFormat::OpenAiChat, &at(WireFormat::Gemini, Provider::Gemini), silent);
    assert_eq!(body["contents"].as_array().map(Vec::len), Some(1), "roles alternate: {body}");
    let call = json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
    let calls = json!({ "messages": [user("a".into()), { "role": "assistant", "content": null, "tool_calls": call },
        { "role": "tool", "tool_call_id": "c", "content": "" }] });
    let (body, _) = written(WireFormat::OpenAiChat, &at(WireFormat::Anthropic, Provider::Anthropic), calls);
    assert_eq!(body["messages"][1]["content"][0]["type"], "tool_use", "{body}");
}

#[test]
fn what_a_model_is_said_to_refuse_is_what_translation_does() {
    let tool = json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let mut checked = 0;
    for (model, format) in [
        ("claude-fable-5-2", WireFormat::Anthropic),
        ("claude-sonnet-5-5", WireFormat::Anthropic),
        ("claude-haiku-5-5", WireFormat::Anthropic),
        ("claude-opus-5", WireFormat::Anthropic),
        ("claude-opus-4-6", WireFormat::Anthropic),
        ("gpt-6-astra", WireFormat::OpenAiChat),
        ("gpt-5.6-sol", WireFormat::OpenAiChat),
        ("gemini-4-argon", WireFormat::Gemini),
    ] {
        let to = Target { is_openai: format == WireFormat::OpenAiChat, ..target(format, model) };
        for line in interflow_models::capabilities("test", model).unwrap().translation() {
            let (parameter, what) = line.split_once(": ").unwrap();
            let mut ask = chat(json!({ "max_completion_tokens": 9_000 }));
            if what.ends_with("while it thinks") {
                ask["reasoning_effort"] = "high".into();
            }
            let lost = match parameter {
                "temperature" | "top_p" | "frequency_penalty" => {
                    ask[parameter] = json!(0.4375);
                    parameter
                }
                "tool_choice.forced" => {
                    (ask["tools"], ask["tool_choice"]) = (tool.clone(), "required".into());
                    "tool_choice"
                }
                "prefill" => {
                    ask["messages"].as_array_mut().unwrap().push(json!({ "role": "assistant", "content": "Well" }));
                    "messages.prefill"
                }
                "thinking.disabled" => {
                    ask["reasoning_effort"] = "none".into();
                    "reasoning"
                }
                _ if parameter.starts_with("effort ") => {
                    ask["reasoning_effort"] = parameter["effort ".len()..].into();
                    "reasoning.effort"
                }
                _ => continue,
            };
            let (body, losses) = written(WireFormat::OpenAiChat, &to, ask);
            let text = body.to_string();
            assert!(losses.contains(lost) && !text.contains("0.4375"), "{model} {line}: {losses}: {body}");
            let becomes = what.strip_prefix("becomes ").filter(|_| !parameter.starts_with("tool_choice"));
            assert!(becomes.is_none_or(|word| text.contains(&format!("\"{word}\""))), "{model} {line}: {body}");
            assert!(parameter != "tool_choice.forced" || !text.contains("\"any\""), "{model} {line}: {body}");
            checked += 1;
        }
    }
    assert!(checked > 25, "{checked}");
}

#[test]
fn a_temperature_that_bedrock_refuses_is_left_out_and_named() {
    for (temperature, lost) in [(0.5, ""), (1.3, "temperature")] {
        let to = target(WireFormat::Bedrock, "amazon.nova-pro-v1:0");
        let (body, losses) = written(WireFormat::OpenAiChat, &to, chat(json!({ "temperature": temperature })));
        assert_eq!((body["inferenceConfig"].get("temperature").is_none(), losses.as_str()), (!lost.is_empty(), lost));
    }
}

#[test]
fn options_of_a_search_that_are_empty_switch_it_on_and_are_named_as_lost() {
    for (members, lost) in
        [(json!({ "web_search_options": {} }), "web_search_options"), (json!({ "logit_bias": {} }), "")]
    {
        let (_, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Anthropic, "m"), chat(members));
        assert_eq!(losses.replace("max_tokens", "").trim_matches([',', ' ']), lost);
    }
}
