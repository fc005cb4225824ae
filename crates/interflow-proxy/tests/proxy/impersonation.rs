//! Impersonated fingerprints. A second proxy between the first one and the origin records what is sent.

use interflow_proxy::config::{FingerprintRule, ProxyServerConfig};

use crate::support::config;

fn like(config: &mut ProxyServerConfig, hosts: &str, like: &str) {
    config.upstream.fingerprint.push(FingerprintRule { hosts: vec![hosts.into()], profile: like.into() });
}

#[test]
fn invalid_fingerprint_is_reported_with_its_key() {
    for (target, told) in [
        ("netscape", "upstream.fingerprint[0].profile: `netscape` is not a fingerprint: use mirror, chrome"),
        ("ja3:771,4865-1,0,29,0", "cipher 1 is not known"),
    ] {
        let mut config = config();
        like(&mut config, "*", target);
        let error = interflow_proxy::check(&config).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let mut config = config();
    like(&mut config, "[", "none");
    assert!(interflow_proxy::check(&config).unwrap_err().to_string().contains("upstream.fingerprint[0].hosts"));
}

#[cfg(not(feature = "impersonate"))]
#[test]
fn build_without_impersonation_refuses_fingerprints_with_a_remedy() {
    for target in ["chrome", "mirror", "ja3:771,4865-49195,0-10-11-13-23-43-51,29,0"] {
        let mut config = config();
        like(&mut config, "*", target);
        let error = interflow_proxy::check(&config).unwrap_err().to_string();
        assert!(error.contains("upstream.fingerprint[0].profile") && error.contains("FEATURES=impersonate"), "{error}");
    }
    let mut config = config();
    like(&mut config, "*", "none");
    interflow_proxy::check(&config).unwrap();
}

#[cfg(feature = "impersonate")]
mod with_the_feature {
    use std::sync::Arc;

    use interflow_codec::fingerprint::PROFILES;
    use interflow_proxy::config::UpstreamProxyRule;
    use interflow_testkit::Origin;
    use interflow_types::{
        BoxFuture, Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead, Stage, UpstreamOverrides,
    };

    use super::*;
    use crate::support::{Kept, Proxy, inside};

    /// An origin, and the proxy that records its clients.
    async fn watched() -> (Origin, Proxy) {
        let origin = Origin::https().start().await;
        let watcher = Proxy::trusting(&[&origin], |_| ()).await;
        (origin, watcher)
    }

    /// A proxy that uses the recording proxy as its upstream proxy.
    fn before(watcher: &Proxy, stages: Vec<Arc<dyn Stage>>, change: impl FnOnce(&mut ProxyServerConfig)) -> Proxy {
        let pem = watcher.home.path().join("watcher.pem");
        std::fs::write(&pem, watcher.engine.ca().certificate_pem()).unwrap();
        Proxy::build(&[], stages, |c| {
            c.upstream.extra_ca.push(pem);
            let via = vec![format!("http://{}", watcher.addr())];
            c.upstream.proxy.push(UpstreamProxyRule { hosts: vec!["*".into()], via });
            change(c);
        })
    }

    /// JA4 and Akamai fingerprint of a flow's downstream side.
    fn shown(kept: &Kept) -> (String, Option<String>) {
        (kept.fingerprints[0].clone().unwrap(), kept.fingerprints[1].clone())
    }

    #[tokio::test]
    async fn configured_fingerprint_profile_is_sent_to_its_hosts() {
        for profile in PROFILES.iter() {
            let (origin, watcher) = watched().await;
            let proxy = before(&watcher, Vec::new(), |c| {
                like(c, "elsewhere.test", "mirror");
                like(c, "*", profile.name);
            });
            let client = proxy.h2(&origin.authority()).await;
            for _ in 0..2 {
                assert_eq!(client.get(&origin.url("/")).await.unwrap().status, 200);
            }
            let seen = watcher.flows(2).await;
            assert_eq!(shown(&seen[0]), (profile.ja4.to_owned(), Some(profile.akamai.to_owned())), "{}", profile.name);
            assert_eq!(seen[0].connection, seen[1].connection, "{}: pooled", profile.name);
            assert_eq!(proxy.flows(2).await[0].imitated.as_deref(), Some(profile.name));
        }
    }

    #[tokio::test]
    async fn a_mirrored_client_keeps_its_fingerprint_and_shares_no_connection() {
        let (origin, watcher) = watched().await;
        let proxy = before(&watcher, Vec::new(), |c| like(c, "*", "mirror"));
        for _ in 0..2 {
            let client = proxy.h2(&origin.authority()).await;
            assert_eq!(client.get(&origin.url("/")).await.unwrap().status, 200);
            assert_eq!(client.get(&origin.url("/")).await.unwrap().status, 200);
        }
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
        let (near, far) = (proxy.flows(5).await, watcher.flows(5).await);
        for (i, (near, far)) in near.iter().zip(&far).enumerate() {
            // The last hello is so short that it is padded.
            if i < 4 {
                assert_eq!(shown(near), shown(far), "{:?}", near.imitated);
            }
            assert!(near.imitated.as_deref().is_some_and(|f| f.starts_with("mirror")), "{:?}", near.imitated);
        }
        let connections: Vec<u64> = far.iter().map(|k| k.connection).collect();
        assert!(connections[0] == connections[1] && connections[2] == connections[3], "{connections:?}");
        assert!(connections[1] != connections[2] && connections[3] != connections[4], "{connections:?}");
    }

    /// Selects a fingerprint by the request's path.
    struct ByPath;

    impl Stage for ByPath {
        fn name(&self) -> &'static str {
            "by-path"
        }
        fn interest(&self, _: &Scope<'_>) -> Interest {
            Interest::of(Phase::Dial)
        }
        fn dial<'a>(&'a self, _: &'a mut Flow, head: Option<&'a RequestHead>, way: &'a mut Way) -> Step<'a, Verdict> {
            let path = head.map(|h| h.url.path.trim_start_matches('/').to_owned());
            way.fingerprint = path.filter(|p| !p.is_empty());
            let done: BoxFuture<'a, Verdict> = Box::pin(async { Verdict::Continue });
            Step::Later(done)
        }
    }

    #[tokio::test]
    async fn stage_selects_a_fingerprint_per_flow_without_sharing_connections() {
        let (origin, watcher) = watched().await;
        let proxy = before(&watcher, vec![Arc::new(ByPath)], |c| like(c, "*", "safari"));
        let client = proxy.h2(&origin.authority()).await;
        let order = ["/", "/firefox", "/none", "/mirror", "/", "/firefox", "/none", "/mirror"];
        for path in order {
            assert_eq!(client.get(&origin.url(path)).await.unwrap().status, 200, "{path}");
        }
        let (near, far) = (proxy.flows(8).await, watcher.flows(8).await);
        let ja4 = |i: usize| far[i].fingerprints[0].as_deref().unwrap();
        assert_eq!(ja4(0), "t13d2013h2_a09f3c656075_7f0f34a4126d");
        assert_eq!(ja4(1), "t13d1517h2_8daaf6152771_3cbfd9057e0d");
        assert_eq!(Some(ja4(3)), near[3].fingerprints[0].as_deref());
        for i in 0..4 {
            assert_eq!(far[i].connection, far[i + 4].connection, "{}", order[i]);
            assert!((0..i).all(|j| far[j].connection != far[i].connection), "{}", order[i]);
        }
        assert_eq!(near[2].imitated, None);
        let bad = client.get(&origin.url("/netscape")).await.unwrap();
        assert_eq!((bad.status, bad.header("x-interflow-error")), (500, Some("stage_failed")));
    }

    #[tokio::test]
    async fn invalid_certificates_are_refused_under_any_fingerprint() {
        let origin = Origin::https().start().await;
        for (target, danger, status) in [("chrome", false, 502), ("mirror", false, 502), ("chrome", true, 200)] {
            let proxy = Proxy::start(|c| {
                like(c, "*", target);
                c.upstream.danger_insecure = danger;
            })
            .await;
            let client = proxy.h2(&origin.authority()).await;
            let answer = client.get(&origin.url("/")).await.unwrap();
            assert_eq!(answer.status, status, "{target}");
            if !danger {
                assert_eq!(answer.header("x-interflow-error"), Some("upstream_certificate"), "{target}");
            }
        }
    }
}
