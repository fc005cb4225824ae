//! Secrets taken out of everything that the hosts answer which they are bound to, whoever asks and whatever was asked: one
//! that was given to a host may come back with any later response. What cannot be looked through is refused.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use interflow_flow::{
    Body, BodyStream, Error, Flow, Frame, Headers, Kind, Message, MessageKind, MessagePolicy, RequestHead,
    ResponseHead, ResponseHeadFilter, Result, StatusCode, Verdict,
};
use interflow_wire::content_coding::{self as coding, Decoder};
use interflow_wire::grpc;
use parking_lot::Mutex;

use super::put_in::{coded, escaped_json, in_json};
use super::secrets::Secret;
use super::substitute::{Swap, SwapStream, swapped_headers};

/// The shortest secret, in bytes, that is looked for in base64 and in hexadecimal digits: a shorter one would be found where
/// it is not.
const SHORTEST_PACKED: usize = 8;
/// The most bytes that come out of a response whose content coding is undone.
const LARGEST_DECODED: u64 = 256 << 20;
/// Coded bytes that are undone at a time, so that what comes out at once is bounded.
const PIECE: usize = 4096;
/// The largest message of gRPC that is looked through.
const LARGEST_MESSAGE: usize = 16 << 20;
/// Sets of hosts whose secrets are kept ready.
const MAX_READY: usize = 1024;

/// What takes secrets out.
pub(super) struct Hiding {
    /// In the place of each one, its placeholder.
    swap: Swap,
    /// The same in as many bytes, where lengths are told elsewhere.
    padded: Swap,
}

impl Hiding {
    fn new(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Arc<Self>> {
        let padded = pairs.iter().map(|(form, with)| (form.clone(), as_long_as(with, form.len()))).collect();
        Some(Arc::new(Self { swap: Swap::new(pairs)?, padded: Swap::new(padded)? }))
    }
}

fn as_long_as(placeholder: &[u8], length: usize) -> Vec<u8> {
    placeholder.iter().copied().chain(std::iter::repeat(b'*')).take(length).collect()
}

/// What must be taken out of a flow's response: a note on it.
#[derive(Default)]
struct Hides {
    hiding: Option<Arc<Hiding>>,
    secrets: Vec<Arc<Secret>>,
}

/// What hides the secrets of each set of hosts; nothing where there are none.
type ByHosts = HashMap<String, Option<Arc<Hiding>>>;

/// What takes out the secrets of a set of hosts, kept ready as long as the secrets stay the same.
#[derive(Default)]
pub(super) struct Ready(Mutex<(Arc<Vec<Arc<Secret>>>, ByHosts)>);

impl Ready {
    fn of(&self, all: &Arc<Vec<Arc<Secret>>>, hosts: String, these: &[Arc<Secret>]) -> Option<Arc<Hiding>> {
        let mut ready = self.0.lock();
        if !Arc::ptr_eq(&ready.0, all) || ready.1.len() >= MAX_READY {
            *ready = (Arc::clone(all), HashMap::new());
        }
        ready.1.entry(hosts).or_insert_with(|| Hiding::new(pairs(these, &[]))).clone()
    }
}

/// Has the flow's response looked through for these secrets, and asks the origin for one that can be: whole, and without
/// content coding.
pub(super) fn begin(
    flow: &mut Flow,
    head: &mut RequestHead,
    ready: &Ready,
    all: &Arc<Vec<Arc<Secret>>>,
    these: Vec<Arc<Secret>>,
    hosts: String,
) -> Result<(), Verdict> {
    let websocket = head.protocol.as_deref() == Some("websocket");
    if let Some(protocol) = head.protocol.as_deref().filter(|_| !websocket) {
        let host = &head.url.authority.host;
        let why =
            format!("secrets are bound to {host}, and what goes over {protocol} cannot be looked through for them");
        return Err(Verdict::Deny(Error::new(Kind::Denied, why)));
    }
    for name in ["range", "if-range"] {
        head.headers.remove(name);
    }
    let _ = head.headers.set("Accept-Encoding", "identity");
    if head.headers.contains("grpc-accept-encoding") {
        let _ = head.headers.set("grpc-accept-encoding", "identity,gzip,deflate");
    }
    if websocket {
        flow.note_mut::<MessagePolicy>().strict = true;
    }
    let hiding = ready.of(all, hosts, &these);
    filter_heads(flow, hiding.as_ref());
    *flow.note_mut::<Hides>() = Hides { hiding, secrets: these };
    Ok(())
}

/// Basic credentials that secrets were put into, and how those stood before, are taken out too.
pub(super) fn add_packed(flow: &mut Flow, packed: &[(Vec<u8>, Vec<u8>)]) {
    let hides = flow.note_mut::<Hides>();
    hides.hiding = Hiding::new(pairs(&hides.secrets, packed));
    let hiding = hides.hiding.clone();
    filter_heads(flow, hiding.as_ref());
}

fn hiding(flow: &Flow) -> Option<&Arc<Hiding>> {
    flow.note::<Hides>()?.hiding.as_ref()
}

/// Whether the messages of a WebSocket must be looked through.
pub(super) fn follows(flow: &Flow) -> bool {
    hiding(flow).is_some()
}

/// Masks the secrets in response heads that no stage sees: 1xx heads, and the head that accepts an upgrade.
fn filter_heads(flow: &mut Flow, hiding: Option<&Arc<Hiding>>) {
    let hiding = hiding.cloned();
    flow.note_mut::<ResponseHeadFilter>().0 = hiding.map(|hiding| -> Arc<dyn Fn(&mut ResponseHead) + Send + Sync> {
        Arc::new(move |head| mask_head(&hiding, head))
    });
}

/// Masks the secrets in a response's head.
pub(super) fn in_head(flow: &Flow, head: &mut ResponseHead) {
    if let Some(hiding) = hiding(flow) {
        mask_head(hiding, head);
    }
}

fn mask_head(hiding: &Hiding, head: &mut ResponseHead) {
    head.headers = swapped_headers(&hiding.swap, &head.headers).0;
    if let Some((reason, _)) = hiding.swap.swap(&head.reason) {
        head.reason = reason.into();
    }
}

/// Takes them out of a response's body as it passes; one that cannot be looked through is refused.
pub(super) fn in_body(
    flow: &Flow,
    request: &RequestHead,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, Verdict> {
    let Some(hiding) = hiding(flow) else { return Ok(body) };
    if body.is_empty() || request.method == interflow_flow::Method::HEAD {
        return Ok(body);
    }
    let host = flow.authority.host.clone();
    let refused = |why: String| {
        let text =
            format!("the response is refused: {why}, so a secret that is bound to {host} could not be hidden in it");
        Err(Verdict::Deny(Error::new(Kind::BadResponse, text)))
    };
    let media = head.headers.get_str("content-type").unwrap_or_default().trim().to_ascii_lowercase();
    if head.status == StatusCode::PARTIAL_CONTENT || media.starts_with("multipart/byteranges") {
        return refused("it is a part of the whole, and a piece of a secret may stand at its edge".to_owned());
    }
    let mut body = body;
    match Decoder::new(&head.headers, LARGEST_DECODED) {
        Ok(None) => {}
        Ok(Some(decoder)) => {
            coding::unlike(&mut head.headers);
            body = Body::stream(Decoded {
                body,
                decoder,
                input: Bytes::new(),
                last: None,
                over: false,
                host: host.to_string(),
            });
        }
        Err(e) => return refused(format!("its content coding cannot be undone ({e})")),
    }
    head.headers.remove("content-length");
    if media.starts_with("application/grpc-web-text") {
        return refused("messages of gRPC-Web in base64 are not read".to_owned());
    }
    if media.starts_with("application/grpc") {
        let encoding = head.headers.get_str("grpc-encoding").unwrap_or_default().trim().to_ascii_lowercase();
        if !matches!(encoding.as_str(), "" | "identity" | "gzip" | "deflate") {
            return refused(format!("its messages are compressed with {encoding}, which cannot be undone"));
        }
        let hiding = Arc::clone(hiding);
        return Ok(Body::stream(Grpc { body, hiding, encoding, buffer: BytesMut::new(), last: None }));
    }
    Ok(SwapStream::wrap(body, Arc::clone(hiding), |_| {}))
}

impl AsRef<Swap> for Hiding {
    fn as_ref(&self) -> &Swap {
        &self.swap
    }
}

/// Takes them out of a message of a WebSocket. Control frames hold no more bytes than they do.
pub(super) fn in_message(flow: &Flow, message: &mut Message) {
    let Some(hiding) = hiding(flow) else { return };
    let spoken = matches!(message.kind, MessageKind::Text | MessageKind::Binary);
    let swap = if spoken { &hiding.swap } else { &hiding.padded };
    if let Some((hidden, _)) = swap.swap(&message.payload) {
        message.payload = hidden.into();
    }
}

/// A body whose content coding is undone as it passes.
struct Decoded {
    body: Body,
    decoder: Decoder,
    input: Bytes,
    last: Option<Frame>,
    over: bool,
    host: String,
}

impl Decoded {
    fn broken(&mut self, e: std::io::Error) -> Error {
        self.over = true;
        self.input.clear();
        let text = format!(
            "the response's content coding cannot be undone, so no secret bound to {} can be hidden in it",
            self.host
        );
        Error::new(Kind::BadResponse, text).because(e)
    }
}

impl BodyStream for Decoded {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            if !self.input.is_empty() {
                let piece = self.input.split_to(self.input.len().min(PIECE));
                match self.decoder.push(&piece) {
                    Ok(out) if out.is_empty() => continue,
                    Ok(out) => return Poll::Ready(Some(Ok(Frame::Data(out.into())))),
                    Err(e) => return Poll::Ready(Some(Err(self.broken(e)))),
                }
            }
            if self.over {
                return Poll::Ready(self.last.take().map(Ok));
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => self.input = data,
                Some(Err(e)) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(e)));
                }
                end => {
                    self.over = true;
                    self.last = end.and_then(Result::ok);
                    match self.decoder.finish() {
                        Ok(out) if out.is_empty() => {}
                        Ok(out) => return Poll::Ready(Some(Ok(Frame::Data(out.into())))),
                        Err(e) => {
                            self.last = None;
                            return Poll::Ready(Some(Err(self.broken(e))));
                        }
                    }
                }
            }
        }
    }
}

/// A body of gRPC: each message is looked through by itself, and keeps its length, which the fields around tell too.
struct Grpc {
    body: Body,
    hiding: Arc<Hiding>,
    encoding: String,
    buffer: BytesMut,
    last: Option<Option<Frame>>,
}

impl Grpc {
    /// The next whole message, with nothing to be hidden in it.
    fn next(&mut self) -> Result<Option<Bytes>> {
        let unread = |why: &str| {
            Error::new(Kind::BadResponse, format!("{why}, so no secret bound to this host can be hidden in it"))
        };
        let message = grpc::next_message(&mut self.buffer, LARGEST_MESSAGE).map_err(|e| unread(&e.to_string()))?;
        let Some(message) = message else { return Ok(None) };
        let clear = if message.compressed {
            grpc::decompress(&self.encoding, &message.data, LARGEST_MESSAGE)
                .ok_or_else(|| unread("a message of gRPC cannot be decompressed"))?
        } else {
            message.data.clone()
        };
        let Some((hidden, _)) = self.hiding.padded.swap(&clear) else { return Ok(Some(message.raw)) };
        let length = u32::try_from(hidden.len()).map_err(|_| unread("a message of gRPC is too large"))?;
        let mut out = Vec::with_capacity(grpc::PREFIX + hidden.len());
        grpc::write_prefix(&mut out, false, length);
        if let Some(flags) = out.first_mut().filter(|_| message.trailers) {
            *flags |= 0x80;
        }
        out.extend_from_slice(&hidden);
        Ok(Some(out.into()))
    }
}

impl BodyStream for Grpc {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            match self.next() {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::Data(bytes)))),
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
                    let text = "the response ends within a message of gRPC";
                    return Poll::Ready(Some(Err(Error::new(Kind::BadResponse, text))));
                }
                return Poll::Ready(last.map(Ok));
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => self.buffer.extend_from_slice(&data),
                Some(Ok(Frame::Trailers(trailers))) => {
                    let trailers: Headers = swapped_headers(&self.hiding.swap, &trailers).0;
                    self.last = Some(Some(Frame::Trailers(trailers)));
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => self.last = Some(None),
            }
        }
    }
}

/// Secrets in every form in which an origin may repeat them, and the placeholders that stand for them.
fn pairs(secrets: &[Arc<Secret>], packed: &[(Vec<u8>, Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = |s: &Arc<Secret>| {
        let placeholder = s.placeholder.as_bytes().to_vec();
        forms(s.value()).into_iter().map(move |form| (form, placeholder.clone())).collect::<Vec<_>>()
    };
    // Whole credentials first: of two texts of one length, the one named first is found.
    packed.iter().cloned().chain(secrets.iter().flat_map(of)).collect()
}

/// A secret as origins repeat it: as it is, in JSON, HTML, base64 and hexadecimal digits, and percent-coded as paths, forms
/// and scripts do it.
fn forms(value: &str) -> BTreeSet<Vec<u8>> {
    let text = |kept: &str| String::from_utf8_lossy(&coded(value, kept)).into_owned();
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let json = in_json(value);
    let slashes = String::from_utf8_lossy(&json).replace('/', "\\/").into_bytes();
    let mut all = BTreeSet::from([value.as_bytes().to_vec(), json, slashes, escaped_json(value)]);
    if value.len() >= SHORTEST_PACKED {
        all.extend(packed_forms(value));
        for hex in [|b: u8| format!("{b:02x}"), |b: u8| format!("{b:02X}")] {
            all.insert(value.bytes().map(hex).collect::<String>().into_bytes());
        }
    }
    for quote in ["&quot;", "&#34;"] {
        all.insert(html.replace('"', quote).into_bytes());
    }
    for kept in ["", "/", "!*'()"] {
        all.extend([coded(value, kept), lower_hex(&text(kept)), text(kept).replace("%20", "+").into_bytes()]);
    }
    all.retain(|form| !form.is_empty());
    all
}

/// In base64, wherever in a text it begins: the characters that hold bits of nothing else.
fn packed_forms(value: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for before in 0..3_usize {
        let text = [&[0; 2][..before.min(2)], value.as_bytes()].concat();
        let whole = text.len() % 3 == 0;
        for packed in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
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

/// The digits of percent-codes in lower case.
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
    fn a_secret_is_found_in_base64_wherever_it_begins() {
        for value in ["the-real-secret", "the-real-secre", "the-real-secr?>"] {
            let swap = Swap::new(forms(value).into_iter().map(|f| (f, b"X".to_vec())).collect()).unwrap();
            for before in 0..7 {
                for after in 0..4 {
                    let text = format!("{}{value}{}", "a".repeat(before), "z".repeat(after));
                    assert!(swap.swap(STANDARD.encode(&text).as_bytes()).is_some(), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_padded_placeholder_has_the_secrets_length_and_nothing_of_it() {
        assert_eq!(as_long_as(b"placeholder", 5), b"place");
        assert_eq!(as_long_as(b"place", 8), b"place***");
    }
}
