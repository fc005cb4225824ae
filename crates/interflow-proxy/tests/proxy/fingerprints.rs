//! Fingerprints of TLS, HTTP/2 and requests, and the client's process, are recorded.

use interflow_testkit::Origin;

use crate::support::{Proxy, inside};

#[tokio::test]
async fn fingerprints_of_each_protocol_are_recorded() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let h2 = proxy.h2(&origin.authority()).await;
    assert_eq!(h2.get(&origin.url("/a")).await.unwrap().status, 200);
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/b")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let flows = proxy.flows(2).await;
    let [ja4, opening, ja4h] = flows[0].fingerprints.each_ref().map(|f| f.as_deref().unwrap_or_default());
    assert!(ja4.starts_with("t13d") && ja4.contains("h2_"), "{ja4}");
    assert_eq!(opening, "4:1048576|16711681|0|m,s,a,p", "the habits of the test kit's client");
    assert!(ja4h.starts_with("ge20nn"), "{ja4h}");
    let [ja4, opening, ja4h] = &flows[1].fingerprints;
    assert!(ja4.as_deref().is_some_and(|f| f.contains("h1_")) && opening.is_none(), "{ja4:?} {opening:?}");
    // Only `Host`.
    assert_eq!(ja4h.as_deref(), Some("ge11nn010000_4a823118b9ba_000000000000_000000000000"));
}

#[tokio::test]
async fn client_process_is_recorded_if_configured() {
    let origin = Origin::http().start().await;
    for asked in [true, false] {
        let proxy = Proxy::start(|c| c.proxy.processes = asked).await;
        assert_eq!(proxy.get(&origin.url("/")).await.status, 200);
        let found = proxy.flow().await.process;
        let here = cfg!(target_os = "linux") && asked;
        assert_eq!(found.as_ref().map(|(pid, _)| *pid), here.then(std::process::id), "{found:?}");
    }
}
