//! Operations of the API: the [table], and how one is run for its caller.

pub(crate) mod call;
#[cfg(feature = "schema")]
pub(crate) mod documentation;
pub(crate) mod handler;
#[cfg(feature = "schema")]
pub(crate) mod openapi;
mod openapi_document;
#[cfg(all(test, feature = "schema"))]
mod openapi_page;
pub(crate) mod table;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use interflow_types::schema::JsonSchema;

#[cfg(feature = "schema")]
use crate::api::operations::documentation::{ApiSchemas, OperationDoc};
use crate::api::operations::handler::OperationHandler;
use crate::error::Result;
use crate::identity::Rights;
use crate::identity::caller::Caller;
use crate::identity::enforce::{OperationAccess, enforce};
use crate::state::AdminState;

#[cfg(feature = "schema")]
type DescribeFn = fn(&mut OperationDoc, &mut ApiSchemas);

pub(crate) struct Operation {
    pub method: Method,
    /// Below `/api/v1`.
    pub path: &'static str,
    pub access: OperationAccess,
    pub handler: Arc<dyn OperationHandler>,
    #[cfg(feature = "schema")]
    pub summary: &'static str,
    #[cfg(feature = "schema")]
    pub adjust: Option<DescribeFn>,
}

impl Operation {
    /// In the audit trail are all that change something, and all that show contents.
    fn new(
        method: Method,
        path: &'static str,
        needed: Rights,
        handler: Arc<dyn OperationHandler>,
        summary: &'static str,
    ) -> Self {
        // Only the document shows it.
        #[cfg(not(feature = "schema"))]
        let _ = summary;
        let is_audited = method != Method::GET || needed.contains(Rights::READ_BODIES);
        Self {
            access: OperationAccess { name: format!("{method} {path}"), needed, is_audited },
            method,
            path,
            handler,
            #[cfg(feature = "schema")]
            summary,
            #[cfg(feature = "schema")]
            adjust: None,
        }
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

    /// The response is lines of JSON of this type.
    #[cfg_attr(
        not(feature = "schema"),
        expect(unused_mut, clippy::extra_unused_type_parameters, reason = "only the document shows it")
    )]
    fn lines<T: JsonSchema>(mut self) -> Self {
        #[cfg(feature = "schema")]
        {
            self.adjust = Some(|operation, schemas| {
                operation.response.1 = Some(("application/x-ndjson", schemas.responses.subschema_for::<T>().into()));
            });
        }
        self
    }

    /// The WebSocket's messages are JSON of these types: the client's, and the server's.
    #[cfg_attr(
        not(feature = "schema"),
        expect(unused_mut, clippy::extra_unused_type_parameters, reason = "only the document shows it")
    )]
    fn messages<C: JsonSchema, S: JsonSchema>(mut self) -> Self {
        #[cfg(feature = "schema")]
        {
            self.adjust = Some(|operation, schemas| {
                let client = schemas.requests.subschema_for::<C>().into();
                operation.messages = Some((client, schemas.responses.subschema_for::<S>().into()));
            });
        }
        self
    }

    /// Answers a request: with a refusal, unless the caller has the rights for it.
    pub async fn serve(&self, state: Arc<AdminState>, request: Request) -> Response {
        enforce(&self.access, request, |request| self.handler.run(state, request)).await
    }

    /// Answers a call from within the process, which writes its own line of the audit trail.
    pub async fn call(&self, state: Arc<AdminState>, caller: &Caller, request: Request) -> Result<Response> {
        caller.require(self.access.needed)?;
        self.handler.run(state, request).await
    }
}
