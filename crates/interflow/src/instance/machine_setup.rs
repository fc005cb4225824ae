//! The machine as the page "Intercept" shows it: addresses, trust files, and browsers that are started from there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use interflow_admin::{MachineSetup, SetupFacts};
use interflow_host::browser;
use interflow_host::data_dir::{DataDir, connect_address, shell_argument};
use interflow_host::exec::TrustFiles;
use interflow_proxy::ProxyServer;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::instance::config::ConfigFile;
use crate::instance::exposure;

/// A browser that runs for this long has started.
const START_TIME: Duration = Duration::from_secs(3);

pub fn for_admin(home: &DataDir, config: Option<&ConfigFile>, engine: &ProxyServer) -> MachineSetup {
    let run_command = run_command(home, config.and_then(ConfigFile::given));
    let (proxy, gateway) = (engine.proxy_addresses(), engine.gateway_addresses());
    let (for_facts, for_browsers) = (home.clone(), home.clone());
    MachineSetup {
        facts: Arc::new(move || facts(&for_facts, &run_command, [&proxy, &gateway])),
        start_browser: Arc::new(move |name| {
            let home = for_browsers.clone();
            Box::pin(async move { start_browser(&home, &name).await })
        }),
    }
}

fn run_command(home: &DataDir, config: Option<&Path>) -> String {
    let command = home.command();
    match config {
        Some(file) if ConfigFile::find(None, Some(home.path())).path() != Some(file) => {
            format!("{command} run -c {}", shell_argument(file))
        }
        _ => format!("{command} run"),
    }
}

fn facts(home: &DataDir, run_command: &str, [proxy, gateway]: [&[SocketAddr]; 2]) -> Result<SetupFacts, String> {
    let trust = TrustFiles::write(home)?;
    let mut reachable = proxy.iter().flat_map(|addr| exposure::usable(*addr));
    Ok(SetupFacts {
        proxy: proxy.first().copied().map(connect_address).ok_or("the proxy has no port")?,
        gateway: gateway.first().copied().map(connect_address),
        lan_proxy: reachable.find(|addr| addr.is_ipv4() && !addr.ip().is_loopback()),
        command: home.command(),
        run_command: run_command.to_owned(),
        os: std::env::consts::OS.to_owned(),
        ca_file: trust.ca,
        ca_bundle: trust.bundle,
        // Without a display, starting one would fail.
        browsers: (browser::has_display().then(browser::installed).into_iter().flatten()).map(|b| b.name).collect(),
    })
}

/// Starts `interflow browser`, which ends with this process: its standard input is then closed.
async fn start_browser(home: &DataDir, name: &str) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let mut command = Command::new(program);
    command
        .arg("--data-dir")
        .arg(home.path())
        .args(["browser", "--quiet", "--until-stdin-closes", "--browser", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("the browser cannot be started: {e}"))?;
    // Waiting closes the input of a child, unless it is kept apart.
    let stdin = child.stdin.take();
    let mut ended = tokio::spawn(async move {
        let ended = wait(child).await;
        drop(stdin);
        ended
    });
    match tokio::time::timeout(START_TIME, &mut ended).await {
        Ok(Ok((Some(status), messages))) if !status.success() => Err(reason(&messages)),
        // It runs, or was closed at once.
        _ => Ok(()),
    }
}

async fn wait(mut child: Child) -> (Option<ExitStatus>, String) {
    let mut messages = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut messages).await;
    }
    (child.wait().await.ok(), messages)
}

/// The last line, without the name of the program.
fn reason(messages: &str) -> String {
    let last = messages.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("the browser ended without a message");
    last.strip_prefix("interflow: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_on_loopback_is_not_offered_to_other_machines() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        home.create().unwrap();
        let facts = |listen: &str| facts(&home, "", [&[listen.parse().unwrap()], &[]]).unwrap();
        assert_eq!(facts("127.0.0.1:7070").lan_proxy, None);
        assert_eq!(facts("192.0.2.7:7070").lan_proxy, Some("192.0.2.7:7070".parse().unwrap()));
        let all = facts("0.0.0.0:7070");
        assert_eq!(all.proxy, "127.0.0.1:7070".parse().unwrap());
        assert!(all.lan_proxy.is_none_or(|lan| !lan.ip().is_loopback() && lan.port() == 7070));
        assert!(all.ca_file.exists() && all.ca_bundle.exists());
    }

    #[test]
    fn a_start_names_the_configuration_file_unless_it_is_the_one_in_the_data_directory() {
        let home = DataDir::find(Some(Path::new("/d"))).unwrap();
        let run = |config: Option<&str>| run_command(&home, config.map(Path::new));
        assert_eq!(run(None), "interflow --data-dir /d run");
        assert_eq!(run(Some("/d/interflow.toml")), "interflow --data-dir /d run");
        assert_eq!(run(Some("/etc/my files/i.toml")), "interflow --data-dir /d run -c '/etc/my files/i.toml'");
        let here = std::env::current_dir().unwrap();
        assert!(run(Some("i.toml")).ends_with(&format!(" -c {}", shell_argument(&here.join("i.toml")))));
    }

    #[test]
    fn the_reason_is_the_last_line() {
        assert_eq!(reason("noise\ninterflow: a browser needs a display\n\n"), "a browser needs a display");
    }
}
