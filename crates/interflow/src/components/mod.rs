//! The rooms beside the corridor, put together from the configuration: which stages stand in it, in which order, and which
//! doors open on the gateway port.

mod approvals;
mod audit;
pub mod conversations;
mod egress;
mod limits;
mod llm;
pub mod media;
mod recordings;
mod redaction;
mod rules;

use std::path::PathBuf;
use std::sync::Arc;

use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_llm::gateway::LlmGateway;
use interflow_llm_gateway::redaction::{PhilterMount, RedactionService};
use interflow_media::{MediaMount, MediaService};
use interflow_proxy::ProxyServer;
use interflow_proxy::dns::{AddressNames, DnsNamesStage};
use interflow_store::SqliteStore;
use interflow_types::{GatewayMount, Stage};

use crate::CliError;
use crate::config::InterflowConfig;
use crate::data_dir::DataDir;

use approvals::ApprovalsComponent;
use audit::TelemetryComponent;
pub use egress::DeferredClient;
pub use limits::LimitsComponent;
use llm::LlmComponent;
use media::MediaComponent;
pub use recordings::RecordingArchives;
use redaction::RedactionComponent;
pub use rules::BuildCapabilities;
use rules::RulesComponent;

/// What is put in force once everything else is known to be right as well.
pub type ApplyFn = Box<dyn FnOnce() + Send>;

/// A room as far as the binary has to do with it once it stands.
pub trait Component: Send + Sync {
    /// The files it reads, whose change is a reason to reload.
    fn files(&self, _config: &InterflowConfig) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Reads and compiles what it needs of another configuration, without changing anything yet.
    ///
    /// # Errors
    /// What is wrong, with its place and the remedy: the old configuration stays in force.
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String>;
}

/// Everything that stands beside the corridor.
pub struct ComponentSet {
    /// The stages in their order: access, limits, rules, redaction, media.
    pub stages: Vec<Arc<dyn Stage>>,
    /// The doors on the gateway port, in the order in which they are asked.
    pub mounts: Vec<Arc<dyn GatewayMount>>,
    /// Virtual keys and limits.
    pub limits: Arc<LimitsComponent>,
    /// Audit lines, metrics and spans.
    pub accounts: Arc<TelemetryComponent>,
    /// Approvals, for the admin side.
    pub approvals: Arc<ApprovalsComponent>,
    /// What the DNS port hears.
    pub names: Arc<AddressNames>,
    /// The rules, for the admin side.
    pub rules: Arc<interflow_rules::ActiveRules>,
    /// The media room, for those who look on.
    pub media: Arc<MediaService>,
    /// Redaction, for the admin side.
    pub redaction: Arc<RedactionService>,
    gateway: Arc<LlmGateway>,
    egress: Arc<DeferredClient>,
    rooms: Vec<Arc<dyn Component>>,
}

impl ComponentSet {
    /// Builds them.
    ///
    /// # Errors
    /// The first thing in the configuration, or in a file it names, that is wrong.
    pub fn new(config: &InterflowConfig, home: &DataDir, store: Option<&Arc<SqliteStore>>) -> Result<Self, CliError> {
        let egress = Arc::new(DeferredClient::default());
        let media = Arc::new(MediaComponent::new(&config.media, home, &egress)?);
        let llm = Arc::new(LlmComponent::new(config, &egress)?);
        let gateway = Arc::clone(&llm.gateway);
        let limits = Arc::new(LimitsComponent::new(config, home, Arc::new(move |name| gateway.holds_key_of(name)))?);
        let redaction = Arc::new(RedactionComponent::new(config, home, &egress)?);
        let unseen = egress.unrecorded_client();
        let accounts = Arc::new(TelemetryComponent::new(config, home, Arc::clone(&limits.limits), unseen)?);
        let approvals = Arc::new(ApprovalsComponent::new(config, home)?);
        let room = Arc::clone(&redaction.redaction);
        llm.gateway.set_inspection_check(move |transport| room.redacts(transport));
        let [redact, restore] = redaction.redaction.stages();
        let rules = Arc::new(RulesComponent::new(config, home, &egress, store)?);
        let dns = config.dns();
        let names = Arc::new(AddressNames::new(&dns));
        let stages: Vec<Arc<dyn Stage>> = vec![
            // Names first: who is asked about an address is to see what the client calls it.
            Arc::new(DnsNamesStage::new(Arc::clone(&names), dns.listen.is_some())),
            // Who may go where is asked before anything else; secrets go in on the last step of all.
            Arc::clone(&approvals.stage) as _,
            // Whoever comes after it knows which requests are for an LLM, and sees what answers used up.
            Arc::clone(&llm.recogniser),
            // Watches every request to a provider from here on, those that the next ones refuse too.
            Arc::clone(&accounts.stage) as _,
            // Before anything looks into the request: what is over a limit shall cost nothing more.
            Arc::clone(&limits.stage) as _,
            // Before redaction, so that nothing a rule puts in leaves unredacted.
            rules.rules().request_stage(),
            // What rules have made of a request is what must hold no secret; on the way back, what a provider said is looked
            // at first, and originals are put in behind the recorder's back.
            redact,
            restore,
            // Behind redaction on the way back.
            rules.rules().response_stage(),
            // Last: signatures and keys go on what really leaves.
            Arc::clone(&llm.sender),
        ];
        let filter = PhilterMount(Arc::clone(&redaction.redaction));
        let mounts: Vec<Arc<dyn GatewayMount>> =
            // Media first: where its owner wants mediaflow-proxy's paths at the root, `/health` is one of them.
            vec![Arc::new(MediaMount::new(Arc::clone(media.media()))), Arc::new(filter), Arc::clone(&llm.doors)];
        Ok(Self {
            stages,
            mounts,
            limits: Arc::clone(&limits),
            accounts: Arc::clone(&accounts),
            names,
            rules: Arc::clone(rules.rules()),
            media: Arc::clone(media.media()),
            redaction: Arc::clone(&redaction.redaction),
            approvals: Arc::clone(&approvals),
            gateway: Arc::clone(&llm.gateway),
            egress,
            rooms: vec![limits, accounts, media, llm, redaction, rules, approvals],
        })
    }

    /// What puts conversations together, over the recording.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn conversations(&self, store: &Arc<SqliteStore>) -> Result<IndexerHandle, CliError> {
        let live = conversations::start(store, &self.limits.limits)?;
        // What is told to be a conversation is redacted as one.
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

    /// Opens the way out, once the corridor runs.
    pub fn attach(&self, engine: &Arc<ProxyServer>) {
        self.egress.attach(engine);
        self.approvals.attach(engine);
    }

    /// The files whose change is a reason to reload.
    pub fn files(&self, config: &InterflowConfig) -> Vec<PathBuf> {
        self.rooms.iter().flat_map(|r| r.files(config)).collect()
    }

    /// Reads and compiles another configuration for every room.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing has changed then.
    pub fn prepare(&self, config: &InterflowConfig) -> Result<Vec<ApplyFn>, String> {
        self.rooms.iter().map(|r| r.prepare(config)).collect()
    }
}
