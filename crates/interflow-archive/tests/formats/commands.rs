//! Commands and snippets: their content, and that a real shell and a real curl replay the request exactly.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use interflow_archive::ArchiveFormat;
use interflow_store::{BodyRecord, FlowWithBodies, MissingReason};
use interflow_types::{Headers, Scheme};

use super::{exchange, export, exported, samples};

const AGENT: (&str, &str) = ("User-Agent", "a");
const ANY: (&str, &str) = ("Accept", "*/*");

#[test]
fn curl_commands_reproduce_the_request() {
    let get = |path, fields: &[(&str, &str)]| exchange("GET", path, fields, b"", b"");
    for (flow, command) in [
        (get("/", &[AGENT, ANY]), "curl --http1.1 https://api.example.com/ -H 'User-Agent: a' -H 'Accept: */*'"),
        (
            exchange("POST", "/", &[AGENT, ANY, ("Content-Length", "0")], b"", b""),
            "curl -X POST --http1.1 https://api.example.com/ -H 'User-Agent: a' -H 'Accept: */*' -H 'Content-Length: 0'",
        ),
        (
            get(
                "/",
                &[("Host", "api.example.com"), ("Proxy-Authorization", "x"), ("Connection", "close, X"), ("X", "1")],
            ),
            "curl --http1.1 https://api.example.com/ -H User-Agent: -H Accept:",
        ),
        (
            get("/?a=[1]&b='", &[AGENT, ANY, ("Host", "other"), ("Accept-Encoding", "gzip"), ("Empty", "")]),
            "curl --http1.1 --globoff 'https://api.example.com/?a=[1]&b='\\''' -H 'User-Agent: a' -H 'Accept: */*' \
             -H 'Host: other' -H 'Accept-Encoding: gzip' -H 'Empty;' --compressed",
        ),
        (
            get("/a/../b", &[AGENT, ANY]),
            "curl --http1.1 --path-as-is https://api.example.com/a/../b -H 'User-Agent: a' -H 'Accept: */*'",
        ),
        (
            exchange("HEAD", "/", &[AGENT, ANY], b"", b""),
            "curl --head --http1.1 https://api.example.com/ -H 'User-Agent: a' -H 'Accept: */*'",
        ),
        (
            exchange("OPTIONS", "*", &[AGENT, ANY], b"", b""),
            "curl -X OPTIONS --http1.1 --request-target '*' https://api.example.com -H 'User-Agent: a' -H 'Accept: */*'",
        ),
        (
            exchange("POST", "/", &[AGENT, ANY, ("Content-Length", "4"), ("Content-Type", "t/p")], b"@a'b", b""),
            "curl --http1.1 https://api.example.com/ -H 'User-Agent: a' -H 'Accept: */*' -H 'Content-Type: t/p' --data-raw '@a'\\''b'",
        ),
        (
            exchange("PUT", "/", &[AGENT, ANY, ("Content-Type", "x")], b"\x01\xff\n", b""),
            "curl -X PUT --http1.1 https://api.example.com/ -H 'User-Agent: a' -H 'Accept: */*' -H 'Content-Type: x' --data-raw $'\\001\\377\\n'",
        ),
        (
            exchange("POST", "/", &[AGENT, ANY, ("Content-Type", "x")], b"\0", b""),
            "printf %s AA== | base64 -d | curl --http1.1 https://api.example.com/ -H 'User-Agent: a' -H 'Accept: */*' -H 'Content-Type: x' --data-binary @-",
        ),
    ] {
        assert_eq!(exported(ArchiveFormat::Curl, &flow).trim_end(), command);
    }
}

#[test]
fn curl_command_uses_the_recorded_http_version() {
    for (scheme, version, option) in [
        (Scheme::Https, "HTTP/1.0", "--http1.0"),
        (Scheme::Https, "HTTP/2", "--http2"),
        (Scheme::Http, "HTTP/2", "--http2-prior-knowledge"),
        (Scheme::Https, "HTTP/3", "--http3"),
    ] {
        let mut flow = exchange("GET", "/", &[], b"", b"");
        flow.row.scheme = scheme;
        flow.row.request.as_mut().unwrap().version = version.into();
        assert!(exported(ArchiveFormat::Curl, &flow).contains(&format!("curl {option} ")), "{version}");
    }
}

#[test]
fn tunnels_and_truncated_bodies_are_noted_in_comments() {
    let tunnel = samples().into_iter().find(|f| f.row.request.is_none()).unwrap();
    for (format, sign) in [
        (ArchiveFormat::Curl, "# "),
        (ArchiveFormat::Httpie, "# "),
        (ArchiveFormat::Fetch, "// "),
        (ArchiveFormat::Python, "# "),
    ] {
        let text = exported(format, &tunnel);
        assert!(text.starts_with(sign) && text.ends_with("a tunnel has no request\n"), "{text}");
        let mut capped = exchange("POST", "/", &[], b"abc", b"");
        capped.row.request.as_mut().unwrap().body = BodyRecord::partial(10, 3, Some(MissingReason::Capped));
        let text = exported(format, &capped);
        assert!(text.starts_with(&format!("{sign}only 3 of the 10 bytes of the body were kept\n")), "{text}");
    }
}

/// An origin that accepts one request, responds, and returns the request's bytes.
pub(super) fn origin() -> (u16, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        let mut buf = [0; 4096];
        let whole = |bytes: &[u8]| {
            let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length =
                text.split("content-length: ").nth(1).map_or(0, |l| l.lines().next().unwrap().parse().unwrap());
            (bytes.len() >= head + length).then_some(())
        };
        while whole(&bytes).is_none() {
            let n = peer.read(&mut buf).unwrap();
            assert!(n > 0, "the client went away: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&buf[..n]);
        }
        peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        bytes
    });
    (port, taken)
}

/// Runs the command generated for this request, and compares what arrives.
fn sent_by_curl(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) {
    let (port, taken) = origin();
    let mut flow = exchange(method, path, fields, body, b"");
    flow.row.scheme = Scheme::Http;
    flow.row.authority = format!("127.0.0.1:{port}").parse().unwrap();
    let script =
        String::from_utf8(export(ArchiveFormat::Curl, &[flow])).unwrap().replace("curl ", "curl -sS --noproxy '*' ");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(script.as_bytes()).unwrap();
    let run = Command::new("bash").arg(file.path()).output().unwrap();
    assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
    let bytes = taken.join().unwrap();
    let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..split]);
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some(format!("{method} {path} HTTP/1.1").as_str()), "{script}");
    let mut expected: Vec<String> = fields.iter().map(|(n, v)| format!("{n}: {v}").trim_end().to_owned()).collect();
    expected.push(format!("Host: 127.0.0.1:{port}"));
    let mut found: Vec<String> = lines
        .filter(|l| !l.to_ascii_lowercase().starts_with("content-length"))
        .map(|l| l.trim_end().to_owned())
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{script}");
    assert_eq!(&bytes[split + 4..], body, "{script}");
}

#[test]
fn curl_command_sends_an_identical_request() {
    sent_by_curl("GET", "/plain?x=[1-3]&y={a,b}", &[AGENT], b"");
    sent_by_curl("GET", "/a/../b/./c", &[ANY, ("X-Empty", ""), ("X-Quote", "it's \"so\" $HOME `x` \\n")], b"");
    sent_by_curl("POST", "/text", &[("Content-Type", "text/plain")], "@file 'quoted' \\ é\nline\n".as_bytes());
    sent_by_curl("DELETE", "/nobody", &[], b"");
    sent_by_curl("PATCH", "/binary", &[("Content-Type", "x/y")], b"\0\x01\xff'\r\n");
    sent_by_curl("POST", "/control", &[], b"\x1b[31m\xff\t'");
    sent_by_curl("POST", "/large", &[], &vec![b'x'; 300_000]);
    sent_by_curl("POST", "/larger", &[], &vec![b'x'; 1_500_000]);
}

#[test]
fn httpie_fetch_and_python_commands_reproduce_the_request() {
    let flow = exchange("POST", "/x?a='", &[("A", "é\""), ("B", ""), ("A", "2")], b"bo\"dy\n", b"");
    assert_eq!(
        exported(ArchiveFormat::Httpie, &flow),
        "http --ignore-stdin --raw 'bo\"dy\n' POST 'https://api.example.com/x?a='\\''' 'A:é\"' 'B;' A:2\n"
    );
    assert_eq!(
        exported(ArchiveFormat::Fetch, &flow),
        "await fetch(\"https://api.example.com/x?a='\", {\n  method: \"POST\",\n  headers: [\n    [\"A\", \"Ã©\\\"\"],\n    \
         [\"B\", \"\"],\n    [\"A\", \"2\"]\n  ],\n  body: \"bo\\\"dy\\n\"\n});\n"
    );
    assert_eq!(
        exported(ArchiveFormat::Python, &flow),
        "import requests\n\nresponse = requests.request(\n    \"POST\",\n    \"https://api.example.com/x?a='\",\n    \
         headers={\n        \"A\": b\"\\xc3\\xa9\\\", 2\",\n        \"B\": b\"\",\n    },\n    data=b\"bo\\\"dy\\n\",\n    \
         allow_redirects=False,\n)\nprint(response.status_code, response.text)\n"
    );
    let binary = exchange("POST", "/", &[], b"\0\xff", b"");
    assert!(exported(ArchiveFormat::Fetch, &binary).contains("atob(\"AP8=\")"));
    assert!(exported(ArchiveFormat::Python, &binary).contains("data=b\"\\x00\\xff\""));
    assert!(exported(ArchiveFormat::Httpie, &binary).starts_with("printf %s AP8= | base64 -d | http POST "));
}

#[test]
fn raw_export_is_byte_identical_to_the_wire() {
    let fields = [("Host", "api.example.com"), ("B", "\u{e9}"), ("Content-Length", "5")];
    let flow = exchange("POST", "/x", &fields, b"\0body", b"{}");
    let request = b"POST /x HTTP/1.1\r\nHost: api.example.com\r\nB: \xc3\xa9\r\nContent-Length: 5\r\n\r\n\0body";
    let response = b"HTTP/1.1 200 Fine\r\nContent-Type: application/json\r\nSet-Cookie: a=1; Path=/; Secure\r\n\r\n{}";
    let one = |format| export(format, std::slice::from_ref(&flow));
    assert_eq!(one(ArchiveFormat::RawRequest), request);
    assert_eq!(one(ArchiveFormat::RawResponse), response);
    assert_eq!(one(ArchiveFormat::Raw), [&request[..], b"\r\n", response].concat());
}

#[test]
fn raw_requests_that_were_chunked_are_framed() {
    let flow = exchange("POST", "/x", &[("Host", "api.example.com")], b"hello", b"");
    let one = export(ArchiveFormat::RawRequest, std::slice::from_ref(&flow));
    let framed =
        b"POST /x HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&one), String::from_utf8_lossy(framed));
    let empty = exchange("GET", "/x", &[("Host", "api.example.com")], b"", b"");
    assert!(
        export(ArchiveFormat::RawRequest, std::slice::from_ref(&empty)).ends_with(b"Host: api.example.com\r\n\r\n")
    );
}

#[test]
fn raw_export_restores_the_transfer_coding() {
    let mut flow: FlowWithBodies = exchange("GET", "/", &[], b"", b"hello");
    let response = flow.row.response.as_mut().unwrap();
    response.headers = [("Transfer-Encoding", "chunked"), ("Trailer", "X")].into_iter().collect::<Headers>();
    response.trailers = [("X", "1")].into_iter().collect();
    let text = exported(ArchiveFormat::RawResponse, &flow);
    assert!(text.ends_with("\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\n\r\n"), "{text:?}");
}

#[test]
fn an_httpie_command_reads_no_file_that_a_field_names() {
    let fields = [("A", "@~/.netrc"), ("B", "=1"), ("C", "=@/etc/passwd"), ("D", "a=@b")];
    let flow = exchange("GET", "/", &fields, b"", b"");
    assert_eq!(
        exported(ArchiveFormat::Httpie, &flow),
        "http --ignore-stdin GET https://api.example.com/ 'A:\\@~/.netrc' 'B:\\=1' 'C:\\=@/etc/passwd' 'D:a=@b'\n"
    );
}
