//! Opens the generator's connections: TCP, then the proxy's handshake, then TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use interflow_testkit::client::socks5_request;
use interflow_testkit::{ProxyLogin, danger_client};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;
use crate::load::spec::{Certificate, Spec, Version, Via};

/// A connection ready for requests.
pub trait Io: AsyncRead + AsyncWrite + Unpin {
    /// When it is dropped, the peer shall see a reset.
    ///
    /// # Errors
    /// When the socket does not take the option.
    fn reset_on_close(&self) -> io::Result<()>;
}

impl Io for TcpStream {
    fn reset_on_close(&self) -> io::Result<()> {
        self.set_zero_linger()
    }
}

impl Io for tokio_rustls::client::TlsStream<TcpStream> {
    fn reset_on_close(&self) -> io::Result<()> {
        self.get_ref().0.reset_on_close()
    }
}

#[cfg(test)]
impl Io for tokio::io::DuplexStream {
    fn reset_on_close(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The TLS side of a run: how to shake hands, and whose certificate must be seen.
pub struct Tls {
    config: Arc<rustls::ClientConfig>,
    origin: Option<(CertificateDer<'static>, bool)>,
}

impl Tls {
    /// Prepares it; reads the origin's certificate when the spec names one.
    ///
    /// # Errors
    /// When that file cannot be read.
    pub fn new(spec: &Spec) -> Result<Self> {
        let alpn: &[&str] = if spec.version == Version::H1 { &["http/1.1"] } else { &["h2"] };
        let mut config = danger_client(alpn);
        if !spec.resume_tls {
            config.resumption = rustls::client::Resumption::disabled();
        }
        let origin = match &spec.certificate {
            None => None,
            Some(Certificate::Origin(path)) => Some((CertificateDer::from_pem_file(path)?, true)),
            Some(Certificate::NotOrigin(path)) => Some((CertificateDer::from_pem_file(path)?, false)),
        };
        Ok(Self { config: Arc::new(config), origin })
    }

    fn check(&self, shown: Option<&[CertificateDer<'_>]>) -> io::Result<()> {
        let Some((origin, wanted)) = &self.origin else { return Ok(()) };
        match shown.and_then(<[_]>::first).is_some_and(|c| c == origin) {
            same if same == *wanted => Ok(()),
            true => Err(io::Error::other("not intercepted: the origin's own certificate came through")),
            false => Err(io::Error::other("intercepted: another certificate than the origin's came")),
        }
    }
}

/// Connects for requests to `authority`.
pub async fn open(spec: &Spec, tls: &Tls, authority: &str) -> io::Result<Box<dyn Io>> {
    let (host, port) = split(authority)?;
    let first = match spec.via {
        Via::Direct => SocketAddr::new(host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port),
        Via::Reverse(addr) | Via::Absolute(addr) | Via::Connect(addr) | Via::Socks5(addr) => addr,
    };
    let mut tcp = TcpStream::connect(first).await?;
    tcp.set_nodelay(true)?;
    match spec.via {
        Via::Connect(_) => connect(&mut tcp, spec, authority).await?,
        Via::Socks5(_) => socks5(&mut tcp, spec, host, port).await?,
        Via::Direct | Via::Reverse(_) | Via::Absolute(_) => {}
    }
    if !spec.tls || matches!(spec.via, Via::Absolute(_)) {
        return Ok(Box::new(tcp));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = tokio_rustls::TlsConnector::from(tls.config.clone()).connect(name, tcp).await?;
    tls.check(stream.get_ref().1.peer_certificates())?;
    Ok(Box::new(stream))
}

/// The value of `Proxy-Authorization`, when the run has a login.
pub fn authorization(spec: &Spec) -> Option<String> {
    spec.login.as_ref().map(|(user, password)| ProxyLogin { user, password }.basic())
}

fn split(authority: &str) -> io::Result<(&str, u16)> {
    authority
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)))
        .ok_or_else(|| io::Error::other(format!("{authority:?} is not host:port")))
}

async fn connect(tcp: &mut TcpStream, spec: &Spec, authority: &str) -> io::Result<()> {
    let auth = authorization(spec).map(|a| format!("Proxy-Authorization: {a}\r\n")).unwrap_or_default();
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{auth}\r\n");
    tcp.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() > 8192 || tcp.read_buf(&mut answer).await? == 0 {
            return Err(io::Error::other("the proxy ended before it answered CONNECT"));
        }
    }
    match answer.get(9..12) {
        Some(b"200") => Ok(()),
        _ => Err(io::Error::other(format!("CONNECT: {}", String::from_utf8_lossy(&answer)))),
    }
}

async fn socks5(tcp: &mut TcpStream, spec: &Spec, host: &str, port: u16) -> io::Result<()> {
    let method = if spec.login.is_some() { 2 } else { 0 };
    tcp.write_all(&[5, 1, method]).await?;
    let mut chosen = [0; 2];
    tcp.read_exact(&mut chosen).await?;
    if chosen != [5, method] {
        return Err(io::Error::other(format!("SOCKS5 method answer {chosen:?}")));
    }
    if let Some((user, password)) = &spec.login {
        let lengths = (user.len() as u8, password.len() as u8);
        let login = [&[1, lengths.0], user.as_bytes(), &[lengths.1], password.as_bytes()].concat();
        tcp.write_all(&login).await?;
        tcp.read_exact(&mut chosen).await?;
        if chosen[1] != 0 {
            return Err(io::Error::other("SOCKS5: the login was refused"));
        }
    }
    tcp.write_all(&socks5_request(host, port)).await?;
    let mut head = [0; 5];
    tcp.read_exact(&mut head).await?;
    if head[1] != 0 {
        return Err(io::Error::other(format!("SOCKS5 reply {}", head[1])));
    }
    let rest = match head[3] {
        1 => 3 + 2,
        4 => 15 + 2,
        _ => usize::from(head[4]) + 2,
    };
    let mut bound = vec![0; rest];
    tcp.read_exact(&mut bound).await.map(|_| ())
}
