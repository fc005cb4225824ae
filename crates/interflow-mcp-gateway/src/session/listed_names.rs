//! What servers listed in a session: the names of tools and prompts, which alone are passed on to them, and the values
//! that the schemas of tools name, which are never redacted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use interflow_redact::{JsonPart, JsonSpan, decode_lossy};
use parking_lot::Mutex;
use serde_json::Value;

use crate::protocol::client_message::{ListKind, MAX_NAME};
use crate::protocol::header_values::MirroredParam;

/// Bounds on the values of one schema that are remembered, and on each of them in bytes. Further ones are redacted.
const MAX_VALUES: usize = 10_000;
const MAX_VALUE: usize = 1024;

/// The lists of a session, by server.
#[derive(Default)]
pub(crate) struct ListedNames(Mutex<HashMap<(Arc<str>, ListKind), NameList>>);

/// A list: the values of the schema of each name.
type NameList = HashMap<String, Arc<ListedSchema>>;

/// What of a tool's schema is remembered; of a prompt, nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedSchema {
    pub values: Arc<SchemaValues>,
    /// The parameters that header fields repeat.
    pub mirrored: Vec<MirroredParam>,
}

/// The values that a schema names: the server knows them, and takes no others in their place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SchemaValues(HashSet<String>);

impl ListedNames {
    /// Remembers a list in place of the one before.
    pub fn remember(&self, server: &Arc<str>, kind: ListKind, items: &[Value]) {
        let named = items.iter().filter_map(|item| {
            let name = item["name"].as_str().filter(|name| is_usable(name))?;
            let schema = &item["inputSchema"];
            let (values, mirrored) =
                (Arc::new(SchemaValues::of_schema(schema)), MirroredParam::of_schema(schema).unwrap_or_default());
            Some((name.to_owned(), Arc::new(ListedSchema { values, mirrored })))
        });
        self.0.lock().insert((Arc::clone(server), kind), named.collect());
    }

    /// Forgets a list that is said to have changed.
    pub fn forget(&self, server: &Arc<str>, kind: ListKind) {
        self.0.lock().remove(&(Arc::clone(server), kind));
    }

    /// What is known of the schema of a name; `None` if the server did not list just this name.
    pub fn find(&self, server: &Arc<str>, kind: ListKind, name: &str) -> Option<Arc<ListedSchema>> {
        self.0.lock().get(&(Arc::clone(server), kind))?.get(name).cloned()
    }
}

/// Whether a name looks like what it is: one that differs from another by blanks or control characters alone does not,
/// where patterns and people decide about it.
pub(crate) fn is_usable(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.trim() == name && !name.chars().any(char::is_control)
}

impl SchemaValues {
    fn of_schema(schema: &Value) -> Self {
        let mut values = Self::default();
        values.add_schema(schema);
        values
    }

    /// Adds what a schema names at any depth, so that references within it (`$ref`) need not be followed.
    fn add_schema(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                for (keyword, value) in members {
                    match (keyword.as_str(), value) {
                        ("enum", Value::Array(_)) | ("const" | "default", _) => self.add_leaves(value),
                        ("properties", Value::Object(properties)) => properties.keys().for_each(|name| self.add(name)),
                        _ => {}
                    }
                    self.add_schema(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_schema(item)),
            _ => {}
        }
    }

    fn add_leaves(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text),
            Value::Number(number) => self.add(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.add_leaves(item)),
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                self.add(name);
                self.add_leaves(value);
            }),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn add(&mut self, text: &str) {
        if text.len() <= MAX_VALUE && self.0.len() < MAX_VALUES {
            self.0.insert(text.to_owned());
        }
    }

    /// Whether a string, a number or a name of a JSON text is one of the values.
    pub fn contains(&self, json: &str, span: &JsonSpan) -> bool {
        let raw = json.get(span.range.clone()).filter(|_| !self.0.is_empty());
        raw.is_some_and(|raw| match span.part {
            JsonPart::Number => self.0.contains(raw),
            JsonPart::Text | JsonPart::Name => self.0.contains(&*decode_lossy(raw).0),
        })
    }
}

#[cfg(test)]
mod tests {
    use interflow_redact::json_parts;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_a_schema_are_found_wherever_it_names_them() {
        let values = SchemaValues::of_schema(&json!({
            "type": "object",
            "description": "such as Berlin",
            "properties": {
                "city": { "enum": ["New York", "K\u{f6}ln", 4_111_111_111_111_111_u64, null] },
                "unit": { "oneOf": [{ "const": "anna@firm.com", "title": "Anna" }, { "$ref": "#/$defs/inner" }] },
                "enum": { "type": "array", "items": { "enum": ["listed"] } },
                "zone": { "type": "string", "default": "Europe/Berlin" },
            },
            "$defs": { "inner": { "properties": { "deep": { "const": { "k": ["Lima"] } } } } },
        }));
        let json = r#"{"city":"New York","a":["K\u00f6ln",4111111111111111,"anna@firm.com","listed","Europe/Berlin","Lima"],
            "deep":"k","zone":"Berlin","x":"Anna","y":"new york","z":"New York "}"#;
        let others: Vec<_> = json_parts(json.as_bytes())
            .unwrap()
            .into_iter()
            .filter(|span| !values.contains(json, span))
            .map(|span| &json[span.range])
            .collect();
        assert_eq!(others, ["a", "Berlin", "x", "Anna", "y", "new york", "z", "New York "]);
    }

    #[test]
    fn names_are_those_that_the_server_listed_and_no_others() {
        let (names, server, other) = (ListedNames::default(), Arc::from("a"), Arc::from("b"));
        let items = json!([{ "name": "danger" }, { "name": "list " }, { "name": "x\u{0}" }, { "name": "" }, {}]);
        names.remember(&server, ListKind::Tools, items.as_array().unwrap());
        assert!(names.find(&server, ListKind::Tools, "danger").is_some());
        for name in ["danger ", "danger\0", "Danger", "dang\u{435}r", "", "list ", "list", "x\0"] {
            assert!(names.find(&server, ListKind::Tools, name).is_none(), "{name:?}");
        }
        assert!(names.find(&server, ListKind::Prompts, "danger").is_none());
        assert!(names.find(&other, ListKind::Tools, "danger").is_none());
        names.forget(&server, ListKind::Tools);
        assert!(names.find(&server, ListKind::Tools, "danger").is_none());
    }
}
