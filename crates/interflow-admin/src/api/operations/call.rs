//! Calls of operations: the command line sends them to the running instance, the MCP server runs them in the process.

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use interflow_types::percent::{AsciiSet, COMPONENT, encoded, encoded_as};
use serde_json::Value;

use crate::api::ROOT;
use crate::api::operations::context::OperationContext;
use crate::api::operations::handler::PathValues;
use crate::api::operations::table::OperationId;
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;

/// Encoded in a segment of a path: all that is neither unreserved nor in the ID of a pending request.
const SEGMENT: &AsciiSet = &COMPONENT.remove(b'@');

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
    pub const fn call(self) -> OperationCall {
        OperationCall { operation: self, path: Vec::new(), query: String::new(), body: None }
    }
}

impl OperationCall {
    /// Adds the next parameter of the path.
    pub fn path(mut self, value: impl ToString) -> Self {
        self.path.push(value.to_string());
        self
    }

    /// Adds a parameter of the query.
    pub fn query(self, name: &str, value: impl ToString) -> Self {
        self.query_if(name, Some(value))
    }

    /// Adds a parameter of the query, if it has a value.
    pub fn query_if(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let separator = if self.query.is_empty() { '?' } else { '&' };
            self.query += &format!("{separator}{name}={}", encoded(&value.to_string()));
        }
        self
    }

    /// Sets the JSON body.
    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// The method; the path with its query, below `/api/v1`; and the body.
    pub fn parts(&self) -> (&'static str, String, Option<&Value>) {
        let (method, path) = self.operation.route();
        let mut values = self.path.iter();
        let mut segment = |text: &str| match text.starts_with('{') {
            true => encoded_as(values.next().map_or("", String::as_str), SEGMENT),
            false => text.to_owned(),
        };
        let target = path.split('/').map(&mut segment).collect::<Vec<_>>().join("/");
        (method, target + &self.query, self.body.as_ref())
    }

    /// Runs the operation in this process for a caller who has the rights for it, and returns its JSON, null if it has none.
    /// The caller writes the line of the audit trail.
    pub(crate) async fn run(&self, context: &OperationContext, caller: &Caller) -> Result<Value> {
        let body = self.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.run_with(context, caller, body).await
    }

    /// As [`run`](Self::run), with this body.
    pub(crate) async fn run_with(&self, context: &OperationContext, caller: &Caller, body: Body) -> Result<Value> {
        let internal = |e: &dyn std::fmt::Display| ApiError::internal(e.to_string());
        let (method, target, _) = self.parts();
        let request = Request::builder()
            .method(method)
            .uri(format!("{ROOT}{target}"))
            .header(header::CONTENT_TYPE, "application/json")
            .extension(caller.clone())
            .extension(PathValues(self.path.clone()))
            .body(body)
            .map_err(|e| internal(&e))?;
        let operation = self.operation.operation();
        caller.require(operation.access.needed)?;
        let response = operation.handler.run(context.clone(), request).await?;
        let json = to_bytes(response.into_body(), usize::MAX).await.map_err(|e| internal(&e))?;
        if json.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&json).map_err(|e| internal(&e)) }
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
