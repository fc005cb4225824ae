//! Merges small files of an hour: query engines read few large files faster than many small ones.
//!
//! The merged file has a name of its own, and counts once it was read back; then those that it replaces are deleted. In
//! between, readers see their flows twice, but never miss any.

use std::fs::File;
use std::io;

use interflow_archive::parquet::{MergedFile, rows};

use super::cursor::ArchivedFile;
use super::place::{ArchivePlace, TempFile, create};
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

/// Writes files as one with this name; `None` if versions of Interflow with different columns wrote them, which stay.
pub(super) fn merge(place: ArchivePlace<'_>, files: &[ArchivedFile], name: String) -> Result<Option<ArchivedFile>> {
    let (merged, part) = (TempFile(place.file("merged.parquet")), TempFile(place.file("part.parquet")));
    let cannot = ArchiveError::io("cannot merge files into", &merged.0);
    let (mut out, mut flows) = (None, 0);
    for file in files {
        place.fetch(&file.name, &part.0)?;
        let Some(rows) = append(&mut out, &part, &merged).map_err(&cannot)? else { return Ok(None) };
        flows += rows;
    }
    let written = out.map_or(Ok(()), MergedFile::finish).and_then(|()| rows(&File::open(&merged.0)?));
    if written.map_err(cannot)? != flows {
        return Err(ArchiveError::Differs { name, why: "merging files lost flows".into() });
    }
    place.send(&name, &merged.0, flows)?;
    let bytes = std::fs::metadata(&merged.0).map_err(ArchiveError::io("cannot read", &merged.0))?.len();
    Ok(Some(ArchivedFile { name, bytes }))
}

/// Adds the rows of a file, and returns how many; the first one also gives the columns.
fn append(out: &mut Option<MergedFile>, from: &TempFile, to: &TempFile) -> io::Result<Option<u64>> {
    let from = File::open(&from.0)?;
    let out = match out {
        Some(out) => out,
        none => none.insert(MergedFile::like(&from, create(&to.0)?)?),
    };
    out.append(&from)
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
