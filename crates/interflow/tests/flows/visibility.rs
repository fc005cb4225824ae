//! `list`, `show`, `count`, `diff`.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_prints_newest_last_in_columns_without_colours_in_a_pipe() {
    let home = Home::filled().await;
    let table = home.flows(&["list"]).ok();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 5, "{table}");
    assert!(rows[0].starts_with("ID") && rows[0].contains("HOST AND PATH"), "{table}");
    for (row, words) in rows[1..].iter().zip([
        [" 204 ", "GET", "/status/204"],
        [" 404 ", "GET", "/status/404"],
        [" 200 ", "POST", "/echo"],
        [" 200 ", "GET", "/sse?count=3"],
    ]) {
        assert!(words.iter().all(|w| row.contains(w)), "{words:?} in {row}");
    }
    assert!(!table.contains('\u{1b}'), "{table:?}");
    assert_eq!(home.flows(&["list", "-n", "1"]).ok().lines().last(), rows.last().copied());
    let jsonl = lines(&home.flows(&["list", "--all", "--format", "jsonl"]).ok());
    assert_eq!(jsonl.len(), 4);
    assert!(jsonl.iter().all(|f| f["id"].is_string() && f["timings"].is_object()), "{jsonl:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_flows_names_the_query_that_was_probably_meant() {
    let home = Home::filled().await;
    for (wrong, meant) in [("status>=400", "status:>=400"), ("status:404 or status:405", "status:404 OR status:405")] {
        let said = home.flows(&["list", wrong]);
        assert!(said.err.contains(&format!("did you mean '{meant}'?")), "{said:?}");
        assert!(!said.out.contains("did you mean"), "{said:?}");
    }
    let found = home.flows(&["list", "status:404,405"]);
    assert!(found.out.contains("404") && !found.err.contains("did you mean"), "{found:?}");
    // What was probably meant finds nothing either.
    for wrong in ["status:418", "status>=500"] {
        let nothing = home.flows(&["list", wrong]);
        assert!(!nothing.err.contains("did you mean"), "{nothing:?}");
    }
    let listed = home.flows(&["list", "-n", "1"]).ok();
    let short = listed.lines().last().and_then(|row| row.split_whitespace().next()).unwrap();
    assert_eq!(home.flows(&["count", &format!("id:{short}")]).ok().trim(), "1", "{short}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_select_and_negated_terms_need_no_quoting() {
    let home = Home::filled().await;
    for (words, count) in [
        (&["status:404"][..], 1),
        (&["-path:/status"], 2),
        (&["path:/status", "-status:404"], 1),
        (&["-header.content-type:json", "-path:/sse"], 2),
        (&["body:needle"], 1),
        (&["host:nowhere.test"], 0),
        (&[], 4),
    ] {
        assert_eq!(home.flows(&[&["count"], words].concat()).ok().trim(), count.to_string(), "{words:?}");
        let listed = home.flows(&[&["list", "--format", "jsonl"], words].concat()).ok();
        assert_eq!(listed.lines().count(), count, "{words:?}");
    }
    assert_eq!(home.flows(&["list", "-path:/sse", "-n", "1", "--format", "jsonl"]).ok().lines().count(), 1);
    let wrong = home.flows(&["list", "stats:404"]).fails(2);
    assert!(wrong.contains("^^^^^") && wrong.contains("did you mean 'status'"), "{wrong}");
    assert!(home.flows(&["list", "--help"]).ok().contains("interflow help query"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_is_shown_with_heads_body_messages_and_timings() {
    let home = Home::filled().await;
    let id =
        lines(&home.flows(&["list", "--format", "jsonl", "method:POST"]).ok())[0]["id"].as_str().unwrap().to_owned();
    for name in [id.as_str(), &id[18..], &id[18..].to_lowercase(), "last-1"] {
        let shown = home.flows(&["show", name]).ok();
        for word in
            [&id, "> POST /echo HTTP/1.1", "< HTTP/1.1 200", "\"b\": \"needle\"", "client", "upstream", "first byte at"]
        {
            assert!(shown.contains(word), "{word} in {shown}");
        }
    }
    let stream = home.flows(&["show", "last"]).ok();
    assert!(stream.contains("3 messages") && stream.contains("{\"n\":2}"), "{stream}");
    assert_eq!(home.flows(&["show", &id, "--body", "request"]).ok(), r#"{"a":1,"b":"needle"}"#);
    let json: Value = serde_json::from_str(&home.flows(&["show", &id, "--format", "json"]).ok()).unwrap();
    assert_eq!(json["id"], id.as_str());
    assert!(home.flows(&["show", &id, "--format", "curl"]).ok().starts_with("curl "));
    assert!(home.flows(&["show", &id, "--format", "raw"]).ok().starts_with("POST /echo HTTP/1.1\r\n"));
    home.flows(&["show", &id, "--format", "pdf"]).fails(2);
    assert!(home.flows(&["show", "ZZZZ"]).fails(1).contains("no flow ID"));
    assert!(home.flows(&["show", "last-9"]).fails(1).contains("no flow"));
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_output_pipe_is_not_an_error() {
    let home = Home::filled().await;
    for words in [&["list", "--all", "--format", "jsonl"][..], &["export", "--format", "jsonl"], &["show", "last"]] {
        let mut child =
            home.command(&[&["flows"], words].concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said: Said = child.wait_with_output().unwrap().into();
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_flows_are_compared() {
    let home = Home::filled().await;
    let diff = home.flows(&["diff", "last-3", "last-2"]).ok();
    assert!(diff.contains("- status: 204") && diff.contains("+ status: 404"), "{diff}");
    let json: Value = serde_json::from_str(&home.flows(&["diff", "last-3", "last-2", "--json"]).ok()).unwrap();
    assert!(json["head"].as_array().unwrap().iter().any(|c| c["at"] == "status"), "{json}");
    let same = home.flows(&["diff", "last", "last"]);
    assert!(same.err.contains("no difference"), "{same:?}");
    same.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_a_recording_report_it() {
    let home = Home::new().await;
    for words in
        [&["list"][..], &["show", "last"], &["count"], &["check"], &["stats"], &["export"], &["prune", "--all"]]
    {
        let said = home.flows(words).fails(1);
        assert!(said.contains("nothing has been recorded"), "{words:?}: {said}");
    }
    home.flows(&["dance"]).fails(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_list_is_paged_and_ends_with_the_latest_flow() {
    let home = Home::new().await;
    let entry = |i: usize| {
        serde_json::json!({
            "startedDateTime": format!("2026-01-01T{:02}:{:02}:{:02}.000Z", i / 3600, i / 60 % 60, i % 60), "time": 1,
            "request": {"method": "GET", "url": format!("http://many.test/{i}"), "httpVersion": "HTTP/1.1", "headers": [],
                "cookies": [], "queryString": [], "headersSize": -1, "bodySize": 0},
            "response": {"status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "headers": [], "cookies": [],
                "content": {"size": 0, "mimeType": ""}, "redirectURL": "", "headersSize": -1, "bodySize": 0},
            "cache": {}, "timings": {"send": 0, "wait": 1, "receive": 0},
        })
    };
    let entries: Vec<Value> = (0..5_020).map(entry).collect();
    let har =
        serde_json::json!({"log": {"version": "1.2", "creator": {"name": "t", "version": "1"}, "entries": entries}});
    let file = home.path("many.har");
    std::fs::write(&file, har.to_string()).unwrap();
    home.flows(&["import", &file]).ok();
    let paths = |words: &[&str]| -> Vec<String> {
        let listed = home.flows(&[&["list", "--format", "jsonl"], words].concat()).ok();
        lines(&listed).iter().map(|f| f["request"]["path"].as_str().unwrap().to_owned()).collect()
    };
    let all = paths(&["--all"]);
    assert_eq!((all.len(), all[0].as_str(), all[5_019].as_str()), (5_020, "/0", "/5019"));
    assert_eq!(paths(&["-n", "5010"]), all[10..]);
    assert_eq!(paths(&["-n", "5020"]), all);
    assert_eq!(paths(&["-n", "1000000000"]), all);
    assert_eq!(paths(&["-n", "2"]), all[5_018..]);
}
