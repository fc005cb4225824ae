//! Interflow itself: intercepting without and with recording, and only tunnelling.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::Result;
use crate::lab::{Lab, beside_us};
use crate::peers::{Arm, Peer, port, version_line};

#[derive(Clone, Copy, PartialEq)]
pub enum Interflow {
    Straight,
    Recording,
    Tunnelling,
}

/// How many flows the recording arm's store holds, once the arm has stopped.
pub fn recorded_flows(lab: &Lab) -> Result<u64> {
    let mut list = Command::new(beside_us("interflow")?);
    list.args(["flows", "list", "--format", "jsonl", "--limit", "1000000000"]).stdout(Stdio::piped());
    list.env("INTERFLOW_HOME", lab.path(Interflow::Recording.name()));
    let mut child = list.spawn()?;
    let out = child.stdout.take().ok_or("no standard output")?;
    let lines = BufReader::new(out).split(b'\n').count() as u64;
    let status = child.wait()?;
    if status.success() { Ok(lines) } else { Err(format!("interflow flows list: {status}").into()) }
}

impl Peer for Interflow {
    fn name(&self) -> &'static str {
        match self {
            Self::Straight => "interflow",
            Self::Recording => "interflow+record",
            Self::Tunnelling => "interflow-tunnel",
        }
    }

    fn install(&self) -> Result<String> {
        version_line(beside_us("interflow")?, &["--version"])
    }

    fn start(&self, lab: &Lab) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(beside_us("interflow")?);
        command.args(["run", "--danger-insecure-upstream"]);
        for (listener, addr) in [("--proxy", addr), ("--gateway", port()?), ("--admin", port()?)] {
            command.arg(listener).arg(addr.to_string());
        }
        match self {
            Self::Straight => command.arg("--no-record"),
            Self::Recording => &mut command,
            Self::Tunnelling => command.args(["--no-record", "--no-intercept"]),
        };
        command.env("INTERFLOW_HOME", lab.path(self.name()));
        Arm::forward(lab, self, addr, command)
    }
}
