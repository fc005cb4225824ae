//! Export and import of JSON lines: nothing is lost.

use bytes::Bytes;
use interflow_archive::jsonl::JsonlWriter;
use interflow_archive::{ArchiveFormat, FlowExporter};
use interflow_store::{
    FlowWithBodies, OriginalRecord, OriginalRequestRecord, OriginalResponseRecord, RequestRecord, ResponseRecord,
};
use proptest::prelude::*;

use super::{body_row, exchange, export, gzipped, headers, imported, samples};

#[test]
fn jsonl_round_trips() {
    let file = export(ArchiveFormat::Jsonl, &samples());
    assert_eq!(file.iter().filter(|b| **b == b'\n').count(), samples().len());
    let samples = imported(None, &file).0;
    let again = export(ArchiveFormat::Jsonl, &samples);
    assert_eq!(file, again);
    assert_eq!(imported(None, &gzipped(&again)), (samples, Ok(vec![])));
}

#[test]
fn invalid_line_is_reported_with_its_number() {
    let mut file = export(ArchiveFormat::Jsonl, &samples()[..2]);
    file.extend_from_slice(b"\n{\"interflow\": 1}\n");
    let (flows, report) = imported(None, &file);
    assert_eq!(flows.len(), 2);
    assert_eq!(
        report.unwrap_err(),
        "line 4 column 16: no flow of Interflow: missing field `flow` (2 flows before it were imported)"
    );
    let newer = String::from_utf8(file).unwrap().replacen("{\"interflow\":1,", "{\"interflow\":9,", 1);
    let error = imported(None, newer.as_bytes()).1.unwrap_err();
    assert_eq!(error, "line 1 column 1: written by a newer Interflow (version 9 of the format): update this one");
}

#[test]
fn flow_with_injectable_header_bytes_is_refused() {
    let line = String::from_utf8(export(ArchiveFormat::Jsonl, &samples()[..1])).unwrap();
    for (sound, unsound, problem) in [
        ("\"method\":\"GET\"", "\"method\":\"G T\"", "flow.request.method is not a method"),
        ("\"path\":\"/p", "\"path\":\"p", "flow.request.path begins with no slash"),
        ("\"path\":\"/p", "\"path\":\"/\\r\\np", "has a space or control character"),
        ("\"Host\"", "\"Host:\"", "flow.request.headers: \"Host:\": a header name may only hold"),
        ("\"*/*\"", "\"a\\r\\nB: c\"", "a header value may not hold CR, LF or NUL"),
        ("\"status\":200", "\"status\":20", "flow.response.status: 20 is not a status code"),
        ("\"reason\":\"Fine\"", "\"reason\":\"a\\nb\"", "flow.response.reason has a control character"),
    ] {
        assert!(line.contains(sound), "{sound}");
        let error = imported(None, line.replacen(sound, unsound, 1).as_bytes()).1.unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_round_trip(request in any::<Vec<u8>>(), response in any::<Vec<u8>>(), value in "[ -~é]{0,20}") {
        let flow = exchange("POST", "/x", &[("X", value.as_str())], &request, &response);
        let (back, _) = imported(None, &export(ArchiveFormat::Jsonl, std::slice::from_ref(&flow)));
        prop_assert_eq!(back, vec![flow]);
    }
}

/// A flow with an edited request and response: the former with its body, the latter only in its head.
pub(super) fn edited() -> FlowWithBodies {
    let mut flow = exchange("POST", "/sent", &[("Host", "api.example.com"), ("X-Tag", "new")], b"beta", b"back");
    let (request, response) = (flow.row.request.clone().unwrap(), flow.row.response.clone().unwrap());
    let request = RequestRecord {
        path: "/came".into(),
        headers: headers(&[("Host", "old.example.com"), ("X-Tag", "old")]),
        body: body_row(b"the alpha"),
        ..request
    };
    flow.row.original = Some(Box::new(OriginalRecord {
        request: Some(OriginalRequestRecord {
            url: "https://old.example.com/came".into(),
            head: request,
            body_edited: true,
        }),
        response: Some(OriginalResponseRecord {
            head: ResponseRecord { headers: headers(&[("X-Back", "raw")]), ..response },
            body_edited: false,
        }),
    }));
    flow.original_bodies[0] = Bytes::from_static(b"the alpha");
    flow.row.tags.push("edited".into());
    flow
}

fn lines(flow: &FlowWithBodies, originals: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = JsonlWriter { out: &mut out, originals };
    writer.flow(&flow.row, flow).unwrap();
    writer.finish().unwrap();
    out
}

#[test]
fn original_messages_are_exported_on_request_and_round_trip() {
    let flow = edited();
    let without = String::from_utf8(lines(&flow, false)).unwrap();
    assert!(!without.contains("original") && !without.contains("alpha"), "{without}");
    let with = lines(&flow, true);
    assert_eq!(imported(None, &with), (vec![flow], Ok(vec![])));
}

#[test]
fn original_message_with_injectable_header_bytes_is_refused() {
    let line = String::from_utf8(lines(&edited(), true)).unwrap();
    for (sound, unsound, problem) in [
        ("\"path\":\"/came", "\"path\":\"came", "flow.original.request.path begins with no slash"),
        ("\"url\":\"https://old", "\"url\":\"https://o\\r\\nld", "flow.original.request.url has a space"),
        ("\"raw\"", "\"a\\r\\nB: c\"", "flow.original.response.headers"),
    ] {
        assert!(line.contains(sound), "{sound}");
        let error = imported(None, line.replacen(sound, unsound, 1).as_bytes()).1.unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}
