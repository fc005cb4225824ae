//! Advertises the proxy on the local network if the operator configures it: multicast DNS (RFC 6762) with service
//! discovery (RFC 6763), over IPv4.

use std::io;
use std::time::Duration;

use mdns_sd::{DaemonEvent, IfKind, ServiceDaemon, ServiceInfo};

/// The service type of the proxy.
pub const SERVICE_TYPE: &str = "_interflow._tcp.local.";
/// The longest label of a name, in bytes (RFC 1035 2.3.4).
const MAX_NAME: usize = 63;
/// How long the end of a registration waits for the goodbye to be sent.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct MdnsService {
    /// The instance name, for people; at most 63 bytes.
    pub name: String,
    /// The port of the SRV record.
    pub port: u16,
    /// The entries of the TXT record.
    pub facts: Vec<(&'static str, &'static str)>,
}

/// Ends with a goodbye, which tells caches to forget the records (RFC 6762 10.1).
pub struct MdnsRegistration {
    daemon: ServiceDaemon,
    fullname: String,
}

impl Drop for MdnsRegistration {
    fn drop(&mut self) {
        // A failure has no consequence but records that expire by themselves.
        if let Ok(goodbye) = self.daemon.unregister(&self.fullname) {
            let _ = goodbye.recv_timeout(GOODBYE_TIMEOUT);
        }
        let _ = self.daemon.shutdown();
    }
}

/// Advertises a service and answers queries for it, on a thread of its own.
///
/// # Errors
/// An invalid name. A network without multicast is logged.
pub fn register(service: &MdnsService) -> io::Result<MdnsRegistration> {
    let daemon = ServiceDaemon::new().map_err(io::Error::other)?;
    daemon.disable_interface(IfKind::IPv6).map_err(io::Error::other)?;
    register_with(daemon, service)
}

fn register_with(daemon: ServiceDaemon, service: &MdnsService) -> io::Result<MdnsRegistration> {
    let MdnsService { name, port, facts } = service;
    if name.is_empty() || name.len() > MAX_NAME {
        let why = format!("`{name}` is not a valid name: it needs 1 to {MAX_NAME} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // With the process id, so that two instances on a machine do not claim one name.
    let host = format!("interflow-{}.local.", std::process::id());
    let info = ServiceInfo::new(SERVICE_TYPE, name, &host, (), *port, &facts[..]).map_err(io::Error::other)?;
    let info = info.enable_addr_auto();
    let fullname = info.get_fullname().to_owned();
    let events = daemon.monitor().map_err(io::Error::other)?;
    daemon.register(info).map_err(io::Error::other)?;
    std::thread::Builder::new().name("mdns-log".into()).spawn(move || events.iter().for_each(|event| log(&event)))?;
    Ok(MdnsRegistration { daemon, fullname })
}

/// The daemon opens its sockets and chooses its name on its own thread.
fn log(event: &DaemonEvent) {
    match event {
        DaemonEvent::Announce(name, addresses) => tracing::info!(%name, %addresses, "announced by mDNS"),
        DaemonEvent::NameChange(change) => tracing::warn!(
            name = %change.new_name,
            "another machine has the name {}: announcing another one by mDNS", change.original
        ),
        DaemonEvent::Error(error) => tracing::warn!(%error, "mDNS failed"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use mdns_sd::ServiceEvent;

    use super::*;

    fn service(name: &str) -> MdnsService {
        MdnsService { name: name.to_owned(), port: 7070, facts: vec![("type", "http")] }
    }

    /// Talks to others on the loopback interface only.
    fn on_loopback(port: u16) -> ServiceDaemon {
        let daemon = ServiceDaemon::new_with_port(port).unwrap();
        daemon.disable_interface(IfKind::All).unwrap();
        daemon.enable_interface(IfKind::LoopbackV4).unwrap();
        daemon
    }

    #[test]
    fn a_service_is_found_with_its_port_and_facts_and_withdrawn_at_the_end() {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = on_loopback(port);
        let events = client.browse(SERVICE_TYPE).unwrap();
        let registration = register_with(on_loopback(port), &service("Interflow on desk.7")).unwrap();
        let next = || events.recv_timeout(Duration::from_secs(30)).expect("an event of the service");
        let resolved = loop {
            if let ServiceEvent::ServiceResolved(resolved) = next() {
                break resolved;
            }
        };
        assert_eq!(resolved.get_fullname(), format!("Interflow on desk.7.{SERVICE_TYPE}"));
        assert_eq!((resolved.get_port(), resolved.get_property_val_str("type")), (7070, Some("http")));
        drop(registration);
        while !matches!(next(), ServiceEvent::ServiceRemoved(..)) {}
        let _ = client.shutdown();
    }

    #[test]
    fn names_that_are_no_label_are_refused() {
        for name in [String::new(), "x".repeat(64)] {
            assert!(register_with(on_loopback(0), &service(&name)).is_err(), "{name}");
        }
    }
}
