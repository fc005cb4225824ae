//! The presentation of a conversation: turns with their prompts, thinking, tool calls and replies, along one path from
//! the first message to a leaf.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use interflow_types::{CallUsage, Timestamp, data_file};
use serde::Serialize;
use serde_json::Value;

use super::cache_report::MIN_CACHED_TOKENS;
use super::records::{BranchReason, CallFacts, CallRecord, Conversation, MessageHash, MessageNode, SubagentLink};
use interflow_llm::message::{Attachment, ContentBlock, MessageRole};

/// A conversation laid out in turns along one path.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ThreadView {
    /// The leaf of this path; `None` if the conversation has no messages yet.
    pub leaf: Option<MessageHash>,
    pub turns: Vec<ThreadTurn>,
    /// Its calls in order of their start, including those of other branches.
    pub exchanges: Vec<CallView>,
    pub branches: Vec<ThreadBranch>,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ThreadTurn {
    /// From 1; 0 before the first prompt.
    pub number: u64,
    /// Set if the turn starts a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<BranchReason>,
    pub items: Vec<ThreadItem>,
    /// Its calls, as indices into all calls of the conversation.
    pub exchanges: Vec<usize>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ThreadItem {
    pub key: MessageHash,
    /// When it was first seen, in microseconds since the Unix epoch.
    pub at: u64,
    pub role: MessageRole,
    /// The call that returned it, if it is the first item of that reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<usize>,
    /// Set if the item starts a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<BranchReason>,
    #[serde(flatten)]
    pub what: ItemKind,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ItemKind {
    Text {
        text: String,
    },
    Thinking {
        /// Empty if the provider does not disclose it.
        text: String,
    },
    /// Context injected by the agent.
    Context {
        text: String,
    },
    /// A tool call and its result.
    Tool {
        id: String,
        name: String,
        /// The arguments in one line.
        summary: String,
        input: Value,
        /// The result; `None` while pending.
        result: Option<ToolOutcome>,
        /// The conversation of the sub-agent that it started.
        #[serde(skip_serializing_if = "Option::is_none")]
        child: Option<String>,
        /// The flow of the MCP gateway that carried the call, if exactly one fits.
        #[serde(skip_serializing_if = "Option::is_none")]
        flow: Option<String>,
    },
    Image(Attachment),
    Document(Attachment),
    Error {
        name: String,
        message: String,
    },
    /// A block without a canonical form.
    Other {
        /// The API format's name for it.
        name: String,
        value: Value,
    },
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ToolOutcome {
    pub content: Vec<ContentBlock>,
    pub is_error: bool,
    /// When it was first seen, in microseconds since the Unix epoch.
    pub at: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CallView {
    pub flow: String,
    /// For a WebSocket, the number of the message that started the call; else 0.
    pub part: u64,
    /// In microseconds since the Unix epoch.
    pub started: u64,
    pub model: String,
    /// Token usage; `None` if the provider did not report it.
    pub usage: Option<CallUsage>,
    /// US dollars; `None` if the price is unknown.
    pub cost: Option<f64>,
    /// Output tokens per second, from the first byte to the end.
    pub speed: Option<f64>,
    /// The cache returned less than the preceding call had written or read: the prefix changed, or the entry expired.
    pub missed: bool,
    #[serde(flatten)]
    pub facts: CallFacts,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ThreadBranch {
    pub leaf: MessageHash,
    pub begins: BranchReason,
    /// The turn in which it departs from the displayed path.
    pub turn: u64,
    /// When it was last continued, in microseconds since the Unix epoch.
    pub at: u64,
    /// The beginning of its first text.
    pub text: String,
}

/// A sub-agent's conversation, as referenced by its parent's tool calls.
pub struct ChildThread<'a> {
    pub id: &'a str,
    /// The tool call that started it.
    pub link: Option<&'a SubagentLink>,
}

/// Lays a conversation out along the path to `leaf`, or to the current leaf if `None`.
pub fn build_thread(
    conversation: &Conversation,
    nodes: Vec<MessageNode>,
    exchanges: Vec<CallRecord>,
    children: &[ChildThread<'_>],
    leaf: Option<MessageHash>,
) -> ThreadView {
    let leaf = leaf.or(conversation.facts.leaf);
    let index: HashMap<u128, usize> = nodes.iter().enumerate().map(|(i, n)| (n.key, i)).collect();
    let path = path(&nodes, &index, leaf);
    let branches = branches(&nodes, &index, &path);
    let mut nodes: Vec<Option<MessageNode>> = nodes.into_iter().map(Some).collect();
    let mut layout = TurnBuilder::new(&exchanges, children);
    for at in path {
        if let Some(node) = nodes[at].take() {
            layout.add(node);
        }
    }
    let mut turns = layout.turns;
    // Exchanges of other branches are listed, too, under the turn with their number.
    for (i, e) in exchanges.iter().enumerate() {
        if let Some(turn) = turns.iter_mut().find(|t| t.number == e.facts.turn) {
            turn.exchanges.push(i);
        }
    }
    ThreadView { leaf, turns, exchanges: call_views(exchanges), branches }
}

/// The messages on the path, in order.
fn path(nodes: &[MessageNode], index: &HashMap<u128, usize>, leaf: Option<MessageHash>) -> Vec<usize> {
    let mut path = Vec::new();
    let mut visited = HashSet::new();
    let mut at = leaf.map(|k| k.0);
    while let Some(i) = at.and_then(|k| index.get(&k)).copied() {
        // Damaged rows could form a cycle.
        if !visited.insert(i) {
            break;
        }
        path.push(i);
        // Across a compaction or a clearing, the path continues with what was before.
        at = nodes[i].parent.or(nodes[i].facts.after.map(|k| k.0));
    }
    path.reverse();
    path
}

/// Leaves that are not on the path, with the reason of the branch.
fn branches(nodes: &[MessageNode], index: &HashMap<u128, usize>, path: &[usize]) -> Vec<ThreadBranch> {
    let on_path: HashSet<usize> = path.iter().copied().collect();
    let parents: HashSet<u128> = nodes.iter().filter_map(|n| n.parent.or(n.facts.after.map(|k| k.0))).collect();
    // For each message on the path, its child on the path: if that one started a branch, its older siblings are
    // branches.
    let begun: HashMap<Option<u128>, BranchReason> =
        path.iter().filter_map(|i| Some((nodes[*i].parent, nodes[*i].facts.begins?))).collect();
    let mut branches = Vec::new();
    for leaf in nodes.iter().filter(|n| !parents.contains(&n.key) && !on_path.contains(&index[&n.key])) {
        let mut first = leaf;
        let mut steps = 0;
        // Back to the path: the message after it is the first of the branch.
        while let Some(parent) = first.parent.or(first.facts.after.map(|k| k.0)).and_then(|p| index.get(&p)) {
            steps += 1;
            if on_path.contains(parent) || steps > nodes.len() {
                break;
            }
            first = &nodes[*parent];
        }
        let begins = first.facts.begins.or_else(|| begun.get(&first.parent).copied());
        if let (Some(begins), Some(_)) = (begins, &leaf.body.block) {
            let text = first.body.block.as_ref().and_then(ContentBlock::as_text).unwrap_or_default();
            let (text, turn) = (text.chars().take(120).collect(), first.facts.turn);
            branches.push(ThreadBranch { leaf: MessageHash(leaf.key), begins, turn, at: leaf.at.micros(), text });
        }
    }
    branches.sort_by_key(|b| b.at);
    branches
}

struct TurnBuilder<'a> {
    turns: Vec<ThreadTurn>,
    answers: HashMap<MessageHash, usize>,
    children: HashMap<&'a str, &'a str>,
    /// Tool calls without a result: turn and item.
    open: HashMap<String, (usize, usize)>,
    /// Those without an id, in order.
    unnamed: Vec<(usize, usize)>,
}

impl<'a> TurnBuilder<'a> {
    fn new(exchanges: &[CallRecord], children: &'a [ChildThread<'a>]) -> Self {
        let answers = exchanges.iter().enumerate().filter_map(|(i, e)| Some((e.facts.answer?, i))).collect();
        let children = children.iter().filter_map(|c| Some((c.link?.call.as_str(), c.id))).collect();
        Self { turns: Vec::new(), answers, children, open: HashMap::new(), unnamed: Vec::new() }
    }

    fn add(&mut self, node: MessageNode) {
        let (key, at, role) = (MessageHash(node.key), node.at, node.body.role);
        let mut exchange = self.answers.get(&key).copied();
        let mut begins = node.facts.begins;
        // A branch that starts with a prompt is shown at the turn as well as at its first item.
        if self.turns.last().is_none_or(|t| t.number != node.facts.turn) {
            let begins = begins.filter(|_| node.facts.prompt);
            self.turns.push(ThreadTurn { number: node.facts.turn, begins, ..ThreadTurn::default() });
        }
        let blocks = node.body.before.into_iter().chain(node.body.block).chain(node.body.after);
        for block in blocks {
            let Some(what) = self.item_kind(block, at) else { continue };
            let item =
                ThreadItem { key, at: at.micros(), role, exchange: exchange.take(), begins: begins.take(), what };
            let turn = self.turns.len() - 1;
            let position = (turn, self.turns[turn].items.len());
            if let ItemKind::Tool { id, .. } = &item.what {
                match id.is_empty() {
                    true => self.unnamed.push(position),
                    false => drop(self.open.insert(id.clone(), position)),
                }
            }
            self.turns[turn].items.push(item);
        }
    }

    /// The call of a result without an id (Gemini): the first of this function. Results without a name come in the order
    /// of their calls.
    fn take_unnamed(&mut self, function: &str) -> Option<(usize, usize)> {
        let is_of = |what: &ItemKind| matches!(what, ItemKind::Tool { name, .. } if name == function);
        let fits = |(turn, item): &(usize, usize)| function.is_empty() || is_of(&self.turns[*turn].items[*item].what);
        let at = self.unnamed.iter().position(fits)?;
        Some(self.unnamed.remove(at))
    }

    /// The item for a block; a result is attached to its call.
    fn item_kind(&mut self, block: ContentBlock, at: Timestamp) -> Option<ItemKind> {
        Some(match block {
            ContentBlock::Text { text } => ItemKind::Text { text },
            ContentBlock::Thinking { text, .. } => ItemKind::Thinking { text },
            ContentBlock::ToolUse { id, name, input } => {
                let child = self.children.get(id.as_str()).map(|c| (*c).to_owned());
                ItemKind::Tool { summary: input_summary(&input), id, name, input, result: None, child, flow: None }
            }
            ContentBlock::ToolResult { id, name, content, is_error } => {
                let position = if id.is_empty() { self.take_unnamed(&name) } else { self.open.remove(&id) };
                let outcome = Some(ToolOutcome { content, is_error, at: at.micros() });
                let item = position.and_then(|(t, i)| self.turns.get_mut(t)?.items.get_mut(i));
                match item.map(|i| &mut i.what) {
                    Some(ItemKind::Tool { result, .. }) => {
                        *result = outcome;
                        return None;
                    }
                    // The call is unknown: it was made before the recording began.
                    _ => {
                        let (summary, input) = (String::new(), Value::Null);
                        ItemKind::Tool { id, name, summary, input, result: outcome, child: None, flow: None }
                    }
                }
            }
            ContentBlock::Image(r) => ItemKind::Image(r),
            ContentBlock::Document(r) => ItemKind::Document(r),
            ContentBlock::Error { kind, message } => ItemKind::Error { name: kind, message },
            ContentBlock::Other { kind, value } if kind == "context" => {
                ItemKind::Context { text: value.as_str().unwrap_or_default().to_owned() }
            }
            ContentBlock::Other { kind, value } => ItemKind::Other { name: kind, value },
        })
    }
}

pub(crate) fn call_views(exchanges: Vec<CallRecord>) -> Vec<CallView> {
    // The tokens that the previous call read or wrote: what the cache should return.
    let mut warm: Option<u64> = None;
    let mut views = Vec::with_capacity(exchanges.len());
    for e in exchanges {
        // Auxiliary calls have prompts of their own, which neither use nor fill the conversation's cache entry.
        let usage = e.usage.filter(|_| !e.facts.purpose.is_side_call());
        let missed = match (warm, usage) {
            // Providers cache whole blocks: slightly less than before is not a miss.
            (Some(warm), Some(u)) => warm >= MIN_CACHED_TOKENS && u.cache_read < warm - warm / 8,
            _ => false,
        };
        if let Some(u) = usage {
            warm = Some(u.cache_read.saturating_add(u.cache_write));
        }
        let writing = e.facts.duration.saturating_sub(e.facts.first_byte.unwrap_or_default());
        // Without streaming, the first byte comes with the last, and the speed would mean nothing.
        let speed = e.usage.filter(|u| u.output > 0 && writing > 0 && e.facts.stream);
        views.push(CallView {
            flow: e.row.flow.to_string(),
            part: e.row.part,
            started: e.row.started.micros(),
            model: e.row.model,
            usage: e.usage,
            cost: e.cost,
            speed: speed.map(|u| u.output as f64 * 1e6 / writing as f64),
            missed,
            facts: e.facts,
        });
    }
    views
}

/// The arguments of tools that tell most about a call, the best first.
static SUMMARY_KEYS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/summary_arguments.txt")).collect());

/// A tool call in one line: its most informative argument.
pub fn input_summary(input: &Value) -> String {
    let line = |text: &str| -> String {
        let mut line: String = text.split_whitespace().take(40).collect::<Vec<_>>().join(" ");
        if let Some((at, _)) = line.char_indices().nth(100) {
            line.truncate(at);
            line.push('…');
        }
        line
    };
    if let Some(text) = input.as_str() {
        return line(text);
    }
    let argument = SUMMARY_KEYS.iter().find_map(|k| match input.get(*k)? {
        Value::String(s) => Some(line(s)),
        Value::Array(words) => Some(line(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))),
        _ => None,
    });
    // None of the known arguments: the first four, as pairs.
    argument.filter(|t| !t.is_empty()).unwrap_or_else(|| {
        let pairs = input.as_object().into_iter().flatten().take(4).map(|(k, v)| match v {
            Value::String(s) => format!("{k}={s}"),
            v => format!("{k}={v}"),
        });
        line(&pairs.collect::<Vec<_>>().join(" "))
    })
}
