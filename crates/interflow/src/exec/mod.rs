//! `interflow exec -- CMD`: runs a command through the proxy without changing system settings.

mod env;
mod summary;
mod trust;

use std::path::Path;
use std::process::Stdio;

use interflow_store::{FlowStore as _, SqliteStore};
use interflow_types::{Timestamp, percent};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::cli::ExecArgs;
use crate::config::{InterflowConfig, LoadedConfig};
use crate::data_dir::{DataDir, InstanceInfo};
use crate::flows::InstanceApi;
use crate::{CliError, log, run};

pub use env::{EnvSetting, settings, trust_variables};
pub use trust::{TrustFiles, pkcs12};

/// Runs the command and returns its exit code.
pub fn exec(args: &ExecArgs, loaded: LoadedConfig, home: &DataDir) -> Result<(), CliError> {
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
    let instance = InstanceInfo {
        pid: std::process::id(),
        proxy: vec![proxy],
        gateway: None,
        admin: None,
        greyproxy: None,
        dns: None,
    };
    let began = Timestamp::now();
    let code = run_command(args, home, &instance, None).await?;
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

/// Temporary credentials for the command, issued by the running instance.
struct ExecCredential {
    api: InstanceApi,
    user: String,
    password: String,
}

impl ExecCredential {
    /// `None` if the instance has no admin listener.
    fn issue(home: &DataDir, user: &str) -> Result<Option<Self>, CliError> {
        let Some(api) = InstanceApi::for_instance(home)? else { return Ok(None) };
        let given = api.post("/passes", &json!({ "user": user }))?;
        Ok(given["password"].as_str().map(|p| Self { api, user: user.to_owned(), password: p.to_owned() }))
    }

    fn login(&self) -> String {
        format!("{}:{}@", percent::encoded(&self.user), self.password)
    }
}

impl Drop for ExecCredential {
    fn drop(&mut self) {
        // If the instance has stopped, the credentials are gone.
        let _ = self.api.post("/passes/revoke", &json!({ "user": self.user, "password": self.password }));
    }
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
    let code = run_command(args, home, instance, pass.as_ref()).await?;
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
        summary::print(store, began, aside);
    }
}

async fn run_command(
    args: &ExecArgs,
    home: &DataDir,
    instance: &InstanceInfo,
    pass: Option<&ExecCredential>,
) -> Result<u8, CliError> {
    let trust = TrustFiles::write(home)?;
    let proxy = instance.proxy.first().ok_or_else(|| "the running instance has no proxy port".to_owned())?;
    let (program, rest) = args.command.split_first().ok_or_else(|| CliError::Usage("no command given".into()))?;
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_secret) {
            command.env_remove(name);
        }
    }
    let login = pass.map(ExecCredential::login).unwrap_or_default();
    let way = (*proxy, login.as_str());
    for EnvSetting { name, value } in settings(way, &trust, &args.no_proxy, &|name| std::env::var(name).ok()) {
        command.env(name, value);
    }
    let mut child = command.spawn().map_err(|e| not_started(program, &e))?;
    wait(&mut child).await.map_err(|e| CliError::Failed(format!("`{program}` was lost: {e}")))
}

/// Whether an environment variable holds a secret of Interflow that the command must not inherit.
fn is_secret(name: &str) -> bool {
    let secret = ["TOKEN", "PASSWORD", "SECRET", "KEY", "REDIS"];
    name.starts_with("INTERFLOW_") && name.split('_').any(|word| secret.contains(&word.trim_end_matches('S')))
}

fn not_started(program: &str, e: &std::io::Error) -> CliError {
    // Shell exit codes: 127 not found, 126 not executable.
    let code = if e.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    anstream::eprintln!("interflow: `{program}` cannot be started: {e}");
    CliError::Child(code)
}

/// Waits for the child and forwards termination signals to it.
async fn wait(child: &mut Child) -> std::io::Result<u8> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let mut hup = signal(SignalKind::hangup())?;
        let mut quit = signal(SignalKind::quit())?;
        loop {
            let passed = tokio::select! {
                status = child.wait() => return status.map(code_of),
                _ = term.recv() => rustix::process::Signal::TERM,
                // The terminal signals the whole process group, so the child already has it.
                _ = int.recv() => continue,
                _ = hup.recv() => rustix::process::Signal::HUP,
                _ = quit.recv() => continue,
            };
            let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
            if let Some(pid) = pid {
                let _ = rustix::process::kill_process(pid, passed);
            }
        }
    }
    #[cfg(not(unix))]
    child.wait().await.map(code_of)
}

fn code_of(status: std::process::ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return 128u8.wrapping_add(signal as u8);
    }
    status.code().unwrap_or(1) as u8
}

fn exit_result(code: u8) -> Result<(), CliError> {
    if code == 0 { Ok(()) } else { Err(CliError::Child(code)) }
}
