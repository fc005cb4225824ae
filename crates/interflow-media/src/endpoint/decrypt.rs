//! Bodies of segments changed on their way: decrypted with keys that the link's owner gave, made into MPEG-TS.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_flow::{Body, BodyStream, Error, Frame, Kind, Result, StatusCode};

use super::reply::Stop;
use crate::cenc::{self, Decrypter, Init, KeyRing};
use crate::remux::{self, TsMuxer, TsSegment};

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
/// begin with its own. `at`: where in the origin's resource it begins.
pub fn segment(keys: KeyRing, init: Option<Arc<Init>>, at: u64, body: Body) -> std::result::Result<Body, Stop> {
    let decrypter = match init {
        Some(init) => {
            init.check_keys(&keys).map_err(|e| stop(&e))?;
            Decrypter::for_segment(keys, init).at(at)
        }
        None => Decrypter::new(keys).at(at),
    };
    let remaining = body.remaining();
    Ok(Body::stream(Clear { body, decrypter, ready: VecDeque::new(), remaining, over: false }))
}

/// A clear segment as MPEG-TS, fragment by fragment.
pub fn transport(muxer: &Arc<TsMuxer>, body: Body) -> Body {
    Body::stream(Transport { body, segment: Some(muxer.segment()), ready: VecDeque::new() })
}

struct Transport {
    body: Body,
    segment: Option<TsSegment>,
    ready: VecDeque<Bytes>,
}

impl BodyStream for Transport {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        let broken =
            |e: remux::Error| Error::new(Kind::BadResponse, format!("the segment cannot be made into MPEG-TS: {e}"));
        loop {
            match self.ready.pop_front() {
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => return Poll::Ready(Some(Ok(Frame::Data(bytes)))),
                None => {}
            }
            let Some(segment) = &mut self.segment else { return Poll::Ready(None) };
            let mut out = Vec::new();
            let pushed = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => segment.push(data, &mut out),
                Some(Ok(Frame::Trailers(_))) => continue,
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => self.segment.take().map_or(Ok(()), |s| s.finish(&mut out)),
            };
            if let Err(e) = pushed {
                self.segment = None;
                return Poll::Ready(Some(Err(broken(e))));
            }
            self.ready.extend(out);
        }
    }
}

struct Clear {
    body: Body,
    decrypter: Decrypter,
    ready: VecDeque<Bytes>,
    remaining: Option<u64>,
    over: bool,
}

impl BodyStream for Clear {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        let broken = |e: cenc::Error| Error::new(Kind::BadResponse, format!("the segment cannot be decrypted: {e}"));
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                if bytes.is_empty() {
                    continue;
                }
                self.remaining = self.remaining.map(|r| r.saturating_sub(bytes.len() as u64));
                return Poll::Ready(Some(Ok(Frame::Data(bytes))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            let mut out = Vec::new();
            let pushed = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => self.decrypter.push(data, &mut out),
                Some(Ok(Frame::Trailers(_))) => continue,
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    self.over = true;
                    self.decrypter.finish()
                }
            };
            if let Err(e) = pushed {
                self.over = true;
                return Poll::Ready(Some(Err(broken(e))));
            }
            self.ready.extend(out);
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}
