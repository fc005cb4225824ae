//! Tests of the ledger and of reports.

use std::fs;
use std::time::Duration;

use super::*;

const KEEP: Duration = Duration::from_secs(30 * 86_400);

fn account(key: &str, team: &str, model: &str, tags: &[(&str, &str)]) -> SpendAccount {
    SpendAccount {
        key: Some(key.into()),
        user: None,
        team: (!team.is_empty()).then(|| team.into()),
        organisation: None,
        provider: "openai".into(),
        model: Some(model.into()),
        tags: Arc::new(tags.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()),
    }
}

fn dollars(n: u64) -> UsageSums {
    UsageSums { requests: 1, input_tokens: 10, micro_dollars: n * 1_000_000, ..UsageSums::default() }
}

fn ask(by: &str) -> SpendQuery {
    SpendQuery::parse(Some(by), None, None).unwrap()
}

/// Each row as `group dollars`.
fn lines(report: &SpendReport) -> Vec<String> {
    let group = |row: &SpendRow| row.group.values().cloned().collect::<Vec<_>>().join("/");
    report.rows.iter().map(|row| format!("{} {}", group(row), row.dollars)).collect()
}

#[test]
fn spend_is_summed_by_columns_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("spend");
    let ledger = SpendLedger::open(folder.clone(), KEEP);
    ledger.record(account("ann", "search", "gpt-5", &[("project", "a"), ("env", "test")]), dollars(1));
    ledger.record(account("bob", "search", "gpt-5", &[("project", "b")]), dollars(2));
    ledger.write();
    let ledger = SpendLedger::open(folder.clone(), KEEP);
    ledger.record(account("ann", "search", "o3", &[("project", "a")]), dollars(4));
    ledger.record(account("eve", "", "o3", &[]), dollars(8));
    for (by, rows) in [
        ("key", vec!["eve 8", "ann 5", "bob 2"]),
        ("team", vec![" 8", "search 7"]),
        ("model", vec!["o3 12", "gpt-5 3"]),
        ("key,model", vec!["eve/o3 8", "ann/o3 4", "bob/gpt-5 2", "ann/gpt-5 1"]),
        ("tag", vec![" 8", "project=a 5", "project=b 2", "env=test 1"]),
        ("tag:project", vec![" 8", "a 5", "b 2"]),
        ("organisation", vec![" 15"]),
    ] {
        let report = ledger.report(&ask(by)).unwrap();
        assert_eq!(lines(&report), rows, "{by}");
        assert_eq!((report.total.dollars, report.total.sums.requests), (15.0, 4), "each request once");
    }
    let by_day = ledger.report(&ask("day")).unwrap();
    assert_eq!(lines(&by_day), [format!("{} 15", today())]);
    let csv = ledger.report(&ask("team,key")).unwrap().to_csv();
    let rows: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(rows[0], "team,key,requests,estimated,input_tokens,output_tokens,cached_tokens,unpriced,usd");
    assert_eq!(rows[1..3], [",eve,1,0,10,0,0,0,8.000000", "search,ann,2,0,20,0,0,0,5.000000"]);
}

#[test]
fn a_day_that_the_clock_returns_to_goes_on_with_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = SpendLedger::open(dir.path().to_owned(), KEEP);
    for n in 1..=3 {
        ledger.record(account("ann", "", "o3", &[]), dollars(n));
        ledger.forget_days();
    }
    let total = ledger.report(&ask("key")).unwrap().total;
    assert_eq!((total.sums.requests, total.dollars), (3, 6.0));
    let file = fs::read_to_string(dir.path().join(format!("{}.jsonl", today()))).unwrap();
    assert!(file.contains("\"requests\":3"), "{file}");
}

#[test]
fn cells_are_quoted_and_never_formulas() {
    for (text, cell) in [("a", "a"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("=1+1", "'=1+1"), ("@x,", "\"'@x,\"")]
    {
        assert_eq!(csv_cell(text), cell);
    }
}

#[test]
fn days_are_selected_and_removed_after_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"{"provider":"openai","model":"o3","requests":1,"estimated":0,"input_tokens":1,"output_tokens":0,"cached_tokens":0,"micro_dollars":1000000,"unpriced":0}"#;
    for day in ["2020-01-31", "2020-02-01", "2020-02-29", "2020-03-01"] {
        fs::write(dir.path().join(format!("{day}.jsonl")), format!("{line}\n")).unwrap();
    }
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let read = |since, until| {
        let query = SpendQuery::parse(Some("day"), Some(since), Some(until)).unwrap();
        SpendReport::read(dir.path(), &query).unwrap()
    };
    assert_eq!(lines(&read("2020-02", "2020-02")), ["2020-02-01 1", "2020-02-29 1"]);
    assert_eq!(read("2020-01-31", "2020-03-01").total.sums.requests, 4);
    for (since, until, says) in [(Some("soon"), None, "since: `soon`"), (Some("2020-02"), Some("2020-01"), "is after")]
    {
        assert!(SpendQuery::parse(None, since, until).unwrap_err().contains(says));
    }
    assert!(SpendQuery::parse(Some("key,colour"), None, None).unwrap_err().contains("`colour`"));
    let ledger = SpendLedger::open(dir.path().to_owned(), KEEP);
    ledger.record(account("ann", "", "o3", &[]), dollars(1));
    ledger.write();
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [format!("{}.jsonl", today()).as_str(), "notes.txt"]);
}

#[test]
fn a_broken_file_of_today_is_set_aside_and_one_of_the_past_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(format!("{}.jsonl", today())), "{\n").unwrap();
    let ledger = SpendLedger::open(dir.path().to_owned(), KEEP);
    assert!(dir.path().join(format!("{}.broken", today())).exists());
    ledger.record(account("ann", "", "o3", &[]), dollars(1));
    assert_eq!(ledger.report(&ask("key")).unwrap().total.dollars, 1.0);
    fs::write(dir.path().join("2020-01-01.jsonl"), "{\n").unwrap();
    let query = SpendQuery::parse(None, Some("2020-01-01"), None).unwrap();
    let e = ledger.report(&query).unwrap_err().to_string();
    assert!(e.contains("2020-01-01.jsonl, line 1"), "{e}");
}

#[test]
fn made_up_tags_cannot_fill_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = SpendLedger::open(dir.path().to_owned(), KEEP);
    for i in 0..10_050 {
        ledger.record(account("ann", "search", "o3", &[("n", &i.to_string())]), dollars(1));
    }
    let report = ledger.report(&ask("tag")).unwrap();
    assert_eq!(report.rows.len(), 10_001);
    assert_eq!(lines(&ledger.report(&ask("team")).unwrap()), ["search 10050"], "nothing is lost");
}
