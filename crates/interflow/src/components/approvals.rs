//! The approvals component: rules, pending requests, sessions, secrets, and their pipeline stage.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_approvals::approvals::{Approvals, ApprovalsStage, desktop_notifier};
use interflow_host::data_dir::DataDir;
use interflow_proxy::ProxyServer;

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct ApprovalsComponent {
    pub approvals: Arc<Approvals>,
    pub stage: Arc<ApprovalsStage>,
    home: PathBuf,
}

impl ApprovalsComponent {
    /// # Errors
    /// A rule that is wrong, or a file that cannot be read.
    pub fn new(config: &InterflowConfig, home: &DataDir) -> Result<Self, String> {
        let approvals = Arc::new(Approvals::new(&config.approvals, home.path())?);
        let stage = Arc::new(ApprovalsStage::new(Arc::clone(&approvals)));
        Ok(Self { approvals, stage, home: home.path().to_owned() })
    }

    /// Shows desktop notifications for pending requests, if `approvals.notify` is enabled.
    pub fn notify_desktop(&self) {
        tokio::spawn(desktop_notifier::watch(Arc::clone(&self.approvals)));
    }

    /// The first rule, the first secret and a mode change alter the phases that the stage needs, so cached plans are
    /// dropped.
    pub fn attach(&self, engine: &Arc<ProxyServer>) {
        // Weak: the engine holds the stage, and a cycle would keep both alive.
        let engine = Arc::downgrade(engine);
        self.approvals.on_interest_change(move || {
            let Some(engine) = engine.upgrade() else { return };
            if let Err(e) = engine.reload(engine.config()) {
                tracing::error!("could not apply the new approvals configuration: {e}");
            }
        });
    }
}

impl Component for ApprovalsComponent {
    fn files(&self, config: &InterflowConfig) -> Vec<PathBuf> {
        [&config.approvals.file, &config.approvals.secrets].map(|file| self.home.join(file)).into()
    }

    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        Ok(Box::new(self.approvals.prepare(&config.approvals)?))
    }
}
