//! Filters resolved addresses: no loops to Interflow's own listeners, no bypass of `deny_private` by DNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use interflow_net::egress::dial::AddressFilter;
use interflow_types::{Authority, Error, ErrorKind, Host};
use ipnet::IpNet;

/// Which names that cannot be resolved here an upstream proxy may resolve; the addresses that it finds are not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnresolvedNames {
    Refused,
    /// All but names of private networks, such as `redis` and `metadata.google.internal`.
    Public,
    All,
}

/// Checks every address after DNS resolution and before connecting, so that a public name that resolves to a private
/// address is refused.
#[derive(Clone, Debug)]
pub struct PrivateAddressFilter {
    deny_private: bool,
    key: &'static str,
    allow_private: Vec<IpNet>,
    unresolved: UnresolvedNames,
    own: Vec<SocketAddr>,
}

impl PrivateAddressFilter {
    /// `own` are the addresses of Interflow's own listeners.
    pub fn new(deny_private: bool, allow_private: Vec<IpNet>, own: Vec<SocketAddr>) -> Self {
        Self { deny_private, key: "access.allow_private", allow_private, unresolved: UnresolvedNames::Refused, own }
    }

    /// Which names that cannot be resolved here may be left to an upstream proxy to resolve.
    pub fn with_unresolved(self, unresolved: UnresolvedNames) -> Self {
        Self { unresolved, ..self }
    }

    /// Sets the configuration key that error messages name as the remedy.
    pub fn with_config_key(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// Whether an address may be reached although it is special-purpose.
    pub fn allows(&self, ip: IpAddr) -> bool {
        !self.deny_private || self.allow_private.iter().any(|net| net.contains(&ip))
    }

    pub fn refusal(&self, host: &Host) -> Error {
        Error::new(ErrorKind::Denied, format!("{host} is a private or special address; {} can allow it", self.key))
    }

    fn is_own_listener(&self, addr: SocketAddr) -> bool {
        let ip = addr.ip().to_canonical();
        self.own.iter().any(|own| {
            // A listener on `0.0.0.0` is reached by any address of this machine, and connecting to `0.0.0.0` reaches
            // loopback.
            own.port() == addr.port()
                && (own.ip().to_canonical() == ip
                    || own.ip().is_unspecified() && is_local_address(ip)
                    || own.ip().is_loopback() && ip.is_unspecified())
        })
    }
}

impl AddressFilter for PrivateAddressFilter {
    fn check(&self, addr: SocketAddr) -> Result<(), Error> {
        // Checked even without `deny_private`: a request to Interflow's own port would come back to it without end.
        if self.is_own_listener(addr) {
            return Err(Error::new(
                ErrorKind::Loop,
                format!("{addr} is a listener of this proxy: the request would loop"),
            ));
        }
        // The mapped form `::ffff:10.0.0.1` reaches the same host as `10.0.0.1`, so both are judged alike.
        let ip = addr.ip().to_canonical();
        if is_special(ip) && !self.allows(ip) { Err(self.refusal(&Host::Ip(ip))) } else { Ok(()) }
    }

    fn resolves_names(&self) -> bool {
        self.deny_private
    }

    fn check_unresolved(&self, target: &Authority, error: Error) -> Result<(), Error> {
        // The upstream proxy resolves the name itself; by this option the operator trusts its answer.
        let is_allowed = match self.unresolved {
            UnresolvedNames::Refused => false,
            UnresolvedNames::Public => !is_private_name(&target.host),
            UnresolvedNames::All => true,
        };
        if is_allowed {
            return Ok(());
        }
        let text = format!(
            "{target} cannot be resolved here, so nothing tells whether the upstream proxy would reach a private address; \
             access.allow_unresolved can allow it"
        );
        Err(Error::new(ErrorKind::Denied, text).with_source(error))
    }
}

/// Whether a name is only of use in a private network: it has a single label, or a top-level domain of such networks
/// (RFC 6762 Appendix G, RFC 8375, and `internal`, which ICANN has reserved).
fn is_private_name(host: &Host) -> bool {
    const ENDS: [&str; 9] = ["arpa", "corp", "home", "internal", "intranet", "lan", "local", "localdomain", "private"];
    let Host::Name(name) = host else { return false };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.rsplit_once('.').is_none_or(|(_, end)| ENDS.contains(&end))
}

/// Whether the address is assigned to this machine. Found by binding a UDP socket to it, which needs no privilege and
/// sends nothing: only assigned addresses can be bound.
fn is_local_address(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// Whether the address is not on the public Internet (IANA special-purpose registries).
pub fn is_special(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => is_special_v4(v4),
        IpAddr::V6(v6) => is_special_v6(v6),
    }
}

fn is_special_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_multicast()
        || ip.is_documentation()
        // "This network" (0/8) and the reserved block 240/4, shared address space of carrier-grade NAT (100.64/10),
        // benchmarking (198.18/15), IETF protocol assignments (192.0.0/24), relays of 6to4 (192.88.99/24).
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (b == 18 || b == 19))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    let s = ip.segments();
    embedded_v4(s).is_some_and(is_special_v4)
        || ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_unique_local()
        || ip.is_unicast_link_local()
        // Site-local (deprecated), local-use NAT64, discard-only, documentation.
        || s[0] & 0xffc0 == 0xfec0
        || (s[0] == 0x64 && s[1] == 0xff9b && s[2] == 1)
        || s[0] == 0x100 && s[1] == 0
        || (s[0] == 0x2001 && s[1] == 0xdb8)
        || (s[0] == 0x3fff && s[1] < 0x1000)
        // SIDs of segment routing (RFC 9602).
        || s[0] == 0x5f00
        // Teredo, whose relays forward packets to any IPv4 address; benchmarking; ORCHID.
        || (s[0] == 0x2001 && s[1] == 0)
        || (s[0] == 0x2001 && s[1] == 2 && s[2] == 0)
        || (s[0] == 0x2001 && matches!(s[1] & 0xfff0, 0x10 | 0x20))
}

/// The IPv4 address embedded in an IPv6 one, which decides how it is filtered: mapped, compatible, translated (SIIT),
/// NAT64, 6to4 and ISATAP.
fn embedded_v4(s: [u16; 8]) -> Option<Ipv4Addr> {
    let (hi, lo) = match s {
        // Mapped and compatible; IPv4-translated (SIIT); NAT64 (RFC 6052); 6to4 (RFC 3056); ISATAP (RFC 5214).
        [0, 0, 0, 0, 0, 0xffff | 0, hi, lo]
        | [0, 0, 0, 0, 0xffff, 0, hi, lo]
        | [0x64, 0xff9b, 0, 0, 0, 0, hi, lo]
        | [0x2002, hi, lo, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, hi, lo] => (hi, lo),
        _ => return None,
    };
    Some(Ipv4Addr::from(u32::from(hi) << 16 | u32::from(lo)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_recognised() {
        for (ip, special) in [
            ("8.8.8.8", false),
            ("192.88.99.1", true),
            ("192.88.98.1", false),
            ("5f00::1", true),
            ("5f01::1", false),
            ("10.0.0.1", true),
            ("127.9.9.9", true),
            ("169.254.169.254", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("0.0.0.0", true),
            ("192.0.2.1", true),
            ("198.18.0.1", true),
            ("255.255.255.255", true),
            ("2606:4700::1", false),
            ("::1", true),
            ("fe80::1", true),
            ("fd00::1", true),
            ("2002:7f00:1::", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("64:ff9b::808:808", false),
            ("::ffff:169.254.169.254", true),
            ("::ffff:8.8.8.8", false),
            ("::127.0.0.1", true),
            ("::10.0.0.1", true),
            ("::8.8.8.8", false),
            ("::ffff:0:10.0.0.1", true),
            ("64:ff9b:1::808:808", true),
            ("2002:808:808::1", false),
            ("2002:a9fe:a9fe::1", true),
            ("2606:4700::5efe:10.0.0.1", true),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", true),
            ("2001:4860:4860::8888", false),
            ("fec0::1", true),
            ("3fff::1", true),
        ] {
            assert_eq!(is_special(ip.parse().unwrap()), special, "{ip}");
        }
    }

    #[test]
    fn our_own_listeners_are_never_dialled() {
        let g = PrivateAddressFilter::new(
            false,
            Vec::new(),
            vec!["127.0.0.1:7070".parse().unwrap(), "0.0.0.0:7072".parse().unwrap()],
        );
        for (addr, own) in [
            ("127.0.0.1:7070", true),
            ("[::ffff:127.0.0.1]:7070", true),
            ("0.0.0.0:7070", true),
            ("127.0.0.1:7072", true),
            ("[::1]:7072", true),
            ("127.0.0.1:80", false),
            ("10.0.0.1:7070", false),
        ] {
            let refused = g.check(addr.parse().unwrap()).err().map(|e| e.kind());
            assert_eq!(refused, own.then_some(ErrorKind::Loop), "{addr}");
        }
    }

    #[test]
    fn private_addresses_are_denied_except_allowed_networks() {
        let g = PrivateAddressFilter::new(true, vec!["10.1.0.0/16".parse().unwrap()], Vec::new());
        assert!(g.check("10.1.2.3:80".parse().unwrap()).is_ok());
        assert_eq!(g.check("10.2.2.3:80".parse().unwrap()).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(g.check("[::ffff:10.2.2.3]:80".parse().unwrap()).unwrap_err().kind(), ErrorKind::Denied);
        assert!(g.check("1.1.1.1:80".parse().unwrap()).is_ok());
    }
}
