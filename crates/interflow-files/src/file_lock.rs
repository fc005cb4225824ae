//! Advisory locks of files.

use std::fs::{File, TryLockError};
use std::io;

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
}
