//! The compiled redaction configuration, and the selection of a policy for each request.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_llm::LlmCall;
use interflow_llm::spans::MediaKind;
use interflow_redact::{
    AdditionalDetectors, AddressRule, EntityModel, ExternalDetectors, FindingCache, MAIN_POLICY, MediaRule,
    OutboundMode, Policy, RedactConfig, RedactMode, RedactRoute, Redactor, UnknownRule,
};
use interflow_types::{ByteStr, EntryKind, Flow, HttpClient, PlanScope, RequestHead};

use super::{RouteView, is_gateway};
use crate::limits::KeyContext;

/// The policy file in the data directory if the configuration names none; the web UI writes it. It need not exist.
const DEFAULT_POLICY_FILE: &str = "policy.toml";

/// The policy file of requests without an exception.
pub(super) fn policy_file(config: &RedactConfig, base: &Path) -> PathBuf {
    base.join(config.policy.as_deref().unwrap_or(Path::new(DEFAULT_POLICY_FILE)))
}

/// The compiled section `[redact]` with its policies. Immutable: a reload makes a new one, and flows in progress keep
/// theirs.
pub struct RedactSettings {
    /// The configuration it was compiled from.
    pub(super) config: RedactConfig,
    /// The directory that relative paths start from.
    pub(super) folder: PathBuf,
    gateway: RedactMode,
    intercepted: RedactMode,
    base: EffectivePolicy,
    routes: Vec<(RedactRoute, Option<Arc<Redactor>>)>,
    /// The policies of `redact.policies`, which keys select by name.
    pub(super) policies: BTreeMap<String, Arc<Redactor>>,
    pub(super) unknown: UnknownRule,
    pub(super) metadata: bool,
    pub(super) url: AddressRule,
    pub(super) headers: AddressRule,
    media: [MediaRule; 3],
    pub(super) detectors: AdditionalDetectors,
    pub(super) max_body: usize,
    pub(super) conversations: usize,
}

/// The redaction policy of one flow, after routes, key and exemptions were applied.
#[derive(Clone)]
pub(crate) struct EffectivePolicy {
    pub mode: RedactMode,
    pub redactor: Arc<Redactor>,
    pub context: String,
    pub restore: bool,
    pub outbound: OutboundMode,
    /// The label of its findings: the exception's name, or `gateway` or `intercepted`.
    pub route: Arc<str>,
}

/// A draft that replaces the contents of a policy file, so that it can be checked with the whole section before it is
/// written.
pub(super) type PolicyDraft<'a> = (&'a Path, &'a str);

impl RedactSettings {
    /// `earlier` are the active settings: a model that did not change is taken over, since loading one takes seconds.
    pub(super) fn new(
        config: &RedactConfig,
        base: &Path,
        memo: &Arc<FindingCache>,
        egress: &Arc<dyn HttpClient>,
        earlier: Option<&Self>,
        draft: Option<PolicyDraft<'_>>,
    ) -> Result<Self, String> {
        // Several routes may name one file: it is read and compiled once.
        let mut read = HashMap::new();
        let mut policy = |key: &str, path: PathBuf, needed: bool| -> Result<Arc<Redactor>, String> {
            if let Some(known) = read.get(&path) {
                return Ok(Arc::clone(known));
            }
            let policy = match draft.filter(|(file, _)| *file == path) {
                Some((_, text)) => Policy::check(text).map_err(|e| format!("{key}: {}: {e}", path.display()))?,
                // The default file may be missing, a file that the configuration names may not.
                None if needed || path.exists() => read_policy(&path).map_err(|e| format!("{key}: {e}"))?,
                None => Policy::default(),
            };
            let redactor = Arc::new(Redactor::new(policy).with_cache(Arc::clone(memo)));
            read.insert(path, Arc::clone(&redactor));
            Ok(redactor)
        };
        let redactor = policy("redact.policy", policy_file(config, base), config.policy.is_some())?;
        let mut routes = Vec::new();
        for (i, route) in config.route.iter().enumerate() {
            let key = format!("redact.route[{i}].policy");
            let own = route.policy.as_ref().map(|p| policy(&key, base.join(p), true)).transpose()?;
            routes.push((route.clone(), own));
        }
        if config.policies.contains_key(MAIN_POLICY) {
            return Err(format!("redact.policies.{MAIN_POLICY}: this is the name of redact.policy"));
        }
        let mut policies = BTreeMap::new();
        for (name, file) in &config.policies {
            policies.insert(name.clone(), policy(&format!("redact.policies.{name}"), base.join(file), true)?);
        }
        let services = match config.backend.as_slice() {
            [] => None,
            services => {
                Some(Arc::new(ExternalDetectors::new(services, Arc::clone(egress)).map_err(|e| e.to_string())?))
            }
        };
        let same = |s: &&Self| s.config.model == config.model && s.folder == base;
        let model = match (&config.model, earlier.filter(same)) {
            (None, _) => None,
            (Some(_), Some(earlier)) => earlier.detectors.model.clone(),
            (Some(model), None) => Some(Arc::new(EntityModel::load(model, base).map_err(|e| e.to_string())?)),
        };
        Ok(Self {
            config: config.clone(),
            folder: base.to_owned(),
            detectors: AdditionalDetectors { services, model },
            gateway: config.gateway,
            intercepted: config.proxied,
            base: EffectivePolicy {
                mode: RedactMode::Off,
                redactor,
                context: config.context.clone(),
                restore: config.restore,
                outbound: config.responses,
                route: default_route_name(false).into(),
            },
            routes,
            policies,
            unknown: config.unknown,
            metadata: config.metadata,
            url: config.url,
            headers: config.headers,
            media: [config.images, config.audio, config.documents],
            max_body: usize::try_from(config.max_body.0).unwrap_or(usize::MAX),
            conversations: config.conversations,
        })
    }

    pub(super) fn policy_of(&self, route: &RouteView) -> &Policy {
        let own = self.routes.iter().find(|(r, own)| own.is_some() && route.exception.as_ref() == Some(r));
        own.and_then(|(_, own)| own.as_ref()).unwrap_or(&self.base.redactor).policy()
    }

    pub(super) fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.base.redactor)
    }

    /// Whether requests of clients with this kind of entry may need to be inspected. Errs on the side of inspecting:
    /// routes are known only per request.
    pub(crate) fn wants(&self, transport: EntryKind) -> bool {
        self.base.outbound != OutboundMode::Off
            || self.mode(transport) != RedactMode::Off
            || self.routes.iter().any(|(r, _)| r.mode.is_some() || r.responses.is_some())
    }

    /// Whether requests or responses of this scope may need redaction: then none is passed through without
    /// inspection.
    pub(crate) fn protects(&self, scope: &PlanScope<'_>) -> bool {
        let redacts = |mode| mode == RedactMode::Redact;
        let scans = |mode| !matches!(mode, OutboundMode::Off | OutboundMode::Flag);
        redacts(self.mode(scope.transport))
            || scans(self.base.outbound)
            || self.routes.iter().any(|(r, _)| r.mode.is_some_and(redacts) || r.responses.is_some_and(scans))
    }

    /// Whether prompts with this kind of entry may need redaction.
    pub(super) fn redacts(&self, transport: EntryKind) -> bool {
        let redacts = |mode| mode == RedactMode::Redact;
        redacts(self.mode(transport)) || self.routes.iter().any(|(r, _)| r.mode.is_some_and(redacts))
    }

    /// The redactor that a virtual key selects; `None` rejects the request.
    pub(super) fn of_key(&self, name: &str) -> Option<&Arc<Redactor>> {
        if name == MAIN_POLICY { Some(&self.base.redactor) } else { self.policies.get(name) }
    }

    /// The redactor of a policy by name, as clients with a text of their own give it.
    pub(super) fn redactor_by_name(&self, name: &str) -> Option<&Arc<Redactor>> {
        if let Some(listed) = self.policies.get(name) {
            return Some(listed);
        }
        let own = self.routes.iter().filter_map(|(_, r)| r.as_ref());
        let by_name = || own.into_iter().find(|r| r.policy().name() == name);
        let base = &self.base.redactor;
        if name.is_empty() || name == "default" || base.policy().name() == name { Some(base) } else { by_name() }
    }

    pub(super) const fn mode(&self, transport: EntryKind) -> RedactMode {
        if is_gateway(transport) { self.gateway } else { self.intercepted }
    }

    pub(super) const fn media(&self, kind: MediaKind) -> MediaRule {
        self.media[match kind {
            MediaKind::Image => 0,
            MediaKind::Audio => 1,
            MediaKind::Document => 2,
        }]
    }

    /// The policy of a flow whose model is known: the strictest of those of its possible upstreams. Upstreams with a
    /// different policy are excluded.
    ///
    /// # Errors
    /// The flow's key selects a policy that does not exist, so what it would redact is unknown.
    pub(super) fn effective_policy(
        &self,
        flow: &Flow,
        head: &RequestHead,
        exchange: &mut LlmCall,
    ) -> Result<EffectivePolicy, MissingPolicy> {
        let key = flow.extension::<KeyContext>().and_then(|note| note.key.as_ref());
        let own = key.and_then(|key| key.policy.as_ref().map(|name| (key, name)));
        let own = own.map(|(key, name)| {
            self.of_key(name).ok_or_else(|| MissingPolicy { key: Arc::clone(&key.id), policy: Arc::clone(name) })
        });
        let own = own.transpose()?;
        let addressed = self.policy_for_upstream(flow, head, exchange, own);
        if exchange.others.is_empty() {
            return Ok(addressed);
        }
        // A request may be sent to any of its fallbacks after it was redacted once, so one policy must do for all of
        // them.
        let at = |name: &ByteStr| {
            let mut there = exchange.clone();
            there.upstream = Some(name.clone());
            there
        };
        let others: Vec<EffectivePolicy> =
            exchange.others.iter().map(|o| self.policy_for_upstream(flow, head, &at(o), own)).collect();
        let all = || [&addressed].into_iter().chain(&others);
        let mut choice = all().min_by_key(|policy| policy.mode).unwrap_or(&addressed).clone();
        // An upstream that demands another redactor would get a body that was not redacted as its policy demands.
        let fit = |o: &EffectivePolicy| o.mode != RedactMode::Redact || Arc::ptr_eq(&o.redactor, &choice.redactor);
        // Any of them may answer.
        let outbound = all().filter(|o| fit(o)).map(|o| o.outbound).max();
        let mut fits = others.iter().map(fit);
        exchange.others.retain(|name| {
            let fit = fits.next().unwrap_or(true);
            if !fit {
                tracing::warn!(flow = %flow.id, "the upstream {name} is not used as a fallback: another redaction policy is active for it");
            }
            fit
        });
        choice.outbound = outbound.unwrap_or_default();
        Ok(choice)
    }

    /// The policy of a flow to one upstream: the first matching route, then the key. A policy selected by the key
    /// applies on every route.
    fn policy_for_upstream(
        &self,
        flow: &Flow,
        head: &RequestHead,
        exchange: &LlmCall,
        own: Option<&Arc<Redactor>>,
    ) -> EffectivePolicy {
        let route = default_route_name(is_gateway(flow.transport)).into();
        let mut choice = EffectivePolicy { mode: self.mode(flow.transport), route, ..self.base.clone() };
        let fits = |(_, (route, _)): &(usize, &(RedactRoute, _))| matches(route, flow, head, exchange);
        if let Some((i, (route, redactor))) = self.routes.iter().enumerate().find(fits) {
            choice.apply_route(route, redactor.as_ref());
            choice.route = route_name(i, route).into();
        }
        if let Some(own) = own {
            choice.redactor = Arc::clone(own);
        }
        // The operator exempted this call, such as an agent's own telemetry (`llm.telemetry = "pass"`).
        if exchange.exempt {
            choice.mode = RedactMode::Off;
        }
        // Flag-only mode does not change responses either.
        choice.outbound = match (choice.mode, choice.outbound) {
            (RedactMode::Off, _) => OutboundMode::Off,
            (RedactMode::Flag, OutboundMode::Redact | OutboundMode::Block) => OutboundMode::Flag,
            (_, outbound) => outbound,
        };
        choice
    }
}

/// A virtual key selects a policy that does not exist. What it would have redacted is unknown, so nothing is sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the key {key} requires the policy {policy}, which is not in redact.policies; nothing is sent without it")]
pub(super) struct MissingPolicy {
    key: Arc<str>,
    policy: Arc<str>,
}

impl EffectivePolicy {
    fn apply_route(&mut self, route: &RedactRoute, redactor: Option<&Arc<Redactor>>) {
        if let Some(redactor) = redactor {
            self.redactor = Arc::clone(redactor);
        }
        self.mode = route.mode.unwrap_or(self.mode);
        self.restore = route.restore.unwrap_or(self.restore);
        self.outbound = route.responses.unwrap_or(self.outbound);
        if let Some(context) = &route.context {
            self.context.clone_from(context);
        }
    }
}

/// The route name of requests without an exception.
pub(super) const fn default_route_name(gateway: bool) -> &'static str {
    if gateway { "gateway" } else { "intercepted" }
}

/// The route name of an exception.
pub(super) fn route_name(i: usize, route: &RedactRoute) -> String {
    route.name.clone().unwrap_or_else(|| format!("route {}", i + 1))
}

fn read_policy(path: &Path) -> Result<Policy, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    Policy::check(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn matches(route: &RedactRoute, flow: &Flow, head: &RequestHead, exchange: &LlmCall) -> bool {
    let path = |p: &String| head.url.path_only().starts_with(p.as_str());
    let model = |m: &String| match (m.strip_suffix('*'), exchange.model.as_deref()) {
        (Some(prefix), Some(model)) => model.starts_with(prefix),
        (None, Some(model)) => model == m,
        (_, None) => false,
    };
    let upstream = |u: &String| exchange.upstream.as_deref() == Some(u) || exchange.provider.as_str() == u;
    let header = |(name, value): (&String, &String)| head.headers.get_all(name).any(|v| v == value.as_bytes());
    route.path.as_ref().is_none_or(path)
        && route.model.as_ref().is_none_or(model)
        && route.upstream.as_ref().is_none_or(upstream)
        && route.user.as_ref().is_none_or(|u| flow.user.as_deref() == Some(u))
        && route.headers.iter().flatten().all(header)
}
