//! Masks the credentials that a request was sent with in its response. A provider's error may repeat the operator's
//! key, which neither clients nor the record may get.

use std::sync::Arc;

use bytes::Bytes;
use hashlink::LruCache;
use interflow_codec::content_coding::{self as coding, ContentDecoder};
use interflow_limits::KeyContext;
use interflow_llm::{LlmCall, realtime};
use interflow_redact::{DecodedBody, Replacer, ReplacingBody, replace_in_headers};
use interflow_types::{
    AttemptHandle, Body, Direction, EarlyExit, EntryKind, Error, ErrorKind, Flow, Headers, Method, RequestHead,
    ResponseHead, StatusCode, StreamMessage,
};
use parking_lot::Mutex;

use crate::credentials::SENT_CREDENTIALS;
use crate::exchange::BodyResult;

/// Shorter credentials are no secrets, such as `EMPTY` for a local server. They may be words of the response.
const MIN_LENGTH: usize = 8;
/// As [`MIN_LENGTH`], for responses that are no errors: what a model says must not be changed by chance.
const MIN_LENGTH_IN_REPLIES: usize = 16;
/// Maximum decoded size of an error. Replies are decoded as they are forwarded, whatever their size.
const MAX_DECODED_BYTES: u64 = 64 << 20;
/// Credentials whose masks are kept; the least recently used ones go.
const MAX_CACHED: usize = 256;

/// The first pass over responses to requests that the gateway sends, and to those in which it replaced a virtual key.
pub(crate) struct CredentialMask {
    masks: Mutex<LruCache<Vec<Vec<u8>>, MaskedForms>>,
}

/// What replaces credentials, by as many asterisks, so that lengths stay as they are sent.
#[derive(Clone, Default)]
struct MaskedForms {
    /// In all encodings in which an error may repeat them.
    errors: Option<Arc<Replacer>>,
    /// Only with their characters escaped, in replies, which are long and many.
    replies: Option<Arc<Replacer>>,
}

/// The masks of a WebSocket's messages, kept with its flow.
#[derive(Default)]
struct MessageMask(Option<Arc<Replacer>>);

impl Default for CredentialMask {
    fn default() -> Self {
        Self { masks: Mutex::new(LruCache::new(MAX_CACHED)) }
    }
}

impl MaskedForms {
    fn of(credentials: &[Vec<u8>]) -> Self {
        // All have at least `MIN_LENGTH`.
        let texts: Vec<&str> = credentials.iter().filter_map(|c| std::str::from_utf8(c).ok()).collect();
        let long: Vec<Vec<u8>> =
            texts.iter().filter(|c| c.len() >= MIN_LENGTH_IN_REPLIES).map(|c| c.as_bytes().to_vec()).collect();
        let mask = |form: &Vec<u8>| (form.clone(), vec![b'*'; form.len()]);
        let replies = Replacer::new(long.iter().map(mask).collect()).map(|swap| swap.with_escaped(long));
        Self { errors: Replacer::masking(&texts).map(Arc::new), replies: replies.map(Arc::new) }
    }
}

impl CredentialMask {
    /// What to replace in the response to a request; nothing if the request has no credentials.
    fn masks(&self, flow: &Flow, request: &RequestHead) -> MaskedForms {
        let is_sent_by_gateway = match flow.transport {
            // An attempt at a deployment, or a copy for a shadow; a replay is the operator's own.
            EntryKind::Internal => {
                let is_copy = || flow.parent.is_none() && flow.tags.iter().any(|tag| tag == "shadow");
                flow.extension::<AttemptHandle>().is_some() || is_copy()
            }
            EntryKind::Gateway => flow.extension::<LlmCall>().is_some(),
            _ => flow.extension::<KeyContext>().is_some_and(|context| context.key.is_some()),
        };
        let credentials = if is_sent_by_gateway { credentials(&request.headers) } else { Vec::new() };
        if credentials.is_empty() {
            return MaskedForms::default();
        }
        let mut cached = self.masks.lock();
        if let Some(masks) = cached.get(&credentials) {
            return masks.clone();
        }
        let masks = MaskedForms::of(&credentials);
        cached.insert(credentials, masks.clone());
        masks
    }

    /// The credentials of a WebSocket are those of its handshake, which every stage has seen by now.
    pub fn request_body(&self, flow: &mut Flow, head: &RequestHead) {
        if realtime::is_websocket(head)
            && let Some(mask) = self.masks(flow, head).replies
        {
            flow.extension_mut::<MessageMask>().0 = Some(mask);
        }
    }

    pub fn response_head(&self, flow: &Flow, request: &RequestHead, head: &mut ResponseHead) {
        let masks = self.masks(flow, request);
        let swap = if head.status.is_success() { masks.replies } else { masks.errors };
        if let Some(swap) = swap {
            mask_head(&swap, head);
        }
    }

    pub fn response_body(&self, flow: &Flow, request: &RequestHead, head: &mut ResponseHead, body: Body) -> BodyResult {
        if request.method == Method::HEAD { Ok(body) } else { mask_body(self.masks(flow, request), head, body) }
    }

    /// Whether messages of a flow may repeat its credentials.
    pub fn wants_messages(flow: &Flow) -> bool {
        flow.extension::<MessageMask>().is_some()
    }

    pub fn message(flow: &Flow, message: &mut StreamMessage) {
        if message.direction == Direction::Response
            && let Some(swap) = flow.extension::<MessageMask>().and_then(|mask| mask.0.as_ref())
            && let Some((masked, _)) = swap.replace(&message.payload)
        {
            message.payload = masked.into();
        }
    }
}

/// The credentials in a request's header fields, without authentication scheme.
fn credentials(headers: &Headers) -> Vec<Vec<u8>> {
    let secret = |name: &&str| {
        let value = headers.get(name)?.trim_ascii();
        let (scheme, secret) =
            match value.iter().position(u8::is_ascii_whitespace).filter(|_| **name == *SENT_CREDENTIALS[0]) {
                Some(at) => (&value[..at], value[at..].trim_ascii_start()),
                None => (&b""[..], value),
            };
        // A signature is worth nothing in another request.
        let is_key = secret.len() >= MIN_LENGTH && !scheme.starts_with(b"AWS4-");
        is_key.then(|| secret.to_vec())
    };
    SENT_CREDENTIALS.iter().filter_map(secret).collect()
}

fn mask_head(swap: &Replacer, head: &mut ResponseHead) {
    if head.headers.iter().any(|(_, value)| swap.replace(value).is_some()) {
        head.headers = replace_in_headers(swap, &head.headers).0;
    }
    if let Some((reason, _)) = swap.replace(&head.reason) {
        head.reason = reason.into();
    }
}

/// Whether a response is text, in which a reply that is an error may repeat a key. One without a type may be.
fn is_text(headers: &Headers) -> bool {
    let media_type = headers.get_str("content-type").unwrap_or_default().trim_start().to_ascii_lowercase();
    media_type.is_empty() || media_type.starts_with("text/") || media_type.contains("json")
}

/// The credentials of a request, for the messages that the gateway makes out of what its provider says.
pub(super) struct SentCredentials(Vec<Vec<u8>>);

impl SentCredentials {
    pub fn of(headers: &Headers) -> Self {
        Self(credentials(headers))
    }

    /// The provider's words without credentials, and at most this many characters of them.
    pub fn masked(&self, words: &str, max_chars: usize) -> String {
        let swap = MaskedForms::of(&self.0).errors;
        let masked = swap.and_then(|swap| swap.replace(words.as_bytes())).map(|(masked, _)| masked);
        let masked = masked.map(|masked| String::from_utf8_lossy(&masked).into_owned());
        masked.as_deref().unwrap_or(words).chars().take(max_chars).collect()
    }
}

/// Masks an error, and a reply that is text, in any coding that can be decoded.
fn mask_body(masks: MaskedForms, head: &mut ResponseHead, body: Body) -> BodyResult {
    let is_error = !head.status.is_success();
    let swap = if is_error { masks.errors } else { masks.replies.filter(|_| is_text(&head.headers)) };
    let Some(swap) = swap.filter(|_| !body.is_empty()) else { return Ok(body) };
    // A part of a coded body cannot be decoded.
    let is_whole = head.status != StatusCode::PARTIAL_CONTENT;
    let max = if is_error { MAX_DECODED_BYTES } else { u64::MAX };
    let body = match ContentDecoder::new(&head.headers, max) {
        Ok(Some(decoder)) if is_whole => {
            coding::strip_stale_headers(&mut head.headers);
            let what = if is_error { "error" } else { "reply" };
            DecodedBody::wrap(body, decoder, format!("the provider's {what} cannot be decoded"))
        }
        Err(e) if is_error => {
            let why = format!("the provider's error cannot be decoded ({e}), so that a key in it cannot be masked");
            return Err(EarlyExit::Deny(Error::new(ErrorKind::BadResponse, why)));
        }
        // A reply in an unknown coding may not be coded at all.
        _ => body,
    };
    Ok(match body {
        Body::Full(bytes) => match swap.replace(&bytes) {
            Some((masked, _)) => Bytes::from(masked).into(),
            None => bytes.into(),
        },
        body => ReplacingBody::wrap(body, swap, |_| {}),
    })
}
