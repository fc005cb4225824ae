//! How the shared store and object storage are reached, with the program's own TLS and HTTP client.

use std::sync::Arc;

use interflow_fleet::objects::{ObjectAccess, ObjectError, ObjectStorage, ObjectUrl};
use interflow_fleet::{PostgresUrl, RowKey, SharedAccess, SharedStore, shared_url};
use interflow_host::data_dir::DataDir;
use interflow_net::egress::{StandaloneClient, StandaloneOptions};
use interflow_store::{RecordConfig, StoreError};

use super::store_tls;
use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;

/// Checks the keys of the shared store and of its bodies without a connection.
///
/// # Errors
/// One is wrong; the message begins with it.
pub fn check(config: &RecordConfig) -> Result<(), String> {
    if let Some(url) = &config.store
        && !url.starts_with("env:")
        && !url.starts_with("file:")
    {
        url.parse::<PostgresUrl>().map_err(|e| e.to_string())?;
    }
    let Some(url) = &config.objects else { return Ok(()) };
    url.parse::<ObjectUrl>().map_err(|e| format!("record.objects: {e}"))?;
    match config.store {
        Some(_) => Ok(()),
        None => {
            Err("record.objects: set record.store too: only the bodies of a shared store are in object storage".into())
        }
    }
}

/// The shared store of a configuration, if it names one, and how it is reached. With `home`, rows that are written are
/// recognised by the fleet.
///
/// # Errors
/// `record.store` cannot be resolved, `record.objects` cannot be used, or the admin token cannot be read.
fn shared_store(
    config: &InterflowConfig,
    home: Option<&DataDir>,
) -> Result<Option<(PostgresUrl, SharedAccess)>, StoreError> {
    check(&config.record).map_err(StoreError::Shared)?;
    let Some(url) = shared_url(&config.record)? else { return Ok(None) };
    let mut access = access(config, config.record.objects.as_deref())?;
    access.row_key = home.map(row_key).transpose()?;
    Ok(Some((url, access)))
}

/// Opens the store that `[record]` describes for recording.
///
/// # Errors
/// As for [`RecordStore::open_embedded`]; the shared store does not answer or refuses, or a key of it cannot be used.
pub fn open_store(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, StoreError> {
    let dir = home.join(&config.record.dir);
    let Some((url, access)) = shared_store(config, Some(home))? else {
        return RecordStore::open_embedded(&dir, &config.record);
    };
    let name = config.fleet.replica_name();
    Ok(RecordStore::Shared(Arc::new(SharedStore::open_as(&url, access, &dir, &config.record, Some(&name))?)))
}

/// Opens the store that `[record]` describes for reading, also while another process records there.
///
/// # Errors
/// As for [`open_store`].
pub fn read_store(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, StoreError> {
    let dir = home.join(&config.record.dir);
    let Some((url, access)) = shared_store(config, None)? else { return RecordStore::read_embedded(&dir) };
    Ok(RecordStore::Shared(Arc::new(SharedStore::open_read(&url, access, &dir)?)))
}

/// How a shared store is reached whose bodies are at `objects`.
///
/// # Errors
/// `objects` cannot be used.
pub fn access(config: &InterflowConfig, objects: Option<&str>) -> Result<SharedAccess, StoreError> {
    let storage = objects.map(|url| storage(config, url)).transpose();
    let objects = storage.map_err(|e| StoreError::Shared(format!("record.objects: {e}")))?.map(Arc::new);
    Ok(SharedAccess { tls: store_tls::client, objects, row_key: None })
}

/// What rows of the fleet are recognised by in the database: it follows from the admin token, which all replicas have.
///
/// # Errors
/// The admin token cannot be read.
pub fn row_key(home: &DataDir) -> Result<RowKey, StoreError> {
    home.admin_token().map(|token| RowKey::derive(&token)).map_err(StoreError::Shared)
}

/// Writes, reads and deletes an object where bodies are, if they are in object storage.
///
/// # Errors
/// What failed, with the remedy.
pub fn try_objects(config: &InterflowConfig) -> Result<(), String> {
    let Some(url) = &config.record.objects else { return Ok(()) };
    let tried = storage(config, url).and_then(|s| s.wait(s.check()).map_err(|e| e.to_string()));
    tried.map_err(|e| format!("record.objects: {e}"))
}

fn storage(config: &InterflowConfig, url: &str) -> Result<ObjectStorage, String> {
    let url: ObjectUrl = url.parse().map_err(|e: ObjectError| e.to_string())?;
    open_storage(config, &url)
}

/// Sets up a client of the place; nothing is sent.
///
/// # Errors
/// A setting cannot be used.
pub fn open_storage(config: &InterflowConfig, url: &ObjectUrl) -> Result<ObjectStorage, String> {
    let extra_ca = config.upstream.extra_ca.clone();
    let client = StandaloneClient::new(StandaloneOptions { extra_ca, ..StandaloneOptions::default() });
    let client = client.map_err(|e| format!("upstream.extra_ca: {e}"))?;
    ObjectStorage::open(url, &ObjectAccess::from_env(Arc::new(client))).map_err(|e| e.to_string())
}
