//! A raw test connection: sends bytes, reads lines, heads, bodies and chunks, each with a timeout.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use interflow_types::Headers;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use crate::message::{Answer, Framing, parse_head, parse_status_line};

/// A larger head is treated as an error. In bytes.
const MAX_HEAD: usize = 1 << 20;

/// A byte stream that exposes its TCP connection, so that a test can reset it.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
    /// The SNI the client sent, on the server side of TLS.
    fn sni(&self) -> Option<String> {
        None
    }
    fn alpn(&self) -> Option<Vec<u8>> {
        None
    }
    fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        Vec::new()
    }
}

impl Io for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Io for tokio_rustls::server::TlsStream<Wire> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0.tcp()
    }
    fn sni(&self) -> Option<String> {
        self.get_ref().1.server_name().map(str::to_owned)
    }
    fn alpn(&self) -> Option<Vec<u8>> {
        self.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    }
    fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        self.get_ref().1.peer_certificates().unwrap_or_default().to_vec()
    }
}

impl Io for tokio_rustls::client::TlsStream<Wire> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0.tcp()
    }
    fn alpn(&self) -> Option<Vec<u8>> {
        self.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    }
    fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        self.get_ref().1.peer_certificates().unwrap_or_default().to_vec()
    }
}

/// A connection with a read buffer. Every read fails with [`io::ErrorKind::TimedOut`] after the timeout (10 s unless
/// set).
pub struct Wire {
    io: Box<dyn Io>,
    read: BytesMut,
    patience: Option<Duration>,
    resumed: bool,
}

impl Wire {
    pub fn new(io: impl Io + 'static) -> Self {
        Self { io: Box::new(io), read: BytesMut::new(), patience: Some(Duration::from_secs(10)), resumed: false }
    }

    pub async fn connect(addr: impl tokio::net::ToSocketAddrs) -> io::Result<Self> {
        let tcp = TcpStream::connect(addr).await?;
        tcp.set_nodelay(true)?;
        Ok(Self::new(tcp))
    }

    /// Sets the read timeout; `None` disables it.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Self {
        self.patience = patience;
        self
    }

    /// The TCP connection at the bottom.
    pub fn tcp(&self) -> &TcpStream {
        self.io.tcp()
    }

    /// The properties of the topmost TLS layer, if there is one.
    pub fn tls(&self) -> &dyn Io {
        &*self.io
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.io.write_all(bytes.as_ref()).await?;
        self.io.flush().await
    }

    /// Closes the sending direction (FIN, or `close_notify` and FIN); the other stays open.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.io.shutdown().await
    }

    /// Drops the connection with a TCP reset.
    pub fn reset(self) {
        // With a linger time of zero, closing sends RST instead of FIN.
        let _ = self.io.tcp().set_zero_linger();
    }

    /// Received bytes that were not read yet, waiting for more if there are none. Empty at the end of stream.
    pub async fn some(&mut self) -> io::Result<Bytes> {
        if self.read.is_empty() {
            self.fill().await?;
        }
        Ok(self.read.split().freeze())
    }

    pub async fn exactly(&mut self, n: usize) -> io::Result<Bytes> {
        while self.read.len() < n {
            if self.fill().await? == 0 {
                return Err(short(format!("{} of {n} bytes", self.read.len())));
            }
        }
        Ok(self.read.split_to(n).freeze())
    }

    /// Everything until the peer closes its direction.
    pub async fn to_end(&mut self) -> io::Result<Bytes> {
        while self.fill().await? > 0 {}
        Ok(self.read.split().freeze())
    }

    pub async fn line(&mut self) -> io::Result<String> {
        let line = self.until(b"\r\n").await?.ok_or_else(|| short("no line".into()))?;
        Ok(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
    }

    /// A whole head with its empty line, or `None` if the peer closed before its first byte.
    pub async fn head(&mut self) -> io::Result<Option<Bytes>> {
        self.until(b"\r\n\r\n").await
    }

    /// Asserts that nothing arrives for `quiet` and that the connection stays open.
    ///
    /// # Panics
    /// If a byte or the end of stream arrives.
    pub async fn assert_silent(&mut self, quiet: Duration) {
        let patience = self.patience.replace(quiet);
        let came = if self.read.is_empty() { self.fill().await } else { Ok(self.read.len()) };
        self.patience = patience;
        match came {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {}
            other => panic!("expected silence, got {other:?}: {:?}", self.read),
        }
    }

    /// One HTTP/1 response with its interim responses, body and trailers, for a request other than `HEAD`.
    pub async fn answer(&mut self) -> io::Result<Answer> {
        self.answer_to("GET").await
    }

    /// One HTTP/1 response to a request of this method (RFC 9112 6.3: `HEAD` and a successful `CONNECT` have no body).
    pub async fn answer_to(&mut self, method: &str) -> io::Result<Answer> {
        let mut answer = self.answer_head().await?;
        let bodiless = method == "HEAD" || (method == "CONNECT" && answer.status / 100 == 2);
        if bodiless || answer.status == 101 || answer.status == 204 || answer.status == 304 {
            return Ok(answer);
        }
        let framing = Framing::of_response(&answer.headers).map_err(bad)?;
        (answer.body, answer.trailers) = self.body(framing).await?;
        Ok(answer)
    }

    /// The final response's head with the preceding interim ones; the body is not read.
    pub async fn answer_head(&mut self) -> io::Result<Answer> {
        let mut informational = Vec::new();
        loop {
            let raw = self.head().await?.ok_or_else(|| short("no response".into()))?;
            let (first, headers) = parse_head(&raw).map_err(bad)?;
            let (version, status, reason) = parse_status_line(&first).map_err(bad)?;
            // 101 is final: another protocol follows.
            if status / 100 == 1 && status != 101 {
                informational.push((status, headers));
                continue;
            }
            return Ok(Answer {
                version,
                status,
                reason,
                headers,
                body: Bytes::new(),
                trailers: Headers::new(),
                informational,
                raw_head: raw,
            });
        }
    }

    /// A body with this framing, and its trailers.
    pub async fn body(&mut self, framing: Framing) -> io::Result<(Bytes, Headers)> {
        match framing {
            Framing::None => Ok((Bytes::new(), Headers::new())),
            Framing::Length(n) => Ok((self.exactly(n).await?, Headers::new())),
            Framing::UntilClose => Ok((self.to_end().await?, Headers::new())),
            Framing::Chunked => {
                let mut all = BytesMut::new();
                while let Some(chunk) = self.chunk().await? {
                    all.extend_from_slice(&chunk);
                }
                Ok((all.freeze(), self.trailers().await?))
            }
        }
    }

    /// The next chunk of a chunked body, or `None` at the last one, which [`trailers`](Self::trailers) follow.
    pub async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let line = self.line().await?;
        let digits = line.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(digits, 16).map_err(|_| bad(format!("chunk size {line:?}")))?;
        if size == 0 {
            return Ok(None);
        }
        let data = self.exactly(size).await?;
        match &self.exactly(2).await?[..] {
            b"\r\n" => Ok(Some(data)),
            other => Err(bad(format!("a chunk of {size} ends with {other:?}"))),
        }
    }

    pub async fn trailers(&mut self) -> io::Result<Headers> {
        let mut trailers = Headers::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else {
                return if line.is_empty() { Ok(trailers) } else { Err(bad(format!("trailer {line:?}"))) };
            };
            trailers.append_unchecked(name.as_bytes(), value.trim().as_bytes());
        }
    }

    /// Starts TLS on this connection as a client. Bytes already read belong to the TLS stream.
    pub async fn into_tls(self, name: &str, config: Arc<rustls::ClientConfig>) -> io::Result<Self> {
        let patience = self.patience;
        let name = ServerName::try_from(name.to_owned()).map_err(|e| bad(e.to_string()))?;
        let tls = bounded(patience, tokio_rustls::TlsConnector::from(config).connect(name, self)).await?;
        let resumed = tls.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        Ok(Self { resumed, ..Self::new(tls).patience(patience) })
    }

    pub fn resumed(&self) -> bool {
        self.resumed
    }

    pub async fn accept_tls(self, config: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        let patience = self.patience;
        let tls = bounded(patience, tokio_rustls::TlsAcceptor::from(config).accept(self)).await?;
        Ok(Self::new(tls).patience(patience))
    }

    /// Waits for at least `n` bytes and returns the received ones without consuming them. Shorter only at the end of
    /// stream.
    pub async fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        while self.read.len() < n && self.fill().await? > 0 {}
        Ok(&self.read)
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.read.reserve(16 * 1024);
        bounded(self.patience, self.io.read_buf(&mut self.read)).await
    }

    async fn until(&mut self, end: &[u8]) -> io::Result<Option<Bytes>> {
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.read[searched..], end) {
                return Ok(Some(self.read.split_to(searched + at + end.len()).freeze()));
            }
            // The end may be split between two reads.
            searched = self.read.len().saturating_sub(end.len() - 1);
            if self.read.len() > MAX_HEAD {
                return Err(bad(format!("{MAX_HEAD} bytes without {end:?}")));
            }
            if self.fill().await? == 0 {
                return if self.read.is_empty() { Ok(None) } else { Err(short(format!("only {:?}", self.read))) };
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Bytes that were read ahead come first, also for TLS on top.
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let n = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..n]);
        self.read.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }
    // An alert follows other records, and TLS tries only once to send it.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

pub(crate) fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn short(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the peer ended early: {what}"))
}

async fn bounded<T>(patience: Option<Duration>, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match patience {
        None => work.await,
        Some(p) => tokio::time::timeout(p, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    }
}
