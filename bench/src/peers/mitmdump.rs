//! mitmdump: as it is, and writing its flow file.

use std::process::Command;

use crate::Result;
use crate::lab::Lab;
use crate::peers::{Arm, Peer, pip, port, version_line};

#[derive(Clone, Copy, PartialEq)]
pub enum Mitmdump {
    Plain,
    Writing,
}

impl Peer for Mitmdump {
    fn name(&self) -> &'static str {
        match self {
            Self::Plain => "mitmdump",
            Self::Writing => "mitmdump-w",
        }
    }

    fn install(&self) -> Result<String> {
        version_line(pip("mitmproxy", &["mitmproxy"], "mitmdump")?, &["--version"])
    }

    fn start(&self, lab: &Lab) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(pip("mitmproxy", &["mitmproxy"], "mitmdump")?);
        command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &addr.port().to_string()]);
        command.arg("--set").arg(format!("confdir={}", lab.path("mitmproxy").display()));
        command.arg("--set").arg(format!("ssl_verify_upstream_trusted_ca={}", lab.path("ca.pem").display()));
        if *self == Self::Writing {
            command.arg("-w").arg(lab.path("flows.mitm"));
        }
        Arm::forward(lab, self, addr, command)
    }
}
