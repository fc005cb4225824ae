//! The page for phones, which the proxy port serves at its own address: the CA's certificate, and how to use the proxy.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_codec::html::escape;
use interflow_net::ca::CertificateAuthority;
use interflow_types::{Response, StatusCode};

use super::builtin_pages::{ca_file, file_response};
use crate::http::error_response::html_page;

/// The path of the page on the proxy port. It needs no proxy settings, unlike `http://interflow.local/`.
const PAGE: &str = "/setup";

/// The response to a request that is not a proxy request, if it is for this page or its files. `local` is the address
/// that the client connected to.
pub(super) fn serve(path: &str, local: SocketAddr, ca: &CertificateAuthority) -> Option<Response> {
    match path.split('?').next().unwrap_or_default() {
        PAGE => Some(Response::full(StatusCode::OK, "text/html; charset=utf-8", page(local, ca))),
        file => ca_file(file, ca),
    }
}

/// How an iPhone or iPad comes to trust the CA, in HTML.
pub(super) const IOS_STEPS: &str = "<ol>\
    <li><a href=/ca.mobileconfig>Download the profile</a> in Safari, and allow it.</li>\
    <li>Settings, General, VPN and Device Management: install the profile.</li>\
    <li>Settings, General, About, Certificate Trust Settings: turn on full trust.</li></ol>";
/// The same for Android.
pub(super) const ANDROID_STEPS: &str = "<ol>\
    <li><a href=/ca.crt>Download the certificate</a>.</li>\
    <li>Settings, search for CA certificate, Install anyway: choose the file.</li></ol>\
    <p>Browsers trust it now; other apps only if they allow certificates that the user added.</p>";

fn page(local: SocketAddr, ca: &CertificateAuthority) -> String {
    let (host, port) = (escape(&local.ip().to_canonical().to_string()), local.port());
    let body = format!(
        "<h1>Set up this phone</h1>\
         <p>Do this before the proxy is set, in this order. Whoever trusts the certificate lets this Interflow, and nobody \
         else, read what goes through it.</p>\
         <h2>iPhone, iPad</h2>{IOS_STEPS}\
         <p>Then set the proxy: Settings, Wi-Fi, (i) beside the network, Configure Proxy, Manual: server <code>{host}</code>, \
         port <code>{port}</code>.</p>\
         <h2>Android</h2>{ANDROID_STEPS}\
         <p>Then set the proxy: Settings, Network, the network, Advanced options, Proxy, Manual: host <code>{host}</code>, \
         port <code>{port}</code>.</p>\
         <p>When you are done, set the proxy to none and remove the certificate. Its SHA-256 is \
         <code>{}</code>.</p>",
        escape(&ca.fingerprint_sha256())
    );
    html_page("Set up this phone", &body)
}

/// The CA as a configuration profile for iOS and macOS. It is not signed, so that the device calls it unverified.
pub(super) fn mobileconfig(ca: &CertificateAuthority) -> Response {
    let name = escape(ca.name());
    // The same CA makes the same profile, which replaces the one that is installed.
    let [profile, payload] = [1, 2].map(|number| uuid(&ca.fingerprint_sha256(), number));
    let text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
<key>PayloadType</key><string>Configuration</string>
<key>PayloadVersion</key><integer>1</integer>
<key>PayloadIdentifier</key><string>interflow.ca.{profile}</string>
<key>PayloadUUID</key><string>{profile}</string>
<key>PayloadDisplayName</key><string>{name}</string>
<key>PayloadDescription</key><string>Lets Interflow inspect the traffic of this device while it uses the proxy.</string>
<key>PayloadContent</key><array><dict>
<key>PayloadType</key><string>com.apple.security.root</string>
<key>PayloadVersion</key><integer>1</integer>
<key>PayloadIdentifier</key><string>interflow.ca.{payload}</string>
<key>PayloadUUID</key><string>{payload}</string>
<key>PayloadDisplayName</key><string>{name}</string>
<key>PayloadCertificateFileName</key><string>interflow-ca.crt</string>
<key>PayloadContent</key><data>{}</data>
</dict></array>
</dict></plist>
"#,
        STANDARD.encode(ca.certificate_der())
    );
    file_response("application/x-apple-aspen-config", "interflow-ca.mobileconfig", text.into())
}

/// A UUID of version 8 (RFC 9562 5.8) from a fingerprint in hex.
fn uuid(fingerprint: &str, number: u8) -> String {
    let hex: String = fingerprint.chars().filter(|c| *c != ':').take(32).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-8{}-8{}-{}{number:02X}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 30))
}
