//! Configuration reload: when the configuration file or a file it refers to changes, on SIGHUP, and when the API asks.

use interflow_types::data_file;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use interflow_admin::metrics::table;
use interflow_admin::settings::SettingEffect;
use interflow_admin::{ActiveConfig, ReloadFn, ReloadReport};
use interflow_codec::prometheus::MetricsPage;
use interflow_host::data_dir::DataDir;
use interflow_proxy::ProxyServer;
use interflow_types::Timestamp;
use interflow_types::secret_names::mask_urls;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::components::record_store::RecordStore;
use crate::components::{ApplyFn, ComponentSet, named_files};
use crate::instance::config::{ConfigFile, InterflowConfig};
use crate::instance::terminal::StartTerminal;
use crate::instance::watched_files::{FileStamps, WatchedFiles};
use crate::instance::{config, log};

/// Polling interval. Short, because operators wait for the effect of an edit.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after a change, because editors write a file in several steps.
const SETTLE_DELAY: Duration = Duration::from_millis(200);

/// Applies the command line's flags to a configuration.
pub type ApplyFlagsFn = Arc<dyn Fn(&mut InterflowConfig) + Send + Sync>;

/// How reloads went, for metrics.
#[derive(Debug)]
pub struct ReloadStatus {
    failed: AtomicBool,
    /// How many reloads succeeded.
    succeeded: AtomicU64,
    /// When the active configuration was loaded, in seconds of Unix time.
    loaded: AtomicU64,
}

impl Default for ReloadStatus {
    fn default() -> Self {
        Self { failed: AtomicBool::new(false), succeeded: AtomicU64::new(0), loaded: AtomicU64::new(unix_seconds()) }
    }
}

impl ReloadStatus {
    fn record(&self, succeeded: bool) {
        self.failed.store(!succeeded, Relaxed);
        if succeeded {
            self.succeeded.fetch_add(1, Relaxed);
            self.loaded.store(unix_seconds(), Relaxed);
        }
    }

    /// How many reloads have succeeded since the start.
    #[cfg(feature = "fleet")]
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Relaxed)
    }

    pub fn write_metrics(&self, page: &mut MetricsPage) {
        page.value(&table::CONFIG_RELOAD_SUCCESSFUL, u8::from(!self.failed.load(Relaxed)));
        page.value(&table::CONFIG_RELOAD_TIMESTAMP, self.loaded.load(Relaxed));
    }
}

fn unix_seconds() -> u64 {
    Timestamp::now().micros() / 1_000_000
}

/// The configuration file of an instance, and its reload: made before the instance, which starts with it, and given to the
/// [`ConfigReloader`] then.
#[derive(Clone)]
pub struct ConfigControl {
    pub file: ConfigFile,
    pub active: ActiveConfig,
    pub flags: ApplyFlagsFn,
    /// Keys that options of the command line determine, with these options.
    pub options: Vec<(&'static str, &'static str)>,
    pub reload: ReloadFn,
}

/// Reloads that the [`ConfigControl`] asks for.
pub struct ReloadRequests(mpsc::Receiver<ReloadRequest>);

impl ConfigControl {
    pub fn new(
        file: ConfigFile,
        flags: ApplyFlagsFn,
        options: Vec<(&'static str, &'static str)>,
    ) -> (Self, ReloadRequests) {
        let (requests, receiver) = mpsc::channel::<ReloadRequest>(MAX_REQUESTS);
        let reload: ReloadFn = Arc::new(move || {
            let requests = requests.clone();
            Box::pin(async move {
                // The loop ends with the runtime only.
                let stopping = || "the instance is stopping".to_owned();
                let (reply, result) = oneshot::channel();
                requests.send(reply).await.map_err(|_| stopping())?;
                result.await.map_err(|_| stopping())?
            })
        });
        (Self { file, active: ActiveConfig::default(), flags, options, reload }, ReloadRequests(receiver))
    }
}

/// Reloads the configuration whenever it or a file that it refers to changes.
pub struct ConfigReloader {
    reload: Arc<Reload>,
    /// Changes of files.
    asked: mpsc::Receiver<()>,
    /// Requests of the admin API.
    requests: ReloadRequests,
    terminal: StartTerminal,
}

/// One reload after the other, each on a blocking thread.
struct Reload {
    control: ConfigControl,
    parts: ReloadedParts,
    /// The configuration at the start, for what is read only then.
    start: Value,
    watched: Arc<WatchedFiles>,
    /// The versions of the files that the active configuration names or implies.
    active_files: Mutex<FileStamps>,
}

/// What a reload changes.
pub struct ReloadedParts {
    pub engine: Arc<ProxyServer>,
    pub components: Arc<ComponentSet>,
    pub store: Option<Arc<RecordStore>>,
    pub status: Arc<ReloadStatus>,
    pub home: DataDir,
}

/// Where the result of a requested reload goes.
type ReloadRequest = oneshot::Sender<Result<ReloadReport, String>>;

/// Pending requests of the admin API; more wait.
const MAX_REQUESTS: usize = 8;

/// Sections and keys that are read at the start only.
static FIXED: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/keys_that_need_a_restart.txt")).collect());

/// Which keys a reload can change.
#[derive(Clone, Copy, Debug)]
pub struct ReloadableKeys {
    /// Whether there is a store, which can be reconfigured.
    pub has_store: bool,
}

impl ReloadableKeys {
    fn fixed(self) -> impl Iterator<Item = &'static str> {
        FIXED.iter().copied().chain((!self.has_store).then_some("/record"))
    }

    /// When a change of this key takes effect.
    pub fn effect(self, key: &str) -> SettingEffect {
        let pointer = format!("/{}", key.replace('.', "/"));
        let within =
            |fixed: &str| pointer.strip_prefix(fixed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if self.fixed().any(within) { SettingEffect::Restart } else { SettingEffect::Now }
    }

    /// The keys and sections that differ and are not reloaded: `admin`, `proxy.listen`.
    fn restart_needed(self, start: &Value, now: &Value) -> Vec<String> {
        let differing = self.fixed().filter(|path| start.pointer(path) != now.pointer(path));
        differing.map(|path| path[1..].replace('/', ".")).collect()
    }

    /// The configuration that is active after a reload.
    fn active(self, start: &Value, now: &Value) -> Value {
        let mut active = now.clone();
        for path in self.fixed() {
            let (section, key) = path.rsplit_once('/').unwrap_or_default();
            let Some(Value::Object(section)) = active.pointer_mut(section) else { continue };
            match start.pointer(path) {
                Some(value) => drop(section.insert(key.to_owned(), value.clone())),
                None => drop(section.remove(key)),
            }
        }
        active
    }
}

/// Everything that can be wrong with a configuration, checked without activating it. What it returns activates it.
///
/// # Errors
/// The configuration is invalid.
pub fn prepare(components: &ComponentSet, config: &InterflowConfig) -> Result<Vec<ApplyFn>, String> {
    interflow_proxy::check(&config.engine()).map_err(|e| e.to_string())?;
    log::check(&config.log)?;
    components.prepare(config)
}

fn to_json(config: &InterflowConfig) -> Value {
    serde_json::to_value(config).unwrap_or_default()
}

impl ConfigReloader {
    /// Watches the file and the files that `config` refers to; `stamps` was taken before the file was read.
    pub fn new(
        control: ConfigControl,
        requests: ReloadRequests,
        stamps: &FileStamps,
        config: &InterflowConfig,
        parts: ReloadedParts,
    ) -> Self {
        // One pending request is enough: a reload reads everything.
        let (ask, asked) = mpsc::channel(1);
        let watched = Arc::new(WatchedFiles::default());
        let start = to_json(config);
        let stamps = parts.components.stamps.clone().and(stamps);
        let active_files = Mutex::new(stamps.clone());
        let reload = Reload { control, parts, start, watched: Arc::clone(&watched), active_files };
        reload.watch(config, &stamps);
        let started = std::thread::Builder::new().name("watch".into()).spawn(move || watch_files(&watched, &ask));
        if let Err(e) = started {
            tracing::warn!("cannot watch files ({e}): send SIGHUP after a change");
        }
        Self { reload: Arc::new(reload), asked, requests, terminal: StartTerminal::find() }
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
                () = hangup.recv() => {
                    if self.terminal.was_closed() {
                        // The instance stops.
                        continue;
                    }
                }
                Some(reply) = self.requests.0.recv() => {
                    // The client may have gone.
                    let _ = reply.send(self.reload().await);
                    continue;
                }
            }
            let _ = self.reload().await;
        }
    }

    /// Reloads on a blocking thread, because it reads files and compiles for up to seconds, and logs the result.
    async fn reload(&self) -> Result<ReloadReport, String> {
        let reload = Arc::clone(&self.reload);
        let done = tokio::task::spawn_blocking(move || reload.load_and_apply()).await;
        let result = done.unwrap_or_else(|e| match e.try_into_panic() {
            Ok(panic) => {
                Err(format!("the reload failed by an internal error, please report it: {}", panic_text(&*panic)))
            }
            Err(e) => Err(format!("the reload was not finished: {e}")),
        });
        let result = result.map_err(|e| mask_urls(&e));
        self.reload.parts.status.record(result.is_ok());
        match &result {
            Ok(report) if report.restart.is_empty() => tracing::info!("reloaded"),
            Ok(report) => tracing::warn!("reloaded; changes of {} take effect at a restart", report.restart.join(", ")),
            Err(e) => tracing::error!("configuration not reloaded, the previous one stays active: {e}"),
        }
        result
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

impl Reload {
    fn reloadable(&self) -> ReloadableKeys {
        ReloadableKeys { has_store: self.parts.store.is_some() }
    }

    /// Watches the files of this configuration, of which `read` has the versions that were read.
    fn watch(&self, config: &InterflowConfig, read: &FileStamps) {
        // Also the file in the data directory that does not exist yet.
        let file = self.control.file.path().filter(|_| !self.control.file.is_stdin()).map(ToOwned::to_owned);
        let named = named_files(config, &self.parts.home);
        self.watched.replace(file.into_iter().chain(named).chain(self.parts.components.found_files()), read);
    }

    fn load_and_apply(&self) -> Result<ReloadReport, String> {
        let stamps = self.control.file.stamps();
        let mut config = config::load(self.control.file.to_load()).map_err(|e| e.to_string())?.config;
        (self.control.flags)(&mut config);
        let stamps = FileStamps::take(named_files(&config, &self.parts.home)).and(&stamps);
        // Also of a file that need not exist: what it forbids would be allowed.
        if let Some(path) = stamps.lost_since(&self.active_files.lock()) {
            let path = path.display();
            return Err(format!("{path} was used and is missing: put it back, or restart Interflow to do without it"));
        }
        self.apply_config(&config)?;
        self.watch(&config, &stamps);
        *self.active_files.lock() = stamps;
        let now = to_json(&config);
        let (keys, active) = (self.reloadable(), self.reloadable().active(&self.start, &now));
        self.control.active.replace(active);
        Ok(ReloadReport { files: self.watched.existing(), restart: keys.restart_needed(&self.start, &now) })
    }

    /// Everything is prepared before anything is activated, and nothing can fail then.
    fn apply_config(&self, config: &InterflowConfig) -> Result<(), String> {
        let changes = prepare(&self.parts.components, config)?;
        let engine = self.parts.engine.prepare(&config.engine()).map_err(|e| e.to_string())?;
        for change in changes {
            change();
        }
        log::set_level(&config.log);
        if let Some(store) = &self.parts.store {
            store.configure(&config.record);
        }
        // Last, because it drops the plans that were cached under the old configuration.
        self.parts.engine.activate(engine);
        Ok(())
    }
}

fn watch_files(watched: &WatchedFiles, ask: &mpsc::Sender<()>) {
    while !ask.is_closed() {
        std::thread::sleep(POLL_INTERVAL);
        if watched.poll() {
            // If one is pending already, it covers this change as well.
            let _ = ask.try_send(());
        }
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
    use interflow_store::RecordConfig;

    use super::*;

    #[test]
    fn changes_that_need_a_restart_are_named() {
        let start = InterflowConfig::default();
        let mut config = start.clone();
        config.admin.listen = None;
        config.proxy.listen = vec!["127.0.0.1:1".parse().unwrap()];
        config.redact.restore = false;
        let needed = |has_store, now| ReloadableKeys { has_store }.restart_needed(&to_json(&start), &to_json(now));
        assert_eq!(needed(true, &config), ["admin", "proxy.listen"]);
        assert!(needed(true, &start).is_empty());
        let recording =
            InterflowConfig { record: RecordConfig { enabled: false, ..start.record.clone() }, ..start.clone() };
        assert!(needed(true, &recording).is_empty());
        assert_eq!(needed(false, &recording), ["record"], "there is no store that could be turned on");
    }

    #[test]
    fn active_configuration_keeps_what_needs_a_restart() {
        let start = InterflowConfig::default();
        let mut now = start.clone();
        now.proxy.listen.clear();
        now.proxy.mdns_name = Some("x".into());
        now.intercept.exclude = vec!["a.test".into()];
        let active = ReloadableKeys { has_store: true }.active(&to_json(&start), &to_json(&now));
        let expected = InterflowConfig { intercept: now.intercept, ..start };
        assert_eq!(active, to_json(&expected));
        let keys = ReloadableKeys { has_store: true };
        assert_eq!(
            ["intercept.mode", "record.enabled", "record.overflow", "proxy.listen", "admin.hosts"]
                .map(|k| keys.effect(k)),
            [
                SettingEffect::Now,
                SettingEffect::Now,
                SettingEffect::Restart,
                SettingEffect::Restart,
                SettingEffect::Restart
            ]
        );
    }

    #[cfg(all(feature = "media", feature = "compat"))]
    #[test]
    fn sections_that_need_a_restart_exist() {
        let schema = InterflowConfig::schema().to_string();
        for name in FIXED.iter().flat_map(|path| path[1..].split('/')) {
            assert!(schema.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
