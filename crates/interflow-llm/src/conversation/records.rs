//! What is known of conversations, their messages and their exchanges: rows to keep, and to go on from.

use interflow_types::{FlowId, Timestamp};
use serde::{Deserialize, Serialize};

use super::call_purpose::CallPurpose;
use super::content_part::PartBody;
use crate::CallUsage;

/// A message's name, in hexadecimal digits where it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageHash(pub u128);

/// A conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Its name: 16 hexadecimal digits.
    pub id: String,
    /// What ties its exchanges together.
    pub session: String,
    /// The conversation that began it: it is a sub-agent's.
    pub parent: Option<String>,
    /// When its first exchange began.
    pub started: Timestamp,
    /// When its last exchange ended.
    pub updated: Timestamp,
    /// The program that talks to the model.
    pub agent: String,
    /// The model that answered last.
    pub model: String,
    /// Whose API is spoken.
    pub provider: String,
    /// The origin's host.
    pub host: String,
    /// The authenticated user.
    pub user: String,
    /// What it is about, in a line.
    pub title: String,
    /// Prompts on the way to its last answer.
    pub turns: u64,
    /// Everything else.
    pub facts: ConversationFacts,
}

/// What a conversation needs to go on, beside its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationFacts {
    /// The agent's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The parent's call that began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<SubagentLink>,
    /// The last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<MessageHash>,
    /// The title was found by the agent itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub titled: bool,
    /// Calls whose arguments may be a sub-agent's first prompt, the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PendingToolCall>,
    /// Names of the provider's answers, and where they stand, the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<(String, MessageHash)>,
    /// WebSockets that it is spoken over, and the last message in each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<(String, MessageHash)>,
    /// The beginning of the last answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// The tools it began with, by a hash of their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<MessageHash>,
}

/// How a sub-agent was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentLink {
    /// The call's name.
    pub call: String,
    /// The tool's name.
    pub tool: String,
}

/// A call whose arguments may be a sub-agent's first prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingToolCall {
    /// The call's name.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// The prompt's hash.
    pub prompt: MessageHash,
    /// The prompt's beginning.
    pub head: String,
    /// A sub-agent has been found for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageNode {
    /// The conversation.
    pub conversation: String,
    /// Its name: the hash of everything said up to it.
    pub key: u128,
    /// The message before it.
    pub parent: Option<u128>,
    /// When it was first seen.
    pub at: Timestamp,
    /// Its place.
    pub facts: NodeFacts,
    /// What it says.
    pub body: PartBody,
}

/// The place of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// The turn it belongs to, from 1; 0 for what was said before the first prompt.
    pub turn: u64,
    /// A person said it, or a program in a person's place.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompt: bool,
    /// It came as an answer, rather than in a history.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reply: bool,
    /// It begins a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<BranchReason>,
    /// The last message of the branch that this one follows without going on from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<MessageHash>,
}

/// Why a branch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BranchReason {
    /// An earlier message was written anew.
    Edited,
    /// The same was asked again.
    Retried,
    /// The history was made shorter.
    Compacted,
    /// The history was dropped.
    Cleared,
}

/// An exchange of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The flow it passed in.
    pub flow: FlowId,
    /// The number of the message that began it in a WebSocket, else 0.
    pub part: u64,
    /// The conversation.
    pub conversation: String,
    /// When it began.
    pub started: Timestamp,
    /// The last message it brought or had.
    pub leaf: Option<u128>,
    /// The program that asked.
    pub agent: String,
    /// The model that answered.
    pub model: String,
    /// Whose API is spoken.
    pub provider: String,
    /// Tokens; `None` when the provider did not say.
    pub usage: Option<CallUsage>,
    /// US dollars, when the provider says so itself: price lists are another room's business.
    pub cost: Option<f64>,
    /// Everything else.
    pub facts: CallFacts,
}

/// Further facts of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallFacts {
    /// What it is for.
    pub purpose: CallPurpose,
    /// The turn it belongs to.
    pub turn: u64,
    /// The response's status; 0 when there was none.
    pub status: u16,
    /// Microseconds until its end.
    pub duration: u64,
    /// Microseconds until the first byte of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<u64>,
    /// Why the answer ended, in the provider's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The answer came to its end.
    pub complete: bool,
    /// An answer was to be streamed.
    pub stream: bool,
    /// Tokens were counted by the provider.
    pub counted: bool,
    /// The last message of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<MessageHash>,
    /// The first message of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<MessageHash>,
    /// Messages in the request's history.
    pub history: u64,
    /// How many of them were new.
    pub fresh: u64,
    /// Tools that the model could call.
    pub tools: u64,
    /// Characters of the system prompt.
    pub system: u64,
    /// The answer's beginning, of calls beside the conversation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Serialize for MessageHash {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for MessageHash {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}
