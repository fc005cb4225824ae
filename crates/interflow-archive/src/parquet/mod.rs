//! Flows as a Parquet file: one row per flow, for DuckDB, pandas, Polars and the like. Everything that is written as Parquet
//! goes through [`TableWriter`]: exports, the archive of the record, and reports.

mod columns;
mod merged_file;
mod table;

use std::io::{self, Read, Write};

use interflow_store::{FlowRecord, serde_repr};

use self::columns::{COLUMNS, Value};
pub use self::merged_file::{MergedFile, rows};
pub use self::table::{ColumnKind, TableWriter};
use super::{BodySource, FlowExporter};

pub use self::columns::SCHEMA_VERSION;

/// Longer bodies are null: readers hold a value in memory as a whole.
pub const MAX_BODY_BYTES: u64 = 64 << 20;

/// Writes flows as rows.
pub struct ParquetWriter<W> {
    table: TableWriter<W>,
    bodies: bool,
}

impl<W: Write> ParquetWriter<W> {
    /// Begins a file. Without `bodies`, the columns of bodies are null.
    ///
    /// # Errors
    /// The schema cannot be built.
    pub fn new(out: W, bodies: bool) -> io::Result<Self> {
        let columns: Vec<_> = COLUMNS.iter().map(|column| (column.name, column.value.kind())).collect();
        Ok(Self { table: TableWriter::new(out, "flow", &columns, Some(SCHEMA_VERSION))?, bodies })
    }

    /// Bytes of the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.table.bytes_written() as u64
    }
}

impl<W: Write> FlowExporter for ParquetWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        for (values, column) in self.table.columns().iter_mut().zip(COLUMNS) {
            match column.value {
                Value::Text(of) => values.text(of(row).as_deref()),
                Value::Integer(of) | Value::Instant(of) => values.number(of(row)),
                Value::Boolean(of) => values.number(of(row).map(u64::from)),
                Value::List(of) => values.list(of(row)),
                Value::Json(of) => match of(row) {
                    // As in JSONL: bytes that are not UTF-8 are `{"base64": "…"}`.
                    Some(headers) => {
                        serde_repr::headers::serialize(headers, &mut serde_json::Serializer::new(values.bytes()))?;
                        values.end_bytes();
                    }
                    None => values.null(),
                },
                Value::Body(direction) => match row.body(direction).map_or(0, |body| body.kept) {
                    recorded if self.bodies && recorded > 0 && recorded <= MAX_BODY_BYTES => {
                        contents.body(row, direction)?.take(MAX_BODY_BYTES).read_to_end(values.bytes())?;
                        values.end_bytes();
                    }
                    _ => values.null(),
                },
            }
        }
        self.table.end_row()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.table.finish()
    }
}
