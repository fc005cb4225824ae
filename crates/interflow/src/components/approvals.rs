//! The room of approvals: rules and questions, sessions, secrets, and the stage that asks them.

use std::sync::Arc;

use interflow_approvals::approvals::{Approvals, ApprovalsStage, desktop_notifier};
use interflow_proxy::ProxyServer;

use super::{ApplyFn, Component};
use crate::config::InterflowConfig;
use crate::data_dir::DataDir;

/// The room.
pub struct ApprovalsComponent {
    /// What the admin side steers.
    pub approvals: Arc<Approvals>,
    /// The stage.
    pub stage: Arc<ApprovalsStage>,
}

impl ApprovalsComponent {
    /// Builds it.
    ///
    /// # Errors
    /// A rule that is wrong, or a file that cannot be read.
    pub fn new(config: &InterflowConfig, home: &DataDir) -> Result<Self, String> {
        let approvals = Arc::new(Approvals::new(&config.approvals, home.path())?);
        let stage = Arc::new(ApprovalsStage::new(Arc::clone(&approvals)));
        Ok(Self { approvals, stage })
    }

    /// Tells the desktop of what is held, as long as the configuration wishes it.
    pub fn notify_desktop(&self) {
        tokio::spawn(desktop_notifier::watch(Arc::clone(&self.approvals)));
    }

    /// A first rule, a first secret or another mode changes what the stage wants: plans are made anew then.
    pub fn attach(&self, engine: &Arc<ProxyServer>) {
        let engine = Arc::downgrade(engine);
        self.approvals.on_interest_change(move || {
            let Some(engine) = engine.upgrade() else { return };
            if let Err(e) = engine.reload(engine.config()) {
                tracing::error!("approvals: the corridor did not take the change up: {e}");
            }
        });
    }
}

impl Component for ApprovalsComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        Ok(Box::new(self.approvals.prepare(&config.approvals)?))
    }
}
