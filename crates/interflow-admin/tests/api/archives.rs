//! Export and import of archives.

use interflow_testkit::pattern;
use serde_json::json;

use super::*;

async fn filled() -> Instance {
    let it = Instance::start().await;
    it.through("/bytes/100000").await;
    it.through("/status/404").await;
    it.post_through("/echo", "Content-Type: text/plain\r\n", "hello").await;
    it.through("/sse?count=3").await;
    it
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_can_be_imported() {
    let from = filled().await;
    for format in ["har", "jsonl"] {
        let archive = from.get(&format!("/export?format={format}")).await;
        assert_eq!(archive.status, 200);
        let name = format!("attachment; filename=\"flows.{format}\"");
        assert_eq!(archive.header("content-disposition"), Some(name.as_str()));

        let to = Instance::start().await;
        let done = to.call("POST", "/import", &[], &archive.body).await.json();
        assert_eq!(done, json!({"imported": 4, "present": 0, "skipped": 0, "reasons": []}), "{format}");
        let page = to.json("/flows?query=path:/bytes").await;
        let id = page["flows"][0]["id"].as_str().unwrap();
        assert_eq!(to.get(&format!("/flows/{id}/response/body")).await.body, pattern(100_000), "{format}");
        // Interflow's own JSON lines restore a flow exactly; flows from other formats are marked as imported.
        assert_eq!(to.json(&format!("/flows/{id}")).await["imported"], format == "har");
    }
    let jsonl = from.get("/export?format=jsonl").await;
    let again = from.call("POST", "/import?format=jsonl", &[], &jsonl.body).await.json();
    assert_eq!((&again["imported"], &again["present"]), (&json!(0), &json!(4)), "the same flows are there already");
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_follow_the_query_or_the_choice() {
    let it = filled().await;
    let har = it.get("/export?query=status:404").await.json();
    let entries = har["log"]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["response"]["status"], 404);
    let ids = it.ids().await;
    let chosen = it.post("/export", json!({"ids": [ids[0], ids[2]], "format": "jsonl"})).await;
    assert_eq!(chosen.text().lines().count(), 2);
    let unknown = it.post("/export", json!({"ids": ["01JD3V7T2M00000000000000AB"]})).await;
    assert_eq!((unknown.status, kind(&unknown).as_str()), (404, "not_found"));
    let nothing = it.get("/export?format=jsonl&query=host:nowhere.test").await;
    assert_eq!((nothing.status, nothing.body.len()), (200, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn single_flow_is_exported_in_every_format() {
    let it = filled().await;
    let id = it.json("/flows?query=method:POST").await["flows"][0]["id"].as_str().unwrap().to_owned();
    for (format, start) in [
        ("har", "{"),
        ("jsonl", "{\"interflow\""),
        ("curl", "curl"),
        ("httpie", "http"),
        ("fetch", "await fetch("),
        ("python", "import requests"),
        ("raw", "POST /echo HTTP/1.1\r\n"),
        ("raw-response", "HTTP/1.1 200"),
    ] {
        let answer = it.get(&format!("/flows/{id}/export?format={format}")).await;
        assert!(answer.status == 200 && answer.text().starts_with(start), "{format}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_archive_is_refused_and_flows_before_the_error_are_kept() {
    let it = Instance::start().await;
    for body in [&b"hello"[..], b"{}", b"{\"log\":{\"entries\":[", b"\x1f\x8b\x08nonsense", b""] {
        let refused = it.call("POST", "/import", &[], body).await;
        assert!((400..500).contains(&refused.status), "{body:?}: {} {}", refused.status, refused.text());
        assert_eq!(refused.json()["error"]["imported"], 0, "{body:?}");
    }
    let from = filled().await;
    let whole = from.get("/export?format=jsonl").await.body;
    let half = it.call("POST", "/import", &[], &whole[..whole.len() - 20]).await;
    assert_eq!((half.status, kind(&half).as_str()), (422, "malformed_archive"));
    assert_eq!((&half.json()["error"]["imported"], it.ids().await.len()), (&json!(3), 3));
    let again = it.call("POST", "/import", &[], &whole[..whole.len() - 20]).await;
    assert_eq!(again.json()["error"]["imported"], 0, "they are present already: {}", again.text());
    assert!(!again.text().contains("before it"), "{}", again.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_still_sends_an_archive_is_answered_with_what_is_wrong_in_it() {
    let it = Instance::start().await;
    let refused = it.call("POST", "/import", &[], &vec![0; 20_000_000]).await;
    assert_eq!((refused.status, kind(&refused).as_str()), (422, "malformed_archive"), "{}", refused.text());
    assert!(refused.text().contains("this is not a file of recorded flows"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_disconnect_during_a_download_releases_its_permit() {
    let it = Instance::start().await;
    it.through("/bytes/9000000").await;
    let id = it.ids().await.remove(0);
    // More than the limit of concurrent transfers: permits must be released.
    for _ in 0..40 {
        let mut wire = Wire::connect(it.admin).await.unwrap();
        let head = format!(
            "GET /api/v1/flows/{id}/response/body HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
            it.admin
        );
        wire.send(head).await.unwrap();
        wire.some().await.unwrap();
        drop(wire);
    }
    for attempt in 0.. {
        let answer = it.call("GET", &format!("/flows/{id}/response/body"), &[("Range", "bytes=0-1")], b"").await;
        if answer.status == 206 {
            break;
        }
        assert!(answer.status == 503 && attempt < 100, "{}", answer.text());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
