//! The table of tools. Those that read the store work without a running instance; the others are operations of the API.

use interflow_store::FlowStore;
use serde_json::{Value, json};

use super::tool_text::ToolCallResult;
use super::{arguments, conversation_tools, flow_tools, operation_texts};
use crate::api::operations::table::OperationId;

const SINCE: &str = "only what began since then: a date or time (2026-01-31T12:00+01:00), or how long ago (-2h)";
const UNTIL: &str = "only what began before then";
const CONVERSATION: &str = "its id, the beginning of its id, or `last`";

/// Whether tools that change something are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    ReadOnly,
    /// Enabled by the operator.
    Writes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ToolEffect {
    Reads,
    /// Changes the recording, or what the operator sees.
    Writes,
    /// Sends a request.
    Sends,
}

pub enum ToolRun {
    /// Reads the store.
    Store(fn(&dyn FlowStore, &Value) -> ToolCallResult),
    /// Calls an operation, of which `{id}` in the path is the argument `id` and the others are the body, and writes its
    /// result as text.
    Operation(OperationId, fn(&Value) -> String),
    /// Is answered once a flow has come.
    Wait(),
}

enum ArgumentKind {
    Text,
    Texts,
    /// An integer of at least this.
    Number(u8),
    OneOf(&'static [&'static str]),
}

struct Argument {
    name: &'static str,
    kind: ArgumentKind,
    is_required: bool,
    doc: &'static str,
}

pub struct Tool {
    pub name: &'static str,
    title: &'static str,
    description: &'static str,
    pub effect: ToolEffect,
    arguments: &'static [Argument],
    pub run: ToolRun,
}

const fn argument(name: &'static str, kind: ArgumentKind, doc: &'static str) -> Argument {
    Argument { name, kind, is_required: false, doc }
}

const fn text(name: &'static str, doc: &'static str) -> Argument {
    argument(name, ArgumentKind::Text, doc)
}

const fn texts(name: &'static str, doc: &'static str) -> Argument {
    argument(name, ArgumentKind::Texts, doc)
}

const fn number(name: &'static str, doc: &'static str) -> Argument {
    argument(name, ArgumentKind::Number(1), doc)
}

const fn from(doc: &'static str) -> Argument {
    argument("offset", ArgumentKind::Number(0), doc)
}

impl Argument {
    const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            ArgumentKind::Text => json!({"type": "string"}),
            ArgumentKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            ArgumentKind::Number(least) => json!({"type": "integer", "minimum": least}),
            ArgumentKind::OneOf(values) => json!({"type": "string", "enum": values}),
        };
        schema["description"] = self.doc.into();
        schema
    }
}

impl Tool {
    /// As clients are shown it.
    fn describe(&self) -> Value {
        let properties: serde_json::Map<_, _> = self.arguments.iter().map(|a| (a.name.into(), a.schema())).collect();
        let required: Vec<_> = self.arguments.iter().filter(|a| a.is_required).map(|a| a.name).collect();
        let sends = self.effect == ToolEffect::Sends;
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {"type": "object", "properties": properties, "required": required, "additionalProperties": false},
            "annotations": {"readOnlyHint": self.effect == ToolEffect::Reads, "destructiveHint": sends, "openWorldHint": sends},
        })
    }

    /// Checks the arguments of a call against the schema.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), String> {
        arguments::check(&self.describe()["inputSchema"], arguments)
    }

    /// The arguments of a call that are not in the path.
    pub fn body(&self, arguments: &Value) -> Value {
        let names = self.arguments.iter().map(|a| a.name).filter(|name| *name != "id");
        names
            .filter_map(|name| Some((name.to_owned(), arguments.get(name)?.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// The tool of this name.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Calls a tool that needs nothing but the store; `None` if there is none of this name.
pub fn call(store: &dyn FlowStore, name: &str, arguments: &Value) -> Option<ToolCallResult> {
    let tool = find(name)?;
    let ToolRun::Store(run) = &tool.run else { return None };
    Some(tool.check_arguments(arguments).and_then(|()| run(store, arguments)))
}

/// The tool descriptions. Tools that change something are listed only if they are allowed.
pub fn list(access: WriteAccess) -> Vec<Value> {
    let is_offered = |tool: &&Tool| access == WriteAccess::Writes || tool.effect == ToolEffect::Reads;
    TOOLS.iter().filter(is_offered).map(Tool::describe).collect()
}

/// Per tool: its name, its title, its effect and what runs it; its description; and its arguments.
macro_rules! tools {
    ($($name:literal, $title:literal, $effect:ident, $run:ident($($of:tt)*): $description:literal => $($argument:expr),*;)*) => {
        static TOOLS: &[Tool] = &[$(Tool {
            name: $name,
            title: $title,
            description: $description,
            effect: ToolEffect::$effect,
            arguments: &[$($argument),*],
            run: ToolRun::$run($($of)*),
        }),*];
    };
}

tools! {
    "search_flows", "Search flows", Reads, Store(flow_tools::search_flows):
        "Lists recorded HTTP exchanges, WebSockets and tunnels that a query selects, the newest first." =>
        text("query", "such as: host:api.example.com status:>=400 body:\"refund\"; all flows when empty"),
        number("limit", "maximum number of flows; default 50, at most 200"),
        text("after", "only flows older than the flow of this id"),
        text("since", SINCE),
        text("until", UNTIL);
    "read_flow", "Read a flow", Reads, Store(flow_tools::read_flow):
        "Shows one flow: both heads, both bodies as text without content coding, messages, errors. To read on in a \
         long body, name it as `part` with an `offset`." =>
        text("id", "the flow's id").required(),
        argument("part", ArgumentKind::OneOf(&["request", "response", "messages"]), "only this body, or the messages; the whole flow by default"),
        from("number of characters of the part to skip"),
        number("max_chars", "truncate each body to this many characters; default 20000");
    "diff_flows", "Compare two flows", Reads, Store(flow_tools::diff_flows):
        "Shows how the second flow differs from the first: heads by field, JSON bodies by value, other text by line. \
         Secrets are masked before, so that they do not differ." =>
        text("a", "the id of the first flow").required(),
        text("b", "the id of the second flow").required(),
        from("number of characters to skip, to read on"),
        number("max_chars", "truncate after this many characters; default 20000");
    "stats", "Add up traffic", Reads, Store(flow_tools::stats):
        "Adds up recorded flows: statuses, errors, bytes, hosts with durations; and calls of language models with \
         tokens and cost." =>
        text("query", "only flows that it selects; everything when empty. Calls of language models are selected by time alone"),
        text("since", SINCE),
        text("until", UNTIL),
        number("top", "maximum number of hosts, error kinds and models; default 10");
    "list_conversations", "List conversations", Reads, Store(conversation_tools::list_conversations):
        "Lists conversations with language models: agent, model, turns, tokens, cost, title; the newest first." =>
        text("query", "such as: agent:claude-code model:opus tokens:>100000 time:>-1d; bare words search the title"),
        number("limit", "maximum number; default 30, at most 200"),
        text("since", SINCE),
        text("until", UNTIL);
    "read_conversation", "Read a conversation", Reads, Store(conversation_tools::read_conversation):
        "Shows one conversation as Markdown: prompts, thoughts, tool calls with arguments and results, sub-agents." =>
        text("id", CONVERSATION).required(),
        from("number of characters to skip, to read on"),
        number("max_chars", "truncate after this many characters; default 40000");
    "conversation_changes", "Explain requests and cache misses", Reads, Store(conversation_tools::conversation_changes):
        "For each request of a conversation: what changed since the one before, and why the provider's cache gave \
         what it gave." =>
        text("id", CONVERSATION).required();
    "explain_rules", "Explain rules", Reads, Operation(OperationId::ExplainRules, operation_texts::explanation):
        "Explains for each active rule whether it matches a recorded flow, phase by phase, and why. Needs a running \
         instance." =>
        text("id", "the flow's id").required();
    "wait_for_flow", "Wait for a flow", Reads, Wait():
        "Waits until a flow that a query selects has ended, and gives its id: for a request that someone is about to \
         send." =>
        text("query", "as in search_flows; any flow when empty"),
        number("timeout", "maximum seconds to wait; default 30, at most 60"),
        text("since", "also a flow that has ended since then, such as -1m");
    "list_rules", "List rules", Reads, Operation(OperationId::ListRules, operation_texts::rules):
        "Lists the active rules: condition, actions, file, and how often each matched. Needs a running instance." =>;
    "list_pending", "List pending requests", Reads, Operation(OperationId::ListPending, operation_texts::pending):
        "Lists the requests, tunnels, responses and messages that wait for a person's decision, also at other \
         replicas that share the recording. They cannot be decided here. Needs a running instance." =>;
    "how_to_route", "Route a program through the proxy", Reads, Operation(OperationId::Setup, operation_texts::setup):
        "Gives the addresses of proxy and gateway, the files of the CA, and the environment with which a program is \
         recorded. Needs a running instance." =>;
    "list_models", "Look up models", Reads, Operation(OperationId::ListModels, operation_texts::models):
        "Gives the price of a language model, what it takes and refuses, and what translation changes in requests for \
         it; or lists models. Needs a running instance." =>
        text("query", "a model, or a part of names: gpt-6.1-sol, bedrock/us.anthropic.claude-opus-5-5, opus"),
        text("provider", "only models at this provider"),
        number("limit", "maximum number of models; default 50");
    "query_help", "Explain the query language", Reads, Store(|_, _| Ok(interflow_query::help().to_owned())):
        "The query language on a page." =>;
    "propose_rule", "Propose rules", Writes, Operation(OperationId::ProposeRules, operation_texts::proposal):
        "Checks the text of rules, tries it on recorded flows, and keeps it for the operator, who applies or \
         dismisses it. It is never active without that." =>
        text("text", "a rule file in YAML or TOML, with `rules:` on a line of its own: rules:\n  - name: slow\n    when: path:/x\n    then: { delay: 1s }").required(),
        text("reason", "why, in a sentence for the operator"),
        text("query", "the flows to try it on; the newest ones by default");
    "annotate_flow", "Tag or comment a flow", Writes, Operation(OperationId::AnnotateFlow, operation_texts::annotation):
        "Adds or removes tags of a recorded flow, or sets its comment." =>
        text("id", "the flow's id").required(),
        texts("add_tags", "tags to add"),
        texts("remove_tags", "tags to remove"),
        text("comment", "the comment; an empty text removes it");
    "replay_flow", "Send a request again", Sends, Operation(OperationId::ReplayFlow, operation_texts::replay):
        "Sends a recorded request again, with the given changes, and returns the response. Access rules apply, and \
         placeholders are replaced by secrets only for the hosts of each secret." =>
        text("id", "the flow's id").required(),
        text("method", "another method"),
        text("url", "another URL, or /path for the same origin"),
        texts("headers", "`Name: value` sets a field, `Name:` removes it"),
        text("body", "another body");
}
