//! `interflow conversations show`: prints a conversation.

use std::io::{self, Write};

use interflow_conversations::assembly::view::{CallView, ItemKind, ThreadItem};
use interflow_conversations::conversations::export;
use interflow_conversations::conversations::load::{self, ConversationView};
use interflow_conversations::conversations::tree::{content_text, load_tree};
use interflow_llm::message::MessageRole;
use interflow_store::FlowStore;
use interflow_types::units::pluralize;

use super::list::{count, truncate};
use super::{ConversationShowArgs, ShowFormat, find};
use crate::cli::output::{fit_words, ignore_broken_pipe, print_json, terminal_width, wrap_words};
use crate::{CliError, Result};

/// Maximum lines of a text in the short form.
const MAX_LINES: usize = 12;
/// Maximum characters per line in the short form.
const MAX_WIDTH: usize = 200;

pub fn show(store: &dyn FlowStore, args: &ConversationShowArgs) -> Result<()> {
    let id = find(store, &args.id)?;
    let gone = || CliError::Failed(format!("the conversation {id} is gone"));
    let mut out = interflow_host::terminal::stdout();
    match args.format.get() {
        ShowFormat::Text => {
            let opened = load::load_conversation(store, &id, None)?.ok_or_else(gone)?;
            ignore_broken_pipe(
                ConversationPrinter { out: &mut out, full: args.full, width: terminal_width() }.conversation(&opened),
            )?;
            if args.changes { changes(&mut out, store, &opened) } else { Ok(()) }
        }
        ShowFormat::Json => print_json(&load::load_conversation(store, &id, None)?.ok_or_else(gone)?),
        ShowFormat::Export(form) => {
            let tree = load_tree(store, &id)?.ok_or_else(gone)?;
            ignore_broken_pipe(interflow_host::terminal::data_stdout().write_all(export::write(&tree, form).as_bytes()))
        }
    }
}

/// Prints the differences between consecutive requests.
fn changes(out: &mut impl Write, store: &dyn FlowStore, opened: &ConversationView) -> Result<()> {
    let bold = anstyle::Style::new().bold();
    ignore_broken_pipe(writeln!(out, "\n{bold}From request to request{bold:#}"))?;
    for diff in load::request_diffs(store, opened) {
        let (call, c) = diff?;
        let (turn, flow, same, cache) = (call.facts.turn, &call.flow, c.same, &c.cache);
        let (removed, added) = (c.removed.len(), c.added.len());
        let line = format!("  turn {turn:<3} {flow}  {same} same, {removed} removed, {added} added; {cache}");
        ignore_broken_pipe(writeln!(out, "{line}"))?;
    }
    Ok(())
}

struct ConversationPrinter<'o, W> {
    out: &'o mut W,
    full: bool,
    /// The columns of the terminal.
    width: Option<usize>,
}

impl<W: Write> ConversationPrinter<'_, W> {
    fn conversation(&mut self, opened: &ConversationView) -> io::Result<()> {
        let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
        let (row, used) = (&opened.listed.row, &opened.listed.used);
        writeln!(self.out, "{bold}{}{bold:#}", truncate(&row.title, self.width.unwrap_or(160)))?;
        let agent = format!("{} {}", row.agent, opened.version);
        let cost = if used.exchanges > used.unpriced { format!("${:.4}", used.cost) } else { String::new() };
        let words = vec![
            (0, row.id.clone()),
            (3, agent.trim().to_owned()),
            (1, row.model.clone()),
            (2, pluralize(row.turns, "turn")),
            (4, pluralize(used.exchanges, "exchange")),
            (1, format!("{} tokens in ({} cached)", count(used.input), count(used.cache_read))),
            (1, format!("{} out", count(used.output))),
            (1, cost),
        ];
        writeln!(self.out, "{dim}{}{dim:#}", fit_words(words, " · ", self.width))?;
        for note in &opened.listed.notes {
            let on = note.message.map_or_else(String::new, |k| format!("message {k:032x}: "));
            let tags = note.tags.iter().map(|t| format!("[{t}] ")).collect::<String>();
            writeln!(self.out, "note  {on}{tags}{}", truncate(note.comment.as_deref().unwrap_or_default(), 200))?;
        }
        for turn in &opened.thread.turns {
            writeln!(self.out, "\n{dim}── turn {} ──{dim:#}", turn.number)?;
            for item in &turn.items {
                self.item(opened, item)?;
            }
            let failed = turn.exchanges.iter().filter_map(|i| opened.thread.exchanges.get(*i));
            for e in failed.filter(|e| e.facts.error.is_some()) {
                let red = anstyle::AnsiColor::Red.on_default();
                let error = e.facts.error.as_deref().unwrap_or_default();
                writeln!(self.out, "{red}error{red:#} {}  {dim}{}{dim:#}", truncate(error, 300), e.flow)?;
            }
        }
        for b in &opened.thread.branches {
            let word = format!("{:?}", b.begins).to_lowercase();
            writeln!(self.out, "{dim}branch at turn {}: {word}: {}{dim:#}", b.turn, truncate(&b.text, 80))?;
        }
        Ok(())
    }

    fn item(&mut self, opened: &ConversationView, item: &ThreadItem) -> io::Result<()> {
        let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
        if let Some(begins) = item.begins {
            writeln!(self.out, "{dim}   — {} —{dim:#}", format!("{begins:?}").to_lowercase())?;
        }
        if let Some(e) = item.exchange.and_then(|i| opened.thread.exchanges.get(i)) {
            writeln!(self.out, "{dim}{}{dim:#}", exchange(e, self.width))?;
        }
        match &item.what {
            ItemKind::Text { text } => {
                let who = if item.role == MessageRole::User { "user" } else { "assistant" };
                writeln!(self.out, "{bold}{who}{bold:#}")?;
                self.text(text.trim(), self.full || item.role == MessageRole::Assistant)
            }
            ItemKind::Thinking { text } if !text.is_empty() && self.full => {
                writeln!(self.out, "{dim}thinking{dim:#}")?;
                self.text(text, true)
            }
            ItemKind::Context { text } if self.full => {
                writeln!(self.out, "{dim}context{dim:#}")?;
                self.text(text, true)
            }
            ItemKind::Thinking { .. } | ItemKind::Context { .. } => Ok(()),
            ItemKind::Tool { name, summary, input, result, child, .. } => {
                let cyan = anstyle::AnsiColor::Cyan.on_default();
                writeln!(self.out, "{cyan}{}{cyan:#} {}", truncate(name, 60), truncate(summary, 120))?;
                if self.full {
                    self.text(&serde_json::to_string_pretty(input).unwrap_or_default(), true)?;
                }
                if let Some(child) = child {
                    writeln!(self.out, "  {dim}sub-agent {child}{dim:#}")?;
                }
                match result {
                    Some(r) => {
                        let word = if r.is_error { "failed" } else { "result" };
                        writeln!(self.out, "  {dim}{word}{dim:#}")?;
                        self.text(&content_text(&r.content), self.full)
                    }
                    None => writeln!(self.out, "  {dim}no result recorded{dim:#}"),
                }
            }
            ItemKind::Image(r) | ItemKind::Document(r) => {
                let name = if r.title.is_empty() { &r.url } else { &r.title };
                writeln!(self.out, "[{} {}]", truncate(&r.media_type, 40), truncate(name, 80))
            }
            ItemKind::Error { name, message } => {
                let red = anstyle::AnsiColor::Red.on_default();
                writeln!(self.out, "{red}error {}{red:#} {}", truncate(name, 40), truncate(message, 300))
            }
            ItemKind::Other { name, value } => {
                let value = truncate(&value.to_string(), if self.full { 10_000 } else { 120 });
                writeln!(self.out, "{dim}{}{dim:#} {value}", truncate(name, 40))
            }
        }
    }

    /// Appends indented text without control characters.
    fn text(&mut self, text: &str, full: bool) -> io::Result<()> {
        let (lines, width) = if full { (usize::MAX, usize::MAX) } else { (MAX_LINES, MAX_WIDTH) };
        let all = text.lines().count();
        for line in text.lines().take(lines) {
            let plain: String =
                line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).take(width).collect();
            writeln!(self.out, "{}", wrap_words(&format!("  {plain}"), 2, self.width))?;
        }
        if all > lines {
            let dim = anstyle::Style::new().dimmed();
            writeln!(self.out, "  {dim}… {} more lines (use --full){dim:#}", all - lines)?;
        }
        Ok(())
    }
}

/// Formats an exchange as one line.
fn exchange(e: &CallView, width: Option<usize>) -> String {
    let mut words = vec![(0, e.model.clone())];
    if let Some(u) = &e.usage {
        words.push((1, format!("{} in ({} cached)", count(u.input), count(u.cache_read))));
        words.push((1, format!("{} out", count(u.output))));
        words.extend((u.reasoning > 0).then(|| (5, format!("{} reasoning", count(u.reasoning)))));
    }
    words.extend(e.cost.map(|c| (1, format!("${c:.4}"))));
    words.extend(e.facts.first_byte.map(|t| (4, format!("first byte {} ms", t / 1000))));
    words.push((2, format!("{:.1} s", e.facts.duration as f64 / 1e6)));
    words.extend(e.speed.map(|s| (6, format!("{s:.0} tokens/s"))));
    words.extend(e.facts.stop.clone().map(|stop| (3, stop)));
    words.extend(e.missed.then(|| (1, "cache missed".to_owned())));
    words.push((0, e.flow.clone()));
    fit_words(words.into_iter().map(|(rank, word)| (rank, truncate(&word, 100))).collect(), " · ", width)
}
