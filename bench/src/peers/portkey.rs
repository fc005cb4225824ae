//! Portkey's gateway on Node, as its manual runs it: one process, HTTP on the client's leg (it serves no TLS), and the provider named by
//! headers of each request.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::load::spec::Via;
use crate::peers::{Arm, Peer, port, run_quietly};
use crate::testbed::{Testbed, cache};
use crate::upstreams::{Api, Upstream};

const PACKAGE: &str = "@portkey-ai/gateway";

pub struct Portkey;

impl Peer for Portkey {
    fn name(&self) -> &'static str {
        "portkey"
    }

    fn gives_pages(&self) -> bool {
        false
    }

    fn install(&self) -> Result<String> {
        let package = package()?;
        if !package.exists() {
            eprintln!("  installing portkey");
            let mut npm = Command::new("npm");
            npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(folder()?).arg(PACKAGE);
            run_quietly(npm)?;
        }
        let text = std::fs::read_to_string(package.join("package.json"))?;
        let parsed: serde_json::Value = serde_json::from_str(&text)?;
        Ok(format!("portkey {}", parsed["version"].as_str().unwrap_or_default()))
    }

    fn start(&self, testbed: &Testbed) -> Result<Arm> {
        let addr = port()?;
        let mut command = Command::new("node");
        command.arg(package()?.join("build/start-server.js")).arg(format!("--port={}", addr.port())).arg("--headless");
        // The provider's certificate is of the testbed's authority, which LiteLLM does not check either.
        command.env("NODE_TLS_REJECT_UNAUTHORIZED", "0").env("NODE_NO_WARNINGS", "1").current_dir(testbed.path("."));
        Arm::reverse(testbed, self, addr, command, (Some(Via::Reverse(addr)), None))
    }
}

/// What names the provider in a request.
pub fn headers(testbed: &Testbed, upstream: &Upstream) -> [(String, String); 2] {
    let provider = match upstream.api {
        Api::Chat => "openai",
        Api::Messages => "anthropic",
    };
    [
        ("x-portkey-provider".into(), provider.into()),
        ("x-portkey-custom-host".into(), format!("{}/v1", upstream.url(testbed))),
    ]
}

fn folder() -> Result<PathBuf> {
    Ok(cache()?.join("portkey"))
}

fn package() -> Result<PathBuf> {
    Ok(folder()?.join("node_modules").join(PACKAGE))
}
