//! The demo's clients: a simple browser and agents, all through the proxy.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use interflow_net::ca::CertificateAuthority;
use interflow_net::io::IoStream;
use interflow_net::tls::{Alpn, TlsProfile, TlsProfileOptions, connect_tls};
use interflow_types::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::SHOP;
use crate::origins::ECHO_PORT;

/// The pages that a round looks at, each with its host.
pub(crate) static PAGES: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| include_str!("../data/pages.txt").lines().filter_map(|line| line.split_once(' ')).collect());

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum response size, in bytes.
const MAX_BODY: u64 = 4 << 20;

/// The way to the demo's hosts: through the proxy, whose CA is trusted and no other.
#[derive(Clone)]
pub struct DemoEndpoints {
    proxy: SocketAddr,
    trust: Arc<TlsProfile>,
}

pub struct DemoRequest<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

impl<'a> DemoRequest<'a> {
    pub(crate) const fn post(host: &'a str, path: &'a str, headers: &'a [(&'a str, &'a str)], body: &'a [u8]) -> Self {
        Self { method: "POST", host, path, headers, body }
    }
}

impl DemoEndpoints {
    /// # Errors
    /// The CA in this directory cannot be read.
    pub fn new(proxy: SocketAddr, ca: &Path) -> io::Result<Self> {
        let ca = CertificateAuthority::open_or_create(ca).map_err(io::Error::other)?;
        let options = TlsProfileOptions {
            platform_roots: false,
            extra_ca_pem: vec![ca.certificate_pem().as_bytes().to_vec()],
            ..TlsProfileOptions::default()
        };
        let trust = TlsProfile::new(options).map_err(io::Error::other)?;
        Ok(Self { proxy, trust })
    }

    /// Sends a request through the proxy over TLS, and reads the whole response.
    pub async fn send(&self, request: &DemoRequest<'_>) -> io::Result<Vec<u8>> {
        let mut stream = self.tls(request.host).await?;
        let DemoRequest { method, host, path, headers, body } = request;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in *headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // The end of the connection ends the response.
        head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        stream.take(MAX_BODY).read_to_end(&mut answer).await?;
        Ok(answer)
    }

    pub(crate) async fn get(&self, host: &str, path: &str) {
        let headers = [("User-Agent", "Mozilla/5.0 (demo)"), ("Accept", "*/*")];
        // Some pages fail deliberately.
        let _ = self.send(&DemoRequest { method: "GET", host, path, headers: &headers, body: b"" }).await;
    }

    async fn tls(&self, host: &str) -> io::Result<IoStream> {
        let tunnel = self.tunnel(host, 443).await?;
        let name = Host::parse(host).map_err(io::Error::other)?;
        let connected = connect_tls(IoStream::from(tunnel), &name, &self.trust, Alpn::Http1, HANDSHAKE).await;
        Ok(connected.map_err(io::Error::other)?.0)
    }

    /// Opens a CONNECT tunnel; any response head counts as success.
    async fn tunnel(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.proxy).await?;
        let to = format!("{host}:{port}");
        stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(stream)
    }

    /// Sends bytes of an unknown protocol through a tunnel, which the proxy passes through.
    pub(crate) async fn bytes(&self) -> io::Result<()> {
        let mut stream = self.tunnel(SHOP, ECHO_PORT).await?;
        stream.write_all(&[0, 4, b'd', b'e', b'm', b'o']).await?;
        let mut back = [0; 6];
        stream.read_exact(&mut back).await.map(drop)
    }

    /// Fetches a page over SOCKS5 (RFC 1928).
    pub(crate) async fn socks(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.proxy).await?;
        let host = SHOP;
        // Version 5, one method: no authentication.
        stream.write_all(&[5, 1, 0]).await?;
        stream.read_exact(&mut [0; 2]).await?;
        // CONNECT to a domain name (address type 3).
        let mut request = vec![5, 1, 0, 3, host.len() as u8];
        request.extend_from_slice(host.as_bytes());
        request.extend_from_slice(&80u16.to_be_bytes());
        stream.write_all(&request).await?;
        // The reply with an IPv4 address has ten bytes.
        stream.read_exact(&mut [0; 10]).await?;
        let head = format!("GET /products?by=socks HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.take(MAX_BODY).read_to_end(&mut Vec::new()).await.map(drop)
    }

    pub(crate) async fn socket(&self) -> io::Result<()> {
        let stream = self.tls(SHOP).await?;
        let url = format!("wss://{SHOP}/socket");
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.map_err(io::Error::other)?;
        for n in 1..=4 {
            let text = format!("{{\"watch\":\"product-{n}\"}}");
            socket.send(Message::text(text)).await.map_err(io::Error::other)?;
            let _ = socket.next().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        socket.close(None).await.map_err(io::Error::other)
    }
}
