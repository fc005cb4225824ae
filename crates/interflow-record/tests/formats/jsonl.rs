//! Lines out and in: nothing is lost.

use interflow_record::formats::Format;
use proptest::prelude::*;

use super::{exchange, export, gzipped, imported, samples};

#[test]
fn what_leaves_comes_back_the_same() {
    let file = export(Format::Jsonl, &samples());
    assert_eq!(file.iter().filter(|b| **b == b'\n').count(), samples().len());
    let samples = imported(None, &file).0;
    let again = export(Format::Jsonl, &samples);
    assert_eq!(file, again);
    assert_eq!(imported(None, &gzipped(&again)), (samples, Ok(vec![])));
}

#[test]
fn a_bad_line_is_named() {
    let mut file = export(Format::Jsonl, &samples()[..2]);
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
fn a_flow_that_could_split_a_head_is_refused() {
    let line = String::from_utf8(export(Format::Jsonl, &samples()[..1])).unwrap();
    for (sound, unsound, problem) in [
        ("\"method\":\"GET\"", "\"method\":\"G T\"", "flow.request.method is no method"),
        ("\"path\":\"/p", "\"path\":\"p", "flow.request.path begins with no slash"),
        ("\"path\":\"/p", "\"path\":\"/\\r\\np", "has a space or control character"),
        ("\"Host\"", "\"Host:\"", "flow.request.headers: \"Host:\": a header name may only hold"),
        ("\"*/*\"", "\"a\\r\\nB: c\"", "a header value may not hold CR, LF or NUL"),
        ("\"status\":200", "\"status\":20", "flow.response.status: 20 is no status code"),
        ("\"reason\":\"Fine\"", "\"reason\":\"a\\nb\"", "flow.response.reason has a control character"),
    ] {
        assert!(line.contains(sound), "{sound}");
        let error = imported(None, line.replacen(sound, unsound, 1).as_bytes()).1.unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_survive(request in any::<Vec<u8>>(), response in any::<Vec<u8>>(), value in "[ -~é]{0,20}") {
        let flow = exchange("POST", "/x", &[("X", value.as_str())], &request, &response);
        let (back, _) = imported(None, &export(Format::Jsonl, std::slice::from_ref(&flow)));
        prop_assert_eq!(back, vec![flow]);
    }
}
