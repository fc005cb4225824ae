//! The throwaway profile of a browser: a folder that is removed when the browser has ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use interflow_files::create_private_dir;

use super::find::FoundBrowser;
use crate::data_dir::{DataDir, is_process_alive};

/// Attempts to remove the folder: processes of the browser may still be writing while they end.
const REMOVE_ATTEMPTS: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(100);

/// Removes the folder when dropped.
#[derive(Debug)]
pub(super) struct BrowserProfile {
    path: PathBuf,
}

impl BrowserProfile {
    /// Creates an empty profile, and removes those that killed processes have left behind.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create(home: &DataDir, browser: &FoundBrowser) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = parent_folder(home, browser);
        remove_leftovers(&parent);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        create_private_dir(&path).map_err(|e| format!("the profile {} cannot be created: {e}", path.display()))?;
        Ok(Self { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BrowserProfile {
    fn drop(&mut self) {
        for _ in 0..REMOVE_ATTEMPTS {
            match fs::remove_dir_all(&self.path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => std::thread::sleep(REMOVE_PAUSE),
                _ => return,
            }
        }
        crate::errln!("interflow: the profile {} could not be removed", self.path.display());
    }
}

fn parent_folder(home: &DataDir, browser: &FoundBrowser) -> PathBuf {
    let user = std::env::var_os("HOME").map(PathBuf::from);
    user.and_then(|user| browser.sandbox_profiles(&user)).unwrap_or_else(|| home.join("browser-profiles"))
}

/// Folders are named after the process that made them.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.split_once('-')).and_then(|(pid, _)| pid.parse().ok());
        if pid.is_some_and(|pid: u32| !is_process_alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::find::BrowserFamily;
    use super::*;

    #[cfg(unix)]
    #[test]
    fn profiles_are_private_removed_at_the_end_and_leftovers_of_ended_processes_too() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let browser = FoundBrowser { name: "x".into(), path: "/usr/bin/x".into(), family: BrowserFamily::Chromium };
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let parent = dir.path().join("browser-profiles");
        let leftover = parent.join(format!("{}-0", ended.id()));
        let of_others = parent.join("notes");
        for dir in [&leftover, &of_others] {
            fs::create_dir_all(dir.join("Default")).unwrap();
        }
        let first = BrowserProfile::create(&home, &browser).unwrap();
        let second = BrowserProfile::create(&home, &browser).unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!(fs::metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(!leftover.exists() && of_others.exists());
        fs::write(first.path().join("cookies"), "x").unwrap();
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }
}
