//! A small program on Pingora (`bench/peers/pingora`) as a reverse proxy before the origin: plain HTTP, and TLS opened with one fixed
//! certificate and encrypted again.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, port, run_quietly};
use crate::testbed::{Testbed, cache, installed};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/pingora");

pub struct Pingora;

impl Peer for Pingora {
    fn name(&self) -> &'static str {
        "pingora"
    }

    fn install(&self) -> Result<String> {
        if !program()?.exists() {
            eprintln!("  building pingora");
            let mut build = Command::new("cargo");
            build
                .args(["build", "--release", "--locked", "--target-dir"])
                .arg(folder()?)
                .current_dir(Path::new(SOURCE));
            run_quietly(build)?;
        }
        let lock = std::fs::read_to_string(Path::new(SOURCE).join("Cargo.lock"))?;
        let version = lock.split("name = \"pingora\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
        Ok(format!("pingora {}", version.unwrap_or_default()))
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let (plain, tls) = (port()?, port()?);
        let mut command = Command::new(installed(&program()?)?);
        command.args([plain, testbed.http(), tls, testbed.https()].map(|addr| addr.to_string()));
        command.args([testbed.path("leaf.pem"), testbed.path("leaf.key")]);
        Arm::reverse(testbed, self, plain, command, (Some(Via::Reverse(plain)), Some(Via::Reverse(tls))))
    }
}

fn program() -> Result<PathBuf> {
    Ok(folder()?.join("release/pingora-peer"))
}

fn folder() -> Result<PathBuf> {
    Ok(cache()?.join("pingora"))
}
