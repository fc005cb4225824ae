//! Runs operations for a command while no instance runs, by the handlers of the API.

use std::io::{self, Read};
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::AdminConfig;
use crate::api::operations::call::OperationCall;
use crate::api::operations::context::{OfflineContext, OfflineDeps, OperationContext};
use crate::audit::AdminAudit;
use crate::error::ApiError;
use crate::identity::Identity;
use crate::identity::caller::Caller;
use crate::identity::token_lifetimes::TokenLifetimes;
use crate::records::Records;

/// Bytes of an upload that are read at once.
const PIECE: usize = 64 << 10;

/// Why an operation failed.
#[derive(Debug)]
pub struct OperationRefusal {
    /// A kind of the table of API errors.
    pub kind: &'static str,
    pub message: String,
}

impl From<ApiError> for OperationRefusal {
    fn from(error: ApiError) -> Self {
        let details = error.into_details();
        Self { kind: details.kind, message: details.message }
    }
}

pub struct OfflineOperations {
    context: OperationContext,
    caller: Caller,
    runtime: Runtime,
}

impl OfflineOperations {
    /// # Errors
    /// The runtime cannot be started.
    pub fn new(config: &AdminConfig, deps: OfflineDeps) -> io::Result<Self> {
        let OfflineDeps { store, rebuild, tokens, spend, prices } = deps;
        let caller = Caller {
            identity: Arc::new(Identity { name: "command line".to_owned(), ..Identity::admin_token() }),
            address: None,
            audit: Arc::new(AdminAudit::with_store(None)),
            tokens: tokens.map(Arc::new),
            ended_sessions: None,
            detail: Arc::default(),
        };
        let records = Records::new(store, u64::MAX);
        let opened = OfflineContext { records, rebuild, spend, prices, token_lifetimes: TokenLifetimes::new(config) };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { context: OperationContext::Offline(Arc::new(opened)), caller, runtime })
    }

    /// The JSON of the response; null if it has none.
    ///
    /// # Errors
    /// The operation is refused, or fails.
    pub fn call(&self, call: &OperationCall) -> Result<Value, OperationRefusal> {
        Ok(self.runtime.block_on(call.run(&self.context, &self.caller))?)
    }

    /// As [`call`](Self::call), with a file as the body.
    ///
    /// # Errors
    /// As of [`call`](Self::call).
    pub fn upload(
        &self,
        call: &OperationCall,
        mut file: impl Read + Send + 'static,
    ) -> Result<Value, OperationRefusal> {
        let mut buffer = vec![0; PIECE];
        let read = move || match file.read(&mut buffer) {
            Ok(0) => None,
            Ok(n) => Some(Ok(Bytes::copy_from_slice(buffer.get(..n).unwrap_or_default()))),
            Err(e) => Some(Err(e)),
        };
        // This thread has nothing else to do than to read: the handler works on another.
        let body = Body::from_stream(stream::iter(std::iter::from_fn(read)));
        Ok(self.runtime.block_on(call.run_with(&self.context, &self.caller, body))?)
    }
}
