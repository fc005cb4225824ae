//! Bodies of upstreams that the gateway itself reads, within bounds: errors (of size and time), and answers in JSON.

use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_tasks::own_request;
use interflow_types::{Body, BodyFrame, Headers, HttpClient, Request};
use serde_json::Value;

/// Maximum size of an error response that is read.
pub(super) const MAX_ERROR_BYTES: usize = 1 << 20;
/// How long an error response is read; what came until then is translated.
pub(super) const MAX_ERROR_TIME: Duration = Duration::from_secs(2);

/// Longest code of an error that is recorded, in bytes.
const MAX_CODE: usize = 64;

/// The body of an error without its content coding, as far as it came in [`MAX_ERROR_TIME`] and before the deadline.
pub(super) async fn read_error(headers: &Headers, mut body: Body, deadline: Instant) -> Bytes {
    let (until, mut raw) = (deadline.min(Instant::now() + MAX_ERROR_TIME), Vec::new());
    while raw.len() < MAX_ERROR_BYTES
        && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until.into(), body.frame()).await
    {
        if let BodyFrame::Data(data) = frame {
            raw.extend_from_slice(&data);
        }
    }
    let raw = Bytes::from(raw);
    let plain = coding::decode_off_thread(headers, &raw, MAX_ERROR_BYTES as u64).await;
    plain.map_or_else(|_| Bytes::new(), |plain| plain.unwrap_or(raw))
}

/// The provider's code of an error in JSON, such as `overloaded_error`. Nothing but identifiers: an error's words may
/// repeat the request.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    let answer: Value = interflow_codec::json::parse(body).ok()?;
    // Gemini's errors may be in a list.
    let answer = answer.get(0).unwrap_or(&answer);
    let error = answer.get("error").filter(|error| error.is_object()).unwrap_or(answer);
    let code = ["code", "type", "status"].into_iter().find_map(|name| error.get(name)?.as_str())?;
    let is_identifier = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (code.len() <= MAX_CODE && code.bytes().all(is_identifier)).then(|| code.to_owned())
}

/// Sends a request of Interflow's own to a service, and reads the JSON of its answer. Nothing of either is in the error.
///
/// # Errors
/// There is no such answer of at most `max` bytes.
pub(crate) async fn send_json(client: &dyn HttpClient, request: Request, max: usize) -> Result<Value, String> {
    let answer = own_request::fetch_accepted(client, request, max, |status| {
        (!status.is_success()).then(|| format!("it answered with status {}", status.as_u16()))
    });
    serde_json::from_slice(&answer.await?).map_err(|_| "its answer is not JSON".to_owned())
}

#[cfg(test)]
mod tests {
    use interflow_testkit::StallingService;
    use interflow_types::{StatusCode, Url};

    use super::*;

    #[tokio::test]
    async fn an_error_of_a_service_counts_without_its_body() {
        let request = own_request::get(Url::of_service("https://a.test/").unwrap());
        let sent = tokio::time::timeout(
            Duration::from_secs(5),
            send_json(&StallingService(StatusCode::SERVICE_UNAVAILABLE), request, 100),
        )
        .await;
        assert_eq!(sent.unwrap().unwrap_err(), "it answered with status 503");
    }
}
