//! Formats of `flows show`, `flows tail` and `flows export`.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use interflow_archive::ArchiveFormat;
use interflow_archive::pcapng::PacketSides;
use interflow_types::Direction;

use crate::cli::output::OutputFormat;

/// Formats of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShowFormat {
    Text,
    Json,
    Archive(ArchiveFormat),
}

const SHOW_FORMATS: [ShowFormat; ArchiveFormat::ALL.len() + 2] = {
    let mut all = [ShowFormat::Text; ArchiveFormat::ALL.len() + 2];
    all[1] = ShowFormat::Json;
    let mut i = 0;
    while i < ArchiveFormat::ALL.len() {
        all[i + 2] = ShowFormat::Archive(ArchiveFormat::ALL[i]);
        i += 1;
    }
    all
};

impl ValueEnum for ShowFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &SHOW_FORMATS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Text => PossibleValue::new("text").help("Text for people"),
            Self::Json => PossibleValue::new("json").help("One JSON document"),
            Self::Archive(format) => archive_format(*format),
        })
    }
}

impl OutputFormat for ShowFormat {
    const JSON: Self = Self::Json;
    const DEFAULT: &'static str = "text";
}

/// Formats of a list without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TailFormat {
    /// Table.
    Table,
    /// One JSON object per line.
    Jsonl,
}

pub fn archive_format(format: ArchiveFormat) -> PossibleValue {
    PossibleValue::new(format.name()).help(format.doc().trim().trim_end_matches('.'))
}

pub const BODIES: [Direction; 2] = [Direction::Request, Direction::Response];

pub fn body(side: Direction) -> PossibleValue {
    PossibleValue::new(side.as_str()).help(format!("The {} body", side.as_str()))
}

pub const SIDES: [PacketSides; 3] = [PacketSides::Client, PacketSides::Upstream, PacketSides::Both];

pub fn side(side: PacketSides) -> PossibleValue {
    match side {
        PacketSides::Client => PossibleValue::new("client").help("Between client and Interflow"),
        PacketSides::Upstream => PossibleValue::new("upstream").help("Between Interflow and origin"),
        PacketSides::Both => PossibleValue::new("both").help("Both, as two interfaces"),
    }
}
