//! Bodies of segments changed on their way: decrypted with keys that the link's owner gave, made into MPEG-TS.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_flow::{Body, BodyStream, Error, Frame, Kind, Result, StatusCode};

use super::reply::Stop;
use crate::cenc::{self, Decrypter, Init, Key, KeyRing, Progressive, RangeDecrypter};
use crate::relay::pieces::followed;
use crate::remux::{TsMuxer, TsSegment};
use crate::sample_aes::{Aes128Cbc, SampleAesTs};

/// What a failed decryption is to a client: a key that is missing is the link's fault, all else the origin's.
pub fn stop(error: &cenc::Error) -> Stop {
    match error {
        cenc::Error::NoKey { .. } => Stop::Status(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
        _ => Stop::upstream(format!("the segment cannot be decrypted: {error}")),
    }
}

/// An initialization section in clear.
pub fn init(keys: KeyRing, bytes: Bytes) -> std::result::Result<Bytes, Stop> {
    let parsed = Init::parse(&bytes).map_err(|e| stop(&e))?;
    parsed.check_keys(&keys).map_err(|e| stop(&e))?;
    let mut decrypter = Decrypter::new(keys);
    let mut out = Vec::new();
    decrypter.push(bytes, &mut out).and_then(|()| decrypter.finish()).map_err(|e| stop(&e))?;
    Ok(out.concat().into())
}

/// A segment in clear, as it comes. Its length stays what it was. Without an initialization section the body must
/// begin with its own. `at`: where in the origin's resource it begins. Nothing comes out before media data is reached, so
/// that a key that is missing shows before the first byte.
pub fn segment(keys: KeyRing, init: Option<Arc<Init>>, at: u64, body: Body) -> std::result::Result<Body, Stop> {
    let (body, decrypter, remaining) = decrypted(keys, init, at, body)?;
    Ok(Changed::held(body, decrypter, remaining))
}

/// The same for bytes of which a part is wanted, and no more is to be read than that takes.
pub fn piece(keys: KeyRing, init: Option<Arc<Init>>, at: u64, body: Body) -> std::result::Result<Body, Stop> {
    let (body, decrypter, remaining) = decrypted(keys, init, at, body)?;
    Ok(Changed::body(body, decrypter, remaining))
}

type Decrypted = (Body, Decrypter, Option<u64>);

fn decrypted(keys: KeyRing, init: Option<Arc<Init>>, at: u64, body: Body) -> std::result::Result<Decrypted, Stop> {
    let decrypter = match init {
        Some(init) => {
            init.check_keys(&keys).map_err(|e| stop(&e))?;
            Decrypter::for_segment(keys, init).at(at)
        }
        None => Decrypter::new(keys).at(at),
    };
    let remaining = body.remaining();
    Ok((body, decrypter.with_length(remaining), remaining))
}

/// A body of which the first bytes are known to be good: an error before them becomes the answer.
pub async fn begun(mut body: Body) -> std::result::Result<Body, Stop> {
    loop {
        return match body.frame().await {
            Some(Ok(Frame::Data(first))) if first.is_empty() => continue,
            Some(Ok(Frame::Data(first))) => Ok(followed(first, body, None)),
            Some(Ok(Frame::Trailers(_))) => continue,
            // What a client can put right: a key that is missing.
            Some(Err(e)) if e.kind() == Kind::Denied => {
                Err(Stop::Status(StatusCode::UNPROCESSABLE_ENTITY, e.message().to_owned()))
            }
            Some(Err(e)) => Err(Stop::upstream(e.message().to_owned())),
            None => Err(Stop::upstream("the origin's segment is empty")),
        };
    }
}

/// A clear segment as MPEG-TS, fragment by fragment.
pub fn transport(muxer: &Arc<TsMuxer>, body: Body) -> Body {
    Changed::body(body, Some(muxer.segment()), None)
}

/// An HLS segment under `METHOD=AES-128`, its padding off.
pub fn aes_128(key: [u8; 16], iv: [u8; 16], body: Body) -> Body {
    Changed::body(body, Aes128Cbc::new(&Key(key), iv), None)
}

/// An HLS segment under `METHOD=AES-256`, its padding off.
pub fn aes_256(key: [u8; 32], iv: [u8; 16], body: Body) -> Body {
    Changed::body(body, Aes128Cbc::new_256(&key, iv), None)
}

/// An HLS segment of MPEG-TS under `METHOD=SAMPLE-AES`; its length stays what it was.
pub fn sample_aes(key: [u8; 16], iv: [u8; 16], body: Body) -> Body {
    let remaining = body.remaining();
    Changed::body(body, SampleAesTs::new(&Key(key), iv), remaining)
}

/// A range of a progressive file; the body holds what [`Progressive::cover`] says.
pub fn range(file: &Arc<Progressive>, range: Range<u64>, body: Body) -> Body {
    let length = range.end - range.start;
    Changed::body(body, file.range(range), Some(length))
}

/// What changes bytes as they come.
trait Change: Send + 'static {
    /// Whether what came out so far may be given out.
    fn has_begun(&self) -> bool {
        true
    }

    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()>;
    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()>;
}

impl Change for Decrypter {
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

impl Change for Option<TsSegment> {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |s| s.push(chunk, out).map_err(broken))
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()> {
        self.take().map_or(Ok(()), |s| s.finish(out).map_err(broken))
    }
}

impl Change for Aes128Cbc {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Self::push(self, chunk, out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::finish(self, out)?)
    }
}

impl Change for SampleAesTs {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::push(self, &chunk, out)?)
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<()> {
        Ok(Self::finish(self, out)?)
    }
}

impl Change for RangeDecrypter {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) -> Result<()> {
        Self::push(self, chunk, out).map_err(broken)
    }

    fn finish(&mut self, _: &mut Vec<Bytes>) -> Result<()> {
        Self::finish(self).map_err(broken)
    }
}

fn broken(e: impl std::fmt::Display) -> Error {
    Error::new(Kind::BadResponse, format!("the segment cannot be read: {e}"))
}

/// A body that is changed on its way.
struct Changed<C> {
    body: Body,
    change: C,
    ready: VecDeque<Bytes>,
    remaining: Option<u64>,
    over: bool,
    /// How many bytes are held back until the change has begun.
    hold: usize,
}

/// The most bytes before the media data that are held back.
const HOLD: usize = 8 << 20;

impl<C: Change> Changed<C> {
    fn body(body: Body, change: C, remaining: Option<u64>) -> Body {
        Body::stream(Self { body, change, ready: VecDeque::new(), remaining, over: false, hold: 0 })
    }

    fn held(body: Body, change: C, remaining: Option<u64>) -> Body {
        Body::stream(Self { body, change, ready: VecDeque::new(), remaining, over: false, hold: HOLD })
    }

    fn holds_back(&self) -> bool {
        self.hold > 0 && !self.over && !self.change.has_begun()
    }
}

impl<C: Change> BodyStream for Changed<C> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            let next = if self.holds_back() { None } else { self.ready.pop_front() };
            match next {
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => {
                    self.remaining = self.remaining.map(|r| r.saturating_sub(bytes.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::Data(bytes))));
                }
                None if self.over => return Poll::Ready(None),
                None => {}
            }
            let mut out = Vec::new();
            let changed = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => self.change.push(data, &mut out),
                Some(Ok(Frame::Trailers(_))) => continue,
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
            if let Frame::Data(data) = frame? {
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
