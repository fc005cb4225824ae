//! tinyproxy as a plain forward proxy; it opens a connection per request upstream.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, apt, port, version_line};
use crate::testbed::Testbed;

pub struct Tinyproxy;

impl Peer for Tinyproxy {
    fn name(&self) -> &'static str {
        "tinyproxy"
    }

    fn install(&self) -> Result<String> {
        apt("tinyproxy", "tinyproxy-bin")?;
        version_line("tinyproxy", &["-v"])
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let config = testbed.path("tinyproxy.conf");
        fs::write(
            &config,
            format!(
                "Port {}\nListen 127.0.0.1\nTimeout 600\nMaxClients 20000\nLogLevel Critical\nLogFile \"{}\"\nAllow 127.0.0.1\n",
                addr.port(),
                testbed.path("tinyproxy-own.log").display()
            ),
        )?;
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&config);
        Arm::forward(testbed, self, addr, command)
    }
}
