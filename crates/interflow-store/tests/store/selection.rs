//! Lists, counts and searches by query.

use std::ops::ControlFlow;

use interflow_query::Query;
use interflow_store::*;

use super::*;

both_stores!(
    queries_find_rows_by_columns_by_matching_and_by_bodies,
    pages_are_contiguous_in_both_orders,
    search_reports_progress_and_can_be_cancelled,
    summary_matches_like_its_row_or_is_undecided,
);

fn filled(kind: &StoreKind) -> (TestStore, Vec<Flow>) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let flows = (0..60)
        .map(|i| {
            let host = if i % 2 == 0 { "even.test" } else { "odd.test" };
            exchange(
                &recorder,
                host,
                &format!("/item/{i}?q=x"),
                format!("body number {i}.").as_bytes(),
                &noise(i * 400, i as u64),
            )
        })
        .collect();
    store.flush().unwrap();
    (store, flows)
}

fn found(store: &TestStore, query: &str) -> usize {
    let options = ListOptions { query: Query::parse(query).unwrap(), limit: 1000, ..ListOptions::default() };
    let listed = store.list(&options).unwrap().len();
    assert_eq!(store.count(&options.query).unwrap(), listed as u64, "{query}");
    let mut searched = 0;
    store
        .search(&options.query, &|_| ControlFlow::Continue(()), &mut |_| {
            searched += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(searched, listed, "{query}");
    listed
}

fn queries_find_rows_by_columns_by_matching_and_by_bodies(kind: &StoreKind) {
    let (store, _) = filled(kind);
    for (query, n) in [
        ("", 60),
        ("host:even.test", 30),
        ("host:*.test -host:odd.test", 30),
        ("method:post status:200", 60),
        ("status:>=400", 0),
        ("path:/item/7", 1),
        ("host:odd.test path:/item/3", 6),
        ("resp.size:>20000", 9),
        ("client:10.0.0.0/8", 60),
        ("client:10.9.0.0/16", 0),
        ("req.type:application/json", 60),
        ("header:host", 60),
        ("req.body:\"number 42.\"", 1),
        ("body:\"number 42.\" host:odd.test", 0),
        ("is:http -is:error", 60),
        ("url:even.test/item", 30),
    ] {
        assert_eq!(found(&store, query), n, "{query}");
    }
}

fn pages_are_contiguous_in_both_orders(kind: &StoreKind) {
    let (store, flows) = filled(kind);
    for order in [ListOrder::Newest, ListOrder::Oldest] {
        let mut ids: Vec<_> = flows.iter().map(|f| f.id).collect();
        if order == ListOrder::Newest {
            ids.reverse();
        }
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.list(&ListOptions { order, after, limit: 7, ..ListOptions::default() }).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            seen.extend(page.iter().map(|r| r.id));
        }
        assert_eq!(seen, ids);
    }
}

fn search_reports_progress_and_can_be_cancelled(kind: &StoreKind) {
    let (store, _) = filled(kind);
    let query = Query::parse("body:number").unwrap();
    let last = std::sync::Mutex::new(None);
    store
        .search(
            &query,
            &|p| {
                *last.lock().unwrap() = Some(p);
                ControlFlow::Continue(())
            },
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap();
    assert_eq!(last.lock().unwrap().map(|p| p.total), Some(60));
    let stopped = store.search(&query, &|_| ControlFlow::Break(()), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(stopped, Err(StoreError::Cancelled)));
    let mut n = 0;
    store
        .search(&query, &|_| ControlFlow::Continue(()), &mut |_| {
            n += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(n, 1);
}

fn summary_matches_like_its_row_or_is_undecided(kind: &StoreKind) {
    let (store, flows) = filled(kind);
    let row = store.get(flows[8].id).unwrap();
    let summary = row.summary(Timestamp::now());
    for (text, selected) in [
        ("host:even.test method:post", true),
        ("path:/item/8 query:q=x", true),
        ("status:2xx -is:open is:answered", true),
        ("resp.size:3200", true),
        ("client:10.1.2.3", true),
        ("host:odd.test", false),
        ("is:error", false),
    ] {
        let query = Query::parse(text).unwrap();
        assert_eq!((query.matches(&row), query.matches(&summary)), (selected, selected), "{text}");
    }
    let by_header = Query::parse("header.host:api.test").unwrap();
    assert!(by_header.matches(&row) && !by_header.matches(&summary));
}
