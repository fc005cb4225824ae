//! Clients: tunnels through a proxy by CONNECT or SOCKS5, requests in absolute-form, and HTTP/2.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use base64::Engine;
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use interflow_types::{ClientInfo, Headers, Timestamp};
use tokio::task::JoinHandle;

use crate::message::Answer;
use crate::wire::{Wire, bad};

/// A client of a proxy, for what records flows.
pub fn client_info() -> Arc<ClientInfo> {
    Arc::new(ClientInfo {
        connection: 1,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 5555)),
        local: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
        listener: "proxy".into(),
        accepted: Timestamp::now(),
        container: None,
        process: None,
    })
}

#[derive(Clone, Copy, Debug)]
pub struct ProxyLogin<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

impl ProxyLogin<'_> {
    /// The value of `Proxy-Authorization` (RFC 7617).
    pub fn basic(&self) -> String {
        let pair = format!("{}:{}", self.user, self.password);
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
    }
}

/// Sends one request in absolute-form to a proxy on a connection of its own.
///
/// # Errors
/// The connection fails or the response is malformed.
pub async fn get_through(proxy: SocketAddr, url: &str) -> io::Result<Answer> {
    let mut wire = Wire::connect(proxy).await?;
    let host = url.split('/').nth(2).unwrap_or_default();
    wire.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
    wire.answer().await
}

/// Opens a tunnel by CONNECT. `authority` is `host:port`.
///
/// # Errors
/// The proxy responds with anything but 2xx; the message contains the status.
pub async fn connect_tunnel(proxy: SocketAddr, authority: &str, login: Option<ProxyLogin<'_>>) -> io::Result<Wire> {
    let mut wire = Wire::connect(proxy).await?;
    let answer = connect_on(&mut wire, authority, login).await?;
    match answer.status {
        200..=299 => Ok(wire),
        status => Err(io::Error::other(format!("CONNECT {authority}: {status} {}", answer.text()))),
    }
}

/// Sends CONNECT on an open connection and returns the proxy's response, whatever it is.
///
/// # Errors
/// The connection fails or the response is malformed.
pub async fn connect_on(wire: &mut Wire, authority: &str, login: Option<ProxyLogin<'_>>) -> io::Result<Answer> {
    let auth = login.map(|l| format!("Proxy-Authorization: {}\r\n", l.basic())).unwrap_or_default();
    wire.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{auth}\r\n")).await?;
    wire.answer_to("CONNECT").await
}

/// Opens a tunnel by SOCKS5 (RFC 1928), with user name and password (RFC 1929) if given. `host` may be a name or an
/// address.
///
/// # Errors
/// The proxy rejects the request; the message contains the reply code.
pub async fn socks5_tunnel(
    proxy: SocketAddr,
    host: &str,
    port: u16,
    login: Option<ProxyLogin<'_>>,
) -> io::Result<Wire> {
    let mut wire = Wire::connect(proxy).await?;
    // Method 2 is user name and password, 0 is none.
    let method = if login.is_some() { 2 } else { 0 };
    wire.send([5, 1, method]).await?;
    match &wire.exactly(2).await?[..] {
        [5, chosen] if *chosen == method => {}
        other => return Err(bad(format!("SOCKS5 method answer {other:?}"))),
    }
    if let Some(login) = login {
        // Version 1 of the sub-negotiation (RFC 1929).
        let mut out = vec![1, login.user.len() as u8];
        out.extend_from_slice(login.user.as_bytes());
        out.push(login.password.len() as u8);
        out.extend_from_slice(login.password.as_bytes());
        wire.send(out).await?;
        if wire.exactly(2).await?[1] != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    wire.send(socks5_request(host, port)).await?;
    let head = wire.exactly(4).await?;
    if head[1] != 0 {
        return Err(io::Error::other(format!("SOCKS5 reply {}", head[1])));
    }
    // The bound address of the reply has the length of its type; it is read and ignored.
    let address = match head[3] {
        1 => 4,
        4 => 16,
        _ => usize::from(wire.exactly(1).await?[0]),
    };
    wire.exactly(address + 2).await?;
    Ok(wire)
}

/// The CONNECT request of SOCKS5 for a name or an address.
pub fn socks5_request(host: &str, port: u16) -> Vec<u8> {
    let mut out = vec![5, 1, 0];
    if let Ok(v4) = host.parse::<Ipv4Addr>() {
        out.push(1);
        out.extend_from_slice(&v4.octets());
    } else if let Ok(v6) = host.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        out.push(4);
        out.extend_from_slice(&v6.octets());
    } else {
        out.extend_from_slice(&[3, host.len() as u8]);
        out.extend_from_slice(host.as_bytes());
    }
    out.extend_from_slice(&port.to_be_bytes());
    out
}

/// An HTTP/2 client over any [`Wire`]: TLS with ALPN, prior knowledge, or inside a tunnel.
#[derive(Clone)]
pub struct H2Client {
    send: SendRequest<Bytes>,
    driver: std::sync::Arc<Driver>,
}

/// Interim responses: status and fields.
type Interim = Vec<(u16, Headers)>;

struct Driver(JoinHandle<Result<(), h2::Error>>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl H2Client {
    /// Exchanges the prefaces.
    ///
    /// # Errors
    /// The peer does not use HTTP/2.
    pub async fn new(wire: Wire) -> io::Result<Self> {
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            // The driver must be able to wait as long as the connection is idle.
            .handshake(wire.patience(None))
            .await
            .map_err(io::Error::other)?;
        Ok(Self { send, driver: std::sync::Arc::new(Driver(tokio::spawn(connection))) })
    }

    /// Sends a request without a body.
    ///
    /// # Errors
    /// The stream or the connection fails.
    pub async fn get(&self, url: &str) -> io::Result<Answer> {
        let request = http::Request::get(url).body(()).map_err(|e| bad(e.to_string()))?;
        self.request(request, Bytes::new()).await
    }

    /// Sends a request and reads the whole response, within 30 s.
    ///
    /// # Errors
    /// The stream or the connection fails; a stream reset has its reason in the message.
    pub async fn request(&self, request: http::Request<()>, body: Bytes) -> io::Result<Answer> {
        let work = async {
            let (response, informational) = self.begin(request, body).await?;
            Ok(Answer { informational, ..finish(response).await? })
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), work)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends a request and returns once the response's head has arrived; its body can be read incrementally.
    ///
    /// # Errors
    /// The stream or the connection fails.
    pub async fn start(&self, request: http::Request<()>, body: Bytes) -> io::Result<http::Response<h2::RecvStream>> {
        self.begin(request, body).await.map(|(response, _)| response)
    }

    async fn begin(
        &self,
        request: http::Request<()>,
        body: Bytes,
    ) -> io::Result<(http::Response<h2::RecvStream>, Interim)> {
        let mut send = self.send.clone().ready().await.map_err(io::Error::other)?;
        let (mut response, mut stream) = send.send_request(request, body.is_empty()).map_err(io::Error::other)?;
        if !body.is_empty() {
            stream.send_data(body, true).map_err(io::Error::other)?;
        }
        let mut interim = Vec::new();
        // Interim heads come before the response, so both are polled together.
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(head)) = response.poll_informational(cx) {
                let head = head?;
                interim.push((head.status().as_u16(), from_header_map(head.headers())));
            }
            Pin::new(&mut response).poll(cx)
        })
        .await
        .map(|response| (response, interim))
        .map_err(io::Error::other)
    }

    pub fn is_open(&self) -> bool {
        !self.driver.0.is_finished()
    }
}

async fn finish(response: http::Response<h2::RecvStream>) -> io::Result<Answer> {
    let (parts, mut stream) = response.into_parts();
    let mut body = BytesMut::new();
    while let Some(data) = stream.data().await {
        let data = data.map_err(io::Error::other)?;
        // Released at once: these tests are not about flow control.
        let _ = stream.flow_control().release_capacity(data.len());
        body.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await.map_err(io::Error::other)?;
    Ok(Answer {
        version: "HTTP/2".into(),
        status: parts.status.as_u16(),
        reason: String::new(),
        headers: from_header_map(&parts.headers),
        body: body.freeze(),
        trailers: trailers.map(|t| from_header_map(&t)).unwrap_or_default(),
        informational: Vec::new(),
        raw_head: Bytes::new(),
    })
}

pub(crate) fn from_header_map(map: &http::HeaderMap) -> Headers {
    map.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect()
}

pub(crate) fn to_header_map(headers: &Headers) -> http::HeaderMap {
    headers
        .iter()
        .filter_map(|(n, v)| Some((http::HeaderName::from_bytes(n).ok()?, http::HeaderValue::from_bytes(v).ok()?)))
        .collect()
}
