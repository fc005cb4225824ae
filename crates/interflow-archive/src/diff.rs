//! Differences between two flows: heads field by field, bodies by JSON structure or by line.

use std::io;
use std::time::{Duration, Instant};

use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, Headers};
use serde::Serialize;
use serde_json::Value;
use similar::{Algorithm, ChangeTag, capture_diff_slices_deadline, group_diff_ops};

use super::text::{TextRole, TextStyle, clean};
use super::{FlowWithBodies, content_coding};

/// Bodies above this size, in bytes, are compared as a whole.
const MAX_BODY: usize = 8 << 20;

/// Aligning lines takes at most about this long; what is left then is shown as replaced.
const MAX_TIME: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FlowChange {
    /// The location: a fact's or header's name, or a path in a JSON body (`messages[2].content`).
    pub at: String,
    /// The value in the first flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value in the second flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The difference between two decoded bodies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BodyDiff {
    Same,
    /// Both are JSON; the differing values.
    Json {
        /// In the order of the first body.
        changes: Vec<FlowChange>,
    },
    /// Both are text: the differing lines with context.
    Lines {
        /// In order.
        lines: Vec<DiffLine>,
    },
    /// At least one is not text, or too long.
    Binary {
        before: u64,
        after: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffLine {
    pub side: DiffSide,
    pub text: String,
}

/// Which of the two texts contains a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiffSide {
    Both,
    Before,
    After,
    /// Stands for omitted equal lines; the text gives their number.
    Gap,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FlowDiff {
    /// Method, URL, versions, status, error.
    pub head: Vec<FlowChange>,
    /// The request's fields, by name.
    pub request_headers: Vec<FlowChange>,
    pub request_body: BodyDiff,
    /// The response's fields, by name.
    pub response_headers: Vec<FlowChange>,
    pub response_body: BodyDiff,
}

impl FlowDiff {
    pub fn new(before: &FlowWithBodies, after: &FlowWithBodies) -> Self {
        let headers = |side| header_changes(before.row.headers(side), after.row.headers(side));
        let body = |side| body_diff(&decoded_body(before, side), &decoded_body(after, side));
        Self {
            head: head_changes(before, after),
            request_headers: headers(Direction::Request),
            request_body: body(Direction::Request),
            response_headers: headers(Direction::Response),
            response_body: body(Direction::Response),
        }
    }

    pub fn is_empty(&self) -> bool {
        let bodies = [&self.request_body, &self.response_body];
        self.head.is_empty()
            && self.request_headers.is_empty()
            && self.response_headers.is_empty()
            && bodies.iter().all(|b| **b == BodyDiff::Same)
    }

    /// Writes the differences for display; nothing if there are none.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write(&self, out: &mut dyn io::Write, style: TextStyle) -> io::Result<()> {
        section(out, "head", &self.head, style)?;
        section(out, "request headers", &self.request_headers, style)?;
        self.request_body.write(out, "request body", style)?;
        section(out, "response headers", &self.response_headers, style)?;
        self.response_body.write(out, "response body", style)
    }
}

impl BodyDiff {
    fn write(&self, out: &mut dyn io::Write, name: &str, style: TextStyle) -> io::Result<()> {
        match self {
            Self::Same => Ok(()),
            Self::Json { changes } => section(out, name, changes, style),
            Self::Binary { before, after } => {
                writeln!(out, "{}\n  differs: {before} bytes, then {after}", style.paint(TextRole::Bold, name))
            }
            Self::Lines { lines } => {
                writeln!(out, "{}", style.paint(TextRole::Bold, name))?;
                for line in lines {
                    let text = clean(&line.text);
                    match line.side {
                        DiffSide::Both => writeln!(out, "    {text}")?,
                        DiffSide::Gap => {
                            writeln!(out, "{}", style.paint(TextRole::Dim, &format!("  … {text} equal lines")))?
                        }
                        DiffSide::Before => writeln!(out, "{}", style.paint(TextRole::Bad, &format!("  - {text}")))?,
                        DiffSide::After => writeln!(out, "{}", style.paint(TextRole::Good, &format!("  + {text}")))?,
                    }
                }
                Ok(())
            }
        }
    }
}

fn section(out: &mut dyn io::Write, name: &str, changes: &[FlowChange], style: TextStyle) -> io::Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", style.paint(TextRole::Bold, name))?;
    for change in changes {
        let at = clean(&change.at);
        if let Some(before) = &change.before {
            writeln!(out, "{}", style.paint(TextRole::Bad, &format!("  - {at}: {}", clean(before))))?;
        }
        if let Some(after) = &change.after {
            writeln!(out, "{}", style.paint(TextRole::Good, &format!("  + {at}: {}", clean(after))))?;
        }
    }
    Ok(())
}

fn decoded_body(flow: &FlowWithBodies, side: Direction) -> Vec<u8> {
    let bytes = flow.bytes(side);
    flow.row.headers(side).map_or_else(|| bytes.to_vec(), |h| content_coding::decode(h, bytes))
}

fn head_changes(before: &FlowWithBodies, after: &FlowWithBodies) -> Vec<FlowChange> {
    let facts = |flow: &FlowWithBodies| {
        let row = &flow.row;
        let (request, response) = (row.request.as_ref(), row.response.as_ref());
        [
            ("method", request.map(|r| r.method.clone())),
            ("url", Some(row.url())),
            ("request version", request.map(|r| r.version.to_string())),
            ("status", response.map(|r| r.status.to_string())),
            ("reason", response.map(|r| String::from_utf8_lossy(&r.reason).into_owned())),
            ("response version", response.map(|r| r.version.to_string())),
            ("messages", (row.messages > 0).then(|| row.messages.to_string())),
            ("error", row.error.as_ref().map(|e| format!("{}: {}", e.kind, e.message))),
        ]
    };
    let pairs = facts(before).into_iter().zip(facts(after));
    pairs
        .filter(|(a, b)| a.1 != b.1)
        .map(|((at, a), (_, b))| FlowChange { at: at.to_owned(), before: a, after: b })
        .collect()
}

/// Fields of one name are compared as a list; the order of different names is not significant (RFC 9110 5.3).
fn header_changes(before: Option<&Headers>, after: Option<&Headers>) -> Vec<FlowChange> {
    let empty = Headers::new();
    let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let mut names: Vec<String> = Vec::new();
    // The order of the first appearance, so that the result reads like a head.
    for (name, _) in before.iter().chain(after.iter()) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let values = |headers: &Headers, name: &str| -> Vec<String> {
        headers.get_all(name).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
    };
    let mut changes = Vec::new();
    for name in names {
        let (a, b) = (values(before, &name), values(after, &name));
        for i in 0..a.len().max(b.len()) {
            if a.get(i) != b.get(i) {
                changes.push(FlowChange { at: name.clone(), before: a.get(i).cloned(), after: b.get(i).cloned() });
            }
        }
    }
    changes
}

fn body_diff(before: &[u8], after: &[u8]) -> BodyDiff {
    if before == after {
        return BodyDiff::Same;
    }
    let text = |bytes: &[u8]| if bytes.len() <= MAX_BODY { String::from_utf8(bytes.to_vec()).ok() } else { None };
    let (Some(a), Some(b)) = (text(before), text(after)) else {
        return BodyDiff::Binary { before: before.len() as u64, after: after.len() as u64 };
    };
    if let (Ok(a), Ok(b)) = (serde_json::from_str::<Value>(&a), serde_json::from_str::<Value>(&b))
        // Strings and numbers alone are compared as text.
        && (a.is_object() || a.is_array())
    {
        let mut changes = Vec::new();
        json_changes(String::new(), &a, &b, &mut changes);
        // Equal JSON with different formatting is compared as text.
        if !changes.is_empty() {
            return BodyDiff::Json { changes };
        }
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    BodyDiff::Lines { lines: line_diff(&a, &b) }
}

fn json_changes(at: String, before: &Value, after: &Value, changes: &mut Vec<FlowChange>) {
    match (before, after) {
        (a, b) if a == b => {}
        (Value::Object(a), Value::Object(b)) => {
            let inner = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            for (name, value) in a {
                match b.get(name) {
                    Some(other) => json_changes(inner(name), value, other, changes),
                    None => changes.push(change(inner(name), Some(value), None)),
                }
            }
            let added = b.iter().filter(|(name, _)| !a.contains_key(*name));
            changes.extend(added.map(|(name, value)| change(inner(name), None, Some(value))));
        }
        (Value::Array(a), Value::Array(b)) => array_changes(&at, a, b, changes),
        (a, b) => changes.push(change(at, Some(a), Some(b))),
    }
}

/// Items equal at both ends are matched; those between are compared by position, so that an insertion shows as one.
fn array_changes(at: &str, a: &[Value], b: &[Value], changes: &mut Vec<FlowChange>) {
    let (start, end) = equal_ends(a, b);
    let (a, b) = (&a[start..a.len() - end], &b[start..b.len() - end]);
    for i in 0..a.len().max(b.len()) {
        let path = format!("{at}[{}]", start + i);
        match (a.get(i), b.get(i)) {
            (Some(x), Some(y)) => json_changes(path, x, y, changes),
            (x, y) => changes.push(change(path, x, y)),
        }
    }
}

fn change(at: String, before: Option<&Value>, after: Option<&Value>) -> FlowChange {
    FlowChange { at, before: before.map(Value::to_string), after: after.map(Value::to_string) }
}

/// The number of equal items at the start and, after those, at the end.
fn equal_ends<T: PartialEq>(a: &[T], b: &[T]) -> (usize, usize) {
    let start = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let end = a[start..].iter().rev().zip(b[start..].iter().rev()).take_while(|(x, y)| x == y).count();
    (start, end)
}

/// Number of equal lines displayed around a difference.
const CONTEXT_LINES: usize = 3;

/// Lines by their shortest edit; long runs of equal lines become a gap that gives their number.
fn line_diff(a: &[&str], b: &[&str]) -> Vec<DiffLine> {
    // A deadline, because Myers' algorithm takes quadratic time for texts without common lines.
    let ops = capture_diff_slices_deadline(Algorithm::Myers, a, b, Some(Instant::now() + MAX_TIME));
    let mut lines = Vec::new();
    let gap = |lines: &mut Vec<DiffLine>, len: usize| {
        if len > 0 {
            lines.push(DiffLine { side: DiffSide::Gap, text: len.to_string() });
        }
    };
    let mut line_count = 0;
    for op in group_diff_ops(ops, CONTEXT_LINES).into_iter().flatten() {
        gap(&mut lines, op.old_range().start - line_count);
        line_count = op.old_range().end;
        lines.extend(op.iter_changes(a, b).map(|change| {
            let side = match change.tag() {
                ChangeTag::Equal => DiffSide::Both,
                ChangeTag::Delete => DiffSide::Before,
                ChangeTag::Insert => DiffSide::After,
            };
            DiffLine { side, text: change.value().to_owned() }
        }));
    }
    gap(&mut lines, a.len() - line_count);
    lines
}
