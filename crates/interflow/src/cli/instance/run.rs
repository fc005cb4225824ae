//! `interflow run`: starts an instance and serves until a signal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use interflow_host::data_dir::DataDir;
use interflow_host::system_proxy;
use interflow_net::ingress::ListenSockets;
use interflow_proxy::config::InterceptMode;

use super::listen_address::parse_listen_address;
use super::status::name_other;
use crate::instance::config::{ConfigFile, InterflowConfig, LoadedConfig};
use crate::instance::reload::{ApplyFlagsFn, ConfigControl, ConfigReloader};
#[cfg(unix)]
use crate::instance::restart::Successor;
use crate::instance::run::{StartOptions, StoreUse, start_with};
use crate::instance::shutdown_signal::ShutdownSignal;
#[cfg(unix)]
use crate::instance::successor_check;
use crate::instance::watched_files::FileStamps;
use crate::instance::{banner, log};
use crate::{CliError, Result};

/// Startup has certainly finished after this time.
#[cfg(target_os = "linux")]
const SETTLE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

#[derive(Clone, Debug, Args, Default)]
pub struct RunArgs {
    /// Listen address of the proxy; a port alone means 127.0.0.1 (repeatable).
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_proxy: Vec<SocketAddr>,
    /// Listen address of the gateway.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_gateway: Option<SocketAddr>,
    /// Serve TLS on the gateway with a certificate signed by Interflow's CA, for development.
    #[arg(long)]
    pub gateway_tls_self_signed: bool,
    /// Listen address of the admin API and web UI.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen_address)]
    pub listen_admin: Option<SocketAddr>,
    /// Rule file, in addition to those in the configuration (repeatable).
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Do not intercept TLS; tunnel it.
    #[arg(long)]
    pub no_intercept: bool,
    /// Do not record traffic.
    #[arg(long)]
    pub no_record: bool,
    /// Do not verify upstream certificates. Dangerous: anyone on the network path can read and modify all traffic.
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// Serve example.com, a shop, a bank and LLM providers from this process instead of the network, to try things out.
    #[cfg(feature = "demo")]
    #[arg(long)]
    pub origins: bool,
    /// Set this instance as the system's proxy while it runs (GNOME, KDE, macOS, Windows).
    #[arg(long)]
    pub system_proxy: bool,
    /// Print the effective configuration and exit. Secrets are masked.
    #[arg(long)]
    pub print_config: bool,
    /// Prove that an instance with these options could start, and exit: for the restart of a running one, which records in
    /// this directory, and whose sockets are inherited.
    #[cfg(unix)]
    #[arg(long, hide = true, value_name = "DIR")]
    pub check_start: Option<PathBuf>,
    /// Log level, as in `log.level`: `warn`, `debug`, `info,interflow_net=debug`.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Log more: -v for debug, -vv for trace.
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with_all = ["quiet", "log_level"])]
    pub verbose: u8,
    /// Log less and print no addresses: -q for warnings, -qq for errors only.
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "log_level")]
    pub quiet: u8,
}

impl RunArgs {
    /// Sets what the options name. They override file and environment, at every reload.
    fn apply(&self, config: &mut InterflowConfig) {
        if !self.listen_proxy.is_empty() {
            config.proxy.listen = self.listen_proxy.clone();
        }
        if self.gateway_tls_self_signed {
            config.gateway.tls_self_signed = true;
        }
        if let Some(gateway) = self.listen_gateway {
            config.gateway.listen = vec![gateway];
        }
        if self.listen_admin.is_some() {
            config.admin.listen = self.listen_admin;
        }
        if self.no_intercept {
            config.intercept.mode = InterceptMode::None;
        }
        config.rules.files.extend(self.rules.iter().cloned());
        config.record.enabled &= !self.no_record;
        config.upstream.danger_insecure |= self.danger_insecure_upstream;
    }

    fn log_level(&self) -> Option<&str> {
        match (self.verbose, self.quiet) {
            (0, 0) => self.log_level.as_deref(),
            (1, _) => Some("debug"),
            (2.., _) => Some("trace"),
            (0, 1) => Some("warn"),
            (0, 2..) => Some("error"),
        }
    }

    const fn has_origins(&self) -> bool {
        #[cfg(feature = "demo")]
        return self.origins;
        #[cfg(not(feature = "demo"))]
        return false;
    }

    /// Keys that the options determine, which the configuration file therefore cannot change.
    fn pinned_keys(&self) -> Vec<(&'static str, &'static str)> {
        let level = match (self.verbose, self.quiet) {
            (0, 0) => "--log-level",
            (0, _) => "-q",
            _ => "-v",
        };
        let all = [
            (self.no_intercept, "intercept.mode", "--no-intercept"),
            (self.no_record, "record.enabled", "--no-record"),
            (self.log_level().is_some(), "log.level", level),
        ];
        all.into_iter().filter(|(is_set, ..)| *is_set).map(|(_, key, option)| (key, option)).collect()
    }

    /// With the option or the variable that turns recording off, nothing can turn it on: the store is left to others.
    fn store_use(&self) -> StoreUse {
        let stays_off = self.no_record || std::env::var_os("INTERFLOW_RECORD_ENABLED").is_some();
        if stays_off { StoreUse::IfEnabled } else { StoreUse::Always }
    }
}

/// Runs until a signal. `stamps` was taken before the file was loaded.
pub fn run(args: &RunArgs, loaded: LoadedConfig, file: ConfigFile, stamps: FileStamps, home: DataDir) -> Result<()> {
    let mut config = loaded.config;
    args.apply(&mut config);
    if args.print_config {
        crate::cli::output::print(&crate::cli::config::as_toml(&config)?);
        return Ok(());
    }
    #[cfg(unix)]
    let sockets = Arc::new(ListenSockets::from_environment().map_err(|e| e.to_string())?);
    #[cfg(not(unix))]
    let sockets = Arc::new(ListenSockets::default());
    #[cfg(unix)]
    if let Some(record_dir) = &args.check_start {
        // What keeps the instance from starting is the error.
        let runtime = crate::runtime()?;
        return Ok(runtime.block_on(successor_check::check_start(&config, &home, &sockets, record_dir))?);
    }
    log::start_with_level(&config.log, args.log_level())?;
    let runtime = crate::runtime()?;
    #[cfg(unix)]
    let successor = Successor::new(&file, &home, &sockets, home.join(&config.record.dir)).map(Arc::new);
    let held = runtime.block_on(async {
        // Before anything listens, because a port check decides whether an earlier instance is still running.
        system_proxy::restore_leftover(&home);
        let flags = args.clone();
        let lead = lead_to_origins(args, &home).await?;
        lead(&mut config);
        let flags: ApplyFlagsFn = Arc::new(move |config| {
            flags.apply(config);
            lead(config);
        });
        let (control, requests) = ConfigControl::new(file, flags, args.pinned_keys());
        let options = StartOptions { store: args.store_use(), sockets, control: Some(control.clone()) };
        let mut running = start_with(&config, &home, options).await.map_err(|error| name_other(error, &home))?;
        let reload = Arc::clone(&control.reload);
        let reloader = ConfigReloader::new(control, requests, &stamps, &config, running.reloaded_parts());
        // Install signal handlers before the instance is announced, so that it always shuts down gracefully.
        #[cfg(unix)]
        let stop = successor.as_ref().map_or_else(ShutdownSignal::listen, ShutdownSignal::with_restart);
        #[cfg(not(unix))]
        let stop = ShutdownSignal::listen();
        let _instance_file = running.write_instance_file();
        let _system_proxy = system_proxy::SystemProxyGuard::new(&home);
        let _mdns = running.register_mdns(&config)?;
        if args.system_proxy {
            running.become_system_proxy()?;
        }
        if args.quiet == 0 {
            banner::print(&running, &config, args.has_origins());
        }
        running.warn_of_exposure(&config);
        running.follow_shared_settings(reload);
        tokio::spawn(reloader.run());
        #[cfg(target_os = "linux")]
        tokio::spawn(release_startup_memory());
        Ok::<_, CliError>(running.run_until_shutdown(stop).await)
    })?;
    #[cfg(unix)]
    if let (Some(held), Some(successor)) = (held, successor) {
        // Its threads end with the process.
        runtime.shutdown_background();
        return Err(successor.replace_process(held));
    }
    #[cfg(not(unix))]
    drop(held);
    Ok(())
}

/// With `--origins`, starts them; returns what the configuration needs to reach them.
#[cfg(feature = "demo")]
async fn lead_to_origins(args: &RunArgs, home: &DataDir) -> Result<ApplyFlagsFn> {
    if !args.origins {
        return Ok(Arc::new(|_| {}));
    }
    let origins = crate::cli::demo::start_origins(home).await?;
    Ok(Arc::new(move |config| crate::cli::demo::lead_to_origins(&origins, config)))
}

#[cfg(not(feature = "demo"))]
fn lead_to_origins(_: &RunArgs, _: &DataDir) -> std::future::Ready<Result<ApplyFlagsFn>> {
    std::future::ready(Ok(Arc::new(|_| {})))
}

/// Releases mapped code pages that only startup needed.
#[cfg(target_os = "linux")]
async fn release_startup_memory() {
    tokio::time::sleep(SETTLE_TIMEOUT).await;
    interflow_net::text_pages::release_code();
}
