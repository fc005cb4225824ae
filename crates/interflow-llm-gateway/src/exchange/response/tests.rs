//! Tests of the stream of a response: what each of its steps and observers sees, however its bytes are divided.

use std::io::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use interflow_llm::event_stream::{StreamEvent, StreamFraming};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Headers, Result};
use parking_lot::Mutex;

use super::abort::StreamAbort;
use super::stream::{
    AbortCause, EventObserver, EventStep, ReadAhead, ReadEnd, ResponseStream, StreamEnd, StreamRest, observe, rewrite,
};
use super::whole;

const EVENTS: [&str; 4] =
    ["data: {\"t\":\"a\"}\n\n", ": ping\n\n", "data: {\"t\":\"b\"}\n\n", "data: {\"t\":\"c\"}\n\n"];

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down what it sees, under its name.
struct Witness(&'static str, Log);

impl EventObserver for Witness {
    fn event(&mut self, event: &ParsedEvent) {
        self.1.lock().push(format!("{} {}", self.0, String::from_utf8_lossy(event.json())));
    }

    fn end(&mut self, end: ReadEnd) {
        self.1.lock().push(format!("{} {end:?}", self.0));
    }
}

/// Writes down when it is let go.
struct Released(Log);

impl EventObserver for Released {
    fn event(&mut self, _: &ParsedEvent) {}

    fn end(&mut self, end: ReadEnd) {
        self.0.lock().push(format!("{end:?}"));
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.0.lock().push("released".to_owned());
    }
}

#[tokio::test]
async fn an_observer_is_let_go_when_a_step_behind_it_ends_the_stream() {
    let (log, mut headers) = (Log::default(), Headers::new());
    let observed = observe(body(EVENTS.concat().as_bytes(), 9), &headers, StreamFraming::Sse, Released(log.clone()));
    let mut cut = swapped(observed, &mut headers, Swap("b", "!"));
    while let Some(Ok(_)) = cut.frame().await {}
    // Before the body is dropped: the flow may be settled first.
    assert_eq!(*log.lock(), ["released"]);
    drop(cut);
}

/// A body whose end is not known before it comes.
struct OfUnknownLength(Body);

impl BodyStream for OfUnknownLength {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        self.0.poll_frame(cx)
    }
}

#[tokio::test]
async fn trailers_follow_all_that_is_made_of_the_end() {
    for (has_step, is_read_ahead) in [(false, false), (true, false), (false, true), (true, true)] {
        let (log, tap, mut headers) = (Log::default(), Log::default(), Headers::new());
        let mut frames = pieces(EVENTS.concat().as_bytes(), 9);
        frames.push(Ok(BodyFrame::Trailers([("Server-Timing", "x")].into_iter().collect())));
        let source = Body::stream(OfUnknownLength(Body::replay(frames, Body::Empty)));
        let mut body = observe(source, &headers, StreamFraming::Sse, Witness("o", log.clone()));
        if is_read_ahead {
            let stream = ResponseStream::of(&mut body, &headers).unwrap();
            while matches!(stream.read_ahead(|_| {}).await, ReadAhead::Data(_)) {}
        }
        if has_step {
            body = swapped(body, &mut headers, Swap("a", "x"));
        }
        let seen = tap.clone();
        let mut body = body.inspect(move |frame| {
            seen.lock().push(match frame {
                Some(Ok(BodyFrame::Data(_))) => "data".to_owned(),
                Some(Ok(BodyFrame::Trailers(_))) => "trailers".to_owned(),
                _ => "end".to_owned(),
            });
        });
        let mut all = Vec::new();
        // A reader takes trailers for the end.
        while let BodyFrame::Data(data) = body.frame().await.unwrap().unwrap() {
            all.extend_from_slice(&data);
        }
        assert_eq!(log.lock().last().unwrap(), "o Complete", "step {has_step}, ahead {is_read_ahead}");
        assert_eq!(String::from_utf8(all).unwrap().ends_with("data: end of a\n\n"), has_step);
        assert!(tap.lock().ends_with(&["trailers".to_owned(), "end".to_owned()]));
        assert!(body.frame().await.is_none());
    }
}

/// Writes a letter as another; the letter `!` cuts the stream off.
struct Swap(&'static str, &'static str);

impl EventStep for Swap {
    fn event(&mut self, event: ParsedEvent, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        if event.json().is_empty() {
            out.push(event);
            return Ok(());
        }
        let json = String::from_utf8_lossy(event.json()).replace(self.0, self.1);
        if json.contains('!') {
            return Err(StreamAbort::new("outbound_blocked", "no"));
        }
        out.push(event.with_json(json.as_bytes()).map_err(StreamAbort::broken)?.into());
        Ok(())
    }

    fn finish(&mut self, rest: Option<ParsedEvent>, out: &mut Vec<ParsedEvent>) -> StreamRest {
        out.push(sse(&format!("end of {}", self.0)));
        Ok(rest)
    }

    fn abort(&mut self, cause: AbortCause, _is_begun: bool, out: &mut Vec<ParsedEvent>) -> StreamEnd {
        out.push(sse("cut"));
        match cause.into_abort() {
            Ok(halt) if halt.is_by_policy() => StreamEnd::Complete,
            Ok(halt) => StreamEnd::Failed(Error::new(ErrorKind::BadResponse, halt.message)),
            Err(e) => StreamEnd::Failed(e),
        }
    }
}

fn sse(data: &str) -> ParsedEvent {
    StreamEvent::from_raw(StreamFraming::Sse, format!("data: {data}\n\n").into()).into()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn pieces(raw: &[u8], size: usize) -> Vec<Result<BodyFrame>> {
    raw.chunks(size).map(|piece| Ok(BodyFrame::Data(Bytes::copy_from_slice(piece)))).collect()
}

fn body(raw: &[u8], size: usize) -> Body {
    Body::replay(pieces(raw, size), Body::Empty)
}

fn swapped(body: Body, headers: &mut Headers, swap: Swap) -> Body {
    rewrite(body, headers, StreamFraming::Sse, 1 << 20, swap, StreamFraming::Sse).unwrap()
}

/// Writes down all bytes at this point.
fn tapped(body: Body, log: &Arc<Mutex<Vec<u8>>>) -> Body {
    let log = Arc::clone(log);
    body.inspect(move |frame| {
        if let Some(Ok(BodyFrame::Data(data))) = frame {
            log.lock().extend_from_slice(data);
        }
    })
}

async fn read(mut body: Body) -> (String, Option<Error>) {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(BodyFrame::Data(data)) => all.extend_from_slice(&data),
            Ok(BodyFrame::Trailers(_)) => {}
            Err(e) => return (String::from_utf8(all).unwrap(), Some(e)),
        }
    }
    (String::from_utf8(all).unwrap(), None)
}

#[tokio::test]
async fn each_point_of_a_stream_sees_what_the_steps_before_it_made() {
    let plain = EVENTS.concat();
    let compressed = gzip(plain.as_bytes());
    for size in [1, 7, compressed.len()] {
        let log = Log::default();
        let (received, recorded) = (Arc::default(), Arc::default());
        let mut headers: Headers = [("Content-Encoding", "gzip"), ("Content-Length", "9")].into_iter().collect();
        let body = observe(body(&compressed, size), &headers, StreamFraming::Sse, Witness("first", Arc::clone(&log)));
        let body = tapped(body, &received);
        let body = swapped(body, &mut headers, Swap("a", "x"));
        let body = tapped(body, &recorded);
        let body = observe(body, &headers, StreamFraming::Sse, Witness("then", Arc::clone(&log)));
        let mut body = swapped(body, &mut headers, Swap("x", "y"));
        assert!(body.stream_mut::<ResponseStream>().is_some() && !headers.contains("content-encoding"));
        let end_of_a = "data: end of a\n\n";
        let sent = [EVENTS[0], EVENTS[1], EVENTS[2], EVENTS[3], end_of_a, "data: end of x\n\n"].concat();
        assert_eq!(read(body).await.0, sent.replace("\"a\"", "\"y\""), "{size}");
        assert_eq!(*received.lock(), compressed);
        let before_last = [&plain.replace("\"a\"", "\"x\""), end_of_a].concat();
        assert_eq!(String::from_utf8_lossy(&recorded.lock()), before_last);
        let log = log.lock();
        let seen_by = |name: &str| log.iter().filter_map(|l| l.strip_prefix(name)).collect::<Vec<_>>().join("");
        assert_eq!(seen_by("first"), " {\"t\":\"a\"}  {\"t\":\"b\"} {\"t\":\"c\"} Complete");
        assert_eq!(seen_by("then"), " {\"t\":\"x\"}  {\"t\":\"b\"} {\"t\":\"c\"} end of a Complete");
    }
}

#[tokio::test]
async fn a_stream_without_steps_keeps_its_frames() {
    let raw = EVENTS.concat();
    let frames = pieces(raw.as_bytes(), 5);
    let lengths: Vec<usize> = raw.as_bytes().chunks(5).map(<[u8]>::len).collect();
    let log = Log::default();
    let source = Body::replay(frames, Body::Empty);
    let mut body = observe(source, &Headers::new(), StreamFraming::Sse, Witness("o", Arc::clone(&log)));
    assert_eq!(body.remaining(), Some(raw.len() as u64));
    let mut received = Vec::new();
    while let Some(Ok(BodyFrame::Data(data))) = body.frame().await {
        received.push(data.len());
        // The end is known before a reader that knows the length polls again.
        let has_ended = log.lock().last().is_some_and(|l| l == "o Complete");
        assert_eq!(has_ended, body.remaining() == Some(0));
    }
    assert_eq!(received, lengths);
}

#[tokio::test]
async fn a_step_that_cuts_the_stream_off_is_the_last_that_the_following_steps_see() {
    let raw = EVENTS.concat();
    for size in [3, raw.len()] {
        let mut headers = Headers::new();
        let body = swapped(body(raw.as_bytes(), size), &mut headers, Swap("b", "!"));
        let body = swapped(body, &mut headers, Swap("a", "x"));
        let expected =
            [&EVENTS[..2].concat().replace("\"a\"", "\"x\""), "data: cut\n\n", "data: end of a\n\n"].concat();
        let (sent, error) = read(body).await;
        assert_eq!((sent, error.is_none()), (expected, true), "{size}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_or_cannot_be_decoded_is_not_taken_for_complete() {
    let compressed = gzip(EVENTS.concat().as_bytes());
    let failed = || Err(Error::new(ErrorKind::BadResponse, "reset"));
    for (frames, end) in [
        (pieces(&compressed, 9).into_iter().chain([failed()]).collect(), ReadEnd::Broken),
        (pieces(b"no gzip at all", 9), ReadEnd::Unreadable),
        (pieces(&compressed[..compressed.len() - 4], 9), ReadEnd::Truncated),
    ] {
        let log = Log::default();
        let mut headers: Headers = [("Content-Encoding", "gzip")].into_iter().collect();
        let source = Body::replay(frames, Body::Empty);
        let body = observe(source, &headers, StreamFraming::Sse, Witness("o", Arc::clone(&log)));
        let (sent, error) = read(swapped(body, &mut headers, Swap("a", "x"))).await;
        assert!(sent.ends_with("data: cut\n\n") && error.is_some(), "{end:?}: {sent}");
        assert_eq!(log.lock().last().map(String::as_str), Some(&*format!("o {end:?}")));
    }
}

#[tokio::test]
async fn what_was_read_ahead_is_relayed_and_observed_like_the_rest() {
    let raw = EVENTS.concat();
    for (size, frames) in [(5, 2), (raw.len(), 2), (raw.len(), 1)] {
        let log = Log::default();
        let Ok(mut body) = ResponseStream::open(body(raw.as_bytes(), size), &Headers::new(), StreamFraming::Sse) else {
            panic!("it has no coding");
        };
        let mut ahead = 0;
        for _ in 0..frames {
            if let ReadAhead::Data(read) = body.stream_mut::<ResponseStream>().unwrap().read_ahead(|_| {}).await {
                ahead += read;
            }
        }
        assert!(ahead > 0 && body.remaining() == Some(raw.len() as u64));
        let body = observe(body, &Headers::new(), StreamFraming::Sse, Witness("o", Arc::clone(&log)));
        assert_eq!(read(body).await.0, raw);
        assert_eq!(log.lock().concat(), "o {\"t\":\"a\"}o o {\"t\":\"b\"}o {\"t\":\"c\"}o Complete");
    }
}

#[tokio::test]
async fn a_whole_response_is_decoded_by_the_first_that_reads_it() {
    let plain = format!(" {{\"text\":\"{}\"}} ", "a".repeat(2_000)).into_bytes();
    let compressed = gzip(&plain);
    let headers: Headers = [("Content-Encoding", "gzip")].into_iter().collect();
    for (raw, max, is_read) in [
        (&compressed[..], plain.len(), true),
        (&compressed[..], plain.len() - 1, false),
        (&compressed[..compressed.len() - 3], plain.len(), false),
    ] {
        for is_observed in [true, false] {
            let (log, mut source) = (Log::default(), body(raw, 7));
            if is_observed {
                source = observe(source, &headers, StreamFraming::Whole, Witness("o", Arc::clone(&log)));
            }
            let read = whole::read(&headers, source, (max, true)).await.unwrap();
            let texts = read.ok().map(|(received, text)| (received == raw, text));
            assert_eq!(texts, is_read.then(|| (true, Bytes::from(plain.clone()))), "{max} {is_observed}");
            assert_eq!(log.lock().is_empty(), !is_observed);
        }
    }
}
