//! Breaks lines at the width of the terminal.

use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

/// The parts of a line that are at most `width` columns wide, broken between characters: bodies have few spaces.
pub fn wrap(line: &Line<'_>, width: usize) -> Vec<Line<'static>> {
    let width = width.max(2);
    let mut lines = vec![Line::default().style(line.style)];
    let mut used = 0;
    for span in &line.spans {
        let mut part = String::new();
        for grapheme in span.styled_graphemes(Style::default()) {
            let columns = Span::raw(grapheme.symbol).width();
            if used + columns > width {
                push(&mut lines, std::mem::take(&mut part), span.style);
                lines.push(Line::default().style(line.style));
                used = 0;
            }
            part.push_str(grapheme.symbol);
            used += columns;
        }
        push(&mut lines, part, span.style);
    }
    lines
}

fn push(lines: &mut [Line<'static>], text: String, style: Style) {
    if let Some(last) = lines.last_mut()
        && !text.is_empty()
    {
        last.push_span(Span::styled(text, style));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_by_columns_and_keep_their_styles() {
        let line = Line::from(vec![Span::raw("abc"), Span::styled("日本語x", Style::new().bold())]);
        let parts = wrap(&line, 5);
        let texts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["abc日", "本語x"]);
        assert_eq!(parts[1].spans[0].style, Style::new().bold());
        assert_eq!(wrap(&Line::default(), 5).len(), 1, "an empty line stays");
    }
}
