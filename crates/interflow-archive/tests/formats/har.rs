//! Export and import of HAR.

use std::io::Write;

use interflow_archive::{ArchiveFormat, content_coding};
use interflow_store::{BodyRecord, FlowKind, FlowState, FlowWithBodies, MissingReason};
use interflow_types::{Direction, MessageKind, Timestamp};
use serde_json::{Value, json};

use super::{exchange, export, gzipped, imported, samples, schema, web_socket};

fn exported(flows: &[FlowWithBodies]) -> Value {
    serde_json::from_slice(&export(ArchiveFormat::Har, flows)).unwrap()
}

fn entry(flow: &FlowWithBodies) -> Value {
    exported(std::slice::from_ref(flow))["log"]["entries"][0].take()
}

fn sample(path: &str) -> FlowWithBodies {
    samples().into_iter().find(|f| f.row.request.as_ref().is_some_and(|r| r.path.starts_with(path))).unwrap()
}

#[test]
fn exported_har_conforms_to_the_schema() {
    for flows in [vec![], samples()] {
        let har = exported(&flows);
        assert_eq!(har["log"]["entries"].as_array().unwrap().len(), flows.len());
        assert_eq!(schema::violations(&schema::har(), &har), Vec::<String>::new());
    }
}

#[test]
fn the_time_is_the_sum_of_the_phases_and_connect_includes_ssl() {
    for flow in samples() {
        let entry = entry(&flow);
        let of = |name: &str| entry["timings"][name].as_f64().unwrap();
        let phases = ["blocked", "dns", "connect", "send", "wait", "receive"];
        let sum: f64 = phases.iter().map(|p| of(p)).filter(|ms| *ms > 0.0).sum();
        assert!((sum - entry["time"].as_f64().unwrap()).abs() < 1e-9, "{entry}");
        assert!(of("ssl") <= of("connect"), "{entry}");
    }
    assert_eq!(
        entry(&sample("/p"))["timings"],
        json!({"blocked": 0.15, "dns": 1.0, "connect": 5.0, "send": 0.2, "wait": 3.65, "receive": 2.0, "ssl": 3.0})
    );
    assert_eq!(entry(&sample("/h2"))["timings"]["connect"], json!(-1.0));
}

#[test]
fn har_request_members_are_filled() {
    let plain = entry(&sample("/p"));
    let request = &plain["request"];
    assert_eq!(request["url"], "https://api.example.com/p?a=1%202&b=%C3%A9&c");
    assert_eq!(
        request["queryString"],
        json!([{"name": "a", "value": "1 2"}, {"name": "b", "value": "é"}, {"name": "c", "value": ""}])
    );
    let wire = "GET /p?a=1%202&b=%C3%A9&c HTTP/1.1\r\nHost: api.example.com\r\nAccept: */*\r\n\r\n";
    assert_eq!(request["headersSize"], wire.len());
    assert_eq!((&request["bodySize"], &request["postData"]), (&json!(0), &Value::Null));
    assert_eq!((&plain["serverIPAddress"], &plain["connection"]), (&json!("2001:db8::7"), &json!("42")));
    let form = entry(&sample("/form"));
    assert_eq!(
        form["request"]["postData"]["params"],
        json!([{"name": "a", "value": "1 2"}, {"name": "b", "value": "&"}])
    );
    assert_eq!(form["request"]["postData"]["text"], "a=1+2&b=%26");
    let h2 = entry(&sample("/h2"));
    assert_eq!(h2["request"]["headersSize"], -1);
    assert_eq!(h2["request"]["cookies"], json!([{"name": "s", "value": "1"}, {"name": "t", "value": "2"}]));
}

#[test]
fn har_bodies_are_text_if_possible_and_base64_otherwise() {
    let content = |path| entry(&sample(path))["response"]["content"].clone();
    assert_eq!(content("/json")["text"], "\n\t\"\\\u{7f}");
    assert_eq!(content("/json")["encoding"], Value::Null);
    assert_eq!((&content("/binary")["encoding"], &content("/binary")["text"]), (&json!("base64"), &json!("iVBORw0K")));
    assert_eq!(content("/coded")["text"], "{\"a\": [1, 2, 3]}");
    let size = gzipped(b"{\"a\": [1, 2, 3]}").len() as i64;
    assert_eq!(content("/coded")["compression"], 16 - size);
    assert_eq!(content("/l")["encoding"], "base64", "UTF-8 that is declared to be Latin-1");
    assert_eq!(content("/big")["comment"], "5 of 9000 bytes were kept (capped by the configuration)");
    let posted = entry(&sample("/binary"));
    assert_eq!(posted["request"]["_content"], json!({"size": 3, "encoding": "base64", "text": "AP/+"}));
}

#[test]
fn body_with_a_wrong_content_encoding_is_exported_unchanged() {
    let mut flow = sample("/coded");
    flow.response_body = b"not gzip at all".to_vec().into();
    let content = entry(&flow)["response"]["content"].clone();
    assert_eq!((&content["text"], &content["compression"]), (&json!("not gzip at all"), &Value::Null));
}

#[test]
fn web_socket_messages_are_written_as_chromium_does() {
    let entry = entry(&web_socket());
    assert_eq!(entry["_resourceType"], "websocket");
    assert_eq!(
        entry["_webSocketMessages"],
        json!([
            {"type": "send", "time": 1795168800.123456, "opcode": 1, "data": "héllo"},
            {"type": "receive", "time": 1795168800.124456, "opcode": 2, "data": "AP8="},
            {"type": "receive", "time": 1795168800.125456, "opcode": 9, "data": ""},
            {"type": "send", "time": 1795168800.126456, "opcode": 8, "data": "A+g="},
        ])
    );
}

#[test]
fn flow_without_a_response_exports_its_error() {
    let entry = entry(&sample("/gone"));
    assert_eq!(entry["response"]["status"], 0);
    assert_eq!(entry["response"]["_error"], "dns: no address for the name");
}

/// Removes what HAR cannot represent: identity, the listener, content coding.
fn comparable(mut flow: FlowWithBodies) -> FlowWithBodies {
    let row = &mut flow.row;
    row.id = interflow_types::FlowId::from_u128(0);
    row.imported = false;
    row.archive = None;
    row.client.tls = None;
    if row.kind == FlowKind::WebSocket {
        row.request.as_mut().unwrap().protocol = None;
    }
    if let Some(upstream) = &mut row.upstream {
        upstream.version = "".into();
    }
    if row.response.is_none() {
        row.timings.request_sent = None;
    }
    row.timings.request_head = None;
    row.timings.blocked = None;
    if let Some(response) = &mut row.response {
        flow.response_body = content_coding::decode(&response.headers, &flow.response_body).into();
        response.body = Default::default();
    }
    flow
}

#[test]
fn what_was_not_kept_of_a_body_is_still_missing_after_a_round_trip() {
    let digest = "2f".repeat(32).parse().ok();
    for (coding, kept) in
        [("", &b"start"[..]), ("gzip", &gzipped(b"a long text that is cut off")[..20]), ("br", b"\x8b\x01"), ("", b"")]
    {
        let mut flow = exchange("POST", "/", &[], kept, kept);
        let missing = BodyRecord {
            size: 70_000_000,
            kept: kept.len() as u64,
            missing: Some(MissingReason::Head),
            head_sha256: digest,
        };
        let (request, response) = (flow.row.request.as_mut().unwrap(), flow.row.response.as_mut().unwrap());
        (request.body, response.body) =
            (missing, BodyRecord { missing: Some(MissingReason::Secret), head_sha256: None, ..missing });
        if !coding.is_empty() {
            request.headers.append("Content-Encoding", coding).unwrap();
            response.headers.append("Content-Encoding", coding).unwrap();
        }
        let back = imported(None, &export(ArchiveFormat::Har, std::slice::from_ref(&flow))).0.remove(0);
        assert_eq!((&back.request_body[..], &back.response_body[..]), (kept, kept), "{coding}");
        let (request, response) = (back.row.request.unwrap().body, back.row.response.unwrap().body);
        assert_eq!((request.size, request.kept, request.missing), (missing.size, missing.kept, missing.missing));
        assert_eq!((response.size, response.missing), (missing.size, Some(MissingReason::Secret)), "{coding}");
        assert_eq!(request.head_sha256, digest.filter(|_| !kept.is_empty()), "{coding}");
    }
}

#[test]
fn a_request_about_the_server_itself_round_trips() {
    for (method, path) in [("OPTIONS", "*"), ("OPTIONS", "/"), ("GET", "/"), ("OPTIONS", "/?x")] {
        let har = export(ArchiveFormat::Har, &[exchange(method, path, &[], b"", b"")]);
        assert_eq!(imported(None, &har).0[0].row.request.as_ref().unwrap().path, path, "{method}");
    }
}

#[test]
fn har_round_trips() {
    let (back, report) = imported(None, &export(ArchiveFormat::Har, &samples()));
    assert_eq!(report, Ok(vec![]));
    for (flow, back) in samples().into_iter().zip(back) {
        assert!(back.row.imported);
        let path = flow.row.url();
        if path.ends_with("/big") {
            assert_eq!((&back.response_body[..], back.row.response.unwrap().body.kept), (&b"start"[..], 5));
            continue;
        }
        let (flow, back) = (comparable(flow), comparable(back));
        if flow.row.kind == FlowKind::Tunnel {
            assert_eq!((&back.row.tunnel, &back.row.authority), (&flow.row.tunnel, &flow.row.authority));
            continue;
        }
        assert_eq!(back, flow, "{path}");
    }
}

#[test]
fn reexported_har_is_identical() {
    let first = export(ArchiveFormat::Har, &samples());
    let (flows, _) = imported(None, &first);
    let strip = |bytes: &[u8]| {
        let mut har: Value = serde_json::from_slice(bytes).unwrap();
        for entry in har["log"]["entries"].as_array_mut().unwrap() {
            let entry = entry.as_object_mut().unwrap();
            ["_id", "_clientTls"].iter().for_each(|n| drop(entry.shift_remove(*n)));
            let response = entry["response"].as_object_mut().unwrap();
            if response["content"]["comment"].is_null() {
                response["bodySize"] = 0.into();
                response["content"].as_object_mut().unwrap().shift_remove("compression");
            }
        }
        har
    };
    let again = strip(&export(ArchiveFormat::Har, &flows));
    let first = strip(&first);
    for (a, b) in first["log"]["entries"].as_array().unwrap().iter().zip(again["log"]["entries"].as_array().unwrap()) {
        if !a["request"]["url"].as_str().unwrap().ends_with("/big") {
            assert_eq!(a, b);
        }
    }
}

#[test]
fn packed_archives_and_byte_order_marks_are_read() {
    let har = export(ArchiveFormat::Har, &samples());
    let zlib = {
        let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        out.write_all(&har).unwrap();
        out.finish().unwrap()
    };
    let marked = [b"\xef\xbb\xbf".as_slice(), &har].concat();
    for (name, file) in [("gzip", gzipped(&har)), ("zlib", zlib), ("mark", marked.clone()), ("both", gzipped(&marked))]
    {
        assert_eq!(imported(None, &file).0.len(), samples().len(), "{name}");
        assert_eq!(imported(Some(ArchiveFormat::Har), &file).0.len(), samples().len(), "{name}");
    }
}

#[test]
fn chromium_har_is_imported() {
    let (flows, report) = imported(None, include_bytes!("data/chromium.har"));
    assert_eq!(report.unwrap(), ["log.entries[2].request.url: no http or https URL: blob:https://shop.example/5a1c"]);
    let [page, post, socket, failed] = flows.as_slice() else { panic!("{} flows", flows.len()) };
    let request = page.row.request.as_ref().unwrap();
    assert_eq!(request.version, "HTTP/2");
    assert!(!request.headers.iter().any(|(n, _)| n.starts_with(b":")));
    let response = page.row.response.as_ref().unwrap();
    assert_eq!(response.headers.get_all("set-cookie").collect::<Vec<_>>(), [b"a=1", b"b=2"]);
    assert_eq!(content_coding::decode(&response.headers, &page.response_body), b"<p>caf\xc3\xa9</p>");
    assert_ne!(page.response_body, "<p>café</p>", "the head says gzip, so the body is packed again");
    assert_eq!(page.row.upstream.as_ref().unwrap().peer, Some("[2001:db8::1]:443".parse().unwrap()));
    assert_eq!((page.row.timings.tls, page.row.timings.connect), (Some(30_000), Some(20_000)));
    let kept = page.row.archive.as_ref().unwrap();
    assert_eq!((&kept["_initiator"]["type"], &kept["_resourceType"]), (&json!("other"), &json!("document")));
    assert_eq!(post.request_body, "q=a+b&lang=%C3%A9");
    assert_eq!(post.row.response.as_ref().unwrap().body.missing, Some(MissingReason::Capped));
    assert_eq!((socket.row.kind, socket.messages.len()), (FlowKind::WebSocket, 2));
    assert_eq!((socket.messages[1].direction, socket.messages[1].kind), (Direction::Response, MessageKind::Binary));
    assert_eq!(
        (failed.row.state, failed.row.error.as_ref().unwrap().message.as_str()),
        (FlowState::Failed, "net::ERR_NAME_NOT_RESOLVED")
    );
    let again = entry(page);
    assert_eq!((&again["_initiator"], &again["_resourceType"]), (&kept["_initiator"], &json!("document")));
}

#[test]
fn invalid_har_is_reported_with_its_position() {
    let whole = export(ArchiveFormat::Har, &samples());
    let cut = &whole[..whole.len() / 2];
    for (file, error) in [
        (&b""[..], "line 1 column 0: EOF while parsing a value; the HAR is incomplete"),
        (b"hello", "line 1 column 1: expected value"),
        (b"[]", "line 1 column 2: invalid type: sequence, expected an object with the member 'log'"),
        (b"{}", "log.entries: missing: a HAR is an object {\"log\": {\"entries\": […]}}"),
        (
            b"{\"log\": {\"version\": \"1.2\"}}",
            "log.entries: missing: a HAR is an object {\"log\": {\"entries\": […]}}",
        ),
        (
            b"{\n\"log\": 7}",
            "line 2 column 9: invalid type: integer `7`, expected 'log' to be an object with the member 'entries'",
        ),
        (b"{\"log\":{\"entries\":{}}}", "line 1 column 20: invalid type: map, expected 'log.entries' to be an array"),
        (b"{\"log\":{\"entries\":[]}} x", "line 1 column 24: trailing characters"),
    ] {
        assert_eq!(imported(Some(ArchiveFormat::Har), file).1, Err(error.to_owned()));
    }
    for file in [&b""[..], b"root:x:0:0:root:/root:/bin/sh\n", b"[]", b"\x89PNG\r\n"] {
        let error = "the file: this is not a file of recorded flows; import one of har, jsonl, saz, fxzy, mitm";
        assert_eq!(imported(None, file).1, Err(error.to_owned()));
    }
    let (flows, report) = imported(None, cut);
    let error = report.unwrap_err();
    assert!(error.starts_with(&format!("log.entries[{}], line {} column ", flows.len(), flows.len() + 2)), "{error}");
    assert!(error.ends_with(&format!("({} flows before it were imported)", flows.len())), "{error}");
}

#[test]
fn flows_that_began_at_the_same_time_keep_the_order_of_the_file() {
    let entry = |n: usize| json!({"startedDateTime": "2026-01-01T00:00:00Z", "request": {"method": "GET", "url": format!("http://a/{n}")}});
    let har = json!({"log": {"entries": (0..300).map(entry).collect::<Vec<_>>()}}).to_string();
    let (mut flows, _) = imported(None, har.as_bytes());
    let paths = |flows: &[FlowWithBodies]| {
        flows.iter().map(|flow| flow.row.request.as_ref().unwrap().path.clone()).collect::<Vec<_>>()
    };
    let in_file = paths(&flows);
    flows.sort_by_key(|flow| flow.row.id);
    assert_eq!(paths(&flows), in_file);
    let again = imported(None, har.as_bytes()).0;
    assert!(again.iter().zip(&flows).all(|(a, b)| a.row.id == b.row.id), "ids are stable");
}

#[test]
fn an_entry_without_a_time_has_the_same_id_at_each_import() {
    let request = json!({"method": "GET", "url": "http://a/"});
    let har = json!({"log": {
        "pages": [{"id": "p", "startedDateTime": "2026-01-01T00:00:00Z"}],
        "entries": [{"request": request, "pageref": "p"}, {"request": request}],
    }})
    .to_string();
    let (flows, _) = imported(None, har.as_bytes());
    std::thread::sleep(std::time::Duration::from_millis(3));
    let (again, _) = imported(None, har.as_bytes());
    assert_eq!(flows.iter().map(|f| f.row.id).collect::<Vec<_>>(), again.iter().map(|f| f.row.id).collect::<Vec<_>>());
    assert_eq!(flows[0].row.started, Timestamp::from_secs(1_767_225_600), "that of its page");
}

#[test]
fn fields_that_are_not_text_are_left_out_and_reported() {
    let request = json!({"method": "GET", "url": "http://a/", "headers": [
        {"name": "X-Object", "value": {"0": "a"}}, {"name": "X-List", "value": ["a"]},
        {"name": "X-Number", "value": 7}, {"name": "X-Empty", "value": ""}]});
    let response = json!({"status": 200, "headers": {"Server": "x"}});
    let har = json!({"log": {"entries": [
        {"startedDateTime": "2026-01-01T00:00:00Z", "request": request, "response": response}, 7]}});
    let mut flows = Vec::new();
    let report = interflow_archive::import(None, har.to_string().as_bytes(), &mut |flow| {
        flows.push(flow);
        Ok(())
    })
    .unwrap();
    assert_eq!(
        report.skipped,
        [
            "log.entries[0].request.headers: the value of 'X-Object' is not a text and is left out",
            "log.entries[0].request.headers: the value of 'X-List' is not a text and is left out",
            "log.entries[0].response.headers: not a list of name and value, and left out",
            "log.entries[1].request: missing, or no object",
        ]
    );
    assert_eq!((report.flows, report.skips), (1, 1), "one entry was skipped, and parts of another were left out");
    let fields: Vec<_> = flows[0].row.request.as_ref().unwrap().headers.iter().map(|(_, v)| v.to_vec()).collect();
    assert_eq!(fields, [b"7".to_vec(), b"".to_vec()]);
}

#[test]
fn invalid_entries_are_skipped_and_reported() {
    let entry = |request: Value| json!({"startedDateTime": "2026-01-01T00:00:00Z", "request": request});
    let good = json!({"method": "GET", "url": "http://a/b c#frag"});
    let har = json!({"log": {"entries": [
        7,
        entry(json!({"method": "GET"})),
        entry(json!({"method": "G T", "url": "http://a/"})),
        entry(json!({"url": "ftp://a/"})),
        entry(json!({"url": "http://a:99999/"})),
        json!({"startedDateTime": "soon", "request": good}),
        json!({"request": good, "response": {"status": 7}}),
        json!({"request": good, "response": {"status": 200, "content": {"text": "%%", "encoding": "base64"},
            "headers": [{"name": "bad name", "value": "x"}, {"name": "ok", "value": "y"}]}}),
        entry(good.clone()),
    ]}});
    let (flows, report) = imported(None, har.to_string().as_bytes());
    assert_eq!(
        report.unwrap(),
        [
            "log.entries[0].request: missing, or no object",
            "log.entries[1].request.url: missing, or no string",
            "log.entries[2].request.method: 'G T' is not a method",
            "log.entries[3].request.url: no http or https URL: ftp://a/",
            "log.entries[4].request.url: the host cannot be read: http://a:99999/",
            "log.entries[5].startedDateTime: 'soon' is not an ISO 8601 time",
            "log.entries[6].response.status: 7 is not a status code",
            "log.entries[7].response.headers: 'bad name' is not a valid header field and is left out",
            "log.entries[7].response.content.text: no base64; the body is left out",
        ]
    );
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[0].row.response.as_ref().unwrap().headers.len(), 1);
    assert_eq!(flows[1].row.request.as_ref().unwrap().path, "/b%20c");
    assert_eq!(flows[1].row.state, FlowState::Cut);
}

#[test]
fn failing_store_stops_the_import() {
    let mut seen = 0;
    let error = interflow_archive::import(None, &*export(ArchiveFormat::Har, &samples()), &mut |_| {
        seen += 1;
        if seen == 3 { Err(std::io::Error::other("the disk is full")) } else { Ok(()) }
    });
    assert_eq!(error.unwrap_err().to_string(), "the disk is full (2 flows before it were imported)");
}

/// An archive with two pages that come before the entries.
fn paged(entry: &str) -> String {
    format!(
        r#"{{"log":{{"version":"1.2","creator":{{"name":"x","version":"1"}},"pages":[
        {{"id":"page_1","startedDateTime":"2026-01-01T00:00:00.000Z","title":"Start","pageTimings":{{"onLoad":12.5}}}},
        {{"id":"page_2","startedDateTime":"2026-01-01T00:00:09.000Z","title":"Shop","pageTimings":{{}}}}],
        "entries":[{entry}]}}}}"#
    )
}

fn entry_of(more: &str, response: &str) -> String {
    format!(
        r#"{{"startedDateTime":"2026-01-01T00:00:01.000Z","time":5,{more}"request":{{"method":"POST","url":"http://a.test/x",
        "httpVersion":"HTTP/1.1","headers":[],"postData":{{"mimeType":"application/json","text":"{{}}"}}}},
        "response":{response},"cache":{{}},"timings":{{"send":1,"wait":2,"receive":2}}}}"#
    )
}

#[test]
fn media_type_only_given_in_content_is_kept() {
    let response = r#"{"status":200,"statusText":"OK","httpVersion":"HTTP/1.1","headers":[],
        "content":{"size":5,"mimeType":"text/css; charset=utf-8","text":"a{}b\n"}}"#;
    let (flows, report) = imported(None, paged(&entry_of("", response)).as_bytes());
    assert_eq!(report, Ok(vec![]));
    assert_eq!(flows[0].row.media_type(Direction::Response).as_deref(), Some("text/css"));
    assert_eq!(flows[0].row.media_type(Direction::Request).as_deref(), Some("application/json"));
    let back: Value = serde_json::from_slice(&export(ArchiveFormat::Har, &flows)).unwrap();
    assert_eq!(back["log"]["entries"][0]["response"]["content"]["mimeType"], "text/css; charset=utf-8");
    let other = response.replace("\"headers\":[]", r#""headers":[{"name":"content-type","value":"text/plain"}]"#);
    let (flows, _) = imported(None, paged(&entry_of("", &other)).as_bytes());
    assert_eq!(flows[0].row.media_type(Direction::Response).as_deref(), Some("text/plain"), "a field says more");
}

#[test]
fn blocked_request_with_a_negative_status_round_trips() {
    for status in [-1, 0] {
        let response = format!(
            r#"{{"status":{status},"statusText":"blocked","httpVersion":"","headers":[],"content":{{"size":0,"mimeType":"x-unknown"}},"_error":"net::ERR_BLOCKED_BY_CLIENT"}}"#
        );
        let (flows, report) = imported(None, paged(&entry_of("", &response)).as_bytes());
        assert_eq!(report, Ok(vec![]), "{status}");
        assert!(flows[0].row.response.is_none() && flows[0].row.error.is_some());
        let file = export(ArchiveFormat::Har, &flows);
        let back: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(back["log"]["entries"][0]["response"]["status"], status);
        let (again, _) = imported(None, &file);
        assert_eq!(export(ArchiveFormat::Har, &again), file);
    }
}

#[test]
fn har_pages_and_page_references_round_trip() {
    let response =
        r#"{"status":204,"statusText":"","httpVersion":"HTTP/1.1","headers":[],"content":{"size":0,"mimeType":""}}"#;
    let entries = ["page_1", "page_2", "page_1", "page_9"].map(|p| entry_of(&format!(r#""pageref":"{p}","#), response));
    let (mut flows, report) = imported(None, paged(&entries.join(",")).as_bytes());
    assert_eq!(report, Ok(vec![]));
    let file = export(ArchiveFormat::Har, &flows);
    let check = |file: &[u8]| {
        let back: Value = serde_json::from_slice(file).unwrap();
        let pages = back["log"]["pages"].as_array().unwrap().clone();
        assert_eq!(pages.len(), 3);
        assert_eq!((&pages[0]["title"], &pages[0]["pageTimings"]["onLoad"]), (&"Start".into(), &12.5.into()));
        assert_eq!((&pages[1]["title"], &pages[2]["id"]), (&"Shop".into(), &"page_9".into()));
        let refs: Vec<_> = back["log"]["entries"].as_array().unwrap().iter().map(|e| e["pageref"].clone()).collect();
        assert_eq!(refs, ["page_1", "page_2", "page_1", "page_9"]);
    };
    check(&file);
    let (again, _) = imported(None, &file);
    check(&export(ArchiveFormat::Har, &again));

    // Another archive has a page with the same id: they stay separate in one file.
    let other = paged(&entries[0]).replace("\"Start\"", "\"Elsewhere\"");
    flows.extend(imported(None, other.as_bytes()).0);
    let back: Value = serde_json::from_slice(&export(ArchiveFormat::Har, &flows)).unwrap();
    assert_eq!(back["log"]["pages"].as_array().unwrap().len(), 4);
    assert_eq!(back["log"]["entries"][4]["pageref"], "page_1-2");
}

#[test]
fn half_of_an_emoji_in_a_har_costs_no_entry() {
    let response = r#"{"status":200,"statusText":"OK","httpVersion":"HTTP/1.1","headers":[],
        "content":{"size":5,"mimeType":"text/plain","text":"cut \ud83e, whole \ud83e\udd16"}}"#;
    let entry = entry_of("", response);
    let (flows, report) = imported(None, paged(&format!("{entry},{entry}")).as_bytes());
    assert_eq!(report, Ok(vec![]));
    assert_eq!(
        flows.iter().map(|flow| &*flow.response_body).collect::<Vec<_>>(),
        ["cut \u{fffd}, whole 🤖".as_bytes(); 2]
    );
}
