//! Replaying requests, and comparing flows.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn request_is_replayed_unchanged_or_edited() {
    let it = Instance::start().await;
    it.post_through("/echo", "Content-Type: text/plain\r\nX-Kept: yes\r\nCookie: a=b\r\n", "hello").await;
    let id = it.ids().await.remove(0);
    let same = it.post(&format!("/flows/{id}/replay"), json!({})).await;
    assert_eq!(same.status, 200, "{}", same.text());
    let same = same.json();
    assert_eq!((&same["parent"], &same["omitted"]), (&json!(id), &json!(["Cookie"])));
    let response = &same["response"];
    assert_eq!((&response["status"], &response["size"], &response["complete"]), (&json!(200), &json!(5), &json!(true)));
    let new = it.json(&format!("/flows/{}", same["id"].as_str().unwrap())).await;
    assert_eq!((&new["parent"], &new["tags"], &new["transport"]), (&json!(id), &json!(["replay"]), &json!("internal")));

    let changed = it
        .post(
            &format!("/flows/{id}/replay"),
            json!({"method": "PUT", "url": "/echo?x=1", "headers": ["X-Kept:", "X-New: 1", "Cookie: c=d"], "body": {"base64": "AP8="}}),
        )
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let sent = it.origin.requests().pop().unwrap();
    assert_eq!((sent.method.as_str(), sent.target.as_str(), &sent.body[..]), ("PUT", "/echo?x=1", &[0, 0xff][..]));
    assert_eq!((sent.header("x-kept"), sent.header("x-new"), sent.header("cookie")), (None, Some("1"), Some("c=d")));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_replay_is_recorded_with_its_error() {
    let it = Instance::start().await;
    it.through("/status/200").await;
    let id = it.ids().await.remove(0);
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failed = it.post(&format!("/flows/{id}/replay"), json!({"url": format!("http://{closed}/")})).await;
    assert_eq!(failed.status, 200, "{}", failed.text());
    let failed = failed.json();
    assert_eq!((&failed["error"]["kind"], &failed["error"]["blame"]), (&json!("connect"), &json!("upstream")));
    let new = it.json(&format!("/flows/{}", failed["id"].as_str().unwrap())).await;
    assert_eq!((&new["state"], &new["error"]["kind"]), (&json!("failed"), &json!("connect")));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_replay_edits_are_refused() {
    let it = Instance::start().await;
    it.through("/status/200").await;
    let id = it.ids().await.remove(0);
    for edit in [
        json!({"method": "TWO WORDS"}),
        json!({"url": "gopher://x"}),
        json!({"headers": ["no colon"]}),
        json!({"headers": ["X: a\r\nY: b"]}),
        json!({"body": {"base64": "***"}}),
        json!({"bodies": "x"}),
    ] {
        let refused = it.post(&format!("/flows/{id}/replay"), edit.clone()).await;
        assert_eq!((refused.status, kind(&refused).as_str()), (400, "bad_request"), "{edit}");
    }
    assert_eq!(it.origin.requests().len(), 1, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_are_compared() {
    let it = Instance::start().await;
    it.post_through("/echo", "Content-Type: application/json\r\n", r#"{"a":1,"b":2}"#).await;
    it.post_through("/echo", "Content-Type: application/json\r\n", r#"{"a":1,"b":3}"#).await;
    let ids = it.ids().await;
    let diff = it.json(&format!("/diff?a={}&b={}", ids[1], ids[0])).await;
    assert_eq!(diff["equal"], false);
    assert_eq!(diff["request_body"], json!({"kind": "json", "changes": [{"at": "b", "before": "2", "after": "3"}]}));
    let same = it.json(&format!("/diff?a={0}&b={0}", ids[0])).await;
    assert_eq!((&same["equal"], &same["response_body"]), (&json!(true), &json!({"kind": "same"})));
}
