//! gRPC, gRPC-Web and Connect streams: each length-prefixed message decoded, as Protocol Buffers or JSON, and the block
//! that ends a body of gRPC-Web or Connect.

use std::fmt::Write as _;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use interflow_codec::grpc::{GrpcError, GrpcMessage, next_message};
use interflow_types::Headers;

use super::{MessageView, json, push_bounded};
use crate::har::LENIENT_BASE64;
use interflow_store::{decoded_body, media_type};

/// Maximum size of a message that is displayed, in bytes.
const MAX_MESSAGE: usize = 64 << 20;

/// Whether the messages are JSON: `grpc+json`, `grpc-web+json`, `connect+json`.
fn has_json_messages(headers: &Headers) -> bool {
    media_type(headers).is_some_and(|media| media.ends_with("+json"))
}

/// The next message. Connect sets a flag of its own on the last one (Connect protocol, "EndStreamResponse"), which is JSON
/// like gRPC-Web's trailers are lines.
fn next_frame(rest: &mut BytesMut, headers: &Headers) -> Result<Option<GrpcMessage>, GrpcError> {
    const END_STREAM: u8 = 2;
    let connect = media_type(headers).is_some_and(|media| media.starts_with("application/connect+"));
    let ends = connect && rest.first().is_some_and(|flags| flags & END_STREAM != 0);
    if ends && let Some(flags) = rest.first_mut() {
        *flags &= !END_STREAM;
    }
    let mut next = next_message(rest, MAX_MESSAGE)?;
    if let Some(message) = &mut next {
        message.trailers |= ends;
    }
    Ok(next)
}

/// The JSON messages of a body, one per line; `None` if its messages are not JSON, or it is not framed.
pub(super) fn json_lines(headers: &Headers, body: &[u8], cap: usize) -> Option<String> {
    if !has_json_messages(headers) {
        return None;
    }
    let mut rest = BytesMut::from(body);
    let mut out = String::new();
    while out.len() < cap
        && let Some(next) = next_frame(&mut rest, headers).ok()?
    {
        let (data, _) = decompress_message(headers, next.data, next.compressed);
        push_bounded(&mut out, String::from_utf8_lossy(&data).trim(), cap);
    }
    Some(out)
}

/// Writes the messages of a body, each below a heading.
///
/// # Errors
/// The position where the body stops being valid gRPC, if nothing could be displayed.
pub(super) fn pretty(view: &MessageView<'_>, body: &[u8]) -> Result<String, String> {
    let MessageView { place, cap, .. } = *view;
    let json_messages = has_json_messages(place.headers);
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
        let next = match next_frame(&mut rest, place.headers) {
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
        let (data, note) = decompress_message(place.headers, next.data.clone(), next.compressed);
        let as_json = || json(&data).ok().filter(|_| json_messages || next.trailers);
        // The trailers of gRPC-Web are in the body, as header lines; those of Connect are JSON.
        if next.trailers {
            let _ = writeln!(out, "# trailers{note}");
            if let Some(text) = as_json() {
                push_bounded(&mut out, &text, cap);
                continue;
            }
            for line in String::from_utf8_lossy(&data).lines() {
                super::quoted(&mut out, line);
                out.push('\n');
            }
            continue;
        }
        let _ = writeln!(out, "# message {number}, {} bytes{note}", next.data.len());
        if json_messages {
            let text = as_json().unwrap_or_else(|| String::from_utf8_lossy(&data).into_owned());
            push_bounded(&mut out, &text, cap);
        } else if let Err(why) = view.message(&mut out, &data) {
            let _ = writeln!(out, "# {why}");
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
    let coding = ["grpc-encoding", "connect-content-encoding"].iter().find_map(|name| headers.get_str(name));
    let coding = coding.unwrap_or("identity").to_owned();
    // gRPC's codings have the names of HTTP's.
    let named: Headers = [("content-encoding", coding.as_str())].into_iter().collect();
    let decoded = decoded_body::decode_body(&named, data, MAX_MESSAGE);
    let problem = decoded.error.map(|e| format!(" ({e})")).unwrap_or_default();
    let name: String = coding.chars().filter(|c| !c.is_control()).take(32).collect();
    (decoded.bytes, format!(", {name}{problem}"))
}

/// Decodes a base64 body; each piece of a stream may end with its own padding.
///
/// # Errors
/// Invalid base64.
pub(super) fn from_text(body: &[u8]) -> Result<Vec<u8>, String> {
    let packed: Vec<u8> = body.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let mut out = Vec::new();
    for piece in packed.split_inclusive(|b| *b == b'=').filter(|p| *p != b"=") {
        let piece = piece.strip_suffix(b"=").unwrap_or(piece);
        out.extend(LENIENT_BASE64.decode(piece).map_err(|e| format!("no base 64: {e}"))?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use interflow_types::Direction;

    use super::super::{BodyContext, ProtoSchemas};
    use super::*;

    fn framed(flags: u8, data: &[u8]) -> Vec<u8> {
        [&[flags], &(data.len() as u32).to_be_bytes()[..], data].concat()
    }

    fn shown(body: &[u8], coding: &str) -> Result<String, String> {
        let headers: Headers = [("grpc-encoding", coding)].into_iter().collect();
        let place = BodyContext { headers: &headers, path: "/a.B/C", direction: Direction::Request, message: None };
        pretty(&MessageView { place: &place, schemas: &ProtoSchemas::default(), cap: 1 << 16 }, body)
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
    fn json_messages_are_unframed() {
        let view = |media: &str, body: &[u8]| {
            let headers: Headers =
                [("content-type", media), ("connect-content-encoding", "gzip")].into_iter().collect();
            let place = BodyContext { headers: &headers, path: "/a.B/C", direction: Direction::Request, message: None };
            let lines = json_lines(&headers, body, 1 << 16);
            (pretty(&MessageView { place: &place, schemas: &ProtoSchemas::default(), cap: 1 << 16 }, body), lines)
        };
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(b"{\"n\":2}").unwrap();
        let packed = gzip.finish().unwrap();
        let body = [framed(0, b"{\"n\":1}"), framed(1, &packed), framed(2, b"{\"metadata\":{}}")].concat();
        let (shown, lines) = view("application/connect+json", &body);
        let expected = format!(
            "# message 1, 7 bytes\n{{\n  \"n\": 1\n}}\n# message 2, {} bytes, gzip\n{{\n  \"n\": 2\n}}\n# trailers\n{{\n  \"metadata\": {{}}\n}}\n",
            packed.len()
        );
        assert_eq!(shown.unwrap(), expected);
        assert_eq!(lines.unwrap(), "{\"n\":1}\n{\"n\":2}\n{\"metadata\":{}}\n");
        let (shown, lines) = view("application/grpc+json", &[framed(0, b"not json"), framed(0, b"{}")].concat());
        assert_eq!(shown.unwrap(), "# message 1, 8 bytes\nnot json\n# message 2, 2 bytes\n{}\n");
        assert_eq!(lines.unwrap(), "not json\n{}\n");
        // Single messages of Connect are not framed, and the flag is Connect's only.
        let (shown, lines) = view("application/connect+json", b"{\"n\":1}");
        assert!(shown.is_err() && lines.is_none());
        assert!(view("application/grpc+json", &framed(2, b"{}")).0.is_err());
        assert_eq!(view("application/json", &framed(0, b"{}")).1, None);
        // Protocol Buffers end with JSON, too.
        let (shown, lines) = view("application/connect+proto", &[framed(0, &[8, 1]), framed(2, b"{}")].concat());
        assert_eq!((shown.unwrap().as_str(), lines), ("# message 1, 2 bytes\n1: 1\n# trailers\n{}\n", None));
    }

    #[test]
    fn grpc_web_text_is_decoded_piece_by_piece() {
        assert_eq!(from_text(b"AAAAAAI=CAE=\r\n").unwrap(), [0, 0, 0, 0, 2, 8, 1]);
        assert_eq!(from_text(b"AAAAAAIIAQ==").unwrap(), [0, 0, 0, 0, 2, 8, 1]);
        assert!(from_text(b"?").is_err());
    }
}
