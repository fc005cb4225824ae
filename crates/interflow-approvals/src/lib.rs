//! Outbound approvals: access decided by rules or by an operator while the flow waits; client sessions with their own
//! rules; and secrets that replace placeholders just before a request is sent to the hosts they are bound to.
#![forbid(unsafe_code)]

mod clock;
pub mod config;
mod decision;
pub mod desktop_notifier;
mod inject_secrets;
mod key_command;
mod mask_secrets;
mod mode;
mod optional_file;
mod pending;
pub mod presets;
mod request_preview;
mod review;
mod rule_set;
mod secret_origin;
mod secrets;
mod sessions;
mod stage;
mod stored;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
pub use interflow_files::EditTurn;
use interflow_types::schema::JsonSchema;
use interflow_types::{ClientInfo, Host, Timestamp, random_bytes};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use clock::now;
use config::{ApprovalAction, ApprovalMode, ApprovalsConfig, RuleSpec, SecretSpec, SessionSpec};
pub use pending::{PendingQuestion, PendingRequest, PendingRequests, ResolvedQuestion};
pub use request_preview::RequestPreview;
pub use rule_set::RuleSource;
pub use secrets::SecretView;
pub use sessions::SessionView;
pub use stage::ApprovalsStage;

use decision::rule_from_resolution;
use mode::TemporaryMode;
use rule_set::{AccessQuestion, ApprovalRule, ApprovalRuleSet};
use secrets::{StoredSecret, VaultKey};
use sessions::ApprovalSession;
use stored::read_files;

/// Bound on rules created at runtime; those of the configuration do not count.
const MAX_DYNAMIC_RULES: usize = 10_000;
/// Bound on stored secrets, and on removed ones that are still masked.
const MAX_SECRETS: usize = 1000;

pub struct Approvals {
    settings: ArcSwap<ApprovalsConfig>,
    temporary_mode: ArcSwap<TemporaryMode>,
    /// Where the mode is kept that was set while the program runs; it ends with the process if absent.
    mode_file: Option<PathBuf>,
    book: ArcSwap<ApprovalRuleSet>,
    sessions: ArcSwap<Vec<ApprovalSession>>,
    secrets: ArcSwap<Vec<Arc<StoredSecret>>>,
    /// The active secrets, and removed ones, because a response may still contain what was sent.
    hidden: ArcSwap<Vec<Arc<StoredSecret>>>,
    /// What waits for a decision.
    pub waiting: PendingRequests,
    /// Held during a change of the files, and taken before `state`, which requests take and no file is read or written under.
    editing: Mutex<()>,
    state: Mutex<ApprovalState>,
    home: PathBuf,
    vault_key: VaultKey,
    on_interest_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

pub(crate) const STAGE: &str = "approvals";

#[derive(Default)]
struct ApprovalState {
    configured: Vec<Arc<ApprovalRule>>,
    made: Vec<Arc<ApprovalRule>>,
    secrets: Vec<Arc<StoredSecret>>,
    /// Removed secrets, the latest last.
    former: Vec<Arc<StoredSecret>>,
    sessions: BTreeMap<Arc<str>, ApprovalSession>,
    /// The current interest of the stage: whether in requests, and whether in inserting secrets.
    shape: (bool, bool),
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApprovalRule")]
pub struct RuleView {
    pub id: String,
    #[serde(rename = "source")]
    pub layer: RuleSource,
    pub removable: bool,
    /// How often it decided since the start.
    pub used: u64,
    /// When it was created; for a configured rule, when the configuration was read.
    #[serde(rename = "created")]
    pub made: Timestamp,
    /// When it last decided since the start.
    pub last_used: Option<Timestamp>,
    #[serde(flatten)]
    pub spec: RuleSpec,
}

/// The operator's decision on a pending request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    pub action: ApprovalAction,
    /// Which flows it applies to: only the waiting ones, or more.
    #[serde(default)]
    pub scope: ResolutionScope,
    /// How long the rule is valid; unlimited if unset. Ignored for `once`.
    #[serde(default, rename = "for")]
    pub lasting: Option<interflow_types::units::HumanDuration>,
    /// Whether the rule applies to every client, not only to the requesting user, process or session.
    #[serde(default)]
    pub everyone: bool,
    /// A description of the rule.
    pub note: Option<String>,
    /// A body that replaces the request's, if that was presented.
    pub body: Option<String>,
}

/// What a resolution applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolutionScope {
    /// The waiting flows only; no rule is created.
    #[default]
    Once,
    /// This method and path on this host and port.
    Path,
    Host,
    AnyPort,
    /// The host and its subdomains, on any port.
    Subdomains,
}

/// The effect of a resolution.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResolutionResult {
    /// The number of waiting flows it decided.
    pub flows: usize,
    pub rule: Option<RuleView>,
}

#[derive(Debug)]
pub(crate) enum Decision {
    Allow,
    /// With the reason, which the client is told.
    Deny(String),
    /// Not enforced, but the flow would be denied.
    WouldDeny,
    Ask,
}

pub type Result<T, E = ApprovalsError> = std::result::Result<T, E>;

/// Why an operation on approvals failed.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalsError {
    #[error("there is no {0}")]
    NotFound(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Io(String),
}

impl Approvals {
    /// Relative file names are resolved against `home`.
    ///
    /// # Errors
    /// An invalid rule or file.
    pub fn new(config: &ApprovalsConfig, home: &Path) -> Result<Self, String> {
        let vault_key = VaultKey::from_config(config)?;
        let (made, secrets) = read_files(config, home, &vault_key)?;
        let state = ApprovalState { configured: compile(config)?, made, secrets, ..ApprovalState::default() };
        let this = Self {
            settings: ArcSwap::from_pointee(config.clone()),
            temporary_mode: ArcSwap::from_pointee(None),
            mode_file: None,
            book: ArcSwap::default(),
            sessions: ArcSwap::default(),
            secrets: ArcSwap::default(),
            hidden: ArcSwap::default(),
            waiting: PendingRequests::new(),
            editing: Mutex::new(()),
            state: Mutex::new(state),
            home: home.to_owned(),
            vault_key,
            on_interest_change: OnceLock::new(),
        };
        this.publish(&mut this.state.lock());
        Ok(this)
    }

    /// Sets the callback for changes of the stage's interest: the proxy must then ask its stages again.
    pub fn on_interest_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        // A second call would be a mistake of the caller; the first stays.
        let _ = self.on_interest_change.set(Box::new(tell));
    }

    /// Compiles another configuration, and the files of rules and secrets as they are now; calling the result
    /// activates them.
    ///
    /// # Errors
    /// The configuration or a file is invalid.
    pub fn prepare(self: &Arc<Self>, config: &ApprovalsConfig) -> Result<impl FnOnce() + Send + use<>, String> {
        let (rules, config, this) = (compile(config)?, config.clone(), Arc::clone(self));
        read_files(&config, &self.home, &self.vault_key)?;
        self.read_mode()?;
        Ok(move || {
            let _alone = this.editing.lock();
            // Read again under the lock, which the API holds while it writes them.
            let stored = read_files(&config, &this.home, &this.vault_key);
            let mut state = this.state.lock();
            match stored {
                Ok(stored) => state.replace_stored(stored),
                Err(e) => tracing::error!("approvals: the previous rules and secrets stay active: {e}"),
            }
            match this.read_mode() {
                Ok(mode) => this.temporary_mode.store(Arc::new(mode)),
                Err(e) => tracing::error!("approvals: the previous mode stays active: {e}"),
            }
            // Before publishing, which reads the mode.
            this.settings.store(Arc::new(config));
            state.configured = rules;
            this.publish(&mut state);
            // Resolving takes locks of its own.
            drop(state);
            this.resolve_decided();
        })
    }

    pub fn timeout(&self) -> Duration {
        self.settings.load().timeout.0
    }

    /// Decides a pending request.
    ///
    /// # Errors
    /// There is none with this id, or the resolution does not make a valid rule.
    pub fn resolve(&self, turn: &EditTurn, id: u64, answer: &Resolution) -> Result<ResolutionResult> {
        let nothing =
            || ApprovalsError::NotFound(format!("pending request {id}; it may have been decided or have timed out"));
        let held = self.waiting.list().into_iter().find(|h| h.id == id).ok_or_else(nothing)?;
        if answer.scope == ResolutionScope::Once {
            if answer.body.is_some() {
                self::decision::check_edit(&held, answer).map_err(ApprovalsError::Invalid)?;
            }
            let done = self.waiting.resolve(id, answer.action, "once", answer.body.clone());
            return Ok(ResolutionResult { flows: done.ok_or_else(nothing)?, rule: None });
        }
        if answer.body.is_some() {
            return Err(ApprovalsError::Invalid("an edited body applies to one request: omit `scope`".to_owned()));
        }
        if !held.question.is_about_host() {
            let why = "a guardrail's question is about one text, not about a host: omit `scope`";
            return Err(ApprovalsError::Invalid(why.to_owned()));
        }
        let rule = self.add_rule(turn, rule_from_resolution(&held.question, answer))?;
        // The new rule has already resolved everything else it decides. This request is resolved even if another rule
        // takes precedence.
        let flows = self.waiting.resolve(id, answer.action, &rule.id, None).unwrap_or(held.waiting);
        Ok(ResolutionResult { flows, rule: Some(rule) })
    }

    /// Every active rule, those of the configuration first.
    pub fn rules(&self) -> Vec<RuleView> {
        let now = now();
        self.book.load().rules.iter().filter(|r| !r.is_expired(now)).map(|r| rule_view(r)).collect()
    }

    /// Creates a rule and stores it.
    ///
    /// # Errors
    /// The rule is invalid, there are too many, or the file cannot be written.
    pub fn add_rule(&self, turn: &EditTurn, spec: RuleSpec) -> Result<RuleView> {
        let rule = ApprovalRule::new(random_id(), RuleSource::Global, spec).map_err(ApprovalsError::Invalid)?;
        let rule = Arc::new(rule);
        self.edit_rules(turn, |made| {
            let now = now();
            made.retain(|r| !r.is_expired(now));
            // The same rule again, for example from a second click, is not an error.
            if let Some(same) = made.iter().find(|r| r.spec == rule.spec) {
                return Ok(rule_view(same));
            }
            if made.len() >= MAX_DYNAMIC_RULES {
                return Err(ApprovalsError::Invalid(format!("there are {MAX_DYNAMIC_RULES} rules already")));
            }
            made.push(Arc::clone(&rule));
            Ok(rule_view(&rule))
        })
    }

    /// Removes a rule that was created at runtime.
    ///
    /// # Errors
    /// There is none with this id, or the file cannot be written.
    pub fn remove_rule(&self, turn: &EditTurn, id: &str) -> Result<()> {
        self.edit_rules(turn, |made| {
            let removed = made.extract_if(.., |r| r.id == id).last().map(drop);
            removed.ok_or_else(|| ApprovalsError::NotFound(format!("rule {id} that was created at runtime")))
        })
    }

    /// Registers a session, or replaces the one with the same id.
    ///
    /// # Errors
    /// The session is invalid, or there are too many.
    pub fn add_session(&self, spec: SessionSpec) -> Result<SessionView> {
        let session = ApprovalSession::new(spec).map_err(ApprovalsError::Invalid)?;
        let view = session.view();
        // A secret that is being stored may have the same label.
        let _alone = self.editing.lock();
        let mut state = self.state.lock();
        // A session that replaces itself may have the same secrets again.
        let all: Vec<_> = state.sessions.values().filter(|s| s.id != session.id).flat_map(|s| &s.secrets).collect();
        check_unique_secrets(all.into_iter().chain(&state.secrets).chain(&session.secrets))?;
        sessions::insert_session(&mut state.sessions, session).map_err(ApprovalsError::Invalid)?;
        self.publish_change(state);
        Ok(view)
    }

    pub fn sessions(&self) -> Vec<SessionView> {
        self.sessions.load().iter().filter(|s| s.is_active()).map(ApprovalSession::view).collect()
    }

    /// Extends a session.
    ///
    /// # Errors
    /// It has expired or never existed.
    pub fn heartbeat(&self, id: &str) -> Result<SessionView> {
        let sessions = self.sessions.load();
        let session = sessions.iter().find(|s| &*s.id == id && s.is_active());
        let session = session.ok_or_else(|| ApprovalsError::NotFound(format!("session {id}; register it again")))?;
        session.renew();
        Ok(session.view())
    }

    /// Ends a session.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn end_session(&self, id: &str) -> Result<()> {
        let mut state = self.state.lock();
        let Some(session) = state.sessions.remove(id) else {
            return Err(ApprovalsError::NotFound(format!("session {id}")));
        };
        // Flows in progress may still hold its rules.
        session.until.store(0, Relaxed);
        self.publish_change(state);
        Ok(())
    }

    pub fn secrets(&self) -> Vec<SecretView> {
        self.secrets.load().iter().filter(|s| !s.is_expired()).map(|s| SecretView::from(&**s)).collect()
    }

    /// Stores a secret, encrypted.
    ///
    /// # Errors
    /// The secret is invalid, its label or placeholder is taken, or the file cannot be written.
    pub fn add_secret(&self, turn: &EditTurn, spec: SecretSpec) -> Result<SecretView> {
        let secret = Arc::new(StoredSecret::new(spec).map_err(ApprovalsError::Invalid)?);
        self.edit_secrets(turn, |state, secrets| {
            if secrets.len() >= MAX_SECRETS {
                return Err(ApprovalsError::Invalid(format!("there are {MAX_SECRETS} secrets already")));
            }
            let of_sessions = state.sessions.values().flat_map(|s| &s.secrets);
            check_unique_secrets(secrets.iter().chain(of_sessions).chain([&secret]))?;
            secrets.push(Arc::clone(&secret));
            Ok(SecretView::from(&*secret))
        })
    }

    /// Deletes a secret.
    ///
    /// # Errors
    /// There is none with this label, or the file cannot be written.
    pub fn remove_secret(&self, turn: &EditTurn, label: &str) -> Result<()> {
        self.edit_secrets(turn, |_, secrets| {
            let removed = secrets.extract_if(.., |s| s.label == label).last().map(drop);
            removed.ok_or_else(|| ApprovalsError::NotFound(format!("secret '{label}'")))
        })
    }

    /// The stage's interest: whether in requests, and whether in inserting secrets.
    pub(crate) fn interest(&self) -> (bool, bool) {
        self.state.lock().shape
    }

    /// The decision of rules and mode on a flow. `inside`: the requests in this tunnel will be decided on their own.
    pub(crate) fn decide(&self, q: &AccessQuestion<'_>, inside: bool) -> Decision {
        let book = self.book.load();
        let mode = self.mode();
        let denied =
            |why: String| if mode == ApprovalMode::Observe { Decision::WouldDeny } else { Decision::Deny(why) };
        match book.decide(q) {
            Some(rule) if rule.spec.action == ApprovalAction::Allow => Decision::Allow,
            Some(_) if inside && book.may_allow_in_tunnel(q) => Decision::Allow,
            Some(rule) => {
                let note = rule.spec.note.as_ref().map(|n| format!(": {n}")).unwrap_or_default();
                denied(format!("the approval rule {} denies it{note}", rule.id))
            }
            // A tunnel that will be decrypted is decided request by request.
            None if inside => Decision::Allow,
            None => match mode {
                ApprovalMode::Observe => Decision::Allow,
                ApprovalMode::Enforce => denied("no approval rule allows it".to_owned()),
                ApprovalMode::Ask => Decision::Ask,
            },
        }
    }

    /// Ids and agent names of the sessions that a flow belongs to.
    pub(crate) fn sessions_of(&self, client: &ClientInfo, user: Option<&str>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let sessions = self.sessions.load();
        let own: Vec<_> = sessions.iter().filter(|s| s.owns(client, user)).collect();
        (own.iter().map(|s| Arc::clone(&s.id)).collect(), own.iter().filter_map(|s| s.agent.clone()).collect())
    }

    fn publish(&self, state: &mut ApprovalState) {
        let of_sessions = state.sessions.values().flat_map(|s| s.rules.iter().cloned());
        let mut rules: Vec<_> = state.configured.iter().chain(&state.made).cloned().chain(of_sessions).collect();
        let own = !rules.is_empty();
        rules.extend(builtin_rules());
        self.book.store(Arc::new(ApprovalRuleSet::new(rules)));
        self.sessions.store(Arc::new(state.sessions.values().cloned().collect()));
        let of_sessions = state.sessions.values().flat_map(|s| &s.secrets);
        let secrets: Vec<_> = state.secrets.iter().chain(of_sessions).cloned().collect();
        // Removed secrets are recognised by identity: one that was added again is another.
        let before = self.secrets.load();
        let gone = before.iter().filter(|s| !secrets.iter().any(|other| Arc::ptr_eq(s, other)));
        state.former.extend(gone.cloned());
        // Bounded: the oldest are forgotten.
        let over = state.former.len().saturating_sub(MAX_SECRETS);
        state.former.drain(..over);
        let hidden: Vec<_> = secrets.iter().chain(&state.former).cloned().collect();
        // Without rules of its own, in observe mode, there is nothing to decide.
        state.shape = (own || self.mode() != ApprovalMode::Observe, !hidden.is_empty());
        // Masks first: a secret is never inserted before it is masked.
        self.hidden.store(Arc::new(hidden));
        self.secrets.store(Arc::new(secrets));
    }

    /// After a change: activates the state, notifies watchers, and resolves pending requests that are now decided.
    fn publish_change(&self, mut state: parking_lot::MutexGuard<'_, ApprovalState>) {
        let before = state.shape;
        self.publish(&mut state);
        let reshaped = state.shape != before;
        drop(state);
        // After the lock was released: resolving and telling run code of others.
        self.resolve_decided();
        if reshaped {
            self.notify_interest_change();
        }
        self.waiting.notify_watchers();
    }

    fn notify_interest_change(&self) {
        if let Some(tell) = self.on_interest_change.get() {
            tell();
        }
    }

    /// Resolves pending requests that rules decide now.
    fn resolve_decided(&self) {
        for held in self.waiting.list().into_iter().filter(|h| h.question.is_about_host()) {
            let q = &held.question;
            let Ok(host) = Host::parse(&bracket_ipv6(&q.host)) else { continue };
            let ids: Vec<Arc<str>> = q.sessions.iter().map(|s| s.as_str().into()).collect();
            let sessions = self.sessions.load();
            let agents: Vec<Arc<str>> =
                sessions.iter().filter(|s| ids.contains(&s.id)).filter_map(|s| s.agent.clone()).collect();
            let question = AccessQuestion {
                user: q.user.as_deref(),
                process: q.process.as_deref(),
                container: q.container.as_deref(),
                sessions: &ids,
                agents: &agents,
                host: &host,
                port: q.port,
                request: q.method.as_deref().zip(q.path.as_deref()),
                now: now(),
            };
            let by = self.book.load().decide(&question).map(|rule| (rule.spec.action, rule.id.clone()));
            let by = by.or_else(|| match self.mode() {
                ApprovalMode::Observe => Some((ApprovalAction::Allow, "mode".to_owned())),
                ApprovalMode::Enforce => Some((ApprovalAction::Deny, "mode".to_owned())),
                ApprovalMode::Ask => None,
            });
            if let Some((action, by)) = by {
                self.waiting.resolve(held.id, action, &by, None);
            }
        }
    }
}

fn compile(config: &ApprovalsConfig) -> Result<Vec<Arc<ApprovalRule>>, String> {
    let rule = |(i, spec): (usize, &RuleSpec)| {
        let rule = ApprovalRule::new(format!("config-{i}"), RuleSource::Global, spec.clone());
        rule.map(Arc::new).map_err(|e| format!("approvals.rule[{i}]: {e}"))
    };
    let mut rules: Vec<Arc<ApprovalRule>> = config.rule.iter().enumerate().map(rule).collect::<Result<_, _>>()?;
    for name in &config.presets {
        let preset = presets::find(name).map_err(|e| format!("approvals.presets: {e}"))?;
        for (i, spec) in preset.rules.iter().enumerate() {
            rules.push(Arc::new(ApprovalRule::new(format!("preset-{name}-{i}"), RuleSource::Global, spec.clone())?));
        }
    }
    Ok(rules)
}

/// This machine itself is always allowed.
fn builtin_rules() -> Vec<Arc<ApprovalRule>> {
    let hosts = ["localhost", "127.0.0.0/8", "::1"].map(str::to_owned).to_vec();
    let spec = RuleSpec { hosts, note: Some("this machine".to_owned()), ..RuleSpec::new(ApprovalAction::Allow) };
    ApprovalRule::new("this-machine".to_owned(), RuleSource::Builtin, spec).map(Arc::new).into_iter().collect()
}

fn rule_view(rule: &ApprovalRule) -> RuleView {
    RuleView {
        id: rule.id.clone(),
        layer: rule.layer,
        removable: rule.layer == RuleSource::Global
            && !rule.id.starts_with("config-")
            && !rule.id.starts_with("preset-"),
        used: rule.used.load(Relaxed),
        made: Timestamp::from_secs(rule.made),
        last_used: Some(rule.last.load(Relaxed)).filter(|at| *at != 0).map(Timestamp::from_secs),
        spec: rule.spec.clone(),
    }
}

/// Labels and placeholders must be unique.
fn check_unique_secrets<'s>(secrets: impl Iterator<Item = &'s Arc<StoredSecret>>) -> Result<()> {
    let mut names: HashSet<(&str, &str)> = HashSet::new();
    for secret in secrets {
        // Sessions may each have a secret with the same label; a placeholder belongs to one secret only.
        let of = secret.session.as_ref().map_or("", |(id, _)| id);
        for (scope, name) in [(of, secret.label.as_str()), ("\n", &secret.placeholder)] {
            if !names.insert((scope, name)) {
                return Err(ApprovalsError::Invalid(format!("'{name}' is taken by another secret")));
            }
        }
    }
    Ok(())
}

fn bracket_ipv6(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn random_id() -> String {
    hex::encode(random_bytes::<8>())
}

#[cfg(test)]
mod tests;
