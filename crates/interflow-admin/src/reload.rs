//! The reload of the configuration, as the binary hands it to the API.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

/// A reload that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReloadReport {
    /// The files that were read: the configuration file and those that it names.
    pub files: Vec<PathBuf>,
    /// Keys and sections that differ from those at the start and take effect after a restart only.
    pub restart: Vec<String>,
}

/// Reloads the configuration. The error says what is wrong; the previous configuration then stays active.
pub type ReloadFn = Arc<dyn Fn() -> BoxFuture<'static, Result<ReloadReport, String>> + Send + Sync>;
