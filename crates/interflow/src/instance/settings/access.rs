//! Whether a configuration file may be changed here, or is managed by something else.

use std::fs::{self, OpenOptions};
use std::path::Path;

use interflow_files::{AtomicFile, FileAccess};

/// Why this file cannot be written; `None` if it can. It need not exist.
pub fn write_refusal(path: &Path) -> Option<String> {
    let path_text = path.display();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Mounted volumes of Kubernetes: `..data` is a link that is replaced with the whole content.
    if fs::symlink_metadata(folder.join("..data")).is_ok() {
        return Some(format!("{path_text} is mounted from a ConfigMap or Secret of Kubernetes: change it there"));
    }
    // A link is followed; its target is what is written.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(meta) = fs::metadata(&target) {
        // Without any write permission, even where the superuser could write it all the same.
        if meta.permissions().readonly() {
            return Some(format!("{path_text} is read-only"));
        }
        if let Err(e) = OpenOptions::new().write(true).open(&target) {
            return Some(format!("{path_text} cannot be written: {e}"));
        }
        #[cfg(unix)]
        if let Some(why) = foreign_owner(path, &meta) {
            return Some(why);
        }
    }
    if fs::metadata(folder).is_ok_and(|meta| meta.permissions().readonly()) {
        return Some(format!("the folder {} is read-only", folder.display()));
    }
    // The file is replaced rather than written over, which its folder has to allow. A first change creates the data
    // directory.
    if folder.exists()
        && let Err(e) = AtomicFile::create(&target, FileAccess::Keep)
    {
        return Some(format!("{path_text} cannot be replaced: {e}"));
    }
    None
}

/// A file of another user would change its owner if it were replaced.
#[cfg(unix)]
fn foreign_owner(path: &Path, meta: &fs::Metadata) -> Option<String> {
    let (owner, own) = (std::os::unix::fs::MetadataExt::uid(meta), rustix::process::geteuid().as_raw());
    (owner != own).then(|| format!("{} belongs to another user (uid {owner}, this is uid {own})", path.display()))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn managed_files_are_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("interflow.toml");
        assert_eq!(write_refusal(&path), None, "it can be created");
        fs::write(&path, "").unwrap();
        assert_eq!(write_refusal(&path), None);
        let link = dir.path().join("link.toml");
        symlink(&path, &link).unwrap();
        assert_eq!(write_refusal(&link), None, "a link is followed");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(write_refusal(&path).unwrap().ends_with("is read-only"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        assert!(write_refusal(&path).unwrap().starts_with("the folder"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("..2026", dir.path().join("..data")).unwrap();
        assert!(write_refusal(&path).unwrap().contains("ConfigMap"));
    }
}
