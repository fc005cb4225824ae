//! Formats flows as table rows, truncated to the terminal's width.

use std::io::{self, IsTerminal as _, Write};

use anstyle::{AnsiColor, Style};
use interflow_archive::text::{duration, size};
use interflow_store::{FlowKind, FlowState, FlowSummary};
use interflow_types::{Passthrough, Timestamp};
use jiff::tz::TimeZone;

/// Length of the ID suffix shown; enough to select a flow.
const ID: usize = 8;
/// Minimum width of host and path.
const MIN_TARGET_WIDTH: usize = 20;
/// Maximum padding for alignment if nothing is truncated.
const MAX_FILL: usize = 80;

pub struct FlowTable {
    /// Terminal width; `None` disables truncation.
    width: Option<usize>,
    zone: TimeZone,
    /// Show the date in addition to the time.
    dated: bool,
    /// Padded width of host and path if nothing is truncated.
    fill: usize,
}

impl FlowTable {
    /// Layout for flows that are not known in advance.
    pub fn streaming(dated: bool) -> Self {
        Self { width: width(), zone: TimeZone::system(), dated, fill: MAX_FILL / 2 }
    }

    /// Layout for these flows.
    pub fn for_flows(flows: &[FlowSummary]) -> Self {
        let zone = TimeZone::system();
        let today = day(Timestamp::now(), &zone);
        let dated = flows.iter().any(|f| day(f.started, &zone) != today);
        let longest = flows.iter().map(|f| target(f).chars().count()).max().unwrap_or_default();
        Self { width: width(), zone, dated, fill: longest.clamp(MIN_TARGET_WIDTH, MAX_FILL) }
    }

    /// Writes the header row.
    pub fn heading(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let bold = Style::new().bold();
        let (time, target) = (self.time_width(), self.target_width());
        let target = format!("{:<1$}", "HOST AND PATH", target.unwrap_or(self.fill));
        writeln!(
            out,
            "{bold}{:<ID$}  {:<time$}  STAT  {:<7} {target}  {:<10} {:>7} {:>7}  MARKS{bold:#}",
            "ID", "TIME", "METHOD", "TYPE", "SIZE", "TOOK"
        )
    }

    pub fn line(&self, out: &mut (impl Write + ?Sized), flow: &FlowSummary) -> io::Result<()> {
        let dim = Style::new().dimmed();
        let (status, colour) = status(flow);
        let colour = colour.on_default();
        let id = flow.id.to_string();
        let target = self.target(flow);
        let marks = flow.tags.iter().map(|t| printable(t)).collect::<Vec<_>>().join(" ");
        let line = format!(
            "{dim}{}  {}{dim:#}  {colour}{status:<4}{colour:#}  {:<7} {target}  {:<10} {:>7} {dim}{:>7}{dim:#}  {marks}",
            &id[id.len() - ID..],
            self.time(flow.started),
            fit(&printable(flow.method.as_deref().unwrap_or("-")), 7),
            fit(&kind(flow), 10),
            size(flow.response_size),
            duration(flow.duration),
        );
        writeln!(out, "{}", line.trim_end())
    }

    fn target(&self, flow: &FlowSummary) -> String {
        match self.target_width() {
            Some(width) => format!("{:<width$}", fit(&target(flow), width)),
            None => format!("{:<1$}", target(flow), self.fill),
        }
    }

    /// Width left by the other columns.
    fn target_width(&self) -> Option<usize> {
        let others = ID + 2 + self.time_width() + 2 + 4 + 2 + 7 + 1 + 2 + 10 + 1 + 7 + 1 + 7 + 2 + 8;
        self.width.map(|w| w.saturating_sub(others).max(MIN_TARGET_WIDTH))
    }

    const fn time_width(&self) -> usize {
        if self.dated { 14 } else { 8 }
    }

    fn time(&self, at: Timestamp) -> String {
        let form = if self.dated { "%m-%d %H:%M:%S" } else { "%H:%M:%S" };
        moment(at).to_zoned(self.zone.clone()).strftime(form).to_string()
    }
}

fn target(flow: &FlowSummary) -> String {
    match flow.kind {
        FlowKind::Tunnel => flow.authority.to_string(),
        _ => {
            let path = flow.path.as_deref().unwrap_or_default();
            printable(&format!("{}{path}", flow.authority.to_host_header(flow.scheme)))
        }
    }
}

pub fn moment(at: Timestamp) -> jiff::Timestamp {
    i64::try_from(at.micros()).ok().and_then(|m| jiff::Timestamp::from_microsecond(m).ok()).unwrap_or_default()
}

fn day(at: Timestamp, zone: &TimeZone) -> jiff::civil::Date {
    moment(at).to_zoned(zone.clone()).date()
}

pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    columns.or_else(|| terminal_size::terminal_size().map(|(w, _)| usize::from(w.0)))
}

pub fn status(flow: &FlowSummary) -> (String, AnsiColor) {
    match (flow.status, flow.state) {
        (Some(status), FlowState::Failed | FlowState::Cut) => (status.to_string(), AnsiColor::Red),
        (Some(status), _) => {
            let colour = match status {
                200..300 => AnsiColor::Green,
                300..400 => AnsiColor::Cyan,
                400..500 => AnsiColor::Yellow,
                _ => AnsiColor::Red,
            };
            (status.to_string(), colour)
        }
        (None, FlowState::Failed) => ("ERR".to_owned(), AnsiColor::Red),
        (None, FlowState::Cut) => ("CUT".to_owned(), AnsiColor::Red),
        (None, FlowState::Open) => ("...".to_owned(), AnsiColor::Blue),
        (None, FlowState::Complete) => ("-".to_owned(), AnsiColor::Green),
    }
}

/// Short name of the response's media type; for a failed flow, the error kind.
pub fn kind(flow: &FlowSummary) -> String {
    match (flow.kind, &flow.error, flow.response_type.as_deref()) {
        (_, Some(error), None) => error.to_string(),
        (FlowKind::Tunnel, ..) => match flow.passthrough.as_deref().and_then(Passthrough::from_label) {
            Some(why) => why.short_label().to_owned(),
            None => "tunnel".to_owned(),
        },
        (FlowKind::WebSocket, ..) => "websocket".to_owned(),
        (_, _, Some(media)) => {
            let sub = media.rsplit('/').next().unwrap_or(media);
            printable(sub.split('+').next().unwrap_or(sub).trim_start_matches("x-"))
        }
        (_, None, None) => "-".to_owned(),
    }
}

/// Removes control characters, because peers must not control the terminal.
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Truncates to a width, with an ellipsis.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_store::{FlowRow, ResponseRow};
    use interflow_types::{EntryKind, FlowId, Scheme};

    fn row(path: &str) -> FlowSummary {
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let mut row =
            FlowRow::new(FlowId::new(at), at, EntryKind::Absolute, Scheme::Http, "a.test:80".parse().unwrap());
        let response = r#"{"status":404,"version":"HTTP/1.1","headers":[["Content-Type","image/svg+xml"]]}"#;
        row.response = Some(serde_json::from_str::<ResponseRow>(response).unwrap());
        FlowSummary { path: Some(path.to_owned()), method: Some("GET".into()), ..row.summary(at) }
    }

    fn drawn(width: Option<usize>, flow: &FlowSummary) -> String {
        let table = FlowTable { width, zone: TimeZone::UTC, dated: false, fill: MIN_TARGET_WIDTH };
        let mut out = Vec::new();
        table.line(&mut out, flow).unwrap();
        anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
    }

    #[test]
    fn table_line_is_truncated_to_the_terminal_width() {
        let flow = row(&format!("/{}", "long".repeat(50)));
        for width in [80, 100, 200] {
            let line = drawn(Some(width), &flow);
            assert!(line.trim_end().chars().count() <= width.max(92), "{width}: {line}");
            assert!(line.contains('…'), "{line}");
        }
        assert!(drawn(None, &flow).contains(&"long".repeat(50)));
    }

    #[test]
    fn table_columns_describe_a_flow() {
        let line = drawn(None, &row("/x"));
        for word in ["22:13:20", " 404 ", " GET ", "a.test/x", " svg "] {
            assert!(line.contains(word), "{word} in {line}");
        }
    }

    #[test]
    fn path_cannot_inject_terminal_control_sequences() {
        let line = drawn(None, &row("/\u{1b}]0;owned\u{7}\u{202e}"));
        assert!(!line.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{line:?}");
    }
}
