//! `interflow exec -- CMD`: runs a command through the proxy without changing system settings.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::exec::{ExecCredential, print_summary, run_command};
use interflow_store::{FlowStore as _, SqliteStore};
use interflow_types::Timestamp;

use crate::CliError;
use crate::instance::config::{InterflowConfig, LoadedConfig};
use crate::instance::{log, run};

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Start a private instance even if one is already running.
    #[arg(long)]
    pub private: bool,
    /// Do not print the summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Hosts that bypass the proxy, as in NO_PROXY.
    #[arg(long, value_name = "LIST", default_value = "")]
    pub no_proxy: String,
    /// Do not verify upstream certificates (private instance only).
    #[arg(long)]
    pub danger_insecure_upstream: bool,
    /// Proxy user name of the command, if the running instance requires authentication.
    #[arg(long, value_name = "NAME", default_value = "exec")]
    pub user: String,
    /// Command and arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit code.
pub fn run(args: &ExecArgs, loaded: LoadedConfig, home: &DataDir) -> Result<(), CliError> {
    let mut config = loaded.config;
    // Keep stdout and stderr clean for the command's own output.
    if config.log.level == "info" {
        config.log.level = "warn".into();
    }
    log::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("the runtime could not be started: {e}"))?;
    runtime.block_on(run_through_proxy(args, config, home))
}

async fn run_through_proxy(args: &ExecArgs, mut config: InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    if let Some(instance) = home.running_instance()
        && !args.private
    {
        let code = with_instance(args, home, &instance, &config).await?;
        return exit_result(code);
    }
    config.make_private();
    // All clients belong to the command: certificate rejections are reported in the summary, never bypassed.
    config.intercept.pinning_failures = 0;
    config.upstream.danger_insecure |= args.danger_insecure_upstream;
    let mut aside = None;
    let mut started = run::start(&config, home).await;
    // A store has a single writer: the running instance or another `exec`.
    if started.is_err() && SqliteStore::has_writer(&home.join(&config.record.dir)) {
        config.record.dir = format!("record-exec-{}", std::process::id()).into();
        aside = Some(home.join(&config.record.dir));
        started = run::start(&config, home).await;
    }
    let running = started?;
    let proxy = running.engine.proxy_addresses().first().copied().ok_or_else(|| "no proxy port".to_owned())?;
    let began = Timestamp::now();
    let code = run_command(&args.command, &args.no_proxy, home, proxy, None).await?;
    running.engine.stop().await;
    let mut flows = 0;
    if let Some(store) = &running.store {
        let _ = store.flush();
        flows = store.stats().map_or(1, |s| s.flows);
        summarise(args, store, began, aside.as_deref());
    }
    running.close();
    if let Some(empty) = aside.filter(|_| flows == 0) {
        let _ = std::fs::remove_dir_all(empty);
    }
    exit_result(code)
}

async fn with_instance(
    args: &ExecArgs,
    home: &DataDir,
    instance: &InstanceInfo,
    config: &InterflowConfig,
) -> Result<u8, CliError> {
    let began = Timestamp::now();
    let pass = match ExecCredential::issue(home, &args.user) {
        Ok(pass) => pass,
        Err(CliError::Failed(why) | CliError::Usage(why)) => {
            anstream::eprintln!("interflow: running the command without proxy credentials: {why}");
            None
        }
        Err(other) => return Err(other),
    };
    let proxy: &SocketAddr =
        instance.proxy.first().ok_or_else(|| "the running instance has no proxy port".to_owned())?;
    let code = run_command(&args.command, &args.no_proxy, home, *proxy, pass.as_ref()).await?;
    drop(pass);
    let dir = home.join(&config.record.dir);
    // The other process writes asynchronously; wait for its last batch.
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    if let Ok(store) = SqliteStore::open_read(&dir) {
        summarise(args, &store, began, None);
    }
    Ok(code)
}

fn summarise(args: &ExecArgs, store: &SqliteStore, began: Timestamp, aside: Option<&Path>) {
    if !args.quiet {
        print_summary(store, began, aside);
    }
}

fn exit_result(code: u8) -> Result<(), CliError> {
    if code == 0 { Ok(()) } else { Err(CliError::Child(code)) }
}
