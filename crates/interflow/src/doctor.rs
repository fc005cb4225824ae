//! `interflow doctor`: looks for what is wrong, and says what to do.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interflow_net::ca::Ca;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;

use crate::Failure;
use crate::cli::DoctorArgs;
use crate::config::Config;
use crate::home::Home;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    /// What was looked at.
    what: String,
    /// Whether it is as it should be.
    state: State,
    /// What was seen, and what to do about it.
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Notice,
    Bad,
}

/// Looks at everything; fails when something is bad.
pub fn run(args: &DoctorArgs, config: &Config, home: &Home) -> Result<(), Failure> {
    let mut findings = vec![data_folder(home), ca(home), clock(), files(), disk(home)];
    findings.extend(ports(config, home));
    findings.extend(runtimes(home));
    if args.json {
        let text = serde_json::to_string_pretty(&findings).map_err(|e| e.to_string())?;
        anstream::println!("{text}");
    } else {
        findings.iter().for_each(print);
    }
    let bad = findings.iter().filter(|f| f.state == State::Bad).count();
    if bad == 0 { Ok(()) } else { Err(Failure::Failed(format!("{bad} things need attention"))) }
}

fn print(finding: &Finding) {
    let (mark, colour) = match finding.state {
        State::Good => ("ok  ", anstyle::AnsiColor::Green),
        State::Notice => ("note", anstyle::AnsiColor::Yellow),
        State::Bad => ("BAD ", anstyle::AnsiColor::Red),
    };
    let style = colour.on_default();
    anstream::println!("{style}{mark}{style:#}  {}: {}", finding.what, finding.text);
}

fn finding(what: impl Into<String>, state: State, text: impl Into<String>) -> Finding {
    Finding { what: what.into(), state, text: text.into() }
}

fn data_folder(home: &Home) -> Finding {
    let shown = home.path().display();
    match home.create() {
        Ok(()) => finding("data folder", State::Good, shown.to_string()),
        Err(e) => finding("data folder", State::Bad, e),
    }
}

fn ca(home: &Home) -> Finding {
    match Ca::open_or_create(&home.ca()) {
        Err(e) => finding("CA", State::Bad, e.to_string()),
        Ok(ca) if ca.remaining() < Duration::from_secs(30 * 86_400) => {
            finding("CA", State::Bad, format!("{} expires soon: run `interflow ca rotate`", ca.name()))
        }
        Ok(ca) => finding("CA", State::Good, ca.name().to_owned()),
    }
}

/// A clock before this binary was made makes every certificate look wrong.
fn clock() -> Finding {
    let year_2026 = Duration::from_secs(1_767_225_600);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(now) if now > year_2026 => finding("clock", State::Good, "plausible"),
        _ => finding(
            "clock",
            State::Bad,
            "the machine's clock is years behind: certificates will look not yet valid; set it",
        ),
    }
}

fn files() -> Finding {
    #[cfg(unix)]
    {
        let Ok((soft, hard)) = rlimit::getrlimit(rlimit::Resource::NOFILE) else {
            return finding("open files", State::Notice, "the limit cannot be read");
        };
        // Two sockets per connection, and some room.
        let connections = hard.saturating_sub(100) / 2;
        let text = format!("limit {soft}, can be raised to {hard}: room for about {connections} connections");
        if hard < 4096 {
            let more = "; raise it with `ulimit -Hn 100000` or LimitNOFILE= in systemd";
            return finding("open files", State::Bad, text + more);
        }
        finding("open files", State::Good, text)
    }
    #[cfg(not(unix))]
    finding("open files", State::Good, "no limit of this kind here")
}

fn disk(home: &Home) -> Finding {
    match fs4::available_space(home.path()) {
        Ok(free) if free < 1 << 30 => {
            let text = format!("{} MB free: recording stops when the disk is full; free some space", free / 1_000_000);
            finding("disk", State::Bad, text)
        }
        Ok(free) => finding("disk", State::Good, format!("{:.1} GB free", free as f64 / 1e9)),
        Err(e) => finding("disk", State::Notice, format!("free space cannot be read: {e}")),
    }
}

fn ports(config: &Config, home: &Home) -> Vec<Finding> {
    let running = home.running();
    let all = config.proxy.listen.iter().chain(&config.gateway.listen).chain(&config.admin.listen);
    all.map(|addr| match std::net::TcpListener::bind(addr) {
        Ok(_) => finding(format!("port {addr}"), State::Good, "free"),
        Err(_) if running.is_some() => finding(format!("port {addr}"), State::Good, "in use by the running instance"),
        Err(e) => {
            let text = format!("{e}; choose another with --proxy, --gateway or --admin");
            finding(format!("port {addr}"), State::Bad, text)
        }
    })
    .collect()
}

/// A runtime, and a command that says whether it trusts what the system trusts.
const RUNTIMES: [(&str, &str); 6] = [
    ("curl", "trusts the system's store: `interflow ca install`, or `interflow exec`"),
    (
        "python3",
        "requests and httpx bring their own store: REQUESTS_CA_BUNDLE and SSL_CERT_FILE (`interflow ca trust-env`)",
    ),
    ("node", "brings its own store: NODE_EXTRA_CA_CERTS (`interflow ca trust-env`)"),
    ("java", "brings its own store: `interflow ca install` uses keytool, or `interflow exec`"),
    ("git", "trusts what curl trusts: GIT_SSL_CAINFO (`interflow ca trust-env`)"),
    ("go", "programs trust the system's store and SSL_CERT_FILE"),
];

fn runtimes(home: &Home) -> Vec<Finding> {
    let installed = in_system_store(&home.ca().join("ca.pem"));
    let mut found = vec![match installed {
        Some(true) => finding("system trust", State::Good, "the CA is in the system's store"),
        Some(false) => finding(
            "system trust",
            State::Notice,
            "the CA is not in the system's store: `interflow ca install`, or `interflow exec -- CMD` for single commands",
        ),
        None => finding("system trust", State::Notice, "the system's store cannot be read"),
    }];
    for (program, text) in RUNTIMES {
        let there = Command::new(program).arg(if program == "go" { "version" } else { "--version" }).output();
        if there.is_ok_and(|o| o.status.success()) {
            found.push(finding(program, State::Good, text));
        }
    }
    found
}

/// Whether the platform's store holds our CA.
fn in_system_store(ca: &Path) -> Option<bool> {
    let pem = std::fs::read(ca).ok()?;
    let ours = rustls_pki_types::CertificateDer::from_pem_slice(&pem).ok()?;
    Some(rustls_native_certs::load_native_certs().certs.contains(&ours))
}
