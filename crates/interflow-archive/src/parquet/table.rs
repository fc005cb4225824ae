//! A table as a Parquet file. Rows are written in groups of bounded size, so that memory does not grow with their number;
//! columns are compressed with zstd.

use std::io::{self, Write};
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};
use bytes::Bytes;

/// Rows of a group at most.
const GROUP_ROWS: usize = 16 << 10;
/// Bytes of a group's texts and bodies at most, before compression; one row more may follow.
const GROUP_BYTES: usize = 32 << 20;
const ZSTD_LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnKind {
    #[default]
    Text,
    /// Text that is a JSON document.
    Json,
    Integer,
    Number,
    Boolean,
    /// Microseconds since 1970, UTC.
    Instant,
    /// Texts. Never null.
    List,
    Bytes,
}

/// Writes rows: each column gets one value, then [`end_row`](Self::end_row) is called.
pub struct TableWriter<W> {
    out: W,
    /// It demands an output that can be sent to another thread, which standard output is not.
    file: SerializedFileWriter<Vec<u8>>,
    columns: Vec<ColumnValues>,
    rows: usize,
}

impl<W: Write> TableWriter<W> {
    /// Begins a file with these columns. `version` is noted in it.
    ///
    /// # Errors
    /// The schema cannot be built.
    pub fn new(out: W, table: &str, columns: &[(&str, ColumnKind)], version: Option<&str>) -> io::Result<Self> {
        let file = begin(table, columns, version).map_err(io::Error::other)?;
        let columns = columns.iter().map(|(_, kind)| ColumnValues { kind: *kind, ..ColumnValues::default() }).collect();
        Ok(Self { out, file, columns, rows: 0 })
    }

    pub fn columns(&mut self) -> &mut [ColumnValues] {
        &mut self.columns
    }

    /// # Errors
    /// The file cannot be written.
    pub fn end_row(&mut self) -> io::Result<()> {
        self.rows += 1;
        let is_full = || self.columns.iter().map(|column| column.bytes.len()).sum::<usize>() >= GROUP_BYTES;
        if self.rows < GROUP_ROWS && !is_full() { Ok(()) } else { self.write_group() }
    }

    /// Bytes of the file so far.
    pub fn bytes_written(&self) -> usize {
        self.file.bytes_written()
    }

    /// Writes the end of the file, and flushes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write_group()?;
        self.file.finish().map_err(io::Error::other)?;
        self.out.write_all(self.file.inner())?;
        self.out.flush()
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.rows = 0;
            write_columns(&mut self.file, &mut self.columns).map_err(io::Error::other)?;
        }
        self.out.write_all(&std::mem::take(self.file.inner_mut()))
    }
}

/// The values of one column in the current group.
#[derive(Default)]
pub struct ColumnValues {
    kind: ColumnKind,
    /// Texts and bytes, one behind the other, and where each ends: an allocation for each value would cost more than what is
    /// done with it.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Integers, times, 0 and 1 of booleans, and the bits of other numbers.
    numbers: Vec<i64>,
    /// Definition levels: 0 where a value is missing. Repetition levels, of lists alone: 1 for all but the first element.
    levels: Vec<i16>,
    repetitions: Vec<i16>,
}

impl ColumnValues {
    pub fn null(&mut self) {
        self.levels.push(0);
    }

    pub fn number(&mut self, value: Option<u64>) {
        self.numbers.extend(value.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
        self.levels.push(i16::from(value.is_some()));
    }

    pub fn double(&mut self, value: f64) {
        self.numbers.push(value.to_bits().cast_signed());
        self.levels.push(1);
    }

    pub fn text(&mut self, value: Option<&str>) {
        let Some(text) = value else { return self.null() };
        self.bytes.extend_from_slice(text.as_bytes());
        self.end_bytes();
    }

    pub fn list(&mut self, texts: &[String]) {
        if texts.is_empty() {
            self.null();
            self.repetitions.push(0);
        }
        for (i, text) in texts.iter().enumerate() {
            self.text(Some(text));
            self.repetitions.push(i16::from(i > 0));
        }
    }

    /// Where the bytes of a value are appended, before [`end_bytes`](Self::end_bytes).
    pub const fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub fn end_bytes(&mut self) {
        self.ends.push(self.bytes.len());
        self.levels.push(1);
    }

    /// Writes the values, and forgets them. `slices` is memory that columns share.
    fn write(
        &mut self,
        column: &mut SerializedColumnWriter<'_>,
        slices: &mut Vec<ByteArray>,
    ) -> Result<(), ParquetError> {
        let levels = Some(&self.levels[..]);
        match self.kind {
            ColumnKind::Integer | ColumnKind::Instant => {
                column.typed::<Int64Type>().write_batch(&self.numbers, levels, None)?;
            }
            ColumnKind::Number => {
                let values: Vec<f64> = self.numbers.iter().map(|n| f64::from_bits(n.cast_unsigned())).collect();
                column.typed::<DoubleType>().write_batch(&values, levels, None)?;
            }
            ColumnKind::Boolean => {
                let values: Vec<bool> = self.numbers.iter().map(|n| *n != 0).collect();
                column.typed::<BoolType>().write_batch(&values, levels, None)?;
            }
            ColumnKind::Text | ColumnKind::Json | ColumnKind::Bytes | ColumnKind::List => {
                let next = Vec::with_capacity(self.bytes.len());
                let all = Bytes::from(std::mem::replace(&mut self.bytes, next));
                let begins = std::iter::once(0).chain(self.ends.iter().copied());
                slices.extend(begins.zip(&self.ends).map(|(begin, end)| ByteArray::from(all.slice(begin..*end))));
                let repetitions = (self.kind == ColumnKind::List).then_some(&self.repetitions[..]);
                column.typed::<ByteArrayType>().write_batch(slices, levels, repetitions)?;
                slices.clear();
            }
        }
        self.ends.clear();
        self.numbers.clear();
        self.levels.clear();
        self.repetitions.clear();
        Ok(())
    }
}

fn write_columns(file: &mut SerializedFileWriter<Vec<u8>>, columns: &mut [ColumnValues]) -> Result<(), ParquetError> {
    let (mut group, mut slices) = (file.next_row_group()?, Vec::new());
    for values in columns {
        let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("too few columns".into()))?;
        values.write(&mut column, &mut slices)?;
        column.close()?;
    }
    group.close().map(drop)
}

fn begin(
    table: &str,
    columns: &[(&str, ColumnKind)],
    version: Option<&str>,
) -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    let fields = columns.iter().map(|(name, kind)| field(name, *kind));
    let schema = Type::group_type_builder(table).with_fields(fields.collect::<Result<_, _>>()?).build()?;
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("interflow ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(version.map(|version| vec![KeyValue::new("interflow".to_owned(), version.to_owned())]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?));
    for (name, _) in columns.iter().filter(|(_, kind)| *kind == ColumnKind::Bytes) {
        // Bodies hardly repeat, and their least and greatest say nothing.
        let path = ColumnPath::from(*name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_statistics_enabled(path, EnabledStatistics::None);
    }
    SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))
}

fn field(name: &str, kind: ColumnKind) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Json => (PhysicalType::BYTE_ARRAY, Some(LogicalType::Json)),
        ColumnKind::Integer => (PhysicalType::INT64, None),
        ColumnKind::Number => (PhysicalType::DOUBLE, None),
        ColumnKind::Boolean => (PhysicalType::BOOLEAN, None),
        ColumnKind::Instant => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        ColumnKind::Bytes => (PhysicalType::BYTE_ARRAY, None),
        ColumnKind::List => {
            // Three levels, as the format demands.
            let list = "(LIST) { repeated group list { required binary element (STRING); } }";
            return Ok(
                parse_message_type(&format!("message m {{ required group {name} {list} }}"))?.get_fields()[0].clone()
            );
        }
    };
    let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    field.with_logical_type(logical).build().map(TypePtr::from)
}
