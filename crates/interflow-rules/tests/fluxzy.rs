//! Fluxzy's files read as they are: one row for each of its filters and actions.

use std::sync::Arc;

use interflow_rules::{ACTION_KINDS, FILTER_KINDS, Program, RulesConfig, Source, Surroundings, trial};
use serde_json::json;

fn load(text: &str) -> Result<Arc<Program>, String> {
    let around = Surroundings::new(Some("PEM".into()), None);
    Program::from_sources(vec![Source::text("fluxzy.yaml", text)], &RulesConfig::default(), Arc::new(around))
        .map_err(|e| e.to_string())
}

/// A request and response that most filters can be asked about.
fn flow(change: &str) -> interflow_rules::Sample {
    let mut asked = json!({
        "method": "POST", "url": "https://api.example.com:8443/v1/users?page=2&q=x",
        "headers": {
            "Content-Type": "application/json", "Authorization": "Bearer abc", "Cookie": "sid=7; t=1",
            "User-Agent": "curl/8.5", "X-A": "one"
        },
        "body": "{\"a\":1}",
    });
    let mut told = json!({
        "status": 200, "headers": {"Content-Type": "text/html; charset=utf-8", "Set-Cookie": "sid=8; Path=/", "Server": "nginx"},
        "body": "<head></head>",
    });
    if let Some((side, media)) = change.split_once('=') {
        let of = if side == "request" { &mut asked } else { &mut told };
        match media.parse::<u16>() {
            Ok(status) => of["status"] = status.into(),
            Err(_) => of["headers"]["Content-Type"] = media.into(),
        }
    } else if !change.is_empty() {
        asked["method"] = change.into();
    }
    let mut sample =
        trial::sample(&serde_json::from_value(asked).unwrap(), &serde_json::from_value(told).unwrap()).unwrap();
    sample.flow.tag("mine");
    sample.flow.tag("comment:look at this");
    sample
}

/// Whether a filter, as YAML flow, holds for the flow once its response has come.
async fn holds(filter: &str, change: &str) -> bool {
    let text = format!(
        "rules:\n- name: f\n  filter: {filter}\n  action: {{typeKind: setResponseCookieAction, name: seen, value: '1'}}\n"
    );
    let program = load(&text).unwrap_or_else(|e| panic!("{filter}: {e}"));
    let trial = trial::run(&program, flow(change)).await;
    trial.matched == ["f"]
}

/// Filter, a flow for which it holds, a filter or flow for which it does not.
type Row = (&'static str, &'static str, &'static str, Option<&'static str>, &'static str);

const FILTERS: &[Row] = &[
    ("any", "{typeKind: anyFilter}", "", Some("{typeKind: any, inverted: true}"), ""),
    ("no", "{typeKind: no, inverted: true}", "", Some("{typeKind: no}"), ""),
    (
        "host",
        "{typeKind: hostFilter, pattern: example.com, operation: endsWith}",
        "",
        Some("{typeKind: host, pattern: example.com}"),
        "",
    ),
    (
        "authority",
        "{typeKind: authority, port: 8443, pattern: API.example.com}",
        "",
        Some("{typeKind: authority, port: 443, pattern: api.example.com}"),
        "",
    ),
    ("issecure", "{typeKind: isSecure}", "", Some("{typeKind: isSecure, inverted: true}"), ""),
    ("ipingress", "{typeKind: ipIngress, pattern: '127.'}", "", Some("{typeKind: ipIngress, pattern: '10.'}"), ""),
    (
        "ipegress",
        "{typeKind: ipEgress, pattern: '9.9.9.9', inverted: true}",
        "",
        Some("{typeKind: ipEgress, pattern: '9.9.9.9'}"),
        "",
    ),
    (
        "filtercollection",
        "{typeKind: filterCollection, operation: and, children: [{typeKind: post}, {typeKind: filterCollection, children: [{typeKind: get}, {typeKind: any}]}]}",
        "",
        Some("{typeKind: filterCollection, children: []}"),
        "",
    ),
    ("isself", "{typeKind: isSelf, inverted: true}", "", Some("{typeKind: isSelf}"), ""),
    ("connection", "{typeKind: connection, connectionId: 0}", "", Some("{typeKind: connection, connectionId: 5}"), ""),
    (
        "exec",
        "{typeKind: exec, filename: test, arguments: '${authority.host} = api.example.com'}",
        "",
        Some("{typeKind: exec, filename: 'false'}"),
        "",
    ),
    ("agentlabel", "{typeKind: agentLabel, pattern: CURL}", "", Some("{typeKind: agentLabel, pattern: firefox}"), ""),
    (
        "agent",
        "{typeKind: agent, agent: {id: 1, friendlyName: curl}}",
        "",
        Some("{typeKind: agent, agent: {friendlyName: Chrome}}"),
        "",
    ),
    (
        "processid",
        "{typeKind: processId, processId: 1, inverted: true}",
        "",
        Some("{typeKind: processId, processId: 1}"),
        "",
    ),
    (
        "processname",
        "{typeKind: processName, processNames: [curl.exe], inverted: true}",
        "",
        Some("{typeKind: processName, processNames: [curl]}"),
        "",
    ),
    (
        "absoluteuri",
        "{typeKind: absoluteUri, pattern: 'https://api.example.com:8443/v1/users?page=2&q=x'}",
        "",
        Some("{typeKind: absoluteUri, pattern: example.com}"),
        "",
    ),
    (
        "path",
        "{typeKind: path, pattern: '/v1/', operation: startsWith}",
        "",
        Some("{typeKind: path, pattern: /v1/users}"),
        "",
    ),
    (
        "querystring",
        "{typeKind: queryString, name: page, pattern: '2'}",
        "",
        Some("{typeKind: queryString, name: q, pattern: '2'}"),
        "",
    ),
    (
        "method",
        "{typeKind: method, pattern: post}",
        "",
        Some("{typeKind: method, pattern: post, caseSensitive: true}"),
        "",
    ),
    ("get", "{typeKind: get}", "GET", Some("{typeKind: get}"), ""),
    ("post", "{typeKind: post}", "", Some("{typeKind: post}"), "GET"),
    ("put", "{typeKind: put}", "PUT", Some("{typeKind: put}"), ""),
    ("patch", "{typeKind: patch}", "PATCH", Some("{typeKind: patch}"), ""),
    ("delete", "{typeKind: delete}", "DELETE", Some("{typeKind: delete}"), ""),
    (
        "requestheader",
        "{typeKind: requestHeader, headerName: x-a, pattern: '^o(?<rest>.+)$', operation: regex}",
        "",
        Some("{typeKind: requestHeader, headerName: x-a, pattern: on}"),
        "",
    ),
    ("hasauthorization", "{typeKind: hasAuthorization}", "", Some("{typeKind: hasAuthorization, inverted: true}"), ""),
    (
        "hasauthorizationbearer",
        "{typeKind: hasAuthorizationBearer}",
        "",
        Some("{typeKind: hasAuthorizationBearer, inverted: true}"),
        "",
    ),
    (
        "hasanycookieonrequest",
        "{typeKind: hasAnyCookieOnRequest}",
        "",
        Some("{typeKind: hasAnyCookieOnRequest, inverted: true}"),
        "",
    ),
    (
        "hascookieonrequest",
        "{typeKind: hasCookieOnRequest, name: SID, pattern: '7'}",
        "",
        Some("{typeKind: hasCookieOnRequest, name: sid, pattern: '8'}"),
        "",
    ),
    (
        "formurlencodedrequest",
        "{typeKind: formUrlEncodedRequest}",
        "request=application/x-www-form-urlencoded",
        Some("{typeKind: formUrlEncodedRequest}"),
        "",
    ),
    (
        "multipartdatarequest",
        "{typeKind: multipartDataRequest}",
        "request=multipart/form-data",
        Some("{typeKind: multipartDataRequest}"),
        "",
    ),
    ("formrequest", "{typeKind: formRequest}", "request=multipart/form-data", Some("{typeKind: formRequest}"), ""),
    ("jsonrequest", "{typeKind: jsonRequest}", "", Some("{typeKind: jsonRequest}"), "request=text/plain"),
    (
        "protobufrequest",
        "{typeKind: protobufRequest}",
        "request=application/x-protobuf",
        Some("{typeKind: protobufRequest}"),
        "",
    ),
    ("isgrpc", "{typeKind: isGrpc}", "request=application/grpc+proto", Some("{typeKind: isGrpc}"), ""),
    ("iswebsocket", "{typeKind: isWebSocket, inverted: true}", "", Some("{typeKind: isWebSocket}"), ""),
    ("h11trafficonly", "{typeKind: h11TrafficOnly}", "", Some("{typeKind: h11TrafficOnly, inverted: true}"), ""),
    ("h2trafficonly", "{typeKind: h2TrafficOnly, inverted: true}", "", Some("{typeKind: h2TrafficOnly}"), ""),
    ("hasrequestbody", "{typeKind: hasRequestBody, inverted: true}", "", Some("{typeKind: hasRequestBody}"), ""),
    (
        "statuscode",
        "{typeKind: statusCode, statusCodes: [404, 200]}",
        "",
        Some("{typeKind: statusCode, statusCodes: [404]}"),
        "",
    ),
    ("statuscodesuccess", "{typeKind: statusCodeSuccess}", "", Some("{typeKind: statusCodeSuccess}"), "response=404"),
    (
        "statuscoderedirection",
        "{typeKind: statusCodeRedirection}",
        "response=302",
        Some("{typeKind: statusCodeRedirection}"),
        "",
    ),
    (
        "statuscodeclienterror",
        "{typeKind: statusCodeClientError}",
        "response=404",
        Some("{typeKind: statusCodeClientError}"),
        "",
    ),
    (
        "statuscodeservererror",
        "{typeKind: statusCodeServerError}",
        "response=503",
        Some("{typeKind: statusCodeServerError}"),
        "",
    ),
    ("networkerror", "{typeKind: networkError}", "response=528", Some("{typeKind: networkError}"), ""),
    (
        "responseheader",
        "{typeKind: responseHeader, headerName: server, pattern: NGINX}",
        "",
        Some("{typeKind: responseHeader, headerName: server, pattern: ng}"),
        "",
    ),
    ("contenttypexml", "{typeKind: contentTypeXml}", "response=text/xml", Some("{typeKind: contentTypeXml}"), ""),
    ("cssstyle", "{typeKind: cssStyle}", "response=text/css", Some("{typeKind: cssStyle}"), ""),
    ("font", "{typeKind: font}", "response=font/woff2", Some("{typeKind: font}"), ""),
    ("htmlresponse", "{typeKind: htmlResponse}", "", Some("{typeKind: htmlResponse}"), "response=text/css"),
    ("image", "{typeKind: image}", "response=image/png", Some("{typeKind: image}"), ""),
    ("jsonresponse", "{typeKind: jsonResponse}", "response=application/json", Some("{typeKind: jsonResponse}"), ""),
    (
        "protobufresponse",
        "{typeKind: protobufResponse}",
        "response=application/x-protobuf",
        Some("{typeKind: protobufResponse}"),
        "",
    ),
    ("protobuf", "{typeKind: protobuf}", "request=application/protobuf", Some("{typeKind: protobuf}"), ""),
    (
        "hassetcookieonresponse",
        "{typeKind: hasSetCookieOnResponse, name: sid, pattern: '8'}",
        "",
        Some("{typeKind: hasSetCookieOnResponse, name: sid, pattern: sid}"),
        "",
    ),
    ("hascomment", "{typeKind: hasComment}", "", Some("{typeKind: hasComment, inverted: true}"), ""),
    ("hastag", "{typeKind: hasTag}", "", Some("{typeKind: hasTag, inverted: true}"), ""),
    (
        "commentsearch",
        "{typeKind: commentSearch, pattern: LOOK}",
        "",
        Some("{typeKind: commentSearch, pattern: away}"),
        "",
    ),
    ("tagcontains", "{typeKind: tagContains, tag: {value: mine}}", "", Some("{typeKind: tagContains, tag: yours}"), ""),
    ("searchtext", "{typeKind: searchText, pattern: nginx}", "", Some("{typeKind: searchText, pattern: NGINX}"), ""),
];

#[tokio::test]
async fn every_filter_says_yes_and_no() {
    let named: Vec<&str> = FILTERS.iter().map(|(n, ..)| *n).collect();
    assert_eq!(named, FILTER_KINDS, "one row for each filter");
    assert_eq!(FILTER_KINDS.len(), 60);
    for (name, yes, change, no, other) in FILTERS {
        assert!(holds(yes, change).await, "{name}: {yes} with {change:?}");
        if let Some(no) = no {
            assert!(!holds(no, other).await, "{name}: {no} with {other:?}");
        }
    }
}

/// Action, its parameters, and what must come of it: `request NAME: VALUE`, `response NAME: VALUE`, `url`, `method`, …
const ACTIONS: &[(&str, &str, &str)] = &[
    ("skipssltunneling", "{typeKind: skipSslTunnelingAction}", "tunnel"),
    ("skipremotecertificatevalidation", "{typeKind: skipRemoteCertificateValidation}", "way danger_skip_verify: true"),
    ("forcehttp11", "{typeKind: forceHttp11}", "way version: Some(Http11)"),
    ("forcehttp2", "{typeKind: forceHttp2}", "way version: Some(H2)"),
    ("servehttp11", "{typeKind: serveHttp11}", "note not done by rules here"),
    ("forceremoteport", "{typeKind: forceRemotePort, port: 9}", "dial api.example.com:9"),
    ("spoofdns", "{typeKind: spoofDns, remoteHostIp: 127.0.0.1, remoteHostPort: 81}", "dial 127.0.0.1:81"),
    (
        "upstreamproxy",
        "{typeKind: upStreamProxy, host: p, port: 3128, proxyAuthorizationHeader: 'Basic YTpi', byPassHosts: [b.test]}",
        "via http://a:b@p:3128",
    ),
    (
        "setclientcertificate",
        "{typeKind: setClientCertificate, clientCertificate: {retrieveMode: fluxzyDefault}}",
        "problem export it as PEM",
    ),
    (
        "usecertificate",
        "{typeKind: useCertificate, serverCertificate: {retrieveMode: fromPkcs12}}",
        "note not done by rules here",
    ),
    (
        "addrequestheader",
        "{typeKind: addRequestHeader, headerName: X-B, headerValue: '${exchange.method}'}",
        "request X-B: POST",
    ),
    (
        "updaterequestheader",
        "{typeKind: updateRequestHeader, headerName: X-A, headerValue: '{{previous}} two'}",
        "request X-A: one two",
    ),
    ("deleterequestheader", "{typeKind: deleteRequestHeader, headerName: x-a}", "request X-A: -"),
    (
        "setuseragent",
        "{typeKind: setUserAgent, name: Linux_Firefox}",
        "request User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    ),
    ("setrequestcookie", "{typeKind: setRequestCookie, name: n, value: v}", "request Cookie: sid=7; t=1; n=v"),
    (
        "addauthorizationbasic",
        "{typeKind: addAuthorizationBasic, user: a, password: b}",
        "request Authorization: Basic YTpi",
    ),
    (
        "addbasicauthentication",
        "{typeKind: addBasicAuthentication, username: a, password: b}",
        "request Authorization: Basic YTpi",
    ),
    (
        "addauthorizationbearer",
        "{typeKind: addAuthorizationBearer, token: 't-${authority.port}'}",
        "request Authorization: Bearer t-8443",
    ),
    ("changerequestmethod", "{typeKind: changeRequestMethod, newMethod: PUT}", "method PUT"),
    ("changerequestpath", "{typeKind: changeRequestPath, newPath: '/x?y=1'}", "url https://api.example.com:8443/x?y=1"),
    ("forward", "{typeKind: forward, url: 'http://b.test/base'}", "url http://b.test/base/v1/users?page=2&q=x"),
    ("removecache", "{typeKind: removeCache}", "response Cache-Control: no-store"),
    ("abort", "{typeKind: abort}", "denied"),
    ("reject", "{typeKind: reject}", "answer 403 Forbidden"),
    ("rejectwithstatuscode", "{typeKind: rejectWithStatusCode, statusCode: 404}", "answer 404 Not Found"),
    (
        "rejectwithmessage",
        "{typeKind: rejectWithMessage, statusCode: 410, message: gone, contentType: text/html}",
        "answer 410 gone",
    ),
    (
        "mockedresponse",
        "{typeKind: mockedResponse, response: {statusCode: 201, headers: [{name: X-M, value: '1'}], body: {origin: fromString, type: json, text: '{\"m\":\"${exchange.method}\"}'}}}",
        "answer 201 {\"m\":\"POST\"}",
    ),
    ("servedirectory", "{typeKind: serveDirectory, directory: /}", "answer 404 404 Not Found: there is no such file\n"),
    (
        "averagethrottle",
        "{typeKind: averageThrottle, bandwidthBytesPerSeconds: 1000000, throttleChannel: response}",
        "matched",
    ),
    ("impersonate", "{typeKind: impersonate, nameOrConfigFile: Chrome_Latest}", "note fingerprint"),
    ("setja3fingerprint", "{typeKind: setJa3FingerPrint, value: '771,1'}", "note fingerprint"),
    ("forcetlsversion", "{typeKind: forceTlsVersion, sslProtocols: tls12}", "note TLS 1.2 and 1.3"),
    ("usednsoverhttps", "{typeKind: useDnsOverHttps, nameOrUrl: CLOUDFLARE}", "note how names are resolved"),
    ("pinupstreamconnection", "{typeKind: pinUpstreamConnection}", "way partition: Some(0)"),
    ("setvariable", "{typeKind: setVariable, name: user.v, value: '${exchange.path}'}", "matched"),
    ("capturesession", "{typeKind: captureSession}", "matched"),
    ("applysession", "{typeKind: applySession}", "matched"),
    ("clearsession", "{typeKind: clearSession}", "matched"),
    ("applytag", "{typeKind: applyTag, tag: {identifier: 1, value: t1}}", "tag t1"),
    ("transformrequestbody", "{typeKind: TransformRequestBody}", "problem function in C#"),
    ("mountcertificateauthority", "{typeKind: mountCertificateAuthority}", "answer 200 PEM"),
    ("mountwelcomepage", "{typeKind: mountWelcomePage}", "answer 200 <!doctype html>"),
    ("noop", "{typeKind: noOp}", "matched"),
    (
        "addresponseheader",
        "{typeKind: addResponseHeader, headerName: X-R, headerValue: '${exchange.status}'}",
        "response X-R: 200",
    ),
    (
        "updateresponseheader",
        "{typeKind: updateResponseHeader, headerName: X-R, headerValue: y, addIfMissing: true}",
        "response X-R: y",
    ),
    ("deleteresponseheader", "{typeKind: deleteResponseHeader, headerName: Server}", "response Server: -"),
    (
        "setresponsecookie",
        "{typeKind: setResponseCookie, name: a, value: b, path: /, httpOnly: true}",
        "response Set-Cookie: a=b; Path=/; HttpOnly",
    ),
    (
        "removeresponsecookie",
        "{typeKind: removeResponseCookie, name: sid}",
        "response Set-Cookie: sid=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
    ),
    ("injecthtmltag", "{typeKind: injectHtmlTag, tag: head, htmlContent: '<i>'}", "body <head><i></head>"),
    ("delay", "{typeKind: delay, duration: 2}", "matched"),
    ("applycomment", "{typeKind: applyComment, comment: odd}", "tag comment:odd"),
    ("transformresponsebody", "{typeKind: TransformResponseBody}", "problem function in C#"),
    ("stdout", "{typeKind: stdOut, text: '${exchange.url}', runScope: responseHeaderReceivedFromRemote}", "matched"),
    ("stderr", "{typeKind: stdErr, text: x}", "note never runs this"),
    ("fileappend", "{typeKind: fileAppend, filename: /dev/null, text: x}", "note never runs this"),
    ("breakpoint", "{typeKind: BreakPoint}", "note held"),
];

#[tokio::test]
async fn every_action_does_its_work() {
    let named: Vec<&str> = ACTIONS.iter().map(|(n, ..)| *n).collect();
    assert_eq!(named, ACTION_KINDS, "one row for each action");
    assert_eq!(ACTION_KINDS.len(), 56);
    for (name, action, outcome) in ACTIONS {
        let text = format!("rules:\n- name: r\n  filter: {{typeKind: any}}\n  actions:\n  - {action}\n");
        let read = load(&text);
        if let Some(part) = outcome.strip_prefix("problem ") {
            let error = read.err().unwrap_or_else(|| panic!("{name} is taken"));
            assert!(error.contains(part), "{name}: {error}");
            continue;
        }
        let program = read.unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(part) = outcome.strip_prefix("note ") {
            let notes: Vec<String> = program.notes.iter().map(ToString::to_string).collect();
            assert!(notes.iter().any(|n| n.contains(part)), "{name}: {notes:?}");
            continue;
        }
        let trial = trial::run(&program, flow("")).await;
        assert_eq!(trial.matched, ["r"], "{name}");
        assert!(came_of(&trial, outcome), "{name}: {outcome}: {trial:#?}");
    }
}

fn came_of(trial: &trial::Trial, outcome: &str) -> bool {
    let (what, rest) = outcome.split_once(' ').unwrap_or((outcome, ""));
    let request = trial.request.as_ref();
    let response = trial.response.as_ref();
    // The last field of the name: what was there before may stand before it.
    let field = |headers: &interflow_flow::Headers| {
        let (name, value) = rest.split_once(": ").unwrap();
        let is = headers.get_all(name).last().map(|v| String::from_utf8_lossy(v).into_owned());
        is.as_deref().unwrap_or("-") == value
    };
    match what {
        "matched" => true,
        "tunnel" => trial.tunnel == Some(true),
        "denied" => trial.denied.is_some(),
        "way" => format!("{:?}", trial.way).contains(rest),
        "dial" => trial.way.dial.as_ref().is_some_and(|d| d.to_string() == rest),
        "via" => trial.way.via.as_ref().is_some_and(|v| v == &[rest]),
        "method" => request.is_some_and(|(h, _)| h.method.as_str() == rest),
        "url" => request.is_some_and(|(h, _)| h.url.to_string() == rest),
        "request" => request.is_some_and(|(h, _)| field(&h.headers)),
        "response" => response.is_some_and(|(h, _)| field(&h.headers)),
        "body" => response.is_some_and(|(_, b)| *b == rest.as_bytes()),
        "tag" => trial.tags.iter().any(|t| t == rest),
        "answer" => {
            let (status, body) = rest.split_once(' ').unwrap();
            trial.answered
                && response
                    .is_some_and(|(h, b)| h.status.as_str() == status && String::from_utf8_lossy(b).starts_with(body))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_broken_there_is_said_with_its_place() {
    let text = "rules:
- name: a
  order: 3
  filter: {typeKind: pathFilter, pattern: /x}
  action: {typeKind: addAuthorizationBearerAction, token: x, tokn: y}
- name: b
  filter: {typeKind: hasSetCookieOnResponse, name: sid, pattern: '8'}
  actions:
  - {typeKind: addResponseHeader, headerName: X, headerValue: '${nope}'}
";
    let notes: Vec<String> = load(text).unwrap().notes.iter().map(ToString::to_string).collect();
    for part in [
        "fluxzy.yaml:2:3: rule `a`: `order` is read and never used",
        "fluxzy.yaml:4:11: rule `a`: without `operation` Fluxzy compares the whole text",
        "fluxzy.yaml:5:11: rule `a`: Fluxzy sends variables in the token as they are written",
        "unknown key `tokn`: did you mean `token`? Fluxzy drops it without a word",
        "fluxzy.yaml:7:11: rule `b`: Fluxzy compares the pattern with the cookie's name",
        "the variable `nope` does not exist",
    ] {
        assert!(notes.iter().any(|n| n.contains(part)), "{part}: {notes:#?}");
    }
}

#[test]
fn a_filter_that_comes_too_late_for_its_action_is_an_error() {
    let text = "rules:\n- filter: {typeKind: statusCodeSuccess}\n  action: {typeKind: addRequestHeader, headerName: X, headerValue: y}\n";
    let error = load(text).unwrap_err();
    assert!(
        error.starts_with(
            "fluxzy.yaml:3:11: rule `rule 1`: `add_request_header` acts in the phase request_body at the latest"
        ),
        "{error}"
    );
    for (text, part) in [
        ("rules:\n- filter: {typeKind: hostt, pattern: a}\n  action: {typeKind: abort}\n", "did you mean `host`?"),
        ("rules:\n- filter: {type: host, pattern: a}\n  action: {typeKind: abort}\n", "older pages call it `type`"),
        (
            "rules:\n- filter: {typeKind: host, pattern: 'a(', operation: regex}\n  action: {typeKind: abort}\n",
            "unclosed group",
        ),
        (
            "rules:\n- filter: {typeKind: host, pattern: a, operation: is}\n  action: {typeKind: abort}\n",
            "unknown operation",
        ),
        ("rules:\n- filter: {typeKind: any}\n  action: {typeKind: abrt}\n", "did you mean `abort`?"),
        ("rules:\n- action: {typeKind: abort}\n", "has no filter"),
        ("rules:\n- filter: {typeKind: any}\n", "has no action"),
    ] {
        let error = load(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[tokio::test]
async fn several_actions_of_different_moments_all_run() {
    // The case that never works there: their own pages show it.
    let text = "rules:
- name: r
  filter: {typeKind: postFilter}
  actions:
  - {typeKind: forceHttp11Action}
  - {typeKind: addResponseHeaderAction, headerName: X-R, headerValue: '1'}
";
    let program = load(text).unwrap();
    let trial = trial::run(&program, flow("")).await;
    assert!(came_of(&trial, "way version: Some(Http11)") && came_of(&trial, "response X-R: 1"));
}

#[tokio::test]
async fn named_groups_belong_to_one_flow() {
    let text = "rules:
- filter: {typeKind: path, pattern: '/v1/(?<what>\\\\w+)', operation: regex}
  action: {typeKind: addRequestHeader, headerName: X-What, headerValue: '${user.what}'}
";
    let program = load(&text.replace("\\\\", "\\")).unwrap();
    assert!(came_of(&trial::run(&program, flow("")).await, "request X-What: users"));
}
