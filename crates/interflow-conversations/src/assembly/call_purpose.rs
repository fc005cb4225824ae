//! Classifies the purpose of a call: a step of the conversation, or an auxiliary call of the agent.

use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

use super::searched_text::SearchedText;
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

/// Classifies a request by its prompt and limits, since no API marks auxiliary calls.
pub fn detect_purpose(request: &ModelRequest) -> CallPurpose {
    let last = request.messages.iter().rev().find(|m| m.role == MessageRole::User);
    let last = last.map(|m| joined(&m.blocks)).unwrap_or_default();
    let prompt = SearchedText::new(&last);
    // A long system prompt may quote such phrases; those of auxiliary calls are short.
    let short = request.system.iter().filter(|s| s.len() < 20_000);
    let systems: Vec<SearchedText<'_>> = short.map(|s| SearchedText::new(s)).collect();
    let says = |words: &[String], text: &SearchedText<'_>| words.iter().any(|w| text.contains(w));
    let system = |words: &[String]| systems.iter().any(|s| says(words, s));
    // Checked first: compaction happens in a history with tools as well.
    if says(&MARKERS.compaction, &prompt) || system(&MARKERS.compaction) {
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
    if system(&MARKERS.title_system) || system(&MARKERS.title) || is_short && says(&MARKERS.title, &prompt) {
        return CallPurpose::Title;
    }
    let utility = system(&MARKERS.utility) || says(&MARKERS.utility, &prompt);
    if utility { CallPurpose::Utility } else { CallPurpose::Step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_llm::message::{ChatMessage, ToolDefinition};

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
