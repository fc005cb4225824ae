//! Operations of the API: the [table], and how one is run for its caller.

pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod handler;
pub(crate) mod offline;
mod openapi_document;
pub(crate) mod table;
#[cfg(all(test, feature = "schema"))]
pub(crate) mod tests;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;

use crate::api::operations::context::OperationContext;
use crate::api::operations::handler::OperationHandler;
use crate::identity::Rights;
use crate::identity::enforce::{OperationAccess, enforce};

pub(crate) struct Operation {
    pub method: Method,
    /// Below `/api/v1`.
    pub path: &'static str,
    pub access: OperationAccess,
    pub handler: Arc<dyn OperationHandler>,
}

impl Operation {
    /// In the audit trail are all that change something, and all that show contents.
    fn new(method: Method, path: &'static str, needed: Rights, handler: Arc<dyn OperationHandler>) -> Self {
        let is_audited = method != Method::GET || needed.contains(Rights::READ_BODIES);
        Self { access: OperationAccess { name: format!("{method} {path}"), needed, is_audited }, method, path, handler }
    }

    /// Not in the audit trail: it changes nothing and shows no contents.
    const fn unaudited(mut self) -> Self {
        self.access.is_audited = false;
        self
    }

    /// In the audit trail although it only reads.
    const fn audited(mut self) -> Self {
        self.access.is_audited = true;
        self
    }

    /// Answers a request: with a refusal, unless the caller has the rights for it.
    pub async fn serve(&self, context: OperationContext, request: Request) -> Response {
        enforce(&self.access, request, |request| self.handler.run(context, request)).await
    }
}
