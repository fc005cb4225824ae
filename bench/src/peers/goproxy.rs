//! A small Go program on elazarl/goproxy (`bench/peers/goproxy`): intercepting with a certificate store, and tunnelling.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::peers::{Arm, Peer, port, run_quietly};
use crate::testbed::{Testbed, cache, installed};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/goproxy");

#[derive(Clone, Copy, PartialEq)]
pub enum Goproxy {
    Mitm,
    Tunnel,
}

impl Peer for Goproxy {
    fn name(&self) -> &'static str {
        match self {
            Self::Mitm => "goproxy",
            Self::Tunnel => "goproxy-tunnel",
        }
    }

    fn install(&self) -> Result<String> {
        let program = program()?;
        if !program.exists() {
            eprintln!("  building goproxy");
            let mut build = Command::new("go");
            build.args(["build", "-o"]).arg(&program).arg(".").current_dir(Path::new(SOURCE));
            run_quietly(build)?;
        }
        let module = std::fs::read_to_string(Path::new(SOURCE).join("go.mod"))?;
        let line = module.lines().find_map(|l| l.trim().strip_prefix("require github.com/elazarl/"));
        Ok(line.unwrap_or("goproxy").trim().to_owned())
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new(installed(&program()?)?);
        command.arg("-listen").arg(addr.to_string()).arg("-trust").arg(testbed.path("ca.pem"));
        if *self == Self::Mitm {
            command.arg("-mitm");
        }
        Arm::forward(testbed, self, addr, command)
    }
}

fn program() -> Result<PathBuf> {
    Ok(cache()?.join("goproxy"))
}
