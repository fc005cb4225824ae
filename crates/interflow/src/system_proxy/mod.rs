//! Sets the system's proxy to Interflow and restores it: on exit, by command, or at the next start after a crash.

mod backends;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Subcommand;
use interflow_files::{FileAccess, write_atomic};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::CliError;
use crate::data_dir::DataDir;
use crate::flows::print_json;
use backends::{ProxySetting, SystemCommands};

#[derive(Debug, Subcommand)]
pub enum SystemProxyCommand {
    /// Set the running instance as the system's proxy until it stops or `off` is run.
    On {
        /// Proxy address [default: the running instance].
        #[arg(long, value_name = "ADDR")]
        proxy: Option<SocketAddr>,
    },
    /// Restore the previous settings.
    Off,
    /// Show the system's proxy settings and whether they point to Interflow.
    Status {
        /// Output format: `table` or `json`.
        #[arg(long, default_value = "table", value_parser = ["table", "json"])]
        format: String,
    },
}

/// Previous settings, saved until they are restored.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSettings {
    /// Process ID of the instance; 0 if an address was given explicitly.
    pid: u32,
    proxy: SocketAddr,
    settings: Vec<SavedSetting>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedSetting {
    place: ProxySetting,
    before: Option<String>,
    ours: Option<String>,
}

const FILE: &str = "system-proxy.json";

impl SavedSettings {
    fn read(home: &DataDir) -> Result<Option<Self>, String> {
        let path = home.join(FILE);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| {
                format!("{} is invalid: {e}; remove it and set the system's proxy manually", path.display())
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{} cannot be read: {e}", path.display())),
        }
    }
}

/// `interflow system-proxy`
pub fn run(command: &SystemProxyCommand, home: &DataDir) -> Result<(), CliError> {
    match command {
        SystemProxyCommand::On { proxy } => {
            let running = home.running_instance();
            let pid = if proxy.is_some() { 0 } else { running.as_ref().map_or(0, |i| i.pid) };
            let proxy = proxy.or_else(|| running?.proxy.first().copied());
            let proxy = proxy
                .ok_or("no instance is running: start one with `interflow run`, or give --proxy ADDR".to_owned())?;
            let names = set(home, proxy, pid)?;
            names.iter().for_each(|n| anstream::println!("{n}"));
            anstream::println!(
                "the system's proxy is {}; `interflow system-proxy off` restores the previous settings",
                connect_address(proxy)
            );
            Ok(())
        }
        SystemProxyCommand::Off => {
            match restore(home)? {
                None => anstream::println!("Interflow has not changed the system's proxy"),
                Some(left) => {
                    left.iter().for_each(|l| anstream::println!("{l}"));
                    anstream::println!("the system's proxy settings were restored");
                }
            }
            Ok(())
        }
        SystemProxyCommand::Status { format } => status(home, format == "json"),
    }
}

/// Saves the previous settings, sets the system's proxy, and returns the changed settings.
///
/// # Errors
/// The system is unsupported, or a command failed; all settings have been restored.
pub fn set(home: &DataDir, proxy: SocketAddr, pid: u32) -> Result<Vec<String>, String> {
    let commands = SystemCommands::default();
    // Restore first: settings left by an earlier instance would be saved as the user's own.
    restore(home)?;
    let proxy = connect_address(proxy);
    let wanted = ProxySetting::changes_for(&commands, proxy)?;
    if wanted.is_empty() {
        return Err("no desktop's proxy settings were found here: GNOME (gsettings), KDE (kwriteconfig), macOS (networksetup) and Windows (reg) are known. Set http_proxy and https_proxy, or use `interflow exec`".into());
    }
    let settings =
        wanted.into_iter().map(|(place, ours)| Ok(SavedSetting { before: place.read(&commands)?, place, ours }));
    let kept = SavedSettings { pid, proxy, settings: settings.collect::<Result<_, String>>()? };
    home.create()?;
    // Saved to disk before the first change, so that a crash can be undone.
    let text = serde_json::to_vec_pretty(&kept).map_err(|e| e.to_string())?;
    write_atomic(&home.join(FILE), &text, FileAccess::Private)
        .map_err(|e| format!("{} cannot be written: {e}", home.join(FILE).display()))?;
    for setting in &kept.settings {
        if let Err(e) = setting.place.write(&commands, setting.ours.as_deref()) {
            restore(home)?;
            return Err(e);
        }
    }
    notify_changed(&commands, &kept);
    Ok(kept.settings.iter().map(|s| s.place.name()).collect())
}

/// Restores the previous settings. Settings changed by another program since are left alone and reported. `None` if
/// nothing was saved.
///
/// # Errors
/// A command failed; the saved settings are kept for another attempt.
pub fn restore(home: &DataDir) -> Result<Option<Vec<String>>, String> {
    let Some(kept) = SavedSettings::read(home)? else { return Ok(None) };
    let commands = SystemCommands::default();
    let mut left = Vec::new();
    let mut failed = Vec::new();
    // The switch was set last and is restored first.
    for setting in kept.settings.iter().rev() {
        let done = setting.place.read(&commands).and_then(|now| {
            if now == setting.before {
                return Ok(());
            }
            if now != setting.ours {
                left.push(format!("{} was changed by another program and was left alone", setting.place.name()));
                return Ok(());
            }
            setting.place.write(&commands, setting.before.as_deref())
        });
        failed.extend(done.err());
    }
    if !failed.is_empty() {
        return Err(failed.join("; "));
    }
    notify_changed(&commands, &kept);
    let _ = fs::remove_file(home.join(FILE));
    Ok(Some(left))
}

/// Restores settings left by an instance that was killed or whose machine crashed.
pub fn restore_leftover(home: &DataDir) {
    let of_the_dead = match SavedSettings::read(home) {
        Ok(Some(kept)) => kept.pid != 0 && home.running_instance().is_none_or(|i| i.pid != kept.pid),
        Ok(None) => false,
        Err(e) => return tracing::warn!("the system's proxy: {e}"),
    };
    if of_the_dead {
        match restore(home) {
            Ok(_) => tracing::info!("restored the system's proxy settings left by an earlier instance"),
            Err(e) => {
                tracing::warn!("cannot restore the system's proxy settings left by an earlier instance: {e}")
            }
        }
    }
}

/// Restores the system's proxy when dropped.
#[derive(Debug)]
pub struct SystemProxyGuard(DataDir);

impl SystemProxyGuard {
    /// Restores changes made for this process by `run --system-proxy` or `system-proxy on` when dropped.
    pub fn new(home: &DataDir) -> Self {
        Self(home.clone())
    }
}

impl Drop for SystemProxyGuard {
    fn drop(&mut self) {
        let is_own = SavedSettings::read(&self.0).ok().flatten().is_some_and(|k| k.pid == std::process::id());
        if is_own && let Err(e) = restore(&self.0) {
            tracing::warn!("cannot restore the system's proxy: {e}; try `interflow system-proxy off`");
        }
    }
}

fn notify_changed(commands: &SystemCommands, kept: &SavedSettings) {
    if let Some(setting) = kept.settings.first() {
        setting.place.notify_changed(commands);
    }
}

/// Address for local connections to a listener.
fn connect_address(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

fn status(home: &DataDir, as_json: bool) -> Result<(), CliError> {
    let commands = SystemCommands::default();
    let kept = SavedSettings::read(home)?;
    // The address does not affect which settings exist.
    let places = match &kept {
        Some(kept) => kept.settings.iter().map(|s| s.place.clone()).collect(),
        None => {
            let wanted = ProxySetting::changes_for(&commands, SocketAddr::from(([127, 0, 0, 1], 7070)))?;
            wanted.into_iter().map(|(p, _)| p).collect::<Vec<_>>()
        }
    };
    let now: Vec<(String, Option<String>)> =
        places.iter().map(|p| Ok((p.name(), p.read(&commands)?))).collect::<Result<_, String>>()?;
    if as_json {
        let settings: Vec<_> = now.iter().map(|(n, v)| json!({ "setting": n, "value": v })).collect();
        return print_json(&json!({
            "set_by_interflow": kept.is_some(), "proxy": kept.as_ref().map(|k| k.proxy.to_string()), "settings": settings,
        }));
    }
    for (name, value) in &now {
        anstream::println!("{name}: {}", value.as_deref().unwrap_or("not set"));
    }
    match &kept {
        Some(kept) => {
            anstream::println!(
                "set to {} by Interflow; `interflow system-proxy off` restores the previous settings",
                kept.proxy
            )
        }
        None if now.is_empty() => anstream::println!("no desktop's proxy settings were found here"),
        None => anstream::println!("not set by Interflow"),
    }
    Ok(())
}
