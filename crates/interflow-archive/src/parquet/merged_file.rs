//! Several Parquet files as one. Columns are copied as they are, so that merging costs no compression.

use std::fs::File;
use std::io;
use std::sync::Arc;

use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;

/// The number of rows of a file.
///
/// # Errors
/// It cannot be read, or is no Parquet file.
pub fn rows(file: &File) -> io::Result<u64> {
    Ok(metadata(file)?.file_metadata().num_rows().unsigned_abs())
}

fn metadata(file: &File) -> io::Result<ParquetMetaData> {
    let reader = SerializedFileReader::new(file.try_clone()?).map_err(io::Error::other)?;
    Ok(reader.metadata().clone())
}

/// A file to which others are appended.
pub struct MergedFile(SerializedFileWriter<File>);

impl MergedFile {
    /// Begins a file with the columns and the notes of another one.
    ///
    /// # Errors
    /// That one cannot be read, or this one not be written.
    pub fn like(other: &File, to: File) -> io::Result<Self> {
        let metadata = metadata(other)?;
        let file = metadata.file_metadata();
        let properties = WriterProperties::builder()
            .set_created_by(file.created_by().unwrap_or("interflow").to_owned())
            .set_key_value_metadata(file.key_value_metadata().cloned());
        let schema = file.schema_descr().root_schema_ptr();
        let writer = SerializedFileWriter::new(to, schema, Arc::new(properties.build()));
        writer.map(Self).map_err(io::Error::other)
    }

    /// Adds the rows of a file, and returns how many; `None` if it has other columns, and adds none.
    ///
    /// # Errors
    /// That one cannot be read, or this one not be written.
    pub fn append(&mut self, from: &File) -> io::Result<Option<u64>> {
        let metadata = metadata(from)?;
        if metadata.file_metadata().schema() != self.0.schema_descr().root_schema() {
            return Ok(None);
        }
        metadata.row_groups().iter().try_for_each(|group| self.copy_group(from, group)).map_err(io::Error::other)?;
        Ok(Some(metadata.file_metadata().num_rows().unsigned_abs()))
    }

    fn copy_group(&mut self, from: &File, group: &RowGroupMetaData) -> Result<(), ParquetError> {
        let mut copy = self.0.next_row_group()?;
        for column in group.columns() {
            let closed = ColumnCloseResult {
                bytes_written: column.compressed_size().unsigned_abs(),
                rows_written: group.num_rows().unsigned_abs(),
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            copy.append_column(from, closed)?;
        }
        copy.close().map(drop)
    }

    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.finish().map(drop).map_err(io::Error::other)
    }
}
