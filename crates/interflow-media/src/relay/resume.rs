//! Resumes an interrupted body: the rest is requested with `Range` and `If-Range`, and accepted only if it is certainly
//! the rest of the same representation (RFC 9110 13.1.5).

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use interflow_types::{
    Body, BodyFrame, BodyStream, BoxFuture, Error, ErrorKind, Method, ResponseHead, Result, StatusCode,
};

use super::fetch::{FetchRequest, FetchedResponse, MediaFetcher};
use super::header_filter::remove_conditions;

/// Progress in bytes that resets the attempt counter: an origin that cuts every body after some megabytes is followed
/// to the end, one that makes no progress is given up.
const PROGRESS_BYTES: u64 = 256 * 1024;

/// How often a body is resumed: up to `attempts` times without progress between them, each after `delay`.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    pub attempts: u8,
    pub delay: Duration,
}

/// The response to a request, with a body that is resumed if the connection breaks.
///
/// # Errors
/// As for [`MediaFetcher::send`].
pub async fn send_resumable(
    fetch: &Arc<MediaFetcher>,
    ask: FetchRequest,
    patience: RetryPolicy,
) -> Result<FetchedResponse> {
    let mut fetched = fetch.send(ask.clone()).await?;
    let ask = ask.continued(fetched.url.clone(), fetched.cookies.clone());
    fetched.response.body = resumable_body(fetched.response.body, &fetched.response.head, ask, fetch, patience);
    Ok(fetched)
}

/// Makes a body resumable if the origin's head allows it: a known length and a strong validator. `ask` is the request
/// with the final URL.
fn resumable_body(
    body: Body,
    head: &ResponseHead,
    ask: FetchRequest,
    fetch: &Arc<MediaFetcher>,
    patience: RetryPolicy,
) -> Body {
    let Some(place) = ResumePosition::from_response(head, &body) else { return body };
    if patience.attempts == 0 || ask.method != Method::GET {
        return body;
    }
    let fetch = Arc::clone(fetch);
    Body::stream(ResumableBody { body, again: None, place, ask, fetch, patience, failed: 0, since: 0 })
}

/// The position in the origin's resource: the next byte and the end, in bytes, and the validator for `If-Range`.
struct ResumePosition {
    next: u64,
    end: u64,
    validator: String,
}

impl ResumePosition {
    fn from_response(head: &ResponseHead, body: &Body) -> Option<Self> {
        let length = body.remaining()?;
        let start = match head.status {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => content_range(head)?.0,
            _ => return None,
        };
        let validator = validator(head)?.to_owned();
        Some(Self { next: start, end: start.checked_add(length)?, validator })
    }
}

/// A strong entity tag, or `Last-Modified`. A weak tag must not be used in `If-Range` (RFC 9110 13.1.5): it does not
/// promise identical bytes.
pub fn validator(head: &ResponseHead) -> Option<&str> {
    let etag = head.headers.get_str("etag").filter(|e| !e.starts_with("W/"));
    etag.or_else(|| head.headers.get_str("last-modified"))
}

/// First byte and complete length, if known, of a `Content-Range` (RFC 9110 14.4). `None` for any unit but bytes.
pub fn content_range(head: &ResponseHead) -> Option<(u64, Option<u64>)> {
    let range = head.headers.get_str("content-range")?.trim().strip_prefix("bytes")?.trim_start();
    let (range, whole) = range.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, whole.trim().parse().ok()))
}

struct ResumableBody {
    body: Body,
    again: Option<BoxFuture<'static, Result<Body>>>,
    place: ResumePosition,
    ask: FetchRequest,
    fetch: Arc<MediaFetcher>,
    patience: RetryPolicy,
    // Attempts since the last progress, and bytes since the last attempt.
    failed: u8,
    since: u64,
}

impl ResumableBody {
    /// Requests the rest, unless the attempts are exhausted, or the error is not of a kind that a new request could
    /// cure.
    fn retry(&mut self, error: Error) -> Result<()> {
        // Other errors, such as a refused address or a full memory budget, would only repeat.
        let broke = matches!(
            error.kind(),
            ErrorKind::UpstreamClosed | ErrorKind::UpstreamTimeout | ErrorKind::BadResponse | ErrorKind::Connect
        );
        if !broke || self.failed >= self.patience.attempts {
            return Err(error);
        }
        self.failed += 1;
        self.since = 0;
        tracing::debug!(at = self.place.next, host = %self.ask.url.authority, "the body broke off, asking for the rest: {error}");
        let (fetch, delay) = (Arc::clone(&self.fetch), self.patience.delay);
        let (next, end) = (self.place.next, self.place.end);
        let mut ask = self.ask.clone();
        // The conditions concern the client's copy, and would be answered with 304 or 412 instead of the rest.
        remove_conditions(&mut ask.headers);
        let _ = ask.headers.set("Range", format!("bytes={next}-{}", end.saturating_sub(1)));
        let _ = ask.headers.set("If-Range", &self.place.validator);
        let expected = self.place.validator.clone();
        self.again = Some(Box::pin(async move {
            tokio::time::sleep(delay).await;
            let response = fetch.send(ask).await?.response;
            // A 200 would be the whole resource, possibly another version; a 206 from another byte or version would
            // corrupt the body.
            let same = response.head.status == StatusCode::PARTIAL_CONTENT
                && content_range(&response.head).is_some_and(|(first, _)| first == next)
                && validator(&response.head).is_none_or(|v| *v == *expected);
            if same {
                return Ok(response.body);
            }
            let text = format!("the origin broke off at byte {next} and does not give the rest of the same thing");
            Err(Error::new(ErrorKind::UpstreamClosed, text))
        }));
        Ok(())
    }
}

impl BodyStream for ResumableBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(again) = &mut self.again {
                // Cleared first: a completed future must not be polled again.
                let answered = ready!(again.as_mut().poll(cx));
                self.again = None;
                match answered {
                    Ok(body) => self.body = body,
                    Err(e) => match self.retry(e) {
                        Ok(()) => continue,
                        Err(e) => return Poll::Ready(Some(Err(e))),
                    },
                }
            }
            let remaining = self.place.end - self.place.next;
            if remaining == 0 {
                return Poll::Ready(None);
            }
            let error = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(mut data))) => {
                    // An origin may send more than it declared.
                    data.truncate(usize::try_from(remaining).unwrap_or(usize::MAX));
                    self.place.next += data.len() as u64;
                    self.since += data.len() as u64;
                    if self.since >= PROGRESS_BYTES {
                        self.failed = 0;
                    }
                    return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                }
                Some(Ok(BodyFrame::Trailers(_))) => continue,
                Some(Err(e)) => e,
                None => {
                    Error::new(ErrorKind::UpstreamClosed, format!("the origin closed {remaining} bytes before the end"))
                }
            };
            if let Err(e) = self.retry(error) {
                return Poll::Ready(Some(Err(e)));
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.place.end - self.place.next)
    }
}
