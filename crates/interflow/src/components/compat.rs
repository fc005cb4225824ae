//! APIs of other programs, on ports of their own beside the admin server. Without the feature `compat` there are none.

use std::net::SocketAddr;

use interflow_admin::AdminServer;
#[cfg(feature = "compat")]
use interflow_net::ingress::ListenOptions;
use interflow_net::ingress::ListenSockets;

use crate::instance::config::InterflowConfig;

/// Greyproxy's API, if it is enabled.
#[derive(Default)]
pub struct CompatApis {
    address: Option<SocketAddr>,
    #[cfg(feature = "compat")]
    listener: Option<tokio::net::TcpListener>,
    #[cfg(feature = "compat")]
    server: Option<interflow_compat::greyproxy::GreyproxyServer>,
}

impl CompatApis {
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

#[cfg(feature = "compat")]
impl CompatApis {
    /// Binds before the proxy server starts, which must refuse proxied connections to this address.
    ///
    /// # Errors
    /// The address is taken.
    pub fn bind(config: &InterflowConfig, sockets: &ListenSockets) -> Result<Self, String> {
        // Greyproxy's API needs the state of the admin server.
        if !config.compat.greyproxy || config.admin.listen.is_none() {
            return Ok(Self::default());
        }
        let addr = config.compat.greyproxy_api;
        let listener = sockets.bind("greyproxy", &ListenOptions::new(addr)).map_err(|e| {
            format!("Greyproxy's API cannot listen on {addr}: {e}; is Greyproxy itself running? compat.greyproxy_api takes another")
        })?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(of_greyproxy)?;
        let address = Some(listener.local_addr().map_err(of_greyproxy)?);
        Ok(Self { address, listener: Some(listener), server: None })
    }

    /// Joins the API to the components of the admin server, which listens on `web_ui`.
    ///
    /// # Errors
    /// The address is not a loopback address.
    pub fn attach(
        &mut self,
        config: &InterflowConfig,
        admin: &AdminServer,
        web_ui: SocketAddr,
        dns: Option<SocketAddr>,
    ) -> Result<(), String> {
        if config.compat.philter_metrics {
            interflow_compat::philter::metrics::attach(admin);
        }
        if let Some(listener) = self.listener.take() {
            let web_ui = interflow_host::data_dir::connect_address(web_ui);
            let state = admin.state();
            let server =
                interflow_compat::greyproxy::GreyproxyServer::new(config.compat.clone(), listener, state, web_ui, dns);
            self.server = server.map_err(of_greyproxy)?;
        }
        Ok(())
    }

    pub fn spawn(&mut self, end: impl Future<Output = ()> + Send + 'static) {
        if let Some(server) = self.server.take() {
            tokio::spawn(async move {
                if let Err(e) = server.serve(end).await {
                    tracing::error!("the Greyproxy API stopped: {e}");
                }
            });
        }
    }
}

#[cfg(feature = "compat")]
fn of_greyproxy(e: std::io::Error) -> String {
    format!("Greyproxy's API: {e}")
}

#[cfg(not(feature = "compat"))]
#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
impl CompatApis {
    pub fn bind(_: &InterflowConfig, _: &ListenSockets) -> Result<Self, String> {
        Ok(Self::default())
    }

    pub fn attach(
        &mut self,
        _: &InterflowConfig,
        _: &AdminServer,
        _: SocketAddr,
        _: Option<SocketAddr>,
    ) -> Result<(), String> {
        Ok(())
    }

    pub fn spawn(&mut self, _: impl Future<Output = ()> + Send + 'static) {}
}
