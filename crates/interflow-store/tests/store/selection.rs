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
    queries_find_flows_by_tags_times_and_the_calls_they_carried,
    pruning_deletes_what_a_query_selects,
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
    let at = Timestamp::from_micros(5);
    let (transport, authority) = (interflow_types::EntryKind::Connect, "a.test:443".parse().unwrap());
    let new = FlowRecord::new(interflow_types::FlowId::new(at), at, transport, Scheme::Https, authority);
    let tunnel = FlowRecord { kind: FlowKind::Tunnel, state: FlowState::Complete, ..new.clone() };
    let request = RequestRecord { path: "/".into(), version: "HTTP/2".into(), ..RequestRecord::default() };
    let error = ErrorRecord { kind: "upstream_tls".into(), blame: "upstream".into(), message: "it has expired".into() };
    let upstream = UpstreamRecord { version: "HTTP/1.1".into(), ..UpstreamRecord::default() };
    let (request, upstream, error) = (Some(request), Some(upstream), Some(error));
    for row in [tunnel, FlowRecord { state: FlowState::Complete, request, upstream, error, ..new }] {
        for text in ["error:expired", "-error:expired", "version:1.1", "version:*", "\"a.test:443\"", "url:https"] {
            let query = Query::parse(text).unwrap();
            let live = query.evaluate(&row.summary(at));
            assert!(live == interflow_query::Tristate::NotYet || live == query.evaluate(&row), "{text}: {live:?}");
        }
    }
}

fn queries_find_flows_by_tags_times_and_the_calls_they_carried(kind: &StoreKind) {
    let (store, flows) = filled(kind);
    let change = FlowAnnotation { add_tags: vec!["Checkout".into(), "redacted".into()], ..FlowAnnotation::default() };
    store.annotate(flows[3].id, change).unwrap();
    let call = |n: usize, model: &str, input: u64| ExchangeRow {
        flow: flows[n].id,
        part: 0,
        conversation: "c".into(),
        started: Timestamp::now(),
        leaf: None,
        agent: "Coder".into(),
        model: model.into(),
        provider: "anthropic".into(),
        used: TokenUsage { exchanges: 1, input, output: 10, ..TokenUsage::default() },
        failed: false,
        facts: String::new(),
    };
    // The largest counts are summed up without an overflow.
    let exchanges = vec![call(1, "Claude-x", 100), call(2, "gpt-y", 5), call(4, "claude-z", i64::MAX as u64)];
    store.save_update(ConversationUpdate { exchanges, ..ConversationUpdate::default() }).unwrap();
    for (query, n) in [
        ("tag:checkout", 1),
        ("tag:check*", 1),
        ("-tag:checkout", 59),
        ("is:redacted", 1),
        ("-is:redacted", 59),
        ("time:>-1h", 60),
        ("-time:>-1h", 0),
        ("time:<-1h", 0),
        ("model:claude-x", 1),
        ("model:claude*", 2),
        ("-model:claude*", 58),
        ("provider:anthropic agent:coder", 3),
        ("tokens:110", 1),
        ("tokens:<100", 1),
        ("host:*.test tag:*", 1),
        ("method:po* user:nobody", 0),
    ] {
        assert_eq!(found(&store, query), n, "{query}");
    }
}

fn pruning_deletes_what_a_query_selects(kind: &StoreKind) {
    let (store, _) = filled(kind);
    // By SQL alone, by reading rows, and by bodies.
    for (query, n, left) in
        [("host:odd.test", 30, 30), ("header.host:api.test path:/item/2", 6, 24), ("body:\"number 8.\"", 1, 23)]
    {
        let query = Query::parse(query).unwrap();
        assert_eq!(store.prune(&query).unwrap(), n);
        assert_eq!((store.count(&query).unwrap(), store.count(&Query::all()).unwrap()), (0, left));
    }
    let stopped = store.count_while(&Query::parse("header.host:api.test").unwrap(), &mut || ControlFlow::Break(()));
    assert!(matches!(stopped, Err(StoreError::Cancelled)), "{stopped:?}");
}
