//! Table `forward`: the raw forward proxy. 100 connections over body sizes, tunnels, and the sweep to 15,000 connections.

use crate::Result;
use crate::load::spec::{Certificate, Pace, Spec};
use crate::measure::measure;
use crate::peers::{self, Arm};
use crate::tables::{Effort, Kind, Row, Session, Table, fixed_body};
use crate::testbed::{Testbed, connection_cap};

const ARMS: [&str; 15] = [
    "bare-relay",
    "interflow",
    "interflow-tunnel",
    "haproxy",
    "haproxy-tcp",
    "nginx",
    "envoy",
    "pingora",
    "squid",
    "goproxy-tunnel",
    "greyproxy",
    "greyproxy-tunnel",
    "tinyproxy",
    "proxy.py",
    "cython-proxy",
];

/// Arms that support CONNECT; `haproxy-tcp` relays TCP unconditionally.
const TUNNELLING: [&str; 8] = [
    "interflow-tunnel",
    "haproxy-tcp",
    "squid",
    "goproxy-tunnel",
    "greyproxy-tunnel",
    "tinyproxy",
    "proxy.py",
    "cython-proxy",
];

/// Arms that are built for many connections.
const MANY: [&str; 8] = ["interflow", "haproxy", "nginx", "envoy", "pingora", "squid", "bare-relay", "cython-proxy"];

const MIB: usize = 1 << 20;

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_nginx(&[71, 1024, 16 << 10, 128 << 10, MIB, 100 * MIB])?;
    let arms = peers::start(&ARMS, &effort.arms, &testbed);
    let title = "the raw forward proxy: body sizes at 100 connections, tunnels, and thousands of connections";
    let mut session = Session::new("forward", title, &testbed, arms, effort);
    idle(&mut session, &testbed, (if effort.full { 10_000 } else { 4000 }).min(connection_cap()));
    session.arms.clear();
    session.arms = peers::start(&ARMS, &effort.arms, &testbed);
    let short = [(71, "71 B"), (16 << 10, "16 KiB"), (MIB, "1 MiB")];
    let full = [(71, "71 B"), (1024, "1 KiB"), (16 << 10, "16 KiB"), (128 << 10, "128 KiB"), (MIB, "1 MiB")];
    let sizes: &[(usize, &str)] = if effort.full { &full } else { &short };
    for (size, label) in sizes {
        let what = format!("GET of {size} bytes over http://, 100 connections kept alive");
        session
            .case(&format!("plain {label}"), &what, Kind::Throughput, |arm| plain(&testbed, effort, arm, *size, 100));
    }
    for (size, label) in sizes {
        let what = format!("GET of {size} bytes through kept CONNECT tunnels (TLS end to end), 16 of them");
        session
            .case(&format!("tunnel {label}"), &what, Kind::Throughput, |arm| tunnel(&testbed, effort, arm, *size, 16));
    }
    if effort.wants_long("tunnel 100 MiB") {
        session.case("tunnel 100 MiB", "GET of 100 MiB through 4 kept tunnels", Kind::Throughput, |arm| {
            Some(Spec { seconds: effort.seconds.max(5.0), ..tunnel(&testbed, effort, arm, 100 * MIB, 4)? })
        });
    }
    session.case(
        "tunnel new",
        "GET of 71 bytes, each with its own tunnel and TLS handshake, 50 at a time",
        Kind::Throughput,
        |arm| Some(Spec { new_connection: true, ..tunnel(&testbed, effort, arm, 71, 50)? }),
    );
    let sweep: &[usize] = if effort.full { &[1000, 5000, 10_000, 15_000] } else { &[1000, 10_000] };
    let mut sweep: Vec<usize> = sweep.iter().map(|n| *n.min(&connection_cap())).collect();
    sweep.dedup();
    for n in &sweep {
        let what = format!("GET of 71 bytes over http://, {n} connections kept alive, all busy");
        session.case(&format!("{n} connections"), &what, Kind::Throughput, |arm| {
            let named = arm.name == "direct" || MANY.contains(&arm.name.as_str());
            let spec = plain(&testbed, effort, arm, 71, *n).filter(|_| named)?;
            Some(Spec { warm_up: 1.0 + *n as f64 / 4000.0, seconds: effort.seconds.max(1.2), ..spec })
        });
    }
    Ok(session.finish())
}

/// Resident memory of idle connections. Measured first, in fresh processes, because allocators rarely return memory.
fn idle(session: &mut Session<'_>, testbed: &Testbed, n: usize) {
    for (name, tls) in [("idle connections", false), ("idle tunnels", true)] {
        if !session.effort.wants(name) {
            continue;
        }
        let mut rows = Vec::new();
        for arm in &session.arms {
            let spec = if tls {
                tunnel(testbed, session.effort, arm, 71, 1)
                    .filter(|_| TUNNELLING[..2].contains(&arm.name.as_str()) || arm.name == "squid")
            } else {
                plain(testbed, session.effort, arm, 71, 1).filter(|_| MANY.contains(&arm.name.as_str()))
            };
            if let Some(spec) = spec {
                rows.push(hold(
                    session,
                    testbed,
                    arm,
                    Spec { pace: Pace::Hold(n), warm_up: 1.0, seconds: 0.5, ..spec },
                    n,
                ));
            }
        }
        let what =
            format!("{n} connections opened, one request on each, then silence: resident memory gained per connection");
        session.push(name, &what, Kind::Memory, rows);
    }
}

fn hold(session: &Session<'_>, testbed: &Testbed, arm: &Arm, spec: Spec, n: usize) -> Row {
    let before = arm.running.as_ref().map(|r| r.memory().rss).unwrap_or_default();
    let mut row = Row { arm: arm.name.clone(), ..Row::default() };
    match measure(testbed, arm, session.origin, &spec) {
        Ok(run) => {
            if run.outcome.ok < n as u64 || run.outcome.errors > 0 {
                let message = run.outcome.messages.first().map_or("too slow to open", String::as_str);
                row.failure = Some(format!("{} of {n} connections opened: {message}", run.outcome.ok));
            }
            row.kib_per_connection = Some((run.rss_kib.saturating_sub(before)) as f64 / n as f64);
            row.runs.push(run);
        }
        Err(e) => row.failure = Some(e.to_string()),
    }
    row
}

fn plain(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize, concurrency: usize) -> Option<Spec> {
    let other = arm.name.ends_with("-tunnel") || arm.name == "haproxy-tcp";
    let spec = arm.plain.filter(|_| !other).map(|via| fixed_body(testbed, effort, via, false, size, concurrency))?;
    Some(Spec { login: arm.login(), ..spec })
}

fn tunnel(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize, concurrency: usize) -> Option<Spec> {
    let named = arm.name == "direct" || TUNNELLING.contains(&arm.name.as_str());
    let spec = arm.tls.filter(|_| named).map(|via| fixed_body(testbed, effort, via, true, size, concurrency))?;
    let certificate = Some(Certificate::Origin(testbed.path("leaf.pem")));
    Some(Spec { certificate, login: arm.login(), ..spec })
}
