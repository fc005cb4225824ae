//! Differences between two flows.

use interflow_archive::diff::{BodyDiff, DiffSide, FlowDiff};
use interflow_archive::text::TextStyle;
use interflow_store::FlowWithBodies;

use super::{exchange, gzipped};

fn text(before: &FlowWithBodies, after: &FlowWithBodies) -> String {
    let mut out = Vec::new();
    FlowDiff::new(before, after).write(&mut out, TextStyle::default()).unwrap();
    String::from_utf8(out).unwrap()
}

fn with_response(body: &[u8]) -> FlowWithBodies {
    exchange("GET", "/", &[], b"", body)
}

#[test]
fn equal_flows_do_not_differ() {
    let a = exchange("POST", "/x", &[("A", "1"), ("B", "2")], b"x", b"{}");
    let b = exchange("POST", "/x", &[("b", "2"), ("a", "1")], b"x", b"{}");
    assert!(FlowDiff::new(&a, &b).is_empty());
    assert_eq!(text(&a, &b), "");
}

#[test]
fn request_line_status_and_headers_are_diffed() {
    let a = exchange("GET", "/a", &[("Same", "1"), ("X", "1"), ("X", "2"), ("Gone", "1")], b"", b"");
    let mut b = exchange("POST", "/b", &[("Same", "1"), ("x", "1"), ("x", "3"), ("New", "\x1b")], b"", b"");
    b.row.response.as_mut().unwrap().status = 404;
    assert_eq!(
        text(&a, &b),
        "head\n  - method: GET\n  + method: POST\n  - url: https://api.example.com/a\n  + url: https://api.example.com/b\n  \
         - status: 200\n  + status: 404\nrequest headers\n  - x: 2\n  + x: 3\n  - gone: 1\n  + new: \\u{1b}\n"
    );
}

#[test]
fn json_is_compared_by_structure() {
    let a = with_response(
        br#"{"model": "a", "messages": [{"role": "user", "content": "hi"}], "n": 1, "same": {"x": [1]}}"#,
    );
    let b = with_response(
        br#"{"same":{"x":[1]},"model":"b","messages":[{"role":"user","content":"hi"},{"role":"assistant"}],"t":null}"#,
    );
    assert_eq!(
        text(&a, &b),
        "response body\n  - model: \"a\"\n  + model: \"b\"\n  + messages[1]: {\"role\":\"assistant\"}\n  - n: 1\n  + t: null\n"
    );
    let first = with_response(b"[1, 2, 3]");
    let inserted = with_response(b"[1, 9, 2, 3]");
    assert_eq!(text(&first, &inserted), "response body\n  + [1]: 9\n");
}

#[test]
fn equal_content_in_different_codings_has_no_body_diff() {
    let mut a = with_response(&gzipped(b"text"));
    a.row.response.as_mut().unwrap().headers.append("Content-Encoding", "gzip").unwrap();
    let diff = FlowDiff::new(&a, &with_response(b"text"));
    assert_eq!((diff.response_body, diff.response_headers.len()), (BodyDiff::Same, 1));
}

#[test]
fn texts_are_compared_by_line() {
    let lines = |changed: &str| {
        let mut all: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        all[9] = changed.to_owned();
        all.join("\n")
    };
    let diff = FlowDiff::new(&with_response(lines("a\nb").as_bytes()), &with_response(lines("b\nc").as_bytes()));
    let BodyDiff::Lines { lines } = diff.response_body else { panic!("{diff:?}") };
    let shown: Vec<_> = lines.iter().map(|l| (l.side, l.text.as_str())).collect();
    use DiffSide::{After, Before, Both, Gap};
    assert_eq!(
        shown,
        [
            (Gap, "6"),
            (Both, "6"),
            (Both, "7"),
            (Both, "8"),
            (Before, "a"),
            (Both, "b"),
            (After, "c"),
            (Both, "10"),
            (Both, "11"),
            (Both, "12"),
            (Gap, "7"),
        ]
    );
}

#[test]
fn binary_bodies_are_compared_by_size() {
    let (a, b) = (with_response(b"\xff\x00"), with_response(b"\xff"));
    assert_eq!(FlowDiff::new(&a, &b).response_body, BodyDiff::Binary { before: 2, after: 1 });
    assert_eq!(text(&a, &b), "response body\n  differs: 2 bytes, then 1\n");
}

#[test]
fn diff_of_long_texts_without_common_lines_is_bounded() {
    let many = |prefix: &str| (0..5000).map(|n| format!("{prefix}{n}\n")).collect::<String>();
    let diff = FlowDiff::new(&with_response(many("a").as_bytes()), &with_response(many("b").as_bytes()));
    let BodyDiff::Lines { lines } = diff.response_body else { panic!("no lines") };
    assert_eq!(lines.len(), 10_000);
}
