//! Export and import of SAZ, Fluxzy and mitmproxy archives; truncated, false and oversized input.

use std::io::Write;

use interflow_archive::ArchiveFormat;
use interflow_store::{FlowKind, FlowWithBodies};
use interflow_types::{Direction, Scheme};

use super::{STARTED, body_row, exchange, export, gzipped, imported, samples, web_socket};

/// The archive formats that keep nearly all facts of a flow.
const ARCHIVES: [ArchiveFormat; 3] = [ArchiveFormat::Saz, ArchiveFormat::Fxzy, ArchiveFormat::Mitm];

/// The facts kept by all of them.
fn kept(flow: &FlowWithBodies) -> impl PartialEq + std::fmt::Debug + use<> {
    let row = &flow.row;
    let request = row.request.as_ref().map(|r| (r.method.clone(), r.path.clone(), r.headers.clone()));
    let response = row.response.as_ref().map(|r| (r.status, r.headers.clone()));
    let messages: Vec<_> = flow
        .messages
        .iter()
        .filter(|m| m.kind != interflow_types::MessageKind::Ping)
        .map(|m| (m.direction, m.kind, m.payload.clone()))
        .collect();
    let bodies = (flow.request_body.clone(), flow.response_body.clone());
    let place = (row.scheme, row.authority.clone(), row.kind, row.started);
    let facts = (row.comment.clone(), row.tags.clone());
    (place, request, response, bodies, messages, facts)
}

#[test]
fn archives_round_trip() {
    let flows = samples();
    for format in ARCHIVES {
        let (back, report) = imported(None, &export(format, &flows));
        assert_eq!(report, Ok(vec![]), "{format}");
        for (flow, back) in flows.iter().zip(&back) {
            assert_eq!(kept(back), kept(flow), "{format}");
        }
        assert_eq!(back.len(), flows.len(), "{format}");
        assert!(back.iter().all(|f| f.row.imported));
    }
}

#[test]
fn websocket_over_http2_becomes_one_over_http1() {
    let mut flow = web_socket();
    let request = flow.row.request.as_mut().unwrap();
    (request.method, request.version) = ("CONNECT".into(), "HTTP/2".into());
    (request.protocol, request.headers) = (Some("websocket".into()), crate::headers(&[]));
    for format in [ArchiveFormat::Saz, ArchiveFormat::Mitm, ArchiveFormat::Fxzy] {
        let (back, report) = imported(None, &export(format, std::slice::from_ref(&flow)));
        assert_eq!((report, back.len()), (Ok(vec![]), 1), "{format}");
        let row = &back[0].row;
        assert_eq!((row.kind, row.messages > 0, row.url()), (FlowKind::WebSocket, true, flow.row.url()), "{format}");
        let request = row.request.as_ref().unwrap();
        assert_eq!((&*request.method, request.headers.get_str("upgrade")), ("GET", Some("websocket")), "{format}");
    }
}

#[test]
fn flow_ids_are_stable_across_imports() {
    let flows = samples();
    for format in ARCHIVES {
        let file = export(format, &flows);
        let ids = |flows: &[FlowWithBodies]| flows.iter().map(|f| f.row.id).collect::<Vec<_>>();
        let once = ids(&imported(None, &file).0);
        assert_eq!(once, ids(&imported(None, &file).0), "{format}");
        if format != ArchiveFormat::Fxzy {
            assert_eq!(once, ids(&flows), "{format}");
        }
    }
}

#[test]
fn truncated_archive_keeps_complete_flows_and_reports_the_offset() {
    let flows: Vec<FlowWithBodies> = (0..6).map(|i| exchange("GET", &format!("/{i}"), &[], b"", b"a body")).collect();
    for format in ARCHIVES {
        let file = export(format, &flows);
        let mut most = 0;
        for cut in (1..file.len()).step_by(97) {
            let (back, report) = imported(Some(format), &file[..cut]);
            most = most.max(back.len());
            if cut > 4 {
                let why = report.unwrap_err();
                assert!(
                    why.contains("byte ") || why.contains("not a zip") || why.contains("breaks off"),
                    "{format} {cut}: {why}"
                );
            }
            for (back, flow) in back.iter().zip(&flows) {
                assert_eq!(back.row.authority, flow.row.authority);
            }
        }
        assert!(most >= 5, "{format}: {most} of the flows before the cut");
    }
}

#[test]
fn corrupted_bytes_never_panic() {
    let file_of = |format| export(format, &[web_socket(), exchange("POST", "/x", &[], b"abc", &gzipped(b"hello"))]);
    for format in ARCHIVES {
        let file = file_of(format);
        for at in (0..file.len()).step_by(11) {
            for change in [0x00, 0xff, 0x39] {
                let mut file = file.clone();
                file[at] = change;
                let _ = imported(Some(format), &file);
                let _ = imported(None, &file);
            }
        }
    }
}

/// A zip of one entry whose deflated content is `packed`.
fn zip(name: &str, packed: &[u8], crc: u32, size: u32) -> Vec<u8> {
    let shared = |out: &mut Vec<u8>| {
        out.extend_from_slice(&[20, 0, 0, 0, 8, 0, 0, 0, 0, 0]);
        [crc, packed.len() as u32, size].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
    };
    let mut out = b"PK\x03\x04".to_vec();
    shared(&mut out);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(packed);
    let at = out.len() as u32;
    out.extend_from_slice(b"PK\x01\x02\x14\0");
    shared(&mut out);
    out.extend_from_slice(&[0; 14]);
    out.extend_from_slice(name.as_bytes());
    let len = out.len() as u32 - at;
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(content).unwrap();
    out.finish().unwrap()
}

#[test]
fn zip_bomb_is_refused_with_its_entry_name() {
    let bomb = deflated(&vec![0; 100 << 20]);
    assert!(bomb.len() < 200 << 10);
    let (flows, report) = imported(None, &zip("raw/1_c.txt", &bomb, 0, 10));
    let reasons = report.unwrap();
    assert!(flows.is_empty() && reasons[0].contains("raw/1_c.txt") && reasons[0].contains("bomb"), "{reasons:?}");
}

#[test]
fn checksum_mismatch_and_encryption_are_reported() {
    let text = b"GET http://a/ HTTP/1.1\r\n\r\n";
    let crc = crc32(text);
    let good = zip("raw/1_c.txt", &deflated(text), crc, text.len() as u32);
    let (flows, report) = imported(None, &good);
    assert_eq!((flows.len(), report), (1, Ok(vec![])));
    let (_, report) = imported(None, &zip("raw/1_c.txt", &deflated(text), crc ^ 1, text.len() as u32));
    assert!(report.unwrap()[0].contains("checksum"));
    let mut locked = good;
    let central = locked.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    locked[central + 8] |= 1;
    assert!(imported(None, &locked).1.unwrap()[0].contains("password"));
    let (_, other) = imported(None, &zip("readme.txt", &deflated(b"x"), crc32(b"x"), 1));
    assert!(other.unwrap_err().contains("neither sessions of Fiddler"));
}

#[test]
fn false_counts_and_positions_in_a_directory_cost_nothing_and_are_reported() {
    let text = b"GET http://a/ HTTP/1.1\r\n\r\n";
    let good = zip("raw/1_c.txt", &deflated(text), crc32(text), text.len() as u32);
    let end = good.len() - 22;
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[end + at..end + at + bytes.len()].copy_from_slice(bytes);
        file
    };
    for (why, file) in
        [("false length", changed(8, &[9, 0, 9, 0])), ("its directory", changed(16, &[0xff, 0xff, 0, 0]))]
    {
        let (flows, report) = imported(None, &file);
        let report = report.unwrap_err();
        assert!(flows.len() == 1 && report.contains(why), "{report}");
    }
    // A zip64 directory of as many entries as the number allows.
    let mut wide = good[..end].to_vec();
    wide.extend_from_slice(b"PK\x06\x06");
    wide.extend_from_slice(&44_u64.to_le_bytes());
    wide.extend_from_slice(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let directory = u64::from(u32::from_le_bytes(good[end + 16..end + 20].try_into().unwrap()));
    for n in [u64::MAX, u64::MAX, end as u64 - directory, directory] {
        wide.extend_from_slice(&n.to_le_bytes());
    }
    wide.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    wide.extend_from_slice(&(end as u64).to_le_bytes());
    wide.extend_from_slice(&[1, 0, 0, 0]);
    wide.extend_from_slice(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
    assert_eq!(imported(None, &wide).0.len(), 1);
}

#[test]
fn entries_outside_the_folders_of_a_zip_are_not_read() {
    let text = b"GET http://a/ HTTP/1.1\r\n\r\n";
    for name in ["../raw/1_c.txt", "/raw/1_c.txt", "..\\raw\\1_c.txt", "C:/raw/1_c.txt", "raw/../raw/1_c.txt"] {
        let file = zip(name, &deflated(text), crc32(text), text.len() as u32);
        let (flows, report) = imported(Some(ArchiveFormat::Saz), &file);
        assert_eq!((flows.len(), report), (0, Ok(vec![])), "{name}");
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn saz_file_written_by_fiddler_is_imported() {
    let client = b"GET /relative?x=1 HTTP/1.1\r\nHost: example.com:8443\r\nAccept: */*\r\n\r\n";
    let (flows, report) = imported(Some(ArchiveFormat::Saz), &zip("raw/07_c.txt", &deflated(client), crc32(client), 1));
    assert_eq!(report, Ok(vec![]));
    let row = &flows[0].row;
    assert_eq!((row.scheme, row.authority.to_string().as_str()), (Scheme::Http, "example.com:8443"));
    assert_eq!(row.request.as_ref().unwrap().path, "/relative?x=1");
    assert_eq!(row.state, interflow_store::FlowState::Cut, "there is no answer");
}

#[test]
fn mitmproxy_0_11_flow_files_are_imported() {
    // In the form of mitmproxy 0.11: only bytes, other names, the version as two numbers.
    let s = |text: &str| format!("{}:{text},", text.len());
    let n = |number: &str| format!("{}:{number}#", number.len());
    let l = |items: &[String]| {
        let all = items.concat();
        format!("{}:{all}]", all.len())
    };
    let d = |items: &[(&str, String)]| {
        let all: String = items.iter().map(|(k, v)| format!("{}{v}", s(k))).collect();
        format!("{}:{all}}}", all.len())
    };
    let header = l(&[l(&[s("Host"), s("old.example")])]);
    let file = d(&[
        ("type", s("http")),
        ("version", l(&[n("0"), n("11")])),
        (
            "request",
            d(&[
                ("host", s("old.example")),
                ("port", n("80")),
                ("scheme", s("http")),
                ("method", s("GET")),
                ("path", s("/a")),
                ("httpversion", l(&[n("1"), n("0")])),
                ("headers", header),
                ("content", s("")),
                ("timestamp_start", "12:1400000000.5^".to_owned()),
                ("timestamp_end", "12:1400000000.7^".to_owned()),
            ]),
        ),
        (
            "response",
            d(&[
                ("code", n("404")),
                ("msg", s("Not Found")),
                ("httpversion", l(&[n("1"), n("1")])),
                ("headers", l(&[])),
                ("content", s("gone")),
                ("timestamp_start", "12:1400000001.5^".to_owned()),
                ("timestamp_end", "12:1400000001.6^".to_owned()),
            ]),
        ),
        (
            "client_conn",
            d(&[("address", d(&[("address", l(&[s("10.0.0.9"), n("1234")])), ("use_ipv6", "5:false!".to_owned())]))]),
        ),
    ]);
    let (flows, report) = imported(None, file.as_bytes());
    assert_eq!(report, Ok(vec![]));
    let row = &flows[0].row;
    assert_eq!((row.url().as_str(), row.started.micros()), ("http://old.example/a", 1_400_000_000_500_000));
    assert_eq!(&*row.request.as_ref().unwrap().version, "HTTP/1.0");
    assert_eq!((row.response.as_ref().unwrap().status, &flows[0].response_body[..]), (404, &b"gone"[..]));
    assert_eq!(row.client.peer, Some("10.0.0.9:1234".parse().unwrap()));
    assert_eq!(row.timings.first_byte, Some(1_000_000));
}

#[test]
fn flow_file_of_a_newer_version_is_refused() {
    let file = b"29:7:version;2:99#4:type;4:http;}";
    let (flows, report) = imported(None, file);
    assert!(flows.is_empty() && report.unwrap()[0].contains("newer than 21"));
}

#[test]
fn mitmproxy_12_flow_file_is_imported() {
    let file = include_bytes!("data/mitmproxy-12.flow");
    let (flows, report) = imported(None, file);
    let reasons = report.unwrap();
    assert!(reasons.len() == 1 && reasons[0].contains("type 'dns'"), "{reasons:?}");
    assert_eq!(flows.len(), 4);
    let [http, failed, socket, tcp] = &flows[..] else { panic!("four flows") };
    assert_eq!((http.row.comment.as_deref(), &http.row.tags[..]), (Some("hello"), &["red_circle".to_owned()][..]));
    assert_eq!((&http.request_body[..], &http.response_body[..]), (&b"content"[..], &b"message"[..]));
    assert_eq!(failed.row.error.as_ref().unwrap().message, "error");
    assert_eq!((socket.row.kind, socket.messages.len()), (FlowKind::WebSocket, 4), "three messages and the close");
    assert_eq!((tcp.row.kind, tcp.row.tunnel.unwrap().sent), (FlowKind::Tunnel, 5));
}

#[test]
fn truncated_body_keeps_its_full_size_in_a_flow_file() {
    let mut flow = exchange("GET", "/big", &[], b"", b"start");
    flow.row.response.as_mut().unwrap().body = interflow_store::BodyRecord {
        size: 9000,
        missing: Some(interflow_store::MissingReason::Capped),
        head_sha256: None,
        ..body_row(b"start")
    };
    let (back, _) = imported(None, &export(ArchiveFormat::Mitm, &[flow]));
    let body = back[0].row.body(Direction::Response).unwrap();
    assert_eq!((body.size, body.kept), (9000, 5));
    assert_eq!(back[0].row.started.micros(), STARTED);
}

/// A member of a tnetstring, as stored in the file.
fn holds(file: &[u8], what: &str) -> bool {
    file.windows(what.len()).any(|w| w == what.as_bytes())
}

/// Tagged netstrings as mitmproxy writes them.
mod tn {
    pub fn s(v: &str) -> String {
        format!("{}:{v};", v.len())
    }

    pub fn n(v: &str) -> String {
        format!("{}:{v}#", v.len())
    }

    pub fn f(v: &str) -> String {
        format!("{}:{v}^", v.len())
    }

    pub fn yes(b: bool) -> String {
        if b { "4:true!".into() } else { "5:false!".into() }
    }

    pub fn l(items: &[String]) -> String {
        let all: String = items.concat();
        format!("{}:{all}]", all.len())
    }

    pub fn d(items: &[(&str, String)]) -> String {
        let all: String = items.iter().map(|(k, v)| format!("{}{v}", s(k))).collect();
        format!("{}:{all}}}", all.len())
    }
}

/// A flow of version 21, with these additional members.
fn mitm_flow(tls: &str, more: &[(&str, String)]) -> String {
    mitm_flow_with(CERTIFICATE, tls, more)
}

/// Data in the form of a certificate.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";

fn mitm_flow_with(pem: &str, tls: &str, more: &[(&str, String)]) -> String {
    use tn::{d, l, n, s};
    let conn = |name: &'static str| {
        let list = if name == "server_conn" { l(&[s(pem)]) } else { l(&[]) };
        let address = l(&[s("10.0.0.9"), n("4433")]);
        let more = [("tls_version", s(tls)), ("certificate_list", list), ("mitmcert", s(pem))];
        let mut members = vec![("peername", address.clone()), ("address", address), ("tls", tn::yes(true))];
        members.extend(more);
        (name, d(&members))
    };
    let request = d(&[
        ("host", s("quic.example")),
        ("port", n("443")),
        ("scheme", s("https")),
        ("method", s("GET")),
        ("path", s("/a")),
        ("http_version", s("HTTP/3")),
        ("headers", l(&[])),
        ("content", s("")),
        ("timestamp_start", tn::f("1700000000.5")),
    ]);
    let mut members = vec![("type", s("http")), ("version", n("21")), ("id", s("11-22")), ("request", request)];
    members.extend([conn("client_conn"), conn("server_conn")]);
    members.extend(more.iter().cloned());
    d(&members)
}

#[test]
fn quic_flow_is_exported_as_mitmproxy_expects() {
    for (read, written) in
        [("QUIC", "QUICv1"), ("QUICv1", "QUICv1"), ("TLS 1.3", "TLSv1.3"), ("TLSv1.2", "TLSv1.2"), ("TLS 1.0", "TLSv1")]
    {
        let (flows, report) = imported(None, mitm_flow(read, &[]).as_bytes());
        assert_eq!(report, Ok(vec![]));
        let file = export(ArchiveFormat::Mitm, &flows);
        assert!(holds(&file, &format!("11:tls_version;{}", tn::s(written))), "{read}");
        let carrier = if written == "QUICv1" { "udp" } else { "tcp" };
        assert!(holds(&file, &format!("18:transport_protocol;{}", tn::s(carrier))), "{read}");
    }
    let (flows, _) = imported(None, mitm_flow("something new", &[]).as_bytes());
    assert!(holds(&export(ArchiveFormat::Mitm, &flows), "11:tls_version;0:~"), "what it does not know it is not told");
}

/// The text of the first netstring, and what follows it.
fn netstring(text: &str) -> (&str, &str) {
    let (length, rest) = text.split_once(':').unwrap();
    let length: usize = length.parse().unwrap();
    (&rest[..length], &rest[length + 1..])
}

/// mitmproxy rejects a file with a missing or an additional member of a connection.
#[test]
fn quic_connection_has_exactly_the_members_mitmproxy_expects() {
    let (flows, _) = imported(None, mitm_flow("QUICv1", &[]).as_bytes());
    let file = String::from_utf8(export(ArchiveFormat::Mitm, &flows)).unwrap();
    assert!(file.contains("12:http_version;6:HTTP/3,"), "{file}");
    let both = [
        "alpn",
        "alpn_offers",
        "certificate_list",
        "cipher",
        "cipher_list",
        "error",
        "id",
        "peername",
        "sni",
        "sockname",
        "timestamp_end",
        "timestamp_start",
        "timestamp_tls_setup",
        "tls",
        "tls_version",
        "transport_protocol",
    ];
    let (client, server) = (["mitmcert", "proxy_mode"], ["address", "timestamp_tcp_setup", "via"]);
    for (connection, own) in [("client_conn", &client[..]), ("server_conn", &server[..])] {
        let name = tn::s(connection);
        let (mut rest, _) = netstring(&file[file.find(&name).unwrap() + name.len()..]);
        let mut members = Vec::new();
        while !rest.is_empty() {
            let (member, value) = netstring(rest);
            members.push(member);
            rest = netstring(value).1;
        }
        members.sort_unstable();
        let mut expected = [&both[..], own].concat();
        expected.sort_unstable();
        assert_eq!(members, expected, "{connection}");
    }
}

#[test]
fn an_unreadable_certificate_is_not_written() {
    for broken in ["-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "-----MITM-----", "MAMCAQE="] {
        let (flows, report) = imported(None, mitm_flow_with(broken, "QUICv1", &[]).as_bytes());
        assert_eq!((flows.len(), report), (1, Ok(vec![])));
        let file = export(ArchiveFormat::Mitm, &flows);
        assert!(holds(&file, "16:certificate_list;0:]") && holds(&file, "8:mitmcert;0:~"), "{broken}");
    }
}

#[test]
fn markers_metadata_certificates_and_replay_flags_of_mitmproxy_survive() {
    use tn::{d, f, l, n, s, yes};
    let metadata = d(&[
        ("addon", d(&[("seen", yes(true)), ("score", f("0.5")), ("words", l(&[s("a"), n("2")]))])),
        ("reason", s("slow")),
    ]);
    let more = [
        ("marked", s(":red_circle:")),
        ("is_replay", s("response")),
        ("comment", s("look here")),
        ("metadata", metadata.clone()),
    ];
    let (flows, report) = imported(None, mitm_flow("TLSv1.3", &more).as_bytes());
    assert_eq!(report, Ok(vec![]));
    assert_eq!(
        (&flows[0].row.tags[..], flows[0].row.comment.as_deref()),
        (&["red_circle".to_owned()][..], Some("look here"))
    );
    let file = export(ArchiveFormat::Mitm, &flows);
    for what in [
        format!("6:marked;{}", s(":red_circle:")),
        format!("9:is_replay;{}", s("response")),
        format!("7:comment;{}", s("look here")),
        format!("5:score;{}", f("0.5")),
        format!("4:seen;{}", yes(true)),
        format!("6:reason;{}", s("slow")),
        format!("16:certificate_list;{0}:{1}:{CERTIFICATE},]", CERTIFICATE.len() + 4, CERTIFICATE.len()),
        format!("8:mitmcert;{}:{CERTIFICATE},", CERTIFICATE.len()),
    ] {
        assert!(holds(&file, &what), "{what} is not in {}", String::from_utf8_lossy(&file));
    }
    // Again, through another archive format that does not know mitmproxy.
    let (again, _) = imported(None, &export(ArchiveFormat::Har, &flows));
    assert_eq!(again[0].row.archive, flows[0].row.archive);
}

#[test]
fn websocket_of_an_old_flow_file_is_merged_with_its_request() {
    use tn::{d, f, l, n, s, yes};
    let address = || l(&[s("ws.example"), n("80")]);
    let conn = || {
        d(&[
            ("address", address()),
            ("ip_address", l(&[s("10.0.0.1"), n("80")])),
            ("timestamp_start", f("1500000000.0")),
        ])
    };
    let handshake = d(&[
        ("type", s("http")),
        ("version", n("7")),
        ("id", s("hand")),
        ("metadata", d(&[("websocket", yes(true))])),
        ("client_conn", conn()),
        ("server_conn", conn()),
        (
            "request",
            d(&[
                ("host", s("ws.example")),
                ("port", n("80")),
                ("scheme", s("http")),
                ("method", s("GET")),
                ("path", s("/chat")),
                ("http_version", s("HTTP/1.1")),
                ("headers", l(&[l(&[s("Upgrade"), s("websocket")])])),
                ("content", s("")),
                ("timestamp_start", f("1500000000.5")),
            ]),
        ),
    ]);
    let socket = |of: &str| {
        d(&[
            ("type", s("websocket")),
            ("version", n("7")),
            ("id", s("sock")),
            ("metadata", d(&[("websocket_handshake", s(of))])),
            ("client_conn", conn()),
            ("server_conn", conn()),
            (
                "messages",
                l(&[
                    l(&[n("1"), yes(true), s("hello"), f("1500000001.0"), yes(false)]),
                    l(&[n("2"), yes(false), s("bytes"), f("1500000002.0"), yes(false)]),
                ]),
            ),
            ("close_sender", s("server")),
            ("close_code", n("1001")),
            ("close_reason", s("bye")),
        ])
    };
    let (flows, report) = imported(None, format!("{handshake}{}", socket("hand")).as_bytes());
    assert_eq!(report, Ok(vec![]));
    let [flow] = &flows[..] else { panic!("{} flows", flows.len()) };
    assert_eq!((flow.row.kind, flow.row.url().as_str()), (FlowKind::WebSocket, "http://ws.example/chat"));
    let payloads: Vec<_> = flow.messages.iter().map(|m| (m.direction, m.payload.to_vec())).collect();
    assert_eq!(payloads[0], (Direction::Request, b"hello".to_vec()));
    assert_eq!((payloads.len(), &payloads[2]), (3, &(Direction::Response, b"\x03\xe9bye".to_vec())));
    // Without the request, which may be in another file, the known facts are kept.
    let (flows, report) = imported(None, socket("elsewhere").as_bytes());
    assert_eq!((report, flows.len()), (Ok(vec![]), 1));
    assert_eq!(
        (flows[0].row.kind, flows[0].messages.len(), flows[0].row.host().as_ref()),
        (FlowKind::WebSocket, 3, "ws.example")
    );
    // Without the messages, the request is imported anyway.
    let (flows, _) = imported(None, handshake.as_bytes());
    assert_eq!(flows.len(), 1);
}

#[test]
fn any_number_of_line_ends_between_flows_of_mitmproxy_is_read() {
    let flow = mitm_flow("TLSv1.3", &[]);
    let file = format!("{flow}{}{flow}", "\n".repeat(1 << 20));
    let (flows, report) = imported(Some(ArchiveFormat::Mitm), file.as_bytes());
    assert_eq!((flows.len(), report.is_ok()), (2, true));
}
