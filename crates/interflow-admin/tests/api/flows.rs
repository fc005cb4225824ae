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

/// An instance with three flows: two GETs, and a POST with a needle in its body.
async fn with_three_flows() -> Instance {
    let it = Instance::start().await;
    it.through("/status/200").await;
    it.through("/status/404").await;
    it.post_through("/echo", "Content-Type: text/plain\r\n", "a needle in the hay").await;
    it
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_key_are_counted_most_frequent_first() {
    let it = with_three_flows().await;
    let all = it.json("/flows/values?key=method").await;
    let expected = json!([{"value": "GET", "count": 2}, {"value": "POST", "count": 1}]);
    assert_eq!((&all["values"], &all["examined"], &all["complete"]), (&expected, &json!(3), &json!(true)));
    let missing = it.json("/flows/values?key=status&query=status%3A404").await;
    assert_eq!((&missing["values"], &missing["examined"]), (&json!([{"value": "404", "count": 1}]), &json!(1)));
    assert_eq!(it.get("/flows/values?key=body").await.status, 400, "a key that the rows do not have");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_details_have_timings_and_comments_and_skip_missing_flows() {
    let it = with_three_flows().await;
    let ids = it.ids().await;
    it.call("PATCH", &format!("/flows/{}", ids[0]), &[("Content-Type", "application/json")], br#"{"comment": "odd"}"#)
        .await;
    let gone = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let details = it.json(&format!("/flows/details?flows={},{},{gone}", ids[0], ids[1])).await;
    let flows = details["flows"].as_object().unwrap();
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[&ids[0]]["comment"], "odd");
    assert!(flows[&ids[1]]["timings"]["first_byte"].as_u64().unwrap() > 0);
    assert_eq!(it.get("/flows/details?flows=x").await.status, 400);
    it.post_through("/echo", "User-Agent: curl/8.5.0\r\n", "x").await;
    let newest = it.ids().await[0].clone();
    let details = it.json(&format!("/flows/details?flows={newest}")).await;
    assert_eq!(details["flows"][&newest]["user_agent"], "curl/8.5.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_details_name_the_operation_of_a_request() {
    let it = Instance::start().await;
    let query = r#"{"query": "query Orders { orders { id } }"}"#;
    it.post_through("/echo", "Content-Type: application/json\r\n", query).await;
    let ids = it.ids().await;
    let details = it.json(&format!("/flows/details?flows={}", ids[0])).await;
    assert_eq!(details["flows"][&ids[0]]["operation"], "query Orders");
}

const COUNTS: [(&str, usize); 4] = [("", 3), ("status:404", 1), ("body:needle", 1), ("host:nowhere.test", 0)];

#[tokio::test(flavor = "multi_thread")]
async fn a_query_selects_flows() {
    let selected = with_three_flows().await.json("/flows?query=status%3A404").await;
    assert_eq!(selected["flows"].as_array().unwrap().len(), 1);
    assert_eq!(selected["flows"][0]["path"], "/status/404");
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_of_a_query_are_counted() {
    let it = with_three_flows().await;
    for (query, count) in COUNTS {
        assert_eq!(it.json(&format!("/flows/count?query={query}")).await["count"], count, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_returns_its_flows_as_lines_and_then_its_end() {
    let it = with_three_flows().await;
    for (query, count) in COUNTS {
        let lines = it.get(&format!("/search?query={query}")).await;
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
        let text = lines.text();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.iter().filter(|l| l.get("flow").is_some()).count(), count, "{query}");
        assert_eq!(lines.last().unwrap()["done"], json!({"found": count, "complete": true}), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_search_says_that_it_is_incomplete() {
    assert!(with_three_flows().await.get("/search?limit=2").await.text().contains(r#""complete":false"#));
}

/// An instance with one flow, and its id.
async fn with_a_flow() -> (Instance, String) {
    let it = Instance::start().await;
    it.post_through("/echo", "Authorization: Bearer secret-of-the-client\r\n", "hello").await;
    let id = it.ids().await.remove(0);
    (it, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_is_read_with_its_masked_headers_named() {
    let (it, id) = with_a_flow().await;
    let flow = it.json(&format!("/flows/{id}")).await;
    assert_eq!(flow["url"], it.origin.url("/echo"));
    assert_eq!(flow["masked"], json!(["Authorization"]));
    assert_eq!((&flow["request"]["body"]["size"], &flow["response"]["status"]), (&json!(5), &json!(200)));
    assert!(!flow.to_string().contains("secret-of-the-client"));
}

async fn annotate(it: &Instance, id: &str, change: Value) -> Answer {
    let json = [("Content-Type", "application/json")];
    it.call("PATCH", &format!("/flows/{id}"), &json, change.to_string().as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_and_comment_of_a_flow_are_added_replaced_and_removed() {
    let (it, id) = with_a_flow().await;
    let marked = annotate(&it, &id, json!({"add_tags": ["a", "b"], "comment": "look"})).await.json();
    assert_eq!((&marked["tags"], &marked["comment"]), (&json!(["a", "b"]), &json!("look")));
    assert_eq!(annotate(&it, &id, json!({"tags": ["b", "c"]})).await.json()["tags"], json!(["b", "c"]));
    let bare = annotate(&it, &id, json!({"remove_tags": ["b", "c"], "comment": ""})).await.json();
    assert_eq!((bare.get("tags"), bare.get("comment")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_tags_and_tags_of_two_lines_are_refused() {
    let (it, id) = with_a_flow().await;
    assert_eq!(annotate(&it, &id, json!({"add_tags": ["line\nbreak"]})).await.status, 400);
    assert_eq!(annotate(&it, &id, json!({"add_tags": [""]})).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_is_deleted_once() {
    let (it, id) = with_a_flow().await;
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

/// An instance with a flow of five events, and the path of its messages.
async fn with_messages() -> (Instance, String) {
    let it = Instance::start().await;
    it.through("/sse?count=5").await;
    let path = format!("/flows/{}/messages", it.ids().await.remove(0));
    (it, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_paged() {
    let (it, path) = with_messages().await;
    let first = it.json(&format!("{path}?limit=2")).await;
    assert_eq!((&first["total"], &first["next"]), (&json!(5), &json!(2)));
    let message = &first["messages"][1];
    assert_eq!(
        (&message["index"], &message["direction"], &message["kind"]),
        (&json!(1), &json!("response"), &json!("event"))
    );
    let rest = it.json(&format!("{path}?from=2&payload=3")).await;
    assert_eq!((rest["messages"].as_array().unwrap().len(), &rest["next"]), (3, &Value::Null));
    assert_eq!(rest["messages"][0]["payload"].as_str().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_returned_in_full() {
    let (it, path) = with_messages().await;
    let whole = it.get(&format!("{path}/4")).await;
    assert!(whole.text().contains(r#"{"n":4}"#), "{}", whole.text());
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    assert_eq!(it.get(&format!("{path}/5")).await.status, 404);
}
