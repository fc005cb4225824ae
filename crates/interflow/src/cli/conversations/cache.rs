//! `interflow conversations cache`: how well a conversation used its provider's prompt cache.

use std::io::{self, Write};

use interflow_conversations::assembly::cache_report::{CacheBreak, PromptCacheReport};
use interflow_conversations::conversations::prompt_cache;
use interflow_host::data_dir::DataDir;
use interflow_store::FlowStore;
use interflow_types::units::pluralize;

use super::list::{count, truncate};
use super::{ConversationCacheArgs, find};
use crate::cli::output::{TextFormat, fit, fit_words, ignore_broken_pipe, print_json, terminal_width, wrap_words};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, components};

/// Maximum characters of an excerpt on a line.
const MAX_WIDTH: usize = 160;

pub fn cache(
    store: &dyn FlowStore,
    args: &ConversationCacheArgs,
    config: &InterflowConfig,
    home: &DataDir,
) -> Result<()> {
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
    let (cached, written) = (count(report.cached_tokens), count(report.written_tokens));
    let words = vec![
        (0, format!("{dim}{id}{dim:#}")),
        (2, pluralize(report.calls, "call")),
        (1, format!("{} tokens in", count(report.input_tokens))),
        (0, format!("{cached} ({share} %) from the prompt cache")),
        (3, format!("{written} written to it")),
    ];
    let columns = terminal_width();
    writeln!(out, "{}", fit_words(words, " · ", columns))?;
    if report.breaks.is_empty() {
        return writeln!(out, "The cache broke nowhere.");
    }
    let breaks = pluralize(report.breaks.len() as u64, "time");
    let (tokens, cost) = (count(report.lost_tokens), dollars(Some(report.lost_cost)));
    let broke =
        format!("The cache broke {breaks}: {tokens} tokens were paid in full again, {cost} more than from the cache");
    writeln!(out, "{}", wrap_words(&broke, 0, columns))?;
    for found in &report.breaks {
        print_break(out, found)?;
    }
    writeln!(out, "\n{bold}What to change{bold:#}")?;
    for advice in &report.advice {
        let (tokens, cost) = (count(advice.lost_tokens), dollars(Some(advice.lost_cost)));
        let breaks = pluralize(advice.breaks, "break");
        let text = format!("  {} {dim}({breaks}, {tokens} tokens, {cost}){dim:#}", advice.text);
        writeln!(out, "{}", wrap_words(&text, 2, columns))?;
    }
    Ok(())
}

fn print_break(out: &mut impl Write, found: &CacheBreak) -> io::Result<()> {
    let dim = anstyle::Style::new().dimmed();
    let (tokens, cost) = (count(found.lost_tokens), dollars(found.lost_cost));
    writeln!(out, "\n  turn {:<3} {dim}{}{dim:#}  {tokens} tokens, {cost}", found.turn, found.flow)?;
    writeln!(out, "{}", wrap_words(&format!("    {}", found.reason.detail), 4, terminal_width()))?;
    if let Some(change) = &found.reason.change {
        let (red, green) = (anstyle::AnsiColor::Red.on_default(), anstyle::AnsiColor::Green.on_default());
        writeln!(out, "    {red}- {}{red:#}", line(&change.before))?;
        writeln!(out, "    {green}+ {}{green:#}", line(&change.after))?;
    }
    Ok(())
}

/// A text of a peer on one line.
fn line(text: &str) -> String {
    let width = terminal_width().map_or(MAX_WIDTH, |columns| MAX_WIDTH.min(columns.saturating_sub(6)));
    fit(&truncate(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_WIDTH), width)
}

fn dollars(cost: Option<f64>) -> String {
    cost.map_or_else(|| "price unknown".to_owned(), |cost| format!("${cost:.4}"))
}
