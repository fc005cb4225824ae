//! The profile of Firefox: its preferences, and the CA in its certificate database.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use interflow_net::ca::CertificateAuthority;

use super::certificate_db;

const PREFERENCES: &str = include_str!("../../data/firefox_user.js");

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

/// The preferences of a profile behind this SOCKS5 proxy.
fn user_js(proxy: SocketAddr) -> String {
    let (host, port) = (proxy.ip(), proxy.port());
    format!(
        "{PREFERENCES}user_pref(\"network.proxy.socks\", \"{host}\");\nuser_pref(\"network.proxy.socks_port\", {port});\n"
    )
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
