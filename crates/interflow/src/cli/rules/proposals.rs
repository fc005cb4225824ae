//! `interflow rules proposals`, `apply` and `dismiss`: rules that agents propose over MCP, for the operator to decide.

use std::fmt::Write as _;

use interflow_archive::text::clean_lines;
use interflow_host::data_dir::DataDir;
use interflow_types::units::pluralize;
use serde_json::{Value, json};

use crate::Result;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TextFormat, member, members, print};

/// Matches that the list shows of each proposal.
const SHOWN: usize = 5;

pub fn list(format: &FormatArgs<TextFormat>, home: &DataDir) -> Result<()> {
    let response = InstanceApi::require(home)?.call(&OperationId::ListProposals.call())?;
    format.print(&response, || text(&response))
}

fn text(response: &Value) -> String {
    let mut text = String::new();
    for proposal in members(response, "proposals") {
        let (id, reason) = (member(proposal, "id"), member(proposal, "reason"));
        let matches: Vec<_> = members(proposal, "matches").collect();
        let tried = pluralize(proposal["tried"].as_u64().unwrap_or_default(), "flow");
        // What an agent wrote must not control the terminal.
        let rules = clean_lines(proposal["text"].as_str().unwrap_or_default());
        let mut add = |line: String| writeln!(text, "{line}").expect("writing to a String cannot fail");
        add(format!("proposal {id}: {}", if reason.is_empty() { "no reason given" } else { &reason }));
        add(rules.lines().map(|l| format!("    {l}\n")).collect::<String>().trim_end_matches('\n').to_owned());
        add(format!("  tried on {tried}, {}:", pluralize(matches.len() as u64, "match")));
        for m in matches.iter().take(SHOWN) {
            let [flow, rule, method, url] = ["flow", "rule", "method", "url"].map(|name| member(m, name));
            add(format!("    {flow} {rule} {method} {url}"));
        }
        add(format!("  `interflow rules apply {id}` or `interflow rules dismiss {id}`\n"));
    }
    if text.is_empty() {
        text.push_str("no rules are proposed\n");
    }
    text
}

pub fn apply(id: u64, file: Option<&str>, home: &DataDir) -> Result<()> {
    InstanceApi::require(home)?.call(&OperationId::ApplyProposal.call().path(id).body(json!({ "file": file })))?;
    print(&format!("proposal {id} is applied: `interflow rules list` shows the active rules\n"));
    Ok(())
}

pub fn dismiss(id: u64, home: &DataDir) -> Result<()> {
    InstanceApi::require(home)?.call(&OperationId::DismissProposal.call().path(id))?;
    print(&format!("proposal {id} is dismissed\n"));
    Ok(())
}
