//! Requests and responses as HTTP/1 wire bytes. HTTP/2 heads are written in the same form.

use std::io::{self, Read, Write};

use interflow_types::{Direction, Headers};

use super::BodySource;
use interflow_store::FlowRecord;

/// Writes the request and the response, an empty line between them.
///
/// # Errors
/// A body cannot be read, or the output cannot be written.
pub fn write(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    write_request(out, row, contents)?;
    if row.request.is_some() && row.response.is_some() {
        out.write_all(b"\r\n")?;
    }
    write_side(out, row, contents, Direction::Response)
}

/// Writes the request so that it can be sent: a body that was chunked is chunked again. The transfer coding is a field
/// of the connection, and not recorded.
///
/// # Errors
/// A body cannot be read, or the output cannot be written.
pub fn write_request(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    // A request of HTTP/1.1 with a body and without a length was chunked; no other ends with the connection.
    let unframed = row.request.as_ref().is_some_and(|request| {
        request.version == "HTTP/1.1"
            && request.body.kept > 0
            && !request.headers.contains("content-length")
            && !request.headers.contains("transfer-encoding")
    });
    if !unframed {
        return write_side(out, row, contents, Direction::Request);
    }
    let mut framed = row.clone();
    if let Some(request) = &mut framed.request {
        request.headers.append_unchecked(b"Transfer-Encoding", b"chunked");
    }
    write_side(out, &framed, contents, Direction::Request)
}

/// Writes one side: its head, its body with the transfer coding that the head names, its trailers. Writes nothing if
/// the flow lacks this side.
///
/// # Errors
/// A body cannot be read, or the output cannot be written.
pub fn write_side(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource, side: Direction) -> io::Result<()> {
    let (headers, trailers) = match side {
        Direction::Request => {
            let Some(request) = &row.request else { return Ok(()) };
            write!(out, "{} {} {}\r\n", request.method, request.path, request.version)?;
            (&request.headers, &request.trailers)
        }
        Direction::Response => {
            let Some(response) = &row.response else { return Ok(()) };
            write!(out, "{} {} ", response.version, response.status)?;
            out.write_all(&response.reason)?;
            out.write_all(b"\r\n")?;
            (&response.headers, &response.trailers)
        }
    };
    let mut head = Vec::new();
    headers.write_to(&mut head);
    head.extend_from_slice(b"\r\n");
    out.write_all(&head)?;
    let mut body = contents.body(row, side)?;
    // The body was recorded without its chunks, so they are made again to match the head.
    if headers.has_token("transfer-encoding", "chunked") {
        write_chunked(out, body, trailers)
    } else {
        io::copy(&mut body, out).map(drop)
    }
}

/// RFC 9112 7.1. The original chunk boundaries are not recorded.
fn write_chunked(out: &mut dyn Write, mut body: Box<dyn Read + '_>, trailers: &Headers) -> io::Result<()> {
    let mut buf = Vec::with_capacity(64 * 1024);
    loop {
        buf.clear();
        body.by_ref().take(64 * 1024).read_to_end(&mut buf)?;
        if buf.is_empty() {
            break;
        }
        write!(out, "{:x}\r\n", buf.len())?;
        out.write_all(&buf)?;
        out.write_all(b"\r\n")?;
    }
    let mut end = b"0\r\n".to_vec();
    trailers.write_to(&mut end);
    end.extend_from_slice(b"\r\n");
    out.write_all(&end)
}
