//! Output formats: `--format` of every command that prints data, with `--json` as its shorthand, and writing to stdout.

use std::io::{self, Write as _};

use clap::builder::{EnumValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use serde_json::Value;

use crate::CliError;

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
    pub fn print(&self, value: &impl serde::Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        if self.is_json() {
            return print_json(value);
        }
        ignore_broken_pipe(interflow_host::terminal::stdout().write_all(text().as_bytes()))
    }
}

/// A set of output formats, of which one is JSON.
pub trait OutputFormat: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    const JSON: Self;
    /// The name of the default format.
    const DEFAULT: &'static str;
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
    const DEFAULT: &'static str = "table";
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
    const DEFAULT: &'static str = "table";
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

/// Prints text. Write errors are ignored: the reader may have closed the pipe (`head`).
pub fn print(text: &str) {
    let _ = interflow_host::terminal::stdout().write_all(text.as_bytes());
}

/// Prints a JSON document.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| format!("cannot serialize as JSON: {e}"))?;
    ignore_broken_pipe(writeln!(interflow_host::terminal::data_stdout(), "{text}"))
}

/// Reports write errors, except for a closed pipe (`head`).
pub fn ignore_broken_pipe(result: io::Result<()>) -> Result<(), CliError> {
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

/// Left-aligned columns.
pub fn format_table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter().fold(String::new(), |mut out, row| {
        let line: Vec<_> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}", w = *w)).collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
        out
    })
}

/// Formats seconds as `minutes:seconds`.
pub fn clock(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
