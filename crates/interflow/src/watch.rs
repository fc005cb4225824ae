//! Reloading: the configuration file and the files it names are watched; SIGHUP asks for it too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interflow_engine::Engine;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::config::{self, Config};
use crate::rooms::Rooms;

/// Puts a fresh reading of the file in force whenever it, or a file that it names, changes.
pub struct Reloader {
    file: Option<PathBuf>,
    apply: Box<dyn Fn(&mut Config) + Send>,
    engine: Arc<Engine>,
    rooms: Arc<Rooms>,
    asked: mpsc::Receiver<()>,
    /// Kept alive: dropping it ends the watch.
    _watcher: Option<RecommendedWatcher>,
}

impl Reloader {
    /// Watches the file and those `beside` it. `apply` lays the command line's flags over what is read.
    pub fn new(
        file: Option<PathBuf>,
        beside: &[PathBuf],
        engine: Arc<Engine>,
        rooms: Arc<Rooms>,
        apply: Box<dyn Fn(&mut Config) + Send>,
    ) -> Self {
        let (ask, asked) = mpsc::channel(1);
        let paths: Vec<PathBuf> = file.iter().chain(beside).cloned().collect();
        let watcher = watch(&paths, ask);
        Self { file, apply, engine, rooms, asked, _watcher: watcher }
    }

    /// Waits for changes and obeys them, for ever.
    pub async fn run(mut self) {
        let mut hangup = hangup();
        loop {
            tokio::select! {
                asked = self.asked.recv() => {
                    if asked.is_none() {
                        hangup.recv().await;
                    } else {
                        // Editors write a file in several steps; one reading of the last is enough.
                        tokio::time::sleep(Duration::from_millis(200)).await;
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
        match self.put_in_force(&config) {
            Ok(()) => tracing::info!("reloaded"),
            Err(e) => tracing::error!("not reloaded, the old configuration stays in force: {e}"),
        }
    }

    /// Everything is read and compiled before anything is put in force.
    fn put_in_force(&self, config: &Config) -> Result<(), String> {
        interflow_engine::check(&config.engine()).map_err(|e| e.to_string())?;
        for change in self.rooms.prepare(config)? {
            change();
        }
        // Last, since it drops the plans that were made with what was in force before.
        self.engine.reload(config.engine()).map_err(|e| e.to_string())
    }
}

/// Watches the folders of the files, since editors replace files rather than write into them.
fn watch(paths: &[PathBuf], ask: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let names: Vec<_> = paths.iter().filter_map(|p| p.file_name().map(ToOwned::to_owned)).collect();
    if names.is_empty() {
        return None;
    }
    let seen = move |event: notify::Result<notify::Event>| {
        let ours = event.is_ok_and(|e| {
            !e.kind.is_access() && e.paths.iter().any(|p| p.file_name().is_some_and(|n| names.iter().any(|m| m == n)))
        });
        if ours {
            let _ = ask.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(seen)
        .inspect_err(|e| tracing::warn!("files are not watched ({e}): send SIGHUP after a change"))
        .ok()?;
    for path in paths {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Err(e) = watcher.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!("{} is not watched ({e}): send SIGHUP after a change", folder.display());
        }
    }
    Some(watcher)
}

/// SIGHUP, where there is such a thing.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

fn hangup() -> Hangup {
    Hangup {
        #[cfg(unix)]
        signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
    }
}

impl Hangup {
    async fn recv(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal {
            signal.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}
