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
pub(super) const IOS_STEPS: &str = include_str!("../../data/ios_steps.html");
/// The same for Android.
pub(super) const ANDROID_STEPS: &str = include_str!("../../data/android_steps.html");

fn page(local: SocketAddr, ca: &CertificateAuthority) -> String {
    let (host, port) = (escape(&local.ip().to_canonical().to_string()), local.port());
    let body = format!(
        include_str!("../../data/setup_page.html"),
        host = host,
        port = port,
        ios = IOS_STEPS,
        android = ANDROID_STEPS,
        fingerprint = escape(&ca.fingerprint_sha256())
    );
    html_page("Set up this phone", &body)
}

/// The CA as a configuration profile for iOS and macOS. It is not signed, so that the device calls it unverified.
pub(super) fn mobileconfig(ca: &CertificateAuthority) -> Response {
    let name = escape(ca.name());
    // The same CA makes the same profile, which replaces the one that is installed.
    let [profile, payload] = [1, 2].map(|number| uuid(&ca.fingerprint_sha256(), number));
    let text = format!(
        include_str!("../../data/ca.mobileconfig"),
        profile = profile,
        payload = payload,
        name = name,
        certificate = STANDARD.encode(ca.certificate_der())
    );
    file_response("application/x-apple-aspen-config", "interflow-ca.mobileconfig", text.into())
}

/// A UUID of version 8 (RFC 9562 5.8) from a fingerprint in hex.
fn uuid(fingerprint: &str, number: u8) -> String {
    let hex: String = fingerprint.chars().filter(|c| *c != ':').take(32).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-8{}-8{}-{}{number:02X}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 30))
}
