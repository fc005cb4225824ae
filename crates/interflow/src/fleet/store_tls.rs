//! TLS to the shared store, by `interflow-net`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interflow_fleet::{BoxedStream, PostgresTls, TlsClient, TlsHandshake, TlsVerification};
use interflow_net::io::IoStream;
use interflow_net::tls::{Alpn, ClientCertificate, TlsProfile, TlsProfileOptions, connect_tls};
use interflow_types::Host;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

struct NetTlsClient {
    profile: Arc<TlsProfile>,
}

/// A TLS client for the options of a URL.
///
/// # Errors
/// The file that cannot be read, or holds no certificate or key.
pub fn client(options: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()));
    let client_certificate = match &options.client {
        Some((chain, key)) => Some(ClientCertificate { chain_pem: read(chain)?, key_pem: read(key)? }),
        None => None,
    };
    let profile = TlsProfile::new(TlsProfileOptions {
        // A root that is named is the only one.
        platform_roots: options.root_cert.is_none(),
        extra_ca_files: options.root_cert.iter().cloned().collect(),
        danger_accept_invalid: options.verify == TlsVerification::None,
        any_name: options.verify == TlsVerification::Chain,
        client_certificate,
        ..TlsProfileOptions::default()
    })
    .map_err(|e| e.to_string())?;
    Ok(Arc::new(NetTlsClient { profile }))
}

impl TlsClient for NetTlsClient {
    fn handshake(&self, host: &str, stream: BoxedStream) -> TlsHandshake {
        let (profile, host) = (Arc::clone(&self.profile), host.to_owned());
        Box::pin(async move {
            let host = match host.parse() {
                Ok(ip) => Host::Ip(ip),
                Err(_) => Host::parse(&host).map_err(io::Error::other)?,
            };
            let connected = connect_tls(IoStream::other(stream), &host, &profile, Alpn::None, HANDSHAKE_TIMEOUT).await;
            let (stream, _) = connected.map_err(io::Error::other)?;
            Ok(Box::new(stream) as BoxedStream)
        })
    }
}
