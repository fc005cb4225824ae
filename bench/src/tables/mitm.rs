//! Table `mitm`: plain and intercepted requests for 0 and 8192 bytes on 16 connections, then the variants beside them.

use crate::Result;
use crate::lab::Lab;
use crate::load::spec::{Certificate, Check, Exchange, Spec, Version};
use crate::peers::{self, Arm};
use crate::tables::{Effort, Kind, Session, Table, fixed_body};

const ARMS: [&str; 11] = [
    "bare-relay",
    "interflow",
    "interflow+record",
    "haproxy",
    "nginx",
    "squid",
    "squid-bump",
    "goproxy",
    "mitmdump",
    "mitmdump-w",
    "interflow-tunnel",
];

/// Arms that open TLS with a certificate made for the host.
const INTERCEPTING: [&str; 6] = ["interflow", "interflow+record", "squid-bump", "goproxy", "mitmdump", "mitmdump-w"];

pub fn table(effort: &Effort) -> Result<Table> {
    let lab = Lab::new(effort.pin)?.with_nginx(&[0, 8192, 1 << 20])?;
    let arms = peers::start(&ARMS, &effort.arms, &lab);
    let title =
        "plain and intercepted requests, 16 connections, HTTP/1.1 on the client's leg unless the name says otherwise";
    let mut session = Session::new("mitm", title, &lab, arms, effort);
    for (size, label) in [(0, "0 B"), (8192, "8 KiB")] {
        let what = format!(
            "GET of {size} bytes over http://, kept alive; forward proxies in absolute-form, the others as reverse"
        );
        session.case(&format!("PLAIN {label}"), &what, Kind::Throughput, |arm| plain(&lab, effort, arm, size));
    }
    for (size, label) in [(0, "0 B"), (8192, "8 KiB")] {
        let what = format!(
            "GET of {size} bytes over https://, tunnel and TLS kept alive, opened and encrypted anew by the proxy"
        );
        session.case(&format!("TLS {label}"), &what, Kind::Throughput, |arm| tls(&lab, effort, arm, size));
    }
    session.case(
        "TLS new connection",
        "GET of 0 bytes, each with its own CONNECT and full TLS handshake",
        Kind::Throughput,
        |arm| Some(Spec { new_connection: true, ..tls(&lab, effort, arm, 0)? }),
    );
    session.case(
        "TLS 100 hosts",
        "as before, over 100 addresses in turn, each with a leaf of its own",
        Kind::Throughput,
        |arm| {
            let mut spec = tls(&lab, effort, arm, 0)?;
            if !arm.anywhere {
                return None;
            }
            spec.exchanges = (1..=100).map(|i| hundredth(&lab, i)).collect();
            Some(Spec { new_connection: true, ..spec })
        },
    );
    session.case(
        "TLS h2 8 KiB",
        "GET of 8192 bytes, HTTP/2 on the client's leg: 16 streams on one connection",
        Kind::Throughput,
        |arm| {
            let offers_h2 = !["haproxy", "nginx", "squid-bump", "goproxy"].contains(&arm.name.as_str());
            offers_h2.then_some(Spec { version: Version::H2 { connections: 1 }, ..tls(&lab, effort, arm, 8192)? })
        },
    );
    if effort.full {
        session.case("TLS 1 MiB", "GET of 1 MiB over https://, kept alive", Kind::Throughput, |arm| {
            tls(&lab, effort, arm, 1 << 20)
        });
    }
    Ok(session.finish())
}

fn plain(lab: &Lab, effort: &Effort, arm: &Arm, size: usize) -> Option<Spec> {
    let other = ["squid-bump", "interflow-tunnel"].contains(&arm.name.as_str());
    arm.plain.filter(|_| !other).map(|via| fixed_body(lab, effort, via, false, size, 16))
}

fn tls(lab: &Lab, effort: &Effort, arm: &Arm, size: usize) -> Option<Spec> {
    let named =
        ["direct", "haproxy", "nginx"].contains(&arm.name.as_str()) || INTERCEPTING.contains(&arm.name.as_str());
    let spec = arm.tls.filter(|_| named).map(|via| fixed_body(lab, effort, via, true, size, 16))?;
    let intercepts = INTERCEPTING.contains(&arm.name.as_str());
    let certificate = intercepts.then(|| Certificate::NotOrigin(lab.path("leaf.pem")));
    Some(Spec { certificate, ..spec })
}

fn hundredth(lab: &Lab, i: usize) -> Exchange {
    Exchange {
        authority: format!("127.0.1.{i}:{}", lab.https().port()),
        path: "/b/0".into(),
        body: None,
        check: Check::File(lab.body(0)),
    }
}
