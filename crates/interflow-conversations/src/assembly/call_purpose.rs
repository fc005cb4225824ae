//! Classifies the purpose of a call: a step of the conversation, or an auxiliary call of the agent.

use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use memchr::memmem;
use serde::{Deserialize, Serialize};

use interflow_llm::message::{ContentBlock, MessageRole, ModelRequest, joined};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallPurpose {
    #[default]
    Step,
    /// Compaction of the history.
    Compact,
    /// Generation of a title.
    Title,
    /// A check of quota or connectivity.
    Probe,
    /// A small auxiliary task: a command's prefix, a path in an output, a score.
    Utility,
}

impl CallPurpose {
    /// Whether it is an auxiliary call rather than part of the conversation.
    pub const fn is_side_call(self) -> bool {
        matches!(self, Self::Title | Self::Probe | Self::Utility)
    }
}

/// Phrases by which auxiliary calls are recognised.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallMarkers {
    /// In the system prompt of title calls.
    title_system: Vec<String>,
    /// In the system prompt or the last message of title calls.
    title: Vec<String>,
    /// In the prompts of other auxiliary calls: file paths in commands, routing, suggestions.
    utility: Vec<String>,
    /// In the prompts with which agents compact a history.
    compaction: Vec<String>,
}

static MARKERS: LazyLock<CallMarkers> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/call_markers.json")).expect("a test reads the file")
});

/// The longest needle for which `memmem` needs no preparation.
const NEEDLE: usize = 32;
/// Places that begin like the phrase and are compared with it, before the whole phrase is searched: what precedes the
/// phrase may repeat its beginning any number of times.
const MAX_COMPARED: usize = 64;

/// As `str::contains`, with vector instructions: prompts are long, and most are searched for every phrase in vain. The
/// preparation for a phrase of some hundred bytes takes longer than the search of such a prompt, so its beginning is
/// searched first.
pub(super) fn has_phrase(text: &str, phrase: &str) -> bool {
    let (mut text, phrase) = (text.as_bytes(), phrase.as_bytes());
    let head = memmem::Finder::new(phrase.get(..NEEDLE).unwrap_or(phrase));
    for _ in 0..MAX_COMPARED {
        let Some(rest) = head.find(text).and_then(|at| text.get(at..)) else { return false };
        if rest.starts_with(phrase) {
            return true;
        }
        text = rest.get(1..).unwrap_or_default();
    }
    memmem::find(text, phrase).is_some()
}

/// Classifies a request by its prompt and limits, since no API marks auxiliary calls.
pub fn detect_purpose(request: &ModelRequest) -> CallPurpose {
    let last = request.messages.iter().rev().find(|m| m.role == MessageRole::User);
    let last = last.map(|m| joined(&m.blocks)).unwrap_or_default();
    let says = |words: &[String], text: &str| words.iter().any(|w| has_phrase(text, w));
    // A long system prompt may quote such phrases; those of auxiliary calls are short.
    let system = |words: &[String]| request.system.iter().any(|s| s.len() < 20_000 && says(words, s));
    // Checked first: compaction happens in a history with tools as well.
    if says(&MARKERS.compaction, &last) || system(&MARKERS.compaction) {
        return CallPurpose::Compact;
    }
    if request.max_tokens == Some(1) || last.trim() == "quota" && request.messages.len() == 1 {
        return CallPurpose::Probe;
    }
    // A request with tools, or with tool calls in its history, belongs to the task itself.
    let works = |b: &ContentBlock| matches!(b, ContentBlock::ToolUse { .. } | ContentBlock::ToolResult { .. });
    if request.tools.len() > 1 || request.messages.iter().any(|m| m.blocks.iter().any(works)) {
        return CallPurpose::Step;
    }
    let is_short = last.len() < 4000 && request.messages.len() <= 2;
    if system(&MARKERS.title_system) || system(&MARKERS.title) || is_short && says(&MARKERS.title, &last) {
        return CallPurpose::Title;
    }
    let utility = system(&MARKERS.utility) || says(&MARKERS.utility, &last);
    if utility { CallPurpose::Utility } else { CallPurpose::Step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_llm::message::{ChatMessage, ToolDefinition};

    #[test]
    fn a_phrase_is_found_wherever_it_stands_and_whatever_precedes_it() {
        let long = "ab".repeat(20) + "c" + &"the last words ".repeat(20);
        for phrase in ["", "x", "words", &"ab".repeat(16), &"ab".repeat(17), &long] {
            for before in ["", "x", "ab", &"ab".repeat(100), &"ab".repeat(3000), &"ä".repeat(40)] {
                for text in [[before, phrase].concat(), [before, phrase, "ab"].concat(), before.to_owned()] {
                    assert_eq!(has_phrase(&text, phrase), text.contains(phrase), "{phrase:?} in {text:?}");
                }
                let mut cut = [before, phrase].concat();
                cut.pop();
                assert_eq!(has_phrase(&cut, phrase), cut.contains(phrase), "{phrase:?} in {cut:?}");
            }
        }
    }

    #[test]
    fn auxiliary_calls_are_distinguished_from_conversation_steps() {
        let tool = |n: &str| ToolDefinition {
            name: n.into(),
            description: String::new(),
            definition: serde_json::Value::Null,
        };
        for (system, said, tools, max, expected) in [
            ("You are Claude Code", "fix the bug", vec![tool("Bash"), tool("Read")], 32000, CallPurpose::Step),
            ("You are Claude Code", "quota", vec![], 1, CallPurpose::Probe),
            (
                "Analyze if this message indicates a new conversation topic. isNewTopic",
                "fix",
                vec![],
                512,
                CallPurpose::Title,
            ),
            ("You are a title generator. You output ONLY a thread title.", "fix", vec![], 512, CallPurpose::Title),
            ("Extract any file paths that this command reads", "ls", vec![], 512, CallPurpose::Utility),
            (
                "s",
                "Your task is to create a detailed summary of the conversation so far, …",
                vec![tool("a"), tool("b")],
                9,
                CallPurpose::Compact,
            ),
            ("", "write a poem", vec![], 512, CallPurpose::Step),
            ("", "generate a title page in LaTeX", vec![tool("a"), tool("b")], 512, CallPurpose::Step),
        ] {
            let request = ModelRequest {
                system: vec![system.into()],
                messages: vec![ChatMessage::text(MessageRole::User, said)],
                tools,
                max_tokens: Some(max),
                ..ModelRequest::default()
            };
            assert_eq!(detect_purpose(&request), expected, "{system} | {said}");
        }
    }
}
