//! Writes a request: the head and the available part of the body, with as few system calls as possible.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use interflow_codec::h1;
use interflow_types::{Body, BodyFrame, Error, ErrorKind, Headers};
use tokio::io::AsyncWrite;

use crate::egress::replayable_body::ReplayableBody;
use crate::io::IoStream;

/// Pieces up to this size are copied after the head or the previous piece; larger ones are written in place.
const MAX_COPY_BYTES: usize = 4 * 1024;
/// How much is gathered before it is written.
const WRITE_BUFFER_SIZE: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadFraming {
    /// This many bytes are still to come.
    Length(u64),
    Chunked,
}

pub(crate) struct Http1RequestWriter {
    out: Vec<u8>,
    at: usize,
    piece: Bytes,
    /// The piece is a chunk, so CRLF follows it.
    piece_is_chunk: bool,
    pub(super) body: ReplayableBody,
    framing: UploadFraming,
    /// The body must not be sent yet: the request waits for `100 Continue`.
    pub(super) held: bool,
    ended: bool,
    /// A TLS layer may still buffer written bytes.
    unflushed: bool,
    /// Bytes written, framing included.
    pub(crate) written: u64,
}

/// Why a request could not be written: the connection failed, or the body did.
pub(crate) enum UploadError {
    Io(io::Error),
    Body(Error),
}

impl Http1RequestWriter {
    /// A request with its head serialized in `head`.
    pub(crate) fn new(head: Vec<u8>, body: Body, framing: UploadFraming, held: bool) -> Self {
        Self {
            out: head,
            at: 0,
            piece: Bytes::new(),
            piece_is_chunk: false,
            // A stream is sent again only while no frame of it was taken.
            body: ReplayableBody::new(body, 0),
            framing,
            held,
            ended: false,
            unflushed: false,
            written: 0,
        }
    }

    /// Whether everything available was written, so that the upload waits for the client.
    pub(crate) fn waits_for_body(&self) -> bool {
        !self.held && self.at == self.out.len() && self.piece.is_empty()
    }

    pub(crate) fn into_scratch(self) -> Vec<u8> {
        let mut out = self.out;
        out.clear();
        // A head with long cookies must not pin its buffer for the life of the connection.
        out.shrink_to(2 * MAX_COPY_BYTES);
        out
    }

    /// Continues writing. Ready when the whole request is written.
    pub(crate) fn poll(&mut self, io: &mut IoStream, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        loop {
            self.fill_buffer(cx).map_err(UploadError::Body)?;
            // Everything gathered is written.
            if self.at == self.out.len() && self.piece.is_empty() {
                // Flushed only when nothing more is ready, so that a TLS layer fills its records.
                if self.unflushed {
                    ready!(Pin::new(&mut *io).poll_flush(cx)).map_err(UploadError::Io)?;
                    self.unflushed = false;
                }
                return if self.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            ready!(self.poll_write(io, cx)).map_err(UploadError::Io)?;
        }
    }

    fn fill_buffer(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        // One large piece at a time, after at most one buffer of gathered small ones: that is one vectored write.
        while !self.ended && !self.held && self.piece.is_empty() && self.out.len() - self.at < WRITE_BUFFER_SIZE {
            let Poll::Ready(frame) = self.body.poll_frame(cx) else { return Ok(()) };
            match frame {
                Some(Ok(BodyFrame::Data(data))) => self.frame_data(data)?,
                Some(Ok(BodyFrame::Trailers(trailers))) => self.end(Some(&trailers))?,
                Some(Err(error)) => return Err(error),
                None => self.end(None)?,
            }
        }
        Ok(())
    }

    fn frame_data(&mut self, data: Bytes) -> Result<(), Error> {
        // An empty chunk would end the body (RFC 9112 7.1).
        if data.is_empty() {
            return Ok(());
        }
        let chunked = match &mut self.framing {
            UploadFraming::Chunked => true,
            UploadFraming::Length(left) => {
                // The framing is already on the wire: more bytes would be read as the next request.
                *left = left.checked_sub(data.len() as u64).ok_or_else(|| length_mismatch("longer"))?;
                false
            }
        };
        if chunked {
            h1::write_chunk_size(&mut self.out, data.len());
        }
        // Written in place with `writev`, without a copy.
        if data.len() > MAX_COPY_BYTES {
            self.piece = data;
            self.piece_is_chunk = chunked;
            return Ok(());
        }
        self.out.extend_from_slice(&data);
        if chunked {
            self.out.extend_from_slice(h1::CHUNK_END);
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&Headers>) -> Result<(), Error> {
        self.ended = true;
        match self.framing {
            UploadFraming::Chunked => h1::write_last_chunk(&mut self.out, trailers),
            UploadFraming::Length(0) => {}
            // Closing is the only correct end: the origin must not take a shorter body for complete, or wait for the
            // rest.
            UploadFraming::Length(_) => return Err(length_mismatch("shorter")),
        }
        Ok(())
    }

    fn poll_write(&mut self, io: &mut IoStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let head = self.out.get(self.at..).unwrap_or_default();
        let n = if self.piece.is_empty() {
            ready!(Pin::new(&mut *io).poll_write(cx, head))?
        } else if head.is_empty() {
            let tail = if self.piece_is_chunk { h1::CHUNK_END } else { b"" };
            let n =
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &[IoSlice::new(&self.piece), IoSlice::new(tail)]))?;
            return Poll::Ready(self.advance(0, n));
        } else {
            let tail = if self.piece_is_chunk { h1::CHUNK_END } else { b"" };
            let slices = [IoSlice::new(head), IoSlice::new(&self.piece), IoSlice::new(tail)];
            ready!(Pin::new(&mut *io).poll_write_vectored(cx, &slices))?
        };
        let of_head = n.min(head.len());
        Poll::Ready(self.advance(of_head, n - of_head))
    }

    /// Accounts for written bytes: this many of `out`, and this many of the piece and its end.
    fn advance(&mut self, of_out: usize, piece_bytes: usize) -> io::Result<()> {
        if of_out + piece_bytes == 0 {
            // A writer that accepts nothing would make this loop forever.
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += (of_out + piece_bytes) as u64;
        self.unflushed = true;
        self.at += of_out;
        // All written: the buffer starts again at its beginning.
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
        if piece_bytes == 0 {
            return Ok(());
        }
        let of_piece = piece_bytes.min(self.piece.len());
        self.piece.advance(of_piece);
        if self.piece.is_empty() && self.piece_is_chunk {
            self.piece_is_chunk = false;
            self.piece = Bytes::new();
            // The write may have ended within the CRLF after the chunk.
            self.out.extend_from_slice(h1::CHUNK_END.get(piece_bytes - of_piece..).unwrap_or_default());
        }
        Ok(())
    }
}

fn length_mismatch(how: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the request's body proved {how} than its stated length"))
}
