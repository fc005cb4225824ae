//! What the handlers share: the components of the instance, and the limits of concurrent work.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interflow_approvals::Approvals;
use interflow_archive::ArchiveProgress;
use interflow_archive::view::ProtoSchemas;
use interflow_codec::prometheus::MetricsPage;
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_limits::{KeyStore, UsageLimiter};
use interflow_llm_gateway::gateway::LlmGateway;
use interflow_llm_gateway::llm_telemetry::LlmTelemetry;
use interflow_llm_gateway::redaction::RedactionService;
use interflow_mcp_gateway::McpService;
#[cfg(feature = "media")]
use interflow_media::MediaService;
use interflow_proxy::ProxyServer;
use interflow_rules::ActiveRules;
use interflow_store::FlowStore;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::AdminConfig;
use crate::audit::AdminAudit;
use crate::audit::last_editors::LastEditors;
use crate::auth::sessions::BrowserSessions;
use crate::collections::CollectionStore;
use crate::composed_streams::{ComposedStreams, Frame, Requests};
use crate::doctor::DoctorFn;
use crate::event_clients::EventClients;
use crate::identity::shared::SharedIdentity;
use crate::identity::token_lifetimes::TokenLifetimes;
use crate::pending::FleetPending;
use crate::pending::queue::PendingQueue;
use crate::records::{MAX_UPLOAD, Records};
use crate::reload::{ActiveConfig, ReloadFn};
use crate::rule_proposals::RuleProposals;
use crate::serve::PortLimits;
use crate::settings::{SettingsEditor, SharedSettings};
use crate::setup::MachineSetup;

/// Concurrent text checks; more wait.
const MAX_CHECKS: usize = 2;
/// Concurrent changes of files whose texts are not the client's; more wait.
const MAX_EDITS: usize = 4;

/// Writes metrics that the admin side does not know.
pub type MetricsSource = Box<dyn Fn(&mut MetricsPage) + Send + Sync>;

pub struct AdminDeps {
    pub engine: Arc<ProxyServer>,
    /// The flow store, if recording is enabled.
    pub store: Option<Arc<dyn FlowStore>>,
    /// The conversation indexer, if recording is enabled.
    pub conversations: Option<IndexerHandle>,
    /// The active configuration. A reload replaces it.
    pub config: ActiveConfig,
    pub rules: Option<Arc<ActiveRules>>,
    pub token: String,
    /// The data directory, in which collections of composed requests are kept.
    pub data_dir: PathBuf,
    /// Where API tokens and the audit trail are shared with other replicas; the data directory has them otherwise.
    pub shared: Option<SharedIdentity>,
    /// How commands for this instance begin: `interflow`, with `--data-dir` unless it has the default data directory.
    pub command: String,
    /// The file that contains the token; `None` if the operator gave it in another way.
    pub token_file: Option<PathBuf>,
    /// Redaction of requests to LLM providers, if enabled.
    pub redaction: Option<Arc<RedactionService>>,
    /// Keys, limits and telemetry of LLM traffic, if enabled.
    pub limits: Option<LimitDeps>,
    /// Schemas for displaying gRPC and Protocol Buffers.
    pub schemas: Arc<ProtoSchemas>,
    pub approvals: Option<Arc<Approvals>>,
    /// What waits for a decision at other replicas, if they share the recording.
    pub fleet_pending: Option<Arc<FleetPending>>,
    /// Runs the checks of `interflow doctor`; may take a second.
    pub doctor: Option<DoctorFn>,
    /// The LLM gateway, if there is one.
    pub llm: Option<Arc<LlmGateway>>,
    /// The MCP gateway, if there is one.
    pub mcp: Option<Arc<McpService>>,
    #[cfg(feature = "media")]
    pub media: Option<Arc<MediaService>>,
    /// The state of the record's archive, if there is one.
    pub archive: Option<ArchiveProgressFn>,
    /// The machine, for the page "Intercept".
    pub setup: Option<MachineSetup>,
    /// Reloads the configuration, if the instance can.
    pub reload: Option<ReloadFn>,
    /// Changes the configuration file, if the instance has one.
    pub settings: Option<Arc<dyn SettingsEditor>>,
    /// Revisions of the settings that replicas share, if they do.
    pub shared_settings: Option<SharedSettings>,
    /// Metrics of components that the admin side does not know. Their families belong in the table.
    pub metrics: Vec<MetricsSource>,
}

/// Returns the state of the record's archive; must not block.
pub type ArchiveProgressFn = Box<dyn Fn() -> ArchiveProgress + Send + Sync>;

/// Keys and limits of LLM traffic.
#[derive(Clone)]
pub struct LimitDeps {
    pub keys: Arc<KeyStore>,
    pub limits: Arc<UsageLimiter>,
    pub accounts: Arc<LlmTelemetry>,
}

/// The components of the instance, with what the admin side keeps for itself.
pub struct AdminState {
    deps: AdminDeps,
    pub(crate) records: Records,
    pub(crate) proposals: RuleProposals,
    /// What waits for a decision in this process.
    pub(crate) pending: PendingQueue,
    pub(crate) address: SocketAddr,
    pub(crate) viewers: EventClients,
    pub(crate) events_patience: Duration,
    pub(crate) mcp_writes: bool,
    pub(crate) sessions: Arc<BrowserSessions>,
    /// The issuer at which people log in, as the login page names it.
    pub(crate) issuer: Option<String>,
    pub(crate) audit: Arc<AdminAudit>,
    pub(crate) token_lifetimes: TokenLifetimes,
    pub(crate) collections: Arc<CollectionStore>,
    pub(crate) composed_sockets: ComposedStreams<Frame>,
    pub(crate) composed_calls: ComposedStreams<Requests>,
    /// Limits concurrent checks of texts that a client sends: rules, policies, queries.
    pub(crate) checks: Arc<Semaphore>,
    /// Limits concurrent changes of other files. Apart from the checks, which may take long: revoking a key must not wait.
    pub(crate) edits: Arc<Semaphore>,
    /// Held while a rule file is saved.
    pub(crate) rule_saves: Arc<Mutex<()>>,
    pub(crate) port_limits: PortLimits,
}

/// As handlers have it.
pub(crate) type SharedState = Arc<AdminState>;

impl Deref for AdminState {
    type Target = AdminDeps;

    fn deref(&self) -> &AdminDeps {
        &self.deps
    }
}

impl AdminState {
    /// Joins the components that the binary gives to what the admin side keeps for itself.
    pub(crate) fn new(
        config: &AdminConfig,
        address: SocketAddr,
        sessions: Arc<BrowserSessions>,
        issuer: Option<String>,
        audit: Arc<AdminAudit>,
        deps: AdminDeps,
    ) -> Self {
        Self {
            pending: PendingQueue::new(deps.approvals.clone(), deps.rules.clone()),
            records: Records::new(deps.store.clone(), MAX_UPLOAD),
            proposals: RuleProposals::default(),
            address,
            viewers: EventClients::default(),
            events_patience: config.events_write_timeout.0,
            mcp_writes: config.mcp_writes,
            sessions,
            issuer,
            audit,
            token_lifetimes: TokenLifetimes::new(config),
            collections: Arc::new(CollectionStore::new(&deps.data_dir)),
            composed_sockets: ComposedStreams::new(),
            composed_calls: ComposedStreams::new(),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
            edits: Arc::new(Semaphore::new(MAX_EDITS)),
            rule_saves: Arc::default(),
            port_limits: PortLimits::new(config),
            deps,
        }
    }

    /// Who changes settings over the API.
    pub fn last_editors(&self) -> Arc<LastEditors> {
        Arc::clone(&self.audit.editors)
    }

    /// The active configuration, as in its file, with secrets.
    pub fn config(&self) -> Arc<serde_json::Value> {
        self.config.get()
    }
}
