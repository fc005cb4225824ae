//! `interflow exec -- CMD`: runs a command through the proxy without changing system settings.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use interflow_host::InstanceApi;
use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::exec::{ExecCredential, print_summary, run_command};
use interflow_redact::{RedactConfig, RedactMode};
use interflow_store::{FlowStore as _, SqliteStore};
use interflow_types::Timestamp;
use serde_json::Value;

use super::exec_choice::{self, CHOICE_FILE, PromptChoice};
use crate::CliError;
use crate::cli::flows::open_for_reading;
use crate::instance::config::{InterflowConfig, LoadedConfig};
use crate::instance::{log, run};

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Start a private instance for this command even if an instance is running.
    #[arg(long)]
    pub private: bool,
    /// Redact personal data and secrets in the command's LLM requests, overriding `redact.proxied` and the modes of
    /// `[[redact.route]]`. By default they are only flagged. If the running instance does not redact, add --private.
    #[arg(long)]
    pub redact: bool,
    /// Send prompts as they are and only flag what is in them, overriding the choice made at the first `exec` of an
    /// agent. Does not override the configuration.
    #[arg(long, conflicts_with = "redact")]
    pub flag_only: bool,
    /// Do not print the summary.
    #[arg(short, long)]
    pub quiet: bool,
    /// Hosts that bypass the proxy, separated by commas, as in NO_PROXY.
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
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
    let redact = redacts(args, &loaded, home);
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
    runtime.block_on(run_through_proxy(args, redact, config, home))
}

/// Whether the command's prompts are redacted by an option or by the choice of the person who ran it first.
fn redacts(args: &ExecArgs, loaded: &LoadedConfig, home: &DataDir) -> bool {
    if args.redact || args.flag_only {
        return args.redact;
    }
    // An instance that redacts everything leaves nothing to choose.
    let is_redacted = !args.private
        && home.running_instance().is_some()
        && active_policies(home).is_ok_and(|active| redacts_proxied(&active));
    !is_redacted && exec_choice::choose(&args.command, args.quiet, loaded, home) == Some(PromptChoice::Redact)
}

async fn run_through_proxy(
    args: &ExecArgs,
    redact: bool,
    mut config: InterflowConfig,
    home: &DataDir,
) -> Result<(), CliError> {
    if let Some(instance) = home.running_instance()
        && !args.private
    {
        if redact {
            require_redaction(home, &instance, args.redact)?;
        }
        let code = with_instance(args, home, &instance, &config).await?;
        return exit_result(code);
    }
    config.make_private();
    // All clients belong to the command: certificate rejections are reported in the summary, never bypassed.
    config.intercept.pinning_failures = 0;
    if redact {
        redact_everything(&mut config.redact);
    }
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

/// Redacts all proxied requests. Exceptions keep their policies, but none may exclude requests.
fn redact_everything(config: &mut RedactConfig) {
    config.proxied = RedactMode::Redact;
    for route in &mut config.route {
        route.mode = route.mode.map(|_| RedactMode::Redact);
    }
}

/// Checks that a running instance redacts every proxied request. It cannot be changed for one command alone: clients that
/// send no credentials cannot be told from those of other programs, and their requests would leave unredacted.
fn require_redaction(home: &DataDir, instance: &InstanceInfo, by_option: bool) -> Result<(), CliError> {
    if redacts_proxied(&active_policies(home)?) {
        return Ok(());
    }
    let cause = if by_option {
        "--redact".to_owned()
    } else {
        format!("prompts are redacted by the choice in {} (--flag-only overrides it)", home.join(CHOICE_FILE).display())
    };
    Err(CliError::Usage(format!(
        "{cause}: the running instance (process {}) does not redact all proxied LLM requests, and cannot do so for one \
         command alone; add --private to run the command behind an instance of its own, or set redact.proxied = \
         \"redact\" in the configuration of the running one",
        instance.pid
    )))
}

/// The routes of the running instance; null if it has no admin port.
fn active_policies(home: &DataDir) -> Result<Value, CliError> {
    InstanceApi::for_instance(home)?.map_or(Ok(Value::Null), |api| api.get("/privacy/policies"))
}

/// Whether the routes of `GET /privacy/policies` redact every proxied request.
fn redacts_proxied(active: &Value) -> bool {
    let routes = active["routes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_redact = |route: &Value| route["mode"] == "redact";
    let proxied = |route: &&Value| route["exception"].is_null() && route["name"] != "gateway";
    let exceptions = routes.iter().filter(|r| !r["exception"].is_null());
    routes.iter().find(proxied).is_some_and(is_redact)
        && exceptions.clone().all(|r| r["mode"].is_null() || is_redact(r))
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
        Err(e) => {
            anstream::eprintln!("interflow: running the command without proxy credentials: {e}");
            None
        }
    };
    let proxy: &SocketAddr =
        instance.proxy.first().ok_or_else(|| "the running instance has no proxy port".to_owned())?;
    let code = run_command(&args.command, &args.no_proxy, home, *proxy, pass.as_ref()).await?;
    drop(pass);
    // Waits until the other process has written the last flows.
    if let Ok(store) = open_for_reading(config, home) {
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

#[cfg(test)]
mod tests {
    use interflow_redact::RedactRoute;
    use serde_json::json;

    use super::*;

    #[test]
    fn no_exception_excludes_requests_of_a_command_that_is_redacted() {
        let route = |mode| RedactRoute { mode, ..RedactRoute::default() };
        let mut config = RedactConfig {
            route: vec![route(Some(RedactMode::Off)), route(Some(RedactMode::Flag)), route(None)],
            ..RedactConfig::default()
        };
        redact_everything(&mut config);
        assert_eq!(config.proxied, RedactMode::Redact);
        let modes: Vec<_> = config.route.iter().map(|r| r.mode).collect();
        assert_eq!(modes, [Some(RedactMode::Redact), Some(RedactMode::Redact), None]);
    }

    #[test]
    fn an_instance_redacts_only_if_no_route_may_exclude_a_proxied_request() {
        let routes = |proxied: &str, exception: Value| {
            json!({"routes": [
                {"name": "intercepted", "mode": "off", "exception": {"path": "/v1"}}, {"name": "gateway", "mode": "off"},
                {"name": "intercepted", "mode": proxied, "exception": null}, exception,
            ]})
        };
        let harmless = json!({"name": "route 2", "mode": null, "exception": {"path": "/x"}});
        let mut active = routes("redact", harmless.clone());
        assert!(!redacts_proxied(&active), "an exception excludes requests");
        active["routes"].as_array_mut().unwrap().remove(0);
        assert!(redacts_proxied(&active));
        let mut flagged = routes("flag", harmless);
        flagged["routes"].as_array_mut().unwrap().remove(0);
        assert!(!redacts_proxied(&flagged));
        assert!(!redacts_proxied(&Value::Null), "without an admin port nothing is known");
    }
}
