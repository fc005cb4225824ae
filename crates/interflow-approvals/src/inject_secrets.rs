//! Replaces placeholders by secrets just before a request is sent: in header fields, Basic credentials, path, query
//! and body.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_redact::{Replacer, ReplacingBody, json_string, replace_in_headers};
use interflow_types::{
    Body, ByteStr, CollectError, EarlyExit, Flow, Headers, MessageKind, RequestHead, StreamMessage, percent,
};

use super::mask_secrets;
use super::secrets::StoredSecret;

/// Bodies up to this size, in bytes, are buffered, so that their new length can be sent in advance.
const MAX_BUFFERED_BODY: usize = 1 << 20;
/// Bound on the decoded size of a body with a content coding.
const MAX_DECODED_BYTES: u64 = 16 << 20;

pub(super) const fn is_data_message(message: &StreamMessage) -> bool {
    matches!(message.kind, MessageKind::Text | MessageKind::Binary)
}

pub(super) fn inject_into_message(flow: &mut Flow, message: &mut StreamMessage, secrets: &[Arc<StoredSecret>]) {
    // The payload decides, because messages have no media type.
    let json = message.payload.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'{' | b'['));
    let written: fn(&str) -> Vec<u8> = if json { json_string } else { |v| v.as_bytes().to_vec() };
    let swap = Replacer::new(replacement_pairs(secrets, written));
    if let Some((payload, found)) = swap.and_then(|swap| swap.replace(&message.payload)) {
        message.payload = payload.into();
        record_used_secrets(flow, secrets, &found);
    }
}

/// Placeholders, plain and percent-encoded, with their replacements.
fn replacement_pairs(secrets: &[Arc<StoredSecret>], with: fn(&str) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    // Clients encode a placeholder in a path or a form.
    let plain = secrets.iter().map(|s| (s.placeholder.as_bytes().to_vec(), with(s.value())));
    let coded = secrets.iter().map(|s| (percent_encode_all(&s.placeholder), with(s.value())));
    plain.chain(coded).collect()
}

/// Counts and logs the inserted secrets. `found` has indices into the pairs of these secrets.
fn record_used_secrets(flow: &mut Flow, secrets: &[Arc<StoredSecret>], found: &[usize]) {
    // The second half of the pairs are the same secrets in encoded form.
    for secret in found.iter().filter_map(|i| secrets.get(i % secrets.len())) {
        secret.used.fetch_add(1, Relaxed);
        // The flow is tagged with the label, never with the value.
        flow.tag(format!("secret:{}", secret.label));
    }
}

/// Inserts secrets into header fields, Basic credentials, path, query and body.
pub(super) async fn inject_secrets(
    flow: &mut Flow,
    head: &mut RequestHead,
    body: Body,
    secrets: Vec<Arc<StoredSecret>>,
) -> Result<Body, EarlyExit> {
    let Some(swap) = Replacer::new(replacement_pairs(&secrets, |v| v.as_bytes().to_vec())) else { return Ok(body) };
    let (headers, mut found) = replace_in_headers(&swap, &head.headers);
    let packed = changed_basic_credentials(&head.headers, &headers);
    head.headers = headers;
    // In a URL, the value must be encoded, whatever the placeholder looked like.
    if let Some(swap) = Replacer::new(replacement_pairs(&secrets, percent_encode_all))
        && let Some((path, more)) = swap.replace(head.url.path.as_bytes())
        && let Ok(path) = String::from_utf8(path)
    {
        head.url.path = ByteStr::from(path);
        found.extend(more);
    }
    record_used_secrets(flow, &secrets, &found);
    // The response may return the new credentials as a whole.
    if !packed.is_empty() {
        mask_secrets::add_basic_credentials(flow, &packed);
    }
    let media = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    // gRPC messages have a length prefix, which would become wrong.
    if body.is_empty() || media.starts_with("application/grpc") {
        return Ok(body);
    }
    // The value is escaped as the format requires, or the body would become invalid.
    let written: fn(&str) -> Vec<u8> = if media.contains("json") {
        json_string
    } else if media.starts_with("application/x-www-form-urlencoded") {
        percent_encode_all
    } else {
        |v| v.as_bytes().to_vec()
    };
    let Some(swap) = Replacer::new(replacement_pairs(&secrets, written)) else { return Ok(body) };
    let is_encoded = coding::has_content_coding(&head.headers);
    // Without a known or with a large length, the body is streamed and its length is not sent in advance.
    let is_held =
        body.remaining().is_some_and(|n| n <= MAX_BUFFERED_BODY as u64) && !body.is_incremental(&head.headers);
    if !is_encoded && !is_held {
        // The flow is no longer available while the body is sent, so secrets are only counted.
        let count = move |i: usize| {
            if let Some(secret) = secrets.get(i % secrets.len()) {
                secret.used.fetch_add(1, Relaxed);
            }
        };
        return Ok(ReplacingBody::wrap(body, Arc::new(swap), count));
    }
    let (bytes, trailers) = match body.collect_held(&head.headers, MAX_BUFFERED_BODY, false).await {
        Ok(whole) => whole,
        // Very long, longer than its declared length, or to be forwarded as it comes: secrets are not inserted.
        Err(CollectError::TooLarge(body)) => return Ok(body),
        Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
    };
    let plain = if is_encoded { decoded(head, &bytes).await? } else { Some(bytes.clone()) };
    let Some((replaced, found)) = plain.and_then(|plain| swap.replace(&plain)) else {
        return Ok(Body::with_trailers(bytes, trailers));
    };
    record_used_secrets(flow, &secrets, &found);
    if is_encoded {
        head.headers.remove("content-encoding");
    }
    Ok(Body::with_trailers(replaced.into(), trailers))
}

/// A body without its content coding; `None` if it cannot be decoded, and is sent as it is, with its placeholders.
async fn decoded(head: &RequestHead, bytes: &Bytes) -> Result<Option<Bytes>, EarlyExit> {
    let plain = coding::decode_off_thread(&head.headers, bytes, MAX_DECODED_BYTES).await;
    plain.or_else(|e| coding::budget_error(&e).map_or(Ok(None), |e| Err(EarlyExit::Deny(e))))
}

/// Percent-encodes what is not allowed in a path or query.
fn percent_encode_all(value: &str) -> Vec<u8> {
    percent::encoded(value).into_bytes()
}

/// Basic credentials that were changed: new and old value.
fn changed_basic_credentials(before: &Headers, after: &Headers) -> Vec<(Vec<u8>, Vec<u8>)> {
    let packed = |value: &[u8]| {
        let (_, packed) = value.split_at_checked(6).filter(|(s, _)| s.eq_ignore_ascii_case(b"basic "))?;
        // Short credentials would be found by chance.
        Some(packed.trim_ascii().to_vec()).filter(|p| p.len() >= 8)
    };
    let pairs = before.into_iter().zip(after).filter(|((_, old), (_, new))| old != new);
    pairs.filter_map(|((_, old), (_, new))| Some((packed(new)?, packed(old)?))).collect()
}
