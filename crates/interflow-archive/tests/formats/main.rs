//! Black-box tests of the archive formats.

mod archives;
mod code;
mod commands;
mod diff;
mod har;
mod jsonl;
mod packets;
mod parquet;
mod replay;
mod schema;
mod stored;
mod text;

use bytes::Bytes;
use interflow_archive::{ArchiveFormat, exporter, import};
use interflow_store::{
    BodyRecord, ClientTlsRecord, ErrorRecord, FlowKind, FlowRecord, FlowState, FlowWithBodies, MessageRecord,
    MissingReason, RequestRecord, ResponseRecord, TunnelRecord, UpstreamRecord,
};
use interflow_types::{Direction, EntryKind, FlowId, FlowTimings, Headers, MessageKind, Scheme, Timestamp};

/// 2026-11-20T10:00:00.123456Z
const STARTED: u64 = 1_795_168_800_123_456;

fn headers(fields: &[(&str, &str)]) -> Headers {
    fields.iter().copied().collect()
}

fn row(scheme: Scheme, authority: &str) -> FlowRecord {
    let started = Timestamp::from_micros(STARTED);
    FlowRecord::new(FlowId::new(started), started, EntryKind::Connect, scheme, authority.parse().unwrap())
}

fn body_row(bytes: &[u8]) -> BodyRecord {
    BodyRecord::partial(bytes.len() as u64, bytes.len() as u64, None)
}

/// A flow with a 200 response.
fn exchange(method: &str, path: &str, fields: &[(&str, &str)], request: &[u8], response: &[u8]) -> FlowWithBodies {
    let mut row = row(Scheme::Https, "api.example.com:443");
    row.state = FlowState::Complete;
    row.request = Some(RequestRecord {
        method: method.into(),
        path: path.into(),
        version: "HTTP/1.1".into(),
        protocol: None,
        headers: headers(fields),
        trailers: Headers::new(),
        body: body_row(request),
    });
    row.response = Some(ResponseRecord {
        status: 200,
        reason: Bytes::from_static(b"Fine"),
        version: "HTTP/1.1".into(),
        headers: headers(&[("Content-Type", "application/json"), ("Set-Cookie", "a=1; Path=/; Secure")]),
        trailers: Headers::new(),
        body: body_row(response),
    });
    row.upstream = Some(UpstreamRecord {
        peer: Some("[2001:db8::7]:443".parse().unwrap()),
        version: "HTTP/1.1".into(),
        connection: 42,
        ..UpstreamRecord::default()
    });
    row.timings = FlowTimings {
        request_head: Some(100),
        blocked: Some(50),
        dns: Some(1000),
        connect: Some(2000),
        tls: Some(3000),
        request_sent: Some(6_350),
        first_byte: Some(10_000),
        last_byte: Some(12_000),
        done: Some(12_000),
        ..FlowTimings::default()
    };
    FlowWithBodies {
        request_body: request.to_vec().into(),
        response_body: response.to_vec().into(),
        ..FlowWithBodies::new(row)
    }
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(text).unwrap();
    out.finish().unwrap()
}

fn web_socket() -> FlowWithBodies {
    let mut flow = exchange("GET", "/chat", &[("Upgrade", "websocket"), ("Connection", "Upgrade")], b"", b"");
    flow.row.kind = FlowKind::WebSocket;
    let message = |index: u64, direction, kind, payload: &'static [u8]| MessageRecord {
        index,
        direction,
        kind,
        at: Timestamp::from_micros(STARTED + 1000 * index),
        size: payload.len() as u64,
        payload: Bytes::from_static(payload),
    };
    flow.messages = vec![
        message(0, Direction::Request, MessageKind::Text, "h\u{e9}llo".as_bytes()),
        message(1, Direction::Response, MessageKind::Binary, b"\0\xff"),
        message(2, Direction::Response, MessageKind::Ping, b""),
        message(3, Direction::Request, MessageKind::Close, b"\x03\xe8"),
    ];
    flow.row.messages = 4;
    flow
}

/// One flow of each kind that an archive must represent.
fn samples() -> Vec<FlowWithBodies> {
    let form = "application/x-www-form-urlencoded";
    let mut coded = exchange("GET", "/coded", &[("Host", "api.example.com")], b"", &gzipped(b"{\"a\": [1, 2, 3]}"));
    coded.row.response.as_mut().unwrap().headers.append("Content-Encoding", "gzip").unwrap();
    let mut latin = exchange("GET", "/l", &[], b"", b"caf\xc3\xa9");
    latin.row.response.as_mut().unwrap().headers = headers(&[("Content-Type", "text/html; charset=ISO-8859-1")]);
    let mut h2 = exchange("GET", "/h2", &[("cookie", "s=1; t=2")], b"", b"plain");
    h2.row.request.as_mut().unwrap().version = "HTTP/2".into();
    h2.row.timings = FlowTimings {
        request_sent: Some(10),
        first_byte: Some(30),
        last_byte: Some(40),
        done: Some(40),
        ..FlowTimings::default()
    };
    h2.row.tags = vec!["one".into(), "two words, 100%".into()];
    h2.row.comment = Some("a \"comment\"".into());
    h2.row.user = Some("alice".into());
    h2.row.client.peer = Some("127.0.0.1:50000".parse().unwrap());
    h2.row.client.tls = Some(ClientTlsRecord { ja4: Some("t13d".into()), ..ClientTlsRecord::default() });
    let mut failed = exchange("GET", "/gone", &[], b"", b"");
    failed.row.response = None;
    failed.row.upstream = None;
    failed.row.state = FlowState::Failed;
    failed.row.timings = FlowTimings { request_head: Some(10), done: Some(500), ..FlowTimings::default() };
    failed.row.error =
        Some(ErrorRecord { kind: "dns".into(), blame: "upstream".into(), message: "no address for the name".into() });
    let mut capped = exchange("GET", "/big", &[], b"", b"start");
    capped.row.response.as_mut().unwrap().body = BodyRecord::partial(9000, 5, Some(MissingReason::Capped));
    let mut tunnel = FlowWithBodies::new(row(Scheme::Https, "192.0.2.7:22"));
    tunnel.row.kind = FlowKind::Tunnel;
    tunnel.row.state = FlowState::Complete;
    tunnel.row.tunnel = Some(TunnelRecord { sent: 10, received: 2000 });
    vec![
        exchange("GET", "/p?a=1%202&b=%C3%A9&c", &[("Host", "api.example.com"), ("Accept", "*/*")], b"", b"{}"),
        exchange("POST", "/form", &[("Content-Type", form)], b"a=1+2&b=%26", b""),
        exchange(
            "POST",
            "/json",
            &[("Content-Type", "application/json")],
            "{\"é\":\"\\u0001\"}".as_bytes(),
            b"\n\t\"\\\x7f",
        ),
        exchange("POST", "/binary", &[("Content-Type", "application/octet-stream")], b"\0\xff\xfe", b"\x89PNG\r\n"),
        coded,
        latin,
        h2,
        failed,
        capped,
        tunnel,
        web_socket(),
    ]
}

fn export(format: ArchiveFormat, flows: &[FlowWithBodies]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut exporter = exporter(format, &mut out).unwrap();
    for flow in flows {
        exporter.flow(&flow.row, flow).unwrap();
    }
    exporter.finish().unwrap();
    drop(exporter);
    out
}

fn exported(format: ArchiveFormat, flow: &FlowWithBodies) -> String {
    String::from_utf8(export(format, std::slice::from_ref(flow))).unwrap()
}

/// The result of an import: its flows, and its report or error as text.
fn imported(format: Option<ArchiveFormat>, file: &[u8]) -> (Vec<FlowWithBodies>, Result<Vec<String>, String>) {
    let mut flows = Vec::new();
    let report = import(format, file, &mut |flow| {
        flows.push(flow);
        Ok(())
    });
    let report = report.map(|r| {
        assert_eq!(r.flows, flows.len() as u64);
        r.skipped
    });
    (flows, report.map_err(|e| e.to_string()))
}

#[test]
fn formats_are_detected_by_name_and_file_extension() {
    for format in ArchiveFormat::ALL {
        assert_eq!(format.name().parse(), Ok(*format));
    }
    for (name, format) in [
        ("a.har", Some(ArchiveFormat::Har)),
        ("A.HAR.GZ", Some(ArchiveFormat::Har)),
        ("x/y.zhar", Some(ArchiveFormat::Har)),
        ("a.jsonl", Some(ArchiveFormat::Jsonl)),
        ("har", None),
        ("a.pdf", None),
    ] {
        assert_eq!(ArchiveFormat::from_file_name(name), format, "{name}");
    }
    let error = "hra".parse::<ArchiveFormat>().unwrap_err().to_string();
    assert!(error.contains("'hra'") && error.contains("har, jsonl, saz"), "{error}");
}

#[test]
fn export_only_format_is_refused_on_import() {
    let refused = |format, file: &[u8]| imported(format, file).1.unwrap_err();
    assert!(refused(Some(ArchiveFormat::Curl), b"curl").contains("'curl' can be exported but not imported"));
    for exported in [ArchiveFormat::Pcapng, ArchiveFormat::Parquet] {
        let file = export(exported, &samples());
        for format in [None, Some(exported)] {
            let why = refused(format, &file);
            assert!(why.contains(&format!("'{exported}' can be exported but not imported")), "{why}");
            assert!(why.contains("import one of har, jsonl, saz, fxzy, mitm"), "{why}");
        }
    }
    for format in ArchiveFormat::ALL.iter().filter(|f| f.imports()) {
        assert!(imported(Some(*format), &export(*format, &samples())).1.is_ok(), "{format}");
    }
}
