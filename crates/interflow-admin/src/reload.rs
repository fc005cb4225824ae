//! The reload of the configuration, as the binary hands it to the API.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use interflow_types::schema::JsonSchema;
use parking_lot::RwLock;
use serde::Serialize;
use serde_json::Value;

/// A reload that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReloadReport {
    /// The files that were read: the configuration file and those that it names.
    pub files: Vec<PathBuf>,
    /// Keys and sections that differ from those at the start and take effect after a restart only.
    pub restart: Vec<String>,
}

/// The configuration that the instance runs with, as in its file: what takes effect at a restart is as at the start.
/// Clones share it.
#[derive(Clone, Default)]
pub struct ActiveConfig(Arc<RwLock<Arc<Value>>>);

impl ActiveConfig {
    pub fn get(&self) -> Arc<Value> {
        Arc::clone(&self.0.read())
    }

    pub fn replace(&self, config: Value) {
        *self.0.write() = Arc::new(config);
    }
}

/// Reloads the configuration. The error says what is wrong; the previous configuration then stays active.
pub type ReloadFn = Arc<dyn Fn() -> BoxFuture<'static, Result<ReloadReport, String>> + Send + Sync>;
