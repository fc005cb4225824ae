//! What the types of a handler's inputs and output say of its operation.

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use interflow_types::{Direction, FlowId};
use schemars::JsonSchema;
use serde_json::json;

use super::documentation::{ApiSchemas, OperationDoc};
use crate::api::edited::settings::ClientAddress;
use crate::api::input::{FlowIdPath, FlowSidePath, MessagePath, StrictJson, StrictQuery};
use crate::api::operations::context::OperationContext;
use crate::api::operations::handler::{JsonLines, Socket, SocketUpgrade, TypedHandler};
use crate::api::system::setup::IsLocal;
use crate::error::ApiError;
use crate::identity::caller::Caller;
use crate::identity::token_lifetimes::TokenLifetimes;
use crate::records::Records;
use crate::state::SharedState;

/// An input or an output.
pub(crate) trait Described {
    fn describe(_: &mut OperationDoc, _: &mut ApiSchemas) {}
}

pub(crate) trait DescribedHandler {
    fn describe(&self, operation: &mut OperationDoc, schemas: &mut ApiSchemas);
}

macro_rules! described_handlers {
    ($($($input:ident)*;)*) => {$(
        impl<F, Fut, Out, $($input),*> DescribedHandler for TypedHandler<F, ($($input,)*)>
        where
            F: Fn($($input),*) -> Fut,
            Fut: Future<Output = Out>,
            Out: Described,
            $($input: Described,)*
        {
            fn describe(&self, operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
                Out::describe(operation, schemas);
                $($input::describe(operation, schemas);)*
            }
        }
    )*};
}
described_handlers! {
    ;
    A;
    A B;
    A B C;
    A B C D;
}

/// Inputs that the document does not show.
macro_rules! undocumented_inputs {
    ($($input:ty),*) => {$(impl Described for $input {})*};
}
undocumented_inputs!(
    SharedState,
    OperationContext,
    Records,
    TokenLifetimes,
    Caller,
    HeaderMap,
    ClientAddress,
    IsLocal,
    SocketUpgrade
);

macro_rules! path_inputs {
    ($($input:ty: $($value:ty),+;)*) => {$(
        impl Described for $input {
            fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
                operation.path.extend([$(schemas.requests.subschema_for::<$value>().into()),+]);
            }
        }
    )*};
}
path_inputs! {
    Path<String>: String;
    Path<u64>: u64;
    FlowIdPath: FlowId;
    FlowSidePath: FlowId, Direction;
    MessagePath: FlowId, u64;
}

impl<T: JsonSchema> Described for StrictQuery<T> {
    fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
        operation.add_query::<T>(schemas);
    }
}

impl<T: JsonSchema> Described for StrictJson<T> {
    fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
        operation.request = Some(("application/json", schemas.requests.subschema_for::<T>().into()));
    }
}

impl Described for Body {
    fn describe(operation: &mut OperationDoc, _: &mut ApiSchemas) {
        operation.request = Some(("application/octet-stream", json!({})));
    }
}

impl<T: JsonSchema> Described for Json<T> {
    fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
        operation.response = (200, Some(("application/json", schemas.responses.subschema_for::<T>().into())));
    }
}

impl Described for StatusCode {
    fn describe(operation: &mut OperationDoc, _: &mut ApiSchemas) {
        operation.response = (Self::NO_CONTENT.as_u16(), None);
    }
}

impl Described for Response {
    fn describe(operation: &mut OperationDoc, _: &mut ApiSchemas) {
        operation.response = (200, Some(("application/octet-stream", json!({}))));
    }
}

impl<T: JsonSchema> Described for JsonLines<T> {
    fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
        operation.response = (200, Some(("application/x-ndjson", schemas.responses.subschema_for::<T>().into())));
    }
}

impl<C: JsonSchema, S: JsonSchema> Described for Socket<C, S> {
    fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
        operation.response = (StatusCode::SWITCHING_PROTOCOLS.as_u16(), None);
        let client = schemas.requests.subschema_for::<C>().into();
        operation.messages = Some((client, schemas.responses.subschema_for::<S>().into()));
    }
}

impl<T: Described> Described for Result<T, ApiError> {
    fn describe(operation: &mut OperationDoc, schemas: &mut ApiSchemas) {
        T::describe(operation, schemas);
    }
}
