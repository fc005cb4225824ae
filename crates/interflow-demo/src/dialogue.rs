//! Scripted conversations between the demo's agents and models, from `data/dialogues.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The templates of scripts in which each `{{name}}` stands for an entry of the list with this name.
#[derive(Deserialize)]
struct DialogueFile {
    lists: BTreeMap<String, Vec<String>>,
    /// For each agent.
    scripts: BTreeMap<String, Vec<DialogueScript>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DialogueScript {
    /// The answer to a request for a title.
    pub title: DialogueStep,
    pub model: String,
    pub prompt: String,
    /// A letter with personal data, which follows the prompt.
    pub letter: String,
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

/// Entries of each list.
const VARIANTS: usize = 12;

/// For each agent: all scripts with the first entries of the lists, then all with the second ones, and so on.
static SCRIPTS: LazyLock<BTreeMap<String, Vec<DialogueScript>>> = LazyLock::new(|| {
    let text = include_str!("../data/dialogues.json");
    let parse = |text: &str| serde_json::from_str::<DialogueFile>(text).expect("a test reads the file");
    let lists = parse(text).lists;
    let mut all = BTreeMap::<String, Vec<DialogueScript>>::new();
    for n in 0..VARIANTS {
        let filled =
            lists.iter().fold(text.to_owned(), |t, (name, list)| t.replace(&format!("{{{{{name}}}}}"), &list[n]));
        for (agent, scripts) in parse(&filled).scripts {
            all.entry(agent).or_default().extend(scripts);
        }
    }
    all
});

/// The script of an agent's conversation with this number.
pub fn script(agent: &str, number: u32) -> &'static DialogueScript {
    let scripts = &SCRIPTS[agent];
    &scripts[number as usize % scripts.len()]
}

/// The script whose prompt a text contains.
pub fn find(text: &str) -> Option<&'static DialogueScript> {
    SCRIPTS.values().flatten().find(|script| text.contains(&script.prompt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_call_has_arguments_in_json_and_no_text_an_unfilled_name() {
        for step in SCRIPTS.values().flatten().flat_map(|script| &script.steps) {
            assert!(!step.says.contains("{{"), "{}", step.says);
            for call in &step.calls {
                assert!(serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok(), "{}", call.arguments);
            }
        }
    }

    #[test]
    fn an_hour_of_conversations_has_different_prompts_and_titles_each_found_by_its_prompt() {
        let mut prompts = std::collections::BTreeSet::new();
        for agent in SCRIPTS.keys().filter(|agent| *agent != "helper") {
            for number in 0..36 {
                let script = script(agent, number);
                assert!(prompts.insert(&script.prompt), "twice: {}", script.prompt);
                assert!(script.title.says.is_empty() || prompts.insert(&script.title.says), "{}", script.title.says);
                assert!(std::ptr::eq(find(&script.prompt).unwrap(), script), "another is found: {}", script.prompt);
            }
        }
    }
}
