//! How commands run operations of the API: as a client of the running instance, or else by the same handlers in this
//! process, on what the command opens.

use std::io::Read;

use interflow_admin::{OfflineDeps, OfflineOperations, OperationRefusal};
pub use interflow_admin::{OperationCall, OperationId};
pub use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_store::StoreError;
use serde_json::Value;

use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, fleet};

/// Runs operations.
pub trait Operations {
    /// The JSON of the response; null if it has none.
    ///
    /// # Errors
    /// The operation was refused, or failed.
    fn call(&self, call: &OperationCall) -> Result<Value>;

    /// As [`call`](Self::call), with a file of any size as the body.
    ///
    /// # Errors
    /// As of [`call`](Self::call).
    fn upload(&self, call: &OperationCall, file: Box<dyn Read + Send>) -> Result<Value>;
}

impl Operations for InstanceApi {
    fn call(&self, call: &OperationCall) -> Result<Value> {
        let (method, target, body) = call.parts();
        self.send(method, &target, body)
    }

    fn upload(&self, call: &OperationCall, file: Box<dyn Read + Send>) -> Result<Value> {
        self.send_file(&call.parts().1, file)
    }
}

impl Operations for OfflineOperations {
    fn call(&self, call: &OperationCall) -> Result<Value> {
        Self::call(self, call).map_err(refused)
    }

    fn upload(&self, call: &OperationCall, file: Box<dyn Read + Send>) -> Result<Value> {
        let done = Self::upload(self, call, file).map_err(refused)?;
        Self::call(self, &OperationId::FlushRecording.call()).map_err(refused)?;
        Ok(done)
    }
}

fn refused(refusal: OperationRefusal) -> CliError {
    match refusal.kind {
        "bad_request" => CliError::Usage(refusal.message),
        _ => CliError::Failed(refusal.message),
    }
}

/// The operations of the running instance; while none runs, those on what `open` opens.
///
/// # Errors
/// The instance cannot be asked, or nothing can be opened.
pub fn operations(
    config: &InterflowConfig,
    home: &DataDir,
    open: impl FnOnce() -> Result<OfflineDeps>,
) -> Result<Box<dyn Operations>> {
    if let Some(api) = InstanceApi::for_instance(home)? {
        return Ok(Box::new(api));
    }
    let operations = OfflineOperations::new(&config.admin, open()?);
    Ok(Box::new(operations.map_err(|e| format!("the runtime could not be started: {e}"))?))
}

/// The operations on the recording.
///
/// # Errors
/// As of [`operations`].
pub fn on_recording(config: &InterflowConfig, home: &DataDir) -> Result<Box<dyn Operations>> {
    let open = || Ok(OfflineDeps { store: Some(open_to_write(config, home)?.flows()), ..OfflineDeps::default() });
    operations(config, home, open)
}

/// Opens the recording of an instance that does not run.
///
/// # Errors
/// It cannot be opened, or another process writes it.
pub fn open_to_write(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore> {
    home.create()?;
    fleet::open_store(config, home).map_err(|e| match e {
        StoreError::Busy(_) => CliError::Failed(format!(
            "{e} (an instance without an admin port, such as `interflow exec`, may be the one)"
        )),
        e => e.into(),
    })
}

/// The response of the running instance to a call, which is not JSON.
///
/// # Errors
/// The operation was refused, or failed.
pub fn text(api: &InstanceApi, call: &OperationCall) -> Result<String> {
    api.get_text(&call.parts().1)
}
