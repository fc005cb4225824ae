//! Advisory locks of files.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::owner_only;

/// How long another process may take to change a file.
const EDIT_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const EDIT_POLL: Duration = Duration::from_millis(2);

/// The only lock of a file, until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file that was opened for it; `None` if another has locked it. Only the lock counts, so the file stays: one
    /// that is deleted could be locked twice.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Taken by whoever reads a file, changes the text and writes it: waits for others that do. It locks a file of its own
    /// beside it, `.NAME.lock`, since writing replaces the file.
    ///
    /// # Errors
    /// That file cannot be made, or another process holds the lock for ten seconds.
    pub fn for_edit(path: &Path) -> io::Result<Self> {
        Self::for_edit_while(path, || true)
    }

    /// As [`for_edit`](Self::for_edit), but waits only while somebody waits for the result.
    pub(crate) fn for_edit_while(path: &Path, is_awaited: impl Fn() -> bool) -> io::Result<Self> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        let lock = path.with_file_name(name);
        let mut options = File::options();
        owner_only(options.create(true).truncate(false).write(true));
        let until = Instant::now() + EDIT_LIMIT;
        loop {
            if let Some(taken) = Self::take(options.open(&lock)?)? {
                return Ok(taken);
            }
            if !is_awaited() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if Instant::now() >= until {
                let message = format!("another process has changed it for {EDIT_LIMIT:?} and holds {}", lock.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(EDIT_POLL);
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process has it, too, until it executes its program.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_when_it_is_dropped_though_a_child_process_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = || FileLock::take(File::options().create(true).truncate(false).write(true).open(&path).unwrap());
        let lock = take().unwrap().unwrap();
        assert!(take().unwrap().is_none());
        // What a child process has between its creation and its program.
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(take().unwrap().is_some());
        drop(inherited);
    }

    #[test]
    fn edits_of_a_file_wait_for_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("count");
        std::fs::write(&path, "0").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let _alone = FileLock::for_edit(&path).unwrap();
                        let count: u32 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
                        crate::write_atomic(&path, (count + 1).to_string().as_bytes(), crate::FileAccess::Private)
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "100");
    }
}
