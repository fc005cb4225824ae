//! The list of pending requests, and the selected one in full.

use std::time::{Duration, Instant};

use interflow_archive::text::{clean, clean_lines, size};
use interflow_types::Timestamp;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};
use serde_json::Value;

use super::command::TopCommand;
use super::edit::EditRequest;
use super::pane::{fact, field_line};
use super::wrap::wrap;
use crate::cli::approvals::pending::PendingLine;
use crate::cli::output::{clock, member, members};

/// How long nothing is decided after another request has taken the place of the selected one: the key may have been
/// meant for that.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct PendingView {
    /// As `GET /pending` gives them, the one that waits longest first.
    items: Vec<Value>,
    selected: usize,
    /// Lines by which the selected one is scrolled.
    scroll: usize,
    /// When another one took the place of the selected one.
    replaced: Option<Instant>,
}

impl PendingView {
    pub fn replace(&mut self, items: Vec<Value>) {
        let chosen = self.items.get(self.selected).map(|i| member(i, "id"));
        self.items = items;
        let index = self.items.iter().position(|i| Some(member(i, "id")) == chosen);
        if index.is_none() {
            self.scroll = 0;
            self.replaced = chosen.filter(|_| !self.items.is_empty()).map(|_| Instant::now());
        }
        self.selected = index.unwrap_or(self.selected).min(self.items.len().saturating_sub(1));
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn move_by(&mut self, rows: isize) {
        self.selected = self.selected.saturating_add_signed(rows).min(self.items.len().saturating_sub(1));
        (self.scroll, self.replaced) = (0, None);
    }

    pub fn scroll_by(&mut self, lines: isize) {
        self.scroll = self.scroll.saturating_add_signed(lines);
    }

    /// The selected one, once it could be looked at.
    fn seen(&self) -> Result<&Value, &'static str> {
        let item = self.items.get(self.selected).ok_or("nothing is pending")?;
        if self.replaced.is_some_and(|at| at.elapsed() < LOOK) {
            return Err("the selected one has just gone: look at this one first");
        }
        Ok(item)
    }

    /// The selected one, to be changed.
    pub fn editable(&self) -> Result<EditRequest, &'static str> {
        let item = self.seen()?;
        if member(item, "kind") != "rule" {
            return Err("only what a rule holds can be changed; a allows this one");
        }
        Ok(EditRequest(item.clone()))
    }

    /// What a key decides about the selected one.
    pub fn decision(&self, key: char) -> Result<TopCommand, &'static str> {
        let item = self.seen()?;
        let action = match key {
            'd' => "deny",
            'x' if member(item, "what") != "message" => return Err("only a message can be dropped; d denies"),
            'x' => "drop",
            _ => "allow",
        };
        Ok(TopCommand::Decide { id: member(item, "id"), action })
    }

    /// A line for each, at most `height` of them around the selected one.
    pub fn rows(&self, height: usize) -> Vec<Line<'static>> {
        let now = Timestamp::now().micros();
        let first = (self.selected + 1).saturating_sub(height);
        let line = |(at, item): (usize, &Value)| {
            let PendingLine { id, left, waiting, who, place, behind } = PendingLine::from_json(item, now);
            let text = format!("{id:>7}  {:>5} left  {waiting} waiting  {who}  {place}{behind}", clock(left));
            let selected = if at == self.selected { Modifier::REVERSED } else { Modifier::empty() };
            Line::styled(clean(&text).into_owned(), selected)
        };
        self.items.iter().enumerate().skip(first).take(height).map(line).collect()
    }

    /// The visible lines of the selected one.
    pub fn detail(&mut self, width: usize, height: usize) -> Vec<Line<'static>> {
        let Some(item) = self.items.get(self.selected) else { return Vec::new() };
        let lines: Vec<_> = detail_lines(item).iter().flat_map(|l| wrap(l, width)).collect();
        self.scroll = self.scroll.min(lines.len().saturating_sub(height));
        lines.into_iter().skip(self.scroll).take(height).collect()
    }
}

fn detail_lines(item: &Value) -> Vec<Line<'static>> {
    let title = format!("{} {}", member(item, "method"), member(item, "url"));
    let mut lines = vec![Line::styled(clean(title.trim()).into_owned(), Modifier::BOLD)];
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(fact(name, &value));
        }
    };
    let client = &item["client"];
    let who = ["address", "user", "process", "container"].map(|name| member(client, name));
    let who: Vec<_> = who.into_iter().filter(|w| !w.is_empty()).collect();
    add("held", format!("{} in the phase {}", member(item, "what"), item["phase"].as_str().unwrap_or("of approval")));
    add("rule", member(item, "rule"));
    add("note", member(item, "note"));
    add("status", member(item, "status"));
    add("replica", member(item, "replica"));
    add("client", who.join(", "));
    let word = if item["on_timeout"] == "deny" { "is denied" } else { "continues" };
    add("timeout", format!("then it {word}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines.extend(members(item, "headers").map(|field| field_line(&text(&field[0]), &text(&field[1]))));
    let body_size = item["body_size"].as_u64().unwrap_or_default();
    lines.push(Line::default());
    match item["body"].as_str() {
        Some(body) => lines.extend(clean_lines(body).lines().map(|l| Line::raw(l.replace('\t', "    ")))),
        None if body_size > 0 => {
            let text = format!("a body of {}, not shown", size(body_size));
            lines.push(Line::from(Span::styled(text, Style::new().fg(Color::Yellow))));
        }
        None => {}
    }
    lines
}
