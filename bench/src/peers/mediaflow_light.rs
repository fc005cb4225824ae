//! mediaflow-proxy-light, one worker per core, otherwise as it comes; it logs errors only.

use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, mediaflow, port, provided};
use crate::process::cores;
use crate::testbed::Testbed;

pub struct MediaflowLight;

impl Peer for MediaflowLight {
    fn name(&self) -> &'static str {
        "mediaflow-proxy-light"
    }

    fn gives_pages(&self) -> bool {
        false
    }

    fn install(&self) -> Result<String> {
        Ok(provided(self.name())?.1)
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(provided(self.name())?.0);
        command.env("APP__SERVER__HOST", "127.0.0.1").env("APP__SERVER__PORT", addr.port().to_string());
        command.env("APP__SERVER__WORKERS", cores().to_string()).env("APP__AUTH__API_PASSWORD", mediaflow::PASSWORD);
        command.env("APP__LOG_LEVEL", "error").env_remove("CONFIG_PATH").current_dir(testbed.path("."));
        Arm::reverse(testbed, self, addr, command, (Some(Via::Reverse(addr)), None))
    }
}
