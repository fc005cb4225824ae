//! Replaying requests with edits.

use bytes::Bytes;
use interflow_archive::replay::{ReplayError, RequestEdits, masked_fields};
use interflow_store::{BodyRecord, FlowWithBodies, MissingReason};
use interflow_types::{Body, HttpVersion, Request};

use super::{exchange, samples, web_socket};

fn edits(method: Option<&str>, url: Option<&str>, headers: &[&str], body: Option<&'static str>) -> RequestEdits {
    let headers: Vec<String> = headers.iter().map(|h| (*h).to_owned()).collect();
    RequestEdits::parse(method, url, &headers, body.map(Bytes::from)).unwrap()
}

fn shown(request: &Request) -> String {
    let mut head = Vec::new();
    request.head.headers.write_to(&mut head);
    let body = match &request.body {
        Body::Full(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::Empty => String::new(),
        Body::Stream(_) => panic!("a recorded body is whole"),
    };
    format!(
        "{} {}\n{}\n{body}",
        request.head.method,
        request.head.url,
        String::from_utf8(head).unwrap().replace('\r', "")
    )
}

fn recorded() -> FlowWithBodies {
    let fields = [
        ("Host", "api.example.com"),
        ("Connection", "close"),
        ("Content-Length", "3"),
        ("Accept", "*/*"),
        ("Content-Encoding", "br"),
        ("Authorization", "Bearer *** (51 bytes)"),
        ("Cookie", "*** (7 bytes)"),
        ("X-Stars", "*** (many bytes) here"),
    ];
    exchange("POST", "/a?b", &fields, b"old", b"")
}

#[test]
fn unedited_replay_request_equals_the_recorded_one() {
    let flow = recorded();
    let request = RequestEdits::default().apply(&flow.row, flow.request_body.clone()).unwrap();
    assert_eq!(
        shown(&request),
        "POST https://api.example.com/a?b\nHost: api.example.com\nAccept: */*\nContent-Encoding: br\n\
         X-Stars: *** (many bytes) here\n\nold"
    );
    assert_eq!(request.head.version, HttpVersion::Http11);
    assert_eq!(masked_fields(&flow.row), ["Authorization", "Cookie"]);
    let flow = exchange("GET", "/a?b=1&api_key=***&to=http://x/?k=***", &[], b"", b"");
    assert_eq!(masked_fields(&flow.row), ["?api_key", "?to"]);
}

#[test]
fn replay_edits_change_only_the_given_parts() {
    let flow = recorded();
    for (edits, expected) in [
        (
            edits(Some("PUT"), Some("/c"), &["accept: text/html", "X-New:  1", "content-encoding:", "X-Stars;"], None),
            "PUT https://api.example.com/c\nHost: api.example.com\nAccept: text/html\nX-Stars: \nX-New: 1\n\nold",
        ),
        (
            edits(None, Some("http://[::1]:8080?q#frag"), &["X-Stars:"], Some("new")),
            "POST http://[::1]:8080/?q\nHost: [::1]:8080\nAccept: */*\n\nnew",
        ),
        (
            edits(None, None, &["Host: other", "Authorization: Bearer t", "X-Stars:"], Some("")),
            "POST https://api.example.com/a?b\nHost: other\nAccept: */*\nAuthorization: Bearer t\n\n",
        ),
    ] {
        assert_eq!(shown(&edits.apply(&flow.row, flow.request_body.clone()).unwrap()), expected);
    }
}

#[test]
fn grpc_is_replayed_with_its_fields_and_version() {
    let mut flow =
        exchange("POST", "/s/M", &[("TE", "trailers"), ("Content-Type", "application/grpc")], b"\0\0\0\0\0", b"");
    let replayed = |flow: &FlowWithBodies| RequestEdits::default().apply(&flow.row, flow.request_body.clone()).unwrap();
    flow.row.request.as_mut().unwrap().version = "HTTP/2".into();
    let request = replayed(&flow);
    assert_eq!((request.head.headers.get_str("te"), request.head.version), (Some("trailers"), HttpVersion::H2));
    // In plain text nothing is negotiated: as the origin was spoken to.
    flow.row.scheme = interflow_types::Scheme::Http;
    for (spoken, version) in [("HTTP/2", HttpVersion::H2), ("HTTP/1.1", HttpVersion::Http11)] {
        let upstream = interflow_store::UpstreamRecord { version: spoken.into(), ..Default::default() };
        flow.row.upstream = Some(upstream);
        assert_eq!(replayed(&flow).head.version, version, "{spoken}");
    }
    let codings = exchange("GET", "/", &[("TE", "gzip, trailers")], b"", b"");
    assert!(!replayed(&codings).head.headers.contains("te"), "transfer codings are the sender's");
}

#[test]
fn invalid_replay_edits_are_refused_with_a_hint() {
    let parse = |method, url, header: Option<&str>| {
        let headers: Vec<String> = header.into_iter().map(str::to_owned).collect();
        RequestEdits::parse(method, url, &headers, None).unwrap_err().to_string()
    };
    assert_eq!(parse(Some("A B"), None, None), "'A B' is not a method: write one word such as POST");
    for url in ["example.com", "ftp://a/", "http://", "http://a b/", "http://u:p@h/", ""] {
        assert!(parse(None, Some(url), None).starts_with(&format!("'{url}' is not a URL: write ")), "{url}");
    }
    for header in ["NoColon", "bad name: x", ": x", "A: b\nC: d", ""] {
        assert!(parse(None, None, Some(header)).contains("is not a header: write 'Name: value'"), "{header}");
    }
}

#[test]
fn tunnels_websockets_and_truncated_requests_cannot_be_replayed() {
    let tunnel = samples().into_iter().find(|f| f.row.request.is_none()).unwrap();
    let apply = |flow: &FlowWithBodies, edits: &RequestEdits| edits.apply(&flow.row, flow.request_body.clone());
    assert!(matches!(apply(&tunnel, &RequestEdits::default()), Err(ReplayError::Tunnel(_))));
    assert!(matches!(apply(&web_socket(), &RequestEdits::default()), Err(ReplayError::WebSocket(_))));
    let mut capped = recorded();
    capped.row.request.as_mut().unwrap().body = BodyRecord::partial(9, 3, Some(MissingReason::Capped));
    let error = apply(&capped, &RequestEdits::default()).unwrap_err().to_string();
    assert!(error.contains("only 3 of 9 bytes") && error.contains("--body"), "{error}");
    assert!(apply(&capped, &edits(None, None, &[], Some("whole"))).is_ok());
}
