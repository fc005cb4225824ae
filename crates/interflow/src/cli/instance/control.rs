//! `interflow reload`, `restart`, `stop` and `token`: control of the running instance.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::not_running;
use interflow_types::units::HumanDuration;

use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TextFormat, joined_values, members, print, print_json};
use crate::{CliError, Result};

/// Interval at which a stopping instance is looked for.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Reloads the configuration of the running instance.
pub fn reload(format: &FormatArgs<TextFormat>, home: &DataDir) -> Result<()> {
    let done = InstanceApi::require(home)?.call(&OperationId::Reload.call())?;
    if format.is_json() {
        return print_json(&done);
    }
    let mut text = String::from("reloaded\n");
    for file in members(&done, "files").filter_map(|f| f.as_str()) {
        text.push_str(&format!("  {file}\n"));
    }
    print(&text);
    let restart = joined_values(&done, "restart");
    if !restart.is_empty() {
        crate::warn(&format!("changes of these take effect at a restart: {}", restart.replace(' ', ", ")));
    }
    Ok(())
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Give up after this time. Open connections may finish within `proxy.drain_timeout`.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    timeout: HumanDuration,
}

/// Restarts the running instance and waits until it serves again.
pub fn restart(args: &DrainArgs, home: &DataDir) -> Result<()> {
    let Some(instance) = home.running_instance() else { return Err(not_running(home)) };
    // Written again by the successor, which has the same process ID, or with the reason why there is none.
    let before = home.instance_file_time();
    InstanceApi::signal(&instance, InstanceInfo::restart)?;
    let deadline = Instant::now() + args.timeout.0;
    let pid = instance.pid;
    loop {
        let now = home.instance_file_time();
        if now.is_some() && now != before {
            let announced = home.announced_instance().filter(|i| i.pid == pid);
            if let Some(reason) = announced.and_then(|i| i.restart_refused) {
                return Err(CliError::Failed(format!("process {pid} goes on and does not restart: {reason}")));
            }
            if home.running_instance().is_some_and(|i| i.pid == pid) {
                break;
            }
        }
        if !instance.is_alive() {
            return Err(CliError::Failed(format!("process {pid} has ended; its log says why")));
        }
        if Instant::now() >= deadline {
            return Err(CliError::Failed(format!(
                "process {pid} has not restarted after {}: connections drain for proxy.drain_timeout; its log says more",
                args.timeout
            )));
        }
        std::thread::sleep(STOP_POLL);
    }
    print(&format!("restarted (process {pid})\n"));
    Ok(())
}

/// Stops the running instance and waits for its end.
pub fn stop(args: &DrainArgs, home: &DataDir) -> Result<()> {
    let Some(instance) = home.running_instance() else { return Err(not_running(home)) };
    InstanceApi::signal(&instance, InstanceInfo::terminate)?;
    let deadline = Instant::now() + args.timeout.0;
    while home.has_not_ended(&instance) {
        if Instant::now() >= deadline {
            let pid = instance.pid;
            return Err(CliError::Failed(format!(
                "process {pid} is still running after {}: its connections drain for proxy.drain_timeout; a second \
                 `interflow stop` ends them at once",
                args.timeout
            )));
        }
        std::thread::sleep(STOP_POLL);
    }
    print(&format!("stopped (process {})\n", instance.pid));
    Ok(())
}

/// Prints the admin token; creates it if there is none yet.
pub fn token(home: &DataDir) -> Result<()> {
    home.create()?;
    let token = home.admin_token()?;
    if std::io::stdout().is_terminal() {
        crate::warn("the admin token is a secret: it gives access to all recorded traffic and to the configuration");
    }
    print(&format!("{token}\n"));
    Ok(())
}
