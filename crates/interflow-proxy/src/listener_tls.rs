//! TLS of Interflow's own listeners: their certificates, and which client certificates they accept.

use std::sync::Arc;

use interflow_net::tls::{Alpn, ClientAuth, ServerTls};

use crate::config::{ConfigError, GatewayConfig, ProxyServerConfig, TlsFilePair};

#[derive(Clone, Default)]
pub(crate) struct ListenerTls {
    pub proxy: Option<Arc<ServerTls>>,
    pub gateway: Option<Arc<ServerTls>>,
}

impl ListenerTls {
    /// Loads the certificates of the listeners configured for TLS.
    pub fn load(config: &ProxyServerConfig) -> Result<Self, ConfigError> {
        let load = |place: &str, files: &Option<TlsFilePair>, clients: Option<&ClientAuth>| {
            let loaded = files.as_ref().map(|files| port_tls(files, clients)).transpose();
            loaded.map_err(|what| ConfigError { place: place.into(), what })
        };
        // Loaded once for both listeners, so that an error is reported even if `gateway.tls` is not set.
        let clients = client_auth(&config.gateway)?;
        Ok(Self {
            proxy: load("proxy.tls", &config.proxy.tls, None)?,
            gateway: load("gateway.tls", &config.gateway.tls, clients.as_ref())?,
        })
    }
}

fn port_tls(files: &TlsFilePair, clients: Option<&ClientAuth>) -> Result<Arc<ServerTls>, String> {
    let (certificate, key) = (read_file(&files.certificate)?, read_file(&files.key)?);
    let tls = match clients {
        None => ServerTls::from_pem(&certificate, &key),
        Some(clients) => ServerTls::with_client_auth(&certificate, &key, clients),
    };
    Ok(Arc::new(tls.map_err(|e| e.to_string())?.with_alpn(Alpn::Both)))
}

/// Which client certificates the gateway port accepts.
fn client_auth(gateway: &GatewayConfig) -> Result<Option<ClientAuth>, ConfigError> {
    // Errors carry the full key, as configuration errors of other sections do.
    let wrong = |key: &str, what: String| ConfigError { place: format!("gateway.{key}"), what };
    if gateway.client_ca.is_empty() {
        return match gateway.client_auth {
            None => Ok(None),
            Some(_) => Err(wrong(
                "client_auth",
                "no client certificate authority is configured: add gateway.client_ca = [\"ca.pem\"]".into(),
            )),
        };
    }
    if gateway.tls.is_none() {
        let what = "client certificates need TLS: also set gateway.tls = { certificate = …, key = … }";
        return Err(wrong("client_ca", what.into()));
    }
    let mut clients = ClientAuth::new(gateway.requires_certificate());
    for path in &gateway.client_ca {
        let added = read_file(path).and_then(|pem| clients.add(&pem).map_err(|e| format!("{}: {e}", path.display())));
        added.map_err(|what| wrong("client_ca", what))?;
    }
    Ok(Some(clients))
}

pub(crate) fn read_file(path: &std::path::Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
}
