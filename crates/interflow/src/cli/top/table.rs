//! The table of flows: which columns fit, and the cells of a row.

use anstyle::AnsiColor;
use interflow_archive::text::{clean, duration, size};
use interflow_store::{FlowKind, FlowSummary};
use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Span;

use super::flow_list::FlowList;
use crate::cli::flows::table::{kind, method, moment, status};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Time,
    Method,
    /// Host and path together.
    Target,
    Host,
    Path,
    Status,
    Type,
    Size,
    Took,
    Marks,
}

impl Column {
    /// The title, and the width: `None` for the column that takes what is left.
    const fn heading(self) -> (&'static str, Option<u16>) {
        match self {
            Self::Time => ("TIME", Some(8)),
            Self::Method => ("METHOD", Some(7)),
            Self::Target => ("HOST AND PATH", None),
            Self::Host => ("HOST", Some(28)),
            Self::Path => ("PATH", None),
            Self::Status => ("STAT", Some(4)),
            Self::Type => ("TYPE", Some(10)),
            Self::Size => ("SIZE", Some(7)),
            Self::Took => ("TOOK", Some(8)),
            Self::Marks => ("MARKS", Some(14)),
        }
    }

    const fn is_right_aligned(self) -> bool {
        matches!(self, Self::Size | Self::Took)
    }
}

/// The columns for a width, the most telling ones first to stay.
const fn columns(width: u16) -> &'static [Column] {
    use Column::*;
    match width {
        0..40 => &[Status, Target],
        40..70 => &[Method, Target, Status, Took],
        70..100 => &[Time, Method, Target, Status, Type, Size, Took],
        100..140 => &[Time, Method, Target, Status, Type, Size, Took, Marks],
        _ => &[Time, Method, Host, Path, Status, Type, Size, Took, Marks],
    }
}

/// Draws heading and rows; returns how many rows there was place for.
pub fn draw(buffer: &mut Buffer, area: Rect, list: &mut FlowList, zone: &TimeZone) -> usize {
    let Some(height) = area.height.checked_sub(1) else { return 0 };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let columns = columns(area.width);
    draw_row(buffer, (area.x, area.y), area.width, columns, |c| (c.heading().0.to_owned(), bold));
    let selected = list.selected_index();
    let (first, rows) = list.window(usize::from(height));
    for (i, flow) in rows.iter().enumerate() {
        let y = area.y + 1 + i as u16;
        draw_row(buffer, (area.x, y), area.width, columns, |column| cell(flow, column, zone));
        if selected == Some(first + i) {
            buffer.set_style(Rect { y, height: 1, ..area }, Modifier::REVERSED);
        }
    }
    usize::from(height)
}

fn draw_row(
    buffer: &mut Buffer,
    (mut x, y): (u16, u16),
    width: u16,
    columns: &[Column],
    cell: impl Fn(Column) -> (String, Style),
) {
    let gaps = columns.len().saturating_sub(1) as u16;
    let fixed: u16 = columns.iter().filter_map(|c| c.heading().1).sum();
    let rest = width.saturating_sub(fixed + gaps);
    for column in columns {
        let width = column.heading().1.unwrap_or(rest);
        let (text, style) = cell(*column);
        put(buffer, (x, y), width, &text, style, column.is_right_aligned());
        x += width + 1;
    }
}

/// Writes a text into a field, with an ellipsis if it is cut.
fn put(buffer: &mut Buffer, (x, y): (u16, u16), width: u16, text: &str, style: Style, right: bool) {
    let needed = Span::raw(text).width();
    let free = usize::from(width).saturating_sub(needed) as u16;
    let at = if right { x + free } else { x };
    let (end, _) = buffer.set_stringn(at, y, text, usize::from(width), style);
    if needed > usize::from(width) && width > 0 {
        // The last cell may be the second half of a wide character, whose first half would then hang over.
        let last = x + width - 1;
        buffer.set_stringn(end.min(last), y, "…", 1, style);
    }
}

fn cell(flow: &FlowSummary, column: Column, zone: &TimeZone) -> (String, Style) {
    let plain = Style::new();
    let dim = plain.add_modifier(Modifier::DIM);
    match column {
        Column::Time => (moment(flow.started).to_zoned(zone.clone()).strftime("%H:%M:%S").to_string(), dim),
        Column::Method => (clean(method(flow)).into_owned(), plain),
        Column::Target => (host(flow) + &path(flow), plain),
        Column::Host => (host(flow), plain),
        Column::Path => (path(flow), plain),
        Column::Status => {
            let (text, colour) = status(flow);
            (text, plain.fg(color(colour)))
        }
        Column::Type => (kind(flow), plain),
        Column::Size => (size(flow.response_size), plain),
        Column::Took => (duration(flow.duration), dim),
        Column::Marks => (marks(flow), plain.fg(Color::Magenta)),
    }
}

fn host(flow: &FlowSummary) -> String {
    clean(&match flow.kind {
        FlowKind::Tunnel => flow.authority.to_string(),
        _ => flow.authority.to_host_header(flow.scheme).to_string(),
    })
    .into_owned()
}

fn path(flow: &FlowSummary) -> String {
    clean(flow.path.as_deref().unwrap_or_default()).into_owned()
}

fn marks(flow: &FlowSummary) -> String {
    let replay = flow.parent.is_some().then(|| "replay".to_owned());
    let messages = (flow.messages > 0).then(|| format!("{} msg", flow.messages));
    let tags = flow.tags.iter().map(|t| clean(t).into_owned());
    replay.into_iter().chain(messages).chain(tags).collect::<Vec<_>>().join(" ")
}

const fn color(color: AnsiColor) -> Color {
    match color {
        AnsiColor::Red => Color::Red,
        AnsiColor::Green => Color::Green,
        AnsiColor::Yellow => Color::Yellow,
        AnsiColor::Blue => Color::Blue,
        AnsiColor::Cyan => Color::Cyan,
        _ => Color::Reset,
    }
}
