//! Events of Chat Completions and Responses.

use serde_json::Value;

use super::EventTranslator;
use crate::message::{number, take_list, take_string, take_value, thought_in};
use crate::translate::ChatEvent;
use crate::translate::foreign_reasoning::OPENAI_MARK;

impl EventTranslator {
    pub(super) fn chat(&mut self, chunk: &mut Value) {
        let name = |key: &str| chunk[key].as_str().filter(|s| !s.is_empty()).map(str::to_owned);
        let (id, model) = (name("id"), name("model"));
        // Azure begins with a chunk about its filter, which names no model.
        if model.is_some() || !chunk["choices"].as_array().is_none_or(Vec::is_empty) {
            self.start(id, model);
        }
        for mut choice in take_list(chunk, "choices") {
            // Of several choices the first, which clients continue with.
            if number(&choice, &["index"]) != 0 {
                continue;
            }
            let mut delta = take_value(&mut choice, "delta");
            self.thinking(thought_in(&delta));
            match take_value(&mut delta, "content") {
                Value::String(text) => self.text(Some(&text)),
                Value::Array(parts) => parts.into_iter().for_each(|part| self.chat_part(part)),
                _ => {}
            }
            self.refusal(delta["refusal"].as_str());
            for mut call in take_list(&mut delta, "tool_calls") {
                let index = call["index"].as_u64();
                let id = take_string(&mut call, "id");
                let mut function = take_value(&mut call, "function");
                let name = take_string(&mut function, "name");
                let (at, begins) = self.chat_calls.find(index, &id, &name);
                if begins {
                    self.tool_start(at as u64, id, name);
                }
                self.tool_input(at as u64, &take_string(&mut function, "arguments"));
            }
            self.stop(choice["finish_reason"].as_str().unwrap_or_default());
        }
    }

    /// Words with which the model declines.
    fn refusal(&mut self, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.declines = true;
            self.out.push(ChatEvent::Refusal(text.to_owned()));
        }
    }

    /// Mistral's content in parts: text and thoughts.
    fn chat_part(&mut self, mut part: Value) {
        for thought in take_list(&mut part, "thinking") {
            self.thinking(thought["text"].as_str());
        }
        if part["type"] == "text" {
            self.text(part["text"].as_str());
        }
    }

    pub(super) fn responses(&mut self, event: &mut Value) {
        let index = number(event, &["output_index"]);
        let kind = take_string(event, "type");
        match kind.as_str() {
            "response.created" => {
                let mut response = take_value(event, "response");
                let mut name = |key: &str| Some(take_string(&mut response, key)).filter(|s| !s.is_empty());
                let (id, model) = (name("id"), name("model"));
                self.start(id, model);
            }
            "response.output_item.added" if event["item"]["type"] == "function_call" => {
                let mut item = take_value(event, "item");
                self.tool_start(index, take_string(&mut item, "call_id"), take_string(&mut item, "name"));
            }
            "response.output_text.delta" => self.text(event["delta"].as_str()),
            "response.refusal.delta" => self.refusal(event["delta"].as_str()),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.thinking(event["delta"].as_str());
            }
            // Parts of a summary are paragraphs.
            "response.reasoning_summary_part.added" if number(event, &["summary_index"]) > 0 => {
                self.thinking(Some("\n\n"));
            }
            "response.function_call_arguments.delta" => {
                self.tool_input(index, event["delta"].as_str().unwrap_or_default());
                if !self.with_input.contains(&index) {
                    self.with_input.push(index);
                }
            }
            // Some servers send the arguments as a whole only.
            "response.function_call_arguments.done" if !self.with_input.contains(&index) => {
                self.with_input.push(index);
                self.tool_input(index, event["arguments"].as_str().unwrap_or_default());
            }
            "response.output_item.done" if event["item"]["type"] == "reasoning" => {
                let item = &event["item"];
                if let Some(sealed) = item["encrypted_content"].as_str().filter(|s| !s.is_empty()) {
                    let id = item["id"].as_str().unwrap_or_default();
                    self.out.push(ChatEvent::Signature(format!("{OPENAI_MARK}{id}:{sealed}")));
                }
            }
            "response.completed" | "response.incomplete" => {
                let reason = event["response"]["incomplete_details"]["reason"].as_str().unwrap_or("completed");
                let reason = reason.to_owned();
                self.stop(&reason);
                self.end();
            }
            _ => {}
        }
    }
}
