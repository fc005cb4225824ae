//! Transforms segment bodies: decryption with the link's keys, remuxing to MPEG-TS.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result, StatusCode};

use super::error::MediaError;
use crate::cenc::{CencDecrypter, CencError, ContentKeyRing, InitSegment, RangeDecrypter};
use crate::relay::body_parts::chain_body;
use crate::remux::TsSegment;
use crate::sample_aes::{Aes128Cbc, SampleAesTs};

/// Maps a decryption error for clients: a missing key is the link's fault (422), everything else the origin's (502).
impl From<CencError> for MediaError {
    fn from(error: CencError) -> Self {
        match error {
            CencError::NoKey { .. } => Self::Status(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
            _ => Self::upstream(format!("the segment cannot be decrypted: {error}")),
        }
    }
}

/// Decrypts an initialization section: the boxes about encryption are removed, and keys are checked.
pub fn init(keys: Option<ContentKeyRing>, bytes: Bytes) -> std::result::Result<Bytes, MediaError> {
    let Some(keys) = keys else { return Ok(bytes) };
    let parsed = InitSegment::parse(&bytes)?;
    parsed.check_keys(&keys)?;
    let mut decrypter = CencDecrypter::new(keys);
    let mut out = Vec::new();
    decrypter.push(bytes, &mut out).and_then(|()| decrypter.finish())?;
    Ok(out.concat().into())
}

/// Decrypts a segment as a stream of unchanged length. Without an initialization section the body must begin with its
/// own. `at`: its offset in the origin's resource. No output is released before media data is reached, so that a
/// missing key is reported before the first byte.
pub fn segment(
    keys: ContentKeyRing,
    init: Option<Arc<InitSegment>>,
    at: u64,
    body: Body,
) -> std::result::Result<Body, MediaError> {
    piece(keys, init, at, body, MAX_HELD_BYTES)
}

/// Like [`segment`], for a part of the bytes, reading no more than needed. Of the output, at most `hold` bytes are kept
/// back before media data is reached.
pub fn piece(
    keys: ContentKeyRing,
    init: Option<Arc<InitSegment>>,
    at: u64,
    body: Body,
    hold: usize,
) -> std::result::Result<Body, MediaError> {
    let decrypter = match init {
        Some(init) => {
            init.check_keys(&keys)?;
            CencDecrypter::for_segment(keys, init).at_offset(at)
        }
        None => CencDecrypter::new(keys).at_offset(at),
    };
    let remaining = body.remaining();
    let change = decrypter.with_length(remaining);
    Ok(Body::stream(TransformedBody { hold, ..TransformedBody::new(body, change, remaining) }))
}

/// Waits for the first valid bytes of a body: an error before them becomes the response, since the head was not sent
/// yet.
pub async fn wait_for_first_bytes(mut body: Body) -> std::result::Result<Body, MediaError> {
    loop {
        return match body.frame().await {
            Some(Ok(BodyFrame::Data(first))) if first.is_empty() => continue,
            Some(Ok(BodyFrame::Data(first))) => Ok(chain_body(first, body, None)),
            Some(Ok(BodyFrame::Trailers(_))) => continue,
            // An error that the client can fix: a missing key.
            Some(Err(e)) if e.kind() == ErrorKind::Denied => {
                Err(MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, e.message().to_owned()))
            }
            Some(Err(e)) => Err(MediaError::upstream(e.message().to_owned())),
            None => Err(MediaError::upstream("the origin's segment is empty")),
        };
    }
}

/// A body that passes through a transformation as it is read. `remaining` is the length of the output, if it is known.
pub fn transformed(body: Body, change: impl BodyTransform, remaining: Option<u64>) -> Body {
    Body::stream(TransformedBody::new(body, change, remaining))
}

/// A transformation of a body that is done piece by piece, as the body is read. An error ends the body.
pub trait BodyTransform: Send + 'static {
    /// Whether the output so far may be released. Until then an error can still become a response of its own.
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

/// A body transformed as it is read; at most one chunk's output is buffered, apart from what is held back.
struct TransformedBody<C> {
    body: Body,
    change: C,
    ready: VecDeque<Bytes>,
    remaining: Option<u64>,
    over: bool,
    /// Maximum bytes held back until the transform has begun.
    hold: usize,
}

/// Maximum bytes held back before the media data: enough for an index of a long file.
const MAX_HELD_BYTES: usize = 8 << 20;

impl<C: BodyTransform> TransformedBody<C> {
    fn new(body: Body, change: C, remaining: Option<u64>) -> Self {
        Self { body, change, ready: VecDeque::new(), remaining, over: false, hold: 0 }
    }
}

impl<C: BodyTransform> BodyStream for TransformedBody<C> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            let holds_back = self.hold > 0 && !self.over && !self.change.has_begun();
            match if holds_back { None } else { self.ready.pop_front() } {
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
            // What precedes the media data must not grow without end: then errors come in the middle of the body.
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

    /// Five H.264 frames encrypted by shaka-packager.
    const SEGMENT: &[u8] = include_bytes!("../../../../fuzz/corpus/mpeg_ts/sample_aes");
    const KEY: [u8; 16] = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
    const IV: [u8; 16] = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f_u128.to_be_bytes();

    fn clear(data: &'static [u8]) -> Result<Vec<u8>> {
        let body = Body::Full(Bytes::from_static(data));
        let mut body = transformed(body, SampleAesTs::new(&crate::cenc::ContentKey(KEY), IV), None);
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
    fn decrypted_segment_keeps_its_length_and_gets_clear_stream_types() {
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
    fn non_transport_stream_is_an_error() {
        assert!(clear(&SEGMENT[..100]).unwrap_err().to_string().contains("100 bytes into"));
        const NO_PACKET: [u8; 200] = [b'f'; 200];
        assert!(clear(&NO_PACKET).unwrap_err().to_string().contains("no MPEG-TS packet at byte 0"));
    }
}
