//! Bodies without their content coding, for what has to read them as they are forwarded.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_codec::content_coding::ContentDecoder;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Result};

/// Encoded bytes decoded per step, which bounds the output of a step.
const DECODE_CHUNK: usize = 4096;

/// A body without its content coding. Small parts are decoded at a time, because a few bytes may decode to a lot.
pub struct DecodedBody {
    body: Body,
    decoder: ContentDecoder,
    input: Bytes,
    last: Option<BodyFrame>,
    over: bool,
    /// What is told when it cannot be decoded.
    unread: String,
}

impl DecodedBody {
    /// `unread` is the message of the error with which a body ends that cannot be decoded.
    pub fn wrap(body: Body, decoder: ContentDecoder, unread: String) -> Body {
        Body::stream(Self { body, decoder, input: Bytes::new(), last: None, over: false, unread })
    }

    fn decode_error(&mut self, e: std::io::Error) -> Error {
        self.over = true;
        self.input.clear();
        Error::new(ErrorKind::BadResponse, self.unread.clone()).with_source(e)
    }
}

impl BodyStream for DecodedBody {
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
