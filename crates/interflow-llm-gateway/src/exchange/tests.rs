//! A body is decoded and parsed once, and no stage works on what another has replaced.

use std::io::Write as _;
use std::sync::mpsc;

use interflow_redact::{RedactionSession, Redactor};
use interflow_types::{ClientInfo, DeferredWork, EntryKind, ErrorKind, HttpVersion, Method, Scheme, Timestamp, Url};
use tokio::sync::oneshot;

use super::background::Background;
use super::*;

const CHAT: &str = r#"{"model":"gpt-5","metadata":{"note":"a long note of a client about its call"},"messages":[{"role":"user","content":"Hello, I am Anna Berg"}],"user":"anna berg of accounting","n":2}"#;

fn flow() -> Flow {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let client = ClientInfo {
        connection: 1,
        peer: address,
        local: address,
        listener: "gateway".into(),
        accepted: Timestamp::now(),
        container: None,
        process: None,
    };
    Flow::begin(client.into(), EntryKind::Gateway, Scheme::Http, "a.test:80".parse().unwrap())
}

fn gzip(text: &str) -> Bytes {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(text.as_bytes()).unwrap();
    writer.finish().unwrap().into()
}

fn coded() -> Headers {
    [("Content-Type", "application/json"), ("Content-Encoding", "gzip"), ("Content-MD5", "x")].into_iter().collect()
}

#[tokio::test]
async fn a_body_is_decoded_once_for_all_stages_and_anew_where_it_changed() {
    let (mut flow, headers, raw) = (flow(), coded(), gzip(CHAT));
    let first = request_body(&mut flow, &headers, &raw, 1 << 20).await.unwrap();
    assert_eq!(first.plain(), CHAT.as_bytes());
    let (again, _) = collect(&flow, &Headers::new(), Body::Full(raw.clone()), (1 << 20, true)).await.ok().unwrap();
    let second = request_body(&mut flow, &headers, &again, 1 << 20).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second), "the same bytes are not decoded again");
    assert!(Arc::ptr_eq(&first.content(true).await.unwrap(), &second.content(true).await.unwrap()));
    // A rule that rewrites the body, and one that rewrites the field which says what it is.
    let other = gzip(r#"{"model":"other"}"#);
    assert!(current(&flow, &headers, &other).is_none());
    assert!(current(&flow, &Headers::new(), &raw).is_none());
    let form = [("Content-Type", "multipart/form-data; boundary=b"), ("Content-Encoding", "gzip")];
    assert!(current(&flow, &form.into_iter().collect(), &raw).is_none());
    let third = request_body(&mut flow, &headers, &other, 1 << 20).await.unwrap();
    assert_eq!(third.plain(), &br#"{"model":"other"}"#[..]);
    // Equal bytes elsewhere are another body.
    assert!(current(&flow, &headers, &Bytes::copy_from_slice(&other)).is_none());
    release(&mut flow);
    assert!(current(&flow, &headers, &other).is_none());
}

#[tokio::test]
async fn each_stage_keeps_its_own_bound_on_a_decoded_body() {
    let (mut flow, headers, raw) = (flow(), coded(), gzip(CHAT));
    request_body(&mut flow, &headers, &raw, 1 << 20).await.unwrap();
    let shared = request_body(&mut flow, &headers, &raw, 100).await.err().unwrap();
    let alone = RequestBody::decode(&headers, &raw, 100).await.err().unwrap();
    assert_eq!(LlmRefusal::from(shared).message, LlmRefusal::from(alone).message);
}

#[tokio::test]
async fn the_next_stage_works_on_the_replacement() {
    let (mut flow, headers, raw) = (flow(), coded(), gzip(CHAT));
    let old = request_body(&mut flow, &headers, &raw, 1 << 20).await.unwrap();
    let url = Url { scheme: Scheme::Http, authority: "a.test:80".parse().unwrap(), path: "/v1/messages".into() };
    let mut head = RequestHead { method: Method::POST, url, version: HttpVersion::Http11, headers, protocol: None };
    let output = CHAT.replace("Anna Berg", "[PERSON_1]");
    let body = replace(&mut flow, &mut head, output.clone().into_bytes()).unwrap();
    assert!(!head.headers.contains("content-encoding") && !head.headers.contains("content-md5"));
    let (raw, _) = collect(&flow, &Headers::new(), body, (1 << 20, true)).await.ok().unwrap();
    let new = current(&flow, &head.headers, &raw).expect("nothing has to be read again");
    assert_eq!(new.plain(), output.as_bytes());
    assert!(!Arc::ptr_eq(&old.content(true).await.unwrap(), &new.content(true).await.unwrap()));
}

#[tokio::test]
async fn what_a_request_asks_for_does_not_depend_on_the_marks_of_its_texts() {
    for marks in [false, true] {
        let body = Arc::new(RequestBody::plain_text(&Headers::new(), CHAT.into()));
        let facts = body.facts(marks).await.unwrap();
        // The text, the model's name and the role are not counted, nor is what only describes the request.
        assert_eq!(
            (facts.estimated_tokens(), facts.choices),
            ("Hello, I am Anna Berg".len().div_ceil(4) as u64, 2),
            "{marks}"
        );
        assert_eq!(facts.model.clone().map(|range| &CHAT[range]), Some("gpt-5"));
    }
    let broken = Arc::new(RequestBody::plain_text(&Headers::new(), "{".into()));
    for marks in [false, true] {
        assert!(matches!(broken.facts(marks).await, Err(ReadError::Malformed("bad_json", _))));
    }
}

#[tokio::test]
async fn the_memory_of_work_on_a_body_is_held_until_the_work_ends() {
    let body = Arc::new(RequestBody::plain_text(&Headers::new(), vec![0; 150 << 20].into()));
    let (begins, begun) = tokio::sync::oneshot::channel();
    let (ends, end) = std::sync::mpsc::channel::<()>();
    let work = move |_: &RequestBody| {
        begins.send(()).ok();
        end.recv().ok();
        Ok(())
    };
    let reading = tokio::spawn(async move { body.read_tree(work).await.is_ok() });
    begun.await.unwrap();
    reading.abort();
    assert!(reading.await.is_err());
    let fits = || PROCESS_BUDGET.reserve(300 << 20).is_ok();
    assert!(!fits());
    drop(ends);
    for _ in 0..1_000 {
        if fits() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the memory is still held");
}

/// Starts work on a body of this size, whose result becomes a tag of its flow.
fn start(size: usize, work: impl FnOnce() -> u32 + Send + 'static) -> Arc<dyn DeferredWork> {
    let record = |flow: &mut Flow, result: Option<Option<u32>>| flow.tag(format!("result:{:?}", result.flatten()));
    Background::start(off_worker(size, work), true, record)
}

fn tags(flow: &Flow) -> Vec<String> {
    flow.tags.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn the_result_of_background_work_is_recorded_once_whether_it_has_begun_or_not() {
    // On the worker, and beside it.
    for size in [1, 1 << 20] {
        let (mut flow, (begins, begun)) = (flow(), oneshot::channel());
        start(size, || 2).join(&mut flow).await;
        let late = start(size, move || begins.send(()).map_or(0, |()| 3));
        begun.await.unwrap();
        Arc::clone(&late).join(&mut flow).await;
        late.join(&mut flow).await;
        assert_eq!(tags(&flow), ["result:Some(2)", "result:Some(3)", "result:None"], "{size}");
    }
}

#[tokio::test]
async fn background_work_that_panics_has_no_result() {
    let mut flow = flow();
    start(1 << 20, || panic!("this work is to fail")).join(&mut flow).await;
    assert_eq!(tags(&flow), ["result:None"]);
}

#[tokio::test]
async fn a_flow_that_ends_before_its_background_work_does_not_block_its_thread() {
    let (mut flow, (go, wait)) = (flow(), mpsc::channel());
    let work = start(1 << 20, move || wait.recv().unwrap());
    // It cannot end before this thread says so: a call that waited for it would wait for ever.
    assert!(!Arc::clone(&work).finish(&mut flow));
    go.send(7).unwrap();
    work.join(&mut flow).await;
    assert_eq!(tags(&flow), ["result:Some(7)"]);
}

#[tokio::test]
async fn client_disconnect_cancels_redaction_in_the_background() {
    let (mut flow, (begins, begun), (ended, end)) = (flow(), oneshot::channel(), oneshot::channel());
    let work = start(1 << 20, move || {
        begins.send(()).unwrap();
        let redactor = Redactor::default();
        while redactor.redact_text("Anna Berg, 415-555-0132", &mut RedactionSession::one_way()).is_ok() {}
        ended.send(()).map_or(0, |()| 1)
    });
    begun.await.unwrap();
    flow.error_kind = Some(ErrorKind::ClientGone);
    assert!(work.finish(&mut flow));
    tokio::time::timeout(Duration::from_secs(60), end).await.expect("it ends").unwrap();
    assert_eq!(tags(&flow), ["result:None"]);
}
