//! Decoding of content codings, streaming or for a buffered body.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use interflow_codec::content_coding::{self, ContentDecoder};
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Headers, Result};

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

/// The whole decoded body; large bodies are decoded on a blocking thread.
///
/// # Errors
/// Corrupt data, or a decoded size above the limit.
pub(crate) async fn decode(headers: &Headers, body: &Bytes) -> Result<Bytes> {
    let plain = content_coding::decode_off_thread(headers, body, MAX_DECODED_BODY).await.map_err(decode_error)?;
    Ok(plain.unwrap_or_else(|| body.clone()))
}

/// Decodes the body as it streams. A body with unknown codings is returned unchanged.
pub(crate) fn decode_stream(headers: &Headers, body: Body) -> Body {
    match ContentDecoder::new(headers, u64::MAX) {
        Ok(Some(decoder)) => Body::stream(DecodingBody { body, decoder: Some(decoder), end: None }),
        _ => body,
    }
}

struct DecodingBody {
    body: Body,
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
        let body = decode_stream(&named("gzip"), Body::from(Bytes::from(wire.clone())));
        assert_eq!(&body.collect(100).await.unwrap().0[..], b"hello hello hello");
        let cut = Bytes::copy_from_slice(&wire[..wire.len() - 4]);
        assert!(decode_stream(&named("gzip"), Body::from(cut.clone())).collect(100).await.is_err());
        assert!(decode(&named("gzip"), &cut).await.is_err());
    }

    #[tokio::test]
    async fn body_with_hundreds_of_codings_is_treated_as_unknown_coding() {
        let many = named(&vec!["gzip"; 400].join(","));
        assert!(is_encoded(&many).is_err());
        let body = decode_stream(&many, Body::from(Bytes::from_static(b"as it came")));
        assert_eq!(&body.collect(100).await.unwrap().0[..], b"as it came");
        assert!(is_encoded(&named("gzip")).unwrap() && !is_encoded(&named("identity")).unwrap());
    }
}
