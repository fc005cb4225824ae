//! Access rules: allow or deny by user, client, host, port and method; the first match decides.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use interflow_types::{Authority, Host, HostPatterns};

use crate::config::{AccessAction, AccessRule};

/// What an access rule tests. `method` is `CONNECT` for every tunnel, SOCKS5 and transparent ones included.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    pub user: Option<&'a str>,
    pub client: IpAddr,
    pub authority: &'a Authority,
    pub method: &'a str,
}

/// The compiled `access.rule` list: the first match decides, and a request that no rule matches is allowed.
#[derive(Clone, Debug, Default)]
pub struct AccessRules {
    rules: Vec<CompiledAccessRule>,
}

#[derive(Clone, Debug)]
struct CompiledAccessRule {
    rule: AccessRule,
    hosts: HostPatterns,
    ports: Vec<RangeInclusive<u16>>,
}

impl AccessRules {
    /// Compiles the rules of a config.
    ///
    /// # Errors
    /// Names the invalid rule (`access.rule[2]`) and what is wrong.
    pub fn new(config: &[AccessRule]) -> Result<Self, String> {
        let compile = |(i, rule): (usize, &AccessRule)| {
            CompiledAccessRule::new(rule).map_err(|e| format!("access.rule[{i}]: {e}"))
        };
        Ok(Self { rules: config.iter().enumerate().map(compile).collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the decision for this host depends on the method, so that a tunnel's CONNECT alone is not enough.
    pub fn needs_method(&self, host: &Host) -> bool {
        let of_requests = |r: &CompiledAccessRule| r.rule.methods.iter().any(|m| !m.eq_ignore_ascii_case("CONNECT"));
        self.rules.iter().any(|r| of_requests(r) && (r.hosts.is_empty() || r.hosts.matches_host(host)))
    }

    /// Whether no rule tests the method, so that one decision holds for all requests of a client to an authority.
    pub fn ignores_method(&self) -> bool {
        self.rules.iter().all(|r| r.rule.methods.is_empty())
    }

    /// Whether an unauthenticated client may open a tunnel to this authority.
    pub fn allows(&self, client: IpAddr, authority: &Authority) -> bool {
        self.check(&AccessRequest { user: None, client, authority, method: "CONNECT" }).is_ok()
    }

    /// `Err` holds the index of the rule that denies the request.
    pub fn check(&self, request: &AccessRequest<'_>) -> Result<(), usize> {
        match self.rules.iter().enumerate().find(|(_, r)| r.matches(request)) {
            Some((i, denying)) if denying.rule.action == AccessAction::Deny => Err(i),
            _ => Ok(()),
        }
    }
}

impl CompiledAccessRule {
    fn new(rule: &AccessRule) -> Result<Self, String> {
        Ok(Self {
            rule: rule.clone(),
            hosts: HostPatterns::parse(&rule.hosts).map_err(|e| e.to_string())?,
            ports: rule.ports.iter().map(|p| ports(p)).collect::<Result<_, _>>()?,
        })
    }

    fn matches(&self, request: &AccessRequest<'_>) -> bool {
        // An IPv4 client of a dual-stack socket has an IPv4-mapped IPv6 address, which no IPv4 network contains.
        let client = request.client.to_canonical();
        let AccessRule { users, clients, methods, .. } = &self.rule;
        (users.is_empty() || request.user.is_some_and(|u| users.iter().any(|x| x == u)))
            && (clients.is_empty() || clients.iter().any(|net| net.contains(&client)))
            && (self.hosts.is_empty() || self.hosts.matches(&request.authority.host, request.authority.port))
            && (self.ports.is_empty() || self.ports.iter().any(|r| r.contains(&request.authority.port)))
            // Methods are case-sensitive (RFC 9110 9.1), but not for every origin: `post` must not pass by a rule for POST.
            && (methods.is_empty() || methods.iter().any(|m| m.eq_ignore_ascii_case(request.method)))
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.trim().parse(), high.trim().parse()) {
        (Ok(low @ 1..), Ok(high)) if low <= high => Ok(low..=high),
        _ => Err(format!("`{text}` is not a port or port range: write 443 or 8000-8999")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: AccessAction, set: impl FnOnce(&mut AccessRule)) -> AccessRule {
        let mut rule = AccessRule {
            action,
            users: Vec::new(),
            clients: Vec::new(),
            hosts: Vec::new(),
            ports: Vec::new(),
            methods: Vec::new(),
        };
        set(&mut rule);
        rule
    }

    fn allowed(rules: &AccessRules, user: Option<&str>, client: &str, authority: &str, method: &str) -> bool {
        let authority = authority.parse().unwrap();
        rules.check(&AccessRequest { user, client: client.parse().unwrap(), authority: &authority, method }).is_ok()
    }

    #[test]
    fn the_first_match_decides_and_no_match_allows() {
        let rules = AccessRules::new(&[
            rule(AccessAction::Allow, |r| r.users = vec!["ann".into()]),
            rule(AccessAction::Deny, |r| r.hosts = vec!["*.bad".into()]),
            rule(AccessAction::Deny, |r| {
                r.clients = vec!["10.0.0.0/8".parse().unwrap()];
                r.ports = vec!["25".into(), "6000-6010".into()];
            }),
            rule(AccessAction::Deny, |r| r.methods = vec!["DELETE".into()]),
        ])
        .unwrap();
        for (user, client, authority, method, yes) in [
            (Some("ann"), "10.0.0.1", "x.bad:80", "GET", true),
            (Some("bob"), "10.0.0.1", "x.bad:80", "GET", false),
            (None, "10.0.0.1", "good:25", "GET", false),
            (None, "::ffff:10.0.0.1", "good:6005", "CONNECT", false),
            (None, "11.0.0.1", "good:25", "GET", true),
            (None, "11.0.0.1", "good:80", "DELETE", false),
            (None, "11.0.0.1", "good:80", "delete", false),
        ] {
            assert_eq!(allowed(&rules, user, client, authority, method), yes, "{user:?} {client} {authority} {method}");
        }
        assert!(!rules.ignores_method());
    }

    #[test]
    fn invalid_access_rule_is_reported_with_its_index() {
        for ports in ["9-1", "0", "0-9"] {
            let bad = [rule(AccessAction::Deny, |_| ()), rule(AccessAction::Deny, |r| r.ports = vec![ports.into()])];
            let e = AccessRules::new(&bad).unwrap_err();
            assert!(e.starts_with(&format!("access.rule[1]: `{ports}`")), "{e}");
        }
    }
}
