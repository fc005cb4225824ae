//! The files whose changes cause a reload: their versions when they were read, and polling for others.
//!
//! Files are polled by path. Directory watches would report every file nearby (such as the log), and miss changes on file
//! systems without events, mounted config maps and replaced symlinks.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// How far behind the clock the times of files may be, which the system updates at its timer's ticks.
const FILE_CLOCK_LAG: Duration = Duration::from_millis(50);

/// Identity of a file version: modification time, length and inode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    file: (u64, u64),
}

/// The stamp of a file; `None` if it does not exist, which counts as a version, too.
fn file_stamp(path: &Path) -> Option<FileStamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        modified: meta.modified().ok(),
        length: meta.len(),
        #[cfg(unix)]
        file: (std::os::unix::fs::MetadataExt::dev(&meta), std::os::unix::fs::MetadataExt::ino(&meta)),
    })
}

/// Versions of files, taken before the files are read: a file that changes after that has another one.
#[derive(Clone, Debug)]
pub struct FileStamps {
    taken: SystemTime,
    files: HashMap<PathBuf, Option<FileStamp>>,
}

impl FileStamps {
    pub fn take(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let stamped = |path: PathBuf| {
            let stamp = file_stamp(&path);
            (path, stamp)
        };
        Self { taken: SystemTime::now(), files: paths.into_iter().map(stamped).collect() }
    }

    /// Both.
    pub fn and(mut self, other: &Self) -> Self {
        self.taken = self.taken.min(other.taken);
        self.files.extend(other.files.iter().map(|(path, stamp)| (path.clone(), stamp.clone())));
        self
    }

    /// One of those that existed when `earlier` was taken and no longer did when this was.
    pub fn lost_since(&self, earlier: &Self) -> Option<&Path> {
        let existed = |path: &Path| earlier.files.get(path).is_some_and(Option::is_some);
        let lost = |(path, stamp): &(&PathBuf, &Option<FileStamp>)| stamp.is_none() && existed(path);
        self.files.iter().filter(lost).map(|(path, _)| path.as_path()).min()
    }

    /// The version that was read. Of a file that was found only by reading others, the present one, unless it is younger
    /// than the reading may be.
    fn read_version(&self, path: &Path) -> Option<FileStamp> {
        if let Some(stamp) = self.files.get(path) {
            return stamp.clone();
        }
        file_stamp(path).filter(|stamp| stamp.modified.is_some_and(|time| time + FILE_CLOCK_LAG < self.taken))
    }
}

/// The watched files, with the versions that were read or seen last.
#[derive(Debug, Default)]
pub struct WatchedFiles(Mutex<Vec<(PathBuf, Option<FileStamp>)>>);

impl WatchedFiles {
    /// Watches these files instead of the former ones. `read` has the versions of those that are new.
    pub fn replace(&self, paths: impl IntoIterator<Item = PathBuf>, read: &FileStamps) {
        let mut watched = self.0.lock();
        let former: HashMap<_, _> = watched.drain(..).collect();
        let stamped = |path: PathBuf| {
            let stamp = former.get(&path).cloned().unwrap_or_else(|| read.read_version(&path));
            (path, stamp)
        };
        // A file may be named and found.
        let mut first = HashSet::new();
        *watched = paths.into_iter().filter(|path| first.insert(path.clone())).map(stamped).collect();
    }

    /// Whether a file has another version than it had last.
    pub fn poll(&self) -> bool {
        let mut changed = false;
        for (path, seen) in self.0.lock().iter_mut() {
            let now = file_stamp(path);
            changed |= *seen != now;
            *seen = now;
        }
        changed
    }

    /// Those that exist, in the order in which they were given; one with several paths by the first.
    pub fn existing(&self) -> Vec<PathBuf> {
        let mut first = HashSet::new();
        let is_first = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| first.insert(path));
        self.0.lock().iter().map(|(path, _)| path).filter(is_first).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(paths: &[PathBuf]) -> WatchedFiles {
        let watched = WatchedFiles::default();
        watched.replace(paths.to_vec(), &FileStamps::take(paths.to_vec()));
        watched
    }

    #[test]
    fn watched_file_changes_are_detected_and_other_files_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("c.toml"), "a").unwrap();
        let watched = watched(&[path("c.toml"), path("missing")]);
        std::fs::write(path("log"), "beside").unwrap();
        std::fs::write(path("log"), "and more").unwrap();
        assert!(!watched.poll());
        std::fs::write(path("c.toml"), "ab").unwrap();
        assert!(watched.poll() && !watched.poll());
        std::fs::write(path("new"), "ab").unwrap();
        std::fs::rename(path("new"), path("c.toml")).unwrap();
        assert!(watched.poll() && !watched.poll());
        std::fs::remove_file(path("c.toml")).unwrap();
        assert!(watched.poll() && !watched.poll());
        std::fs::write(path("missing"), "").unwrap();
        assert!(watched.poll() && !watched.poll());
    }

    #[test]
    fn a_file_that_is_named_twice_is_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let [named, other] = ["rules.yaml", "other"].map(|name| folder.path().join(name));
        for path in [&named, &other] {
            std::fs::write(path, "a").unwrap();
        }
        let also_named = folder.path().join(".").join("..").join(folder.path().file_name().unwrap()).join("rules.yaml");
        let paths = [named.clone(), other.clone(), named.clone(), also_named];
        assert_eq!(watched(&paths).existing(), [named, other]);
    }

    #[test]
    fn a_file_that_changes_after_its_version_was_taken_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let [known, found] = ["known", "found"].map(|name| folder.path().join(name));
        let old = SystemTime::now() - Duration::from_secs(60);
        for path in [&known, &found] {
            std::fs::write(path, "a").unwrap();
            std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
        let read = FileStamps::take([known.clone()]);
        let watch = || {
            let watched = WatchedFiles::default();
            watched.replace([known.clone(), found.clone()], &read);
            watched
        };
        assert!(!watch().poll());
        std::fs::write(&known, "ab").unwrap();
        assert!(watch().poll(), "its version was taken before it was read");
        std::fs::write(&known, "a").unwrap();
        std::fs::File::options().write(true).open(&known).unwrap().set_modified(old).unwrap();
        assert!(!watch().poll());
        std::fs::write(&found, "ab").unwrap();
        assert!(watch().poll(), "it was found by reading another file");
    }

    #[cfg(unix)]
    #[test]
    fn replaced_symlink_is_detected_as_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            std::fs::create_dir(path(version)).unwrap();
            std::fs::write(path(version).join("c.toml"), "same").unwrap();
        }
        // Like a Kubernetes config map mount: the directory is a symlink that is replaced.
        std::os::unix::fs::symlink("v1", path("data")).unwrap();
        let watched = watched(&[path("data/c.toml")]);
        std::os::unix::fs::symlink("v2", path("next")).unwrap();
        std::fs::rename(path("next"), path("data")).unwrap();
        assert!(watched.poll());
    }
}
