//! The telemetry component: audit log, metrics and trace spans of LLM traffic.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_limits::UsageLimiter;
use interflow_llm_gateway::llm_telemetry::{AuditLog, LlmTelemetry};
use interflow_types::HttpClient;

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct TelemetryComponent {
    home: PathBuf,
    pub accounts: Arc<LlmTelemetry>,
}

impl TelemetryComponent {
    /// # Errors
    /// The audit log cannot be opened, or the address of the collector is invalid.
    pub fn new(
        config: &InterflowConfig,
        home: &DataDir,
        limits: Arc<UsageLimiter>,
        egress: Arc<dyn HttpClient>,
    ) -> Result<Self, String> {
        let mut audit = config.audit.clone();
        if home.is_read_only() {
            // The log has one writer.
            AuditLog::check(&audit, home.path())?;
            audit.enabled = false;
        }
        let most = config.gateway.max_concurrent_requests;
        let accounts = LlmTelemetry::new(&audit, &config.telemetry, home.path(), limits, egress, most)?;
        Ok(Self { home: home.path().to_owned(), accounts })
    }
}

impl Component for TelemetryComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        let prepared = self.accounts.prepare(&config.audit, &config.telemetry, &self.home)?;
        let accounts = Arc::clone(&self.accounts);
        let capacity = config.gateway.max_concurrent_requests;
        Ok(Box::new(move || accounts.activate(prepared, capacity)))
    }
}
