//! Table `mitm`: plain and intercepted requests for 0 and 8192 bytes on 16 connections, then the variants beside them.

use crate::Result;
use crate::load::spec::{Certificate, Check, Exchange, Spec, Version};
use crate::peers::{self, Arm};
use crate::tables::{Effort, Kind, Session, Table, fixed_body};
use crate::testbed::Testbed;

const ARMS: [&str; 18] = [
    "bare-relay",
    "interflow",
    "interflow+record",
    "interflow+rules",
    "interflow+redact",
    "interflow+users",
    "interflow-h1",
    "haproxy",
    "nginx",
    "envoy",
    "pingora",
    "squid",
    "squid-bump",
    "goproxy",
    "greyproxy",
    "mitmdump",
    "mitmdump-w",
    "interflow-tunnel",
];

/// Arms that open TLS with a certificate made for the host.
const INTERCEPTING: [&str; 7] =
    ["interflow", "interflow+record", "squid-bump", "goproxy", "greyproxy", "mitmdump", "mitmdump-w"];

/// Arms whose TLS has one certificate of their own, and the direct way.
const ONE_CERTIFICATE: [&str; 5] = ["direct", "haproxy", "nginx", "envoy", "pingora"];

/// Interflow with one thing more, each beside Interflow as it is.
const WITH_MORE: [&str; 6] =
    ["direct", "interflow", "interflow+record", "interflow+rules", "interflow+redact", "interflow+users"];

/// Arms that use HTTP/1.1 on both sides if the client does.
const HTTP1_BOTH: [&str; 7] = ["direct", "interflow-h1", "squid-bump", "goproxy", "greyproxy", "mitmdump", "nginx"];

/// Arms that use HTTP/2 on both sides if the client does.
const HTTP2_BOTH: [&str; 3] = ["direct", "interflow", "mitmdump"];

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_nginx(&[0, 8192, 1 << 20])?;
    let arms = peers::start(&ARMS, &effort.arms, &testbed);
    let title =
        "plain and intercepted requests, 16 connections, HTTP/1.1 on the client's leg unless the name says otherwise";
    let mut session = Session::new("mitm", title, &testbed, arms, effort);
    for (size, label) in [(0, "0 B"), (8192, "8 KiB")] {
        let what = format!(
            "GET of {size} bytes over http://, kept alive; forward proxies in absolute-form, the others as reverse"
        );
        session.case(&format!("PLAIN {label}"), &what, Kind::Throughput, |arm| plain(&testbed, effort, arm, size));
    }
    for (size, label) in [(0, "0 B"), (8192, "8 KiB")] {
        let what = format!(
            "GET of {size} bytes over https://, tunnel and TLS kept alive, opened and encrypted again by the proxy"
        );
        session.case(&format!("TLS {label}"), &what, Kind::Throughput, |arm| tls(&testbed, effort, arm, size));
    }
    for (size, label) in [(0, "0 B"), (8192, "8 KiB")] {
        let what = format!(
            "as TLS {label}, Interflow beside itself with recording, 20 rules, redaction (of requests and answers), users"
        );
        session.case(&format!("TLS {label} with more"), &what, Kind::Throughput, |arm| {
            WITH_MORE.contains(&arm.name.as_str()).then(|| opened(&testbed, effort, arm, size)).flatten()
        });
    }
    for (name, arms, version) in [
        ("TLS 8 KiB h1 to h1", &HTTP1_BOTH[..], Version::H1),
        ("TLS 8 KiB h2 to h2", &HTTP2_BOTH, Version::H2 { connections: 1 }),
    ] {
        let what = "GET of 8192 bytes over https://, kept alive, 16 at a time, the same protocol on both legs";
        session.case(name, what, Kind::Throughput, |arm| {
            let spec = arms.contains(&arm.name.as_str()).then(|| opened(&testbed, effort, arm, 8192)).flatten()?;
            Some(Spec { version, ..spec })
        });
    }
    for (name, resume_tls, what) in [
        ("TLS new connection", false, "GET of 0 bytes, each with its own CONNECT and full TLS handshake"),
        ("TLS resumed connection", true, "GET of 0 bytes, each with its own CONNECT and a resumed TLS session"),
    ] {
        session.case(name, what, Kind::Throughput, |arm| {
            Some(Spec { new_connection: true, resume_tls, ..tls(&testbed, effort, arm, 0)? })
        });
    }
    session.case(
        "TLS 100 hosts",
        "as before, over 100 addresses in turn, each with a leaf of its own",
        Kind::Throughput,
        |arm| {
            let mut spec = tls(&testbed, effort, arm, 0)?;
            // Greyproxy asks the resolver of the system for the name of each address, and waits.
            if !arm.anywhere || arm.name == "greyproxy" {
                return None;
            }
            spec.exchanges = (1..=100).map(|i| hundredth(&testbed, i)).collect();
            Some(Spec { new_connection: true, ..spec })
        },
    );
    session.case(
        "TLS h2 8 KiB",
        "GET of 8192 bytes, HTTP/2 on the client's leg: 16 streams on one connection",
        Kind::Throughput,
        |arm| {
            let offers_h2 = !["haproxy", "nginx", "envoy", "pingora", "squid-bump", "goproxy", "greyproxy"]
                .contains(&arm.name.as_str());
            offers_h2.then_some(Spec { version: Version::H2 { connections: 1 }, ..tls(&testbed, effort, arm, 8192)? })
        },
    );
    if effort.full {
        session.case("TLS 1 MiB", "GET of 1 MiB over https://, kept alive", Kind::Throughput, |arm| {
            tls(&testbed, effort, arm, 1 << 20)
        });
    }
    Ok(session.finish())
}

fn plain(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize) -> Option<Spec> {
    let other =
        ["squid-bump", "interflow-tunnel", "interflow+rules", "interflow+redact", "interflow+users", "interflow-h1"]
            .contains(&arm.name.as_str());
    arm.plain.filter(|_| !other).map(|via| fixed_body(testbed, effort, via, false, size, 16))
}

fn tls(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize) -> Option<Spec> {
    let name = arm.name.as_str();
    if ONE_CERTIFICATE.contains(&name) || INTERCEPTING.contains(&name) {
        opened(testbed, effort, arm, size)
    } else {
        None
    }
}

/// The same whatever the arm is called; all but the direct way and reverse proxies must have opened TLS.
fn opened(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize) -> Option<Spec> {
    let spec = fixed_body(testbed, effort, arm.tls?, true, size, 16);
    let own = ONE_CERTIFICATE.contains(&arm.name.as_str());
    let certificate = (!own).then(|| Certificate::NotOrigin(testbed.path("leaf.pem")));
    Some(Spec { certificate, login: arm.login(), ..spec })
}

fn hundredth(testbed: &Testbed, i: usize) -> Exchange {
    Exchange {
        authority: format!("127.0.1.{i}:{}", testbed.https().port()),
        path: "/b/0".into(),
        body: None,
        headers: Vec::new(),
        check: Check::File(testbed.body(0)),
    }
}
