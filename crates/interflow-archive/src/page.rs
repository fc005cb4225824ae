//! Flows as one HTML page to share: no scripts and no external resources, and nothing that the recording masked.

use std::io::{self, Read as _, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_codec::html::escape;
use interflow_store::{FlowRecord, decoded_body};
use interflow_types::{Direction, Headers};

use super::view::body_text::text_if_readable;
use super::{BodySource, FlowExporter, text, view};

/// Maximum size of a body's text on the page, in bytes; a longer one is cut.
const MAX_TEXT: usize = 1 << 20;
/// Maximum size of an image on the page, in bytes.
const MAX_IMAGE: usize = 8 << 20;
/// Maximum number of messages of one flow on the page, and the maximum size of each.
const MAX_MESSAGES: usize = 1000;
const MAX_MESSAGE: usize = 16 << 10;

/// The policy forbids scripts and requests even if a browser were to find any.
const START: &str = include_str!("../data/page_start.html");

pub(crate) struct PageWriter<W> {
    out: W,
}

impl<W: Write> PageWriter<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(START.as_bytes())?;
        Ok(Self { out })
    }

    fn rows<'a>(&mut self, rows: impl Iterator<Item = (&'a str, String)>) -> io::Result<()> {
        self.out.write_all(b"<table>")?;
        for (name, value) in rows {
            writeln!(self.out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(&value))?;
        }
        self.out.write_all(b"</table>\n")
    }

    fn side(&mut self, row: &FlowRecord, contents: &dyn BodySource, side: Direction) -> io::Result<()> {
        let (title, line) = match (side, &row.request, &row.response) {
            (Direction::Request, Some(r), _) => ("Request", format!("{} {} {}", r.method, r.path, r.version)),
            (Direction::Response, _, Some(r)) => {
                let reason = String::from_utf8_lossy(&r.reason).into_owned();
                ("Response", format!("{} {} {reason}", r.version, r.status))
            }
            _ => return Ok(()),
        };
        writeln!(self.out, "<h2>{title}</h2>\n<pre>{}</pre>", escape(&line))?;
        let empty = Headers::new();
        let headers = row.headers(side).unwrap_or(&empty);
        let lossy = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let fields: Vec<_> = headers.iter().map(|(n, v)| (lossy(n), lossy(v))).collect();
        self.rows(fields.iter().map(|(n, v)| (n.as_str(), v.clone())))?;
        self.body(row, headers, contents, side)
    }

    fn body(
        &mut self,
        row: &FlowRecord,
        headers: &Headers,
        contents: &dyn BodySource,
        side: Direction,
    ) -> io::Result<()> {
        let Some(known) = row.body(side).filter(|b| b.kept > 0) else { return Ok(()) };
        let mut bytes = Vec::new();
        // One byte more than is shown, to know whether there is more.
        contents.body(row, side)?.take(MAX_IMAGE as u64 + 1).read_to_end(&mut bytes)?;
        let decoded = decoded_body::decode_body(headers, Bytes::from(bytes), MAX_IMAGE);
        writeln!(self.out, "<p class=\"soft\">Body, {}</p>", text::size(known.size))?;
        if let Some(media) = image_type(&decoded.bytes).filter(|_| !decoded.truncated) {
            let packed = STANDARD.encode(&decoded.bytes);
            return writeln!(self.out, "<img alt=\"The body\" src=\"data:{media};base64,{packed}\">");
        }
        let part = &decoded.bytes[..decoded.bytes.len().min(MAX_TEXT)];
        let Some(text) = text_if_readable(headers, part) else {
            return writeln!(self.out, "<p class=\"soft\">Not text, and therefore not on this page.</p>");
        };
        let is_cut = decoded.truncated || decoded.bytes.len() > MAX_TEXT;
        let text = if is_cut { text } else { view::json(part).unwrap_or(text) };
        writeln!(self.out, "<pre>{}{}</pre>", escape(&text), if is_cut { "\n…" } else { "" })
    }

    fn messages(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        if row.messages == 0 {
            return Ok(());
        }
        writeln!(self.out, "<h2>{} messages</h2>", row.messages)?;
        for message in contents.messages(row)?.take(MAX_MESSAGES) {
            let message = message?;
            let from = if message.direction == Direction::Request { "Client" } else { "Server" };
            writeln!(self.out, "<p class=\"soft\">{from}, {}</p>", text::size(message.size))?;
            let part = &message.payload[..message.payload.len().min(MAX_MESSAGE)];
            let hex = || hex::encode(&part[..part.len().min(256)]);
            let text = text_if_readable(&Headers::new(), part).unwrap_or_else(hex);
            writeln!(self.out, "<pre>{}</pre>", escape(&text))?;
        }
        if row.messages > MAX_MESSAGES as u64 {
            writeln!(self.out, "<p class=\"soft\">Only the first {MAX_MESSAGES} are on this page.</p>")?;
        }
        Ok(())
    }
}

impl<W: Write> FlowExporter for PageWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        let method = row.request.as_ref().map_or("CONNECT", |r| r.method.as_str());
        writeln!(self.out, "<article><h1>{} {}</h1>", escape(method), escape(&row.url()))?;
        let mut facts = vec![("Started", crate::har::iso(row.started))];
        facts.extend(row.timings.done.map(|done| ("Duration", text::duration(done))));
        facts.extend(row.error.as_ref().map(|error| ("Error", error.message.clone())));
        facts.extend((!row.tags.is_empty()).then(|| ("Tags", row.tags.join(", "))));
        facts.extend(row.comment.clone().map(|comment| ("Comment", comment)));
        self.rows(facts.into_iter())?;
        self.side(row, contents, Direction::Request)?;
        self.side(row, contents, Direction::Response)?;
        self.messages(row, contents)?;
        writeln!(self.out, "</article>")
    }

    fn finish(&mut self) -> io::Result<()> {
        writeln!(self.out, "</body></html>")?;
        self.out.flush()
    }
}

/// By the first bytes, whatever the head says. SVG is text here, because it can contain scripts.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    const SIGNS: [(&str, usize, &[u8]); 5] = [
        ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
        ("image/jpeg", 0, b"\xff\xd8\xff"),
        ("image/gif", 0, b"GIF8"),
        ("image/webp", 8, b"WEBP"),
        ("image/avif", 4, b"ftypavi"),
    ];
    SIGNS.iter().find(|(_, at, sign)| bytes.get(*at..).is_some_and(|b| b.starts_with(sign))).map(|(media, ..)| *media)
}
