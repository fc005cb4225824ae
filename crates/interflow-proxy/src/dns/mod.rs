//! The DNS listener, and the names it learns for the addresses that clients connect to.

mod address_names;
pub mod config;
mod stage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use interflow_net::egress::dns::system_name_servers;
use interflow_net::ingress::dns::{DnsListener, DnsOptions};
use interflow_types::Error;

pub use address_names::AddressNames;
use config::DnsConfig;
pub use stage::DnsNamesStage;

/// Timeout of a query to one server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(4);

/// Binds the DNS listener, records responses in `names`, and serves until the returned task is aborted. Returns the
/// bound address.
///
/// # Errors
/// The address is in use, or there is no upstream server.
pub async fn start(
    config: &DnsConfig,
    names: &Arc<AddressNames>,
) -> Result<Option<(SocketAddr, tokio::task::JoinHandle<()>)>, Error> {
    let Some(listen) = config.listen else { return Ok(None) };
    let port = DnsListener::bind(listen).await?;
    let addr = port
        .local_addr()
        .map_err(|e| Error::new(interflow_types::ErrorKind::Internal, "the DNS port").with_source(e))?;
    let mut servers = if config.servers.is_empty() { system_name_servers() } else { config.servers.clone() };
    // The system may be configured to use this listener.
    servers.retain(|s| *s != addr);
    if servers.is_empty() {
        return Err(Error::new(
            interflow_types::ErrorKind::Dns,
            "the DNS listener has no upstream server: set dns.servers",
        ));
    }
    let names = Arc::clone(names);
    let options = DnsOptions { servers, timeout: SERVER_TIMEOUT, most: config.max_queries };
    let serve = port.serve(options, Arc::new(move |records| names.record_answer(records)));
    Ok(Some((addr, tokio::spawn(serve))))
}
