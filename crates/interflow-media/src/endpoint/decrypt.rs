//! Bodies of segments changed on their way: decrypted with keys that the link's owner gave, made into MPEG-TS.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result, StatusCode};

use super::error::MediaError;
use crate::cenc::{self, CencDecrypter, ContentKey, ContentKeyRing, InitSegment, ProgressiveFile, RangeDecrypter};
use crate::relay::body_parts::chain_body;
use crate::remux::{TsMuxer, TsSegment};
use crate::sample_aes::{Aes128Cbc, SampleAesTs};

/// What a failed decryption is to a client: a key that is missing is the link's fault, all else the origin's.
pub fn decrypt_error(error: &cenc::CencError) -> MediaError {
    match error {
        cenc::CencError::NoKey { .. } => MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
        _ => MediaError::upstream(format!("the segment cannot be decrypted: {error}")),
    }
}

/// An initialization section in clear.
pub fn init(keys: ContentKeyRing, bytes: Bytes) -> std::result::Result<Bytes, MediaError> {
    let parsed = InitSegment::parse(&bytes).map_err(|e| decrypt_error(&e))?;
    parsed.check_keys(&keys).map_err(|e| decrypt_error(&e))?;
    let mut decrypter = CencDecrypter::new(keys);
    let mut out = Vec::new();
    decrypter.push(bytes, &mut out).and_then(|()| decrypter.finish()).map_err(|e| decrypt_error(&e))?;
    Ok(out.concat().into())
}

/// A segment in clear, as it comes. Its length stays what it was. Without an initialization section the body must
/// begin with its own. `at`: where in the origin's resource it begins. Nothing comes out before media data is reached, so
/// that a key that is missing shows before the first byte.
pub fn segment(
    keys: ContentKeyRing,
    init: Option<Arc<InitSegment>>,
    at: u64,
    body: Body,
) -> std::result::Result<Body, MediaError> {
    let (body, decrypter, remaining) = decrypted(keys, init, at, body)?;
    Ok(TransformedBody::transform_held_body(body, decrypter, remaining))
}

/// The same for bytes of which a part is wanted, and no more is to be read than that takes.
pub fn piece(
    keys: ContentKeyRing,
    init: Option<Arc<InitSegment>>,
    at: u64,
    body: Body,
) -> std::result::Result<Body, MediaError> {
    let (body, decrypter, remaining) = decrypted(keys, init, at, body)?;
    Ok(TransformedBody::transform_body(body, decrypter, remaining))
}

type DecryptedBody = (Body, CencDecrypter, Option<u64>);

fn decrypted(
    keys: ContentKeyRing,
    init: Option<Arc<InitSegment>>,
    at: u64,
    body: Body,
) -> std::result::Result<DecryptedBody, MediaError> {
    let decrypter = match init {
        Some(init) => {
            init.check_keys(&keys).map_err(|e| decrypt_error(&e))?;
            CencDecrypter::for_segment(keys, init).at_offset(at)
        }
        None => CencDecrypter::new(keys).at_offset(at),
    };
    let remaining = body.remaining();
    Ok((body, decrypter.with_length(remaining), remaining))
}

/// A body of which the first bytes are known to be good: an error before them becomes the answer.
pub async fn wait_for_first_bytes(mut body: Body) -> std::result::Result<Body, MediaError> {
    loop {
        return match body.frame().await {
            Some(Ok(BodyFrame::Data(first))) if first.is_empty() => continue,
            Some(Ok(BodyFrame::Data(first))) => Ok(chain_body(first, body, None)),
            Some(Ok(BodyFrame::Trailers(_))) => continue,
            // What a client can put right: a key that is missing.
            Some(Err(e)) if e.kind() == ErrorKind::Denied => {
                Err(MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, e.message().to_owned()))
            }
            Some(Err(e)) => Err(MediaError::upstream(e.message().to_owned())),
            None => Err(MediaError::upstream("the origin's segment is empty")),
        };
    }
}

/// A clear segment as MPEG-TS, fragment by fragment.
pub fn transport(muxer: &Arc<TsMuxer>, body: Body) -> Body {
    TransformedBody::transform_body(body, Some(muxer.segment()), None)
}

/// An HLS segment under `METHOD=AES-128`, its padding off.
pub fn aes_128(key: [u8; 16], iv: [u8; 16], body: Body) -> Body {
    TransformedBody::transform_body(body, Aes128Cbc::new(&ContentKey(key), iv), None)
}

/// An HLS segment under `METHOD=AES-256`, its padding off.
pub fn aes_256(key: [u8; 32], iv: [u8; 16], body: Body) -> Body {
    TransformedBody::transform_body(body, Aes128Cbc::new_256(&key, iv), None)
}

/// An HLS segment of MPEG-TS under `METHOD=SAMPLE-AES`; its length stays what it was.
pub fn sample_aes(key: [u8; 16], iv: [u8; 16], body: Body) -> Body {
    let remaining = body.remaining();
    TransformedBody::transform_body(body, SampleAesTs::new(&ContentKey(key), iv), remaining)
}

/// A range of a progressive file; the body holds what [`ProgressiveFile::cover`] says.
pub fn range(file: &Arc<ProgressiveFile>, range: Range<u64>, body: Body) -> Body {
    let length = range.end - range.start;
    TransformedBody::transform_body(body, file.range(range), Some(length))
}

/// What changes bytes as they come.
trait BodyTransform: Send + 'static {
    /// Whether what came out so far may be given out.
    fn has_begun(&self) -> bool {
        true
    }

    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()>;
    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()>;
}

impl BodyTransform for CencDecrypter {
    fn has_begun(&self) -> bool {
        self.has_media()
    }

    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::push(self, chunk, out)?)
    }

    fn finish(&mut self, _: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::finish(self)?)
    }
}

impl BodyTransform for Option<TsSegment> {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |s| s.push(chunk, out).map_err(body_error))
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()> {
        self.take().map_or(Ok(()), |s| s.finish(out).map_err(body_error))
    }
}

impl BodyTransform for Aes128Cbc {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Self::push(self, chunk, out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::finish(self, out)?)
    }
}

impl BodyTransform for SampleAesTs {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::push(self, &chunk, out)?)
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::finish(self, out)?)
    }
}

impl BodyTransform for RangeDecrypter {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Self::push(self, chunk, out).map_err(body_error)
    }

    fn finish(&mut self, _: &mut Vec<Bytes>) -> Result<()> {
        Self::finish(self).map_err(body_error)
    }
}

fn body_error(e: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::BadResponse, format!("the segment cannot be read: {e}"))
}

/// A body that is changed on its way.
struct TransformedBody<C> {
    body: Body,
    change: C,
    ready: VecDeque<Bytes>,
    remaining: Option<u64>,
    over: bool,
    /// How many bytes are held back until the change has begun.
    hold: usize,
}

/// The most bytes before the media data that are held back.
const MAX_HELD_BYTES: usize = 8 << 20;

impl<C: BodyTransform> TransformedBody<C> {
    fn transform_body(body: Body, change: C, remaining: Option<u64>) -> Body {
        Body::stream(Self { body, change, ready: VecDeque::new(), remaining, over: false, hold: 0 })
    }

    fn transform_held_body(body: Body, change: C, remaining: Option<u64>) -> Body {
        Body::stream(Self { body, change, ready: VecDeque::new(), remaining, over: false, hold: MAX_HELD_BYTES })
    }

    fn holds_back(&self) -> bool {
        self.hold > 0 && !self.over && !self.change.has_begun()
    }
}

impl<C: BodyTransform> BodyStream for TransformedBody<C> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            let next = if self.holds_back() { None } else { self.ready.pop_front() };
            match next {
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => {
                    self.remaining = self.remaining.map(|r| r.saturating_sub(bytes.len() as u64));
                    return Poll::Ready(Some(Ok(BodyFrame::Data(bytes))));
                }
                None if self.over => return Poll::Ready(None),
                None => {}
            }
            let mut out = Vec::new();
            let changed = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => self.change.push(data, &mut out),
                Some(Ok(BodyFrame::Trailers(_))) => continue,
                Some(Err(e)) => Err(e),
                None => {
                    self.over = true;
                    self.change.finish(&mut out)
                }
            };
            if let Err(e) = changed {
                self.over = true;
                self.ready.clear();
                return Poll::Ready(Some(Err(e)));
            }
            self.hold = self.hold.saturating_sub(out.iter().map(Bytes::len).sum());
            self.ready.extend(out);
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What shaka-packager made of five frames of H.264.
    const SEGMENT: &[u8] = include_bytes!("../../../../fuzz/corpus/mpeg_ts/sample_aes");
    const KEY: [u8; 16] = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
    const IV: [u8; 16] = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f_u128.to_be_bytes();

    fn clear(data: &'static [u8]) -> Result<Vec<u8>> {
        let mut body = sample_aes(KEY, IV, Body::Full(Bytes::from_static(data)));
        let mut out = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(frame)) = body.poll_frame(&mut cx) {
            if let BodyFrame::Data(data) = frame? {
                out.extend_from_slice(&data);
            }
        }
        Ok(out)
    }

    #[test]
    fn a_segment_keeps_its_length_and_is_listed_as_clear() {
        let out = clear(SEGMENT).unwrap();
        assert_eq!(out.len(), SEGMENT.len());
        assert!(out != SEGMENT);
        let stream_types = |data: &[u8]| {
            let at = data.windows(2).position(|w| w == [2, 0xb0]).unwrap();
            data[at + 12 + usize::from(data[at + 11])]
        };
        assert_eq!((stream_types(SEGMENT), stream_types(&out)), (0xdb, 0x1b));
    }

    #[test]
    fn what_is_no_transport_stream_ends_in_an_error() {
        assert!(clear(&SEGMENT[..100]).unwrap_err().to_string().contains("100 bytes into"));
        const NO_PACKET: [u8; 200] = [b'f'; 200];
        assert!(clear(&NO_PACKET).unwrap_err().to_string().contains("no MPEG-TS packet at byte 0"));
    }
}
