//! Reads JSON Schemas for people: what the members of an object are called, which type and default they have. The
//! reference pages are made with it.

use serde_json::Value;

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property<'a> {
    pub name: &'a str,
    /// Such as `list of strings`, or the values that it may have.
    pub type_name: String,
    /// As JSON; empty if there is none, or if it means "not set".
    pub default: String,
    pub required: bool,
    pub description: String,
}

/// Definitions with a syntax of their own, and what it is called.
const NAMED: [(&str, &str); 3] = [("HumanDuration", "duration"), ("ByteSize", "size"), ("Rate", "rate")];

/// Follows a `$ref`, and takes what is not null of a choice with null.
pub fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    if let Some(target) = reference(schema).and_then(|r| root.pointer(r.strip_prefix('#')?)) {
        return resolve(target, root);
    }
    match forms(schema)[..] {
        [one] => resolve(one, root),
        _ => schema,
    }
}

/// The members of an object, in the order of its declaration.
pub fn properties<'a>(object: &'a Value, root: &'a Value) -> Vec<Property<'a>> {
    let required = |name: &str| object["required"].as_array().is_some_and(|all| all.iter().any(|r| r == name));
    let members = object["properties"].as_object().into_iter().flatten();
    members
        .map(|(name, schema)| Property {
            name,
            type_name: type_name(schema, root),
            default: schema.get("default").map(default_text).unwrap_or_default(),
            required: required(name),
            description: description(schema).or_else(|| description(resolve(schema, root))).unwrap_or_default(),
        })
        .collect()
}

/// A table in Markdown of the members of an object.
pub fn markdown_table(object: &Value, root: &Value, heading: &str) -> String {
    let mut table = format!("| {heading} | type | default | meaning |\n|---|---|---|---|\n");
    for Property { name, type_name, default, required, description } in properties(object, root) {
        let default = match (required, default.is_empty()) {
            (true, _) => "required".to_owned(),
            (false, true) => String::new(),
            (false, false) => code(&default),
        };
        let (type_name, description) = (cell(&type_name), cell(&description));
        table.push_str(&format!("| `{name}` | {type_name} | {default} | {description} |\n"));
    }
    table
}

/// The text as the cell of a table in Markdown: one line, without a bare `|`.
pub fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// The text as code in a cell.
pub fn code(text: &str) -> String {
    format!("`{}`", cell(text))
}

/// A default as JSON; empty for null, which means "not set".
pub fn default_text(value: &Value) -> String {
    if value.is_null() { String::new() } else { value.to_string() }
}

/// What a schema accepts, in words: `duration`, `list of strings`, `` `allow`, `deny` ``.
pub fn type_name(schema: &Value, root: &Value) -> String {
    if let Some(reference) = reference(schema) {
        if let Some((_, name)) = NAMED.iter().find(|(of, _)| reference.ends_with(&format!("/{of}"))) {
            return (*name).to_owned();
        }
        return root
            .pointer(reference.trim_start_matches('#'))
            .map_or_else(|| "any".to_owned(), |target| type_name(target, root));
    }
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    let values = values(schema);
    if !values.is_empty() {
        return values.join(", ");
    }
    match forms(schema)[..] {
        [] => simple_type(schema, root),
        ref several => {
            let mut names: Vec<_> = several.iter().map(|s| type_name(s, root)).collect();
            names.dedup();
            names.join(" or ")
        }
    }
}

fn simple_type(schema: &Value, root: &Value) -> String {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).filter(|t| *t != "null").collect(),
        _ => vec!["any"],
    };
    let mut names: Vec<_> = types.iter().map(|t| named_type(t, schema, root)).collect();
    names.dedup();
    names.join(" or ")
}

fn named_type(name: &str, schema: &Value, root: &Value) -> String {
    match name {
        "array" => format!("list of {}", plural(schema.get("items"), root)),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", plural(schema.get("additionalProperties"), root))
        }
        "object" => "table".to_owned(),
        "string" if schema["format"] == "regex" => "regex".to_owned(),
        "string" if schema["format"] == "ip" => "IP address".to_owned(),
        other => other.to_owned(),
    }
}

fn plural(item: Option<&Value>, root: &Value) -> String {
    match item.map(|i| type_name(i, root)) {
        None => "any values".to_owned(),
        Some(name) if name.starts_with('`') || name.contains(' ') && !name.ends_with("address") => name,
        Some(name) if name.ends_with("ss") || name.ends_with('x') => format!("{name}es"),
        Some(name) if name == "any" => "any values".to_owned(),
        Some(name) => format!("{name}s"),
    }
}

/// The values of an enumeration, as code.
fn values(schema: &Value) -> Vec<String> {
    let listed = schema["oneOf"].as_array().or_else(|| schema["enum"].as_array());
    let value = |v: &Value| {
        let value = v.get("const").unwrap_or(v);
        let text = value.as_str().map(str::to_owned);
        text.or_else(|| value.as_number().map(ToString::to_string)).map(|t| format!("`{t}`"))
    };
    let mut names: Vec<String> = Vec::new();
    // Variants without a description stand together in one `enum`.
    let each = |v: &'_ Value| v["enum"].as_array().cloned().unwrap_or_else(|| vec![v.clone()]);
    for value in listed.into_iter().flatten().flat_map(each).filter_map(|v| value(&v)) {
        if !names.contains(&value) {
            names.push(value);
        }
    }
    names
}

/// The alternatives of a schema that are not null.
fn forms(schema: &Value) -> Vec<&Value> {
    let all = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array());
    all.into_iter().flatten().filter(|s| s["type"] != "null").collect()
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()
}

/// The description in one line.
fn description(schema: &Value) -> Option<String> {
    schema["description"].as_str().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_named_in_words() {
        let root = json!({ "$defs": {
            "HumanDuration": { "type": ["string", "integer"] },
            "Mode": { "oneOf": [{ "const": "on" }, { "const": "off" }] },
            "Inner": { "type": "object", "properties": { "a": { "type": "string" } } },
            "Template": { "title": "template", "type": ["string", "number"] },
        } });
        for (schema, expected) in [
            (json!({ "type": "string" }), "string"),
            (json!({ "type": ["integer", "null"] }), "integer"),
            (json!({ "type": ["string", "integer"] }), "string or integer"),
            (json!({ "type": "array", "items": { "type": "string" } }), "list of strings"),
            (json!({ "type": "array", "items": { "type": "string", "format": "ip" } }), "list of IP addresses"),
            (json!({ "type": "object", "additionalProperties": { "$ref": "#/$defs/Template" } }), "map of templates"),
            (json!({ "anyOf": [{ "$ref": "#/$defs/HumanDuration" }, { "type": "null" }] }), "duration"),
            (json!({ "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/Inner" }] }), "string or table"),
            (json!({ "$ref": "#/$defs/Mode" }), "`on`, `off`"),
            (json!({ "enum": ["1.2", 1.2, 1.3] }), "`1.2`, `1.3`"),
            (json!({}), "any"),
        ] {
            assert_eq!(type_name(&schema, &root), expected, "{schema}");
        }
    }

    #[test]
    fn members_are_listed_with_defaults_and_requirements() {
        let object = json!({ "required": ["to"], "properties": {
            "to": { "type": "string", "description": "Where\nto." },
            "status": { "type": "integer", "default": 302, "description": "a|b" },
            "note": { "type": ["string", "null"], "default": null },
        } });
        let table = markdown_table(&object, &object, "key");
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `to` | string | required | Where to. |",
                "| `status` | integer | `302` | a\\|b |",
                "| `note` | string |  |  |"
            ]
        );
    }
}
