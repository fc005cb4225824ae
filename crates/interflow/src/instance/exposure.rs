//! Warnings about listeners that other machines can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use interflow_llm::LlmUpstreamConfig;
use interflow_proxy::downstream::access::AccessRules;
use interflow_types::{Authority, Host};

use crate::instance::config::InterflowConfig;

/// Sample remote clients: one from the internet, one from the local network.
const REMOTE_CLIENTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), IpAddr::V4(Ipv4Addr::new(192, 168, 0, 99))];

/// Warnings about exposed listeners, one line each. The addresses are those bound, or configured if nothing runs.
pub fn warnings(config: &InterflowConfig, proxy: &[SocketAddr], admin: Option<SocketAddr>) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(addr) = proxy.iter().find(|a| is_exposed(**a))
        && config.auth.users.is_none()
        && is_remote_client_allowed(config)
    {
        all.push(format!(
            "anyone who can reach {addr} can use the proxy and, through it, everything this machine can reach: set auth.users, \
             restrict clients with [[access.rule]], or listen on 127.0.0.1 (proxy.listen){}",
            remote_addresses_hint(*addr)
        ));
    }
    if let Some(addr) = admin.filter(|a| is_exposed(*a)) {
        all.push(format!(
            "the admin port listens on {addr}, without TLS: anyone who has the token, or reads it on the network, can read every \
             recording and change every setting; listen on 127.0.0.1 (admin.listen), or restrict access to trusted machines{}",
            remote_addresses_hint(addr)
        ));
    }
    all.extend(unauthenticated_gateway_warning(config));
    all
}

/// Warns about a gateway that adds stored provider keys to unauthenticated requests.
fn unauthenticated_gateway_warning(config: &InterflowConfig) -> Option<String> {
    let addr = config.engine().gateway.listen.iter().copied().find(|a| is_exposed(*a))?;
    let stored = |u: &LlmUpstreamConfig| {
        [&u.api_key, &u.access_key, &u.profile, &u.role_arn, &u.service_account, &u.client_secret]
            .iter()
            .any(|s| s.is_some())
    };
    let keys = !config.keys.provider.is_empty() || config.llm.provider.values().any(stored);
    let open = !config.engine().gateway.requires_certificate();
    // Set to false on purpose; unset means that other machines need a key.
    (keys && open && config.keys.require_virtual_key == Some(false)).then(|| {
        format!(
            "anyone who can reach the gateway at {addr} can spend its stored provider keys: keys.require_virtual_key is \
             false; remove it or set it to true to require a virtual key from other machines, or listen on 127.0.0.1 \
             (gateway.listen){}",
            remote_addresses_hint(addr)
        )
    })
}

pub fn config_warnings(config: &InterflowConfig) -> Vec<String> {
    warnings(config, &config.engine().proxy.listen, config.admin.listen)
}

fn is_exposed(addr: SocketAddr) -> bool {
    !addr.ip().to_canonical().is_loopback()
}

/// Whether an unauthenticated remote client may reach any destination.
fn is_remote_client_allowed(config: &InterflowConfig) -> bool {
    // Invalid rules are reported elsewhere.
    let Ok(rules) = AccessRules::new(&config.access.rule) else { return false };
    let Ok(host) = Host::parse("example.com") else { return false };
    let authority = Authority::new(host, 443);
    REMOTE_CLIENTS.iter().any(|client| rules.allows(*client, &authority))
}

fn remote_addresses_hint(addr: SocketAddr) -> String {
    let others: Vec<String> = usable(addr).iter().filter(|a| is_exposed(**a)).map(ToString::to_string).collect();
    if addr.ip().is_unspecified() && addr.port() != 0 && !others.is_empty() {
        return format!(". It is reachable from other machines at {}", others.join(" and "));
    }
    String::new()
}

/// Addresses at which clients reach a listener: for an unspecified address, loopback and the machine's own addresses.
pub fn usable(addr: SocketAddr) -> Vec<SocketAddr> {
    if !addr.ip().is_unspecified() {
        return vec![addr];
    }
    let at = |ip: IpAddr| SocketAddr::new(ip, addr.port());
    let mut all = vec![interflow_host::data_dir::connect_address(addr)];
    // No packet is sent: connecting a UDP socket only selects the source address.
    let v4 = own_address((Ipv4Addr::new(192, 0, 2, 1), 9).into());
    let v6 = addr.is_ipv6().then(|| own_address((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into())).flatten();
    all.extend(v4.into_iter().chain(v6).filter(|ip| !ip.is_loopback() && !ip.is_unspecified()).map(at));
    all
}

/// The address of a listener for other machines, if it has one for them.
pub fn for_others(addr: SocketAddr) -> SocketAddr {
    usable(addr).into_iter().rev().find(|a| is_exposed(*a)).unwrap_or(addr)
}

fn own_address(towards: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if towards.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(towards).ok()?;
    socket.local_addr().ok().map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> InterflowConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_listener_of_all_interfaces_has_an_address_for_others() {
        let [named, any] = ["127.0.0.1:7072", "0.0.0.0:7072"].map(|a| a.parse::<SocketAddr>().unwrap());
        assert_eq!(for_others(named), named);
        // Without a network there is none.
        let is_alone = usable(any).iter().all(|a| !is_exposed(*a));
        assert!(is_alone || (is_exposed(for_others(any)) && !for_others(any).ip().is_unspecified()));
    }

    #[test]
    fn open_proxy_and_exposed_admin_port_are_warned_about() {
        let open = config("[proxy]\nlisten = [\"0.0.0.0:7070\"]\n[admin]\nlisten = \"0.0.0.0:7072\"");
        let said = config_warnings(&open);
        assert!(said.len() == 2 && said[0].contains("0.0.0.0:7070") && said[1].contains("0.0.0.0:7072"), "{said:?}");
        assert!(said[0].contains("auth.users") && said[1].contains("admin.listen"), "{said:?}");
        assert!(config_warnings(&InterflowConfig::default()).is_empty());
    }

    #[test]
    fn gateway_that_exposes_provider_keys_is_warned_about() {
        for (text, warned) in [
            ("[keys]\nrequire_virtual_key = false\n[keys.provider]\nopenai = \"env:K\"", true),
            ("[keys]\nrequire_virtual_key = false\n[llm.provider.openai]\napi_key = \"env:K\"", true),
            ("[keys]\nrequire_virtual_key = true\n[keys.provider]\nopenai = \"env:K\"", false),
            ("[keys.provider]\nopenai = \"env:K\"", false),
            ("[keys]\nrequire_virtual_key = false", false),
        ] {
            for (listen, beyond) in [("0.0.0.0:7071", true), ("127.0.0.1:7071", false)] {
                let said = config_warnings(&config(&format!("[gateway]\nlisten = [\"{listen}\"]\n{text}")));
                assert_eq!(
                    said.iter().any(|s| s.contains("keys.require_virtual_key")),
                    warned && beyond,
                    "{listen} {text}: {said:?}"
                );
            }
        }
    }

    #[test]
    fn users_or_access_rules_suppress_the_open_proxy_warning() {
        let listen = "[proxy]\nlisten = [\"[::]:7070\"]\n";
        for (more, warned) in [
            ("", true),
            ("[auth]\nusers = \"users\"", false),
            ("[[access.rule]]\naction = \"deny\"", false),
            (
                "[[access.rule]]\naction = \"allow\"\nclients = [\"10.0.0.0/8\"]\n[[access.rule]]\naction = \"deny\"",
                false,
            ),
            ("[[access.rule]]\naction = \"deny\"\nhosts = [\"*.bank.example\"]", true),
            ("[[access.rule]]\naction = \"deny\"\nclients = [\"203.0.113.0/24\"]", true),
        ] {
            assert_eq!(!config_warnings(&config(&format!("{listen}{more}"))).is_empty(), warned, "{more}");
        }
    }

    #[test]
    fn wildcard_address_is_shown_as_usable_addresses() {
        let shown = usable("0.0.0.0:7070".parse().unwrap());
        assert_eq!(shown[0].to_string(), "127.0.0.1:7070");
        assert!(shown.iter().all(|a| !a.ip().is_unspecified() && a.port() == 7070), "{shown:?}");
        assert_eq!(usable("10.1.2.3:80".parse().unwrap()), ["10.1.2.3:80".parse().unwrap()]);
    }
}
