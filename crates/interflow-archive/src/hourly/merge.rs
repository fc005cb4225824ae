//! Replaces the files of an hour by one: query engines read few large files faster than many small ones.
//!
//! Columns are copied as they are, so that merging costs no compression. The merged file is kept on disk until the others
//! are deleted, so that an interrupted replacement is completed and not repeated.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use interflow_objects::ObjectStorage;

use super::cursor::{ArchiveCursor, PendingMerge, folder};
use super::hour::Hour;
use super::part_writer::{TempFile, create, fetch, rows, send};
use super::{ArchiveError, Result};

const MERGED: &str = "merged.parquet";

/// Merges the files of every hour that awaits nothing and has several, if together they are not larger than a file may be.
pub(super) fn merge_small_files(
    (storage, dir): (&ObjectStorage, &Path),
    cursor: &mut ArchiveCursor,
    max_bytes: u64,
    now_millis: u64,
    each: &mut dyn FnMut(&ArchiveCursor) -> bool,
) -> Result<()> {
    finish_interrupted(storage, dir, cursor)?;
    let done = cursor.hours.iter().filter(|(hour, of)| of.open.is_empty() && Hour(**hour).end_millis() < now_millis);
    let done: Vec<_> = done.map(|(hour, of)| (Hour(*hour), of.files, of.bytes)).collect();
    for (hour, files, bytes) in done {
        if files > 1 && bytes <= max_bytes {
            merge(storage, dir, &cursor.replica, hour, files)?;
            cursor.merge = Some(PendingMerge { hour: hour.0, files });
            cursor.save(dir)?;
            each(cursor);
            finish_interrupted(storage, dir, cursor)?;
        } else {
            cursor.hours.remove(&hour.0);
            cursor.save(dir)?;
        }
    }
    Ok(())
}

/// Writes the merged file over the first, and then deletes the others: in between, readers see the flows of the others
/// twice, but never miss any.
fn finish_interrupted(storage: &ObjectStorage, dir: &Path, cursor: &mut ArchiveCursor) -> Result<()> {
    let Some(PendingMerge { hour, files }) = cursor.merge.clone() else { return Ok(()) };
    let merged = folder(dir).join(MERGED);
    let name = |number| Hour(hour).file(&cursor.replica, number);
    send(storage, &name(0), &merged, rows(&merged)?)?;
    storage.wait(storage.delete_all((1..files).map(name).collect()))?;
    cursor.hours.remove(&hour);
    cursor.files = cursor.files.saturating_sub(u64::from(files) - 1);
    cursor.merge = None;
    cursor.save(dir)?;
    drop(TempFile(merged));
    Ok(())
}

fn merge(storage: &ObjectStorage, dir: &Path, replica: &str, hour: Hour, files: u32) -> Result<()> {
    let (merged, part) = (folder(dir).join(MERGED), TempFile(folder(dir).join("part.parquet")));
    let cannot = |e: ParquetError| ArchiveError::io("cannot merge files into", &merged)(std::io::Error::other(e));
    let mut out: Option<SerializedFileWriter<File>> = None;
    let mut flows = 0;
    for number in 0..files {
        fetch(storage, &hour.file(replica, number), &part.0)?;
        flows += rows(&part.0)?;
        let file = File::open(&part.0).map_err(ArchiveError::io("cannot read", &part.0))?;
        let reader = SerializedFileReader::new(file.try_clone().map_err(ArchiveError::io("cannot read", &part.0))?);
        let metadata = reader.map_err(cannot)?.metadata().clone();
        let out = match &mut out {
            Some(out) => out,
            none => {
                let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
                let notes = metadata.file_metadata().key_value_metadata().cloned();
                let by = metadata.file_metadata().created_by().unwrap_or("interflow").to_owned();
                let properties = WriterProperties::builder().set_created_by(by).set_key_value_metadata(notes).build();
                let file = create(&merged).map_err(ArchiveError::io("cannot create", &merged))?;
                none.insert(SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(cannot)?)
            }
        };
        for group in metadata.row_groups() {
            copy_group(out, &file, group).map_err(cannot)?;
        }
    }
    let Some(mut out) = out else { return Ok(()) };
    out.finish().map_err(cannot)?;
    out.inner().sync_all().map_err(ArchiveError::io("cannot write", &merged))?;
    if rows(&merged)? != flows {
        return Err(ArchiveError::Differs { name: hour.folder(), why: "merging its files lost flows".into() });
    }
    Ok(())
}

fn copy_group(
    out: &mut SerializedFileWriter<File>,
    from: &File,
    group: &RowGroupMetaData,
) -> std::result::Result<(), ParquetError> {
    let mut copy = out.next_row_group()?;
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
