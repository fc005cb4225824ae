//! Splits the length-prefixed messages of gRPC and gRPC-Web (gRPC over HTTP/2, "Length-Prefixed-Message").

use bytes::{Buf as _, Bytes, BytesMut};

use crate::content_coding;
use crate::cursor::Cursor;

/// The length of a message's prefix: one byte of flags and four of length.
pub const PREFIX_LEN: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcMessage {
    /// Whether `data` is compressed with the `grpc-encoding`.
    pub compressed: bool,
    /// Whether this is the trailer block that ends a gRPC-Web body.
    pub trailers: bool,
    pub data: Bytes,
    pub raw: Bytes,
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrpcError {
    #[error("a gRPC message has unknown flags")]
    Flags,
    #[error("a gRPC message of {0} bytes is larger than the limit")]
    TooLarge(u32),
}

/// Takes the next message of at most `max` content bytes from the front of `buf`, without copying; `None` if it is
/// incomplete.
///
/// # Errors
/// Unknown flags, or a length over `max`. The buffer is left unchanged.
pub fn next_message(buf: &mut BytesMut, max: usize) -> Result<Option<GrpcMessage>, GrpcError> {
    const COMPRESSED: u8 = 1;
    const TRAILERS: u8 = 0x80;
    let mut c = Cursor(buf);
    let Some(flags) = c.u8() else { return Ok(None) };
    // Other bits mean that this is not gRPC, or that framing was lost.
    if flags & !(COMPRESSED | TRAILERS) != 0 {
        return Err(GrpcError::Flags);
    }
    let Some(length) = c.u32() else { return Ok(None) };
    let content = usize::try_from(length).ok().filter(|&n| n <= max).ok_or(GrpcError::TooLarge(length))?;
    // The whole message is awaited: stages need it as a unit.
    if c.take(content).is_none() {
        return Ok(None);
    }
    // Both views share the buffer's memory.
    let raw = buf.split_to(PREFIX_LEN + content).freeze();
    let mut data = raw.clone();
    data.advance(PREFIX_LEN);
    Ok(Some(GrpcMessage { compressed: flags & COMPRESSED != 0, trailers: flags & TRAILERS != 0, data, raw }))
}

/// Decompresses a message's content with the `grpc-encoding`, which has the names of content codings. `None` for another
/// encoding, invalid data, or more than `max` bytes of output.
pub fn decompress(encoding: &str, data: &[u8], max: usize) -> Option<Bytes> {
    content_coding::decode(&[("content-encoding", encoding)].into_iter().collect(), data, max as u64).ok()?
}

/// Appends the prefix of a message of `len` bytes (less than 4 GiB); the content follows.
pub fn write_prefix(out: &mut Vec<u8>, compressed: bool, len: u32) {
    out.push(compressed.into());
    out.extend_from_slice(&len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(raw: &[u8], max: usize) -> Result<(Vec<GrpcMessage>, BytesMut), GrpcError> {
        let mut buf = BytesMut::from(raw);
        let mut messages = Vec::new();
        while let Some(message) = next_message(&mut buf, max)? {
            messages.push(message);
        }
        Ok((messages, buf))
    }

    #[test]
    fn messages_are_split_and_flags_parsed() {
        let (got, rest) = all(b"\0\0\0\0\x02hi\x01\0\0\0\0\x80\0\0\0\x01x\0\0\0\0\x09cut", 10).unwrap();
        let fields: Vec<_> = got.iter().map(|m| (m.compressed, m.trailers, &m.data[..])).collect();
        assert_eq!(fields, [(false, false, &b"hi"[..]), (true, false, b""), (false, true, b"x")]);
        assert_eq!(&rest[..], b"\0\0\0\0\x09cut");
        assert_eq!(&got[0].raw[..], b"\0\0\0\0\x02hi");
    }

    #[test]
    fn a_message_over_the_limit_is_refused_by_its_prefix() {
        assert_eq!(all(b"\0\0\0\0\x0b", 10), Err(GrpcError::TooLarge(11)));
        assert_eq!(all(b"\0\xff\xff\xff\xff", 10), Err(GrpcError::TooLarge(u32::MAX)));
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(all(b"\x02", 10), Err(GrpcError::Flags));
        assert_eq!(all(b"{\"a\":1}", 10), Err(GrpcError::Flags));
    }

    #[test]
    fn content_is_decompressed_within_the_limit() {
        use std::io::Write;
        let text = b"again and again and again";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(text).unwrap();
        let zlib = zlib.finish().unwrap();
        assert_eq!(decompress("gzip", &gzip, 25).as_deref(), Some(&text[..]));
        assert_eq!(decompress("deflate", &zlib, 25).as_deref(), Some(&text[..]));
        assert_eq!(decompress("zstd", &zstd::bulk::compress(text, 1).unwrap(), 25).as_deref(), Some(&text[..]));
        assert_eq!(decompress("gzip", &gzip, 24), None, "one byte over the limit");
        assert_eq!(decompress("gzip", &zlib, 25), None);
        assert_eq!(decompress("gzip", &gzip[..gzip.len() - 9], 25), None, "cut short");
        assert_eq!(decompress("snappy", &gzip, 25), None);
    }

    proptest! {
        #[test]
        fn written_messages_parse_back(messages in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..50)), 0..5)) {
            let mut out = Vec::new();
            for (compressed, data) in &messages {
                write_prefix(&mut out, *compressed, u32::try_from(data.len()).unwrap());
                out.extend_from_slice(data);
            }
            let (got, rest) = all(&out, 50).unwrap();
            prop_assert!(rest.is_empty());
            let got: Vec<_> = got.into_iter().map(|m| (m.compressed, m.data.to_vec())).collect();
            prop_assert_eq!(got, messages);
        }
    }
}
