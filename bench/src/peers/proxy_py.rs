//! proxy.py with two workers, as a plain forward proxy.

use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, pip, port, version_line};
use crate::testbed::Testbed;

pub struct ProxyPy;

impl Peer for ProxyPy {
    fn name(&self) -> &'static str {
        "proxy.py"
    }

    fn install(&self) -> Result<String> {
        version_line(pip("proxy.py", &["proxy.py"], "proxy")?, &["--version"])
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(pip("proxy.py", &["proxy.py"], "proxy")?);
        command.args(["--hostname", "127.0.0.1", "--port", &addr.port().to_string(), "--num-workers", "2"]);
        command.args(["--num-acceptors", "2", "--log-level", "ERROR", "--backlog", "4096", "--timeout", "600"]);
        command.arg("--data-dir").arg(testbed.path("proxy.py"));
        Arm::forward(testbed, self, addr, command)
    }
}
