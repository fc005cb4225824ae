//! Atomic replacement: the new content is written to a temporary file in the same folder, which then takes the file's
//! name. A crash, a full disk or an error leaves the old file or the new one, never a part of either.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::optional;

const PREFIX: &str = ".";
const SUFFIX: &str = ".part";
/// The most links that lead from one to another, as on Linux.
const MAX_LINKS: usize = 40;

/// Whether this is the name of a temporary file, which a crash may have left.
pub fn is_leftover(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(PREFIX) && n.ends_with(SUFFIX))
}

/// Who may read a file after it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Its owner only (0600), whatever the file's mode was before: for secrets.
    Private,
    /// As before; a new file gets what the process's umask allows. For files that belong to the operator.
    Keep,
}

/// Replaces the file with `bytes`, and returns once file and folder are on disk.
///
/// # Errors
/// Nothing could be written; the file is as it was.
pub fn write_atomic(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    let mut file = AtomicFile::create(path, access)?;
    file.write_all(bytes)?;
    file.commit()
}

/// A file written in pieces that takes its name with [`commit`](Self::commit). Dropped before that, it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl AtomicFile {
    /// Opens the temporary file.
    ///
    /// # Errors
    /// The folder does not exist or cannot be written.
    pub fn create(path: &Path, access: FileAccess) -> io::Result<Self> {
        // A link is followed, so that it still stands afterwards and its target is what changes, or what is made.
        let next = |at: &PathBuf| fs::read_link(at).ok().filter(|_| !at.exists()).map(|to| folder(at).join(to));
        let path = std::iter::successors(Some(path.to_owned()), next).take(MAX_LINKS).last().unwrap_or_default();
        let path = fs::canonicalize(&path).unwrap_or(path);
        // Fails where links lead in a circle.
        let old = optional(fs::metadata(&path))?;
        if old.as_ref().is_some_and(|m| !m.is_file()) {
            // Such as /dev/null, which renaming would replace.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a file"));
        }
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        let permissions = {
            use std::os::unix::fs::OpenOptionsExt as _;
            let old = old.filter(|_| access == FileAccess::Keep).map(|m| m.permissions());
            let is_new = access == FileAccess::Keep && old.is_none();
            // The umask is applied to this, as for any new file.
            options.mode(if is_new { 0o666 } else { 0o600 });
            old
        };
        #[cfg(not(unix))]
        let _ = (access, old);
        // Opened here: the library's own errors name the temporary file, which the caller does not know.
        let temporary =
            Builder::new().prefix(PREFIX).suffix(SUFFIX).make_in(folder(&path), |path| options.open(path))?;
        #[cfg(unix)]
        if let Some(mode) = permissions {
            temporary.as_file().set_permissions(mode)?;
        }
        Ok(Self { temporary, path })
    }

    /// Gives the file its name, and returns once it is on disk.
    ///
    /// # Errors
    /// What was written cannot be stored; the file under that name is as it was.
    pub fn commit(self) -> io::Result<()> {
        // The content first: a name must not lead to content that a power failure could lose.
        self.temporary.as_file().sync_all()?;
        let path = self.path.clone();
        self.commit_without_sync()?;
        // Not every file system can sync a folder. The content is in place either way, so that is not a failure.
        let _ = File::open(folder(&path)).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Gives the file its name without waiting for the disk: for caches, whose entries are checked when read.
    ///
    /// # Errors
    /// The file cannot be given its name.
    pub fn commit_without_sync(self) -> io::Result<()> {
        self.temporary.persist(&self.path).map(drop).map_err(|e| e.error)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.temporary.as_file_mut().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.as_file_mut().flush()
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[cfg(unix)]
    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn an_existing_file_keeps_its_mode_and_a_secret_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yaml");
        for before in [0o600, 0o640, 0o644, 0o666] {
            fs::write(&path, "old").unwrap();
            set_mode(&path, before);
            write_atomic(&path, b"new", FileAccess::Keep).unwrap();
            assert_eq!((mode(&path), fs::read(&path).unwrap()), (before, b"new".to_vec()));
        }
        set_mode(&path, 0o644);
        write_atomic(&path, b"secret", FileAccess::Private).unwrap();
        assert_eq!(mode(&path), 0o600);
        let fresh = dir.path().join("fresh");
        write_atomic(&fresh, b"", FileAccess::Private).unwrap();
        assert_eq!(mode(&fresh), 0o600);
        let ordinary = dir.path().join("ordinary");
        write_atomic(&ordinary, b"", FileAccess::Keep).unwrap();
        fs::write(dir.path().join("by_umask"), "").unwrap();
        assert_eq!(mode(&ordinary), mode(&dir.path().join("by_umask")));
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "old").unwrap();
        let mut half = AtomicFile::create(&path, FileAccess::Keep).unwrap();
        half.write_all(b"ne").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old", "nothing is seen before the commit");
        assert!(is_leftover(half.temporary.path()) && !is_leftover(&path));
        drop(half);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        // A folder stands where the file should.
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_atomic(&taken, b"text", FileAccess::Private).is_err());
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "taken"]);
        // The caller names the file that it asked for, and the error no other one.
        let missing = dir.path().join("none/file");
        let error = write_atomic(&missing, b"", FileAccess::Keep).unwrap_err();
        assert_eq!(error.to_string(), File::open(&missing).unwrap_err().to_string());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_to_the_new_content() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomic(&link, b"new", FileAccess::Keep).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        // One to a file that is yet to be made, by way of another, relative to its folder.
        let (folder, second) = (dir.path().join("folder"), dir.path().join("second"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("../fresh", folder.join("first")).unwrap();
        std::os::unix::fs::symlink("folder/first", &second).unwrap();
        write_atomic(&second, b"made", FileAccess::Keep).unwrap();
        assert!(fs::symlink_metadata(&second).unwrap().is_symlink() && folder.join("first").is_symlink());
        assert_eq!(fs::read_to_string(dir.path().join("fresh")).unwrap(), "made");
        // A circle is left as it is.
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        assert!(write_atomic(&circle, b"lost", FileAccess::Keep).is_err() && circle.is_symlink());
    }
}
