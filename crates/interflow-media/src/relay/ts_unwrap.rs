//! `transformer=ts_stream`: strips disguising data (an image header, padding) from the start of a transport stream.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use interflow_types::{Body, BodyFrame, BodyStream, Result};

/// Size of a packet, in bytes (ISO 13818-1 2.4.3).
const PACKET: usize = 188;
/// The first byte of every packet.
const SYNC: u8 = 0x47;
/// Maximum size of the prefix, in bytes; beyond that the body is passed unchanged.
const MAX_FRONT_BYTES: usize = 64 * 1024;
/// Number of consecutive packets required for detection; one sync byte may be a coincidence.
const REQUIRED_SYNCS: usize = 3;

/// The body from its first packet on. If no packet is found, the body is passed unchanged.
pub fn unwrap_ts(body: Body) -> Body {
    Body::stream(TsUnwrapBody { body, held: BytesMut::new(), open: false, over: false })
}

struct TsUnwrapBody {
    body: Body,
    held: BytesMut,
    open: bool,
    over: bool,
}

impl BodyStream for TsUnwrapBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            if self.open {
                return self.body.poll_frame(cx);
            }
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(BodyFrame::Data(data))) => self.held.extend_from_slice(&data),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                Some(Ok(BodyFrame::Trailers(_))) | None => (self.open, self.over) = (true, true),
            }
            let start = first_packet(&self.held, self.open);
            // Not enough bytes to decide.
            if start.is_none() && !self.open && self.held.len() < MAX_FRONT_BYTES {
                continue;
            }
            self.open = true;
            let mut held = self.held.split();
            let rest: Bytes = held.split_off(start.unwrap_or(0)).freeze();
            if !rest.is_empty() {
                return Poll::Ready(Some(Ok(BodyFrame::Data(rest))));
            }
        }
    }
}

/// Offset of the first packet: sync bytes at packet distance, since a single 0x47 may occur anywhere. At the end of the
/// body fewer are sufficient.
fn first_packet(bytes: &[u8], is_end: bool) -> Option<usize> {
    let candidates = memchr::memchr_iter(SYNC, bytes);
    candidates.into_iter().find(|&at| {
        let marks = (0..REQUIRED_SYNCS).map(|n| bytes.get(at + n * PACKET));
        let mut packets = 0;
        for mark in marks {
            match mark {
                Some(&SYNC) => packets += 1,
                Some(_) => return false,
                None if is_end => break,
                None => return false,
            }
        }
        packets > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn through(front: &[u8], packets: usize) -> Vec<u8> {
        let mut bytes = front.to_vec();
        for n in 0..packets {
            bytes.push(SYNC);
            bytes.extend(std::iter::repeat_n(n as u8, PACKET - 1));
        }
        let (out, _) = unwrap_ts(Body::Full(bytes.into())).collect(1 << 20).await.unwrap();
        out.to_vec()
    }

    #[tokio::test]
    async fn prefix_before_the_transport_stream_is_stripped() {
        let plain = through(b"", 5).await;
        assert_eq!(plain.len(), 5 * PACKET);
        assert_eq!(through(b"\x89PNG\r\n\x1a\nG....IEND", 5).await, plain);
        assert_eq!(through(&[0xff; 4000], 5).await, plain);
        assert_eq!(through(b"", 1).await.len(), PACKET);
    }

    #[tokio::test]
    async fn non_transport_stream_is_passed_through() {
        assert_eq!(through(&[1; 100_000], 0).await.len(), 100_000);
    }
}
