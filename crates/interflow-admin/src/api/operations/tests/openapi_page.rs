//! The page of the reference that lists every operation and schema of the OpenAPI document.

use std::fmt::Write as _;

use interflow_testkit::json_schema::cell;
use serde_json::Value;

use crate::api::ROOT;

const HEAD: &str = "# HTTP API: operations\n\n<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
    Every operation of the [admin API](http-api.md) and every schema, from the OpenAPI document ([`openapi.json`](openapi.json)).\n\
    Paths are below `/api/v1`.\n\
    An error has a status of 400 or above and the body [`ErrorBody`](#errorbody).\n\n";

/// The operations in groups by the first part of their path, then the schemas in alphabetical order.
pub(crate) fn render(document: &Value) -> String {
    let mut page = HEAD.to_owned();
    let mut group = "";
    for (path, methods) in members(&document["paths"]) {
        let path = path.strip_prefix(ROOT).unwrap_or(path);
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        if first != group {
            let _ = writeln!(page, "## {first}\n");
            group = first;
        }
        for (method, operation) in members(methods) {
            let _ = writeln!(page, "### {} {path}\n", method.to_ascii_uppercase());
            write_operation(&mut page, operation);
        }
    }
    page.push_str("## Schemas\n\nA member that is marked with * is always present or required.\n\n");
    for (name, schema) in members(&document["components"]["schemas"]) {
        let _ = writeln!(page, "### {name}\n");
        write_schema(&mut page, schema);
    }
    page.trim_end().to_owned() + "\n"
}

fn write_operation(page: &mut String, operation: &Value) {
    let rights = operation["x-required-rights"].as_array().into_iter().flatten();
    let rights: Vec<String> = rights.map(|right| format!("`{}`", text(right))).collect();
    let _ = writeln!(page, "{}. Needs {}.\n", text(&operation["summary"]), rights.join(" and "));
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if !parameters.is_empty() {
        page.push_str("| parameter | in | type | meaning |\n|---|---|---|---|\n");
        for parameter in parameters {
            let required = if parameter["required"] == true { " *" } else { "" };
            let _ = writeln!(
                page,
                "| `{}`{required} | {} | {} | {} |",
                text(&parameter["name"]),
                text(&parameter["in"]),
                type_link(&parameter["schema"]),
                cell(text(&parameter["description"]))
            );
        }
        page.push('\n');
    }
    if let Some(request) = content(&operation["requestBody"]) {
        let _ = writeln!(page, "Request body: {request}.\n");
    }
    for (status, response) in members(&operation["responses"]).filter(|(status, _)| *status != "default") {
        let body = content(response).unwrap_or_else(|| "no body".to_owned());
        let _ = writeln!(page, "Response {status}: {body}.\n");
    }
    if let Some(messages) = operation.get("x-websocket-messages") {
        let (client, server) = (type_link(&messages["client"]), type_link(&messages["server"]));
        let _ = writeln!(page, "A WebSocket: the client sends {client}, the server {server}.\n");
    }
}

/// The type of a body, with its media type if that is not JSON.
fn content(part: &Value) -> Option<String> {
    let (media, body) = members(&part["content"]).next()?;
    Some(match media {
        "application/json" => type_link(&body["schema"]),
        other => format!("`{other}`"),
    })
}

fn write_schema(page: &mut String, schema: &Value) {
    if let Some(description) = schema["description"].as_str() {
        let _ = writeln!(page, "{}\n", cell(description));
    }
    write_members(page, schema);
    let forms = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()).or_else(|| schema["enum"].as_array());
    let forms = forms.map_or(&[][..], Vec::as_slice);
    if !forms.is_empty() {
        page.push_str("One of:\n\n");
        for form in forms {
            let description = form["description"].as_str().map(|d| format!(": {}", cell(d))).unwrap_or_default();
            let _ = writeln!(page, "- {}{description}", type_link(form));
        }
        page.push('\n');
    } else if !schema["properties"].is_object() {
        let _ = writeln!(page, "{}\n", type_link(schema));
    }
}

fn write_members(page: &mut String, schema: &Value) {
    if schema["properties"].as_object().is_none_or(serde_json::Map::is_empty) {
        return;
    }
    page.push_str("| member | type | meaning |\n|---|---|---|\n");
    for (name, member) in members(&schema["properties"]) {
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|r| r == name));
        let mark = if required { " *" } else { "" };
        let meaning = cell(text(&member["description"]));
        let _ = writeln!(page, "| `{name}`{mark} | {} | {meaning} |", type_link(member));
    }
    page.push('\n');
}

/// A type in a few words, with links to the schemas of this page.
fn type_link(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        return format!("[`{name}`](#{})", name.to_ascii_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    if let Some(name) = schema.as_str() {
        return format!("`{name}`");
    }
    for choice in ["enum", "oneOf", "anyOf", "allOf"] {
        if let Some(forms) = schema[choice].as_array() {
            let mut names: Vec<String> = forms.iter().map(type_link).collect();
            names.dedup();
            return names.join(" or ");
        }
    }
    if let Some(properties) = schema["properties"].as_object() {
        let member = |(name, member): (&String, &Value)| format!("`{name}`: {}", type_link(member));
        return format!("object of {}", properties.iter().map(member).collect::<Vec<_>>().join(", "));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec!["any value"],
    };
    let name = |t: &&str| match *t {
        "array" if schema["items"].is_object() => format!("list of {}", type_link(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map to {}", type_link(&schema["additionalProperties"]))
        }
        "array" => "list".to_owned(),
        other => other.to_owned(),
    };
    types.iter().map(name).collect::<Vec<_>>().join(" or ")
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
