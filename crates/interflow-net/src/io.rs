//! [`IoStream`]: one byte stream type over TCP, TLS, an HTTP/2 stream, or any of these with bytes read ahead.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::relay::buffer;

/// A bidirectional byte stream of another type, such as an HTTP/2 stream or a test's pipe.
pub trait AsyncReadWrite: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> AsyncReadWrite for T {}

/// A byte stream of a connection, whatever its layers. An enum and not a trait object, because the tunnel has to
/// recognise plain TCP for `splice(2)`, and because the usual cases then need no dynamic dispatch. TLS contains another
/// `IoStream`, so TLS within TLS (an HTTPS proxy, an intercepted CONNECT) works too.
pub struct IoStream(IoInner);

enum IoInner {
    Tcp(TcpStream),
    ServerTls(Box<tokio_rustls::server::TlsStream<IoStream>>),
    ClientTls(Box<tokio_rustls::client::TlsStream<IoStream>>),
    #[cfg(feature = "impersonate")]
    Impersonated(Box<tokio_btls::SslStream<IoStream>>),
    /// Bytes to be read before the stream itself.
    Prefixed(Box<RewindStream>),
    Ahead(Box<ReadAhead>),
    Other(Box<dyn AsyncReadWrite>),
    Closed,
}

/// Bytes that were read ahead, and the stream they came from. Replaced by the stream itself once the bytes are read.
struct RewindStream {
    bytes: Bytes,
    io: IoStream,
}

/// Reads a stream in large pieces whatever the reader requests: TLS requests 4 KiB at a time. A pooled buffer is held
/// only while it has content (`held`: the buffer and the unread range), so an idle connection needs none.
struct ReadAhead {
    io: IoStream,
    /// A pooled buffer while it has content, and the unread range.
    held: Option<(Box<[u8]>, Range<usize>)>,
}

impl ReadAhead {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (bytes, held) = match self.held.take() {
            Some(held) => held,
            None => {
                // Taken per read and returned as soon as it is empty.
                let mut bytes = buffer::take();
                let mut read = ReadBuf::new(&mut bytes);
                let polled = Pin::new(&mut self.io).poll_read(cx, &mut read);
                let held = 0..read.filled().len();
                // Also if pending: an idle connection must not hold a buffer.
                if !matches!(polled, Poll::Ready(Ok(()))) {
                    buffer::release(bytes);
                    return polled;
                }
                (bytes, held)
            }
        };
        // An empty read is the end of the stream: it leaves nothing to hold, and the buffer is released below.
        let n = held.len().min(into.remaining());
        into.put_slice(&bytes[held.start..held.start + n]);
        if n == held.len() {
            buffer::release(bytes);
        } else {
            self.held = Some((bytes, held.start + n..held.end));
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Some((bytes, _)) = self.held.take() {
            buffer::release(bytes);
        }
    }
}

impl IoStream {
    pub fn other(stream: impl AsyncReadWrite + 'static) -> Self {
        Self(IoInner::Other(Box::new(stream)))
    }

    /// A closed stream: reads return the end, writes fail.
    pub const fn closed() -> Self {
        Self(IoInner::Closed)
    }

    #[allow(dead_code)]
    pub(crate) fn server_tls(stream: tokio_rustls::server::TlsStream<Self>) -> Self {
        Self(IoInner::ServerTls(Box::new(stream)))
    }

    pub(crate) fn client_tls(stream: tokio_rustls::client::TlsStream<Self>) -> Self {
        Self(IoInner::ClientTls(Box::new(stream)))
    }

    #[cfg(feature = "impersonate")]
    pub(crate) fn impersonated(stream: tokio_btls::SslStream<Self>) -> Self {
        Self(IoInner::Impersonated(Box::new(stream)))
    }

    /// Reads the stream in large pieces, for readers that request little at a time.
    pub(crate) fn read_ahead(self) -> Self {
        Self(IoInner::Ahead(Box::new(ReadAhead { io: self, held: None })))
    }

    /// Puts `bytes` in front of what is read from the stream.
    pub fn prefixed(mut self, bytes: Bytes) -> Self {
        if bytes.is_empty() {
            return self;
        }
        // One layer only: the new bytes come before those that were put back earlier.
        if let IoInner::Prefixed(p) = &mut self.0 {
            // Copied, because this is rare and the pieces are small.
            p.bytes = [&bytes[..], &p.bytes[..]].concat().into();
            return self;
        }
        Self(IoInner::Prefixed(Box::new(RewindStream { bytes, io: self })))
    }

    /// The TCP connection, with the bytes that were read ahead of it.
    ///
    /// # Errors
    /// Returns the stream if it is not plain TCP.
    pub fn into_tcp(self) -> Result<(TcpStream, Bytes), Self> {
        match self.0 {
            IoInner::Tcp(tcp) => Ok((tcp, Bytes::new())),
            IoInner::Prefixed(p) => match *p {
                RewindStream { bytes, io: Self(IoInner::Tcp(tcp)) } => Ok((tcp, bytes)),
                RewindStream { bytes, io } => Err(io.prefixed(bytes)),
            },
            kind => Err(Self(kind)),
        }
    }

    /// The TCP connection, if this is plain TCP (possibly with bytes read ahead).
    pub fn tcp_ref(&self) -> Option<&TcpStream> {
        match &self.0 {
            IoInner::Tcp(tcp) => Some(tcp),
            IoInner::Prefixed(p) => p.io.tcp_ref(),
            _ => None,
        }
    }

    /// The TCP connection below all layers, for socket options and addresses. Must not be used for I/O, which would
    /// bypass the layers. `None` for streams that are not based on a socket, such as those of HTTP/2.
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.0 {
            IoInner::Tcp(tcp) => Some(tcp),
            IoInner::ServerTls(tls) => tls.get_ref().0.socket(),
            IoInner::ClientTls(tls) => tls.get_ref().0.socket(),
            #[cfg(feature = "impersonate")]
            IoInner::Impersonated(tls) => tls.get_ref().socket(),
            IoInner::Prefixed(p) => p.io.socket(),
            IoInner::Ahead(a) => a.io.socket(),
            IoInner::Other(_) | IoInner::Closed => None,
        }
    }

    /// The TLS session with the upstream, if there is one.
    #[cfg(test)]
    pub(crate) fn client_session(&self) -> Option<&rustls::ClientConnection> {
        match &self.0 {
            IoInner::ClientTls(tls) => Some(tls.get_ref().1),
            _ => None,
        }
    }

    /// Makes dropping the stream reset the TCP connection (`SO_LINGER` with zero), so that the peer cannot take what it
    /// received as complete. Unsent data is discarded.
    pub fn reset_on_drop(&self) {
        if let Some(tcp) = self.socket() {
            // If the socket refuses the option, it is closed normally; nothing better is possible.
            let _ = socket2::SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

impl From<TcpStream> for IoStream {
    fn from(tcp: TcpStream) -> Self {
        Self(IoInner::Tcp(tcp))
    }
}

impl fmt::Debug for IoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            IoInner::Tcp(tcp) => tcp.fmt(f),
            IoInner::ServerTls(tls) => write!(f, "ServerTls({:?})", tls.get_ref().0),
            IoInner::ClientTls(tls) => write!(f, "ClientTls({:?})", tls.get_ref().0),
            #[cfg(feature = "impersonate")]
            IoInner::Impersonated(tls) => write!(f, "Impersonated({:?})", tls.get_ref()),
            IoInner::Prefixed(p) => write!(f, "Prefixed({} bytes, {:?})", p.bytes.len(), p.io),
            IoInner::Ahead(a) => a.io.fmt(f),
            IoInner::Other(_) => f.write_str("Other"),
            IoInner::Closed => f.write_str("Closed"),
        }
    }
}

impl AsyncRead for IoStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            IoInner::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            IoInner::ServerTls(s) => Pin::new(&mut **s).poll_read(cx, buf),
            IoInner::ClientTls(s) => Pin::new(&mut **s).poll_read(cx, buf),
            #[cfg(feature = "impersonate")]
            IoInner::Impersonated(s) => Pin::new(&mut **s).poll_read(cx, buf),
            IoInner::Ahead(a) => a.poll_read(cx, buf),
            IoInner::Other(s) => Pin::new(&mut **s).poll_read(cx, buf),
            // The end of the stream.
            IoInner::Closed => Poll::Ready(Ok(())),
            IoInner::Prefixed(p) => {
                // Only from the prefix: mixing in a read of the stream could block although bytes are there.
                let n = p.bytes.len().min(buf.remaining());
                buf.put_slice(&p.bytes[..n]);
                p.bytes.advance(n);
                if p.bytes.is_empty() {
                    // From here on reads go directly to the stream, and it may be recognised as plain TCP again.
                    *self = std::mem::replace(&mut p.io, Self::closed());
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Calls a method of the stream that is written to, by `&` or `&mut`; the last expression is for a closed one.
macro_rules! of_writer {
    ([$($by:tt)+] $stream:ident, $io:ident => $call:expr, $closed:expr) => {
        match $($by)+ $stream.0 {
            IoInner::Tcp($io) => $call,
            IoInner::ServerTls($io) => $call,
            IoInner::ClientTls($io) => $call,
            #[cfg(feature = "impersonate")]
            IoInner::Impersonated($io) => $call,
            IoInner::Other($io) => $call,
            IoInner::Prefixed(rewind) => {
                let $io = $($by)+ rewind.io;
                $call
            }
            IoInner::Ahead(ahead) => {
                let $io = $($by)+ ahead.io;
                $call
            }
            IoInner::Closed => $closed,
        }
    };
}

fn broken_pipe() -> Poll<io::Result<usize>> {
    Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
}

impl AsyncWrite for IoStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        of_writer!([&mut] self, io => Pin::new(io).poll_write(cx, buf), broken_pipe())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_writer!([&mut] self, io => Pin::new(io).poll_write_vectored(cx, bufs), broken_pipe())
    }

    fn is_write_vectored(&self) -> bool {
        of_writer!([&] self, io => io.is_write_vectored(), true)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_writer!([&mut] self, io => Pin::new(io).poll_flush(cx), Poll::Ready(Ok(())))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_writer!([&mut] self, io => Pin::new(io).poll_shutdown(cx), Poll::Ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn prefixed_bytes_precede_the_stream() {
        let (mut far, near) = tokio::io::duplex(64);
        let mut io = IoStream::other(near).prefixed(Bytes::from_static(b"cd")).prefixed(Bytes::from_static(b"ab"));
        far.write_all(b"ef").await.unwrap();
        far.shutdown().await.unwrap();
        let mut all = Vec::new();
        io.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"abcdef");
    }

    #[tokio::test]
    async fn bytes_read_ahead_precede_the_rest_and_the_end_is_reported() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let sent: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        far.write_all(&sent).await.unwrap();
        let mut io = IoStream::other(near).prefixed(Bytes::from_static(b"first")).read_ahead();
        let mut got = [0; 5];
        io.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"first");
        io.write_all(b"back").await.unwrap();
        far.read_exact(&mut got[..4]).await.unwrap();
        far.shutdown().await.unwrap();
        let mut all = Vec::new();
        let mut piece = [0; 777];
        while let n @ 1.. = io.read(&mut piece).await.unwrap() {
            all.extend_from_slice(&piece[..n]);
        }
        assert_eq!(all, sent);
        assert_eq!(io.read(&mut piece).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn into_tcp_returns_the_prefix() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let io = IoStream::from(tcp).prefixed(Bytes::from_static(b"x"));
        assert!(io.tcp_ref().is_some());
        let (_, prefix) = io.into_tcp().unwrap();
        assert_eq!(&prefix[..], b"x");
        let (_far, near) = tokio::io::duplex(1);
        assert!(IoStream::other(near).prefixed(Bytes::from_static(b"y")).into_tcp().is_err());
    }

    #[tokio::test]
    async fn closed_stream_reads_eof_and_refuses_writes() {
        let mut io = IoStream::closed();
        assert_eq!(io.read(&mut [0; 4]).await.unwrap(), 0);
        assert_eq!(io.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
