//! Reads replies as clients of each format do, and refuses what their SDKs could not read.

use interflow_codec::aws_event_stream;
use interflow_testkit::Answer;
use serde_json::Value;

/// A format that clients speak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Client {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Interactions,
    Converse,
}

/// What a client makes of a reply.
#[derive(Debug, Default, PartialEq)]
pub struct Said {
    pub text: String,
    pub thinking: String,
    /// Id, name and arguments.
    pub calls: Vec<(String, String, Value)>,
    /// In the client's words.
    pub stop: String,
    pub input: u64,
    pub output: u64,
}

impl Client {
    pub fn path(self, stream: bool) -> &'static str {
        match (self, stream) {
            (Self::Chat, _) => "/v1/chat/completions",
            (Self::Responses, _) => "/v1/responses",
            (Self::Anthropic, _) => "/v1/messages",
            (Self::Gemini, false) => "/v1beta/models/m:generateContent",
            (Self::Gemini, true) => "/v1beta/models/m:streamGenerateContent?alt=sse",
            (Self::Interactions, _) => "/v1beta/interactions",
            (Self::Converse, false) => "/model/m/converse",
            (Self::Converse, true) => "/model/m/converse-stream",
        }
    }

    #[track_caller]
    pub fn read(self, answer: &Answer, stream: bool) -> Said {
        let kind = answer.header("content-type").unwrap_or_default();
        let streamed = if self == Self::Converse { "application/vnd.amazon.eventstream" } else { "text/event-stream" };
        assert_eq!(kind.starts_with(streamed), stream, "{answer:?}");
        match (self, stream) {
            (Self::Chat, false) => chat(&answer.json()),
            (Self::Responses, false) => responses(&answer.json()),
            (Self::Anthropic, false) => anthropic(&answer.json()),
            (Self::Gemini, false) => gemini(&[answer.json()]),
            (Self::Interactions, false) => interaction(&answer.json()),
            (Self::Converse, false) => converse(&answer.json()),
            (Self::Chat, true) => chat_stream(&events(&answer.text())),
            (Self::Responses, true) => responses_stream(&events(&answer.text())),
            (Self::Anthropic, true) => anthropic_stream(&events(&answer.text())),
            (Self::Gemini, true) => {
                gemini(&events(&answer.text()).into_iter().map(|(_, chunk)| chunk).collect::<Vec<_>>())
            }
            (Self::Interactions, true) => interaction_stream(&events(&answer.text())),
            (Self::Converse, true) => converse_stream(&answer.body),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn arguments(value: &Value) -> Value {
    serde_json::from_str(value.as_str().expect("arguments are a string")).expect("arguments are JSON")
}

/// The events of a stream: name and data.
fn events(body: &str) -> Vec<(String, Value)> {
    assert!(body.ends_with("\n\n"), "{body}");
    let mut all = Vec::new();
    for block in body.split("\n\n").filter(|b| !b.is_empty()) {
        let field = |name: &str| block.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim();
        let data = field("data:");
        let value = if data == "[DONE]" { Value::from("[DONE]") } else { serde_json::from_str(data).expect(data) };
        all.push((field("event:").to_owned(), value));
    }
    all
}

fn chat(body: &Value) -> Said {
    assert_eq!(body["object"], "chat.completion");
    let choice = &body["choices"][0];
    let message = &choice["message"];
    let call = |c: &Value| (text(&c["id"]), text(&c["function"]["name"]), arguments(&c["function"]["arguments"]));
    Said {
        text: text(&message["content"]),
        thinking: text(&message["reasoning_content"]),
        calls: message["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        stop: text(&choice["finish_reason"]),
        input: body["usage"]["prompt_tokens"].as_u64().unwrap(),
        output: body["usage"]["completion_tokens"].as_u64().unwrap(),
    }
}

fn chat_stream(events: &[(String, Value)]) -> Said {
    let (end, chunks) = events.split_last().unwrap();
    assert_eq!(end.1, "[DONE]");
    assert_eq!(chunks[0].1["choices"][0]["delta"]["role"], "assistant");
    let (mut said, mut calls) = (Said::default(), Vec::<[String; 3]>::new());
    for (_, chunk) in chunks {
        assert_eq!((&chunk["object"], &chunk["id"]), (&"chat.completion.chunk".into(), &chunks[0].1["id"]));
        if let Some(usage) = chunk["usage"].as_object() {
            assert!(chunk["choices"].as_array().unwrap().is_empty(), "usage comes without choices");
            said.input = usage["prompt_tokens"].as_u64().unwrap();
            said.output = usage["completion_tokens"].as_u64().unwrap();
            continue;
        }
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        assert!(said.stop.is_empty(), "nothing follows the finish reason");
        said.text += &text(&delta["content"]);
        said.thinking += &text(&delta["reasoning_content"]);
        said.stop = text(&choice["finish_reason"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = call["index"].as_u64().unwrap() as usize;
            if at == calls.len() {
                assert_eq!(call["type"], "function");
                calls.push([text(&call["id"]), text(&call["function"]["name"]), String::new()]);
            }
            calls[at][2] += &text(&call["function"]["arguments"]);
        }
    }
    said.calls = calls.into_iter().map(|[id, name, args]| (id, name, arguments(&args.into()))).collect();
    said
}

fn anthropic(body: &Value) -> Said {
    assert_eq!((&body["type"], &body["role"]), (&"message".into(), &"assistant".into()));
    let mut said = Said {
        stop: text(&body["stop_reason"]),
        input: body["usage"]["input_tokens"].as_u64().unwrap(),
        output: body["usage"]["output_tokens"].as_u64().unwrap(),
        ..Said::default()
    };
    for block in body["content"].as_array().unwrap() {
        match block["type"].as_str() {
            Some("text") => said.text += &text(&block["text"]),
            Some("thinking") => {
                assert!(block["signature"].is_string());
                said.thinking += &text(&block["thinking"]);
            }
            Some("tool_use") => {
                assert!(block["input"].is_object());
                said.calls.push((text(&block["id"]), text(&block["name"]), block["input"].clone()));
            }
            other => panic!("{other:?}"),
        }
    }
    said
}

fn anthropic_stream(events: &[(String, Value)]) -> Said {
    let mut said = Said::default();
    let (mut blocks, mut open) = (Vec::<(Value, String)>::new(), Vec::new());
    assert_eq!(events[0].0, "message_start");
    assert_eq!(events.last().unwrap().0, "message_stop");
    for (name, event) in events {
        assert_eq!(event["type"], *name);
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match name.as_str() {
            "content_block_start" => {
                assert_eq!(index, blocks.len());
                blocks.push((event["content_block"].clone(), String::new()));
                open.push(index);
            }
            "content_block_delta" => {
                assert!(open.contains(&index), "{event}");
                let delta = &event["delta"];
                let fits = match delta["type"].as_str().unwrap() {
                    "text_delta" => "text",
                    "thinking_delta" | "signature_delta" => "thinking",
                    "input_json_delta" => "tool_use",
                    other => panic!("{other}"),
                };
                assert_eq!(blocks[index].0["type"], fits);
                for key in ["text", "thinking", "partial_json"] {
                    blocks[index].1 += &text(&delta[key]);
                }
            }
            "content_block_stop" => open.retain(|i| *i != index),
            "message_delta" => {
                assert!(open.is_empty(), "blocks are closed before the end");
                said.stop = text(&event["delta"]["stop_reason"]);
                // Counted at the start already, where the upstream does so.
                said.input = said.input.max(event["usage"]["input_tokens"].as_u64().unwrap_or_default());
                said.output = event["usage"]["output_tokens"].as_u64().unwrap();
            }
            "message_start" => said.input = event["message"]["usage"]["input_tokens"].as_u64().unwrap(),
            "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    for (block, content) in blocks {
        match block["type"].as_str().unwrap() {
            "text" => said.text += &content,
            "thinking" => said.thinking += &content,
            _ => said.calls.push((text(&block["id"]), text(&block["name"]), arguments(&content.into()))),
        }
    }
    said
}

fn responses(body: &Value) -> Said {
    assert_eq!((&body["object"], &body["status"]), (&"response".into(), &"completed".into()));
    let mut said = Said {
        stop: text(&body["status"]),
        input: body["usage"]["input_tokens"].as_u64().unwrap(),
        output: body["usage"]["output_tokens"].as_u64().unwrap(),
        ..Said::default()
    };
    for item in body["output"].as_array().unwrap() {
        match item["type"].as_str() {
            Some("message") => said.text += &text(&item["content"][0]["text"]),
            Some("reasoning") => said.thinking += &text(&item["summary"][0]["text"]),
            Some("function_call") => {
                said.calls.push((text(&item["call_id"]), text(&item["name"]), arguments(&item["arguments"])));
            }
            other => panic!("{other:?}"),
        }
    }
    said
}

/// The deltas, which must say the same as the last event.
fn responses_stream(events: &[(String, Value)]) -> Said {
    let (mut streamed, mut items, mut done) = (Said::default(), Vec::new(), Vec::new());
    for (i, (name, event)) in events.iter().enumerate() {
        assert_eq!((&event["type"], &event["sequence_number"]), (&name.as_str().into(), &i.into()));
        match name.as_str() {
            "response.output_item.added" => items.push((event["item"].clone(), String::new())),
            "response.output_item.done" => done.push(event["output_index"].as_u64().unwrap() as usize),
            "response.output_text.delta" => streamed.text += &text(&event["delta"]),
            "response.reasoning_summary_text.delta" => streamed.thinking += &text(&event["delta"]),
            "response.function_call_arguments.delta" => {
                items[event["output_index"].as_u64().unwrap() as usize].1 += &text(&event["delta"]);
            }
            _ => {}
        }
    }
    done.sort_unstable();
    assert_eq!(done, (0..items.len()).collect::<Vec<_>>(), "every item is completed");
    let (name, last) = events.last().unwrap();
    assert_eq!(name, "response.completed");
    let whole = responses(&last["response"]);
    for (item, content) in items.iter().filter(|(item, _)| item["type"] == "function_call") {
        let call = (text(&item["call_id"]), text(&item["name"]), arguments(&content.as_str().into()));
        streamed.calls.push(call);
    }
    assert_eq!((&streamed.text, &streamed.thinking, &streamed.calls), (&whole.text, &whole.thinking, &whole.calls));
    whole
}

/// The chunks of a stream, or the only one.
pub fn gemini(chunks: &[Value]) -> Said {
    let mut said = Said::default();
    for chunk in chunks {
        assert!(said.stop.is_empty(), "nothing follows the finish reason");
        let candidate = &chunk["candidates"][0];
        assert_eq!(candidate["content"]["role"], "model", "{chunk}");
        for part in candidate["content"]["parts"].as_array().unwrap() {
            let call = &part["functionCall"];
            if call.is_object() {
                assert!(call["args"].is_object(), "{part}");
                said.calls.push((text(&call["id"]), text(&call["name"]), call["args"].clone()));
            } else if part["thought"] == true {
                said.thinking += part["text"].as_str().unwrap();
            } else {
                said.text += part["text"].as_str().unwrap();
            }
        }
        said.stop = text(&candidate["finishReason"]);
    }
    let usage = &chunks.last().unwrap()["usageMetadata"];
    let thoughts = usage["thoughtsTokenCount"].as_u64().unwrap_or_default();
    said.input = usage["promptTokenCount"].as_u64().unwrap();
    said.output = usage["candidatesTokenCount"].as_u64().unwrap() + thoughts;
    said
}

fn interaction(body: &Value) -> Said {
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with("v1_")) && body["object"] == "interaction", "{body}");
    let usage = &body["usage"];
    let mut said = Said {
        stop: text(&body["status"]),
        input: usage["total_input_tokens"].as_u64().unwrap(),
        output: usage["total_output_tokens"].as_u64().unwrap() + usage["total_thought_tokens"].as_u64().unwrap(),
        ..Said::default()
    };
    for step in body["steps"].as_array().into_iter().flatten() {
        match step["type"].as_str().unwrap() {
            "model_output" => said.text += step["content"][0]["text"].as_str().unwrap(),
            "thought" => {
                assert!(step["signature"].is_string(), "{step}");
                said.thinking += &text(&step["summary"][0]["text"]);
            }
            "function_call" => {
                assert!(step["arguments"].is_object(), "{step}");
                said.calls.push((text(&step["id"]), text(&step["name"]), step["arguments"].clone()));
            }
            other => panic!("{other}"),
        }
    }
    said
}

fn interaction_stream(events: &[(String, Value)]) -> Said {
    let (mut said, mut steps, mut open) = (Said::default(), Vec::<(Value, String)>::new(), Vec::new());
    assert_eq!(events[0].0, "interaction.created");
    let (end, events) = events.split_last().unwrap();
    assert_eq!(end.1, "[DONE]");
    for (name, event) in events {
        assert_eq!(event["event_type"], *name);
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match name.as_str() {
            "interaction.created" => assert_eq!(event["interaction"]["status"], "in_progress"),
            "step.start" => {
                assert_eq!(index, steps.len());
                steps.push((event["step"].clone(), String::new()));
                open.push(index);
            }
            "step.delta" => {
                assert!(open.contains(&index), "{event}");
                let delta = &event["delta"];
                let more = match delta["type"].as_str().unwrap() {
                    "text" => &delta["text"],
                    "thought_summary" => &delta["content"]["text"],
                    "arguments_delta" => &delta["arguments"],
                    "thought_signature" => {
                        assert!(delta["signature"].is_string());
                        continue;
                    }
                    other => panic!("{other}"),
                };
                steps[index].1 += more.as_str().unwrap();
            }
            "step.stop" => open.retain(|i| *i != index),
            "interaction.completed" => {
                assert!(open.is_empty(), "steps are closed before the end");
                said = interaction(&event["interaction"]);
            }
            other => panic!("{other}"),
        }
    }
    for (step, content) in steps {
        match step["type"].as_str().unwrap() {
            "model_output" => said.text += &content,
            "thought" => said.thinking += &content,
            _ => said.calls.push((text(&step["id"]), text(&step["name"]), arguments(&content.into()))),
        }
    }
    said
}

fn converse_usage(usage: &Value) -> Said {
    let number = |name: &str| usage[name].as_u64().unwrap();
    assert!(number("totalTokens") >= number("inputTokens") + number("outputTokens"));
    Said { input: number("inputTokens"), output: number("outputTokens"), ..Said::default() }
}

fn converse(body: &Value) -> Said {
    let message = &body["output"]["message"];
    assert_eq!(message["role"], "assistant");
    let mut said = Said { stop: text(&body["stopReason"]), ..converse_usage(&body["usage"]) };
    for block in message["content"].as_array().unwrap() {
        let (kind, value) = block.as_object().and_then(|block| block.iter().next()).unwrap();
        match kind.as_str() {
            "text" => said.text += value.as_str().unwrap(),
            "reasoningContent" => said.thinking += value["reasoningText"]["text"].as_str().unwrap(),
            "toolUse" => said.calls.push((text(&value["toolUseId"]), text(&value["name"]), value["input"].clone())),
            other => panic!("{other}"),
        }
    }
    said
}

fn converse_stream(body: &[u8]) -> Said {
    let (mut rest, mut said, mut calls) =
        (bytes::BytesMut::from(body), Said::default(), Vec::<(u64, [String; 3])>::new());
    while let Some(message) = aws_event_stream::next_message(&mut rest, 1 << 20).expect("checksums hold") {
        let event: Value = serde_json::from_slice(&message.payload).unwrap();
        let index = event["contentBlockIndex"].as_u64().unwrap_or_default();
        match message.header_str(":event-type").expect("no exception") {
            "messageStart" => assert_eq!(event["role"], "assistant"),
            "contentBlockStart" => {
                let call = &event["start"]["toolUse"];
                calls.push((index, [text(&call["toolUseId"]), text(&call["name"]), String::new()]));
            }
            "contentBlockDelta" => {
                let delta = &event["delta"];
                said.text += &text(&delta["text"]);
                said.thinking += &text(&delta["reasoningContent"]["text"]);
                if delta["toolUse"].is_object() {
                    let (_, call) = calls.iter_mut().find(|(at, _)| *at == index).expect("the call was started");
                    call[2] += &text(&delta["toolUse"]["input"]);
                }
            }
            "contentBlockStop" => {}
            "messageStop" => said.stop = text(&event["stopReason"]),
            "metadata" => {
                let usage = converse_usage(&event["usage"]);
                (said.input, said.output) = (usage.input, usage.output);
            }
            other => panic!("{other}"),
        }
    }
    assert!(rest.is_empty());
    said.calls = calls.into_iter().map(|(_, [id, name, input])| (id, name, arguments(&input.into()))).collect();
    said
}
