//! The body of an upstream's error, read within bounds of size and time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_types::{Body, BodyFrame, Headers};

/// Maximum size of an error response that is read.
pub(super) const MAX_ERROR_BYTES: usize = 1 << 20;
/// How long an error response is read; what came until then is translated.
pub(super) const MAX_ERROR_TIME: Duration = Duration::from_secs(2);

/// The body of an error without its content coding, as far as it came in [`MAX_ERROR_TIME`] and before the deadline.
pub(super) async fn read_error(headers: &Headers, body: Body, deadline: Instant) -> Bytes {
    read_until(headers, body, MAX_ERROR_BYTES, deadline.min(Instant::now() + MAX_ERROR_TIME)).await
}

/// A body without its content coding, as far as it came until then.
async fn read_until(headers: &Headers, mut body: Body, max: usize, until: Instant) -> Bytes {
    let mut raw = Vec::new();
    while raw.len() < max
        && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until.into(), body.frame()).await
    {
        if let BodyFrame::Data(data) = frame {
            raw.extend_from_slice(&data);
        }
    }
    let raw = Bytes::from(raw);
    match coding::decode_off_thread(headers, &raw, max as u64).await {
        Ok(plain) => plain.unwrap_or(raw),
        Err(_) => Bytes::new(),
    }
}
