//! Upstream proxies: the client side of HTTP CONNECT and SOCKS5.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use interflow_codec::h1::{self, HeadLimits};
use interflow_codec::socks5::{self, AuthMethod, SocksError, SocksParseResult, SocksReply};
use interflow_types::{Authority, Error, ErrorKind, ResponseHead, Retryable, StatusCode, labelled_enum};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::io::IoStream;

labelled_enum! {
    /// The protocol of an upstream proxy: HTTP with CONNECT for tunnels (RFC 9110 9.3.6), the same over TLS, or SOCKS5 (RFC
    /// 1928), where the proxy resolves names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum ProxyKind {
        Http "http",
        Https "https",
        Socks5 "socks5",
    }
}

impl ProxyKind {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 => 1080,
        }
    }
}

/// An upstream proxy. Part of the pool key, so proxies that differ in anything share no connection.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamProxy {
    pub kind: ProxyKind,
    pub authority: Authority,
    /// Username and password, if it requires them.
    pub auth: Option<(String, String)>,
}

impl UpstreamProxy {
    /// The value of `Proxy-Authorization`, if there are credentials (RFC 7617).
    pub fn basic_auth(&self) -> Option<String> {
        let (user, pass) = self.auth.as_ref()?;
        Some(format!("Basic {}", STANDARD.encode(format!("{user}:{pass}"))))
    }
}

impl FromStr for UpstreamProxy {
    type Err = Error;

    /// Parses `http://host:port`, `https://…` or `socks5://…` (`socks5h` and `socks` are equivalent), with
    /// percent-encoded `user:password@` before the host if credentials are required.
    fn from_str(url: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            // The text may contain a password, so it is not repeated.
            let message =
                format!("an upstream proxy's URL is wrong: {why}; write it as http://user:password@host:port");
            Error::new(ErrorKind::UpstreamProxy, message).with_error_source(interflow_types::ErrorSource::Config)
        };
        // Everything after `://` up to the last `@` is user information.
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let kind = match scheme.to_ascii_lowercase().as_str() {
            "http" => ProxyKind::Http,
            "https" => ProxyKind::Https,
            "socks5" | "socks5h" | "socks" => ProxyKind::Socks5,
            _ => return Err(wrong("its scheme is not http, https or socks5")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // The last `@`, because passwords are often pasted without encoding one of their own.
        let (user_info, host) = rest.rsplit_once('@').map_or((None, rest), |(u, h)| (Some(u), h));
        let authority = Authority::parse(host, Some(kind.default_port())).map_err(|e| wrong(&e.to_string()))?;
        let auth = user_info.map(credentials).transpose().map_err(wrong)?;
        // RFC 1929 2: both lengths are single octets.
        if kind == ProxyKind::Socks5 && auth.as_ref().is_some_and(|(u, p)| u.len() > 255 || p.len() > 255) {
            return Err(wrong("SOCKS5 takes at most 255 bytes of user and of password"));
        }
        Ok(Self { kind, authority, auth })
    }
}

fn credentials(text: &str) -> Result<(String, String), &'static str> {
    // A user name alone is accepted, as curl does.
    let (user, pass) = text.split_once(':').unwrap_or((text, ""));
    let decode = |s: &str| {
        let decoded = percent_decode_str(s).decode_utf8().map_err(|_| "its credentials are not UTF-8")?;
        if decoded.chars().any(char::is_control) {
            return Err("its credentials hold a control character");
        }
        Ok(decoded.into_owned())
    };
    let (user, pass) = (decode(user)?, decode(pass)?);
    // RFC 7617 2: the first colon separates, so a user name cannot contain one.
    if user.is_empty() || user.contains(':') {
        return Err("its user name is empty or holds a colon");
    }
    Ok((user, pass))
}

impl fmt::Display for UpstreamProxy {
    /// Without credentials, so that it can be used in messages and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.kind.as_str(), self.authority)
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let auth = if self.auth.is_some() { " with credentials" } else { "" };
        write!(f, "{self}{auth}")
    }
}

fn proxy_error(proxy: &UpstreamProxy, what: fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::UpstreamProxy, format!("the upstream proxy {proxy} {what}"))
}

fn proxy_io_error(proxy: &UpstreamProxy, next: &Authority, error: std::io::Error) -> Error {
    let what = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "closed the connection",
        _ => "broke off",
    };
    proxy_error(proxy, format_args!("{what} when asked for {next}")).with_source(error).with_retryable(Retryable::Yes)
}

/// Requests a tunnel to `next` from the HTTP proxy at the other end of `io`, which is sent the previous hops in `Via`. For an
/// HTTPS proxy, `io` already uses TLS.
///
/// # Errors
/// [`ErrorKind::UpstreamProxy`] with the proxy's name and its response.
pub(super) async fn http_connect(
    mut io: IoStream,
    proxy: &UpstreamProxy,
    next: &Authority,
    connect_via: Option<&str>,
) -> Result<IoStream, Error> {
    let mut head = format!("CONNECT {next} HTTP/1.1\r\nHost: {next}\r\n");
    if let Some(via) = connect_via {
        let _ = write!(head, "Via: {via}\r\n");
    }
    if let Some(auth) = proxy.basic_auth() {
        let _ = write!(head, "Proxy-Authorization: {auth}\r\n");
    }
    head.push_str("\r\n");
    let written = async {
        io.write_all(head.as_bytes()).await?;
        io.flush().await
    };
    written.await.map_err(|e| proxy_io_error(proxy, next, e))?;
    // A proxy's response to CONNECT needs few fields; more indicate an attack or a mistake.
    let limits = HeadLimits { max_bytes: 16 * 1024, ..HeadLimits::default() };
    // Also holds what follows the response: the origin may speak first in the tunnel.
    let mut buf = BytesMut::with_capacity(4096);
    loop {
        let answer: ResponseHead = read_message(&mut io, &mut buf, |b| h1::parse_response(b, &limits))
            .await
            .map_err(|e| e.into_error(proxy, next, "HTTP"))?;
        match answer.status.as_u16() {
            100..=199 => {}
            // Whatever framing a 2xx has, the tunnel begins after its head (RFC 9110 9.3.6).
            200..=299 => return Ok(io.prefixed(buf.freeze())),
            _ => return Err(connect_refusal(proxy, next, &answer)),
        }
    }
}

/// Why a proxy's message could not be read.
enum ReadFailure<E> {
    Io(std::io::Error),
    Invalid(E),
}

impl<E: std::error::Error + Send + Sync + 'static> ReadFailure<E> {
    fn into_error(self, proxy: &UpstreamProxy, next: &Authority, protocol: &str) -> Error {
        match self {
            Self::Io(e) => proxy_io_error(proxy, next, e),
            Self::Invalid(e) => {
                let what = format_args!("answered something that is not {protocol} when asked for {next}");
                proxy_error(proxy, what).with_source(e)
            }
        }
    }
}

/// Reads one message. What follows it stays in `buf`: the tunnel's first bytes may arrive with the proxy's response.
async fn read_message<T, E>(
    io: &mut IoStream,
    buf: &mut BytesMut,
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
) -> Result<T, ReadFailure<E>> {
    loop {
        // Parsed again from the start with each read: these messages are short.
        if let Some((message, used)) = parse(buf).map_err(ReadFailure::Invalid)? {
            let _ = buf.split_to(used);
            return Ok(message);
        }
        if io.read_buf(buf).await.map_err(ReadFailure::Io)? == 0 {
            return Err(ReadFailure::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

pub(super) fn connect_refusal(proxy: &UpstreamProxy, next: &Authority, answer: &ResponseHead) -> Error {
    let status = answer.status;
    if status == StatusCode::LOOP_DETECTED {
        let text =
            format!("the upstream proxy {proxy} found that the way to {next} leads through the same proxies again");
        return Error::new(ErrorKind::Loop, text);
    }
    let hint = match (status.as_u16(), proxy.auth.is_some()) {
        (407, false) => ": it wants credentials (put user:password@ into its URL)",
        (407, true) => ": it does not accept the credentials in its URL",
        (403, _) => ": it does not allow this destination",
        (405 | 501, _) => ": it does not do CONNECT",
        (502..=504, _) => ": it could not reach the destination",
        _ => "",
    };
    proxy_error(proxy, format_args!("answered {status} when asked for {next}{hint}"))
}

/// As [`http_connect`], from a SOCKS5 proxy.
pub(super) async fn socks5_connect(
    mut io: IoStream,
    proxy: &UpstreamProxy,
    next: &Authority,
) -> Result<IoStream, Error> {
    // The longest message of SOCKS5 has some 260 bytes.
    let mut buf = BytesMut::with_capacity(512);
    let mut exchange = Socks5Exchange { io: &mut io, buf: &mut buf, proxy, next };
    exchange.authenticate().await?;
    exchange.request().await?;
    Ok(io.prefixed(buf.freeze()))
}

/// The client's side of a SOCKS5 negotiation.
struct Socks5Exchange<'a> {
    io: &'a mut IoStream,
    buf: &'a mut BytesMut,
    proxy: &'a UpstreamProxy,
    next: &'a Authority,
}

impl Socks5Exchange<'_> {
    /// Negotiates the method, and sends the credentials if the proxy requires them (RFC 1929).
    async fn authenticate(&mut self) -> Result<(), Error> {
        let auth = self.proxy.auth.as_ref();
        let mut out = Vec::with_capacity(4);
        socks5::write_method_offer(&mut out, auth.is_some());
        self.send(&out).await?;
        let method = match self.receive(|b| socks5::parse_method_selection(b, auth.is_some())).await {
            Err(ReadFailure::Invalid(SocksError::NoMethod)) if auth.is_some() => {
                return Err(proxy_error(self.proxy, format_args!("takes no user and password")));
            }
            Err(ReadFailure::Invalid(SocksError::NoMethod)) => {
                let what = format_args!("wants credentials (put user:password@ into its URL)");
                return Err(proxy_error(self.proxy, what));
            }
            method => self.understood(method)?,
        };
        // Without credentials, or if the proxy does not ask for them, the negotiation is over.
        let (AuthMethod::Password, Some((user, password))) = (method, auth) else { return Ok(()) };
        let mut out = Vec::with_capacity(3 + user.len() + password.len());
        socks5::write_credentials(&mut out, user.as_bytes(), password.as_bytes())
            .map_err(|e| proxy_error(self.proxy, format_args!("cannot be sent its credentials")).with_source(e))?;
        self.send(&out).await?;
        let welcome = self.receive(socks5::parse_auth_status).await;
        match self.understood(welcome)? {
            true => Ok(()),
            false => Err(proxy_error(self.proxy, format_args!("does not accept the credentials in its URL"))),
        }
    }

    async fn request(&mut self) -> Result<(), Error> {
        let Self { proxy, next, .. } = *self;
        let mut out = Vec::with_capacity(32);
        socks5::write_connect(&mut out, next)
            .map_err(|e| proxy_error(proxy, format_args!("cannot be asked for {next}")).with_source(e))?;
        self.send(&out).await?;
        let reply = self.receive(socks5::parse_reply).await;
        match self.understood(reply)? {
            SocksReply::Succeeded => Ok(()),
            refused => Err(proxy_error(proxy, format_args!("refused {next}: {}", refused.as_str()))),
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let sent = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        sent.await.map_err(|e| proxy_io_error(self.proxy, self.next, e))
    }

    async fn receive<T>(&mut self, parse: impl Fn(&[u8]) -> SocksParseResult<T>) -> Result<T, ReadFailure<SocksError>> {
        read_message(self.io, self.buf, parse).await
    }

    fn understood<T>(&self, message: Result<T, ReadFailure<SocksError>>) -> Result<T, Error> {
        message.map_err(|e| e.into_error(self.proxy, self.next, "SOCKS5"))
    }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
