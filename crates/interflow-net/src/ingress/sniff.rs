//! Protocol detection: recognises what a new connection uses from its first bytes.
//!
//! Two errors must be balanced. Taking an inspected protocol for an unknown one would let it pass without inspection,
//! so a client must not achieve that by being slow or by malformed bytes. Waiting for more bytes of a protocol in which
//! the server speaks first would stall it, so bytes are awaited only as long as they can still become TLS or HTTP. On a
//! port for HTTP the first concern decides, in a tunnel the second.

use std::time::Duration;

use interflow_codec::client_hello::{ClientHello, looks_like_tls};
use interflow_types::{ByteStr, Result};

use super::peek::{PeekError, PeekReader};
use crate::io::IoStream;

/// The detected protocol. `Http1` is judged by the first line, `Http2` by the preface of prior knowledge (RFC 9113
/// 3.4), `Tls` has its parsed ClientHello. `Unknown` is anything else, including a malformed ClientHello.
#[derive(Debug)]
pub enum ClientProtocol {
    Http1,
    /// A CONNECT request to a proxy at the tunnel's end, with the authority that it names. Only detected in a tunnel.
    NestedConnect(ByteStr),
    Http2,
    Tls(Box<ClientHello>),
    Socks5,
    /// Only detected on a port for HTTP.
    Socks4,
    Unknown,
    /// No bytes arrived in time: a protocol in which the server speaks first.
    Timeout,
    /// The client closed without sending a byte.
    Closed,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Methods that are recognised at once; another token before a space is a method only if the line ends like a request
/// line.
const KNOWN_METHODS: &str =
    "GET POST CONNECT HEAD PUT DELETE OPTIONS PATCH TRACE PROPFIND PROPPATCH MKCOL REPORT QUERY";

/// Whether a token is one of these methods, or may become one.
fn is_known_method(token: &[u8], is_whole: bool) -> bool {
    KNOWN_METHODS.split(' ').any(|m| m.as_bytes().starts_with(token) && (m.len() == token.len() || !is_whole))
}

/// The longest first line that is awaited.
const MAX_LINE_BYTES: usize = 8 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct SniffTimeouts {
    /// Up to the first byte; after that the result is [`ClientProtocol::Timeout`].
    pub first: Duration,
    /// From the first byte to the end of a prefix that looks like TLS or HTTP, however slowly it arrives. An
    /// incomplete ClientHello ends the connection then.
    pub rest: Duration,
    pub place: SniffContext,
}

/// Where the connection was accepted, which decides how ambiguous bytes are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SniffContext {
    /// A port for HTTP: anything that could become a request line is treated as one.
    Port,
    /// A tunnel, which may carry any protocol: bytes of other protocols are not delayed.
    Tunnel,
}

/// Detects the client's protocol. The bytes are put back in front of the stream.
///
/// # Errors
/// The connection failed, or a ClientHello was not complete in time.
pub async fn sniff(io: IoStream, expect: SniffTimeouts) -> Result<(ClientProtocol, IoStream)> {
    let position = expect.place;
    let mut peek = PeekReader::new(io, expect.first);
    // The first bytes determine the deadline for the rest, which slow arrival does not extend.
    // One read is enough for most protocols.
    let begun = peek.read_until(|buf| Some(classify(buf, position))).await;
    let found = match begun {
        Ok(Some(detected)) => Ok(detected),
        // Not waiting here keeps the two head timeouts from adding up.
        Ok(None)
            if position == SniffContext::Port && may_be_request(&peek.buf, position) && !may_be_preface(&peek.buf) =>
        {
            // The HTTP/1 driver has its own timeout for heads, and sends an error response.
            Ok(ClientProtocol::Http1)
        }
        Ok(None) => {
            // Only candidates get the longer time; anything else is passed on soon.
            if needs_more_bytes(&peek.buf, position) {
                peek.extend_deadline(expect.rest);
            }
            let mut classified = peek.read_until(|buf| classify(buf, position)).await;
            // What began like another protocol may have become a candidate meanwhile.
            if matches!(classified, Err(PeekError::Timeout)) && !peek.extended && needs_more_bytes(&peek.buf, position)
            {
                peek.extend_deadline(expect.rest);
                classified = peek.read_until(|buf| classify(buf, position)).await;
            }
            classified
        }
        Err(stop) => Err(stop),
    };
    let detected = match found {
        Ok(detected) => detected,
        Err(PeekError::Timeout) if peek.buf.is_empty() => ClientProtocol::Timeout,
        Err(PeekError::Ended) if peek.buf.is_empty() => ClientProtocol::Closed,
        // A slow request line: the HTTP driver has its own timeout for heads, and sends an error response.
        Err(PeekError::Timeout | PeekError::Ended) if may_be_request(&peek.buf, position) => ClientProtocol::Http1,
        // An incomplete ClientHello or HTTP/2 preface: being slow must not bypass inspection.
        Err(slow @ PeekError::Timeout) if needs_more_bytes(&peek.buf, position) => {
            return Err(slow.into_error("its first bytes"));
        }
        Err(PeekError::Timeout | PeekError::Ended) => ClientProtocol::Unknown,
        Err(broken @ PeekError::Broken(_)) => return Err(broken.into_error("its first bytes")),
    };
    Ok((detected, peek.into_io()))
}

/// Whether the bytes may become the HTTP/2 connection preface.
fn may_be_preface(buf: &[u8]) -> bool {
    PREFACE.starts_with(buf)
}

/// Whether the bytes are a prefix of TLS or HTTP, so that being slow does not bypass inspection.
fn needs_more_bytes(buf: &[u8], place: SniffContext) -> bool {
    match buf.first() {
        None => false,
        // 22 is the content type of a handshake record (RFC 8446 5.1).
        Some(22) => looks_like_tls(buf) != Some(false),
        Some(_) => may_be_preface(buf) || may_be_request(buf, place),
    }
}

/// Whether bytes that are not a complete request line may become one.
fn may_be_request(buf: &[u8], place: SniffContext) -> bool {
    let text = after_space(buf);
    let token = text.iter().take_while(|&&b| is_token_byte(b)).count();
    match place {
        SniffContext::Port => token == text.len(),
        SniffContext::Tunnel => {
            // On a port, any token at the start may be a method.
            let (method, rest) = text.split_at(token);
            match rest.first() {
                None => is_known_method(method, false),
                Some(b' ') => token > 0 && method.iter().all(u8::is_ascii_uppercase),
                Some(next) => is_space(next) && is_known_method(method, true),
            }
        }
    }
}

/// Classifies the bytes; `None` if more are needed.
fn classify(buf: &[u8], place: SniffContext) -> Option<ClientProtocol> {
    match buf.first()? {
        22 => classify_tls(buf),
        // 5 is the version of SOCKS5 (RFC 1928 3).
        5 => Some(ClientProtocol::Socks5),
        // No request of HTTP begins with this byte.
        4 if place == SniffContext::Port => Some(ClientProtocol::Socks4),
        // Before the methods, because `PRI` looks like one.
        _ if PREFACE.starts_with(buf.get(..PREFACE.len()).unwrap_or(buf)) => {
            (buf.len() >= PREFACE.len()).then_some(ClientProtocol::Http2)
        }
        // RFC 9112 2.2: servers ignore empty lines before the request line, and lenient ones any white space.
        _ => classify_text(after_space(buf), buf.len(), place),
    }
}

fn classify_tls(buf: &[u8]) -> Option<ClientProtocol> {
    match looks_like_tls(buf)? {
        false => Some(ClientProtocol::Unknown),
        true => match ClientHello::parse(buf) {
            Ok(Some(hello)) => Some(ClientProtocol::Tls(Box::new(hello))),
            Ok(None) => None,
            // Malformed TLS is not intercepted, and not guessed at.
            Err(_) => Some(ClientProtocol::Unknown),
        },
    }
}

/// `read` also counts the white space before the text.
fn classify_text(text: &[u8], read: usize, place: SniffContext) -> Option<ClientProtocol> {
    let token = text.iter().take_while(|&&b| is_token_byte(b)).count();
    let is_known = is_known_method(&text[..token], true);
    match text.get(token) {
        // What follows so much white space may still be a request. A token of this length is not a method of any server.
        None if read >= MAX_LINE_BYTES => {
            Some(if text.is_empty() { ClientProtocol::Http1 } else { ClientProtocol::Unknown })
        }
        // Methods are upper case, and a protocol whose client says `ping` must not be delayed until a line end.
        None if place == SniffContext::Tunnel && !text.iter().all(|b| b.is_ascii_uppercase() || *b == b'-') => {
            Some(ClientProtocol::Unknown)
        }
        None => None,
        // Only in a tunnel can it be meant for another proxy.
        Some(b' ') if place == SniffContext::Tunnel && text.starts_with(b"CONNECT ") => {
            classify_connect(&text[token + 1..], read)
        }
        Some(b' ' | b'\t') if is_known => Some(ClientProtocol::Http1),
        Some(next) if token > 0 => {
            let line = match text.iter().position(|&b| b == b'\n') {
                Some(end) => &text[..end],
                // The line may still end with a version.
                None if is_space(next) => return (read >= MAX_LINE_BYTES).then_some(ClientProtocol::Http1),
                None => text,
            };
            // However malformed the line is, if a server could take it for a request, it must be inspected.
            let is_request = line.windows(5).any(|w| w.eq_ignore_ascii_case(b"HTTP/"));
            Some(if is_request { ClientProtocol::Http1 } else { ClientProtocol::Unknown })
        }
        Some(_) => Some(ClientProtocol::Unknown),
    }
}

/// A CONNECT request, by what follows its method.
fn classify_connect(rest: &[u8], read: usize) -> Option<ClientProtocol> {
    match rest.iter().position(|b| matches!(b, b' ' | b'\n')) {
        Some(end) => Some(ClientProtocol::NestedConnect(String::from_utf8_lossy(&rest[..end]).into_owned().into())),
        // The authority may not be complete yet.
        None => (read >= MAX_LINE_BYTES).then_some(ClientProtocol::Http1),
    }
}

/// What a lenient server may take for the white space of a request line.
const fn is_space(b: &u8) -> bool {
    matches!(b, b'\t'..=b'\r' | b' ')
}

fn after_space(buf: &[u8]) -> &[u8] {
    buf.get(buf.iter().take_while(|b| is_space(b)).count()..).unwrap_or_default()
}

fn is_token_byte(b: u8) -> bool {
    // RFC 9110 5.6.2.
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A ClientHello with a server name and nothing else.
    fn hello() -> Vec<u8> {
        let name = b"a.test";
        let n = name.len() as u8;
        let sni = [&[0, 0, 0, n + 5, 0, n + 3, 0, 0, n][..], name].concat();
        let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, sni.len() as u8], &sni].concat();
        let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
        [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
    }

    fn expect(place: SniffContext) -> SniffTimeouts {
        SniffTimeouts { first: Duration::from_secs(1), rest: Duration::from_secs(5), place }
    }

    async fn detected(bytes: &[u8], end: bool, place: SniffContext) -> (String, Vec<u8>) {
        let (mut client, far) = tokio::io::duplex(1 << 16);
        client.write_all(bytes).await.unwrap();
        if end {
            client.shutdown().await.unwrap();
        }
        let (detected, mut io) = sniff(IoStream::other(far), expect(place)).await.unwrap();
        drop(client);
        let mut back = Vec::new();
        io.read_to_end(&mut back).await.unwrap();
        let name = match detected {
            ClientProtocol::Tls(hello) => format!("Tls {}", hello.server_name.unwrap().as_str()),
            other => format!("{other:?}"),
        };
        (name, back)
    }

    #[tokio::test(start_paused = true)]
    async fn protocol_is_sniffed_from_the_first_bytes_and_they_are_replayed() {
        let hello = hello();
        let mut broken = hello.clone();
        broken[43] = 200;
        for (bytes, want) in [
            (&b"GET / HTTP/1.1\r\n"[..], "Http1"),
            (b"\r\nPOST /a HTTP/1.1\r\n", "Http1"),
            (b"x-custom /a HTTP/1.1\r\n", "Http1"),
            (b"EHLO example.com\r\n", "Unknown"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "Unknown"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", "Http2"),
            (b"PRI * HTTP/2.0\r\n\r\nSMtp", "Http1"),
            (&[5, 1, 0], "Socks5"),
            (&[0, 0, 0, 0], "Unknown"),
            (&hello, "Tls a.test"),
            (&broken, "Unknown"),
            (&[22, 9, 9], "Unknown"),
            (b"GET\t/ HTTP/1.1\r\n", "Http1"),
            (b"GET\x0b/ HTTP/1.1\r\n", "Http1"),
            (b"get / http/1.1\r\n", "Http1"),
            (b" GET /admin HTTP/1.1\r\n", "Http1"),
            (b"\t \x0b\x0c\r\nPOST /a HTTP/1.1\r\n", "Http1"),
            (&[b' '; MAX_LINE_BYTES], "Http1"),
            (&[b"FOO /", &[b'a'; MAX_LINE_BYTES][..]].concat(), "Http1"),
            (b" \x00\x01", "Unknown"),
        ] {
            for place in [SniffContext::Port, SniffContext::Tunnel] {
                assert_eq!(detected(bytes, false, place).await, (want.to_owned(), bytes.to_vec()), "{bytes:?}");
            }
        }
        // The protocol of a tunnel is not judged by one byte.
        for (place, want) in [(SniffContext::Port, "Socks4"), (SniffContext::Tunnel, "Unknown")] {
            assert_eq!(detected(&[4, 1, 0, 80], false, place).await.0, want);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_ambiguous_prefix_is_decided_by_timeout() {
        for (bytes, end, port, tunnel) in [
            (&b""[..], false, "Timeout", "Timeout"),
            (b"", true, "Closed", "Closed"),
            (b"GE", false, "Http1", "Http1"),
            (b"QUIT", false, "Http1", "Unknown"),
            (b"ping", true, "Http1", "Unknown"),
            (&hello()[..30], true, "Unknown", "Unknown"),
        ] {
            assert_eq!(detected(bytes, end, SniffContext::Port).await.0, port, "{bytes:?}");
            assert_eq!(detected(bytes, end, SniffContext::Tunnel).await.0, tunnel, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_client_hello_times_out_however_slowly_it_arrives() {
        for place in [SniffContext::Port, SniffContext::Tunnel] {
            for drips in [false, true] {
                let (mut client, far) = tokio::io::duplex(1024);
                let hello = hello();
                tokio::spawn(async move {
                    for byte in &hello[..hello.len() - 1] {
                        if client.write_all(&[*byte]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(if drips { 900 } else { 0 })).await;
                    }
                    std::future::pending::<()>().await;
                });
                let begun = tokio::time::Instant::now();
                // The long timeout for the first byte no longer applies.
                let expect = SniffTimeouts { first: Duration::from_secs(185), ..expect(place) };
                let error = sniff(IoStream::other(far), expect).await.unwrap_err();
                assert_eq!(error.kind(), interflow_types::ErrorKind::ClientTimeout);
                assert_eq!(begun.elapsed().as_secs(), 5, "{place:?}, {drips}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_proxy_are_detected_in_a_tunnel() {
        for (bytes, tunnel) in [
            (&b"CONNECT a:1 HTTP/1.1\r\n"[..], "NestedConnect(\"a:1\")"),
            (b"GET http://a.test/x HTTP/1.1\r\n", "Http1"),
            (b"GET http://[::1]:8080?q HTTP/1.1\r\n", "Http1"),
            (b"GET /http://a/ HTTP/1.1\r\n", "Http1"),
            (b"OPTIONS * HTTP/1.1\r\n", "Http1"),
            (b"GET ht", "Http1"),
        ] {
            assert_eq!(detected(bytes, true, SniffContext::Tunnel).await.0, tunnel, "{bytes:?}");
            assert_eq!(detected(bytes, true, SniffContext::Port).await.0, "Http1", "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_another_protocol_are_not_delayed_in_a_tunnel() {
        let (mut client, far) = tokio::io::duplex(64);
        client.write_all(b"ping-1").await.unwrap();
        let begun = tokio::time::Instant::now();
        let (detected, _io) = sniff(IoStream::other(far), expect(SniffContext::Tunnel)).await.unwrap();
        assert!(matches!(detected, ClientProtocol::Unknown) && begun.elapsed().is_zero(), "{detected:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn being_slow_does_not_bypass_inspection() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for (bytes, at, want) in [
            (&hello()[..], 3, "Tls"),
            (b"GET / HTTP/1.1\r\n", 3, "Http1"),
            (b" GET / HTTP/1.1\r\n", 1, "Http1"),
            (b"GET\x0b/ HTTP/1.1\r\n", 4, "Http1"),
            (b"FOO / HTTP/1.1\r\n", 4, "Http1"),
            (preface, 3, "Http2"),
        ] {
            let (mut client, far) = tokio::io::duplex(1024);
            let (first, rest) = (bytes[..at].to_vec(), bytes[at..].to_vec());
            tokio::spawn(async move {
                client.write_all(&first).await.unwrap();
                tokio::time::sleep(Duration::from_secs(3)).await;
                client.write_all(&rest).await.unwrap();
                std::future::pending::<()>().await;
            });
            let (detected, _io) = sniff(IoStream::other(far), expect(SniffContext::Tunnel)).await.unwrap();
            assert!(format!("{detected:?}").starts_with(want), "{detected:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fragmented_client_hello_is_reassembled() {
        let hello = hello();
        let (mut client, far) = tokio::io::duplex(1);
        let send = tokio::spawn(async move {
            client.write_all(&hello).await.unwrap();
            client
        });
        let (detected, _io) = sniff(IoStream::other(far), expect(SniffContext::Tunnel)).await.unwrap();
        assert!(matches!(detected, ClientProtocol::Tls(_)), "{detected:?}");
        send.await.unwrap();
    }
}
