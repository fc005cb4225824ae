//! The texts that tools give, and their bounds.

/// Maximum number of flows or conversations per response.
pub const MAX_ROWS: u64 = 200;
/// Maximum number of characters per response.
pub const MAX_TEXT: u64 = 200_000;

/// The text of a tool's result, or of its error.
pub type ToolCallResult = Result<String, String>;

pub fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A part of a text, with a note on what is omitted, and with which arguments besides `offset` it goes on.
pub fn text_window(text: &str, skip: usize, most: usize, with: &str) -> String {
    // In characters, not bytes, as the arguments say.
    let mut places = text.char_indices().map(|(i, _)| i);
    let Some(start) = places.nth(skip) else { return String::new() };
    let end = places.nth(most.saturating_sub(1)).unwrap_or(text.len());
    let part = text.get(start..end).unwrap_or_default();
    if end >= text.len() {
        return part.to_owned();
    }
    format!("{part}\n[cut here: {} characters in all, {with}offset {} goes on]", text.chars().count(), skip + most)
}
