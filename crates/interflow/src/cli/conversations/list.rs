//! `interflow conversations list`.

use std::io::Write as _;

use interflow_store::{ConversationOptions, ConversationSummary, FlowStore};
use interflow_types::Timestamp;

use super::ConversationListArgs;
use crate::Result;
use crate::cli::flows::open::parse_query;
use crate::cli::output::{ListFormat, format_rows, ignore_broken_pipe, print_json, print_json_lines};

/// Prints the newest conversations of a query, newest last unless reversed.
pub fn list(store: &dyn FlowStore, args: &ConversationListArgs) -> Result<()> {
    let text = args.query.join(" ");
    let query = parse_query(&text)?;
    let options = ConversationOptions { query, all: args.all, limit: args.limit, ..ConversationOptions::default() };
    let mut conversations = store.conversations(&options)?;
    if !args.reverse {
        conversations.reverse();
    }
    if conversations.is_empty() && args.format.get() == ListFormat::Table {
        let why = if text.is_empty() {
            format!(
                "there are no conversations yet; send an agent through the proxy: {} exec -- claude",
                crate::command()
            )
        } else {
            "no conversation matches".to_owned()
        };
        interflow_host::errln!("interflow: {why}");
        return Ok(());
    }
    match args.format.get() {
        ListFormat::Json => print_json(&conversations),
        ListFormat::Jsonl => print_json_lines(&conversations),
        ListFormat::Table => {
            ignore_broken_pipe(interflow_host::terminal::stdout().write_all(table(&conversations).as_bytes()))
        }
    }
}

fn table(conversations: &[ConversationSummary]) -> String {
    let titles = ["ID", "AGO", "AGENT", "MODEL", "TURNS", "IN", "OUT", "COST", "TITLE"];
    let now = Timestamp::now().micros();
    let row = |listed: &ConversationSummary| {
        let ConversationSummary { row, used, .. } = listed;
        let cost = if used.exchanges > used.unpriced { format!("${:.3}", used.cost) } else { String::new() };
        let nested = if row.parent.is_some() { "└ " } else { "" };
        let tags: String = listed.tags().iter().map(|t| format!("[{}] ", truncate(t, 20))).collect();
        vec![
            row.id.clone(),
            format_age(now.saturating_sub(row.updated.micros())),
            truncate(&row.agent, 12),
            truncate(&row.model, 22),
            row.turns.to_string(),
            count(used.input),
            count(used.output),
            cost,
            format!("{nested}{tags}{}", truncate(&row.title, 120)),
        ]
    };
    format_rows(&titles, conversations.iter().map(row), &["OUT", "IN", "AGENT", "TURNS", "MODEL", "COST"])
}

/// Formats an age in the largest fitting unit.
pub fn format_age(micros: u64) -> String {
    match micros / 1_000_000 {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// Abbreviates a count.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.2}M", n as f64 / 1e6),
    }
}

/// Reduces text to one line of at most this many characters, without control characters.
pub fn truncate(text: &str, most: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    interflow_store::single_line(&plain, most).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ages_and_texts_are_abbreviated() {
        assert_eq!([count(9_999), count(12_345), count(2_500_000)], ["9999", "12.3k", "2.50M"]);
        assert_eq!([format_age(59_000_000), format_age(61_000_000), format_age(90_000_000_000)], ["59s", "1m", "1d"]);
        assert_eq!(truncate("a\u{1b}[31m\nb and more", 8), "a [31m …");
    }
}
