//! `interflow mcp`: the recording for agents, over standard input and output. The admin port serves the same at `/mcp`.

use std::io::{self, BufRead, Read, Write};

use interflow_admin::mcp::{self, RemoteToolCall, ToolAction, WriteAccess};
use interflow_store::FlowStore;
use serde_json::Value;

use crate::CliError;
use crate::config::InterflowConfig;
use crate::data_dir::DataDir;
use crate::flows::{InstanceApi, open_for_reading};

/// The longest message, in bytes.
const MAX_LINE: u64 = 4 << 20;

/// What the agent is offered.
#[derive(Debug, clap::Args)]
pub struct McpArgs {
    /// Print the settings for clients that speak over HTTP to the running instance, and end.
    #[arg(long)]
    pub http: bool,
    /// Also offer tools that change something: tags and comments of flows, requests sent again.
    #[arg(long, conflicts_with = "http")]
    pub write: bool,
}

/// Serves until the client closes its end.
pub fn run(args: &McpArgs, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    if args.http {
        return settings(home);
    }
    let store = open_for_reading(config, home)?;
    let access = if args.write { WriteAccess::Writes } else { WriteAccess::ReadOnly };
    let mut input = io::stdin().lock();
    let mut out = io::stdout().lock();
    loop {
        let mut line = Vec::new();
        let n =
            input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(|e| format!("standard input: {e}"))?;
        if n == 0 {
            return Ok(());
        }
        if n as u64 == MAX_LINE && !line.ends_with(b"\n") {
            return Err(CliError::Failed(format!("a message is longer than {MAX_LINE} bytes")));
        }
        let text = String::from_utf8_lossy(&line);
        if text.trim().is_empty() {
            continue;
        }
        if let Some(answer) = answer_message(&store, &text, access, home) {
            let told = writeln!(out, "{answer}").and_then(|()| out.flush());
            if told.is_err() {
                return Ok(());
            }
        }
    }
}

fn answer_message(store: &dyn FlowStore, text: &str, access: WriteAccess, home: &DataDir) -> Option<Value> {
    let (messages, many) = match mcp::message(text).and_then(mcp::messages) {
        Ok(messages) => messages,
        Err(answer) => return Some(answer),
    };
    let one = |message: &Value| match mcp::remote_tool_call(message, access) {
        Some(Ok(errand)) => Some(errand.answer(forward_to_instance(&errand, home))),
        Some(Err(refused)) => Some(refused),
        None => mcp::answer(store, message, access),
    };
    let mut answers: Vec<Value> = messages.iter().filter_map(one).collect();
    match many {
        true => (!answers.is_empty()).then(|| answers.into()),
        false => answers.pop(),
    }
}

/// Asks the running instance.
fn forward_to_instance(errand: &RemoteToolCall, home: &DataDir) -> Result<Value, String> {
    let said = |e: CliError| match e {
        CliError::Failed(text) | CliError::Usage(text) => text,
        CliError::Child(code) => format!("exit code {code}"),
    };
    let none = "this needs a running instance: ask the owner to start `interflow run`";
    let api = InstanceApi::for_instance(home).map_err(said)?.ok_or(none)?;
    let path = errand.path();
    let done = match errand.verb {
        ToolAction::ExplainRules => api.get(&path),
        ToolAction::Annotate => api.patch(&path, &errand.input),
        ToolAction::Replay => api.post(&path, &errand.input),
    };
    done.map_err(said)
}

fn settings(home: &DataDir) -> Result<(), CliError> {
    let api = InstanceApi::for_instance(home)?
        .ok_or_else(|| CliError::Failed("no instance with an admin port runs: start `interflow run`".into()))?;
    let settings = serde_json::json!({"mcpServers": {"interflow": {
        "type": "http",
        "url": format!("http://{}/mcp", api.address()),
        "headers": {"Authorization": api.bearer()},
    }}});
    let text = serde_json::to_string_pretty(&settings).map_err(|e| e.to_string())?;
    writeln!(io::stdout(), "{text}").map_err(|e| CliError::Failed(format!("could not write: {e}")))
}
