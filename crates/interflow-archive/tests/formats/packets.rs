//! pcapng: its blocks, and what tshark reads from them where it is installed.

use std::io::Write;
use std::process::Command;

use interflow_archive::pcapng::{PacketSides, PcapngOptions, PcapngWriter};
use interflow_archive::{ArchiveFormat, FlowExporter};
use interflow_store::{ClientTlsRecord, FlowKind, FlowWithBodies, InterimRecord, MissingReason};
use interflow_types::{Direction, EntryKind};

use super::{body_row, exchange, export, headers, samples, web_socket};

fn packets(leg: PacketSides, flows: &[FlowWithBodies]) -> (Vec<u8>, String) {
    let (mut file, mut keylog) = (Vec::new(), Vec::new());
    {
        let options = PcapngOptions { leg, keylog: Some(Box::new(&mut keylog)) };
        let mut writer = PcapngWriter::new(&mut file, options).unwrap();
        for flow in flows {
            writer.flow(&flow.row, flow).unwrap();
        }
        writer.finish().unwrap();
    }
    (file, String::from_utf8(keylog).unwrap())
}

/// A flow on a recorded connection.
fn recorded(connection: u64, version: &'static str, path: &str, request: &[u8], response: &[u8]) -> FlowWithBodies {
    let mut flow =
        exchange("POST", path, &[("Host", "api.example.com"), ("Content-Type", "text/plain")], request, response);
    let row = &mut flow.row;
    row.client.connection = connection;
    row.client.peer = Some(format!("127.0.0.1:{}", 50_000 + connection).parse().unwrap());
    row.client.local = Some("127.0.0.1:7070".parse().unwrap());
    row.client.tls = Some(ClientTlsRecord { sni: Some("api.example.com".into()), ..ClientTlsRecord::default() });
    let r = row.request.as_mut().unwrap();
    r.version = version.into();
    r.headers.append("Content-Length", request.len().to_string()).unwrap();
    let r = row.response.as_mut().unwrap();
    r.headers = headers(&[("Content-Type", "text/plain"), ("Content-Length", &response.len().to_string())]);
    let upstream = row.upstream.as_mut().unwrap();
    upstream.version = version.into();
    upstream.connection = connection;
    flow
}

fn blocks(file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    let mut rest = file;
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (kind, len) = (word(0), word(4) as usize);
        assert_eq!(word(len - 4) as usize, len, "the length stands at both ends");
        assert_eq!(len % 4, 0);
        blocks.push((kind, &rest[8..len - 4]));
        rest = &rest[len..];
    }
    blocks
}

#[test]
fn every_sample_is_exported_as_valid_pcapng_blocks() {
    let flows = samples();
    for leg in [PacketSides::Client, PacketSides::Upstream, PacketSides::Both] {
        let (file, keylog) = packets(leg, &flows);
        let blocks = blocks(&file);
        assert_eq!(blocks[0].0, 0x0a0d_0d0a);
        assert!(blocks[1..3].iter().all(|b| b.0 == 1));
        let secrets: Vec<&[u8]> = blocks.iter().filter(|b| b.0 == 0x0a).map(|b| b.1).collect();
        assert!(!secrets.is_empty() && secrets.iter().all(|s| s.starts_with(b"KSLT")));
        assert_eq!(keylog.lines().count(), secrets.len() * 4);
        assert!(blocks.iter().any(|b| b.0 == 6));
    }
    assert!(
        packets(PacketSides::Client, &flows) == packets(PacketSides::Client, &flows),
        "the same flows give the same file"
    );
}

/// The joined payloads of each interface, from its client and to it.
fn streams(file: &[u8]) -> [[String; 2]; 2] {
    let mut streams: [[Vec<u8>; 2]; 2] = Default::default();
    for (_, packet) in blocks(file).into_iter().filter(|b| b.0 == 6) {
        let word = |at: usize| u32::from_le_bytes(packet[at..at + 4].try_into().unwrap()) as usize;
        let ethernet = &packet[20..20 + word(12)];
        let tcp = if ethernet[12..14] == [0x86, 0xdd] { 54 } else { 34 };
        let data = tcp + usize::from(ethernet[tcp + 12] >> 4) * 4;
        let from_client =
            u16::from_be_bytes([ethernet[tcp], ethernet[tcp + 1]]) >= 1024 && ethernet[tcp + 2..tcp + 4] == [0, 80];
        streams[word(0)][usize::from(!from_client)].extend_from_slice(&ethernet[data..]);
    }
    streams.map(|side| side.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

#[test]
fn each_side_of_an_edited_flow_has_its_own_message() {
    let mut flow = super::jsonl::edited();
    // Plain connections, so that the packets can be parsed here.
    flow.row.scheme = interflow_types::Scheme::Http;
    flow.row.transport = EntryKind::Absolute;
    flow.row.authority = "api.example.com:80".parse().unwrap();
    flow.row.upstream.as_mut().unwrap().peer = Some("198.51.100.7:80".parse().unwrap());
    flow.row.original.as_mut().unwrap().request.as_mut().unwrap().url = "http://old.example.com/came".into();
    let [client, upstream] = streams(&packets(PacketSides::Both, &[flow.clone()]).0);
    let has = |text: &str, yes: &[&str], no: &[&str]| {
        assert!(yes.iter().all(|y| text.contains(y)) && !no.iter().any(|n| text.contains(n)), "{text}");
    };
    has(&client[0], &["POST /came", "X-Tag: old", "the alpha"], &["X-Tag: new", "beta"]);
    has(&client[1], &["200 Fine", "Set-Cookie", "back"], &["X-Back"]);
    has(&upstream[0], &["POST /sent", "X-Tag: new", "beta"], &["X-Tag: old", "alpha"]);
    has(&upstream[1], &["200 Fine", "X-Back: raw", "back"], &["Set-Cookie"]);
    let [only, none] = streams(&packets(PacketSides::Client, &[flow]).0);
    assert!(only == client && none.iter().all(String::is_empty));
}

#[test]
fn damaged_body_does_not_hang_the_pcapng_writer() {
    let mut flow = recorded(1, "HTTP/2", "/x", b"", b"short");
    flow.row.response.as_mut().unwrap().body.kept = 1 << 40;
    assert!(packets(PacketSides::Client, &[flow]).0.len() < 1 << 16);
}

/// The fields that tshark prints of the packets selected by a filter; `None` without tshark.
fn tshark(file: &[u8], filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    Command::new("tshark").arg("--version").output().ok().filter(|o| o.status.success())?;
    let mut path = tempfile::Builder::new().suffix(".pcapng").tempfile().unwrap();
    path.write_all(file).unwrap();
    let mut command = Command::new("tshark");
    command.args(["-r", path.path().to_str().unwrap(), "-Y", filter, "-T", "fields", "-E", "separator=|"]);
    for option in ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE"] {
        command.args(["-o", option]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    Some(text.lines().map(|l| l.split('|').map(str::to_owned).collect()).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

const HTTP1: [&str; 5] =
    ["tcp.stream", "http.request.method", "http.request.uri", "http.response.code", "http.file_data"];

#[test]
fn tshark_decrypts_the_same_http1_messages() {
    let big = vec![b'x'; 100_000];
    let flows =
        [recorded(1, "HTTP/1.1", "/one?a=1", b"question", b"answer"), recorded(1, "HTTP/1.1", "/two", b"", &big)];
    for (leg, stream) in [(PacketSides::Client, "0"), (PacketSides::Upstream, "0")] {
        let (file, _) = packets(leg, &flows);
        let Some(found) = tshark(&file, "(http.request || http.response) && tls", &HTTP1) else { return };
        let shown: Vec<[&str; 4]> =
            found.iter().map(|f| [f[0].as_str(), f[1].as_str(), f[2].as_str(), f[3].as_str()]).collect();
        assert_eq!(
            shown,
            [
                [stream, "POST", "/one?a=1", ""],
                [stream, "", "/one?a=1", "200"],
                [stream, "POST", "/two", ""],
                [stream, "", "/two", "200"],
            ]
            .map(|mut row| {
                if row[1].is_empty() {
                    row[2] = shown[1][2];
                }
                row
            }),
            "{found:?}"
        );
        let data: Vec<&str> = found.iter().map(|f| f[4].as_str()).collect();
        for (shown, sent) in [(data[0], &b"question"[..]), (data[1], b"answer"), (data[3], &big)] {
            let text = String::from_utf8_lossy(sent);
            assert!(shown == text || shown.replace(':', "") == hex(sent), "{leg:?}: {} bytes", shown.len());
        }
    }
}

#[test]
fn tshark_reports_no_errors_in_the_packets() {
    let mut flows = vec![recorded(1, "HTTP/1.1", "/", b"a", &vec![0; 70_000]), recorded(2, "HTTP/2", "/", b"b", b"c")];
    let mut plain = recorded(3, "HTTP/1.1", "/plain", b"", b"plain");
    plain.row.scheme = interflow_types::Scheme::Http;
    plain.row.transport = EntryKind::Absolute;
    plain.row.client.tls = None;
    flows.push(plain);
    let (file, _) = packets(PacketSides::Both, &flows);
    let Some(bad) = tshark(
        &file,
        "tcp.analysis.flags || tcp.checksum.status == 0 || ip.checksum.status == 0 || _ws.malformed || _ws.expert.severity >= 8388608",
        &["frame.number", "_ws.expert.message"],
    ) else {
        return;
    };
    assert_eq!(bad, Vec::<Vec<String>>::new());
    let asked = tshark(&file, "http.request.method == CONNECT", &["http.request.uri"]).unwrap();
    assert_eq!(asked.len(), 2, "the client asked for a tunnel on each of its TLS connections");
    let absolute =
        tshark(&file, "http.request.full_uri contains plain && frame.interface_id == 0", &["http.request.uri"])
            .unwrap();
    assert_eq!(absolute, [["http://api.example.com:443/plain"]]);
}

#[test]
fn tshark_decrypts_http2_with_its_streams() {
    let mut second = recorded(5, "HTTP/2", "/two", b"", &vec![b'y'; 40_000]);
    second.row.response.as_mut().unwrap().trailers = headers(&[("grpc-status", "0")]);
    second.row.interim.push(InterimRecord { status: 103, headers: headers(&[("link", "</a.css>")]) });
    // Longer than a frame.
    second.row.request.as_mut().unwrap().headers.append("x-long", "v".repeat(20_000)).unwrap();
    let flows = [recorded(5, "HTTP/2", "/one", b"in", b"out"), second];
    let (file, _) = packets(PacketSides::Client, &flows);
    let fields = ["http2.streamid", "http2.headers.path", "http2.headers.status"];
    let Some(found) = tshark(&file, "http2.headers.path || http2.headers.status", &fields) else { return };
    let shown: Vec<Vec<&str>> = found.iter().map(|f| f.iter().map(String::as_str).collect()).collect();
    assert_eq!(shown.iter().filter(|f| f[1] == "/one").count(), 1, "{shown:?}");
    assert_eq!(shown.iter().filter(|f| f[1] == "/two").count(), 1, "{shown:?}");
    assert_eq!(shown.iter().filter(|f| f[2].contains("200")).count(), 2, "{shown:?}");
    let trailer = tshark(&file, "http2.header.name == \"grpc-status\"", &["http2.streamid"]).unwrap();
    assert_eq!(trailer.len(), 1);
    assert_eq!(shown.iter().filter(|f| f[2].contains("103")).count(), 1, "{shown:?}");
    let long = tshark(&file, "http2.header.name == \"x-long\"", &["http2.streamid"]).unwrap();
    assert_eq!(long, [["3,3"]], "a frame and its continuation on the second stream");
}

#[test]
fn tshark_shows_the_messages_of_a_websocket() {
    let mut flow = web_socket();
    flow.row.client.connection = 9;
    flow.row.client.tls = Some(ClientTlsRecord::default());
    let request = flow.row.request.as_mut().unwrap();
    request.headers = headers(&[
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", "x"),
        ("Sec-WebSocket-Version", "13"),
    ]);
    let response = flow.row.response.as_mut().unwrap();
    response.status = 101;
    response.headers = headers(&[("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "y")]);
    let (file, _) = packets(PacketSides::Client, &[flow]);
    let Some(found) = tshark(&file, "websocket", &["websocket.opcode"]) else { return };
    assert_eq!(found, [["1"], ["2"], ["9"], ["8"]]);
}

#[test]
fn tshark_parses_a_truncated_body_and_the_following_flow() {
    let mut capped = recorded(1, "HTTP/1.1", "/capped", b"", b"start");
    let response = capped.row.response.as_mut().unwrap();
    response.headers = headers(&[("Content-Length", "9000")]);
    response.body = interflow_store::BodyRecord::partial(9000, 5, Some(MissingReason::Capped));
    assert_eq!(response.body.kept, body_row(b"start").kept);
    let flows = [capped, recorded(1, "HTTP/1.1", "/next", b"", b"whole")];
    let (file, _) = packets(PacketSides::Client, &flows);
    let Some(found) = tshark(&file, "http.request && tls", &["http.request.uri", "tcp.stream"]) else { return };
    assert_eq!(found, [["/capped", "0"], ["/next", "1"]]);
}

#[test]
fn the_exporter_writes_the_client_side_and_bare_tunnels() {
    let mut tunnel = recorded(1, "HTTP/1.1", "/", b"", b"");
    tunnel.row.kind = FlowKind::Tunnel;
    tunnel.row.request = None;
    tunnel.row.response = None;
    let file = export(ArchiveFormat::Pcapng, std::slice::from_ref(&tunnel));
    let interfaces: Vec<u32> =
        blocks(&file).iter().filter(|b| b.0 == 6).map(|b| u32::from_le_bytes(b.1[..4].try_into().unwrap())).collect();
    assert!(interfaces.iter().all(|i| *i == 0) && interfaces.len() >= 6);
    assert!(tunnel.row.body(Direction::Request).is_none());
}

/// A flow of an HTTP/1.1 connection without TLS.
fn plain(connection: u64, path: &str, response: &[u8]) -> FlowWithBodies {
    let mut flow = recorded(connection, "HTTP/1.1", path, b"asked", response);
    flow.row.client.tls = None;
    flow.row.scheme = interflow_types::Scheme::Http;
    flow.row.transport = EntryKind::Absolute;
    flow.row.authority = "api.example.com:80".parse().unwrap();
    flow
}

#[test]
fn trailers_are_exported_in_chunks() {
    let mut flow = plain(1, "/trailers", b"answered");
    let response = flow.row.response.as_mut().unwrap();
    response.headers = headers(&[("Trailer", "X-Sum")]);
    response.trailers = headers(&[("X-Sum", "9")]);
    let request = flow.row.request.as_mut().unwrap();
    request.headers.remove("content-length");
    request.trailers = headers(&[("X-Asked", "5")]);
    for leg in [PacketSides::Client, PacketSides::Upstream] {
        let text = streams(&packets(leg, &[flow.clone(), plain(1, "/two", b"again")]).0).concat().concat();
        let response = "Transfer-Encoding: chunked\r\n\r\n8\r\nanswered\r\n0\r\nX-Sum: 9\r\n\r\n";
        let request = "Transfer-Encoding: chunked\r\n\r\n5\r\nasked\r\n0\r\nX-Asked: 5\r\n\r\n";
        assert!(text.contains(response) && text.contains(request), "{leg:?}: {text}");
        assert!(text.contains("again"), "the connection goes on: {text}");
    }
}
