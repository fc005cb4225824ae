//! What the commands of Docker, Podman and Compose have in common: the engine, the network, and what containers get.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::trust::CONTAINER_FOLDER;
use crate::CliError;
use crate::data_dir::{DataDir, write_private};

/// The engines, which differ in how a container finds the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerEngine {
    /// Docker and nerdctl: the name is defined for a container on request (`host-gateway`).
    Docker,
    /// Podman defines a name of its own; before 4.7 it rejects `host-gateway`.
    Podman,
}

impl ContainerEngine {
    /// The name of the host in a container.
    const fn host_name(self) -> &'static str {
        match self {
            Self::Docker => "host.docker.internal",
            Self::Podman => "host.containers.internal",
        }
    }

    /// An address of the host in the network that containers get if none is chosen.
    const fn bridge_address(self) -> &'static str {
        match self {
            Self::Docker => "172.17.0.1",
            // Podman's bridge, 10.88.0.1, exists only while a container uses it.
            Self::Podman => "0.0.0.0",
        }
    }
}

/// The command that is run in place of the one that was given.
#[derive(Debug)]
pub(super) struct PreparedCommand {
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Removed with this value, since it has the password of the proxy.
    pub _file: PrivateFile,
}

/// What the containers of a command get.
pub(super) struct ContainerSettings {
    pub environment: Vec<(String, String)>,
    /// The folder with the trust files, on this machine.
    pub trust_folder: PathBuf,
    pub engine: ContainerEngine,
    pub network: ContainerNetwork,
}

impl ContainerSettings {
    /// The name and the address of the host, for a container that does not know them.
    pub fn extra_host(&self) -> Option<String> {
        let is_unknown = self.engine == ContainerEngine::Docker && matches!(self.network, ContainerNetwork::Gateway(_));
        is_unknown.then(|| format!("{}:host-gateway", self.engine.host_name()))
    }

    /// That containers of this network do not reach a proxy on loopback.
    pub fn unreachable_from(&self, what: &str, proxy: SocketAddr) -> CliError {
        CliError::Usage(format!(
            "--docker: the proxy listens on {proxy}, which is out of reach in a {what}: run an instance that listens on an \
             address of a container network too, such as `interflow run --listen-proxy {}:{}`",
            self.engine.bridge_address(),
            proxy.port()
        ))
    }
}

/// How a container reaches the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerNetwork {
    /// In the network of the host, because the proxy listens on loopback only.
    Host(SocketAddr),
    /// By the name of the host.
    Gateway(u16),
    /// By an address that the proxy listens on.
    Address(SocketAddr),
}

impl ContainerNetwork {
    /// For a proxy with these addresses. On Linux, the host's loopback is reached from its own network only; elsewhere,
    /// engines run in a virtual machine and forward connections to it.
    pub fn choose(proxies: &[SocketAddr], linux: bool) -> Option<Self> {
        if let Some(any) = proxies.iter().find(|a| a.ip().is_unspecified()) {
            return Some(Self::Gateway(any.port()));
        }
        if let Some(address) = proxies.iter().find(|a| !a.ip().to_canonical().is_loopback()) {
            return Some(Self::Address(*address));
        }
        let first = *proxies.first()?;
        Some(if linux { Self::Host(first) } else { Self::Gateway(first.port()) })
    }

    pub fn target(&self, engine: ContainerEngine) -> (String, u16) {
        match self {
            Self::Host(address) | Self::Address(address) => (address.ip().to_canonical().to_string(), address.port()),
            Self::Gateway(port) => (engine.host_name().to_owned(), *port),
        }
    }
}

/// The first argument from `at` that is neither an option nor the value of one of these options.
pub(super) fn skip_options(command: &[String], mut at: usize, with_value: &[&str]) -> usize {
    while let Some(option) = command.get(at).filter(|a| a.starts_with('-')) {
        at += if with_value.contains(&option.as_str()) { 2 } else { 1 };
    }
    at
}

/// The argument of a mount that makes the trust files readable in a container. `z` lets SELinux agree.
pub(super) fn mount(folder: &Path) -> String {
    format!("{}:{CONTAINER_FOLDER}:ro{}", folder.display(), if cfg!(target_os = "linux") { ",z" } else { "" })
}

/// A file of this process in the data directory, readable by its owner only and removed at the end.
#[derive(Debug)]
pub(super) struct PrivateFile(pub PathBuf);

impl PrivateFile {
    pub fn write(home: &DataDir, extension: &str, bytes: &[u8]) -> Result<Self, String> {
        let path = home.join(format!("exec-{}.{extension}", std::process::id()));
        write_private(&path, bytes)?;
        Ok(Self(path))
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
