//! Requests with impersonated fingerprints: the HTTP/2 preface, the order of fields, and separate connections per
//! fingerprint.

use interflow_codec::fingerprint::{ConnectionFingerprint, Http2Fingerprint, PROFILES};
use interflow_codec::http2_preface::{PrefaceReader, PrefaceState};
use interflow_types::Host;
use parking_lot::Mutex;

use super::*;
use crate::ca::CertificateAuthority;
use crate::io::IoStream;
use crate::tls::{Alpn, accept_tls};

/// What an origin received, one entry per connection.
type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// An origin that records what it receives. Over HTTP/1 it responds; over HTTP/2 it only sends its settings.
async fn listening(offered: Alpn) -> (Origin, UpstreamRoute, Sent) {
    let dir = tempfile::tempdir().unwrap();
    let ca = CertificateAuthority::open_or_create(dir.path()).unwrap();
    let tls = ca.server_tls(&Host::parse("localhost").unwrap(), offered);
    let sent = Sent::default();
    let keep = Arc::clone(&sent);
    let origin = Origin::new(move |i, stream| {
        let (tls, keep) = (tls.clone(), Arc::clone(&keep));
        async move {
            let Ok((io, client)) = accept_tls(stream.into(), &tls, Duration::from_secs(5)).await else { return };
            keep.lock().resize(i + 1, Vec::new());
            listen(io, client.alpn.as_deref() == Some("h2"), |bytes| keep.lock()[i].extend_from_slice(bytes)).await;
        }
    })
    .await;
    let trusting = TlsProfileOptions {
        platform_roots: false,
        extra_ca_pem: vec![ca.certificate_pem().as_bytes().to_vec()],
        ..TlsProfileOptions::default()
    };
    let route = UpstreamRoute {
        scheme: Scheme::Https,
        authority: format!("localhost:{}", origin.addr.port()).parse().unwrap(),
        tls: TlsProfile::new(trusting).unwrap(),
        ..origin.route()
    };
    (origin, route, sent)
}

async fn listen(mut io: IoStream, h2: bool, mut keep: impl FnMut(&[u8])) {
    let mut buf = [0; 4096];
    if h2 {
        io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        io.flush().await.unwrap();
    }
    while let Ok(n @ 1..) = io.read(&mut buf).await {
        keep(&buf[..n]);
        if !h2 && buf[..n].ends_with(b"\r\n\r\n") {
            io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh1").await.unwrap();
            io.flush().await.unwrap();
        }
    }
}

fn like(route: &UpstreamRoute, name: &str) -> UpstreamRoute {
    let fingerprint = PROFILES.iter().find(|p| p.name == name).unwrap().fingerprint();
    UpstreamRoute { tls: route.tls.with_fingerprint(name, fingerprint, false).unwrap(), ..route.clone() }
}

/// Sends a request that gets no response, and waits until its head was received.
async fn ask(egress: &UpstreamClient, route: &UpstreamRoute, sent: &Sent) -> Vec<u8> {
    let mut probe = UpstreamProbe::new();
    let answer = probe.send(egress, route, request(route, Method::GET, "/", FIELDS, Body::Empty));
    let mut answer = std::pin::pin!(answer);
    let arrived = async {
        loop {
            let all = sent.lock().last().cloned().unwrap_or_default();
            if matches!(PrefaceReader::default().feed(&all), PrefaceState::Done(_)) {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(async {
        tokio::select! {
            answered = &mut answer => panic!("{:?}", answered.err()),
            all = arrived => all,
        }
    })
    .await
}

const FIELDS: &[(&str, &str)] =
    &[("Accept", "*/*"), ("X-Own", "1"), ("User-Agent", "test"), ("sec-ch-ua", "\"x\";v=\"1\"")];

#[tokio::test]
async fn each_profile_sends_the_http2_preface_of_its_client() {
    for profile in PROFILES.iter() {
        let (_origin, route, sent) = listening(Alpn::Both).await;
        let all = ask(&egress(), &like(&route, profile.name), &sent).await;
        assert_eq!(
            PrefaceReader::default().feed(&all),
            PrefaceState::Done(profile.akamai.to_owned()),
            "{}",
            profile.name
        );
        let shape = profile.fingerprint().http2.unwrap();
        let (flags, stream, start) = headers_frame(&all);
        assert_eq!(stream, shape.first_stream, "{}", profile.name);
        match shape.headers {
            Some(p) => {
                let first = p.depends_on | u32::from(p.exclusive) << 31;
                assert_eq!((flags & 0x20, &start[..4], start[4]), (0x20, &first.to_be_bytes()[..], p.weight));
            }
            None => assert_eq!(flags & 0x20, 0, "{}", profile.name),
        }
    }
}

/// Flags, stream and content of the first HEADERS frame; only frames that every client sends may precede it.
fn headers_frame(all: &[u8]) -> (u8, u32, Vec<u8>) {
    let mut rest = &all[24..];
    loop {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        let stream = u32::from_be_bytes(rest[5..9].try_into().unwrap());
        match rest[3] {
            1 => return (rest[4], stream, rest[9..9 + length].to_vec()),
            4 | 8 | 2 => rest = &rest[9 + length..],
            other => panic!("a frame of type {other} before the first request"),
        }
    }
}

#[tokio::test]
async fn http2_fingerprint_text_determines_the_preface_that_is_sent() {
    for text in [
        "1:65536;4:131072;5:16384|12517377|3:0:0:201,5:0:0:101,7:0:0:1,9:0:7:1,11:0:3:1,13:0:0:241|m,p,a,s",
        "5:32768;2:0;6:100000;1:4096;3:7|65535|0|s,p,m,a",
        "14:3;4:70000|00|0|a,m,p,s",
    ] {
        let (_origin, route, sent) = listening(Alpn::Both).await;
        let mut fingerprint = PROFILES[1].fingerprint();
        fingerprint.http2 = Some(text.parse::<Http2Fingerprint>().unwrap());
        let route =
            UpstreamRoute { tls: route.tls.with_fingerprint(text, fingerprint, false).unwrap(), ..route.clone() };
        let all = ask(&egress(), &route, &sent).await;
        assert_eq!(PrefaceReader::default().feed(&all), PrefaceState::Done(text.to_owned()));
    }
}

#[tokio::test]
async fn http1_fields_have_the_order_of_the_profile() {
    let (_origin, route, sent) = listening(Alpn::Http1).await;
    let mut probe = UpstreamProbe::new();
    let chrome = like(&route, "chrome");
    let asked = request(&chrome, Method::GET, "/", FIELDS, Body::Empty);
    let answer = probe.send(&egress(), &chrome, asked).await.unwrap();
    assert_eq!(text(answer.body).await, "h1");
    let tls = probe.upstream.unwrap().tls.unwrap();
    assert_eq!(tls.fingerprint.as_deref(), Some("chrome"));
    let head = String::from_utf8(sent.lock()[0].clone()).unwrap();
    let names: Vec<_> = head.lines().skip(1).filter_map(|l| l.split_once(':')).map(|(n, _)| n).collect();
    assert_eq!(names, ["Host", "sec-ch-ua", "X-Own", "User-Agent", "Accept"]);
}

#[tokio::test]
async fn no_two_fingerprints_share_a_connection() {
    let (origin, route, _sent) = listening(Alpn::Http1).await;
    let egress = egress();
    let chrome = like(&route, "chrome");
    let mirror = |ja3: &str| {
        let Ok(interflow_codec::fingerprint::FingerprintTarget::Ja3(tls, _)) = ja3.parse() else { panic!("{ja3}") };
        let fingerprint = ConnectionFingerprint { tls: *tls, ..ConnectionFingerprint::default() };
        UpstreamRoute { tls: route.tls.with_fingerprint("mirror", fingerprint, true).unwrap(), ..route.clone() }
    };
    let one = mirror("771,4865-49195,0-10-11-13-23-43-51,29,0");
    let two = mirror("771,4866-49195,0-10-11-13-23-43-51,29,0");
    for (i, way) in [&route, &chrome, &one, &two].into_iter().enumerate() {
        for reused in [false, true] {
            let (got, probe) = fetch(&egress, way).await;
            assert_eq!((got.as_str(), probe.reused()), ("h1", reused), "{i}");
        }
    }
    assert_eq!(origin.accepted(), 4);
    let keys = [&route, &chrome, &one, &two].map(|way| way.key_for(way.protocol));
    assert!(keys.windows(2).all(|two| two[0] != two[1]));
}
