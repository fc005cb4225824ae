//! mediaflow-proxy with two workers, as its own documentation runs it.

use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, pip, port, run_quietly};
use crate::testbed::Testbed;

pub struct Mediaflow;

/// What its clients show.
pub const PASSWORD: &str = "bench";

impl Peer for Mediaflow {
    fn name(&self) -> &'static str {
        "mediaflow-proxy"
    }

    fn gives_pages(&self) -> bool {
        false
    }

    fn install(&self) -> Result<String> {
        let python = pip("mediaflow", &["mediaflow-proxy"], "python")?;
        let mut version = Command::new(python);
        version.args(["-c", "import importlib.metadata as m; print('mediaflow-proxy', m.version('mediaflow-proxy'))"]);
        Ok(run_quietly(version)?.trim().to_owned())
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(pip("mediaflow", &["mediaflow-proxy"], "uvicorn")?);
        command.args(["mediaflow_proxy.main:app", "--host", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.args(["--workers", "2", "--no-access-log", "--log-level", "error"]);
        command.env("API_PASSWORD", PASSWORD).current_dir(testbed.path("."));
        Arm::reverse(testbed, self, addr, command, (Some(Via::Reverse(addr)), None))
    }
}
