//! Conversations over the API: lists, threads, documents, totals, and MCP.

use interflow_testkit::llm;
use serde_json::json;

use super::documented::assert_documented;
use super::*;

/// An instance through which a model was called twice with one history.
async fn talked() -> (Instance, String) {
    let it = Instance::answering(llm::provider(Origin::http()).0).await;
    let mut history = vec![json!({"role": "user", "content": "what is <b>bold</b>?"})];
    for turns in 1..=2 {
        let body = json!({"model": "claude-x", "max_tokens": 50, "messages": history}).to_string();
        let answer =
            it.post_through("/v1/messages", "Content-Type: application/json\r\nx-api-key: k\r\n", &body).await.json();
        history.push(json!({"role": "assistant", "content": answer["content"]}));
        history.push(json!({"role": "user", "content": "and then?"}));
        for _ in 0..400 {
            if it.json("/conversations").await["conversations"][0]["turns"] == turns {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    let page = it.json("/conversations").await;
    assert_eq!(page["conversations"][0]["turns"], 2, "{page}");
    let id = page["conversations"][0]["id"].as_str().unwrap().to_owned();
    (it, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanges_become_a_conversation_as_they_end() {
    let (it, id) = talked().await;
    let opened = it.json(&format!("/conversations/{id}")).await;
    let turns = opened["thread"]["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 2, "{opened}");
    assert_eq!(turns[0]["items"][0]["text"], "what is <b>bold</b>?");
    assert_eq!((opened["live"].as_bool(), opened["title"].as_str()), (None, Some("what is <b>bold</b>?")));
}

/// The flow of the second exchange.
async fn second_flow(it: &Instance, id: &str) -> String {
    let opened = it.json(&format!("/conversations/{id}")).await;
    opened["thread"]["exchanges"][1]["flow"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_an_exchange_are_what_its_request_added() {
    let (it, id) = talked().await;
    let flow = second_flow(&it, &id).await;
    let changes = it.json(&format!("/conversations/{id}/changes?flow={flow}")).await;
    assert_eq!(
        (changes["changes"]["same"].as_u64(), changes["changes"]["added"].as_array().unwrap().len()),
        (Some(1), 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_leads_to_its_conversation_and_cost() {
    let (it, id) = talked().await;
    let flow = second_flow(&it, &id).await;
    let of = it.json(&format!("/conversations/by-flow?flows={flow}")).await;
    assert_eq!(
        (of["flows"][&flow]["conversation"].as_str(), of["flows"][&flow]["cost"].as_f64()),
        (Some(id.as_str()), Some(0.5))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_of_conversations_are_summed() {
    let (it, _) = talked().await;
    let totals = it.json("/conversations/totals?since=1h&span=1h").await;
    assert_eq!(totals["totals"][0]["used"]["cost"].as_f64(), Some(1.0), "{totals}");
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_of_the_range_that_is_asked_for() {
    let (it, id) = talked().await;
    let opened = it.json(&format!("/conversations/{id}")).await;
    let started = opened["thread"]["exchanges"][1]["started"].as_u64().unwrap();
    let totals = |from: u64, to: u64| format!("/conversations/totals?from={from}&to={to}&span=1h&offset=-90");
    let found = it.json(&totals(started, started + 1)).await;
    assert_eq!(found["totals"][0]["used"]["exchanges"].as_u64(), Some(1), "{found}");
    let from = found["totals"][0]["from"].as_u64().unwrap();
    assert_eq!((from % 3_600_000_000, started - from < 3_600_000_000), (1_800_000_000, true), "half an hour off");
    assert_eq!(it.json(&totals(0, started - 3_600_000_000)).await["totals"], json!([]));
    let listed = |from: u64, to: u64| format!("/conversations?from={from}&to={to}");
    assert_eq!(it.json(&listed(started, started + 1)).await["conversations"][0]["id"], id.as_str());
    assert_eq!(it.json(&listed(0, 1)).await["conversations"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_messages_are_found_with_their_surroundings() {
    let (it, id) = talked().await;
    let found = it.json("/conversations/search?text=AND%20then").await;
    assert_eq!((found["searched"].as_u64(), found["next"].is_null()), (Some(1), true), "{found}");
    let first = &found["conversations"][0];
    assert_eq!((first["id"].as_str(), first["hits"].as_u64()), (Some(id.as_str()), Some(1)), "{found}");
    assert_eq!(
        (first["excerpts"][0]["found"].as_str(), first["excerpts"][0]["after"].as_str()),
        (Some("and then"), Some("?"))
    );
    assert_eq!(it.json("/conversations/search?text=nowhere").await["conversations"], json!([]));
    assert_eq!(it.json("/conversations/search?text=then&query=agent:codex").await["searched"], 0);
    assert_eq!(it.get("/conversations/search?text=%20").await.status, 400);
    let opened = it.json(&format!("/conversations/{id}")).await;
    let keys = opened["thread"]["turns"].to_string();
    assert!(keys.contains(first["excerpts"][0]["key"].as_str().unwrap()), "the match names its message");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_and_messages_are_tagged_and_commented() {
    let (it, id) = talked().await;
    let path = format!("/conversations/{id}");
    let opened = it.json(&path).await;
    let key = opened["thread"]["turns"][0]["items"][0]["key"].as_str().unwrap().to_owned();
    let json_body = [("Content-Type", "application/json")];
    let patch =
        async |input: serde_json::Value| it.call("PATCH", &path, &json_body, input.to_string().as_bytes()).await;
    let answer = patch(json!({"add_tags": ["starred"], "comment": "look <b>here</b>"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    patch(json!({"message": key, "comment": "a good question"})).await;
    let notes = it.json(&path).await["notes"].clone();
    assert_eq!(
        notes,
        json!([{"tags": ["starred"], "comment": "look <b>here</b>"}, {"message": key, "comment": "a good question"}])
    );
    for query in ["tag:starred", "comment:question"] {
        assert_eq!(it.json(&format!("/conversations?query={query}")).await["conversations"][0]["id"], id.as_str());
    }
    for (format, words) in
        [("markdown", "> **Note:** a good question"), ("html", "[starred] look &lt;b&gt;here"), ("jsonl", "starred")]
    {
        let document = it.get(&format!("{path}/export?format={format}")).await.text();
        assert!(document.contains(words), "{format}: {document}");
    }
    for (input, status) in [
        (json!({"message": "zz"}), 400),
        (json!({"message": "0".repeat(32), "comment": "x"}), 404),
        (json!({"add_tags": [""]}), 400),
        (json!({"comment": "x".repeat(100_000)}), 413),
    ] {
        assert_eq!(patch(input.clone()).await.status, status, "{input}");
    }
    let done = patch(json!({"tags": [], "comment": ""})).await.json();
    assert_eq!(done["notes"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_selects_conversations() {
    let (it, _) = talked().await;
    assert_eq!(it.json("/conversations?query=agent:codex").await["conversations"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_calls_become_a_conversation_too() {
    let (from, _) = talked().await;
    let archive = from.get("/export?format=har").await;
    let (to, _) = talked().await;
    let own = to.json("/conversations").await["conversations"].as_array().unwrap().len();
    let done = to.call("POST", "/import", &[], &archive.body).await.json();
    assert_eq!(done["imported"], 2, "{done}");
    let calls = to.json("/flows?query=is:llm%20is:imported").await;
    assert_eq!(calls["flows"].as_array().unwrap().len(), 2, "{calls}");
    let page = to.json("/conversations").await;
    assert!(page["conversations"].as_array().unwrap().len() >= own, "{page}");
    let before = to.json("/conversations/totals?since=1h&span=1h").await;
    to.post("/conversations/rebuild", json!({})).await;
    let after = to.json("/conversations/totals?since=1h&span=1h").await;
    assert_eq!(after["totals"], before["totals"], "a rebuild finds the same calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilt_conversations_are_the_same() {
    let (it, id) = talked().await;
    let opened = it.json(&format!("/conversations/{id}")).await;
    let anew = it.post("/conversations/rebuild", json!({})).await.json();
    assert_eq!(anew["exchanges"], 2);
    assert_eq!(it.json(&format!("/conversations/{id}")).await, opened);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_about_conversations_match_their_documentation() {
    let (it, id) = talked().await;
    let flow = second_flow(&it, &id).await;
    for (path, input) in [
        ("/conversations", None),
        (&*format!("/conversations/{id}"), None),
        (&*format!("/conversations/{id}/changes?flow={flow}"), None),
        (&*format!("/conversations/by-flow?flows={flow}"), None),
        ("/conversations/totals", None),
        ("/conversations/search?text=then", None),
        ("/conversations/rebuild", Some(json!({}))),
    ] {
        assert_documented(&it, path, input).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_exports_are_downloads_without_active_content() {
    let (it, id) = talked().await;
    for (format, words) in [("html", "&lt;b&gt;bold"), ("markdown", "<b>bold"), ("jsonl", "<b>bold")] {
        let answer = it.get(&format!("/conversations/{id}/export?format={format}")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.headers.get_str("content-disposition").is_some_and(|d| d.starts_with("attachment")), "{format}");
        assert!(answer.text().contains(words), "{format}: {}", answer.text());
    }
    for (path, status) in [
        (format!("/conversations/{id}/export?format=pdf"), 400),
        (format!("/conversations/{id}?leaf=zz"), 400),
        ("/conversations/0000".into(), 404),
        ("/conversations/by-flow?flows=x".into(), 400),
    ] {
        assert_eq!(it.get(&path).await.status, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_endpoint_requires_the_token() {
    let (it, id) = talked().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "read_conversation", "arguments": {"id": id}}});
    let (host, bearer) = (it.admin.to_string(), format!("Bearer {TOKEN}"));
    let json = ("Content-Type", "application/json");
    let fields = [("Host", host.as_str()), ("Authorization", bearer.as_str()), json];
    let answer = it.plain("POST", "/mcp", &fields, call.to_string().as_bytes()).await;
    assert!(answer.json()["result"]["content"][0]["text"].as_str().unwrap().contains("and then?"));
    let told = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(it.plain("POST", "/mcp", &fields, told).await.status, 202);
    let stranger = it.plain("POST", "/mcp", &[("Host", host.as_str()), json], call.to_string().as_bytes()).await;
    assert_eq!(stranger.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_read_conversations_without_secrets() {
    let it = Instance::answering(llm::provider(Origin::http()).0).await;
    let arguments = json!({"user": "demo", "password": "hunter2"});
    let history = json!([
        {"role": "user", "content": "log in"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "login", "input": arguments}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "{\"access_token\":\"s3cret\",\"n\":1}"}]},
    ]);
    let body = json!({"model": "claude-x", "max_tokens": 50, "messages": history}).to_string();
    it.post_through("/v1/messages", "Content-Type: application/json\r\nx-api-key: k\r\n", &body).await;
    for _ in 0..400 {
        if it.json("/conversations").await["conversations"][0]["id"].is_string() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "read_conversation", "arguments": {"id": "last"}}});
    let (host, bearer) = (it.admin.to_string(), format!("Bearer {TOKEN}"));
    let fields = [("Host", host.as_str()), ("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let answer = it.plain("POST", "/mcp", &fields, call.to_string().as_bytes()).await.json();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("demo") && !text.contains("hunter2") && !text.contains("s3cret"), "{text}");
}
