//! Opens the store that `[record]` describes, with the program's own TLS and HTTP client.

use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_net::egress::{StandaloneClient, StandaloneOptions};
use interflow_objects::{ObjectAccess, ObjectStorage, ObjectUrl};
use interflow_store::shared::{RowKey, SharedAccess};
use interflow_store::{RecordConfig, RecordStore, StoreError};

use super::store_tls;
use crate::instance::config::InterflowConfig;

/// Checks the keys of the shared store's bodies without a connection.
///
/// # Errors
/// One is wrong; the message begins with it.
pub fn check(config: &RecordConfig) -> Result<(), String> {
    let Some(url) = &config.objects else { return Ok(()) };
    url.parse::<ObjectUrl>().map_err(|e| format!("record.objects: {e}"))?;
    match config.store {
        Some(_) => Ok(()),
        None => {
            Err("record.objects: set record.store too: only the bodies of a shared store are in object storage".into())
        }
    }
}

/// Opens the store for recording.
///
/// # Errors
/// As for [`RecordStore::open`]; `record.objects` cannot be used.
pub fn open(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, StoreError> {
    check(&config.record).map_err(StoreError::Shared)?;
    let mut access = access(config, config.record.objects.as_deref())?;
    access.row_key = config.record.store.is_some().then(|| row_key(home)).transpose()?;
    RecordStore::open_as(&home.join(&config.record.dir), &config.record, access, &config.fleet.replica_name())
}

/// Opens the store for reading.
///
/// # Errors
/// As for [`RecordStore::open_read`]; `record.objects` cannot be used.
pub fn open_read(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, StoreError> {
    check(&config.record).map_err(StoreError::Shared)?;
    let access = access(config, config.record.objects.as_deref())?;
    RecordStore::open_read(&home.join(&config.record.dir), &config.record, access)
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
    let url: ObjectUrl = url.parse().map_err(|e: interflow_objects::ObjectError| e.to_string())?;
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
