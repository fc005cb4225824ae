//! The screen: header, query, table or another view, and a last line of hints.

use interflow_archive::text::clean;
use interflow_types::units::pluralize;
use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};

use super::app::{Link, Screen, TopApp};
use super::keys::KEYS;
use super::pane::{FlowPane, PaneTab};
use super::query_input::QueryInput;
use super::table;
use crate::cli::output::fit_words;

/// Below this, nothing readable fits.
const MIN_SIZE: (u16, u16) = (20, 6);
/// From this width on, table and pane are side by side.
const SIDE_BY_SIDE: u16 = 150;
/// From this height on, table and pane are one above the other.
const STACKED: u16 = 30;

const HINTS: &str = "Enter open  / filter  p pause  h pending  y curl  r replay  B hold  ? help  q quit";
const PANE_HINTS: &str = "Tab next tab  j k scroll  J K next flow  b hex  y curl  r replay  Esc close";
const PENDING_HINTS: &str = "a allow once  d deny once  x drop message  e edit  j k select  Esc back";
const HELP_HINTS: &str = "Esc back  q quit";

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &mut TopApp, zone: &TimeZone) {
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        let text = format!("too small: {}x{} at least", MIN_SIZE.0, MIN_SIZE.1);
        frame.buffer_mut().set_stringn(area.x, area.y, text, usize::from(area.width), Style::new());
        return;
    }
    header(frame.buffer_mut(), row(area, 0), app);
    if let Some(cursor) = query_line(frame.buffer_mut(), row(area, 1), app) {
        frame.set_cursor_position(cursor);
    }
    let wrong = app.input.as_ref().and_then(|i| i.error.as_ref());
    let buffer = frame.buffer_mut();
    let below = if let Some(error) = wrong {
        let text = ["message", "remedy"].map(|name| error[name].as_str().unwrap_or_default());
        let text = clean(text.join("; ").trim_end_matches([' ', ';'])).into_owned();
        line(buffer, row(area, 2), &Line::styled(text, Color::Red));
        3
    } else {
        2
    };
    let body = Rect { y: area.y + below, height: area.height - below - 1, ..area };
    match app.screen {
        Screen::Flows => flows(buffer, body, app, zone),
        Screen::Pending => pending(buffer, body, app),
        Screen::Help => help(buffer, body),
    }
    footer(buffer, row(area, area.height - 1), app);
}

const fn row(area: Rect, y: u16) -> Rect {
    Rect { x: area.x, y: area.y + y, width: area.width, height: 1 }
}

fn line(buffer: &mut Buffer, area: Rect, line: &Line<'_>) {
    buffer.set_line(area.x, area.y, line, area.width);
}

fn header(buffer: &mut Buffer, area: Rect, app: &TopApp) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    // What needs attention is on the right; the figures have the rest of the line.
    let alert = |color| Style::new().fg(color).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let held = app.figures.as_ref().map_or(0, |f| f.held).max(app.pending.len() as u64);
    let mut states = Vec::new();
    if held > 0 {
        states.push(Span::styled(format!(" {held} held "), alert(Color::Yellow)));
    }
    if app.paused {
        states.push(Span::styled(" paused ", alert(Color::Blue)));
    }
    match app.link {
        Link::Gone => states.push(Span::styled(" instance gone: waiting for it ", alert(Color::Red))),
        Link::Connecting => states.push(Span::raw(" connecting ")),
        Link::Live => {}
    }
    let states = Line::from(states);
    let width = (states.width() as u16).min(area.width);
    buffer.set_line(area.x + area.width - width, area.y, &states, width);
    let room = area.width - width;
    buffer.set_line(area.x, area.y, &Line::styled("interflow", bold), room);
    if let Some((f, room)) = app.figures.as_ref().zip(room.checked_sub(12)) {
        let rate = f.requests_per_second.map_or_else(|| "-".into(), |r| format!("{r:.1}"));
        let words = vec![
            (5, f.version.clone()),
            (4, f.proxy.clone()),
            (3, format!("{rate} req/s")),
            (2, format!("{} open", f.connections)),
            (1, pluralize(f.errors, "error")),
        ];
        buffer.set_line(area.x + 11, area.y, &Line::raw(fit_words(words, "  ", Some(room.into()))), room);
    }
}

/// Draws the query; returns where the cursor is while it is edited.
fn query_line(buffer: &mut Buffer, area: Rect, app: &TopApp) -> Option<(u16, u16)> {
    let Some(input) = &app.input else {
        let query = if app.query.is_empty() { "all flows".into() } else { clean(&app.query) };
        let more = if app.list.has_older { "+" } else { "" };
        let follow = if app.list.is_following() { "" } else { ", not following (G does)" };
        let count = format!("   {}{more} shown{follow}", app.list.len());
        let dim = Style::new().add_modifier(Modifier::DIM);
        line(buffer, area, &Line::from(vec![Span::raw(query), Span::styled(count, dim)]));
        return None;
    };
    let width = usize::from(area.width) - 2;
    // The cursor stays visible in a query that is longer than the line.
    let skip = input.cursor.saturating_sub(width.saturating_sub(1));
    let mut spans = vec![Span::styled("/ ", Modifier::BOLD)];
    spans.extend(input_spans(input, skip));
    line(buffer, area, &Line::from(spans));
    let before: String = input.text.chars().skip(skip).take(input.cursor - skip).collect();
    let x = 2 + Span::raw(before).width().min(width.saturating_sub(1));
    Some((area.x + x as u16, area.y))
}

/// The text with the part that is wrong underlined.
fn input_spans(input: &QueryInput, skip: usize) -> Vec<Span<'_>> {
    let start = input.text.char_indices().nth(skip).map_or(input.text.len(), |(at, _)| at);
    let wrong = input.error.as_ref().and_then(|e| {
        let (from, to) = (e["start"].as_u64()? as usize, e["end"].as_u64()? as usize);
        Some((from.max(start), to.max(start)))
    });
    let style = Style::new().fg(Color::Red).add_modifier(Modifier::UNDERLINED);
    let part = |from: usize, to: usize| input.text.get(from..to);
    let parts = wrong.and_then(|(from, to)| Some((part(start, from)?, part(from, to)?, part(to, input.text.len())?)));
    match parts {
        Some((before, wrong, after)) => vec![Span::raw(before), Span::styled(wrong, style), Span::raw(after)],
        None => vec![Span::raw(&input.text[start..])],
    }
}

fn flows(buffer: &mut Buffer, area: Rect, app: &mut TopApp, zone: &TimeZone) {
    let Some(pane) = &mut app.pane else {
        app.page_height = table::draw(buffer, area, &mut app.list, zone);
        return;
    };
    let pane_area = if area.width >= SIDE_BY_SIDE {
        let half = area.width / 2;
        table::draw(buffer, Rect { width: half - 1, ..area }, &mut app.list, zone);
        for y in area.y..area.y + area.height {
            buffer.set_stringn(area.x + half - 1, y, "│", 1, Style::new().add_modifier(Modifier::DIM));
        }
        Rect { x: area.x + half, width: area.width - half, ..area }
    } else if area.height >= STACKED {
        let above = area.height / 3;
        table::draw(buffer, Rect { height: above, ..area }, &mut app.list, zone);
        Rect { y: area.y + above, height: area.height - above, ..area }
    } else {
        area
    };
    app.page_height = draw_pane(buffer, pane_area, pane);
}

/// Draws tabs and content; returns the height of the content.
fn draw_pane(buffer: &mut Buffer, area: Rect, pane: &mut FlowPane) -> usize {
    let height = usize::from(area.height.saturating_sub(1));
    let selected = pane.tab;
    let (first, lines, all) = pane.window(usize::from(area.width), height);
    for (i, text) in lines.iter().enumerate() {
        buffer.set_line(area.x, area.y + 1 + i as u16, text, area.width);
    }
    let tab = |tab: &PaneTab| {
        let style = if *tab == selected { Modifier::REVERSED } else { Modifier::empty() };
        // Narrow terminals have no place for the whole titles.
        let title = if area.width < 50 { &tab.as_str()[..3] } else { tab.as_str() };
        [Span::styled(format!(" {title} "), style | Modifier::BOLD), Span::raw(" ")]
    };
    let mut spans: Vec<_> = PaneTab::ALL.iter().flat_map(tab).collect();
    if all > height {
        let end = (first + height).min(all);
        spans.push(Span::styled(format!("{}-{end} of {all}", first + 1), Modifier::DIM));
    }
    buffer.set_style(Rect { height: 1, ..area }, Modifier::UNDERLINED);
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
    height
}

fn pending(buffer: &mut Buffer, area: Rect, app: &mut TopApp) {
    let title = match app.pending.len() {
        0 => "nothing is pending".to_owned(),
        n => format!("{n} pending"),
    };
    line(buffer, row(area, 0), &Line::styled(title, Modifier::BOLD));
    let listed = usize::from(area.height.saturating_sub(1) / 2).min(app.pending.len());
    for (i, text) in app.pending.rows(listed).iter().enumerate() {
        let line_area = row(area, 1 + i as u16);
        line(buffer, line_area, text);
        // The selected row as a whole.
        if text.style.add_modifier.contains(Modifier::REVERSED) {
            buffer.set_style(line_area, Modifier::REVERSED);
        }
    }
    let used = 1 + listed as u16;
    let Some(height) = area.height.checked_sub(used + 1) else { return };
    app.page_height = usize::from(height);
    for (i, text) in app.pending.detail(usize::from(area.width), usize::from(height)).iter().enumerate() {
        line(buffer, row(area, used + 1 + i as u16), text);
    }
}

fn help(buffer: &mut Buffer, area: Rect) {
    for (i, (keys, meaning)) in KEYS.iter().enumerate().take(usize::from(area.height)) {
        let keys = Span::styled(format!("{keys:<16} "), Modifier::BOLD);
        line(buffer, row(area, i as u16), &Line::from(vec![keys, Span::raw(*meaning)]));
    }
}

/// The hints that there is room for: the last two, which lead out, and the first ones before them.
fn fitted(hints: &str, width: u16) -> String {
    let mut hints: Vec<&str> = hints.split("  ").collect();
    while hints.join("  ").len() > usize::from(width) && hints.len() > 2 {
        hints.remove(hints.len() - 3);
    }
    hints.join("  ")
}

fn footer(buffer: &mut Buffer, area: Rect, app: &TopApp) {
    let hints = match (app.screen, &app.pane) {
        (Screen::Flows, None) => HINTS,
        (Screen::Flows, Some(_)) => PANE_HINTS,
        (Screen::Pending, _) => PENDING_HINTS,
        (Screen::Help, _) => HELP_HINTS,
    };
    let text = match &app.notice {
        Some((text, failed)) => {
            let color = if *failed { Color::Red } else { Color::Green };
            Line::styled(clean(text).into_owned(), color)
        }
        None => Line::styled(fitted(hints, area.width), Modifier::DIM),
    };
    line(buffer, area, &text);
}
