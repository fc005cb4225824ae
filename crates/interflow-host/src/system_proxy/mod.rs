//! Sets the system's proxy to Interflow and restores it: on exit, by command, or at the next start after a crash.

mod backends;

use std::fs;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, connect_address, existing, write_private};
use backends::ProxySetting;
pub use backends::SystemCommands;

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
        let Some(text) = existing(&path, fs::read)? else { return Ok(None) };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| format!("{} is invalid: {e}; remove it and set the system's proxy manually", path.display()))
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
    let changes = ProxySetting::changes_for(&commands, proxy)?;
    if changes.is_empty() {
        return Err("no desktop's proxy settings were found here: GNOME (gsettings), KDE (kwriteconfig), macOS (networksetup) and Windows (reg) are known. Set http_proxy and https_proxy, or use `interflow exec`".into());
    }
    // All values are read before the first one is changed.
    let settings =
        changes.into_iter().map(|(place, ours)| Ok(SavedSetting { before: place.read(&commands)?, place, ours }));
    let saved = SavedSettings { pid, proxy, settings: settings.collect::<Result<_, String>>()? };
    home.create()?;
    // Saved to disk before the first change, so that a crash can be undone.
    let text = serde_json::to_vec_pretty(&saved).map_err(|e| e.to_string())?;
    write_private(&home.join(FILE), &text)?;
    for setting in &saved.settings {
        if let Err(e) = setting.place.write(&commands, setting.ours.as_deref()) {
            // The settings changed so far are restored; the rest is as it was.
            restore(home)?;
            return Err(e);
        }
    }
    notify_changed(&commands, &saved);
    Ok(saved.settings.iter().map(|s| s.place.name()).collect())
}

/// Restores the previous settings. Settings changed by another program since are left alone and reported. `None` if
/// nothing was saved.
///
/// # Errors
/// A command failed; the saved settings are kept for another attempt.
pub fn restore(home: &DataDir) -> Result<Option<Vec<String>>, String> {
    let Some(kept) = SavedSettings::read(home)? else { return Ok(None) };
    let commands = SystemCommands::default();
    let mut warnings = Vec::new();
    let mut failed = Vec::new();
    // The switch was set last and is restored first.
    for setting in kept.settings.iter().rev() {
        let done = setting.place.read(&commands).and_then(|now| {
            if now == setting.before {
                return Ok(());
            }
            if now != setting.ours {
                warnings.push(format!("{} was changed by another program and was left alone", setting.place.name()));
                return Ok(());
            }
            setting.place.write(&commands, setting.before.as_deref())
        });
        failed.extend(done.err());
    }
    if !failed.is_empty() {
        // The file stays, so that another attempt is possible.
        return Err(failed.join("; "));
    }
    notify_changed(&commands, &kept);
    let _ = fs::remove_file(home.join(FILE));
    Ok(Some(warnings))
}

/// Restores settings left by an instance that was killed or whose machine crashed.
pub fn restore_leftover(home: &DataDir) {
    let of_the_dead = match SavedSettings::read(home) {
        // Pid 0 stands for an address that the user gave: those settings are not ours to restore.
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

/// Restores the system's proxy when dropped, if this process has set it.
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
    // Those of KDE, which has to be told, come last.
    if let Some(setting) = kept.settings.last() {
        setting.place.notify_changed(commands);
    }
}

#[derive(Debug)]
pub struct SystemProxyStatus {
    /// The proxy that Interflow set, if it did.
    pub set_to: Option<SocketAddr>,
    /// Settings by name with their values.
    pub settings: Vec<(String, Option<String>)>,
}

impl SystemProxyStatus {
    /// Reads the settings.
    ///
    /// # Errors
    /// The system is unsupported, or a command failed.
    pub fn read(home: &DataDir) -> Result<Self, String> {
        let commands = SystemCommands::default();
        let saved = SavedSettings::read(home)?;
        // The address does not affect which settings exist.
        let places = match &saved {
            Some(saved) => saved.settings.iter().map(|s| s.place.clone()).collect(),
            None => {
                let changes = ProxySetting::changes_for(&commands, SocketAddr::from(([127, 0, 0, 1], 7070)))?;
                changes.into_iter().map(|(p, _)| p).collect::<Vec<_>>()
            }
        };
        let now: Result<_, String> = places.iter().map(|p| Ok((p.name(), p.read(&commands)?))).collect();
        Ok(Self { set_to: saved.map(|k| k.proxy), settings: now? })
    }
}
