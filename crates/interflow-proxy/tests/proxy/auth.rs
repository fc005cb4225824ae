//! Proxy authentication, on every request and in SOCKS5.

use interflow_testkit::{Origin, ProxyLogin, client};
use interflow_types::ErrorKind;

use crate::support::{Proxy, get, inside, request};

const RIGHT: ProxyLogin<'_> = ProxyLogin { user: "ada", password: "enigma" };

async fn guarded() -> Proxy {
    Proxy::asking(&["ada"], |c| c.auth.realm = "the house".into()).await
}

#[tokio::test]
async fn request_can_be_retried_after_407_on_the_same_connection() {
    let origin = Origin::http().start().await;
    let proxy = guarded().await;
    let mut wire = proxy.connect().await;
    wire.send(request("POST", &origin.url("/echo"), "Content-Length: 3\r\n") + "one").await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!(answer.status, 407);
    assert_eq!(answer.header("proxy-authenticate"), Some("Basic realm=\"the house\", charset=\"UTF-8\""));
    let login = format!("Content-Length: 3\r\nProxy-Authorization: {}\r\n", RIGHT.basic());
    wire.send(request("POST", &origin.url("/echo"), &login) + "two").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().text(), "two");
    let flows = proxy.flows(2).await;
    assert_eq!((flows[0].error(), flows[0].status), (Some(ErrorKind::Unauthorized), Some(407)));
    assert_eq!(flows[1].user.as_deref(), Some("ada"));
}

#[tokio::test]
async fn connect_can_be_retried_after_407_on_the_same_connection() {
    let origin = Origin::http().start().await;
    let proxy = guarded().await;
    let mut wire = proxy.connect().await;
    let refused = client::connect_on(&mut wire, &origin.authority(), None).await.unwrap();
    assert_eq!(refused.status, 407);
    assert_eq!(client::connect_on(&mut wire, &origin.authority(), Some(RIGHT)).await.unwrap().status, 200);
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn proxy_credentials_are_never_forwarded_to_an_origin() {
    let origin = Origin::http().start().await;
    let proxy = guarded().await;
    let mut wire = proxy.connect().await;
    let login = format!("proxy-authorization: {}\r\nAuthorization: Basic b3JpZ2lu\r\n", RIGHT.basic());
    wire.send(request("GET", &origin.url("/"), &login)).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let mut tunnel = client::connect_tunnel(proxy.addr(), &origin.authority(), Some(RIGHT)).await.unwrap();
    let careless = format!("GET / HTTP/1.1\r\nHost: a\r\nProxy-Authorization: {}\r\n\r\n", RIGHT.basic());
    tunnel.send(careless).await.unwrap();
    assert_eq!(tunnel.answer().await.unwrap().status, 200);
    for seen in origin.requests() {
        assert_eq!(seen.header("proxy-authorization"), None);
    }
    assert_eq!(origin.requests()[0].header("authorization"), Some("Basic b3JpZ2lu"));
    let unguarded = Proxy::start(|_| ()).await;
    let mut wire = unguarded.connect().await;
    wire.send(request("GET", &origin.url("/"), &login)).await.unwrap();
    wire.answer().await.unwrap();
    assert_eq!(origin.requests()[2].header("proxy-authorization"), None, "nor when nobody asked for them");
}

#[tokio::test]
async fn every_request_of_a_connection_is_authenticated() {
    let origin = Origin::http().start().await;
    let proxy = guarded().await;
    let mut wire = proxy.connect().await;
    let login = format!("Proxy-Authorization: {}\r\n", RIGHT.basic());
    wire.send(request("GET", &origin.url("/"), &login)).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    wire.send(get(&origin.url("/"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 407);
    let wrong = ProxyLogin { password: "guess", ..RIGHT };
    wire.send(request("GET", &origin.url("/"), &format!("Proxy-Authorization: {}\r\n", wrong.basic()))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 407);
    for crooked in ["Basic", "Basic !!!", "Bearer abc", "Basic YWRh"] {
        let field = format!("Proxy-Authorization: {crooked}\r\n");
        wire.send(request("GET", &origin.url("/"), &field)).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 407, "{crooked}");
    }
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn socks5_requires_the_password() {
    let origin = Origin::http().start().await;
    let proxy = guarded().await;
    let open = client::socks5_tunnel(proxy.addr(), "localhost", origin.port(), None).await;
    assert!(open.is_err(), "no method without a password is offered");
    let wrong = ProxyLogin { password: "guess", ..RIGHT };
    assert!(client::socks5_tunnel(proxy.addr(), "localhost", origin.port(), Some(wrong)).await.is_err());
    let mut wire = client::socks5_tunnel(proxy.addr(), "localhost", origin.port(), Some(RIGHT)).await.unwrap();
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(proxy.flow().await.user.as_deref(), Some("ada"));
}

#[tokio::test]
async fn an_ephemeral_credential_names_its_program_even_if_the_proxy_has_no_users() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| {}).await;
    let password = proxy.engine.issue_credential("exec");
    for (user, name) in [("exec", Some("exec")), ("ada", None)] {
        let login = ProxyLogin { user, password: &password };
        let mut wire = proxy.connect().await;
        for _ in 0..2 {
            let field = format!("Proxy-Authorization: {}\r\n", login.basic());
            wire.send(request("GET", &origin.url("/"), &field)).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, 200);
        }
        let mut wire = client::socks5_tunnel(proxy.addr(), "localhost", origin.port(), Some(login)).await.unwrap();
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200);
        let flows = proxy.flows(if name.is_some() { 3 } else { 6 }).await;
        let last: Vec<_> = flows[flows.len() - 3..].iter().map(|f| f.user.as_deref()).collect();
        assert_eq!(last, [name; 3]);
    }
}
