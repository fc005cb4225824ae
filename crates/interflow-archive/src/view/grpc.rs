//! gRPC and gRPC-Web: each length-prefixed message decoded, and the trailers that end a gRPC-Web body.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{Bytes, BytesMut};
use interflow_codec::grpc::next_message;
use interflow_types::Headers;

use super::{BodyContext, ProtoSchemas, message};
use interflow_store::decoded_body;

/// Maximum size of a message that is displayed, in bytes.
const MAX_MESSAGE: usize = 64 << 20;

/// Writes the messages of a body, each below a heading.
///
/// # Errors
/// The position where the body stops being valid gRPC, if nothing could be displayed.
pub(super) fn pretty(
    place: &BodyContext<'_>,
    body: &[u8],
    schemas: &ProtoSchemas,
    cap: usize,
) -> Result<String, String> {
    let mut rest = BytesMut::from(body);
    let mut out = String::new();
    for number in 1.. {
        let at = body.len() - rest.len();
        if rest.is_empty() {
            break;
        }
        if out.len() > cap {
            out.push_str("…\n");
            break;
        }
        let next = match next_message(&mut rest, MAX_MESSAGE) {
            Ok(Some(next)) => next,
            Ok(None) => {
                let _ = writeln!(out, "# byte {at}: message {number} breaks off; {} bytes of it are here", rest.len());
                break;
            }
            // If the first message is invalid, the body is something else; later ones are reported in place.
            Err(e) if number == 1 => return Err(format!("byte {at}: {e}")),
            Err(e) => {
                let _ = writeln!(out, "# byte {at}: {e}");
                break;
            }
        };
        // The trailers of gRPC-Web are in the body, as header lines.
        if next.trailers {
            let _ = writeln!(out, "# trailers");
            for line in String::from_utf8_lossy(&next.data).lines() {
                super::quoted(&mut out, line);
                out.push('\n');
            }
            continue;
        }
        let (data, note) = decompress_message(place.headers, next.data.clone(), next.compressed);
        let _ = writeln!(out, "# message {number}, {} bytes{note}", next.data.len());
        if let Err(why) = message(&mut out, &data, place, schemas, cap) {
            let _ = writeln!(out, "# {why}");
            out.push_str("0x");
            super::digits(&mut out, &data);
            out.push('\n');
        }
    }
    Ok(out)
}

/// A decompressed message, with a note on its compression.
fn decompress_message(headers: &Headers, data: Bytes, compressed: bool) -> (Bytes, String) {
    if !compressed {
        return (data, String::new());
    }
    let coding = headers.get_str("grpc-encoding").unwrap_or("identity").to_owned();
    // gRPC's codings have the names of HTTP's.
    let named: Headers = [("content-encoding", coding.as_str())].into_iter().collect();
    let decoded = decoded_body::decode_body(&named, data, MAX_MESSAGE);
    let problem = decoded.error.map(|e| format!(" ({e})")).unwrap_or_default();
    let shown: String = coding.chars().filter(|c| !c.is_control()).take(32).collect();
    (decoded.bytes, format!(", {shown}{problem}"))
}

/// Decodes a base64 body; each piece of a stream may end with its own padding.
///
/// # Errors
/// Invalid base64.
pub(super) fn from_text(body: &[u8]) -> Result<Vec<u8>, String> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let packed: Vec<u8> = body.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let mut out = Vec::new();
    for piece in packed.split_inclusive(|b| *b == b'=').filter(|p| *p != b"=") {
        let piece = piece.strip_suffix(b"=").unwrap_or(piece);
        out.extend(LENIENT.decode(piece).map_err(|e| format!("no base 64: {e}"))?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use interflow_types::Direction;

    use super::*;

    fn framed(flags: u8, data: &[u8]) -> Vec<u8> {
        [&[flags], &(data.len() as u32).to_be_bytes()[..], data].concat()
    }

    fn shown(body: &[u8], coding: &str) -> Result<String, String> {
        let headers: Headers = [("grpc-encoding", coding)].into_iter().collect();
        let place = BodyContext { headers: &headers, path: "/a.B/C", direction: Direction::Request, message: None };
        pretty(&place, body, &ProtoSchemas::default(), 1 << 16)
    }

    #[test]
    fn messages_are_numbered_and_decompressed() {
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&[8, 5]).unwrap();
        let packed = gzip.finish().unwrap();
        let body = [framed(0, &[8, 1]), framed(1, &packed), framed(0x80, b"grpc-status: 0\r\n")].concat();
        let expected = format!(
            "# message 1, 2 bytes\n1: 1\n# message 2, {} bytes, gzip\n1: 5\n# trailers\n\"grpc-status: 0\"\n",
            packed.len()
        );
        assert_eq!(shown(&body, "gzip").unwrap(), expected);
    }

    #[test]
    fn damage_is_reported_after_the_intact_messages() {
        let body = [framed(0, &[8, 1]), vec![0, 0, 0, 0, 9, 1]].concat();
        assert!(shown(&body, "").unwrap().ends_with("1: 1\n# byte 7: message 2 breaks off; 6 bytes of it are here\n"));
        assert!(shown(&framed(0, &[0xff]), "").unwrap().contains("not a Protocol Buffers message\n0xff"));
        assert!(shown(&framed(1, b"x"), "unknown").unwrap().contains("unknown content coding"));
        assert!(shown(&[0x40, 0, 0, 0, 0], "").unwrap_err().starts_with("byte 0"));
        assert!(shown(&[0, 0xff, 0xff, 0xff, 0xff, 1], "").unwrap_err().contains("larger"));
    }

    #[test]
    fn grpc_web_text_is_decoded_piece_by_piece() {
        assert_eq!(from_text(b"AAAAAAI=CAE=\r\n").unwrap(), [0, 0, 0, 0, 2, 8, 1]);
        assert_eq!(from_text(b"AAAAAAIIAQ==").unwrap(), [0, 0, 0, 0, 2, 8, 1]);
        assert!(from_text(b"?").is_err());
    }
}
