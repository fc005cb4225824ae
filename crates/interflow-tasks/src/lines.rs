//! Messages as lines of a stream, of limited length.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// Why the next line cannot be read.
#[derive(Debug)]
pub enum LineError {
    /// It has more bytes than this.
    TooLong(usize),
    Io(io::Error),
}

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(max) => write!(f, "it sent a message of more than {max} bytes"),
            Self::Io(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for LineError {}

/// The lines of a stream.
pub struct LineReader<R> {
    reader: BufReader<R>,
    max: usize,
    /// What was read of the next line.
    begun: Vec<u8>,
    has_begun: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(stream: R, max: usize) -> Self {
        Self { reader: BufReader::new(stream), max, begun: Vec::new(), has_begun: false }
    }

    /// The next line without its end; `None` at the end of the stream.
    ///
    /// # Cancellation
    /// Nothing is lost: what was read of the line is kept.
    ///
    /// # Errors
    /// The stream failed, or the line is too long.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        self.read(false).await
    }

    /// The next line, without what exceeds the limit. Otherwise as [`next`](Self::next).
    ///
    /// # Errors
    /// The stream failed.
    pub async fn next_cut(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        self.read(true).await
    }

    async fn read(&mut self, is_cut: bool) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            let read = self.reader.fill_buf().await.map_err(LineError::Io)?;
            if read.is_empty() {
                let last = std::mem::take(&mut self.begun);
                return Ok(std::mem::take(&mut self.has_begun).then_some(last));
            }
            self.has_begun = true;
            let end = read.iter().position(|b| *b == b'\n');
            let part = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
            let capacity = self.max - self.begun.len();
            if part.len() > capacity && !is_cut {
                return Err(LineError::TooLong(self.max));
            }
            self.begun.extend_from_slice(part.get(..capacity).unwrap_or(part));
            let used = end.map_or(read.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                self.has_begun = false;
                return Ok(Some(std::mem::take(&mut self.begun)));
            }
        }
    }
}

/// Writes messages as lines.
pub struct LineWriter<W>(W);

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    pub fn new(stream: W) -> Self {
        Self(stream)
    }

    /// Writes a message as one line: JSON has line breaks only between tokens, where a space is the same.
    ///
    /// # Errors
    /// The stream failed.
    pub async fn send(&mut self, text: &str) -> io::Result<()> {
        let line = text.replace(['\r', '\n'], " ") + "\n";
        self.0.write_all(line.as_bytes()).await?;
        self.0.flush().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn lines_are_read_within_a_bound() {
        let text = |line: Result<Option<Vec<u8>>, LineError>| line.unwrap().map(|l| String::from_utf8(l).unwrap());
        let mut lines = LineReader::new(&b"ab\n\nthree and more\nend"[..], 5);
        assert_eq!(text(lines.next().await).as_deref(), Some("ab"));
        assert_eq!(text(lines.next().await).as_deref(), Some(""));
        assert_eq!(text(lines.next_cut().await).as_deref(), Some("three"));
        assert_eq!(text(lines.next().await).as_deref(), Some("end"));
        assert_eq!(text(lines.next().await), None);
        let mut lines = LineReader::new(&b"three and more\n"[..], 5);
        assert!(matches!(lines.next().await, Err(LineError::TooLong(5))));
    }

    #[tokio::test]
    async fn a_message_with_line_breaks_is_one_line() {
        let mut writer = LineWriter::new(Vec::new());
        writer.send("{\"a\":\n{\"b\":1}\r\n}").await.unwrap();
        assert_eq!(writer.0, b"{\"a\": {\"b\":1}  }\n");
    }

    #[tokio::test]
    async fn a_read_that_is_cancelled_loses_nothing() {
        let (near, far) = tokio::io::duplex(64);
        let (mut lines, mut writer) = (LineReader::new(near, 20), LineWriter::new(far));
        writer.0.write_all(b"begun, ").await.unwrap();
        assert!(lines.next().now_or_never().is_none());
        writer.send("ended").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), b"begun, ended");
    }
}
