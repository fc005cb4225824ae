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
async fn a_query_selects_conversations() {
    let (it, _) = talked().await;
    assert_eq!(it.json("/conversations?query=agent:codex").await["conversations"], json!([]));
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
