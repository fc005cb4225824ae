//! The service: one per process, with the servers of the active configuration and the sessions of clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use interflow_redact::{ValueGuard, ValuePolicy};
use interflow_store::shared_state::{GrantStore, StoredGrant};
use interflow_types::schema::JsonSchema;
use interflow_types::{
    BoxFuture, Direction, EarlyExit, EntryKind, Flow, HttpClient, PlanScope, RequestHead, Timestamp,
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use crate::access_identity::AccessTokenSource;
use crate::config::McpConfig;
use crate::grants::vault::GrantVault;
use crate::grants::{Grants, KeyRingSource};
use crate::protocol::jsonrpc::{INTERNAL_ERROR, RpcError};
use crate::redaction::values::Findings;
use crate::session::client_session::McpSession;
use crate::session::request_state::StateSealer;
use crate::session::session_table::{Insertion, SessionTable};
use crate::settings::McpSettings;
use crate::upstream::server::McpServer;
use crate::upstream::stdio::StdioRuntime;

/// Asks a person about a flow, with the reason; `Err` says why it is not allowed.
pub type Reviewer = Box<dyn Fn(&Flow, &RequestHead, String) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
/// The redaction policy of a flow; a server may name one. `Err` says why there is none.
pub type PolicySource = Box<dyn Fn(&Flow, Option<&str>) -> Result<ValuePolicy, String> + Send + Sync>;
/// Counts a call against the limits of its key and user. `Err` is what the client gets instead.
pub type CallAdmission = Box<dyn for<'f> Fn(&'f mut Flow) -> BoxFuture<'f, Result<(), EarlyExit>> + Send + Sync>;
/// Counts findings by type, in arguments (`Request`) or in results.
pub type FindingCounter = Box<dyn Fn(Direction, &BTreeMap<String, u64>) + Send + Sync>;

/// The guard of a call to a server, if there is one.
pub type GuardSource = Box<dyn Fn(&mut Flow, &str) -> Option<Arc<dyn ValueGuard>> + Send + Sync>;

/// Whether a request carries a virtual key where the check of keys, which follows, looks for one.
pub type KeyCheck = Box<dyn Fn(&RequestHead) -> bool + Send + Sync>;

/// What the service needs of other components.
pub struct McpDeps {
    /// Sends requests to servers over HTTP. They must not be recorded: the flow of the client is, redacted.
    pub http: Arc<dyn HttpClient>,
    pub review: Reviewer,
    pub policy: PolicySource,
    pub admit: CallAdmission,
    pub shows_key: KeyCheck,
    pub count: FindingCounter,
    /// After redaction: guards see what servers and recorder get.
    pub guard: GuardSource,
    pub tokens: AccessTokenSource,
    /// Sends requests to URLs that servers name: never into private networks.
    pub discovered: Arc<dyn HttpClient>,
    /// Where the accounts of users are kept.
    pub grants: Arc<dyn GrantStore>,
    pub keys: KeyRingSource,
    /// The secret of the installation, the same on all replicas.
    pub master: [u8; 32],
}

/// Counters since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpCallCounts {
    /// Calls of tools, prompts and resources, by server and result: `ok`, `error` or `refused`.
    pub calls: BTreeMap<(String, &'static str), u64>,
    /// Sessions of clients at present.
    pub sessions: usize,
}

/// An account that a user has connected at a server. Its tokens are shown nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct McpAccount {
    /// `key:ID`, `user:SUBJECT`, or `local` for users of this machine without either.
    pub user: String,
    pub server: String,
    pub connected: Timestamp,
}

pub struct McpService {
    pub(crate) deps: McpDeps,
    settings: ArcSwap<McpSettings>,
    runtime: Arc<StdioRuntime>,
    pub(crate) sessions: SessionTable,
    pub(crate) sealer: Arc<StateSealer>,
    pub(crate) grants: Arc<Grants>,
    /// Tells the streams without a session to end.
    pub(crate) stream_ends: watch::Sender<()>,
    calls: Mutex<BTreeMap<(String, &'static str), u64>>,
}

/// Ends sessions with servers, one after the other. No request waits for it.
async fn end_sessions(settings: Arc<McpSettings>, sessions: Vec<Arc<McpSession>>) {
    for session in sessions {
        session.end_at_servers(&settings).await;
    }
}

/// How often sessions are checked, within the session timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// The task that ends sessions that expired, as long as there are any. If it is dropped, with the runtime of its worker,
/// the next session begins another.
struct SessionSweeper {
    service: Weak<McpService>,
    /// It is not needed any more; there may be another one by now.
    is_over: bool,
}

impl SessionSweeper {
    async fn run(mut self) {
        while !self.is_over {
            let Some(timeout) = self.service.upgrade().map(|service| service.settings().session_timeout) else {
                return;
            };
            let pause = (timeout / CHECKS_PER_TIMEOUT).clamp(Duration::from_millis(10), Duration::from_secs(60));
            tokio::time::sleep(pause).await;
            let Some(service) = self.service.upgrade() else { return };
            let settings = service.settings();
            let (expired, is_over) = service.sessions.take_expired(settings.session_timeout);
            self.is_over = is_over;
            drop(service);
            end_sessions(settings, expired).await;
        }
    }
}

impl Drop for SessionSweeper {
    fn drop(&mut self) {
        if let Some(service) = self.service.upgrade().filter(|_| !self.is_over) {
            service.sessions.lose_sweeper();
        }
    }
}

impl McpService {
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: &McpConfig, deps: McpDeps) -> Result<Arc<Self>, String> {
        let sealer = Arc::new(StateSealer::new(&deps.master));
        let (store, keys) = (Arc::clone(&deps.grants), Arc::clone(&deps.keys));
        let vault = GrantVault { store, sealer: Arc::clone(&sealer), keys };
        let (http, discovered) = (Arc::clone(&deps.http), Arc::clone(&deps.discovered));
        let grants = Grants::new(vault, Arc::clone(&sealer), deps.master, http, discovered);
        let (settings, runtime, sessions, calls) = Default::default();
        let stream_ends = watch::Sender::new(());
        let service = Self { deps, settings, runtime, sessions, sealer, grants, stream_ends, calls };
        let settings = service.compile(config)?;
        service.activate(settings);
        Ok(Arc::new(service))
    }

    /// Compiles another configuration without activating it.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn compile(&self, config: &McpConfig) -> Result<McpSettings, String> {
        McpSettings::new(config, &self.settings.load(), &self.runtime, &self.deps.tokens, &self.grants)
    }

    /// Activates settings. Requests in progress keep theirs; processes of servers that are gone end.
    pub fn activate(&self, settings: McpSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// The accounts that users have connected at servers.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn accounts(&self) -> Result<Vec<McpAccount>, String> {
        let stored = self.grants.vault.grants().await?;
        let account = |StoredGrant { user, server, connected, .. }| McpAccount {
            user,
            server,
            connected: Timestamp::from_secs(connected),
        };
        Ok(stored.into_iter().map(account).collect())
    }

    /// Forgets an account; `false` if there is none.
    ///
    /// # Errors
    /// That cannot be stored.
    pub async fn remove_account(&self, user: &str, server: &str) -> Result<bool, String> {
        self.grants.vault.remove(user, server).await
    }

    /// Forgets the accounts of keys that were removed or revoked.
    pub async fn forget_accounts_of_lost_keys(&self) {
        if let Err(error) = self.grants.vault.remove_of_lost_keys().await {
            tracing::warn!(error, "cannot remove accounts of lost keys");
        }
    }

    pub fn counts(&self) -> McpCallCounts {
        McpCallCounts { calls: self.calls.lock().clone(), sessions: self.sessions.len() }
    }

    /// Ends the streams that clients hold open, so that their connections can end.
    pub fn close_streams(&self) {
        self.stream_ends.send_replace(());
        self.sessions.close_streams();
    }

    /// Ends the processes of all servers, for good: Interflow is stopping.
    pub fn close(&self) {
        self.runtime.close();
    }

    /// Adds a session. Those that make room for it, and later those that expire, are ended at their servers, too.
    pub(crate) fn begin_session(self: &Arc<Self>, session: Arc<McpSession>, settings: &McpSettings) -> Arc<McpSession> {
        let Insertion { session, removed, needs_sweeper } = self.sessions.insert(session, settings.max_sessions);
        let sweeper = needs_sweeper.then(|| SessionSweeper { service: Arc::downgrade(self), is_over: false });
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return session };
        if !removed.is_empty() {
            runtime.spawn(end_sessions(self.settings(), removed));
        }
        if let Some(sweeper) = sweeper {
            runtime.spawn(sweeper.run());
        }
        session
    }

    pub(crate) fn settings(&self) -> Arc<McpSettings> {
        self.settings.load_full()
    }

    pub(crate) fn has_servers(&self) -> bool {
        !self.settings.load().is_empty()
    }

    /// Whether requests of this kind may be for an endpoint.
    pub(crate) fn may_serve(&self, scope: &PlanScope<'_>) -> bool {
        scope.transport == EntryKind::Gateway && self.has_servers()
    }

    /// How the values of a call to a server are inspected.
    ///
    /// # Errors
    /// There is no policy.
    pub(crate) fn policy(&self, flow: &mut Flow, server: &McpServer) -> Result<ValuePolicy, RpcError> {
        let guard = (self.deps.guard)(flow, &server.name);
        Ok(ValuePolicy { guard, ..self.flow_policy(flow, server.config.policy.as_deref())? })
    }

    /// The policy of a flow; a server may name one.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn flow_policy(&self, flow: &Flow, named: Option<&str>) -> Result<ValuePolicy, RpcError> {
        (self.deps.policy)(flow, named).map_err(|why| RpcError::new(INTERNAL_ERROR, why))
    }

    pub(crate) fn count_call(&self, server: &str, result: &'static str) {
        *self.calls.lock().entry((server.to_owned(), result)).or_default() += 1;
    }

    pub(crate) fn count_findings(&self, direction: Direction, findings: &Findings) {
        if !findings.is_empty() {
            (self.deps.count)(direction, findings);
        }
    }
}
