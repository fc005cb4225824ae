//! Upstream proxies: the client side of HTTP CONNECT and SOCKS5.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use interflow_codec::h1::{self, HeadLimits};
use interflow_types::{Authority, Error, ErrorKind, Host, ResponseHead, Retryable, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::io::IoStream;

/// The protocol of an upstream proxy: HTTP with CONNECT for tunnels (RFC 9110 9.3.6), the same over TLS, or SOCKS5 (RFC
/// 1928), where the proxy resolves names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProxyKind {
    Http,
    Https,
    Socks5,
}

impl ProxyKind {
    const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
        }
    }

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
        write!(f, "{}://{}", self.kind.scheme(), self.authority)
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let auth = if self.auth.is_some() { " with credentials" } else { "" };
        write!(f, "{self}{auth}")
    }
}

/// Requests a tunnel to `next` from the proxy at the other end of `io`; an HTTP proxy is sent the previous hops in
/// `Via`. For an HTTPS proxy, `io` already uses TLS.
///
/// # Errors
/// [`ErrorKind::UpstreamProxy`] with the proxy's name and its response.
pub(super) async fn open_tunnel(
    io: IoStream,
    proxy: &UpstreamProxy,
    next: &Authority,
    connect_via: Option<&str>,
) -> Result<IoStream, Error> {
    match proxy.kind {
        ProxyKind::Http | ProxyKind::Https => http_connect(io, proxy, next, connect_via).await,
        ProxyKind::Socks5 => socks5_connect(io, proxy, next).await,
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

/// A proxy's response to CONNECT needs few fields; more indicate an attack or a mistake.
fn connect_limits() -> HeadLimits {
    HeadLimits { max_bytes: 16 * 1024, ..HeadLimits::default() }
}

async fn http_connect(
    mut io: IoStream,
    proxy: &UpstreamProxy,
    next: &Authority,
    connect_via: Option<&str>,
) -> Result<IoStream, Error> {
    let mut head = format!("CONNECT {next} HTTP/1.1\r\nHost: {next}\r\n");
    if let Some(via) = connect_via {
        head.push_str("Via: ");
        head.push_str(via);
        head.push_str("\r\n");
    }
    if let Some(auth) = proxy.basic_auth() {
        head.push_str("Proxy-Authorization: ");
        head.push_str(&auth);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    let written = async {
        io.write_all(head.as_bytes()).await?;
        io.flush().await
    };
    written.await.map_err(|e| proxy_io_error(proxy, next, e))?;
    let mut buf = BytesMut::with_capacity(4096);
    loop {
        let (answer, used) = read_head(&mut io, &mut buf, proxy, next).await?;
        let _ = buf.split_to(used);
        let code = answer.status.as_u16();
        match code {
            100..=199 => {}
            // Whatever framing a 2xx has, the tunnel begins after its head (RFC 9110 9.3.6).
            200..=299 => return Ok(io.prefixed(buf.freeze())),
            _ => return Err(connect_refusal(proxy, next, &answer)),
        }
    }
}

async fn read_head(
    io: &mut IoStream,
    buf: &mut BytesMut,
    proxy: &UpstreamProxy,
    next: &Authority,
) -> Result<(ResponseHead, usize), Error> {
    let limits = connect_limits();
    loop {
        let parsed = h1::parse_response(buf, &limits).map_err(|e| {
            proxy_error(proxy, format_args!("answered something that is not HTTP when asked for {next}")).with_source(e)
        })?;
        if let Some(head) = parsed {
            return Ok(head);
        }
        if io.read_buf(buf).await.map_err(|e| proxy_io_error(proxy, next, e))? == 0 {
            return Err(proxy_io_error(proxy, next, std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

fn connect_refusal(proxy: &UpstreamProxy, next: &Authority, answer: &ResponseHead) -> Error {
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

mod socks {
    pub(super) const SOCKS_VERSION: u8 = 5;
    pub(super) const CMD_CONNECT: u8 = 1;
    pub(super) const METHOD_NO_AUTH: u8 = 0;
    pub(super) const METHOD_USER_PASS: u8 = 2;
    pub(super) const ATYP_IPV4: u8 = 1;
    pub(super) const ATYP_DOMAIN: u8 = 3;
    pub(super) const ATYP_IPV6: u8 = 4;
}

async fn socks5_connect(mut io: IoStream, proxy: &UpstreamProxy, next: &Authority) -> Result<IoStream, Error> {
    socks5_greet(&mut io, proxy, next).await?;
    let request =
        socks5_request(next).ok_or_else(|| proxy_error(proxy, format_args!("takes no name as long as {next}")))?;
    send(&mut io, &request).await.map_err(|e| proxy_io_error(proxy, next, e))?;
    let mut head = [0; 4];
    io.read_exact(&mut head).await.map_err(|e| proxy_io_error(proxy, next, e))?;
    let [version, reply, _, kind] = head;
    if version != socks::SOCKS_VERSION {
        return Err(not_socks(proxy, next));
    }
    if reply != 0 {
        return Err(proxy_error(proxy, format_args!("refused {next}: {}", socks5_reply(reply))));
    }
    // The bound address is of no use, but has to be read: the tunnel begins right after it (RFC 1928 6).
    let bound = match kind {
        socks::ATYP_IPV4 => 4,
        socks::ATYP_IPV6 => 16,
        socks::ATYP_DOMAIN => usize::from(io.read_u8().await.map_err(|e| proxy_io_error(proxy, next, e))?),
        _ => return Err(not_socks(proxy, next)),
    };
    let mut rest = [0; 255 + 2];
    io.read_exact(&mut rest[..bound + 2]).await.map_err(|e| proxy_io_error(proxy, next, e))?;
    Ok(io)
}

async fn send(io: &mut IoStream, bytes: &[u8]) -> std::io::Result<()> {
    io.write_all(bytes).await?;
    io.flush().await
}

fn not_socks(proxy: &UpstreamProxy, next: &Authority) -> Error {
    proxy_error(proxy, format_args!("answered something that is not SOCKS5 when asked for {next}"))
}

/// Negotiates the method, and sends the credentials if it requires them (RFC 1929).
async fn socks5_greet(io: &mut IoStream, proxy: &UpstreamProxy, next: &Authority) -> Result<(), Error> {
    let greeting: &[u8] = match proxy.auth {
        Some(_) => &[socks::SOCKS_VERSION, 2, socks::METHOD_NO_AUTH, socks::METHOD_USER_PASS],
        None => &[socks::SOCKS_VERSION, 1, socks::METHOD_NO_AUTH],
    };
    let mut answer = [0; 2];
    let exchanged = async {
        send(io, greeting).await?;
        io.read_exact(&mut answer).await
    };
    exchanged.await.map_err(|e| proxy_io_error(proxy, next, e))?;
    match (answer, &proxy.auth) {
        ([socks::SOCKS_VERSION, socks::METHOD_NO_AUTH], _) => Ok(()),
        ([socks::SOCKS_VERSION, socks::METHOD_USER_PASS], Some((user, pass))) => {
            let mut message = vec![1, user.len() as u8];
            message.extend_from_slice(user.as_bytes());
            message.push(pass.len() as u8);
            message.extend_from_slice(pass.as_bytes());
            let exchanged = async {
                send(io, &message).await?;
                io.read_exact(&mut answer).await
            };
            exchanged.await.map_err(|e| proxy_io_error(proxy, next, e))?;
            match answer[1] {
                0 => Ok(()),
                _ => Err(proxy_error(proxy, format_args!("does not accept the credentials in its URL"))),
            }
        }
        ([socks::SOCKS_VERSION, _], None) => {
            Err(proxy_error(proxy, format_args!("wants credentials (put user:password@ into its URL)")))
        }
        ([socks::SOCKS_VERSION, _], Some(_)) => Err(proxy_error(proxy, format_args!("takes no user and password"))),
        _ => Err(not_socks(proxy, next)),
    }
}

/// `None` for a name over 255 bytes.
fn socks5_request(next: &Authority) -> Option<Vec<u8>> {
    let mut request = vec![socks::SOCKS_VERSION, socks::CMD_CONNECT, 0];
    match &next.host {
        Host::Ip(IpAddr::V4(ip)) => {
            request.push(socks::ATYP_IPV4);
            request.extend_from_slice(&ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            request.push(socks::ATYP_IPV6);
            request.extend_from_slice(&ip.octets());
        }
        Host::Name(name) => {
            request.push(socks::ATYP_DOMAIN);
            request.push(u8::try_from(name.len()).ok()?);
            request.extend_from_slice(name.as_bytes());
        }
    }
    request.extend_from_slice(&next.port.to_be_bytes());
    Some(request)
}

/// The meaning of a reply code (RFC 1928 6).
fn socks5_reply(code: u8) -> String {
    match code {
        1 => "it failed in some general way",
        2 => "it does not allow this destination",
        3 => "the network cannot be reached",
        4 => "the host cannot be reached",
        5 => "the connection was refused",
        6 => "the connection took too long",
        7 => "it does not do CONNECT",
        8 => "it does not take this kind of address",
        other => return format!("reply code {other}"),
    }
    .to_owned()
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
