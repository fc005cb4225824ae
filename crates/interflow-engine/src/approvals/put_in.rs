//! Placeholders that become secrets on the last step of a request: in fields, Basic credentials, path, query and body.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use interflow_flow::{Body, ByteStr, Flow, Headers, Message, MessageKind, RequestHead, Verdict};
use interflow_wire::content_coding as coding;

use super::hide;
use super::secrets::Secret;
use super::substitute::{Swap, SwapStream, swapped_headers};

/// Bodies up to this size, in bytes, are read whole, so that their length can be told beforehand.
const WHOLE: usize = 1 << 20;
/// The most bytes that a body's content coding may hide.
const LARGEST_PLAIN: u64 = 16 << 20;

/// Whether a message is one of a WebSocket that its ends wrote.
pub(super) const fn is_spoken(message: &Message) -> bool {
    matches!(message.kind, MessageKind::Text | MessageKind::Binary)
}

/// Puts the secrets into a message of a WebSocket.
pub(super) fn put_into_message(flow: &mut Flow, message: &mut Message, secrets: &[Arc<Secret>]) {
    let json = message.payload.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'{' | b'['));
    let written: fn(&str) -> Vec<u8> = if json { in_json } else { |v| v.as_bytes().to_vec() };
    let swap = Swap::new(pairs(secrets, written));
    if let Some((payload, found)) = swap.and_then(|swap| swap.swap(&message.payload)) {
        message.payload = payload.into();
        note_used(flow, secrets, &found);
    }
}

/// Placeholders, as they are and as they stand where they had to be percent-coded, and what is put in for them.
fn pairs(secrets: &[Arc<Secret>], with: fn(&str) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let plain = secrets.iter().map(|s| (s.placeholder.as_bytes().to_vec(), with(s.value())));
    let coded = secrets.iter().map(|s| (escaped(&s.placeholder), with(s.value())));
    plain.chain(coded).collect()
}

/// Counts what was put in, and writes it down. `found` are indices into the pairs of these secrets.
fn note_used(flow: &mut Flow, secrets: &[Arc<Secret>], found: &[usize]) {
    for secret in found.iter().filter_map(|i| secrets.get(i % secrets.len())) {
        secret.used.fetch_add(1, Relaxed);
        flow.tag(format!("secret:{}", secret.label));
    }
}

/// As it stands between the quotes of a JSON string.
pub(super) fn in_json(value: &str) -> Vec<u8> {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

/// The same as encoders write it that think of HTML: in JSON, with `&`, `<` and `>` as `\\u0026` and so on.
pub(super) fn escaped_json(value: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(&in_json(value)).into_owned();
    text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e").into_bytes()
}

/// Puts the secrets in: fields, Basic credentials, path and query, body.
pub(super) async fn put_in(
    flow: &mut Flow,
    head: &mut RequestHead,
    body: Body,
    secrets: Vec<Arc<Secret>>,
) -> Result<Body, Verdict> {
    let Some(swap) = Swap::new(pairs(&secrets, |v| v.as_bytes().to_vec())) else { return Ok(body) };
    let (headers, mut found) = swapped_headers(&swap, &head.headers);
    let packed = changed_basic(&head.headers, &headers);
    head.headers = headers;
    if let Some(swap) = Swap::new(pairs(&secrets, escaped))
        && let Some((path, more)) = swap.swap(head.url.path.as_bytes())
        && let Ok(path) = String::from_utf8(path)
    {
        head.url.path = ByteStr::from(path);
        found.extend(more);
    }
    note_used(flow, &secrets, &found);
    if !packed.is_empty() {
        hide::add_packed(flow, &packed);
    }
    let media = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    // Messages of gRPC say their lengths, which would be wrong then.
    if body.is_empty() || media.starts_with("application/grpc") {
        return Ok(body);
    }
    let written: fn(&str) -> Vec<u8> = if media.contains("json") {
        in_json
    } else if media.starts_with("application/x-www-form-urlencoded") {
        escaped
    } else {
        |v| v.as_bytes().to_vec()
    };
    let Some(swap) = Swap::new(pairs(&secrets, written)) else { return Ok(body) };
    if coding::is_coded(&head.headers) {
        return put_into_coded(flow, head, body, &secrets, &swap).await;
    }
    if body.remaining().is_none_or(|n| n > WHOLE as u64) {
        let count = move |i: usize| {
            if let Some(secret) = secrets.get(i % secrets.len()) {
                secret.used.fetch_add(1, Relaxed);
            }
        };
        return Ok(SwapStream::wrap(body, Arc::new(swap), count));
    }
    match body.collect(WHOLE).await {
        Ok((bytes, None)) => match swap.swap(&bytes) {
            Some((bytes, found)) => {
                note_used(flow, &secrets, &found);
                Ok(Body::from(bytes::Bytes::from(bytes)))
            }
            None => Ok(Body::from(bytes)),
        },
        Ok((bytes, Some(trailers))) => {
            let (bytes, found) = swap.swap(&bytes).map_or((bytes, Vec::new()), |(b, found)| (b.into(), found));
            note_used(flow, &secrets, &found);
            Ok(whole_with_trailers(bytes, trailers))
        }
        // It promised to be shorter; whoever sends it is not to be trusted with more.
        Err(interflow_flow::CollectError::TooLarge(body)) => Ok(body),
        Err(interflow_flow::CollectError::Broken(e)) => Err(Verdict::Deny(e)),
    }
}

/// Puts the secrets into a body with a content coding, which loses the coding then. One without placeholders, or whose coding
/// cannot be undone, goes on as it came; so does a very long one.
async fn put_into_coded(
    flow: &mut Flow,
    head: &mut RequestHead,
    body: Body,
    secrets: &[Arc<Secret>],
    swap: &Swap,
) -> Result<Body, Verdict> {
    let (bytes, trailers) = match body.collect(WHOLE).await {
        Ok(whole) => whole,
        Err(interflow_flow::CollectError::TooLarge(body)) => return Ok(body),
        Err(interflow_flow::CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
    };
    let plain = match coding::decode_held(&head.headers, &bytes, LARGEST_PLAIN).await {
        Ok(plain) => plain,
        Err(e) => match coding::overloaded(&e) {
            Some(e) => return Err(Verdict::Deny(e)),
            None => None,
        },
    };
    let bytes = match plain.and_then(|plain| swap.swap(&plain)) {
        None => bytes,
        Some((plain, found)) => {
            note_used(flow, secrets, &found);
            head.headers.remove("content-encoding");
            plain.into()
        }
    };
    Ok(match trailers {
        None => Body::from(bytes),
        Some(trailers) => whole_with_trailers(bytes, trailers),
    })
}

/// A body that ends with trailers.
fn whole_with_trailers(bytes: bytes::Bytes, trailers: Headers) -> Body {
    struct Two(Option<bytes::Bytes>, Option<Headers>);
    impl interflow_flow::BodyStream for Two {
        fn poll_frame(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<interflow_flow::Result<interflow_flow::Frame>>> {
            let data = self.0.take().filter(|b| !b.is_empty()).map(interflow_flow::Frame::Data);
            std::task::Poll::Ready(data.or_else(|| self.1.take().map(interflow_flow::Frame::Trailers)).map(Ok))
        }
    }
    Body::stream(Two(Some(bytes), Some(trailers)))
}

/// What may not stand in a path or query is percent-coded.
fn escaped(value: &str) -> Vec<u8> {
    coded(value, "")
}

/// Percent-coded (RFC 3986 2.1), but for what is unreserved and what is kept.
pub(super) fn coded(value: &str, kept: &str) -> Vec<u8> {
    let plain =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') || kept.as_bytes().contains(&b);
    let coded = value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") });
    coded.collect::<String>().into_bytes()
}

/// The Basic credentials that are others now, and as they were before.
fn changed_basic(before: &Headers, after: &Headers) -> Vec<(Vec<u8>, Vec<u8>)> {
    let packed = |value: &[u8]| {
        let (_, packed) = value.split_at_checked(6).filter(|(s, _)| s.eq_ignore_ascii_case(b"basic "))?;
        Some(packed.trim_ascii().to_vec()).filter(|p| p.len() >= 8)
    };
    let pairs = before.into_iter().zip(after).filter(|((_, old), (_, new))| old != new);
    pairs.filter_map(|((_, old), (_, new))| Some((packed(new)?, packed(old)?))).collect()
}
