//! Tests of ledgers that share a database.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use super::*;

const KEEP: Duration = Duration::from_secs(30 * 86_400);

/// A table in memory, which may be away or lose its answers.
#[derive(Default)]
struct FakeDatabase {
    rows: Mutex<BTreeMap<(Date, String, String), UsageSums>>,
    is_away: AtomicBool,
    loses_answers: AtomicBool,
}

impl FakeDatabase {
    fn answer(&self) -> Result<(), String> {
        if self.is_away.load(SeqCst) { Err("no answer".into()) } else { Ok(()) }
    }
}

impl SpendDatabase for FakeDatabase {
    fn put(&self, day: Date, writer: &str, rows: &[(String, UsageSums)]) -> Result<(), String> {
        self.answer()?;
        for (account, sums) in rows {
            let mut table = self.rows.lock();
            let row = table.entry((day, writer.to_owned(), account.clone())).or_default();
            let (old, new) = (row.to_array(), sums.to_array());
            *row = UsageSums::from_array(std::array::from_fn(|i| old[i].max(new[i])));
        }
        if self.loses_answers.load(SeqCst) { Err("the connection ended".into()) } else { Ok(()) }
    }

    fn sums(&self, since: Date, until: Date, _: bool) -> Result<Vec<(Date, String, UsageSums)>, String> {
        self.answer()?;
        let rows = self.rows.lock();
        let of_days = rows.iter().filter(|((day, ..), _)| (since..=until).contains(day));
        Ok(of_days.map(|((day, _, account), sums)| (*day, account.clone(), *sums)).collect())
    }

    fn remove_before(&self, first: Date) -> Result<bool, String> {
        self.rows.lock().retain(|(day, ..), _| *day >= first);
        self.answer().map(|()| true)
    }
}

fn account(key: &str) -> SpendAccount {
    SpendAccount {
        key: Some(key.into()),
        user: None,
        team: None,
        organisation: None,
        provider: "openai".into(),
        model: Some("o3".into()),
        tags: Arc::default(),
    }
}

fn dollars(n: u64) -> UsageSums {
    UsageSums { requests: 1, micro_dollars: n * 1_000_000, ..UsageSums::default() }
}

/// The requests and dollars of a report of many years.
fn total(ledger: &SpendLedger) -> (u64, f64) {
    let query = SpendQuery::parse(None, Some("2000-01-01"), None).unwrap();
    let report = ledger.report(&query).unwrap();
    assert!(report.all_replicas);
    (report.total.sums.requests, report.total.dollars)
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// A ledger in this folder; it sends when it is asked to.
fn ledger(folder: &Path, database: &Arc<FakeDatabase>) -> Arc<SpendLedger> {
    SpendLedger::open_shared(folder, KEEP, Arc::clone(database) as _)
}

#[test]
fn replicas_see_the_sums_of_all_and_their_own_newest() {
    let (a, b, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Arc::default());
    let (a, b) = (ledger(a.path(), &database), ledger(b.path(), &database));
    a.record(account("ann"), dollars(1));
    b.record(account("ann"), dollars(2));
    assert_eq!(total(&b), (1, 2.0), "what the other one has not sent is not there yet");
    assert_eq!(total(&a), (2, 3.0));
    a.record(account("ann"), dollars(4));
    assert_eq!(total(&a), (3, 7.0));
    assert_eq!(total(&b), (3, 7.0));
    assert_eq!(database.rows.lock().len(), 2, "a row for each writer, day and account");
}

#[test]
fn an_outage_and_lost_answers_lose_nothing_and_count_nothing_twice() {
    let (home, database) = (tempfile::tempdir().unwrap(), Arc::<FakeDatabase>::default());
    let waiting = home.path().join("waiting");
    let first = ledger(home.path(), &database);
    first.record(account("ann"), dollars(1));
    first.send().unwrap();
    database.is_away.store(true, SeqCst);
    first.record(account("ann"), dollars(2));
    first.record(account("bob"), dollars(4));
    let error = first.report(&SpendQuery::parse(None, None, None).unwrap()).unwrap_err();
    assert!(matches!(&error, SpendError::Database(e) if e.contains("no answer") && e.contains("waiting")), "{error}");
    // The process ends, and so does its successor, whose own sums wait in a second file.
    drop(first);
    let second = ledger(home.path(), &database);
    second.record(account("ann"), dollars(8));
    second.write();
    assert!(second.send().is_err());
    drop(second);
    assert_eq!(files(&waiting), 2);
    // The database takes what it gets, but says so to nobody.
    database.is_away.store(false, SeqCst);
    database.loses_answers.store(true, SeqCst);
    assert!(ledger(home.path(), &database).send().is_err());
    database.loses_answers.store(false, SeqCst);
    let third = ledger(home.path(), &database);
    assert_eq!(total(&third), (4, 15.0));
    assert_eq!(files(&waiting), 0, "what was sent is removed");
    assert_eq!(total(&ledger(home.path(), &database)), (4, 15.0));
}

#[test]
fn a_day_that_the_clock_returns_to_keeps_what_was_sent() {
    let (home, database) = (tempfile::tempdir().unwrap(), Arc::<FakeDatabase>::default());
    let shared = ledger(home.path(), &database);
    shared.record(account("ann"), dollars(4));
    assert_eq!(total(&shared), (1, 4.0));
    shared.record(account("ann"), dollars(1));
    shared.forget_days();
    shared.record(account("ann"), dollars(2));
    assert_eq!(total(&shared), (3, 7.0));
    assert_eq!(files(&home.path().join("waiting")), 1, "what is sent of the day before it was forgotten is removed");
}

#[test]
fn a_copied_data_directory_counts_once() {
    let (home, copy, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Arc::default());
    let first = ledger(home.path(), &database);
    first.record(account("ann"), dollars(1));
    first.write();
    drop(first);
    let waiting = copy.path().join("waiting");
    fs::create_dir(&waiting).unwrap();
    for entry in fs::read_dir(home.path().join("waiting")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), waiting.join(entry.file_name())).unwrap();
    }
    assert_eq!(total(&ledger(home.path(), &database)), (1, 1.0));
    assert_eq!(total(&ledger(copy.path(), &database)), (1, 1.0));
}

#[test]
fn the_ledger_of_the_time_before_is_moved_once_as_far_as_it_is_kept() {
    let (home, database) = (tempfile::tempdir().unwrap(), Arc::<FakeDatabase>::default());
    let local = SpendLedger::open(home.path().to_owned(), KEEP);
    local.record(account("ann"), dollars(1));
    local.write();
    drop(local);
    let line = fs::read_to_string(home.path().join(format!("{}.jsonl", today()))).unwrap();
    let yesterday = today().yesterday().unwrap();
    fs::write(home.path().join(format!("{yesterday}.jsonl")), &line).unwrap();
    fs::write(home.path().join("2001-01-01.jsonl"), &line).unwrap();
    fs::write(home.path().join("notes.txt"), "mine").unwrap();
    // Removed by the first writer of a day, and not sent again by a late one.
    database.put("2001-01-02".parse().unwrap(), "gone", &[("{}".into(), dollars(1))]).unwrap();
    let shared = ledger(home.path(), &database);
    shared.record(account("ann"), dollars(2));
    assert_eq!(total(&shared), (3, 4.0), "two days of before and now");
    assert_eq!(total(&ledger(home.path(), &database)), (3, 4.0));
    let mut left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["notes.txt", "waiting"]);
}

#[test]
fn a_broken_file_is_set_aside_and_holds_up_nothing() {
    let (home, database) = (tempfile::tempdir().unwrap(), Arc::<FakeDatabase>::default());
    let waiting = home.path().join("waiting");
    fs::create_dir(&waiting).unwrap();
    fs::write(waiting.join(format!("{}.abc.jsonl", today())), "{\n").unwrap();
    let shared = ledger(home.path(), &database);
    shared.record(account("ann"), dollars(2));
    assert_eq!(total(&shared), (1, 2.0));
    assert!(waiting.join(format!("{}.abc.broken", today())).exists());
}
