//! Our own bare TCP relay, the physical floor: it speaks no HTTP and opens no TLS.

use std::process::Command;

use crate::Result;
use crate::lab::{Lab, Role};
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, port};
use crate::process::Running;

pub struct BareRelay;

impl Peer for BareRelay {
    fn name(&self) -> &'static str {
        "bare-relay"
    }

    fn install(&self) -> Result<String> {
        Ok(env!("CARGO_PKG_VERSION").into())
    }

    fn start(&self, lab: &Lab) -> Result<Arm> {
        let addr = port()?;
        let via = Some(Via::Reverse(addr));
        // In front of the provider, where there is one: all of its traffic is TLS, which passes unseen.
        let (plain, tls, dial) = if lab.provider.is_some() { (None, via, lab.llm()) } else { (via, None, lab.http()) };
        Ok(Arm {
            name: self.name().into(),
            version: String::new(),
            plain,
            tls,
            anywhere: false,
            running: Some(relay(lab, self.name(), addr, dial)?),
        })
    }
}

fn relay(lab: &Lab, name: &str, addr: std::net::SocketAddr, dial: std::net::SocketAddr) -> Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["relay", &addr.to_string(), &dial.to_string()]);
    lab.start(name, command, addr, Role::Proxy)
}
