//! HAProxy as a reverse proxy before the origin: plain HTTP, TLS opened with one fixed certificate and encrypted anew, TCP mode.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, apt, port, version_line};
use crate::testbed::{Testbed, connection_cap};

#[derive(Clone, Copy, PartialEq)]
pub enum Haproxy {
    Http,
    Tcp,
}

impl Peer for Haproxy {
    fn name(&self) -> &'static str {
        match self {
            Self::Http => "haproxy",
            Self::Tcp => "haproxy-tcp",
        }
    }

    fn install(&self) -> Result<String> {
        apt("haproxy", "haproxy")?;
        version_line("haproxy", &["-v"])
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let (plain, tls) = (port()?, port()?);
        let config = testbed.path(&format!("{}.cfg", self.name()));
        let pem = testbed.path("leaf-and-key.pem");
        let most = connection_cap();
        let times = "timeout connect 30s\n  timeout client 600s\n  timeout server 600s";
        let head = format!("global\n  maxconn {most}\ndefaults\n  maxconn {most}\n  {times}\n");
        let (http, https, pem) = (testbed.http(), testbed.https(), pem.display());
        let body = match self {
            Self::Http => format!(
                "  mode http\n  option http-keep-alive\n  http-reuse always\n\
                 frontend plain\n  bind {plain} backlog 16384\n  default_backend origin\n\
                 frontend tls\n  bind {tls} backlog 16384 ssl crt {pem}\n  default_backend origin_tls\n\
                 backend origin\n  server o {http}\nbackend origin_tls\n  server o {https} ssl verify none\n"
            ),
            Self::Tcp => format!(
                "  mode tcp\nlisten plain\n  bind {plain} backlog 16384\n  server o {http}\n\
                 listen tls\n  bind {tls} backlog 16384\n  server o {https}\n"
            ),
        };
        fs::write(&config, head + &body)?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&config);
        Arm::reverse(testbed, self, plain, command, (Some(Via::Reverse(plain)), Some(Via::Reverse(tls))))
    }
}
