//! The systems measured side by side: each driver installs one from its ordinary package, configures, starts and stops it.

mod agentgateway;
mod bare_relay;
mod cython_proxy;
mod envoy;
mod goproxy;
mod greyproxy;
mod guardrail_terms;
mod haproxy;
mod interflow;
mod litellm;
pub mod mediaflow;
mod mediaflow_light;
mod mitmdump;
mod nginx;
mod pingora;
pub mod portkey;
mod presidio;
mod proxy_py;
mod squid;
mod tinyproxy;

pub use guardrail_terms::WORDS as BLOCKED_WORDS;
use interflow::LOGIN;
pub use interflow::{recorded_flows, virtual_key};

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::load::spec::{Check, Exchange, Pace, Spec, Version, Via};
use crate::measure::measure;
use crate::process::Running;
use crate::testbed::{Testbed, free_port};

/// A system in one configuration.
pub trait Peer {
    /// Its row's name.
    fn name(&self) -> &'static str;
    /// Installs it when it is missing, and returns its version.
    ///
    /// # Errors
    /// When it cannot be installed; the row is then left out and the reason printed.
    fn install(&self) -> Result<String>;
    /// Starts it in front of the testbed's origins.
    ///
    /// # Errors
    /// When it does not come up.
    fn start(&self, testbed: &Testbed) -> Result<Arm>;
    /// Whether a page of the testbed's nginx can be had through it, rather than its own paths only.
    fn gives_pages(&self) -> bool {
        true
    }
}

/// A started system: a row of a table.
pub struct Arm {
    /// The row's name.
    pub name: String,
    /// Version as the system says it.
    pub version: String,
    /// The way to the plain origin.
    pub plain: Option<Via>,
    /// The way to the TLS origin; through an intercepting arm TLS is opened, through the others it is not.
    pub tls: Option<Via>,
    /// The way to the LLM providers, of an arm that is a proxy besides.
    pub gateway: Option<Via>,
    /// Whether the way may lead to any origin, not only to the testbed's nginx.
    pub anywhere: bool,
    /// Its process.
    pub running: Option<Running>,
}

impl Arm {
    /// No proxy at all.
    pub fn direct() -> Self {
        let via = Some(Via::Direct);
        Self {
            name: "direct".into(),
            version: String::new(),
            plain: via,
            tls: via,
            gateway: None,
            anywhere: true,
            running: None,
        }
    }

    /// The user name and the password that it wants.
    pub fn login(&self) -> Option<(String, String)> {
        let (user, password) = match self.name.as_str() {
            "interflow+users" => LOGIN,
            "cython-proxy" => cython_proxy::LOGIN,
            _ => return None,
        };
        Some((user.to_owned(), password.to_owned()))
    }

    fn forward(testbed: &Testbed, peer: &dyn Peer, addr: SocketAddr, command: Command) -> Result<Self> {
        let ways = (Some(Via::Absolute(addr)), Some(Via::Connect(addr)));
        Ok(Self { anywhere: true, ..Self::reverse(testbed, peer, addr, command, ways)? })
    }

    /// A server that stands for the origin, and the ways to it: plain, and over TLS.
    fn reverse(
        testbed: &Testbed,
        peer: &dyn Peer,
        addr: SocketAddr,
        command: Command,
        (plain, tls): (Option<Via>, Option<Via>),
    ) -> Result<Self> {
        let running = Some(testbed.start(peer.name(), command, addr, crate::testbed::Role::Proxy)?);
        Ok(Self {
            name: peer.name().into(),
            version: String::new(),
            plain,
            tls,
            gateway: None,
            anywhere: false,
            running,
        })
    }
}

/// Every peer in every configuration.
pub fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(bare_relay::BareRelay),
        Box::new(interflow::Interflow::Straight),
        Box::new(interflow::Interflow::Recording),
        Box::new(interflow::Interflow::Rules),
        Box::new(interflow::Interflow::Redaction),
        Box::new(interflow::Interflow::Users),
        Box::new(interflow::Interflow::Http1),
        Box::new(interflow::Interflow::Tunnelling),
        Box::new(interflow::Interflow::Media),
        Box::new(interflow::Interflow::Gateway),
        Box::new(interflow::Interflow::Redacting),
        Box::new(interflow::Interflow::Scanning),
        Box::new(interflow::Interflow::RedactingAnew),
        Box::new(interflow::Interflow::Guarding),
        Box::new(interflow::Interflow::Heuristics),
        Box::new(interflow::Interflow::Caching),
        Box::new(interflow::Interflow::Keys),
        Box::new(interflow::Interflow::Everything),
        Box::new(interflow::Interflow::ProxyAndGateway),
        Box::new(haproxy::Haproxy::Http),
        Box::new(haproxy::Haproxy::Tcp),
        Box::new(nginx::Nginx),
        Box::new(envoy::Envoy),
        Box::new(pingora::Pingora),
        Box::new(squid::Squid::Plain),
        Box::new(squid::Squid::Bump),
        Box::new(goproxy::Goproxy::Mitm),
        Box::new(goproxy::Goproxy::Tunnel),
        Box::new(greyproxy::Greyproxy::Mitm),
        Box::new(greyproxy::Greyproxy::Tunnel),
        Box::new(mitmdump::Mitmdump::Plain),
        Box::new(mitmdump::Mitmdump::Writing),
        Box::new(tinyproxy::Tinyproxy),
        Box::new(proxy_py::ProxyPy),
        Box::new(cython_proxy::CythonProxy),
        Box::new(mediaflow::Mediaflow),
        Box::new(mediaflow_light::MediaflowLight),
        Box::new(agentgateway::Agentgateway::Alone),
        Box::new(agentgateway::Agentgateway::Masking),
        Box::new(agentgateway::Agentgateway::Blocking),
        Box::new(agentgateway::Agentgateway::Keys),
        Box::new(portkey::Portkey),
        Box::new(litellm::Litellm::Alone),
        Box::new(litellm::Litellm::Presidio),
        Box::new(litellm::Litellm::Masking),
        Box::new(litellm::Litellm::Blocking),
        Box::new(litellm::Litellm::Caching),
        Box::new(presidio::Presidio),
    ]
}

/// Installs and starts the named peers; one that fails is said on standard error and left out.
pub fn start(names: &[&str], wanted: &[String], testbed: &Testbed) -> Vec<Arm> {
    let mut arms = vec![Arm::direct()];
    for peer in all() {
        let name = peer.name();
        if !names.contains(&name) || !(wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()))) {
            continue;
        }
        match peer.install().and_then(|version| Ok(Arm { version, ..peer.start(testbed)? })) {
            Ok(arm) => arms.push(arm),
            Err(e) => eprintln!("  {name} is left out: {e}"),
        }
    }
    arms
}

/// Installs and starts each peer, and asks for one page on every way it offers.
pub fn try_all(only: Option<&str>) -> Result<()> {
    let testbed = Testbed::new(false)?.with_nginx(&[8192])?;
    let mut failed = 0;
    for peer in all().into_iter().filter(|p| only.is_none_or(|o| p.name().contains(o))) {
        let tried = peer.install().and_then(|version| Ok((version, peer.start(&testbed)?))).map(|(version, arm)| {
            let ways = [(arm.plain, false), (arm.tls, true)];
            let rates = peer.gives_pages().then(|| ways.map(|(via, tls)| via.map(|v| ask(&testbed, &arm, v, tls))));
            (version, rates)
        });
        match tried {
            Ok((version, None)) => println!("{:24} {version}: started", peer.name()),
            Ok((version, Some(rates))) => {
                let shown = rates.map(|r| match r {
                    None => "not offered".to_owned(),
                    Some(Ok(cpu)) => format!("ok ({cpu:.0} us CPU)"),
                    Some(Err(e)) => {
                        failed += 1;
                        format!("FAILED: {e}")
                    }
                });
                println!("{:24} {version}: plain {}, TLS {}", peer.name(), shown[0], shown[1]);
            }
            Err(e) => {
                failed += 1;
                println!("{:24} FAILED: {e}", peer.name());
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} failed").into()) }
}

fn ask(testbed: &Testbed, arm: &Arm, via: Via, tls: bool) -> Result<f64> {
    let origin = if tls { testbed.https() } else { testbed.http() };
    let exchange = Exchange {
        authority: format!("localhost:{}", origin.port()),
        path: "/b/8192".into(),
        body: None,
        headers: Vec::new(),
        check: Check::File(testbed.body(8192)),
    };
    let spec = Spec {
        via,
        tls,
        version: Version::H1,
        exchanges: vec![exchange],
        headers: Vec::new(),
        login: arm.login(),
        pace: Pace::Closed(4),
        new_connection: false,
        resume_tls: false,
        cancel_every: 0,
        certificate: None,
        warm_up: 0.3,
        seconds: 0.7,
        threads: 1,
    };
    let run = measure(testbed, arm, testbed.nginx.as_ref(), &spec)?;
    if run.outcome.errors > 0 || run.outcome.ok == 0 {
        return Err(format!("{} ok, {} errors {:?}", run.outcome.ok, run.outcome.errors, run.outcome.messages).into());
    }
    Ok(run.cpu_us)
}

/// Installs a Debian package when its program is missing.
fn apt(program: &str, package: &str) -> Result<()> {
    if Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?.status.success() {
        return Ok(());
    }
    eprintln!("  installing {package}");
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "--no-install-recommends", package]).env("DEBIAN_FRONTEND", "noninteractive");
    run_quietly(command).map(|_| ())
}

/// Installs Python packages into an environment of their own, with the newest Python at hand.
fn pip(name: &str, packages: &[&str], program: &str) -> Result<PathBuf> {
    let env = crate::testbed::cache()?.join(name);
    let program = env.join("bin").join(program);
    if program.exists() {
        return Ok(program);
    }
    eprintln!("  installing {name} into {}", env.display());
    let python = newest_python();
    let mut venv = Command::new(python);
    venv.args(["-m", "venv"]).arg(&env);
    run_quietly(venv)?;
    let mut pip = Command::new(env.join("bin/pip"));
    pip.args(["install", "--quiet"]).args(packages);
    run_quietly(pip)?;
    Ok(program)
}

/// What no package registry has: the newest `NAME-VERSION` that was put where peers are installed, and its name with the version.
fn provided(name: &str) -> Result<(PathBuf, String)> {
    let cache = crate::testbed::cache()?;
    let files = std::fs::read_dir(&cache)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let version = newest(files, name).ok_or_else(|| format!("no {name}-VERSION in {}", cache.display()))?;
    Ok((cache.join(format!("{name}-{version}")), format!("{name} {version}")))
}

/// The highest version among files called `NAME-VERSION`.
fn newest(files: impl Iterator<Item = String>, name: &str) -> Option<String> {
    let versions = files.filter_map(|file| Some(file.strip_prefix(name)?.strip_prefix('-')?.to_owned()));
    let numbered = versions.filter(|version| version.starts_with(|c: char| c.is_ascii_digit()));
    numbered.max_by_key(|version| version.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u32>>())
}

/// The newest of the Pythons on the path or under pyenv.
fn newest_python() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let root = std::env::var("PYENV_ROOT").unwrap_or_else(|_| format!("{home}/.pyenv"));
    let pattern = format!(
        "for p in {root}/versions/3.*/bin/python3 python3.14 python3.13 python3.12 python3; do \
                           command -v $p >/dev/null && $p -c 'import sys,venv; print(*sys.version_info[:2], sys.executable)'; done"
    );
    let found = Command::new("sh").args(["-c", &pattern]).output().map(|o| o.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&found).into_owned();
    let best = text.lines().filter_map(|l| {
        let mut parts = l.splitn(3, ' ');
        Some(((parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?), parts.next()?))
    });
    best.max_by_key(|(version, _)| *version).map_or_else(|| "python3".into(), |(_, path)| path.to_owned())
}

/// Runs a command to its end and returns what it printed.
fn run_quietly(mut command: Command) -> Result<String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    if out.status.success() { Ok(text) } else { Err(format!("{command:?}: {}: {text}", out.status).into()) }
}

/// The first line a program prints for these arguments.
fn version_line(program: impl AsRef<Path>, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program.as_ref());
    command.args(args);
    let text = run_quietly(command)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn port() -> Result<SocketAddr> {
    free_port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_provided_version_is_taken_and_other_files_are_not() {
        let newest =
            |name| newest(["p-1.9.0", "p-1.10.2", "p-light-2.0", "p", "p-1.2.tar"].map(String::from).into_iter(), name);
        assert_eq!(newest("p").as_deref(), Some("1.10.2"));
        assert_eq!(newest("p-light").as_deref(), Some("2.0"));
        assert_eq!(newest("q"), None);
    }
}
