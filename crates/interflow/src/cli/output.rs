//! Output formats: `--format` of every command that prints data, with `--json` as its shorthand, and writing to stdout.

use std::io::{self, IsTerminal as _, Write as _};

use clap::builder::{EnumValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use ratatui_core::text::Span;
use serde_json::Value;

use crate::{CliError, Result};

/// The options `--format` and `--json`.
#[derive(Debug)]
pub struct FormatArgs<F>(F);

impl<F: OutputFormat> FormatArgs<F> {
    pub fn get(&self) -> F {
        self.0
    }

    pub fn is_json(&self) -> bool {
        self.0 == F::JSON
    }

    /// Prints a value as JSON, or else this text.
    pub fn print(&self, value: &impl serde::Serialize, text: impl FnOnce() -> String) -> Result<()> {
        if self.is_json() {
            return print_json(value);
        }
        if F::HAS_ROWS { print_rows(&text()) } else { print_text(&text()) }
    }
}

/// Prints lines, each cut at the width of the terminal. A pipe gets the whole.
pub fn print_rows(text: &str) -> Result<()> {
    let Some(width) = terminal_width() else { return print_text(text) };
    print_text(&text.lines().map(|line| fit(line, width) + "\n").collect::<String>())
}

fn print_text(text: &str) -> Result<()> {
    ignore_broken_pipe(interflow_host::terminal::stdout().write_all(text.as_bytes()))
}

/// A set of output formats, of which one is JSON.
pub trait OutputFormat: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    const JSON: Self;
    /// The name of the default format.
    const DEFAULT: &'static str = "table";
    /// Whether each line of its text is a row, which is cut at the width of the terminal.
    const HAS_ROWS: bool = false;
}

// By hand, because clap's derived defaults are statics, which all instances of a generic type share.
impl<F: OutputFormat> Args for FormatArgs<F> {
    fn augment_args(command: Command) -> Command {
        let format = Arg::new("format").short('f').long("format").value_name("FORMAT").help("Output format");
        let json = Arg::new("json").long("json").action(ArgAction::SetTrue).conflicts_with("format");
        command
            .arg(format.value_parser(EnumValueParser::<F>::new()).default_value(F::DEFAULT))
            .arg(json.help("Same as `--format json`"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<F: OutputFormat> FromArgMatches for FormatArgs<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let format = matches.get_one::<F>("format").copied().unwrap_or(F::JSON);
        Ok(Self(if matches.get_flag("json") { F::JSON } else { format }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Formats of commands that print a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Table.
    Table,
    /// One JSON document.
    Json,
}

impl OutputFormat for TableFormat {
    const JSON: Self = Self::Json;
    const HAS_ROWS: bool = true;
}

/// Formats of commands that print text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
}

impl OutputFormat for TextFormat {
    const JSON: Self = Self::Json;
    const DEFAULT: &'static str = "text";
}

/// Formats of lists that may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Table.
    Table,
    /// One JSON array.
    Json,
    /// One JSON object per line.
    Jsonl,
}

impl OutputFormat for ListFormat {
    const JSON: Self = Self::Json;
}

/// Accepts the names of these values, and offers them to shells and in the help text.
pub fn one_of<T>(values: &'static [T], name: fn(T) -> PossibleValue) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync,
{
    let find = move |text: String| values.iter().copied().find(|v| name(*v).matches(&text, false));
    PossibleValuesParser::new(values.iter().map(|v| name(*v)))
        .map(move |text| find(text).expect("the parser accepts no other names"))
}

/// Prints text. If it cannot be written, the process says so at its end.
pub fn print(text: &str) {
    interflow_host::terminal::print(format_args!("{text}"));
}

/// Prints values as JSON, one per line.
pub fn print_json_lines(values: &[impl serde::Serialize]) -> Result<()> {
    let mut out = interflow_host::terminal::stdout();
    ignore_broken_pipe(values.iter().try_for_each(|value| writeln!(out, "{}", serde_json::to_string(value)?)))
}

/// Prints a JSON document.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|e| format!("cannot serialize as JSON: {e}"))?;
    ignore_broken_pipe(writeln!(interflow_host::terminal::data_stdout(), "{text}"))
}

/// Reports write errors, except for a closed pipe (`head`).
pub fn ignore_broken_pipe(result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Failed(format!("output failed: {e}"))),
        _ => Ok(()),
    }
}

/// A JSON member as text without control characters.
pub fn member(value: &Value, name: &str) -> String {
    let text = match &value[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    text.chars().filter(|c| !c.is_control()).collect()
}

pub fn members<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value[name].as_array().into_iter().flatten()
}

pub fn joined_values(value: &Value, name: &str) -> String {
    members(value, name).filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

/// The columns of the terminal on standard output, if there is one.
pub fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    columns.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

/// The columns that a text takes on a terminal: wide characters take two. Colours take none.
pub fn text_width(text: &str) -> usize {
    Span::raw(anstream::adapter::strip_str(text).to_string()).width()
}

/// Truncates to a number of columns, with an ellipsis.
pub fn fit(text: &str, width: usize) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let (mut fitted, mut used, mut is_colour, mut is_cut) = (String::new(), 0, false, width == 0);
    for c in text.chars() {
        is_colour |= c == '\u{1b}';
        used += if is_colour { 0 } else { text_width(c.encode_utf8(&mut [0; 4])) };
        // Colours behind the end still pass: the last one may be a reset.
        if is_colour || used < width {
            fitted.push(c);
        } else if !std::mem::replace(&mut is_cut, true) {
            fitted.push('…');
        }
        is_colour &= c != 'm';
    }
    fitted
}

/// Truncates and pads to a number of columns.
pub fn pad(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let padding = width - text_width(&text);
    text + &" ".repeat(padding)
}

/// Joins the words that fit the columns; those of the highest rank are left out first.
pub fn fit_words(mut words: Vec<(u8, String)>, separator: &str, columns: Option<usize>) -> String {
    words.retain(|(_, word)| !word.is_empty());
    loop {
        let line = words.iter().map(|(_, word)| &**word).collect::<Vec<_>>().join(separator);
        let Some(columns) = columns.filter(|columns| text_width(&line) > *columns) else { return line };
        match words.iter().enumerate().max_by_key(|(_, (rank, _))| *rank) {
            Some((last, (1.., _))) => drop(words.remove(last)),
            _ => return fit(&line, columns),
        }
    }
}

/// Breaks a line between words where the columns end, and indents what follows.
pub fn wrap_words(line: &str, indent: usize, columns: Option<usize>) -> String {
    let (mut wrapped, mut used) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        if used > indent && columns.is_some_and(|columns| used + text_width(word.trim_end()) > columns) {
            wrapped = format!("{}\n{:indent$}", wrapped.trim_end(), "");
            used = indent;
        }
        wrapped.push_str(word);
        used += text_width(word);
    }
    wrapped
}

/// Width of a cell below which other columns are left out rather than this one truncated.
const MIN_CELL: usize = 24;
/// Titles of columns that are aligned to the right.
const NUMBERS: [&str; 4] = ["TURNS", "IN", "OUT", "COST"];

/// Columns below their titles. What does not fit the terminal is left out, these columns first in their order, and then
/// truncated.
pub fn format_table(rows: &[Vec<String>], leave_out: &[&str]) -> String {
    format_table_within(rows, leave_out, terminal_width())
}

/// As [`format_table`], with these titles.
pub fn format_rows(titles: &[&str], rows: impl Iterator<Item = Vec<String>>, leave_out: &[&str]) -> String {
    let titles = titles.iter().map(|title| (*title).to_owned()).collect();
    format_table(&std::iter::once(titles).chain(rows).collect::<Vec<_>>(), leave_out)
}

fn format_table_within(rows: &[Vec<String>], leave_out: &[&str], terminal: Option<usize>) -> String {
    let Some(titles) = rows.first() else { return String::new() };
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|cell| text_width(cell)).max().unwrap_or(0);
    let mut columns: Vec<(usize, usize)> = (0..titles.len()).map(|c| (c, width(c))).collect();
    let terminal = terminal.unwrap_or(usize::MAX);
    let total = |columns: &[(usize, usize)], most: usize| {
        columns.iter().map(|(_, width)| (*width).min(most) + 2).sum::<usize>().saturating_sub(2)
    };
    for title in leave_out {
        if total(&columns, MIN_CELL) > terminal {
            columns.retain(|(c, _)| titles[*c] != *title);
        }
    }
    while total(&columns, usize::MAX) > terminal
        // A time is of use only as a whole.
        && let Some((_, widest)) = columns
            .iter_mut()
            .max_by_key(|(c, width)| (titles[*c] != "TIME" && *width > 8, *width))
            .filter(|(_, width)| *width > 1)
    {
        *widest -= 1;
    }
    let cell = |row: &[String], (c, width): (usize, usize)| {
        let text = row.get(c).map(String::as_str).unwrap_or_default();
        if NUMBERS.contains(&&*titles[c]) { format!("{text:>width$}") } else { pad(text, width) }
    };
    rows.iter().fold(String::new(), |out, row| {
        let line: Vec<_> = columns.iter().map(|column| cell(row, *column)).collect();
        out + line.join("  ").trim_end() + "\n"
    })
}

/// Formats seconds as `minutes:seconds`.
pub fn clock(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal_by_leaving_out_columns_and_truncating_the_widest() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let title = "漢字かな交じり文の長い題名".repeat(3);
        let rows = [row(["ID", "MODEL", "COST", "TITLE"]), row(["c1", "claude-opus-5-5", "$0.1", &title])];
        for width in 5..140 {
            let table = format_table_within(&rows, &["COST", "MODEL"], Some(width));
            assert!(table.lines().all(|line| text_width(line) <= width), "{width}: {table}");
            assert_eq!(table.contains("claude-opus-5-5"), width >= 45, "{width}: {table}");
            assert_eq!(table.contains("$0.1"), width >= 51, "{width}: {table}");
        }
        assert!(format_table_within(&rows, &["COST"], None).contains(&title), "a pipe gets the whole");
    }

    #[test]
    fn a_time_stays_whole_while_other_cells_can_be_truncated() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["TIME", "WHO", "TARGET"]), row(["2026-11-29T18:53:00.123Z", "someone", &"x".repeat(60)])];
        for width in 45..140 {
            let table = format_table_within(&rows, &[], Some(width));
            assert!(table.contains("2026-11-29T18:53:00.123Z"), "{width}: {table}");
            assert!(table.lines().all(|line| text_width(line) <= width), "{width}: {table}");
        }
    }

    #[test]
    fn words_of_less_importance_are_left_out_before_a_line_is_truncated() {
        let words = || [(0, "model"), (2, "first byte 5 ms"), (1, "$0.1"), (0, "")].map(|(r, w)| (r, w.to_owned()));
        for (columns, line) in [
            (None, "model · first byte 5 ms · $0.1"),
            (Some(30), "model · first byte 5 ms · $0.1"),
            (Some(29), "model · $0.1"),
            (Some(11), "model"),
            (Some(4), "mod…"),
        ] {
            assert_eq!(fit_words(words().to_vec(), " · ", columns), line, "{columns:?}");
        }
    }

    #[test]
    fn a_line_is_broken_between_words() {
        let line = "pending    1 held by rules; `list` shows them";
        assert_eq!(wrap_words(line, 11, None), line);
        let wrapped = "pending    1 held by\n           rules;\n           `list`\n           shows them";
        assert_eq!(wrap_words(line, 11, Some(21)), wrapped);
        assert_eq!(wrap_words("    averylongword x", 4, Some(6)), "    averylongword\n    x");
    }

    #[test]
    fn a_line_is_truncated_by_columns_and_its_colours_end() {
        for (text, width, fitted) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("a… bc", 4, "a… …"),
            ("\u{1b}[1mbold\u{1b}[0m x", 3, "\u{1b}[1mbo…\u{1b}[0m"),
            ("abc", 0, ""),
        ] {
            assert_eq!(fit(text, width), fitted, "{text} in {width}");
        }
    }
}
