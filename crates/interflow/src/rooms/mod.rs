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

use interflow_engine::Engine;
use interflow_engine::conversations::live::Live;
use interflow_engine::dns::{DnsNamesStage, Names};
use interflow_engine::redaction::{FilterDoor, Redaction};
use interflow_flow::{Mount, Stage};
use interflow_llm::gateway::Gateway;
use interflow_media::{Media, MediaDoor};
use interflow_record::EmbeddedStore;

use crate::Failure;
use crate::config::Config;
use crate::home::Home;

use approvals::ApprovalsRoom;
use audit::AccountRoom;
pub use egress::LateEgress;
pub use limits::LimitRoom;
use llm::LlmRoom;
use media::MediaRoom;
pub use recordings::Archives;
use redaction::RedactionRoom;
pub use rules::Means;
use rules::RuleRoom;

/// What is put in force once everything else is known to be right as well.
pub type Change = Box<dyn FnOnce() + Send>;

/// A room as far as the binary has to do with it once it stands.
pub trait Room: Send + Sync {
    /// The files it reads, whose change is a reason to reload.
    fn files(&self, _config: &Config) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Reads and compiles what it needs of another configuration, without changing anything yet.
    ///
    /// # Errors
    /// What is wrong, with its place and the remedy: the old configuration stays in force.
    fn prepare(&self, config: &Config) -> Result<Change, String>;
}

/// Everything that stands beside the corridor.
pub struct Rooms {
    /// The stages in their order: access, limits, rules, redaction, media.
    pub stages: Vec<Arc<dyn Stage>>,
    /// The doors on the gateway port, in the order in which they are asked.
    pub mounts: Vec<Arc<dyn Mount>>,
    /// Virtual keys and limits.
    pub limits: Arc<LimitRoom>,
    /// Audit lines, metrics and spans.
    pub accounts: Arc<AccountRoom>,
    /// Approvals, for the admin side.
    pub approvals: Arc<ApprovalsRoom>,
    /// What the DNS port hears.
    pub names: Arc<Names>,
    /// The rules, for the admin side.
    pub rules: Arc<interflow_rules::Rules>,
    /// The media room, for those who look on.
    pub media: Arc<Media>,
    /// Redaction, for the admin side.
    pub redaction: Arc<Redaction>,
    gateway: Arc<Gateway>,
    egress: Arc<LateEgress>,
    rooms: Vec<Arc<dyn Room>>,
}

impl Rooms {
    /// Builds them.
    ///
    /// # Errors
    /// The first thing in the configuration, or in a file it names, that is wrong.
    pub fn new(config: &Config, home: &Home, store: Option<&Arc<EmbeddedStore>>) -> Result<Self, Failure> {
        let egress = Arc::new(LateEgress::default());
        let media = Arc::new(MediaRoom::new(&config.media, home, &egress)?);
        let llm = Arc::new(LlmRoom::new(config, &egress)?);
        let gateway = Arc::clone(&llm.gateway);
        let limits = Arc::new(LimitRoom::new(config, home, Arc::new(move |name| gateway.holds_key_of(name)))?);
        let redaction = Arc::new(RedactionRoom::new(config, home, &egress)?);
        let unseen = egress.unrecorded();
        let accounts = Arc::new(AccountRoom::new(config, home, Arc::clone(&limits.limits), unseen)?);
        let approvals = Arc::new(ApprovalsRoom::new(config, home)?);
        let room = Arc::clone(&redaction.redaction);
        llm.gateway.look_everywhere(move |transport| room.redacts(transport));
        let [redact, restore] = redaction.redaction.stages();
        let rules = Arc::new(RuleRoom::new(config, home, &egress, store)?);
        let dns = config.dns();
        let names = Arc::new(Names::new(&dns));
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
            rules.rules().requests(),
            // What rules have made of a request is what must hold no secret; on the way back, what a provider said is looked
            // at first, and originals are put in behind the recorder's back.
            redact,
            restore,
            // Behind redaction on the way back.
            rules.rules().responses(),
            // Last: signatures and keys go on what really leaves.
            Arc::clone(&llm.sender),
        ];
        let filter = FilterDoor(Arc::clone(&redaction.redaction));
        let mounts: Vec<Arc<dyn Mount>> =
            // Media first: where its owner wants mediaflow-proxy's paths at the root, `/health` is one of them.
            vec![Arc::new(MediaDoor::new(Arc::clone(media.media()))), Arc::new(filter), Arc::clone(&llm.doors)];
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
    pub fn conversations(&self, store: &Arc<EmbeddedStore>) -> Result<Live, Failure> {
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
    pub fn attach(&self, engine: &Arc<Engine>) {
        self.egress.attach(engine);
        self.approvals.attach(engine);
    }

    /// The files whose change is a reason to reload.
    pub fn files(&self, config: &Config) -> Vec<PathBuf> {
        self.rooms.iter().flat_map(|r| r.files(config)).collect()
    }

    /// Reads and compiles another configuration for every room.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing has changed then.
    pub fn prepare(&self, config: &Config) -> Result<Vec<Change>, String> {
        self.rooms.iter().map(|r| r.prepare(config)).collect()
    }
}
