//! Checks the environment of an instance and suggests remedies.

mod runtimes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interflow_net::ca::CertificateAuthority;
use interflow_net::ingress::ProcessLookup;
use interflow_types::ClientProcess;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use serde_json::Value;

use crate::data_dir::{DataDir, InstanceInfo, connect_address};

#[derive(Debug, Serialize)]
pub struct DoctorFinding {
    pub what: String,
    pub state: FindingState,
    /// Observation and remedy.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    Good,
    Notice,
    Bad,
}

/// The ports to check, and warnings about those that other machines reach.
#[derive(Debug)]
pub enum CheckedPorts {
    /// An instance runs with this data directory.
    Running { instance: InstanceInfo, warnings: Vec<String> },
    /// None runs: the configured listeners with their roles.
    Configured { listen: Vec<(&'static str, SocketAddr)>, warnings: Vec<String> },
}

/// `bypassed` is the response of the running instance about clients that bypass interception.
pub fn findings(checked: &CheckedPorts, home: &DataDir, bypassed: Option<&Value>) -> Vec<DoctorFinding> {
    let mut findings = vec![data_folder(home), ca(home), clock(home), files(), disk(home)];
    findings.extend(ports(checked));
    findings.push(system_trust(home));
    findings.extend(bypassed.and_then(passthrough_finding));
    if let Ok(ca) = CertificateAuthority::open_or_create(&home.ca()) {
        findings.extend(runtimes::probe_runtimes(&ca, home.path()));
    }
    findings
}

fn finding(what: impl Into<String>, state: FindingState, text: impl Into<String>) -> DoctorFinding {
    DoctorFinding { what: what.into(), state, text: text.into() }
}

fn data_folder(home: &DataDir) -> DoctorFinding {
    let path = home.path().display();
    let (state, text) = match home.create().and_then(|()| home.check_access()).map(|all| all.into_iter().next()) {
        Ok(None) => (FindingState::Good, path.to_string()),
        Ok(Some(text)) => (FindingState::Notice, text),
        Err(text) => (FindingState::Bad, text),
    };
    finding("data directory", state, text)
}

fn ca(home: &DataDir) -> DoctorFinding {
    match CertificateAuthority::open_or_create(&home.ca()) {
        Err(e) => finding("CA", FindingState::Bad, e.to_string()),
        Ok(ca) if ca.remaining() < Duration::from_secs(30 * 86_400) => {
            finding("CA", FindingState::Bad, format!("{} expires soon: run `interflow ca rotate`", ca.name()))
        }
        Ok(ca) => finding("CA", FindingState::Good, ca.name().to_owned()),
    }
}

/// A clock that is behind the creation of the CA makes every certificate invalid.
fn clock(home: &DataDir) -> DoctorFinding {
    let year_2026 = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let made = std::fs::metadata(home.ca().join("ca.pem")).and_then(|m| m.modified()).unwrap_or(UNIX_EPOCH);
    clock_at(SystemTime::now(), made.max(year_2026))
}

/// `earliest` is a lower bound of the current time; one day of tolerance allows for a wrong time zone.
fn clock_at(now: SystemTime, earliest: SystemTime) -> DoctorFinding {
    let time = jiff::Timestamp::try_from(now).map_or_else(|_| "far off".to_owned(), |t| format!("{t:.0}"));
    if now + Duration::from_secs(86_400) > earliest {
        return finding("clock", FindingState::Good, time);
    }
    let text = format!("{time} is wrong: set the clock, or certificates will appear not yet valid");
    finding("clock", FindingState::Bad, text)
}

fn files() -> DoctorFinding {
    #[cfg(unix)]
    {
        let Ok((soft, hard)) = rlimit::getrlimit(rlimit::Resource::NOFILE) else {
            return finding("open files", FindingState::Notice, "the limit cannot be read");
        };
        // Two sockets per connection, plus a reserve.
        let connections = hard.saturating_sub(100) / 2;
        let text = format!("limit {soft}, can be raised to {hard}: enough for about {connections} connections");
        if hard < 4096 {
            let more = "; raise it with `ulimit -Hn 100000` or LimitNOFILE= in systemd";
            return finding("open files", FindingState::Bad, text + more);
        }
        finding("open files", FindingState::Good, text)
    }
    #[cfg(not(unix))]
    finding("open files", FindingState::Good, "no such limit on this system")
}

fn disk(home: &DataDir) -> DoctorFinding {
    match fs4::available_space(home.path()) {
        Ok(free) if free < 1 << 30 => {
            let text = format!("{} MB free: recording stops when the disk is full; free some space", free / 1_000_000);
            finding("disk", FindingState::Bad, text)
        }
        Ok(free) => finding("disk", FindingState::Good, format!("{:.1} GB free", free as f64 / 1e9)),
        Err(e) => finding("disk", FindingState::Notice, format!("free space cannot be read: {e}")),
    }
}

fn ports(checked: &CheckedPorts) -> Vec<DoctorFinding> {
    let (mut found, warnings): (Vec<_>, _) = match checked {
        CheckedPorts::Running { instance, warnings } => {
            let own = instance.addresses().map(|(name, addr)| own_port(name, addr, instance.pid));
            (own.collect(), warnings)
        }
        CheckedPorts::Configured { listen, warnings } => {
            (listen.iter().map(|(name, addr)| free_port(name, *addr)).collect(), warnings)
        }
    };
    found.extend(warnings.iter().map(|text| finding("exposure", FindingState::Notice, text.as_str())));
    found
}

fn own_port(name: &str, addr: SocketAddr, pid: u32) -> DoctorFinding {
    let what = format!("{name} port {addr}");
    match std::net::TcpStream::connect_timeout(&connect_address(addr), Duration::from_secs(1)) {
        Ok(_) => finding(what, FindingState::Good, format!("served by the running instance (process {pid})")),
        Err(e) => {
            finding(what, FindingState::Bad, format!("the running instance (process {pid}) does not answer there: {e}"))
        }
    }
}

fn free_port(name: &str, addr: SocketAddr) -> DoctorFinding {
    let what = format!("{name} port {addr}");
    // Binding is the test: the listener is closed at once.
    match std::net::TcpListener::bind(addr) {
        Ok(_) => finding(what, FindingState::Good, "free"),
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            let who =
                listener(addr).map_or_else(|| "another program".into(), |p| format!("{} (process {})", p.name, p.pid));
            let text = format!("taken by {who}: choose another with --listen-{name}, or end that program");
            finding(what, FindingState::Bad, text)
        }
        Err(e) => finding(what, FindingState::Bad, format!("{e}; choose another with --listen-{name}")),
    }
}

/// The program that listens on the address, if the system reveals it.
fn listener(addr: SocketAddr) -> Option<Arc<ClientProcess>> {
    let (v4, v6) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    let processes = ProcessLookup::default();
    // In the system's tables, a listening socket has an unspecified peer address.
    let of = |at: IpAddr, unspecified: IpAddr| {
        processes.lookup(SocketAddr::new(at, addr.port()), SocketAddr::new(unspecified, 0))
    };
    let unspecified = if addr.is_ipv4() { v4 } else { v6 };
    // A listener on all addresses takes the port as well.
    of(addr.ip(), unspecified).or_else(|| of(v4, v4)).or_else(|| of(v6, v6))
}

/// Clients that bypass interception because they rejected the certificate.
fn passthrough_finding(bypassed: &Value) -> Option<DoctorFinding> {
    let passing = bypassed["clients"].as_array()?;
    let Some(first) = passing.first() else {
        return Some(finding(
            "pinning",
            FindingState::Good,
            "no client bypasses interception because it rejected the certificate",
        ));
    };
    let text = |key: &str| first[key].as_str().unwrap_or_default().to_owned();
    let more = match passing.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!(
        "TLS of {} to {}{more} is passed through uninspected, since the client refuses the certificate: `interflow ca retry` \
         intercepts it again",
        text("client"),
        text("host")
    );
    Some(finding("pinning", FindingState::Notice, what))
}

fn system_trust(home: &DataDir) -> DoctorFinding {
    match in_system_store(&home.ca().join("ca.pem")) {
        Some(true) => finding("system trust", FindingState::Good, "the CA is in the system's store"),
        Some(false) => finding(
            "system trust",
            FindingState::Notice,
            "the CA is not in the system's store: `interflow ca install`, or `interflow exec -- CMD` for single commands",
        ),
        None => finding("system trust", FindingState::Notice, "the system's store cannot be read"),
    }
}

/// Whether the system's trust store contains the CA.
pub fn in_system_store(ca: &Path) -> Option<bool> {
    let pem = std::fs::read(ca).ok()?;
    let certificate = rustls_pki_types::CertificateDer::from_pem_slice(&pem).ok()?;
    Some(rustls_native_certs::load_native_certs().certs.contains(&certificate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_the_ca_was_made_is_bad() {
        let made = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (offset, state) in [(0, FindingState::Good), (1_000_000, FindingState::Good)] {
            assert_eq!(clock_at(made + Duration::from_secs(offset), made).state, state);
        }
        let back = clock_at(made - Duration::from_secs(172_800), made);
        assert!(back.state == FindingState::Bad && back.text.contains("2027-01-13"), "{}", back.text);
    }

    fn addr(listener: &std::net::TcpListener) -> SocketAddr {
        listener.local_addr().unwrap()
    }

    #[test]
    fn unreachable_port_of_the_running_instance_is_bad() {
        let [proxy, admin] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let instance = InstanceInfo {
            pid: std::process::id(),
            proxy: vec![addr(&proxy)],
            gateway: Some(gone),
            admin: Some(addr(&admin)),
            dns: None,
            restart_refused: None,
        };
        let found = ports(&CheckedPorts::Running { instance, warnings: Vec::new() });
        let said: Vec<_> = found.iter().map(|f| (f.what.clone(), f.state)).collect();
        let port = |name: &str, addr: SocketAddr, state| (format!("{name} port {addr}"), state);
        assert_eq!(
            said,
            [
                port("proxy", addr(&proxy), FindingState::Good),
                port("gateway", gone, FindingState::Bad),
                port("admin", addr(&admin), FindingState::Good)
            ]
        );
        assert!(found[0].text.contains(&std::process::id().to_string()), "{}", found[0].text);
    }

    #[test]
    fn port_taken_by_another_program_names_that_program() {
        let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = vec![("proxy", addr(&theirs))];
        let found = ports(&CheckedPorts::Configured { listen, warnings: Vec::new() });
        assert!(found.len() == 1 && found[0].state == FindingState::Bad, "{found:?}");
        assert!(
            found[0].text.starts_with("taken by ") && found[0].text.contains("--listen-proxy"),
            "{}",
            found[0].text
        );
        #[cfg(target_os = "linux")]
        assert!(found[0].text.contains(&format!("(process {})", std::process::id())), "{}", found[0].text);
    }
}
