//! One session: its conversations, and the place of the next exchange among them.

use std::collections::HashMap;

use interflow_flow::Timestamp;

use super::atom::{Atom, atoms, chained, hash, of_reply};
use super::facts::*;
use super::purpose::{Purpose, purpose};
use super::recorded::Recorded;
use crate::message::{Block, Role};

/// Conversations of a session that are remembered.
pub const MOST_THREADS: usize = 64;
/// Calls, answers and sockets that a conversation remembers.
const MOST_CALLS: usize = 64;
/// Characters of a prompt or an answer that are compared.
const HEAD: usize = 200;
/// The shortest beginning of an answer that is taken for a sign of it.
const SIGN: usize = 60;
/// Characters of a title.
const TITLE: usize = 120;
/// The words by which agents begin a history that was made shorter.
const CONTINUED: [&str; 3] =
    ["continued from a previous conversation", "<state_snapshot>", "summary of the conversation so far"];

/// The place of a message, as far as the next exchange needs it.
#[derive(Clone, Copy, Debug)]
struct Place {
    turn: u64,
    prompt: bool,
    /// Something goes on from it.
    parent: bool,
    /// An answer goes on from it.
    answered: bool,
    /// It came as an answer, or goes on from one.
    observed: bool,
}

/// A conversation in memory.
pub struct Thread {
    pub row: Conversation,
    places: HashMap<u128, Place>,
}

/// A session in memory.
#[derive(Default)]
pub struct Session {
    threads: Vec<Thread>,
}

/// Where an exchange belongs.
struct Spot {
    thread: usize,
    /// How many of its atoms are there already.
    known: usize,
    /// The message that the first new one goes on from.
    parent: Option<u128>,
    begins: Option<Begins>,
    after: Option<Key>,
}

/// What an exchange changed.
#[derive(Debug, Default)]
pub struct Found {
    /// Conversations that are new or changed.
    pub conversations: Vec<Conversation>,
    /// Messages that are new.
    pub nodes: Vec<Node>,
    /// The exchange.
    pub exchange: Option<Exchange>,
}

/// A message as it was kept: its key, its parent's, and what is known of it.
pub type KeptNode = (u128, Option<u128>, NodeFacts);

impl Session {
    /// A session as it was kept; messages in the order in which they came.
    pub fn restored(kept: Vec<(Conversation, Vec<KeptNode>)>) -> Self {
        let threads = kept.into_iter().map(|(row, nodes)| {
            let mut thread = Thread { row, places: HashMap::with_capacity(nodes.len()) };
            for (key, parent, facts) in nodes {
                thread.place(key, parent, &facts);
            }
            thread
        });
        Self { threads: threads.collect() }
    }

    /// Messages in memory.
    pub fn weight(&self) -> usize {
        self.threads.iter().map(|t| t.places.len() + 16).sum()
    }

    /// Puts an exchange in its place.
    pub fn take(&mut self, mut seen: Recorded) -> Found {
        let purpose = if seen.counts { Purpose::Probe } else { purpose(&seen.request) };
        if purpose.is_beside() {
            return self.beside(seen, purpose);
        }
        let mut atoms = atoms(std::mem::take(&mut seen.request.messages));
        if let (Purpose::Compact, Some(last)) = (purpose, atoms.last_mut()) {
            last.prompt = false;
        }
        let base = self.base(&seen);
        let mut before = base.map(|(_, key)| key);
        let keys: Vec<u128> = atoms
            .iter()
            .map(|atom| {
                let key = chained(before, atom.hash);
                before = Some(key);
                key
            })
            .collect();
        let mut changed = Vec::new();
        let spot = self.spot(&seen, &atoms, &keys, base, &mut changed);
        self.put(seen, purpose, atoms, &keys, spot, changed)
    }

    /// The message that the exchange names as the one it goes on from: the answer before, or the last in its WebSocket.
    fn base(&self, seen: &Recorded) -> Option<(usize, u128)> {
        let named = seen.request.previous.as_deref();
        let socket = (seen.part > 0).then(|| seen.flow.to_string());
        let latest_first = || self.threads.iter().enumerate().rev();
        if let Some(id) = named {
            let find = |t: &Thread| t.row.facts.replies.iter().rev().find(|(r, _)| r == id).map(|(_, k)| k.0);
            return latest_first().find_map(|(i, t)| find(t).map(|k| (i, k)));
        }
        // Over a WebSocket without a name, only new items are sent: those of an answer are not among them.
        let socket = socket.filter(|_| !seen.request.messages.iter().any(|m| m.role == Role::Assistant))?;
        let find = |t: &Thread| t.row.facts.sockets.iter().rev().find(|(f, _)| *f == socket).map(|(_, k)| k.0);
        latest_first().find_map(|(i, t)| find(t).map(|k| (i, k)))
    }

    fn spot(
        &mut self,
        seen: &Recorded,
        atoms: &[Atom],
        keys: &[u128],
        base: Option<(usize, u128)>,
        changed: &mut Vec<usize>,
    ) -> Spot {
        let fresh = base.is_none() && atoms.iter().all(|a| a.body.role == Role::User);
        if fresh && let Some((parent, call)) = self.called(atoms) {
            changed.push(parent);
            return self.sub_agent(seen, parent, call);
        }
        let found = self.find(keys).or(base.map(|(thread, _)| (thread, 0)));
        let Some((thread, known)) = found.filter(|f| self.goes_on(seen, keys, *f, base.is_some())) else {
            return self.begin(seen, atoms, changed);
        };
        let parent = if known > 0 { keys.get(known - 1).copied() } else { base.map(|(_, key)| key) };
        let t = &self.threads[thread];
        let grown = parent.and_then(|p| t.places.get(&p)).is_some_and(|p| p.parent);
        let restated = atoms.get(known).is_some_and(|a| a.body.role == Role::Assistant);
        let begins = (grown && known < atoms.len() && !restated).then(|| match compacted(t, &atoms[known..]) {
            true => Begins::Compacted,
            false => Begins::Edited,
        });
        Spot { thread, known, parent, begins, after: None }
    }

    /// The longest history that is known already: in which conversation, and how many atoms of it. A conversation whose
    /// last message the history holds goes on; programs that say the same twice are told apart by that.
    fn find(&self, keys: &[u128]) -> Option<(usize, usize)> {
        let leaf = |t: &Thread, key: u128| t.row.facts.leaf == Some(Key(key));
        let goes_on = keys.iter().enumerate().rev().find_map(|(i, key)| {
            let at = self.threads.iter().rposition(|t| leaf(t, *key))?;
            Some((at, i + 1))
        });
        if goes_on.is_some() {
            return goes_on;
        }
        keys.iter().enumerate().rev().find_map(|(i, key)| {
            let at = self.threads.iter().rposition(|t| t.places.contains_key(key))?;
            Some((at, i + 1))
        })
    }

    /// Whether a history that is known in part goes on from there. Clients without a session of their own may begin anew
    /// with words that were used before: it goes on where an answer was seen, or where one is still missing.
    fn goes_on(&self, seen: &Recorded, keys: &[u128], (thread, known): (usize, usize), based: bool) -> bool {
        if seen.named || based {
            return true;
        }
        let place = known.checked_sub(1).and_then(|i| keys.get(i)).and_then(|k| self.threads[thread].places.get(k));
        place.is_some_and(|p| p.observed || known == keys.len() && !p.answered)
    }

    /// The call whose arguments a fresh history begins with, and the conversation it was made in.
    fn called(&self, atoms: &[Atom]) -> Option<(usize, usize)> {
        let prompt = opening(atoms);
        if prompt.is_empty() {
            return None;
        }
        let same = hash(b"prompt", &[prompt.as_bytes()]);
        let find =
            |fits: &dyn Fn(&OpenCall) -> bool| {
                self.threads.iter().enumerate().rev().find_map(|(i, t)| {
                    t.row.facts.calls.iter().position(|c| !c.claimed && fits(c)).map(|call| (i, call))
                })
            };
        find(&|c| c.prompt.0 == same)
            .or_else(|| find(&|c| c.head.chars().count() >= SIGN && prompt.contains(c.head.as_str())))
    }

    fn sub_agent(&mut self, seen: &Recorded, parent: usize, call: usize) -> Spot {
        let row = &mut self.threads[parent].row;
        let call = &mut row.facts.calls[call];
        call.claimed = true;
        let link = Link { call: call.id.clone(), tool: call.tool.clone() };
        let parent = row.id.clone();
        let id = name(&["sub-agent", &parent, &link.call, &seen.flow.to_string()]);
        self.add(seen, id, Some(parent), Some(link))
    }

    /// A history of which nothing is known.
    fn begin(&mut self, seen: &Recorded, atoms: &[Atom], changed: &mut Vec<usize>) -> Spot {
        if let Some(thread) = self.continued(seen, atoms) {
            return self.branch(thread, Begins::Compacted);
        }
        if !seen.named {
            let id = name(&["client", &seen.key, &seen.flow.to_string(), &seen.part.to_string()]);
            return self.add(seen, id, None, None);
        }
        let main = name(&["session", &seen.key]);
        let Some(at) = self.threads.iter().position(|t| t.row.id == main) else {
            return self.add(seen, main, None, None);
        };
        if self.threads[at].places.is_empty() {
            self.threads[at].row.facts.tools = Some(tools(seen));
            return Spot { thread: at, known: 0, parent: None, begins: None, after: None };
        }
        if self.threads[at].row.facts.tools == Some(tools(seen)) {
            // Who drops a history has heard the last answer to it: what is asked before that is another agent's.
            if seen.started >= self.threads[at].row.updated {
                return self.branch(at, Begins::Cleared);
            }
            let id = name(&["meanwhile", &main, &seen.flow.to_string(), &seen.part.to_string()]);
            return self.add(seen, id, None, None);
        }
        // Another agent in the same session whose prompt nobody is known to have given: of one open call it is that one's.
        let open: Vec<(usize, usize)> = self.open_calls();
        if let [(parent, call)] = open[..] {
            changed.push(parent);
            return self.sub_agent(seen, parent, call);
        }
        let id = name(&["beside", &main, &seen.flow.to_string(), &seen.part.to_string()]);
        self.add(seen, id, Some(main), None)
    }

    /// The conversation whose history was made shorter: the one whose last words it repeats, else the one with the same
    /// tools, before sub-agents and before what is older.
    fn continued(&self, seen: &Recorded, atoms: &[Atom]) -> Option<usize> {
        let tools = Some(tools(seen));
        let fits = self.threads.iter().enumerate().filter(|(_, t)| compacted(t, atoms));
        let rank = |(i, t): &(usize, &Thread)| {
            (repeated(t, atoms), t.row.facts.tools == tools, t.row.parent.is_none(), t.row.updated, *i)
        };
        fits.max_by_key(rank).map(|(i, _)| i)
    }

    fn open_calls(&self) -> Vec<(usize, usize)> {
        let calls = |(i, t): (usize, &Thread)| -> Vec<(usize, usize)> {
            let open = t.row.facts.calls.iter().enumerate().filter(|(_, c)| !c.claimed);
            open.map(|(call, _)| (i, call)).collect()
        };
        self.threads.iter().enumerate().flat_map(calls).collect()
    }

    fn branch(&self, thread: usize, begins: Begins) -> Spot {
        let after = self.threads[thread].row.facts.leaf;
        Spot { thread, known: 0, parent: None, begins: Some(begins), after }
    }

    fn add(&mut self, seen: &Recorded, id: String, parent: Option<String>, link: Option<Link>) -> Spot {
        if self.threads.len() >= MOST_THREADS {
            let oldest = self.threads.iter().enumerate().min_by_key(|(_, t)| (t.row.updated, t.row.id.clone()));
            if let Some((at, _)) = oldest {
                self.threads.remove(at);
            }
        }
        let facts = ConversationFacts {
            version: seen.agent.version.clone(),
            link,
            tools: Some(tools(seen)),
            ..ConversationFacts::default()
        };
        let row = Conversation {
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
            title: String::new(),
            turns: 0,
            facts,
        };
        self.threads.push(Thread { row, places: HashMap::new() });
        Spot { thread: self.threads.len() - 1, known: 0, parent: None, begins: None, after: None }
    }

    /// Adds what is new and says what has changed.
    fn put(
        &mut self,
        mut seen: Recorded,
        purpose: Purpose,
        atoms: Vec<Atom>,
        keys: &[u128],
        spot: Spot,
        changed: Vec<usize>,
    ) -> Found {
        let mut facts = exchange_facts(&seen, purpose);
        facts.history = atoms.len() as u64;
        facts.fresh = (atoms.len() - spot.known) as u64;
        let thread = &mut self.threads[spot.thread];
        let mut nodes = Vec::new();
        let mut parent = spot.parent;
        let (mut begins, mut after) = (spot.begins, spot.after);
        for (atom, key) in atoms.into_iter().zip(keys).skip(spot.known) {
            if let Some(Block::ToolResult { id, .. }) = &atom.body.block {
                thread.row.facts.calls.retain(|c| c.id != *id);
            }
            if thread.row.title.is_empty() && atom.prompt {
                thread.row.title = head(atom.text(), TITLE);
            }
            nodes.push(thread.add(atom, *key, parent, false, begins.take(), after.take(), seen.started));
            parent = Some(*key);
        }
        facts.asked = parent.map(Key);
        let ended = Timestamp::from_micros(seen.started.micros().saturating_add(seen.duration));
        let again = parent.and_then(|p| thread.places.get(&p)).is_some_and(|p| p.answered);
        let mut begins = again.then_some(Begins::Retried);
        let alone = hash(b"reply", &[seen.flow.to_string().as_bytes(), &seen.part.to_be_bytes()]);
        for atom in of_reply(std::mem::take(&mut seen.reply.blocks), alone) {
            let key = chained(parent, atom.hash);
            facts.answer = facts.answer.or(Some(Key(key)));
            thread.learn(&atom);
            if !thread.places.contains_key(&key) {
                nodes.push(thread.add(atom, key, parent, true, begins.take(), None, ended));
            }
            parent = Some(key);
        }
        thread.end(&seen, parent, ended);
        facts.turn = thread.row.turns;
        let exchange = exchange(&seen, &thread.row.id, parent, facts);
        let mut conversations = vec![thread.row.clone()];
        conversations.extend(changed.into_iter().filter(|c| *c != spot.thread).map(|c| self.threads[c].row.clone()));
        Found { conversations, nodes, exchange: Some(exchange) }
    }

    /// A call beside the conversation: it counts, and what it says is in its flow.
    fn beside(&mut self, mut seen: Recorded, purpose: Purpose) -> Found {
        let main = name(&["session", &seen.key]);
        let thread = match seen.named {
            true => self.threads.iter().position(|t| t.row.id == main),
            false => (0..self.threads.len()).max_by_key(|i| self.threads[*i].row.updated),
        };
        let thread = thread.unwrap_or_else(|| self.add(&seen, main, None, None).thread);
        let mut facts = exchange_facts(&seen, purpose);
        let said: Vec<Block> = std::mem::take(&mut seen.reply.blocks);
        let text = crate::message::joined(&said);
        facts.note = head(&text, HEAD);
        let row = &mut self.threads[thread].row;
        if purpose == Purpose::Title
            && let Some(title) = title_in(&text)
            && !row.facts.titled
        {
            row.title = head(&title, TITLE);
            row.facts.titled = true;
        }
        let ended = Timestamp::from_micros(seen.started.micros().saturating_add(seen.duration));
        row.updated = row.updated.max(ended);
        facts.turn = row.turns;
        let exchange = exchange(&seen, &row.id, None, facts);
        Found { conversations: vec![row.clone()], nodes: Vec::new(), exchange: Some(exchange) }
    }
}

impl Thread {
    fn place(&mut self, key: u128, parent: Option<u128>, facts: &NodeFacts) {
        let mut observed = facts.reply;
        if let Some(p) = parent.and_then(|p| self.places.get_mut(&p)) {
            p.parent = true;
            p.answered |= facts.reply;
            observed |= p.observed;
        }
        let place = Place { turn: facts.turn, prompt: facts.prompt, parent: false, answered: false, observed };
        self.places.insert(key, place);
    }

    #[allow(clippy::too_many_arguments, reason = "the facts of a message, each once")]
    fn add(
        &mut self,
        atom: Atom,
        key: u128,
        parent: Option<u128>,
        reply: bool,
        begins: Option<Begins>,
        after: Option<Key>,
        at: Timestamp,
    ) -> Node {
        let before = parent.and_then(|p| self.places.get(&p)).copied();
        let turn = before.map_or(self.row.turns, |p| p.turn);
        let turn = turn + u64::from(atom.prompt && !before.is_some_and(|p| p.prompt));
        // An error in place of an answer leaves the question open.
        let reply = reply && atom.body.block.is_some();
        let facts = NodeFacts { turn, prompt: atom.prompt, reply, begins, after };
        self.place(key, parent, &facts);
        Node { conversation: self.row.id.clone(), key, parent, at, facts, body: atom.body }
    }

    /// Remembers what an answer may lead to.
    fn learn(&mut self, atom: &Atom) {
        let facts = &mut self.row.facts;
        match &atom.body.block {
            Some(Block::ToolUse { id, name, input }) => {
                let prompt = ["prompt", "task", "message", "instructions"].iter().find_map(|k| input[*k].as_str());
                if let Some(prompt) = prompt.map(str::trim).filter(|p| !p.is_empty() && !id.is_empty()) {
                    let (key, head) = (hash(b"prompt", &[prompt.as_bytes()]), prompt.chars().take(HEAD).collect());
                    facts.calls.push(OpenCall {
                        id: id.clone(),
                        tool: name.clone(),
                        prompt: Key(key),
                        head,
                        claimed: false,
                    });
                    keep_last(&mut facts.calls);
                }
            }
            Some(Block::Text { text }) => facts.said = text.trim().chars().take(HEAD).collect(),
            _ => {}
        }
    }

    fn end(&mut self, seen: &Recorded, leaf: Option<u128>, ended: Timestamp) {
        let row = &mut self.row;
        row.started = row.started.min(seen.started);
        row.updated = row.updated.max(ended);
        seen.model().clone_into(&mut row.model);
        if row.agent.is_empty() {
            row.agent.clone_from(&seen.agent.name);
        }
        let Some(leaf) = leaf else { return };
        row.turns = self.places.get(&leaf).map_or(row.turns, |p| p.turn);
        row.facts.leaf = Some(Key(leaf));
        if let Some(id) = &seen.reply.id {
            row.facts.replies.push((id.clone(), Key(leaf)));
            keep_last(&mut row.facts.replies);
        }
        if seen.part > 0 {
            let flow = seen.flow.to_string();
            row.facts.sockets.retain(|(f, _)| *f != flow);
            row.facts.sockets.push((flow, Key(leaf)));
            keep_last(&mut row.facts.sockets);
        }
    }
}

fn keep_last<T>(list: &mut Vec<T>) {
    if list.len() > MOST_CALLS {
        list.drain(..list.len() - MOST_CALLS);
    }
}

/// The name of a conversation.
fn name(parts: &[&str]) -> String {
    let parts: Vec<&[u8]> = parts.iter().map(|p| p.as_bytes()).collect();
    format!("{:016x}", hash(b"conversation", &parts) >> 64)
}

fn tools(seen: &Recorded) -> Key {
    let mut names: Vec<&[u8]> = seen.request.tools.iter().map(|t| t.name.as_bytes()).collect();
    names.sort_unstable();
    Key(hash(b"tools", &names))
}

/// What the first messages say, up to the first answer.
fn opening(atoms: &[Atom]) -> String {
    let texts = atoms.iter().take_while(|a| a.body.role == Role::User).map(|a| a.text().trim());
    texts.filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Whether a history begins with what a conversation has come to.
fn compacted(thread: &Thread, atoms: &[Atom]) -> bool {
    first_said(atoms).any(|t| CONTINUED.iter().any(|c| t.contains(c))) || repeated(thread, atoms)
}

/// Whether a history begins with the last words of a conversation.
fn repeated(thread: &Thread, atoms: &[Atom]) -> bool {
    let said = &thread.row.facts.said;
    said.chars().count() >= SIGN && first_said(atoms).any(|t| t.contains(said.as_str()))
}

fn first_said(atoms: &[Atom]) -> impl Iterator<Item = &str> {
    atoms.iter().take(4).filter(|a| a.body.role == Role::User).map(Atom::text)
}

/// A title as title calls give it: plain, quoted, or in JSON.
fn title_in(text: &str) -> Option<String> {
    let json = text.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(text.get(at..)?).ok());
    let found = match json {
        Some(v) => v["title"].as_str().map(str::to_owned)?,
        None => text.trim().trim_matches(['"', '*', '`']).to_owned(),
    };
    (!found.is_empty() && !found.starts_with('{')).then_some(found)
}

/// The beginning of a text in one line.
fn head(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > most * 4 {
            break;
        }
    }
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

fn exchange_facts(seen: &Recorded, purpose: Purpose) -> ExchangeFacts {
    let error = seen.reply.blocks.iter().find_map(|b| match b {
        Block::Error { kind, message } => Some(format!("{kind}: {message}")),
        _ => None,
    });
    ExchangeFacts {
        purpose,
        status: seen.status,
        duration: seen.duration,
        first_byte: seen.first_byte,
        stop: seen.reply.stop.clone(),
        error,
        complete: seen.reply.complete,
        stream: seen.request.stream,
        counted: seen.reply.usage.is_some(),
        tools: seen.request.tools.len() as u64,
        system: seen.request.system.iter().map(|s| s.len() as u64).sum(),
        ..ExchangeFacts::default()
    }
}

fn exchange(seen: &Recorded, conversation: &str, leaf: Option<u128>, facts: ExchangeFacts) -> Exchange {
    Exchange {
        flow: seen.flow,
        part: seen.part,
        conversation: conversation.to_owned(),
        started: seen.started,
        leaf,
        agent: seen.agent.name.clone(),
        model: seen.model().to_owned(),
        provider: seen.provider.clone(),
        usage: seen.reply.usage,
        cost: seen.reply.cost,
        facts,
    }
}
