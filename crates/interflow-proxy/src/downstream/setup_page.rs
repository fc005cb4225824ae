//! The page for phones, which the proxy port serves at its own address: the CA's certificate, and how to use the proxy.

use std::net::SocketAddr;

use interflow_codec::html::escape;
use interflow_net::ca::CertificateAuthority;
use interflow_types::{Response, StatusCode};

use super::builtin_pages::{ANDROID_STEPS, IOS_STEPS, ca_file};
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
