//! One session: its conversations, and the insertion of calls into them.
//!
//! A call carries its whole history, so its place is found by what is already known of it. Each part of the history has
//! a key, the hash of the part chained with all that precede it; equal keys mean equal histories. The last known key of
//! a call is therefore the message that its new parts continue ([`InsertionPoint`]). If none is known, the call starts
//! a conversation, unless it can be tied to one: as the work of a sub-agent whose prompt was the argument of a tool
//! call, or as the continuation of a history that the client compacted or cleared.
//!
//! Where a client says less (no session id, repeated prompts, no tool call to be found), the functions below decide by
//! what is most likely. A wrong guess splits or joins conversations in the view, and loses nothing.

use std::cell::LazyCell;
use std::collections::HashMap;

use interflow_store::{ConversationRow, ExchangeRow, TokenUsage};
use interflow_types::Timestamp;

use super::call_purpose::{CallPurpose, detect_purpose};
use super::content_part::{ContentPart, chain_hash, content_parts, hash, reply_parts};
use super::recorded_call::ParsedCall;
use super::records::*;
use super::searched_text::SearchedText;
use interflow_llm::message::{ContentBlock, MessageRole};

/// Maximum number of conversations kept per session.
pub const MAX_THREADS: usize = 64;
/// Maximum number of tool calls, response ids and WebSockets kept per conversation.
const MAX_OPEN_CALLS: usize = 64;
/// Number of characters of a prompt or a reply that are compared.
const MAX_HEAD_CHARS: usize = 200;
/// Minimum length at which the beginning of a reply identifies it.
const MIN_PROMPT_MATCH_CHARS: usize = 60;
/// Maximum length of a title in characters.
const MAX_TITLE_CHARS: usize = 120;
/// Phrases by which agents introduce the summary that replaces a history.
const CONTINUATION_MARKERS: [&str; 3] =
    ["continued from a previous conversation", "<state_snapshot>", "summary of the conversation so far"];

/// The position of a message, reduced to what insertion needs: whether it is a prompt, has a continuation (`parent`),
/// and has a reply (`answered`).
#[derive(Clone, Copy, Debug)]
struct MessageLocation {
    turn: u64,
    prompt: bool,
    parent: bool,
    answered: bool,
    /// It was received in a reply, or continues one.
    observed: bool,
}

pub struct ThreadState {
    pub row: ConversationRow,
    pub facts: ConversationFacts,
    places: HashMap<u128, MessageLocation>,
}

/// The conversations of one session. Of more than [`MAX_THREADS`] the one that was used least recently is forgotten
/// here, and stays in the store.
#[derive(Default)]
pub struct AgentSession {
    threads: Vec<ThreadState>,
}

/// Where a call is inserted, and the branch that it starts, if any.
struct InsertionPoint {
    thread: usize,
    /// Number of its parts that are already known.
    known: usize,
    /// The message that its first new part continues.
    parent: Option<u128>,
    begins: Option<BranchReason>,
    after: Option<MessageHash>,
}

/// The rows changed by a call: new or changed conversations, new messages, and the call itself.
#[derive(Debug)]
pub struct SessionUpdate {
    pub conversations: Vec<Conversation>,
    pub nodes: Vec<MessageNode>,
    pub exchange: CallRecord,
}

/// A stored conversation and its messages in the order of insertion: hash, the parent's hash, and facts.
pub type StoredConversation = (Conversation, Vec<(u128, Option<u128>, NodeFacts)>);

impl AgentSession {
    /// Restores a stored session. Messages are in the order of insertion, so that each follows its parent.
    pub fn from_stored(kept: Vec<StoredConversation>) -> Self {
        let threads = kept.into_iter().map(|(Conversation { row, facts }, nodes)| {
            let mut thread = ThreadState { row, facts, places: HashMap::with_capacity(nodes.len()) };
            for (key, parent, facts) in nodes {
                thread.set_location(key, parent, &facts);
            }
            thread
        });
        Self { threads: threads.collect() }
    }

    /// When its last call ended.
    pub fn last_activity(&self) -> Timestamp {
        self.threads.iter().map(|t| t.row.updated).max().unwrap_or_default()
    }

    /// The weight of the session in memory: messages, and 16 more per conversation.
    pub fn message_count(&self) -> usize {
        self.threads.iter().map(|t| t.places.len() + 16).sum()
    }

    /// Inserts a call. Calls arrive in the order in which they ended.
    pub fn add_call(&mut self, seen: ParsedCall) -> SessionUpdate {
        let update = self.find_and_insert(seen);
        // As the store returns them: a session that was restored meanwhile continues in the same way.
        self.threads.sort_by(|a, b| (a.row.updated, &a.row.id).cmp(&(b.row.updated, &b.row.id)));
        self.threads.drain(..self.threads.len().saturating_sub(MAX_THREADS));
        update
    }

    fn find_and_insert(&mut self, mut seen: ParsedCall) -> SessionUpdate {
        let purpose = if seen.counts { CallPurpose::Probe } else { detect_purpose(&seen.request) };
        if purpose.is_side_call() {
            return self.add_side_call(seen, purpose);
        }
        let mut parts = content_parts(std::mem::take(&mut seen.request.messages));
        // The instruction to compact is the agent's, not the user's, and starts no turn.
        if let (CallPurpose::Compact, Some(last)) = (purpose, parts.last_mut()) {
            last.prompt = false;
        }
        let base = self.previous_response(&seen);
        let mut before = base.map(|(_, key)| key);
        let keys: Vec<u128> = parts
            .iter()
            // The first part is chained to the named predecessor, so that its key is the same as if the whole history
            // had been sent.
            .map(|part| {
                let key = chain_hash(before, part.hash);
                before = Some(key);
                key
            })
            .collect();
        let mut changed = Vec::new();
        let spot = self.insertion_point(&seen, &parts, &keys, base, &mut changed);
        self.insert_call(seen, purpose, parts, &keys, spot, changed)
    }

    /// The message that the call names as its predecessor: the previous response, or the last message in its lane of a
    /// WebSocket.
    fn previous_response(&self, seen: &ParsedCall) -> Option<(usize, u128)> {
        // The latest conversation first.
        let find = |key_in: &dyn Fn(&ThreadState) -> Option<MessageHash>| {
            self.threads.iter().enumerate().rev().find_map(|(i, t)| key_in(t).map(|key| (i, key.0)))
        };
        let last = |list: &[(String, MessageHash)], name: &str| {
            list.iter().rev().find(|(other, _)| other == name).map(|(_, key)| *key)
        };
        if let Some(id) = &seen.request.previous {
            return find(&|t| last(&t.facts.replies, id));
        }
        // Over a WebSocket, a request without an id contains only new items, none of which are a reply's.
        let is_new = seen.part > 0 && !seen.request.messages.iter().any(|m| m.role == MessageRole::Assistant);
        is_new.then(|| find(&|t| last(&t.facts.sockets, &socket_id(seen)))).flatten()
    }

    fn insertion_point(
        &mut self,
        seen: &ParsedCall,
        parts: &[ContentPart],
        keys: &[u128],
        base: Option<(usize, u128)>,
        changed: &mut Vec<usize>,
    ) -> InsertionPoint {
        let fresh = base.is_none() && parts.iter().all(|a| a.body.role == MessageRole::User);
        // Only a new history of user messages can be the prompt of a sub-agent.
        if fresh && let Some((parent, call)) = self.matching_tool_call(parts) {
            changed.push(parent);
            return self.start_subagent(seen, parent, call);
        }
        let prefix = self.longest_known_prefix(keys).or(base.map(|(thread, _)| (thread, 0)));
        let Some((thread, known)) = prefix.filter(|f| self.continues_history(seen, keys, *f, base.is_some())) else {
            return self.start_thread(seen, parts, changed);
        };
        // What goes on is a conversation of its own, though it began as an auxiliary call does.
        if known < parts.len() && self.threads[thread].row.id == main_id(seen) {
            self.threads[thread].row.parent = None;
        }
        let parent = if known > 0 { keys.get(known - 1).copied() } else { base.map(|(_, key)| key) };
        let t = &self.threads[thread];
        let grown = parent.and_then(|p| t.places.get(&p)).is_some_and(|p| p.parent);
        let restated = parts.get(known).is_some_and(|a| a.body.role == MessageRole::Assistant);
        // A message that already has a continuation gets a second one: the client went back. Reordered replies are no
        // edit by the user.
        let begins = (grown && known < parts.len() && !restated).then(|| {
            let texts = first_user_texts(&parts[known..]);
            let compacted = begins_with_summary(&texts) || repeats_last_words(t, &texts);
            if compacted { BranchReason::Compacted } else { BranchReason::Edited }
        });
        InsertionPoint { thread, known, parent, begins, after: None }
    }

    /// The longest known prefix of the history: the conversation and the number of parts. A conversation whose last
    /// message is in the history takes precedence, which separates programs that send identical prompts.
    fn longest_known_prefix(&self, keys: &[u128]) -> Option<(usize, usize)> {
        let longest = |is_known: &dyn Fn(&ThreadState, u128) -> bool| {
            keys.iter().enumerate().rev().find_map(|(i, key)| {
                let at = self.threads.iter().rposition(|t| is_known(t, *key))?;
                Some((at, i + 1))
            })
        };
        longest(&|t, key| t.facts.leaf == Some(MessageHash(key)))
            .or_else(|| longest(&|t, key| t.places.contains_key(&key)))
    }

    /// Whether a partially known history continues there. Clients without a session id may start over with the same
    /// words: it continues if a reply was seen, or is still missing.
    fn continues_history(&self, seen: &ParsedCall, keys: &[u128], prefix: (usize, usize), based: bool) -> bool {
        if seen.named || based {
            return true;
        }
        let (thread, known) = prefix;
        let location = known.checked_sub(1).and_then(|i| keys.get(i)).and_then(|k| self.threads[thread].places.get(k));
        location.is_some_and(|p| p.observed || known == keys.len() && !p.answered)
    }

    /// The tool call whose arguments a new history begins with, and its conversation.
    fn matching_tool_call(&self, parts: &[ContentPart]) -> Option<(usize, usize)> {
        let prompt = opening_text(parts);
        if prompt.is_empty() {
            return None;
        }
        let same = hash(b"prompt", &[prompt.as_bytes()]);
        // The latest conversation first, because it is most likely to have started the agent.
        let find = |fits: &dyn Fn(&PendingToolCall) -> bool| {
            self.threads
                .iter()
                .enumerate()
                .rev()
                .find_map(|(i, t)| t.facts.calls.iter().position(|c| !c.claimed && fits(c)).map(|call| (i, call)))
        };
        // Agents may add instructions around the prompt; a long beginning is then enough.
        let text = LazyCell::new(|| SearchedText::new(&prompt));
        find(&|c| c.prompt.0 == same)
            .or_else(|| find(&|c| c.head.chars().count() >= MIN_PROMPT_MATCH_CHARS && text.contains(&c.head)))
    }

    fn start_subagent(&mut self, seen: &ParsedCall, parent: usize, call: usize) -> InsertionPoint {
        let thread = &mut self.threads[parent];
        let call = &mut thread.facts.calls[call];
        call.claimed = true;
        let link = SubagentLink { call: call.id.clone(), tool: call.tool.clone() };
        let parent = thread.row.id.clone();
        // The ids of conversations are derived from their calls: a rebuild from the recording yields the same.
        let id = hashed_id(&["sub-agent", &parent, &link.call, &seen.flow.to_string()]);
        self.push_thread(seen, id, Some(parent), Some(link))
    }

    /// Inserts a history with no known prefix.
    fn start_thread(&mut self, seen: &ParsedCall, parts: &[ContentPart], changed: &mut Vec<usize>) -> InsertionPoint {
        if let Some(thread) = self.compacted_thread(seen, parts) {
            return self.start_branch(thread, BranchReason::Compacted);
        }
        let id_of = |kind, of: &str| hashed_id(&[kind, of, &seen.flow.to_string(), &seen.part.to_string()]);
        // Without a session id nothing tells conversations of a client apart, so a new history is a new conversation.
        if !seen.named {
            return self.push_thread(seen, id_of("client", &seen.key), None, None);
        }
        let Some(at) = self.main_thread(seen) else {
            return self.push_thread(seen, main_id(seen), None, None);
        };
        let main = self.threads[at].row.id.clone();
        // So far it has only auxiliary calls.
        if self.threads[at].places.is_empty() {
            self.threads[at].facts.tools = Some(tools_hash(seen));
            return InsertionPoint { thread: at, known: 0, parent: None, begins: None, after: None };
        }
        if self.threads[at].facts.tools == Some(tools_hash(seen)) {
            // A client that clears its history has received the last reply; an earlier request is another agent's.
            if seen.started >= self.threads[at].row.updated {
                return self.start_branch(at, BranchReason::Cleared);
            }
            return self.push_thread(seen, id_of("meanwhile", &main), None, None);
        }
        // The session began with an auxiliary call of unknown purpose: only now begins its conversation.
        if self.threads[at].asked_once_without_tools() && !seen.request.tools.is_empty() {
            let id = id_of("after", &main);
            self.threads[at].row.parent = Some(id.clone());
            changed.push(at);
            return self.push_thread(seen, id, None, None);
        }
        // Another agent in the same session with a prompt of unknown origin: assigned to the open tool call if there is
        // exactly one.
        if let [(parent, call)] = self.open_calls()[..] {
            changed.push(parent);
            return self.start_subagent(seen, parent, call);
        }
        self.push_thread(seen, id_of("beside", &main), Some(main), None)
    }

    /// The session's main conversation: its first, or the one that the first turned out to be auxiliary to.
    fn main_thread(&self, seen: &ParsedCall) -> Option<usize> {
        let position = |id: &str| self.threads.iter().position(|t| t.row.id == id);
        let first = position(&main_id(seen))?;
        Some(self.threads[first].row.parent.as_deref().and_then(position).unwrap_or(first))
    }

    /// The conversation that was compacted: the one whose last words are repeated, else one with the same tools,
    /// preferring main conversations over sub-agents and newer over older.
    fn compacted_thread(&self, seen: &ParsedCall, parts: &[ContentPart]) -> Option<usize> {
        let tools = Some(tools_hash(seen));
        let texts = first_user_texts(parts);
        let summary = begins_with_summary(&texts);
        let all = self.threads.iter().enumerate().map(|(i, t)| (repeats_last_words(t, &texts), i, t));
        let rank = |(repeats, i, t): &(bool, usize, &ThreadState)| {
            (*repeats, t.facts.tools == tools, t.row.parent.is_none(), t.row.updated, *i)
        };
        all.filter(|(repeats, ..)| summary || *repeats).max_by_key(rank).map(|(_, i, _)| i)
    }

    fn open_calls(&self) -> Vec<(usize, usize)> {
        let calls = |(i, t): (usize, &ThreadState)| -> Vec<(usize, usize)> {
            let open = t.facts.calls.iter().enumerate().filter(|(_, c)| !c.claimed);
            open.map(|(call, _)| (i, call)).collect()
        };
        self.threads.iter().enumerate().flat_map(calls).collect()
    }

    fn start_branch(&self, thread: usize, begins: BranchReason) -> InsertionPoint {
        let after = self.threads[thread].facts.leaf;
        InsertionPoint { thread, known: 0, parent: None, begins: Some(begins), after }
    }

    fn push_thread(
        &mut self,
        seen: &ParsedCall,
        id: String,
        parent: Option<String>,
        link: Option<SubagentLink>,
    ) -> InsertionPoint {
        let facts = ConversationFacts {
            version: seen.agent.version.clone(),
            link,
            tools: Some(tools_hash(seen)),
            ..ConversationFacts::default()
        };
        let row = ConversationRow {
            id,
            session: seen.key.clone(),
            parent,
            started: seen.started,
            updated: seen.started,
            agent: seen.agent.name.clone(),
            model: seen.model().to_owned(),
            provider: seen.provider.clone(),
            host: seen.host.clone(),
            user: seen.user.clone(),
            ..ConversationRow::default()
        };
        self.threads.push(ThreadState { row, facts, places: HashMap::new() });
        InsertionPoint { thread: self.threads.len() - 1, known: 0, parent: None, begins: None, after: None }
    }

    /// Adds the new messages and returns the changes.
    fn insert_call(
        &mut self,
        mut seen: ParsedCall,
        purpose: CallPurpose,
        parts: Vec<ContentPart>,
        keys: &[u128],
        spot: InsertionPoint,
        changed: Vec<usize>,
    ) -> SessionUpdate {
        let mut facts = call_facts(&seen, purpose);
        facts.history = parts.len() as u64;
        facts.fresh = (parts.len() - spot.known) as u64;
        let thread = &mut self.threads[spot.thread];
        let mut nodes = Vec::new();
        let mut parent = spot.parent;
        let (mut begins, mut after) = (spot.begins, spot.after);
        for (part, key) in parts.into_iter().zip(keys).skip(spot.known) {
            // The result has come: the call is no longer open.
            if let Some(ContentBlock::ToolResult { id, .. }) = &part.body.block {
                thread.facts.calls.retain(|c| c.id != *id);
            }
            // Until the agent generates a title, the first prompt serves as one.
            if thread.row.title.is_empty() && part.prompt {
                thread.row.title = truncate_text(part.text(), MAX_TITLE_CHARS);
            }
            nodes.push(thread.add_message(part, *key, parent, false, begins.take(), after.take(), seen.started));
            parent = Some(*key);
        }
        facts.asked = parent.map(MessageHash);
        let ended = Timestamp::from_micros(seen.started.micros().saturating_add(seen.duration));
        // The prompt already has a reply, so this one is a second attempt.
        let again = parent.and_then(|p| thread.places.get(&p)).is_some_and(|p| p.answered);
        let mut begins = again.then_some(BranchReason::Retried);
        // A reply without content is hashed with its flow: two of them are different.
        let alone = hash(b"reply", &[seen.flow.to_string().as_bytes(), &seen.part.to_be_bytes()]);
        for part in reply_parts(std::mem::take(&mut seen.reply.blocks), alone) {
            let key = chain_hash(parent, part.hash);
            facts.answer = facts.answer.or(Some(MessageHash(key)));
            thread.track_tool_calls(&part);
            // A known part was received before, for example when the call is indexed a second time.
            if !thread.places.contains_key(&key) {
                nodes.push(thread.add_message(part, key, parent, true, begins.take(), None, ended));
            }
            parent = Some(key);
        }
        thread.finish_call(&seen, parent, ended);
        facts.turn = thread.row.turns;
        let exchange = call_record(&seen, &thread.row.id, parent, facts);
        let mut conversations = vec![thread.conversation()];
        conversations.extend(changed.into_iter().filter(|c| *c != spot.thread).map(|c| self.threads[c].conversation()));
        SessionUpdate { conversations, nodes, exchange }
    }

    /// Adds an auxiliary call: it is counted, and its content remains in its flow.
    fn add_side_call(&mut self, mut seen: ParsedCall, purpose: CallPurpose) -> SessionUpdate {
        let thread = match seen.named {
            true => self.main_thread(&seen),
            false => (0..self.threads.len()).max_by_key(|i| self.threads[*i].row.updated),
        };
        let thread = thread.unwrap_or_else(|| self.push_thread(&seen, main_id(&seen), None, None).thread);
        let mut facts = call_facts(&seen, purpose);
        let reply: Vec<ContentBlock> = std::mem::take(&mut seen.reply.blocks);
        let text = interflow_llm::message::joined(&reply);
        facts.note = truncate_text(&text, MAX_HEAD_CHARS);
        let thread = &mut self.threads[thread];
        if purpose == CallPurpose::Title
            && let Some(title) = title_in(&text)
            && !thread.facts.titled
        {
            thread.row.title = truncate_text(&title, MAX_TITLE_CHARS);
            thread.facts.titled = true;
        }
        let ended = Timestamp::from_micros(seen.started.micros().saturating_add(seen.duration));
        thread.row.updated = thread.row.updated.max(ended);
        facts.turn = thread.row.turns;
        let exchange = call_record(&seen, &thread.row.id, None, facts);
        SessionUpdate { conversations: vec![thread.conversation()], nodes: Vec::new(), exchange }
    }
}

impl ThreadState {
    fn conversation(&self) -> Conversation {
        Conversation { row: self.row.clone(), facts: self.facts.clone() }
    }

    /// Whether it has a single question, asked without tools, as auxiliary calls are.
    fn asked_once_without_tools(&self) -> bool {
        let had_tools = self.facts.tools != Some(hash_of_tools(std::iter::empty()));
        !had_tools && self.row.turns <= 1
    }

    fn set_location(&mut self, key: u128, parent: Option<u128>, facts: &NodeFacts) {
        let mut observed = facts.reply;
        // The parent has a continuation now; a reply also answers it.
        if let Some(p) = parent.and_then(|p| self.places.get_mut(&p)) {
            p.parent = true;
            p.answered |= facts.reply;
            observed |= p.observed;
        }
        let location =
            MessageLocation { turn: facts.turn, prompt: facts.prompt, parent: false, answered: false, observed };
        self.places.insert(key, location);
    }

    #[allow(clippy::too_many_arguments, reason = "the facts of a message, each once")]
    fn add_message(
        &mut self,
        part: ContentPart,
        key: u128,
        parent: Option<u128>,
        reply: bool,
        begins: Option<BranchReason>,
        after: Option<MessageHash>,
        at: Timestamp,
    ) -> MessageNode {
        let before = parent.and_then(|p| self.places.get(&p)).copied();
        let turn = before.map_or(self.row.turns, |p| p.turn);
        // Prompts in a row belong to one turn.
        let turn = turn + u64::from(part.prompt && !before.is_some_and(|p| p.prompt));
        // An error in place of a reply leaves the prompt unanswered.
        let reply = reply && part.body.block.is_some();
        let facts = NodeFacts { turn, prompt: part.prompt, reply, begins, after };
        self.set_location(key, parent, &facts);
        MessageNode { conversation: self.row.id.clone(), key, parent, at, facts, body: part.body }
    }

    /// Remembers tool calls that may start a sub-agent.
    fn track_tool_calls(&mut self, part: &ContentPart) {
        let facts = &mut self.facts;
        match &part.body.block {
            Some(ContentBlock::ToolUse { id, name, input }) => {
                // The argument names by which known agents pass a prompt to a sub-agent.
                let prompt = ["prompt", "task", "message", "instructions"].iter().find_map(|k| input[*k].as_str());
                if let Some(prompt) = prompt.map(str::trim).filter(|p| !p.is_empty() && !id.is_empty()) {
                    let (id, tool, head) = (id.clone(), name.clone(), prompt.chars().take(MAX_HEAD_CHARS).collect());
                    let prompt = MessageHash(hash(b"prompt", &[prompt.as_bytes()]));
                    facts.calls.push(PendingToolCall { id, tool, prompt, head, claimed: false });
                    keep_last(&mut facts.calls);
                }
            }
            Some(ContentBlock::Text { text }) => facts.said = text.trim().chars().take(MAX_HEAD_CHARS).collect(),
            _ => {}
        }
    }

    fn finish_call(&mut self, seen: &ParsedCall, leaf: Option<u128>, ended: Timestamp) {
        let row = &mut self.row;
        // Calls arrive by their end, so a later one may have started earlier.
        row.started = row.started.min(seen.started);
        row.updated = row.updated.max(ended);
        seen.model().clone_into(&mut row.model);
        if row.agent.is_empty() {
            row.agent.clone_from(&seen.agent.name);
        }
        let Some(leaf) = leaf else { return };
        row.turns = self.places.get(&leaf).map_or(row.turns, |p| p.turn);
        self.facts.leaf = Some(MessageHash(leaf));
        if let Some(id) = &seen.reply.id {
            self.facts.replies.push((id.clone(), MessageHash(leaf)));
            keep_last(&mut self.facts.replies);
        }
        if seen.part > 0 {
            let socket = socket_id(seen);
            self.facts.sockets.retain(|(other, _)| *other != socket);
            self.facts.sockets.push((socket, MessageHash(leaf)));
            keep_last(&mut self.facts.sockets);
        }
    }
}

fn keep_last<T>(list: &mut Vec<T>) {
    if list.len() > MAX_OPEN_CALLS {
        list.drain(..list.len() - MAX_OPEN_CALLS);
    }
}

/// An id of 16 hexadecimal digits that depend on these parts only.
fn hashed_id(parts: &[&str]) -> String {
    let parts: Vec<&[u8]> = parts.iter().map(|p| p.as_bytes()).collect();
    format!("{:016x}", hash(b"conversation", &parts) >> 64)
}

/// Identifies a lane of a WebSocket; clients name lanes at any length.
fn socket_id(seen: &ParsedCall) -> String {
    hashed_id(&["socket", &seen.flow.to_string(), &seen.lane])
}

/// The id of a named session's first conversation.
fn main_id(seen: &ParsedCall) -> String {
    hashed_id(&["session", &seen.key])
}

fn tools_hash(seen: &ParsedCall) -> MessageHash {
    hash_of_tools(seen.request.tools.iter().map(|t| t.name.as_bytes()))
}

fn hash_of_tools<'t>(names: impl Iterator<Item = &'t [u8]>) -> MessageHash {
    let mut names: Vec<&[u8]> = names.collect();
    // Sorted: the order of tools does not matter here.
    names.sort_unstable();
    MessageHash(hash(b"tools", &names))
}

/// The text of the messages up to the first reply.
fn opening_text(parts: &[ContentPart]) -> String {
    let texts = parts.iter().take_while(|a| a.body.role == MessageRole::User).map(|a| a.text().trim());
    texts.filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Whether a history begins with the summary of a conversation.
fn begins_with_summary(texts: &[SearchedText<'_>]) -> bool {
    texts.iter().any(|t| CONTINUATION_MARKERS.iter().any(|c| t.contains(c)))
}

/// Whether a history begins with the last words of a conversation.
fn repeats_last_words(thread: &ThreadState, texts: &[SearchedText<'_>]) -> bool {
    let last_words = &thread.facts.said;
    last_words.chars().count() >= MIN_PROMPT_MATCH_CHARS && texts.iter().any(|t| t.contains(last_words))
}

fn first_user_texts(parts: &[ContentPart]) -> Vec<SearchedText<'_>> {
    // The summary may come after injected context, but not much later.
    let first = parts.iter().take(4).filter(|a| a.body.role == MessageRole::User);
    first.map(|part| SearchedText::new(part.text())).collect()
}

/// A title in the forms that models return: plain, quoted, or in JSON.
fn title_in(text: &str) -> Option<String> {
    let json = text.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(text.get(at..)?).ok());
    let title = match json {
        Some(v) => v["title"].as_str().map(str::to_owned)?,
        None => text.trim().trim_matches(['"', '*', '`']).to_owned(),
    };
    (!title.is_empty() && !title.starts_with('{')).then_some(title)
}

/// The beginning of a text in one line.
fn truncate_text(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > most {
            break;
        }
    }
    let Some((at, _)) = line.char_indices().nth(most) else { return line };
    format!("{}…", line.get(..at).unwrap_or_default())
}

fn call_facts(seen: &ParsedCall, purpose: CallPurpose) -> CallFacts {
    let error = seen.reply.blocks.iter().find_map(|b| match b {
        ContentBlock::Error { kind, message } => Some(format!("{kind}: {message}")),
        _ => None,
    });
    CallFacts {
        purpose,
        status: seen.status,
        duration: seen.duration,
        first_byte: seen.first_byte,
        stop: seen.reply.stop.clone(),
        error,
        complete: seen.reply.complete,
        stream: seen.request.stream,
        counted: seen.reply.usage.is_some(),
        estimated: seen.is_estimated,
        tools: seen.request.tools.len() as u64,
        system: seen.request.system.iter().map(|s| s.chars().count() as u64).sum(),
        ..CallFacts::default()
    }
}

fn call_record(seen: &ParsedCall, conversation: &str, leaf: Option<u128>, facts: CallFacts) -> CallRecord {
    let row = ExchangeRow {
        flow: seen.flow,
        part: seen.part,
        conversation: conversation.to_owned(),
        started: seen.started,
        leaf,
        agent: seen.agent.name.clone(),
        model: seen.model().to_owned(),
        provider: seen.provider.clone(),
        failed: facts.error.is_some(),
        used: TokenUsage::default(),
        facts: String::new(),
    };
    CallRecord { row, usage: seen.reply.usage.map(|usage| usage.at_host(&seen.host)), cost: seen.reply.cost, facts }
}
