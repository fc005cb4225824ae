//! OpenAI's WebSocket APIs: Responses, and Realtime in text.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::Received;
use super::knobs::{Knobs, Turn};
use super::responses;
use crate::message::Request;
use crate::reply::Reply;

/// Opens a WebSocket; each text message is processed like a request body.
pub(super) fn open(request: &Request, received: Arc<Received>) -> Reply {
    let knobs = Knobs::of(request);
    let realtime = request.path().ends_with("/realtime");
    let (request, item) = (request.clone(), Mutex::new(String::new()));
    Reply::websocket(move |text| {
        received.note_message(text);
        let Ok(event) = serde_json::from_str::<Value>(text) else { return vec![error("the event is not JSON")] };
        match event["type"].as_str() {
            Some("response.create") if !realtime => answer(&request, &knobs, event),
            Some("conversation.item.create") => {
                *item.lock().unwrap_or_else(PoisonError::into_inner) = said(&event["item"]);
                vec![json!({ "type": "conversation.item.added", "item": event["item"] }).to_string()]
            }
            Some("response.create") => {
                let said = item.lock().unwrap_or_else(PoisonError::into_inner).clone();
                speak(&request, &knobs, &said)
            }
            Some("session.update") => {
                vec![json!({ "type": "session.updated", "session": event["session"] }).to_string()]
            }
            _ => vec![error("the event's type is not known")],
        }
    })
}

fn error(message: &str) -> String {
    json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } }).to_string()
}

fn said(item: &Value) -> String {
    let parts = item["content"].as_array();
    parts.into_iter().flatten().filter_map(|p| p["text"].as_str()).collect()
}

fn turn(request: &Request, knobs: &Knobs, body: &Value) -> Turn {
    let request = Request { body: body.to_string().into(), ..request.clone() };
    Turn::new(knobs, &request, body)
}

/// The events of Responses, each a message: the lines of the SSE stream without their prefix.
fn answer(request: &Request, knobs: &Knobs, event: Value) -> Vec<String> {
    let stream = responses::events(&turn(request, knobs, &event)).concat();
    stream.lines().filter_map(|l| l.strip_prefix("data: ")).map(str::to_owned).collect()
}

fn speak(request: &Request, knobs: &Knobs, said: &str) -> Vec<String> {
    let body = json!({ "model": request.query("model").unwrap_or_default(), "input": said });
    let turn = turn(request, knobs, &body);
    let id = format!("resp_{}", turn.id);
    let at = |kind: &str, name: &str, text: &str| {
        json!({ "type": kind, "response_id": id, "item_id": "item_1", "output_index": 0, "content_index": 0, name: text })
            .to_string()
    };
    let response = |status: &str, usage: Value| json!({ "id": id, "object": "realtime.response", "status": status, "usage": usage });
    let mut out =
        vec![json!({ "type": "response.created", "response": response("in_progress", Value::Null) }).to_string()];
    out.extend(turn.pieces.iter().map(|piece| at("response.output_text.delta", "delta", piece)));
    out.push(at("response.output_text.done", "text", &turn.text));
    let usage = json!({ "input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens });
    out.push(json!({ "type": "response.done", "response": response("completed", usage) }).to_string());
    out
}
