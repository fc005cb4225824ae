//! What the page "Intercept" needs of the machine, as the binary hands it to the API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

/// How clients reach this instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SetupFacts {
    /// Address of the proxy for programs on this machine.
    pub proxy: SocketAddr,
    /// Address of the gateway for programs on this machine.
    pub gateway: Option<SocketAddr>,
    /// Address of the proxy for other machines; null if it listens on loopback only.
    pub lan_proxy: Option<SocketAddr>,
    /// How commands for this instance begin: `interflow`, with `--data-dir` unless it has the default data directory.
    pub command: String,
    /// The command that starts this instance: `command`, `run` and the configuration file, unless it is the one in the data
    /// directory.
    pub run_command: String,
    /// The operating system: `linux`, `macos`, `windows`.
    pub os: String,
    /// The file of the CA's certificate.
    pub ca_file: PathBuf,
    /// A file with the certificates of the system and of the CA.
    pub ca_bundle: PathBuf,
    /// The browsers that can be started, by name.
    pub browsers: Vec<String>,
}

/// A browser to start on the machine of the instance.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BrowserRequest {
    /// Name of an installed browser; the preferred one if absent.
    pub browser: Option<String>,
}

/// Looks at the machine. May block: it is called on a blocking thread.
pub type SetupFactsFn = Arc<dyn Fn() -> Result<SetupFacts, String> + Send + Sync>;
/// Starts a browser. The error says why it ended at once.
pub type StartBrowserFn = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

pub struct MachineSetup {
    pub facts: SetupFactsFn,
    pub start_browser: StartBrowserFn,
}
