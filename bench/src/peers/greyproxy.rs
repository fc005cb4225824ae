//! Greyproxy: intercepting, as it does by default, and tunnelling (its setting `mitmEnabled`). It records what it reads, as always;
//! its rules, without which everything is denied, are set aside (`-silent-allow`), and it logs errors only.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, port, provided, run_quietly};
use crate::testbed::Testbed;

#[derive(Clone, Copy, PartialEq)]
pub enum Greyproxy {
    Mitm,
    Tunnel,
}

impl Peer for Greyproxy {
    fn name(&self) -> &'static str {
        match self {
            Self::Mitm => "greyproxy",
            Self::Tunnel => "greyproxy-tunnel",
        }
    }

    fn install(&self) -> Result<String> {
        Ok(provided("greyproxy")?.1)
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let (program, _) = provided("greyproxy")?;
        let data = testbed.path(self.name());
        fs::create_dir_all(&data)?;
        let mut generate = Command::new(&program);
        generate.args(["cert", "generate", "-f"]).env("GREYPROXY_DATA_HOME", &data);
        run_quietly(generate)?;
        fs::write(data.join("settings.json"), format!(r#"{{"mitmEnabled":{}}}"#, *self == Self::Mitm))?;
        let addr = port()?;
        let config = testbed.path(&format!("{}.yml", self.name()));
        fs::write(&config, settings(addr, port()?))?;
        let mut command = Command::new(program);
        command.args(["serve", "-silent-allow", "-C"]).arg(config);
        command.env("GREYPROXY_DATA_HOME", data).env("SSL_CERT_FILE", testbed.path("ca.pem"));
        Arm::forward(testbed, self, addr, command)
    }
}

/// The HTTP proxy of its default configuration, without its SOCKS5 and DNS servers and desktop notifications.
fn settings(addr: SocketAddr, dashboard: SocketAddr) -> String {
    let plugins = "auther: auther-0, admission: admission-0, bypass: bypass-0, resolver: resolver-0";
    format!(
        "log: {{level: error, format: json, output: stdout}}\n\
         greyproxy: {{addr: \"{dashboard}\", pathPrefix: /, {plugins}, notifications: {{enabled: false}}}}\n\
         services:\n\
         - name: http-proxy\n\
         \x20 addr: \"{addr}\"\n\
         \x20 handler: {{type: http, auther: auther-0, metadata: {{sniffing: true, sniffing.websocket: true}}}}\n\
         \x20 listener: {{type: tcp}}\n\
         \x20 admission: admission-0\n\
         \x20 bypass: bypass-0\n\
         \x20 resolver: resolver-0\n\
         \x20 hosts: hosts-0\n\
         hosts:\n\
         - {{name: hosts-0, mappings: [{{ip: 127.0.0.1, hostname: localhost}}]}}\n"
    )
}
