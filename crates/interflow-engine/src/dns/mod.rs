//! The DNS port, and what is learnt there: which names clients had in mind when they connect to addresses.

pub mod config;
mod names;
mod stage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use interflow_flow::Error;
use interflow_net::ingress::dns::{DnsOptions, DnsPort, system_name_servers};

use config::DnsConfig;
pub use names::Names;
pub use stage::DnsNamesStage;

/// How long one server may take.
const PATIENCE: Duration = Duration::from_secs(4);

/// Binds the DNS port and answers there until the returned task is aborted; where it listens. Names go into `names`.
///
/// # Errors
/// The address is taken, or no server to ask is known.
pub async fn start(
    config: &DnsConfig,
    names: &Arc<Names>,
) -> Result<Option<(SocketAddr, tokio::task::JoinHandle<()>)>, Error> {
    let Some(listen) = config.listen else { return Ok(None) };
    let port = DnsPort::bind(listen).await?;
    let addr = port.local_addr().map_err(|e| Error::new(interflow_flow::Kind::Internal, "the DNS port").because(e))?;
    let mut servers = if config.servers.is_empty() { system_name_servers() } else { config.servers.clone() };
    // The system may be set up to ask this very port.
    servers.retain(|s| *s != addr);
    if servers.is_empty() {
        return Err(Error::new(
            interflow_flow::Kind::Dns,
            "the DNS port knows no server to ask: name some in dns.servers",
        ));
    }
    let names = Arc::clone(names);
    let options = DnsOptions { servers, timeout: PATIENCE, most: config.max_queries };
    let serve = port.serve(options, Arc::new(move |told| names.learn(told)));
    Ok(Some((addr, tokio::spawn(serve))))
}
