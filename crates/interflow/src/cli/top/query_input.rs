//! The line in which a query is typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

/// Characters of a query; the instance accepts no longer ones either.
const MAX_CHARS: usize = 4000;

#[derive(Default)]
pub struct QueryInput {
    pub text: String,
    /// In characters.
    pub cursor: usize,
    /// What the instance says is wrong with the text: message, and where it begins and ends.
    pub error: Option<Value>,
}

#[derive(PartialEq, Eq, Debug)]
pub enum InputStep {
    Changed,
    Moved,
    Apply,
    Cancel,
}

impl QueryInput {
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), cursor: text.chars().count(), error: None }
    }

    pub fn on_key(&mut self, key: KeyEvent) -> InputStep {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let len = self.text.chars().count();
        let before = self.text.len();
        match key.code {
            KeyCode::Enter => return InputStep::Apply,
            KeyCode::Esc => return InputStep::Cancel,
            KeyCode::Char('c') if control => return InputStep::Cancel,
            KeyCode::Char('u') if control => {
                self.text.drain(..self.byte(self.cursor));
                self.cursor = 0;
            }
            KeyCode::Char('w') if control => self.delete_word(),
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = len,
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(len),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = len,
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.byte(self.cursor));
            }
            KeyCode::Delete if self.cursor < len => {
                self.text.remove(self.byte(self.cursor));
            }
            KeyCode::Char(c) if !control && len < MAX_CHARS && !c.is_control() => {
                self.text.insert(self.byte(self.cursor), c);
                self.cursor += 1;
            }
            _ => {}
        }
        if self.text.len() == before { InputStep::Moved } else { InputStep::Changed }
    }

    fn delete_word(&mut self) {
        let end = self.byte(self.cursor);
        let start = self.text[..end].trim_end().rfind(' ').map_or(0, |at| at + 1);
        self.cursor = self.text[..start].chars().count();
        self.text.drain(start..end);
    }

    /// Where a character begins.
    fn byte(&self, character: usize) -> usize {
        self.text.char_indices().nth(character).map_or(self.text.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_edited_in_characters_and_words() {
        let mut input = QueryInput::new("host:é.test status:4");
        let mut press = |code, modifiers| input.on_key(KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('w'), KeyModifiers::CONTROL), InputStep::Changed);
        for c in "is:open".chars() {
            press(KeyCode::Char(c), KeyModifiers::NONE);
        }
        press(KeyCode::Home, KeyModifiers::NONE);
        for _ in 0..6 {
            press(KeyCode::Right, KeyModifiers::NONE);
        }
        press(KeyCode::Backspace, KeyModifiers::NONE);
        press(KeyCode::Delete, KeyModifiers::NONE);
        assert_eq!(press(KeyCode::Left, KeyModifiers::NONE), InputStep::Moved);
        assert_eq!(press(KeyCode::Enter, KeyModifiers::NONE), InputStep::Apply);
        assert_eq!((input.text.as_str(), input.cursor), ("host:test is:open", 4));
    }
}
