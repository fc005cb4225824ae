//! The profile of Firefox: its preferences, and the CA in its certificate database.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use interflow_net::ca::CertificateAuthority;
use serde_json::{Value, json};

use super::certificate_db;

/// Writes the preferences, and a certificate database that trusts the CA.
///
/// # Errors
/// The profile cannot be written.
pub(super) fn prepare(profile: &Path, proxy: SocketAddr, ca: &CertificateAuthority) -> Result<(), String> {
    let file = profile.join("user.js");
    fs::write(&file, user_js(proxy)).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    certificate_db::write(profile, ca.name(), ca.certificate_der())
}

/// The arguments for a profile.
pub(super) fn arguments(profile: &Path) -> Vec<String> {
    let mut all =
        vec!["--profile".to_owned(), profile.display().to_string(), "--no-remote".into(), "--new-instance".into()];
    if cfg!(windows) {
        // Otherwise the first process ends while the browser runs.
        all.push("--wait-for-browser".into());
    }
    all
}

fn user_js(proxy: SocketAddr) -> String {
    preferences(proxy).iter().map(|(name, value)| format!("user_pref({}, {value});\n", json!(name))).collect()
}

fn preferences(proxy: SocketAddr) -> Vec<(&'static str, Value)> {
    vec![
        ("network.proxy.type", json!(1)),
        ("network.proxy.socks", json!(proxy.ip().to_string())),
        ("network.proxy.socks_port", json!(proxy.port())),
        ("network.proxy.socks_version", json!(5)),
        // Names are resolved by the proxy, and this machine is reached through it, too.
        ("network.proxy.socks_remote_dns", json!(true)),
        ("network.proxy.no_proxies_on", json!("")),
        ("network.proxy.allow_hijacking_localhost", json!(true)),
        ("network.trr.mode", json!(5)),
        ("network.http.http3.enable", json!(false)),
        ("security.enterprise_roots.enabled", json!(true)),
        // A new profile asks nothing.
        ("browser.shell.checkDefaultBrowser", json!(false)),
        ("browser.aboutwelcome.enabled", json!(false)),
        ("browser.startup.homepage_override.mstone", json!("ignore")),
        ("browser.tabs.warnOnClose", json!(false)),
        ("datareporting.policy.dataSubmissionEnabled", json!(false)),
        ("termsofuse.bypassNotification", json!(true)),
        ("trailhead.firstrun.didSeeAboutWelcome", json!(true)),
        // Traffic of the browser's own would be recorded with that of the pages.
        ("app.normandy.enabled", json!(false)),
        ("app.update.disabledForTesting", json!(true)),
        ("browser.newtabpage.enabled", json!(false)),
        ("browser.safebrowsing.downloads.remote.enabled", json!(false)),
        ("browser.safebrowsing.malware.enabled", json!(false)),
        ("browser.safebrowsing.phishing.enabled", json!(false)),
        ("browser.region.network.url", json!("")),
        ("browser.region.update.enabled", json!(false)),
        ("browser.search.update", json!(false)),
        ("browser.startup.page", json!(0)),
        ("captivedetect.canonicalURL", json!("")),
        ("datareporting.healthreport.uploadEnabled", json!(false)),
        ("datareporting.usage.uploadEnabled", json!(false)),
        ("dom.push.connection.enabled", json!(false)),
        ("extensions.getAddons.cache.enabled", json!(false)),
        ("extensions.systemAddon.update.enabled", json!(false)),
        ("extensions.update.enabled", json!(false)),
        ("geo.provider.network.url", json!("")),
        ("media.gmp-manager.updateEnabled", json!(false)),
        ("network.captive-portal-service.enabled", json!(false)),
        ("network.connectivity-service.enabled", json!(false)),
        ("services.settings.server", json!("data:,")),
        ("toolkit.telemetry.server", json!("")),
        ("toolkit.telemetry.unified", json!(false)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferences_send_everything_through_the_proxy() {
        let text = user_js("127.0.0.1:4711".parse().unwrap());
        for line in [
            "user_pref(\"network.proxy.type\", 1);\n",
            "user_pref(\"network.proxy.socks\", \"127.0.0.1\");\n",
            "user_pref(\"network.proxy.socks_port\", 4711);\n",
            "user_pref(\"network.proxy.allow_hijacking_localhost\", true);\n",
        ] {
            assert!(text.contains(line), "{line}");
        }
    }
}
