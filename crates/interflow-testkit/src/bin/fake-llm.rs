//! A fake LLM provider as a separate process: `fake-llm ADDR [CERT.pem KEY.pem] [--watch MARKER]...`
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;

use interflow_testkit::{Origin, llm};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut places, mut markers) = (Vec::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--watch" => markers.push(args.next().ok_or("--watch needs a marker")?),
            _ => places.push(arg),
        }
    }
    let addr: SocketAddr =
        places.first().ok_or("usage: fake-llm ADDR [CERT.pem KEY.pem] [--watch MARKER]...")?.parse()?;
    let mut origin = Origin::http().bind(addr).unrecorded();
    if let [_, cert, key] = &places[..] {
        origin = origin.tls_config(tls(cert, key)?);
    }
    let (origin, received) = llm::provider(origin);
    markers.iter().for_each(|m| received.watch_for(m));
    let origin = origin.start().await;
    println!("listening on {}", origin.addr());
    std::future::pending().await
}

fn tls(cert: &str, key: &str) -> Result<Arc<ServerConfig>, Box<dyn std::error::Error>> {
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
