//! Fluxzy's actions as actions of ours.

use std::path::PathBuf;

use interflow_flow::units::{ByteSize, Span};
use interflow_flow::{Phase, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::node::Node;
use super::{Ledger, moment};
use crate::action::Action;
use crate::given::{
    Answer, AnswerBody, Append, Basic, Block, Bypass, Certificate, CookieLine, Delay, DnsServer, HtmlTag, Like, Local,
    Names, Nothing, Pairs, Remote, Session, SessionPart, Speed, Spoof, TlsOnly, Variables,
};
use crate::template::{Replacement, Template};
use crate::when::Texts;

/// Every action, by its `typeKind` without the ending, in lower case.
pub const KINDS: &[&str] = &[
    "skipssltunneling",
    "skipremotecertificatevalidation",
    "forcehttp11",
    "forcehttp2",
    "servehttp11",
    "forceremoteport",
    "spoofdns",
    "upstreamproxy",
    "setclientcertificate",
    "usecertificate",
    "addrequestheader",
    "updaterequestheader",
    "deleterequestheader",
    "setuseragent",
    "setrequestcookie",
    "addauthorizationbasic",
    "addbasicauthentication",
    "addauthorizationbearer",
    "changerequestmethod",
    "changerequestpath",
    "forward",
    "removecache",
    "abort",
    "reject",
    "rejectwithstatuscode",
    "rejectwithmessage",
    "mockedresponse",
    "servedirectory",
    "averagethrottle",
    "impersonate",
    "setja3fingerprint",
    "forcetlsversion",
    "usednsoverhttps",
    "pinupstreamconnection",
    "setvariable",
    "capturesession",
    "applysession",
    "clearsession",
    "applytag",
    "transformrequestbody",
    "mountcertificateauthority",
    "mountwelcomepage",
    "noop",
    "addresponseheader",
    "updateresponseheader",
    "deleteresponseheader",
    "setresponsecookie",
    "removeresponsecookie",
    "injecthtmltag",
    "delay",
    "applycomment",
    "transformresponsebody",
    "stdout",
    "stderr",
    "fileappend",
    "breakpoint",
];

type Made = Vec<(Option<Phase>, Action)>;

/// Reads an action; most become one of ours, some none, some several.
pub(super) fn read(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    let Some(kind) = node.kind(ledger, "action") else { return Vec::new() };
    let made = connection(ledger, node, &kind)
        .or_else(|| request(ledger, node, &kind))
        .or_else(|| answers(ledger, node, &kind))
        .or_else(|| response(ledger, node, &kind))
        .or_else(|| anywhere(ledger, node, &kind));
    let Some(made) = made else {
        ledger.problem(node, crate::error::unknown("action", &kind, KINDS));
        return Vec::new();
    };
    node.report_unknown(ledger);
    made
}

fn plain(action: Action) -> Made {
    vec![(None, action)]
}

fn connection(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Made> {
    Some(match kind {
        "skipssltunneling" => plain(Action::Tunnel(Nothing)),
        "skipremotecertificatevalidation" => {
            ledger.note(node, "certificates of these origins are not verified: whoever sits on the way can read and change everything");
            plain(Action::DangerSkipVerify(Nothing))
        }
        "forcehttp11" => plain(Action::HttpVersion(Texts(vec!["1.1".into()]))),
        "forcehttp2" => {
            ledger.note(node, "Fluxzy ignores it in cleartext; here HTTP/2 is spoken there too, with prior knowledge");
            plain(Action::HttpVersion(Texts(vec!["2".into()])))
        }
        "servehttp11" => plain(Action::ServeHttp1(Nothing)),
        "forceremoteport" => {
            let port = node.number(ledger, "port").unwrap_or_default();
            plain(Action::ConnectTo(Spoof { to: Template::literal(&format!(":{port}")) }))
        }
        "spoofdns" => {
            let host = node.template(ledger, "remoteHostIp").unwrap_or_default();
            let port = node.number(ledger, "remoteHostPort").filter(|p| *p > 0);
            let host_text = host.source().to_owned();
            let v6 = host_text.parse::<std::net::Ipv6Addr>().is_ok();
            let host = if v6 { format!("[{host_text}]") } else { host_text };
            let to = port.map_or_else(|| host.clone(), |p| format!("{host}:{p}"));
            plain(Action::ConnectTo(Spoof { to: super::node::template(ledger, node, &to) }))
        }
        "upstreamproxy" => upstream_proxy(ledger, node),
        "setclientcertificate" => {
            let _ = node.get("alwaysSendClientCertificate");
            certificate(ledger, node, "clientCertificate", Action::ClientCertificate)
        }
        "usecertificate" => certificate(ledger, node, "serverCertificate", Action::ShowCertificate),
        "pinupstreamconnection" => plain(Action::OwnConnection(Nothing)),
        "impersonate" => impersonate(ledger, node),
        "setja3fingerprint" => {
            let text = format!("ja3:{}", node.needed(ledger, "value").source());
            like(ledger, node, text)
        }
        "forcetlsversion" => tls_version(ledger, node),
        "usednsoverhttps" => dns_over_https(ledger, node),
        _ => return None,
    })
}

fn upstream_proxy(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    let host = node.needed(ledger, "host").source().to_owned();
    let port = node.number(ledger, "port").unwrap_or(8080);
    let login =
        node.text_of("proxyAuthorizationHeader").filter(|t| !t.is_empty()).and_then(|t| login(ledger, node, &t));
    let url = format!("http://{}{host}:{port}", login.map(|l| format!("{l}@")).unwrap_or_default());
    let via = vec![super::node::template(ledger, node, &url)];
    let bypass = node.get("byPassHosts").map(|n| n.items().iter().filter_map(Node::text).collect()).unwrap_or_default();
    ledger.note(node, "requests in cleartext go through the proxy malformed in Fluxzy; here in absolute-form");
    plain(Action::UpstreamProxy(Bypass { via, bypass }))
}

/// `Basic …` as `user:password`, escaped for a URL.
fn login(ledger: &mut Ledger<'_>, node: &Node<'_>, header: &str) -> Option<String> {
    use base64::Engine as _;
    let pair =
        header.strip_prefix("Basic ").and_then(|b| base64::engine::general_purpose::STANDARD.decode(b.trim()).ok());
    let Some(pair) = pair.and_then(|p| String::from_utf8(p).ok()) else {
        ledger.problem(node, "`proxyAuthorizationHeader` must be `Basic` with base64: other schemes are not spoken with upstream proxies");
        return None;
    };
    let (user, password) = pair.split_once(':').unwrap_or((&pair, ""));
    Some(format!("{}:{}", crate::params::encode(user), crate::params::encode(password)))
}

fn tls_version(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    use interflow_flow::TlsVersion::{Tls12, Tls13};
    let wanted = node.text_of("sslProtocols").unwrap_or_else(|| "none".into()).to_ascii_lowercase();
    let only = match wanted.as_str() {
        "tls12" => Tls12,
        "tls13" => Tls13,
        "none" | "default" => return plain(Action::Nothing(Nothing)),
        "ssl2" | "ssl3" | "tls" | "tls11" => {
            ledger.problem(node, format!("`{wanted}` is broken and spoken by nothing here: write tls12 or tls13"));
            return Vec::new();
        }
        other => {
            ledger.problem(node, crate::error::unknown("version", other, &["none", "default", "tls12", "tls13"]));
            return Vec::new();
        }
    };
    plain(Action::TlsVersion(TlsOnly(only)))
}

fn dns_over_https(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    let _ = node.get("noCapture");
    let server = node.text_of("nameOrUrl").unwrap_or_default();
    // Its well-known servers are asked by Fluxzy in JSON, under a path of their own.
    let server = if server == "https://dns.google/resolve" { "google".to_owned() } else { server };
    match DnsServer::read(&server) {
        Ok(server) => {
            ledger.note(node, "Fluxzy asks in a JSON form of its own, for IPv4 alone, and does not verify the server; here RFC 8484, both families, and the server is verified");
            plain(Action::DnsOverHttps(server))
        }
        Err(e) => {
            ledger.problem(node, e);
            Vec::new()
        }
    }
}

/// Fluxzy's `Chrome_Windows_131` and the like name versions of one or two years ago: the current one of that client is sent.
fn impersonate(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    let name = node.needed(ledger, "nameOrConfigFile").source().to_owned();
    let mut words = name.split('_').map(str::to_ascii_lowercase);
    let (client, system) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let current = match (client.as_str(), system.as_str()) {
        ("chrome", "android") => "android",
        ("chrome", _) => "chrome",
        ("edge", _) => "edge",
        ("firefox", _) => "firefox",
        _ if name.to_ascii_lowercase().ends_with(".json") => {
            ledger.problem(
                node,
                format!("the profile {name} is not read: give its networkSettings.ja3FingerPrint to setJa3FingerPrint"),
            );
            return Vec::new();
        }
        _ => name.as_str(),
    };
    if current != name {
        ledger.note(node, format!("{name}: the fingerprint of {current} as it is today is sent"));
    }
    like(ledger, node, current.to_owned())
}

fn like(ledger: &mut Ledger<'_>, node: &Node<'_>, text: String) -> Made {
    match Like::try_from(text) {
        Ok(like) => plain(Action::Impersonate(like)),
        Err(e) => {
            ledger.problem(node, e);
            Vec::new()
        }
    }
}

/// A certificate with its key, for either leg.
fn certificate(ledger: &mut Ledger<'_>, node: &Node<'_>, key: &str, action: fn(Certificate) -> Action) -> Made {
    let certificate = node.get(key);
    let inner = certificate.as_ref().unwrap_or(node);
    let mode = inner.text_of("retrieveMode").unwrap_or_else(|| "fluxzyDefault".into());
    let file = inner.text_of("pkcs12File");
    let password = inner.text_of("pkcs12Password");
    let _ = (inner.get("serialNumber"), inner.get("thumbPrint"));
    if certificate.is_some() {
        inner.report_unknown(ledger);
    }
    let ours = if key == "clientCertificate" { "client_certificate" } else { "show_certificate" };
    match file {
        Some(file) if mode.eq_ignore_ascii_case("fromPkcs12") => {
            plain(action(Certificate { certificate: PathBuf::from(file), key: None, password }))
        }
        None if mode.eq_ignore_ascii_case("fromPkcs12") => {
            ledger.problem(inner, "`pkcs12File` is missing");
            Vec::new()
        }
        _ => {
            ledger.problem(
                inner,
                format!("a certificate of the kind `{mode}` lies in a store of Windows or Fluxzy: export it as PKCS#12 (retrieveMode: fromPkcs12), or as PEM and use the action {ours}"),
            );
            Vec::new()
        }
    }
}

fn header(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Pairs {
    let name = node.needed(ledger, "headerName");
    let value = node.template(ledger, "headerValue").unwrap_or_default();
    Pairs(vec![(name, value)])
}

/// Fields that shape the connection are left alone there.
fn shaping(ledger: &mut Ledger<'_>, node: &Node<'_>, pairs: &Pairs) {
    const SHAPING: [&str; 5] = ["connection", "transfer-encoding", "content-length", "keep-alive", "upgrade"];
    if pairs.0.iter().any(|(n, _)| SHAPING.contains(&n.source().to_ascii_lowercase().as_str())) {
        ledger.note(
            node,
            "a field that shapes the connection: Fluxzy leaves it alone, and here the codec has the last word on it",
        );
    }
}

fn updated(ledger: &mut Ledger<'_>, node: &Node<'_>, set: fn(Pairs) -> Action, update: fn(Pairs) -> Action) -> Made {
    let mut pairs = header(ledger, node);
    shaping(ledger, node, &pairs);
    let add = node.flag(ledger, "addIfMissing", false);
    if let Some(separator) = node.text_of("appendSeparator").filter(|s| !s.is_empty()) {
        for (_, value) in &mut pairs.0 {
            let text = format!("{{{{previous}}}}{separator}{}", value.source());
            *value = super::node::template(ledger, node, &text);
        }
    }
    plain(if add { set(pairs) } else { update(pairs) })
}

fn request(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Made> {
    Some(match kind {
        "addrequestheader" => {
            let pairs = header(ledger, node);
            shaping(ledger, node, &pairs);
            plain(Action::AddRequestHeader(pairs))
        }
        "updaterequestheader" => updated(ledger, node, Action::SetRequestHeader, Action::UpdateRequestHeader),
        "deleterequestheader" => plain(Action::RemoveRequestHeader(Names(vec![node.needed(ledger, "headerName")]))),
        "setuseragent" => {
            let name = node.text_of("name").unwrap_or_default();
            let agent = Template::literal(user_agent(&name).unwrap_or(&name));
            if user_agent(&name).is_none() {
                ledger.note(node, format!("`{name}` is no browser of the built-in list: it is sent as it stands"));
            }
            plain(Action::SetRequestHeader(Pairs(vec![(Template::literal("User-Agent"), agent)])))
        }
        "setrequestcookie" => {
            ledger.note(
                node,
                "Fluxzy loses the other cookies when the request has some without this name; here they stay",
            );
            let name = node.needed(ledger, "name");
            let value = node.template(ledger, "value").unwrap_or_default();
            plain(Action::SetRequestCookie(Pairs(vec![(escaped(ledger, node, name), escaped(ledger, node, value))])))
        }
        "addauthorizationbasic" => basic(ledger, node, "user"),
        "addbasicauthentication" => basic(ledger, node, "username"),
        "addauthorizationbearer" => {
            ledger.note(node, "Fluxzy sends variables in the token as they are written; here they are filled in");
            plain(Action::BearerToken(node.needed(ledger, "token")))
        }
        "changerequestmethod" => plain(Action::SetMethod(node.needed(ledger, "newMethod"))),
        "changerequestpath" => plain(Action::SetPath(node.needed(ledger, "newPath"))),
        "forward" => plain(Action::MapRemote(Remote {
            regex: None,
            to: Replacement(node.needed(ledger, "url")),
            keep_host: false,
        })),
        "removecache" => plain(Action::Anticache(Nothing)),
        "averagethrottle" => throttle(ledger, node),
        "setvariable" => {
            let name = node.needed(ledger, "name").source().trim_start_matches("user.").to_owned();
            let value = node.template(ledger, "value").unwrap_or_default();
            let phase = node.text_of("scope").and_then(|s| moment(ledger, node, &s));
            ledger
                .note(node, "a variable set here belongs to its flow: other flows do not see it, as they do in Fluxzy");
            vec![(phase, Action::SetVariable(Variables(vec![(name, value)])))]
        }
        "applysession" => plain(Action::ApplySession(SessionPart {
            cookies: node.flag(ledger, "applyCookies", true),
            headers: node.flag(ledger, "applyHeaders", true),
            merge: node.flag(ledger, "mergeWithExisting", true),
            domain: node.template(ledger, "sourceDomain").filter(|t| !t.source().is_empty()),
        })),
        "clearsession" => {
            let domain = node.template(ledger, "domain").filter(|t| !t.source().is_empty());
            plain(Action::ClearSession(SessionPart { domain, ..SessionPart::default() }))
        }
        "applytag" => {
            let tag = node
                .get("tag")
                .map(|t| t.text().or_else(|| t.text_of("value")).unwrap_or_default())
                .unwrap_or_default();
            plain(Action::Tag(super::node::template(ledger, node, &tag)))
        }
        "transformrequestbody" | "transformresponsebody" => {
            ledger.problem(node, "this is a function in C# of a program that embeds Fluxzy: write it as edit_request_body, edit_response_body or script");
            Vec::new()
        }
        "noop" => {
            ledger.note(node, "Fluxzy never reaches the moment of this action");
            plain(Action::Nothing(Nothing))
        }
        _ => return None,
    })
}

/// What is escaped in cookies: all but RFC 3986's unreserved characters.
const IN_COOKIES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// As a part of a URL, which is how Fluxzy writes cookies.
fn escaped(ledger: &mut Ledger<'_>, node: &Node<'_>, text: Template) -> Template {
    match text.as_literal() {
        Some(plain) => Template::literal(&utf8_percent_encode(plain, IN_COOKIES).to_string()),
        None => {
            ledger.note(
                node,
                "Fluxzy escapes the cookie as a part of a URL; here what stands in for a variable is sent as it is",
            );
            text
        }
    }
}

fn basic(ledger: &mut Ledger<'_>, node: &Node<'_>, user: &str) -> Made {
    plain(Action::BasicAuth(Basic {
        user: node.needed(ledger, user),
        password: node.template(ledger, "password").unwrap_or_default(),
    }))
}

fn throttle(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    ledger.note(node, "Fluxzy saves idle time up as a burst without bound, and divides by zero below 1000 bytes per second; here neither");
    let rate = ByteSize(node.number(ledger, "bandwidthBytesPerSeconds").unwrap_or(65536).max(1));
    let channel = node.text_of("throttleChannel").unwrap_or_else(|| "all".into()).to_ascii_lowercase();
    let (request, response) = match channel.as_str() {
        "request" => (Some(rate), None),
        "response" => (None, Some(rate)),
        "all" => (Some(rate), Some(rate)),
        other => {
            ledger.problem(node, crate::error::unknown("channel", other, &["request", "response", "all"]));
            (None, Some(rate))
        }
    };
    plain(Action::Throttle(Speed { request, response, shared: Some(Default::default()) }))
}

fn answers(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Made> {
    let code = |ledger: &mut Ledger<'_>| {
        let code = node.number(ledger, "statusCode").unwrap_or(403);
        u16::try_from(code).ok().filter(|c| (200..=999).contains(c)).unwrap_or_else(|| {
            ledger.problem(node, format!("{code} is no final status code"));
            403
        })
    };
    Some(match kind {
        "abort" => plain(Action::Abort(Nothing)),
        "reject" => plain(Action::Block(Block {
            status: 403,
            message: Some(Template::literal("Forbidden")),
            content_type: None,
        })),
        "rejectwithstatuscode" => {
            let status = code(ledger);
            let name = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or_default();
            plain(Action::Block(Block { status, message: Some(Template::literal(name)), content_type: None }))
        }
        "rejectwithmessage" => {
            let status = code(ledger);
            let message = Some(node.template(ledger, "message").unwrap_or_default());
            plain(Action::Block(Block { status, message, content_type: node.template(ledger, "contentType") }))
        }
        "mockedresponse" => mocked(ledger, node),
        "servedirectory" => {
            ledger.note(node, "Fluxzy tests only the length of the path against the folder; here nothing leaves the folder, by dots or by links");
            let folder = node.needed(ledger, "directory");
            if let Some(path) = folder.as_literal().filter(|p| !std::path::Path::new(p).is_dir()) {
                ledger.problem(node, format!("the folder {path} is not there"));
            }
            plain(Action::MapLocal(Local {
                path: Replacement(folder),
                regex: None,
                strip: None,
                fall_through: false,
                status: 200,
                content_type: None,
            }))
        }
        "mountcertificateauthority" => plain(Action::ServeCa(Nothing)),
        "mountwelcomepage" => {
            let page = "<!doctype html><title>Interflow</title><h1>Interflow</h1><p>This is a proxy. Its certificate: <a href=\"/ca\">ca</a>.";
            plain(Action::Answer(Box::new(Answer {
                status: 200,
                headers: Vec::new(),
                body: AnswerBody::Text(Template::literal(page)),
                content_type: Some(Template::literal("text/html; charset=utf-8")),
            })))
        }
        _ => return None,
    })
}

fn mocked(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Made {
    ledger.note(node, "variables in a mocked text are filled in once by Fluxzy and stay so; here for each flow");
    let response = node.get("response");
    let r = response.as_ref().unwrap_or(node);
    let status = r
        .number(ledger, "statusCode")
        .and_then(|n| u16::try_from(n).ok())
        .filter(|n| (200..=999).contains(n))
        .unwrap_or(200);
    let mut headers = Vec::new();
    for h in r.get("headers").map(|h| h.items()).unwrap_or_default() {
        headers.push((h.needed(ledger, "name"), h.template(ledger, "value").unwrap_or_default()));
    }
    let body_node = r.get("body");
    let (mut body, mut media) = (AnswerBody::Text(Template::default()), None);
    if let Some(b) = &body_node {
        media = b.text_of("type").and_then(|t| media_type(&t));
        let origin = b.text_of("origin").unwrap_or_else(|| "fromString".into()).to_ascii_lowercase();
        body = match origin.as_str() {
            "fromfile" => AnswerBody::File(b.needed(ledger, "fileName")),
            "fromimmediatearray" => {
                use base64::Engine as _;
                let text = b.text_of("contentBase64").unwrap_or_default();
                let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim());
                if let Err(e) = &bytes {
                    ledger.problem(b, format!("`contentBase64` is none: {e}"));
                }
                AnswerBody::Bytes(bytes.unwrap_or_default().into())
            }
            _ => AnswerBody::Text(b.template(ledger, "text").unwrap_or_default()),
        };
        b.report_unknown(ledger);
    }
    r.report_unknown(ledger);
    let content_type = media.map(Template::literal);
    plain(Action::Answer(Box::new(Answer { status, headers, body, content_type })))
}

fn media_type(kind: &str) -> Option<&'static str> {
    Some(match kind.to_ascii_lowercase().as_str() {
        "text" => "text/plain; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml",
        "html" => "text/html; charset=utf-8",
        "binary" => "application/octet-stream",
        "css" => "text/css; charset=utf-8",
        "js" | "javascript" => "text/javascript; charset=utf-8",
        "font" => "font/woff2",
        "proto" => "application/x-protobuf",
        _ => return None,
    })
}

fn response(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Made> {
    Some(match kind {
        "addresponseheader" => plain(Action::AddResponseHeader(header(ledger, node))),
        "updateresponseheader" => updated(ledger, node, Action::SetResponseHeader, Action::UpdateResponseHeader),
        "deleteresponseheader" => plain(Action::RemoveResponseHeader(Names(vec![node.needed(ledger, "headerName")]))),
        "setresponsecookie" => {
            let integer =
                |node: &Node<'_>, key: &str| node.text_of(key).and_then(|t| t.parse::<i64>().ok()).filter(|n| *n != 0);
            plain(Action::SetResponseCookie(CookieLine {
                name: node.needed(ledger, "name"),
                value: node.template(ledger, "value").unwrap_or_default(),
                path: node.template(ledger, "path"),
                domain: node.template(ledger, "domain"),
                expires_in: integer(node, "expireInSeconds"),
                max_age: integer(node, "maxAge"),
                http_only: node.flag(ledger, "httpOnly", false),
                secure: node.flag(ledger, "secure", false),
                same_site: node.text_of("sameSite"),
            }))
        }
        "removeresponsecookie" => plain(Action::RemoveResponseCookie(Names(vec![node.needed(ledger, "name")]))),
        "injecthtmltag" => {
            let _ = node.get("encoding");
            let file = node.flag(ledger, "fromFile", false);
            let html = if file {
                AnswerBody::File(node.needed(ledger, "fileName"))
            } else {
                let _ = node.get("fileName");
                AnswerBody::Text(node.template(ledger, "htmlContent").unwrap_or_default())
            };
            let tag = node.text_of("tag").unwrap_or_else(|| "head".into()).to_ascii_lowercase();
            plain(Action::InjectHtml(HtmlTag { tag, html, only_html: node.flag(ledger, "restrictToHtml", true) }))
        }
        "capturesession" => {
            let headers = node.get("captureHeaders").map(|h| h.items().iter().filter_map(Node::text).collect());
            plain(Action::SaveSession(Session {
                cookies: node.flag(ledger, "captureCookies", true),
                request_cookies: node.flag(ledger, "captureRequestCookies", false),
                headers: headers.unwrap_or_default(),
            }))
        }
        "applycomment" => vec![(Some(Phase::ResponseHead), Action::Comment(node.needed(ledger, "comment")))],
        "delay" => {
            let time = Span::millis(node.number(ledger, "duration").unwrap_or_default());
            let phase = node.text_of("scope").and_then(|s| moment(ledger, node, &s)).unwrap_or(Phase::ResponseHead);
            vec![(Some(phase), Action::Delay(Delay { time, jitter: Span::default() }))]
        }
        _ => return None,
    })
}

fn anywhere(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Made> {
    let scope = |ledger: &mut Ledger<'_>| node.text_of("runScope").and_then(|s| moment(ledger, node, &s));
    Some(match kind {
        "stdout" => {
            let text = node.needed(ledger, "text");
            match scope(ledger) {
                Some(phase) => vec![(Some(phase), Action::Print(text))],
                None => {
                    ledger.note(
                        node,
                        "without `runScope` Fluxzy prints at every moment, up to four times for a request; here once",
                    );
                    plain(Action::Print(text))
                }
            }
        }
        "stderr" => vec![(unscoped(ledger, node), Action::PrintError(node.needed(ledger, "text")))],
        "fileappend" => {
            let _ = node.get("encoding");
            let (file, text) = (node.needed(ledger, "filename"), node.needed(ledger, "text"));
            vec![(unscoped(ledger, node), Action::AppendFile(Append { file, text, verbatim: true }))]
        }
        "breakpoint" => {
            ledger.note(node, "Fluxzy's command line has no breakpoints; here the flow is held until somebody decides, by `interflow rules held` or the API");
            plain(Action::Hold(crate::given::Hold { timeout: None, pass: true, note: None }))
        }
        _ => return None,
    })
}

fn unscoped(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Option<Phase> {
    match node.text_of("runScope") {
        Some(scope) => moment(ledger, node, &scope),
        None => {
            ledger.note(node, "without `runScope` Fluxzy never runs this; here it runs at the request, or once the filter can be decided");
            None
        }
    }
}

/// Browsers by Fluxzy's names, in versions of today.
fn user_agent(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "windows_chrome" => {
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
        }
        "windows_firefox" => "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0",
        "windows_edge" => {
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0"
        }
        "macos_chrome" => {
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
        }
        "macos_firefox" => "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:145.0) Gecko/20100101 Firefox/145.0",
        "macos_edge" => {
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0"
        }
        "macos_safari" => {
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15"
        }
        "linux_chrome" => {
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
        }
        "linux_firefox" => "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
        "linux_edge" => {
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0"
        }
        "android_chrome" => {
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36"
        }
        "ios_safari" => {
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1"
        }
        _ => return None,
    })
}
