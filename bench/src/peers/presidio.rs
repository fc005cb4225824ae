//! Microsoft's Presidio behind a small service (`bench/peers/presidio`), one worker per core.

use std::net::SocketAddr;
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, pip, port, run_quietly};
use crate::process::cores;
use crate::testbed::Testbed;

pub struct Presidio;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/presidio");
const PACKAGES: [&str; 3] = ["presidio-analyzer==2.2.*", "presidio-anonymizer==2.2.*", "uvicorn"];

/// The command of the service at this address.
///
/// # Errors
/// When it cannot be installed.
pub fn service(addr: SocketAddr) -> Result<Command> {
    let mut command = Command::new(pip("presidio", &PACKAGES, "uvicorn")?);
    command.args(["service:app", "--app-dir", SOURCE, "--host", "127.0.0.1", "--port", &addr.port().to_string()]);
    command.args(["--workers", &cores().to_string(), "--no-access-log", "--log-level", "error"]);
    Ok(command)
}

impl Peer for Presidio {
    fn name(&self) -> &'static str {
        "presidio"
    }

    fn gives_pages(&self) -> bool {
        false
    }

    fn install(&self) -> Result<String> {
        let mut version = Command::new(pip("presidio", &PACKAGES, "python")?);
        version.args([
            "-c",
            "import importlib.metadata as m; print('presidio-analyzer', m.version('presidio-analyzer'), '(patterns only)')",
        ]);
        Ok(run_quietly(version)?.trim().to_owned())
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        Arm::reverse(testbed, self, addr, service(addr)?, (Some(Via::Reverse(addr)), None))
    }
}
