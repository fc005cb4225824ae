//! The built-in bare TCP relay, the lower bound: no HTTP parsing, no TLS.

use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, port};
use crate::process::Running;
use crate::testbed::{Role, Testbed};

pub struct BareRelay;

impl Peer for BareRelay {
    fn name(&self) -> &'static str {
        "bare-relay"
    }

    fn install(&self) -> Result<String> {
        Ok(env!("CARGO_PKG_VERSION").into())
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let via = Some(Via::Reverse(addr));
        // In front of the provider, where there is one: all of its traffic is TLS, which is passed through without inspection.
        let (plain, tls, dial) =
            if testbed.provider.is_some() { (None, via, testbed.llm()) } else { (via, None, testbed.http()) };
        Ok(Arm {
            name: self.name().into(),
            version: String::new(),
            plain,
            tls,
            gateway: None,
            anywhere: false,
            running: Some(relay(testbed, self.name(), addr, dial)?),
        })
    }
}

fn relay(testbed: &Testbed, name: &str, addr: std::net::SocketAddr, dial: std::net::SocketAddr) -> Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["relay", &addr.to_string(), &dial.to_string()]);
    testbed.start(name, command, addr, Role::Proxy)
}
