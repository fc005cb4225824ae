//! Bodies in HAR: read once to determine whether they are text, and then copied in pieces.

use std::io::{self, Read, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use interflow_codec::content_coding::has_content_coding;
use interflow_types::{Direction, Headers};

use super::parts;
use crate::view::body_text::charset;
use crate::{BodySource, content_coding};
use interflow_store::FlowRecord;

/// A body to export. It is read twice: to classify it, and to write it.
pub(super) struct HarBody<'a> {
    pub row: &'a FlowRecord,
    pub contents: &'a dyn BodySource,
    pub direction: Direction,
    pub headers: &'a Headers,
}

pub(super) struct BodyProbe {
    /// Whether its content coding is decoded.
    pub decoded: bool,
    /// Its size as written, in bytes.
    pub plain_size: u64,
    /// Whether it can be written as a JSON string: UTF-8, and not declared otherwise.
    pub is_text: bool,
}

impl HarBody<'_> {
    fn open(&self, decoded: bool) -> io::Result<Box<dyn Read + '_>> {
        let body = self.contents.body(self.row, self.direction)?;
        if decoded { content_coding::decoder(self.headers, body) } else { Ok(body) }
    }

    pub fn probe(&self) -> io::Result<BodyProbe> {
        let coded = has_content_coding(self.headers);
        // A body that cannot be decoded is exported with its content coding.
        if coded && let Ok(survey) = self.probe_as(true) { Ok(survey) } else { self.probe_as(false) }
    }

    fn probe_as(&self, decoded: bool) -> io::Result<BodyProbe> {
        let mut body = self.open(decoded)?;
        let mut scan = TextScan::default();
        let mut buf = vec![0; 32 * 1024];
        loop {
            match body.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => scan.push(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let foreign = charset(&content_type(self.headers)).is_some_and(|c| !matches!(c.as_str(), "utf-8" | "utf8"));
        // Pure ASCII is the same text in UTF-8 and in the charsets that extend ASCII.
        let is_text = scan.is_utf8() && (scan.ascii || !foreign);
        Ok(BodyProbe { decoded, plain_size: scan.size, is_text })
    }

    pub fn bytes(&self, survey: &BodyProbe) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.open(survey.decoded)?.read_to_end(&mut all)?;
        Ok(all)
    }

    pub fn write(&self, out: &mut dyn Write, survey: &BodyProbe) -> io::Result<()> {
        let mut body = self.open(survey.decoded)?;
        out.write_all(b"\"")?;
        if survey.is_text {
            io::copy(&mut body, &mut JsonEscaper(&mut *out))?;
        } else {
            let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
            io::copy(&mut body, &mut encoder)?;
            encoder.finish()?;
        }
        out.write_all(b"\"")
    }
}

/// Validates UTF-8 incrementally.
#[derive(Default)]
struct TextScan {
    size: u64,
    /// The bytes of an incomplete character.
    open: Vec<u8>,
    broken: bool,
    ascii: bool,
    begun: bool,
}

impl TextScan {
    fn push(&mut self, piece: &[u8]) {
        self.size += piece.len() as u64;
        self.ascii = (self.ascii || !self.begun) && piece.is_ascii();
        self.begun = true;
        if self.broken {
            return;
        }
        let joined;
        // A character may be split between two pieces.
        let piece = if self.open.is_empty() {
            piece
        } else {
            joined = [self.open.as_slice(), piece].concat();
            &joined
        };
        self.open = match std::str::from_utf8(piece) {
            Ok(_) => Vec::new(),
            // Only the end is incomplete: the next piece may continue it.
            Err(e) if e.error_len().is_none() => piece[e.valid_up_to()..].to_vec(),
            Err(_) => {
                self.broken = true;
                Vec::new()
            }
        };
    }

    fn is_utf8(&self) -> bool {
        !self.broken && self.open.is_empty()
    }
}

/// Escapes UTF-8 for a JSON string (RFC 8259 7). Only ASCII needs escaping, so input may be split anywhere.
struct JsonEscaper<'a>(&'a mut dyn Write);

impl Write for JsonEscaper<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let needs = |b: u8| b < 0x20 || matches!(b, b'"' | b'\\' | 0x7f);
        let mut rest = piece;
        while let Some(at) = rest.iter().position(|&b| needs(b)) {
            self.0.write_all(&rest[..at])?;
            match rest[at] {
                b'"' => self.0.write_all(b"\\\"")?,
                b'\\' => self.0.write_all(b"\\\\")?,
                b'\n' => self.0.write_all(b"\\n")?,
                b'\r' => self.0.write_all(b"\\r")?,
                b'\t' => self.0.write_all(b"\\t")?,
                // DEL needs no escape in JSON (RFC 8259 section 7), but is a control character all the same.
                other => write!(self.0, "\\u{other:04x}")?,
            }
            rest = &rest[at + 1..];
        }
        self.0.write_all(rest)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

pub(super) fn content_type(headers: &Headers) -> String {
    headers.get("content-type").map(|v| parts::text(v).into_owned()).unwrap_or_default()
}
