//! `interflow conversations cache`: how well a conversation used its provider's prompt cache.

use std::io::{self, Write};

use interflow_conversations::assembly::cache_report::{CacheBreak, PromptCacheReport};
use interflow_conversations::conversations::prompt_cache;
use interflow_host::data_dir::DataDir;
use interflow_store::FlowStore;
use interflow_types::units::pluralize;

use super::list::{count, truncate};
use super::{ConversationCacheArgs, find};
use crate::cli::output::{TextFormat, ignore_broken_pipe, print_json};
use crate::instance::config::InterflowConfig;
use crate::{CliError, components};

/// Maximum characters of an excerpt on a line.
const MAX_WIDTH: usize = 160;

pub fn cache(
    store: &dyn FlowStore,
    args: &ConversationCacheArgs,
    config: &InterflowConfig,
    home: &DataDir,
) -> Result<(), CliError> {
    let id = find(store, &args.id)?;
    let pricing = components::conversations::pricing(config, home)?;
    let report = prompt_cache::report(store, &id, &*pricing)?;
    let report = report.ok_or_else(|| CliError::Failed(format!("the conversation {id} is gone")))?;
    match args.format.get() {
        TextFormat::Json => print_json(&report),
        TextFormat::Text => ignore_broken_pipe(print(&mut interflow_host::terminal::stdout(), &id, &report)),
    }
}

fn print(out: &mut impl Write, id: &str, report: &PromptCacheReport) -> io::Result<()> {
    let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
    let share = (report.cached_tokens * 100).checked_div(report.input_tokens).unwrap_or_default();
    writeln!(
        out,
        "{dim}{id}{dim:#}  {}: {} tokens in, {} ({share} %) from the prompt cache, {} written to it",
        pluralize(report.calls, "call"),
        count(report.input_tokens),
        count(report.cached_tokens),
        count(report.written_tokens)
    )?;
    if report.breaks.is_empty() {
        return writeln!(out, "The cache broke nowhere.");
    }
    writeln!(
        out,
        "The cache broke {}: {} tokens were paid in full again, {} more than from the cache",
        pluralize(report.breaks.len() as u64, "time"),
        count(report.lost_tokens),
        dollars(Some(report.lost_cost))
    )?;
    for found in &report.breaks {
        print_break(out, found)?;
    }
    writeln!(out, "\n{bold}What to change{bold:#}")?;
    for advice in &report.advice {
        let (tokens, cost) = (count(advice.lost_tokens), dollars(Some(advice.lost_cost)));
        writeln!(
            out,
            "  {} {dim}({}, {tokens} tokens, {cost}){dim:#}",
            advice.text,
            pluralize(advice.breaks, "break")
        )?;
    }
    Ok(())
}

fn print_break(out: &mut impl Write, found: &CacheBreak) -> io::Result<()> {
    let dim = anstyle::Style::new().dimmed();
    let (tokens, cost) = (count(found.lost_tokens), dollars(found.lost_cost));
    writeln!(out, "\n  turn {:<3} {dim}{}{dim:#}  {tokens} tokens, {cost}", found.turn, found.flow)?;
    writeln!(out, "    {}", found.reason.detail)?;
    if let Some(change) = &found.reason.change {
        let (red, green) = (anstyle::AnsiColor::Red.on_default(), anstyle::AnsiColor::Green.on_default());
        writeln!(out, "    {red}- {}{red:#}", line(&change.before))?;
        writeln!(out, "    {green}+ {}{green:#}", line(&change.after))?;
    }
    Ok(())
}

/// A text of a peer on one line.
fn line(text: &str) -> String {
    truncate(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_WIDTH)
}

fn dollars(cost: Option<f64>) -> String {
    cost.map_or_else(|| "price unknown".to_owned(), |cost| format!("${cost:.4}"))
}
