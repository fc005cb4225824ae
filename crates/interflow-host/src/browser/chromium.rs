//! The command line of browsers made from Chromium.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_types::data_file;

const SWITCHES: &str = include_str!("../../data/chromium_switches.txt");

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
    all.extend(data_file::lines(SWITCHES).map(str::to_owned));
    all
}

/// What to do about a message of the browser, if it is a known one.
pub(super) fn remedy(message: &str) -> Option<&'static str> {
    message.contains("--no-sandbox").then_some(
        "as root, Chromium runs only without its sandbox: `interflow browser -- --no-sandbox` (trusted pages only)",
    )
}
