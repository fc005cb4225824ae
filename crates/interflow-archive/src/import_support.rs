//! Shared by the importers of other tools' archives: building rows, parsing HTTP/1 messages stored as text, and stable
//! ids.

use std::borrow::Cow;

use bytes::Bytes;
use interflow_types::{FlowId, Headers, Timestamp};

use super::{FlowSink, FlowWithBodies, ImportError, ImportReport, Result, jsonl};
use interflow_store::{BodyRecord, FlowKind, FlowState, RequestRecord, ResponseRecord, TunnelRecord};

/// A flow id derived from `started`, the place in the file and `parts`: stable across imports of the same file, and in its
/// order where flows began at the same time.
pub fn stable_id(started: Timestamp, number: u64, parts: &[&[u8]]) -> FlowId {
    let mut hash = blake3::Hasher::new();
    // Also what the higher bits say: tables show only the last 40.
    hash.update(&started.micros().to_le_bytes()).update(&number.to_le_bytes());
    // Each part with its length, so that different parts cannot run together to the same bytes.
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    // The form of Interflow's own ids: 48 bits of milliseconds, then 80 bits, here 10 of the microseconds, 30 of the
    // number and 40 of the hash instead of random ones.
    let mut low = [0; 16];
    low[11..].copy_from_slice(&hash.finalize().as_bytes()[..5]);
    let time = u128::from(started.micros() / 1000) << 10 | u128::from(started.micros() % 1000);
    let (time, number) = (time & ((1 << 58) - 1), u128::from(number) & ((1 << 30) - 1));
    FlowId::from_u128(time << 70 | number << 40 | u128::from_be_bytes(low))
}

/// Adds a header field, or notes why it is invalid.
pub fn field(headers: &mut Headers, name: &[u8], value: &[u8], notes: &mut Vec<String>) {
    let text = String::from_utf8_lossy(name);
    // Pseudo-header fields of HTTP/2, which some tools store with the others.
    if text.starts_with(':') {
        return;
    }
    if headers.append(&text, value.trim_ascii()).is_err() {
        notes.push(format!("'{}' is not a valid header field and is left out", shorten(&text)));
    }
}

/// A text without NUL characters, which the store rejects.
pub fn clean_text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// At most 80 characters, for messages; control characters become spaces.
pub fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(80).is_some() {
        short.push('…');
    }
    short
}

/// The row of a complete body.
pub fn whole_body_row(body: &[u8]) -> BodyRecord {
    BodyRecord::partial(body.len() as u64, body.len() as u64, None)
}

/// A request with a complete body.
pub fn request(method: &str, path: &str, version: &str, headers: Headers, body: &[u8]) -> RequestRecord {
    let protocol = headers.get_str("upgrade").filter(|u| u.eq_ignore_ascii_case("websocket"));
    RequestRecord {
        method: method.to_owned(),
        path: path.to_owned(),
        version: super::har::version(version),
        protocol: protocol.map(str::to_ascii_lowercase),
        headers,
        trailers: Headers::new(),
        body: whole_body_row(body),
    }
}

/// A response with a complete body.
pub fn response(status: u16, reason: &[u8], version: &str, headers: Headers, body: &[u8]) -> ResponseRecord {
    let reason: Vec<u8> = reason.iter().map(|b| if b.is_ascii_control() { b' ' } else { *b }).collect();
    ResponseRecord {
        status,
        reason: Bytes::from(reason),
        version: super::har::version(version),
        headers,
        trailers: Headers::new(),
        body: whole_body_row(body),
    }
}

/// Sets the final state of a flow with all its parts.
pub fn set_complete(flow: &mut FlowWithBodies) {
    let row = &mut flow.row;
    row.imported = true;
    row.messages = flow.messages.len() as u64;
    if row.kind == FlowKind::Tunnel && row.tunnel.is_none() {
        row.tunnel = Some(TunnelRecord::default());
    }
    row.state = match &row.error {
        Some(_) => FlowState::Failed,
        None if row.response.is_none() && row.kind != FlowKind::Tunnel => FlowState::Cut,
        None => FlowState::Complete,
    };
}

/// Passes flows to the sink and collects the report.
pub struct ImportSink<'s> {
    sink: FlowSink<'s>,
    pub report: ImportReport,
}

impl<'s> ImportSink<'s> {
    pub fn new(sink: FlowSink<'s>) -> Self {
        Self { sink, report: ImportReport::default() }
    }

    /// Imports one flow, or notes its location and why it is invalid.
    pub fn push(&mut self, place: &str, flow: Result<FlowWithBodies, String>, notes: Vec<String>) -> Result<()> {
        // The same checks as for Interflow's own format: an archive may come from anyone.
        match flow.and_then(|flow| jsonl::validate_row(&flow.row).map(|()| flow)) {
            Ok(flow) => {
                if let Err(source) = (self.sink)(flow) {
                    return Err(ImportError::Io { source, report: std::mem::take(&mut self.report) });
                }
                self.report.flows += 1;
            }
            Err(problem) => self.report.skip(format!("{place}: {problem}")),
        }
        // Notes are about parts that were left out; the flow itself was imported.
        for note in notes {
            self.report.note(format!("{place}: {note}"));
        }
        Ok(())
    }

    /// The report of a zip, unless it is cut short: what was whole before is imported.
    pub fn finish_zip(self, cut: Option<String>) -> Result<ImportReport> {
        let Some(cut) = cut else { return Ok(self.report) };
        Err(self.malformed(cut, "what was whole before it is imported"))
    }

    /// The error for malformed content.
    pub fn malformed(self, place: impl Into<String>, problem: impl Into<String>) -> ImportError {
        ImportError::Malformed { place: place.into(), problem: problem.into(), report: self.report }
    }

    /// The error for a failed read.
    pub fn failed(self, source: std::io::Error) -> ImportError {
        ImportError::Io { source, report: self.report }
    }
}

/// An HTTP/1 message as stored by some archives.
pub struct ArchivedMessage<'a> {
    /// The three parts of its first line; the last one may be empty or contain spaces.
    pub line: [&'a [u8]; 3],
    pub headers: Headers,
    pub trailers: Headers,
    /// The body with its transfer coding removed.
    pub body: Cow<'a, [u8]>,
}

/// Parses a message; lines may end without CR, as in hand-made files.
pub fn message<'a>(bytes: &'a [u8], notes: &mut Vec<String>) -> Result<ArchivedMessage<'a>, &'static str> {
    let (line, mut rest) = split_line(bytes).ok_or("is empty")?;
    // The third part may contain spaces: it is the reason of a response.
    let mut words = line.splitn(3, |b| *b == b' ');
    let mut word = || words.next().unwrap_or_default().trim_ascii();
    let line = [word(), word(), word()];
    if line[1].is_empty() {
        return Err("begins with no line of HTTP");
    }
    let mut headers = Headers::new();
    fields(&mut rest, &mut headers, notes);
    let mut trailers = Headers::new();
    let body = if headers.has_token("transfer-encoding", "chunked") {
        // Some tools store bodies decoded but keep the field; what is not chunked is taken as it is.
        decode_chunked(rest, &mut trailers, notes).map_or(Cow::Borrowed(rest), Cow::Owned)
    } else {
        Cow::Borrowed(rest)
    };
    Ok(ArchivedMessage { line, headers, trailers, body })
}

/// Parses fields up to the empty line.
fn fields(rest: &mut &[u8], headers: &mut Headers, notes: &mut Vec<String>) {
    while let Some((line, behind)) = split_line(rest) {
        *rest = behind;
        if line.is_empty() {
            return;
        }
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        field(headers, &line[..colon], line.get(colon + 1..).unwrap_or_default(), notes);
    }
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), bytes.get(end + 1..).unwrap_or_default()))
}

/// RFC 9112 7.1; `None` if the bytes are not a complete chunked body.
fn decode_chunked(mut rest: &[u8], trailers: &mut Headers, notes: &mut Vec<String>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let (line, behind) = split_line(rest)?;
        let digits = line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        rest = behind;
        if size == 0 {
            fields(&mut rest, trailers, notes);
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        // The line end after the data.
        rest = split_line(rest.get(size..)?)?.1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_messages_are_parsed() {
        let mut notes = Vec::new();
        let text = b"HTTP/1.1 200 All is well\r\nA: 1\nB:2\r\nno colon\r\n\r\nbody\r\n";
        let m = message(text, &mut notes).unwrap();
        assert_eq!(m.line, [&b"HTTP/1.1"[..], b"200", b"All is well"]);
        assert_eq!(
            (m.headers.get("a"), m.headers.get("b"), &*m.body),
            (Some(&b"1"[..]), Some(&b"2"[..]), &b"body\r\n"[..])
        );
        assert_eq!(notes, ["'no colon' is not a valid header field and is left out"]);
        assert!(message(b"", &mut notes).is_err() && message(b"one\r\n\r\n", &mut notes).is_err());
    }

    #[test]
    fn well_formed_chunked_bodies_are_decoded() {
        let mut notes = Vec::new();
        let read = |body: &str| {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            let m = message(text.as_bytes(), &mut notes).unwrap();
            (String::from_utf8(m.body.to_vec()).unwrap(), m.trailers.len())
        };
        let mut read = read;
        assert_eq!(read("3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"), ("abcde".to_owned(), 1));
        for odd in ["plain", "3\r\nab", "ffffffffffffffff\r\nab", "3\r\nabc"] {
            assert_eq!(read(odd), (odd.to_owned(), 0), "{odd}");
        }
    }

    #[test]
    fn ids_depend_on_their_parts_and_begin_with_the_time() {
        let at = Timestamp::from_micros(1_795_168_800_123_456);
        let a = stable_id(at, 1, &[b"ab", b"c"]);
        assert_eq!((a, a.unix_millis()), (stable_id(at, 1, &[b"ab", b"c"]), 1_795_168_800_123));
        assert_ne!(a, stable_id(at, 1, &[b"a", b"bc"]));
        // Tables show the last 8 characters.
        let end = |at: Timestamp, number| stable_id(at, number, &[b"ab", b"c"]).to_string()[18..].to_owned();
        let later = Timestamp::from_micros(at.micros() + 1);
        assert!(end(at, 1) != end(at, 2) && end(at, 1) != end(later, 1));
    }
}
