//! The MCP component: the servers behind the gateway's endpoint, and what their calls need of other components.

use std::sync::Arc;

use interflow_admin::metrics::table;
use interflow_admin::oidc::AccessTokenChecker;
use interflow_approvals::Approvals;
use interflow_codec::prometheus::MetricsPage;
use interflow_host::data_dir::DataDir;
use interflow_llm_gateway::guardrails::GuardrailService;
use interflow_llm_gateway::redaction::RedactionService;
use interflow_mcp_gateway::{AccessTokens, GrantFile, McpCallCounts, McpDeps, McpService};
use interflow_types::HttpClient;

use super::limits::LimitsComponent;
use super::redaction::master_secret;
use super::{ApplyFn, Component, ComponentDeps};
use crate::instance::config::InterflowConfig;

pub struct McpComponent {
    pub service: Arc<McpService>,
}

impl McpComponent {
    /// # Errors
    /// The section `[mcp]` is invalid.
    pub fn new(
        config: &InterflowConfig,
        home: &DataDir,
        deps: &ComponentDeps<'_>,
        redaction: &Arc<RedactionService>,
        approvals: &Arc<Approvals>,
        limits: &LimitsComponent,
        guardrails: &Arc<GuardrailService>,
    ) -> Result<Self, String> {
        check_policies(config)?;
        let guardrails = Arc::clone(guardrails);
        let (admission, keys) = (Arc::clone(&limits.pass), Arc::clone(&limits.pass));
        let (approvals, policies, counts) = (Arc::clone(approvals), Arc::clone(redaction), Arc::clone(redaction));
        let http: Arc<dyn HttpClient> = Arc::new(deps.local.unrecorded());
        let issuer = Arc::clone(&http);
        let ring = Arc::clone(&limits.keys);
        let deps = McpDeps {
            discovered: Arc::new(deps.local.unrecorded().filtered(Vec::new(), "mcp.server.NAME.oauth.issuer")),
            grants: deps.grants.clone().unwrap_or_else(|| Arc::new(GrantFile::new(home.join("mcp-accounts.json")))),
            keys: Arc::new(move || ring.ring()),
            http,
            master: master_secret(config, home)?,
            tokens: Box::new(move |name, audience| {
                let checker = AccessTokenChecker::new(name, audience, Arc::clone(&issuer))?;
                Ok(Arc::new(checker) as Arc<dyn AccessTokens>)
            }),
            review: Box::new(move |flow, head, reason| Box::pin(approvals.review(flow, head, reason))),
            admit: Box::new(move |flow| {
                let admission = Arc::clone(&admission);
                Box::pin(async move { admission.admit_mcp_call(flow).await })
            }),
            shows_key: Box::new(move |head| keys.shows_virtual_key(head)),
            policy: Box::new(move |flow, name| policies.value_policy(flow, name)),
            count: Box::new(move |direction, found| counts.count_findings(direction, found)),
            guard: Box::new(move |flow, server| guardrails.of_mcp_call(flow, server)),
        };
        Ok(Self { service: McpService::new(&config.mcp, deps)? })
    }
}

impl Component for McpComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        check_policies(config)?;
        let settings = self.service.compile(&config.mcp)?;
        let service = Arc::clone(&self.service);
        Ok(Box::new(move || {
            service.activate(settings);
            // The keys are applied before. Nothing waits for this: accounts of lost keys are of no use, and those that
            // cannot be removed now go with the next change.
            tokio::spawn(async move { service.forget_accounts_of_lost_keys().await });
        }))
    }
}

/// Checks that every policy named by a server exists.
fn check_policies(config: &InterflowConfig) -> Result<(), String> {
    for (name, server) in &config.mcp.server {
        if let Some(policy) = server.policy.as_deref().filter(|policy| !config.redact.has_policy(policy)) {
            return Err(format!("mcp.server.{name}.policy: there is no policy `{policy}` in redact.policies"));
        }
    }
    Ok(())
}

/// Writes what the service counted.
pub fn write_metrics(counts: &McpCallCounts, page: &mut MetricsPage) {
    page.samples(&table::MCP_CALLS, counts.calls.iter().map(|((server, result), n)| ([server.as_str(), *result], *n)));
    page.value(&table::MCP_SESSIONS, counts.sessions);
}
