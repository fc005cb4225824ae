//! The terminal: raw mode and the alternate screen while `interflow top` runs, given back on every way out, and the
//! sequences that draw cells.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color as AnsiColor, Print, SetAttribute, SetBackgroundColor, SetForegroundColor};
use crossterm::terminal::{
    Clear, ClearType as AnsiClear, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;

/// Size of a terminal that does not tell its own.
const DEFAULT_SIZE: Size = Size { width: 80, height: 24 };

/// Whether the terminal has to be given back.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back when dropped. A panic in any thread does so before its message, and ends the process: what
/// remained would draw over it.
pub struct TerminalSession(());

impl TerminalSession {
    pub fn enter() -> io::Result<Self> {
        // From here on, a failure gives it back, too.
        let session = Self(());
        session.resume()?;
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
            std::process::exit(101);
        }));
        Ok(session)
    }

    /// Gives the terminal to another program until [`resume`](Self::resume).
    pub fn suspend(&self) {
        give_back();
    }

    /// Takes the terminal again; the screen has to be drawn as a whole.
    pub fn resume(&self) -> io::Result<()> {
        enable_raw_mode()?;
        IN_USE.store(true, Ordering::SeqCst);
        execute!(io::stdout(), EnterAlternateScreen, Hide)
    }

    pub fn screen(&self, colour: bool) -> io::Result<Terminal<AnsiBackend<Stdout>>> {
        Terminal::new(AnsiBackend::new(io::stdout(), colour))
    }
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if IN_USE.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// Writes cells as ANSI sequences; without colours if the operator wants none.
pub struct AnsiBackend<W: Write> {
    out: io::BufWriter<W>,
    colour: bool,
    cursor: Position,
}

impl<W: Write> AnsiBackend<W> {
    pub fn new(out: W, colour: bool) -> Self {
        Self { out: io::BufWriter::with_capacity(32 << 10, out), colour, cursor: Position::ORIGIN }
    }

    fn set_style(&mut self, cell: &Cell) -> io::Result<()> {
        queue!(self.out, SetAttribute(Attribute::Reset))?;
        let attributes = [
            (Modifier::BOLD, Attribute::Bold),
            (Modifier::DIM, Attribute::Dim),
            (Modifier::UNDERLINED, Attribute::Underlined),
            (Modifier::REVERSED, Attribute::Reverse),
        ];
        for (_, attribute) in attributes.iter().filter(|(m, _)| cell.modifier.contains(*m)) {
            queue!(self.out, SetAttribute(*attribute))?;
        }
        if self.colour {
            queue!(self.out, SetForegroundColor(ansi(cell.fg)), SetBackgroundColor(ansi(cell.bg)))?;
        }
        Ok(())
    }
}

impl<W: Write> Backend for AnsiBackend<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let (mut style, mut next) = (None, None);
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                queue!(self.out, MoveTo(x, y))?;
            }
            // A wide character is followed by a jump, which costs little.
            next = Some((x + 1, y));
            let cell_style = (cell.fg, cell.bg, cell.modifier);
            if style != Some(cell_style) {
                self.set_style(cell)?;
                style = Some(cell_style);
            }
            // Texts of peers are escaped where they are read; this is for what was overlooked there.
            let symbol = cell.symbol();
            queue!(self.out, Print(if symbol.contains(char::is_control) { "\u{fffd}" } else { symbol }))?;
        }
        queue!(self.out, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        queue!(self.out, MoveTo(self.cursor.x, self.cursor.y))
    }

    fn clear(&mut self) -> io::Result<()> {
        queue!(self.out, SetAttribute(Attribute::Reset), Clear(AnsiClear::All))
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let size = terminal_size::terminal_size().map(|(w, h)| Size { width: w.0, height: h.0 });
        Ok(size.filter(|s| s.width > 0 && s.height > 0).unwrap_or(DEFAULT_SIZE))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The terminal's own palette, which suits its background.
const fn ansi(color: Color) -> AnsiColor {
    match color {
        Color::Red => AnsiColor::DarkRed,
        Color::Green => AnsiColor::DarkGreen,
        Color::Yellow => AnsiColor::DarkYellow,
        Color::Blue => AnsiColor::DarkBlue,
        Color::Magenta => AnsiColor::DarkMagenta,
        Color::Cyan => AnsiColor::DarkCyan,
        _ => AnsiColor::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::style::Style;

    fn written(colour: bool, symbol: &str) -> String {
        // Whatever NO_COLOR says where the tests run.
        crossterm::style::force_color_output(true);
        let (mut out, mut cell) = (Vec::new(), Cell::default());
        cell.set_symbol(symbol).set_style(Style::new().fg(Color::Red).add_modifier(Modifier::REVERSED));
        let mut backend = AnsiBackend::new(&mut out, colour);
        backend.draw([(3, 2, &cell)].into_iter()).unwrap();
        backend.flush().unwrap();
        drop(backend);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_are_written_with_their_style_and_without_colours_if_none_are_wanted() {
        assert!(written(true, "x").contains("\u{1b}[38;5;1m"), "{:?}", written(true, "x"));
        let plain = written(false, "x");
        assert_eq!(plain, "\u{1b}[3;4H\u{1b}[0m\u{1b}[7mx\u{1b}[0m");
    }

    #[test]
    fn control_character_in_a_cell_never_reaches_the_terminal() {
        for symbol in ["\u{1b}", "\u{9b}", "\u{7}", "\r"] {
            assert_eq!(written(false, symbol), written(false, "\u{fffd}"), "{symbol:?}");
        }
    }
}
