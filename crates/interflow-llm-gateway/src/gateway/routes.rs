//! The table of upstreams and the routing of paths to them.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::{Arc, LazyLock};

use interflow_limits::{NAMED_PROVIDERS, RuleConfig, names_provider};
use interflow_query::unknown_key_message;
use interflow_redact::RedactConfig;
use interflow_types::{ByteStr, Method, Url, data_file, wildcard};

use super::routing::{Route, RouteTable};
use super::upstream::{LlmUpstream, SecretReader};
use interflow_llm::provider::{call_for_path, is_bedrock};
use interflow_llm::translate::WireFormat;
use interflow_llm::{DetectedCall, LlmConfig, LlmUpstreamConfig, Provider, TelemetryRule};
use sha2::{Digest, Sha256};

/// Predefined upstreams: name, API, target. Configuration under the same name overrides single settings of them.
static BUILT_IN_UPSTREAMS: LazyLock<Vec<(&str, Provider, Option<&str>)>> = LazyLock::new(|| {
    let rows = data_file::records(include_str!("../../data/upstreams.txt"));
    rows.map(|[name, api, url]| {
        (name, Provider::from_name(api).expect("the table names APIs"), Some(url).filter(|url| !url.is_empty()))
    })
    .collect()
});

fn built_in(name: &str) -> Option<&'static (&'static str, Provider, Option<&'static str>)> {
    BUILT_IN_UPSTREAMS.iter().find(|row| row.0 == name)
}

/// Whether there is an upstream of this name, predefined or configured.
pub(crate) fn is_known_upstream(config: &LlmConfig, name: &str) -> bool {
    config.provider.contains_key(name) || built_in(name).is_some()
}

fn upstream_names(config: &LlmConfig) -> impl Iterator<Item = &str> {
    BUILT_IN_UPSTREAMS.iter().map(|row| row.0).chain(config.provider.keys().map(String::as_str))
}

/// Checks that the exceptions from redaction name upstreams or providers that exist: one that fits no request protects
/// nothing, or exempts nothing.
///
/// # Errors
/// The key, and what is wrong.
pub fn check_redact_routes(redact: &RedactConfig, config: &LlmConfig) -> Result<(), String> {
    for (i, name) in redact.route.iter().enumerate().filter_map(|(i, route)| Some((i, route.upstream.as_deref()?))) {
        if !is_known_upstream(config, name) && Provider::from_name(name).is_none() {
            let names = Vec::from_iter(upstream_names(config));
            return Err(format!("redact.route[{i}].upstream: {}", unknown_key_message("upstream", name, &names)));
        }
    }
    Ok(())
}

/// Checks that the lists of providers of quota rules, guardrails and the response cache name some that there are: a limit
/// for another one would never apply.
///
/// # Errors
/// The key, and what is wrong.
pub fn check_provider_names(rules: &[RuleConfig], config: &LlmConfig) -> Result<(), String> {
    // As they are matched: only the cache ignores case.
    type Fits = fn(&String, &str) -> bool;
    let exact: Fits = |pattern, name| names_provider(slice::from_ref(pattern), name);
    let any_case: Fits = |pattern, name| wildcard::matches(pattern, name);
    let others = Provider::ALL.map(Provider::as_str).into_iter().chain(NAMED_PROVIDERS).chain(["filter"]);
    let names = Vec::from_iter(BTreeSet::from_iter(upstream_names(config).chain(others)));
    let of_rules = rules.iter().enumerate().map(|(i, rule)| (format!("quota.rule[{i}]"), &rule.providers, exact));
    let guardrails = config.guardrail.iter();
    let of_guardrails = guardrails.map(|(name, own)| (format!("llm.guardrail.{name}"), &own.providers, exact));
    let of_cache = [("llm.cache".to_owned(), &config.cache.providers, any_case)];
    for (key, patterns, fits) in of_rules.chain(of_guardrails).chain(of_cache) {
        if let Some(unknown) = patterns.iter().find(|pattern| !names.iter().any(|name| fits(pattern, name))) {
            return Err(format!("{key}.providers: {}", unknown_key_message("provider", unknown, &names)));
        }
    }
    Ok(())
}

/// Beginnings of the providers' own paths, and their upstreams.
static NATIVE_PATHS: LazyLock<Vec<[&str; 2]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/native_paths.txt")).collect());

/// Whether this first segment of a path leads to an endpoint: an upstream's, or a provider's own.
pub fn is_endpoint_segment(config: &LlmConfig, name: &str) -> bool {
    is_known_upstream(config, name) || begins_native_path(name)
}

fn begins_native_path(name: &str) -> bool {
    NATIVE_PATHS.iter().any(|[path, _]| path.split('/').nth(1) == Some(name))
}

/// Maximum length of an alias chain. Cycles are rejected when the table is built; the bound also ends one that was
/// overlooked.
const MAX_ALIAS_STEPS: usize = 8;

/// The upstreams of a configuration, with what applies to all of them.
pub struct UpstreamTable {
    upstreams: BTreeMap<String, Arc<LlmUpstream>>,
    open: bool,
    native: bool,
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) max_body: usize,
    pub(super) response_pins: usize,
    pub(super) telemetry: TelemetryRule,
    pub(super) routes: RouteTable,
    /// Of the configuration, as far as it decides which upstream and model a request gets.
    pub(super) digest: [u8; 32],
}

pub(super) struct ResolvedRoute<'p> {
    pub upstream: Arc<LlmUpstream>,
    /// The path at the upstream, including the query.
    pub rest: &'p str,
}

impl ResolvedRoute<'_> {
    /// The call, as far as the head tells, in the format of its client.
    pub fn call(&self, method: &Method) -> DetectedCall {
        let (path, query) = self.rest.split_once('?').unwrap_or((self.rest, ""));
        let provider = self.upstream.client_api(self.upstream.translates(method, self.rest));
        call_for_path(provider, method, path, query)
    }
}

impl UpstreamTable {
    pub(super) fn new(config: &LlmConfig, secret: &SecretReader<'_>) -> Result<Self, String> {
        let mut upstreams = BTreeMap::new();
        let none = LlmUpstreamConfig::default();
        for name in upstream_names(config).collect::<BTreeSet<_>>() {
            let own = config.provider.get(name).unwrap_or(&none);
            let at = |e: String| format!("llm.provider.{name}.{e}");
            // It would be ambiguous whether the path is the provider's own; `openai` has one path of that kind.
            let is_native = begins_native_path(name) && built_in(name).is_none();
            if is_native || name.is_empty() || name.contains(['/', '\\', '?', '#', '%']) {
                return Err(format!("llm.provider.{name}: an upstream cannot have this name"));
            }
            let kind = provider_kind(own).transpose().map_err(at)?;
            // One of a predefined kind has its URL.
            let target = built_in(name).or_else(|| own.kind.as_deref().and_then(built_in)).and_then(|row| row.2);
            if built_in(name).is_none() && own.url.is_none() && target.is_none() {
                return Err(at("url: it is missing; write it as https://host/path".into()));
            }
            // The format says which API it is, unless the name or the kind does.
            let by_format = || own.format.as_deref().and_then(WireFormat::from_name).map(WireFormat::provider);
            let usual = built_in(name).map(|row| row.1).or_else(by_format).unwrap_or(Provider::OpenAi);
            let provider = kind.unwrap_or(usual);
            upstreams
                .insert(name.to_owned(), Arc::new(LlmUpstream::new(name, provider, target, own, secret).map_err(at)?));
        }
        let mut table = Self {
            upstreams,
            open: config.gateway,
            native: config.native_paths,
            aliases: config.aliases.clone(),
            max_body: usize::try_from(config.max_body.0).unwrap_or(usize::MAX),
            response_pins: config.response_pins,
            telemetry: config.telemetry,
            routes: RouteTable::default(),
            digest: digest(config),
        };
        table.check_fallbacks()?;
        if let Some(semantic) = &config.cache.semantic
            && !table.upstreams.contains_key(&semantic.provider)
        {
            let name = &semantic.provider;
            return Err(format!("llm.cache.semantic.provider: there is no provider `{name}` in llm.provider"));
        }
        table.check_names()?;
        table.routes = RouteTable::new(config, &table)?;
        Ok(table)
    }

    fn check_fallbacks(&self) -> Result<(), String> {
        for upstream in self.upstreams.values() {
            for name in &upstream.fallback {
                let at = format!("llm.provider.{}.fallback", upstream.name);
                if *name == upstream.name {
                    return Err(format!("{at}: {name} cannot be its own fallback; remove it, or set attempts"));
                }
                let other = self.upstreams.get(name).ok_or_else(|| format!("{at}: there is no upstream {name}"))?;
                if let Some(missing) = other.missing_for_translation().filter(|_| other.provider != upstream.provider) {
                    let (a, b) = (upstream.provider.as_str(), other.provider.as_str());
                    return Err(format!(
                        "{at}: {name} speaks {b}, not {a}, and requests cannot be translated for it: {missing}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Rejects alias cycles and chains that are too long, for each upstream, because its own names come before the
    /// shared ones.
    fn check_names(&self) -> Result<(), String> {
        let of_all = std::iter::once(("llm.aliases".to_owned(), &self.aliases));
        let own = self.upstreams.values().map(|u| (format!("llm.provider.{}.models", u.name), &u.models));
        for (key, names) in of_all.chain(own) {
            if let Some((name, _)) = names.iter().find(|(name, model)| name.is_empty() || model.is_empty()) {
                return Err(format!("{key}: the name of a model at `{name}` is empty; write it, or remove the entry"));
            }
        }
        // At an upstream it keeps the name from the aliases.
        if let Some((name, _)) = self.aliases.iter().find(|(name, model)| name == model) {
            return Err(format!("llm.aliases.{name}: it is an alias of itself; remove it"));
        }
        for upstream in self.upstreams.values() {
            for start in upstream.models.keys().chain(self.aliases.keys()) {
                let (mut names, mut at) = (vec![start.as_str()], start.as_str());
                while let Some(next) = self.alias_target(upstream, at) {
                    names.push(next);
                    if names.len() > MAX_ALIAS_STEPS + 1 || names.iter().filter(|n| **n == next).count() > 1 {
                        let (key, way) = (&upstream.name, names.join(" -> "));
                        let key = match upstream.models.is_empty() {
                            true => "llm.aliases".to_owned(),
                            false => format!("llm.provider.{key}.models"),
                        };
                        return Err(format!(
                            "{key}: the names of models {way} come to no end within {MAX_ALIAS_STEPS} steps"
                        ));
                    }
                    at = next;
                }
            }
        }
        Ok(())
    }

    /// The next name of a model at an upstream: its own mapping, else the shared alias. `None` ends the chain.
    fn alias_target<'t>(&'t self, upstream: &'t LlmUpstream, model: &str) -> Option<&'t str> {
        let next = upstream.models.get(model).or_else(|| self.aliases.get(model))?;
        (next != model).then_some(next)
    }

    /// The final name of a model at an upstream; `None` if it does not change.
    pub(super) fn resolve_model<'t>(&'t self, upstream: &'t LlmUpstream, model: &str) -> Option<&'t str> {
        let mut name = self.alias_target(upstream, model)?;
        for _ in 1..MAX_ALIAS_STEPS {
            let Some(next) = self.alias_target(upstream, name) else { break };
            name = next;
        }
        Some(name)
    }

    /// Whether a configured route may apply to a request, as far as its head tells: it posts to a model, which its path
    /// may name.
    pub(super) fn may_be_routed(&self, route: &ResolvedRoute<'_>, method: &Method) -> bool {
        if self.routes.is_empty() || *method != Method::POST {
            return false;
        }
        let call = route.call(method);
        call.model.map_or(call.operation.has_model(), |model| self.route_of_model(&model).is_some())
    }

    /// The configured route of a model's name, or of what `llm.aliases` makes of it.
    pub(crate) fn route_of_model(&self, model: &str) -> Option<&Arc<Route>> {
        let mut name = model;
        for _ in 0..=MAX_ALIAS_STEPS {
            if let Some(route) = self.routes.of_model(name) {
                return Some(route);
            }
            name = self.aliases.get(name)?;
        }
        None
    }

    /// The fallbacks of an upstream in order (depth first): each is followed by its own fallbacks, without
    /// repetition.
    pub(crate) fn fallback_order(&self, upstream: &LlmUpstream) -> Vec<ByteStr> {
        let mut found: Vec<ByteStr> = Vec::new();
        // A stack in reverse order, so that fallbacks of a fallback come before its next sibling.
        let mut pending: Vec<&str> = upstream.fallback.iter().rev().map(String::as_str).collect();
        while let Some(name) = pending.pop() {
            let Some(other) = self.upstreams.get(name) else { continue };
            if name == upstream.name || found.iter().any(|f| f.as_str() == name) {
                // Upstreams may be each other's fallbacks.
                continue;
            }
            found.push(name.into());
            pending.extend(other.fallback.iter().rev().map(String::as_str));
        }
        found
    }

    pub(super) fn upstreams(&self) -> impl Iterator<Item = &Arc<LlmUpstream>> {
        self.upstreams.values()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<LlmUpstream>> {
        self.upstreams.get(name)
    }

    /// Routes a path (and query): a leading upstream name first, then the providers' own paths. `anthropic` means
    /// that the client uses Anthropic's API (it sent `anthropic-version`), which shares some paths with OpenAI's.
    pub(super) fn find_route<'p>(&self, path: &'p str, anthropic: bool) -> Option<ResolvedRoute<'p>> {
        if !self.open {
            return None;
        }
        let only_path = path.split('?').next().unwrap_or_default();
        // Azure's own paths begin with `openai`, which is also the name of an upstream.
        let azure = only_path.starts_with("/openai/deployments/");
        let named = first_segment(path).filter(|_| !azure);
        if let Some((upstream, rest)) = named.and_then(|(name, rest)| Some((self.upstreams.get(name)?, rest))) {
            return Some(ResolvedRoute { upstream: Arc::clone(upstream), rest });
        }
        let name = native_upstream(only_path, anthropic).filter(|_| self.native)?;
        let upstream = Arc::clone(self.upstreams.get(name)?);
        Some(ResolvedRoute { upstream, rest: path })
    }

    /// The upstream of a URL; among several with one target, the one whose API has this path, else the first by name.
    pub(super) fn by_target(&self, url: &Url) -> Option<(Arc<LlmUpstream>, String)> {
        let at = |u: &Arc<LlmUpstream>| u.path_within(url).map(|rest| (Arc::clone(u), rest));
        let mut matching: Vec<_> = self.upstreams.values().filter_map(at).collect();
        if matching.len() > 1 {
            let path = url.path_only();
            let spoken = native_upstream(path, path.contains("/v1/messages"));
            let fits = |(u, _): &(Arc<LlmUpstream>, String)| spoken == Some(u.name.as_str());
            if let Some(i) = matching.iter().position(fits) {
                return Some(matching.swap_remove(i));
            }
        }
        (!matching.is_empty()).then(|| matching.swap_remove(0))
    }
}

fn digest(config: &LlmConfig) -> [u8; 32] {
    let parts = serde_json::to_vec(&(&config.provider, &config.aliases, &config.route));
    Sha256::digest(parts.unwrap_or_default()).into()
}

fn provider_kind(config: &LlmUpstreamConfig) -> Option<Result<Provider, String>> {
    let name = config.kind.as_deref()?;
    let names: Vec<_> = BUILT_IN_UPSTREAMS.iter().map(|row| row.0).collect();
    Some(built_in(name).map(|row| row.1).ok_or_else(|| format!("kind: {}", unknown_key_message("kind", name, &names))))
}

/// Splits a path into its first segment and the rest, which begins with `/` or `?`, or is empty.
fn first_segment(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_prefix('/')?;
    let end = inner.find(['/', '?']).unwrap_or(inner.len());
    Some((inner.get(..end)?, inner.get(end..)?))
}

/// The upstream for a provider's own path, from the most specific to OpenAI's.
fn native_upstream(path: &str, anthropic: bool) -> Option<&'static str> {
    let begins = NATIVE_PATHS.iter().find(|[start, _]| path.starts_with(start)).map(|[_, name]| *name);
    let lower = path.to_ascii_lowercase();
    match begins {
        _ if anthropic && path.starts_with("/v1/") => Some("anthropic"),
        Some("anthropic") => begins,
        _ if path.contains("/projects/") && path.contains("/locations/") => Some("vertex"),
        _ if lower.contains("generatecontent") || path.ends_with(":countTokens") || path == "/v1/interactions" => {
            Some("gemini")
        }
        Some("bedrock") if !is_bedrock(path) => None,
        _ => begins,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_providers_that_names_none_that_there_is_is_refused() {
        let config: LlmConfig = serde_json::from_value(
            serde_json::json!({ "provider": { "mine": { "kind": "openai", "url": "http://127.0.0.1:1" } },
            "guardrail": { "g": { "kind": "regex", "providers": ["opnai"] } } }),
        )
        .unwrap();
        let named = |name: &str| RuleConfig { providers: vec![name.into()], ..RuleConfig::default() };
        let plain = LlmConfig { guardrail: Default::default(), ..config.clone() };
        for name in ["openai", "mine", "groq", "m*", "*", "media", "mcp", "unknown"] {
            assert_eq!(check_provider_names(&[named(name)], &plain), Ok(()), "{name}");
        }
        let wrong = check_provider_names(&[named("openai"), named("opnai")], &plain).unwrap_err();
        assert_eq!(wrong, "quota.rule[1].providers: unknown provider `opnai`: did you mean `openai`?");
        for name in ["x-*", "OpenAI", "MINE", "medi*", "MCP", "mc*"] {
            assert!(check_provider_names(&[named(name)], &plain).is_err(), "{name}");
        }
        let in_cache = |name: &str| {
            let mut config = plain.clone();
            config.cache.providers = vec![name.into()];
            check_provider_names(&[], &config)
        };
        assert!(in_cache("OpenAI").is_ok() && in_cache("opnai").is_err());
        let wrong = check_provider_names(&[], &config).unwrap_err();
        assert!(wrong.starts_with("llm.guardrail.g.providers: unknown provider `opnai`"), "{wrong}");
    }

    #[test]
    fn a_name_that_begins_a_providers_own_path_is_refused() {
        let check = |name: &str| {
            let mut config = LlmConfig::default();
            config.provider.insert(name.to_owned(), LlmUpstreamConfig::default());
            let table = UpstreamTable::new(&config, &|text| Ok(text.to_owned()));
            table.err().is_some_and(|e| e.contains("cannot have this name"))
        };
        for name in ["v1", "v2", "v1beta", "upload", "api", "model"] {
            assert!(check(name) && is_endpoint_segment(&LlmConfig::default(), name), "{name}");
        }
        assert!(!check("openai") && !check("mine") && is_endpoint_segment(&LlmConfig::default(), "openai"));
        assert!(is_endpoint_segment(&LlmConfig::default(), "v1beta1"), "of Vertex");
    }

    #[test]
    fn a_provider_of_a_predefined_kind_has_its_url() {
        let config = r#"{"provider": {"groq-2": {"kind": "groq"}, "far": {"kind": "bedrock", "region": "eu-west-1"},
            "own": {"kind": "groq", "url": "http://127.0.0.1:8000"}}}"#;
        let table = UpstreamTable::new(&serde_json::from_str(config).unwrap(), &|text| Ok(text.to_owned())).unwrap();
        let path = |name: &str, url: &str| {
            let (scheme, authority, path) = Url::split(url).unwrap();
            table.get(name).unwrap().path_within(&Url { scheme, authority, path: path.into() })
        };
        assert_eq!(path("groq-2", "https://api.groq.com/openai/v1/models").as_deref(), Some("/v1/models"));
        assert_eq!(path("own", "https://api.groq.com/openai/v1/models"), None);
        assert_eq!(table.get("groq-2").unwrap().provider, Provider::OpenAi);
        assert_eq!(table.get("far").unwrap().provider, Provider::Bedrock);
    }
}
