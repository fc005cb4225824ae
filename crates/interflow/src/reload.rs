//! Reloading: the configuration file and the files it names are looked at again and again; SIGHUP asks for it too.
//!
//! Each file is asked for by its own path. A watch on folders would hear of everything that is written beside the files, our own
//! log among it, and would miss what file systems without events, mounted configuration maps and replaced links do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use interflow_proxy::ProxyServer;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::components::ComponentSet;
use crate::config::{self, InterflowConfig};

/// How often files are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Editors write a file in several steps; one reading of the last is enough.
const SETTLE_DELAY: Duration = Duration::from_millis(200);

/// Puts a fresh reading of the file in force whenever it, or a file that it names, changes.
pub struct ConfigReloader {
    file: Option<PathBuf>,
    apply: Box<dyn Fn(&mut InterflowConfig) + Send>,
    engine: Arc<ProxyServer>,
    rooms: Arc<ComponentSet>,
    asked: mpsc::Receiver<()>,
    watched: Arc<Mutex<Vec<PathBuf>>>,
}

impl ConfigReloader {
    /// Watches the file and those that `config`, read from it, names. `apply` lays the command line's flags over what is read.
    pub fn new(
        file: Option<PathBuf>,
        config: &InterflowConfig,
        engine: Arc<ProxyServer>,
        rooms: Arc<ComponentSet>,
        apply: Box<dyn Fn(&mut InterflowConfig) + Send>,
    ) -> Self {
        let (ask, asked) = mpsc::channel(1);
        let watched = Arc::new(Mutex::new(Vec::new()));
        let this = Self { file, apply, engine, rooms, asked, watched };
        this.watch(config);
        let (paths, seen) = (Arc::clone(&this.watched), file_stamps(&this.watched.lock()));
        let started = std::thread::Builder::new().name("watch".into()).spawn(move || watch_files(&paths, seen, &ask));
        if let Err(e) = started {
            tracing::warn!("files are not watched ({e}): send SIGHUP after a change");
        }
        this
    }

    /// From now on these are the files that bring about a reload when they change.
    fn watch(&self, config: &InterflowConfig) {
        let files = self.file.iter().chain(&config.auth.users).cloned();
        *self.watched.lock() = files.chain(self.rooms.files(config)).collect();
    }

    /// Waits for changes and obeys them, for ever.
    pub async fn run(mut self) {
        let mut hangup = sighup_stream();
        loop {
            tokio::select! {
                asked = self.asked.recv() => {
                    if asked.is_none() {
                        hangup.recv().await;
                    } else {
                        tokio::time::sleep(SETTLE_DELAY).await;
                        while self.asked.try_recv().is_ok() {}
                    }
                }
                () = hangup.recv() => {}
            }
            self.reload();
        }
    }

    fn reload(&self) {
        let mut config = match config::load(self.file.as_deref()) {
            Ok(loaded) => loaded.config,
            Err(e) => return tracing::error!("not reloaded, the old configuration stays in force: {e}"),
        };
        (self.apply)(&mut config);
        match self.apply_config(&config) {
            Ok(()) => {
                self.watch(&config);
                tracing::info!("reloaded");
            }
            Err(e) => tracing::error!("not reloaded, the old configuration stays in force: {e}"),
        }
    }

    /// Everything is read and compiled before anything is put in force.
    fn apply_config(&self, config: &InterflowConfig) -> Result<(), String> {
        interflow_proxy::check(&config.engine()).map_err(|e| e.to_string())?;
        for change in self.rooms.prepare(config)? {
            change();
        }
        // Last, since it drops the plans that were made with what was in force before.
        self.engine.reload(config.engine()).map_err(|e| e.to_string())
    }
}

/// What tells one writing of a file from the next: when it was written, how long it is, and which file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    #[cfg(unix)]
    file: (u64, u64),
}

/// `None` where there is no such file.
fn file_stamp(path: &Path) -> Option<FileStamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        modified: meta.modified().ok(),
        length: meta.len(),
        #[cfg(unix)]
        file: (std::os::unix::fs::MetadataExt::dev(&meta), std::os::unix::fs::MetadataExt::ino(&meta)),
    })
}

type FileStamps = HashMap<PathBuf, Option<FileStamp>>;

fn file_stamps(paths: &[PathBuf]) -> FileStamps {
    paths.iter().map(|path| (path.clone(), file_stamp(path))).collect()
}

/// Whether a file that was looked at before is another now. One that is new to the list says nothing yet.
fn changed(before: &FileStamps, now: &FileStamps) -> bool {
    now.iter().any(|(path, look)| before.get(path).is_some_and(|old| old != look))
}

/// Looks at the files until nobody wants to hear of them.
fn watch_files(paths: &Mutex<Vec<PathBuf>>, mut seen: FileStamps, ask: &mpsc::Sender<()>) {
    while !ask.is_closed() {
        std::thread::sleep(POLL_INTERVAL);
        let paths = paths.lock().clone();
        let now = file_stamps(&paths);
        if changed(&seen, &now) {
            let _ = ask.try_send(());
        }
        seen = now;
    }
}

/// SIGHUP, where there is such a thing.
struct SighupStream {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

fn sighup_stream() -> SighupStream {
    SighupStream {
        #[cfg(unix)]
        signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
    }
}

impl SighupStream {
    async fn recv(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal {
            signal.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_replaced_or_removed_has_changed_and_what_is_beside_it_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("c.toml"), "a").unwrap();
        let paths = [path("c.toml"), path("missing")];
        let mut before = file_stamps(&paths);
        let mut now_changed = || {
            let now = file_stamps(&paths);
            changed(&std::mem::replace(&mut before, now.clone()), &now)
        };
        std::fs::write(path("log"), "beside").unwrap();
        std::fs::write(path("log"), "and more").unwrap();
        assert!(!now_changed());
        std::fs::write(path("c.toml"), "ab").unwrap();
        assert!(now_changed() && !now_changed());
        std::fs::write(path("new"), "ab").unwrap();
        std::fs::rename(path("new"), path("c.toml")).unwrap();
        assert!(now_changed() && !now_changed());
        std::fs::remove_file(path("c.toml")).unwrap();
        assert!(now_changed() && !now_changed());
        std::fs::write(path("missing"), "").unwrap();
        assert!(now_changed() && !now_changed());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_to_another_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            std::fs::create_dir(path(version)).unwrap();
            std::fs::write(path(version).join("c.toml"), "same").unwrap();
        }
        // As Kubernetes mounts a configuration map: the folder is a link that is replaced.
        std::os::unix::fs::symlink("v1", path("data")).unwrap();
        let paths = [path("data/c.toml")];
        let before = file_stamps(&paths);
        std::os::unix::fs::symlink("v2", path("next")).unwrap();
        std::fs::rename(path("next"), path("data")).unwrap();
        assert!(changed(&before, &file_stamps(&paths)));
    }
}
