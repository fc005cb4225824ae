//! Time limits of one attempt: until its response begins, and until the first token of a stream.

use std::time::{Duration, Instant};

use interflow_codec::content_coding::ContentDecoder;
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::usage::UsageScanner;
use interflow_types::units::HumanDuration;
use interflow_types::{Body, BodyFrame, Response};

/// What is held at most while the first token is awaited; a response with more before it has begun.
const MAX_HELD_BYTES: usize = 256 << 10;

/// The time limits of one attempt at a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptLimits {
    response: Option<Duration>,
    first_token: Option<Duration>,
}

impl AttemptLimits {
    pub fn new(response: Option<HumanDuration>, first_token: Option<HumanDuration>) -> Self {
        Self { response: response.map(|limit| limit.0), first_token: first_token.map(|limit| limit.0) }
    }

    /// These, and others where there are none.
    pub fn or(self, others: Self) -> Self {
        Self { response: self.response.or(others.response), first_token: self.first_token.or(others.first_token) }
    }

    /// # Errors
    /// A limit that no attempt could keep, with its key.
    pub fn check(self) -> Result<(), String> {
        for (key, limit) in [("attempt_timeout", self.response), ("first_token_timeout", self.first_token)] {
            if limit.is_some_and(|limit| limit < Duration::from_millis(1)) {
                return Err(format!(".{key}: write a time of at least 1ms, or leave it out"));
            }
        }
        Ok(())
    }

    /// When the response to an attempt that starts now has to have begun.
    pub fn response_until(self, now: Instant, is_stream: bool, deadline: Instant) -> Instant {
        let first_token = self.first_token.filter(|_| is_stream);
        let limits = [self.response, first_token].into_iter().flatten();
        limits.map(|limit| now + limit).fold(deadline, Instant::min)
    }

    /// When the first token of a stream has to be there; `None` if nothing limits it.
    pub fn first_token_until(self, now: Instant, is_stream: bool, deadline: Instant) -> Option<Instant> {
        self.first_token.filter(|_| is_stream).map(|limit| deadline.min(now + limit))
    }
}

/// Waits until the first token of a stream is there, and returns the response with all that was read. `Err` if it is
/// not there in time. What fails or ends before is a response, too: its client is to see it.
pub(crate) async fn await_first_token(response: Response, grows: bool, until: Instant) -> Result<Response, ()> {
    let Response { head, mut body } = response;
    let framing = StreamFraming::from_headers(&head.headers, grows);
    let decoder = ContentDecoder::new(&head.headers, MAX_HELD_BYTES as u64 * 16);
    let (true, Ok(mut decoder)) = (framing != StreamFraming::Whole && matches!(body, Body::Stream(_)), decoder) else {
        return Ok(Response { head, body });
    };
    let (mut scanner, mut read, mut length) = (UsageScanner::new(framing), Vec::new(), 0);
    loop {
        let Ok(frame) = tokio::time::timeout_at(until.into(), body.frame()).await else { return Err(()) };
        let Some(frame) = frame else {
            body = Body::Empty;
            break;
        };
        let data = match &frame {
            Ok(BodyFrame::Data(data)) => Some(data.clone()),
            _ => None,
        };
        let is_last = frame.is_err();
        read.push(frame);
        let Some(data) = data else {
            if is_last {
                body = Body::Empty;
                break;
            }
            continue;
        };
        length += data.len();
        match &mut decoder {
            None => scanner.push(&data),
            Some(decoder) => scanner.push(&decoder.push(&data).unwrap_or_default()),
        }
        if scanner.has_text() || !scanner.examines() || length > MAX_HELD_BYTES {
            break;
        }
    }
    Ok(Response { head, body: Body::replay(read, body) })
}
