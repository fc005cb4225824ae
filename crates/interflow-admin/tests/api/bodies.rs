//! Bodies: byte ranges, views, and nothing that a browser would execute.

use interflow_testkit::{Reply, pattern};

use super::*;

/// A raw deflate body with one stored block.
fn deflated(text: &str) -> Vec<u8> {
    let n = u16::try_from(text.len()).unwrap();
    [&[1], &n.to_le_bytes()[..], &(!n).to_le_bytes(), text.as_bytes()].concat()
}

const PAGE: &str = "<html><script>fetch('/api/v1/flows/prune',{method:'POST'})</script></html>";

fn hostile() -> OriginBuilder {
    Origin::http().answering(|request| match request.path() {
        "/page" => Reply::ok(PAGE)
            .header("Content-Type", "text/html")
            .header("Content-Security-Policy", "script-src 'unsafe-inline'")
            .header("Content-Disposition", "inline")
            .header("Set-Cookie", "interflow_token=forged"),
        "/svg" => Reply::ok("<svg onload='alert(1)'/>").header("Content-Type", "image/svg+xml"),
        "/odd" => Reply::ok("x").header("Content-Type", "text/html\t; charset=\"utf-7"),
        "/json" => Reply::ok(r#"{"n":1.10,"n":[]}"#).header("Content-Type", "application/json"),
        "/deflate" => Reply::ok(deflated("{\"a\":true}")).header("Content-Encoding", "deflate"),
        "/broken" => Reply::ok("not brotli at all").header("Content-Encoding", "br"),
        "/latin" => Reply::ok(&b"caf\xe9"[..]).header("Content-Type", "text/plain; charset=iso-8859-1"),
        _ => Reply::ok(pattern(300_000)),
    })
}

async fn recorded(it: &Instance, path: &str) -> String {
    it.through(path).await;
    let id = it.ids().await.remove(0);
    format!("/flows/{id}/response/body")
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_bodies_are_never_served_as_html() {
    let it = Instance::answering(hostile()).await;
    for path in ["/page", "/svg", "/odd"] {
        let body = recorded(&it, path).await;
        for view in ["raw", "decoded", "text", "hex"] {
            let answer = it.get(&format!("{body}?view={view}")).await;
            let media = answer.header("content-type").unwrap();
            assert!(
                matches!(media, "application/octet-stream" | "text/plain; charset=utf-8"),
                "{path} {view}: {media}"
            );
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path} {view}");
            let policies: Vec<_> = answer.headers.get_all("content-security-policy").collect();
            assert_eq!(policies, [&b"sandbox; default-src 'none'; frame-ancestors 'none'"[..]], "{path} {view}");
            assert_eq!(answer.header("set-cookie"), None, "{path} {view}");
            if media == "application/octet-stream" {
                assert!(answer.header("content-disposition").unwrap().starts_with("attachment"), "{path} {view}");
            }
        }
    }
    let export = it.get(&format!("/flows/{}/export?format=curl", it.ids().await[0])).await;
    assert!(export.header("content-disposition").unwrap().starts_with("attachment"));
    assert_eq!(export.header("x-content-type-options"), Some("nosniff"));
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_bodies_support_byte_ranges() {
    let it = Instance::answering(hostile()).await;
    let body = recorded(&it, "/big").await;
    let whole = pattern(300_000);
    let answer = it.get(&body).await;
    assert_eq!((answer.status, &answer.body), (200, &whole));
    assert_eq!((answer.header("accept-ranges"), answer.header("interflow-sent")), (Some("bytes"), Some("300000")));
    for (asked, part, place) in [
        ("bytes=0-9", 0..10, "bytes 0-9/300000"),
        ("bytes=299990-", 299_990..300_000, "bytes 299990-299999/300000"),
        ("bytes=-5", 299_995..300_000, "bytes 299995-299999/300000"),
        ("bytes=100000-200000", 100_000..200_001, "bytes 100000-200000/300000"),
    ] {
        let answer = it.call("GET", &body, &[("Range", asked)], b"").await;
        assert_eq!((answer.status, answer.header("content-range")), (206, Some(place)), "{asked}");
        assert_eq!(answer.body, whole[part], "{asked}");
    }
    let beyond = it.call("GET", &body, &[("Range", "bytes=300000-")], b"").await;
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */300000")));
    let capped = it.get(&format!("{body}?offset=10&limit=20")).await;
    assert_eq!((&capped.body[..], capped.header("interflow-truncated")), (&whole[10..30], Some("true")));
}

#[tokio::test(flavor = "multi_thread")]
async fn body_views_undo_the_content_coding() {
    let it = Instance::answering(hostile()).await;
    let body = recorded(&it, "/deflate").await;
    assert_eq!(it.get(&format!("{body}?view=decoded")).await.text(), "{\"a\":true}");
    assert_eq!(it.get(&format!("{body}?view=json-pretty")).await.text(), "{\n  \"a\": true\n}\n");
    assert!(it.get(&format!("{body}?view=hex")).await.text().starts_with("00000000  01 0a 00 f5 ff 7b"), "as it came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_view_is_marked_as_truncated() {
    let it = Instance::answering(hostile()).await;
    let body = recorded(&it, "/deflate").await;
    let part = it.get(&format!("{body}?view=text&offset=2&limit=3")).await;
    assert_eq!((part.text().as_str(), part.header("interflow-truncated")), ("a\":", Some("true")));
    assert_eq!(it.get(&format!("{body}?view=json-pretty&limit=4")).await.status, 422);
    assert_eq!(it.get(&format!("{body}?view=text&offset=70000000")).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_view_keeps_numbers_and_repeated_names_as_they_are() {
    let it = Instance::answering(hostile()).await;
    let body = recorded(&it, "/json").await;
    assert_eq!(it.get(&format!("{body}?view=json-pretty")).await.text(), "{\n  \"n\": 1.10,\n  \"n\": []\n}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_view_decodes_the_charset_and_the_body_itself_stays_in_it() {
    let it = Instance::answering(hostile()).await;
    let body = recorded(&it, "/latin").await;
    assert_eq!(it.get(&format!("{body}?view=text")).await.text(), "café");
    assert_eq!(it.get(&body).await.body, &b"caf\xe9"[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_that_a_body_does_not_have_are_errors() {
    let it = Instance::answering(hostile()).await;
    let body = recorded(&it, "/broken").await;
    let broken = it.get(&format!("{body}?view=text")).await;
    assert!(broken.header("interflow-decode-error").unwrap().starts_with("br"), "{broken:?}");
    let not_json = it.get(&format!("{body}?view=json-pretty")).await;
    assert_eq!((not_json.status, kind(&not_json).as_str()), (422, "not_json"));
    assert_eq!(it.get(&format!("{body}?view=sideways")).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_of_a_missing_response_is_not_found() {
    let it = Instance::start().await;
    let (flow, capture) = it.begin("/unanswered");
    capture.finish(&flow, FlowOutcome::Complete);
    it.settle().await;
    assert_eq!(it.get(&format!("/flows/{}/response/body", flow.id)).await.status, 404);
    let empty = it.get(&format!("/flows/{}/request/body", flow.id)).await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}
