//! Captures of other programs on a loopback interface, made with dumpcap, the secrets put into the file with editcap: servers
//! and clients of Node 20 (nghttp2, OpenSSL) that pad their frames, `openssl s_server` with curl or `openssl s_client`.

use interflow_archive::{ArchiveFormat, FlowWithBodies};
use interflow_store::{FlowState, MissingReason};

fn capture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fuzz/corpus/pcapng/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn imported(file: &[u8]) -> (Vec<FlowWithBodies>, Vec<String>) {
    let (flows, report) = super::imported(Some(ArchiveFormat::Pcapng), file);
    (flows, report.unwrap())
}

fn path(flow: &FlowWithBodies) -> &str {
    &flow.row.request.as_ref().unwrap().path
}

#[test]
fn http2_is_read_from_every_suite() {
    for name in [
        "h2-tls13-aes256",
        "h2-tls13-chacha20",
        "h2-tls12-ecdhe-rsa-aes128-gcm-sha256",
        "h2-tls12-ecdhe-ecdsa-aes256-gcm-sha384",
        "h2-tls12-ecdhe-rsa-chacha20-poly1305",
    ] {
        let (flows, skipped) = imported(&capture(name));
        assert_eq!(skipped, Vec::<String>::new(), "{name}");
        assert_eq!((path(&flows[0]), path(&flows[1])), ("/one", "/two"), "{name}");
        let upload = &flows[1];
        assert_eq!(upload.request_body, "x".repeat(3000), "{name}");
        assert_eq!(upload.response_body, "POST /two 3000 bytes", "{name}");
        let (request, response) = (upload.row.request.as_ref().unwrap(), upload.row.response.as_ref().unwrap());
        assert_eq!(request.headers.get_str("cookie"), Some("a=1; b=2"), "{name}");
        assert_eq!((&*response.version, response.status), ("HTTP/2", 200), "{name}");
        assert_eq!(response.trailers.get_str("grpc-status"), Some("0"), "{name}");
        assert!(upload.row.url().starts_with("https://api.example.com:94"), "{}", upload.row.url());
        assert!(upload.row.timings.done > upload.row.timings.request_head, "{:?}", upload.row.timings);
    }
}

#[test]
fn streams_of_one_connection_are_separate_flows() {
    let (flows, _) = imported(&capture("h2-tls13-chacha20"));
    let paths: Vec<_> = flows.iter().map(path).collect();
    assert_eq!(paths, ["/one", "/two", "/early", "/long", "/reset"]);
    let early = &flows[2].row;
    assert_eq!((early.interim.len(), early.interim[0].status), (1, 103));
    let long = &flows[3];
    assert_eq!(
        long.row.response.as_ref().unwrap().headers.iter().filter(|(n, _)| n.starts_with(b"x-field-")).count(),
        300
    );
    assert_eq!(long.response_body, "long head");
    let reset = &flows[4];
    assert_eq!((reset.row.state, &reset.response_body[..]), (FlowState::Failed, &b"part"[..]));
    assert_eq!(reset.row.error.as_ref().unwrap().message, "the client reset the stream with the error code 8");
    assert_eq!(reset.row.response.as_ref().unwrap().body.missing, Some(MissingReason::Lost));
}

#[test]
fn http1_is_read_from_an_rsa_key_exchange_and_across_key_updates() {
    let (flows, skipped) = imported(&capture("http1-tls12-aes256-gcm-sha384"));
    assert_eq!((flows.len(), skipped), (1, Vec::new()));
    assert!(String::from_utf8_lossy(&flows[0].response_body).contains("Cipher    : AES256-GCM-SHA384"));
    // The client updates its keys twice before its request, and once while it reads: the server, too, when asked to.
    let (flows, skipped) = imported(&capture("http1-tls13-key-update"));
    assert_eq!((flows.len(), skipped), (1, Vec::new()));
    assert_eq!(flows[0].row.request.as_ref().unwrap().headers.get_str("host"), Some("api.example.com"));
    assert_eq!(flows[0].response_body, "firstlater");
}

#[test]
fn a_cut_capture_gives_what_it_has_and_the_reason() {
    let file = capture("h2-tls13-chacha20");
    let whole = imported(&file).0;
    let mut starts = Vec::new();
    let mut at = 0;
    while at < file.len() {
        starts.push(at);
        at += u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    let (mut cut_heads, mut cut_bodies) = (0, 0);
    for end in starts {
        let (flows, _) = imported(&file[..end]);
        for flow in &flows {
            let same = whole.iter().find(|w| path(w) == path(flow)).unwrap();
            assert!(same.response_body.starts_with(&flow.response_body) && same.row.id == flow.row.id);
            let response = flow.row.response.as_ref();
            cut_heads += usize::from(flow.row.state == FlowState::Cut && response.is_none());
            let missing = response.and_then(|r| r.body.missing);
            assert!(
                missing.is_some() || flow.row.state != FlowState::Complete || flow.response_body == same.response_body
            );
            cut_bodies += usize::from(missing == Some(MissingReason::Lost) && path(flow) != "/reset");
        }
    }
    assert!(cut_heads > 0 && cut_bodies > 0, "{cut_heads} without a response, {cut_bodies} with a part of it");
}
