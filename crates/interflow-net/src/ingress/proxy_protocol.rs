//! Reads the PROXY protocol header that a load balancer sends.

use std::time::Duration;

use interflow_codec::proxy_protocol::{ProxyHeader, parse};
use interflow_types::{Error, ErrorKind, Result};

use super::peek::PeekReader;
use crate::io::IoStream;

/// Reads the header that a trusted load balancer sends at the start of a connection, version 1 or 2. `None`: the
/// sender speaks for itself, and the connection's own addresses apply.
///
/// # Errors
/// A connection without a valid header. It must be closed: guessing would let clients choose an address.
pub async fn read_proxy_header(io: IoStream, timeout: Duration) -> Result<(Option<ProxyHeader>, IoStream)> {
    let mut peek = PeekReader::new(io, timeout);
    let header = peek
        .read_message(parse)
        .await
        .map_err(|stop| stop.into_error("its PROXY protocol header"))?
        .map_err(|e| Error::new(ErrorKind::BadRequest, e.to_string()))?;
    Ok((header, peek.into_io()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn proxy_header_is_consumed_and_the_following_bytes_are_kept() {
        for (bytes, source, rest) in [
            (&b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\nGET"[..], Some("1.2.3.4:9"), "GET"),
            (b"PROXY UNKNOWN\r\nGET", None, "GET"),
        ] {
            let (mut client, far) = tokio::io::duplex(7);
            let send = tokio::spawn(async move { client.write_all(bytes).await.unwrap() });
            let (header, mut io) = read_proxy_header(IoStream::other(far), Duration::from_secs(1)).await.unwrap();
            assert_eq!(header.map(|h| h.source.to_string()).as_deref(), source);
            let mut left = String::new();
            io.read_to_string(&mut left).await.unwrap();
            assert_eq!(left, rest);
            send.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_complete_header_is_refused() {
        for (bytes, kind) in
            [(&b"GET / HTTP/1.1\r\n\r\n"[..], ErrorKind::BadRequest), (b"PROXY TCP4 1.2.3.4", ErrorKind::ClientTimeout)]
        {
            let (mut client, far) = tokio::io::duplex(64);
            client.write_all(bytes).await.unwrap();
            let error = read_proxy_header(IoStream::other(far), Duration::from_secs(1)).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
