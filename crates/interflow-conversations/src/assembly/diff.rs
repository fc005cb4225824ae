//! Differences between two adjacent requests of a conversation, and why the prompt cache was less effective than
//! possible.

use interflow_types::schema::JsonSchema;
use serde::Serialize;

use super::cache_report::{
    BreakCause, BreakReason, ExcerptChange, break_reason, definition, first_change, missing, tool_names,
};
use interflow_llm::message::{ChatMessage, ContentBlock, MessageRole, ModelRequest};
use interflow_types::CallUsage;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RequestDiff {
    /// The model changed: before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<TextChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_added: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_removed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_changed: Vec<String>,
    /// The same tools in another order.
    pub tools_reordered: bool,
    /// Number of equal messages at the beginning.
    pub same: usize,
    /// Messages of the first request after those.
    pub removed: Vec<ChangedMessage>,
    /// Messages of the second request after those.
    pub added: Vec<ChangedMessage>,
    /// A sentence that explains the cache hit or miss.
    pub cache: String,
}

/// Where two texts begin to differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TextChange {
    /// Length of the common prefix in characters.
    pub at: usize,
    pub before: String,
    pub after: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChangedMessage {
    /// Its index in the history, from 0: for removed messages in the old one, for added ones in the new one.
    pub index: usize,
    pub role: MessageRole,
    pub blocks: Vec<ContentBlock>,
}

/// What is known of the two calls besides their requests: the token usage of each.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiffContext {
    pub before: Option<CallUsage>,
    pub after: Option<CallUsage>,
    /// Microseconds from the end of the first to the start of the second.
    pub pause: u64,
}

const MAX_EXCERPT_CHARS: usize = 160;

pub fn diff_requests(before: &ModelRequest, after: &ModelRequest, around: &DiffContext) -> RequestDiff {
    let (mut old, mut new) = (tool_names(before), tool_names(after));
    let changed = |n: &&&str| definition(before, n).is_some_and(|d| definition(after, n).is_some_and(|a| a != d));
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    // Cache marks do not count: the canonical blocks do not include them.
    let same = before.messages.iter().zip(&after.messages).take_while(|(a, b)| a == b).count();
    let changed_messages = |messages: &[ChatMessage]| -> Vec<ChangedMessage> {
        let behind = messages.iter().enumerate().skip(same);
        behind.map(|(index, m)| ChangedMessage { index, role: m.role, blocks: m.blocks.clone() }).collect()
    };
    let system = first_change(&before.system.join("\n\n"), &after.system.join("\n\n"), 0, MAX_EXCERPT_CHARS);
    let mut changes = RequestDiff {
        model: (before.model != after.model).then(|| (before.model.clone(), after.model.clone())),
        system: system.map(|(at, ExcerptChange { before, after })| TextChange { at, before, after }),
        tools_added: owned(missing(&new, &old)),
        tools_removed: owned(missing(&old, &new)),
        tools_changed: owned(new.iter().filter(changed).copied().collect()),
        tools_reordered: old != new,
        same,
        removed: changed_messages(&before.messages),
        added: changed_messages(&after.messages),
        cache: String::new(),
    };
    old.sort_unstable();
    new.sort_unstable();
    changes.tools_reordered &= old == new;
    changes.cache = cache_explanation(break_reason(before, after, around.pause), around);
    changes
}

fn cache_explanation(reason: BreakReason, around: &DiffContext) -> String {
    let Some(now) = around.after else { return "the provider did not count tokens".into() };
    let share = |n: u64| n.saturating_mul(100).checked_div(now.input).unwrap_or(0);
    let read = format!("{} of {} tokens ({} %) came from the cache", now.cache_read, now.input, share(now.cache_read));
    // What the previous request left in the cache: all that it read and wrote.
    let warm = around.before.map_or(0, |b| b.cache_read.saturating_add(b.cache_write));
    let why = match reason.cause {
        BreakCause::Expired | BreakCause::Evicted if now.cache_read == 0 && warm == 0 => {
            "the request before put nothing there (its prompt is too short, or no part of it is marked)"
        }
        BreakCause::Expired if now.cache_read < warm => &reason.detail,
        // An eighth less is within the granularity of caches.
        BreakCause::Evicted if now.cache_read + warm / 8 < warm => {
            "nothing changed at the beginning, so the provider has forgotten it or sent the request elsewhere"
        }
        BreakCause::Expired | BreakCause::Evicted => "nothing changed but what was added at the end",
        _ => &reason.detail,
    };
    format!("{read}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_llm::message::ToolDefinition;
    use serde_json::Value;

    fn request(system: &str, tools: &[&str], said: &[&str]) -> ModelRequest {
        let tool =
            |n: &&str| ToolDefinition { name: (*n).into(), description: String::new(), definition: Value::from(*n) };
        ModelRequest {
            model: "m".into(),
            system: vec![system.into()],
            tools: tools.iter().map(tool).collect(),
            messages: said.iter().map(|t| ChatMessage::text(MessageRole::User, *t)).collect(),
            ..ModelRequest::default()
        }
    }

    #[test]
    fn first_change_explains_the_cache_miss() {
        let usage = |read, write| {
            Some(CallUsage { input: 10_000, cache_read: read, cache_write: write, ..CallUsage::default() })
        };
        let full = DiffContext { before: usage(8000, 1000), after: usage(0, 9000), pause: 1 };
        let base = request("day 1", &["a", "b"], &["x", "y"]);
        for (next, around, says) in [
            (
                request("day 1", &["a", "b"], &["x", "y", "z"]),
                DiffContext { after: usage(9000, 100), ..full },
                "nothing changed but",
            ),
            (request("day 1", &["a", "b"], &["x", "y", "z"]), full, "forgotten"),
            (request("day 1", &["a", "b"], &["x", "y", "z"]), DiffContext { pause: 600_000_000, ..full }, "10 minutes"),
            (request("day 2", &["a", "b"], &["x", "y"]), full, "system prompt changed, at character 4"),
            (request("day 1", &["b", "a"], &["x", "y"]), full, "another order"),
            (request("day 2", &["a", "b", "c"], &["x", "y"]), full, "tools were added `c`"),
            (request("day 1", &["a", "b"], &["x", "Y"]), full, "from message 2 of 2 on"),
            (ModelRequest { model: "n".into(), ..base.clone() }, full, "the model changed from m to n"),
        ] {
            let changes = diff_requests(&base, &next, &around);
            assert!(changes.cache.contains(says), "{says}: {}", changes.cache);
        }
    }

    #[test]
    fn diff_contains_only_the_differences() {
        let changes = diff_requests(
            &request("s", &["a"], &["x", "y"]),
            &request("s", &["a"], &["x", "z", "w"]),
            &DiffContext::default(),
        );
        assert_eq!((changes.same, changes.removed.len(), changes.added.len()), (1, 1, 2));
        assert_eq!(changes.added[0].blocks, [ContentBlock::text("z")]);
    }
}
