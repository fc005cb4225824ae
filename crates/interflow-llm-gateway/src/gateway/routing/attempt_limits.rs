//! Time limits of one attempt: until its response begins, and until the first token of a stream. Until then a response
//! may turn out to be an error.

use std::time::{Duration, Instant};

use interflow_codec::content_coding::{self as coding, ContentDecoder};
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::reply_error;
use interflow_llm::usage::UsageScanner;
use interflow_types::units::HumanDuration;
use interflow_types::{Body, BodyFrame, Response};

/// What is held at most while the first token is awaited; a response with more before it has begun.
const MAX_HELD_BYTES: usize = 256 << 10;
/// A whole reply that is larger is none that only reports an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// How long a stream without a time limit for its first token is held.
const MAX_HOLD: Duration = Duration::from_secs(15);

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

/// How long a response is held until it is known that it is not an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldLimits {
    /// When the first token of a stream has to be there; `None` if nothing limits it. Then a stream is passed on after
    /// [`MAX_HOLD`], so that its client sees that it is alive.
    pub first_token_until: Option<Instant>,
    /// When the attempts are over: what is held is passed on.
    pub deadline: Instant,
}

/// Why a response with a status of success is none.
#[derive(Debug)]
pub(crate) enum HoldFailure {
    /// The first token was not there in time.
    Late,
    /// The provider reported an error, or the response broke off, before anything was generated.
    Failed(String),
}

/// Reads a response until it is known that it is not an error: a stream until its first token, a whole reply if it is as
/// short as an error. Returns the response with all that was read. A stream that ends without a token is a response,
/// too.
pub(crate) async fn hold_until_content(
    response: Response,
    grows: bool,
    is_stream: bool,
    limits: HoldLimits,
) -> Result<Response, HoldFailure> {
    let framing = StreamFraming::from_headers(&response.head.headers, grows);
    match framing {
        StreamFraming::Whole => hold_whole(response, limits.deadline).await,
        _ if is_stream => hold_stream(response, framing, limits).await,
        _ => Ok(response),
    }
}

async fn hold_stream(response: Response, framing: StreamFraming, limits: HoldLimits) -> Result<Response, HoldFailure> {
    let Response { head, mut body } = response;
    let Ok(mut decoder) = ContentDecoder::new(&head.headers, MAX_HELD_BYTES as u64 * 16) else {
        return Ok(Response { head, body });
    };
    let until = limits.first_token_until.unwrap_or_else(|| limits.deadline.min(Instant::now() + MAX_HOLD));
    let (mut scanner, mut read, mut length) = (UsageScanner::new(framing), Vec::new(), 0);
    loop {
        let Ok(frame) = tokio::time::timeout_at(until.into(), body.frame()).await else {
            match limits.first_token_until {
                Some(_) => return Err(HoldFailure::Late),
                None => break,
            }
        };
        let data = match frame {
            None => {
                body = Body::Empty;
                break;
            }
            Some(Err(e)) => return Err(HoldFailure::Failed(e.to_string())),
            Some(Ok(BodyFrame::Data(data))) => data,
            Some(Ok(trailers)) => {
                read.push(Ok(trailers));
                continue;
            }
        };
        length += data.len();
        match &mut decoder {
            None => scanner.push(&data),
            Some(decoder) => scanner.push(&decoder.push(&data).unwrap_or_default()),
        }
        read.push(Ok(BodyFrame::Data(data)));
        if let Some(error) = scanner.usage().error() {
            return Err(HoldFailure::Failed(error.to_owned()));
        }
        if scanner.usage().has_text() || !scanner.examines() || length > MAX_HELD_BYTES {
            break;
        }
    }
    Ok(Response { head, body: Body::replay(read, body) })
}

async fn hold_whole(response: Response, deadline: Instant) -> Result<Response, HoldFailure> {
    let Response { head, mut body } = response;
    let media_type = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    let declared = head.headers.get_str("content-length").and_then(|length| length.trim().parse::<usize>().ok());
    if !media_type.contains("json") || declared.is_some_and(|length| length > MAX_ERROR_BYTES) {
        return Ok(Response { head, body });
    }
    let (mut read, mut raw) = (Vec::new(), Vec::new());
    loop {
        let Ok(frame) = tokio::time::timeout_at(deadline.into(), body.frame()).await else { break };
        match frame {
            None => {
                body = Body::Empty;
                let plain = coding::decode(&head.headers, &raw, MAX_ERROR_BYTES as u64 * 16).ok().flatten();
                if let Some(error) = reply_error(None, plain.as_deref().unwrap_or(&raw)) {
                    return Err(HoldFailure::Failed(error));
                }
                break;
            }
            Some(Err(e)) => return Err(HoldFailure::Failed(e.to_string())),
            Some(Ok(frame)) => {
                if let BodyFrame::Data(data) = &frame {
                    raw.extend_from_slice(data);
                }
                read.push(Ok(frame));
                if raw.len() > MAX_ERROR_BYTES {
                    break;
                }
            }
        }
    }
    Ok(Response { head, body: Body::replay(read, body) })
}
