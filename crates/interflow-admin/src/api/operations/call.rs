//! Calls of operations: the command line sends them to the running instance, the MCP server runs them in the process.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use interflow_types::percent::{AsciiSet, COMPONENT, encoded, encoded_as};
use serde_json::Value;

use crate::api::ROOT;
use crate::api::operations::handler::PathValues;
use crate::api::operations::table::OperationId;
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::state::AdminState;

/// Not encoded in a segment of a path (RFC 3986 3.3, `pchar`).
const SEGMENT: &AsciiSet = &COMPONENT
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// An operation with its parameters.
#[derive(Clone, Debug)]
pub struct OperationCall {
    operation: OperationId,
    path: Vec<String>,
    query: String,
    body: Option<Value>,
}

impl OperationId {
    /// A call, to which parameters are added.
    #[must_use]
    pub const fn call(self) -> OperationCall {
        OperationCall { operation: self, path: Vec::new(), query: String::new(), body: None }
    }
}

impl OperationCall {
    /// Adds the next parameter of the path.
    #[must_use]
    pub fn path(mut self, value: impl ToString) -> Self {
        self.path.push(value.to_string());
        self
    }

    /// Adds a parameter of the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: impl ToString) -> Self {
        let separator = if self.query.is_empty() { '?' } else { '&' };
        self.query += &format!("{separator}{name}={}", encoded(&value.to_string()));
        self
    }

    /// Sets the JSON body.
    #[must_use]
    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// The method; the path with its query, below `/api/v1`; and the body.
    pub fn parts(&self) -> (&'static str, String, Option<&Value>) {
        let (method, path) = self.operation.route();
        let mut values = self.path.iter();
        let mut target = String::new();
        for (at, part) in path.split('{').enumerate() {
            let rest = if at == 0 { part } else { part.split_once('}').map_or("", |(_, rest)| rest) };
            if at > 0 {
                target += &encoded_as(values.next().map_or("", String::as_str), SEGMENT);
            }
            target += rest;
        }
        (method, target + &self.query, self.body.as_ref())
    }

    /// Runs the operation in this process for a caller who has the rights for it, and returns its JSON. The caller writes
    /// the line of the audit trail.
    pub(crate) async fn run(self, state: &Arc<AdminState>, caller: &Caller) -> Result<Value> {
        let internal = |e: &dyn std::fmt::Display| ApiError::internal(e.to_string());
        let (method, target, body) = self.parts();
        let request = Request::builder()
            .method(method)
            .uri(format!("{ROOT}{target}"))
            .header(header::CONTENT_TYPE, "application/json")
            .extension(caller.clone())
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())));
        let mut request = request.map_err(|e| internal(&e))?;
        request.extensions_mut().insert(PathValues(self.path));
        let response = self.operation.operation().call(Arc::clone(state), caller, request).await?;
        let json = to_bytes(response.into_body(), usize::MAX).await.map_err(|e| internal(&e))?;
        serde_json::from_slice(&json).map_err(|e| internal(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_paths_with_encoded_parameters() {
        let call = OperationId::DecidePending.call().path("rule-5@8c/x");
        assert_eq!(call.parts(), ("POST", "/pending/rule-5@8c%2Fx".to_owned(), None));
        let call = OperationId::FlowBody.call().path("F").path("request").query("view", "a b").query("limit", 7);
        assert_eq!(call.parts().1, "/flows/F/request/body?view=a%20b&limit=7");
    }
}
