//! Connecting over loopback: unreachable addresses, address filters, and error messages.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::egress::dns::ResolverOptions;

fn dialer(
    names: &[(&str, &[&str])],
    guard: impl AddressFilter + 'static,
    change: impl FnOnce(&mut DialerOptions),
) -> Dialer {
    let overrides =
        names.iter().map(|(name, ips)| ((*name).into(), ips.iter().map(|ip| ip.parse().unwrap()).collect())).collect();
    let mut options = DialerOptions::default();
    change(&mut options);
    Dialer::new(DnsResolver::new(ResolverOptions { overrides, ..ResolverOptions::default() }), Arc::new(guard), options)
}

/// A loopback address whose accept queue is full, so that further connections hang.
async fn dead(ip: &str, port: u16) -> (TcpListener, Vec<TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(ip.parse().unwrap(), port)).unwrap();
    let listener = socket.listen(0).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(addr)).await {
        queued.push(connected.unwrap());
        assert!(queued.len() < 64, "the queue never fills");
    }
    (listener, queued)
}

/// A listener on loopback; its port is most likely free on the other loopback addresses too.
async fn alive() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn at(host: &str, port: u16) -> Authority {
    format!("{host}:{port}").parse().unwrap()
}

#[tokio::test]
async fn a_connection_reports_its_addresses_and_times() {
    let (listener, port) = alive().await;
    let dialer = dialer(&[("a.example", &["127.0.0.1"])], AllowAllAddresses, |_| {});
    let mut times = DialTimes::default();
    let (mut io, info) = dialer.dial(&at("a.example", port), &[], &mut times).await.unwrap();
    let (mut far, from) = listener.accept().await.unwrap();
    far.write_all(b"hello").await.unwrap();
    drop(far);
    let mut got = Vec::new();
    io.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"hello");
    assert_eq!((info.peer, info.local, info.via), (SocketAddr::new([127, 0, 0, 1].into(), port), from, None));
    assert!(times.dns.is_some() && times.connect.is_some());
    assert!(io.tcp_ref().unwrap().nodelay().unwrap());
    assert!(SockRef::from(io.tcp_ref().unwrap()).keepalive().unwrap());
}

#[tokio::test]
async fn unresponsive_address_delays_the_connection_by_the_attempt_delay() {
    let (_listener, port) = alive().await;
    let _dead = dead("127.0.0.2", port).await;
    let dialer = dialer(&[("a.example", &["127.0.0.2", "127.0.0.1"])], AllowAllAddresses, |o| {
        o.attempt_delay = Duration::from_millis(60);
    });
    let begun = Instant::now();
    let (_, info) = dialer.dial(&at("a.example", port), &[], &mut DialTimes::default()).await.unwrap();
    assert_eq!(info.peer.ip(), IpAddr::from([127, 0, 0, 1]));
    assert!((Duration::from_millis(60)..Duration::from_secs(3)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_address_that_refuses_is_skipped_at_once() {
    let (_listener, port) = alive().await;
    let dialer = dialer(&[("a.example", &["127.0.0.3", "127.0.0.4", "127.0.0.1"])], AllowAllAddresses, |o| {
        o.attempt_delay = Duration::from_secs(30);
    });
    let (_, info) = dialer.dial(&at("a.example", port), &[], &mut DialTimes::default()).await.unwrap();
    assert_eq!(info.peer.ip(), IpAddr::from([127, 0, 0, 1]));
}

#[tokio::test]
async fn connect_error_lists_every_failed_address() {
    let (listener, port) = alive().await;
    drop(listener);
    let dialer = dialer(&[("a.example", &["127.0.0.1", "127.0.0.2"])], AllowAllAddresses, |_| {});
    let error = dialer.dial(&at("a.example", port), &[], &mut DialTimes::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Connect, Retryable::Yes));
    assert_eq!(
        error.message(),
        format!(
            "could not connect to a.example:{port}: 127.0.0.1:{port} refused the connection, 127.0.0.2:{port} refused \
             the connection"
        )
    );
}

#[tokio::test]
async fn connect_timeout_covers_all_attempts_and_lists_them() {
    let (listener, port) = alive().await;
    drop(listener);
    let _dead = dead("127.0.0.2", port).await;
    let dialer = dialer(&[("a.example", &["127.0.0.1", "127.0.0.2"])], AllowAllAddresses, |o| {
        o.connect_timeout = Duration::from_millis(150);
    });
    let error = dialer.dial(&at("a.example", port), &[], &mut DialTimes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectTimeout);
    let said = format!(
        "within 0.15 s (timeouts.connect): 127.0.0.1:{port} refused the connection, 127.0.0.2:{port} did not respond"
    );
    assert!(error.message().ends_with(&said), "{error}");
}

/// Denies 127.0.0.0/16 and private IPv4.
struct NotNear;

impl AddressFilter for NotNear {
    fn check(&self, addr: SocketAddr) -> Result<(), Error> {
        match addr.ip() {
            IpAddr::V4(ip) if ip.octets()[..2] == [127, 0] || ip.is_private() => {
                Err(Error::new(ErrorKind::Denied, format!("{addr} is not allowed")))
            }
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn the_filter_checks_every_address_of_a_name() {
    let port = alive().await.1;
    let _listener = TcpListener::bind(("127.1.0.1", port)).await.unwrap();
    let dialer = dialer(
        &[("inside.example", &["10.0.0.1", "127.0.0.1"]), ("both.example", &["127.0.0.1", "127.1.0.1"])],
        NotNear,
        |_| {},
    );
    for refused in ["inside.example", "127.0.0.1", "localhost.", "10.1.2.3", "[::ffff:127.0.0.1]"] {
        let error = dialer.dial(&at(refused, port), &[], &mut DialTimes::default()).await;
        // `localhost` has an IPv6 address too, which the filter allows and where nothing listens.
        let expected = if refused == "localhost." { ErrorKind::Connect } else { ErrorKind::Denied };
        assert_eq!(error.unwrap_err().kind(), expected, "{refused}");
    }
    let (_, info) = dialer.dial(&at("both.example", port), &[], &mut DialTimes::default()).await.unwrap();
    assert_eq!(info.peer.ip(), IpAddr::from([127, 1, 0, 1]));
}

/// Reports one address as Interflow's own.
struct Own(SocketAddr);

impl AddressFilter for Own {
    fn check(&self, addr: SocketAddr) -> Result<(), Error> {
        if addr == self.0 { Err(Error::new(ErrorKind::Loop, "this is the proxy itself")) } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_name_that_reaches_only_the_proxy_itself_is_a_loop() {
    let (_listener, port) = alive().await;
    let own = Own(SocketAddr::from(([127, 0, 0, 1], port)));
    let dialer = dialer(&[("us.example", &["127.1.0.2", "127.0.0.1"])], own, |_| {});
    let error = dialer.dial(&at("us.example", port), &[], &mut DialTimes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Loop, "{error}");
}

#[tokio::test]
async fn the_filter_checks_targets_of_upstream_proxies() {
    let proxy = "http://127.0.0.1:9".parse().unwrap();
    let dialer = dialer(&[], NotNear, |_| {});
    let error = dialer.dial(&at("10.0.0.1", 80), &[proxy], &mut DialTimes::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[test]
fn address_families_alternate_from_the_preferred_one() {
    let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
    for (given, expected) in [
        (&["::1", "::2", "::3", "1.1.1.1", "2.2.2.2"][..], &["::1", "1.1.1.1", "::2", "2.2.2.2", "::3"][..]),
        (&["1.1.1.1", "::1"], &["1.1.1.1", "::1"]),
        (&["1.1.1.1", "2.2.2.2", "::1"], &["1.1.1.1", "::1", "2.2.2.2"]),
        (&["::ffff:1.1.1.1"], &["1.1.1.1"]),
    ] {
        let turns: Vec<_> =
            filter_addresses(&ips(given), 80, &AllowAllAddresses).unwrap().0.iter().map(SocketAddr::ip).collect();
        assert_eq!(turns, ips(expected));
    }
}
