//! Configuration reload: polls the configuration file and the files it refers to, and reacts to SIGHUP.
//!
//! Files are polled by path. Directory watches would report every file nearby (such as the log), and miss changes on file
//! systems without events, mounted config maps and replaced symlinks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use interflow_admin::metrics::table;
use interflow_admin::{ReloadFn, ReloadReport};
use interflow_codec::prometheus::MetricsPage;
use interflow_proxy::ProxyServer;
use interflow_types::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::components::ComponentSet;
use crate::instance::config;
use crate::instance::config::InterflowConfig;

/// Polling interval. Short, because operators wait for the effect of an edit.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after a change, because editors write a file in several steps.
const SETTLE_DELAY: Duration = Duration::from_millis(200);

/// How reloads went, for metrics.
#[derive(Debug)]
pub struct ReloadStatus {
    failed: AtomicBool,
    /// When the active configuration was loaded, in seconds of Unix time.
    loaded: AtomicU64,
}

impl Default for ReloadStatus {
    fn default() -> Self {
        Self { failed: AtomicBool::new(false), loaded: AtomicU64::new(unix_seconds()) }
    }
}

impl ReloadStatus {
    fn record(&self, succeeded: bool) {
        self.failed.store(!succeeded, Relaxed);
        if succeeded {
            self.loaded.store(unix_seconds(), Relaxed);
        }
    }

    pub fn write_metrics(&self, page: &mut MetricsPage) {
        page.value(&table::CONFIG_RELOAD_SUCCESSFUL, u8::from(!self.failed.load(Relaxed)));
        page.value(&table::CONFIG_RELOAD_TIMESTAMP, self.loaded.load(Relaxed));
    }
}

fn unix_seconds() -> u64 {
    Timestamp::now().micros() / 1_000_000
}

/// Reloads the configuration whenever it or a file that it refers to changes.
pub struct ConfigReloader {
    file: Option<PathBuf>,
    apply: Box<dyn Fn(&mut InterflowConfig) + Send>,
    engine: Arc<ProxyServer>,
    components: Arc<ComponentSet>,
    /// Changes of files.
    asked: mpsc::Receiver<()>,
    /// Requests of the admin API.
    requested: mpsc::Receiver<ReloadRequest>,
    requests: mpsc::Sender<ReloadRequest>,
    /// What is read at the start only, as it was then.
    fixed: Value,
    watched: Arc<Mutex<Vec<PathBuf>>>,
    status: Arc<ReloadStatus>,
}

/// Where the result of a requested reload goes.
type ReloadRequest = oneshot::Sender<Result<ReloadReport, String>>;

/// Pending requests of the admin API; more wait.
const MAX_REQUESTS: usize = 8;

/// Sections and keys that are read at the start only.
const FIXED: [&str; 13] = [
    "/log",
    "/admin",
    "/dns",
    "/compat",
    "/record",
    "/workers",
    "/data_dir",
    "/proxy/listen",
    "/proxy/transparent",
    "/proxy/reverse",
    "/gateway/listen",
    "/media/compat/port",
    "/upstream/max_connections_per_host",
];

/// What of a configuration is read at the start only.
fn fixed_part(config: &InterflowConfig) -> Value {
    let all = serde_json::to_value(config).unwrap_or_default();
    FIXED.iter().map(|path| (*path, all.pointer(path).cloned().unwrap_or_default())).collect()
}

/// The names of those that differ: `admin`, `proxy.listen`.
fn restart_needed(start: &Value, now: &Value) -> Vec<String> {
    let differing = FIXED.iter().filter(|path| start[**path] != now[**path]);
    differing.map(|path| path[1..].replace('/', ".")).collect()
}

impl ConfigReloader {
    /// Watches the file and the files that `config` refers to. `apply` applies the command-line flags to each loaded
    /// configuration.
    pub fn new(
        file: Option<PathBuf>,
        config: &InterflowConfig,
        engine: Arc<ProxyServer>,
        components: Arc<ComponentSet>,
        status: Arc<ReloadStatus>,
        apply: Box<dyn Fn(&mut InterflowConfig) + Send>,
    ) -> Self {
        // One pending request is enough: a reload reads everything.
        let (ask, asked) = mpsc::channel(1);
        let watched = Arc::new(Mutex::new(Vec::new()));
        let (requests, requested) = mpsc::channel(MAX_REQUESTS);
        let fixed = fixed_part(config);
        let this = Self { file, apply, engine, components, asked, requested, requests, fixed, watched, status };
        this.watch(config);
        // The first stamps are taken before the thread starts, so that no change is missed.
        let (paths, seen) = (Arc::clone(&this.watched), file_stamps(&this.watched.lock()));
        let started = std::thread::Builder::new().name("watch".into()).spawn(move || watch_files(&paths, seen, &ask));
        if let Err(e) = started {
            tracing::warn!("cannot watch files ({e}): send SIGHUP after a change");
        }
        this
    }

    fn watch(&self, config: &InterflowConfig) {
        let files = self.file.iter().chain(&config.auth.users).cloned();
        *self.watched.lock() = files.chain(self.components.files(config)).collect();
    }

    /// Reloads when called.
    pub fn handle(&self) -> ReloadFn {
        let requests = self.requests.clone();
        Arc::new(move || {
            let requests = requests.clone();
            Box::pin(async move {
                let stopping = || "the instance is stopping".to_owned();
                let (reply, done) = oneshot::channel();
                requests.send(reply).await.map_err(|_| stopping())?;
                done.await.map_err(|_| stopping())?
            })
        })
    }

    pub async fn run(mut self) {
        let mut hangup = sighup_stream();
        loop {
            tokio::select! {
                asked = self.asked.recv() => {
                    if asked.is_none() {
                        // The watcher has ended; SIGHUP still works.
                        hangup.recv().await;
                    } else {
                        tokio::time::sleep(SETTLE_DELAY).await;
                        while self.asked.try_recv().is_ok() {}
                    }
                }
                () = hangup.recv() => {}
                Some(reply) = self.requested.recv() => {
                    // The client may have gone.
                    let _ = reply.send(self.reload());
                    continue;
                }
            }
            let _ = self.reload();
        }
    }

    /// Reloads, and logs the result.
    fn reload(&self) -> Result<ReloadReport, String> {
        let result = self.load_and_apply();
        self.status.record(result.is_ok());
        match &result {
            Ok(report) if report.restart.is_empty() => tracing::info!("reloaded"),
            Ok(report) => tracing::warn!("reloaded; changes of {} take effect at a restart", report.restart.join(", ")),
            Err(e) => tracing::error!("configuration not reloaded, the previous one stays active: {e}"),
        }
        result
    }

    fn load_and_apply(&self) -> Result<ReloadReport, String> {
        let mut config = config::load(self.file.as_deref()).map_err(|e| e.to_string())?.config;
        (self.apply)(&mut config);
        self.apply_config(&config)?;
        self.watch(&config);
        let files = self.watched.lock().iter().filter(|f| f.exists()).cloned().collect();
        Ok(ReloadReport { files, restart: restart_needed(&self.fixed, &fixed_part(&config)) })
    }

    /// Everything is prepared before anything is activated.
    fn apply_config(&self, config: &InterflowConfig) -> Result<(), String> {
        interflow_proxy::check(&config.engine()).map_err(|e| e.to_string())?;
        for change in self.components.prepare(config)? {
            change();
        }
        // Last, because it drops the plans that were cached under the old configuration.
        self.engine.reload(config.engine()).map_err(|e| e.to_string())
    }
}

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

type FileStamps = HashMap<PathBuf, Option<FileStamp>>;

fn file_stamps(paths: &[PathBuf]) -> FileStamps {
    paths.iter().map(|path| (path.clone(), file_stamp(path))).collect()
}

/// Whether a file that was already watched has changed. Newly watched files do not count.
fn changed(before: &FileStamps, now: &FileStamps) -> bool {
    now.iter().any(|(path, look)| before.get(path).is_some_and(|old| old != look))
}

fn watch_files(paths: &Mutex<Vec<PathBuf>>, mut seen: FileStamps, ask: &mpsc::Sender<()>) {
    while !ask.is_closed() {
        std::thread::sleep(POLL_INTERVAL);
        let paths = paths.lock().clone();
        let now = file_stamps(&paths);
        if changed(&seen, &now) {
            // If one is pending already, it covers this change as well.
            let _ = ask.try_send(());
        }
        seen = now;
    }
}

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
    fn changes_that_need_a_restart_are_named() {
        let start = InterflowConfig::default();
        let mut config = start.clone();
        config.admin.listen = None;
        config.proxy.listen = vec!["127.0.0.1:1".parse().unwrap()];
        config.redact.restore = false;
        assert_eq!(restart_needed(&fixed_part(&start), &fixed_part(&config)), ["admin", "proxy.listen"]);
        assert!(restart_needed(&fixed_part(&start), &fixed_part(&start)).is_empty());
    }

    #[cfg(all(feature = "media", feature = "compat"))]
    #[test]
    fn sections_that_need_a_restart_exist() {
        let schema = InterflowConfig::schema().to_string();
        for name in FIXED.iter().flat_map(|path| path[1..].split('/')) {
            assert!(schema.contains(&format!("\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn watched_file_changes_are_detected_and_other_files_ignored() {
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
    fn replaced_symlink_is_detected_as_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            std::fs::create_dir(path(version)).unwrap();
            std::fs::write(path(version).join("c.toml"), "same").unwrap();
        }
        // Like a Kubernetes config map mount: the directory is a symlink that is replaced.
        std::os::unix::fs::symlink("v1", path("data")).unwrap();
        let paths = [path("data/c.toml")];
        let before = file_stamps(&paths);
        std::os::unix::fs::symlink("v2", path("next")).unwrap();
        std::fs::rename(path("next"), path("data")).unwrap();
        assert!(changed(&before, &file_stamps(&paths)));
    }
}
