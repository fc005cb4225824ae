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

proptest! {
    #[test]
    fn any_bytes_survive(request in any::<Vec<u8>>(), response in any::<Vec<u8>>(), value in "[ -~é]{0,20}") {
        let flow = exchange("POST", "/x", &[("X", value.as_str())], &request, &response);
        let (back, _) = imported(None, &export(Format::Jsonl, std::slice::from_ref(&flow)));
        prop_assert_eq!(back, vec![flow]);
    }
}
