//! Writes SAZ.

use std::fmt::Write as _;
use std::io::{self, Write};

use interflow_types::Direction;

use super::session;
use crate::har::iso;
use crate::zip::ZipWriter;
use crate::{BodySource, FlowExporter, frames, raw};
use interflow_store::{FlowKind, FlowRecord};

pub struct SazWriter<W: Write> {
    zip: ZipWriter<W>,
    sessions: u64,
    /// Rows of the HTML index of sessions.
    index: String,
}

/// Maximum number of sessions in the HTML index, which is kept in memory until the end. All sessions are in the
/// archive.
const MAX_LISTED: u64 = 100_000;

impl<W: Write> SazWriter<W> {
    /// Begins the archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W) -> io::Result<Self> {
        let mut zip = ZipWriter::new(out);
        zip.entry("[Content_Types].xml", |out| out.write_all(CONTENT_TYPES.as_bytes()))?;
        Ok(Self { zip, sessions: 0, index: String::new() })
    }
}

const CONTENT_TYPES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\" ?>\r\n\
    <Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\">\r\n\
    <Default Extension=\"htm\" ContentType=\"text/html\" />\r\n\
    <Default Extension=\"xml\" ContentType=\"application/xml\" />\r\n\
    <Default Extension=\"txt\" ContentType=\"text/plain\" />\r\n</Types>";

impl<W: Write> FlowExporter for SazWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        let row = &*crate::as_upgrade(row);
        self.sessions += 1;
        let number = self.sessions;
        let name = |part: &str| format!("raw/{number:04}_{part}");
        self.zip.entry(&name("c.txt"), |out| client(out, row, contents))?;
        self.zip.entry(&name("m.xml"), |out| session::write(out, number, row))?;
        self.zip.entry(&name("s.txt"), |out| server(out, row, contents))?;
        if row.kind == FlowKind::WebSocket {
            self.zip.entry(&name("w.txt"), |out| messages(out, row, contents))?;
        }
        if number <= MAX_LISTED {
            let status = row.response.as_ref().map_or(0, |r| r.status);
            // Characters with a meaning in HTML are left out: the index is only for people.
            let url: String = row.url().chars().filter(|c| !matches!(c, '<' | '>' | '&' | '"')).take(500).collect();
            let _ = write!(
                self.index,
                "<tr><td><a href='raw\\{number:04}_c.txt'>C</a> <a href='raw\\{number:04}_s.txt'>S</a> \
                 <a href='raw\\{number:04}_m.xml'>M</a></td><td>{number}</td><td>{status}</td><td>{url}</td></tr>\r\n",
            );
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let page = format!(
            "<html><head><title>Interflow</title></head><body><table><thead><tr><th>&nbsp;</th><th>#</th>\
             <th>Result</th><th>URL</th></tr></thead><tbody>\r\n{}</tbody></table></body></html>",
            std::mem::take(&mut self.index)
        );
        self.zip.entry("_index.htm", |out| out.write_all(page.as_bytes()))?;
        self.zip.finish()
    }
}

/// The request in absolute-form: nothing else in a SAZ reliably gives scheme and host.
fn client(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    let Some(request) = &row.request else {
        return write!(out, "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", row.authority);
    };
    let mut absolute = row.clone();
    if let Some(r) = &mut absolute.request {
        r.path = match (request.method.as_str(), request.path.as_str()) {
            // A rejected tunnel: its request target is an authority (RFC 9110 9.3.6).
            ("CONNECT", _) => row.authority.to_string(),
            (_, "*") => format!("{}/*", row.url()),
            _ => row.url(),
        };
    }
    raw::write_side(out, &absolute, contents, Direction::Request)
}

fn server(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    if row.kind == FlowKind::Tunnel && row.error.is_none() {
        return out.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n");
    }
    raw::write_side(out, row, contents, Direction::Response)
}

/// The messages, each as one frame after a short head.
fn messages(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    for message in contents.messages(row)? {
        let message = message?;
        let Some(frame) = frames::encode(&message) else { continue };
        let side = if message.direction == Direction::Request { "Request" } else { "Response" };
        let (length, index, at) = (frame.len(), message.index, iso(message.at));
        write!(out, "{side}-Length: {length}\r\nID: {index}\r\nBitFlags: 0\r\nDoneRead: {at}\r\n\r\n")?;
        out.write_all(&frame)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}
