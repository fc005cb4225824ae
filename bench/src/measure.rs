//! One measured run: the generator in its own process, and what the proxy and the origin spent while it counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::load::spec::{Outcome, Spec};
use crate::peers::Arm;
use crate::process::Running;
use crate::testbed::{Role, Testbed};

/// One run of one row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// What the generator saw.
    pub outcome: Outcome,
    /// CPU of the proxy's process tree in microseconds per answered request.
    pub cpu_us: f64,
    /// What of it was outside the kernel; older results do not have it.
    #[serde(default)]
    pub user_us: f64,
    /// The same in cores kept busy.
    pub cores: f64,
    /// CPU of the origin in microseconds per answered request.
    pub origin_cpu_us: f64,
    /// Peak resident memory of the proxy in KiB, since the run began.
    pub peak_rss_kib: u64,
    /// Resident memory of the proxy in KiB at the end of the counted time.
    pub rss_kib: u64,
    /// Proportional memory at that time.
    pub pss_kib: u64,
    /// Open descriptors at that time.
    pub descriptors: usize,
}

/// Runs the spec against an arm.
///
/// # Errors
/// When the generator cannot run. Failed requests are no error here; they are in the outcome.
pub fn measure(testbed: &Testbed, arm: &Arm, origin: Option<&Running>, spec: &Spec) -> Result<Run> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("load").arg(serde_json::to_string(spec)?);
    let mut child = testbed.placed(command, Role::Around).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("the generator has no standard output")?;
    let mut lines = BufReader::new(out).lines();
    let proxy = arm.running.as_ref();
    let cpu = |r: Option<&Running>| r.map(Running::cpu).unwrap_or_default();
    let result = (|| {
        expect(&mut lines, "begin")?;
        proxy.inspect(|r| r.forget_peak());
        let user = || proxy.map(Running::user_cpu).unwrap_or_default();
        let before = (cpu(proxy), cpu(origin), user());
        expect(&mut lines, "end")?;
        let spent = (cpu(proxy) - before.0, cpu(origin) - before.1, user() - before.2);
        let memory = proxy.map(Running::memory).unwrap_or_default();
        let descriptors = proxy.map_or(0, Running::descriptors);
        let outcome: Outcome = serde_json::from_str(&lines.next().ok_or("no outcome")??)?;
        let per_request = 1e6 / outcome.ok.max(1) as f64;
        Ok(Run {
            cpu_us: spent.0.as_secs_f64() * per_request,
            user_us: spent.2.as_secs_f64() * per_request,
            cores: spent.0.as_secs_f64() / outcome.seconds.max(1e-9),
            origin_cpu_us: spent.1.as_secs_f64() * per_request,
            peak_rss_kib: memory.peak,
            rss_kib: memory.rss,
            pss_kib: memory.pss,
            descriptors,
            outcome,
        })
    })();
    if result.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    result
}

fn expect(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Result<()> {
    match lines.next().transpose()? {
        Some(line) if line == word => Ok(()),
        other => Err(format!("the generator said {other:?} in place of {word:?}").into()),
    }
}
