//! The documentation of an operation: schemas, and what the types of its handler's inputs and output say.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

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

/// What is known of an operation beyond its path and summary.
#[derive(Default)]
pub(crate) struct OperationDoc {
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

impl OperationDoc {
    /// The members of a structure as parameters of the query.
    pub fn add_query<T: JsonSchema>(&mut self, schemas: &mut ApiSchemas) {
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
            self.query.push(parameter);
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
