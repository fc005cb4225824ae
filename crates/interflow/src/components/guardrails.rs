//! The guardrails component: checks of the texts of LLM traffic, and the person whom they may ask.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_admin::metrics::table;
use interflow_approvals::Approvals;
use interflow_codec::prometheus::MetricsPage;
use interflow_host::data_dir::DataDir;
use interflow_llm_gateway::gateway::LlmGateway;
use interflow_llm_gateway::guardrails::{GuardrailCounts, GuardrailService, Reviewer};
use interflow_proxy::LocalClient;

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct GuardrailComponent {
    home: PathBuf,
    pub guardrails: Arc<GuardrailService>,
}

impl GuardrailComponent {
    /// # Errors
    /// A section `[llm.guardrail]` is invalid.
    pub fn new(
        config: &InterflowConfig,
        home: &DataDir,
        local: &LocalClient,
        gateway: &Arc<LlmGateway>,
        approvals: &Arc<Approvals>,
    ) -> Result<Self, String> {
        let home = home.path().to_owned();
        let egress = Arc::new(local.unrecorded());
        let approvals = Arc::clone(approvals);
        let reviewer: Reviewer = Box::new(move |flow, head, reason| Box::pin(approvals.review(flow, head, reason)));
        let guardrails = GuardrailService::new(&config.llm, &home, Arc::clone(gateway), egress, reviewer)?;
        Ok(Self { home, guardrails })
    }
}

/// Files whose modification triggers a reload.
pub fn files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    GuardrailService::files(&config.llm, home.path())
}

impl Component for GuardrailComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        let settings = self.guardrails.compile(&config.llm, &self.home)?;
        let guardrails = Arc::clone(&self.guardrails);
        Ok(Box::new(move || guardrails.activate(settings)))
    }
}

/// Writes what guardrails counted.
pub fn write_metrics(counts: &GuardrailCounts, page: &mut MetricsPage) {
    let checks = counts.checks.iter().map(|((name, direction), n)| ([name.as_str(), *direction], *n));
    page.samples(&table::GUARDRAIL_CHECKS, checks);
    let samples =
        counts.findings.iter().map(|((name, direction, result), n)| ([name.as_str(), *direction, *result], *n));
    page.samples(&table::GUARDRAIL_FINDINGS, samples);
    page.samples(&table::GUARDRAIL_ERRORS, counts.errors.iter().map(|(name, n)| ([name.as_str()], *n)));
}
