//! Compiled and indexed rules: a decision evaluates only rules whose host may match, and takes no lock.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use globset::{GlobBuilder, GlobMatcher};
use interflow_types::host_pattern::{addresses_of, domains_of};
use interflow_types::{Host, HostIndexKey, HostPattern, HostPatternError, path, wildcard};

use super::clock::{monotonic_secs, now};
use super::config::{ApprovalAction, RuleSpec};
use interflow_types::schema::JsonSchema;

/// The origin of a rule, in ascending precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ApprovalRuleSource")]
pub enum RuleSource {
    /// Built in: this machine itself is allowed.
    Builtin,
    /// A session's rule.
    Session,
    /// The operator's, from the configuration or created at runtime.
    Global,
}

#[derive(Clone, Debug)]
pub(crate) struct AccessQuestion<'a> {
    pub user: Option<&'a str>,
    pub process: Option<&'a str>,
    pub container: Option<&'a str>,
    /// Ids of the sessions that the flow belongs to.
    pub sessions: &'a [Arc<str>],
    /// The agent names of these sessions.
    pub agents: &'a [Arc<str>],
    pub host: &'a Host,
    pub port: u16,
    /// Method and path without query, if the request is inspected.
    pub request: Option<(&'a str, &'a str)>,
    /// Seconds since the Unix epoch.
    pub now: u64,
}

#[derive(Debug)]
pub(crate) struct ApprovalRule {
    pub id: String,
    pub layer: RuleSource,
    pub spec: RuleSpec,
    /// How often it decided since the start.
    pub used: AtomicU64,
    /// When it last decided, in seconds since the Unix epoch; 0: never.
    pub last: AtomicU64,
    /// When it was created, in seconds since the Unix epoch.
    pub made: u64,
    /// Its session, and when that expires.
    pub session: Option<(Arc<str>, Arc<AtomicU64>)>,
    until: u64,
    hosts: Vec<HostPattern>,
    ports: Vec<RangeInclusive<u16>>,
    paths: Vec<(GlobMatcher, u32)>,
}

/// The specificity of a match, compared field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleSpecificity {
    layer: RuleSource,
    host: u32,
    path: u32,
    port: bool,
    method: bool,
    who: u32,
    denies: bool,
}

impl ApprovalRule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// The rule is invalid.
    pub fn new(id: String, layer: RuleSource, spec: RuleSpec) -> Result<Self, String> {
        let path = |glob: &String| {
            if !glob.starts_with(['/', '*']) {
                return Err(format!("`{glob}` is not a path: it must begin with a slash"));
            }
            let built =
                GlobBuilder::new(glob).build().map_err(|e| format!("`{glob}` is not a path glob: {}", e.kind()))?;
            // One more than the literal characters, so that any path is more specific than none.
            Ok((built.compile_matcher(), 1 + literal_chars(glob) as u32))
        };
        let until = match &spec.until {
            None => u64::MAX,
            Some(text) => {
                let at: jiff::Timestamp = text.parse().map_err(|e| format!("until: `{text}` is not a time: {e}"))?;
                u64::try_from(at.as_second()).unwrap_or(0)
            }
        };
        if spec.action == ApprovalAction::Allow && spec.has_no_condition() {
            return Err("the rule would allow everything: name its `hosts`, or [\"*\"] if every host is meant".into());
        }
        Ok(Self {
            id,
            layer,
            used: AtomicU64::new(0),
            last: AtomicU64::new(0),
            made: now(),
            session: None,
            until,
            hosts: spec
                .hosts
                .iter()
                .map(|h| h.parse())
                .collect::<Result<_, HostPatternError>>()
                .map_err(|e| e.to_string())?,
            ports: spec.ports.iter().map(|p| ports(p)).collect::<Result<_, _>>()?,
            paths: spec.paths.iter().map(path).collect::<Result<_, String>>()?,
            spec,
        })
    }

    /// Whether nothing but its counts differs.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.spec == other.spec
    }

    /// Whether it depends on requests, and so cannot decide on a tunnel.
    pub fn needs_request(&self) -> bool {
        !self.spec.methods.is_empty() || !self.paths.is_empty()
    }

    pub fn is_expired(&self, now: u64) -> bool {
        self.until <= now || self.session.as_ref().is_some_and(|(_, until)| until.load(Relaxed) <= monotonic_secs())
    }

    fn specificity(&self, q: &AccessQuestion<'_>) -> Option<RuleSpecificity> {
        if self.is_expired(q.now) || !self.matches_client(q) {
            return None;
        }
        let spec = &self.spec;
        let matching = self.hosts.iter().filter(|pattern| pattern.matches(q.host, q.port));
        // A rule without hosts matches every host, but is the least specific.
        let host = matching.map(|pattern| pattern.host.specificity()).max().or(self.hosts.is_empty().then_some(0))?;
        if !self.ports.is_empty() && !self.ports.iter().any(|p| p.contains(&q.port)) {
            return None;
        }
        let is_of =
            |method: &str| spec.methods.is_empty() || spec.methods.iter().any(|m| m.eq_ignore_ascii_case(method));
        // On a tunnel, methods and paths are left open; the caller decides what that means.
        let path = match q.request {
            None => 0,
            Some((method, path)) if is_of(method) => self.path_specificity(path)?,
            Some(_) => return None,
        };
        let lists = [&spec.users, &spec.agents, &spec.processes, &spec.containers, &spec.sessions];
        Some(RuleSpecificity {
            layer: self.layer,
            host,
            path,
            port: !self.ports.is_empty(),
            method: !spec.methods.is_empty(),
            who: lists.iter().filter(|l| !l.is_empty()).count() as u32 + u32::from(self.session.is_some()),
            // Last in the comparison: of two equally specific rules, the one that denies.
            denies: spec.action == ApprovalAction::Deny,
        })
    }

    fn matches_client(&self, q: &AccessQuestion<'_>) -> bool {
        let named = |list: &[String], names: &[Option<&str>]| {
            list.is_empty() || names.iter().flatten().any(|n| list.iter().any(|l| wildcard::matches(l, n)))
        };
        let member = |list: &[String], names: &[Arc<str>]| {
            list.is_empty() || names.iter().any(|n| list.iter().any(|l| wildcard::matches(l, n)))
        };
        // Without a session that names an agent, the client's own names count.
        let agent = match q.agents {
            [] => named(&self.spec.agents, &[q.user, q.container, q.process]),
            agents => member(&self.spec.agents, agents),
        };
        agent
            && self.session.as_ref().is_none_or(|(id, _)| q.sessions.contains(id))
            && named(&self.spec.users, &[q.user])
            && named(&self.spec.processes, &[q.process])
            && named(&self.spec.containers, &[q.container])
            && member(&self.spec.sessions, q.sessions)
    }

    /// The specificity of the path match. A path may have several normalized variants: a rule that allows must match
    /// all of them, a rule that denies any of them. If they cannot all be determined, no rule with a path allows it.
    fn path_specificity(&self, path: &str) -> Option<u32> {
        if self.paths.is_empty() {
            return Some(0);
        }
        let best = |text: &str| self.paths.iter().filter(|(g, _)| g.is_match(text)).map(|(_, n)| *n).max();
        let (readings, is_complete) = path::known_variants(path);
        match self.spec.action {
            ApprovalAction::Allow if !is_complete => None,
            // The least specific variant counts, so that no variant is allowed by chance.
            ApprovalAction::Allow => readings.iter().map(|r| best(r)).min().flatten(),
            ApprovalAction::Deny => readings.iter().filter_map(|r| best(r)).max(),
        }
    }
}

/// The number of literal characters in a glob.
fn literal_chars(glob: &str) -> usize {
    glob.chars().filter(|c| !matches!(c, '*' | '?' | '[' | ']' | '{' | '}')).count()
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("`{text}` is not a port or port range");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
    if first == 0 || first > last { Err(wrong()) } else { Ok(first..=last) }
}

/// All active rules, indexed by host.
#[derive(Debug, Default)]
pub(crate) struct ApprovalRuleSet {
    pub rules: Vec<Arc<ApprovalRule>>,
    names: HashMap<Box<str>, Vec<usize>>,
    domains: HashMap<Box<str>, Vec<usize>>,
    addresses: HashMap<IpAddr, Vec<usize>>,
    /// Rules whose host patterns are not in a table.
    other: Vec<usize>,
}

impl ApprovalRuleSet {
    pub fn new(rules: Vec<Arc<ApprovalRule>>) -> Self {
        let mut book = Self { rules, ..Self::default() };
        for (i, rule) in book.rules.iter().enumerate() {
            if rule.hosts.is_empty() {
                book.other.push(i);
            }
            for pattern in &rule.hosts {
                let list = match pattern.host.index_key() {
                    HostIndexKey::Name(name) => book.names.entry(name.into()).or_default(),
                    HostIndexKey::Domain(name) => book.domains.entry(name.into()).or_default(),
                    HostIndexKey::Ip(ip) => book.addresses.entry(ip).or_default(),
                    HostIndexKey::None => &mut book.other,
                };
                if list.last() != Some(&i) {
                    list.push(i);
                }
            }
        }
        book
    }

    /// The rules whose hosts may match: those for the name, its parent domains, the address, and those for any host.
    fn candidates<'b>(&'b self, host: &'b Host) -> impl Iterator<Item = &'b Arc<ApprovalRule>> {
        let name = host.name().map(|name| name.strip_suffix('.').unwrap_or(name)).unwrap_or_default();
        let addresses = addresses_of(host).filter_map(|ip| self.addresses.get(&ip));
        let domains = domains_of(name).filter_map(|domain| self.domains.get(domain));
        let listed = self.names.get(name).into_iter().chain(addresses).chain(domains).flatten();
        listed.chain(&self.other).map(|i| &self.rules[*i])
    }

    /// The rule that decides: by source, then by specificity, then the one that denies.
    pub fn decide(&self, q: &AccessQuestion<'_>) -> Option<Arc<ApprovalRule>> {
        // Without a request, a rule for methods or paths cannot be evaluated.
        let matching = self.candidates(q.host).filter(|r| q.request.is_some() || !r.needs_request());
        let (_, best) = matching.filter_map(|r| Some((r.specificity(q)?, r))).max_by_key(|(weight, _)| *weight)?;
        best.used.fetch_add(1, Relaxed);
        best.last.store(q.now, Relaxed);
        Some(Arc::clone(best))
    }

    /// Whether a rule for this host depends on methods or paths.
    pub fn needs_requests(&self, host: &Host) -> bool {
        self.candidates(host).any(|r| r.needs_request())
    }

    /// Whether a rule that depends on requests may allow a request in this tunnel.
    pub fn may_allow_in_tunnel(&self, q: &AccessQuestion<'_>) -> bool {
        let tunnel = AccessQuestion { request: None, ..q.clone() };
        let mut inside =
            self.candidates(q.host).filter(|r| r.needs_request() && r.spec.action == ApprovalAction::Allow);
        inside.any(|r| r.specificity(&tunnel).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(action: ApprovalAction, hosts: &[&str]) -> RuleSpec {
        RuleSpec { hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), ..RuleSpec::new(action) }
    }

    fn book(rules: Vec<(RuleSource, RuleSpec)>) -> ApprovalRuleSet {
        let rules = rules.into_iter().enumerate();
        ApprovalRuleSet::new(
            rules.map(|(i, (layer, s))| Arc::new(ApprovalRule::new(i.to_string(), layer, s).unwrap())).collect(),
        )
    }

    fn ask(book: &ApprovalRuleSet, host: &str, request: Option<(&str, &str)>) -> Option<(ApprovalAction, String)> {
        let host = Host::parse(host).unwrap();
        let q = AccessQuestion {
            user: Some("ann"),
            process: Some("curl"),
            container: Some("agent-7"),
            sessions: &[],
            agents: &[],
            host: &host,
            port: 443,
            request,
            now: 1_000_000,
        };
        book.decide(&q).map(|rule| (rule.spec.action, rule.id.clone()))
    }

    #[test]
    fn most_specific_rule_wins_and_deny_wins_ties() {
        use ApprovalAction::{Allow, Deny};
        let book = book(vec![
            (RuleSource::Global, spec(Deny, &["*.example.com"])),
            (RuleSource::Global, spec(Allow, &["api.example.com"])),
            (RuleSource::Global, RuleSpec { methods: vec!["DELETE".into()], ..spec(Deny, &["api.example.com"]) }),
            (RuleSource::Global, spec(Allow, &["twice.test"])),
            (RuleSource::Global, spec(Deny, &["twice.test"])),
            (RuleSource::Builtin, spec(Allow, &["*"])),
            (RuleSource::Session, spec(Deny, &["a.test"])),
            (RuleSource::Global, spec(Deny, &["127.0.0.1"])),
        ]);
        for (host, request, rule) in [
            ("www.example.com", None, "0"),
            ("api.example.com", None, "1"),
            ("api.example.com", Some(("GET", "/")), "1"),
            ("api.example.com", Some(("delete", "/")), "2"),
            ("twice.test", None, "4"),
            ("other.test", None, "5"),
            ("a.test", None, "6"),
            ("example.com", None, "5"),
            ("0.0.0.0", None, "7"),
        ] {
            assert_eq!(ask(&book, host, request).unwrap().1, rule, "{host} {request:?}");
        }
    }

    #[test]
    fn path_rules_match_every_equivalent_spelling() {
        use ApprovalAction::{Allow, Deny};
        let rule = |action, path: &str| RuleSpec { paths: vec![path.to_owned()], ..spec(action, &["h.test"]) };
        let allow = book(vec![(RuleSource::Global, rule(Allow, "/pub/*"))]);
        let deny = book(vec![(RuleSource::Global, rule(Deny, "/admin*"))]);
        for (path, allowed, denied) in [
            ("/pub/a", true, false),
            ("/pub/../admin", false, true),
            ("/pub/%2e%2e/admin", false, true),
            ("/%61dmin", false, true),
            ("//admin", false, true),
            ("/pub/./a", true, false),
            ("/pub\\..\\admin", false, true),
            ("/pub/..;/admin", false, true),
            ("/pub/%5c..%5cadmin", false, true),
            ("/pub/..%2fadmin", false, true),
            ("/pub/%252e%252e/admin", false, true),
            ("/pub/%c0%ae%c0%ae/admin", false, false),
            ("/pub/%c0/../../%61dmin", false, true),
            ("/%61dmin%00", false, true),
            ("/pub/%00", false, false),
            ("/pub/a;v=1/b", true, false),
            ("/x", false, false),
        ] {
            assert_eq!(ask(&allow, "h.test", Some(("GET", path))).is_some(), allowed, "allow {path}");
            assert_eq!(ask(&deny, "h.test", Some(("GET", path))).is_some(), denied, "deny {path}");
        }
        assert_eq!(ask(&allow, "h.test", None), None, "a tunnel shows no path");
    }

    #[test]
    fn rules_match_client_and_time() {
        use ApprovalAction::Allow;
        let who = |edit: fn(&mut RuleSpec)| {
            let mut s = spec(Allow, &[]);
            edit(&mut s);
            ask(&book(vec![(RuleSource::Global, s)]), "h.test", None).is_some()
        };
        assert!(who(|s| s.users = vec!["ANN".into()]) && !who(|s| s.users = vec!["bob".into()]));
        assert!(who(|s| s.processes = vec!["curl".into()]) && !who(|s| s.processes = vec!["node".into()]));
        assert!(who(|s| s.agents = vec!["curl".into()]), "without a session the program is the agent");
        assert!(who(|s| s.containers = vec!["Agent-*".into()]) && !who(|s| s.containers = vec!["web".into()]));
        assert!(!who(|s| s.sessions = vec!["s1".into()]));
        assert!(who(|s| s.ports = vec!["400-500".into()]) && !who(|s| s.ports = vec!["80".into()]));
        let until = |time: &str| {
            let s = RuleSpec { until: Some(time.into()), ..spec(Allow, &["*"]) };
            ask(&book(vec![(RuleSource::Global, s)]), "h.test", None).is_some()
        };
        assert!(until("2100-01-01T00:00:00Z") && !until("1970-01-02T00:00:00Z"));
    }

    #[test]
    fn invalid_rules_are_reported_by_cause() {
        let compiled = |edit: fn(&mut RuleSpec)| {
            let mut s = RuleSpec::new(ApprovalAction::Allow);
            edit(&mut s);
            ApprovalRule::new("x".into(), RuleSource::Global, s).map(drop).unwrap_err()
        };
        assert!(compiled(|s| s.note = Some("n".into())).contains("would allow everything"));
        for every in ["*", "**", "/*", "/**"] {
            let spec = RuleSpec { paths: vec![every.into()], ..RuleSpec::new(ApprovalAction::Allow) };
            assert!(ApprovalRule::new("x".into(), RuleSource::Global, spec).is_err(), "{every}");
        }
        assert!(compiled(|s| s.methods = vec!["*".into()]).contains("would allow everything"));
        let every_host = RuleSpec { hosts: vec!["*".into()], ..RuleSpec::new(ApprovalAction::Allow) };
        assert!(ApprovalRule::new("x".into(), RuleSource::Global, every_host).is_ok());
        assert!(compiled(|s| s.ports = vec!["0".into()]).contains("not a port"));
        assert!(compiled(|s| s.paths = vec!["a".into()]).contains("not a path"));
        assert!(compiled(|s| s.until = Some("tomorrow".into())).contains("not a time"));
        assert!(compiled(|s| s.hosts = vec!["a[".into()]).contains("not a host pattern"));
    }

    #[test]
    fn rule_lookup_examines_only_rules_of_the_host() {
        let rules = (0..1000).map(|i| (RuleSource::Global, spec(ApprovalAction::Deny, &[&format!("h{i}.test")])));
        let book = book(rules.collect());
        assert_eq!(book.candidates(&Host::parse("h7.test").unwrap()).count(), 1);
        assert_eq!(book.candidates(&Host::parse("x.test").unwrap()).count(), 0);
        assert_eq!(ask(&book, "h7.test", None).unwrap().1, "7");
    }
}
