//! The hosts that the examples talk to, without a network: `example.com` and its subdomains, and the LLM providers.
//!
//! Interflow reaches them through a SOCKS5 proxy that leads every name to a local server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use interflow_testkit::{Origin, Reply, Request, TestCa, llm};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Names that are LLM providers; everything else is a web site.
const PROVIDERS: [&str; 3] = ["api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"];

pub struct Internet {
    ca: Arc<TestCa>,
    /// They serve until they are dropped.
    _origins: [Origin; 3],
    router: SocketAddr,
}

impl Internet {
    pub async fn start() -> Self {
        let ca = Arc::new(TestCa::new());
        let sites = ["example.com", "*.example.com", "example.org", "shop.test", "localhost"];
        let (provider, _) = llm::provider(Origin::https().names(&PROVIDERS).ca(Arc::clone(&ca)));
        let (plain, tls, provider) = tokio::join!(
            Origin::http().answering(site).start(),
            Origin::https().names(&sites).ca(Arc::clone(&ca)).answering(site).start(),
            provider.start()
        );
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let router = listener.local_addr().unwrap();
        let (to_plain, to_tls, to_provider) = (plain.addr(), tls.addr(), provider.addr());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = move |host: &str, port| match port {
                    443 if PROVIDERS.contains(&host) => Some(to_provider),
                    443 => Some(to_tls),
                    80 => Some(to_plain),
                    port => host.parse().ok().map(|ip| SocketAddr::new(ip, port)),
                };
                tokio::spawn(relay(client, target));
            }
        });
        Self { ca, _origins: [plain, tls, provider], router }
    }

    /// Environment variables that make an instance reach these hosts.
    pub fn environment(&self, folder: &Path) -> [(&'static str, String); 2] {
        let ca = folder.join("origin-ca.pem");
        std::fs::write(&ca, self.ca.pem()).unwrap();
        [
            ("INTERFLOW_UPSTREAM_EXTRA_CA", format!("[{:?}]", ca.display().to_string())),
            ("INTERFLOW_UPSTREAM_PROXY", format!("[{{ hosts = [\"*\"], via = [\"socks5h://{}\"] }}]", self.router)),
        ]
    }
}

/// A site that answers `/` with a page and every other path with JSON.
fn site(request: &Request) -> Reply {
    match request.path() {
        "/" => Reply::ok("<!doctype html><title>Example Domain</title><h1>Example Domain</h1>\n")
            .header("Content-Type", "text/html"),
        path => Reply::json(&json!({ "method": request.method, "path": path })),
    }
}

/// Serves one SOCKS5 client (RFC 1928, CONNECT without authentication).
async fn relay(mut client: TcpStream, target: impl Fn(&str, u16) -> Option<SocketAddr>) -> std::io::Result<()> {
    let methods = client.read_u16().await? & 0xff;
    client.read_exact(&mut vec![0; methods.into()]).await?;
    client.write_all(&[5, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        4 => std::net::Ipv6Addr::from(client.read_u128().await?).to_string(),
        _ => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
    };
    let port = client.read_u16().await?;
    let origin = match target(&host, port) {
        Some(addr) => TcpStream::connect(addr).await.ok(),
        None => None,
    };
    // 4: host unreachable.
    let status = if origin.is_some() { 0 } else { 4 };
    client.write_all(&[5, status, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    if let Some(mut origin) = origin {
        copy_bidirectional(&mut client, &mut origin).await?;
    }
    Ok(())
}
