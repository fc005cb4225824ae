//! Runs a command through the proxy: its environment, its trust files, its exit code, and a summary of its traffic.

mod compose;
mod container;
mod container_settings;
mod env;
mod summary;
mod trust;

use std::net::SocketAddr;
use std::process::Stdio;

use interflow_types::percent;
use interflow_types::secret_names::{mask_url, mask_urls};
use tokio::process::{Child, Command};

use crate::data_dir::{DataDir, connect_address};
use crate::{CliError, CliExit, Result};

pub use env::{EnvSetting, ProxyTarget, settings, trust_variables};
pub use summary::{ExecTraffic, print as print_summary};
pub use trust::{TrustFiles, pkcs12};

/// A user name and a password of the proxy.
#[derive(Clone)]
pub struct ProxyLogin {
    pub user: String,
    pub password: String,
}

/// A command and the proxy that it is to use.
pub struct ExecRequest<'a> {
    pub command: &'a [String],
    /// Hosts that bypass the proxy, as in `NO_PROXY`.
    pub no_proxy: &'a str,
    /// The addresses of the proxy. A command on this machine uses the first.
    pub proxies: &'a [SocketAddr],
    pub login: Option<&'a ProxyLogin>,
    /// More variables of its environment.
    pub variables: &'a [(String, String)],
}

impl ExecRequest<'_> {
    /// As it precedes the address in a URL.
    fn login_in_url(&self) -> String {
        self.login.map(|l| format!("{}:{}@", percent::encoded(&l.user), l.password)).unwrap_or_default()
    }
}

/// Runs the command behind the proxy and returns its exit code.
///
/// # Errors
/// The trust files cannot be written, or the command cannot be started.
pub async fn run_command(request: &ExecRequest<'_>, home: &DataDir) -> Result<u8> {
    let trust = TrustFiles::write(home)?;
    let proxy = request.proxies.first().copied().map(connect_address);
    let proxy = proxy.ok_or_else(|| CliError::Failed("the proxy has no port".into()))?;
    let (host, login) = (proxy.ip().to_string(), request.login_in_url());
    let target = ProxyTarget { host: &host, port: proxy.port(), login: &login };
    let settings = settings(target, &trust, request.no_proxy, &|name| std::env::var(name).ok());
    let settings = settings.into_iter().map(|setting| (setting.name.to_owned(), setting.value));
    let settings: Vec<_> = settings.chain(request.variables.iter().cloned()).collect();
    run_with(request.command, &settings).await
}

/// Runs a command of Docker or Podman, with the proxy and the CA in the containers that it starts; returns its exit code.
///
/// # Errors
/// The command starts no container, a container cannot reach the proxy, files cannot be written, or the engine cannot be
/// started.
pub async fn run_container_command(request: &ExecRequest<'_>, home: &DataDir) -> Result<u8> {
    let prepared = container::prepare(request, home)?;
    // The engine itself does not use the proxy: it would not trust the CA when it fetches images.
    run_with(&prepared.command, &prepared.environment).await
}

async fn run_with(command: &[String], environment: &[(String, String)]) -> Result<u8> {
    let (program, rest) = command.split_first().ok_or_else(|| CliError::Usage("no command given".into()))?;
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    remove_secrets(command.as_std_mut());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn().map_err(|e| not_started(program, &e))?;
    wait(&mut child).await.map_err(|e| CliError::Failed(format!("`{program}` was lost: {e}")))
}

/// Removes Interflow's secrets from the command's environment. It may be untrusted: it must not get the token of the
/// instance that watches it.
pub(crate) fn remove_secrets(command: &mut std::process::Command) {
    for (name, value) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| is_secret(name, &value.to_string_lossy())) {
            command.env_remove(name);
        }
    }
}

/// Whether an environment variable holds a secret of Interflow that the command must not inherit.
fn is_secret(name: &str, value: &str) -> bool {
    const WORDS: [&str; 6] = ["TOKEN", "PASSWORD", "SECRET", "KEY", "HEADER", "WEBHOOK"];
    let is_named = || name.split('_').any(|word| WORDS.contains(&word.strip_suffix('S').unwrap_or(word)));
    // URLs with credentials (`record.store`, `quota.shared.redis`), and tables, in which there may be keys.
    let is_value = || mask_url(value) != value || mask_urls(value) != value || value.contains('{');
    name.starts_with("INTERFLOW_") && (is_named() || is_value())
}

pub(crate) fn not_started(program: &str, e: &std::io::Error) -> CliError {
    // Shell exit codes: 127 not found, 126 not executable.
    let exit = if e.kind() == std::io::ErrorKind::NotFound { CliExit::NotFound } else { CliExit::NotExecutable };
    crate::errln!("interflow: `{program}` cannot be started: {e}");
    CliError::Child(exit.code())
}

/// Waits for the child and forwards termination signals to it.
async fn wait(child: &mut Child) -> std::io::Result<u8> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let mut hup = signal(SignalKind::hangup())?;
        let mut quit = signal(SignalKind::quit())?;
        loop {
            let passed = tokio::select! {
                status = child.wait() => return status.map(exit_code),
                _ = term.recv() => rustix::process::Signal::TERM,
                // The terminal signals the whole process group, so the child already has it.
                _ = int.recv() => continue,
                _ = hup.recv() => rustix::process::Signal::HUP,
                _ = quit.recv() => continue,
            };
            // The id is gone once the child has been waited for.
            let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
            if let Some(pid) = pid {
                let _ = rustix::process::kill_process(pid, passed);
            }
        }
    }
    #[cfg(not(unix))]
    child.wait().await.map(exit_code)
}

pub(crate) fn exit_code(status: std::process::ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        // Shells report a signal as 128 plus its number.
        return CliExit::Signal.code().wrapping_add(signal as u8);
    }
    status.code().unwrap_or(1) as u8
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn variables_with_secrets_are_told_by_name_or_value() {
        for (name, value) in [
            ("INTERFLOW_TOKEN", "x"),
            ("INTERFLOW_REDACT_SECRET", "x"),
            ("INTERFLOW_TELEMETRY_HEADERS", "x"),
            ("INTERFLOW_QUOTA_ALERTS_WEBHOOKS", "x"),
            ("INTERFLOW_RECORD_STORE", "postgres://interflow:word@db/flows"),
            ("INTERFLOW_QUOTA_SHARED_REDIS", "redis://:word@cache:6379"),
            ("INTERFLOW_UPSTREAM_PROXY", "[{ url = \"http://proxy.corp:3128\" }]"),
            ("INTERFLOW_LLM_PROVIDER", "{ openai = { api_key = \"word\" } }"),
        ] {
            assert!(is_secret(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("INTERFLOW_LOG", "warn"),
            ("INTERFLOW_DATA_DIR", "/home/ann/.local/share/interflow"),
            ("INTERFLOW_PROXY_LISTEN", "[\"127.0.0.1:7070\"]"),
            ("INTERFLOW_QUOTA_SHARED_REDIS", "redis://cache:6379"),
            ("OPENAI_API_KEY", "x"),
        ] {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }
}
