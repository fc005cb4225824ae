//! What replicas of a fleet share besides flows, as the rest of the program uses it: tokens and audit trail, settings, and
//! requests that wait for a decision. The fleet implements these traits.

use std::sync::Arc;
use std::time::Duration;

use interflow_types::schema::JsonSchema;
use interflow_types::{BoxFuture, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::store::HeaderMasker;

/// Longer texts of requests are not shared; whoever makes them leaves contents out before.
pub const MAX_PENDING_ITEM_BYTES: usize = 512 << 10;

/// An API token, as the admin side writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedToken {
    pub id: String,
    pub text: String,
    /// In microseconds since the Unix epoch.
    pub last_used: Option<u64>,
}

/// A line of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAuditLine {
    pub replica: String,
    /// In microseconds since the Unix epoch.
    pub at: u64,
    /// What the filter looks in, in lower case.
    pub search: String,
    pub line: String,
}

/// What an authorization server granted the gateway for a user at an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredGrant {
    pub user: String,
    pub server: String,
    /// In seconds since the Unix epoch.
    pub connected: u64,
    /// The tokens, which only the gateway can read.
    pub sealed: String,
}

/// The grants of all users. Calls block, and may come from any thread.
pub trait GrantStore: Send + Sync {
    /// # Errors
    /// The store cannot be read, here and below.
    fn grants(&self) -> Result<Vec<StoredGrant>>;

    /// Whether gateways of other machines use it, too.
    fn is_shared(&self) -> bool {
        false
    }

    fn grant(&self, user: &str, server: &str) -> Result<Option<StoredGrant>>;

    /// Keeps a grant in place of the one before.
    fn put_grant(&self, grant: &StoredGrant) -> Result<()>;

    /// Keeps a grant in place of this one, or forgets it; false if another took its place meanwhile.
    fn replace_grant(&self, old: &StoredGrant, new: Option<&StoredGrant>) -> Result<bool>;

    /// Forgets a grant; false if there is none.
    fn remove_grant(&self, user: &str, server: &str) -> Result<bool>;
}

/// API tokens, login codes, ended sessions and the audit trail of all replicas. Calls block, and may come from any thread.
pub trait IdentityStore: Send + Sync {
    /// All tokens that replicas have made; others are refused.
    ///
    /// # Errors
    /// A database error, here and below.
    fn tokens(&self) -> Result<Vec<SharedToken>>;

    /// A value that changes when a token is added or removed.
    fn tokens_version(&self) -> Result<(i64, i64)>;

    /// Adds a token; one that is there already stays.
    fn add_token(&self, id: &str, text: &str) -> Result<()>;

    fn remove_tokens(&self, ids: &[String]) -> Result<()>;

    /// Notes the latest use of tokens, by their ids, in microseconds since the Unix epoch.
    fn save_token_uses(&self, uses: &[(String, u64)]) -> Result<()>;

    /// Adds a code that is valid for this time. The oldest of very many are dropped.
    fn add_login_code(&self, code: &str, lifetime: Duration) -> Result<()>;

    /// Takes a code; false if it is not valid, or somebody took it before.
    fn take_login_code(&self, code: &str) -> Result<bool>;

    /// Notes that a browser session ended which would expire then, in seconds since the Unix epoch.
    fn end_session(&self, id: &str, expires: u64) -> Result<()>;

    /// The browser sessions that ended before their time, and when they would have expired.
    fn ended_sessions(&self) -> Result<Vec<(String, u64)>>;

    /// Appends lines to the audit trail. A line that is there already is not appended again.
    fn append_audit(&self, lines: Vec<SharedAuditLine>) -> Result<()>;

    /// The newest lines that contain a text (in lower case) and are older than a time, the newest first.
    fn newest_audit(&self, text: &str, before: Option<u64>, limit: usize) -> Result<Vec<SharedAuditLine>>;

    /// Deletes lines of the audit trail that are older than a time, in microseconds since the Unix epoch.
    fn prune_audit(&self, before: u64) -> Result<u64>;
}

/// A revision of a setting, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingRevision {
    pub name: String,
    /// Counts from 1 for each setting.
    pub revision: i64,
    /// Who made it: a person or a replica.
    pub author: String,
    pub at: Timestamp,
    /// The revision whose text it has, if it is a return to that one.
    pub restores: Option<i64>,
    pub bytes: u64,
}

/// What a replica did with the newest revision of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingStatus {
    pub replica: String,
    pub name: String,
    pub revision: i64,
    pub at: Timestamp,
    /// Why it was refused; the previous one stays active on this replica.
    pub refused: Option<String>,
}

/// What came of going back to an earlier revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollBack {
    /// The new revision, with the earlier one's text.
    Made(i64),
    /// The newest revision, whose text is the same.
    SameText(i64),
    /// There is no such revision.
    NotFound,
    /// Another revision is the newest than the one that was seen.
    ChangedMeanwhile,
}

/// The settings that replicas share, with their revisions.
pub trait SettingsStore: Send + Sync {
    /// The newest revision of every setting that a replica has made.
    ///
    /// # Errors
    /// A database error, here and below.
    fn newest(&self) -> BoxFuture<'_, Result<Vec<SettingRevision>>>;

    /// The revisions of a setting, or of all, the newest first.
    fn history<'a>(&'a self, name: Option<&'a str>, limit: i64) -> BoxFuture<'a, Result<Vec<SettingRevision>>>;

    /// A revision with its text, or the newest one.
    fn text<'a>(&'a self, name: &'a str, revision: Option<i64>) -> BoxFuture<'a, Result<Option<(i64, String)>>>;

    /// Makes the text of an earlier revision the newest one. With `base`, only if that is the newest one until then.
    fn roll_back<'a>(
        &'a self,
        name: &'a str,
        revision: i64,
        base: Option<i64>,
        author: &'a str,
    ) -> BoxFuture<'a, Result<RollBack>>;

    /// What replicas did with the newest revisions.
    fn statuses(&self) -> BoxFuture<'_, Result<Vec<SettingStatus>>>;
}

/// A request that another replica holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePendingItem {
    /// The process that holds it.
    pub instance: Arc<str>,
    /// The name of its replica.
    pub replica: Arc<str>,
    pub id: Arc<str>,
    pub item: Arc<str>,
}

/// What other replicas hold, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct RemotePending {
    /// Increases with each change.
    pub version: u64,
    /// Whether the database answers; without it nothing is known of other replicas.
    pub is_connected: bool,
    pub items: Arc<Vec<RemotePendingItem>>,
}

/// A decision that somebody made at another replica about a request of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteDecision {
    pub item: String,
    pub decision: String,
    /// Who decided.
    pub actor: String,
}

/// What became of a decision about a request of another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteOutcome {
    /// What the replica that holds it says.
    Decided(String),
    /// It is not held any more.
    Gone,
    /// The replica did not answer, and will not carry the decision out any more.
    Unanswered,
    /// The replica took the decision on and then did not answer.
    Unknown,
}

/// Carries out a decision, and returns what the other replica is told. May block on the disk.
pub type CarryOutFn = Arc<dyn Fn(RemoteDecision) -> String + Send + Sync>;

/// The requests of all replicas. Ends when dropped.
pub trait SharedPending: Send + Sync {
    /// This process among all that share the store.
    fn instance(&self) -> &str;

    /// The masks of the active configuration, for heads that are shown to others.
    fn header_masker(&self) -> HeaderMasker;

    /// Replaces what this replica shows to others, the oldest first. Does not wait.
    fn publish(&self, items: Vec<(String, String)>);

    /// What other replicas hold.
    fn others(&self) -> RemotePending;

    /// Waits until the version of [`others`](Self::others) differs from this one. Cancel-safe.
    fn changed_since(&self, version: u64) -> BoxFuture<'_, ()>;

    /// Has the replica that holds a request carry out a decision, and waits for what it says for a limited time.
    ///
    /// # Errors
    /// The database does not answer. Whether the decision was carried out is then unknown.
    fn decide<'a>(
        &'a self,
        item: &'a RemotePendingItem,
        decision: String,
        actor: String,
    ) -> BoxFuture<'a, Result<RemoteOutcome>>;
}
