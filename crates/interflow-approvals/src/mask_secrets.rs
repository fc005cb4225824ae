//! Masks secrets in every response of the hosts they are bound to, whoever sent the request and whatever it was: a
//! host may return a secret in any later response. Responses that cannot be scanned are rejected.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hashlink::LruCache;
use interflow_codec::content_coding::{self as coding, ContentDecoder};
use interflow_codec::grpc;
use interflow_redact::{DecodedBody, Replacer, ReplacingBody, encoded_forms, replace_in_headers};
use interflow_types::{
    Body, BodyFrame, BodyStream, EarlyExit, Error, ErrorKind, Flow, Headers, MessageKind, MessagePolicy, RequestHead,
    ResponseHead, ResponseHeadFilter, Result, StatusCode, StreamMessage,
};
use parking_lot::Mutex;

use super::secrets::StoredSecret;

/// Bound on the decoded size of a response with a content coding.
const MAX_DECODED_BYTES: u64 = 256 << 20;
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
    /// `packed` are whole credentials into which secrets were inserted, with what replaces them.
    fn new(secrets: &[Arc<StoredSecret>], packed: &[(Vec<u8>, Vec<u8>)]) -> Option<Arc<Self>> {
        let pairs = replacement_pairs(secrets, packed);
        let padded = pairs.iter().map(|(form, with)| (form.clone(), pad_placeholder(with, form.len()))).collect();
        // An origin may escape any character of what it returns, such as `\u0061` for `a`.
        let values = secrets.iter().map(|secret| secret.value().as_bytes().to_vec());
        let values: Vec<_> = packed.iter().map(|(credential, _)| credential.clone()).chain(values).collect();
        let (swap, padded) = (Replacer::new(pairs)?, Replacer::new(padded)?);
        Some(Arc::new(Self { swap: swap.with_escaped(values.clone()), padded: padded.with_escaped(values) }))
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
        ready.1.entry(hosts).or_insert_with(|| SecretMask::new(these, &[])).clone()
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
    hides.hiding = SecretMask::new(&hides.secrets, packed);
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
            let unread = format!(
                "the response's content coding cannot be decoded, so secrets bound to {host} cannot be masked in it"
            );
            body = DecodedBody::wrap(body, decoder, unread);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SecretSpec;

    #[test]
    fn a_secret_is_masked_whichever_of_its_characters_are_escaped() {
        let spec = SecretSpec {
            label: "key".into(),
            value: "sk-live/4711abcdef".into(),
            hosts: vec!["a.test".into()],
            placeholder: Some("placeholder-for-the-key".into()),
            plain_http: false,
        };
        let secret = Arc::new(StoredSecret::new(spec).unwrap());
        let mask = SecretMask::new(&[secret], &[]).unwrap();
        for body in [
            r#"{"key":"sk-live/4711abcdef"}"#,
            r#"{"key":"sk-live\/4711abcdef"}"#,
            r#"{"key":"\u0073k-live\u002f4711abcdef"}"#,
            r#"{"key":"\u0073\u006b-\u006c\u0069ve/\u00347\u0031\u0031abcde\u0066"}"#,
            r#"/?key=sk%2Dlive%2f4711abcd%65f"#,
        ] {
            let (masked, _) = mask.swap.replace(body.as_bytes()).expect(body);
            assert!(!String::from_utf8(masked).unwrap().contains("47"), "{body}");
            let (masked, _) = mask.padded.replace(body.as_bytes()).expect(body);
            assert_eq!(masked.len(), body.len(), "{body}");
        }
        assert!(mask.swap.replace(br#"{"key":"sk-\u006cive/4712abcdef"}"#).is_none());
    }

    #[test]
    fn padded_placeholder_has_the_length_of_the_secret() {
        assert_eq!(pad_placeholder(b"placeholder", 5), b"place");
        assert_eq!(pad_placeholder(b"place", 8), b"place***");
    }
}
