//! The approvals component: rules, pending requests, sessions, secrets, and their pipeline stage.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_approvals::{Approvals, ApprovalsStage, desktop_notifier};
use interflow_host::data_dir::DataDir;
use interflow_proxy::ProxyServer;

use super::{ApplyFn, Component};
use crate::instance::config::{InterflowConfig, SharedSetting};

/// The mode that was set while the program runs, where replicas share it.
pub const MODE_FILE: &str = "approvals-mode.json";

pub struct ApprovalsComponent {
    pub approvals: Arc<Approvals>,
    pub stage: Arc<ApprovalsStage>,
}

impl ApprovalsComponent {
    /// # Errors
    /// A rule that is wrong, or a file that cannot be read.
    pub fn new(config: &InterflowConfig, home: &DataDir) -> Result<Self, String> {
        let mut approvals = Approvals::new(&config.approvals, home.path())?;
        if shares_mode(config) {
            approvals = approvals.with_mode_file(home.path().join(MODE_FILE))?;
        }
        let approvals = Arc::new(approvals);
        let stage = Arc::new(ApprovalsStage::new(Arc::clone(&approvals)));
        Ok(Self { approvals, stage })
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
            if let Some(engine) = engine.upgrade() {
                engine.drop_plans();
            }
        });
    }
}

/// Files whose modification triggers a reload.
pub fn files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    let mut files: Vec<_> = [&config.approvals.file, &config.approvals.secrets].map(|file| home.join(file)).into();
    files.extend(shares_mode(config).then(|| home.join(MODE_FILE)));
    files
}

impl Component for ApprovalsComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        Ok(Box::new(self.approvals.prepare(&config.approvals)?))
    }
}

/// Whether the mode holds at all replicas.
fn shares_mode(config: &InterflowConfig) -> bool {
    config.record.store.is_some() && config.fleet.share.contains(&SharedSetting::Approvals)
}
