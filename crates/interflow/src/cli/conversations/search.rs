//! `interflow conversations search`.

use std::ops::ControlFlow;

use interflow_conversations::conversations::search::{self, FoundConversation};
use interflow_llm::message::MessageRole;
use interflow_store::{ConversationOptions, FlowStore};

use super::ConversationSearchArgs;
use super::list::truncate;
use crate::cli::flows::open::parse_query;
use crate::cli::output::{ListFormat, print_json, print_json_lines, print_rows};
use crate::{CliError, Result};

/// Prints the conversations that contain a text, newest first, with the places.
pub fn search(store: &dyn FlowStore, args: &ConversationSearchArgs) -> Result<()> {
    if args.text.trim().is_empty() {
        return Err(CliError::Usage("no text given: `conversations search \"no such table\"`".into()));
    }
    let text = args.query.join(" ");
    let query = parse_query(&text)?;
    let mut options = ConversationOptions { query, all: args.all, ..ConversationOptions::default() };
    let mut conversations: Vec<FoundConversation> = Vec::new();
    loop {
        options.limit = args.limit.saturating_sub(conversations.len()).max(1);
        let page = search::search(store, args.text.trim(), options.clone(), &|| ControlFlow::Continue(()))?;
        conversations.extend(page.conversations);
        options.after = page.next;
        if options.after.is_none() || conversations.len() >= args.limit {
            break;
        }
    }
    match args.format.get() {
        ListFormat::Json => print_json(&conversations),
        ListFormat::Jsonl => print_json_lines(&conversations),
        ListFormat::Table => print_rows(&conversations.iter().map(text_of).collect::<String>()),
    }
}

fn text_of(found: &FoundConversation) -> String {
    let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
    let row = &found.listed.row;
    let (agent, model, title) = (&row.agent, &row.model, truncate(&row.title, 80));
    let mut text = format!("{bold}{}{bold:#}  {dim}{agent} {model}{dim:#}  {title}\n", row.id);
    for e in &found.excerpts {
        let who = if e.role == MessageRole::User { "user" } else { "assistant" };
        // Control characters are replaced already.
        text += &format!("  {dim}{who:<9}{dim:#} …{}{bold}{}{bold:#}{}…\n", e.before, e.found, e.after);
    }
    let rest = found.hits.saturating_sub(found.excerpts.len() as u64);
    if rest > 0 {
        text += &format!("  {dim}and {rest} more{dim:#}\n");
    }
    text
}
