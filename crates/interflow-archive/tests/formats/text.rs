//! Flows as text for terminals.

use interflow_archive::ArchiveFormat;
use interflow_archive::text::{TextStyle, detail, duration, size};
use interflow_archive::view::ProtoSchemas;
use interflow_store::FlowWithBodies;

use super::{exchange, exported, samples, web_socket};

fn shown(flow: &FlowWithBodies, max_body: usize) -> String {
    let mut out = Vec::new();
    detail(&mut out, &flow.row, flow, (max_body, &ProtoSchemas::default()), TextStyle::default()).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn figures_have_three_digits() {
    for (bytes, text) in
        [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (34_567, "35 kB"), (9_960_000, "10 MB"), (u64::MAX, "18 EB")]
    {
        assert_eq!(size(bytes), text);
    }
    for (micros, text) in [
        (0, "0 us"),
        (999, "999 us"),
        (1200, "1.2 ms"),
        (59_400_000, "59 s"),
        (90_000_000, "1.5 min"),
        (7_200_000_000, "2.0 h"),
    ] {
        assert_eq!(duration(micros), text);
    }
}

#[test]
fn a_flow_is_a_line_in_a_table() {
    let flow = exchange("POST", "/v1/messages?beta=true", &[], b"", &[b' '; 1234]);
    let line = exported(ArchiveFormat::Table, &flow);
    let id = flow.row.id.to_string();
    assert!(
        line.starts_with(&format!("{id} 10:00:00.123 POST    200   https://api.example.com/v1/messages?beta=true ")),
        "{line}"
    );
    assert!(line.ends_with(" json            1.2 kB    12 ms\n"), "{line}");
    assert_eq!((line.lines().count(), line.chars().count()), (1, 161), "{line}");
    let long = exported(ArchiveFormat::Table, &exchange("GET", &format!("/{}", "x".repeat(100)), &[], b"", b""));
    assert!(long.contains("xxx… "), "{long}");
    for (path, state) in [("/gone", "error"), ("192.0.2.7:22", "done")] {
        let flow = samples().into_iter().find(|f| f.row.url().ends_with(path)).unwrap();
        assert!(exported(ArchiveFormat::Table, &flow).contains(state), "{path}");
    }
}

#[test]
fn peer_data_cannot_inject_terminal_control_sequences() {
    let evil = "/\x1b[2J\r\u{202e}x";
    let mut flow = exchange("GET", evil, &[("X", "\x1b]0;title\x07")], b"", b"\x1b[31m body\r\n");
    flow.row.comment = Some("\x1b[5m".into());
    let line = exported(ArchiveFormat::Table, &flow);
    for text in [line.trim_end().to_owned(), shown(&flow, 1000)] {
        assert!(!text.contains(['\x1b', '\r', '\x07', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn a_flow_is_shown_in_full() {
    let coded = samples().into_iter().find(|f| f.row.url().ends_with("/coded")).unwrap();
    let text = shown(&coded, 1000);
    for part in [
        "https://api.example.com/coded\n",
        "2026-11-20T10:00:00.123456Z, connect, to [2001:db8::7]:443, dns 1.0 ms, connect 2.0 ms, tls 3.0 ms",
        "\n> GET /coded HTTP/1.1\n> Host: api.example.com\n",
        "\n< HTTP/1.1 200 Fine\n",
        "\n{\n  \"a\": [\n    1,\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(shown(&coded, 5).contains("\n{\n  \"\n… "), "{}", shown(&coded, 5));
    let binary = exchange("GET", "/", &[], b"", b"\x89PNG\x00\xff");
    assert!(shown(&binary, 100).contains("00000000  89 50 4e 47 00 ff"), "{}", shown(&binary, 100));
    assert!(shown(&binary, 100).contains("|.PNG..|\nbinary, 6 B\n"), "{}", shown(&binary, 100));
    let latin = exchange("GET", "/", &[], b"", b"m\xfcller");
    assert!(shown(&latin, 100).contains("binary, 6 B"), "{}", shown(&latin, 100));
    let mut latin = latin;
    latin.row.response.as_mut().unwrap().headers =
        [("Content-Type", "text/plain; charset=iso-8859-1")].into_iter().collect();
    assert!(shown(&latin, 100).contains("\nmüller\n"), "{}", shown(&latin, 100));
    let socket = shown(&web_socket(), 100);
    assert!(socket.contains("4 messages\n>     0 us Text héllo\n<   1.0 ms Binary binary, 2 B\n"), "{socket}");
    for (payload, line) in [
        (&b"\x03\xe8"[..], "Close 1000"),
        (b"\x10\xe1my reason\x07", "Close 4321 my reason\\u{7}"),
        (b"", "Close"),
        (b"\x03", "Close \\u{3}"),
        (b"\x03\xe8\xff", "Close binary, 3 B"),
    ] {
        let mut closed = web_socket();
        closed.messages[3].payload = payload.into();
        closed.messages[3].size = payload.len() as u64;
        assert_eq!(shown(&closed, 100).lines().last().map(|l| l[11..].trim_end()), Some(line), "{payload:?}");
    }
    let failed = samples().into_iter().find(|f| f.row.error.is_some()).unwrap();
    assert!(shown(&failed, 100).ends_with("\ndns: no address for the name\n"));
    let capped = samples().into_iter().find(|f| f.row.url().ends_with("/big")).unwrap();
    assert!(shown(&capped, 100).ends_with("start\n(5 B of 9.0 kB were kept: capped by the configuration)\n"));
}
