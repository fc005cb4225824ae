//! Conversations as a store keeps them: whose messages they are and what they mean is the LLM room's business; here they
//! are rows that stand beside the flows they were read from, and go when the last of those goes.

use std::borrow::Cow;

use interflow_query::{Fact, Flag, Key, Query, QuerySubject, Tristate};
use interflow_types::{FlowId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::serde_repr;

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationRow {
    /// Its name.
    pub id: String,
    /// What ties its exchanges together: the client's own session, or where they came from.
    pub session: String,
    /// The conversation that began it: it is a sub-agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// When its first exchange began.
    #[serde(with = "serde_repr::micros")]
    pub started: Timestamp,
    /// When its last exchange ended.
    #[serde(with = "serde_repr::micros")]
    pub updated: Timestamp,
    /// The program that talks to the model: `claude-code`.
    pub agent: String,
    /// The model that answered last.
    pub model: String,
    /// Whose API is spoken.
    pub provider: String,
    /// The origin's host.
    pub host: String,
    /// The authenticated user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// What it is about, in a line.
    pub title: String,
    /// Prompts on the way to its last answer; 0 when it holds nothing but utility calls.
    pub turns: u64,
    /// The LLM room's further facts, in JSON.
    #[serde(skip)]
    pub facts: String,
}

/// A message of a conversation, named by everything that was said up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageNodeRow {
    /// The conversation.
    pub conversation: String,
    /// Its name within the conversation.
    pub key: u128,
    /// The message before it.
    pub parent: Option<u128>,
    /// When it was first seen.
    pub at: Timestamp,
    /// What its place in the conversation is, in the LLM room's JSON: read to go on with a conversation.
    pub facts: String,
    /// What it says, in the LLM room's JSON.
    pub body: String,
}

/// An exchange of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeRow {
    /// The flow it passed in.
    pub flow: FlowId,
    /// Which exchange of the flow it is: the number of the message that began it in a WebSocket, else 0.
    pub part: u64,
    /// The conversation.
    pub conversation: String,
    /// When it began.
    pub started: Timestamp,
    /// The last message that it brought; what is on the way to none is deleted.
    pub leaf: Option<u128>,
    /// The program that asked.
    pub agent: String,
    /// The model that answered.
    pub model: String,
    /// Whose API is spoken.
    pub provider: String,
    /// Tokens and money.
    pub used: TokenUsage,
    /// The LLM room's further facts, in JSON.
    pub facts: String,
}

/// What exchanges used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Exchanges.
    pub exchanges: u64,
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// How many of `input` came from a cache.
    pub cache_read: u64,
    /// How many of `input` were put into a cache.
    pub cache_write: u64,
    /// How many of `output` were reasoning.
    pub reasoning: u64,
    /// US dollars.
    pub cost: f64,
    /// Exchanges whose cost is not known.
    pub unpriced: u64,
}

/// What the LLM room found out, to be kept at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationUpdate {
    /// Conversations that are new or changed.
    pub conversations: Vec<ConversationRow>,
    /// Messages that are new; those that are there already stay as they are.
    pub nodes: Vec<MessageNodeRow>,
    /// Exchanges that are new or changed.
    pub exchanges: Vec<ExchangeRow>,
    /// Everything of flows up to this one has been looked at.
    pub cursor: Option<FlowId>,
}

impl ConversationUpdate {
    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.conversations.is_empty() && self.nodes.is_empty() && self.exchanges.is_empty() && self.cursor.is_none()
    }
}

/// A conversation with what its exchanges used up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConversationSummary {
    /// It.
    #[serde(flatten)]
    pub row: ConversationRow,
    /// The sum over its exchanges.
    pub used: TokenUsage,
}

/// Which conversations are asked for: the latest first.
#[derive(Clone, Debug)]
pub struct ConversationOptions {
    /// Conversations that this query selects. Its keys mean what they mean for flows: `agent:`, `model:`, `provider:`,
    /// `host:`, `user:`, `tokens:`, `time:`, `dur:`, `id:`; bare words search title, agent and model.
    pub query: Query,
    /// Only those of this parent.
    pub parent: Option<String>,
    /// Also sub-agents, and conversations of utility calls alone.
    pub all: bool,
    /// Only those behind this one.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Default for ConversationOptions {
    fn default() -> Self {
        Self { query: Query::all(), parent: None, all: false, after: None, limit: 100 }
    }
}

/// What was used up in a span of time by one agent with one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConversationTotal {
    /// The beginning of the span, in microseconds since the Unix epoch.
    pub from: u64,
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: String,
    /// The sum.
    pub used: TokenUsage,
}

/// Keeps conversations. Every method may block on the disk: call it from a blocking thread.
pub trait ConversationStore {
    /// Keeps what was found, all or nothing.
    ///
    /// # Errors
    /// The store is read-only or cannot be written.
    fn save_update(&self, findings: ConversationUpdate) -> Result<()>;

    /// Forgets every conversation, so that all can be put together anew.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    fn forget_conversations(&self) -> Result<()>;

    /// The flow up to which everything has been looked at.
    ///
    /// # Errors
    /// The database said no.
    fn cursor(&self) -> Result<Option<FlowId>>;

    /// Flows that were recorded after the one at `cursor` although their ids come before it, because the clock had been set
    /// back; the latest of them, at most so many, in the order in which they were recorded.
    ///
    /// # Errors
    /// The database said no.
    fn rewind_cursor(&self, cursor: FlowId, most: usize) -> Result<Vec<FlowId>>;

    /// The place of a flow in the order in which flows were recorded, whatever the clock said; `None` when it is not there.
    ///
    /// # Errors
    /// The database said no.
    fn recorded_position(&self, flow: FlowId) -> Result<Option<u64>>;

    /// What the owner said of endpoints, as it was given; empty when nothing was said.
    ///
    /// # Errors
    /// The file cannot be read.
    fn endpoints(&self) -> Result<String>;

    /// Keeps what the owner says of endpoints.
    ///
    /// # Errors
    /// The store is read-only, or the file cannot be written.
    fn set_endpoints(&self, text: &str) -> Result<()>;

    /// Conversations, the one that was spoken in last first.
    ///
    /// # Errors
    /// The database said no.
    fn conversations(&self, options: &ConversationOptions) -> Result<Vec<ConversationSummary>>;

    /// One conversation; `None` when there is none of this id.
    ///
    /// # Errors
    /// The database said no.
    fn conversation(&self, id: &str) -> Result<Option<ConversationSummary>>;

    /// The conversations of a session, the latest last, at most so many.
    ///
    /// # Errors
    /// The database said no.
    fn session(&self, session: &str, limit: usize) -> Result<Vec<ConversationRow>>;

    /// The messages of a conversation in the order in which they came; without their bodies when those are not wanted.
    ///
    /// # Errors
    /// The database said no.
    fn nodes(&self, conversation: &str, bodies: bool) -> Result<Vec<MessageNodeRow>>;

    /// The exchanges of a conversation, by the time they began.
    ///
    /// # Errors
    /// The database said no.
    fn exchanges(&self, conversation: &str) -> Result<Vec<ExchangeRow>>;

    /// The exchanges that passed in a flow.
    ///
    /// # Errors
    /// The database said no.
    fn exchanges_in(&self, flow: FlowId) -> Result<Vec<ExchangeRow>>;

    /// What was used up since a moment, in spans of so many microseconds.
    ///
    /// # Errors
    /// The database said no.
    fn totals(&self, since: Timestamp, span: u64) -> Result<Vec<ConversationTotal>>;
}

impl TokenUsage {
    /// Tokens read and written.
    pub const fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// What a query may ask of the calls of language models that passed in a flow; `None` for other keys.
pub fn call_text_matches(calls: &[ExchangeRow], key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Option<Tristate> {
    let texts =
        |f: fn(&ExchangeRow) -> &str, fits: &mut dyn FnMut(&str) -> bool| Tristate::any(calls.iter().map(f), fits);
    Some(match key {
        Key::Model => texts(|e| &e.model, fits),
        Key::Provider => texts(|e| &e.provider, fits),
        Key::Agent => texts(|e| &e.agent, fits),
        _ => return None,
    })
}

/// The tokens of the calls of language models that passed in a flow; absent where there were none.
pub fn call_tokens(calls: &[ExchangeRow]) -> Fact<u64> {
    Fact::known((!calls.is_empty()).then(|| calls.iter().map(|e| e.used.tokens()).sum()))
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
            _ => &[],
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
        Tristate::Known(flag == Flag::Http)
    }

    fn body(&self, _: interflow_types::Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        Tristate::Known(fits(self.row.title.as_bytes()))
    }
}

/// A title in one line of at most so many characters.
pub fn single_line(text: &str, most: usize) -> Cow<'_, str> {
    let text = text.trim();
    if text.chars().count() <= most && !text.contains(['\n', '\r', '\t']) {
        return Cow::Borrowed(text);
    }
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(most.saturating_sub(1)) {
        line.truncate(at);
        line.push('…');
    }
    Cow::Owned(line)
}
