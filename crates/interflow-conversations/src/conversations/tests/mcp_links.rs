//! Tool calls and the MCP flows that carried them.

use super::*;

/// A call of the MCP gateway, `millis` after the calls' time 1.
fn mcp_call(n: u64, millis: u64, tool: &str, arguments: &Value) -> FlowWithBodies {
    let request = json!({"jsonrpc": "2.0", "id": n, "method": "tools/call",
        "params": {"name": format!("files__{tool}"), "arguments": arguments}});
    let mut flow = flow(1, "127.0.0.1", "/mcp", request.to_string(), 200, "application/json", "{}");
    flow.row.started = Timestamp::from_micros(flow.row.started.micros() + millis * 1000);
    flow.row.id = FlowId::from_u128(u128::from(flow.row.started.micros() / 1000) << 80 | u128::from(n));
    flow.row.tags = vec!["mcp".into(), "mcp:files".into(), format!("mcp-tool:{tool}")];
    flow
}

/// The flows that carried the tool calls of a conversation: calls at time 1, their results in the request of time 2.
fn carriers(
    calls: &Value,
    carried: Vec<FlowWithBodies>,
    user: Option<&str>,
) -> (SqliteStore, tempfile::TempDir, Vec<Option<String>>) {
    let (dir, store) = open_store();
    let mut history = vec![json!({"role": "user", "content": "look"})];
    let mut flows = vec![asked(1, &json!(history), calls)];
    history.push(json!({"role": "assistant", "content": calls}));
    let results = calls.as_array().unwrap().iter();
    let results: Vec<Value> =
        results.map(|c| json!({"type": "tool_result", "tool_use_id": c["id"], "content": "x"})).collect();
    history.push(json!({"role": "user", "content": results}));
    flows.push(asked(2, &json!(history), &json!([{"type": "text", "text": "done"}])));
    for flow in &mut flows {
        flow.row.user = user.map(Into::into);
    }
    flows.into_iter().chain(carried).for_each(|f| assert!(store.insert(f).unwrap()));
    ConversationIndexer::new(&store, pricing()).catch_up(&mut |_| {}).unwrap();
    let id = load::find_conversation(&store, "last").unwrap().unwrap();
    let view = load::load_conversation(&store, &id, None).unwrap().unwrap();
    let items = view.thread.turns.into_iter().flat_map(|turn| turn.items);
    let found = items.filter_map(|item| match item.what {
        ItemKind::Tool { flow, .. } => Some(flow),
        _ => None,
    });
    let found = found.collect();
    (store, dir, found)
}

fn use_of(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

#[test]
fn tool_calls_are_linked_to_the_mcp_flows_that_carried_them() {
    let calls = json!([
        use_of("t1", "mcp__files__read", json!({"path": "a", "to": "EMAIL_aaaaaaa1"})),
        use_of("t2", "files__read", json!({"path": "b"})),
        use_of("t3", "files__list", json!({})),
        use_of("t4", "Bash", json!({"command": "ls"})),
    ]);
    let carried = vec![
        mcp_call(11, 600, "read", &json!({"to": "EMAIL_bbbbbbb2", "path": "a"})),
        mcp_call(12, 610, "read", &json!({"path": "b"})),
        mcp_call(13, 620, "list", &Value::Null),
    ];
    let ids: Vec<FlowId> = carried.iter().map(|flow| flow.row.id).collect();
    let (store, _dir, found) = carriers(&calls, carried, None);
    let known = |i: usize| Some(ids[i].to_string());
    assert_eq!(found, [known(0), known(1), known(2), None]);
    let call = load::call_of_flow(&store, ids[1]).unwrap().unwrap();
    assert_eq!((call.tool.as_str(), call.agent.as_str()), ("files__read", "claude-code"));
    let first = store.list(&interflow_store::ListOptions::default()).unwrap().pop().unwrap();
    assert_eq!(load::call_of_flow(&store, first.id).unwrap(), None, "a call of a model");
}

#[test]
fn a_tool_call_that_several_flows_fit_or_none_is_not_linked() {
    let same = || json!([use_of("t1", "files__read", json!({"path": "a"}))]);
    let read = |n, millis| mcp_call(n, millis, "read", &json!({"path": "a"}));
    // Twice between the call and its result.
    assert_eq!(carriers(&same(), vec![read(11, 600), read(12, 700)], None).2, [None]);
    // Two calls that one flow fits.
    let twice =
        json!([use_of("t1", "files__read", json!({"path": "a"})), use_of("t2", "files__read", json!({"path": "a"}))]);
    assert_eq!(carriers(&twice, vec![read(11, 600)], None).2, [None, None]);
    // After the result, with other arguments, of another tool, of another client.
    let mut other = read(11, 600);
    other.row.user = Some("anna".into());
    for carried in [
        read(11, 1600),
        mcp_call(11, 600, "read", &json!({"path": "b"})),
        mcp_call(11, 600, "write", &json!({"path": "a"})),
        other.clone(),
    ] {
        assert_eq!(carriers(&same(), vec![carried], None).2, [None]);
    }
    assert_eq!(carriers(&same(), vec![other.clone()], Some("anna")).2, [Some(other.row.id.to_string())]);
    assert_eq!(carriers(&same(), vec![read(11, 600)], Some("anna")).2, [None]);
}
