//! Environment variables that make runtimes use the proxy and trust its CA.

use interflow_types::data_file;
use std::path::Path;
use std::sync::LazyLock;

use super::TrustFiles;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvSetting {
    pub name: &'static str,
    pub value: String,
}

/// The proxy as a command is to reach it.
#[derive(Debug, Clone, Copy)]
pub struct ProxyTarget<'a> {
    /// A name or an address, the latter without brackets.
    pub host: &'a str,
    pub port: u16,
    /// What precedes the address in URLs: empty, or `name:password@`.
    pub login: &'a str,
}

impl ProxyTarget<'_> {
    fn url(&self) -> String {
        let Self { host, port, login } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        format!("http://{login}{open}{host}{close}:{port}")
    }
}

/// Variables that name a CA bundle. It replaces the runtime's own CAs, so it has the platform's and Interflow's.
static BUNDLES: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/ca_bundle_variables.txt")).collect());

/// Variables that add Interflow's CA to the runtime's own.
const ADDITIONS: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// Variables that make runtimes trust the CA, without proxy settings.
pub fn trust_variables(trust: &TrustFiles) -> impl Iterator<Item = (&'static str, &Path)> {
    let bundles = BUNDLES.iter().map(|name| (*name, &*trust.bundle));
    // Node and Deno add a CA to their own; the bundle is not needed.
    let additions = ADDITIONS.iter().map(|name| (*name, &*trust.ca));
    bundles.chain(additions).chain([("WGETRC", &*trust.wgetrc)])
}

/// All variables for a command behind this proxy. `var` reads the current environment.
pub fn settings(
    proxy: ProxyTarget<'_>,
    trust: &TrustFiles,
    no_proxy: &str,
    var: &dyn Fn(&str) -> Option<String>,
) -> Vec<EnvSetting> {
    let url = proxy.url();
    let mut all: Vec<EnvSetting> = Vec::new();
    let mut set = |name, value: String| all.push(EnvSetting { name, value });
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        set(name, url.clone());
    }
    // Yarn 2 and later read no other variable.
    for name in ["YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"] {
        set(name, url.clone());
    }
    // An inherited NO_PROXY concerned another proxy and is dropped; only `--no-proxy` counts.
    for name in ["NO_PROXY", "no_proxy"] {
        set(name, no_proxy.to_owned());
    }
    for (name, path) in trust_variables(trust) {
        set(name, text(path));
    }
    // Node 24 (and late 22) honours the proxy variables with NODE_USE_ENV_PROXY, but not for agents and connections that a
    // library makes; older versions ignore them.
    set("NODE_USE_ENV_PROXY", "1".into());
    set("NODE_OPTIONS", append(var("NODE_OPTIONS"), &format!("--require={}", quoted(&trust.node_shim))));
    set("BUN_OPTIONS", append(var("BUN_OPTIONS"), &format!("--preload={}", quoted(&trust.bun_shim))));
    set("JAVA_TOOL_OPTIONS", append(var("JAVA_TOOL_OPTIONS"), &java(proxy, trust)));
    all
}

fn java(ProxyTarget { host, port, .. }: ProxyTarget<'_>, trust: &TrustFiles) -> String {
    // Java does not use the proxy for local addresses by default; an empty list includes them.
    format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} \
         -Dhttp.nonProxyHosts= -Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStoreType=PKCS12 \
         -Djavax.net.ssl.trustStorePassword={}",
        quoted(&trust.java_store),
        super::trust::PASSWORD
    )
}

fn append(before: Option<String>, more: &str) -> String {
    let before = before.filter(|b| !b.trim().is_empty());
    before.map_or_else(|| more.to_owned(), |before| format!("{before} {more}"))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Node and Java both accept double quotes around a path with spaces.
fn quoted(path: &Path) -> String {
    let text = text(path);
    if text.contains(' ') { format!("\"{text}\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust() -> TrustFiles {
        TrustFiles {
            ca: "/h/ca.pem".into(),
            bundle: "/h/bundle.pem".into(),
            node_shim: "/h x/shim.cjs".into(),
            bun_shim: "/h/bun.cjs".into(),
            java_store: "/h/t.p12".into(),
            wgetrc: "/h/wgetrc".into(),
        }
    }

    const LOCAL: ProxyTarget<'_> = ProxyTarget { host: "127.0.0.1", port: 9, login: "exec:p@" };

    fn value(all: &[EnvSetting], name: &str) -> String {
        all.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name}")).value.clone()
    }

    #[test]
    fn environment_variables_are_set_for_each_runtime() {
        let none = |_: &str| None;
        let all = settings(LOCAL, &trust(), "a.test", &none);
        assert_eq!(value(&all, "https_proxy"), "http://exec:p@127.0.0.1:9");
        assert_eq!(value(&all, "NO_PROXY"), "a.test");
        assert_eq!(value(&all, "CURL_CA_BUNDLE"), "/h/bundle.pem");
        assert_eq!(value(&all, "npm_config_cafile"), "/h/bundle.pem");
        assert_eq!(value(&all, "WGETRC"), "/h/wgetrc");
        assert_eq!(value(&all, "NODE_EXTRA_CA_CERTS"), "/h/ca.pem");
        assert_eq!(value(&all, "NODE_OPTIONS"), "--require=\"/h x/shim.cjs\"");
        assert_eq!(value(&all, "BUN_OPTIONS"), "--preload=/h/bun.cjs");
        assert!(value(&all, "JAVA_TOOL_OPTIONS").contains("-Dhttps.proxyPort=9 "));
        // Java does not start with anything else among them.
        let options = value(&all, "JAVA_TOOL_OPTIONS");
        assert!(options.split_whitespace().all(|option| option.starts_with("-D")), "{options}");
    }

    #[test]
    fn an_address_of_version_6_is_in_brackets_in_urls() {
        let all = settings(ProxyTarget { host: "::1", ..LOCAL }, &trust(), "", &|_| None);
        assert_eq!(value(&all, "http_proxy"), "http://exec:p@[::1]:9");
        assert!(value(&all, "JAVA_TOOL_OPTIONS").contains("-Dhttp.proxyHost=::1 "));
    }

    #[test]
    fn existing_options_of_the_user_are_kept() {
        let some = |name: &str| (name == "NODE_OPTIONS").then(|| "--max-old-space-size=99".to_owned());
        let all = settings(LOCAL, &trust(), "", &some);
        assert!(value(&all, "NODE_OPTIONS").starts_with("--max-old-space-size=99 --require="));
    }
}
