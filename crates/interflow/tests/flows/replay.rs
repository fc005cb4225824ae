//! `replay`, through a running instance and without one.

use super::*;

/// Replays the POST of [`Home::filled`], unchanged and changed.
fn replays(home: &Home) {
    let before = home.origin.requests().len();
    let id = lines(&home.flows(&["list", "--format", "jsonl", "method:POST"]).ok())[0]["id"].clone();
    let id = id.as_str().unwrap();

    let told = home.flows(&["replay", id]).ok();
    assert!(told.contains("HTTP/1.1 200, 20 B"), "{told}");
    let new = told.split_whitespace().next().unwrap();
    let row: Value = serde_json::from_str(&home.flows(&["show", new, "--format", "json"]).ok()).unwrap();
    assert_eq!((row["parent"].as_str(), row["tags"][0].as_str()), (Some(id), Some("replay")));
    assert_eq!(row["state"], "complete");

    let changes =
        ["--method", "PUT", "--url", "/echo?again", "-H", "X-Added: 1", "-H", "Content-Type:", "--body", "other"];
    let json: Value =
        serde_json::from_str(&home.flows(&[&["replay", id, "--json"], &changes[..]].concat()).ok()).unwrap();
    assert_eq!((&json["response"]["status"], &json["response"]["size"]), (&200.into(), &5.into()));
    let requests = home.origin.requests();
    assert_eq!(requests.len(), before + 2);
    let sent = requests.last().unwrap();
    assert_eq!((sent.method.as_str(), sent.target.as_str(), &sent.body[..]), ("PUT", "/echo?again", &b"other"[..]));
    assert_eq!((sent.header("x-added"), sent.header("content-type")), (Some("1"), None));

    let gone = home.flows(&["replay", id, "--url", "http://127.0.0.1:1/"]).fails(1);
    assert!(gone.contains("127.0.0.1:1"), "{gone}");
    home.flows(&["replay", id, "--url", "gopher://x"]).fails(2);
    home.flows(&["replay", id, "-H", "no colon"]).fails(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_replayed_without_an_instance() {
    replays(&Home::filled().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_replayed_through_the_running_instance() {
    let home = Home::filled().await;
    let running = home.start();
    replays(&home);
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn masked_fields_are_not_replayed_and_a_notice_is_printed() {
    let home = Home::new().await;
    let running = home.start();
    running.post("/echo", "Cookie: secret=1\r\n", "x").await;
    running.until_recorded(1);
    running.stop();
    let said = home.flows(&["replay", "last"]);
    assert!(said.err.contains("Cookie"), "{said:?}");
    assert_eq!(home.origin.requests().last().unwrap().header("cookie"), None);
    home.flows(&["replay", "last-1", "-H", "Cookie: secret=2"]).ok();
    assert_eq!(home.origin.requests().last().unwrap().header("cookie"), Some("secret=2"));
}
