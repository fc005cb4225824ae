//! How commands run operations of the API.

use interflow_admin::OperationCall;
use interflow_host::InstanceApi;
use serde_json::Value;

use crate::CliError;

/// Runs operations.
pub trait Operations {
    /// The JSON of the response; null if it has none.
    ///
    /// # Errors
    /// The operation was refused, or failed.
    fn call(&self, call: &OperationCall) -> Result<Value, CliError>;
}

impl Operations for InstanceApi {
    fn call(&self, call: &OperationCall) -> Result<Value, CliError> {
        let (method, target, body) = call.parts();
        self.send(method, &target, body)
    }
}

/// The response of the running instance to a call, which is not JSON.
pub fn text(api: &InstanceApi, call: &OperationCall) -> Result<String, CliError> {
    api.get_text(&call.parts().1)
}
