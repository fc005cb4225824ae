//! Interflow itself: intercepting without and with recording, only tunnelling, and as a gateway.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::Result;
use crate::lab::{Lab, beside_us};
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, port, version_line};

#[derive(Clone, Copy, PartialEq)]
pub enum Interflow {
    Straight,
    Recording,
    Tunnelling,
    Media,
    Gateway,
    Redacting,
    Scanning,
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

impl Interflow {
    fn gateway_config(self, lab: &Lab) -> String {
        if self == Self::Media {
            return "[media]\nallow_private = [\"127.0.0.0/8\", \"::1/128\"]\n".into();
        }
        let redact = match self {
            Self::Redacting => "",
            Self::Scanning => "outbound = \"redact\"\n",
            _ => "gateway = \"off\"\n",
        };
        let (certificate, key) = (lab.path("leaf.pem"), lab.path("leaf.key"));
        let target = format!("https://localhost:{}", lab.llm().port());
        format!(
            "[redact]\n{redact}[gateway.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n\
             [llm.upstream.openai]\ntarget = \"{target}\"\n[llm.upstream.anthropic]\ntarget = \"{target}\"\n"
        )
    }
}

impl Peer for Interflow {
    fn name(&self) -> &'static str {
        match self {
            Self::Straight => "interflow",
            Self::Recording => "interflow+record",
            Self::Tunnelling => "interflow-tunnel",
            Self::Media => "interflow-media",
            Self::Gateway => "gateway",
            Self::Redacting => "gateway+redact",
            Self::Scanning => "gateway+outbound",
        }
    }

    fn install(&self) -> Result<String> {
        version_line(beside_us("interflow")?, &["--version"])
    }

    fn start(&self, lab: &Lab) -> Result<Arm> {
        let (addr, gateway) = (port()?, port()?);
        let mut command = Command::new(beside_us("interflow")?);
        command.args(["run", "--danger-insecure-upstream"]);
        for (listener, addr) in [("--proxy", addr), ("--gateway", gateway), ("--admin", port()?)] {
            command.arg(listener).arg(addr.to_string());
        }
        match self {
            Self::Straight => command.arg("--no-record"),
            Self::Recording => &mut command,
            Self::Tunnelling => command.args(["--no-record", "--no-intercept"]),
            _ => {
                let config = lab.path(&format!("{}.toml", self.name()));
                fs::write(&config, self.gateway_config(lab))?;
                command.arg("--no-record").arg("--config").arg(config)
            }
        };
        command.env("INTERFLOW_HOME", lab.path(self.name()));
        let mut arm = Arm::forward(lab, self, addr, command)?;
        match self {
            Self::Media => (arm.plain, arm.tls, arm.anywhere) = (Some(Via::Reverse(gateway)), None, false),
            Self::Gateway | Self::Redacting | Self::Scanning => {
                (arm.plain, arm.tls, arm.anywhere) = (None, Some(Via::Reverse(gateway)), false);
            }
            Self::Straight | Self::Recording | Self::Tunnelling => {}
        }
        Ok(arm)
    }
}
