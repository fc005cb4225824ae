//! Decoding of content codings, streaming or for a buffered body.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_codec::content_coding::{self, ContentDecoder};
use interflow_types::{Body, BodyFrame, BodyStream, Direction, Error, ErrorKind, FlowId, Headers, Result};

/// Maximum decoded size of a buffered body; protects against decompression bombs.
const MAX_DECODED_BODY: u64 = 64 << 20;

/// Whether a head names a content coding.
///
/// # Errors
/// An unknown coding, or too many.
pub(crate) fn is_encoded(headers: &Headers) -> Result<bool> {
    content_coding::parse_codings(headers).map(|codings| !codings.is_empty()).map_err(decode_error)
}

fn decode_error(e: io::Error) -> Error {
    if let Some(e) = content_coding::budget_error(&e) {
        return e;
    }
    let text = match e.kind() {
        io::ErrorKind::FileTooLarge => {
            return Error::new(ErrorKind::BodyTooLarge, "the body is too large without its content coding");
        }
        io::ErrorKind::Unsupported => return Error::new(ErrorKind::BadResponse, e.to_string()),
        _ => format!("the body cannot be decoded from the content coding that its head names: {e}"),
    };
    Error::new(ErrorKind::BadResponse, text)
}

/// The message that a body belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyOwner {
    pub flow: FlowId,
    pub side: Direction,
}

impl BodyOwner {
    /// What follows the end of a response's coding is dropped, as clients do. In a request it is an error, because it may
    /// hide from the rules what an origin reads.
    fn decoder(self, headers: &Headers, max: u64) -> io::Result<Option<ContentDecoder>> {
        let decoder = ContentDecoder::new(headers, max)?;
        Ok(match self.side {
            Direction::Request => decoder,
            Direction::Response => decoder.map(ContentDecoder::ignoring_trailing_data),
        })
    }

    fn log_trailing_data(self) {
        tracing::info!(flow = %self.flow, "invalid bytes after the end of the response's content coding are dropped");
    }
}

/// The whole decoded body; large bodies are decoded on a blocking thread.
///
/// # Errors
/// Corrupt data, or a decoded size above the limit.
pub(crate) async fn decode(headers: &Headers, body: &Bytes, owner: BodyOwner) -> Result<Bytes> {
    let Some(decoder) = owner.decoder(headers, MAX_DECODED_BODY).map_err(decode_error)? else {
        return Ok(body.clone());
    };
    let (plain, trailing) = content_coding::decode_with(decoder, body).await.map_err(decode_error)?;
    if trailing {
        owner.log_trailing_data();
    }
    Ok(plain)
}

/// Decodes the body as it streams. A body with unknown codings is returned unchanged.
pub(crate) fn decode_stream(headers: &Headers, body: Body, owner: BodyOwner) -> Body {
    match owner.decoder(headers, u64::MAX) {
        Ok(Some(decoder)) => Body::stream(DecodingBody { body, owner, decoder: Some(decoder), end: None }),
        _ => body,
    }
}

/// The beginning of a body, before anything of it was sent.
pub(crate) struct BodyBeginning {
    /// The body as if it had not been read.
    pub body: Body,
    /// Its first decoded bytes: four, as long as a byte order mark can be, unless it is shorter.
    pub bytes: Vec<u8>,
    /// Why it is not in the coding that its head names.
    pub failure: Option<Error>,
}

/// Reads a body up to its first decoded bytes.
pub(crate) async fn read_beginning(headers: &Headers, mut body: Body, owner: BodyOwner) -> BodyBeginning {
    let Ok(mut decoder) = owner.decoder(headers, u64::MAX) else {
        return BodyBeginning { body, bytes: Vec::new(), failure: None };
    };
    let (mut read, mut size, mut bytes) = (Vec::new(), 0, Vec::new());
    let failure = loop {
        let Some(frame) = body.frame().await else { break decoder.as_mut().and_then(|d| d.finish().err()) };
        let decoded = match (&frame, &mut decoder) {
            (Ok(BodyFrame::Data(data)), Some(decoder)) => {
                size += data.len();
                decoder.push(data).map(|plain| bytes.extend(plain.iter().take(4)))
            }
            (Ok(BodyFrame::Data(data)), None) => {
                bytes.extend(data.iter().take(4));
                Ok(())
            }
            (Ok(BodyFrame::Trailers(_)) | Err(_), _) => {
                read.push(frame);
                break None;
            }
        };
        read.push(frame);
        match decoded {
            Ok(()) if bytes.len() < 4 && size <= MAX_BEGINNING => {}
            Ok(()) => break None,
            Err(e) => break Some(e),
        }
    };
    let failure = failure.map(decode_error).map(|e| match e.kind() {
        ErrorKind::Overloaded => e,
        _ => Error::new(ErrorKind::BadResponse, e.to_string()),
    });
    bytes.truncate(4);
    BodyBeginning { body: Body::replay(read, body), bytes, failure }
}

/// How many coded bytes may precede the first decoded one while the beginning is checked.
const MAX_BEGINNING: usize = 64 << 10;

struct DecodingBody {
    body: Body,
    owner: BodyOwner,
    /// Present until the end of the body; trailers pass after it.
    decoder: Option<ContentDecoder>,
    /// What ended the body, kept until its last bytes are delivered.
    end: Option<Option<Result<BodyFrame>>>,
}

impl BodyStream for DecodingBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            if let Some(end) = self.end.take() {
                return Poll::Ready(end);
            }
            let frame = ready!(self.body.poll_frame(cx));
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(frame) };
            let plain = match frame {
                Some(Ok(BodyFrame::Data(data))) => decoder.push(&data),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                end => {
                    let rest = decoder.finish();
                    if decoder.has_trailing_data() {
                        self.owner.log_trailing_data();
                    }
                    self.decoder = None;
                    self.end = Some(end);
                    rest
                }
            };
            match plain {
                Ok(plain) if plain.is_empty() => {}
                Ok(plain) => return Poll::Ready(Some(Ok(BodyFrame::Data(plain.into())))),
                Err(e) => return Poll::Ready(Some(Err(decode_error(e)))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const OWNER: BodyOwner = BodyOwner { flow: FlowId::from_u128(1), side: Direction::Response };

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        w.write_all(body).unwrap();
        w.finish().unwrap()
    }

    fn named(coding: &str) -> Headers {
        [("Content-Encoding", coding)].into_iter().collect()
    }

    #[tokio::test]
    async fn body_is_decoded_as_a_stream_and_truncation_is_an_error() {
        let wire = gzip(b"hello hello hello");
        let body = decode_stream(&named("gzip"), Body::from(Bytes::from(wire.clone())), OWNER);
        assert_eq!(&body.collect(100).await.unwrap().0[..], b"hello hello hello");
        let cut = Bytes::copy_from_slice(&wire[..wire.len() - 4]);
        assert!(decode_stream(&named("gzip"), Body::from(cut.clone()), OWNER).collect(100).await.is_err());
        assert!(decode(&named("gzip"), &cut, OWNER).await.is_err());
    }

    #[tokio::test]
    async fn body_with_hundreds_of_codings_is_treated_as_unknown_coding() {
        let many = named(&vec!["gzip"; 400].join(","));
        assert!(is_encoded(&many).is_err());
        let body = decode_stream(&many, Body::from(Bytes::from_static(b"as it came")), OWNER);
        assert_eq!(&body.collect(100).await.unwrap().0[..], b"as it came");
        assert!(is_encoded(&named("gzip")).unwrap() && !is_encoded(&named("identity")).unwrap());
    }
}
