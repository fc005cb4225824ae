//! Whether the installed binary could take over from a running instance: all that [`start_check`] opens, the ports, the
//! recording and the shared store.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use interflow_files::create_private_dir;
use interflow_host::data_dir::DataDir;
use interflow_net::ingress::ListenSockets;
use interflow_proxy::{dns, try_bind};
use interflow_store::{SqliteStore, StoreError};

use crate::fleet;
use crate::instance::config::InterflowConfig;
use crate::instance::{run, start_check};

/// Proves that an instance can start with this configuration; `sockets` are those of the running one, which records in
/// `record_dir`.
///
/// # Errors
/// The first thing that keeps an instance from starting.
pub async fn check_start(
    config: &InterflowConfig,
    home: &DataDir,
    sockets: &ListenSockets,
    record_dir: &Path,
) -> Result<(), String> {
    home.check_access()?;
    let (checked, checked_home) = (config.clone(), home.clone());
    let done = tokio::task::spawn_blocking(move || {
        start_check::check(&checked, &checked_home).map_err(|mistake| mistake.what)
    })
    .await;
    done.map_err(|e| e.to_string())??;
    check_ports(config, home, sockets).await?;
    let (config, home, record_dir) = (config.clone(), home.clone(), record_dir.to_owned());
    let stores = tokio::task::spawn_blocking(move || check_stores(&config, &home, &record_dir)).await;
    stores.map_err(|e| e.to_string())?
}

async fn check_ports(config: &InterflowConfig, home: &DataDir, sockets: &ListenSockets) -> Result<(), String> {
    if let Some(addr) = config.admin.listen {
        run::bind_admin(sockets, addr)?;
    }
    try_bind(&config.engine(), sockets).map_err(|e| e.to_string())?;
    let config = &config.dns;
    // The running instance cannot share this one.
    let is_held = config.listen.is_some() && home.announced_instance().and_then(|i| i.dns) == config.listen;
    if !is_held {
        let started = dns::start(config, &Arc::new(dns::AddressNames::new(config))).await;
        if let Some((_, task)) = started.map_err(|e| e.to_string())? {
            task.abort();
        }
    }
    Ok(())
}

fn check_stores(config: &InterflowConfig, home: &DataDir, record_dir: &Path) -> Result<(), String> {
    let is_shared = fleet::open_identity(config, home).map_err(|e| e.to_string())?.is_some();
    // Without it, the start goes on if the recording cannot be opened.
    if !config.record.enabled {
        return Ok(());
    }
    let dir = home.join(&config.record.dir);
    let at = |e: &dyn std::fmt::Display| format!("the recording in {}: {e}", dir.display());
    check_writable(&dir).map_err(|e| at(&e))?;
    // The running instance lets go of its own.
    let is_own = fs::canonicalize(&dir).ok() == fs::canonicalize(record_dir).ok();
    if !is_own && SqliteStore::has_writer(&dir) {
        return Err(at(&StoreError::Busy(dir.clone())));
    }
    // An empty directory has no recording yet.
    if is_shared || dir.join("flows.db").exists() {
        fleet::read_store(config, home).map_err(|e| at(&e))?;
    }
    Ok(())
}

fn check_writable(dir: &Path) -> std::io::Result<()> {
    create_private_dir(dir)?;
    let probe = dir.join(format!(".write-check-{}", std::process::id()));
    File::create_new(&probe)?;
    fs::remove_file(probe)
}
