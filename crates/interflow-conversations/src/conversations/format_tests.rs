//! Conversations over WebSockets with several lanes, and in Google's Interactions.

use interflow_store::{FlowKind, FlowStore, MessageRecord};
use interflow_types::{Direction, MessageKind, Timestamp};
use serde_json::{Value, json};

use super::from_recording::WebSocketCallReader;
use super::indexer::ConversationIndexer;
use super::load;
use super::tests::{everything, flow, open_store, pricing};
use crate::assembly::ParsedCall;

/// The calls of a recorded WebSocket.
fn calls_of_socket(messages: &[(Direction, Value)]) -> Vec<ParsedCall> {
    let (_dir, store) = open_store();
    let mut f = flow(1, "api.openai.com", "/v1/responses", "", 101, "", "");
    f.row.kind = FlowKind::WebSocket;
    f.messages = (0..)
        .zip(messages)
        .map(|(index, (direction, value))| MessageRecord {
            index,
            direction: *direction,
            kind: MessageKind::Text,
            at: Timestamp::from_micros(1_700_000_000_000_000 + index * 1000),
            size: 0,
            payload: value.to_string().into(),
        })
        .collect();
    f.row.messages = messages.len() as u64;
    let id = f.row.id;
    store.insert(f).unwrap();
    let row = store.get(id).unwrap();
    WebSocketCallReader::starting_at(0).read(&store, &row, true).unwrap()
}

#[test]
fn lanes_of_a_websocket_and_responses_that_were_steered_are_calls_of_their_own() {
    use Direction::{Request, Response};
    let ask = |lane: &str, text: &str| {
        (Request, json!({"type": "response.create", "model": "m", "stream_id": lane, "input": text}))
    };
    let event = |lane: &str, kind: &str, id: &str, text: &str| {
        let output =
            json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]);
        let status = if kind == "incomplete" { "incomplete" } else { "completed" };
        let response = json!({"id": id, "status": status, "output": output});
        (Response, json!({"type": format!("response.{kind}"), "stream_id": lane, "response": response}))
    };
    let steer = json!({"type": "response.steer", "previous_response_id": "r1",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "skip step 3"}]}]});
    let calls = calls_of_socket(&[
        ask("a", "plan it"),
        ask("b", "name it"),
        event("a", "created", "r1", ""),
        event("b", "created", "r2", ""),
        (Request, steer),
        (Response, json!({"type": "response.steer.accepted", "stream_id": "a", "steer": {"id": "s"}})),
        event("b", "completed", "r2", "Bob"),
        event("a", "incomplete", "r1", "step 1"),
        event("a", "created", "r3", ""),
        event("a", "completed", "r3", "step 4"),
    ]);
    assert_eq!(calls.len(), 3);
    for (call, texts) in calls.iter().zip([
        ["name it", "Bob", "previous: None"],
        ["plan it", "step 1", "incomplete"],
        ["skip step 3", "step 4", "previous: Some(\"r1\")"],
    ]) {
        let call = format!("{call:?}");
        assert!(texts.iter().all(|text| call.contains(text)), "{texts:?}: {call}");
    }
}

#[test]
fn interactions_are_conversations_that_continue_by_an_id() {
    let (_dir, store) = open_store();
    for (n, previous, asked, answered) in
        [(1, None, "which rooms?", "B2 is free."), (2, Some("v1_1"), "book it", "Done.")]
    {
        let input = json!([{"type": "user_input", "content": [{"type": "text", "text": asked}]}]);
        let request = json!({"model": "gemini-4-argon", "input": input, "previous_interaction_id": previous});
        let step = json!({"type": "model_output", "content": [{"type": "text", "text": answered}]});
        let reply = json!({"id": format!("v1_{n}"), "status": "completed", "model": "gemini-4-argon", "steps": [step],
            "usage": {"total_input_tokens": 5, "total_output_tokens": 2}});
        let (host, path) = ("generativelanguage.googleapis.com", "/v1beta/interactions");
        store.insert(flow(n, host, path, request.to_string(), 200, "application/json", reply.to_string())).unwrap();
    }
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 2);
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let opened = load::load_conversation(&store, &id, None).unwrap().unwrap();
    assert_eq!((opened.listed.row.turns, &*opened.listed.row.provider), (2, "gemini"));
    let all = everything(&store);
    for text in ["which rooms?", "B2 is free.", "book it", "Done."] {
        assert!(all.contains(text), "{text}: {all}");
    }
}
