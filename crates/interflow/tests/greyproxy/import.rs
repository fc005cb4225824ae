//! `interflow import greyproxy`: rules, credentials and traffic of Greyproxy's database.

use serde_json::Value;

use super::{database, interflow, said};

/// An installation into which a Greyproxy database was imported.
struct Imported {
    folder: tempfile::TempDir,
    home: tempfile::TempDir,
    report: String,
}

impl Imported {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        database::make(folder.path());
        let mut imported = Self { folder, home: tempfile::tempdir().unwrap(), report: String::new() };
        imported.report = imported.import();
        imported
    }

    fn import(&self) -> String {
        let db = self.folder.path().join("greyproxy.db");
        self.say(&["import", "greyproxy", db.to_str().unwrap(), "--host", "INTERNAL=intern.test"])
    }

    fn say(&self, args: &[&str]) -> String {
        said(interflow(self.home.path(), args).output().unwrap())
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).unwrap()
    }
}

#[test]
fn an_import_reports_what_it_took_and_what_it_skipped() {
    let report = Imported::new().report;
    for line in [
        "  3 rules",
        "  3 credentials with their placeholders",
        "  7 flows of recorded traffic",
        "from 2 exchanges",
        "1 rule that had expired",
        "1 rule of a session",
        "rule 4: it applies to unknown-127.0.0.1",
        "1 conversation: Interflow rebuilds them",
        "1 pending request",
        "1 endpoint rule",
        "there is no decoder `cobol`",
        "`no host` is no host",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
}

#[test]
fn a_second_import_adds_nothing() {
    let again = Imported::new().import();
    assert!(again.contains("0 flows of recorded traffic (tag:greyproxy), 7 already present"), "{again}");
    assert!(
        again.contains("0 credentials with their placeholders, each bound to its hosts, 3 already present"),
        "{again}"
    );
}

#[test]
fn imported_exchanges_become_a_conversation() {
    let imported = Imported::new();
    let talk = imported.say(&["conversations", "show", "last", "--full"]);
    for words in ["What does the checkout cost?", "Nine coins.", "And with tax?", "Ten coins.", "claude-code"] {
        assert!(talk.contains(words), "{words}: {talk}");
    }
    assert_eq!(imported.say(&["conversations", "list", "--format", "jsonl"]).lines().count(), 1);
}

#[test]
fn imported_websockets_are_told_apart_and_unseen_traffic_is_marked() {
    let list = Imported::new().say(&["flows", "list", "--format", "jsonl"]);
    let flows: Vec<Value> = list.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(flows.iter().filter(|f| f["kind"] == "websocket").count(), 2, "an hour later it is another one: {list}");
    assert!(list.contains("denied") && list.contains("unseen:non_http_after_tls"), "{list}");
}

#[test]
fn imported_rules_keep_their_patterns_ports_and_expiry() {
    let rules = Imported::new().file("approvals.json");
    for words in ["claude*", "*.example.com", "8000-8999", "2100-01-01T00:00:00Z", "evil.test"] {
        assert!(rules.contains(words), "{words}: {rules}");
    }
}

#[test]
fn imported_credentials_are_encrypted_anew() {
    let secrets = Imported::new().file("secrets.json");
    assert!(secrets.contains("GITHUB_TOKEN") && !secrets.contains("imported"), "{secrets}");
}

#[test]
fn credentials_that_cannot_be_decrypted_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    database::make(folder.path());
    std::fs::write(folder.path().join("session.key"), [8; 32]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let report = said(interflow(home.path(), &["import", "greyproxy", path, "--no-traffic"]).output().unwrap());
    assert!(report.contains("3 credentials: ") && report.contains("does not decrypt them"), "{report}");
    assert!(
        report.contains("0 credentials with their placeholders") && report.contains("recorded traffic (--no-traffic)"),
        "{report}"
    );
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.key");
    std::fs::write(&file, [8; 32]).unwrap();
    let out = interflow(folder.path(), &["import", "greyproxy", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
}
