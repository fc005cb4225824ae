//! mitmdump: as it is, and writing its flow file.

use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, pip, port, version_line};
use crate::testbed::Testbed;

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

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(pip("mitmproxy", &["mitmproxy"], "mitmdump")?);
        command.args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &addr.port().to_string()]);
        command.arg("--set").arg(format!("confdir={}", testbed.path("mitmproxy").display()));
        command.arg("--set").arg(format!("ssl_verify_upstream_trusted_ca={}", testbed.path("ca.pem").display()));
        if *self == Self::Writing {
            command.arg("-w").arg(testbed.path("flows.mitm"));
        }
        Arm::forward(testbed, self, addr, command)
    }
}
