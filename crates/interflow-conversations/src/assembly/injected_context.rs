//! Separates a user's own words from context that agents inject: reminders, environment, notes on local commands.
//! Injected context is stored, collapsed in the UI, and ignored when histories are compared, since agents add and drop
//! it between requests.

use interflow_types::data_file;
use std::borrow::Cow;
use std::sync::LazyLock;

/// Prefixes of the names of elements that agents inject.
static CONTEXT_ELEMENTS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/context_elements.txt")).collect());

/// Prefixes of texts that are injected as a whole.
static CONTEXT_PREFIXES: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("../../data/context_prefixes.txt").lines().collect());

/// A text split into the author's words and injected context.
#[derive(Debug, PartialEq, Eq)]
pub struct SplitText<'a> {
    /// The author's words, trimmed; may be empty.
    pub said: Cow<'a, str>,
    /// The parts of the text that the agent injected, in order.
    pub around: Vec<&'a str>,
}

/// Splits a text of a user message.
pub fn split_text(text: &str) -> SplitText<'_> {
    let trimmed = text.trim();
    if CONTEXT_PREFIXES.iter().any(|b| trimmed.starts_with(b)) {
        return SplitText { said: Cow::Borrowed(""), around: vec![trimmed] };
    }
    let mut around = Vec::new();
    let mut plain = String::new();
    let mut rest = trimmed;
    let mut open = 0;
    while let Some((before, element, after)) = next_element(rest, &mut open) {
        around.push(element);
        plain.push_str(before);
        rest = after;
    }
    if around.is_empty() {
        return SplitText { said: Cow::Borrowed(trimmed), around };
    }
    plain.push_str(rest);
    SplitText { said: Cow::Owned(plain.trim().to_owned()), around }
}

/// Maximum number of unclosed elements examined in a text, since each one scans the rest of it.
const MAX_UNCLOSED: usize = 16;

/// The next element: the text before it, the element, and the text after it. `open` counts unclosed elements.
fn next_element<'t>(text: &'t str, open: &mut usize) -> Option<(&'t str, &'t str, &'t str)> {
    let mut from = 0;
    while *open < MAX_UNCLOSED
        // The counter is shared by all calls for a text, so that its cost stays linear.
        && let Some(at) = text.get(from..)?.find('<').map(|i| i + from)
    {
        let inside = text.get(at + 1..)?;
        if CONTEXT_ELEMENTS.iter().any(|e| inside.starts_with(e)) {
            let end = inside.find(['>', ' ', '\n']).unwrap_or(inside.len());
            let name = inside.get(..end)?;
            let close = format!("</{name}>");
            // An unclosed element is text about elements.
            if let Some(length) = inside.find(&close) {
                let behind = at + 1 + length + close.len();
                return Some((text.get(..at)?, text.get(at..behind)?, text.get(behind..)?));
            }
            *open += 1;
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unterminated_elements_are_scanned_a_bounded_number_of_times() {
        let text = "<system-reminder>".repeat(30_000);
        let began = std::time::Instant::now();
        assert_eq!(split_text(&text), SplitText { said: Cow::Borrowed(&text), around: Vec::new() });
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn injected_reminders_are_separated_from_the_user_text() {
        for (text, said, around) in [
            ("  fix it \n", "fix it", 0),
            ("<system-reminder>be good</system-reminder>\n\nfix it", "fix it", 1),
            ("fix it<system-reminder>a</system-reminder><system-reminder>b</system-reminder>", "fix it", 2),
            ("<environment_context>\n <cwd>/</cwd></environment_context>", "", 1),
            ("<command-name>/clear</command-name>\n<command-args></command-args>", "", 2),
            ("# AGENTS.md instructions for /x\n...", "", 1),
            ("what does <system-reminder> mean, a < b?", "what does <system-reminder> mean, a < b?", 0),
            ("<div>html</div>", "<div>html</div>", 0),
            ("", "", 0),
        ] {
            let parted = split_text(text);
            assert_eq!((&*parted.said, parted.around.len()), (said, around), "{text}");
        }
    }
}
