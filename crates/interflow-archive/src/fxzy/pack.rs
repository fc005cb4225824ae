//! Packs a Fluxzy folder into the equivalent `.fxzy`.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::Path;

use crate::zip::ZipWriter;

/// Maximum depth of folders: `exchanges/0-100/ex-1.mpack`.
const MAX_DEPTH: usize = 3;

/// Writes the metadata and bodies of a folder as one archive.
///
/// # Errors
/// The folder is not a Fluxzy recording, or a file in it cannot be read.
pub fn pack(folder: &Path, out: impl Write) -> io::Result<()> {
    if !folder.join("exchanges").is_dir() {
        let why = "this folder is not a Fluxzy recording: it has no folder 'exchanges'";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut zip = ZipWriter::new(out);
    for name in ["exchanges", "connections", "contents"] {
        let inner = folder.join(name);
        if inner.is_dir() {
            add(&mut zip, &inner, name, MAX_DEPTH)?;
        }
    }
    zip.finish()
}

/// Like [`pack`], to an unnamed temporary file positioned at its start.
///
/// # Errors
/// As for [`pack`], or the temporary file cannot be created.
pub fn pack_to_temp_file(folder: &Path) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    pack(folder, io::BufWriter::new(&mut file))?;
    file.rewind()?;
    Ok(file)
}

fn add<W: Write>(zip: &mut ZipWriter<W>, folder: &Path, name: &str, depth: usize) -> io::Result<()> {
    let mut inside: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for entry in inside {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        // Symbolic links are not followed, because they may point outside of the recording.
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            add(zip, &entry.path(), &name, depth - 1)?;
        } else if kind.is_file() {
            let mut file = File::open(entry.path())?;
            zip.entry(&name, |out| io::copy(&mut file, out).map(drop))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use interflow_types::{EntryKind, FlowId, Scheme, Timestamp};

    use super::*;
    use crate::zip::ZipReader;
    use crate::{ArchiveFormat, FlowWithBodies, exporter, import, import_support};
    use interflow_store::FlowRecord;

    fn flow() -> FlowWithBodies {
        let started = Timestamp::from_micros(1_795_168_800_123_456);
        let authority = "a.example:443".parse().unwrap();
        let row = FlowRecord::new(FlowId::new(started), started, EntryKind::Connect, Scheme::Https, authority);
        let mut flow = FlowWithBodies { request_body: (&b"body"[..]).into(), ..FlowWithBodies::new(row) };
        flow.row.request =
            Some(import_support::request("POST", "/x", "HTTP/2", interflow_types::Headers::new(), b"body"));
        flow
    }

    #[test]
    fn fluxzy_folder_packs_to_the_same_archive() {
        let mut archive = Vec::new();
        let mut writer = exporter(ArchiveFormat::Fxzy, &mut archive).unwrap();
        writer.flow(&flow().row, &flow()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        let mut zip = ZipReader::open(io::Cursor::new(archive)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for entry in zip.entries.clone() {
            let path = folder.path().join(&entry.name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, zip.read(&entry).unwrap()).unwrap();
        }
        let mut back = Vec::new();
        let mut keep = |flow| {
            back.push(flow);
            Ok(())
        };
        import(None, pack_to_temp_file(folder.path()).unwrap(), &mut keep).unwrap();
        assert_eq!((back.len(), back[0].row.url().as_str()), (1, "https://a.example/x"));
        assert_eq!(&back[0].request_body[..], b"body");
    }

    #[test]
    fn non_fluxzy_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(pack(folder.path(), Vec::new()).unwrap_err().to_string().contains("not a Fluxzy recording"));
    }
}
