//! Recorded flows become conversations: incrementally, by a rebuild, and after a crash.

mod mcp_links;

use std::sync::Arc;

use crate::assembly::view::ItemKind;
use bytes::Bytes;
use interflow_store::{
    BodyRecord, ConversationOptions, ConversationRow, ConversationStore, FlowAnnotation, FlowKind, FlowParts,
    FlowRecord, FlowState, FlowStore, FlowWithBodies, MessageRecord, RecordConfig, RequestRecord, ResponseRecord,
    SqliteStore,
};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{
    Attempt, AttemptState, Authority, Direction, EntryKind, FlowId, Headers, MessageKind, Scheme, Timestamp,
};
use serde_json::{Value, json};

use super::cursor::flow_filter;
use super::endpoints::EndpointOverrides;
use super::export::{self, ExportFormat};
use super::from_recording;
use super::indexer::{ConversationIndexer, IndexerHandle};
use super::load;
use super::mapping::CallPricing;
use super::prompt_cache;
use super::tree::load_tree;
use crate::assembly::cache_report::BreakCause;

pub(super) fn pricing() -> Arc<CallPricing> {
    Arc::new(|_, _, usage, _| Some(usage.total() as f64))
}

pub(super) fn flow(
    n: u64,
    host: &str,
    path: &str,
    request: impl Into<Bytes>,
    status: u16,
    media: &str,
    response: impl Into<Bytes>,
) -> FlowWithBodies {
    let started = Timestamp::from_micros(1_700_000_000_000_000 + n * 1_000_000);
    let id = FlowId::from_u128(u128::from(started.micros() / 1000) << 80 | u128::from(n));
    let authority: Authority = format!("{host}:443").parse().unwrap();
    let mut row = FlowRecord::new(id, started, EntryKind::Connect, Scheme::Https, authority);
    row.state = FlowState::Complete;
    row.timings.first_byte = Some(1000);
    row.timings.done = Some(500_000);
    row.request = Some(RequestRecord {
        method: "POST".into(),
        path: path.into(),
        version: "HTTP/1.1".into(),
        protocol: None,
        headers: Headers::from_iter([("Content-Type", "application/json"), ("User-Agent", "claude-cli/2.0.1")]),
        trailers: Headers::new(),
        body: BodyRecord::default(),
    });
    row.response = Some(ResponseRecord {
        status,
        reason: Bytes::new(),
        version: "HTTP/1.1".into(),
        headers: Headers::from_iter([("Content-Type", media)]),
        trailers: Headers::new(),
        body: BodyRecord::default(),
    });
    FlowWithBodies { request_body: request.into(), response_body: response.into(), ..FlowWithBodies::new(row) }
}

pub(super) fn asked(n: u64, messages: &Value, answer: &Value) -> FlowWithBodies {
    let request = json!({"model": "claude-x", "messages": messages, "metadata": {"user_id": "u_session_s1"}});
    let response = json!({"id": format!("m{n}"), "model": "claude-x", "content": answer, "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 10}});
    flow(
        n,
        "api.anthropic.com",
        "/v1/messages?beta=true",
        request.to_string(),
        200,
        "application/json",
        response.to_string(),
    )
}

/// Three calls of one conversation, one of them with a tool.
fn three() -> Vec<FlowWithBodies> {
    let call = json!([{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls -l"}}]);
    let done = json!([{"type": "text", "text": "done"}]);
    let mut history = vec![json!({"role": "user", "content": "fix it"})];
    let mut flows = vec![asked(1, &json!(history), &call)];
    history.push(json!({"role": "assistant", "content": call}));
    history.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.rs"}]}));
    flows.push(asked(2, &json!(history), &done));
    history.push(json!({"role": "assistant", "content": done}));
    history.push(json!({"role": "user", "content": "thanks"}));
    flows.push(asked(3, &json!(history), &json!([{"type": "text", "text": "welcome"}])));
    flows
}

pub(super) fn open_store() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    (dir, store)
}

pub(super) fn everything(store: &dyn FlowStore) -> String {
    let listed = store.conversations(&ConversationOptions { all: true, ..ConversationOptions::default() }).unwrap();
    let opened = listed.iter().map(|l| load::load_conversation(store, &l.row.id, None).unwrap()).collect::<Vec<_>>();
    serde_json::to_string_pretty(&opened).unwrap()
}

#[test]
fn a_loaded_conversation_keeps_its_facts_only_once() {
    let row = ConversationRow { facts: r#"{"titled": true}"#.into(), ..Default::default() };
    let loaded = super::mapping::conversation(row);
    assert!(loaded.facts.titled && loaded.row.facts.is_empty(), "{loaded:?}");
}

#[test]
fn half_of_an_emoji_costs_a_conversation_nothing() {
    let (_dir, store) = open_store();
    let cut = |body: &Bytes| {
        let text = String::from_utf8(body.to_vec()).unwrap();
        Bytes::from(text.replace("fix it", "fix it \\ud83e").replace("\"done\"", "\"done \\uD83E\""))
    };
    for flow in three() {
        let (request_body, response_body) = (cut(&flow.request_body), cut(&flow.response_body));
        assert!(store.insert(FlowWithBodies { request_body, response_body, ..flow }).unwrap());
    }
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 3);
    let shown = everything(&store);
    assert!(
        shown.contains("fix it \u{fffd}") && shown.contains("done \u{fffd}") && shown.contains("welcome"),
        "{shown}"
    );
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let turns = load::load_conversation(&store, &id, None).unwrap().unwrap().thread.turns;
    assert_eq!(turns.iter().map(|t| (t.number, t.items.len())).collect::<Vec<_>>(), [(1, 3), (2, 2)]);
}

#[test]
fn exchanges_become_turns_with_tools_tokens_and_cost() {
    let (_dir, store) = open_store();
    three().into_iter().for_each(|f| assert!(store.insert(f).unwrap()));
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 3);
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let opened = load::load_conversation(&store, &id, None).unwrap().unwrap();
    assert_eq!((opened.listed.row.agent.as_str(), opened.version.as_str()), ("claude-code", "2.0.1"));
    assert_eq!((opened.listed.row.title.as_str(), opened.listed.used.cost), ("fix it", 330.0));
    let turns = &opened.thread.turns;
    assert_eq!(turns.iter().map(|t| (t.number, t.items.len())).collect::<Vec<_>>(), [(1, 3), (2, 2)]);
    let ItemKind::Tool { name, summary, result, .. } = &turns[0].items[1].what else {
        panic!("{:?}", turns[0].items[1])
    };
    assert_eq!((name.as_str(), summary.as_str(), result.is_some()), ("Bash", "ls -l", true));
    assert_eq!(turns[0].exchanges, [0, 1]);
    let flow = opened.thread.exchanges[1].flow.parse().unwrap();
    let changes = load::request_diff(&store, &id, flow, 0).unwrap().unwrap();
    assert_eq!((changes.same, changes.added.len()), (1, 2));
    assert_eq!(load::find_conversation(&store, &id[..6]).unwrap(), Some(id));
}

/// A call whose system prompt ends in `system`, with the tokens that were read from the cache and written to it.
fn cached_call(n: u64, system: &str, said: usize, tokens: [u64; 3]) -> FlowWithBodies {
    let history: Vec<Value> = (0..said).map(|i| json!({"role": "user", "content": format!("step {i}")})).collect();
    let request = json!({"model": "claude-x", "system": format!("Be brief. {system}"), "messages": history,
        "metadata": {"user_id": "u_session_s1"}});
    let [input, read, written] = tokens;
    let response = json!({"id": format!("m{n}"), "model": "claude-x", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "done"}],
        "usage": {"input_tokens": input - read - written, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written, "output_tokens": 10}});
    let (url, media) = ("/v1/messages", "application/json");
    flow(n, "api.anthropic.com", url, request.to_string(), 200, media, response.to_string())
}

#[test]
fn prompt_cache_report_names_the_change_and_its_price() {
    let (_dir, store) = open_store();
    for flow in [
        cached_call(1, "Now: 2026-11-23 10:00:00", 1, [5_000, 0, 4_900]),
        cached_call(2, "Now: 2026-11-23 10:00:00", 2, [5_100, 4_900, 100]),
        cached_call(3, "Now: 2026-11-23 10:07:12", 3, [5_200, 0, 5_100]),
        cached_call(4, "Now: 2026-11-23 10:07:12", 4, [5_300, 5_100, 100]),
    ] {
        store.insert(flow).unwrap();
    }
    ConversationIndexer::new(&store, pricing()).rebuild(&mut |_| {}).unwrap();
    let listed = store.conversations(&ConversationOptions { all: true, limit: 9, ..Default::default() }).unwrap();
    assert_eq!(listed.len(), 1);
    // A dollar per token that did not come from the cache.
    let price: &CallPricing = &|_, _, usage, _| Some((usage.input - usage.cache_read) as f64);
    let report = prompt_cache::report(&store, &listed[0].row.id, price).unwrap().unwrap();
    assert_eq!((report.calls, report.input_tokens, report.cached_tokens), (4, 20_600, 10_000));
    assert_eq!((report.lost_tokens, report.lost_cost), (5_000, 5_000.0));
    let [found] = &report.breaks[..] else { panic!("{:?}", report.breaks) };
    assert_eq!(found.reason.cause, BreakCause::VolatileSystem);
    let change = found.reason.change.as_ref().unwrap();
    assert!(change.before.ends_with("10:00:00") && change.after.ends_with("10:07:12"), "{change:?}");
    assert!(report.advice[0].text.contains("out of the system prompt"), "{:?}", report.advice);
    assert_eq!(prompt_cache::report(&store, "0000", price).unwrap(), None);
}

#[test]
fn a_call_answered_by_the_gateways_cache_costs_nothing() {
    let (_dir, store) = open_store();
    let mut flows = three();
    flows[2].row.tags.push("cache:hit".into());
    for flow in flows {
        store.insert(flow).unwrap();
    }
    ConversationIndexer::new(&store, pricing()).rebuild(&mut |_| {}).unwrap();
    let listed = store.conversations(&ConversationOptions { limit: 9, ..Default::default() }).unwrap();
    let used = listed[0].used;
    assert_eq!((used.exchanges, used.input, used.unpriced), (3, 200, 0));
}

#[test]
fn calls_that_providers_do_not_charge_for_have_a_known_cost() {
    let (_dir, store) = open_store();
    let user = json!({"role": "user", "content": "fix it"});
    let request = json!({"model": "claude-x", "messages": [user], "metadata": {"user_id": "u_session_s1"}}).to_string();
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}).to_string();
    for (n, path, status, response) in
        [(4, "/v1/messages", 529, error.as_str()), (5, "/v1/messages/count_tokens", 200, r#"{"input_tokens": 12}"#)]
    {
        let (host, media) = ("api.anthropic.com", "application/json");
        store.insert(flow(n, host, path, request.clone(), status, media, response.to_owned())).unwrap();
    }
    three().into_iter().for_each(|f| assert!(store.insert(f).unwrap()));
    ConversationIndexer::new(&store, pricing()).rebuild(&mut |_| {}).unwrap();
    let listed = store.conversations(&ConversationOptions { limit: 9, ..Default::default() }).unwrap();
    let used = listed[0].used;
    assert_eq!((listed.len(), used.exchanges, used.unpriced, used.cost), (1, 5, 0, 330.0));
}

#[test]
fn the_differences_of_all_requests_read_the_calls_once() {
    let (_dir, store) = open_store();
    three().into_iter().for_each(|f| assert!(store.insert(f).unwrap()));
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let opened = load::load_conversation(&store, &id, None).unwrap().unwrap();
    let diffs = load::request_diffs(&store, &opened);
    store.forget_conversations().unwrap();
    assert_eq!(diffs.map(|diff| diff.unwrap().1.added.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn exports_have_the_sub_agents_whose_call_is_not_known() {
    let (_dir, store) = open_store();
    let agent = |n: u64, said: &str, tools: &[&str]| {
        let tools: Vec<Value> = tools.iter().map(|name| json!({"name": name})).collect();
        let request = json!({"model": "claude-x", "messages": [{"role": "user", "content": said}], "tools": tools,
            "metadata": {"user_id": "u_session_s1"}});
        let response = json!({"id": format!("m{n}"), "model": "claude-x", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": format!("re {said}")}]});
        let (host, media) = ("api.anthropic.com", "application/json");
        flow(n, host, "/v1/messages", request.to_string(), 200, media, response.to_string())
    };
    store.insert(agent(1, "fix it", &["Task", "Bash"])).unwrap();
    store.insert(agent(2, "look around", &["Read", "Grep"])).unwrap();
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    let main = store.conversations(&ConversationOptions { limit: 9, ..Default::default() }).unwrap();
    let tree = load_tree(&store, &main[0].row.id).unwrap().unwrap();
    assert_eq!((main.len(), tree.children.len()), (1, 1));
    for form in [ExportFormat::Markdown, ExportFormat::Html, ExportFormat::Jsonl, ExportFormat::Otel] {
        let text = export::write(&tree, form);
        assert!(text.contains("re fix it") && text.contains("re look around"), "{form:?}: {text}");
    }
}

#[test]
fn calls_without_usage_have_the_tokens_that_the_gateway_counted() {
    let (_dir, store) = open_store();
    let mut flows = three();
    // Those of the attempt that answered, or an estimate.
    let silent = json!({"id": "m2", "model": "claude-x", "content": [{"type": "text", "text": "done"}]});
    flows[1].response_body = silent.to_string().into();
    let attempt =
        Attempt { state: AttemptState::Served, input_tokens: Some(50), output_tokens: Some(5), ..Attempt::default() };
    (flows[0].row.attempts, flows[1].row.attempts) = (vec![attempt.clone()], vec![attempt]);
    flows[2].row.tags.push("estimated:70+7".into());
    for flow in flows {
        store.insert(flow).unwrap();
    }
    ConversationIndexer::new(&store, pricing()).rebuild(&mut |_| {}).unwrap();
    let listed = store.conversations(&ConversationOptions { limit: 9, ..Default::default() }).unwrap();
    assert_eq!((listed[0].used.input, listed[0].used.unpriced), (100 + 50 + 70, 0));
    let calls = store.exchanges(&listed[0].row.id).unwrap();
    let estimated: Vec<_> = calls.iter().map(|call| call.facts.contains("\"estimated\":true")).collect();
    assert_eq!((estimated, calls[1].used.output, calls[2].used.output), (vec![false, false, true], 5, 7));
}

#[test]
fn attempts_of_the_gateway_are_no_calls_of_their_own() {
    let (_dir, store) = open_store();
    let [first, mut second, third] = three().try_into().unwrap_or_else(|_| panic!("three flows"));
    second.row.transport = EntryKind::Internal;
    second.row.tags = vec!["route:smart".into(), "deployment:a".into()];
    [first, second, third].into_iter().for_each(|f| assert!(store.insert(f).unwrap()));
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 2);
}

/// The same flow as if the clock had been set `back` microseconds before it.
fn set_back(mut flow: FlowWithBodies, back: u64) -> FlowWithBodies {
    flow.row.started = Timestamp::from_micros(flow.row.started.micros() - back);
    flow.row.id = FlowId::from_u128(flow.row.id.to_u128() - (u128::from(back / 1000) << 80));
    flow
}

#[test]
fn clock_set_back_loses_no_exchange_and_keeps_the_order() {
    const HOUR: u64 = 3_600_000_000;
    let (_dir, store) = open_store();
    let (_other, steady) = open_store();
    let jumps = [0, HOUR, 5 * HOUR];
    for (i, (f, s)) in three().into_iter().zip(three()).enumerate() {
        store.insert(set_back(f, jumps[i])).unwrap();
        steady.insert(s).unwrap();
        // A crash after each one: the next has an id before the cursor.
        assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 1, "exchange {i}");
    }
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 0, "nothing is read twice");
    let said = |store: &SqliteStore| {
        let id = load::find_conversation(store, "last").unwrap().unwrap();
        let opened = load::load_conversation(store, &id, None).unwrap().unwrap();
        let items = opened.thread.turns.iter().flat_map(|t| &t.items);
        let said = items.map(|i| {
            let mut what = serde_json::to_value(&i.what).unwrap();
            // Only the time of arrival may differ.
            what["result"]["at"].take();
            what
        });
        said.collect::<Vec<_>>()
    };
    let live = everything(&store);
    assert_eq!(ConversationIndexer::new(&store, pricing()).rebuild(&mut |_| {}).unwrap(), 3);
    assert_eq!(everything(&store), live, "anew it is the same");
    ConversationIndexer::new(&steady, pricing()).catch_up(&mut |_| {}).unwrap();
    assert_eq!(said(&store), said(&steady), "and as if the clock had stood");
    let all = ConversationOptions { all: true, ..ConversationOptions::default() };
    assert_eq!(store.conversations(&all).unwrap().len(), 1);
}

#[test]
fn indexer_wakes_for_possible_exchanges_and_once_a_minute_for_any_flow() {
    let mut wanted = flow_filter();
    let mut asked = |second: u64, size: u64, kind: FlowKind| {
        let mut row = flow(second, "a.test", "/", "", 200, "text/html", "").row;
        row.kind = kind;
        row.request.as_mut().unwrap().body.size = size;
        wanted(&row)
    };
    for (second, size, kind, by) in [
        (0, 0, FlowKind::Http, true),
        (1, 0, FlowKind::Http, false),
        (60, 0, FlowKind::Http, false),
        (61, 0, FlowKind::Http, true),
        (62, 1, FlowKind::Http, true),
        (63, 0, FlowKind::WebSocket, true),
        (120, 0, FlowKind::Http, false),
        (121, 0, FlowKind::Http, false),
        (124, 0, FlowKind::Http, true),
    ] {
        assert_eq!(asked(second, size, kind), by, "{second} {size}");
    }
    let mut tunnel = flow(500, "a.test", "/", "", 200, "text/html", "").row;
    tunnel.request = None;
    assert!(wanted(&tunnel));
    assert!(!wanted(&tunnel));
}

#[test]
fn cursor_advances_over_flows_without_exchanges() {
    let (_dir, store) = open_store();
    let now = Timestamp::now();
    let mut keeper = ConversationIndexer::new(&store, pricing());
    let seen: Vec<FlowId> = (0..100)
        .map(|n| {
            let new = flow(n, "a.test", "/", "", 200, "text/html", "");
            keeper.on_flows(&[new.row.summary(now)]).unwrap();
            new.row.id
        })
        .collect();
    // Stored when the first was seen, and a little more than a minute later.
    assert_eq!(store.cursor().unwrap(), Some(seen[61]));
}

#[test]
fn live_rebuilt_and_recovered_indexes_are_identical() {
    let (_dir, store) = open_store();
    let now = Timestamp::now();
    // Incrementally, with an indexer that crashes after each call.
    for f in three() {
        let summary = f.row.summary(now);
        store.insert(f).unwrap();
        let mut row = store.get(summary.id).unwrap().summary(now);
        row.request_size = row.request_size.max(1);
        ConversationIndexer::new(&store, pricing()).on_flows(&[row]).unwrap();
    }
    let live = everything(&store);
    assert!(live.contains("welcome"));
    // Nothing is read twice.
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 0);
    assert_eq!(ConversationIndexer::new(&store, pricing()).rebuild(&mut |_| {}).unwrap(), 3);
    assert_eq!(everything(&store), live);
}

#[test]
fn non_exchanges_are_skipped_and_truncated_streams_kept() {
    let (_dir, store) = open_store();
    let sse = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half an ans\"}}]}\n\ndata: {\"choi";
    let chat = json!({"model": "gpt", "messages": [{"role": "user", "content": "x".repeat(2_000_000) + "\n".repeat(1_000_000).as_str()}]});
    for f in [
        flow(1, "a.test", "/v1/messages", "this is not JSON at all, not a bit", 200, "application/json", "{}"),
        flow(2, "a.test", "/v1/messages", vec![0xffu8; 100], 200, "text/plain", vec![0u8; 100]),
        flow(
            3,
            "a.test",
            "/save",
            json!({"model": "T", "year": 1908, "messages": [1, 2, 3]}).to_string(),
            200,
            "application/json",
            "{}",
        ),
        flow(4, "llm.local", "/odd/path", chat.to_string(), 200, "text/event-stream", sse),
        flow(
            5,
            "llm.local",
            "/v1/chat/completions",
            json!({"model": "gpt", "messages": [{"role": "user", "content": "hi"}]}).to_string(),
            502,
            "text/html",
            "<h1>bad gateway</h1>",
        ),
    ] {
        assert!(store.insert(f).unwrap());
    }
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 2);
    let all = everything(&store);
    assert!(all.contains("half an ans") && all.contains("<h1>bad gateway</h1>"));
}

#[test]
fn exchanges_of_a_websocket_are_indexed_as_they_arrive() {
    let (_dir, store) = open_store();
    let mut f = flow(1, "api.openai.com", "/v1/responses", "", 101, "", "");
    f.row.kind = FlowKind::WebSocket;
    let mut messages = Vec::new();
    let mut say = |direction, value: Value| {
        messages.push(MessageRecord {
            index: messages.len() as u64,
            direction,
            kind: MessageKind::Text,
            at: Timestamp::from_micros(1_700_000_000_000_000 + messages.len() as u64 * 1000),
            size: 0,
            payload: value.to_string().into(),
        });
    };
    for (n, text) in ["one", "two"].into_iter().enumerate() {
        let item = json!({"role": "user", "content": [{"type": "input_text", "text": text}]});
        say(
            Direction::Request,
            json!({"type": "response.create", "model": "gpt", "prompt_cache_key": "k", "input": [item]}),
        );
        let output = json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": format!("re {text}")}]}]);
        say(Direction::Response, json!({"type": "response.created", "response": {"id": format!("r{n}")}}));
        say(
            Direction::Response,
            json!({"type": "response.completed", "response": {"id": format!("r{n}"), "status": "completed",
            "output": output, "usage": {"input_tokens": 5, "output_tokens": 2}}}),
        );
    }
    f.messages = messages;
    store.insert(f).unwrap();
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 2);
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let opened = load::load_conversation(&store, &id, None).unwrap().unwrap();
    let texts: Vec<_> = opened
        .thread
        .turns
        .iter()
        .flat_map(|t| &t.items)
        .map(|i| match &i.what {
            ItemKind::Text { text } => text.as_str(),
            _ => "",
        })
        .collect();
    assert_eq!(texts, ["one", "re one", "two", "re two"]);
    assert_eq!(opened.thread.exchanges.iter().map(|e| e.part).collect::<Vec<_>>(), [1, 4]);
}

#[test]
fn exported_documents_are_complete_and_contain_no_active_content() {
    let (_dir, store) = open_store();
    let call = json!([{"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "look closely at <a>"}}]);
    let found = json!([{"type": "text", "text": "<script>alert(1)</script> & ``` found"}]);
    let result =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "it is fine"}]});
    let start = json!({"role": "user", "content": "ask somebody"});
    let said = json!({"role": "assistant", "content": call});
    store.insert(asked(1, &json!([start]), &call)).unwrap();
    store.insert(asked(2, &json!([{"role": "user", "content": "look closely at <a>"}]), &found)).unwrap();
    store.insert(asked(3, &json!([start, said, result]), &json!([{"type": "text", "text": "all well"}]))).unwrap();
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let tree = load_tree(&store, &id).unwrap().unwrap();
    assert_eq!(tree.children.len(), 1);
    let html = export::write(&tree, ExportFormat::Html);
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;") && html.contains("default-src 'none'"));
    let markdown = export::write(&tree, ExportFormat::Markdown);
    for words in ["ask somebody", "look closely at <a>", "found", "it is fine", "all well"] {
        assert!(markdown.contains(words) && export::write(&tree, ExportFormat::Jsonl).contains(words), "{words}");
    }
    let otel: Value = serde_json::from_str(&export::write(&tree, ExportFormat::Otel)).unwrap();
    let spans = otel["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let named = |name: &str| spans.iter().filter(|s| s["name"] == name).collect::<Vec<_>>();
    let value = |span: &Value, key: &str| {
        let all = span["attributes"].as_array().unwrap();
        all.iter().find(|a| a["key"] == key).map(|a| a["value"].clone()).unwrap_or_default()
    };
    assert_eq!((spans.len(), named("invoke_agent claude-code").len(), named("chat claude-x").len()), (6, 2, 3));
    let tool = named("execute_tool Task")[0];
    assert_eq!(value(tool, "gen_ai.tool.call.arguments")["stringValue"], r#"{"prompt":"look closely at <a>"}"#);
    assert_eq!(value(tool, "gen_ai.tool.call.result")["stringValue"], "it is fine");
    assert!(spans.iter().any(|s| s["name"] == "invoke_agent claude-code" && s["parentSpanId"] == tool["spanId"]));
    assert!(spans.iter().all(|s| s["traceId"] == spans[0]["traceId"]), "a sub-agent is in its parent's trace");
    let is_last = |s: &&Value| value(s, "gen_ai.output.messages").to_string().contains("all well");
    let last = named("chat claude-x").into_iter().find(is_last).unwrap();
    assert!(value(last, "gen_ai.input.messages").to_string().contains("it is fine"));
    assert_eq!(value(last, "gen_ai.usage.input_tokens")["intValue"], "100");
    for line in export::write(&tree, ExportFormat::Jsonl).lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap().is_object());
    }
}

#[test]
fn conversation_continues_in_full_after_its_flows_were_deleted() {
    let (_dir, store) = open_store();
    let mut keeper = ConversationIndexer::new(&store, pricing());
    let now = Timestamp::now();
    let mut ids = Vec::new();
    for (n, f) in three().into_iter().enumerate() {
        ids.push(f.row.id);
        store.insert(f).unwrap();
        let summary = store.get(ids[n]).unwrap().summary(now);
        let kept = keeper.on_flows(&[summary]);
        if n == 1 {
            store.delete(&ids[..2]).unwrap();
            assert_eq!(store.conversations(&ConversationOptions::default()).unwrap(), []);
        }
        // The indexer's state is gone: it reads again.
        assert_eq!(kept.is_err(), n == 2);
    }
    assert_eq!(keeper.catch_up(&mut |_| {}).unwrap(), 1);
    let all = everything(&store);
    for words in ["fix it", "a.rs", "done", "thanks", "welcome"] {
        assert!(all.contains(words), "{words}");
    }
}

#[test]
fn flows_are_found_by_model_agent_and_tokens() {
    let (_dir, store) = open_store();
    three().into_iter().for_each(|f| assert!(store.insert(f).unwrap()));
    store.insert(flow(9, "b.test", "/x", "{}", 200, "application/json", "{}")).unwrap();
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    for (query, n) in [
        ("model:claude", 3),
        ("-model:claude", 1),
        ("model:/^claude-x$/", 3),
        ("agent:claude-code tokens:>=110", 3),
        ("tokens:>110", 0),
        ("provider:anthropic body:thanks", 1),
        ("agent:codex", 0),
    ] {
        let query = interflow_query::Query::parse(query).unwrap();
        assert_eq!(store.count(&query).unwrap(), n, "{query}");
    }
}

/// Words that do not repeat, so that only the history does.
fn fresh_words(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < 2000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("w{:x} ", state & 0xff_ffff));
    }
    text
}

#[test]
fn two_hundred_turns_of_a_growing_history_take_a_tenth_of_their_bytes() {
    let (_dir, store) = open_store();
    let mut history: Vec<Value> = Vec::new();
    let mut raw = 0;
    for turn in 0..200 {
        history.push(json!({"role": "user", "content": fresh_words(turn * 2)}));
        let answer = json!([{"type": "text", "text": fresh_words(turn * 2 + 1)}]);
        let flow = asked(turn + 1, &json!(history), &answer);
        raw += (flow.request_body.len() + flow.response_body.len()) as u64;
        assert!(store.insert(flow).unwrap());
        history.push(json!({"role": "assistant", "content": answer}));
    }
    assert_eq!(ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap(), 200);
    store.flush().unwrap();
    let taken = || {
        let stats = store.stats().unwrap();
        let taken = stats.segment_bytes + stats.database_bytes;
        let percent = taken as f64 * 100.0 / raw as f64;
        println!("{taken} of {raw} bytes: {percent:.1} %, {} of them rows and their log", stats.database_bytes);
        taken
    };
    // During a burst the SQLite WAL is added, within its own bound; it is checkpointed when idle.
    assert!(taken() <= raw / 25 + (24 << 20));
    let began = std::time::Instant::now();
    while taken() * 25 > raw {
        assert!(began.elapsed().as_secs() < 60, "the log stays");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

#[test]
fn exchange_parsing_counts_against_memory_and_oversized_ones_are_skipped() {
    let (_dir, store) = open_store();
    let message = json!({"role": "user", "content": "x"});
    let some = asked(1, &json!(vec![message; 1000]), &json!([]));
    // Some megabytes of text, hundreds of them once parsed.
    let mut many = asked(2, &json!([]), &json!([]));
    many.request_body = format!("{{\"model\":\"m\",\"messages\":[{}0]}}", "0,".repeat(2_600_000)).into();
    let read = |flow: FlowWithBodies| {
        let id = flow.row.id;
        store.insert(flow).unwrap();
        from_recording::read_call(
            &store,
            &store.get_loaded(id, FlowParts::Bodies).unwrap(),
            &EndpointOverrides::default(),
        )
        .unwrap()
    };
    let (_, held) = read(some).unwrap();
    let least = 1000 * 3 * size_of::<Value>() as u64;
    assert!(held.bytes() >= least && PROCESS_BUDGET.reserved() >= least, "{held:?}");
    assert!(read(many).is_none());
}

#[test]
fn commands_are_answered_while_the_store_fails() {
    let (dir, store) = open_store();
    let (database, away) = (dir.path().join("flows.db"), dir.path().join("away"));
    std::fs::rename(&database, &away).unwrap();
    let handle = IndexerHandle::start(Arc::new(store), pricing()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let minute = std::time::Duration::from_secs(60);
    let flush = || runtime.block_on(async { tokio::time::timeout(minute, handle.flush()).await });
    for _ in 0..3 {
        assert!(flush().expect("an answer").is_err());
    }
    std::fs::rename(&away, &database).unwrap();
    flush().expect("an answer").unwrap();
}

#[test]
fn flows_are_indexed_as_the_store_announces_them() {
    let (_dir, store) = open_store();
    let store = Arc::new(store);
    let handle = IndexerHandle::start(Arc::clone(&store) as _, pricing()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(handle.flush()).unwrap();
    for flow in three() {
        let id = flow.row.id;
        assert!(store.insert(flow).unwrap());
        // An imported flow is not announced, its annotation is.
        let tag = FlowAnnotation { add_tags: vec!["new".into()], ..FlowAnnotation::default() };
        store.annotate(id, tag).unwrap();
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while store.cursor().unwrap() != Some(id) {
            assert!(std::time::Instant::now() < patience, "it is not indexed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    let live = everything(&*store);
    assert_eq!(runtime.block_on(handle.rebuild()).unwrap(), 3);
    assert_eq!(everything(&*store), live);
}
