//! How well a conversation used its provider's prompt cache: where the cached beginning of the prompt broke, why, and
//! what that cost.

use std::collections::HashMap;
use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::records::CallRecord;
use interflow_llm::message::{ChatMessage, ContentBlock, ModelRequest};
use interflow_types::CallUsage;

/// Providers cache no prompt with fewer tokens than this.
pub const MIN_CACHED_TOKENS: u64 = 1024;
/// How long providers keep a prompt that nobody asks for again, in microseconds: five minutes.
const CACHE_TTL_MICROS: u64 = 300_000_000;
/// Characters of a text before a change, and after it, that are shown.
const CONTEXT_CHARS: usize = 40;
const EXCERPT_CHARS: usize = 80;

/// The prompt cache of a conversation. Side calls do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PromptCacheReport {
    /// Calls whose tokens the provider counted.
    pub calls: u64,
    pub input_tokens: u64,
    /// The part of them that came from the cache.
    pub cached_tokens: u64,
    /// The part of them that was written to the cache; not every provider says so.
    pub written_tokens: u64,
    /// Tokens that were paid in full although the cache had held them, all breaks together.
    pub lost_tokens: u64,
    /// What they cost more than from the cache, in US dollars, where the price is known.
    pub lost_cost: f64,
    /// The calls at which the cache broke, in order; at most 200.
    pub breaks: Vec<CacheBreak>,
    /// What to change, the most expensive first.
    pub advice: Vec<CacheAdvice>,
}

/// A call that found less in the cache than the one before had left there.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CacheBreak {
    pub flow: String,
    /// For a WebSocket, the number of the message that started the call; else 0.
    pub part: u64,
    pub turn: u64,
    /// In microseconds since the Unix epoch.
    pub started: u64,
    pub lost_tokens: u64,
    /// In US dollars; `None` if the price is unknown.
    pub lost_cost: Option<f64>,
    #[serde(flatten)]
    pub reason: BreakReason,
}

/// Why the cached beginning of a prompt ended earlier than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BreakReason {
    pub cause: BreakCause,
    /// What it was, in a sentence.
    pub detail: String,
    /// The text around the first difference, in the request before and in this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<ExcerptChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExcerptChange {
    pub before: String,
    pub after: String,
}

/// In the order of the prompt: the first difference ends the cached beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakCause {
    Model,
    Tools,
    ToolOrder,
    /// A date, a time or a random id in the system prompt.
    VolatileSystem,
    System,
    History,
    /// Nothing changed, but the pause was longer than providers keep a prompt.
    Expired,
    /// Nothing changed and no time passed.
    Evicted,
    /// The request marks no part of the prompt, without which the provider caches nothing.
    Unmarked,
    /// One of the two requests was not fully recorded.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CacheAdvice {
    pub cause: BreakCause,
    pub breaks: u64,
    pub lost_tokens: u64,
    /// In US dollars, where the price is known.
    pub lost_cost: f64,
    /// What to change, in a sentence.
    pub text: &'static str,
}

/// What to change, by cause.
static ADVICE: LazyLock<HashMap<BreakCause, String>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/cache_advice.json")).expect("a test reads the file")
});

/// A pair of calls between which the cache broke.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BrokenPair {
    /// Indices into the calls.
    pub before: usize,
    pub after: usize,
    pub lost: u64,
    pub is_unmarked: bool,
}

/// Finds the calls at which the cache broke, by their usage alone.
pub fn broken_pairs(calls: &[CallRecord]) -> Vec<BrokenPair> {
    let mut pairs = Vec::new();
    let mut before: Option<(usize, CallUsage)> = None;
    for (after, call) in calls.iter().enumerate() {
        let Some(usage) = call.usage.filter(|_| !call.facts.purpose.is_side_call() && call.facts.error.is_none())
        else {
            continue;
        };
        if let Some((index, earlier)) = before {
            let needs_marks = matches!(call.row.provider.as_str(), "anthropic" | "bedrock");
            // What the call before left in the cache. Caches that fill themselves hold all of its prompt.
            let filled = earlier.cache_read.saturating_add(earlier.cache_write);
            let warm = if needs_marks || earlier.cache_write > 0 { filled } else { earlier.input };
            let warm = warm.min(usage.input);
            let is_unmarked = needs_marks && filled == 0 && (usage.cache_read, usage.cache_write) == (0, 0);
            let expected = if is_unmarked { earlier.input.min(usage.input) } else { warm };
            // An eighth less is within the granularity of caches.
            if expected >= MIN_CACHED_TOKENS && usage.cache_read < expected - expected / 8 {
                let lost = expected - usage.cache_read;
                pairs.push(BrokenPair { before: index, after, lost, is_unmarked });
            }
        }
        before = Some((after, usage));
    }
    pairs
}

/// The usage if the lost tokens had come from the cache.
pub fn usage_without_break(usage: &CallUsage, lost: u64) -> CallUsage {
    CallUsage {
        cache_read: usage.cache_read.saturating_add(lost).min(usage.input),
        cache_write: usage.cache_write.saturating_sub(lost),
        ..*usage
    }
}

/// Why the beginning of a prompt is not that of the request before; `pause` in microseconds.
pub fn break_reason(before: &ModelRequest, after: &ModelRequest, pause: u64) -> BreakReason {
    if before.model != after.model {
        let detail = format!("the model changed from {} to {}", before.model, after.model);
        return BreakReason { cause: BreakCause::Model, detail, change: None };
    }
    tool_reason(before, after)
        .or_else(|| system_reason(&before.system.join("\n\n"), &after.system.join("\n\n")))
        .or_else(|| history_reason(&before.messages, &after.messages))
        .unwrap_or_else(|| unchanged_reason(pause))
}

fn unchanged_reason(pause: u64) -> BreakReason {
    let minutes = pause / 60_000_000;
    let (cause, detail) = match pause > CACHE_TTL_MICROS {
        true => (BreakCause::Expired, format!("nothing changed, but {minutes} minutes passed since the call before")),
        false => (BreakCause::Evicted, "nothing changed at the beginning of the prompt".to_owned()),
    };
    BreakReason { cause, detail, change: None }
}

fn tool_reason(before: &ModelRequest, after: &ModelRequest) -> Option<BreakReason> {
    let (old, new) = (tool_names(before), tool_names(after));
    let (added, removed) = (missing(&new, &old), missing(&old, &new));
    let reason = |cause, detail: String, change| Some(BreakReason { cause, detail, change });
    if !removed.is_empty() || !added.is_empty() {
        let part = |what: &str, names: Vec<&str>| {
            let quoted: Vec<String> = names.iter().take(4).map(|name| format!("`{name}`")).collect();
            (!quoted.is_empty()).then(|| format!("{what} {}", quoted.join(", ")))
        };
        let parts: Vec<String> = [part("added", added), part("removed", removed)].into_iter().flatten().collect();
        return reason(BreakCause::Tools, format!("tools were {}", parts.join("; ")), None);
    }
    if old != new {
        let first = old.iter().zip(&new).find(|(a, b)| a != b).map_or("", |(_, b)| b);
        return reason(BreakCause::ToolOrder, format!("the tools are in another order, from `{first}` on"), None);
    }
    let plain = |r: &ModelRequest, name: &str| definition(r, name).unwrap_or_default().to_string();
    let changed = new.iter().find(|name| plain(before, name) != plain(after, name))?;
    let (a, b) = (plain(before, changed), plain(after, changed));
    reason(BreakCause::Tools, format!("the definition of the tool `{changed}` changed"), excerpt(&a, &b).map(|e| e.1))
}

pub(super) fn tool_names(request: &ModelRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// The names of the one list that the other one does not have.
pub(super) fn missing<'n>(of: &[&'n str], from: &[&str]) -> Vec<&'n str> {
    of.iter().filter(|name| !from.contains(name)).copied().collect()
}

/// A tool's definition without its cache mark.
pub(super) fn definition(request: &ModelRequest, name: &str) -> Option<Value> {
    let mut plain = request.tools.iter().find(|tool| tool.name == name)?.definition.clone();
    if let Value::Object(map) = &mut plain {
        map.shift_remove("cache_control");
    }
    Some(plain)
}

fn system_reason(before: &str, after: &str) -> Option<BreakReason> {
    let (at, change) = excerpt(before, after)?;
    let is_volatile = is_volatile(&change.before) && is_volatile(&change.after);
    let cause = if is_volatile { BreakCause::VolatileSystem } else { BreakCause::System };
    let what = if is_volatile { "a date, time or id in the system prompt" } else { "the system prompt" };
    let detail = format!("{what} changed, at character {at} of {}", after.chars().count());
    Some(BreakReason { cause, detail, change: Some(change) })
}

fn history_reason(before: &[ChatMessage], after: &[ChatMessage]) -> Option<BreakReason> {
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    // A message that is only missing at the end changes nothing before it.
    let old = before.get(same)?;
    let text = |m: &ChatMessage| m.blocks.iter().map(block_text).collect::<Vec<_>>().join("\n");
    let change = after.get(same).and_then(|new| excerpt(&text(old), &text(new))).map(|e| e.1);
    let repeated = after.len().saturating_sub(same);
    let detail =
        format!("the history changed from message {} of {} on ({repeated} were sent again)", same + 1, before.len());
    Some(BreakReason { cause: BreakCause::History, detail, change })
}

fn block_text(block: &ContentBlock) -> String {
    block.as_text().map_or_else(|| serde_json::to_string(block).unwrap_or_default(), str::to_owned)
}

fn excerpt(before: &str, after: &str) -> Option<(usize, ExcerptChange)> {
    first_change(before, after, CONTEXT_CHARS, EXCERPT_CHARS)
}

/// The character at which two texts begin to differ, as people count them, and that many characters before it and after it;
/// `None` if they are equal.
pub(super) fn first_change(before: &str, after: &str, context: usize, most: usize) -> Option<(usize, ExcerptChange)> {
    if before == after {
        return None;
    }
    let at = before.chars().zip(after.chars()).take_while(|(a, b)| a == b).count();
    let start = at.saturating_sub(context);
    let around = |text: &str| text.chars().skip(start).take(at - start + most).collect();
    Some((at, ExcerptChange { before: around(before), after: around(after) }))
}

/// Whether a short text has a date, a time of day, or a long number or hexadecimal id, which differ in each request.
fn is_volatile(excerpt: &str) -> bool {
    // The changed line decides, which is somewhere after the context.
    let words = excerpt.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '/' | '.')));
    words.into_iter().any(|word| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let separators = |byte: u8| word.bytes().filter(|b| *b == byte).count();
        let is_date = (separators(b'-') >= 2 || separators(b'/') == 2) && digits >= 6;
        let is_time = separators(b':') >= 1
            && digits >= 3
            && word.bytes().all(|b| !b.is_ascii_alphabetic() || b"TZ".contains(&b));
        let is_number = digits >= 10 && digits == word.len();
        let is_id = word.len() >= 16 && digits >= 4 && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        is_date || is_time || is_number || is_id
    })
}

/// The sums by cause, the most expensive first.
pub fn advice(breaks: &[CacheBreak]) -> Vec<CacheAdvice> {
    let mut all: Vec<CacheAdvice> = Vec::new();
    for found in breaks {
        let cause = found.reason.cause;
        let at = all.iter().position(|a| a.cause == cause).unwrap_or_else(|| {
            all.push(CacheAdvice { cause, breaks: 0, lost_tokens: 0, lost_cost: 0.0, text: &ADVICE[&cause] });
            all.len() - 1
        });
        let entry = &mut all[at];
        entry.breaks += 1;
        entry.lost_tokens = entry.lost_tokens.saturating_add(found.lost_tokens);
        entry.lost_cost += found.lost_cost.unwrap_or_default();
    }
    all.sort_by(|a, b| b.lost_cost.total_cmp(&a.lost_cost).then(b.lost_tokens.cmp(&a.lost_tokens)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_llm::message::{MessageRole, ToolDefinition};
    use interflow_store::{ExchangeRow, TokenUsage};
    use interflow_types::{FlowId, Timestamp};
    use serde_json::json;

    fn request(system: &str, tools: &[&str], said: &[&str]) -> ModelRequest {
        let tool = |n: &&str| ToolDefinition {
            name: (*n).into(),
            description: String::new(),
            definition: json!({"name": n, "cache_control": {"type": "ephemeral"}}),
        };
        ModelRequest {
            model: "m".into(),
            system: vec![system.into()],
            tools: tools.iter().map(tool).collect(),
            messages: said.iter().map(|t| ChatMessage::text(MessageRole::User, *t)).collect(),
            ..ModelRequest::default()
        }
    }

    #[test]
    fn every_cause_has_advice() {
        assert_eq!(ADVICE.len(), BreakCause::Unknown as usize + 1);
    }

    #[test]
    fn the_first_difference_in_the_order_of_the_prompt_is_the_reason() {
        let base = request("Be brief.\nNow: 2026-11-23 10:00:01", &["a", "b"], &["x", "y"]);
        let system = &base.system[0];
        for (after, pause, cause, says) in [
            (
                request(&system.replace(":01", ":07"), &["a", "b"], &["x", "y", "z"]),
                1,
                BreakCause::VolatileSystem,
                "a date",
            ),
            (request("Be long.", &["a", "b"], &["x", "y"]), 1, BreakCause::System, "at character 3"),
            (request("Be long.", &["b", "a"], &["x", "y"]), 1, BreakCause::ToolOrder, "from `b` on"),
            (request(system, &["a", "c"], &["x", "y"]), 1, BreakCause::Tools, "added `c`; removed `b`"),
            (request(system, &["a", "b"], &["x", "changed", "z"]), 1, BreakCause::History, "message 2 of 2"),
            (request(system, &["a", "b"], &["x", "y", "z"]), 660_000_000, BreakCause::Expired, "11 minutes"),
            (request(system, &["a", "b"], &["x", "y", "z"]), 1, BreakCause::Evicted, "nothing changed"),
        ] {
            let reason = break_reason(&base, &after, pause);
            assert_eq!(reason.cause, cause, "{reason:?}");
            assert!(reason.detail.contains(says), "{says}: {reason:?}");
        }
        let other = ModelRequest { model: "n".into(), ..base.clone() };
        assert_eq!(break_reason(&base, &other, 1).cause, BreakCause::Model);
        let mut marked = base.clone();
        marked.tools[1].definition = json!({"name": "b"});
        assert_eq!(break_reason(&base, &marked, 1).cause, BreakCause::Evicted, "a mark is no change");
        marked.tools[1].definition = json!({"name": "b", "description": "new"});
        assert_eq!(break_reason(&base, &marked, 1).cause, BreakCause::Tools);
    }

    #[test]
    fn dates_times_and_ids_are_told_from_words() {
        for text in ["Today is 2026-11-23", "at 10:03", "23/11/2026", "ts=1795467030058", "id 3f2a9c0d1e4b5a67"] {
            assert!(is_volatile(text), "{text}");
        }
        for text in ["You are a helpful assistant: be brief", "version 4.5", "well-known and-so-on", "std::vec::Vec"] {
            assert!(!is_volatile(text), "{text}");
        }
    }

    fn call(provider: &str, usage: (u64, u64, u64)) -> CallRecord {
        let (input, cache_read, cache_write) = usage;
        CallRecord {
            row: ExchangeRow {
                flow: FlowId::from_u128(1),
                part: 0,
                conversation: String::new(),
                started: Timestamp::default(),
                leaf: None,
                agent: String::new(),
                model: "m".into(),
                provider: provider.into(),
                used: TokenUsage::default(),
                failed: false,
                facts: String::new(),
            },
            usage: Some(CallUsage { input, cache_read, cache_write, ..CallUsage::default() }),
            cost: None,
            facts: super::super::records::CallFacts::default(),
        }
    }

    #[test]
    fn breaks_are_found_by_what_the_call_before_left_in_the_cache() {
        let lost = |calls: &[CallRecord]| broken_pairs(calls).iter().map(|b| (b.after, b.lost)).collect::<Vec<_>>();
        // Anthropic reports what it writes.
        let calls = [(9_000, 0, 8_000), (10_000, 8_000, 1_000), (11_000, 0, 10_000), (12_000, 9_900, 900)];
        assert_eq!(lost(&calls.map(|u| call("anthropic", u))), [(2, 9_000)]);
        // OpenAI's cache fills itself: what is not read was lost.
        let calls = [(5_000, 0, 0), (6_000, 4_864, 0), (7_000, 0, 0)];
        assert_eq!(lost(&calls.map(|u| call("openai", u))), [(2, 6_000)]);
        // Without marks Anthropic caches nothing.
        let pairs = broken_pairs(&[(5_000, 0, 0), (6_000, 0, 0)].map(|u| call("anthropic", u)));
        assert_eq!((pairs.len(), pairs[0].lost, pairs[0].is_unmarked), (1, 5_000, true));
        // Short prompts are not cached, and a shorter one cannot read more than it has.
        assert_eq!(lost(&[(900, 0, 0), (950, 0, 0)].map(|u| call("openai", u))), []);
        assert_eq!(lost(&[(50_000, 0, 0), (2_000, 0, 0)].map(|u| call("openai", u))), [(1, 2_000)]);
    }
}
