//! Builds the feature components from the configuration, and fixes the order of pipeline stages and gateway endpoints.

mod approvals;
mod audit;
pub mod catalog;
pub mod conversations;
mod guardrails;
mod limits;
mod llm;
mod mcp;
#[cfg(feature = "media")]
pub mod media;
pub mod record_store;
mod recordings;
mod redaction;
mod rule_formats;
mod rules;

use std::path::PathBuf;
use std::sync::Arc;

use interflow_admin::metrics::{MetricsSource, table};
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_host::data_dir::DataDir;
use interflow_limits::{AlertSender, LimiterDeps, SpendLedger, UsageLimiter};
use interflow_llm_gateway::gateway::LlmGateway;
use interflow_llm_gateway::guardrails::GuardrailService;
use interflow_llm_gateway::redaction::{RedactionMount, RedactionService};
use interflow_llm_gateway::stage;
use interflow_mcp_gateway::{McpMount, McpService};
#[cfg(feature = "media")]
use interflow_media::{MediaMount, MediaService};
use interflow_proxy::dns::{AddressNames, DnsNamesStage};
use interflow_proxy::{LocalClient, ProxyServer};
use interflow_store::shared_state::GrantStore;
use interflow_types::{GatewayMount, Stage};

use crate::instance::config::InterflowConfig;
use crate::instance::watched_files::FileStamps;
use crate::{Result, fleet};

use approvals::ApprovalsComponent;
#[cfg(feature = "fleet")]
pub use approvals::MODE_FILE;
use audit::TelemetryComponent;
use guardrails::GuardrailComponent;
pub use limits::{LimitsComponent, separate_limits_warning, spend_ledger};
use llm::LlmComponent;
use mcp::McpComponent;
#[cfg(feature = "media")]
use media::MediaComponent;
use record_store::RecordStore;
pub use recordings::RecordingArchives;
use redaction::RedactionComponent;
pub use rule_formats::rule_formats;
pub use rules::BuildCapabilities;
use rules::RulesComponent;

/// Activates a prepared configuration change. Runs only after every component has prepared successfully.
pub type ApplyFn = Box<dyn FnOnce() + Send>;

/// A feature component that can be reloaded.
pub trait Component: Send + Sync {
    /// Reads and compiles a new configuration without activating it.
    ///
    /// # Errors
    /// The configuration is invalid; the previous one stays active.
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String>;
}

/// Files whose modification triggers a reload, of those that the configuration names or implies.
pub fn named_files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = config.auth.users.iter().cloned().collect();
    files.extend(limits::files(config, home));
    files.extend(redaction::files(config, home));
    files.extend(guardrails::files(config, home));
    files.extend(rules::files(config, home));
    files.extend(approvals::files(config, home));
    files
}

/// What the components of a running instance use beside its configuration; a check has none of it.
#[derive(Default)]
pub struct ComponentDeps<'a> {
    pub store: Option<&'a Arc<RecordStore>>,
    pub spend: Option<Arc<SpendLedger>>,
    /// Where replicas share the grants of MCP users, if they share a store.
    pub grants: Option<Arc<dyn GrantStore>>,
    /// The client for Interflow's own requests; it works once the server has started.
    pub local: LocalClient,
}

pub struct ComponentSet {
    /// The versions of the files that the components read.
    pub stamps: FileStamps,
    /// Pipeline stages, in execution order.
    pub stages: Vec<Arc<dyn Stage>>,
    /// Gateway endpoints, in matching order.
    pub mounts: Vec<Arc<dyn GatewayMount>>,
    pub limits: Arc<LimitsComponent>,
    pub accounts: Arc<TelemetryComponent>,
    pub approvals: Arc<ApprovalsComponent>,
    /// Names of addresses, learned from the DNS listener.
    pub names: Arc<AddressNames>,
    pub rules: Arc<interflow_rules::ActiveRules>,
    #[cfg(feature = "media")]
    pub media: Arc<MediaService>,
    pub redaction: Arc<RedactionService>,
    pub gateway: Arc<LlmGateway>,
    guardrails: Arc<GuardrailService>,
    pub mcp: Arc<McpService>,
    /// The client for Interflow's own requests; it works once the server has started.
    pub local: LocalClient,
    reloadable: Vec<Arc<dyn Component>>,
}

impl ComponentSet {
    /// # Errors
    /// The configuration or a file that it names is invalid.
    pub fn new(config: &InterflowConfig, home: &DataDir, deps: &ComponentDeps<'_>) -> Result<Self> {
        rules::create_own_file(config, home);
        // Before anything is read.
        let stamps = FileStamps::take(named_files(config, home));
        let local = deps.local.clone();
        #[cfg(feature = "media")]
        let media = Arc::new(MediaComponent::new(config, home, &local)?);
        let unrecorded = Arc::new(local.unrecorded());
        let alerts = AlertSender::new(Arc::clone(&unrecorded) as _);
        let limits = LimiterDeps { spend: deps.spend.clone(), alerts: Some(alerts) };
        let limits =
            UsageLimiter::with_deps(&config.quota, home.path(), fleet::REDIS, limits).map_err(|e| e.to_string())?;
        let redaction = Arc::new(RedactionComponent::new(config, home, &local)?);
        let llm = Arc::new(LlmComponent::new(config, home, &local, &limits, &redaction.redaction)?);
        let limits = Arc::new(LimitsComponent::new(config, home, limits, &llm.gateway)?);
        let accounts = Arc::new(TelemetryComponent::new(config, home, Arc::clone(&limits.limits), unrecorded)?);
        let approvals = Arc::new(ApprovalsComponent::new(config, home)?);
        let guardrails = Arc::new(GuardrailComponent::new(config, home, &local, &llm.gateway, &approvals.approvals)?);
        let mcp = Arc::new(McpComponent::new(
            config,
            home,
            deps,
            &redaction.redaction,
            &approvals.approvals,
            &limits,
            &guardrails.guardrails,
        )?);
        let [mcp_oauth, mcp_prepare, mcp_restore] = mcp.service.stages();
        let [admit, inspect, restore, send] = stage::stages(
            &llm.gateway,
            Arc::clone(&accounts.accounts),
            Arc::clone(&limits.pass),
            Arc::clone(&redaction.redaction),
            Arc::clone(&guardrails.guardrails),
        );
        let rules = Arc::new(RulesComponent::new(config, home, &local, deps.store)?);
        let names = Arc::new(AddressNames::new(&config.dns));
        let stages: Vec<Arc<dyn Stage>> = vec![
            // Name resolution first: approval prompts must show the name that the client used, not an address.
            Arc::new(DnsNamesStage::new(Arc::clone(&names), config.dns.listen.is_some())),
            // Approvals decide before anything else; secrets are inserted in the last phase.
            Arc::clone(&approvals.stage) as _,
            // Access tokens of the MCP gateway take the place of virtual keys, which are checked next.
            mcp_oauth,
            // The passes over LLM traffic, here and below: `interflow_llm_gateway::stage` has their order.
            admit,
            // Rules run before redaction, so that text inserted by a rule is redacted too.
            rules.rules.request_stage(),
            // Redaction and guardrails. On responses, findings are checked before originals are restored, and the
            // recorder never sees the restored text.
            inspect,
            // Arguments of MCP servers' tools, in the same place and for the same reasons.
            mcp_prepare,
            restore,
            mcp_restore,
            // On responses, runs after redaction.
            rules.rules.response_stage(),
            // Last, because signatures must cover the final request.
            send,
        ];
        let mounts: Vec<Arc<dyn GatewayMount>> = vec![
            // Media first: `media.compat` serves paths at the root, including `/health`.
            #[cfg(feature = "media")]
            Arc::new(MediaMount(Arc::clone(&media.media))),
            Arc::new(RedactionMount(Arc::clone(&redaction.redaction))),
            // Before the providers, of which one may have the same name.
            Arc::new(McpMount(Arc::clone(&mcp.service))),
            Arc::clone(&llm.mount),
        ];
        Ok(Self {
            stamps,
            stages,
            mounts,
            limits: Arc::clone(&limits),
            accounts: Arc::clone(&accounts),
            names,
            rules: Arc::clone(&rules.rules),
            #[cfg(feature = "media")]
            media: Arc::clone(&media.media),
            redaction: Arc::clone(&redaction.redaction),
            approvals: Arc::clone(&approvals),
            gateway: Arc::clone(&llm.gateway),
            guardrails: Arc::clone(&guardrails.guardrails),
            mcp: Arc::clone(&mcp.service),
            local,
            // In the order in which they are applied: the accounts of MCP users depend on the keys.
            reloadable: vec![
                limits,
                accounts,
                #[cfg(feature = "media")]
                media,
                llm,
                redaction,
                guardrails,
                mcp,
                rules,
                approvals,
            ],
        })
    }

    /// Starts the conversation indexer over the store.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn conversations(&self, store: &Arc<RecordStore>) -> Result<IndexerHandle> {
        let live = conversations::start(store, &self.limits.limits)?;
        // Endpoint overrides apply to redaction, too.
        let endpoints = live.endpoints();
        self.gateway.name_endpoints(move |url, method, websocket| {
            let endpoints = endpoints.load();
            if endpoints.list().is_empty() {
                return None;
            }
            endpoints.shape_at(&url.authority.host.to_string(), &url.path, method.as_str(), websocket)
        });
        Ok(live)
    }

    /// Attaches the started server, which a change of approvals reloads.
    pub fn attach(&self, engine: &Arc<ProxyServer>) {
        self.approvals.attach(engine);
    }

    /// The metrics of the gateways and guardrails.
    pub fn metrics(&self) -> MetricsSource {
        let (gateway, guardrails) = (Arc::clone(&self.gateway), Arc::clone(&self.guardrails));
        let mcp = Arc::clone(&self.mcp);
        Box::new(move |page| {
            mcp::write_metrics(&mcp.counts(), page);
            guardrails::write_metrics(&guardrails.counts(), page);
            let breakers = gateway.breakers();
            page.samples(&table::LLM_BREAKER_OPEN, breakers.iter().map(|(name, open)| ([name], u8::from(*open))));
            llm::write_deployment_metrics(&gateway.routes(), page);
            llm::write_cache_metrics(&gateway.cache().stats(), page);
        })
    }

    /// Further files whose modification triggers a reload: those that the active files name.
    pub fn found_files(&self) -> Vec<PathBuf> {
        self.rules.program().files.clone()
    }

    /// Prepares a new configuration in every component.
    ///
    /// # Errors
    /// The configuration is invalid; nothing was changed.
    pub fn prepare(&self, config: &InterflowConfig) -> Result<Vec<ApplyFn>, String> {
        self.reloadable.iter().map(|r| r.prepare(config)).collect()
    }
}
