//! The browser's own port: forwards its SOCKS5 connections to the proxy, with the credentials that browsers cannot send.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::exec::ProxyLogin;

/// Far above what a browser opens.
const MAX_CONNECTIONS: usize = 1_000;
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// RFC 1928 and RFC 1929.
const SOCKS5: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const PASSWORD_VERSION: u8 = 1;

/// A listener on loopback. Its connections end when it is dropped.
pub(super) struct CredentialRelay {
    pub address: SocketAddr,
    _task: JoinSet<()>,
}

impl CredentialRelay {
    /// # Errors
    /// No port can be opened.
    pub async fn start(proxy: SocketAddr, login: &ProxyLogin) -> io::Result<Self> {
        let message = Arc::new(password_message(login)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut task = JoinSet::new();
        task.spawn(accept_connections(listener, proxy, message));
        Ok(Self { address, _task: task })
    }
}

fn password_message(login: &ProxyLogin) -> io::Result<Vec<u8>> {
    let mut message = vec![PASSWORD_VERSION];
    for part in [&login.user, &login.password] {
        let length = u8::try_from(part.len()).map_err(|_| io::Error::other("the proxy's user name is too long"))?;
        message.push(length);
        message.extend_from_slice(part.as_bytes());
    }
    Ok(message)
}

async fn accept_connections(listener: TcpListener, proxy: SocketAddr, message: Arc<Vec<u8>>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            // Out of file descriptors: others may end meanwhile.
            tokio::time::sleep(REST_AFTER_ERROR).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let message = Arc::clone(&message);
        connections.spawn(async move {
            // The browser reports a closed connection to its user.
            let _ = relay(client, proxy, &message).await;
            drop(slot);
        });
    }
}

const REST_AFTER_ERROR: Duration = Duration::from_millis(100);

async fn relay(mut client: TcpStream, proxy: SocketAddr, message: &[u8]) -> io::Result<()> {
    let negotiated = async {
        greet_client(&mut client).await?;
        let upstream = log_in(proxy, message).await?;
        client.write_all(&[SOCKS5, NO_AUTHENTICATION]).await?;
        client.set_nodelay(true)?;
        upstream.set_nodelay(true)?;
        io::Result::Ok(upstream)
    };
    let mut upstream = tokio::time::timeout(NEGOTIATION_TIMEOUT, negotiated).await??;
    // From the request on, the proxy talks with the browser.
    copy_bidirectional(&mut client, &mut upstream).await.map(drop)
}

async fn greet_client(client: &mut TcpStream) -> io::Result<()> {
    let mut head = [0; 2];
    client.read_exact(&mut head).await?;
    let mut methods = vec![0; usize::from(head[1])];
    client.read_exact(&mut methods).await?;
    if head[0] == SOCKS5 && methods.contains(&NO_AUTHENTICATION) {
        return Ok(());
    }
    Err(io::Error::other("not a SOCKS5 client without credentials"))
}

async fn log_in(proxy: SocketAddr, message: &[u8]) -> io::Result<TcpStream> {
    let mut upstream = TcpStream::connect(proxy).await?;
    upstream.write_all(&[SOCKS5, 1, PASSWORD]).await?;
    let mut answer = [0; 2];
    upstream.read_exact(&mut answer).await?;
    if answer != [SOCKS5, PASSWORD] {
        return Err(io::Error::other("the proxy accepts no credentials"));
    }
    upstream.write_all(message).await?;
    upstream.read_exact(&mut answer).await?;
    if answer == [PASSWORD_VERSION, 0] {
        Ok(upstream)
    } else {
        Err(io::Error::other("the proxy refused the credentials"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn started() -> (TcpListener, CredentialRelay) {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let login = ProxyLogin { user: "firefox".into(), password: "pw".into() };
        let relay = CredentialRelay::start(proxy.local_addr().unwrap(), &login).await.unwrap();
        (proxy, relay)
    }

    #[tokio::test]
    async fn the_proxy_gets_credentials_and_then_the_bytes_of_the_browser() {
        let (proxy, relay) = started().await;
        let mut browser = TcpStream::connect(relay.address).await.unwrap();
        // With the request right behind the greeting.
        browser.write_all(b"\x05\x01\x00request").await.unwrap();
        let (mut upstream, _) = proxy.accept().await.unwrap();
        let mut heard = [0; 3];
        upstream.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, [5, 1, 2]);
        upstream.write_all(&[5, 2]).await.unwrap();
        let mut heard = [0; 12];
        upstream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"\x01\x07firefox\x02pw");
        upstream.write_all(b"\x01\x00reply").await.unwrap();
        let mut heard = [0; 7];
        upstream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"request");
        browser.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"\x05\x00reply");
        drop(relay);
        assert_eq!(browser.read(&mut heard).await.unwrap_or(0), 0, "connections end with the relay");
    }

    #[tokio::test]
    async fn refused_credentials_and_other_protocols_close_the_connection() {
        let (proxy, relay) = started().await;
        let mut browser = TcpStream::connect(relay.address).await.unwrap();
        browser.write_all(&[5, 1, 0]).await.unwrap();
        let (mut upstream, _) = proxy.accept().await.unwrap();
        upstream.write_all(&[5, 2, 1, 1]).await.unwrap();
        let mut all = Vec::new();
        let _ = browser.read_to_end(&mut all).await;
        assert_eq!(all, b"", "no method was agreed");
        let mut web = TcpStream::connect(relay.address).await.unwrap();
        web.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        web.shutdown().await.unwrap();
        let _ = web.read_to_end(&mut all).await;
        assert_eq!(all, b"");
    }
}
