//! The search for tools: where there are many, a client sees a tool that searches, and the tools that it found.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::lists;
use crate::exchange::ClientView;
use crate::protocol::client_message::ListKind;
use crate::protocol::jsonrpc::{INVALID_PARAMS, RpcError, notification};

const DEFAULT_RESULTS: u64 = 5;
const MAX_RESULTS: u64 = 20;
/// Bound on the tools that are in a list because they were found; the oldest make room. They can still be called.
const MAX_FOUND: usize = 200;

/// The tools that match best, of those that the client may use and does not see without a search; they are in its list
/// from now on.
///
/// # Errors
/// The arguments are invalid, or the only server failed.
pub(super) async fn search(view: ClientView<'_>, arguments: &str) -> Result<String, RpcError> {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let query = arguments["query"].as_str().ok_or_else(|| RpcError::new(INVALID_PARAMS, "`query` is not a string"))?;
    let limit = arguments["limit"].as_u64().unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS);
    let mut lists = lists::collect(view, ListKind::Tools).await?.lists;
    let tools = lists::searched(view, &mut lists).flat_map(|(_, tools)| std::mem::take(tools)).collect();
    let tools = ranked(tools, query, limit as usize);
    let is_changed = view.session.found_tools.send_if_modified(|listed| {
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        let new: Vec<_> = names.filter(|name| !listed.iter().any(|other| other == name)).map(str::to_owned).collect();
        listed.extend(new.iter().cloned());
        listed.drain(..listed.len().saturating_sub(MAX_FOUND));
        !new.is_empty()
    });
    if is_changed {
        view.session.standing.push(notification(ListKind::Tools.changed_method(), &json!({})));
    }
    let result = json!({ "tools": tools });
    let text = if tools.is_empty() { "no tool matches; use other words".to_owned() } else { result.to_string() };
    Ok(json!({ "content": [{ "type": "text", "text": text }], "structuredContent": result }).to_string())
}

/// By the words that they have in common with the query: rare words count for more, and words of names most.
fn ranked(tools: Vec<Value>, query: &str, limit: usize) -> Vec<Value> {
    let weights = |tool: &Value| {
        let mut weights = HashMap::<String, f64>::new();
        // Of several places, the last counts.
        for (weight, member) in [(1.0, "inputSchema"), (2.0, "description"), (3.0, "title"), (4.0, "name")] {
            weights.extend(words(&tool[member].to_string()).into_iter().map(|word| (word, weight)));
        }
        weights
    };
    let mut rated: Vec<_> = tools.into_iter().map(|tool| (0.0, weights(&tool), tool)).collect();
    let count = rated.len() as f64;
    for word in words(query) {
        let with_word = rated.iter().filter(|(_, weights, _)| weights.contains_key(&word)).count().max(1) as f64;
        for (score, weights, _) in &mut rated {
            *score += weights.get(&word).copied().unwrap_or_default() * (1.0 + count / with_word).ln();
        }
    }
    rated.retain(|(score, ..)| *score > 0.0);
    rated.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    rated.into_iter().take(limit).map(|(.., tool)| tool).collect()
}

/// The words of a text or an identifier, in lower case and in the singular.
fn words(text: &str) -> Vec<String> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\p{Lu}?\p{Ll}+|\p{Lu}+|[\p{Lo}\p{N}]+").expect("valid"));
    let word = |word: &str| match word.to_lowercase() {
        word if word.len() > 3 => word.trim_end_matches('s').to_owned(),
        word => word,
    };
    WORD.find_iter(text).map(|part| word(part.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_ranked_by_the_words_of_their_names_descriptions_and_arguments() {
        let tool = |name: &str, description: &str, argument: &str| json!({ "name": name, "description": description, "inputSchema": { "properties": { argument: { "type": "string" } } } });
        let tools = vec![
            tool("mail__sendMessage", "Sends a mail", "to"),
            tool("files__read_file", "Reads a file", "path"),
            tool("files__list_files", "Lists the files of a directory", "path"),
            tool("tracker__create_issue", "Opens a ticket for a bug", "assignee"),
        ];
        for (query, names) in [
            ("read files", &["files__read_file", "files__list_files"][..]),
            ("open a ticket", &["tracker__create_issue", "mail__sendMessage", "files__read_file"]),
            ("assignees", &["tracker__create_issue"]),
            ("send message", &["mail__sendMessage"]),
            ("SENDMESSAGE", &[]),
            ("", &[]),
        ] {
            let ranked = ranked(tools.clone(), query, 3);
            let ranked: Vec<_> = ranked.iter().filter_map(|tool| tool["name"].as_str()).collect();
            assert_eq!(ranked, names, "{query}");
        }
    }
}
