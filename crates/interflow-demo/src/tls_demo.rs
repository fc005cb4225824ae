//! The demo's bank: an origin with a certificate from its own CA, and a client that connects to it through the proxy and
//! trusts Interflow's CA.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interflow_net::ca::CertificateAuthority;
use interflow_net::io::IoStream;
use interflow_net::tls::{Alpn, TlsProfile, TlsProfileOptions, accept_tls, connect_tls};
use interflow_types::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::DemoEndpoints;
use crate::{BANK, origin};

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum response size, in bytes.
const MAX_BODY: u64 = 1 << 20;

pub struct TlsDemo {
    host: Host,
    port: u16,
    trust: Arc<TlsProfile>,
}

fn host() -> Host {
    Host::parse(BANK).expect("it is a name")
}

/// Starts the bank with a certificate from the CA in this directory. It runs until the process exits.
pub async fn start_server(dir: &Path) -> io::Result<SocketAddr> {
    let ca = CertificateAuthority::open_or_create(dir).map_err(io::Error::other)?;
    let tls = ca.server_tls(&host(), Alpn::Http1);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = Arc::clone(&tls);
            tokio::spawn(async move {
                // Ignore clients that disconnect.
                if let Ok((mut io, _)) = accept_tls(IoStream::from(stream), &tls, HANDSHAKE).await {
                    let _ = origin::answer(&mut io).await;
                }
            });
        }
    });
    Ok(address)
}

impl TlsDemo {
    /// A client of the bank at this port that trusts the CA in this directory.
    pub fn new(port: u16, trusted: &Path) -> io::Result<Self> {
        let ca = CertificateAuthority::open_or_create(trusted).map_err(io::Error::other)?;
        let options = TlsProfileOptions {
            // Only Interflow's CA: the client accepts the proxy's certificates and no others.
            platform_roots: false,
            extra_ca_pem: vec![ca.certificate_pem().as_bytes().to_vec()],
            ..TlsProfileOptions::default()
        };
        let trust = TlsProfile::new(options).map_err(io::Error::other)?;
        Ok(Self { host: host(), port, trust })
    }

    pub async fn pay(&self, world: DemoEndpoints) -> io::Result<()> {
        let tunnel = world.tunnel(BANK, self.port).await?;
        let (mut io, _) = connect_tls(IoStream::from(tunnel), &self.host, &self.trust, Alpn::Http1, HANDSHAKE)
            .await
            .map_err(io::Error::other)?;
        let body = r#"{"to":"DE02 1203 0000 0000 2020 51","amount":"39.80","for":"order 4711"}"#;
        let head = format!(
            "POST /payments HTTP/1.1\r\nHost: {BANK}:{}\r\nUser-Agent: pay/2.1 (demo)\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.port,
            body.len(),
        );
        io.write_all(head.as_bytes()).await?;
        io.write_all(body.as_bytes()).await?;
        io.flush().await?;
        let mut answer = Vec::new();
        io.take(MAX_BODY).read_to_end(&mut answer).await.map(drop)
    }
}
