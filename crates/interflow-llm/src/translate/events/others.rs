//! Events of Anthropic, Gemini, Bedrock, Cohere and Ollama.

use serde_json::Value;

use super::EventTranslator;
use crate::message::{REDACTED, number, take_list, take_string, take_value};
use crate::translate::call_signature::signed_id;
use crate::translate::citations::SERVER_TOOL;
use crate::translate::{ChatEvent, StopReason, failure_message};

impl EventTranslator {
    pub(super) fn anthropic(&mut self, event: &mut Value) {
        let index = number(event, &["index"]);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let mut message = take_value(event, "message");
                let (id, model) = (take_string(&mut message, "id"), take_string(&mut message, "model"));
                self.start(Some(id), Some(model));
            }
            "content_block_start" => {
                let mut block = take_value(event, "content_block");
                match block["type"].as_str().unwrap_or_default() {
                    "tool_use" => {
                        self.tool_start(index, take_string(&mut block, "id"), take_string(&mut block, "name"));
                    }
                    "redacted_thinking" => {
                        let data = take_string(&mut block, "data");
                        self.out.push(ChatEvent::Signature(format!("{REDACTED}{data}")));
                    }
                    _ => {
                        self.text(block["text"].as_str());
                        self.thinking(block["thinking"].as_str());
                    }
                }
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                self.text(delta["text"].as_str());
                self.thinking(delta["thinking"].as_str());
                self.tool_input(index, delta["partial_json"].as_str().unwrap_or_default());
                if let Some(signature) = delta["signature"].as_str().filter(|s| !s.is_empty()) {
                    self.out.push(ChatEvent::Signature(signature.to_owned()));
                }
            }
            "content_block_stop" => self.out.push(ChatEvent::BlockEnd),
            "message_delta" => {
                if let Some(reason) = event["delta"]["stop_reason"].as_str().filter(|reason| !reason.is_empty()) {
                    self.stopped = Some(match StopReason::from_name(reason) {
                        StopReason::StopSequence(_) => {
                            StopReason::StopSequence(event["delta"]["stop_sequence"].as_str().map(str::to_owned))
                        }
                        reason => reason,
                    });
                }
            }
            "message_stop" => self.end(),
            _ => {}
        }
    }

    /// Each chunk is a response of its own.
    pub(super) fn gemini(&mut self, chunk: &mut Value) {
        let (id, model) = (take_string(chunk, "responseId"), take_string(chunk, "modelVersion"));
        let named = |s: String| Some(s).filter(|s| !s.is_empty());
        self.start(named(id), named(model));
        if chunk["promptFeedback"]["blockReason"].is_string() {
            self.stopped = Some(StopReason::Refusal);
        }
        let Some(mut candidate) = take_list(chunk, "candidates").into_iter().next() else { return };
        for mut part in take_list(&mut take_value(&mut candidate, "content"), "parts") {
            if part["functionCall"].is_object() {
                let mut call = take_value(&mut part, "functionCall");
                let (id, name) = (take_string(&mut call, "id"), take_string(&mut call, "name"));
                let id = signed_id(id, part["thoughtSignature"].as_str());
                self.whole_call(id, name, &call["args"]);
            } else if part["thought"] == true {
                self.thinking(part["text"].as_str());
            } else {
                self.text(part["text"].as_str());
            }
        }
        self.stop(candidate["finishReason"].as_str().unwrap_or_default());
    }

    pub(super) fn converse(&mut self, name: &str, event: &mut Value) {
        let index = number(event, &["contentBlockIndex"]);
        match name {
            "messageStart" => self.start(None, None),
            "contentBlockStart" => {
                let mut call = take_value(&mut take_value(event, "start"), "toolUse");
                if call.is_object() && call["type"] != SERVER_TOOL {
                    self.tool_start(index, take_string(&mut call, "toolUseId"), take_string(&mut call, "name"));
                }
            }
            "contentBlockDelta" => {
                let delta = &event["delta"];
                self.text(delta["text"].as_str());
                self.tool_input(index, delta["toolUse"]["input"].as_str().unwrap_or_default());
                let thought = &delta["reasoningContent"];
                self.thinking(thought["text"].as_str());
                let hidden = thought["redactedContent"].as_str().map(|data| format!("{REDACTED}{data}"));
                let signature = hidden.or_else(|| thought["signature"].as_str().map(str::to_owned));
                self.out.extend(signature.filter(|s| !s.is_empty()).map(ChatEvent::Signature));
            }
            "contentBlockStop" => self.out.push(ChatEvent::BlockEnd),
            "messageStop" => {
                let reason = take_string(event, "stopReason");
                self.stop(&reason);
            }
            // The last event: usage.
            "metadata" if self.stopped.is_some() => self.end(),
            _ => {}
        }
    }

    pub(super) fn cohere(&mut self, event: &mut Value) {
        let index = number(event, &["index"]);
        let kind = take_string(event, "type");
        let id = take_string(event, "id");
        let mut delta = take_value(event, "delta");
        let message = &mut take_value(&mut delta, "message");
        match kind.as_str() {
            "message-start" => self.start(Some(id).filter(|s| !s.is_empty()), None),
            "content-start" | "content-delta" => {
                self.text(message["content"]["text"].as_str());
                self.thinking(message["content"]["thinking"].as_str());
            }
            "tool-plan-delta" => self.text(message["tool_plan"].as_str()),
            "tool-call-start" => {
                let mut call = take_value(message, "tool_calls");
                let id = take_string(&mut call, "id");
                let mut function = take_value(&mut call, "function");
                self.tool_start(index, id, take_string(&mut function, "name"));
                self.tool_input(index, &take_string(&mut function, "arguments"));
            }
            "tool-call-delta" => {
                self.tool_input(index, message["tool_calls"]["function"]["arguments"].as_str().unwrap_or_default());
            }
            "message-end" => {
                let reason = take_string(&mut delta, "finish_reason");
                let why = take_string(&mut delta, "error");
                if failure_message(&reason).is_some() && !why.is_empty() {
                    self.fail(&reason, &why);
                }
                self.stop(&reason);
                self.end();
            }
            _ => {}
        }
    }

    pub(super) fn ollama(&mut self, line: &mut Value) {
        let model = take_string(line, "model");
        self.start(None, Some(model).filter(|s| !s.is_empty()));
        let mut message = take_value(line, "message");
        self.thinking(message["thinking"].as_str());
        self.text(message["content"].as_str());
        for mut call in take_list(&mut message, "tool_calls") {
            let id = take_string(&mut call, "id");
            let mut function = take_value(&mut call, "function");
            let name = take_string(&mut function, "name");
            self.whole_call(id, name, &function["arguments"]);
        }
        if line["done"] == true {
            let reason = take_string(line, "done_reason");
            self.stop(&reason);
            self.end();
        }
    }
}
