//! The pane of one flow: overview, request, response, timing.

use interflow_archive::text::{clean, clean_lines, duration, size};
use interflow_store::FlowRecord;
use interflow_types::{Direction, FlowId, FlowTimings, Headers, Passthrough, labelled_enum};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use super::wrap::wrap;
use crate::cli::flows::show::{attempt_words, client_lines, edited_lines, upstream_lines};

/// Bytes of a body that are loaded as text.
pub const BODY_LIMIT: usize = 256 << 10;
/// Bytes of a body that are loaded as a hex dump, which is five times as long.
pub const HEX_LIMIT: usize = 32 << 10;
/// Width of the names before values.
const NAME_WIDTH: usize = 10;
/// Width of the longest bar.
const BAR_WIDTH: u64 = 40;

labelled_enum! {
    /// A tab, labelled by its title.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum PaneTab {
        #[default]
        Overview "Overview",
        Request "Request",
        Response "Response",
        Timing "Timing",
    }
}

impl PaneTab {
    pub fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// A body as the instance renders it.
pub struct BodyText {
    pub text: String,
    /// Whether there may be more than this.
    pub truncated: bool,
}

pub struct FlowPane {
    pub id: FlowId,
    pub tab: PaneTab,
    /// Whether the operator wants bodies as hex dumps.
    pub hex: bool,
    flow: Option<Result<Box<FlowRecord>, String>>,
    /// By the numbers of the sides.
    bodies: [Option<Result<BodyText, String>>; 2],
    scroll: usize,
    /// The lines of the tab for a width.
    lines: Option<(usize, Vec<Line<'static>>)>,
}

impl FlowPane {
    pub fn new(id: FlowId, tab: PaneTab) -> Self {
        Self { id, tab, hex: false, flow: None, bodies: [None, None], scroll: 0, lines: None }
    }

    pub fn select(&mut self, tab: PaneTab) {
        (self.tab, self.scroll, self.lines) = (tab, 0, None);
    }

    pub fn set_flow(&mut self, flow: Result<Box<FlowRecord>, String>) {
        (self.flow, self.lines) = (Some(flow), None);
    }

    pub fn set_body(&mut self, side: Direction, body: Result<BodyText, String>) {
        self.bodies[side as usize] = Some(body);
        self.lines = None;
    }

    /// The bodies that are not shown yet, or have grown since.
    pub fn bodies_to_load(&self, new: &FlowRecord) -> Vec<Direction> {
        let loaded_size = |side| match &self.flow {
            Some(Ok(old)) => old.body(side).map_or(0, |b| b.kept),
            _ => 0,
        };
        let grown = |side: &Direction| new.body(*side).is_some_and(|b| b.kept > loaded_size(*side));
        [Direction::Request, Direction::Response].into_iter().filter(grown).collect()
    }

    /// Changes between text and hex dumps; returns which is wanted now.
    pub fn toggle_hex(&mut self) -> bool {
        self.hex = !self.hex;
        self.bodies = [None, None];
        (self.scroll, self.lines) = (0, None);
        self.hex
    }

    /// The sides that have a body.
    pub fn sides(&self) -> impl Iterator<Item = Direction> {
        let row = self.flow.as_ref().and_then(|f| f.as_ref().ok());
        [Direction::Request, Direction::Response]
            .into_iter()
            .filter(move |side| row.and_then(|r| r.body(*side)).is_some_and(|b| b.kept > 0))
    }

    pub fn scroll_by(&mut self, lines: isize) {
        self.scroll = self.scroll.saturating_add_signed(lines);
    }

    /// The visible lines for this size, and how many there are in all.
    pub fn window(&mut self, width: usize, height: usize) -> (usize, &[Line<'static>], usize) {
        if self.lines.as_ref().is_none_or(|(made_for, _)| *made_for != width) {
            let lines = self.content().into_iter().flat_map(|l| wrap(&l, width)).collect();
            self.lines = Some((width, lines));
        }
        let lines = self.lines.as_ref().map_or(&[][..], |(_, lines)| lines);
        self.scroll = self.scroll.min(lines.len().saturating_sub(height));
        let end = (self.scroll + height).min(lines.len());
        (self.scroll, &lines[self.scroll..end], lines.len())
    }

    fn content(&self) -> Vec<Line<'static>> {
        match (&self.flow, self.tab) {
            (None, _) => vec![Line::raw("loading …")],
            (Some(Err(why)), _) => vec![bad(why)],
            (Some(Ok(flow)), PaneTab::Overview) => overview(flow),
            (Some(Ok(flow)), PaneTab::Request) => self.message(flow, Direction::Request),
            (Some(Ok(flow)), PaneTab::Response) => self.message(flow, Direction::Response),
            (Some(Ok(flow)), PaneTab::Timing) => timing(&flow.timings),
        }
    }

    fn message(&self, flow: &FlowRecord, side: Direction) -> Vec<Line<'static>> {
        let (start, headers, trailers) = match (side, &flow.request, &flow.response) {
            (Direction::Request, Some(r), _) => {
                (format!("{} {} {}", r.method, r.path, r.version), &r.headers, &r.trailers)
            }
            (Direction::Response, _, Some(r)) => {
                let reason = String::from_utf8_lossy(&r.reason);
                (format!("{} {} {reason}", r.version, r.status), &r.headers, &r.trailers)
            }
            _ => return vec![Line::raw(format!("there is no {}", side.as_str()))],
        };
        let mut lines = vec![Line::styled(clean(&start).into_owned(), Modifier::BOLD)];
        lines.extend(fields(headers));
        lines.push(Line::default());
        let Some(known) = flow.body(side).filter(|b| b.size > 0) else { return lines };
        match &self.bodies[side as usize] {
            None if known.kept > 0 => lines.push(Line::raw("loading …")),
            None => {}
            Some(Err(why)) => lines.push(bad(why)),
            Some(Ok(body)) => {
                lines.extend(clean_lines(&body.text).lines().map(|l| Line::raw(l.replace('\t', "    "))));
                if body.truncated {
                    let (id, side) = (flow.id, side.as_str());
                    lines.push(dim(format!("… cut here: `interflow flows show {id} --body {side}` prints all of it")));
                }
            }
        }
        if let Some(why) = known.missing_explanation() {
            lines.push(dim(format!("{} of {} recorded: {why}", size(known.kept), size(known.size))));
        }
        lines.extend(fields(trailers));
        lines
    }
}

fn bad(text: &str) -> Line<'static> {
    Line::styled(clean(text).into_owned(), Color::Red)
}

fn dim(text: String) -> Line<'static> {
    Line::styled(text, Modifier::DIM)
}

/// Header fields, as the peer wrote them.
pub fn fields(headers: &Headers) -> impl Iterator<Item = Line<'static>> {
    headers.iter().map(|(name, value)| field_line(&String::from_utf8_lossy(name), &String::from_utf8_lossy(value)))
}

pub fn field_line(name: &str, value: &str) -> Line<'static> {
    let name = Span::styled(format!("{}: ", clean(name)), Style::new().fg(Color::Cyan));
    Line::from(vec![name, Span::raw(clean(value).into_owned())])
}

/// A name in a column of its own, and its value.
pub fn fact(name: &str, value: &str) -> Line<'static> {
    let name = Span::styled(format!("{name:<NAME_WIDTH$} "), Modifier::DIM);
    Line::from(vec![name, Span::raw(clean(value).into_owned())])
}

fn overview(flow: &FlowRecord) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(clean(&flow.url()).into_owned(), Modifier::BOLD)];
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(fact(name, &value));
        }
    };
    let media = |side| flow.media_type(side).map(|m| format!(", {m}")).unwrap_or_default();
    add("id", flow.id.to_string());
    add("state", format!("{:?}", flow.state).to_ascii_lowercase());
    if let Some(r) = &flow.request {
        add("request", format!("{} {}, {}{}", r.method, r.version, size(r.body.size), media(Direction::Request)));
    }
    if let Some(r) = &flow.response {
        add("response", format!("{} {}, {}{}", r.status, r.version, size(r.body.size), media(Direction::Response)));
    }
    if let Some(e) = &flow.error {
        add("error", format!("{}: {}", e.kind, e.message));
    }
    add("duration", flow.duration().map(duration).unwrap_or_default());
    if let Some(t) = flow.tunnel {
        add("tunnel", format!("{} sent, {} received", size(t.sent), size(t.received)));
    }
    if let Some(label) = flow.passthrough.as_deref() {
        let why = Passthrough::from_label(label).map_or(label, |why| why.explanation());
        add("passed", format!("through uninspected: {why}"));
    }
    if flow.messages > 0 {
        add("messages", format!("{}; `interflow flows show {}` prints them", flow.messages, flow.id));
    }
    add("user", flow.user.as_deref().unwrap_or_default().to_owned());
    add("client", client_lines(flow).join(", "));
    add("upstream", upstream_lines(flow).join(", "));
    flow.attempts.iter().for_each(|attempt| add("attempt", attempt_words(attempt).join(", ")));
    add("edited", edited_lines(flow).join(", "));
    add("tags", flow.tags.join(" "));
    add("comment", flow.comment.clone().unwrap_or_default());
    add("replay of", flow.parent.map(|p| p.to_string()).unwrap_or_default());
    lines
}

fn timing(t: &FlowTimings) -> Vec<Line<'static>> {
    let all = [t.done, t.last_byte, t.first_byte, t.request_sent].into_iter().flatten().max().unwrap_or_default();
    let lengths = [("waited", t.blocked), ("dns", t.dns), ("connect", t.connect), ("tls", t.tls)];
    let moments = [
        ("request", t.request_body),
        ("sent", t.request_sent),
        ("first byte", t.first_byte),
        ("last byte", t.last_byte),
        ("done", t.done),
    ];
    let bar = |micros: u64| {
        "▬".repeat(micros.saturating_mul(BAR_WIDTH).checked_div(all).unwrap_or_default().min(BAR_WIDTH) as usize)
    };
    let line = |name: &str, micros: u64| {
        Line::from(vec![
            Span::styled(format!("{name:<NAME_WIDTH$} "), Modifier::DIM),
            Span::raw(format!("{:>8}  ", duration(micros))),
            Span::styled(bar(micros), Style::new().fg(Color::Blue)),
        ])
    };
    let listed = |all: &[(&str, Option<u64>)]| -> Vec<_> {
        all.iter().filter_map(|(name, micros)| Some(line(name, (*micros)?))).collect()
    };
    let mut lines = vec![Line::styled("durations", Modifier::BOLD)];
    lines.extend(listed(&lengths));
    lines.push(Line::styled("since the beginning", Modifier::BOLD));
    lines.extend(listed(&moments));
    lines
}
