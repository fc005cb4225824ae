//! Time limits of one attempt: until its response begins, and until the first token of a stream. Until then a response
//! may turn out to be an error.

use std::time::{Duration, Instant};

use interflow_llm::event_stream::{ResponseForm, StreamFraming};
use interflow_llm::reply_error;
use interflow_llm::usage::UsageReader;
use interflow_types::Response;
use interflow_types::units::HumanDuration;

use crate::exchange::response::stream::{ReadAhead, ResponseStream};

/// What is held at most while the first token is awaited; a response with more before it has begun.
const MAX_HELD_BYTES: usize = 256 << 10;
/// A whole reply that is larger is none that only reports an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Of one that is compressed, so much of its text is read.
const MAX_DECODED_ERROR: usize = 16 * MAX_ERROR_BYTES;
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
    form: ResponseForm,
    limits: HoldLimits,
) -> Result<Response, HoldFailure> {
    let Response { head, body } = response;
    let mut body = match ResponseStream::open(body, &head.headers, form.framing(&head.headers)) {
        Ok(body) => body,
        Err((body, _)) => return Ok(Response { head, body }),
    };
    let Some(stream) = body.stream_mut::<ResponseStream>() else { return Ok(Response { head, body }) };
    let declared = head.headers.get_str("content-length").and_then(|length| length.trim().parse::<usize>().ok());
    let is_short = declared.is_none_or(|length| length <= MAX_ERROR_BYTES);
    let first_token_until = limits.first_token_until.unwrap_or_else(|| limits.deadline.min(Instant::now() + MAX_HOLD));
    let (mut usage, mut error, mut length) = (UsageReader::default(), None, 0);
    loop {
        let is_whole = stream.framing == StreamFraming::Whole && !stream.is_undecided();
        let until = match is_whole {
            true if is_short && stream.is_json && length <= MAX_ERROR_BYTES => limits.deadline,
            false if form.is_stream && length <= MAX_HELD_BYTES => first_token_until,
            false if stream.is_undecided() => limits.deadline,
            _ => break,
        };
        let read = stream.read_ahead(|event| match event.event().is_whole {
            true if event.json().len() > MAX_DECODED_ERROR => {}
            true => error = reply_error(None, event.json()),
            false => usage.read(event),
        });
        let Ok(read) = tokio::time::timeout_at(until.into(), read).await else {
            match limits.first_token_until.filter(|_| !is_whole) {
                Some(_) => return Err(HoldFailure::Late),
                None => break,
            }
        };
        if let Some(error) = error.take().or_else(|| usage.error().map(str::to_owned)) {
            return Err(HoldFailure::Failed(error));
        }
        match read {
            ReadAhead::Failed(why) => return Err(HoldFailure::Failed(why)),
            ReadAhead::End | ReadAhead::Unreadable => break,
            ReadAhead::Data(read) => length += read,
        }
        if !is_whole && (usage.has_text() || !usage.examines()) {
            break;
        }
    }
    Ok(Response { head, body })
}
