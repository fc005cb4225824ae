//! Pages that the proxy port serves itself: help for requests that are not proxy requests, and the CA certificate for
//! installation on devices (`http://interflow.local/`).

use std::net::SocketAddr;

use bytes::Bytes;
use interflow_net::ca::CertificateAuthority;
use interflow_types::secret_names::SECRET_HEADERS;
use interflow_types::{Body, Host, Method, RequestHead, Response, ResponseHead, StatusCode, Url};

use crate::http::error_response::html_page;
use interflow_codec::html::escape;

/// The host whose requests the proxy port answers itself. `.local` is reserved for multicast DNS (RFC 6762), so no
/// public site has this name.
const LOCAL_HOST: &str = "interflow.local";

pub(crate) fn is_local(host: &Host) -> bool {
    host.name().is_some_and(|name| name == LOCAL_HOST)
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

/// A page of `http://interflow.local/`.
pub(crate) fn serve_local(url: &Url, ca: &CertificateAuthority) -> Response {
    match url.path_only() {
        "/" => Response::full(StatusCode::OK, "text/html; charset=utf-8", install_page(ca)),
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
        "/ca.pem" => {
            Some(file_response("application/x-pem-file", "interflow-ca.pem", ca.certificate_pem().to_owned().into()))
        }
        // The media type that opens the certificate installer on phones and desktops.
        "/ca.crt" | "/ca.cer" | "/ca.der" => Some(file_response(
            "application/x-x509-ca-cert",
            "interflow-ca.crt",
            Bytes::copy_from_slice(ca.certificate_der()),
        )),
        "/ca.mobileconfig" => Some(super::setup_page::mobileconfig(ca)),
        _ => None,
    }
}

pub(super) fn file_response(media_type: &str, name: &str, bytes: Bytes) -> Response {
    let mut response = Response::full(StatusCode::OK, media_type, bytes);
    let disposition = format!("attachment; filename=\"{name}\"");
    response.head.headers.append_unchecked(b"Content-Disposition", disposition.as_bytes());
    response
}

/// A system, and the steps that make it trust the CA.
const INSTALL_STEPS: [(&str, &str); 8] = [
    (
        "Debian, Ubuntu",
        "sudo cp interflow-ca.pem /usr/local/share/ca-certificates/interflow.crt\nsudo update-ca-certificates",
    ),
    ("Fedora, RHEL", "sudo cp interflow-ca.pem /etc/pki/ca-trust/source/anchors/\nsudo update-ca-trust"),
    ("macOS", "sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain interflow-ca.pem"),
    ("Windows", "certutil -user -addstore Root interflow-ca.crt"),
    ("Firefox", "Settings, Privacy and Security, View Certificates, Authorities, Import: trust it for websites."),
    ("Chrome on Linux", "certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n Interflow -i interflow-ca.pem"),
    ("Android", "Open ca.crt; Settings, Security, Encryption and credentials, Install a certificate, CA certificate."),
    (
        "iOS",
        "Open ca.mobileconfig, install the profile in Settings, then Settings, General, About, Certificate Trust Settings: turn it on.",
    ),
];

fn install_page(ca: &CertificateAuthority) -> String {
    let mut body = format!(
        "<h1>Interflow's certificate authority</h1><p>Whoever trusts it lets this Interflow, and nobody else, read \
         what goes through it. SHA-256 <code>{}</code></p><p><a href=/ca.pem>ca.pem</a> (programs), \
         <a href=/ca.crt>ca.crt</a> (Android, desktops), \
         <a href=/ca.mobileconfig>ca.mobileconfig</a> (iPhone, iPad)</p>",
        escape(&ca.fingerprint_sha256())
    );
    for (system, steps) in INSTALL_STEPS {
        body.push_str(&format!("<h2>{}</h2><pre>{}</pre>", escape(system), escape(steps)));
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
        for secret in SECRET_HEADERS {
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
