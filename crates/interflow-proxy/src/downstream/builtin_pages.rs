//! Pages that the proxy port serves itself: help for requests that are not proxy requests, and the CA certificate for
//! installation on devices (`http://interflow.local/`, and `http://mitm.it/`, which users of other proxies know).

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_net::ca::CertificateAuthority;
use interflow_types::secret_names::SECRET_HEADERS;
use interflow_types::{Body, Host, Method, RequestHead, Response, ResponseHead, StatusCode, Url, data_file};

use crate::http::error_response::html_page;
use interflow_codec::html::escape;

/// The host whose requests the proxy port answers itself. `.local` is reserved for multicast DNS (RFC 6762), so no
/// public site has this name.
const LOCAL_HOST: &str = "interflow.local";
/// Where other proxies serve their certificate; the public site only says that no proxy is used.
const KNOWN_HOST: &str = "mitm.it";

pub(crate) fn is_local(host: &Host) -> bool {
    host.name().is_some_and(|name| [LOCAL_HOST, KNOWN_HOST].contains(&name))
}

/// The response to a request in origin-form on the proxy port.
pub(crate) fn not_a_proxy_request(local: SocketAddr) -> Response {
    let proxy = escape(&format!("http://{local}"));
    let body = format!(
        "<h1>This is an Interflow proxy</h1><p>It carries requests for others; it serves none at this address. \
         Tell your program to use it:</p><pre>curl -x {proxy} http://example.com/</pre>\
         <pre>export http_proxy={proxy} https_proxy={proxy}</pre>\
         <p>Through the proxy, <code>http://{LOCAL_HOST}/</code> serves its certificate authority. \
         For a phone, <a href=/setup>the steps are here</a>.</p>"
    );
    let mut response =
        Response::full(StatusCode::BAD_REQUEST, "text/html; charset=utf-8", html_page("This is a proxy", &body));
    response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
    response
}

/// A page of `http://interflow.local/`. `agent` is the client's user agent.
pub(crate) fn serve_local(url: &Url, agent: &str, ca: &CertificateAuthority) -> Response {
    match url.path_only() {
        "/" => Response::full(StatusCode::OK, "text/html; charset=utf-8", install_page(agent, ca)),
        path => ca_file(path, ca).unwrap_or_else(|| {
            Response::full(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "Interflow serves /, /ca.pem, /ca.crt, /ca.der and /ca.mobileconfig here\n",
            )
        }),
    }
}

/// The CA's certificate in the form that a path names.
pub(super) fn ca_file(path: &str, ca: &CertificateAuthority) -> Option<Response> {
    match path {
        // The second names are those at `mitm.it`.
        "/ca.pem" | "/cert/pem" => {
            Some(file_response("application/x-pem-file", "interflow-ca.pem", ca.certificate_pem().to_owned().into()))
        }
        // The media type that opens the certificate installer on phones and desktops.
        "/ca.crt" | "/ca.cer" | "/ca.der" | "/cert/cer" => Some(file_response(
            "application/x-x509-ca-cert",
            "interflow-ca.crt",
            Bytes::copy_from_slice(ca.certificate_der()),
        )),
        "/ca.mobileconfig" => Some(mobileconfig(ca)),
        _ => None,
    }
}

fn file_response(media_type: &str, name: &str, bytes: Bytes) -> Response {
    let mut response = Response::full(StatusCode::OK, media_type, bytes);
    let disposition = format!("attachment; filename=\"{name}\"");
    response.head.headers.append_unchecked(b"Content-Disposition", disposition.as_bytes());
    response
}

/// The CA as a configuration profile for iOS and macOS. It is not signed, so that the device calls it unverified.
fn mobileconfig(ca: &CertificateAuthority) -> Response {
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

/// How an iPhone or iPad comes to trust the CA, in HTML.
pub(super) const IOS_STEPS: &str = include_str!("../../data/ios_steps.html");
/// The same for Android.
pub(super) const ANDROID_STEPS: &str = include_str!("../../data/android_steps.html");

/// Phones first: this page is what they use, whereas `interflow ca install` serves other machines.
static INSTALL_STEPS: &str = include_str!("../../data/ca_install_steps.txt");

/// The systems with their steps in HTML, that of this user agent first.
fn steps_for(agent: &str) -> Vec<(&'static str, String)> {
    let mut all: Vec<[&str; 3]> = data_file::records(INSTALL_STEPS).collect();
    // Phones call themselves a Macintosh or Linux, too: the first that is recognised is the right one.
    if let Some(own) = all.iter().position(|[_, words, _]| words.split(", ").any(|word| agent.contains(word))) {
        all[..=own].rotate_right(1);
    }
    let html = |steps: &str| {
        let steps = steps.replace("{ios}", IOS_STEPS).replace("{android}", ANDROID_STEPS);
        steps.replace("\\n", "\n")
    };
    all.into_iter().map(|[system, _, steps]| (system, html(steps))).collect()
}

fn install_page(agent: &str, ca: &CertificateAuthority) -> String {
    let mut body = format!(
        "<h1>Interflow's certificate authority</h1><p>Whoever trusts it lets this Interflow, and nobody else, read \
         what goes through it.</p><p><a href=/ca.mobileconfig>ca.mobileconfig</a> (iPhone, iPad), \
         <a href=/ca.crt>ca.crt</a> (Android, desktops), <a href=/ca.pem>ca.pem</a> (programs)</p>\
         <p>SHA-256 <code>{}</code></p>",
        escape(&ca.fingerprint_sha256())
    );
    for (system, steps) in steps_for(agent) {
        body.push_str(&format!("<h2>{}</h2>{steps}", escape(system)));
    }
    body.push_str("<p>Nothing needs to be installed for one command: <code>interflow exec -- curl https://example.com/</code></p>");
    html_page("Interflow's certificate authority", &body)
}

/// The response to a TRACE or OPTIONS whose `Max-Forwards` is used up (RFC 9110 7.6.2, 9.3.8).
pub(crate) fn max_forwards_response(head: &RequestHead) -> Response {
    if head.method == Method::TRACE {
        let mut text = format!("TRACE {} {}\r\n", head.url, head.version).into_bytes();
        let mut fields = head.headers.clone();
        // The response repeats the request where scripts may read it, so credentials are left out (RFC 9110 9.3.8).
        for secret in SECRET_HEADERS.iter() {
            fields.remove(secret);
        }
        fields.write_to(&mut text);
        return Response::full(StatusCode::OK, "message/http", text);
    }
    let head = ResponseHead::new(StatusCode::OK)
        .with_header("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE, CONNECT")
        .with_header("Content-Length", "0");
    Response { head, body: Body::Empty }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_for_the_own_system_come_first() {
        for (agent, first, second) in [
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Safari/604.1", "iPhone, iPad", "Android"),
            ("Mozilla/5.0 (Linux; Android 15; Pixel 9) Chrome/131.0 Mobile", "Android", "iPhone, iPad"),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Firefox/140.0", "macOS", "iPhone, iPad"),
            ("Mozilla/5.0 (Windows NT 10.0; Win64) Chrome/131.0", "Windows", "iPhone, iPad"),
            ("Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:140.0) Firefox/140.0", "Debian, Ubuntu", "iPhone, iPad"),
            ("Mozilla/5.0 (X11; Linux x86_64) Chrome/131.0", "Chrome on Linux", "iPhone, iPad"),
            ("curl/8", "iPhone, iPad", "Android"),
        ] {
            let all = steps_for(agent);
            assert_eq!([all[0].0, all[1].0], [first, second], "{agent}");
            assert_eq!(all.len(), data_file::lines(INSTALL_STEPS).count());
        }
    }

    #[test]
    fn only_the_names_of_the_pages_are_served() {
        let local = |name: &str| is_local(&Host::parse(name).unwrap());
        assert!(local("interflow.local") && local("mitm.it") && local("MITM.it"));
        assert!(!local("www.mitm.it") && !local("interflow.locals") && !local("127.0.0.1"));
    }
}
