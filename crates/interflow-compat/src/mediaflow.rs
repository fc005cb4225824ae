//! Reads the settings of mediaflow-proxy (flat variables) and of its Rust port (`APP__SECTION__KEY`, TOML file at
//! `CONFIG_PATH`) if `media.compat.mediaflow` is on. Interflow's own configuration takes precedence.

use interflow_types::data_file;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use interflow_media::MediaConfig;
use interflow_media::config::{MediaCompatConfig, SegmentRoute};
use interflow_proxy::config::{GatewayConfig, TimeoutsConfig, UpstreamConfig, UpstreamProxyRule};
use interflow_types::units::HumanDuration;
use ipnet::IpNet;
use serde_json::Value as Json;
use toml::{Table, Value};

/// The sections of the configuration that the settings concern.
#[derive(Debug)]
pub struct MediaSections<'c> {
    pub media: &'c mut MediaConfig,
    pub gateway: &'c mut GatewayConfig,
    pub upstream: &'c mut UpstreamConfig,
    pub timeouts: &'c mut TimeoutsConfig,
}

/// A setting that cannot be used.
#[derive(Debug)]
pub struct SettingError {
    /// The variable or file.
    pub place: String,
    /// The error.
    pub what: String,
}

/// Applies the settings where the configuration has defaults. Returns a warning for each that has no effect.
///
/// # Errors
/// The file at `CONFIG_PATH` cannot be read, or a value is invalid.
pub fn apply_environment(
    config: &mut MediaSections<'_>,
    vars: &[(String, String)],
) -> Result<Vec<String>, SettingError> {
    if !config.media.compat.enabled {
        return Ok(Vec::new());
    }
    let settings = MediaflowSettings::read(vars)?;
    let usual = MediaConfig::default();
    let media = &mut *config.media;
    if media.api_password.is_none() {
        media.api_password = settings.text("api_password").filter(|p| !p.is_empty());
    }
    if media.user_agent == usual.user_agent
        && let Some(agent) = settings.text("user_agent")
    {
        media.user_agent = agent;
    }
    if let Some(url) = settings.text("stremio_proxy_url").filter(|u| !u.is_empty()) {
        media.hls.stremio_url.get_or_insert(url);
    }
    match settings.text("m3u8_content_routing").as_deref() {
        Some("direct") => media.hls.segments = SegmentRoute::Direct,
        Some("stremio") if media.hls.stremio_url.is_some() => media.hls.segments = SegmentRoute::Stremio,
        _ => {}
    }
    if media.hls.live_start == 0.0 {
        media.hls.live_start = settings.number("livestream_start_offset")?.unwrap_or(DEFAULT_LIVE_START);
    }
    let whole = |n: Option<f64>| n.map(|n| n.clamp(0.0, f64::from(u32::MAX)) as u64);
    if media.cache.prefetch == 0 && settings.switch("enable_hls_prebuffer") != Some(false) {
        let segments = whole(settings.number("hls_prebuffer_segments")?).unwrap_or(DEFAULT_PREFETCH);
        media.cache.prefetch = segments.min(32) as u8;
    }
    for (name, ttl) in [("hls_segment_cache_ttl", &mut media.cache.ttl), ("epg_cache_ttl", &mut media.epg_ttl)] {
        *ttl = whole(settings.number(name)?).map_or(*ttl, HumanDuration::from_secs);
    }
    for (name, amount) in [
        ("mpd_live_playlist_depth", &mut media.dash.live_segments),
        ("max_concurrent_per_host", &mut media.streams_per_host),
    ] {
        *amount = whole(settings.number(name)?).map_or(*amount, |n| n as u32);
    }
    if let Some(attempts) = whole(settings.number("upstream_retry_attempts")?) {
        media.resume = attempts.min(20) as u8;
    }
    media.dash.remux_to_ts = settings.switch("remux_to_ts").unwrap_or(media.dash.remux_to_ts);
    settings.upstream(config)?;
    settings.listeners(config)?;
    settings.routes(config)?;
    Ok(settings.warnings())
}

/// Where players start in live playlists, in seconds from the end, and how many segments are fetched ahead, if
/// mediaflow-proxy's settings do not say.
const DEFAULT_LIVE_START: f64 = -18.0;
const DEFAULT_PREFETCH: u64 = 5;

/// Settings that cannot be honoured: the flat name or its beginning (`telegram_*`), and what becomes of them.
static WITHOUT_EFFECT: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    data_file::records(include_str!("../data/mediaflow_without_effect.txt")).map(<(_, _)>::from).collect()
});

/// Settings by flat name, in lower case.
struct MediaflowSettings(BTreeMap<String, String>);

impl MediaflowSettings {
    fn read(vars: &[(String, String)]) -> Result<Self, SettingError> {
        let mut settings = BTreeMap::new();
        let var = |name: &str| vars.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        if let Some(path) = var("CONFIG_PATH") {
            let wrong = |what: String| SettingError { place: path.clone(), what };
            let text = std::fs::read_to_string(&path).map_err(|e| wrong(format!("the file cannot be read: {e}")))?;
            let table: Table = toml::from_str(&text).map_err(|e| wrong(e.message().to_owned()))?;
            flatten(&table, "", &mut settings);
        }
        for (name, value) in vars {
            match name.strip_prefix("APP__") {
                Some(path) => insert(&mut settings, &path.to_ascii_lowercase().replace("__", "."), value.clone()),
                None => insert(&mut settings, &name.to_ascii_lowercase(), value.clone()),
            }
        }
        Ok(Self(settings))
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    fn number(&self, name: &str) -> Result<Option<f64>, SettingError> {
        let Some(text) = self.0.get(name).filter(|t| !t.trim().is_empty()) else { return Ok(None) };
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        let wrong = || SettingError { place: name.to_ascii_uppercase(), what: format!("`{text}` is not a number") };
        number.map(Some).ok_or_else(wrong)
    }

    /// Warnings about settings without effect. Those that are empty or turn something off ask for nothing.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, value) in &self.0 {
            let is_off = value.trim().is_empty() || self.switch(name) == Some(false);
            let idle = WITHOUT_EFFECT.iter().find(|(setting, _)| match setting.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == setting,
            });
            if let Some((_, why)) = idle.filter(|_| !is_off) {
                warnings.push(format!("{}: it has no effect: {why}", name.to_ascii_uppercase()));
            }
        }
        if self.text("forwarded_allow_ips").is_some_and(|list| list.split(',').any(|a| a.trim() == "*")) {
            warnings.push(
                "FORWARDED_ALLOW_IPS: `*` is refused, because every client could then claim any address: list the \
                 addresses of your reverse proxies there or in media.trusted_proxies. Until then links begin with http:// \
                 behind a proxy that ends TLS, unless media.public_url is set"
                    .into(),
            );
        }
        warnings
    }

    /// A switch, in the words that Pydantic takes for it.
    fn switch(&self, name: &str) -> Option<bool> {
        match self.0.get(name)?.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
            _ => None,
        }
    }

    /// Upstream settings: timeouts, retries and hosts without certificate verification.
    fn upstream(&self, config: &mut MediaSections<'_>) -> Result<(), SettingError> {
        let (usual, waits) = (TimeoutsConfig::default(), &mut *config.timeouts);
        let seconds = |name| self.number(name).map(|n| n.filter(|n| (0.001..1e6).contains(n)));
        let span = |n: f64| HumanDuration::from_millis((n * 1000.0) as u64);
        for (name, usual, wait) in [
            ("timeout", usual.connect, &mut waits.connect),
            ("body_read_timeout", usual.body_idle_timeout, &mut waits.body_idle_timeout),
        ] {
            if let Some(given) = seconds(name)?.filter(|_| *wait == usual) {
                *wait = span(given);
            }
        }
        if self.switch("upstream_retry_on_disconnect") == Some(false) {
            config.media.resume = 0;
        }
        if let Some(delay) = seconds("upstream_retry_delay")? {
            config.media.resume_delay = span(delay);
        }
        if self.switch("disable_ssl_verification_globally") == Some(true) {
            config.upstream.danger_insecure_hosts.push("*".into());
        }
        Ok(())
    }

    /// A non-default port, and the trusted reverse proxies. `*` is ignored because it would let every client spoof its
    /// address.
    fn listeners(&self, config: &mut MediaSections<'_>) -> Result<(), SettingError> {
        let wrong = |name: &str, what: String| SettingError { place: name.to_ascii_uppercase(), what };
        let host = self.text("server_host").filter(|h| !h.is_empty());
        let host =
            host.map(|h| h.parse::<IpAddr>().map_err(|_| wrong("server.host", format!("`{h}` is not an address"))));
        let port = self.number("port")?.map(|p| p.clamp(0.0, 65_535.0) as u16).filter(|p| *p != 0);
        let first = config.gateway.listen.first().copied().filter(|a| a.port() != 0);
        if let (Some(first), true) = (first, host.is_some() || port.is_some()) {
            let port = port.unwrap_or(MediaCompatConfig::default().port);
            let address = SocketAddr::new(host.transpose()?.unwrap_or(first.ip()), port);
            if !config.gateway.listen.contains(&address) {
                config.gateway.listen.push(address);
            }
        }
        if config.media.trusted_proxies.is_empty() {
            let list = self.text("forwarded_allow_ips").unwrap_or_default();
            let named = list.split(',').map(str::trim).filter(|a| !a.is_empty() && *a != "*");
            let nets = named.map(|a| {
                let one = || a.parse::<IpAddr>().map(IpNet::from);
                a.parse::<IpNet>()
                    .or_else(|_| one())
                    .map_err(|_| wrong("forwarded_allow_ips", format!("`{a}` is not an address")))
            });
            config.media.trusted_proxies = nets.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Upstream proxies: `TRANSPORT_ROUTES`, and `PROXY_URL` for all hosts if `ALL_PROXY` is set.
    fn routes(&self, config: &mut MediaSections<'_>) -> Result<(), SettingError> {
        let proxy = self.text("proxy_url").filter(|p| !p.is_empty());
        if let Some(text) = self.text("transport_routes").filter(|t| !t.trim().is_empty()) {
            let wrong = |what: String| SettingError { place: "TRANSPORT_ROUTES".into(), what };
            let routes: BTreeMap<String, Json> = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
            // Most specific first: host, wildcard, all.
            let mut routes: Vec<_> = routes.into_iter().map(|(p, r)| (host_of(&p), r)).collect();
            routes.sort_by_key(|(host, _)| (host == "*", host.contains('*'), std::cmp::Reverse(host.len())));
            for (host, route) in routes {
                if route["verify_ssl"] == Json::Bool(false) {
                    config.upstream.danger_insecure_hosts.push(host.clone());
                }
                let through = route["proxy"] != Json::Bool(false);
                let via = route["proxy_url"].as_str().map(str::to_owned).or_else(|| proxy.clone()).filter(|_| through);
                config.upstream.proxy.push(UpstreamProxyRule { hosts: vec![host], via: via.into_iter().collect() });
            }
        }
        if let (Some(proxy), Some(true)) = (proxy, self.switch("all_proxy")) {
            config.upstream.proxy.push(UpstreamProxyRule { hosts: vec!["*".into()], via: vec![proxy] });
        }
        Ok(())
    }
}

fn flatten(table: &Table, path: &str, settings: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(inner) if path != "proxy.transport_routes" => flatten(inner, &path, settings),
            Value::Table(routes) => {
                let text = serde_json::to_string(routes).unwrap_or_default();
                settings.insert("transport_routes".into(), text);
            }
            Value::String(text) => insert(settings, &path, text.clone()),
            other => insert(settings, &path, other.to_string()),
        }
    }
}

fn insert(settings: &mut BTreeMap<String, String>, path: &str, value: String) {
    let renamed = data_file::records(include_str!("../data/mediaflow_renamed.txt")).find(|[theirs, _]| *theirs == path);
    let name = renamed.map_or_else(|| path.replace('.', "_"), |[_, flat]| flat.to_owned());
    settings.insert(name, value);
}

/// Extracts the host from a route pattern such as `https://*.a.test:443/x` or `all://`.
fn host_of(pattern: &str) -> String {
    let rest = pattern.split_once("://").map_or(pattern, |(_, rest)| rest);
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    if host.is_empty() { "*".into() } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Config {
        media: MediaConfig,
        gateway: GatewayConfig,
        upstream: UpstreamConfig,
        timeouts: TimeoutsConfig,
    }

    fn apply_to(config: &mut Config, vars: &[(String, String)]) -> Vec<String> {
        let Config { media, gateway, upstream, timeouts } = config;
        apply_environment(&mut MediaSections { media, gateway, upstream, timeouts }, vars).unwrap()
    }

    fn applied(list: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        config.media.compat.enabled = true;
        let vars: Vec<_> = list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        apply_to(&mut config, &vars);
        config
    }

    #[test]
    fn flat_and_nested_mediaflow_variables_are_imported() {
        let flat = applied(&[("API_PASSWORD", "pw"), ("EPG_CACHE_TTL", "60"), ("M3U8_CONTENT_ROUTING", "direct")]);
        assert_eq!(flat.media.api_password.as_deref(), Some("pw"));
        assert_eq!((flat.media.epg_ttl, flat.media.hls.segments), (HumanDuration::from_secs(60), SegmentRoute::Direct));
        let twin = applied(&[("APP__AUTH__API_PASSWORD", "pw"), ("APP__EPG__CACHE_TTL", "60")]);
        assert_eq!(
            (twin.media.api_password.as_deref(), twin.media.epg_ttl),
            (Some("pw"), HumanDuration::from_secs(60))
        );
        assert_eq!(applied(&[]).media.epg_ttl, MediaConfig::default().epg_ttl);
    }

    #[test]
    fn mediaflow_toml_file_is_imported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        let text = "[auth]\napi_password = \"pw\"\n[mpd]\nlive_playlist_depth = 9\n[proxy.transport_routes.\"https://a.test\"]\nproxy_url = \"socks5://p:1\"\n";
        std::fs::write(&path, text).unwrap();
        let config = applied(&[("CONFIG_PATH", path.to_str().unwrap())]);
        assert_eq!((config.media.api_password.as_deref(), config.media.dash.live_segments), (Some("pw"), 9));
        assert_eq!(config.upstream.proxy[0].via, ["socks5://p:1"]);
    }

    #[test]
    fn most_specific_transport_route_comes_first() {
        let routes = r#"{"all://":{"proxy":true},"https://*.a.test":{"verify_ssl":false,"proxy":false},"https://x.a.test:443":{"proxy_url":"http://q:2"}}"#;
        let config = applied(&[("PROXY_URL", "http://p:1"), ("TRANSPORT_ROUTES", routes)]);
        let routes: Vec<_> = config.upstream.proxy.iter().map(|r| (r.hosts[0].as_str(), r.via.len())).collect();
        assert_eq!(routes, [("x.a.test", 1), ("*.a.test", 0), ("*", 1)]);
        assert_eq!(config.upstream.danger_insecure_hosts, ["*.a.test"]);
    }

    #[test]
    fn timeouts_ports_and_trusted_proxies_are_imported() {
        let config = applied(&[
            ("TIMEOUT", "7"),
            ("APP__PROXY__BODY_READ_TIMEOUT", "2.5"),
            ("UPSTREAM_RETRY_ON_DISCONNECT", "False"),
            ("UPSTREAM_RETRY_DELAY", "1.5"),
            ("DISABLE_SSL_VERIFICATION_GLOBALLY", "true"),
            ("PORT", "9000"),
            ("FORWARDED_ALLOW_IPS", "10.0.0.1, 192.168.0.0/16,*"),
        ]);
        assert_eq!(
            (config.timeouts.connect, config.timeouts.body_idle_timeout),
            (HumanDuration::from_secs(7), HumanDuration::from_millis(2500))
        );
        assert_eq!((config.media.resume, config.media.resume_delay), (0, HumanDuration::from_millis(1500)));
        assert_eq!(config.upstream.danger_insecure_hosts, ["*"]);
        assert!(config.gateway.listen.contains(&"127.0.0.1:9000".parse().unwrap()));
        assert_eq!(config.media.trusted_proxies.len(), 2);
        let twin = applied(&[("APP__SERVER__HOST", "0.0.0.0"), ("APP__SERVER__PORT", "8888")]);
        assert!(twin.gateway.listen.contains(&"0.0.0.0:8888".parse().unwrap()));
    }

    #[test]
    fn settings_without_effect_are_reported() {
        let warnings = |list: &[(&str, &str)]| {
            let mut config = Config::default();
            config.media.compat.enabled = true;
            let vars: Vec<_> = list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            apply_to(&mut config, &vars)
        };
        for (name, value, says) in [
            ("FORWARDED_ALLOW_IPS", "127.0.0.1,*", "media.trusted_proxies"),
            ("PUBLIC_IP", "203.0.113.9", "media.public_url"),
            ("ENABLE_TELEGRAM", "true", "Telegram"),
            ("APP__TELEGRAM__API_ID", "7", "Telegram"),
            ("ACESTREAM_HOST", "engine", "Acestream"),
            ("REDIS_URL", "redis://r:6379", "media.cache.disk"),
            ("FORWARD_ALLOWED_HOSTS", "a.test", "/proxy/forward"),
            ("ENABLE_TRANSCODE", "True", "501"),
            ("DASH_PREBUFFER_SEGMENTS", "5", "[media.cache]"),
        ] {
            let warnings = warnings(&[(name, value)]);
            assert!(warnings.len() == 1 && warnings[0].contains(says), "{name}: {warnings:?}");
        }
        let silent =
            [("ENABLE_TELEGRAM", "False"), ("REDIS_URL", ""), ("API_PASSWORD", "x"), ("FORWARDED_ALLOW_IPS", "::1")];
        assert_eq!(warnings(&silent), Vec::<String>::new());
    }

    #[test]
    fn live_start_and_prefetch_have_mediaflow_defaults() {
        let usual = applied(&[]).media;
        assert_eq!((usual.hls.live_start, usual.cache.prefetch), (-18.0, 5));
        let off = applied(&[("LIVESTREAM_START_OFFSET", "0"), ("ENABLE_HLS_PREBUFFER", "False")]).media;
        assert_eq!((off.hls.live_start, off.cache.prefetch), (0.0, 0));
    }

    #[test]
    fn switches_take_the_words_of_pydantic() {
        for (word, on) in [("TRUE", true), ("yes", true), ("on", true), ("1", true), ("0", false), ("Off", false)] {
            let config = applied(&[
                ("PROXY_URL", "http://p:1"),
                ("ALL_PROXY", word),
                ("ENABLE_HLS_PREBUFFER", word),
                ("DISABLE_SSL_VERIFICATION_GLOBALLY", word),
                ("REMUX_TO_TS", word),
            ]);
            let switched = [
                !config.upstream.proxy.is_empty(),
                config.media.cache.prefetch > 0,
                !config.upstream.danger_insecure_hosts.is_empty(),
                config.media.dash.remux_to_ts,
            ];
            assert_eq!(switched, [on; 4], "{word}");
            let retries = applied(&[("UPSTREAM_RETRY_ON_DISCONNECT", word)]).media.resume;
            assert_eq!(retries == 0, !on, "{word}");
        }
    }

    #[test]
    fn mediaflow_variables_are_ignored_unless_enabled() {
        let mut config = Config::default();
        apply_to(&mut config, &[("API_PASSWORD".into(), "pw".into())]);
        assert_eq!(config, Config::default());
    }
}
