//! Reads labelled prompts as public sets have them: JSON lines, a JSON array, or CSV.

use interflow_llm::spans::TextPlace;
use serde_json::{Map, Value};

/// What a label says of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptLabel {
    Injection,
    Jailbreak,
    /// An attack of either sort: the set does not say which.
    Attack,
    Benign,
}

impl PromptLabel {
    /// The label of this name, as sets spell them.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        Some(match name.as_str() {
            "benign" | "safe" | "legit" | "legitimate" | "normal" | "regular" | "0" | "false" | "no" => Self::Benign,
            "malicious" | "attack" | "unsafe" | "harmful" | "1" | "true" | "yes" => Self::Attack,
            name if name.contains("jailbreak") => Self::Jailbreak,
            name if name.contains("injection") => Self::Injection,
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledPrompt {
    pub label: PromptLabel,
    pub place: TextPlace,
    pub text: String,
}

const TEXT_MEMBERS: [&str; 5] = ["text", "prompt", "content", "input", "user_input"];
const LABEL_MEMBERS: [&str; 5] = ["label", "labels", "type", "class", "is_injection"];
const PLACE_MEMBERS: [&str; 2] = ["place", "channel"];

/// Reads a file by its name's ending. `unlabelled` is the label of texts that have none.
///
/// # Errors
/// An unknown ending, or an entry without a text or a known label, which is named.
pub fn read_prompts(name: &str, content: &str, unlabelled: Option<PromptLabel>) -> Result<Vec<LabelledPrompt>, String> {
    let json = |text: &str, n: usize| {
        serde_json::from_str::<Value>(text).map_err(|e| format!("{name}: entry {n} is not JSON: {e}"))
    };
    let entries: Vec<Value> = match name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => {
            let lines = content.lines().filter(|line| !line.trim().is_empty());
            lines.enumerate().map(|(n, line)| json(line, n + 1)).collect::<Result<_, _>>()?
        }
        "json" => match json(content, 1)? {
            Value::Array(entries) => entries,
            _ => return Err(format!("{name}: the JSON is not an array")),
        },
        "csv" => csv_entries(content).ok_or_else(|| format!("{name}: a quoted field does not end"))?,
        _ => return Err(format!("{name}: use a file that ends in .jsonl, .json or .csv")),
    };
    entries
        .iter()
        .enumerate()
        .map(|(n, entry)| prompt(entry, unlabelled, &format!("{name}: entry {}", n + 1)))
        .collect()
}

fn prompt(entry: &Value, unlabelled: Option<PromptLabel>, place: &str) -> Result<LabelledPrompt, String> {
    let member = |names: &[&str]| names.iter().find_map(|n| entry.get(n)).filter(|v| !v.is_null());
    let text = entry.as_str().or_else(|| member(&TEXT_MEMBERS)?.as_str());
    let text = text.ok_or_else(|| format!("{place} has no text: name it {}", TEXT_MEMBERS.join(", ")))?;
    let label = match member(&LABEL_MEMBERS) {
        Some(Value::String(name)) => PromptLabel::from_name(name),
        Some(other) => PromptLabel::from_name(&other.to_string()),
        None => unlabelled,
    };
    let label = label.ok_or_else(|| {
        format!("{place} has no known label: use injection, jailbreak, attack or 1, benign or 0; or --label for all")
    })?;
    let place = match member(&PLACE_MEMBERS).and_then(Value::as_str) {
        Some("tool_result" | "tool_output") => TextPlace::ToolResult,
        Some("document" | "retrieved" | "rag") => TextPlace::Document,
        _ => TextPlace::User,
    };
    Ok(LabelledPrompt { label, place, text: text.to_owned() })
}

/// The rows of CSV (RFC 4180) as objects by the names in the first one; `None` if a quoted field does not end.
fn csv_entries(content: &str) -> Option<Vec<Value>> {
    let mut rows = csv_rows(content)?.into_iter();
    let names: Vec<String> = rows.next()?.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    let entry = |row: Vec<String>| -> Map<String, Value> {
        names.iter().cloned().zip(row.into_iter().map(Value::from)).collect()
    };
    Some(rows.map(|row| Value::Object(entry(row))).collect())
}

fn csv_rows(content: &str) -> Option<Vec<Vec<String>>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = content.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            c => field.push(c),
        }
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    rows.retain(|row| row.iter().any(|field| !field.is_empty()));
    (!quoted).then_some(rows)
}
