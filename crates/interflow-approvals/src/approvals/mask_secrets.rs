//! Masks secrets in every response of the hosts they are bound to, whoever sent the request and whatever it was: a
//! host may return a secret in any later response. Responses that cannot be scanned are rejected.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use hashlink::LruCache;
use interflow_codec::content_coding::{self as coding, ContentDecoder};
use interflow_codec::grpc;
use interflow_types::percent::{self, AsciiSet, COMPONENT};
use interflow_types::{
    Body, BodyFrame, BodyStream, EarlyExit, Error, ErrorKind, Flow, Headers, MessageKind, MessagePolicy, RequestHead,
    ResponseHead, ResponseHeadFilter, Result, StatusCode, StreamMessage,
};
use parking_lot::Mutex;

use super::inject_secrets::{escape_json, json_string};
use super::replace::{Replacer, ReplacingBody, replace_in_headers};
use super::secrets::StoredSecret;

/// Shorter secrets are not searched in base64 and hexadecimal form, where they would cause false matches.
const MIN_ENCODED_SECRET_LEN: usize = 8;
/// Bound on the decoded size of a response with a content coding.
const MAX_DECODED_BYTES: u64 = 256 << 20;
/// Encoded bytes decoded per step, which bounds the output of a step.
const DECODE_CHUNK: usize = 4096;
/// The largest gRPC message that is scanned.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Bound on cached masks, one per set of hosts; the least recently used ones go.
const MAX_CACHED_MASKS: usize = 1024;

/// Replaces secrets by their placeholders.
pub(super) struct SecretMask {
    swap: Replacer,
    /// Replaces by as many bytes, where lengths are sent elsewhere.
    padded: Replacer,
}

impl SecretMask {
    fn new(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Arc<Self>> {
        let padded = pairs.iter().map(|(form, with)| (form.clone(), pad_placeholder(with, form.len()))).collect();
        Some(Arc::new(Self { swap: Replacer::new(pairs)?, padded: Replacer::new(padded)? }))
    }

    fn apply_to_head(&self, head: &mut ResponseHead) {
        head.headers = replace_in_headers(&self.swap, &head.headers).0;
        if let Some((reason, _)) = self.swap.replace(&head.reason) {
            head.reason = reason.into();
        }
    }
}

fn pad_placeholder(placeholder: &[u8], length: usize) -> Vec<u8> {
    placeholder.iter().copied().chain(std::iter::repeat(b'*')).take(length).collect()
}

/// The masks of a flow's response, an extension on the flow.
#[derive(Default)]
struct FlowSecretMask {
    hiding: Option<Arc<SecretMask>>,
    secrets: Vec<Arc<StoredSecret>>,
}

/// Masks by set of hosts; `None` where no secrets apply.
type MasksByHosts = LruCache<String, Option<Arc<SecretMask>>>;

/// Caches masks by set of hosts, until the secrets change.
pub(super) struct SecretMaskCache(Mutex<(Arc<Vec<Arc<StoredSecret>>>, MasksByHosts)>);

impl Default for SecretMaskCache {
    fn default() -> Self {
        Self(Mutex::new((Arc::default(), LruCache::new(MAX_CACHED_MASKS))))
    }
}

impl SecretMaskCache {
    fn get_or_build(
        &self,
        all: &Arc<Vec<Arc<StoredSecret>>>,
        hosts: String,
        these: &[Arc<StoredSecret>],
    ) -> Option<Arc<SecretMask>> {
        let mut ready = self.0.lock();
        // Another list means that secrets were added or removed: every cached mask is outdated.
        if !Arc::ptr_eq(&ready.0, all) {
            *ready = (Arc::clone(all), LruCache::new(MAX_CACHED_MASKS));
        }
        ready.1.entry(hosts).or_insert_with(|| SecretMask::new(replacement_pairs(these, &[]))).clone()
    }
}

/// Registers the flow's response for masking, and changes the request so that the response can be scanned: complete,
/// and without content coding.
pub(super) fn start_masking(
    flow: &mut Flow,
    head: &mut RequestHead,
    ready: &SecretMaskCache,
    all: &Arc<Vec<Arc<StoredSecret>>>,
    these: Vec<Arc<StoredSecret>>,
    hosts: String,
) -> Result<(), EarlyExit> {
    let websocket = head.protocol.as_deref() == Some("websocket");
    if let Some(protocol) = head.protocol.as_deref().filter(|_| !websocket) {
        // Fail closed: other protocols than WebSocket would be copied without being scanned.
        let host = &head.url.authority.host;
        let why = format!("secrets are bound to {host}, and {protocol} traffic cannot be scanned for them");
        return Err(EarlyExit::Deny(Error::new(ErrorKind::Denied, why)));
    }
    // A part of a resource could begin or end within a secret.
    for name in ["range", "if-range"] {
        head.headers.remove(name);
    }
    let _ = head.headers.set("Accept-Encoding", "identity");
    // Codings of gRPC messages that can be decoded here.
    if head.headers.contains("grpc-accept-encoding") {
        let _ = head.headers.set("grpc-accept-encoding", "identity,gzip,deflate");
    }
    if websocket {
        // Messages that cannot be parsed end the connection instead of being forwarded.
        flow.extension_mut::<MessagePolicy>().strict = true;
    }
    let hiding = ready.get_or_build(all, hosts, &these);
    filter_heads(flow, hiding.as_ref());
    *flow.extension_mut::<FlowSecretMask>() = FlowSecretMask { hiding, secrets: these };
    Ok(())
}

/// Also masks Basic credentials into which secrets were inserted: as a whole, by the value that the client sent.
pub(super) fn add_basic_credentials(flow: &mut Flow, packed: &[(Vec<u8>, Vec<u8>)]) {
    let hides = flow.extension_mut::<FlowSecretMask>();
    hides.hiding = SecretMask::new(replacement_pairs(&hides.secrets, packed));
    let hiding = hides.hiding.clone();
    filter_heads(flow, hiding.as_ref());
}

fn secret_mask(flow: &Flow) -> Option<&Arc<SecretMask>> {
    flow.extension::<FlowSecretMask>()?.hiding.as_ref()
}

pub(super) fn wants_messages(flow: &Flow) -> bool {
    secret_mask(flow).is_some()
}

/// Masks the secrets in response heads that no stage sees: 1xx heads, and the head that accepts an upgrade.
fn filter_heads(flow: &mut Flow, hiding: Option<&Arc<SecretMask>>) {
    let hiding = hiding.cloned();
    flow.extension_mut::<ResponseHeadFilter>().0 =
        hiding.map(|hiding| -> Arc<dyn Fn(&mut ResponseHead) + Send + Sync> {
            Arc::new(move |head| hiding.apply_to_head(head))
        });
}

pub(super) fn mask_head(flow: &Flow, head: &mut ResponseHead) {
    if let Some(hiding) = secret_mask(flow) {
        hiding.apply_to_head(head);
    }
}

/// Masks the secrets in a response body as it is forwarded. Fails closed: a body that cannot be scanned is rejected.
pub(super) fn mask_body(
    flow: &Flow,
    request: &RequestHead,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, EarlyExit> {
    let Some(hiding) = secret_mask(flow) else { return Ok(body) };
    if body.is_empty() || request.method == interflow_types::Method::HEAD {
        return Ok(body);
    }
    let host = flow.authority.host.clone();
    let refused = |why: String| {
        let text = format!("the response was blocked: {why}, so secrets bound to {host} could not be masked in it");
        Err(EarlyExit::Deny(Error::new(ErrorKind::BadResponse, text)))
    };
    let media = head.headers.get_str("content-type").unwrap_or_default().trim().to_ascii_lowercase();
    if head.status == StatusCode::PARTIAL_CONTENT || media.starts_with("multipart/byteranges") {
        return refused("it is a partial response, which may contain part of a secret at its edge".to_owned());
    }
    let mut body = body;
    // The request asked for no coding, but the origin need not comply.
    match ContentDecoder::new(&head.headers, MAX_DECODED_BYTES) {
        Ok(None) => {}
        Ok(Some(decoder)) => {
            coding::strip_stale_headers(&mut head.headers);
            body = Body::stream(DecompressingBody {
                body,
                decoder,
                input: Bytes::new(),
                last: None,
                over: false,
                host: host.to_string(),
            });
        }
        Err(e) => return refused(format!("its content coding cannot be decoded ({e})")),
    }
    // The length changes with each replacement.
    head.headers.remove("content-length");
    if media.starts_with("application/grpc-web-text") {
        return refused("base64 gRPC-Web messages are not supported".to_owned());
    }
    if media.starts_with("application/grpc") {
        let encoding = head.headers.get_str("grpc-encoding").unwrap_or_default().trim().to_ascii_lowercase();
        if !matches!(encoding.as_str(), "" | "identity" | "gzip" | "deflate") {
            return refused(format!("its messages are compressed with {encoding}, which is not supported"));
        }
        let hiding = Arc::clone(hiding);
        return Ok(Body::stream(GrpcMaskBody { body, hiding, encoding, buffer: BytesMut::new(), last: None }));
    }
    Ok(ReplacingBody::wrap(body, Arc::clone(hiding), |_| {}))
}

impl AsRef<Replacer> for SecretMask {
    fn as_ref(&self) -> &Replacer {
        &self.swap
    }
}

/// Masks the secrets in a WebSocket message. Control frames keep their length, which is limited.
pub(super) fn mask_message(flow: &Flow, message: &mut StreamMessage) {
    let Some(hiding) = secret_mask(flow) else { return };
    let spoken = matches!(message.kind, MessageKind::Text | MessageKind::Binary);
    let swap = if spoken { &hiding.swap } else { &hiding.padded };
    if let Some((hidden, _)) = swap.replace(&message.payload) {
        message.payload = hidden.into();
    }
}

struct DecompressingBody {
    body: Body,
    decoder: ContentDecoder,
    input: Bytes,
    last: Option<BodyFrame>,
    over: bool,
    host: String,
}

impl DecompressingBody {
    fn decode_error(&mut self, e: std::io::Error) -> Error {
        self.over = true;
        self.input.clear();
        let text = format!(
            "the response's content coding cannot be decoded, so secrets bound to {} cannot be masked in it",
            self.host
        );
        Error::new(ErrorKind::BadResponse, text).with_source(e)
    }
}

impl BodyStream for DecompressingBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if !self.input.is_empty() {
                // In small pieces, because a few bytes may decode to a lot.
                let piece = self.input.split_to(self.input.len().min(DECODE_CHUNK));
                match self.decoder.push(&piece) {
                    Ok(out) if out.is_empty() => continue,
                    Ok(out) => return Poll::Ready(Some(Ok(BodyFrame::Data(out.into())))),
                    Err(e) => return Poll::Ready(Some(Err(self.decode_error(e)))),
                }
            }
            if self.over {
                return Poll::Ready(self.last.take().map(Ok));
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => self.input = data,
                Some(Err(e)) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(e)));
                }
                // The end of the body: trailers are kept until the decoder's rest has been passed on.
                end => {
                    self.over = true;
                    self.last = end.and_then(Result::ok);
                    match self.decoder.finish() {
                        Ok(out) if out.is_empty() => {}
                        Ok(out) => return Poll::Ready(Some(Ok(BodyFrame::Data(out.into())))),
                        Err(e) => {
                            // A truncated body must not look complete.
                            self.last = None;
                            return Poll::Ready(Some(Err(self.decode_error(e))));
                        }
                    }
                }
            }
        }
    }
}

/// Masks a gRPC body message by message, keeping each message's length, which its prefix and fields depend on.
struct GrpcMaskBody {
    body: Body,
    hiding: Arc<SecretMask>,
    encoding: String,
    buffer: BytesMut,
    last: Option<Option<BodyFrame>>,
}

impl GrpcMaskBody {
    fn next_message(&mut self) -> Result<Option<Bytes>> {
        let unread = |why: &str| {
            Error::new(ErrorKind::BadResponse, format!("{why}, so secrets bound to this host cannot be masked in it"))
        };
        let message = grpc::next_message(&mut self.buffer, MAX_MESSAGE_BYTES).map_err(|e| unread(&e.to_string()))?;
        let Some(message) = message else { return Ok(None) };
        let clear = if message.compressed {
            grpc::decompress(&self.encoding, &message.data, MAX_MESSAGE_BYTES)
                .ok_or_else(|| unread("a gRPC message cannot be decompressed"))?
        } else {
            message.data.clone()
        };
        // A message without a secret is passed on unchanged, with its compression.
        let Some((hidden, _)) = self.hiding.padded.replace(&clear) else { return Ok(Some(message.raw)) };
        let length = u32::try_from(hidden.len()).map_err(|_| unread("a gRPC message is too large"))?;
        let mut out = Vec::with_capacity(grpc::PREFIX_LEN + hidden.len());
        // Sent uncompressed: the receiver need not have agreed to our encoder's output.
        grpc::write_prefix(&mut out, false, length);
        // The bit that marks the trailers of gRPC-Web.
        if let Some(flags) = out.first_mut().filter(|_| message.trailers) {
            *flags |= 0x80;
        }
        out.extend_from_slice(&hidden);
        Ok(Some(out.into()))
    }
}

impl BodyStream for GrpcMaskBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            match self.next_message() {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(BodyFrame::Data(bytes)))),
                Ok(None) => {}
                Err(e) => {
                    self.buffer.clear();
                    self.last = Some(None);
                    return Poll::Ready(Some(Err(e)));
                }
            }
            if let Some(last) = self.last.take() {
                self.last = Some(None);
                if !self.buffer.is_empty() {
                    self.buffer.clear();
                    let text = "the response ends within a gRPC message";
                    return Poll::Ready(Some(Err(Error::new(ErrorKind::BadResponse, text))));
                }
                return Poll::Ready(last.map(Ok));
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => self.buffer.extend_from_slice(&data),
                Some(Ok(BodyFrame::Trailers(trailers))) => {
                    let trailers: Headers = replace_in_headers(&self.hiding.swap, &trailers).0;
                    self.last = Some(Some(BodyFrame::Trailers(trailers)));
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => self.last = Some(None),
            }
        }
    }
}

/// Secrets in every encoding in which an origin may return them, with their placeholders.
fn replacement_pairs(secrets: &[Arc<StoredSecret>], packed: &[(Vec<u8>, Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = |s: &Arc<StoredSecret>| {
        let placeholder = s.placeholder.as_bytes().to_vec();
        encoded_forms(s.value()).into_iter().map(move |form| (form, placeholder.clone())).collect::<Vec<_>>()
    };
    // Whole credentials first: of two matches of equal length, the first in the list wins.
    packed.iter().cloned().chain(secrets.iter().flat_map(of)).collect()
}

/// What paths encode, and what `encodeURIComponent` of scripts does.
const PATH: &AsciiSet = &COMPONENT.remove(b'/');
const SCRIPT: &AsciiSet = &COMPONENT.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');

/// The encodings of a secret: plain, JSON, HTML, base64, hexadecimal, and percent-encoded as in paths, forms and
/// scripts.
fn encoded_forms(value: &str) -> BTreeSet<Vec<u8>> {
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let json = json_string(value);
    // Some encoders escape the slash.
    let slashes = String::from_utf8_lossy(&json).replace('/', "\\/").into_bytes();
    let mut all = BTreeSet::from([value.as_bytes().to_vec(), json, slashes, escape_json(value)]);
    if value.len() >= MIN_ENCODED_SECRET_LEN {
        all.extend(base64_and_hex_forms(value));
        all.insert(hex::encode(value).into_bytes());
        all.insert(hex::encode_upper(value).into_bytes());
    }
    for quote in ["&quot;", "&#34;"] {
        all.insert(html.replace('"', quote).into_bytes());
    }
    for set in [COMPONENT, PATH, SCRIPT] {
        let text = percent::encoded_as(value, set);
        all.extend([lower_hex(&text), text.replace("%20", "+").into_bytes(), text.into_bytes()]);
    }
    all.retain(|form| !form.is_empty());
    all
}

/// In base64 at each of the three alignments: the characters that depend only on the secret.
fn base64_and_hex_forms(value: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    // Base64 has groups of three bytes, so a secret looks different depending on what precedes it.
    for before in 0..3_usize {
        let text = [&[0; 2][..before.min(2)], value.as_bytes()].concat();
        let whole = text.len() % 3 == 0;
        for packed in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
            // The characters at the edges also depend on neighbouring bytes and are left out.
            let from = before + usize::from(before > 0);
            let to = packed.len() - usize::from(!whole);
            all.extend(packed.get(from..to).map(|p| p.as_bytes().to_vec()));
            if before == 0 {
                all.push(packed.into_bytes());
            }
        }
    }
    all
}

/// Percent-encoding with lower-case digits.
fn lower_hex(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push_str(&format!("%{}{rest}", code.to_ascii_lowercase()));
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    #[test]
    fn base64_encoded_secret_is_found_at_any_offset() {
        for value in ["the-real-secret", "the-real-secre", "the-real-secr?>"] {
            let swap = Replacer::new(encoded_forms(value).into_iter().map(|f| (f, b"X".to_vec())).collect()).unwrap();
            for before in 0..7 {
                for after in 0..4 {
                    let text = format!("{}{value}{}", "a".repeat(before), "z".repeat(after));
                    assert!(swap.replace(STANDARD.encode(&text).as_bytes()).is_some(), "{text}");
                }
            }
        }
    }

    #[test]
    fn padded_placeholder_has_the_length_of_the_secret() {
        assert_eq!(pad_placeholder(b"placeholder", 5), b"place");
        assert_eq!(pad_placeholder(b"place", 8), b"place***");
    }
}
