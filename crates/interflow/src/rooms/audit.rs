//! The room of audit lines, metrics and spans, as the binary builds and reloads it.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_engine::accounts::{AccountStage, Accounts};
use interflow_flow::Egress;
use interflow_limits::Limits;

use super::{Change, Room};
use crate::config::Config;
use crate::home::Home;

/// The accounts, and the stage that keeps them.
pub struct AccountRoom {
    home: PathBuf,
    /// What is told outward.
    pub accounts: Arc<Accounts>,
    /// The stage.
    pub stage: Arc<AccountStage>,
}

impl AccountRoom {
    /// Builds it.
    ///
    /// # Errors
    /// A log that cannot be opened, or a collector whose address makes no sense.
    pub fn new(config: &Config, home: &Home, limits: Arc<Limits>, egress: Arc<dyn Egress>) -> Result<Self, String> {
        let accounts = Accounts::new(&config.audit, &config.telemetry, home.path(), limits, egress)?;
        accounts.set_capacity(config.gateway.max_concurrent_requests);
        Ok(Self { home: home.path().to_owned(), stage: Arc::new(AccountStage(Arc::clone(&accounts))), accounts })
    }
}

impl Room for AccountRoom {
    fn prepare(&self, config: &Config) -> Result<Change, String> {
        let prepared = self.accounts.prepare(&config.audit, &config.telemetry, &self.home)?;
        let accounts = Arc::clone(&self.accounts);
        let capacity = config.gateway.max_concurrent_requests;
        Ok(Box::new(move || {
            accounts.set(prepared);
            accounts.set_capacity(capacity);
        }))
    }
}
