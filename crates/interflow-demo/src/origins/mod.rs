//! Origins that answer under their real names and ports without a network: web sites, a shop, a bank, films and LLM providers.
//!
//! Interflow reaches them through a SOCKS5 server on loopback, to which `upstream.proxy` leads their names: port 443 speaks TLS with a certificate
//! from a CA of their own, port 80 HTTP, and port 7 echoes bytes (RFC 862).

mod grpc;
mod paced_body;
mod pages;
mod site;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interflow_net::ca::CertificateAuthority;
use interflow_net::ingress::socks5::{self, SocksAuth, SocksReply, SocksRequest};
use interflow_net::ingress::{Drain, HttpOptions, serve_http1, serve_http2};
use interflow_net::io::IoStream;
use interflow_net::tls::{Alpn, accept_tls};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use site::{HOSTS, Site};

/// Port that echoes what it receives.
pub const ECHO_PORT: u16 = 7;

const HANDSHAKE: Duration = Duration::from_secs(10);

/// Running origins; they serve until the process exits.
#[derive(Debug)]
pub struct Origins {
    address: SocketAddr,
    ca: PathBuf,
}

impl Origins {
    /// Starts them with the CA in this directory, which is created if it is missing.
    ///
    /// # Errors
    /// The directory cannot be written, or no port is free.
    pub async fn start(directory: &Path) -> io::Result<Self> {
        let ca = Arc::new(CertificateAuthority::open_or_create(directory).map_err(io::Error::other)?);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let ca = Arc::clone(&ca);
                // Clients that disconnect are ignored.
                tokio::spawn(async move { serve(stream, &ca).await.ok() });
            }
        });
        Ok(Self { address, ca: directory.join("ca.pem") })
    }

    /// The patterns of their hosts, for `upstream.proxy`.
    pub fn hosts() -> Vec<String> {
        HOSTS.iter().map(|(pattern, _)| (*pattern).to_owned()).collect()
    }

    /// The hosts of LLM providers, which take any key.
    pub fn providers() -> impl Iterator<Item = String> {
        HOSTS.iter().filter(|(_, kind)| *kind == "models").map(|(host, _)| (*host).to_owned())
    }

    /// The URL for `upstream.proxy` of the [`hosts`](Self::hosts).
    pub fn proxy_url(&self) -> String {
        format!("socks5h://{}", self.address)
    }

    /// The certificate for `upstream.extra_ca`.
    pub fn ca(&self) -> &Path {
        &self.ca
    }
}

async fn serve(stream: TcpStream, ca: &CertificateAuthority) -> interflow_types::Result<()> {
    let nobody = |_: &str, _: &str| -> interflow_types::BoxFuture<'_, bool> { Box::pin(std::future::ready(false)) };
    let SocksRequest { authority, mut io, .. } =
        socks5::accept(IoStream::from(stream), SocksAuth::Open(&nobody), HANDSHAKE).await?;
    let is_served = [443, 80, ECHO_PORT].contains(&authority.port);
    let reply = if is_served { SocksReply::Succeeded } else { SocksReply::ConnectionRefused };
    if socks5::reply(&mut io, reply, None).await.is_err() || !is_served {
        return Ok(());
    }
    let (options, site) = (HttpOptions::default(), Arc::new(Site::new(&authority.host.to_string())));
    match authority.port {
        ECHO_PORT => {
            // The client ends it.
            let _ = echo(io).await;
            Ok(())
        }
        443 => {
            let tls = ca.server_tls(&authority.host, Alpn::Both);
            let (io, client) = accept_tls(io, &tls, HANDSHAKE).await?;
            match client.alpn.as_deref() {
                Some("h2") => serve_http2(io, &options, Drain::never(), site).await,
                _ => serve_http1(io, &options, Drain::never(), site).await,
            }
        }
        _ => serve_http1(io, &options, Drain::never(), site).await,
    }
}

async fn echo(io: IoStream) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(io);
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}
