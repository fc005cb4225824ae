//! Table `start`: how soon each system accepts connections, what it takes while it has nothing to do, and how large it is.

use std::time::Duration;

use crate::Result;
use crate::peers::{self, Arm};
use crate::report::median_of;
use crate::tables::{Effort, Kind, Row, Session, Table, figures_row};
use crate::testbed::Testbed;

const ARMS: [&str; 17] = [
    "interflow",
    "interflow+record",
    "interflow-media",
    "haproxy",
    "nginx",
    "pingora",
    "squid",
    "goproxy",
    "greyproxy",
    "cython-proxy",
    "mitmdump",
    "tinyproxy",
    "proxy.py",
    "mediaflow-proxy",
    "mediaflow-proxy-light",
    "litellm",
    "portkey",
];

/// Between the start and the look at the memory: some load what they need after they have begun to listen.
const SETTLING: Duration = Duration::from_secs(2);

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_nginx(&[8192])?.with_provider()?;
    let title = "from the start to the first connection, memory without work, and the size of the program";
    let mut session = Session::new("start", title, &testbed, Vec::new(), effort);
    let mut starts = ARMS.map(|name| (name, Vec::new()));
    for _ in 0..effort.repeats {
        // Each has the machine to itself: the one before has ended.
        for (name, starts) in &mut starts {
            for arm in peers::start(&[*name], &effort.arms, &testbed).into_iter().skip(1) {
                std::thread::sleep(SETTLING);
                starts.extend(figures(&arm));
                session.table.versions.insert(arm.name, arm.version);
            }
        }
    }
    let measured = starts.iter().filter(|(_, starts)| !starts.is_empty());
    let rows = measured.map(|(name, starts)| row(name, starts)).collect();
    let what = "milliseconds until connections are accepted; MiB of the whole process tree two seconds later, and its \
                processes; MB of the file that runs, which for Python and Node.js is the interpreter";
    session.push("start", what, Kind::Figures, rows);
    Ok(session.finish())
}

/// Milliseconds until it was ready, resident and proportional MiB, processes, MB of the program.
fn figures(arm: &Arm) -> Option<[f64; 5]> {
    let running = arm.running.as_ref()?;
    let (memory, mib) = (running.memory(), |kib: u64| kib as f64 / 1024.0);
    let size = running.program_size().unwrap_or_default() as f64 / 1e6;
    let ready = running.ready().as_secs_f64() * 1e3;
    Some([ready, mib(memory.rss), mib(memory.pss), running.tree().len() as f64, size])
}

fn row(name: &str, starts: &[[f64; 5]]) -> Row {
    let of = |index: usize| median_of(starts.iter().map(|start| start[index]));
    figures_row(
        name,
        None,
        &[
            ("ready, ms", of(0), 0),
            ("resident, MiB", of(1), 1),
            ("proportional, MiB", of(2), 1),
            ("processes", of(3), 0),
            ("program, MB", of(4), 1),
        ],
    )
}
