//! The characters that control a terminal, which text of others must not bring there.

/// Whether a character controls a terminal: C0, DEL, C1, and the marks that reorder text (Unicode Standard Annex 9).
pub fn is_terminal_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
