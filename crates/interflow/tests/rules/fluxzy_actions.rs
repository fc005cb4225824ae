//! Fluxzy's actions on real traffic with their defaults, as observed by client and origin.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use interflow_testkit::{Answer, Origin, Reply, TestCa, Wire};
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey, PrivateKeyChain,
};
use serde_json::Value;

use crate::default_rules_file::{Home, Running, until};

/// A rule for a path, with one action.
fn on(path: &str, action: &str) -> String {
    format!(
        "- name: '{path}'\n  filter: {{typeKind: path, pattern: {path}, operation: startsWith}}\n  actions: [{action}]\n"
    )
}

fn file(rules: &[String]) -> String {
    format!("rules:\n{}", rules.concat())
}

async fn ask(running: &Running, head: &str, body: &str) -> Answer {
    let mut wire = Wire::connect(running.proxy).await.unwrap();
    wire.send(format!("{head}\r\n\r\n{body}")).await.unwrap();
    wire.answer().await.unwrap()
}

fn got(origin: &Origin, path: &str, field: &str) -> Option<String> {
    let requests = origin.requests();
    let one = requests.iter().rev().find(|r| r.path() == path).unwrap_or_else(|| panic!("{path} was not asked for"));
    one.header(field).map(ToOwned::to_owned)
}

#[tokio::test]
async fn headers_are_edited_with_fluxzy_defaults() {
    let home = Home::new().await;
    let field = |kind: &str, more: &str| format!("{{typeKind: {kind}, headerName: X-A, headerValue: 'new', {more}}}");
    let rules = [
        on("/update", &field("updateRequestHeader", "")),
        on(
            "/previous",
            "{typeKind: updateRequestHeaderAction, headerName: x-a, headerValue: '{{previous}}-${exchange.method}'}",
        ),
        on("/missing", &field("updateRequestHeader", "").replace("X-A", "X-None")),
        on("/add-missing", &field("updateRequestHeader", "addIfMissing: true").replace("X-A", "X-None")),
        on("/append", &field("updateRequestHeader", "appendSeparator: ', '")),
        on("/add", &field("addRequestHeader", "")),
        on("/delete", "{typeKind: deleteRequestHeader, headerName: x-a}"),
        on("/cookie", "{typeKind: setRequestCookie, name: n, value: 'a b;c'}"),
        on("/bearer", "{typeKind: addAuthorizationBearer, token: 't-${authority.host}'}"),
        on("/nocache", "{typeKind: removeCache}"),
        on("/agent", "{typeKind: setUserAgent, name: macos_safari}"),
        on(
            "/response",
            "{typeKind: updateResponseHeader, headerName: Content-Type, headerValue: '{{previous}}; v=1'}, {typeKind: updateResponseHeader, headerName: X-None, headerValue: y}, {typeKind: addResponseHeader, headerName: X-Status, headerValue: '${exchange.status} ${exchange.path}'}",
        ),
        on(
            "/set-cookie",
            "{typeKind: setResponseCookie, name: a, value: b, path: /p, domain: d.test, maxAge: 60, httpOnly: true, secure: true, sameSite: Lax}",
        ),
        on("/remove-cookie", "{typeKind: removeResponseCookie, name: sid}"),
    ];
    let running = home.start(&home.write("r.yaml", &file(&rules)));
    let host = home.origin.authority();
    for (path, field, value) in [
        ("/update", "X-A", Some("new")),
        ("/previous", "X-A", Some("old-GET")),
        ("/missing", "X-None", None),
        ("/add-missing", "X-None", Some("new")),
        ("/append", "X-A", Some("old, new")),
        ("/add", "X-A", Some("old")),
        ("/delete", "X-A", None),
        ("/cookie", "Cookie", Some("sid=7; n=a%20b%3Bc")),
        ("/bearer", "Authorization", Some("Bearer t-localhost")),
        ("/nocache", "If-None-Match", None),
        (
            "/agent",
            "User-Agent",
            Some(
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15",
            ),
        ),
    ] {
        let head = format!(
            "GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nX-A: old\r\nCookie: sid=7\r\nIf-None-Match: \"e\"\r\nUser-Agent: x"
        );
        ask(&running, &head, "").await;
        assert_eq!(got(&home.origin, path, field).as_deref(), value, "{path}");
    }
    let both = home.origin.requests();
    let added = both.iter().find(|r| r.path() == "/add").unwrap();
    assert_eq!(added.headers.get_all("x-a").collect::<Vec<_>>(), [b"old", b"new"]);
    let get = async |path: &str| running.get(&home.origin.url(path)).await;
    let answer = get("/response").await;
    assert!(answer.header("content-type").unwrap().ends_with("; v=1"), "{:?}", answer.header("content-type"));
    assert_eq!((answer.header("x-none"), answer.header("x-status")), (None, Some("200 /response")));
    assert_eq!(
        get("/set-cookie").await.header("set-cookie"),
        Some("a=b; Path=/p; Domain=d.test; Max-Age=60; HttpOnly; Secure; SameSite=Lax")
    );
    assert!(
        get("/remove-cookie")
            .await
            .header("set-cookie")
            .unwrap()
            .starts_with("sid=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970")
    );
    assert_eq!(get("/nocache").await.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn mock_actions_respond_without_an_origin() {
    let home = Home::new().await;
    std::fs::create_dir_all(home.path("site/sub")).unwrap();
    home.write("site/index.html", "<p>front</p>");
    home.write("site/sub/index.htm", "<p>sub</p>");
    home.write("site/a.css", "b{}");
    home.write("secret.txt", "s");
    std::fs::write(home.own_file("mock.json"), "{\"file\":1}").unwrap();
    let (site, mock) = (home.path("site").display().to_string(), home.own_file("mock.json").display().to_string());
    let rules = [
        on("/reject-status", "{typeKind: rejectWithStatusCode}"),
        on("/reject-404", "{typeKind: rejectWithStatusCode, statusCode: 404}"),
        on("/reject-message", "{typeKind: rejectWithMessage, message: 'no ${exchange.method}'}"),
        on("/reject", "{typeKind: reject}"),
        on("/abort", "{typeKind: abort}"),
        on(
            "/mock-text",
            "{typeKind: mockedResponse, response: {body: {type: json, text: '{\"p\":\"${exchange.path}\"}'}}}",
        ),
        on(
            "/mock-file",
            &format!(
                "{{typeKind: mockedResponse, response: {{statusCode: 201, headers: [{{name: X-M, value: '1'}}], body: {{origin: fromFile, type: json, fileName: '{mock}'}}}}}}"
            ),
        ),
        on(
            "/mock-bytes",
            "{typeKind: mockedResponse, response: {body: {origin: fromImmediateArray, type: binary, contentBase64: 'AAEC'}}}",
        ),
        on("/ca", "{typeKind: mountCertificateAuthority}"),
        on("/welcome", "{typeKind: mountWelcomePage}"),
        format!(
            "- name: site\n  filter: {{typeKind: host, pattern: site.test}}\n  action: {{typeKind: serveDirectory, directory: '{site}'}}\n"
        ),
    ];
    let running = home.start(&home.write("r.yaml", &file(&rules)));
    let ca = std::fs::read_to_string(home.path("ca/ca.pem")).unwrap();
    for (url, status, media, body) in [
        ("/reject", 403, "text/plain; charset=utf-8", "Forbidden"),
        ("/reject-status", 403, "text/plain; charset=utf-8", "Forbidden"),
        ("/reject-404", 404, "text/plain; charset=utf-8", "Not Found"),
        ("/reject-message", 403, "text/plain; charset=utf-8", "no GET"),
        ("/mock-text?1", 200, "application/json", "{\"p\":\"/mock-text?1\"}"),
        ("/mock-text?2", 200, "application/json", "{\"p\":\"/mock-text?2\"}"),
        ("/mock-file", 201, "application/json", "{\"file\":1}"),
        ("/mock-bytes", 200, "application/octet-stream", "\0\u{1}\u{2}"),
        ("/ca", 200, "application/x-x509-ca-cert", &ca),
        ("http://site.test/", 200, "text/html; charset=utf-8", "<p>front</p>"),
        ("http://site.test/sub/", 200, "text/html; charset=utf-8", "<p>sub</p>"),
        ("http://site.test/a.css", 200, "text/css; charset=utf-8", "b{}"),
        (
            "http://site.test/%2e%2e/secret.txt",
            404,
            "text/plain; charset=utf-8",
            "404 Not Found: there is no such file\n",
        ),
        ("http://site.test/none", 404, "text/plain; charset=utf-8", "404 Not Found: there is no such file\n"),
    ] {
        let absolute = if url.starts_with('/') { home.origin.url(url) } else { url.to_owned() };
        let answer = running.get(&absolute).await;
        assert_eq!(
            (answer.status, answer.header("content-type"), answer.text().as_str()),
            (status, Some(media), body),
            "{url}"
        );
    }
    assert!(running.get(&home.origin.url("/welcome")).await.text().contains("<h1>Interflow</h1>"));
    let mut wire = Wire::connect(running.proxy).await.unwrap();
    wire.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", home.origin.url("/abort"))).await.unwrap();
    assert!(wire.answer().await.is_err(), "the connection is closed without an answer");
    assert_eq!((home.origin.served(), home.origin.connections()), (0, 0), "nobody was asked");
}

#[tokio::test]
async fn delay_and_throttle_actions_take_their_time() {
    let home = Home::new().await;
    let rules = [
        on("/throttled", "{typeKind: averageThrottle, bandwidthBytesPerSeconds: 100000, throttleChannel: response}"),
        on("/up", "{typeKind: averageThrottle, bandwidthBytesPerSeconds: 100000, throttleChannel: request}"),
        on("/default", "{typeKind: averageThrottle}"),
        on("/delayed", "{typeKind: delay, duration: 400}"),
    ];
    let running = home.start(&home.write("r.yaml", &file(&rules)));
    let origin = Origin::http().answering(|r| Reply::ok(vec![b'x'; r.number("n").unwrap_or(2) as usize])).start().await;
    let took = async |path: &str, up: usize| {
        let began = Instant::now();
        let (url, host) = (origin.url(path), origin.authority());
        let head = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {up}");
        assert_eq!(ask(&running, &head, &"y".repeat(up)).await.status, 200, "{path}");
        began.elapsed()
    };
    let bounds = |took: Duration, least: u64, what: &str| {
        assert!(
            took >= Duration::from_millis(least) && took < Duration::from_millis(least * 4 + 3000),
            "{what}: {took:?}"
        );
    };
    bounds(took("/throttled?n=100000", 2).await, 800, "100 kB at 100 kB/s");
    let (one, other) = tokio::join!(took("/throttled?n=50000", 2), took("/throttled?n=50000", 2));
    bounds(one.max(other), 800, "two share one budget");
    bounds(took("/up", 100_000).await, 800, "a request");
    assert!(took("/up?n=100000", 2).await < Duration::from_millis(800), "its response is not slowed");
    bounds(took("/default?n=65536", 2).await, 700, "64 KiB/s, both ways, without parameters");
    bounds(took("/delayed", 2).await, 400, "a delay");
    assert!(took("/plain", 2).await < Duration::from_millis(400));
}

#[tokio::test]
async fn sessions_are_captured_applied_and_cleared() {
    let home = Home::new().await;
    let origin = Origin::http()
        .answering(|r| match r.path() {
            "/login" => Reply::ok("in").header("Set-Cookie", "sid=s1; Path=/").header("X-Csrf", "tok"),
            _ => Reply::ok("ok"),
        })
        .start()
        .await;
    let rules = [
        on("/login", "{typeKind: captureSession, captureHeaders: [X-Csrf]}"),
        on("/with", "{typeKind: applySession}"),
        on("/cookies-only", "{typeKind: applySession, applyHeaders: false}"),
        on("/replace", "{typeKind: applySession, mergeWithExisting: false}"),
        on("/from", "{typeKind: applySession, sourceDomain: localhost}"),
        on("/out", "{typeKind: clearSession}"),
    ];
    let running = home.start(&home.write("r.yaml", &file(&rules)));
    let (host, port) = (origin.authority(), origin.port());
    let get = async |path: &str| {
        ask(&running, &format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\nCookie: own=1"), "").await;
        (got(&origin, path, "cookie").unwrap_or_default(), got(&origin, path, "x-csrf"))
    };
    assert_eq!(get("/with").await, ("own=1".into(), None), "nothing is captured yet");
    get("/login").await;
    assert_eq!(get("/with").await, ("own=1; sid=s1".into(), Some("tok".into())));
    assert_eq!(get("/cookies-only").await, ("own=1; sid=s1".into(), None));
    assert_eq!(get("/replace").await.0, "sid=s1");
    assert_eq!(get("/unruled").await, ("own=1".into(), None));
    // Another host receives it only if the rule names its domain.
    let other = format!("GET http://127.0.0.1:{port}/from HTTP/1.1\r\nHost: 127.0.0.1:{port}");
    ask(&running, &other, "").await;
    assert_eq!(got(&origin, "/from", "cookie").as_deref(), Some("sid=s1"));
    get("/out").await;
    assert_eq!(get("/with").await, ("own=1".into(), None), "it was cleared");
}

#[tokio::test]
async fn file_append_writes_once_and_variables_are_per_flow() {
    let home = Home::new().await;
    let lines = home.own_file("lines.log").display().to_string();
    let rules = [
        on(
            "/v",
            "{typeKind: setVariable, name: user.who, value: '${exchange.path}'}, {typeKind: addResponseHeader, headerName: X-Who, headerValue: '${user.who}'}",
        ),
        on("/v/none", "{typeKind: noOp}"),
        on(
            "/file",
            &format!("{{typeKind: fileAppend, filename: '{lines}', text: '${{exchange.method}} ${{exchange.path}}'}}"),
        ),
        on("/out", "{typeKind: stdOut, text: 'printed ${exchange.url}'}"),
        on("/err", "{typeKind: stdErr, text: 'shouted ${exchange.url}'}"),
        on(
            "/scoped",
            "{typeKind: stdErr, text: 'status ${exchange.status}', runScope: responseHeaderReceivedFromRemote}",
        ),
        on(
            "/tagged",
            "{typeKind: applyTag, tag: {identifier: 1, value: t1}}, {typeKind: applyComment, comment: 'odd ${exchange.method}'}",
        ),
    ];
    let rules = home.write("r.yaml", &file(&rules));
    let mut running = home.start_piped(&["--rules", &rules]);
    let urls: Vec<String> = (0..20).map(|i| home.origin.url(&format!("/v/{i}"))).collect();
    let all = futures_util::future::join_all(urls.iter().map(|u| running.get(u))).await;
    for (i, answer) in all.iter().enumerate() {
        assert_eq!(answer.header("x-who"), Some(&*format!("/v/{i}")), "at the same time");
    }
    for path in ["/file/1", "/file/2", "/out", "/err", "/scoped", "/tagged"] {
        assert_eq!(running.get(&home.origin.url(path)).await.status, 200);
    }
    assert_eq!(std::fs::read_to_string(&lines).unwrap(), "GET /file/1GET /file/2");
    until("the tags", async || {
        let listed = home.run(&["flows", "list", "tag:t1", "--format", "jsonl"]).out;
        listed.contains("comment:odd GET")
    })
    .await;
    assert!(home.log_has(&format!("shouted {}", home.origin.url("/err"))) && home.log_has("status 200"));
    let mut out = running.child.stdout.take().unwrap();
    drop(running);
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert_eq!(said.matches(&format!("printed {}", home.origin.url("/out"))).count(), 1, "{said}");
}

#[tokio::test]
async fn html_is_injected_after_its_tag_in_any_content_coding() {
    let home = Home::new().await;
    let page = "<html><head lang=x><title>t</title></head><body class=b>text</body></html>";
    let origin = Origin::http()
        .answering(move |r| {
            let html = |body: Vec<u8>| Reply::ok(body).header("Content-Type", "text/html");
            match r.path() {
                "/gzip" => {
                    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    std::io::Write::write_all(&mut gz, page.as_bytes()).unwrap();
                    html(gz.finish().unwrap()).header("Content-Encoding", "gzip")
                }
                "/text" | "/forced" => Reply::ok(page).header("Content-Type", "text/plain"),
                _ => html(page.into()),
            }
        })
        .start()
        .await;
    std::fs::write(home.own_file("snippet.html"), "<i>file</i>").unwrap();
    let snippet = home.own_file("snippet.html").display().to_string();
    let rules = [
        on("/file", &format!("{{typeKind: injectHtmlTag, fromFile: true, fileName: '{snippet}', tag: BODY}}")),
        on("/forced", "{typeKind: injectHtmlTag, htmlContent: '<b>', restrictToHtml: false}"),
        on("/", "{typeKind: injectHtmlTag, htmlContent: '<b>'}"),
    ];
    // The last rule matches all paths, so two of the first ones apply.
    let running = home.start(&home.write("r.yaml", &file(&rules)));
    let body = async |path: &str| {
        let answer = running.get(&origin.url(path)).await;
        match answer.header("content-encoding") {
            Some("gzip") => {
                let mut text = String::new();
                flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
                text
            }
            _ => answer.text(),
        }
    };
    let with = page.replace("<head lang=x>", "<head lang=x><b>");
    assert_eq!(body("/plain").await, with);
    assert_eq!(body("/gzip").await, with);
    assert_eq!(body("/text").await, page, "what is not HTML is left alone");
    assert_eq!(body("/forced").await, with);
    assert_eq!(body("/file").await, with.replace("<body class=b>", "<body class=b><i>file</i>"));
}

#[tokio::test]
async fn breakpoints_hold_flows_until_a_decision() {
    let home = Home::new().await;
    let running = home.start(&home.write("r.yaml", &file(&[on("/", "{typeKind: BreakPoint}")])));
    let (proxy, url) = (running.proxy, home.origin.url("/held"));
    let held = tokio::spawn(async move { interflow_testkit::client::get_through(proxy, &url).await.unwrap() });
    until("the held flow", async || home.run(&["pending", "list"]).out.contains("/held")).await;
    assert_eq!(home.origin.served(), 0);
    assert_eq!(home.run(&["pending", "edit", "rule-1", "--method", "PUT", "-H", "X-Edited: 1"]).code, 0);
    assert_eq!(held.await.unwrap().status, 200);
    let request = home.origin.only_request();
    assert_eq!((request.method.as_str(), request.header("x-edited")), ("PUT", Some("1")));
}

/// Writes a certificate and its key as a PKCS#12 file.
fn pkcs12(chain: &str, key: &str, password: &str, old: bool) -> Vec<u8> {
    let der = |pem: &str| {
        let body: String = pem.lines().filter(|l| !l.starts_with("-----")).collect();
        base64::engine::general_purpose::STANDARD.decode(body).unwrap()
    };
    let first = chain.split_inclusive("-----END CERTIFICATE-----").next().unwrap();
    let certificate = Certificate::from_der(&der(first)).unwrap();
    let entry = PrivateKeyChain::new(vec![1], PrivateKey::from_der(&der(key)).unwrap(), [certificate]);
    let mut store = KeyStore::new();
    store.add_entry("us", KeyStoreEntry::PrivateKeyChain(entry));
    let writer = store.writer(password);
    let writer = if old {
        writer.encryption_algorithm(EncryptionAlgorithm::PbeWithShaAnd40BitRc4Cbc).mac_algorithm(MacAlgorithm::HmacSha1)
    } else {
        writer
    };
    writer.write().unwrap()
}

async fn inside(running: &Running, home: &Home, origin: &Origin, path: &str) -> std::io::Result<Answer> {
    let authority = format!("localhost:{}", origin.port());
    let ours = std::fs::read_to_string(home.path("ca/ca.pem")).unwrap();
    let mut wire = running.tls(&authority, "localhost", &ours, &["http/1.1"]).await?;
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await?;
    wire.answer().await
}

#[tokio::test]
async fn pkcs12_certificates_are_presented_to_origins_and_clients() {
    let home = Home::new().await;
    let clients = Arc::new(TestCa::new());
    let origin = Origin::https().names(&["localhost"]).client_ca(clients.clone()).start().await;
    let (chain, key) = clients.leaf_pem(&["us", "localhost"]);
    for (name, old) in [("new.p12", false), ("old.p12", true)] {
        std::fs::write(home.own_file(name), pkcs12(&chain, &key, "pass word", old)).unwrap();
        let p12 = home.own_file(name).display().to_string();
        let certificate = format!("{{retrieveMode: fromPkcs12, pkcs12File: '{p12}', pkcs12Password: 'pass word'}}");
        let rules = file(&[
            format!(
                "- name: own\n  filter: {{typeKind: host, pattern: localhost}}\n  action: {{typeKind: setClientCertificate, clientCertificate: {certificate}}}\n"
            ),
            on("/never", "{typeKind: noOp}"),
        ]);
        let running = home.start_with(&["--danger-insecure-upstream", "--rules", &home.write("r.yaml", &rules)]);
        assert_eq!(inside(&running, &home, &origin, "/").await.unwrap().status, 200, "{name}");
        drop(running);
        // The same with Interflow's action names, and by configuration.
        let own = home.write(
            "own.yaml",
            &format!("rules: [{{then: {{client_certificate: {{certificate: '{p12}', password: 'env:P12_WORD'}}}}}}]"),
        );
        let mut command = home.command(&["rules", "check", &own]);
        assert!(!command.output().unwrap().status.success(), "the variable is not set");
        assert!(command.env("P12_WORD", "pass word").output().unwrap().status.success());
        let config = home.write("c.toml", &format!("[upstream]\ndanger_insecure = true\n[[upstream.client_certificate]]\nhosts = ['localhost']\ncertificate = '{p12}'\npassword = 'pass word'\n"));
        let running = home.start_with(&["--config", &config]);
        assert_eq!(inside(&running, &home, &origin, "/").await.unwrap().status, 200, "{name} by the configuration");
        drop(running);
        let shown = file(&[format!(
            "- filter: {{typeKind: any}}\n  action: {{typeKind: useCertificate, serverCertificate: {certificate}}}\n"
        )]);
        let running = home.start(&home.write("shown.yaml", &shown));
        let authority = format!("localhost:{}", origin.port());
        assert!(running.tls(&authority, "localhost", clients.pem(), &["http/1.1"]).await.is_ok(), "{name} is shown");
        drop(running);
        for (what, told) in [
            (certificate.replace("pass word", "other"), "the password is wrong"),
            (certificate.replace(".p12", ".p11"), "cannot be read"),
            ("{retrieveMode: fromPkcs12}".into(), "`pkcs12File` is missing"),
        ] {
            let text = file(&[format!(
                "- filter: {{typeKind: any}}\n  action: {{typeKind: setClientCertificate, clientCertificate: {what}}}\n"
            )]);
            let said = home.run(&["rules", "check", &home.write("bad.yaml", &text)]);
            assert!(said.code == 1 && said.err.contains("bad.yaml:") && said.err.contains(told), "{what}: {said:?}");
        }
    }
}

#[tokio::test]
async fn upstream_route_actions_are_applied() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["localhost"]).start().await;
    let rules = [
        on("/unverified", "{typeKind: skipRemoteCertificateValidation}"),
        on("/http11", "{typeKind: skipRemoteCertificateValidation}, {typeKind: forceHttp11}"),
        on("/http2", "{typeKind: skipRemoteCertificateValidation}, {typeKind: forceHttp2}"),
        on("/tls12", "{typeKind: skipRemoteCertificateValidation}, {typeKind: forceTlsVersion, sslProtocols: tls12}"),
        on("/pinned", "{typeKind: skipRemoteCertificateValidation}, {typeKind: pinUpstreamConnection}"),
        on("/forwarded", &format!("{{typeKind: forward, url: '{}'}}", home.origin.url("/base"))),
        on("/port", &format!("{{typeKind: forceRemotePort, port: {}}}", home.origin.port())),
        on(
            "/spoofed",
            &format!("{{typeKind: spoofDns, remoteHostIp: 127.0.0.1, remoteHostPort: {}}}", home.origin.port()),
        ),
        on("/path", "{typeKind: changeRequestPath, newPath: '/changed?x=1'}"),
        on("/method", "{typeKind: changeRequestMethod, newMethod: OPTIONS}"),
    ];
    let running = home.start(&home.write("r.yaml", &file(&rules)));
    assert_eq!(inside(&running, &home, &origin, "/strict").await.unwrap().status, 502, "nobody trusts this origin");
    for (path, version) in
        [("/unverified", None), ("/http11", Some("HTTP/1.1")), ("/http2", Some("HTTP/2")), ("/tls12", None)]
    {
        assert_eq!(inside(&running, &home, &origin, path).await.unwrap().status, 200, "{path}");
        let seen = origin.requests().iter().find(|r| r.path() == path).unwrap().version.clone();
        assert!(version.is_none_or(|v| v == seen), "{path}: {seen}");
    }
    until("the flow", async || recorded(&home, "/tls12").is_some()).await;
    assert_eq!(recorded(&home, "/tls12").unwrap()["upstream"]["tls"]["version"], "TLSv1.2");
    let before = origin.connections();
    for _ in 0..2 {
        assert_eq!(inside(&running, &home, &origin, "/pinned").await.unwrap().status, 200);
    }
    assert_eq!(origin.connections() - before, 2, "each client's connection has its own");

    let forwarded = running.get("http://elsewhere.invalid/forwarded?q=1").await;
    assert_eq!(forwarded.status, 200);
    assert_eq!(got(&home.origin, "/base/forwarded", "host"), Some(home.origin.authority()), "Host is rewritten");
    assert_eq!(running.get("http://127.0.0.1:1/port").await.status, 200);
    assert_eq!(running.get("http://elsewhere.invalid:1/spoofed").await.status, 200);
    assert_eq!(got(&home.origin, "/spoofed", "host").as_deref(), Some("elsewhere.invalid:1"), "Host stays");
    running.get(&home.origin.url("/path/x")).await;
    running.get(&home.origin.url("/method")).await;
    let seen: Vec<(String, String)> =
        home.origin.requests().iter().map(|r| (r.method.clone(), r.target.clone())).collect();
    assert!(seen.contains(&("GET".into(), "/changed?x=1".into())), "{seen:?}");
    assert!(seen.contains(&("OPTIONS".into(), "/method".into())), "{seen:?}");
}

fn recorded(home: &Home, path: &str) -> Option<Value> {
    let listed = home.run(&["flows", "list", &format!("path:{path}"), "-is:open", "--format", "jsonl"]).out;
    serde_json::from_str(listed.lines().next()?).ok()
}

#[tokio::test]
async fn upstream_proxy_action_sends_credentials_and_honours_the_bypass_list() {
    let home = Home::new().await;
    let proxy = Origin::http().answering(|_| Reply::ok("by the proxy")).start().await;
    let rules = file(&[format!(
        "- filter: {{typeKind: any}}\n  action: {{typeKind: upStreamProxy, host: 127.0.0.1, port: {}, proxyAuthorizationHeader: 'Basic YTpi', byPassHosts: ['localhost', '*.sub.invalid', 'name.invalid']}}\n",
        proxy.port()
    )]);
    let running = home.start(&home.write("r.yaml", &rules));
    assert_eq!(running.get("http://far.invalid/x").await.text(), "by the proxy");
    let request = proxy.only_request();
    assert_eq!(
        (request.target.as_str(), request.header("proxy-authorization")),
        ("http://far.invalid/x", Some("Basic YTpi"))
    );
    assert_eq!(running.get("http://sub.invalid/").await.text(), "by the proxy", "`*.` is for what is below");
    assert_ne!(running.get(&home.origin.url("/")).await.text(), "by the proxy");
    for host in ["name.invalid", "a.name.invalid", "b.sub.invalid"] {
        assert_eq!(
            running.get(&format!("http://{host}/")).await.status,
            502,
            "{host} is reached without, or not at all"
        );
    }
    assert_eq!(proxy.served(), 2);
}

#[tokio::test]
async fn skipped_tls_is_not_intercepted_and_fingerprints_need_the_feature() {
    let home = Home::new().await;
    let origin = Origin::https().names(&["localhost"]).start().await;
    let rules =
        file(
            &["- filter: {typeKind: host, pattern: localhost}\n  action: {typeKind: skipSslTunnelingAction}\n".into()],
        );
    let running = home.start(&home.write("r.yaml", &rules));
    let authority = format!("localhost:{}", origin.port());
    assert!(
        running.tls(&authority, "localhost", origin.ca().pem(), &["http/1.1"]).await.is_ok(),
        "the origin's own certificate"
    );
    drop(running);
    for (text, place) in [
        (
            "rules:\n- filter: {typeKind: any}\n  action: {typeKind: impersonate, nameOrConfigFile: Chrome_Windows_131}\n",
            "f.yaml:2:3: rule `rule 1`: ",
        ),
        (
            "rules:\n- filter: {typeKind: any}\n  action: {typeKind: setJa3FingerPrint, value: '771,4865-49195,0-10-11-13-23-43-51,29,0'}\n",
            "f.yaml:2:3: rule `rule 1`: ",
        ),
        ("rules:\n  - name: like\n    then: {impersonate: mirror}\n", "f.yaml:3:"),
        (
            "rules:\n  - name: like\n    then: {impersonate: 'ja3:771,4865-49195,0-10-11-13-23-43-51,29,0'}\n",
            "f.yaml:3:",
        ),
    ] {
        let file = home.write("f.yaml", text);
        let said = home.run(&["rules", "check", &file]);
        if cfg!(feature = "impersonate") {
            assert_eq!(said.code, 0, "{said:?}");
        } else {
            let told = said.err.contains(place) && said.err.contains("make run FEATURES=impersonate");
            assert!(said.code == 1 && told, "{said:?}");
            let started =
                home.run(&["run", "--listen-proxy", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--rules", &file]);
            assert!(started.code != 0 && started.err.contains("FEATURES=impersonate"), "{started:?}");
        }
    }
    let none = home.write("f.yaml", "rules: [{then: {impersonate: none}}]");
    assert_eq!(home.run(&["rules", "check", &none]).code, 0);
}
