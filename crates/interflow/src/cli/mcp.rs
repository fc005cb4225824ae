//! `interflow mcp`: serves recorded traffic to agents over stdio. The admin listener serves the same at `/mcp`.

use std::io::{self, BufRead, Read, Write};
use std::thread;
use std::time::Instant;

use interflow_admin::mcp::{self, RemoteToolCall, WAIT_POLL, WaitCall, WriteAccess};
use interflow_host::data_dir::DataDir;
use interflow_store::FlowStore;
use serde_json::{Value, json};

use crate::cli::flows::open_for_reading;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{format_rows, member, members, print, print_json};
use crate::cli::tokens::day;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

/// Maximum message size, in bytes.
const MAX_LINE: u64 = 4 << 20;

#[derive(Debug, clap::Args)]
pub struct McpArgs {
    /// Print the settings for clients that connect to the running instance over HTTP, and exit.
    #[arg(long)]
    pub http: bool,
    /// Also offer tools with side effects: tagging, comments, and replaying requests.
    #[arg(long, conflicts_with = "http")]
    pub write: bool,
    /// Print what the rules of an MCP server of the gateway decide on a call of a tool, and exit. The arguments are JSON.
    #[arg(long, num_args = 2..=3, value_names = ["SERVER", "TOOL", "ARGUMENTS"], conflicts_with_all = ["http", "write"])]
    pub check: Vec<String>,
    /// Print the accounts that users have connected at the gateway's MCP servers, and exit.
    #[arg(long, conflicts_with_all = ["http", "write", "check"])]
    pub accounts: bool,
    /// Forget the account of a user at an MCP server, and exit.
    #[arg(long, num_args = 2, value_names = ["SERVER", "USER"], conflicts_with_all = ["http", "write", "check", "accounts"])]
    pub disconnect: Vec<String>,
}

/// Serves until stdin is closed.
pub fn run(args: &McpArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    if args.http {
        return settings(home);
    }
    if let [server, tool, arguments @ ..] = args.check.as_slice() {
        let arguments = arguments.first().map_or("{}", String::as_str);
        print(&format!("{}\n", config.mcp.explain_call(server, tool, arguments)?));
        return Ok(());
    }
    if args.accounts {
        return accounts(home);
    }
    if let [server, user] = args.disconnect.as_slice() {
        let call = OperationId::RemoveMcpAccount.call().body(json!({ "server": server, "user": user }));
        InstanceApi::require(home)?.call(&call)?;
        print(&format!("the account of {user} at {server} is forgotten\n"));
        return Ok(());
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
        if let Some(answer) = answer_message(&*store, &text, access, home) {
            let written = writeln!(out, "{answer}").and_then(|()| out.flush());
            if written.is_err() {
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
    let one = |message: &Value| match mcp::is_stateless(message, None) {
        Ok(false) => answer_one(store, message, access, home, false),
        Ok(true) => {
            let answer = answer_one(store, message, access, home, true)?;
            Some(mcp::finish_stateless(message, answer).1)
        }
        Err(answer) => Some(answer),
    };
    let mut answers: Vec<Value> = messages.iter().filter_map(one).collect();
    if many { (!answers.is_empty()).then(|| answers.into()) } else { answers.pop() }
}

fn answer_one(
    store: &dyn FlowStore,
    message: &Value,
    access: WriteAccess,
    home: &DataDir,
    is_stateless: bool,
) -> Option<Value> {
    match (mcp::wait_call(message), mcp::remote_tool_call(message, access)) {
        (Some(Ok(call)), _) => Some(wait_for_flow(store, &call)),
        (_, Some(Ok(call))) => Some(call.answer(forward_to_instance(&call, home))),
        (Some(Err(refused)), _) | (_, Some(Err(refused))) => Some(refused),
        (None, None) => mcp::answer(store, message, access, is_stateless),
    }
}

/// Messages that come meanwhile wait: a client that has something else to ask does not wait for a flow.
fn wait_for_flow(store: &dyn FlowStore, call: &WaitCall) -> Value {
    let deadline = Instant::now() + call.timeout;
    loop {
        if let Some(answer) = call.poll(store) {
            return answer;
        }
        if Instant::now() >= deadline {
            return call.timed_out();
        }
        thread::sleep(WAIT_POLL);
    }
}

/// Forwards a tool call to the running instance.
fn forward_to_instance(call: &RemoteToolCall, home: &DataDir) -> Result<Value, String> {
    let message = |e: CliError| e.to_string();
    let none = "this needs a running instance: ask the operator to start `interflow run`";
    let api = InstanceApi::for_instance(home).map_err(message)?.ok_or(none)?;
    api.call(call.call()).map_err(message)
}

fn accounts(home: &DataDir) -> Result<()> {
    let answer = InstanceApi::require(home)?.call(&OperationId::ListMcpAccounts.call())?;
    let row = |account: &Value| vec![member(account, "server"), member(account, "user"), day(&account["connected"])];
    print(&format_rows(&["SERVER", "USER", "CONNECTED"], members(&answer, "accounts").map(row), &[]));
    Ok(())
}

fn settings(home: &DataDir) -> Result<()> {
    let api = InstanceApi::require(home)?;
    print_json(&serde_json::json!({"mcpServers": {"interflow": {
        "type": "http",
        "url": format!("http://{}/mcp", api.address),
        "headers": {"Authorization": api.bearer()},
    }}}))
}
