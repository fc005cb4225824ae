//! tinyproxy as a plain forward proxy; it opens a connection per request upstream.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::lab::Lab;
use crate::peers::{Arm, Peer, apt, port, version_line};

pub struct Tinyproxy;

impl Peer for Tinyproxy {
    fn name(&self) -> &'static str {
        "tinyproxy"
    }

    fn install(&self) -> Result<String> {
        apt("tinyproxy", "tinyproxy-bin")?;
        version_line("tinyproxy", &["-v"])
    }

    fn start(&self, lab: &Lab) -> Result<Arm> {
        let addr = port()?;
        let config = lab.path("tinyproxy.conf");
        fs::write(
            &config,
            format!(
                "Port {}\nListen 127.0.0.1\nTimeout 600\nMaxClients 20000\nLogLevel Critical\nLogFile \"{}\"\nAllow 127.0.0.1\n",
                addr.port(),
                lab.path("tinyproxy-own.log").display()
            ),
        )?;
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&config);
        Arm::forward(lab, self, addr, command)
    }
}
