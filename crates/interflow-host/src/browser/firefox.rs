//! The profile of Firefox: its preferences, and the CA in its certificate store.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::data_dir::DataDir;
use crate::doctor;

/// The page of the proxy that serves the CA.
pub(super) const CA_PAGE: &str = "http://interflow.local/ca.pem";

/// Whether the profile trusts the CA.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FirefoxTrust {
    /// The CA is in the profile's own store, or in the system's, which Firefox reads.
    Trusted,
    /// The remedy, in a sentence.
    Missing(String),
}

/// Writes the preferences, and imports the CA.
///
/// # Errors
/// The profile cannot be written.
pub(super) fn prepare(profile: &Path, proxy: SocketAddr, home: &DataDir) -> Result<FirefoxTrust, String> {
    let file = profile.join("user.js");
    fs::write(&file, user_js(proxy)).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    let ca = home.ca().join("ca.pem");
    let why = match import_ca(profile, &ca) {
        Ok(()) => return Ok(FirefoxTrust::Trusted),
        Err(why) => why,
    };
    // `security.enterprise_roots.enabled` makes Firefox read the system's store on macOS and Windows.
    if !cfg!(target_os = "linux") && doctor::in_system_store(&ca) == Some(true) {
        return Ok(FirefoxTrust::Trusted);
    }
    Ok(FirefoxTrust::Missing(format!(
        "this Firefox does not trust the CA yet: {why}. {}, or import the certificate that {CA_PAGE} serves in the browser's \
         settings (Certificates, Authorities)",
        remedy()
    )))
}

fn remedy() -> &'static str {
    if cfg!(target_os = "linux") {
        "Install certutil (package libnss3-tools or nss-tools) and start it again"
    } else if cfg!(target_os = "macos") {
        "Install certutil (`brew install nss`) or the CA (`interflow ca install`) and start it again"
    } else {
        "Install the CA (`interflow ca install`) and start it again"
    }
}

fn import_ca(profile: &Path, ca: &Path) -> Result<(), String> {
    // The certutil of Windows is another program.
    if cfg!(windows) {
        return Err("its store can be written only by NSS's certutil".into());
    }
    let database = format!("sql:{}", profile.display());
    certutil(&["-N", "-d", &database, "--empty-password"])?;
    let ca = ca.display().to_string();
    // `C` trusts it as a CA for TLS servers; the two other fields are for e-mail and code.
    certutil(&["-A", "-d", &database, "-t", "C,,", "-n", "Interflow", "-i", &ca])
}

fn certutil(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("certutil").args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("certutil failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err("certutil is not installed".into()),
        Err(e) => Err(format!("certutil cannot be started: {e}")),
    }
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
