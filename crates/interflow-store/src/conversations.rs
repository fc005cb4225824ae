//! The `ConversationStore` trait and its rows. The store does not interpret conversations (the conversations component
//! does); it stores them next to the flows they were extracted from and deletes them with the last of those flows.

use std::borrow::Cow;

use interflow_query::{Fact, Flag, Key, Query, QuerySubject, Tristate};
use interflow_types::schema::JsonSchema;
use interflow_types::{FlowId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::store::FlowAnnotation;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationRow {
    pub id: String,
    /// Groups related conversations: the client's own session id, or an id derived from the connection.
    pub session: String,
    /// The conversation that started this one, if it belongs to a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// When its first exchange started.
    pub started: Timestamp,
    /// When its last exchange ended, by which lists are sorted.
    pub updated: Timestamp,
    /// The client program, such as `claude-code`.
    pub agent: String,
    /// The model of the most recent response.
    pub model: String,
    /// The provider whose API is used.
    pub provider: String,
    pub host: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    pub title: String,
    /// Number of prompts on the path to its last response; 0 if it contains only utility calls.
    pub turns: u64,
    /// Further facts as opaque JSON of the conversations component.
    #[serde(skip)]
    pub facts: String,
}

impl ConversationRow {
    /// Where a list of conversations continues behind this one.
    pub fn cursor(&self) -> String {
        format!("{}.{}", self.updated.micros(), self.id)
    }
}

/// A message of a conversation, identified by a hash of the whole history up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageNodeRow<Facts = String, Body = String> {
    pub conversation: String,
    /// The message's key within the conversation: a hash of the history up to it, so that equal histories share their
    /// messages.
    pub key: u128,
    pub parent: Option<u128>,
    pub at: Timestamp,
    /// Opaque JSON of the conversations component: the message's position, needed to continue the conversation.
    pub facts: Facts,
    /// Opaque JSON of the conversations component: the message's content.
    pub body: Body,
}

impl<F, B> MessageNodeRow<F, B> {
    /// The same message with its facts and body in another form.
    pub fn with<Facts, Body>(self, facts: Facts, body: Body) -> MessageNodeRow<Facts, Body> {
        let Self { conversation, key, parent, at, .. } = self;
        MessageNodeRow { conversation, key, parent, at, facts, body }
    }
}

/// One call of a language model within a conversation: the flow that carried it, the client program (`agent`), the
/// provider whose API was used, and its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeRow {
    pub flow: FlowId,
    /// Distinguishes calls within one flow: the index of the WebSocket message that started it, otherwise 0.
    pub part: u64,
    pub conversation: String,
    pub started: Timestamp,
    /// The last message this call added. Messages on no path to a leaf are deleted.
    pub leaf: Option<u128>,
    pub agent: String,
    pub model: String,
    pub provider: String,
    pub used: TokenUsage,
    /// Whether it ended with an error.
    pub failed: bool,
    /// Further facts as opaque JSON of the conversations component.
    pub facts: String,
}

/// Tokens and cost, summed over exchanges. Counts are those that the provider reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsage {
    pub exchanges: u64,
    pub input: u64,
    pub output: u64,
    /// The part of `input` that was read from a cache.
    pub cache_read: u64,
    /// The part of `input` that was written to a cache.
    pub cache_write: u64,
    /// The part of `output` spent on reasoning.
    pub reasoning: u64,
    /// Cost in US dollars, by the price table at the time of the call; without the exchanges counted in `unpriced`.
    pub cost: f64,
    /// Exchanges whose cost is unknown.
    pub unpriced: u64,
}

/// Changes from the conversation indexer, applied in one transaction: new or changed conversations and exchanges, and
/// new messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationUpdate {
    pub conversations: Vec<ConversationRow>,
    /// New messages; existing ones are left unchanged.
    pub nodes: Vec<MessageNodeRow>,
    pub exchanges: Vec<ExchangeRow>,
    /// All flows up to this one have been indexed.
    pub cursor: Option<FlowId>,
}

impl ConversationUpdate {
    pub fn is_empty(&self) -> bool {
        self.conversations.is_empty() && self.nodes.is_empty() && self.exchanges.is_empty() && self.cursor.is_none()
    }
}

/// A conversation with its token usage.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConversationSummary {
    #[serde(flatten)]
    pub row: ConversationRow,
    pub used: TokenUsage,
    /// Exchanges whose prompt left with findings that redaction would have replaced.
    pub unredacted: u64,
    /// The operator's tags and comments; the one without a message is of the conversation itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<ConversationNote>,
}

/// The operator's tags and comment on a conversation, or on one of its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConversationNote {
    /// The key of the message, 32 hexadecimal digits; absent for the conversation as a whole.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "hex_key")]
    #[schemars(with = "Option<String>")]
    pub message: Option<u128>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A note with the id of its conversation.
pub type NoteOf = (String, ConversationNote);

impl ConversationNote {
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.comment.is_none()
    }
}

fn hex_key<S: serde::Serializer>(key: &Option<u128>, s: S) -> std::result::Result<S::Ok, S::Error> {
    if let Some(key) = key { s.collect_str(&format_args!("{key:032x}")) } else { s.serialize_none() }
}

impl ConversationSummary {
    /// The tags of the conversation itself.
    pub fn tags(&self) -> &[String] {
        self.note(None).map_or(&[], |n| &n.tags)
    }

    /// The note on a message, or on the conversation itself.
    pub fn note(&self, message: Option<u128>) -> Option<&ConversationNote> {
        self.notes.iter().find(|n| n.message == message)
    }
}

/// Filter and paging of a list of conversations, latest first; at most `limit` are returned. With `parent`, only
/// children of that conversation; `all` includes sub-agents and conversations that contain only utility calls.
#[derive(Clone, Debug)]
pub struct ConversationOptions {
    /// Selects conversations. Keys have the same meaning as for flows: `agent:`, `model:`, `provider:`, `host:`,
    /// `user:`, `tokens:`, `time:`, `dur:`, `id:`, `tag:`, `comment:`; bare words search title, agent and model.
    pub query: Query,
    pub parent: Option<String>,
    pub all: bool,
    /// Only conversations behind this [cursor](ConversationRow::cursor): of the last one of the previous page. Behind what is no
    /// cursor there are none.
    pub after: Option<String>,
    /// Only conversations with an exchange that started in this range, without its end.
    pub during: Option<(Timestamp, Timestamp)>,
    pub limit: usize,
}

impl Default for ConversationOptions {
    fn default() -> Self {
        Self { query: Query::all(), parent: None, all: false, after: None, during: None, limit: 100 }
    }
}

impl ConversationOptions {
    /// The time and the id behind which the list begins. They are those at the time of the page before: were the
    /// conversation looked up, a page would be repeated once it has another exchange.
    pub fn start(&self) -> (i64, &str) {
        // Before any text.
        let Some(after) = &self.after else { return (i64::MAX, "\u{10ffff}") };
        let place = after.split_once('.').and_then(|(updated, id)| Some((updated.parse().ok()?, id)));
        place.unwrap_or((i64::MIN, ""))
    }
}

/// Which exchanges are summed up: those that started in a range, without its end, in buckets of `span` microseconds.
/// Buckets begin at multiples of it, which `offset` microseconds move to the east of UTC.
#[derive(Clone, Copy, Debug)]
pub struct TotalsRange {
    pub since: Timestamp,
    pub until: Timestamp,
    pub span: u64,
    pub offset: i64,
}

/// Usage of one user, agent and model within a time bucket.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConversationTotal {
    /// Start of the bucket, in microseconds since the Unix epoch.
    pub from: u64,
    pub agent: String,
    pub model: String,
    /// The user, or the virtual key that was used; empty if unknown.
    pub user: String,
    /// Exchanges that ended with an error.
    pub failed: u64,
    pub used: TokenUsage,
}

/// Stores conversations. Every method may block on the disk: call it from a blocking thread.
pub trait ConversationStore {
    /// Applies an update atomically.
    ///
    /// # Errors
    /// The store is read-only or cannot be written.
    fn save_update(&self, findings: ConversationUpdate) -> Result<()>;

    /// Deletes all conversations so that they can be rebuilt from the flows.
    ///
    /// # Errors
    /// As for [`save_update`](Self::save_update).
    fn forget_conversations(&self) -> Result<()>;

    /// The flow up to which everything has been indexed.
    ///
    /// # Errors
    /// A database error.
    fn cursor(&self) -> Result<Option<FlowId>>;

    /// Flows recorded after the one at `cursor` whose ids nevertheless sort before it, because the clock was set back:
    /// the latest `most` of them, in the order of recording.
    ///
    /// # Errors
    /// A database error.
    fn rewind_cursor(&self, cursor: FlowId, most: usize) -> Result<Vec<FlowId>>;

    /// The position of a flow in recording order, independent of the clock; `None` if the flow does not exist.
    ///
    /// # Errors
    /// A database error.
    fn recorded_position(&self, flow: FlowId) -> Result<Option<u64>>;

    /// The operator's endpoint overrides, as set; empty if there are none.
    ///
    /// # Errors
    /// The file cannot be read.
    fn endpoints(&self) -> Result<String>;

    /// Stores the operator's endpoint overrides.
    ///
    /// # Errors
    /// The store is read-only, or the file cannot be written.
    fn write_endpoints(&self, text: &str) -> Result<()>;

    /// Conversations that match the options, most recently active first.
    ///
    /// # Errors
    /// A database error.
    fn conversations(&self, options: &ConversationOptions) -> Result<Vec<ConversationSummary>>;

    /// One conversation; `None` if there is none with this id.
    ///
    /// # Errors
    /// A database error.
    fn conversation(&self, id: &str) -> Result<Option<ConversationSummary>>;

    /// The latest `limit` conversations of a session, oldest first.
    ///
    /// # Errors
    /// A database error.
    fn session(&self, session: &str, limit: usize) -> Result<Vec<ConversationRow>>;

    /// The messages of a conversation in order of arrival; `bodies` says whether their contents are loaded.
    ///
    /// # Errors
    /// A database error.
    fn nodes(&self, conversation: &str, bodies: bool) -> Result<Vec<MessageNodeRow>>;

    /// The exchanges of a conversation, ordered by start time.
    ///
    /// # Errors
    /// A database error.
    fn exchanges(&self, conversation: &str) -> Result<Vec<ExchangeRow>>;

    /// The exchanges carried by a flow.
    ///
    /// # Errors
    /// A database error.
    fn exchanges_in(&self, flow: FlowId) -> Result<Vec<ExchangeRow>>;

    /// Usage over time, by user, agent and model.
    ///
    /// # Errors
    /// A database error.
    fn totals(&self, range: TotalsRange) -> Result<Vec<ConversationTotal>>;

    /// Changes the tags and the comment of a conversation, or of one of its messages; what does not exist is not
    /// changed.
    ///
    /// # Errors
    /// The store is read-only or cannot be written.
    fn annotate_conversation(&self, id: &str, message: Option<u128>, change: FlowAnnotation) -> Result<()>;

    /// How several processes index one store together; `None` if only this one writes to it.
    fn shared_index(&self) -> Option<&dyn SharedIndex> {
        None
    }
}

/// A store to which several processes record, and of which one at a time builds the conversations of all.
pub trait SharedIndex: Send + Sync {
    /// Takes the right to index, or keeps it; `None` while another process has it. It ends unless this is called every
    /// few seconds. What was read of the index stays valid as long as the number returned is the same.
    ///
    /// # Errors
    /// The store is read-only or does not answer.
    fn lead(&self) -> Result<Option<u64>>;

    /// Gives up the right to index, so that another process need not wait.
    ///
    /// # Errors
    /// The store does not answer.
    fn resign(&self) -> Result<()>;

    /// Waits until what this process recorded is where all processes see it.
    ///
    /// # Errors
    /// The store does not answer, or refuses a flow.
    fn flush_recorded(&self) -> Result<()>;

    /// The next flows that may contain a call, in the order in which they became visible.
    ///
    /// # Errors
    /// A database error.
    fn unindexed(&self, limit: usize) -> Result<UnindexedFlows>;

    /// Applies an update atomically, with how far the index has come.
    ///
    /// # Errors
    /// [`Stale`](crate::StoreError::Stale) if the index must be read again: another process has taken over, everything
    /// is being rebuilt, or messages were deleted.
    fn save(&self, update: ConversationUpdate, progress: IndexProgress) -> Result<()>;

    /// The flows of a session's conversations, at most `limit`.
    ///
    /// # Errors
    /// A database error.
    fn flows_of_session(&self, session: &str, limit: usize) -> Result<Vec<FlowId>>;

    /// Sessions that have calls out of order: see [`IndexProgress::late`].
    ///
    /// # Errors
    /// A database error.
    fn late_sessions(&self) -> Result<Vec<String>>;

    /// How far the index is behind.
    ///
    /// # Errors
    /// A database error.
    fn lag(&self) -> Result<IndexLag>;
}

/// A flow that may contain a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedFlow {
    pub id: FlowId,
    /// When it ended, in microseconds since the Unix epoch.
    pub ended: u64,
}

#[derive(Clone, Debug, Default)]
pub struct UnindexedFlows {
    pub flows: Vec<RecordedFlow>,
    /// The position up to which these are all.
    pub through: u64,
    /// Whether there are no more for now.
    pub is_last: bool,
}

/// What is stored together with an update of a shared index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexProgress {
    /// All flows up to this position are indexed.
    pub position: Option<u64>,
    /// Sessions whose conversations are replaced by those of the update.
    pub reassembled: Vec<String>,
    /// Sessions that have calls out of order from now on.
    pub late: Vec<String>,
    /// Those that have none any more, or keep them.
    pub in_order: Vec<String>,
}

/// How far a shared index has come, and how far it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLag {
    pub indexed: u64,
    pub newest: u64,
}

impl TokenUsage {
    pub const fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Evaluates a text predicate on the model calls of a flow; `None` for keys that do not concern them.
pub fn call_text_matches(calls: &[ExchangeRow], key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Option<Tristate> {
    let texts =
        // Several calls may share a flow: one that fits is enough.
        |f: fn(&ExchangeRow) -> &str, fits: &mut dyn FnMut(&str) -> bool| Tristate::any(calls.iter().map(f), fits);
    Some(match key {
        Key::Model => texts(|e| &e.model, fits),
        Key::Provider => texts(|e| &e.provider, fits),
        Key::Agent => texts(|e| &e.agent, fits),
        _ => return None,
    })
}

/// The tokens used by the model calls of a flow; absent if there were none.
pub fn call_tokens(calls: &[ExchangeRow]) -> Fact<u64> {
    // Absent rather than 0, so that `tokens:0` does not match flows without a model call.
    Fact::known((!calls.is_empty()).then(|| calls.iter().map(|e| e.used.tokens()).fold(0, u64::saturating_add)))
}

impl QuerySubject for ConversationSummary {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let row = &self.row;
        let texts: &[&str] = match key {
            Key::Word => &[&row.title, &row.agent, &row.model, &row.id],
            Key::Agent => &[&row.agent],
            Key::Model => &[&row.model],
            Key::Provider => &[&row.provider],
            Key::Host => &[&row.host],
            Key::User => &[&row.user],
            Key::Id => &[&row.id],
            Key::Parent => &[row.parent.as_deref().unwrap_or_default()],
            Key::Tag => return Tristate::any(self.notes.iter().flat_map(|n| &n.tags).map(String::as_str), fits),
            Key::Comment => return Tristate::any(self.notes.iter().filter_map(|n| n.comment.as_deref()), fits),
            _ => &[],
            // Other keys concern flows, not conversations.
        };
        Tristate::any(texts.iter().copied().filter(|t| !t.is_empty()), fits)
    }

    fn number(&self, key: Key) -> Fact<u64> {
        Fact::known(match key {
            Key::Tokens => Some(self.used.tokens()),
            Key::Time => Some(self.row.started.micros()),
            Key::Dur => Some(self.row.updated.micros().saturating_sub(self.row.started.micros())),
            _ => None,
        })
    }

    fn flag(&self, flag: Flag) -> Tristate {
        // Conversations count as HTTP, as the flows that carried them.
        Tristate::Known(flag == Flag::Http)
    }

    fn body(&self, _: interflow_types::Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        Tristate::Known(fits(self.row.title.as_bytes()))
    }
}

/// Collapses a title to one line of at most `most` characters.
pub fn single_line(text: &str, most: usize) -> Cow<'_, str> {
    let text = text.trim();
    if text.chars().count() <= most && !text.contains(['\n', '\r', '\t']) {
        return Cow::Borrowed(text);
    }
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // One character less than allowed, for the ellipsis.
    if let Some((at, _)) = line.char_indices().nth(most.saturating_sub(1)) {
        line.truncate(at);
        line.push('…');
    }
    Cow::Owned(line)
}
