//! Flows as a Parquet file: one row per flow, for DuckDB, pandas, Polars and the like. Rows are written in groups of bounded
//! size, so that memory does not grow with their number.

mod columns;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};
use interflow_store::FlowRecord;
use interflow_types::Direction;

use self::columns::{COLUMNS, Value};
use super::{BodySource, FlowExporter};

pub use self::columns::SCHEMA_VERSION;

/// Rows of a group at most.
const GROUP_ROWS: usize = 16 << 10;
/// Bytes of a group's values at most, before compression; one row more may follow.
const GROUP_BYTES: usize = 32 << 20;
/// Longer bodies are null: readers hold a value in memory as a whole.
pub const MAX_BODY_BYTES: u64 = 64 << 20;
const ZSTD_LEVEL: i32 = 3;

/// Writes flows as rows.
pub struct ParquetWriter<W> {
    out: W,
    bodies: bool,
    file: SerializedFileWriter<Output>,
    /// What the file writer has written and `out` has not.
    written: Output,
    columns: Vec<Values>,
    rows: usize,
    bytes: usize,
}

impl<W: Write> ParquetWriter<W> {
    /// Begins a file. Without `bodies`, the columns of bodies are null.
    ///
    /// # Errors
    /// The schema cannot be built.
    pub fn new(out: W, bodies: bool) -> io::Result<Self> {
        let written = Output::default();
        let schema = Arc::new(schema().map_err(io::Error::other)?);
        let file =
            SerializedFileWriter::new(written.clone(), schema, Arc::new(properties().map_err(io::Error::other)?));
        let columns = COLUMNS.iter().map(|column| Values::of(column.value)).collect();
        Ok(Self { out, bodies, file: file.map_err(io::Error::other)?, written, columns, rows: 0, bytes: 0 })
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.rows > 0 {
            let columns = COLUMNS.iter().map(|column| Values::of(column.value)).collect();
            let full = std::mem::replace(&mut self.columns, columns);
            (self.rows, self.bytes) = (0, 0);
            write_columns(&mut self.file, full).map_err(io::Error::other)?;
        }
        self.out.write_all(&self.written.take())
    }

    fn body(&self, row: &FlowRecord, contents: &dyn BodySource, direction: Direction) -> io::Result<Option<ByteArray>> {
        let recorded = row.body(direction).map_or(0, |body| body.kept);
        if !self.bodies || recorded == 0 || recorded > MAX_BODY_BYTES {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        contents.body(row, direction)?.take(MAX_BODY_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(bytes.into()))
    }
}

impl<W: Write> FlowExporter for ParquetWriter<W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        for (i, column) in COLUMNS.iter().enumerate() {
            let body = match column.value {
                Value::Body(direction) => self.body(row, contents, direction)?,
                _ => None,
            };
            self.bytes += self.columns[i].push(column.value, row, body);
        }
        self.rows += 1;
        if self.rows < GROUP_ROWS && self.bytes < GROUP_BYTES { Ok(()) } else { self.write_group() }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_group()?;
        self.file.finish().map_err(io::Error::other)?;
        self.out.write_all(&self.written.take())?;
        self.out.flush()
    }
}

/// The values of one column in the current group, and their levels: 0 where a value is missing.
enum Values {
    Bytes(Vec<ByteArray>, Vec<i16>),
    Integers(Vec<i64>, Vec<i16>),
    Booleans(Vec<bool>, Vec<i16>),
    /// Elements, definition levels and repetition levels.
    List(Vec<ByteArray>, Vec<i16>, Vec<i16>),
}

impl Values {
    fn of(value: Value) -> Self {
        match value {
            Value::Text(_) | Value::Json(_) | Value::Body(_) => Self::Bytes(Vec::new(), Vec::new()),
            Value::Integer(_) | Value::Instant(_) => Self::Integers(Vec::new(), Vec::new()),
            Value::Boolean(_) => Self::Booleans(Vec::new(), Vec::new()),
            Value::List(_) => Self::List(Vec::new(), Vec::new(), Vec::new()),
        }
    }

    /// Adds a flow's value; returns about how much memory it takes.
    fn push(&mut self, value: Value, row: &FlowRecord, body: Option<ByteArray>) -> usize {
        match (self, value) {
            (Self::Bytes(values, levels), value) => {
                let bytes = match value {
                    Value::Text(of) | Value::Json(of) => of(row).map(|text| ByteArray::from(text.into_bytes())),
                    _ => body,
                };
                levels.push(i16::from(bytes.is_some()));
                let size = bytes.as_ref().map_or(0, ByteArray::len);
                values.extend(bytes);
                size + size_of::<ByteArray>()
            }
            (Self::Integers(values, levels), Value::Integer(of) | Value::Instant(of)) => {
                let value = of(row).map(|n| i64::try_from(n).unwrap_or(i64::MAX));
                levels.push(i16::from(value.is_some()));
                values.extend(value);
                size_of::<i64>()
            }
            (Self::Booleans(values, levels), Value::Boolean(of)) => {
                let value = of(row);
                levels.push(i16::from(value.is_some()));
                values.extend(value);
                size_of::<i16>()
            }
            (Self::List(values, levels, repetitions), Value::List(of)) => {
                let texts = of(row);
                if texts.is_empty() {
                    levels.push(0);
                    repetitions.push(0);
                }
                for (i, text) in texts.iter().enumerate() {
                    levels.push(1);
                    repetitions.push(i16::from(i > 0));
                    values.push(text.as_str().into());
                }
                texts.iter().map(|text| text.len() + size_of::<ByteArray>()).sum()
            }
            (Self::Integers(..) | Self::Booleans(..) | Self::List(..), _) => {
                unreachable!("a column's values are of its kind")
            }
        }
    }

    fn write(self, column: &mut SerializedColumnWriter<'_>) -> Result<usize, ParquetError> {
        match self {
            Self::Bytes(values, levels) => column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None),
            Self::Integers(values, levels) => column.typed::<Int64Type>().write_batch(&values, Some(&levels), None),
            Self::Booleans(values, levels) => column.typed::<BoolType>().write_batch(&values, Some(&levels), None),
            Self::List(values, levels, repetitions) => {
                column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), Some(&repetitions))
            }
        }
    }
}

fn write_columns(file: &mut SerializedFileWriter<Output>, columns: Vec<Values>) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for values in columns {
        let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("too few columns".into()))?;
        values.write(&mut column)?;
        column.close()?;
    }
    group.close().map(drop)
}

fn schema() -> Result<Type, ParquetError> {
    let fields = COLUMNS.iter().map(|column| field(column.name, column.value).map(TypePtr::from));
    Type::group_type_builder("flow").with_fields(fields.collect::<Result<_, _>>()?).build()
}

fn field(name: &str, value: Value) -> Result<Type, ParquetError> {
    let (physical, logical) = match value {
        Value::Text(_) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Value::Json(_) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::Json)),
        Value::Integer(_) => (PhysicalType::INT64, None),
        Value::Boolean(_) => (PhysicalType::BOOLEAN, None),
        Value::Instant(_) => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        Value::Body(_) => (PhysicalType::BYTE_ARRAY, None),
        Value::List(_) => return list(name),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

/// A list that is never null, of texts that are never null: a group of three levels, as the format demands.
fn list(name: &str) -> Result<Type, ParquetError> {
    let element = Type::primitive_type_builder("element", PhysicalType::BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::String))
        .build()?;
    let middle = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element.into()])
        .build()?;
    Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![middle.into()])
        .build()
}

fn properties() -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("interflow ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new("interflow".to_owned(), SCHEMA_VERSION.to_owned())]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?));
    for column in COLUMNS.iter().filter(|column| matches!(column.value, Value::Body(_))) {
        // Bodies hardly repeat, and their least and greatest say nothing.
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_statistics_enabled(path, EnabledStatistics::None);
    }
    Ok(properties.build())
}

/// Where the file writer writes to: it demands an output that can be sent to another thread, which standard output is not.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
