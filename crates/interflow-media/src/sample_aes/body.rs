//! A segment's body with SAMPLE-AES taken off as it comes.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_flow::{Body, BodyStream, Frame, Result};

use super::SampleAesTs;
use crate::cenc::Key;

/// The body of an MPEG-TS segment in clear; its length stays what it was.
pub fn decrypted(body: Body, key: &[u8; 16], iv: [u8; 16]) -> Body {
    let ts = SampleAesTs::new(&Key(*key), iv);
    Body::stream(Clear { body, ts, ready: VecDeque::new(), over: false })
}

struct Clear {
    body: Body,
    ts: SampleAesTs,
    ready: VecDeque<Bytes>,
    over: bool,
}

impl BodyStream for Clear {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::Data(bytes))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            let mut out = Vec::new();
            let done = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => self.ts.push(&data, &mut out),
                Some(Ok(Frame::Trailers(_))) => continue,
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    self.over = true;
                    self.ts.finish(&mut out)
                }
            };
            if let Err(e) = done {
                self.over = true;
                return Poll::Ready(Some(Err(e.into())));
            }
            self.ready.extend(out);
        }
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
        let mut body = decrypted(Body::Full(Bytes::from_static(data)), &KEY, IV);
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
