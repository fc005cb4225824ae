//! Flows as text for terminals: one line each, or in full. Control characters from peers never reach the terminal.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use interflow_types::{Direction, Headers, MessageKind, Passthrough, Timestamp, is_terminal_control, labelled_enum};

use super::{BodySource, content_coding};
use crate::view::{self, BinaryKind, BodyContext, ProtoSchemas, body_text};
use interflow_store::{FlowKind, FlowRecord, FlowState, MessageRecord};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// Use colours, for a terminal.
    pub colour: bool,
}

labelled_enum! {
    /// The role of a text, which determines its colour: the number of ECMA-48.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum TextRole {
        Dim "2",
        Bold "1",
        Good "32",
        Notice "33",
        Bad "31",
    }
}

impl TextStyle {
    pub(super) fn paint(self, paint: TextRole, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{}m{text}\x1b[0m", paint.as_str()) } else { text.to_owned() }
    }
}

/// Columns of the URL in a line of 160.
const URL_WIDTH: usize = 74;

/// A flow's line.
///
/// # Errors
/// The output cannot be written.
pub fn line(out: &mut dyn Write, row: &FlowRecord) -> io::Result<()> {
    let flow = row.summary(row.started);
    let (method, address) = match flow.kind {
        FlowKind::Tunnel => ("TUNNEL", flow.authority.to_string()),
        kind => {
            let method = if kind == FlowKind::WebSocket { "WS" } else { flow.method.as_deref().unwrap_or("-") };
            let (host, path) = (flow.authority.to_host_header(flow.scheme), flow.path.as_deref().unwrap_or(""));
            (method, format!("{}://{host}{path}", flow.scheme))
        }
    };
    let state = match (flow.status, flow.state) {
        (Some(status), _) => status.to_string(),
        (None, FlowState::Failed) => "error".to_owned(),
        (None, FlowState::Open) => "…".to_owned(),
        (None, FlowState::Cut) => "cut".to_owned(),
        (None, FlowState::Complete) => "done".to_owned(),
    };
    let line = format!(
        "{:<26} {} {:<7} {state:<5} {:<URL_WIDTH$} {:<12} {:>9} {:>8}",
        flow.id,
        clock(flow.started),
        fit_width(&clean(method), 7),
        fit_width(&clean(&address), URL_WIDTH),
        fit_width(&clean(short_type(flow.response_type.as_deref().unwrap_or(""))), 12),
        size(flow.response_size),
        duration(flow.duration),
    );
    writeln!(out, "{}", line.trim_end())
}

/// `json` for `application/json`, `svg` for `image/svg+xml`.
fn short_type(media: &str) -> &str {
    let sub = media.rsplit('/').next().unwrap_or(media);
    let sub = sub.split('+').next().unwrap_or(sub);
    sub.strip_prefix("x-").or(sub.strip_prefix("vnd.")).unwrap_or(sub)
}

/// The time of day, UTC, with milliseconds.
fn clock(at: Timestamp) -> String {
    let ms = at.micros() / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}

/// A size in three digits: `512 B`, `1.2 kB`, `34 MB`.
pub fn size(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    scaled(bytes as f64, &["kB", "MB", "GB", "TB", "PB", "EB"], 1000.0)
}

/// A duration in three digits: `850 us`, `12 ms`, `3.4 s`, `2.0 min`.
pub fn duration(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..60_000_000 => scaled(micros as f64, &["ms", "s"], 1000.0),
        60_000_000..3_600_000_000 => format!("{:.1} min", micros as f64 / 6e7),
        _ => format!("{:.1} h", micros as f64 / 3.6e9),
    }
}

fn scaled(mut value: f64, units: &[&str], step: f64) -> String {
    let mut unit = "";
    for next in units {
        value /= step;
        unit = next;
        if value < step {
            break;
        }
    }
    // Below 9.95 the rounded number still has one digit before the point.
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// Truncates to `width` characters, with an ellipsis.
fn fit_width(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    Cow::Owned(cut)
}

/// Removes control characters, so that peers cannot inject terminal escapes.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_terminal_control) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| if is_terminal_control(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().into()
}

/// Like [`clean`] for several lines: line terminators and tabs are kept.
pub fn clean_lines(text: &str) -> String {
    text.split('\n').map(|l| l.split('\t').map(clean).collect::<Vec<_>>().join("\t")).collect::<Vec<_>>().join("\n")
}

/// Writes a flow in full: both heads, both bodies up to `max_body` bytes each, messages, timings, error. gRPC and Protocol
/// Buffers are decoded with these schemas.
///
/// # Errors
/// A body cannot be read, or the output cannot be written.
pub fn detail(
    out: &mut dyn Write,
    row: &FlowRecord,
    contents: &dyn BodySource,
    (max_body, schemas): (usize, &ProtoSchemas),
    style: TextStyle,
) -> io::Result<()> {
    writeln!(out, "{}", style.paint(TextRole::Bold, &format!("{} {}", row.id, clean(&row.url()))))?;
    writeln!(out, "{}", style.paint(TextRole::Dim, &format_facts(row)))?;
    if let Some(request) = &row.request {
        writeln!(out, "\n> {} {} {}", clean(&request.method), clean(&request.path), request.version)?;
        fields(out, '>', &request.headers, style)?;
        body(out, row, contents, Direction::Request, (max_body, schemas))?;
        fields(out, '>', &request.trailers, style)?;
    }
    for interim in &row.interim {
        writeln!(out, "\n< {}", interim.status)?;
        fields(out, '<', &interim.headers, style)?;
    }
    if let Some(response) = &row.response {
        let reason = String::from_utf8_lossy(&response.reason);
        writeln!(out, "\n< {} {} {}", response.version, response.status, clean(&reason))?;
        fields(out, '<', &response.headers, style)?;
        body(out, row, contents, Direction::Response, (max_body, schemas))?;
        fields(out, '<', &response.trailers, style)?;
    }
    if row.messages > 0 {
        let noun = if row.messages == 1 { "message" } else { "messages" };
        writeln!(out, "\n{} {noun}", row.messages)?;
        let mut is_any = false;
        for message in contents.messages(row)? {
            is_any = true;
            writeln!(out, "{}", message_line(&message?, row.started))?;
        }
        if !is_any && row.state == FlowState::Open {
            let text = "the flow runs at another replica; its messages can be read here once it has ended";
            writeln!(out, "{}", style.paint(TextRole::Notice, text))?;
        }
    }
    if let Some(tunnel) = row.tunnel {
        writeln!(out, "\n{} sent, {} received", size(tunnel.sent), size(tunnel.received))?;
    }
    if let Some(label) = row.passthrough.as_deref() {
        let why = Passthrough::from_label(label).map_or(label, |why| why.explanation());
        writeln!(out, "\n{}", style.paint(TextRole::Notice, &format!("passed through uninspected: {}", clean(why))))?;
    }
    if let Some(error) = &row.error {
        writeln!(out, "\n{}", style.paint(TextRole::Bad, &format!("{}: {}", error.kind, clean(&error.message))))?;
    }
    Ok(())
}

fn format_facts(row: &FlowRecord) -> String {
    let mut facts = vec![super::har::iso(row.started), row.transport.as_str().to_owned()];
    facts.extend(row.client.peer.map(|p| format!("from {p}")));
    facts.extend(row.user.as_ref().map(|u| format!("user {}", clean(u))));
    if let Some(upstream) = &row.upstream {
        facts.extend(upstream.peer.map(|p| format!("to {p}{}", if upstream.reused { " (reused)" } else { "" })));
        facts.extend(upstream.tls.as_ref().and_then(|t| t.version.as_deref()).map(str::to_owned));
    }
    let t = &row.timings;
    let lengths =
        [("dns", t.dns), ("connect", t.connect), ("tls", t.tls), ("first byte", t.first_byte), ("all", row.duration())];
    facts.extend(lengths.into_iter().filter_map(|(name, micros)| Some(format!("{name} {}", duration(micros?)))));
    if !row.tags.is_empty() {
        facts.push(format!("tags {}", clean(&row.tags.join(" "))));
    }
    facts.extend(row.comment.as_ref().map(|c| format!("comment {}", clean(c))));
    facts.join(", ")
}

fn fields(out: &mut dyn Write, sign: char, headers: &Headers, style: TextStyle) -> io::Result<()> {
    for (name, value) in headers {
        let name = style.paint(TextRole::Dim, &clean(&String::from_utf8_lossy(name)));
        writeln!(out, "{sign} {name}: {}", clean(&String::from_utf8_lossy(value)))?;
    }
    Ok(())
}

fn body(
    out: &mut dyn Write,
    row: &FlowRecord,
    contents: &dyn BodySource,
    side: Direction,
    (max, schemas): (usize, &ProtoSchemas),
) -> io::Result<()> {
    let Some(known) = row.body(side).filter(|b| b.size > 0) else { return Ok(()) };
    let mut bytes = Vec::new();
    contents.body(row, side)?.take(known.kept).read_to_end(&mut bytes)?;
    let empty = Headers::new();
    let headers = row.headers(side).unwrap_or(&empty);
    let plain = content_coding::decode(headers, &bytes);
    writeln!(out)?;
    let as_text = || body_text::text_if_readable(headers, &plain);
    match structured_view(row, side, &plain, max, schemas).ok_or_else(as_text) {
        Ok(text) => write!(out, "{}", clean_lines(&text))?,
        Err(Some(text)) => {
            let is_json = text.trim_start().starts_with(['{', '[']);
            let text = if is_json { view::json(text.as_bytes()).unwrap_or(text) } else { text };
            let cut = text.floor_char_boundary(max.min(text.len()));
            writeln!(out, "{}", clean_lines(&text[..cut]))?;
            if cut < text.len() {
                writeln!(out, "… {} more", size((text.len() - cut) as u64))?;
            }
        }
        Err(None) => {
            write!(out, "{}", body_text::hex(0, &plain[..plain.len().min(256).min(max)]))?;
            writeln!(out, "binary, {}", size(plain.len() as u64))?;
        }
    }
    if let Some(why) = known.missing_explanation() {
        writeln!(out, "({} of {} were kept: {why})", size(known.kept), size(known.size))?;
    }
    if let Some(digest) = known.head_sha256 {
        writeln!(out, "(SHA-256 of these {}: {digest})", size(known.kept))?;
    }
    Ok(())
}

/// A rendered view of a structured binary body; `None` for other types, and for damaged ones.
fn structured_view(
    row: &FlowRecord,
    side: Direction,
    plain: &[u8],
    max: usize,
    schemas: &ProtoSchemas,
) -> Option<String> {
    let headers = row.headers(side)?;
    let path = row.request.as_ref().map_or("", |r| r.path.as_str());
    let context = BodyContext { headers, path, direction: side, message: None };
    let head = &plain[..plain.len().min(view::MAX_BODY)];
    view::pretty(BinaryKind::from_headers(headers)?, &context, head, schemas, max).ok()
}

fn message_line(message: &MessageRecord, started: Timestamp) -> String {
    let sign = if message.direction == Direction::Request { '>' } else { '<' };
    let after = duration(message.at.micros().saturating_sub(started.micros()));
    let close = message.payload.split_first_chunk::<2>().filter(|_| message.kind == MessageKind::Close);
    let payload = match std::str::from_utf8(close.map_or(&message.payload, |(_, reason)| reason)) {
        // A status code precedes the reason (RFC 6455 5.5.1).
        Ok(reason) if let Some((code, _)) = close => {
            format!("{} {}", u16::from_be_bytes(*code), fit_width(&clean(reason), 200)).trim_end().to_owned()
        }
        Ok(text) => fit_width(&clean(text), 200).into_owned(),
        Err(_) => format!("binary, {}", size(message.size)),
    };
    format!("{sign} {after:>8} {:?} {payload}", message.kind)
}
