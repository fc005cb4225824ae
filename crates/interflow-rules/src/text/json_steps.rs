//! A JSONPath (RFC 9535) as steps, each from a set of values to the next: the form in which its cost is bounded.

use serde_json_path::JsonPath as Query;

/// A segment of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathStep {
    /// Whether it applies to everything inside of a value too (`..`).
    pub descends: bool,
    pub selectors: Vec<StepSelector>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StepSelector {
    Name(String),
    Wildcard,
    Index(i64),
    Slice(SliceSelector),
    Filter(Box<FilterSelector>),
}

/// `start:end:step` (RFC 9535 2.3.4).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceSelector {
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
}

/// `?expression`, which does not refer to the whole document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FilterSelector {
    /// `$[?expression]`, for a list of one candidate.
    pub query: Query,
    /// How often the expression descends (`..`).
    descents: u32,
    /// Whether it has a regex, which is compiled for each candidate.
    has_regex: bool,
}

impl FilterSelector {
    /// What a candidate with this many values costs, in steps.
    pub fn steps(&self, values: u64, depth: impl FnOnce() -> u64) -> u64 {
        let search = if self.descents == 0 { 1 } else { depth().saturating_pow(self.descents) };
        let regex = if self.has_regex { 5_000 } else { 0 };
        values.saturating_mul(20).saturating_mul(search).saturating_add(50 + regex)
    }
}

impl SliceSelector {
    /// The values that it selects, in its order.
    pub fn of(&self, values: &[usize]) -> Vec<usize> {
        let len = values.len() as i64;
        let from_end = |i: i64| if i >= 0 { i } else { len.saturating_add(i) };
        let mut selected = Vec::new();
        if self.step > 0 {
            let (mut at, end) =
                (from_end(self.start.unwrap_or(0)).clamp(0, len), from_end(self.end.unwrap_or(len)).clamp(0, len));
            while at < end {
                selected.extend(values.get(at as usize));
                at = at.saturating_add(self.step);
            }
        } else if self.step < 0 {
            let mut at = from_end(self.start.unwrap_or(len - 1)).clamp(-1, len - 1);
            let end = self.end.map_or(-1, |end| from_end(end).clamp(-1, len - 1));
            while at > end {
                selected.extend(values.get(at as usize));
                at = at.saturating_add(self.step);
            }
        }
        selected
    }
}

/// The steps of a path that was parsed already; `None` if a filter refers to the whole document.
pub(crate) fn split(path: &str) -> Option<Vec<PathStep>> {
    let mut rest = path.trim().strip_prefix('$')?.trim_start();
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let descends = rest.starts_with("..");
        rest = rest.strip_prefix("..").or_else(|| rest.strip_prefix('.')).unwrap_or(rest).trim_start();
        let selectors = if let Some(inside) = rest.strip_prefix('[') {
            let end = closing_bracket(inside)?;
            rest = &inside[end + 1..];
            top_level_parts(&inside[..end]).into_iter().map(|part| selector(part.trim())).collect::<Option<_>>()?
        } else if let Some(after) = rest.strip_prefix('*') {
            rest = after;
            vec![StepSelector::Wildcard]
        } else {
            let end = rest.find(|c: char| matches!(c, '.' | '[') || c.is_ascii_whitespace()).unwrap_or(rest.len());
            let name = rest[..end].to_owned();
            rest = &rest[end..];
            vec![StepSelector::Name(name)]
        };
        steps.push(PathStep { descends, selectors });
        rest = rest.trim_start();
    }
    Some(steps)
}

/// How often a path that is not split descends, and how often its filters refer to the document.
pub(crate) fn count_descents_and_roots(path: &str) -> (u32, u32) {
    let code = without_strings(path);
    let count = |part: &str| u32::try_from(code.matches(part).count()).unwrap_or(u32::MAX);
    (count(".."), count("$").saturating_sub(1))
}

fn selector(text: &str) -> Option<StepSelector> {
    if let Some(expression) = text.strip_prefix('?') {
        let code = without_strings(expression);
        if code.contains('$') {
            return None;
        }
        let query = Query::parse(&format!("$[?{expression}]")).ok()?;
        let descents = u32::try_from(code.matches("..").count()).unwrap_or(u32::MAX);
        let has_regex = code.contains("match") || code.contains("search");
        return Some(StepSelector::Filter(Box::new(FilterSelector { query, descents, has_regex })));
    }
    if let Some(quoted) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        // JSON has no escape for the single quote, and needs one for the double quote.
        let json = quoted.replace("\\'", "'").replace("\\\"", "\"").replace('"', "\\\"");
        return serde_json::from_str(&format!("\"{json}\"")).ok().map(StepSelector::Name);
    }
    if text.starts_with('"') {
        return serde_json::from_str(&text.replace("\\'", "'")).ok().map(StepSelector::Name);
    }
    if text == "*" {
        return Some(StepSelector::Wildcard);
    }
    if text.contains(':') {
        let mut numbers = text.split(':').map(str::trim);
        let mut number = || match numbers.next() {
            None | Some("") => Some(None),
            Some(text) => text.parse().ok().map(Some),
        };
        let (start, end, step) = (number()?, number()?, number()?);
        return Some(StepSelector::Slice(SliceSelector { start, end, step: step.unwrap_or(1) }));
    }
    text.parse().ok().map(StepSelector::Index)
}

/// The text with every string replaced by an empty one of the same length in characters.
fn without_strings(text: &str) -> String {
    let mut quote = None;
    let mut escaped = false;
    text.chars()
        .map(|c| match quote {
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                c
            }
            None => c,
            Some(_) if escaped => {
                escaped = false;
                ' '
            }
            Some(_) if c == '\\' => {
                escaped = true;
                ' '
            }
            Some(end) if c == end => {
                quote = None;
                c
            }
            Some(_) => ' ',
        })
        .collect()
}

/// Where the bracket is closed that was opened before the text.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    positions(text).find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
        None
    })
}

fn top_level_parts(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in positions(text).collect::<Vec<_>>() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// The characters outside of strings, with their place in the text.
fn positions(text: &str) -> impl Iterator<Item = (usize, char)> {
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    places.into_iter().zip(without_strings(text).chars().collect::<Vec<_>>())
}
