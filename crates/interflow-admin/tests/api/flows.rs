//! Lists, single flows, annotations, deletion.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn flow_pages_are_contiguous_in_both_directions() {
    let it = Instance::start().await;
    for n in 0..5 {
        it.through(&format!("/status/20{n}")).await;
    }
    let all = it.ids().await;
    assert_eq!(all.len(), 5);
    let ids = |page: &Value| -> Vec<String> {
        page["flows"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap().to_owned()).collect()
    };
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = it.json(&format!("/flows?limit=2{after}")).await;
        seen.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all);

    let newer = it.json(&format!("/flows?limit=2&before={}", all[3])).await;
    assert_eq!(ids(&newer), all[1..3], "those next to it, in the order of the list");
    let newest = it.json(&format!("/flows?limit=2&before={}", newer["next"].as_str().unwrap())).await;
    assert_eq!((ids(&newest), newest["next"].clone()), (all[..1].to_vec(), Value::Null));

    let mut oldest = it.json("/flows?order=oldest").await;
    oldest["flows"].as_array_mut().unwrap().reverse();
    assert_eq!(ids(&oldest), all);
    let both = it.get(&format!("/flows?after={0}&before={0}", all[0])).await;
    assert_eq!(both.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_select_count_and_search() {
    let it = Instance::start().await;
    it.through("/status/200").await;
    it.through("/status/404").await;
    it.post_through("/echo", "Content-Type: text/plain\r\n", "a needle in the hay").await;
    let selected = it.json("/flows?query=status%3A404").await;
    assert_eq!(selected["flows"].as_array().unwrap().len(), 1);
    assert_eq!(selected["flows"][0]["path"], "/status/404");
    for (query, count) in [("", 3), ("status:404", 1), ("body:needle", 1), ("host:nowhere.test", 0)] {
        let found = it.json(&format!("/flows/count?query={query}")).await;
        assert_eq!(found["count"], count, "{query}");
        let lines = it.get(&format!("/search?query={query}")).await;
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
        let text = lines.text();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.iter().filter(|l| l.get("flow").is_some()).count(), count, "{query}");
        assert_eq!(lines.last().unwrap()["done"], json!({"found": count, "complete": true}), "{query}");
    }
    assert!(it.get("/search?limit=2").await.text().contains(r#""complete":false"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_can_be_read_annotated_and_deleted() {
    let it = Instance::start().await;
    it.post_through("/echo", "Authorization: Bearer secret-of-the-client\r\n", "hello").await;
    let id = it.ids().await.remove(0);
    let flow = it.json(&format!("/flows/{id}")).await;
    assert_eq!(flow["url"], it.origin.url("/echo"));
    assert_eq!(flow["masked"], json!(["Authorization"]));
    assert_eq!((&flow["request"]["body"]["size"], &flow["response"]["status"]), (&json!(5), &json!(200)));
    assert!(!flow.to_string().contains("secret-of-the-client"));

    let patch = |change: Value| {
        let (it, path) = (&it, format!("/flows/{id}"));
        async move { it.call("PATCH", &path, &[("Content-Type", "application/json")], change.to_string().as_bytes()).await }
    };
    let marked = patch(json!({"add_tags": ["a", "b"], "comment": "look"})).await.json();
    assert_eq!((&marked["tags"], &marked["comment"]), (&json!(["a", "b"]), &json!("look")));
    assert_eq!(patch(json!({"tags": ["b", "c"]})).await.json()["tags"], json!(["b", "c"]));
    let bare = patch(json!({"remove_tags": ["b", "c"], "comment": ""})).await.json();
    assert_eq!((bare.get("tags"), bare.get("comment")), (None, None));
    assert_eq!(patch(json!({"add_tags": ["line\nbreak"]})).await.status, 400);
    assert_eq!(patch(json!({"add_tags": [""]})).await.status, 400);

    assert_eq!(it.call("DELETE", &format!("/flows/{id}"), &[], b"").await.status, 204);
    let gone = it.call("DELETE", &format!("/flows/{id}"), &[], b"").await;
    assert_eq!((gone.status, kind(&gone).as_str()), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn active_flow_cannot_be_deleted() {
    let it = Instance::start().await;
    let (flow, capture) = it.begin("/running");
    it.store.as_ref().unwrap().flush().unwrap();
    let refused = it.call("DELETE", &format!("/flows/{}", flow.id), &[], b"").await;
    assert_eq!((refused.status, kind(&refused).as_str()), (409, "open"));
    capture.finish(&flow, FlowOutcome::Complete);
    it.settle().await;
    assert_eq!(it.call("DELETE", &format!("/flows/{}", flow.id), &[], b"").await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_requires_an_explicit_selection() {
    let it = Instance::start().await;
    for path in ["/status/200", "/status/404", "/status/500"] {
        it.through(path).await;
    }
    let refused = it.post("/flows/prune", json!({"query": " "})).await;
    assert_eq!((refused.status, it.ids().await.len()), (400, 3));
    assert_eq!(it.post("/flows/prune", json!({"older": "1h"})).await.json()["pruned"], 0);
    assert_eq!(it.post("/flows/prune", json!({"query": "status:404"})).await.json()["pruned"], 1);
    let chosen = it.ids().await;
    assert_eq!(it.post("/flows/delete", json!({"ids": [chosen[0]]})).await.json()["deleted"], 1);
    assert_eq!(it.post("/flows/prune", json!({"older": "0s"})).await.json()["pruned"], 1);
    it.through("/status/200").await;
    assert_eq!(it.post("/flows/prune", json!({"all": true})).await.json()["pruned"], 1);
    assert!(it.ids().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_paged_and_returned_in_full() {
    let it = Instance::start().await;
    it.through("/sse?count=5").await;
    let id = it.ids().await.remove(0);
    let first = it.json(&format!("/flows/{id}/messages?limit=2")).await;
    assert_eq!((&first["total"], &first["next"]), (&json!(5), &json!(2)));
    let message = &first["messages"][1];
    assert_eq!(
        (&message["index"], &message["direction"], &message["kind"]),
        (&json!(1), &json!("response"), &json!("event"))
    );
    let rest = it.json(&format!("/flows/{id}/messages?from=2&payload=3")).await;
    assert_eq!((rest["messages"].as_array().unwrap().len(), &rest["next"]), (3, &Value::Null));
    assert_eq!(rest["messages"][0]["payload"].as_str().unwrap().len(), 3);
    let whole = it.get(&format!("/flows/{id}/messages/4")).await;
    assert!(whole.text().contains(r#"{"n":4}"#), "{}", whole.text());
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    assert_eq!(it.get(&format!("/flows/{id}/messages/5")).await.status, 404);
}
