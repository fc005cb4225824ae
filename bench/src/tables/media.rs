//! Table `media`: a file of 7 MiB relayed to 10 to 100 viewers at a time, as mediaflow-proxy-light's report measures it, but as a
//! steady load; and how long the first byte of a segment takes.

use crate::Result;
use crate::load::spec::{Pace, Spec};
use crate::peers::{self, Arm, mediaflow};
use crate::tables::{Effort, Kind, Session, Table, fixed_body};
use crate::testbed::Testbed;

const ARMS: [&str; 4] = ["interflow-media", "nginx", "mediaflow-proxy", "mediaflow-proxy-light"];

const FILM: usize = 7 << 20;
const SEGMENT: usize = 2 << 20;

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_nginx(&[SEGMENT, FILM])?;
    let arms = peers::start(&ARMS, &effort.arms, &testbed);
    let title =
        "a media file relayed: GET /proxy/stream of Interflow, mediaflow-proxy and its Rust port, proxy_pass of nginx";
    let mut session = Session::new("media", title, &testbed, arms, effort);
    let viewers: &[usize] = if effort.full { &[10, 20, 30, 50, 100] } else { &[10, 100] };
    for n in viewers {
        let what =
            format!("GET of 7 MiB over http://, {n} connections kept alive; 7.34 MB times req/s is the throughput");
        session.case(&format!("relay 7 MiB, {n} viewers"), &what, Kind::Throughput, |arm| {
            let seconds = effort.seconds.max(2.0);
            Some(Spec { seconds, ..relay(&testbed, effort, arm, FILM, Pace::Closed(*n))? })
        });
    }
    let what = "GET of 2 MiB over http://, kept alive, 20 a second, open loop";
    session.case("segment 2 MiB", what, Kind::Latency, |arm| {
        let seconds = effort.seconds.max(3.0);
        Some(Spec { seconds, ..relay(&testbed, effort, arm, SEGMENT, Pace::Open(20.0))? })
    });
    Ok(session.finish())
}

fn relay(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize, pace: Pace) -> Option<Spec> {
    let mut spec = fixed_body(testbed, effort, arm.plain?, false, size, 1);
    let origin = format!("http%3A%2F%2F127.0.0.1%3A{}%2Fb%2F{size}", testbed.http().port());
    let path = match arm.name.as_str() {
        "interflow-media" => Some(format!("/media/proxy/stream?d={origin}")),
        "mediaflow-proxy" | "mediaflow-proxy-light" => {
            Some(format!("/proxy/stream?d={origin}&api_password={}", mediaflow::PASSWORD))
        }
        _ => None,
    };
    for exchange in &mut spec.exchanges {
        exchange.path = path.clone().unwrap_or_else(|| exchange.path.clone());
    }
    Some(Spec { pace, ..spec })
}
