//! The table of tools. Those that read the store work without a running instance; the others are operations of the API.

use std::sync::LazyLock;

use interflow_store::FlowStore;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tool_text::ToolCallResult;
use super::{arguments, conversation_tools, flow_tools, operation_texts};
use crate::api::operations::table::OperationId;

/// Whether tools that change something are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    ReadOnly,
    /// Enabled by the operator.
    Writes,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolEffect {
    Reads,
    /// Changes the recording, or what the operator sees.
    Writes,
    /// Sends a request.
    Sends,
}

#[derive(Clone, Copy)]
pub enum ToolRun {
    /// Reads the store.
    Store(fn(&dyn FlowStore, &Value) -> ToolCallResult),
    /// Calls an operation, of which `{id}` in the path is the argument `id` and the others are the body, and writes its
    /// result as text.
    Operation(OperationId, fn(&Value) -> String),
    /// Is answered once a flow has come.
    Wait,
}

/// What clients are told about a tool, from `data/mcp_tools.json`.
#[derive(Deserialize)]
pub struct Tool {
    pub name: String,
    title: String,
    description: String,
    pub effect: ToolEffect,
    /// The JSON Schemas of its arguments.
    properties: Map<String, Value>,
    required: Vec<String>,
}

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/mcp_tools.json")).expect("a test reads the file of tools")
});

/// How each tool is run.
static RUNS: [(&str, ToolRun); 17] = [
    ("search_flows", ToolRun::Store(flow_tools::search_flows)),
    ("read_flow", ToolRun::Store(flow_tools::read_flow)),
    ("diff_flows", ToolRun::Store(flow_tools::diff_flows)),
    ("stats", ToolRun::Store(flow_tools::stats)),
    ("list_conversations", ToolRun::Store(conversation_tools::list_conversations)),
    ("read_conversation", ToolRun::Store(conversation_tools::read_conversation)),
    ("conversation_changes", ToolRun::Store(conversation_tools::conversation_changes)),
    ("explain_rules", ToolRun::Operation(OperationId::ExplainRules, operation_texts::explanation)),
    ("wait_for_flow", ToolRun::Wait),
    ("list_rules", ToolRun::Operation(OperationId::ListRules, operation_texts::rules)),
    ("list_pending", ToolRun::Operation(OperationId::ListPending, operation_texts::pending)),
    ("how_to_route", ToolRun::Operation(OperationId::Setup, operation_texts::setup)),
    ("list_models", ToolRun::Operation(OperationId::ListModels, operation_texts::models)),
    ("query_help", ToolRun::Store(|_, _| Ok(interflow_query::help().to_owned()))),
    ("propose_rule", ToolRun::Operation(OperationId::ProposeRules, operation_texts::proposal)),
    ("annotate_flow", ToolRun::Operation(OperationId::AnnotateFlow, operation_texts::annotation)),
    ("replay_flow", ToolRun::Operation(OperationId::ReplayFlow, operation_texts::replay)),
];

impl Tool {
    /// The JSON Schema of its arguments.
    fn schema(&self) -> Value {
        json!({
            "type": "object", "properties": self.properties, "required": self.required, "additionalProperties": false,
        })
    }

    fn describe(&self) -> Value {
        let sends = self.effect == ToolEffect::Sends;
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema(),
            "annotations": {"readOnlyHint": self.effect == ToolEffect::Reads, "destructiveHint": sends, "openWorldHint": sends},
        })
    }

    /// Checks that the arguments are those of the tool.
    ///
    /// # Errors
    /// A sentence that names the argument.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), String> {
        arguments::check(&self.schema(), arguments)
    }

    /// The arguments that are the body of an operation.
    pub fn body(&self, arguments: &Value) -> Value {
        let names = self.properties.keys().filter(|name| *name != "id");
        names.filter_map(|name| Some((name.clone(), arguments.get(name)?.clone()))).collect::<Map<_, _>>().into()
    }
}

pub fn find(name: &str) -> Option<(&'static Tool, ToolRun)> {
    let (_, run) = RUNS.iter().find(|(run, _)| *run == name)?;
    Some((TOOLS.iter().find(|tool| tool.name == name)?, *run))
}

/// Calls a tool that reads the store.
pub fn call(store: &dyn FlowStore, name: &str, arguments: &Value) -> Option<ToolCallResult> {
    let (tool, ToolRun::Store(run)) = find(name)? else { return None };
    Some(tool.check_arguments(arguments).and_then(|()| run(store, arguments)))
}

/// The tools that a client is offered.
pub fn list(access: WriteAccess) -> Vec<Value> {
    let is_offered = |tool: &&Tool| access == WriteAccess::Writes || tool.effect == ToolEffect::Reads;
    TOOLS.iter().filter(is_offered).map(Tool::describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_of_the_file_is_run_and_has_the_arguments_that_it_requires() {
        assert_eq!(TOOLS.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), RUNS.map(|(name, _)| name));
        for tool in &*TOOLS {
            assert!(tool.required.iter().all(|name| tool.properties.contains_key(name)), "{}", tool.name);
        }
    }
}
