//! The Cython proxy (`Python_Async_Proxy`) on uvloop, one worker per core. Port, user and password are fixed in its source.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, pip, provided};
use crate::process::cores;
use crate::testbed::Testbed;

pub struct CythonProxy;

/// The user whom it knows, and the password.
pub const LOGIN: (&str, &str) = ("username", "password");

impl Peer for CythonProxy {
    fn name(&self) -> &'static str {
        "cython-proxy"
    }

    fn install(&self) -> Result<String> {
        python()?;
        Ok(provided(self.name())?.1)
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8888));
        let mut command = Command::new(python()?);
        command.args(["-u", "-c", "import proxy"]).env("PYTHONPATH", provided(self.name())?.0);
        command.env("WORKERS", cores().to_string()).current_dir(testbed.path("."));
        Arm::forward(testbed, self, addr, command)
    }
}

/// The Python for which its module must have been built.
fn python() -> Result<std::path::PathBuf> {
    pip("cython-python", &["cython", "setuptools", "uvloop"], "python")
}
