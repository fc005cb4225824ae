//! Scripted conversations between the demo's agents and models, from `data/dialogues.json`.

use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialogues {
    /// The answer to a request for a title.
    pub title: DialogueStep,
    /// What the coding agent works on, and what it gives its sub-agents to do.
    pub fix: DialogueScript,
    pub helpers: Vec<DialogueScript>,
    /// A prompt with a letter that contains personal data.
    pub support: DialogueScript,
    pub letter: String,
    /// A prompt and an answer for each of the other providers.
    pub questions: [DialogueScript; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DialogueScript {
    pub prompt: String,
    pub steps: Vec<DialogueStep>,
}

/// One model response and the agent's reply.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DialogueStep {
    pub thinks: String,
    pub says: String,
    pub calls: Vec<ToolCall>,
    pub then: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub tool: String,
    /// As JSON.
    pub arguments: String,
    pub result: String,
}

pub static DIALOGUES: LazyLock<Dialogues> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/dialogues.json")).expect("a test reads the file"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_call_has_arguments_in_json() {
        let Dialogues { fix, helpers, support, questions, .. } = &*DIALOGUES;
        let scripts = [fix, support].into_iter().chain(helpers).chain(questions);
        for call in scripts.flat_map(|script| &script.steps).flat_map(|step| &step.calls) {
            assert!(serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok(), "{}", call.arguments);
        }
    }
}
