//! Builds, starts and gracefully stops an instance.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use interflow_admin::identity::shared::SharedIdentity;
use interflow_admin::metrics::MetricsSource;
use interflow_admin::settings::SettingsEditor;
use interflow_admin::{AdminDeps, AdminServer, FleetPending, LimitDeps, ReloadFn};
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::running_instances::InstanceRegistration;
use interflow_host::{data_dir, running_instances, system_proxy};
use interflow_net::ca::{CaOptions, CertificateAuthority};
use interflow_net::ingress::mdns::{MdnsRegistration, MdnsService, register};
use interflow_net::ingress::{ListenOptions, ListenSocket, ListenSockets};
use interflow_proxy::config::InterceptConfig;
use interflow_proxy::{ProxyServer, ServerDeps, dns};
use interflow_store::StoreError;
use interflow_types::Recorder;
use interflow_types::units::pluralize;

use crate::components::record_store::RecordStore;
use crate::components::{ComponentDeps, ComponentSet, catalog, spend_ledger};
use crate::fleet::{self, RecordArchiver, SettingsSync};
use crate::instance::config::{InterflowConfig, LogFormat};
use crate::instance::heartbeat::Heartbeat;
use crate::instance::reload::{ConfigControl, ReloadStatus, ReloadableKeys, ReloadedParts, prepare};
use crate::instance::settings::{ConfigEditor, EditorDeps};
use crate::instance::shutdown_signal::{ShutdownSignal, StopSignal};
use crate::instance::{diagnosis, exposure, machine_setup, start_check};
use crate::{CliError, Result};

/// If connections are still open this long after a signal, a notice explains the wait.
const DRAIN_NOTICE_DELAY: std::time::Duration = std::time::Duration::from_millis(300);

/// An instance, until it is dropped: then pending records and counters are written, which blocks on the disk.
pub struct RunningInstance {
    /// Writes the record's hours to the archive, if there is one. It stops when it is dropped: before the store gives up this
    /// replica's turn to archive.
    _archiver: Option<RecordArchiver>,
    _store_closer: StoreCloser,
    /// The proxy server.
    pub engine: Arc<ProxyServer>,
    pub store: Option<Arc<RecordStore>>,
    /// The conversation indexer, if recording is enabled. It stops when the last handle is dropped.
    #[cfg_attr(not(any(feature = "demo", test)), expect(dead_code, reason = "kept until the end"))]
    conversations: Option<IndexerHandle>,
    pub admin: Option<(AdminServer, SocketAddr)>,
    pub(super) dns: Option<SocketAddr>,
    pub token: String,
    pub components: Arc<ComponentSet>,
    pub reload_status: Arc<ReloadStatus>,
    /// Reports this process to the others that share its store.
    _heartbeat: Option<Heartbeat>,
    /// Shares requests that wait for a decision with them, also without an admin port.
    _fleet_pending: Option<Arc<FleetPending>>,
    sockets: Arc<ListenSockets>,
    pub(super) home: DataDir,
    /// What replicas share beside the store.
    settings: Option<SettingsSync>,
}

/// Closes the store when it is dropped, also if the start fails: threads that hold the store too may live as long as the
/// process, and the next start would recover a store that was not closed.
struct StoreCloser(Option<Arc<RecordStore>>);

impl Drop for StoreCloser {
    fn drop(&mut self) {
        self.0.iter().for_each(|store| store.close());
    }
}

/// What other commands find the instance by, until it is dropped.
pub struct AnnouncedInstance {
    _file: data_dir::InstanceFileGuard,
    _registration: Option<InstanceRegistration>,
}

/// Starts all servers and components. The admin ports are bound first, because the proxy must know and refuse them.
pub async fn start(config: &InterflowConfig, home: &DataDir) -> Result<RunningInstance> {
    start_with(config, home, StartOptions::default()).await
}

/// Puts the CA of the configuration, if there is one, into the data directory, where commands such as `exec` find it too.
fn adopt_configured_ca(config: &InterceptConfig, home: &DataDir) -> Result<()> {
    let Some((certificate, key, source)) = start_check::configured_ca(config)? else { return Ok(()) };
    if CertificateAuthority::adopt(&home.ca(), &certificate, &key, &source).map_err(|e| e.to_string())? {
        tracing::info!("the CA in {} is now that of {source}", home.ca().display());
    }
    Ok(())
}

/// Whether the store is opened although `record.enabled` is false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreUse {
    #[default]
    IfEnabled,
    /// Recording may be turned on later.
    Always,
}

#[derive(Default)]
pub struct StartOptions {
    pub store: StoreUse,
    /// Sockets that may be inherited.
    pub sockets: Arc<ListenSockets>,
    /// The configuration file, which the admin API reloads and changes; `None` if the instance has none.
    pub control: Option<ConfigControl>,
}

/// As [`start`], with options.
pub async fn start_with(config: &InterflowConfig, home: &DataDir, options: StartOptions) -> Result<RunningInstance> {
    let StartOptions { store, sockets, control } = options;
    let active = control.as_ref().map(|control| control.active.clone()).unwrap_or_default();
    active.replace(serde_json::to_value(config).map_err(|e| format!("the configuration cannot be serialized: {e}"))?);
    interflow_proxy::check_listeners(&config.engine(), config.admin.listen)
        .map_err(|e| CliError::Usage(e.to_string()))?;
    home.create()?;
    home.check_access()?;
    raise_file_limit();
    let intercept = &config.intercept;
    let leaves = CaOptions {
        leaves: intercept.leaf_cache_size,
        leaf_days: intercept.leaf_validity_days,
        persist_leaves: intercept.persist_leaves,
    };
    adopt_configured_ca(intercept, home)?;
    let ca = Arc::new(CertificateAuthority::open_with(&home.ca(), &leaves).map_err(|e| e.to_string())?);
    let store = open_store(config, home, store)?;
    let store_closer = StoreCloser(store.clone());
    let archiver = if let Some(store) = &store { RecordArchiver::start(config, home, store).await? } else { None };
    let recorder = store.as_ref().and_then(|s| s.recorder()).map(|r| Arc::new(r) as Arc<dyn Recorder>);
    // Bound before the proxy starts, which must refuse proxied connections to it.
    let admin = config.admin.listen.map(|addr| bind_admin(&sockets, addr)).transpose()?;
    let own = admin.iter().filter_map(|l| l.local_addr().ok()).collect();
    let reload_status = Arc::new(ReloadStatus::default());
    // Before the components read the files.
    let mut settings = SettingsSync::start(config, home, &reload_status).await?;
    let identity = fleet::open_identity(config, home)?;
    let grants = identity.as_ref().map(|identity| Arc::clone(&identity.grants));
    let (shared, spend) = identity.map(|identity| (identity.store, identity.spend)).unzip();
    let shared = shared.map(|store| SharedIdentity { store, replica: config.fleet.replica_name() });
    let spend = spend_ledger(config, home, spend);
    spend.keep_sending();
    let parts = ComponentDeps { store: store.as_ref(), spend: Some(spend), grants, ..ComponentDeps::default() };
    let components = Arc::new(build_components(config, home, &parts, &mut settings).await?);
    let parts = ServerDeps {
        ca,
        recorder,
        stages: components.stages.clone(),
        mounts: components.mounts.clone(),
        own,
        local: components.local.clone(),
        sockets: Arc::clone(&sockets),
    };
    let engine = ProxyServer::start(config.engine(), parts).map_err(|e| e.to_string())?;
    for addr in sockets.close_unused() {
        tracing::warn!("the inherited socket {addr} is closed: no listener of the configuration has this address");
    }
    // The components use the proxy for their own requests.
    components.attach(&engine);
    let conversations = store.as_ref().map(|s| components.conversations(s)).transpose()?;
    let dns = dns::start(&config.dns, &components.names).await.map_err(|e| e.to_string())?.map(|(addr, _)| addr);
    components.approvals.notify_desktop();
    let fleet_pending = store
        .as_deref()
        .and_then(|store| fleet::share_pending(store, config, &components.approvals.approvals, &components.rules));
    let token = home.admin_token()?;
    let reloads = Arc::clone(&reload_status);
    let reloads: MetricsSource = Box::new(move |page| reloads.write_metrics(page));
    let archived = archiver.as_ref().map(RecordArchiver::metrics);
    // Metrics of what the admin side does not know.
    let metrics = [reloads, components.metrics()].into_iter().chain(archived).collect();
    let admin = match admin {
        Some(listener) => {
            let addr = listener.local_addr().map_err(|e| format!("the admin port has no address: {e}"))?;
            let parts = AdminDeps {
                rules: Some(Arc::clone(&components.rules)),
                engine: Arc::clone(&engine),
                store: store.as_ref().map(|s| s.flows()),
                conversations: conversations.clone(),
                config: active,
                token: token.clone(),
                data_dir: home.path().to_owned(),
                command: home.command(),
                shared,
                token_file: home.admin_token_file(),
                redaction: Some(Arc::clone(&components.redaction)),
                limits: Some(LimitDeps {
                    keys: Arc::clone(&components.limits.keys),
                    limits: Arc::clone(&components.limits.limits),
                    accounts: Arc::clone(&components.accounts.accounts),
                }),
                schemas: Arc::new(start_check::schemas(config, home)?),
                approvals: Some(Arc::clone(&components.approvals.approvals)),
                fleet_pending: fleet_pending.clone(),
                doctor: Some(diagnosis::for_admin(config, home)),
                llm: Some(Arc::clone(&components.gateway)),
                mcp: Some(Arc::clone(&components.mcp)),
                #[cfg(feature = "media")]
                media: config.media.enabled.then(|| Arc::clone(&components.media)),
                archive: archiver.as_ref().map(RecordArchiver::progress),
                setup: Some(machine_setup::for_admin(home, control.as_ref().map(|control| &control.file), &engine)),
                reload: control.as_ref().map(|control| Arc::clone(&control.reload)),
                settings: control.and_then(|control| settings_editor(control, &components, store.is_some())),
                shared_settings: settings.as_ref().map(SettingsSync::for_admin),
                metrics,
            };
            let admin = AdminServer::new(&config.admin, listener, parts).map_err(|e| format!("the admin port: {e}"))?;
            Some((admin, addr))
        }
        None => None,
    };
    if config.upstream.danger_insecure {
        tracing::warn!(
            "upstream certificates are NOT verified: anyone on the network path can read and modify all traffic"
        );
    }
    catalog::start(&config.quota.catalog, home, Arc::new(components.local.unrecorded()))?;
    let heartbeat = store.as_ref().filter(|store| store.embedded().is_none()).map(|store| {
        let admin = admin.as_ref().map(|(admin, addr)| (*addr, admin.state()));
        Heartbeat::start(store, &engine, admin, config)
    });
    Ok(RunningInstance {
        _store_closer: store_closer,
        _heartbeat: heartbeat,
        _fleet_pending: fleet_pending,
        engine,
        store,
        conversations,
        _archiver: archiver,
        admin,
        dns,
        token,
        components,
        reload_status,
        sockets,
        home: home.clone(),
        settings,
    })
}

/// Changes the configuration file for the admin API; `None` if there is no place for a file.
fn settings_editor(
    control: ConfigControl,
    components: &Arc<ComponentSet>,
    has_store: bool,
) -> Option<Arc<dyn SettingsEditor>> {
    let (checked, accounts) = (Arc::clone(components), Arc::clone(&components.accounts.accounts));
    let editor = ConfigEditor::new(EditorDeps {
        control,
        reloadable: ReloadableKeys { has_store },
        check: Arc::new(move |config| prepare(&checked, config).map(drop)),
        audit: Arc::new(move |client, changes| accounts.record_settings(client, changes)),
    });
    editor.map(|editor| Arc::new(editor) as Arc<dyn SettingsEditor>)
}

/// Builds the components. Shared settings that they cannot use are replaced by earlier revisions.
async fn build_components(
    config: &InterflowConfig,
    home: &DataDir,
    parts: &ComponentDeps<'_>,
    settings: &mut Option<SettingsSync>,
) -> Result<ComponentSet> {
    let mut first_error = None;
    loop {
        let error = match (ComponentSet::new(config, home, parts), settings.as_mut()) {
            (Ok(components), Some(settings)) => {
                settings.accept_start(first_error.map(|e: CliError| e.to_string()).as_deref())?;
                return Ok(components);
            }
            (built, None) => return built,
            (Err(error), Some(_)) => error,
        };
        let error = first_error.get_or_insert(error);
        if let Some(settings) = settings
            && !settings.try_earlier().await?
        {
            return Err(std::mem::replace(error, CliError::Failed(String::new())));
        }
    }
}

pub fn bind_admin(sockets: &ListenSockets, addr: SocketAddr) -> Result<tokio::net::TcpListener, String> {
    let bound = sockets.bind("admin", &ListenOptions::new(addr)).map_err(std::io::Error::other);
    bound
        .and_then(tokio::net::TcpListener::from_std)
        .map_err(|e| format!("the admin port (--listen-admin) cannot listen: {e}"))
}

fn open_store(config: &InterflowConfig, home: &DataDir, usage: StoreUse) -> Result<Option<Arc<RecordStore>>> {
    if !config.record.enabled && usage == StoreUse::IfEnabled {
        return Ok(None);
    }
    let dir = home.join(&config.record.dir);
    match fleet::open_store(config, home) {
        Ok(store) => Ok(Some(Arc::new(store))),
        // The message names the shared store.
        Err(e @ StoreError::Shared(_)) => Err(e.into()),
        Err(e) if config.record.enabled => Err(format!("the recording in {}: {e}", dir.display()).into()),
        Err(e) => {
            tracing::warn!("record.enabled cannot be turned on without a restart: {}: {e}", dir.display());
            Ok(None)
        }
    }
}

impl RunningInstance {
    /// Writes `instance.json` unless another instance uses the data directory. A full disk does not stop the instance:
    /// the store's reserve is released first, and if that does not help, other commands do not find it.
    pub fn write_instance_file(&self) -> Option<AnnouncedInstance> {
        let instance = InstanceInfo {
            pid: std::process::id(),
            proxy: self.engine.proxy_addresses(),
            gateway: self.engine.gateway_addresses().first().copied(),
            admin: self.admin.as_ref().map(|(_, addr)| *addr),
            dns: self.dns,
            restart_refused: None,
        };
        let written = self.home.write_instance_file(&instance).or_else(|e| match &self.store {
            Some(store) if store.release_reserve() => self.home.write_instance_file(&instance),
            _ => Err(e),
        });
        match written {
            Ok(Some(file)) => {
                Some(AnnouncedInstance { _file: file, _registration: running_instances::register(&self.home) })
            }
            Ok(None) => {
                tracing::warn!("another instance is running with this data directory: other commands use that one");
                None
            }
            Err(e) => {
                tracing::error!("{e}; other Interflow commands cannot find this instance");
                None
            }
        }
    }

    pub fn register_mdns(&self, config: &InterflowConfig) -> Result<Option<MdnsRegistration>> {
        let Some(name) = &config.proxy.mdns_name else { return Ok(None) };
        let Some(proxy) = start_check::check_mdns(config, &self.engine.proxy_addresses()).map_err(CliError::Usage)?
        else {
            return Ok(None);
        };
        let facts = vec![("txtvers", "1"), ("type", "http,connect,socks5"), ("ca", "http://interflow.local/")];
        let registration = register(&MdnsService { name: name.clone(), port: proxy.port(), facts })
            .map_err(|e| format!("proxy.mdns_name: cannot register the service: {e}"))?;
        Ok(Some(registration))
    }

    pub fn become_system_proxy(&self) -> Result<(), String> {
        let proxy = self.engine.proxy_addresses().first().copied().ok_or("there is no proxy port")?;
        system_proxy::set(&self.home, proxy, std::process::id()).map(drop)
    }

    /// Follows changes of settings that replicas share, from now on.
    pub fn follow_shared_settings(&mut self, reload: ReloadFn) {
        if let Some(mut settings) = self.settings.take() {
            if let Some((admin, _)) = &self.admin {
                settings.set_editors(admin.state().last_editors());
            }
            tokio::spawn(settings.run(reload));
        }
    }

    /// What a reload changes.
    pub fn reloaded_parts(&self) -> ReloadedParts {
        ReloadedParts {
            engine: Arc::clone(&self.engine),
            components: Arc::clone(&self.components),
            store: self.store.clone(),
            status: Arc::clone(&self.reload_status),
            home: self.home.clone(),
        }
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        self.home.ca().join("ca.pem")
    }

    /// Prints exposure warnings last, where they are most visible.
    pub fn warn_of_exposure(&self, config: &InterflowConfig) {
        let admin = self.admin.as_ref().map(|(_, addr)| *addr);
        let exposed = exposure::warnings(config, &self.engine.proxy_addresses(), admin);
        for text in exposed.into_iter().chain(self.home.check_access().unwrap_or_default()) {
            match config.log.format {
                LogFormat::Text => crate::warn(&text),
                LogFormat::Json => tracing::warn!("{text}"),
            }
        }
    }

    /// Serves until SIGTERM, SIGINT or the end of its terminal, or SIGUSR2 if the signals include it, then drains. A second signal stops
    /// immediately. Returns the sockets for a successor if there is to be one.
    pub async fn run_until_shutdown(mut self, mut stop: ShutdownSignal) -> Option<Vec<ListenSocket>> {
        // The admin server runs while connections drain, so that its pages show the progress.
        let (end, ended) = tokio::sync::watch::channel(false);
        let until = |mut ended: tokio::sync::watch::Receiver<bool>| async move {
            let _ = ended.wait_for(|e| *e).await;
        };
        if let Some((admin, _)) = self.admin.take() {
            let until = until(ended);
            tokio::spawn(async move {
                if let Err(e) = admin.serve(until).await {
                    tracing::error!("the admin server stopped: {e}");
                }
            });
        }
        let signal = stop.recv_accepted().await;
        let successor = signal == StopSignal::Restart;
        if !successor {
            self.sockets.close_kept();
        }
        tokio::select! {
            () = self.finish(signal) => {}
            _ = stop.recv() => tracing::warn!("stopped immediately"),
        }
        let _ = end.send(true);
        let sockets = Arc::clone(&self.sockets);
        drop(self);
        successor.then(|| sockets.kept())
    }

    async fn finish(&self, asked: StopSignal) {
        let config = self.engine.config().proxy;
        if asked == StopSignal::Restart {
            tracing::info!("restarting: connections may finish for {}; new ones wait", config.drain_timeout);
        } else {
            tracing::info!("stopping: connections may finish for {}", config.drain_timeout);
            // From here on `/readyz` fails, and load balancers stop sending.
            self.engine.begin_shutdown();
        }
        // Only for service managers; a person at the terminal does not want to wait.
        if asked == StopSignal::Terminate {
            tokio::time::sleep(config.drain_delay.0).await;
        }
        // Release held requests: no one can decide them any more.
        self.components.approvals.approvals.close();
        self.components.rules.runtime().holds.close();
        self.components.mcp.close_streams();
        let say = async {
            tokio::time::sleep(DRAIN_NOTICE_DELAY).await;
            let open = self.engine.connections() as u64;
            if open > 0 {
                let open = pluralize(open, "connection");
                tracing::warn!("waiting for {open}, {} at most; press Ctrl-C again to stop now", config.drain_timeout);
            }
        };
        let stopped = self.engine.stop();
        tokio::pin!(stopped, say);
        tokio::select! {
            () = &mut stopped => {}
            () = &mut say => stopped.await,
        }
    }

    #[cfg(any(feature = "demo", test))]
    /// Stops once everything so far, including conversations, has been recorded.
    pub async fn flush_and_stop(self) -> Result<()> {
        if let (Some(store), Some(live)) = (&self.store, &self.conversations) {
            let flushed = Arc::clone(store);
            tokio::task::spawn_blocking(move || flushed.flush()).await.map_err(|e| e.to_string())??;
            live.flush().await?;
        }
        self.engine.stop().await;
        Ok(())
    }
}

impl Drop for RunningInstance {
    fn drop(&mut self) {
        self.components.mcp.close();
        self.components.accounts.accounts.close();
        self.components.limits.close();
    }
}

/// Raises the open-file limit; the usual default is too low for ten thousand connections.
fn raise_file_limit() {
    #[cfg(unix)]
    match rlimit::increase_nofile_limit(200_000) {
        Ok(limit) => interflow_net::descriptors::reserve(limit),
        // Fewer connections are possible then, which `interflow doctor` reports.
        Err(e) => tracing::debug!("the open-file limit could not be raised: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Components hold HTTP clients of the server, and the server holds the components: no reference cycle may remain.
    #[tokio::test]
    async fn the_server_is_dropped_once_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let mut config = InterflowConfig::default();
        config.make_private();
        let running = start(&config, &home).await.unwrap();
        let (engine, components) = (Arc::downgrade(&running.engine), Arc::downgrade(&running.components));
        running.flush_and_stop().await.unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while engine.strong_count() + components.strong_count() > 0 {
            assert!(std::time::Instant::now() < deadline, "{} {}", engine.strong_count(), components.strong_count());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_start_that_fails_late_closes_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let mut config = InterflowConfig::default();
        config.make_private();
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        config.dns.listen = Some(other.local_addr().unwrap());
        let error = start(&config, &home).await.err().unwrap();
        assert!(error.to_string().contains("dns.listen"), "{error}");
        assert!(home.join(&config.record.dir).join("flows.db").exists());
        // The mark by which the next start knows that the store must be recovered.
        assert!(!home.join(&config.record.dir).join("writing").exists());
    }
}
