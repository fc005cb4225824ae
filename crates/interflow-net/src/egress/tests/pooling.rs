//! Which connections are reused, for which routes, and for how long.

use super::*;
use interflow_types::ErrorKind;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn routes_that_differ_in_anything_share_no_connection() {
    let origin = Origin::answering(ANSWER).await;
    let base = origin.route();
    let by_name =
        UpstreamRoute { authority: format!("localhost:{}", origin.addr.port()).parse().unwrap(), ..base.clone() };
    let served = |user: Option<&str>, client_connection| UpstreamRoute {
        isolation: Isolation { user: user.map(Into::into), client_connection },
        ..base.clone()
    };
    let resolved_by = |server: &str| UpstreamRoute {
        resolver: Some(RouteResolver { server: server.into(), resolver: DnsResolver::new(ResolverOptions::default()) }),
        ..base.clone()
    };
    let routes = [
        base.clone(),
        by_name,
        UpstreamRoute { connect_to: Some(origin.addr.into()), ..base.clone() },
        served(None, Some(1)),
        served(Some("1"), None),
        served(Some("1"), Some(1)),
        served(Some("2"), Some(1)),
        resolved_by("https://a.test/dns-query"),
        resolved_by("https://b.test/dns-query"),
        UpstreamRoute { isolation: served(Some("1"), Some(1)).isolation, ..resolved_by("https://a.test/dns-query") },
        UpstreamRoute { tls: profile(), ..base.clone() },
        UpstreamRoute { protocol: UpstreamProtocol::Http1, ..base.clone() },
        UpstreamRoute { absolute_form: true, ..base.clone() },
        UpstreamRoute { absolute_form: true, ..served(None, Some(1)) },
        UpstreamRoute { via: Arc::new([format!("http://{}", origin.addr).parse().unwrap()]), ..base.clone() },
        UpstreamRoute { via: Arc::new([format!("http://u:p@{}", origin.addr).parse().unwrap()]), ..base.clone() },
    ];
    let egress = egress();
    for round in 0..2 {
        for (n, route) in routes.iter().enumerate() {
            let (_, probe) = fetch(&egress, route).await;
            assert_eq!(probe.reused(), round == 1, "route {n}");
        }
    }
    assert_eq!(origin.accepted(), routes.len());
    let keys: std::collections::HashSet<_> = routes.iter().map(|route| route.key_for(route.protocol)).collect();
    assert_eq!(keys.len(), routes.len());
    let twin = UpstreamRoute { via: base.via.iter().cloned().collect(), ..base.clone() };
    assert_eq!(twin.key_for(twin.protocol), base.key_for(base.protocol));
}

#[tokio::test]
async fn users_whose_keys_have_the_same_hash_share_no_connection() {
    let origin = Origin::answering(ANSWER).await;
    let served = |user: &str| UpstreamRoute {
        isolation: Isolation { user: Some(user.into()), client_connection: None },
        ..origin.route()
    };
    let pool = pool::ConnectionPool::new(PoolLimits::default(), EgressShared::new(None));
    let [alice, bob, again] = ["alice", "bob", "alice"].map(|user| {
        let every_hash = 7;
        pool.find_or_create(&served(user), UpstreamProtocol::Auto, every_hash)
    });
    assert!(!Arc::ptr_eq(&alice, &bob));
    assert!(Arc::ptr_eq(&alice, &again));
}

/// Sends this many concurrent requests and reads their responses.
async fn at_once(egress: &UpstreamClient, route: &UpstreamRoute, n: usize) {
    let all = futures_util::future::join_all((0..n).map(|_| async {
        let mut probe = UpstreamProbe::new();
        probe.send(egress, route, get(route)).await.unwrap()
    }));
    for answer in soon(all).await {
        assert_eq!(text(answer.body).await, "ok");
    }
}

#[tokio::test]
async fn idle_connections_are_bounded_per_host_and_in_total() {
    let (a, b) = (Origin::answering(ANSWER).await, Origin::answering(ANSWER).await);
    let pool = PoolLimits { idle_per_host: 4, idle_total: 6, ..PoolLimits::default() };
    let egress = egress_with(EgressOptions { pool, ..EgressOptions::default() }, None);
    at_once(&egress, &a.route(), 8).await;
    assert_eq!(egress.idle_connections(), 4);
    at_once(&egress, &b.route(), 8).await;
    assert_eq!(egress.idle_connections(), 6);
    // The connections idle longest were evicted.
    let (_, probe) = fetch(&egress, &b.route()).await;
    assert!(probe.reused());
}

#[tokio::test]
async fn connections_expire_by_age_and_idle_time() {
    let origin = Origin::answering(ANSWER).await;
    for pool in [
        PoolLimits { idle_timeout: Duration::from_secs(30), ..PoolLimits::default() },
        PoolLimits { max_lifetime: Duration::from_secs(30), ..PoolLimits::default() },
    ] {
        let egress = egress_with(EgressOptions { pool, ..EgressOptions::default() }, None);
        fetch(&egress, &origin.route()).await;
        assert!(fetch(&egress, &origin.route()).await.1.reused());
        pass(Duration::from_secs(31)).await;
        assert!(!fetch(&egress, &origin.route()).await.1.reused());
    }
}

#[tokio::test]
async fn the_origins_keep_alive_timeout_is_respected() {
    let origin =
        Origin::answering("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=9\r\nContent-Length: 2\r\n\r\nok").await;
    let egress = egress();
    for _ in 0..2 {
        assert!(!fetch(&egress, &origin.route()).await.1.reused(), "it may close within a second");
    }
}

#[tokio::test]
async fn dead_and_expired_idle_connections_are_swept() {
    let origin = Origin::new(|n, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(ANSWER.as_bytes()).await.unwrap();
        // The first one dies, the second stays open.
        if n == 1 {
            read_head(&mut stream).await;
        }
    })
    .await;
    let pool = PoolLimits { idle_timeout: Duration::from_secs(3600), ..PoolLimits::default() };
    let egress = egress_with(EgressOptions { pool, ..EgressOptions::default() }, None);
    at_once(&egress, &origin.route(), 2).await;
    assert_eq!(egress.idle_connections(), 2);
    // Sweeps find the dead connection long before the other one is outdated.
    while egress.idle_connections() == 2 {
        pass(Duration::from_secs(5)).await;
    }
    assert_eq!(egress.idle_connections(), 1);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(egress.idle_connections(), 0);
}

#[tokio::test]
async fn a_limit_per_host_queues_requests() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (open.clone(), most.clone());
    let origin = Origin::new(move |_, mut stream| {
        let (now, peak) = (now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            while read_head(&mut stream).await.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                stream.write_all(ANSWER.as_bytes()).await.unwrap();
            }
            now.fetch_sub(1, Ordering::Relaxed);
        }
    })
    .await;
    let egress = egress_with(EgressOptions::default(), Some(2));
    at_once_reading(&egress, &origin.route(), 12).await;
    assert_eq!((origin.accepted(), most.load(Ordering::Relaxed)), (2, 2));
}

async fn at_once_reading(egress: &UpstreamClient, route: &UpstreamRoute, n: usize) {
    let all = futures_util::future::join_all((0..n).map(|_| fetch(egress, route)));
    assert!(soon(all).await.iter().any(|(_, probe)| probe.timings.blocked > Some(0)));
}

#[tokio::test]
async fn waiting_for_a_connection_times_out() {
    let origin = Origin::answering("").await;
    let options = EgressOptions { pool_timeout: Duration::from_millis(30), ..EgressOptions::default() };
    let egress = egress_with(options, Some(1));
    let route = origin.route();
    let (mut first, mut second) = (UpstreamProbe::new(), UpstreamProbe::new());
    let stuck = first.send(&egress, &route, get(&route));
    let waiting = second.send(&egress, &route, get(&route));
    tokio::select! {
        biased;
        _ = stuck => panic!("this origin never answers"),
        waited = soon(waiting) => assert_eq!(waited.unwrap_err().kind(), ErrorKind::PoolTimeout),
    }
    // The slot is free again once the first request was cancelled.
    let mut third = UpstreamProbe::new();
    let again = tokio::time::timeout(Duration::from_millis(100), third.send(&egress, &route, get(&route))).await;
    assert!(again.is_err(), "it got a connection and waits for the answer that does not come");
    assert_eq!(origin.accepted(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_evicted_for_another_worker() {
    let origin = Origin::answering(ANSWER).await;
    let shared = EgressShared::new(Some(1));
    let worker = || UpstreamClient::new(EgressOptions::default(), dialer(), shared.clone());
    let (one, two) = (worker(), worker());
    fetch(&one, &origin.route()).await;
    assert_eq!(one.idle_connections(), 1);
    fetch(&two, &origin.route()).await;
    assert_eq!((one.idle_connections(), two.idle_connections()), (0, 1));
}
