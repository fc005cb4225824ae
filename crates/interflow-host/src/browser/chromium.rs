//! The command line of browsers made from Chromium.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Switches that keep a new profile from asking questions.
const NO_QUESTIONS: [&str; 6] = [
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-search-engine-choice-screen",
    // Neither the keyring of the desktop nor the keychain is asked for a password.
    "--password-store=basic",
    "--use-mock-keychain",
    // No bar warns of the switch for the CA's key.
    "--test-type",
];

/// Switches against traffic of the browser's own, which would be recorded with that of the pages.
const NO_BACKGROUND_TRAFFIC: [&str; 11] = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--disable-breakpad",
    "--disable-field-trial-config",
    "--metrics-recording-only",
    "--no-pings",
    "--disable-features=NetworkTimeServiceQuerying,OptimizationHints,MediaRouter,DialMediaRouteProvider,Translate,AutofillServerCommunication,InterestFeedContentSuggestions",
];

/// The arguments for a profile behind this SOCKS5 proxy. Certificates with the CA's key in their chain are accepted, so
/// that the CA need not be installed.
pub(super) fn arguments(profile: &Path, proxy: SocketAddr, ca_key_sha256: [u8; 32]) -> Vec<String> {
    let mut all = vec![
        format!("--user-data-dir={}", profile.display()),
        // Names are resolved by the proxy.
        format!("--proxy-server=socks5://{proxy}"),
        // By default, Chromium connects to this machine without the proxy.
        "--proxy-bypass-list=<-loopback>".to_owned(),
        format!("--ignore-certificate-errors-spki-list={}", STANDARD.encode(ca_key_sha256)),
    ];
    all.extend(NO_QUESTIONS.iter().chain(&NO_BACKGROUND_TRAFFIC).map(|&s| s.to_owned()));
    all
}

/// What to do about a message of the browser, if it is a known one.
pub(super) fn remedy(message: &str) -> Option<&'static str> {
    message.contains("--no-sandbox").then_some(
        "as root, Chromium runs only without its sandbox: `interflow browser -- --no-sandbox` (trusted pages only)",
    )
}
