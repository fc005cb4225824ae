//! OpenTelemetry's environment variables, which provide defaults for `[telemetry]`. The configuration takes
//! precedence.

use std::collections::BTreeMap;
use std::time::Duration;

use interflow_types::percent;

use super::TelemetryConfig;
use crate::environment;

pub(super) type ReadVariable<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Where traces are exported to, and with which resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExportSettings {
    pub endpoint: Endpoint,
    pub headers: BTreeMap<String, String>,
    /// Resource attributes, including `service.name`.
    pub resource: BTreeMap<String, String>,
    pub interval: Duration,
    pub sampler: Sampler,
}

/// The collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// The configuration key or variable that set it.
    pub place: &'static str,
    pub url: String,
    /// Whether traces are sent to this exact path, rather than to `/v1/traces` below it.
    pub exact: bool,
}

/// Which traces are exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampler {
    /// Whether the client's sampling decision is followed.
    parent_based: bool,
    /// The sampled fraction of traces, from 0 to 1.
    share: f64,
}

impl Default for Sampler {
    /// All traces.
    fn default() -> Self {
        Self { parent_based: false, share: 1.0 }
    }
}

impl Sampler {
    /// Whether a trace is exported; `parent` is the client's decision. The same for all spans of a trace.
    pub fn samples(self, trace: &str, parent: Option<bool>) -> bool {
        if let Some(decided) = parent.filter(|_| self.parent_based) {
            return decided;
        }
        let low = trace.get(16..).and_then(|low| u64::from_str_radix(low, 16).ok()).unwrap_or_default();
        // As in the SDKs: the low 63 bits of the trace id are compared with the ratio.
        (low >> 1) as f64 / (1u64 << 63) as f64 <= self.share && self.share > 0.0
    }

    fn by(name: &str, argument: Option<&str>) -> Option<Self> {
        let (parent_based, root) = name.strip_prefix("parentbased_").map_or((false, name), |root| (true, root));
        let share = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.map_or(Ok(1.0), str::parse).ok().filter(|s| (0.0..=1.0).contains(s))?,
            _ => return None,
        };
        Some(Self { parent_based, share })
    }
}

impl ExportSettings {
    /// Merges configuration and environment; `None` if neither names a collector.
    ///
    /// # Errors
    /// A configured header value cannot be resolved.
    pub fn new(config: &TelemetryConfig, read: &ReadVariable<'_>) -> Result<Option<Self>, String> {
        let get = |name: &str| {
            debug_assert!(environment::is_listed(name), "{name} is not in environment.rs");
            read(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty())
        };
        let Some(endpoint) = endpoint(config, &get) else { return Ok(None) };
        let mut headers = BTreeMap::new();
        // Headers may contain a collector's credentials, so they are used only with the endpoint from the same
        // source.
        if config.endpoint.is_none() {
            for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
                headers.extend(pairs(name, get(name)));
            }
        }
        for (name, value) in &config.headers {
            let value =
                interflow_files::resolve_secret_ref(value).map_err(|e| format!("telemetry.headers.{name}: {e}"))?;
            headers.insert(name.clone(), value);
        }
        let mut resource: BTreeMap<_, _> =
            pairs("OTEL_RESOURCE_ATTRIBUTES", get("OTEL_RESOURCE_ATTRIBUTES")).into_iter().collect();
        let named = (config.service != TelemetryConfig::default().service).then(|| config.service.clone());
        if let Some(name) = named.or_else(|| get("OTEL_SERVICE_NAME")) {
            resource.insert("service.name".into(), name);
        }
        resource.entry("service.name".into()).or_insert_with(|| config.service.clone());
        let argument = get("OTEL_TRACES_SAMPLER_ARG");
        let sampler = get("OTEL_TRACES_SAMPLER").map(|name| {
            Sampler::by(&name, argument.as_deref()).unwrap_or_else(|| {
                tracing::warn!("OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG: `{name}` with this argument is not a supported sampler; all traces are exported");
                Sampler::default()
            })
        });
        let interval = config.interval.0;
        Ok(Some(Self { endpoint, headers, resource, interval, sampler: sampler.unwrap_or_default() }))
    }
}

fn endpoint(config: &TelemetryConfig, get: &dyn Fn(&str) -> Option<String>) -> Option<Endpoint> {
    if let Some(url) = &config.endpoint {
        return Some(Endpoint { place: "telemetry.endpoint", url: url.clone(), exact: false });
    }
    let disabled = get("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if disabled || get("OTEL_TRACES_EXPORTER").is_some_and(|v| v == "none") {
        return None;
    }
    let variables = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", true), ("OTEL_EXPORTER_OTLP_ENDPOINT", false)];
    let target = variables.into_iter().find_map(|(place, exact)| Some(Endpoint { place, url: get(place)?, exact }))?;
    let protocols = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    if let Some(name) = protocols.into_iter().find(|name| get(name).is_some_and(|v| v == "grpc")) {
        tracing::warn!("{name}: gRPC is not supported; spans are exported to {} over HTTP with JSON", target.place);
    }
    Some(target)
}

/// Parses `name=value,…` with percent-encoded values, as in W3C Baggage. Invalid parts are skipped.
fn pairs(variable: &str, text: Option<String>) -> Vec<(String, String)> {
    let text = text.unwrap_or_default();
    let mut headers = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some((name, value)) if !name.is_empty() => {
                headers.push((percent::decoded_lossy(name), percent::decoded_lossy(value)));
            }
            // The part itself is not logged: it may be a secret.
            _ => tracing::warn!("{variable}: a part without name=value is ignored"),
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &TelemetryConfig, set: &[(&str, &str)]) -> Option<ExportSettings> {
        let read = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        ExportSettings::new(config, &read).unwrap()
    }

    fn none() -> TelemetryConfig {
        TelemetryConfig::default()
    }

    #[test]
    fn otel_environment_sets_the_collector_if_the_config_does_not() {
        assert_eq!(settings(&none(), &[("OTEL_SERVICE_NAME", "x")]), None, "nobody named a collector");
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/spans");
        let of = |set: &[(&str, &str)]| settings(&none(), set).map(|s| (s.endpoint.url, s.endpoint.exact));
        assert_eq!(of(&[base]), Some(("http://c:4318".into(), false)));
        assert_eq!(of(&[base, traces]), Some(("http://t:1/spans".into(), true)));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(of(&[base, off]), None, "{off:?}");
            let own = TelemetryConfig { endpoint: Some("http://own".into()), ..none() };
            assert_eq!(settings(&own, &[base, off]).unwrap().endpoint.url, "http://own", "the configuration wins");
        }
    }

    #[test]
    fn headers_of_the_environment_go_to_its_own_collector_only() {
        let set = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x = 1,nothing"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x=2"),
        ];
        let headers = settings(&none(), &set).unwrap().headers;
        assert_eq!(headers, BTreeMap::from([("api-key".into(), "a b".into()), ("x".into(), "2".into())]));
        let own = TelemetryConfig { endpoint: Some("http://own".into()), ..none() };
        assert!(settings(&own, &set).unwrap().headers.is_empty());
    }

    #[test]
    fn service_name_is_taken_from_the_config_then_the_environment() {
        let at = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=r,deployment.environment=a%2Cb");
        let name = |config: &TelemetryConfig, set: &[(&str, &str)]| settings(config, set).unwrap().resource;
        assert_eq!(name(&none(), &[at])["service.name"], "interflow");
        let both = name(&none(), &[at, attributes]);
        assert_eq!((both["service.name"].as_str(), both["deployment.environment"].as_str()), ("r", "a,b"));
        assert_eq!(name(&none(), &[at, attributes, ("OTEL_SERVICE_NAME", "s")])["service.name"], "s");
        let own = TelemetryConfig { service: "mine".into(), ..none() };
        assert_eq!(name(&own, &[at, ("OTEL_SERVICE_NAME", "s")])["service.name"], "mine");
    }

    #[test]
    fn samplers_keep_the_configured_ratio_and_follow_parents_if_parent_based() {
        let by = |name, argument| Sampler::by(name, argument);
        let (low, high) = (format!("{:032x}", 1u128 << 60), format!("{:032x}", u128::from(u64::MAX)));
        let all = Sampler::default();
        assert!(all.samples(&low, Some(false)) && all.samples(&high, None));
        assert!(!by("always_off", None).unwrap().samples(&low, Some(true)));
        let half = by("traceidratio", Some("0.5")).unwrap();
        assert!(half.samples(&low, Some(false)) && !half.samples(&high, Some(true)));
        let parent = by("parentbased_traceidratio", Some("0.5")).unwrap();
        assert!(
            !parent.samples(&low, Some(false)) && parent.samples(&high, Some(true)) && !parent.samples(&high, None)
        );
        assert!(by("traceidratio", Some("2")).is_none() && by("jaeger_remote", None).is_none());
    }
}
