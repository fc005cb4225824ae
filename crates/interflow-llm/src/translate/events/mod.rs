//! Reads the stream of an upstream as [`ChatEvent`]s, incrementally; one event of the stream at most is held.

mod openai;
mod others;

use serde_json::Value;

use super::citations::Cited;
use super::json_answer::ANSWER_TOOL;
use super::reply::{NO_ARGUMENTS, arguments_text};
use super::unread::CITATIONS;
use super::{ChatEvent, DECLINED, StopReason, WireFormat, failure_message};
use crate::event_stream::StreamEvent;
use crate::message::{ContentBlock, ModelReply, StreamedCalls, error_block};
use crate::text_delta::text_of;
use crate::{ResponseSummary, usage};

/// Reads one reply. After an error or the end of the reply nothing more is read.
#[derive(Debug, Default)]
pub struct EventTranslator {
    format: WireFormat,
    out: Vec<ChatEvent>,
    started: bool,
    stopped: Option<StopReason>,
    called_tool: bool,
    /// OpenAI's models decline in words of their own kind, and end normally.
    declines: bool,
    /// The upstream's index of a call whose arguments are the answer.
    answer_call: Option<u64>,
    over: bool,
    /// What the upstream reported so far.
    reported: ResponseSummary,
    cited: Cited,
    /// Index of the last call of a tool, for formats that do not count them.
    calls: u64,
    chat_calls: StreamedCalls,
    /// Calls of Responses whose arguments have begun, by the upstream's index.
    with_input: Vec<u64>,
    /// Calls whose arguments have not begun, by the upstream's index.
    without_input: Vec<u64>,
}

/// The most tools that one reply may call; further ones end it.
const MAX_CALLS: u64 = 4_096;

impl EventTranslator {
    pub fn new(format: WireFormat) -> Self {
        Self { format, ..Self::default() }
    }

    /// Reads the next event.
    pub fn read(&mut self, event: &StreamEvent) -> Vec<ChatEvent> {
        if !self.over {
            self.read_event(event, false);
        }
        std::mem::take(&mut self.out)
    }

    /// The stream cannot be divided into events any further: why.
    pub fn fail_stream(&mut self, why: &str) -> Vec<ChatEvent> {
        self.fail("invalid_stream", &format!("the upstream's stream cannot be read: {why}"));
        std::mem::take(&mut self.out)
    }

    /// The end of the input, and an event that it ended in. A reply that did not end is an error.
    pub fn finish(&mut self, rest: Option<&StreamEvent>) -> Vec<ChatEvent> {
        if let Some(event) = rest.filter(|_| !self.over) {
            self.read_event(event, true);
        }
        if !self.over {
            match self.stopped {
                Some(_) => self.end(),
                None => self.fail("response_cut", "the upstream's stream ended before its reply did"),
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Reads an event. What the stream ended in (`is_rest`) may be cut.
    fn read_event(&mut self, event: &StreamEvent, is_rest: bool) {
        if event.data.is_empty() {
            return;
        }
        // The end mark of Chat Completions.
        if event.data.trim_ascii() == b"[DONE]" {
            return match self.stopped {
                Some(_) => self.end(),
                None => self.fail("response_cut", "the upstream's stream ended before its reply did"),
            };
        }
        let is_plain = matches!(self.format, WireFormat::Anthropic | WireFormat::OpenAiChat | WireFormat::Mistral)
            && self.started
            && !Cited::is_possible(&event.data);
        if let Some(text) = is_plain.then(|| text_of(&event.data)).flatten() {
            return self.text(Some(&text));
        }
        let Ok(mut data) = interflow_codec::json::parse::<Value>(&event.data) else {
            // A keep-alive that is not JSON is not an event of the API.
            if !is_rest && event.data.trim_ascii_start().starts_with(b"{") {
                self.out = self.fail_stream("an event is invalid JSON");
            }
            return;
        };
        let name = event.name.as_deref().unwrap_or_default();
        if let Some(ContentBlock::Error { kind, message }) = self.error_in(name, &data) {
            return self.fail(&kind, &message);
        }
        // The first event names the model and the level of service.
        if self.reported.model.is_none() || usage::may_hold_usage(&event.data) {
            let report = usage::summary_from_value(&data);
            self.reported.merge(&report);
            if report.usage.is_some() {
                self.out.extend(self.reported.usage.map(ChatEvent::Usage));
            }
        }
        let before = self.cited.pages.len();
        if Cited::is_possible(&event.data) {
            self.cited.read(&data);
        }
        match self.format {
            WireFormat::Anthropic => self.anthropic(&mut data),
            WireFormat::OpenAiChat | WireFormat::Mistral => self.chat(&mut data),
            WireFormat::OpenAiResponses => self.responses(&mut data),
            // No upstream is asked for interactions.
            WireFormat::Interactions => {}
            WireFormat::Gemini => self.gemini(&mut data),
            WireFormat::Bedrock => self.converse(name, &mut data),
            WireFormat::Cohere => self.cohere(&mut data),
            WireFormat::Ollama => self.ollama(&mut data),
        }
        let pages = self.cited.pages.iter().skip(before).cloned().map(ChatEvent::Citation);
        self.out.extend(pages);
        if std::mem::take(&mut self.cited.has_others) {
            self.out.push(ChatEvent::Loss(CITATIONS));
        }
    }

    /// The error that an event reports in place of content.
    fn error_in(&self, name: &str, data: &Value) -> Option<ContentBlock> {
        let failed = match self.format {
            WireFormat::Bedrock if name.ends_with("xception") => {
                let message = data["message"].as_str().unwrap_or("the upstream's stream failed").to_owned();
                return Some(ContentBlock::Error { kind: name.to_owned(), message });
            }
            WireFormat::OpenAiResponses if data["type"] == "response.failed" => return error_block(&data["response"]),
            WireFormat::OpenAiResponses => data["type"] == "error",
            _ => data.get("error").is_some_and(|e| !e.is_null()),
        };
        failed.then(|| error_block(data)).flatten()
    }

    fn start(&mut self, id: Option<String>, model: Option<String>) {
        if !std::mem::replace(&mut self.started, true) {
            self.out.push(ChatEvent::Start { id, model });
        }
    }

    fn text(&mut self, text: Option<&str>) {
        self.out.extend(text.filter(|t| !t.is_empty()).map(|t| ChatEvent::Text(t.to_owned())));
    }

    fn thinking(&mut self, text: Option<&str>) {
        self.out.extend(text.filter(|t| !t.is_empty()).map(|t| ChatEvent::Thinking(t.to_owned())));
    }

    fn tool_start(&mut self, index: u64, id: String, name: String) {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return self.fail("too_many_tool_calls", "the upstream's reply calls too many tools");
        }
        self.without_input.push(index);
        if name == ANSWER_TOOL {
            self.answer_call = Some(index);
            return;
        }
        self.answer_call = self.answer_call.filter(|answer| *answer != index);
        self.called_tool = true;
        self.out.push(ChatEvent::ToolStart { index, id, name });
    }

    fn tool_input(&mut self, index: u64, json: &str) {
        // White space is not the arguments yet.
        if !json.trim().is_empty() {
            self.without_input.retain(|call| *call != index);
        }
        if self.answer_call == Some(index) {
            return self.text(Some(json));
        }
        if !json.is_empty() {
            self.out.push(ChatEvent::ToolInput { index, json: json.to_owned() });
        }
    }

    /// A call that comes with all of its arguments.
    fn whole_call(&mut self, id: String, name: String, input: &Value) {
        let index = self.calls;
        self.tool_start(index, id, name);
        self.tool_input(index, &if input.is_null() { NO_ARGUMENTS.to_owned() } else { input.to_string() });
    }

    /// The reply stops for this reason. Some servers have an empty one until it does.
    fn stop(&mut self, name: &str) {
        match failure_message(name) {
            _ if name.is_empty() => {}
            Some(message) => self.fail(name, message),
            None => self.stopped = Some(StopReason::from_name(name)),
        }
    }

    fn end(&mut self) {
        if self.over {
            return;
        }
        // A call without arguments has none in some streams, and an empty object everywhere else.
        for index in std::mem::take(&mut self.without_input) {
            self.tool_input(index, NO_ARGUMENTS);
        }
        // Several APIs name a normal end for a reply that calls tools.
        let reason = match self.stopped.take() {
            Some(StopReason::EndTurn) if self.declines => StopReason::Declined,
            Some(StopReason::EndTurn) | None if self.called_tool => StopReason::ToolUse,
            Some(StopReason::ToolUse) if self.answer_call.is_some() && !self.called_tool => StopReason::EndTurn,
            reason => reason.unwrap_or(StopReason::EndTurn),
        };
        self.out.push(ChatEvent::Stop(reason));
        self.out.push(ChatEvent::Done);
        self.over = true;
    }

    fn fail(&mut self, kind: &str, message: &str) {
        if !self.over {
            self.out.push(ChatEvent::Error { kind: kind.to_owned(), message: message.to_owned() });
            self.over = true;
        }
    }
}

/// The events of a whole reply, for a client that asked for a stream where the upstream gave none.
pub fn reply_events(reply: &ModelReply) -> Vec<ChatEvent> {
    let mut out = vec![ChatEvent::Start { id: reply.id.clone(), model: reply.model.clone() }];
    let mut calls = 0;
    let declines = reply.stop.as_deref() == Some(DECLINED);
    let mut cited = Cited::default();
    for block in &reply.blocks {
        match block {
            ContentBlock::Text { text } if declines => out.push(ChatEvent::Refusal(text.clone())),
            ContentBlock::Text { text } => out.extend([ChatEvent::BlockEnd, ChatEvent::Text(text.clone())]),
            ContentBlock::Thinking { text, signature } => {
                out.push(ChatEvent::Thinking(text.clone()));
                out.extend(signature.get().map(|s| ChatEvent::Signature(s.to_owned())));
            }
            ContentBlock::ToolUse { id, name, input } => {
                let json = arguments_text(input);
                out.push(ChatEvent::ToolStart { index: calls, id: id.clone(), name: name.clone() });
                out.push(ChatEvent::ToolInput { index: calls, json });
                calls += 1;
            }
            ContentBlock::Other { kind, value } if kind == CITATIONS => {
                let before = cited.pages.len();
                cited.read(value);
                out.extend(cited.pages.iter().skip(before).cloned().map(ChatEvent::Citation));
            }
            _ => {}
        }
    }
    out.extend(reply.usage.map(ChatEvent::Usage));
    let reason = match reply.stop.as_deref().map(StopReason::from_name) {
        Some(StopReason::EndTurn) | None if calls > 0 => StopReason::ToolUse,
        reason => reason.unwrap_or(StopReason::EndTurn),
    };
    out.extend([ChatEvent::Stop(reason), ChatEvent::Done]);
    out
}
