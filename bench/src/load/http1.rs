//! One HTTP/1.1 exchange on an open connection: the request is written as prepared, the response is read in place and its body
//! compared as it comes, so that the generator stays far cheaper than what it measures.

use std::time::Instant;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::load::connect::Io;
use crate::load::verify::Verifier;

/// The read buffer of one worker, used for all its connections in turn.
pub struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// 64 KiB, or 256 KiB for bodies above 1 MiB.
    pub fn new(body: usize) -> Self {
        let size = if body > 1 << 20 { 256 << 10 } else { 64 << 10 };
        Self { bytes: vec![0; size].into(), start: 0, end: 0 }
    }

    /// Forgets what the last connection left.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    async fn fill(&mut self, io: &mut dyn Io) -> Result<(), Failure> {
        if self.start == self.end {
            self.clear();
        } else if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            return Err(Failure::Broken("a head or chunk line larger than the buffer".into()));
        }
        match io.read(&mut self.bytes[self.end..]).await {
            Ok(0) => Err(Failure::Closed),
            Ok(n) => {
                self.end += n;
                Ok(())
            }
            Err(e) => Err(Failure::Broken(e.to_string())),
        }
    }
}

/// Why an exchange failed.
#[derive(Debug)]
pub enum Failure {
    /// The peer closed.
    Closed,
    /// Anything else.
    Broken(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer closed too early"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

/// A completed exchange.
#[derive(Debug)]
pub struct Done {
    /// When the first byte of the response was read.
    pub first_byte: Instant,
    /// Whether the connection can carry another request.
    pub reusable: bool,
}

/// Sends `request` and reads its response. The flag says afterwards whether any byte of a response came.
pub async fn exchange(
    io: &mut dyn Io,
    buffer: &mut Buffer,
    request: &[u8],
    verifier: &mut Verifier<'_>,
    answered: &mut bool,
) -> Result<Done, Failure> {
    *answered = false;
    io.write_all(request).await.map_err(|e| Failure::Broken(e.to_string()))?;
    io.flush().await.map_err(|e| Failure::Broken(e.to_string()))?;
    if buffer.unread().is_empty() {
        buffer.fill(io).await?;
    }
    let first_byte = Instant::now();
    *answered = true;
    let head = loop {
        let head = read_head(io, buffer).await?;
        match head.status {
            100..=199 => {}
            status if verifier.fits(status) => break head,
            status => return Err(Failure::Broken(format!("status {status}"))),
        }
    };
    let reusable = match head.framing {
        Framing::Length(n) => {
            read_exactly(io, buffer, n, verifier).await?;
            !head.close
        }
        Framing::Chunked => {
            read_chunks(io, buffer, verifier).await?;
            !head.close
        }
        Framing::UntilClose => {
            read_to_end(io, buffer, verifier).await?;
            false
        }
    };
    verifier.finish().map_err(Failure::Broken)?;
    Ok(Done { first_byte, reusable })
}

enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

struct Head {
    status: u16,
    framing: Framing,
    close: bool,
}

async fn read_head(io: &mut dyn Io, buffer: &mut Buffer) -> Result<Head, Failure> {
    loop {
        if let Some(at) = memmem::find(buffer.unread(), b"\r\n\r\n") {
            let head = parse(&buffer.unread()[..at + 2]);
            buffer.start += at + 4;
            return head.ok_or_else(|| Failure::Broken("not a response head".into()));
        }
        buffer.fill(io).await?;
    }
}

fn parse(head: &[u8]) -> Option<Head> {
    let status = std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()?;
    let mut parsed = Head { status, framing: Framing::UntilClose, close: head.starts_with(b"HTTP/1.0") };
    let mut rest = head;
    while let Some(end) = memmem::find(rest, b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if let Some(v) = field(line, b"content-length:") {
            parsed.framing = Framing::Length(std::str::from_utf8(v).ok()?.parse().ok()?);
        } else if field(line, b"transfer-encoding:").is_some() {
            parsed.framing = Framing::Chunked;
        } else if let Some(v) = field(line, b"connection:") {
            parsed.close = !v.eq_ignore_ascii_case(b"keep-alive") && (parsed.close || v.eq_ignore_ascii_case(b"close"));
        }
    }
    Some(parsed)
}

fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

async fn read_exactly(
    io: &mut dyn Io,
    buffer: &mut Buffer,
    mut left: usize,
    verifier: &mut Verifier<'_>,
) -> Result<(), Failure> {
    while left > 0 {
        if buffer.unread().is_empty() {
            buffer.fill(io).await?;
        }
        let n = left.min(buffer.end - buffer.start);
        verifier.take(&buffer.unread()[..n]).map_err(Failure::Broken)?;
        buffer.start += n;
        left -= n;
    }
    Ok(())
}

async fn read_chunks(io: &mut dyn Io, buffer: &mut Buffer, verifier: &mut Verifier<'_>) -> Result<(), Failure> {
    loop {
        let line = read_line(io, buffer).await?;
        let digits = line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let size = std::str::from_utf8(digits).ok().and_then(|d| usize::from_str_radix(d, 16).ok());
        let size = size.ok_or_else(|| Failure::Broken(format!("chunk size {:?}", String::from_utf8_lossy(&line))))?;
        if size == 0 {
            while !read_line(io, buffer).await?.is_empty() {}
            return Ok(());
        }
        read_exactly(io, buffer, size, verifier).await?;
        if !read_line(io, buffer).await?.is_empty() {
            return Err(Failure::Broken("a chunk without its end".into()));
        }
    }
}

async fn read_line(io: &mut dyn Io, buffer: &mut Buffer) -> Result<Vec<u8>, Failure> {
    loop {
        if let Some(at) = memmem::find(buffer.unread(), b"\r\n") {
            let line = buffer.unread()[..at].to_vec();
            buffer.start += at + 2;
            return Ok(line);
        }
        buffer.fill(io).await?;
    }
}

async fn read_to_end(io: &mut dyn Io, buffer: &mut Buffer, verifier: &mut Verifier<'_>) -> Result<(), Failure> {
    loop {
        verifier.take(buffer.unread()).map_err(Failure::Broken)?;
        buffer.clear();
        match buffer.fill(io).await {
            Ok(()) => {}
            Err(Failure::Closed) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::verify::Expected;

    async fn answer(bytes: &'static [u8], body: &'static [u8]) -> Result<Done, Failure> {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(bytes).await.unwrap();
        drop(far.shutdown().await);
        let expected = Expected::Exact(body.into());
        let mut verifier = Verifier::new(&expected);
        exchange(&mut near, &mut Buffer::new(0), b"", &mut verifier, &mut false).await
    }

    #[tokio::test]
    async fn each_framing_is_parsed_with_its_connection_persistence() {
        for (bytes, reusable) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"[..], true),
            (b"HTTP/1.1 200 OK\r\ncontent-length:3\r\nConnection: close\r\n\r\nabc", false),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", false),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc", true),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x\r\nbc\r\n0\r\nT: 1\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\n\r\nabc", false),
            (b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", true),
        ] {
            let done = answer(bytes, b"abc").await.unwrap();
            assert_eq!(done.reusable, reusable, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[tokio::test]
    async fn a_wrong_short_or_long_body_is_an_error() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabX"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd",
            b"HTTP/1.1 200 OK\r\n\r\nab",
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"",
        ] {
            assert!(answer(bytes, b"abc").await.is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
