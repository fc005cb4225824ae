//! Translation of Fluxzy's actions into Interflow's.

use std::path::PathBuf;
use std::sync::LazyLock;

use interflow_rules::action::Action;
use interflow_rules::format::{OneOrManyStrings, ReplacementTemplate, TextTemplate, unknown_key_message};
use interflow_rules::params::{
    AnswerBody, AnswerParams, AppendFileParams, BasicAuthParams, BlockParams, CertificateParams, ConnectToParams,
    CookieLine, DelayParams, DnsServerParam, FingerprintParam, HoldParams, InjectHtmlParams, MapLocalParams,
    MapRemoteParams, NameList, NoParams, SaveSessionParams, SessionPartParams, TemplatePairs, ThrottleParams,
    TlsVersionParam, UpstreamProxyParams, VariableParams,
};
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{HostPattern, Phase, StatusCode, data_file, percent};

use super::node::FluxzyNode;
use super::scopes::phase_by_name;

static TABLE: &str = include_str!("../../data/fluxzy_actions.txt");

/// Every action by its `typeKind` without the suffix, in lower case.
pub static KINDS: LazyLock<Vec<&str>> = LazyLock::new(|| data_file::records(TABLE).map(|[kind, _]| kind).collect());

/// An action with its phase, if that is not the usual one; `None` if it has an error.
type ConvertedAction = Option<(Option<Phase>, Action)>;

/// Translates an action.
pub(super) fn read(node: &FluxzyNode<'_>) -> ConvertedAction {
    let kind = node.kind("action")?;
    let made = connection(node, &kind)
        .or_else(|| request(node, &kind))
        .or_else(|| answers(node, &kind))
        .or_else(|| response(node, &kind))
        .or_else(|| any_phase_action(node, &kind));
    let Some(made) = made else { return node.refuse(unknown_key_message("action", &kind, &KINDS)) };
    node.report_unknown();
    node.note_of_kind(TABLE, &kind);
    made
}

fn single_action(action: Action) -> ConvertedAction {
    Some((None, action))
}

fn connection(node: &FluxzyNode<'_>, kind: &str) -> Option<ConvertedAction> {
    Some(match kind {
        "skipssltunneling" => single_action(Action::Tunnel(NoParams)),
        "skipremotecertificatevalidation" => single_action(Action::DangerSkipVerify(NoParams)),
        "forcehttp11" => single_action(Action::HttpVersion(OneOrManyStrings(vec!["1.1".into()]))),
        "forcehttp2" => single_action(Action::HttpVersion(OneOrManyStrings(vec!["2".into()]))),
        "servehttp11" => single_action(Action::ServeHttp1(NoParams)),
        "forceremoteport" => {
            let port = node.number("port").unwrap_or_default();
            single_action(Action::ConnectTo(ConnectToParams { to: TextTemplate::literal(&format!(":{port}")) }))
        }
        "spoofdns" => {
            let host = node.template("remoteHostIp").unwrap_or_default();
            let port = node.number("remoteHostPort").filter(|p| *p > 0);
            let host_text = host.source().to_owned();
            let v6 = host_text.parse::<std::net::Ipv6Addr>().is_ok();
            let host = if v6 { format!("[{host_text}]") } else { host_text };
            let to = port.map_or_else(|| host.clone(), |p| format!("{host}:{p}"));
            single_action(Action::ConnectTo(ConnectToParams { to: super::node::template(node, &to) }))
        }
        "upstreamproxy" => upstream_proxy(node),
        "setclientcertificate" => {
            let _ = node.get("alwaysSendClientCertificate");
            certificate(node, "clientCertificate", Action::ClientCertificate)
        }
        "usecertificate" => certificate(node, "serverCertificate", Action::ShowCertificate),
        "pinupstreamconnection" => single_action(Action::OwnConnection(NoParams)),
        "impersonate" => impersonate(node),
        "setja3fingerprint" => {
            let text = format!("ja3:{}", node.required_template("value").source());
            fingerprint_action(node, text)
        }
        "forcetlsversion" => tls_version(node),
        "usednsoverhttps" => dns_over_https(node),
        _ => return None,
    })
}

fn upstream_proxy(node: &FluxzyNode<'_>) -> ConvertedAction {
    let host = node.required_template("host").source().to_owned();
    let port = node.number("port").unwrap_or(8080);
    let login = node.text_of("proxyAuthorizationHeader").filter(|t| !t.is_empty()).and_then(|t| proxy_login(node, &t));
    let url = format!("http://{}{host}:{port}", login.map(|l| format!("{l}@")).unwrap_or_default());
    let via = vec![super::node::template(node, &url)];
    let mut bypass = Vec::new();
    for text in node.items_of("byPassHosts").iter().filter_map(FluxzyNode::text) {
        // There, a bare name includes its subdomains, and `.name` is them alone.
        let ours = text.strip_prefix('.').map_or_else(|| text.clone(), |name| format!("*.{name}"));
        match ours.parse::<HostPattern>() {
            Ok(pattern) => bypass.push(pattern.with_subdomains()),
            Err(e) => node.problem(format!("byPassHosts: {e}")),
        }
    }
    single_action(Action::UpstreamProxy(UpstreamProxyParams { via, bypass }))
}

/// `Basic …` as `user:password`, escaped for a URL.
fn proxy_login(node: &FluxzyNode<'_>, header: &str) -> Option<String> {
    use base64::Engine as _;
    let pair =
        header.strip_prefix("Basic ").and_then(|b| base64::engine::general_purpose::STANDARD.decode(b.trim()).ok());
    let Some(pair) = pair.and_then(|p| String::from_utf8(p).ok()) else {
        return node.refuse("`proxyAuthorizationHeader` must be `Basic` with base64: other schemes are not spoken with upstream proxies");
    };
    let (user, password) = pair.split_once(':').unwrap_or((&pair, ""));
    Some(format!("{}:{}", percent::encoded(user), percent::encoded(password)))
}

fn tls_version(node: &FluxzyNode<'_>) -> ConvertedAction {
    use interflow_types::TlsVersion::{Tls12, Tls13};
    let version = node.text_of("sslProtocols").unwrap_or_else(|| "none".into()).to_ascii_lowercase();
    let only = match version.as_str() {
        "tls12" => Tls12,
        "tls13" => Tls13,
        "none" | "default" => return single_action(Action::Nothing(NoParams)),
        "ssl2" | "ssl3" | "tls" | "tls11" => {
            return node.refuse(format!("`{version}` is insecure and not supported: write tls12 or tls13"));
        }
        other => {
            return node.refuse(unknown_key_message("version", other, &["none", "default", "tls12", "tls13"]));
        }
    };
    single_action(Action::TlsVersion(TlsVersionParam(only)))
}

fn dns_over_https(node: &FluxzyNode<'_>) -> ConvertedAction {
    let _ = node.get("noCapture");
    let server = node.text_of("nameOrUrl").unwrap_or_default();
    // Fluxzy queries well-known servers in JSON, at a special path.
    let server = if server == "https://dns.google/resolve" { "google".to_owned() } else { server };
    match DnsServerParam::parse(&server) {
        Ok(server) => {
            node.note("Fluxzy asks in a JSON form of its own, for IPv4 alone, and does not verify the server; here RFC 8484, both families, and the server is verified");
            single_action(Action::DnsOverHttps(server))
        }
        Err(e) => node.refuse(e),
    }
}

/// Fluxzy's `Chrome_Windows_131` and the like name versions that are one or two years old; the current version of that
/// client is used.
fn impersonate(node: &FluxzyNode<'_>) -> ConvertedAction {
    let name = node.required_template("nameOrConfigFile").source().to_owned();
    let mut words = name.split('_').map(str::to_ascii_lowercase);
    let (client, system) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let current = match (client.as_str(), system.as_str()) {
        ("chrome", "android") => "android",
        ("chrome", _) => "chrome",
        ("edge", _) => "edge",
        ("firefox", _) => "firefox",
        _ if name.to_ascii_lowercase().ends_with(".json") => {
            return node.refuse(format!(
                "the profile {name} is not read: give its networkSettings.ja3FingerPrint to setJa3FingerPrint"
            ));
        }
        _ => name.as_str(),
    };
    if current != name {
        node.note(format!("{name}: the fingerprint of {current} as it is today is sent"));
    }
    fingerprint_action(node, current.to_owned())
}

fn fingerprint_action(node: &FluxzyNode<'_>, text: String) -> ConvertedAction {
    match FingerprintParam::try_from(text) {
        Ok(like) => single_action(Action::Impersonate(like)),
        Err(e) => node.refuse(e),
    }
}

/// A certificate with its key, for either side.
fn certificate(node: &FluxzyNode<'_>, key: &str, action: fn(CertificateParams) -> Action) -> ConvertedAction {
    let certificate = node.get(key);
    let inner = certificate.as_ref().unwrap_or(node);
    let mode = inner.text_of("retrieveMode").unwrap_or_else(|| "fluxzyDefault".into());
    let file = inner.text_of("pkcs12File");
    let password = inner.text_of("pkcs12Password");
    let _ = (inner.get("serialNumber"), inner.get("thumbPrint"));
    if certificate.is_some() {
        inner.report_unknown();
    }
    let ours = if key == "clientCertificate" { "client_certificate" } else { "show_certificate" };
    match file {
        Some(file) if mode.eq_ignore_ascii_case("fromPkcs12") => {
            single_action(action(CertificateParams { certificate: PathBuf::from(file), key: None, password }))
        }
        None if mode.eq_ignore_ascii_case("fromPkcs12") => inner.refuse("`pkcs12File` is missing"),
        _ => inner.refuse(format!("a certificate of the kind `{mode}` is in a certificate store of Windows or Fluxzy: export it as PKCS#12 (retrieveMode: fromPkcs12), or as PEM and use the action {ours}")),
    }
}

fn header(node: &FluxzyNode<'_>) -> TemplatePairs {
    let name = node.required_template("headerName");
    let value = node.template("headerValue").unwrap_or_default();
    TemplatePairs(vec![(name, value)])
}

/// Notes that fields which shape the connection are not changed.
fn note_connection_fields(node: &FluxzyNode<'_>, pairs: &TemplatePairs) {
    const SHAPING: [&str; 5] = ["connection", "transfer-encoding", "content-length", "keep-alive", "upgrade"];
    if pairs.0.iter().any(|(n, _)| SHAPING.contains(&n.source().to_ascii_lowercase().as_str())) {
        node.note(
            "a field that shapes the connection: Fluxzy leaves it alone, and here the codec has the last word on it",
        );
    }
}

type PairsAction = fn(TemplatePairs) -> Action;

fn update_or_set(node: &FluxzyNode<'_>, set: PairsAction, update: PairsAction) -> ConvertedAction {
    let mut pairs = header(node);
    note_connection_fields(node, &pairs);
    let add = node.bool_value("addIfMissing", false);
    if let Some(separator) = node.text_of("appendSeparator").filter(|s| !s.is_empty()) {
        for (_, value) in &mut pairs.0 {
            let text = format!("{{{{previous}}}}{separator}{}", value.source());
            *value = super::node::template(node, &text);
        }
    }
    single_action(if add { set(pairs) } else { update(pairs) })
}

fn request(node: &FluxzyNode<'_>, kind: &str) -> Option<ConvertedAction> {
    Some(match kind {
        "addrequestheader" => {
            let pairs = header(node);
            note_connection_fields(node, &pairs);
            single_action(Action::AddRequestHeader(pairs))
        }
        "updaterequestheader" => update_or_set(node, Action::SetRequestHeader, Action::UpdateRequestHeader),
        "deleterequestheader" => {
            single_action(Action::RemoveRequestHeader(NameList(vec![node.required_template("headerName")])))
        }
        "setuseragent" => {
            let name = node.text_of("name").unwrap_or_default();
            let agent = TextTemplate::literal(user_agent(&name).unwrap_or(&name));
            if user_agent(&name).is_none() {
                node.note(format!("`{name}` is not a browser of the built-in list: it is sent unchanged"));
            }
            single_action(Action::SetRequestHeader(TemplatePairs(vec![(TextTemplate::literal("User-Agent"), agent)])))
        }
        "setrequestcookie" => {
            let name = node.required_template("name");
            let value = node.template("value").unwrap_or_default();
            single_action(Action::SetRequestCookie(TemplatePairs(vec![(
                escape_for_cookie(node, name),
                escape_for_cookie(node, value),
            )])))
        }
        "addauthorizationbasic" => basic_auth(node, "user"),
        "addbasicauthentication" => basic_auth(node, "username"),
        "addauthorizationbearer" => single_action(Action::BearerToken(node.required_template("token"))),
        "changerequestmethod" => single_action(Action::SetMethod(node.required_template("newMethod"))),
        "changerequestpath" => single_action(Action::SetPath(node.required_template("newPath"))),
        "forward" => single_action(Action::MapRemote(MapRemoteParams {
            regex: None,
            to: ReplacementTemplate(node.required_template("url")),
            keep_host: false,
        })),
        "removecache" => single_action(Action::Anticache(NoParams)),
        "averagethrottle" => throttle(node),
        "setvariable" => {
            let name = node.required_template("name").source().trim_start_matches("user.").to_owned();
            let value = node.template("value").unwrap_or_default();
            let phase = node.text_of("scope").and_then(|s| phase_by_name(node, &s));
            node.note("a variable set here belongs to its flow: other flows do not see it, as they do in Fluxzy");
            Some((phase, Action::SetVariable(VariableParams(vec![(name, value)]))))
        }
        "applysession" => single_action(Action::ApplySession(SessionPartParams {
            cookies: node.bool_value("applyCookies", true),
            headers: node.bool_value("applyHeaders", true),
            merge: node.bool_value("mergeWithExisting", true),
            domain: node.template("sourceDomain").filter(|t| !t.source().is_empty()),
        })),
        "clearsession" => {
            let domain = node.template("domain").filter(|t| !t.source().is_empty());
            single_action(Action::ClearSession(SessionPartParams { domain, ..SessionPartParams::default() }))
        }
        "applytag" => single_action(Action::Tag(super::node::template(node, &node.tag()))),
        "transformrequestbody" | "transformresponsebody" => {
            node.refuse("this is a function in C# of a program that embeds Fluxzy: write it as edit_request_body, edit_response_body or script")
        }
        "noop" => single_action(Action::Nothing(NoParams)),
        _ => return None,
    })
}

/// Percent-encoding, which is how Fluxzy writes cookies.
fn escape_for_cookie(node: &FluxzyNode<'_>, text: TextTemplate) -> TextTemplate {
    match text.as_literal() {
        Some(plain) => TextTemplate::literal(&percent::encoded(plain)),
        None => {
            node.note(
                "Fluxzy escapes the cookie as a part of a URL; here what stands in for a variable is sent as it is",
            );
            text
        }
    }
}

fn basic_auth(node: &FluxzyNode<'_>, user: &str) -> ConvertedAction {
    let (user, password) = (node.required_template(user), node.template("password").unwrap_or_default());
    single_action(Action::BasicAuth(BasicAuthParams { user, password }))
}

fn throttle(node: &FluxzyNode<'_>) -> ConvertedAction {
    let rate = ByteSize(node.number("bandwidthBytesPerSeconds").unwrap_or(65536).max(1));
    let channel = node.text_of("throttleChannel").unwrap_or_else(|| "all".into()).to_ascii_lowercase();
    let (request, response) = match channel.as_str() {
        "request" => (Some(rate), None),
        "response" => (None, Some(rate)),
        "all" => (Some(rate), Some(rate)),
        other => {
            node.problem(unknown_key_message("channel", other, &["request", "response", "all"]));
            (None, Some(rate))
        }
    };
    single_action(Action::Throttle(ThrottleParams { request, response, shared: Some(Default::default()) }))
}

fn answers(node: &FluxzyNode<'_>, kind: &str) -> Option<ConvertedAction> {
    let code = || status_code(node).unwrap_or(403);
    Some(match kind {
        "abort" => single_action(Action::Abort(NoParams)),
        "reject" => block(403, TextTemplate::literal("Forbidden"), None),
        "rejectwithstatuscode" => {
            let status = code();
            let name = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or_default();
            block(status, TextTemplate::literal(name), None)
        }
        "rejectwithmessage" => {
            block(code(), node.template("message").unwrap_or_default(), node.template("contentType"))
        }
        "mockedresponse" => mocked_response(node),
        "servedirectory" => {
            let folder = node.required_template("directory");
            if let Some(path) = folder.as_literal().filter(|p| !std::path::Path::new(p).is_dir()) {
                node.problem(format!("the folder {path} is not there"));
            }
            single_action(Action::MapLocal(MapLocalParams {
                path: ReplacementTemplate(folder),
                regex: None,
                strip: None,
                fall_through: false,
                status: 200,
                content_type: None,
            }))
        }
        "mountcertificateauthority" => single_action(Action::ServeCa(NoParams)),
        "mountwelcomepage" => {
            let page = "<!doctype html><title>Interflow</title><h1>Interflow</h1><p>This is a proxy. Its certificate: <a href=\"/ca\">ca</a>.";
            single_action(Action::Answer(Box::new(AnswerParams {
                status: 200,
                headers: Vec::new(),
                body: AnswerBody::Text(TextTemplate::literal(page)),
                content_type: Some(TextTemplate::literal("text/html; charset=utf-8")),
            })))
        }
        _ => return None,
    })
}

/// The status of an answer; one that cannot end a request is an error.
fn status_code(node: &FluxzyNode<'_>) -> Option<u16> {
    let code = node.number("statusCode")?;
    let is_final = u16::try_from(code).ok().filter(|code| (200..=999).contains(code));
    is_final.or_else(|| node.refuse(format!("{code} is not a final status code")))
}

fn block(status: u16, message: TextTemplate, content_type: Option<TextTemplate>) -> ConvertedAction {
    single_action(Action::Block(BlockParams { status, message: Some(message), content_type }))
}

fn mocked_response(node: &FluxzyNode<'_>) -> ConvertedAction {
    let response = node.get("response");
    let r = response.as_ref().unwrap_or(node);
    let status = status_code(r).unwrap_or(200);
    let header = |h: &FluxzyNode<'_>| (h.required_template("name"), h.template("value").unwrap_or_default());
    let headers = r.items_of("headers").iter().map(header).collect();
    let body_node = r.get("body");
    let (mut body, mut media) = (AnswerBody::Text(TextTemplate::default()), None);
    if let Some(b) = &body_node {
        media = b.text_of("type").and_then(|t| named(include_str!("../../data/fluxzy_media_types.txt"), &t));
        let origin = b.text_of("origin").unwrap_or_else(|| "fromString".into()).to_ascii_lowercase();
        body = match origin.as_str() {
            "fromfile" => AnswerBody::File(b.required_template("fileName")),
            "fromimmediatearray" => {
                use base64::Engine as _;
                let text = b.text_of("contentBase64").unwrap_or_default();
                let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim());
                if let Err(e) = &bytes {
                    b.problem(format!("`contentBase64` is none: {e}"));
                }
                AnswerBody::Bytes(bytes.unwrap_or_default().into())
            }
            _ => AnswerBody::Text(b.template("text").unwrap_or_default()),
        };
        b.report_unknown();
    }
    r.report_unknown();
    let content_type = media.map(TextTemplate::literal);
    single_action(Action::Answer(Box::new(AnswerParams { status, headers, body, content_type })))
}

fn response(node: &FluxzyNode<'_>, kind: &str) -> Option<ConvertedAction> {
    Some(match kind {
        "addresponseheader" => single_action(Action::AddResponseHeader(header(node))),
        "updateresponseheader" => update_or_set(node, Action::SetResponseHeader, Action::UpdateResponseHeader),
        "deleteresponseheader" => {
            single_action(Action::RemoveResponseHeader(NameList(vec![node.required_template("headerName")])))
        }
        "setresponsecookie" => {
            let integer = |node: &FluxzyNode<'_>, key: &str| {
                let number = node.text_of(key)?.trim().parse::<i64>().ok();
                number.or_else(|| node.refuse(format!("`{key}` must be a whole number"))).filter(|n| *n != 0)
            };
            single_action(Action::SetResponseCookie(CookieLine {
                name: node.required_template("name"),
                value: node.template("value").unwrap_or_default(),
                path: node.template("path"),
                domain: node.template("domain"),
                expires_in: integer(node, "expireInSeconds"),
                max_age: integer(node, "maxAge"),
                http_only: node.bool_value("httpOnly", false),
                secure: node.bool_value("secure", false),
                same_site: node.text_of("sameSite"),
            }))
        }
        "removeresponsecookie" => {
            single_action(Action::RemoveResponseCookie(NameList(vec![node.required_template("name")])))
        }
        "injecthtmltag" => {
            let _ = node.get("encoding");
            let file = node.bool_value("fromFile", false);
            let html = if file {
                AnswerBody::File(node.required_template("fileName"))
            } else {
                let _ = node.get("fileName");
                AnswerBody::Text(node.template("htmlContent").unwrap_or_default())
            };
            let tag = node.text_of("tag").unwrap_or_else(|| "head".into()).to_ascii_lowercase();
            let only_html = node.bool_value("restrictToHtml", true);
            single_action(Action::InjectHtml(InjectHtmlParams { tag, html, only_html }))
        }
        "capturesession" => {
            let headers = node.items_of("captureHeaders").iter().filter_map(FluxzyNode::text).collect();
            single_action(Action::SaveSession(SaveSessionParams {
                cookies: node.bool_value("captureCookies", true),
                request_cookies: node.bool_value("captureRequestCookies", false),
                headers,
            }))
        }
        "applycomment" => Some((Some(Phase::ResponseHead), Action::Comment(node.required_template("comment")))),
        "delay" => {
            let time = HumanDuration::from_millis(node.number("duration").unwrap_or_default());
            let phase = node.text_of("scope").and_then(|s| phase_by_name(node, &s)).unwrap_or(Phase::ResponseHead);
            Some((Some(phase), Action::Delay(DelayParams { time, jitter: HumanDuration::default() })))
        }
        _ => return None,
    })
}

fn any_phase_action(node: &FluxzyNode<'_>, kind: &str) -> Option<ConvertedAction> {
    Some(match kind {
        "stdout" => {
            let text = node.required_template("text");
            let phase = node.text_of("runScope").and_then(|s| phase_by_name(node, &s));
            if phase.is_none() {
                node.note(
                    "without `runScope` Fluxzy prints at every moment, up to four times for a request; here once",
                );
            }
            Some((phase, Action::Print(text)))
        }
        "stderr" => Some((phase_of_scope(node), Action::PrintError(node.required_template("text")))),
        "fileappend" => {
            let _ = node.get("encoding");
            let (file, text) = (node.required_template("filename"), node.required_template("text"));
            Some((phase_of_scope(node), Action::AppendFile(AppendFileParams { file, text, verbatim: true })))
        }
        "breakpoint" => single_action(Action::Hold(HoldParams { timeout: None, pass: true, note: None })),
        _ => return None,
    })
}

fn phase_of_scope(node: &FluxzyNode<'_>) -> Option<Phase> {
    match node.text_of("runScope") {
        Some(scope) => phase_by_name(node, &scope),
        None => {
            node.note("without `runScope` Fluxzy never runs this; here it runs at the request, or once the filter can be decided");
            None
        }
    }
}

/// Current `User-Agent` values by Fluxzy's names.
fn user_agent(name: &str) -> Option<&'static str> {
    named(include_str!("../../data/fluxzy_user_agents.txt"), name)
}

/// The value of a name in a table of names and values.
fn named(table: &'static str, name: &str) -> Option<&'static str> {
    data_file::records(table).find(|[known, _]| known.eq_ignore_ascii_case(name)).map(|[_, value]| value)
}
