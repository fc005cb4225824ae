//! What a fresh connection speaks, told from its first bytes.

use std::time::Duration;

use interflow_flow::Result;
use interflow_wire::client_hello::{ClientHello, looks_like_tls};

use super::peek::{Peek, Stop};
use crate::io::Io;

/// What a connection speaks.
#[derive(Debug)]
pub enum Detected {
    /// HTTP/1, as far as a first line shows.
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113 3.4).
    Http2,
    /// TLS; here is its ClientHello.
    Tls(Box<ClientHello>),
    /// SOCKS5.
    Socks5,
    /// Something else, a broken ClientHello included.
    Other,
    /// Nothing came in time: a protocol in which the server speaks first.
    Silent,
    /// The client closed without a byte.
    Closed,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Methods after which nothing needs to be waited for; another word before a space is a method only if the line ends
/// as a request line does.
const METHODS: [&[u8]; 14] = [
    b"GET",
    b"POST",
    b"CONNECT",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"TRACE",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"REPORT",
    b"QUERY",
];

/// The longest first line that is waited for.
const LINE_MAX: usize = 8 * 1024;

/// Tells what the client speaks. The bytes are put back in front of the stream.
///
/// # Errors
/// The connection broke.
pub async fn detect(io: Io, timeout: Duration) -> Result<(Detected, Io)> {
    let mut peek = Peek::new(io, timeout);
    let detected = match peek.until(classify).await {
        Ok(detected) => detected,
        Err(Stop::Timeout) if peek.buf.is_empty() => Detected::Silent,
        Err(Stop::Ended) if peek.buf.is_empty() => Detected::Closed,
        // A slow beginning of a request: the HTTP driver has its own time for heads, and an answer.
        Err(Stop::Timeout | Stop::Ended) if peek.buf.iter().all(|&b| is_token_byte(b)) => Detected::Http1,
        Err(Stop::Timeout | Stop::Ended) => Detected::Other,
        Err(broken @ Stop::Broken(_)) => return Err(broken.in_the_middle_of("its first bytes")),
    };
    Ok((detected, peek.into_io()))
}

/// What the bytes are; `None` while that is open.
fn classify(buf: &[u8]) -> Option<Detected> {
    match buf.first()? {
        22 => classify_tls(buf),
        5 => Some(Detected::Socks5),
        _ if PREFACE.starts_with(buf.get(..PREFACE.len()).unwrap_or(buf)) => {
            (buf.len() >= PREFACE.len()).then_some(Detected::Http2)
        }
        b'\r' | b'\n' => classify_text(buf.trim_ascii_start(), buf.len()),
        _ => classify_text(buf, buf.len()),
    }
}

fn classify_tls(buf: &[u8]) -> Option<Detected> {
    match looks_like_tls(buf)? {
        false => Some(Detected::Other),
        true => match ClientHello::parse(buf) {
            Ok(Some(hello)) => Some(Detected::Tls(Box::new(hello))),
            Ok(None) => None,
            Err(_) => Some(Detected::Other),
        },
    }
}

/// `read` counts the empty lines before the text too.
fn classify_text(text: &[u8], read: usize) -> Option<Detected> {
    let word = text.iter().take_while(|&&b| is_token_byte(b)).count();
    match text.get(word) {
        None if read < LINE_MAX => None,
        Some(b' ') if METHODS.contains(&&text[..word]) => Some(Detected::Http1),
        Some(b' ') if word > 0 => {
            let line = match text.iter().position(|&b| b == b'\n') {
                Some(end) => &text[..end],
                None if read < LINE_MAX => return None,
                None => text,
            };
            let is_request = line.windows(6).any(|w| w == b" HTTP/");
            Some(if is_request { Detected::Http1 } else { Detected::Other })
        }
        _ => Some(Detected::Other),
    }
}

/// RFC 9110 5.6.2.
fn is_token_byte(b: u8) -> bool {
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

    async fn detected(bytes: &[u8], end: bool) -> (String, Vec<u8>) {
        let (mut client, far) = tokio::io::duplex(1 << 16);
        client.write_all(bytes).await.unwrap();
        if end {
            client.shutdown().await.unwrap();
        }
        let (detected, mut io) = detect(Io::other(far), Duration::from_secs(1)).await.unwrap();
        drop(client);
        let mut back = Vec::new();
        io.read_to_end(&mut back).await.unwrap();
        let name = match detected {
            Detected::Tls(hello) => format!("Tls {}", hello.server_name.unwrap().as_str()),
            other => format!("{other:?}"),
        };
        (name, back)
    }

    #[tokio::test(start_paused = true)]
    async fn first_bytes_tell_the_protocol_and_are_put_back() {
        let hello = hello();
        let mut broken = hello.clone();
        broken[43] = 200;
        for (bytes, want) in [
            (&b"GET / HTTP/1.1\r\n"[..], "Http1"),
            (b"\r\nPOST http://a/ HTTP/1.1\r\n", "Http1"),
            (b"x-custom /a HTTP/1.1\r\n", "Http1"),
            (b"CONNECT a:1 HTTP/1.1\r\n", "Http1"),
            (b"EHLO example.com\r\n", "Other"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "Other"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", "Http2"),
            (b"PRI * HTTP/2.0\r\n\r\nSMtp", "Http1"),
            (&[5, 1, 0], "Socks5"),
            (&[4, 1, 0, 80], "Other"),
            (&[0, 0, 0, 0], "Other"),
            (&hello, "Tls a.test"),
            (&broken, "Other"),
            (&[22, 9, 9], "Other"),
        ] {
            assert_eq!(detected(bytes, false).await, (want.to_owned(), bytes.to_vec()), "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_beginning_that_says_nothing_is_told_apart_by_silence() {
        for (bytes, end, want) in [
            (&b""[..], false, "Silent"),
            (b"", true, "Closed"),
            (b"GE", false, "Http1"),
            (&[22, 3], false, "Other"),
            (&hello()[..30], true, "Other"),
        ] {
            assert_eq!(detected(bytes, end).await.0, want, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hello_in_pieces_is_put_together() {
        let hello = hello();
        let (mut client, far) = tokio::io::duplex(1);
        let send = tokio::spawn(async move {
            client.write_all(&hello).await.unwrap();
            client
        });
        let (detected, _io) = detect(Io::other(far), Duration::from_secs(1)).await.unwrap();
        assert!(matches!(detected, Detected::Tls(_)), "{detected:?}");
        send.await.unwrap();
    }
}
