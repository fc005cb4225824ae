//! Merges small files of an hour: query engines read few large files faster than many small ones.
//!
//! Columns are copied as they are, so that merging costs no compression. The merged file has a name of its own, and counts
//! once it was read back; then those that it replaces are deleted. In between, readers see their flows twice, but never
//! miss any.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;

use super::cursor::ArchivedFile;
use super::place::{ArchivePlace, TempFile, create, rows};
use super::{ArchiveError, Result};

/// The files that are merged next, if several fit into one: the smallest, so that few bytes are written again.
pub(super) fn mergeable(files: &[ArchivedFile], max_bytes: u64) -> Option<Vec<ArchivedFile>> {
    let mut smallest = files.to_vec();
    smallest.sort_by_key(|file| file.bytes);
    let mut sum = 0_u64;
    let fitting = smallest.iter().take_while(|file| {
        sum = sum.saturating_add(file.bytes);
        sum <= max_bytes
    });
    let fitting = fitting.count();
    smallest.truncate(fitting);
    (fitting > 1).then_some(smallest)
}

/// Writes files as one with this name.
pub(super) fn merge(place: ArchivePlace<'_>, files: &[ArchivedFile], name: String) -> Result<ArchivedFile> {
    let (merged, part) = (TempFile(place.file("merged.parquet")), TempFile(place.file("part.parquet")));
    let cannot = |e: ParquetError| ArchiveError::io("cannot merge files into", &merged.0)(std::io::Error::other(e));
    let mut out: Option<SerializedFileWriter<File>> = None;
    let mut flows = 0;
    for file in files {
        place.fetch(&file.name, &part.0)?;
        flows += rows(&part.0)?;
        append(&mut out, &part.0, &merged.0)?;
    }
    if let Some(mut out) = out {
        out.finish().map_err(cannot)?;
    }
    if rows(&merged.0)? != flows {
        return Err(ArchiveError::Differs { name, why: "merging files lost flows".into() });
    }
    place.send(&name, &merged.0, flows)?;
    let bytes = std::fs::metadata(&merged.0).map_err(ArchiveError::io("cannot read", &merged.0))?.len();
    Ok(ArchivedFile { name, bytes })
}

/// Adds the rows of a file; the first one also gives the schema.
fn append(out: &mut Option<SerializedFileWriter<File>>, from: &Path, to: &Path) -> Result<()> {
    let cannot = |e: ParquetError| ArchiveError::io("cannot merge files into", to)(std::io::Error::other(e));
    let file = File::open(from).map_err(ArchiveError::io("cannot read", from))?;
    let reader = SerializedFileReader::new(file.try_clone().map_err(ArchiveError::io("cannot read", from))?);
    let metadata = reader.map_err(cannot)?.metadata().clone();
    let out = match out {
        Some(out) => out,
        none => {
            let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
            let notes = metadata.file_metadata().key_value_metadata().cloned();
            let by = metadata.file_metadata().created_by().unwrap_or("interflow").to_owned();
            let properties = WriterProperties::builder().set_created_by(by).set_key_value_metadata(notes).build();
            let file = create(to).map_err(ArchiveError::io("cannot create", to))?;
            none.insert(SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(cannot)?)
        }
    };
    metadata.row_groups().iter().try_for_each(|group| copy_group(out, &file, group)).map_err(cannot)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_files_that_fit_into_one_are_merged() {
        let merged = |sizes: &[u64]| {
            let file = |bytes: &u64| ArchivedFile { name: bytes.to_string(), bytes: *bytes };
            let files: Vec<_> = sizes.iter().map(file).collect();
            mergeable(&files, 100).map(|files| files.iter().map(|file| file.bytes).collect::<Vec<_>>())
        };
        assert_eq!(merged(&[]), None);
        assert_eq!(merged(&[7]), None);
        assert_eq!(merged(&[101, 40, 102, 60]), Some(vec![40, 60]), "in any order, without the large ones");
        assert_eq!(merged(&[99, 2]), None, "together too large");
        assert_eq!(merged(&[90, 8, 1, 95]), Some(vec![1, 8, 90]));
    }
}
