//! Replaces the running process by the binary that is installed now, which inherits the listening sockets.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use command_fds::{CommandFdExt as _, FdMapping};
use interflow_host::CliError;
use interflow_host::data_dir::DataDir;
use interflow_net::ingress::ListenSocket;

use crate::instance::config::ConfigFile;

/// The first inherited descriptor (`sd_listen_fds(3)`).
const FIRST_DESCRIPTOR: i32 = 3;

/// How to start the successor: as this process was started.
pub struct Successor {
    binary: PathBuf,
    config: Option<PathBuf>,
    data_dir: PathBuf,
}

impl Successor {
    /// To be called at the start: once the binary has been replaced, the system reports another path.
    pub fn new(file: &ConfigFile, home: &DataDir) -> Option<Self> {
        let binary = std::env::current_exe().inspect_err(|e| tracing::warn!("no restart by SIGUSR2: {e}")).ok()?;
        Some(Self { binary, config: file.to_load().map(Into::into), data_dir: home.path().to_owned() })
    }

    /// Whether the installed binary runs and accepts the configuration.
    ///
    /// # Errors
    /// What it printed.
    pub async fn check(&self) -> Result<(), String> {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(["config", "check"]).env("INTERFLOW_DATA_DIR", &self.data_dir).stdin(Stdio::null());
        if let Some(config) = &self.config {
            command.env("INTERFLOW_CONFIG", config);
        }
        let output = command.output().await.map_err(|e| format!("{}: {e}", self.binary.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Becomes the successor, with the same process ID, arguments and environment. Returns only if that fails; the
    /// instance has ended then.
    pub fn replace_process(&self, sockets: Vec<ListenSocket>) -> CliError {
        let names = sockets.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(":");
        let mut command = Command::new(&self.binary);
        command
            .args(std::env::args_os().skip(1))
            .env("LISTEN_PID", std::process::id().to_string())
            .env("LISTEN_FDS", sockets.len().to_string())
            .env("LISTEN_FDNAMES", names);
        let mappings = (FIRST_DESCRIPTOR..)
            .zip(sockets)
            .map(|(child_fd, socket)| FdMapping { parent_fd: OwnedFd::from(socket.listener), child_fd });
        if let Err(e) = command.fd_mappings(mappings.collect()) {
            return CliError::Failed(format!("restart: the sockets cannot be passed on: {e}"));
        }
        let failed = command.exec();
        CliError::Failed(format!("restart: {} cannot be started: {failed}", self.binary.display()))
    }
}
