//! Interflow's own files, which no rule reads or writes: tokens, keys and recordings would leave with a response, and
//! what a client sends would become configuration.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Kinds of files directly in the data directory that rules may read. Interflow writes none of them there but the rule
/// file.
const READABLE: [&str; 4] = ["yaml", "yml", "lua", "har"];

/// Which files are private. The default is none, for commands of the person whose files they are.
#[derive(Clone, Debug, Default)]
pub struct PrivateFiles {
    /// Of the data directory, everything is private but what is in folders of the operator.
    data_dir: Option<Arc<Path>>,
    /// Folders and files that are private as a whole.
    private: Arc<[PathBuf]>,
}

impl PrivateFiles {
    /// The files directly in the data directory, and Interflow's own folders and files. Other folders in the data
    /// directory are the operator's.
    pub fn new(data_dir: &Path, own: impl IntoIterator<Item = PathBuf>) -> Self {
        let private = own.into_iter().map(|path| real_path(&path)).collect();
        Self { data_dir: Some(real_path(data_dir).into()), private }
    }

    /// # Errors
    /// The file is private.
    pub(crate) fn check_read(&self, path: &Path) -> io::Result<()> {
        self.check(path, true)
    }

    /// # Errors
    /// The file is private, or directly in the data directory.
    pub(crate) fn check_write(&self, path: &Path) -> io::Result<()> {
        self.check(path, false)
    }

    fn check(&self, path: &Path, is_read: bool) -> io::Result<()> {
        let Some(data_dir) = &self.data_dir else { return Ok(()) };
        // By the real path: a link or another spelling is the same file.
        let real = real_path(path);
        let is_readable = |name: &Path| {
            let extension = name.extension().and_then(|e| e.to_str());
            is_read && extension.is_some_and(|e| READABLE.contains(&e))
        };
        let is_top_level = match real.strip_prefix(data_dir) {
            Ok(below) => below.components().count() == 1 && !is_readable(below) && !real.is_dir(),
            Err(_) => false,
        };
        let is_own = self.private.iter().any(|own| real.starts_with(own));
        if is_top_level || is_own {
            let folder = data_dir.display();
            let message = format!(
                "{} is private to Interflow: put files of rules into a folder of your own, in {folder} or elsewhere",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(())
    }
}

/// The path without links and dots, as far as it exists; what does not exist yet is appended.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut real = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => drop(real.pop()),
            other => {
                real.push(other);
                // Resolved step by step, so that `..` is that of the link's target.
                if let Ok(found) = real.canonicalize() {
                    real = found;
                }
            }
        }
    }
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interflows_files_are_private_by_every_spelling_and_folders_of_the_operator_are_not() {
        let outside = tempfile::tempdir().unwrap();
        let data = outside.path().join("data");
        for folder in ["ca", "site", "record"] {
            std::fs::create_dir_all(data.join(folder)).unwrap();
        }
        for file in ["admin.token", "ca/ca.key", "site/index.html", "rules.yaml"] {
            std::fs::write(data.join(file), "x").unwrap();
        }
        let keys = outside.path().join("keys.toml");
        std::fs::write(&keys, "x").unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(data.join("admin.token"), outside.path().join("link")).unwrap();
            std::os::unix::fs::symlink(data.join("ca"), data.join("site/ca")).unwrap();
        }
        let own = [data.join("ca"), data.join("record"), keys.clone()];
        let private = PrivateFiles::new(&data, own);
        for (path, read, write) in [
            (data.join("admin.token"), false, false),
            (data.join("not-there.key"), false, false),
            (data.join("site/../admin.token"), false, false),
            (data.join("ca/ca.key"), false, false),
            (data.join("record/new/file"), false, false),
            (keys, false, false),
            (data.join("rules.yaml"), true, false),
            (data.join("site"), true, true),
            (data.join("site/index.html"), true, true),
            (data.join("saved/1"), true, true),
            (outside.path().join("other"), true, true),
            #[cfg(unix)]
            (outside.path().join("link"), false, false),
            #[cfg(unix)]
            (data.join("site/ca/ca.key"), false, false),
            #[cfg(unix)]
            (data.join("site/ca/../admin.token"), false, false),
        ] {
            assert_eq!(
                (private.check_read(&path).is_ok(), private.check_write(&path).is_ok()),
                (read, write),
                "{path:?}"
            );
        }
        assert!(PrivateFiles::default().check_read(&data.join("admin.token")).is_ok());
    }
}
