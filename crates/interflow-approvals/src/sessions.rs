//! Sessions: registered clients with rules and secrets that expire with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use interflow_types::schema::JsonSchema;
use interflow_types::{ClientInfo, Timestamp};
use ipnet::IpNet;
use serde::Serialize;

use super::clock::{monotonic_secs, now, to_unix_secs};
use super::config::SessionSpec;
use super::rule_set::{ApprovalRule, RuleSource};
use super::secrets::{SecretView, StoredSecret};

const MAX_SESSIONS: usize = 1000;
const MAX_RULES: usize = 1000;
/// Default lifetime without a heartbeat, in seconds.
const DEFAULT_TTL_SECS: u64 = 15 * 60;
/// Maximum lifetime without a heartbeat, in seconds.
const MAX_TTL_SECS: u64 = 24 * 3600;

#[derive(Clone)]
pub(crate) struct ApprovalSession {
    pub id: Arc<str>,
    pub agent: Option<Arc<str>>,
    pub rules: Vec<Arc<ApprovalRule>>,
    pub secrets: Vec<Arc<StoredSecret>>,
    user: Option<String>,
    client: Option<IpNet>,
    pid: Option<u32>,
    process: Option<String>,
    ttl: u64,
    began: u64,
    /// In [`monotonic_secs`].
    pub until: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionView {
    pub id: String,
    pub agent: Option<String>,
    /// Its flows have this user.
    pub user: Option<String>,
    /// Its flows have this client address.
    pub client: Option<String>,
    /// Its flows have this process id.
    pub pid: Option<u32>,
    /// Its flows have this process name.
    pub process: Option<String>,
    #[serde(rename = "started")]
    pub began: Timestamp,
    /// When it expires without another heartbeat.
    pub until: Timestamp,
    pub rules: usize,
    pub secrets: Vec<SecretView>,
}

impl ApprovalSession {
    /// Validates a session.
    ///
    /// # Errors
    /// The session is invalid.
    pub fn new(spec: SessionSpec) -> Result<Self, String> {
        let id: Arc<str> = spec.id.unwrap_or_else(super::random_id).into();
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if id.is_empty() || id.len() > 100 || !id.chars().all(fine) {
            return Err("a session's id has 1 to 100 letters, digits, or any of - _ . :".to_owned());
        }
        // Otherwise every client would belong to it.
        if spec.user.is_none() && spec.client.is_none() && spec.pid.is_none() && spec.process.is_none() {
            return Err("a session must identify its flows by user, client, pid or process".to_owned());
        }
        if spec.rules.len() > MAX_RULES || spec.secrets.len() > MAX_RULES {
            return Err(format!("a session has at most {MAX_RULES} rules and secrets"));
        }
        let client = spec.client.as_deref().map(network).transpose()?;
        let ttl = spec.ttl.map_or(DEFAULT_TTL_SECS, |t| t.0.as_secs()).clamp(1, MAX_TTL_SECS);
        let until = Arc::new(AtomicU64::new(monotonic_secs() + ttl));
        // Rules and secrets share the expiry, so a heartbeat extends them as well.
        let of = || Some((Arc::clone(&id), Arc::clone(&until)));
        let rule = |(i, r)| {
            let mut rule = ApprovalRule::new(format!("{id}/{i}"), RuleSource::Session, r)
                .map_err(|e| format!("rules[{i}]: {e}"))?;
            rule.session = of();
            Ok(Arc::new(rule))
        };
        let rules = spec.rules.into_iter().enumerate().map(rule).collect::<Result<_, String>>()?;
        let secret = |s| {
            let mut secret = StoredSecret::new(s)?;
            secret.session = of();
            Ok(Arc::new(secret))
        };
        let secrets = spec.secrets.into_iter().map(secret).collect::<Result<_, String>>()?;
        Ok(Self {
            agent: spec.agent.map(Into::into),
            rules,
            secrets,
            user: spec.user,
            client,
            pid: spec.pid,
            process: spec.process,
            ttl,
            began: now(),
            until,
            id,
        })
    }

    /// Whether a flow belongs to the session: all of its criteria must match.
    pub fn owns(&self, client: &ClientInfo, user: Option<&str>) -> bool {
        let process = client.process.as_deref();
        self.is_active()
            && self.user.as_deref().is_none_or(|u| user == Some(u))
            && self.client.is_none_or(|net| net.contains(&client.peer.ip().to_canonical()))
            && self.pid.is_none_or(|pid| process.is_some_and(|p| p.pid == pid))
            && self.process.as_deref().is_none_or(|n| process.is_some_and(|p| &*p.name == n))
    }

    pub fn is_active(&self) -> bool {
        self.until.load(Relaxed) > monotonic_secs()
    }

    pub fn renew(&self) {
        self.until.store(monotonic_secs() + self.ttl, Relaxed);
    }

    pub fn view(&self) -> SessionView {
        SessionView {
            id: self.id.to_string(),
            agent: self.agent.as_ref().map(ToString::to_string),
            user: self.user.clone(),
            client: self.client.map(|c| c.to_string()),
            pid: self.pid,
            process: self.process.clone(),
            began: Timestamp::from_secs(self.began),
            until: Timestamp::from_secs(to_unix_secs(self.until.load(Relaxed))),
            rules: self.rules.len(),
            secrets: self.secrets.iter().map(|s| SecretView::from(&**s)).collect(),
        }
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let ip = text.parse::<std::net::IpAddr>().map(|ip| IpNet::from(ip.to_canonical()));
    ip.or_else(|_| text.parse()).map_err(|_| format!("client: `{text}` is neither an address nor a network"))
}

/// Adds a session.
///
/// # Errors
/// There are too many.
pub(super) fn insert_session(
    all: &mut BTreeMap<Arc<str>, ApprovalSession>,
    session: ApprovalSession,
) -> Result<(), String> {
    all.retain(|_, s| s.is_active());
    if all.len() >= MAX_SESSIONS && !all.contains_key(&session.id) {
        return Err(format!("there are {MAX_SESSIONS} active sessions already"));
    }
    all.insert(Arc::clone(&session.id), session);
    Ok(())
}
