//! Assembly of calls of different agents.

use std::collections::BTreeMap;
use std::convert::Infallible;

use interflow_types::{FlowId, Headers, Timestamp};
use serde_json::{Value, json};

use super::*;
use interflow_llm::message::{ApiFormat, ContentBlock};

fn parsed(seen: &RawCall<'_>, request: Value, reply: &Value) -> ParsedCall {
    let shape = ApiFormat::detect(seen.path, &request).unwrap();
    ParsedCall::parse_as(shape, seen, request, "application/json", reply.to_string().as_bytes())
}

/// A simulated client and model that feed an assembler.
struct World {
    assembler: ConversationAssembler,
    kept: Store,
    now: u64,
    flows: u128,
    log: Vec<(RawCall<'static>, Value, Value)>,
}

/// The results as a store keeps them.
#[derive(Default)]
struct Store {
    conversations: BTreeMap<String, Conversation>,
    nodes: Vec<MessageNode>,
    exchanges: Vec<CallRecord>,
}

impl Store {
    fn keep(&mut self, found: SessionUpdate) {
        self.conversations.extend(found.conversations.into_iter().map(|c| (c.row.id.clone(), c)));
        self.nodes.extend(found.nodes);
        self.exchanges.push(found.exchange);
    }

    fn session(&self, key: &str) -> Vec<StoredConversation> {
        let mut all: Vec<_> = self.conversations.values().filter(|c| c.row.session == key).cloned().collect();
        all.sort_by_key(|c| (c.row.updated, c.row.id.clone()));
        all.drain(..all.len().saturating_sub(ConversationAssembler::MAX_THREADS));
        let nodes = |c: &Conversation| {
            let own = self.nodes.iter().filter(|n| n.conversation == c.row.id);
            own.map(|n| (n.key, n.parent, n.facts.clone())).collect::<Vec<_>>()
        };
        all.into_iter().map(|c| (c.clone(), nodes(&c))).collect()
    }

    fn path(&self, id: &str) -> Vec<&MessageNode> {
        let mut at = self.conversations[id].facts.leaf.map(|k| k.0);
        let mut path = Vec::new();
        while let Some(node) = at.and_then(|k| self.nodes.iter().find(|n| n.conversation == id && n.key == k)) {
            path.push(node);
            at = node.parent.or(node.facts.after.map(|k| k.0));
        }
        path.reverse();
        path
    }

    /// A conversation as text: `u:` and `a:` lines, tool calls and results by id.
    fn words(&self, id: &str) -> Vec<String> {
        let word = |n: &&MessageNode| match &n.body.block {
            Some(ContentBlock::Text { text }) => format!("{}:{text}", if n.facts.prompt { "u" } else { "a" }),
            Some(ContentBlock::ToolUse { name, .. }) => format!("call {name}"),
            Some(ContentBlock::ToolResult { id, .. }) => format!("result {id}"),
            other => format!("{other:?}"),
        };
        self.path(id).iter().map(word).collect()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}]})
}

fn calls(id: &str, name: &str, prompt: &str) -> Value {
    json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": {"prompt": prompt}}]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]})
}

impl World {
    fn new() -> Self {
        Self {
            assembler: ConversationAssembler::default(),
            kept: Store::default(),
            now: 1_000_000,
            flows: 1,
            log: Vec::new(),
        }
    }

    /// Sends a history and records the reply.
    fn ask(&mut self, session: Option<&str>, history: &[Value], answer: Value) -> &CallRecord {
        let body = json!({"model": "claude", "messages": history, "tools": [{"name": "Task"}, {"name": "Bash"}],
            "metadata": {"user_id": session.map(|s| format!("user_1_session_{s}"))}});
        self.send(body, answer)
    }

    fn send(&mut self, body: Value, answer: Value) -> &CallRecord {
        self.send_to("/v1/messages", body, answer)
    }

    fn send_to(&mut self, path: &'static str, body: Value, answer: Value) -> &CallRecord {
        self.now += 1_000_000;
        self.flows += 1;
        let headers: &'static Headers = Box::leak(Box::default());
        let seen = RawCall {
            flow: FlowId::from_u128(self.flows),
            part: 0,
            lane: "",
            started: Timestamp::from_micros(self.now),
            first_byte: Some(10),
            duration: 100,
            host: "api.anthropic.com",
            path,
            provider: "anthropic",
            user: "",
            peer: "127.0.0.1",
            headers,
            status: if answer.get("error").is_some() { 529 } else { 200 },
            fault: None,
        };
        self.log.push((seen.clone(), body.clone(), answer.clone()));
        self.show(&seen, body, &answer);
        self.kept.exchanges.last().unwrap()
    }

    fn show(&mut self, seen: &RawCall<'_>, body: Value, answer: &Value) {
        let answer = match answer.get("error") {
            Some(_) => answer.clone(),
            None => json!({"id": format!("msg_{}", seen.flow), "model": "claude", "content": answer["content"],
                "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 5}}),
        };
        let recorded = parsed(seen, body, &answer);
        let kept = &self.kept;
        let found = self.assembler.add_call(recorded, |key| Ok::<_, Infallible>(kept.session(key))).unwrap();
        self.kept.keep(found);
    }

    fn only(&self) -> &Conversation {
        assert_eq!(self.kept.conversations.len(), 1, "{:#?}", self.kept.conversations);
        self.kept.conversations.values().next().unwrap()
    }

    fn main(&self) -> &Conversation {
        self.kept.conversations.values().find(|c| c.row.parent.is_none()).unwrap()
    }

    /// The same calls with an assembler that evicts everything after each.
    fn with_short_memory(&self) -> Store {
        let mut world = Self::new();
        for (seen, body, answer) in &self.log {
            world.assembler = ConversationAssembler::default();
            world.show(seen, body.clone(), answer);
        }
        world.kept
    }
}

fn assert_same(a: &Store, b: &Store) {
    assert_eq!(a.conversations, b.conversations);
    assert_eq!(a.exchanges, b.exchanges);
    assert_eq!(a.nodes, b.nodes);
}

#[test]
fn growing_history_is_one_conversation_with_each_message_stored_once() {
    let mut w = World::new();
    for session in [Some("s1"), None] {
        let mut w = World::new();
        let mut history = vec![user("fix the bug")];
        for (i, answer) in [calls("t1", "Bash", "ls"), assistant("done")].into_iter().enumerate() {
            w.ask(session, &history, answer.clone());
            history.push(answer);
            history.push(if i == 0 { result("t1", "a.rs") } else { user("and the other?") });
        }
        w.ask(session, &history, assistant("too"));
        let c = w.only();
        assert_eq!((c.row.turns, c.row.title.as_str()), (2, "fix the bug"));
        let words = w.kept.words(&c.row.id);
        assert_eq!(words, ["u:fix the bug", "call Bash", "result t1", "a:done", "u:and the other?", "a:too"]);
        assert_eq!(w.kept.nodes.len(), 6);
        let fresh: Vec<u64> = w.kept.exchanges.iter().map(|e| e.facts.fresh).collect();
        assert_eq!(fresh, [1, 1, 1]);
        assert_same(&w.kept, &w.with_short_memory());
    }
    w.ask(Some("s1"), &[user("a")], assistant("b"));
    w.ask(Some("s2"), &[user("a")], assistant("b"));
    assert_eq!(w.kept.conversations.len(), 2, "sessions are kept apart even when the same is said");
}

#[test]
fn reminders_thoughts_and_cache_marks_do_not_split_a_history() {
    let mut w = World::new();
    let reminded = json!({"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>today is monday</system-reminder>"},
        {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]});
    let answer = json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "gone"}]});
    w.ask(Some("s"), &[reminded], answer);
    w.ask(Some("s"), &[user("go"), assistant("gone\n"), user("back")], assistant("ok"));
    let c = w.only();
    assert_eq!(w.kept.words(&c.row.id), ["u:go", "a:gone", "u:back", "a:ok"]);
    let path = w.kept.path(&c.row.id);
    assert!(matches!(&path[0].body.before[0], ContentBlock::Other { kind, .. } if kind == "context"));
    assert!(matches!(&path[1].body.before[0], ContentBlock::Thinking { text, .. } if text == "hm"));
}

#[test]
fn parallel_sub_agents_are_linked_by_their_calls_and_prompts() {
    for session in [Some("s"), None] {
        let mut w = World::new();
        let both = json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": "ta", "name": "Task", "input": {"prompt": "look at a"}},
            {"type": "tool_use", "id": "tb", "name": "Task", "input": {"prompt": "look at b"}}]});
        let start = vec![user("look at both"), both.clone()];
        w.ask(session, &start[..1], both);
        // The second one starts first, and their calls interleave.
        w.ask(session, &[user("look at b")], assistant("b begun"));
        w.ask(session, &[user("look at a")], assistant("a begun"));
        w.ask(session, &[user("look at b"), assistant("b begun"), user("go on")], assistant("b is fine"));
        w.ask(session, &[user("look at a"), assistant("a begun"), user("go on")], assistant("a is fine"));
        let results = [start, vec![result("ta", "a is fine"), result("tb", "b is fine")]].concat();
        w.ask(session, &results, assistant("both are fine"));
        let main = w.main().row.id.clone();
        let children: Vec<_> = w.kept.conversations.values().filter(|c| c.row.parent.as_ref() == Some(&main)).collect();
        assert_eq!(children.len(), 2, "{session:?}");
        for child in children {
            let letter = if child.facts.link.as_ref().unwrap().call == "ta" { "a" } else { "b" };
            let expected = [
                format!("u:look at {letter}"),
                format!("a:{letter} begun"),
                "u:go on".into(),
                format!("a:{letter} is fine"),
            ];
            assert_eq!(w.kept.words(&child.row.id), expected);
        }
        assert_eq!(w.kept.words(&main).last().unwrap(), "a:both are fine");
        assert_same(&w.kept, &w.with_short_memory());
    }
}

#[test]
fn sub_agents_with_the_same_prompt_are_separate() {
    let mut w = World::new();
    let both = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "ta", "name": "Task", "input": {"prompt": "run the tests"}},
        {"type": "tool_use", "id": "tb", "name": "Task", "input": {"prompt": "run the tests"}}]});
    w.ask(Some("s"), &[user("twice")], both);
    w.ask(Some("s"), &[user("run the tests")], assistant("one"));
    w.ask(Some("s"), &[user("run the tests")], assistant("two"));
    w.ask(Some("s"), &[user("run the tests"), assistant("one"), user("more")], assistant("one more"));
    let mut links: Vec<_> =
        w.kept.conversations.values().filter_map(|c| Some((c.facts.link.clone()?.call, c.row.turns))).collect();
    links.sort();
    assert_eq!(links, [("ta".to_owned(), 2), ("tb".to_owned(), 1)]);
}

#[test]
fn a_sub_agent_belongs_to_the_agent_that_was_active_last_whether_the_session_was_in_memory_or_not() {
    for session in [Some("s"), None] {
        let mut w = World::new();
        let task = |id: &str| calls(id, "Task", "run the tests");
        let (first, second) = (task("t1"), task("t2"));
        w.ask(session, &[user("fix the bug")], first.clone());
        // Asked before the first has its reply: another agent.
        w.now -= 1_000_050;
        w.ask(session, &[user("paint the shed")], second);
        w.now += 2_000_000;
        w.ask(session, &[user("fix the bug"), first], assistant("they run"));
        w.ask(session, &[user("run the tests")], assistant("all pass"));
        let links: Vec<_> = w.kept.conversations.values().filter_map(|c| Some(c.facts.link.clone()?.call)).collect();
        assert_eq!(links, ["t1"], "{session:?}");
        assert_same(&w.kept, &w.with_short_memory());
    }
}

#[test]
fn a_session_with_more_conversations_than_are_kept_is_the_same_from_memory_and_from_the_store() {
    let mut w = World::new();
    for n in 0..ConversationAssembler::MAX_THREADS - 1 {
        w.ask(None, &[user(&format!("question {n}"))], assistant("an answer"));
    }
    w.ask(None, &[user("fix it")], calls("t1", "Task", "run the tests"));
    // The first one goes, and with it the places of the others change.
    w.ask(None, &[user("run the tests")], assistant("all pass"));
    let claimed = |c: &Conversation| c.facts.calls.iter().any(|call| call.claimed);
    assert!(w.kept.conversations.values().any(claimed));
    w.ask(None, &[user("question 0"), assistant("an answer"), user("again")], assistant("another"));
    assert_same(&w.kept, &w.with_short_memory());
}

#[test]
fn the_length_of_a_system_prompt_is_in_characters() {
    let mut w = World::new();
    let body = json!({"model": "claude", "system": "Größe", "messages": [user("go")]});
    assert_eq!(w.send(body, assistant("gone")).facts.system, 5);
}

#[test]
fn concurrent_agents_in_one_session_are_kept_separate() {
    let mut w = World::new();
    w.ask(Some("s"), &[user("paint the shed")], assistant("red?"));
    // The second one asks before the first has its reply: the history was not cleared.
    w.now -= 1_000_050;
    w.ask(Some("s"), &[user("fix the roof")], assistant("tiles?"));
    w.ask(Some("s"), &[user("paint the shed"), assistant("red?"), user("blue")], assistant("done"));
    w.ask(Some("s"), &[user("fix the roof"), assistant("tiles?"), user("slate")], assistant("fixed"));
    let mut words: Vec<String> = w.kept.conversations.keys().map(|id| w.kept.words(id).join(" ")).collect();
    words.sort();
    assert_eq!(words, ["u:fix the roof a:tiles? u:slate a:fixed", "u:paint the shed a:red? u:blue a:done"]);
    assert!(w.kept.conversations.values().all(|c| c.row.parent.is_none()));
    assert_same(&w.kept, &w.with_short_memory());
}

#[test]
fn compaction_clear_edit_and_retry_are_branches() {
    let mut w = World::new();
    let long = "We were asked to fix the parser and have looked at every file of it but the last one, which is next.";
    w.ask(Some("s"), &[user("one")], assistant("first"));
    w.ask(Some("s"), &[user("one")], assistant("first again"));
    w.ask(Some("s"), &[user("one"), assistant("first"), user("two")], assistant(long));
    w.ask(Some("s"), &[user("one"), assistant("first"), user("two, but better")], assistant("edited"));
    w.ask(
        Some("s"),
        &[user(&format!("This session is being continued from a previous conversation. {long}"))],
        assistant("on"),
    );
    w.ask(Some("s"), &[user("something else")], assistant("else"));
    let c = w.only();
    let begins: Vec<BranchReason> = w.kept.nodes.iter().filter_map(|n| n.facts.begins).collect();
    assert_eq!(begins, [BranchReason::Retried, BranchReason::Edited, BranchReason::Compacted, BranchReason::Cleared]);
    let words = w.kept.words(&c.row.id);
    assert_eq!(words[..4], ["u:one", "a:first", "u:two, but better", "a:edited"]);
    assert_eq!(words[5..], ["a:on", "u:something else", "a:else"]);
    assert_eq!(c.row.turns, 4, "turns are counted on over compaction and clearing");
    assert_same(&w.kept, &w.with_short_memory());
}

#[test]
fn shortened_history_continues_its_own_conversation_after_sub_agents() {
    let mut world = World::new();
    let prompt = "Find every caller of the function and list them, one per line, please.";
    let task = calls("t1", "Task", prompt);
    world.ask(Some("s"), &[user("fix it")], task.clone());
    let main = world.kept.exchanges[0].row.conversation.clone();
    let few = json!({"model": "claude", "messages": [user(prompt)], "tools": [{"name": "Read"}, {"name": "Grep"}],
        "metadata": {"user_id": "user_1_session_s"}});
    let sub = world.send(few, assistant("there are none")).row.conversation.clone();
    assert_ne!(sub, main);
    let short = user("This session is being continued from a previous conversation that ran out of context.");
    assert_eq!(world.ask(Some("s"), std::slice::from_ref(&short), assistant("going on")).row.conversation, main);
    let leaf = world.kept.path(&main).into_iter().find(|n| n.facts.begins == Some(BranchReason::Compacted));
    assert!(leaf.is_some_and(|n| n.facts.after.is_some()), "it follows what was said before");
    let counted = json!({"model": "claude", "messages": [user("fix it")], "metadata": {"user_id": "user_1_session_s"}});
    let count = world.send_to("/v1/messages/count_tokens?beta=true", counted, json!({"input_tokens": 12}));
    assert_eq!((count.facts.purpose, count.row.leaf), (CallPurpose::Probe, None), "to count is not to ask");
    assert_eq!(count.row.conversation, main);
}

#[test]
fn programs_that_send_the_same_examples_hold_separate_conversations() {
    let mut w = World::new();
    let shots = [user("2+2"), assistant("4")];
    for question in ["3+3", "4+4", "4+4"] {
        w.ask(None, &[&shots[..], &[user(question)]].concat(), assistant("a number"));
    }
    assert_eq!(w.kept.conversations.len(), 3);
    assert!(w.kept.conversations.values().all(|c| c.row.turns == 2));
}

#[test]
fn identical_conversations_held_twice_are_separate() {
    let mut w = World::new();
    for _ in 0..2 {
        w.ask(None, &[user("go")], assistant("gone"));
        w.ask(None, &[user("go"), assistant("gone"), user("back")], assistant("here"));
    }
    let exchanges: Vec<usize> = w
        .kept
        .conversations
        .keys()
        .map(|id| w.kept.exchanges.iter().filter(|e| e.row.conversation == *id).count())
        .collect();
    assert_eq!(exchanges, [2, 2]);
    assert_same(&w.kept, &w.with_short_memory());
}

#[test]
fn errors_are_recorded_and_a_retried_request_continues() {
    let mut w = World::new();
    let busy = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let failed = w.ask(None, &[user("go")], busy);
    assert_eq!(failed.facts.error.as_deref(), Some("overloaded_error: busy"));
    w.ask(None, &[user("go")], assistant("gone"));
    let c = w.only();
    assert_eq!(w.kept.words(&c.row.id), ["u:go", "a:gone"]);
    assert_eq!(w.kept.nodes.len(), 3, "the error is beside the answer");
}

#[test]
fn auxiliary_calls_are_folded_into_the_conversation() {
    let mut w = World::new();
    let session = json!({"user_id": "user_1_session_s"});
    w.send(
        json!({"model": "haiku", "max_tokens": 1, "messages": [user("quota")], "metadata": session}),
        assistant("#"),
    );
    w.ask(Some("s"), &[user("fix the bug")], assistant("done"));
    let title = json!({"model": "haiku", "system": "Analyze if this message indicates a new conversation topic. isNewTopic",
        "messages": [user("fix the bug")], "metadata": session});
    w.send(title, assistant("{\"isNewTopic\": true, \"title\": \"Bug fix\"}"));
    let c = w.only();
    assert_eq!((c.row.title.as_str(), c.row.turns), ("Bug fix", 1));
    let purposes: Vec<CallPurpose> = w.kept.exchanges.iter().map(|e| e.facts.purpose).collect();
    assert_eq!(purposes, [CallPurpose::Probe, CallPurpose::Step, CallPurpose::Title]);
    assert_eq!(w.kept.words(&c.row.id), ["u:fix the bug", "a:done"]);
}

#[test]
fn previous_response_id_continues_a_conversation_without_history() {
    let mut w = World::new();
    let headers: &'static Headers = Box::leak(Box::default());
    for (n, (text, previous)) in
        [("one", Value::Null), ("two", json!("r1")), ("three", json!("r2"))].into_iter().enumerate()
    {
        let flow = FlowId::from_u128(n as u128 + 1);
        let seen = RawCall {
            flow,
            part: 0,
            lane: "",
            started: Timestamp::from_micros(n as u64 * 1000),
            first_byte: None,
            duration: 5,
            host: "api.openai.com",
            path: "/v1/responses",
            provider: "openai",
            user: "",
            peer: "127.0.0.1",
            headers,
            status: 200,
            fault: None,
        };
        let body = json!({"model": "gpt", "input": text, "previous_response_id": previous});
        let answer = json!({"id": format!("r{}", n + 1), "status": "completed", "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": format!("re {text}")}]}]});
        let recorded = parsed(&seen, body, &answer);
        w.kept.keep(w.assembler.add_call(recorded, |_| Ok::<_, Infallible>(Vec::new())).unwrap());
    }
    let c = w.only();
    assert_eq!(w.kept.words(&c.row.id), ["u:one", "a:re one", "u:two", "a:re two", "u:three", "a:re three"]);
}

#[test]
fn clock_jumping_back_keeps_the_conversation_intact() {
    let mut w = World::new();
    w.ask(Some("s"), &[user("a")], assistant("b"));
    w.now = 5;
    w.ask(Some("s"), &[user("a"), assistant("b"), user("c")], assistant("d"));
    let c = w.only();
    assert!(c.row.started <= c.row.updated);
    assert_eq!(w.kept.words(&c.row.id), ["u:a", "a:b", "u:c", "a:d"]);
}

#[test]
fn a_session_that_begins_with_an_auxiliary_call_shows_its_conversation() {
    let session = json!({"user_id": "user_1_session_s"});
    // A title in a language that no phrase is known of.
    let title = json!({"model": "haiku", "system": "Gib der Sitzung einen Namen.", "messages": [user("Auftrag: fix the bug")],
        "metadata": session});
    let mut w = World::new();
    w.send(title.clone(), assistant("Fehlersuche"));
    let first = w.kept.exchanges[0].row.conversation.clone();
    let mut history = vec![user("fix the bug"), user("now")];
    for n in 0..3 {
        let answer = assistant(&format!("step {n}"));
        w.ask(Some("s"), &history, answer.clone());
        history.extend([answer, user("go on")]);
    }
    let main = w.main().clone();
    assert_eq!((w.kept.conversations.len(), main.row.turns), (2, 3));
    assert_eq!(w.kept.conversations[&first].row.parent.as_deref(), Some(&*main.row.id));
    assert_eq!(w.kept.words(&main.row.id).last().unwrap(), "a:step 2");
    // A known auxiliary call, and a history that was cleared, belong to the conversation.
    let quota = json!({"model": "haiku", "max_tokens": 1, "messages": [user("quota")], "metadata": session});
    assert_eq!(w.send(quota, assistant("#")).row.conversation, main.row.id);
    assert_eq!(w.ask(Some("s"), &[user("something else")], assistant("else")).row.conversation, main.row.id);
    // The same title again changes nothing.
    w.send(title, assistant("Fehlersuche"));
    assert_eq!(w.main().row.id, main.row.id);
    assert_same(&w.kept, &w.with_short_memory());
}

#[test]
fn a_conversation_without_tools_that_goes_on_is_no_auxiliary_call() {
    let mut w = World::new();
    let ask = |history: &[Value]| json!({"model": "claude", "messages": history, "metadata": {"user_id": "user_1_session_s"}});
    w.send(ask(&[user("tell me a story")]), assistant("once"));
    let story = w.kept.exchanges[0].row.conversation.clone();
    let work = w.ask(Some("s"), &[user("fix the bug")], assistant("done")).row.conversation.clone();
    w.send(ask(&[user("tell me a story"), assistant("once"), user("and then?")]), assistant("the end"));
    let parents = [&story, &work].map(|id| w.kept.conversations[id].row.parent.clone());
    assert_eq!(parents, [None, None]);
    assert_eq!(w.kept.words(&story).last().unwrap(), "a:the end");
    assert_same(&w.kept, &w.with_short_memory());
}
