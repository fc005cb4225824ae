//! The documentation of a route, taken from the types of its handler: what each extractor reads, and what is returned.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use interflow_types::{Direction, FlowId};
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api::input::{FlowIdPath, FlowSidePath, MessagePath, StrictJson, StrictQuery};
use crate::error::ApiError;
use crate::identity::caller::Caller;
use crate::state::AdminState;

/// Where the document keeps its schemas.
const SCHEMAS: &str = "#/components/schemas/";

/// Generates the schemas of a document. A type that is both read and written may differ: a member with a default may be
/// absent from a request, but never is from a response.
pub(crate) struct ApiSchemas {
    pub requests: SchemaGenerator,
    pub responses: SchemaGenerator,
}

impl ApiSchemas {
    pub fn new() -> Self {
        let generator = |contract| {
            let settings = SchemaSettings::draft2020_12().with(|s| {
                s.definitions_path = SCHEMAS.trim_start_matches('#').trim_end_matches('/').into();
                s.meta_schema = None;
                s.contract = contract;
            });
            settings.into_generator()
        };
        Self { requests: generator(Contract::Deserialize), responses: generator(Contract::Serialize) }
    }

    /// All schemas by name. Where a type has one name but two schemas, the one for requests is renamed, also in
    /// `requests`, the parts of the document that refer to it.
    pub fn into_definitions<'a>(mut self, requests: impl Iterator<Item = &'a mut Value>) -> Map<String, Value> {
        let mut all = self.responses.take_definitions(true);
        all.values_mut().for_each(drop_unwritten_nulls);
        let mut read = self.requests.take_definitions(true);
        let differing: Vec<String> = read
            .iter()
            // Only differing schemas are renamed; one that is equal in both directions keeps one name.
            .filter(|(name, schema)| all.get(*name).is_some_and(|s| s != *schema))
            .map(|(n, _)| n.clone())
            .collect();
        requests.for_each(|value| rename_references(value, &differing));
        read.values_mut().for_each(|schema| rename_references(schema, &differing));
        for (name, schema) in read {
            let name = if differing.contains(&name) { format!("{name}Input") } else { name };
            all.insert(name, schema);
        }
        all.sort_keys();
        all
    }
}

/// A member that is not always written is not written as null.
fn drop_unwritten_nulls(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let required = map.get("required").cloned().unwrap_or_default();
            let required = |name: &String| required.as_array().is_some_and(|list| list.iter().any(|n| n == name));
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                properties.iter_mut().filter(|(name, _)| !required(name)).for_each(|(_, schema)| drop_null(schema));
            }
            map.values_mut().for_each(drop_unwritten_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_unwritten_nulls),
        _ => {}
    }
}

fn rename_references(value: &mut Value, differing: &[String]) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && reference.strip_prefix(SCHEMAS).is_some_and(|name| differing.iter().any(|d| d == name))
            {
                reference.push_str("Input");
            }
            map.values_mut().for_each(|v| rename_references(v, differing));
        }
        Value::Array(list) => list.iter_mut().for_each(|v| rename_references(v, differing)),
        _ => {}
    }
}

/// What is known of a route beyond its path and summary.
#[derive(Default)]
pub(crate) struct Operation {
    /// The schemas of the path's parameters, in order.
    pub path: Vec<Value>,
    /// Query parameters, as the document lists them.
    pub query: Vec<Value>,
    /// Media type and schema of the request body.
    pub request: Option<(&'static str, Value)>,
    /// Status, and media type and schema of the body.
    pub response: (u16, Option<(&'static str, Value)>),
    /// For a WebSocket: the schemas of the client's messages and of the server's.
    pub messages: Option<(Value, Value)>,
}

/// A handler whose extractors and result describe the route.
pub(crate) trait DocumentedHandler<T>: Handler<T, Arc<AdminState>> {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas);
}

// Handlers are functions with up to four extractors. The last parameter of axum's `Handler` differs for the last
// extractor, so it stays generic as `Via`.
macro_rules! documented_handler {
    ($($input:ident),*) => {
        impl<F, Fut, Out, Via, $($input),*> DocumentedHandler<(Via, $($input,)*)> for F
        where
            F: Handler<(Via, $($input,)*), Arc<AdminState>> + FnOnce($($input),*) -> Fut,
            Fut: Future<Output = Out>,
            Out: DescribeOutput,
            $($input: DescribeInput,)*
        {
            fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
                Out::describe(operation, schemas);
                $($input::describe(operation, schemas);)*
            }
        }
    };
}

documented_handler!();
documented_handler!(A);
documented_handler!(A, B);
documented_handler!(A, B, C);
documented_handler!(A, B, C, D);

pub(crate) trait DescribeInput {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas);
}

impl DescribeInput for State<Arc<AdminState>> {
    fn describe(_: &mut Operation, _: &mut ApiSchemas) {}
}

impl DescribeInput for Caller {
    fn describe(_: &mut Operation, _: &mut ApiSchemas) {}
}

impl DescribeInput for HeaderMap {
    fn describe(_: &mut Operation, _: &mut ApiSchemas) {}
}

impl DescribeInput for Body {
    fn describe(operation: &mut Operation, _: &mut ApiSchemas) {
        operation.request = Some(("application/octet-stream", json!({})));
    }
}

impl<T: JsonSchema> DescribeInput for StrictJson<T> {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        operation.request = Some(("application/json", schemas.requests.subschema_for::<T>().into()));
    }
}

impl<T: JsonSchema> DescribeInput for StrictQuery<T> {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        let Value::Object(mut object) = Value::from(T::json_schema(&mut schemas.requests)) else { return };
        let required = object.remove("required").unwrap_or_default();
        let required = |name: &str| required.as_array().is_some_and(|list| list.iter().any(|n| n == name));
        let Some(Value::Object(properties)) = object.remove("properties") else { return };
        // Each member of the structure is a parameter of its own; the structure itself does not appear.
        for (name, mut schema) in properties {
            let described = schema.as_object_mut().and_then(|s| s.remove("description"));
            let mut parameter = json!({"name": name, "in": "query", "required": required(&name)});
            if let Some(description) = described {
                parameter["description"] = description;
            }
            // A parameter is absent rather than null.
            drop_null(&mut schema);
            parameter["schema"] = schema;
            operation.query.push(parameter);
        }
    }
}

/// Removes null from the values of a schema.
fn drop_null(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    if let Some(types) = map.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|t| t != "null");
        // A list with one type is written as that type.
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    if let Some(choices) = map.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.retain(|c| c["type"] != "null");
        // A choice with one alternative left becomes that alternative.
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            map.remove("anyOf");
            map.extend(only);
        }
    }
}

impl<T: JsonSchema> DescribeInput for Path<T> {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        operation.path.push(schemas.requests.subschema_for::<T>().into());
    }
}

fn flow_id_schema(schemas: &mut ApiSchemas) -> Value {
    schemas.requests.subschema_for::<FlowId>().into()
}

impl DescribeInput for FlowIdPath {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        operation.path.push(flow_id_schema(schemas));
    }
}

impl DescribeInput for FlowSidePath {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        let side: Schema = schemas.requests.subschema_for::<Direction>();
        operation.path.extend([flow_id_schema(schemas), side.into()]);
    }
}

impl DescribeInput for MessagePath {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        let index: Schema = schemas.requests.subschema_for::<u64>();
        operation.path.extend([flow_id_schema(schemas), index.into()]);
    }
}

impl<E> DescribeInput for Result<WebSocketUpgrade, E> {
    fn describe(operation: &mut Operation, _: &mut ApiSchemas) {
        operation.response = (StatusCode::SWITCHING_PROTOCOLS.as_u16(), None);
    }
}

/// What a handler returns on success.
pub(crate) trait DescribeOutput {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas);
}

impl<T: JsonSchema> DescribeOutput for Json<T> {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        operation.response = (200, Some(("application/json", schemas.responses.subschema_for::<T>().into())));
    }
}

impl DescribeOutput for StatusCode {
    fn describe(operation: &mut Operation, _: &mut ApiSchemas) {
        operation.response = (Self::NO_CONTENT.as_u16(), None);
    }
}

/// A response that a handler builds itself: its media type is known only at run time, so it is described as bytes.
impl DescribeOutput for Response {
    fn describe(operation: &mut Operation, _: &mut ApiSchemas) {
        operation.response = (200, Some(("application/octet-stream", json!({}))));
    }
}

impl<T: DescribeOutput> DescribeOutput for Result<T, ApiError> {
    fn describe(operation: &mut Operation, schemas: &mut ApiSchemas) {
        T::describe(operation, schemas);
    }
}
