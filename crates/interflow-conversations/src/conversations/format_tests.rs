//! Conversations over WebSockets with several lanes, and in Google's Interactions.

use interflow_store::{
    ConversationOptions, ConversationStore as _, FlowKind, FlowRecord, FlowState, FlowStore, FlowSummary,
    FlowWithBodies, MessageRecord, RecordConfig, SqliteStore,
};
use interflow_types::{Direction, MessageKind, Timestamp};
use serde_json::{Value, json};

use super::export::{self, ExportFormat};
use super::from_recording::WebSocketCallReader;
use super::indexer::ConversationIndexer;
use super::load;
use super::tests::{everything, flow, open_store, pricing};
use super::tree::load_tree;
use crate::assembly::ParsedCall;
use crate::assembly::view::ItemKind;

/// A recorded WebSocket.
pub(super) fn socket(host: &str, path: &str, messages: &[(Direction, Value)]) -> FlowWithBodies {
    let mut f = flow(1, host, path, "", 101, "", "");
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
    f
}

/// The calls of a WebSocket, which are the same if another reader takes over after any of its messages.
fn calls_of_socket(messages: &[(Direction, Value)]) -> Vec<ParsedCall> {
    let (_dir, store) = open_store();
    let f = socket("api.openai.com", "/v1/responses", messages);
    let id = f.row.id;
    store.insert(f).unwrap();
    let row = store.get(id).unwrap();
    let calls = WebSocketCallReader::default().read(&store, &row, true).unwrap();
    for read in 0..=row.messages {
        let begun = FlowRecord { messages: read, ..row.clone() };
        let mut resumed = WebSocketCallReader::default().read(&store, &begun, false).unwrap();
        let known = resumed.iter().map(ParsedCall::part).collect();
        resumed.extend(WebSocketCallReader::leaving_out(known).read(&store, &row, true).unwrap());
        assert_eq!(format!("{resumed:?}"), format!("{calls:?}"), "resumed after {read} messages");
    }
    calls
}

#[test]
fn damaged_messages_of_a_websocket_take_no_other_calls_with_them() {
    use Direction::{Request, Response};
    let ask = |n: u32| (Request, json!({"type": "response.create", "model": "m", "input": format!("question {n}")}));
    let reply = (Response, json!({"type": "response.completed", "response": {"id": "r", "status": "completed"}}));
    let messages: Vec<_> = (0..1250).flat_map(|n| [ask(n), reply.clone()]).collect();
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let f = socket("api.openai.com", "/v1/responses", &messages);
    let id = f.row.id;
    store.insert(f).unwrap();
    drop(store);
    // The second of three blocks.
    let db = rusqlite::Connection::open(dir.path().join("flows.db")).unwrap();
    assert_eq!(db.execute("UPDATE messages SET meta = x'ff' WHERE first = 1000", []).unwrap(), 1);
    drop(db);
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    let row = store.get(id).unwrap();
    let calls = WebSocketCallReader::default().read(&store, &row, true).unwrap();
    let parts: Vec<u64> = calls.iter().map(ParsedCall::part).collect();
    // The pages of 256 messages that the block touches are left out.
    assert_eq!(parts, (1..2500).step_by(2).filter(|part| !(769..2049).contains(part)).collect::<Vec<_>>());
    let mut indexer = ConversationIndexer::new(&store, pricing());
    assert_eq!(indexer.catch_up(&mut |_| ()).unwrap(), parts.len() as u64);
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
fn lanes_of_a_websocket_are_conversations_of_their_own() {
    use Direction::{Request, Response};
    let ask = |lane: &str, text: &str| {
        (Request, json!({"type": "response.create", "model": "m", "stream_id": lane, "input": text}))
    };
    let answer = |lane: &str, id: &str, text: &str| {
        let output =
            json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]);
        let response = json!({"id": id, "status": "completed", "output": output});
        (Response, json!({"type": "response.completed", "stream_id": lane, "response": response}))
    };
    let (_dir, store) = open_store();
    let messages = [
        ask("a", "plan it"),
        ask("b", "name it"),
        answer("b", "r2", "Bob"),
        answer("a", "r1", "step 1"),
        ask("b", "shorter"),
        ask("a", "go on"),
        answer("a", "r3", "step 2"),
        answer("b", "r4", "Bo"),
    ];
    store.insert(socket("api.openai.com", "/v1/responses", &messages)).unwrap();
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    let mut found: Vec<Vec<String>> = Vec::new();
    for listed in store.conversations(&ConversationOptions { all: true, ..Default::default() }).unwrap() {
        let view = load::load_conversation(&store, &listed.row.id, None).unwrap().unwrap();
        let items = view.thread.turns.into_iter().flat_map(|turn| turn.items);
        found.push(
            items.filter_map(|item| if let ItemKind::Text { text } = item.what { Some(text) } else { None }).collect(),
        );
    }
    found.sort();
    assert_eq!(found, [["name it", "Bob", "shorter", "Bo"], ["plan it", "step 1", "go on", "step 2"]]);
}

#[test]
fn parallel_calls_without_ids_have_their_own_results_and_spans() {
    let (_dir, store) = open_store();
    let call = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
    let result = |name: &str| json!({"functionResponse": {"name": name, "response": {"output": format!("of {name}")}}});
    let asked = json!({"role": "user", "parts": [{"text": "look"}]});
    let called = json!({"role": "model", "parts": [call("read"), call("list")]});
    // In another order than the calls.
    let results = json!({"role": "user", "parts": [result("list"), result("read")]});
    let said = json!({"role": "model", "parts": [{"text": "done"}]});
    for (n, contents, reply) in [(1, json!([asked]), &called), (2, json!([asked, called, results]), &said)] {
        let request = json!({"contents": contents}).to_string();
        let response = json!({"candidates": [{"content": reply, "finishReason": "STOP"}]}).to_string();
        let (host, path) = ("generativelanguage.googleapis.com", "/v1beta/models/gemini-x:generateContent");
        store.insert(flow(n, host, path, request, 200, "application/json", response)).unwrap();
    }
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let tree = load_tree(&store, &id).unwrap().unwrap();
    let otel: Value = serde_json::from_str(&export::write(&tree, ExportFormat::Otel)).unwrap();
    let spans = otel["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let value = |span: &Value, key: &str| {
        let all = span["attributes"].as_array().unwrap();
        all.iter().find(|a| a["key"] == key).map(|a| a["value"]["stringValue"].as_str().unwrap().to_owned())
    };
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), spans.len()), (5, 5), "an agent, two calls of the model, two of tools");
    for name in ["read", "list"] {
        let span = spans.iter().find(|span| span["name"] == format!("execute_tool {name}")).unwrap();
        assert!(value(span, "gen_ai.tool.call.result").unwrap().contains(&format!("of {name}")), "{span}");
    }
    let last =
        spans.iter().filter(|span| span["name"] == "chat gemini-x").max_by_key(|s| s["startTimeUnixNano"].as_str());
    let input = value(last.unwrap(), "gen_ai.input.messages").unwrap();
    assert!(input.contains("of read") && input.contains("of list") && !input.contains("look"), "{input}");
    assert_eq!(value(last.unwrap(), "gen_ai.provider.name").as_deref(), Some("gcp.gemini"));
}

#[test]
fn a_stream_that_breaks_off_has_the_kind_of_its_error() {
    let sse = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half an ans\"}}]}\n\n";
    let request = json!({"model": "gpt", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    for (status, media, body, kind) in
        [(200, "text/event-stream", sse, "cut"), (529, "application/json", r#"{"error": {"type": "busy"}}"#, "529")]
    {
        let (_dir, store) = open_store();
        let mut cut = flow(1, "llm.local", "/v1/chat/completions", request.clone(), status, media, body);
        cut.row.state = FlowState::Cut;
        store.insert(cut).unwrap();
        ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
        let id = load::find_conversation(&store, "last").unwrap().unwrap();
        let otel = export::write(&load_tree(&store, &id).unwrap().unwrap(), ExportFormat::Otel);
        let error = json!({"key": "error.type", "value": {"stringValue": kind}}).to_string();
        assert!(otel.contains(&error), "{otel}");
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

#[test]
fn turns_of_an_interaction_over_a_websocket_are_calls_of_one_conversation() {
    use Direction::{Request, Response};
    let say = |text: &str| json!({"event_type": "input", "content": [{"type": "text", "text": text}]});
    let start =
        |index: u64| (Response, json!({"event_type": "step.start", "index": index, "step": {"type": "model_output"}}));
    let delta = |index: u64, text: &str| {
        (Response, json!({"event_type": "step.delta", "index": index, "delta": {"type": "text", "text": text}}))
    };
    let stop = |index: u64, input: u64, output: u64| {
        let usage = json!({"total_input_tokens": input, "total_output_tokens": output});
        (Response, json!({"events": [{"event_type": "step.stop", "index": index, "usage": usage}]}))
    };
    let create =
        json!({"event_type": "interaction.create", "model": "gemini-4-argon", "system_instruction": "be brief"});
    let messages = [
        (Request, create),
        (Response, json!({"event_type": "interaction.created", "interaction_id": "v1_9"})),
        (Request, json!({"events": [say("which rooms"), say("are free?")]})),
        start(0),
        delta(0, "B2 "),
        // What is said meanwhile belongs to the next turn.
        (Request, say("then book it")),
        delta(0, "is free."),
        stop(0, 10, 4),
        start(1),
        delta(1, "Done."),
        stop(1, 25, 6),
        (Request, json!({"event_type": "interaction.complete"})),
        (
            Response,
            json!({"event_type": "interaction.completed", "usage": {"total_input_tokens": 25, "total_output_tokens": 6}}),
        ),
    ];
    let (_dir, store) = open_store();
    let mut indexer = ConversationIndexer::new(&store, pricing());
    indexer.on_flows(&[]).unwrap();
    let f = socket("generativelanguage.googleapis.com", "/v1beta/interactions/live", &messages);
    let id = f.row.id;
    store.insert(f).unwrap();
    // The store announces new messages and the end at once.
    let ended = store.get(id).unwrap().summary(Timestamp::now());
    let open = FlowSummary { state: FlowState::Open, ..ended.clone() };
    indexer.on_flows(&[open, ended.clone(), ended]).unwrap();
    let opened = load::find_conversation(&store, "last").unwrap().unwrap();
    let opened = load::load_conversation(&store, &opened, None).unwrap().unwrap();
    let calls: Vec<_> = opened
        .thread
        .exchanges
        .iter()
        .map(|call| (call.part, &*call.model, call.usage.map(|u| (u.input, u.output))))
        .collect();
    assert_eq!(calls, [(3, "gemini-4-argon", Some((10, 4))), (6, "gemini-4-argon", Some((15, 2)))]);
    let texts: Vec<_> = opened
        .thread
        .turns
        .iter()
        .flat_map(|turn| &turn.items)
        .filter_map(|item| match &item.what {
            ItemKind::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["which rooms", "are free?", "B2 is free.", "then book it", "Done."]);
    assert_eq!((opened.listed.row.turns, &*opened.listed.row.provider), (2, "gemini"));
    // A call that is read again has what the interaction began with; one that is known is not read twice.
    let row = store.get(id).unwrap();
    let again = WebSocketCallReader::read_request(&store, &row, 6).unwrap().unwrap();
    assert_eq!((&*again.model, &again.system[..]), ("gemini-4-argon", &["be brief".to_owned()][..]));
    assert_eq!(WebSocketCallReader::leaving_out([3].into()).read(&store, &row, true).unwrap().len(), 1);
}
