//! Overviews agree with sums over the rows themselves, whatever happened to the rows.

use interflow_query::Query;
use interflow_store::*;
use proptest::prelude::*;

use super::*;

both_stores!(lists_name_what_stands_out, calls_of_models_are_summed_up_by_model, figures_agree_with_sums_over_the_rows,);

/// 2023-11-14 22:13:20 UTC.
const START: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;

fn options(from: Option<u64>, to: u64, buckets: usize) -> OverviewOptions {
    OverviewOptions { query: Query::all(), from, to, buckets, step: None, compare: true }
}

fn overview(store: &dyn FlowStore, options: &OverviewOptions) -> Overview {
    loop {
        let found = store.overview(options, &mut || std::ops::ControlFlow::Continue(())).unwrap();
        // A slow machine may need several calls for the first one.
        if found.indexing.is_none() {
            return found;
        }
    }
}

/// What a test flow is made from.
#[derive(Clone, Debug)]
struct Sample {
    /// Seconds after `START`.
    at: u64,
    host: u8,
    user: Option<u8>,
    status: Option<u16>,
    failed: bool,
    millis: u64,
    received: u16,
    tunnel: bool,
}

fn samples(most: usize) -> impl Strategy<Value = Vec<Sample>> {
    let one = (
        0u64..4000,
        0u8..9,
        proptest::option::of(0u8..3),
        proptest::option::of(prop_oneof![Just(200u16), Just(404), Just(500)]),
        any::<bool>(),
        0u64..50_000,
        any::<u16>(),
        any::<bool>(),
    );
    let sample = one.prop_map(|(at, host, user, status, failed, millis, received, tunnel)| Sample {
        at,
        host,
        user,
        status,
        failed: failed && status.is_none(),
        millis,
        received,
        tunnel: tunnel && status.is_none(),
    });
    proptest::collection::vec(sample, 1..most)
}

fn insert(store: &dyn FlowStore, sample: &Sample) -> interflow_types::FlowId {
    let started = Timestamp::from_micros(START + sample.at * SECOND);
    let id = interflow_types::FlowId::new(started);
    let authority = format!("host-{}.test:443", sample.host).parse().unwrap();
    let mut row = FlowRecord::new(id, started, EntryKind::Connect, Scheme::Https, authority);
    row.state = if sample.failed { FlowState::Failed } else { FlowState::Complete };
    row.user = sample.user.map(|u| format!("user-{u}").into());
    row.client.process = sample.user.map(|u| ProcessRecord { pid: 7, name: format!("program-{u}") });
    row.timings.done = Some(sample.millis * 1000);
    if sample.tunnel {
        row.kind = FlowKind::Tunnel;
        row.tunnel = Some(TunnelRecord { sent: 10, received: sample.received.into() });
    } else {
        row.request = Some(RequestRecord { method: "GET".into(), path: "/".into(), ..RequestRecord::default() });
        row.response = sample.status.map(|status| ResponseRecord {
            status,
            body: BodyRecord::partial(sample.received.into(), 0, Some(MissingReason::Capped)),
            ..ResponseRecord::default()
        });
    }
    if sample.failed {
        row.error = Some(ErrorRecord { kind: "timeout".into(), blame: "upstream".into(), message: String::new() });
    }
    let new = FlowWithBodies::new(row);
    assert!(store.insert(new).unwrap());
    id
}

/// The same figures, from the rows.
fn naive(store: &dyn FlowStore, from: u64, to: u64) -> FlowFigures {
    let all = store.list(&ListOptions { limit: usize::MAX, ..ListOptions::default() }).unwrap();
    let rows: Vec<_> = all.iter().filter(|r| (from..to).contains(&r.started.micros())).collect();
    let status = |r: &FlowRecord| r.response.as_ref().map_or(0, |r| r.status);
    let count = |wanted: &dyn Fn(&FlowRecord) -> bool| rows.iter().filter(|r| wanted(r)).count() as u64;
    let mut durations: Vec<u64> =
        rows.iter().filter(|r| r.kind == FlowKind::Http).filter_map(|r| r.duration()).collect();
    durations.sort_unstable();
    let percentile = |share: f64| {
        let rank = (share * durations.len() as f64).ceil() as usize;
        durations.get(rank.max(1) - 1).copied()
    };
    FlowFigures {
        requests: rows.len() as u64,
        client_errors: count(&|r| r.error.is_none() && (400..500).contains(&status(r))),
        server_errors: count(&|r| r.error.is_none() && status(r) >= 500),
        failed: count(&|r| r.error.is_some()),
        sent: rows.iter().map(|r| r.sizes().0).sum(),
        received: rows.iter().map(|r| r.sizes().1).sum(),
        p50: percentile(0.5),
        p95: percentile(0.95),
        p99: percentile(0.99),
    }
}

/// Asserts that figures are the same, and percentiles within their error.
fn assert_same(found: &FlowFigures, wanted: &FlowFigures) {
    for (found, wanted) in [(found.p50, wanted.p50), (found.p95, wanted.p95), (found.p99, wanted.p99)] {
        let (a, b) = (found.unwrap_or(u64::MAX), wanted.unwrap_or(u64::MAX));
        assert!(a.abs_diff(b) as f64 <= b as f64 * 0.02, "{found:?} for {wanted:?}");
    }
    let exact = |f: &FlowFigures| FlowFigures { p50: None, p95: None, p99: None, ..f.clone() };
    assert_eq!(exact(found), exact(wanted));
}

/// Asserts that an overview agrees with the rows: in total, before, and in each bucket.
fn assert_agrees(store: &dyn FlowStore, from: u64, to: u64, buckets: usize) {
    let found = overview(store, &options(Some(from), to, buckets));
    assert_same(&found.totals, &naive(store, from, to));
    let before = found.previous.as_ref().unwrap();
    assert_same(&before.totals, &naive(store, from - (to - from), from));
    for i in 0..found.series.requests.len() {
        let begin = from + i as u64 * found.step;
        let s = &found.series;
        let bucket = FlowFigures {
            requests: s.requests[i],
            client_errors: s.client_errors[i],
            server_errors: s.server_errors[i],
            failed: s.failed[i],
            sent: s.sent[i],
            received: s.received[i],
            p50: s.p50[i],
            p95: s.p95[i],
            p99: s.p99[i],
        };
        assert_same(&bucket, &naive(store, begin, (begin + found.step).min(to)));
    }
    let by_host: u64 = found.host_series.iter().flat_map(|s| &s.values).sum();
    assert_eq!(by_host, found.totals.requests);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn figures_agree_with_the_rows(
        flows in samples(60), from in 0u64..3000, length in 1u64..3000, buckets in 1usize..40,
    ) {
        let (_dir, store) = store(&RecordConfig::default());
        let ids: Vec<_> = flows.iter().map(|f| insert(&store, f)).collect();
        let (from, to) = (START + from * SECOND, START + (from + length) * SECOND);
        assert_agrees(&store, from, to, buckets);
        store.delete(&ids[..ids.len() / 3]).unwrap();
        assert_agrees(&store, from, to, buckets);
    }
}

fn a_sample(i: u64) -> Sample {
    Sample {
        at: i,
        host: (i % 7) as u8,
        user: None,
        status: Some(if i.is_multiple_of(10) { 404 } else { 200 }),
        failed: false,
        millis: i % 900,
        received: 100,
        tunnel: false,
    }
}

/// A store with several blocks, of which all but the last have been stored.
fn with_blocks(flows: u64) -> (tempfile::TempDir, SqliteStore, Vec<interflow_types::FlowId>) {
    let (dir, store) = store(&RecordConfig::default());
    let ids = (0..flows).map(|i| insert(&store, &a_sample(i))).collect();
    overview(&store, &options(None, START * 2, 10));
    assert!(stored_blocks(dir.path()) >= flows / 1024 - 1);
    (dir, store, ids)
}

fn stored_blocks(dir: &std::path::Path) -> u64 {
    let db = rusqlite::Connection::open(dir.join("flows.db")).unwrap();
    db.query_row("SELECT count(*) FROM flow_columns", [], |r| r.get::<_, i64>(0)).unwrap().unsigned_abs()
}

#[test]
fn stored_blocks_are_made_again_after_deletions() {
    let (dir, store, ids) = with_blocks(4000);
    let before = stored_blocks(dir.path());
    store.delete(&[ids[5], ids[1500]]).unwrap();
    assert_eq!(stored_blocks(dir.path()), before - 2);
    assert_agrees(&store, START + 3 * SECOND, START + 2000 * SECOND, 7);
    assert_eq!(stored_blocks(dir.path()), before);
    store.delete(&ids[..1200]).unwrap();
    assert_agrees(&store, START + 3 * SECOND, START + 2000 * SECOND, 7);
}

#[test]
fn retention_leaves_no_figures_of_deleted_flows() {
    let (dir, store, _) = with_blocks(3000);
    store.close();
    drop(store);
    let db = rusqlite::Connection::open(dir.path().join("flows.db")).unwrap();
    db.execute("UPDATE flows SET stored = stored - 7200000000 WHERE seq <= 1300", []).unwrap();
    drop(db);
    let age = interflow_types::units::HumanDuration(std::time::Duration::from_secs(3600));
    let store = SqliteStore::open(dir.path(), &RecordConfig { retention_age: age, ..RecordConfig::default() }).unwrap();
    let begun = std::time::Instant::now();
    while store.stats().unwrap().flows > 1700 {
        assert!(begun.elapsed().as_secs() < 60, "nothing expires");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let found = overview(&store, &options(None, START * 2, 10));
    assert_eq!((found.totals.requests, found.from), (1700, START + 1300 * SECOND));
}

#[test]
fn figures_survive_reopening_and_readers_see_them() {
    let (dir, store, _) = with_blocks(2500);
    let wanted = overview(&store, &options(Some(START), START + 2500 * SECOND, 5));
    store.close();
    drop(store);
    let again = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
    assert_eq!(overview(&again, &options(Some(START), START + 2500 * SECOND, 5)), wanted);
    let reader = SqliteStore::open_read(dir.path()).unwrap();
    assert_eq!(overview(&reader, &options(Some(START), START + 2500 * SECOND, 5)), wanted);
}

#[test]
fn a_flow_that_ends_late_is_counted_in_full() {
    let (dir, store) = store(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let running = flow("slow.test");
    let mut capture = recorder.begin(&running, Some(&request(&running, "GET", "/"))).unwrap();
    store.flush().unwrap();
    for i in 0..3000 {
        insert(&store, &a_sample(i));
    }
    let now = Timestamp::now().micros() + SECOND;
    let open = overview(&store, &options(Some(now - 3600 * SECOND), now, 4)).totals;
    assert_eq!((open.requests, open.server_errors, open.received), (1, 0, 0));
    let before = stored_blocks(dir.path());
    assert!(before > 0);
    capture.response(&running, &response(503));
    capture.data(Direction::Response, &Bytes::from_static(b"late"));
    capture.finish(&running, FlowOutcome::Complete);
    store.flush().unwrap();
    // The block that held it while it ran is no longer right.
    assert_eq!(stored_blocks(dir.path()), before - 1);
    let ended = overview(&store, &options(Some(now - 3600 * SECOND), now, 4)).totals;
    assert_eq!((ended.requests, ended.server_errors, ended.received), (1, 1, 4));
}

fn lists_name_what_stands_out(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    for i in 0..40 {
        insert(&*store, &Sample { user: Some((i % 2) as u8), ..a_sample(i) });
    }
    insert(&*store, &Sample { millis: 90_000, received: 60_000, host: 8, ..a_sample(41) });
    insert(&*store, &Sample { failed: true, status: None, ..a_sample(42) });
    store.flush().unwrap();
    let found = overview(&*store, &options(None, START * 2, 10));
    assert_eq!(found.from, START);
    assert!(found.previous.is_none(), "nothing precedes the oldest flow");
    assert_eq!(found.hosts.len(), 8);
    assert_eq!(found.hosts[0].requests, 7);
    assert_eq!(found.host_series.len(), 6);
    let users: Vec<_> = found.users.iter().map(|u| (u.name.as_deref(), u.requests)).collect();
    assert_eq!(users, [(Some("user-0"), 20), (Some("user-1"), 20)]);
    assert_eq!(found.processes[0].name.as_deref(), Some("program-0"));
    assert_eq!((found.errors[0].name.as_deref(), found.errors[0].requests), (Some("timeout"), 1));
    assert_eq!(found.statuses[0], StatusFigures { status: 200, requests: 37 });
    assert_eq!(found.slowest[0].duration, 90_000_000);
    assert_eq!(found.largest[0].response_size, 60_000);
    assert_eq!(found.largest.len(), 10);
}

#[test]
fn a_query_selects_the_flows_that_are_summed_up() {
    let (_dir, store, _) = with_blocks(1500);
    let query = Query::parse("host:host-3.test status:404").unwrap();
    let wanted = store.count(&query).unwrap();
    let found = overview(&store, &OverviewOptions { query, ..options(None, START * 2, 10) });
    assert!(wanted > 0);
    assert_eq!((found.totals.requests, found.totals.client_errors), (wanted, wanted));
    assert_eq!(found.hosts.len(), 1);
    assert!(found.sample.is_none());
}

#[test]
fn lists_of_a_span_of_time_are_the_same_with_blocks_and_without() {
    let (dir, store, ids) = with_blocks(4000);
    store.delete(&ids[1500..1510]).unwrap();
    let queries: Vec<Query> =
        ["time:2023-11-14T22:14Z..2023-11-14T22:15Z", "time:<2023-11-14T22:30Z status:404", "time:>2023-11-14T23:10Z"]
            .map(|q| Query::parse(q).unwrap())
            .into();
    let found = |store: &dyn FlowStore| -> Vec<(u64, Vec<_>)> {
        let list = |q: &Query| store.list(&ListOptions { query: q.clone(), limit: 5000, ..ListOptions::default() });
        queries.iter().map(|q| (store.count(q).unwrap(), list(q).unwrap().iter().map(|r| r.id).collect())).collect()
    };
    let with = found(&store);
    store.close();
    drop(store);
    rusqlite::Connection::open(dir.path().join("flows.db")).unwrap().execute("DELETE FROM flow_columns", []).unwrap();
    let without = found(&SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap());
    assert!(with.iter().all(|(count, list)| *count > 0 && list.len() as u64 == *count));
    assert_eq!(with, without);
}

fn calls_of_models_are_summed_up_by_model(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let exchange = |i: u64, model: &str| ExchangeRow {
        flow: insert(&*store, &a_sample(i)),
        part: 0,
        conversation: "c".into(),
        started: Timestamp::from_micros(START + i * SECOND),
        leaf: None,
        agent: "agent".into(),
        model: model.into(),
        provider: "provider".into(),
        used: TokenUsage { exchanges: 1, input: 100, output: 10, cost: 0.5, ..TokenUsage::default() },
        failed: false,
        facts: String::new(),
    };
    let exchanges = vec![exchange(1, "big"), exchange(5, "small"), exchange(7, "big"), exchange(20, "big")];
    store.flush().unwrap();
    store.save_update(ConversationUpdate { exchanges, ..ConversationUpdate::default() }).unwrap();
    let range = options(Some(START + 5 * SECOND), START + 25 * SECOND, 2);
    for query in ["", "host:*.test"] {
        let found = overview(&*store, &OverviewOptions { query: Query::parse(query).unwrap(), ..range.clone() });
        assert_eq!((found.llm.exchanges, found.llm.input, found.llm.cost), (3, 300, 1.5), "{query}");
        assert_eq!(found.previous.unwrap().llm.exchanges, 1, "{query}");
        assert_eq!(found.series.calls, [2, 1], "{query}");
        let models: Vec<_> = found.models.iter().map(|m| (m.name.as_deref(), m.used.exchanges)).collect();
        assert_eq!(models, [(Some("big"), 2), (Some("small"), 1)], "{query}");
        assert_eq!(found.model_series[0].tokens, [110, 110], "{query}");
    }
}

fn figures_agree_with_sums_over_the_rows(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    (0..200).for_each(|i| assert!(insert(&*store, &a_sample(i)).unix_millis() > 0));
    // Half of them are moved, and half of them may still wait.
    store.flush().unwrap();
    (200..400).for_each(|i| assert!(insert(&*store, &a_sample(i)).unix_millis() > 0));
    for (from, to) in [(START, START + 400 * SECOND), (START + 100 * SECOND, START + 300 * SECOND)] {
        assert_agrees(&*store, from, to, 7);
    }
    let query = Query::parse("host:host-3.test").unwrap();
    let wanted = store.count(&query).unwrap();
    let found = overview(&*store, &OverviewOptions { query, ..options(None, START * 2, 10) });
    assert!(wanted > 0 && found.totals.requests == wanted, "{wanted} {:?}", found.totals);
}
