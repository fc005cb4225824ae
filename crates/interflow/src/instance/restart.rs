//! Replaces the running process by the binary that is installed now, which inherits the listening sockets. Before the
//! running one lets go of anything, the installed one is started beside it, to prove that it can start.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use interflow_host::CliError;
use interflow_host::data_dir::DataDir;
use interflow_net::ingress::{ListenSocket, ListenSockets};

use crate::instance::config::ConfigFile;

/// The hidden option of `interflow run` with which it only proves that it can start.
const CHECK_OPTION: &str = "--check-start";

/// The first inherited descriptor (`sd_listen_fds(3)`).
const FIRST_DESCRIPTOR: i32 = 3;

/// How long the successor may take to prove that it can start.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// How to start the successor: as this process was started.
pub struct Successor {
    binary: PathBuf,
    file: ConfigFile,
    home: DataDir,
    sockets: Arc<ListenSockets>,
    /// Where this process records: `record.dir` cannot be changed without a restart.
    record_dir: PathBuf,
}

impl Successor {
    /// To be called at the start: once the binary has been replaced, the system reports another path.
    pub fn new(file: &ConfigFile, home: &DataDir, sockets: &Arc<ListenSockets>, record_dir: PathBuf) -> Option<Self> {
        let binary =
            std::env::current_exe().inspect_err(|e| tracing::warn!(error = %e, "cannot restart on SIGUSR2")).ok()?;
        let (home, sockets) = (home.clone(), Arc::clone(sockets));
        Some(Self { binary, file: file.clone(), home, sockets, record_dir })
    }

    /// Whether the installed binary could start in place of this one: with the same options and environment, the files as
    /// they are now, and the sockets that are open.
    ///
    /// # Errors
    /// What it printed.
    pub async fn check(&self) -> Result<(), String> {
        if let Some(lost) = self.file.to_load().filter(|path| !self.file.is_stdin() && !path.exists()) {
            return Err(format!("{} is missing: put it back, or stop and start to do without it", lost.display()));
        }
        if self.file.is_stdin() {
            return Err(
                "the configuration came from standard input, which cannot be read again: start the instance with a \
                        file (-c FILE) to be able to restart it"
                    .into(),
            );
        }
        let binary = self.binary.display();
        let sockets = self.sockets.shared().map_err(|e| format!("the sockets cannot be passed on: {e}"))?;
        let mut command = self.command(sockets)?;
        // Any process may take them.
        command.arg(CHECK_OPTION).arg(&self.record_dir).env_remove("LISTEN_PID").stdin(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        let output = tokio::time::timeout(CHECK_TIMEOUT, command.kill_on_drop(true).output()).await;
        let output =
            output.map_err(|_| format!("{binary} has not proved within {CHECK_TIMEOUT:?} that it can start"))?;
        let output = output.map_err(|e| format!("{binary} cannot be started: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&output.stderr);
        let lines = printed.lines().filter(|line| !line.starts_with("interflow: warning: "));
        let reason = lines.map(|line| line.strip_prefix("interflow: ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
        match reason.trim() {
            "" => Err(format!("{binary} could not start: {}", output.status)),
            reason => Err(reason.to_owned()),
        }
    }

    /// Tells `interflow restart` why there is none.
    pub fn announce_refusal(&self, reason: &str) {
        if let Err(e) = self.home.note_refused_restart(std::process::id(), reason) {
            tracing::warn!(error = %e, "cannot write the reason for `interflow restart`");
        }
    }

    /// The command that this process was started by, with these sockets.
    fn command(&self, sockets: Vec<ListenSocket>) -> Result<Command, String> {
        let names = sockets.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(":");
        let mut command = Command::new(&self.binary);
        command
            .args(std::env::args_os().skip(1))
            .env("LISTEN_FDS", sockets.len().to_string())
            .env("LISTEN_FDNAMES", names);
        let mappings = (FIRST_DESCRIPTOR..)
            .zip(sockets)
            .map(|(child_fd, socket)| FdMapping { parent_fd: OwnedFd::from(socket.listener), child_fd });
        command.fd_mappings(mappings.collect()).map_err(|e| format!("the sockets cannot be passed on: {e}"))?;
        Ok(command)
    }

    /// Becomes the successor, with the same process ID, arguments and environment. Returns only if that fails; the
    /// instance has ended then.
    pub fn replace_process(&self, sockets: Vec<ListenSocket>) -> CliError {
        match self.command(sockets) {
            Ok(mut command) => {
                let failed = command.env("LISTEN_PID", std::process::id().to_string()).exec();
                CliError::Failed(format!("restart: {} cannot be started: {failed}", self.binary.display()))
            }
            Err(e) => CliError::Failed(format!("restart: {e}")),
        }
    }
}
