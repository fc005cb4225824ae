//! gRPC: stages see, change, drop and refuse messages of either direction.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use interflow_testkit::{Answer, Origin, Reply};
use interflow_types::{
    Direction, Error, ErrorKind, Flow, MaybeFuture, MessageKind, MessagePolicy, MessageVerdict, Phase, PhaseSet,
    PlanScope, RequestHead, RequestVerdict, ResponseHead, Stage, StreamMessage,
};

use crate::support::{End, Proxy};

/// A message with its length prefix.
fn frame(compressed: bool, content: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::from(compressed)];
    out.extend_from_slice(&(content.len() as u32).to_be_bytes());
    out.extend_from_slice(content);
    out
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Echoes the request's messages with their compression.
async fn origin() -> Origin {
    let echo = |r: &interflow_testkit::Request| {
        Reply::ok(r.body.clone())
            .header("Content-Type", "application/grpc")
            .header("grpc-encoding", r.header("grpc-encoding").unwrap_or("identity"))
            .trailer("grpc-status", "0")
    };
    Origin::https().alpn(&["h2"]).answering(echo).start().await
}

async fn call(proxy: &Proxy, origin: &Origin, frames: &[Vec<u8>]) -> std::io::Result<Answer> {
    let head = http::Request::post(origin.url("/service/Method"))
        .header("content-type", "application/grpc+proto")
        .header("grpc-encoding", "gzip")
        .header("te", "trailers");
    proxy.h2(&origin.authority()).await.request(head.body(()).unwrap(), frames.concat().into()).await
}

/// Decides on messages by content and direction, and counts them in an extension that the head phases read too.
/// the head look at as well.
struct Censor;

#[derive(Default)]
struct Count {
    heads: usize,
    messages: usize,
}

impl Stage for Censor {
    fn name(&self) -> &'static str {
        "censor"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead).with(Phase::ResponseHead).with(Phase::Message).with(Phase::Done)
    }
    fn request_head<'a>(&'a self, flow: &'a mut Flow, _: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        flow.extension_mut::<Count>().heads += 1;
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> MaybeFuture<'a, RequestVerdict> {
        let seen = flow.extension_mut::<Count>();
        seen.heads += 1;
        let text = format!("{} heads, {} messages", seen.heads, seen.messages);
        head.headers.set("x-seen", text).unwrap();
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        flow.extension_mut::<Count>().messages += 1;
        assert_eq!(message.kind, MessageKind::Grpc);
        MaybeFuture::pending(async move {
            tokio::task::yield_now().await;
            match (&message.payload[..], message.direction) {
                (b"yes", Direction::Request) => message.payload = Bytes::from_static(b"a longer no"),
                (b"fine", Direction::Response) => message.payload = Bytes::from_static(b"ok"),
                (b"secret", _) => return MessageVerdict::Drop,
                (b"stop", _) => return MessageVerdict::Deny(Error::new(ErrorKind::Denied, "that word ends it")),
                (b"later stop", Direction::Response) => {
                    return MessageVerdict::Deny(Error::new(ErrorKind::Denied, "that answer ends it"));
                }
                _ => {}
            }
            MessageVerdict::Continue
        })
    }
    fn done(&self, flow: &Flow) {
        let seen = flow.extension::<Count>().expect("the note is back at the end");
        assert!(seen.heads >= 1 && seen.messages >= 1, "{} {}", seen.heads, seen.messages);
    }
}

#[tokio::test]
async fn a_stage_changes_and_drops_messages_of_both_directions() {
    let origin = origin().await;
    let proxy = Proxy::build(&[&origin], vec![Arc::new(Censor)], |_| ());
    let frames = ["yes", "secret", "fine", "as it is"].map(|t| frame(false, t.as_bytes()));
    let answer = call(&proxy, &origin, &frames).await.unwrap();
    let asked = [frame(false, b"a longer no"), frame(false, b"fine"), frame(false, b"as it is")].concat();
    assert_eq!(origin.only_request().body, asked);
    assert_eq!(answer.body, [frame(false, b"a longer no"), frame(false, b"ok"), frame(false, b"as it is")].concat());
    assert_eq!(answer.trailers.get_str("grpc-status"), Some("0"));
    assert_eq!(answer.header("content-length"), None, "the origin's length does not hold any more");
    assert_eq!(answer.header("x-seen"), Some("2 heads, 4 messages"), "notes are shared with the phases of the heads");
    let flow = proxy.flow().await;
    let told: Vec<_> = flow.messages.iter().map(|m| (m.direction.as_str(), &m.payload[..])).collect();
    let (ask, reply) = ("request", "response");
    assert_eq!(
        told,
        [
            (ask, &b"a longer no"[..]),
            (ask, b"fine"),
            (ask, b"as it is"),
            (reply, b"a longer no"),
            (reply, b"ok"),
            (reply, b"as it is")
        ]
    );
    assert_eq!((flow.sent, flow.end), (asked, Some(End::Complete)), "what is recorded is what went on");
}

#[tokio::test]
async fn stage_sees_decompressed_messages_and_unedited_ones_keep_their_bytes() {
    let origin = origin().await;
    let proxy = Proxy::build(&[&origin], vec![Arc::new(Censor)], |_| ());
    let kept = frame(true, &gzip(b"as it is"));
    let answer = call(&proxy, &origin, &[frame(true, &gzip(b"yes")), frame(true, &gzip(b"secret")), kept.clone()])
        .await
        .unwrap();
    let expected = [frame(false, b"a longer no"), kept].concat();
    assert_eq!((origin.only_request().body, answer.body), (expected.clone().into(), expected.into()));
    let flow = proxy.flow().await;
    assert_eq!(&flow.messages[1].payload[..], b"as it is", "recorded in the clear");
}

#[tokio::test]
async fn message_of_unknown_compression_passes_unread_if_no_stage_objects() {
    let echo = |r: &interflow_testkit::Request| Reply::ok(r.body.clone()).header("Content-Type", "application/grpc");
    let origin = Origin::http().answering(echo).start().await;
    let proxy = Proxy::build(&[], vec![Arc::new(Censor)], |_| ());
    let mut wire = proxy.connect().await;
    let body = [frame(false, b"yes"), frame(true, b"yes")].concat();
    let head = crate::support::request(
        "POST",
        &origin.url("/"),
        &format!("Content-Type: application/grpc-web\r\ngrpc-encoding: snappy\r\nContent-Length: {}\r\n", body.len()),
    );
    wire.send([head.as_bytes(), &body].concat()).await.unwrap();
    let expected = [frame(false, b"a longer no"), frame(true, b"yes")].concat();
    assert_eq!(wire.answer().await.unwrap().body, expected);
    assert_eq!(origin.only_request().body, expected);
}

#[tokio::test]
async fn denied_grpc_message_ends_the_call() {
    for (word, status) in [("stop", Some(403)), ("later stop", None)] {
        let origin = origin().await;
        let proxy = Proxy::build(&[&origin], vec![Arc::new(Censor)], |_| ());
        let answer = call(&proxy, &origin, &[frame(false, word.as_bytes())]).await;
        assert_eq!(answer.ok().map(|a| a.status), status, "{word}");
        assert_eq!(proxy.flow().await.error(), Some(ErrorKind::Denied), "{word}");
    }
}

#[tokio::test]
async fn each_message_of_a_call_passes_before_the_next_is_sent() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let (tell, told) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let told = Arc::new(std::sync::Mutex::new(Some(told)));
    let streaming = Origin::https()
        .alpn(&["h2"])
        .ca(Arc::clone(origin.ca()))
        .answering(move |_| {
            let told = told.lock().unwrap().take().unwrap();
            let pieces = futures_util::stream::unfold(told, |mut t| async move { Some((t.recv().await?, t)) });
            Reply::status(200).header("Content-Type", "application/grpc").stream(pieces)
        })
        .start()
        .await;
    let proxy = Proxy::build(&[&origin], vec![Arc::new(Censor)], |_| ());
    let client = proxy.h2(&streaming.authority()).await;
    let head = http::Request::post(streaming.url("/")).header("content-type", "application/grpc");
    let begun = client.start(head.body(()).unwrap(), frame(false, b"go").into());
    let mut body = begun.await.unwrap().into_body();
    for n in 0..3 {
        let message = frame(false, format!("number {n}").as_bytes());
        // A message in two halves is forwarded when it is complete.
        tell.send(Bytes::copy_from_slice(&message[..7])).unwrap();
        tell.send(Bytes::copy_from_slice(&message[7..])).unwrap();
        let came = tokio::time::timeout(std::time::Duration::from_secs(10), body.data()).await.unwrap();
        assert_eq!(came.unwrap().unwrap(), message);
    }
    drop(tell);
    assert!(body.data().await.is_none_or(|d| d.unwrap().is_empty()));
}

#[tokio::test]
async fn invalid_grpc_data_is_forwarded_unchanged() {
    let origin = origin().await;
    let proxy = Proxy::build(&[&origin], vec![Arc::new(Censor)], |_| ());
    let body = [frame(false, b"yes"), b"\x55this is not a message".to_vec()];
    let answer = call(&proxy, &origin, &body).await.unwrap();
    let expected = [frame(false, b"a longer no"), body[1].clone()].concat();
    assert_eq!(answer.body, expected);
    let body = [frame(false, b"yes"), b"\0\0\0\0\x09cut".to_vec()];
    let answer = call(&proxy, &origin, &body).await.unwrap();
    assert_eq!(answer.body, [frame(false, b"a longer no"), body[1].clone()].concat());
}

/// Demands that every message be inspected.
struct Strict;

impl Stage for Strict {
    fn name(&self) -> &'static str {
        "strict"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead).with(Phase::Message)
    }
    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        flow.extension_mut::<MessagePolicy>().strict = head.headers.contains("x-strict");
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

#[tokio::test]
async fn what_cannot_be_inspected_is_not_sent_if_every_message_must_be() {
    let echo = |r: &interflow_testkit::Request| Reply::ok(r.body.clone());
    let origin = Origin::http().answering(echo).start().await;
    let proxy = Proxy::build(&[], vec![Arc::new(Strict)], |_| ());
    let good = frame(false, b"good");
    let cases = [
        ("application/grpc", "identity", good.clone(), true),
        ("application/grpc", "identity", [good.clone(), b"\x55no message".to_vec()].concat(), false),
        ("application/grpc", "identity", [good.clone(), b"\0\0\0\0\x09cut".to_vec()].concat(), false),
        ("application/grpc", "identity", [good.clone(), b"\0\xff\xff\xff\xfflarge".to_vec()].concat(), false),
        ("application/grpc", "snappy", frame(true, b"unknown"), false),
        ("application/grpc", "gzip", frame(true, b"no gzip"), false),
        ("application/grpc-web-text", "identity", b"AAAAAAA=".to_vec(), false),
    ];
    for (media_type, encoding, body, passes) in cases {
        for strict in [true, false] {
            let before = origin.requests().len();
            let field = if strict { "X-Strict: 1\r\n" } else { "" };
            let fields = format!(
                "{field}Content-Type: {media_type}\r\ngrpc-encoding: {encoding}\r\nContent-Length: {}\r\n",
                body.len()
            );
            let mut wire = proxy.connect().await;
            let head = crate::support::request("POST", &origin.url("/"), &fields);
            wire.send([head.as_bytes(), &body].concat()).await.unwrap();
            let answer = wire.answer().await.unwrap();
            let whole = origin.requests().get(before).is_some_and(|request| request.body == body);
            assert_eq!((answer.status == 200, whole), (passes || !strict, passes || !strict), "{media_type} {body:?}");
        }
    }
}

/// Puts something into each answer that only the client may see.
struct Restoring;

impl Stage for Restoring {
    fn name(&self) -> &'static str {
        "restoring"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::ResponseBody).with(Phase::Message)
    }
    fn restores_secrets(&self, _: &Flow) -> bool {
        true
    }
    fn message<'a>(&'a self, _: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        if message.direction == Direction::Response {
            message.payload = Bytes::from_static(b"a secret");
        }
        MaybeFuture::Ready(MessageVerdict::Continue)
    }
}

#[tokio::test]
async fn what_is_restored_in_messages_is_not_recorded() {
    let origin = origin().await;
    let proxy = Proxy::build(&[&origin], vec![Arc::new(Restoring)], |_| ());
    let answer = call(&proxy, &origin, &[frame(false, b"a placeholder")]).await.unwrap();
    assert_eq!(answer.body, frame(false, b"a secret"));
    let flow = proxy.flow().await;
    assert_eq!(flow.received, frame(false, b"a placeholder"));
    assert!(flow.messages.iter().all(|message| &message.payload[..] == b"a placeholder"), "{:?}", flow.messages);
}

/// Requires that messages be read.
struct Reading;

impl Stage for Reading {
    fn name(&self) -> &'static str {
        "reading"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::Message)
    }
    fn unreadable_message<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a mut StreamMessage,
        why: &'a Error,
    ) -> MaybeFuture<'a, Result<(), Error>> {
        MaybeFuture::Ready(Err(Error::new(why.kind(), why.message().to_owned())))
    }
}

#[tokio::test]
async fn a_stage_decides_about_messages_that_cannot_be_read() {
    let echo = |r: &interflow_testkit::Request| Reply::ok(r.body.clone());
    let origin = Origin::http().answering(echo).start().await;
    let proxy = Proxy::build(&[], vec![Arc::new(Reading)], |_| ());
    let bomb = gzip(&vec![b' '; 20 << 20]);
    let mut trailers = frame(false, b"needle");
    trailers[0] = 0x80;
    for (media_type, encoding, body, passes) in [
        ("application/grpc", "identity", frame(false, b"good"), true),
        ("application/grpc", "gzip", frame(true, &gzip(b"good")), true),
        ("application/grpc", "snappy", frame(true, b"needle"), false),
        ("application/grpc", "", frame(true, &gzip(b"needle")), false),
        ("application/grpc", "gzip", frame(true, &bomb), false),
        ("application/grpc", "identity", frame(false, &vec![b' '; 17 << 20]), false),
        ("application/grpc", "identity", b"\x02\0\0\0\x06needle".to_vec(), false),
        ("application/grpc", "identity", b"\0\0\0\0\x09needle".to_vec(), false),
        ("application/grpc", "identity", trailers.clone(), false),
        ("application/grpc-web", "identity", trailers, false),
        ("application/grpc-web-text", "identity", b"AAAAAAZuZWVkbGU=".to_vec(), false),
        ("application/GRPC-Web-Text", "identity", b"AAAAAAZuZWVkbGU=".to_vec(), false),
    ] {
        let before = origin.requests().len();
        let encoding = if encoding.is_empty() { String::new() } else { format!("grpc-encoding: {encoding}\r\n") };
        let fields = format!("Content-Type: {media_type}\r\n{encoding}Content-Length: {}\r\n", body.len());
        let mut wire = proxy.connect().await;
        let head = crate::support::request("POST", &origin.url("/"), &fields);
        // The proxy may answer before it has read everything.
        let _ = wire.send([head.as_bytes(), &body].concat()).await;
        let status = wire.answer().await.map(|answer| answer.status).unwrap_or(0);
        let whole = origin.requests().get(before).is_some_and(|request| request.body == body);
        assert_eq!((status == 200, whole), (passes, passes), "{media_type} {encoding:?} {} bytes", body.len());
    }
}
