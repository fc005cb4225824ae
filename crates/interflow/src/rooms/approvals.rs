//! The room of approvals: rules and questions, sessions, secrets, and the stage that asks them.

use std::sync::Arc;

use interflow_engine::Engine;
use interflow_engine::approvals::{Approvals, ApprovalsStage, notify};

use super::{Change, Room};
use crate::config::Config;
use crate::home::Home;

/// The room.
pub struct ApprovalsRoom {
    /// What the admin side steers.
    pub approvals: Arc<Approvals>,
    /// The stage.
    pub stage: Arc<ApprovalsStage>,
}

impl ApprovalsRoom {
    /// Builds it.
    ///
    /// # Errors
    /// A rule that is wrong, or a file that cannot be read.
    pub fn new(config: &Config, home: &Home) -> Result<Self, String> {
        let approvals = Arc::new(Approvals::new(&config.approvals, home.path())?);
        let stage = Arc::new(ApprovalsStage::new(Arc::clone(&approvals)));
        Ok(Self { approvals, stage })
    }

    /// Tells the desktop of what is held, as long as the configuration wishes it.
    pub fn tell_the_desktop(&self) {
        tokio::spawn(notify::watch(Arc::clone(&self.approvals)));
    }

    /// A first rule, a first secret or another mode changes what the stage wants: plans are made anew then.
    pub fn attach(&self, engine: &Arc<Engine>) {
        let engine = Arc::downgrade(engine);
        self.approvals.on_reshape(move || {
            let Some(engine) = engine.upgrade() else { return };
            if let Err(e) = engine.reload(engine.config()) {
                tracing::error!("approvals: the corridor did not take the change up: {e}");
            }
        });
    }
}

impl Room for ApprovalsRoom {
    fn prepare(&self, config: &Config) -> Result<Change, String> {
        Ok(Box::new(self.approvals.prepare(&config.approvals)?))
    }
}
