//! Calls of Google's Interactions over a WebSocket: the client adds input to an interaction whenever it has some, and the
//! model answers it in steps.

use interflow_llm::message::{ApiFormat, ReplyEvent, parse};
use interflow_store::{FlowRecord, MessageRecord};
use interflow_types::{CallUsage, Direction, Timestamp};
use serde_json::{Value, json};

use super::from_recording::OpenWebSocketCall;
use crate::assembly::ParsedCall;

/// The interaction of a connection, which may have several in turn.
#[derive(Default)]
pub(super) struct LiveInteraction {
    id: String,
    /// The event that began it: the model and what all of its calls share.
    settings: Value,
    /// What the client has said and the model has not begun to answer.
    input: Vec<Value>,
    /// The number of the call that this begins, and the time.
    asked: Option<(u64, Timestamp)>,
    call: Option<OpenWebSocketCall>,
    /// Steps of the model that have begun and not ended.
    open_steps: usize,
    /// Usage before the call: reports are totals of the interaction.
    used: CallUsage,
}

impl LiveInteraction {
    /// Reads a message, which may be a batch of events.
    pub fn on_message(
        &mut self,
        row: &FlowRecord,
        message: &MessageRecord,
        mut value: Value,
        calls: &mut Vec<ParsedCall>,
    ) {
        let batch = value["events"].as_array_mut().map(std::mem::take);
        for event in batch.unwrap_or_else(|| vec![value]) {
            match message.direction {
                Direction::Request => self.on_input(row, message, event, calls),
                Direction::Response => self.on_output(row, message.at, event, calls),
            }
        }
    }

    fn on_input(&mut self, row: &FlowRecord, message: &MessageRecord, mut event: Value, calls: &mut Vec<ParsedCall>) {
        match event["event_type"].as_str() {
            Some("interaction.create") => {
                calls.extend(self.end(row, message.at, "completed"));
                let is_wrapped = event["interaction"].is_object();
                let settings = if is_wrapped { event["interaction"].take() } else { event };
                *self = Self { settings, ..Self::default() };
            }
            Some("input") => {
                self.asked.get_or_insert((message.index + 1, message.at));
                self.input.extend(event["content"].as_array_mut().map(std::mem::take).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn on_output(&mut self, row: &FlowRecord, at: Timestamp, event: Value, calls: &mut Vec<ParsedCall>) {
        let end = match event["event_type"].as_str().unwrap_or_default() {
            "interaction.created" => {
                self.id = event["interaction_id"].as_str().unwrap_or_default().to_owned();
                None
            }
            "step.start" => {
                // What the client says while the model answers belongs to the next call.
                if self.open_steps == 0 && self.asked.is_some() {
                    calls.extend(self.finish_call(row, at, Some("completed")));
                    self.begin_call(row);
                }
                self.open_steps += 1;
                None
            }
            "step.stop" => {
                self.open_steps = self.open_steps.saturating_sub(1);
                None
            }
            "interaction.completed" => Some("completed"),
            "interaction.cancelled" | "interaction.canceled" => Some("cancelled"),
            "error" => Some("failed"),
            _ => None,
        };
        if end.is_some() && self.call.is_none() {
            self.begin_call(row);
        }
        if let Some(call) = &mut self.call {
            call.first.get_or_insert(at);
            call.answer.event(ReplyEvent { name: String::new(), data: event, done: false });
        }
        if let Some(status) = end {
            calls.extend(self.end(row, at, status));
        }
    }

    /// Ends the interaction; input without an answer is a call of its own.
    pub fn end(&mut self, row: &FlowRecord, at: Timestamp, status: &str) -> Vec<ParsedCall> {
        let answered = self.finish_call(row, at, Some(status));
        self.begin_call(row);
        answered.into_iter().chain(self.finish_call(row, at, None)).collect()
    }

    fn begin_call(&mut self, row: &FlowRecord) {
        let Some((part, at)) = self.asked.take() else { return };
        let mut body = self.settings.clone();
        body["input"] = std::mem::take(&mut self.input).into();
        // The first call continues another interaction, the others continue this one.
        self.settings["previous_interaction_id"] = Value::Null;
        let path = row.request.as_ref().map_or("", |r| &r.path);
        let request = parse::request(ApiFormat::Interactions, path, body);
        self.call = Some(OpenWebSocketCall::new(ApiFormat::Interactions, String::new(), part, at, request));
    }

    fn finish_call(&mut self, row: &FlowRecord, at: Timestamp, status: Option<&str>) -> Option<ParsedCall> {
        let mut call = self.call.take()?;
        if let Some(status) = status.filter(|_| self.open_steps == 0) {
            let data = json!({ "interaction": { "id": self.id, "status": status } });
            call.answer.event(ReplyEvent { name: String::new(), data, done: false });
        }
        let used = self.used;
        Some(call.finish_with(row, at, |reply| {
            if let Some(total) = reply.usage {
                reply.usage = Some(total.since(used));
                self.used = used.max(total);
            }
        }))
    }
}
