//! Formats flows as table rows, truncated to the terminal's width.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use interflow_archive::text::{duration, size};
use interflow_host::terminal::printable;
use interflow_store::{FlowKind, FlowState, FlowSummary};
use interflow_types::{Passthrough, Timestamp};
use jiff::tz::TimeZone;

use crate::cli::output::{fit, pad, terminal_width, text_width};

/// Length of the ID suffix shown; enough to select a flow.
const ID: usize = 8;
const STATUS: usize = 4;
const METHOD: usize = 7;
const MEDIA_TYPE: usize = 10;
const SIZE: usize = 7;
const DURATION: usize = 7;
/// Width of host and path below which other columns are left out.
const MIN_TARGET_WIDTH: usize = 20;
/// Width of the marks below which other columns are left out: `redacted`.
const MIN_MARKS_WIDTH: usize = 8;
/// Maximum padding for alignment if nothing is truncated.
const MAX_FILL: usize = 80;

pub struct FlowTable {
    zone: TimeZone,
    layout: Layout,
}

/// The columns of a table. The ID, the status, the method, the target and the marks are always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Show the date in addition to the time.
    dated: bool,
    has_time: bool,
    has_media_type: bool,
    has_size: bool,
    has_duration: bool,
    target: usize,
    /// Widths of host and path, and of the marks, behind which they are truncated; `None` without a terminal.
    limits: Option<(usize, usize)>,
}

impl Layout {
    /// Leaves out columns, the least important first, until a row fits the width. `target` and `marks` are the widths of the longest
    /// ones.
    fn new(width: Option<usize>, dated: bool, target: usize, marks: usize) -> Self {
        let target = target.clamp(MIN_TARGET_WIDTH, MAX_FILL);
        let all = Self {
            dated,
            has_time: true,
            has_media_type: true,
            has_size: true,
            has_duration: true,
            target,
            limits: None,
        };
        let Some(width) = width else { return all };
        let mut layout = all;
        // Two spaces separate the marks.
        let least_marks = if marks == 0 { 0 } else { 2 + marks.min(MIN_MARKS_WIDTH) };
        let leave_out: [fn(&mut Self); 4] = [
            |layout| layout.has_duration = false,
            |layout| layout.has_media_type = false,
            |layout| layout.has_size = false,
            |layout| layout.has_time = false,
        ];
        for leave_out in leave_out {
            if layout.other_columns() + MIN_TARGET_WIDTH + least_marks <= width {
                break;
            }
            leave_out(&mut layout);
        }
        let rest = width.saturating_sub(layout.other_columns());
        layout.target = target.min(rest.saturating_sub(least_marks));
        layout.limits = Some((layout.target, rest.saturating_sub(layout.target + 2)));
        layout
    }

    /// The width of everything but target and marks, with the spaces between.
    fn other_columns(&self) -> usize {
        let optional = |there: bool, width: usize| if there { width } else { 0 };
        let time = optional(self.has_time, 2 + self.time_width());
        let media_type = optional(self.has_media_type, 2 + MEDIA_TYPE);
        let size = optional(self.has_size, 1 + SIZE);
        let duration = optional(self.has_duration, 1 + DURATION);
        ID + time + 2 + STATUS + 2 + METHOD + 1 + media_type + size + duration
    }

    const fn time_width(&self) -> usize {
        if self.dated { 14 } else { 8 }
    }
}

impl FlowTable {
    /// Layout for flows that are not known in advance.
    pub fn streaming(dated: bool) -> Self {
        Self { zone: TimeZone::system(), layout: Layout::new(terminal_width(), dated, MAX_FILL / 2, MIN_MARKS_WIDTH) }
    }

    /// Layout for these flows.
    pub fn for_flows(flows: &[FlowSummary]) -> Self {
        let zone = TimeZone::system();
        let today = day(Timestamp::now(), &zone);
        let dated = flows.iter().any(|f| day(f.started, &zone) != today);
        let longest = |text: fn(&FlowSummary) -> String| flows.iter().map(|f| text_width(&text(f))).max().unwrap_or(0);
        Self { zone, layout: Layout::new(terminal_width(), dated, longest(target), longest(marks)) }
    }

    /// Writes the header row.
    pub fn heading(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let bold = Style::new().bold();
        let Layout { target, .. } = self.layout;
        let columns = self.columns(["ID", "TIME", "STAT", "METHOD", "TYPE", "SIZE", "TOOK"].map(str::to_owned));
        let [id, time, status, method, media_type, size, duration] = columns;
        let target = pad("HOST AND PATH", target);
        let marks = self.layout.limits.map_or("MARKS".to_owned(), |(_, width)| fit("MARKS", width));
        let line = format!("{id}{time}{status}{method}{target}{media_type}{size}{duration}  {marks}");
        writeln!(out, "{bold}{}{bold:#}", line.trim_end())
    }

    pub fn line(&self, out: &mut (impl Write + ?Sized), flow: &FlowSummary) -> io::Result<()> {
        let dim = Style::new().dimmed();
        let (status, colour) = status(flow);
        let colour = colour.on_default();
        let id = flow.id.to_string();
        let time = moment(flow.started).to_zoned(self.zone.clone());
        let form = if self.layout.dated { "%m-%d %H:%M:%S" } else { "%H:%M:%S" };
        let [id, time, status, method, media_type, response_size, took] = self.columns([
            id[id.len() - ID..].to_owned(),
            time.strftime(form).to_string(),
            status,
            pad(&printable(method(flow)), METHOD),
            pad(&kind(flow), MEDIA_TYPE),
            size(flow.response_size),
            duration(flow.duration),
        ]);
        let (mut target, mut marks) = (target(flow), marks(flow));
        if let Some((target_width, marks_width)) = self.layout.limits {
            target = fit(&target, target_width);
            marks = fit(&marks, marks_width);
        }
        target += &" ".repeat(self.layout.target.saturating_sub(text_width(&target)));
        let line = format!(
            "{dim}{id}{time}{dim:#}{colour}{status}{colour:#}{method}{target}{media_type}{response_size}{dim}{took}{dim:#}  {marks}"
        );
        writeln!(out, "{}", line.trim_end())
    }

    /// Pads the columns beside target and marks; those left out are empty.
    fn columns(&self, [id, time, status, method, media_type, size, duration]: [String; 7]) -> [String; 7] {
        let layout = &self.layout;
        let there = |there: bool, text: String| if there { text } else { String::new() };
        let time_width = layout.time_width();
        [
            format!("{id:<ID$}"),
            there(layout.has_time, format!("  {time:<time_width$}")),
            format!("  {status:<STATUS$}"),
            format!("  {method:<METHOD$} "),
            there(layout.has_media_type, format!("  {media_type:<MEDIA_TYPE$}")),
            there(layout.has_size, format!(" {size:>SIZE$}")),
            there(layout.has_duration, format!(" {duration:>DURATION$}")),
        ]
    }
}

fn marks(flow: &FlowSummary) -> String {
    flow.tags.iter().map(|t| printable(t)).collect::<Vec<_>>().join(" ")
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

pub fn status(flow: &FlowSummary) -> (String, AnsiColor) {
    match (flow.status, flow.state) {
        // What the status does not say.
        (Some(status), FlowState::Failed | FlowState::Cut) if status < 400 => (format!("{status}!"), AnsiColor::Red),
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

/// The method, as the query `method:` knows it.
pub fn method(flow: &FlowSummary) -> &str {
    flow.method.as_deref().unwrap_or(if flow.kind == FlowKind::Tunnel { "TUNNEL" } else { "-" })
}

/// Short name of the response's media type, as the query `type:` knows it; for a failed flow, the error kind.
pub fn kind(flow: &FlowSummary) -> String {
    match (flow.kind, &flow.error, flow.response_type.as_deref()) {
        (_, Some(error), None) => error.to_string(),
        (FlowKind::Tunnel, ..) => match flow.passthrough.as_deref().and_then(Passthrough::from_label) {
            Some(why) => why.short_label().to_owned(),
            None => "tunnel".to_owned(),
        },
        (FlowKind::WebSocket, ..) => "ws".to_owned(),
        _ if flow.request_type.as_deref().is_some_and(|m| m.starts_with("application/grpc")) => "grpc".to_owned(),
        (_, _, Some("text/event-stream")) => "sse".to_owned(),
        (_, _, Some("text/plain")) => "text".to_owned(),
        (_, _, Some(media)) if media.ends_with("mpegurl") => "hls".to_owned(),
        (_, _, Some(media)) if media.ends_with("+json") => "json".to_owned(),
        (_, _, Some(media)) => {
            let sub = media.rsplit('/').next().unwrap_or(media);
            printable(sub.split('+').next().unwrap_or(sub).trim_start_matches("x-").trim_start_matches("vnd."))
        }
        (_, None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_store::{FlowRecord, ResponseRecord};
    use interflow_types::{EntryKind, FlowId, Scheme};

    fn row(path: &str) -> FlowSummary {
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let mut row =
            FlowRecord::new(FlowId::new(at), at, EntryKind::Absolute, Scheme::Http, "a.test:80".parse().unwrap());
        let response = r#"{"status":404,"version":"HTTP/1.1","headers":[["Content-Type","image/svg+xml"]]}"#;
        row.response = Some(serde_json::from_str::<ResponseRecord>(response).unwrap());
        FlowSummary { path: Some(path.to_owned()), method: Some("GET".into()), ..row.summary(at) }
    }

    fn drawn(width: Option<usize>, flow: &FlowSummary) -> String {
        let layout = Layout::new(width, false, target(flow).chars().count(), marks(flow).chars().count());
        let table = FlowTable { zone: TimeZone::UTC, layout };
        let mut out = Vec::new();
        table.line(&mut out, flow).unwrap();
        anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
    }

    #[test]
    fn a_response_that_failed_has_a_mark() {
        let cut = |status| FlowSummary { state: FlowState::Cut, status: Some(status), ..row("/") };
        assert!(drawn(None, &cut(200)).contains(" 200! ") && drawn(None, &cut(403)).contains(" 403  "));
    }

    #[test]
    fn table_lines_fit_the_terminal() {
        let long = format!("/{}", "long".repeat(50));
        let tags: Vec<_> = ["redacted", "redact:route:gateway", "found:email-address"].map(Into::into).into();
        for path in ["/", long.as_str()] {
            for tags in [&tags[..0], &tags[..]] {
                let flow = FlowSummary { tags: tags.to_vec(), ..row(path) };
                for width in 40..200 {
                    let line = drawn(Some(width), &flow);
                    assert!(line.trim_end().chars().count() <= width, "{width}: {line}");
                    assert!(line.contains("GET") && line.contains(" 404 "), "{width}: {line}");
                    assert!(line.contains("a.test/") || width < 48, "{width}: {line}");
                }
                let dated = Layout::new(Some(80), true, path.len(), 60);
                assert!(dated.target >= MIN_TARGET_WIDTH.min(path.len()) && dated.has_time, "{dated:?}");
            }
        }
        let line = drawn(Some(80), &FlowSummary { tags, ..row(&long) });
        assert!(line.contains('…') && line.contains("redact"), "{line}");
        assert!(drawn(None, &row(&long)).contains(&long));
    }

    #[test]
    fn table_columns_describe_a_flow() {
        let line = drawn(None, &row("/x"));
        for word in ["22:13:20", " 404 ", " GET ", "a.test/x", " svg "] {
            assert!(line.contains(word), "{word} in {line}");
        }
    }

    #[test]
    fn types_have_the_words_of_the_web_ui() {
        let word = |media: &str| kind(&FlowSummary { response_type: Some(media.into()), ..row("/") });
        for (media, expected) in [
            ("text/plain", "text"),
            ("application/problem+json", "json"),
            ("image/svg+xml", "svg"),
            ("application/dash+xml", "dash"),
            ("application/vnd.ms-excel", "ms-excel"),
            ("application/vnd.apple.mpegurl", "hls"),
            ("text/event-stream", "sse"),
        ] {
            assert_eq!(word(media), expected, "{media}");
        }
    }

    #[test]
    fn path_cannot_inject_terminal_control_sequences() {
        let line = drawn(None, &row("/\u{1b}]0;owned\u{7}\u{202e}"));
        assert!(!line.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{line:?}");
    }
}
