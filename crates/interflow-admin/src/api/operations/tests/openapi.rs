//! The OpenAPI 3.1 document, generated from the table of operations; `docs/reference/openapi.json` is its committed form.

use std::collections::BTreeMap;

use interflow_types::data_file;
use serde_json::{Map, Value, json};

use crate::api::ROOT;
use crate::api::operations::Operation;
use crate::api::operations::table::OperationId;
use crate::api::operations::tests::documentation::{ApiSchemas, OperationDoc};
use crate::error::ErrorBody;

/// What each operation does, by its name in the code.
const SUMMARIES: &str = include_str!("../../../../data/operation_summaries.txt");

/// Descriptions of path parameters, by their name in the path.
const PATH_PARAMETERS: [(&str, &str); 4] = [
    ("conversation", "a conversation's id, its beginning, or `last`"),
    ("label", "a secret's label"),
    ("index", "a message's number, from 0"),
    ("name", "a collection's name"),
];

/// The document of all operations.
fn generate_openapi() -> Value {
    let mut schemas = ApiSchemas::new();
    let error = content("application/json", schemas.responses.subschema_for::<ErrorBody>().into());
    let mut paths = Map::new();
    let summaries: BTreeMap<_, _> = data_file::records(SUMMARIES).map(|[name, summary]| (name, summary)).collect();
    for id in OperationId::ALL {
        let operation = id.operation();
        let name = format!("{id:?}");
        let summary = summaries.get(&*name).unwrap_or_else(|| panic!("{name} is not in operation_summaries.txt"));
        let path = paths.entry(format!("{ROOT}{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = describe(&operation, summary, &mut schemas);
    }
    let operations = paths.values_mut().filter_map(Value::as_object_mut).flat_map(|p| p.values_mut());
    let requests = operations.filter_map(Value::as_object_mut).flat_map(|operation| {
        operation.iter_mut().filter(|(name, _)| ["parameters", "requestBody"].contains(&name.as_str())).map(|(_, v)| v)
    });
    // Schemas for requests are renamed last, when all references to them exist.
    let definitions = schemas.into_definitions(requests);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Interflow",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Recorded flows, live events, and the running instance. Times are microseconds: since the Unix \
                epoch for moments, plain for durations. Bytes that are not UTF-8 are written as {\"base64\": \"…\"}.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "the token in admin.token of the data directory, or an API token"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "interflow_session_{port}", "description": "a session, set by POST /login, GET /?token=… and the login at the issuer"},
            },
            "responses": {"Error": {"description": "an error", "content": error}},
            "schemas": definitions,
        },
    });
    simplify(&mut document);
    document
}

/// Writes schemas as generators of clients understand them: keywords beside a reference become a part of `allOf`, and
/// formats of integers, which only say how wide they are in Rust, are left out.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let is_width =
                |format: &Value| format.as_str().is_some_and(|f| f.starts_with("uint") || f.starts_with("int"));
            if map.get("format").is_some_and(is_width) {
                map.remove("format");
            }
            if map.contains_key("$ref") && map.contains_key("properties") {
                let description = map.remove("description");
                let reference = json!({"$ref": map.remove("$ref")});
                let beside = Value::Object(std::mem::take(map));
                map.insert("allOf".into(), json!([reference, beside]));
                map.extend(description.map(|d| ("description".to_owned(), d)));
            }
            map.values_mut().for_each(simplify);
        }
        Value::Array(list) => list.iter_mut().for_each(simplify),
        _ => {}
    }
}

fn describe(operation: &Operation, summary: &str, schemas: &mut ApiSchemas) -> Value {
    let mut doc = OperationDoc::default();
    operation.handler.describe(&mut doc, schemas);
    let mut parameters = path_parameters(operation.path, doc.path);
    parameters.extend(doc.query);
    let (status, body) = doc.response;
    let mut success = json!({"description": summary});
    if let Some((media, schema)) = body {
        success["content"] = content(media, schema);
    }
    let mut responses = Map::new();
    responses.insert(status.to_string(), success);
    responses.insert("default".into(), json!({"$ref": "#/components/responses/Error"}));
    let mut described = json!({"summary": summary, "parameters": parameters, "responses": responses});
    described["x-required-rights"] = json!(operation.access.needed.list());
    if let Some((media, schema)) = doc.request {
        described["requestBody"] = json!({"content": content(media, schema)});
    }
    if let Some((client, server)) = doc.messages {
        described["x-websocket-messages"] = json!({"client": client, "server": server});
    }
    described
}

fn path_parameters(path: &str, schemas: Vec<Value>) -> Vec<Value> {
    let names: Vec<&str> = path.split('{').skip(1).filter_map(|p| p.split_once('}')).map(|(name, _)| name).collect();
    // A path parameter that no extractor reads is a bug of the table; the document is built in a test.
    assert_eq!(names.len(), schemas.len(), "the handler of {path} reads every parameter of the path");
    let parameter = |(name, schema): (&str, Value)| {
        let mut parameter = json!({"name": name, "in": "path", "required": true, "schema": schema});
        if let Some((_, description)) = PATH_PARAMETERS.iter().find(|(known, _)| *known == name) {
            parameter["description"] = (*description).into();
        }
        parameter
    };
    names.into_iter().zip(schemas).map(parameter).collect()
}

fn content(media: &str, schema: Value) -> Value {
    let mut content = Map::new();
    content.insert(media.to_owned(), json!({ "schema": schema }));
    content.into()
}

/// The committed document, from which the UI's types are generated.
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");

#[test]
fn the_committed_document_is_current() {
    let text = render(&generate_openapi());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(COMMITTED, &text).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    let differing = committed.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(committed == text, "docs/reference/openapi.json is not current, first at {differing:?}: run `make docs`");
}

#[test]
fn the_committed_page_of_operations_is_current() {
    let page = crate::api::operations::tests::openapi_page::render(&generate_openapi());
    interflow_testkit::docs::check_reference_page("http-api-operations.md", &page);
}

/// JSON with one path or schema per line, so that changes of it can be reviewed.
fn render(document: &Value) -> String {
    let mut document = document.clone();
    let mut lines = |section: &str| {
        let members = document.pointer_mut(section).unwrap().take();
        let line = |(name, value): (&String, &Value)| format!("{}: {value}", Value::from(name.as_str()));
        members.as_object().unwrap().iter().map(line).collect::<Vec<_>>().join(",\n")
    };
    let (paths, schemas) = (lines("/paths"), lines("/components/schemas"));
    let frame = serde_json::to_string_pretty(&document).unwrap() + "\n";
    let frame = frame.replace("\"paths\": null", &format!("\"paths\": {{\n{paths}\n}}"));
    frame.replace("\"schemas\": null", &format!("\"schemas\": {{\n{schemas}\n}}"))
}

fn visit<'v>(value: &'v Value, found: &mut impl FnMut(&'v str, &'v Value)) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, v)| {
            found(name, v);
            visit(v, found);
        }),
        Value::Array(list) => list.iter().for_each(|v| visit(v, found)),
        _ => {}
    }
}

#[test]
fn every_schema_is_used_and_named_once() {
    let document = generate_openapi();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut used = std::collections::BTreeSet::new();
    visit(&document, &mut |name, value| {
        if name == "$ref" {
            used.extend(value.as_str().unwrap().strip_prefix("#/components/schemas/"));
        }
    });
    assert_eq!(used, schemas.keys().map(String::as_str).collect());
    // The generator numbers types of the same name.
    let numbered: Vec<_> = schemas.keys().filter(|name| name.ends_with(char::is_numeric)).collect();
    assert!(numbered.is_empty(), "two types have one name: {numbered:?}");
}

/// Whether a path of the page, with placeholders in capitals, is one of the document; `…` stands for a beginning.
fn is_route(document: &Value, page_path: &str) -> bool {
    let path = page_path.split('?').next().unwrap_or_default();
    let is_placeholder = |part: &str| part.chars().all(|c| c.is_ascii_uppercase());
    let fits = |(template, part): (&str, &str)| template == part || template.starts_with('{') || is_placeholder(part);
    document["paths"].as_object().unwrap().keys().any(|template| {
        let mut template: Vec<&str> = template.trim_start_matches(ROOT).split('/').skip(1).collect();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if path.starts_with('…') {
            template.drain(..template.len().saturating_sub(parts.len()));
        }
        template.len() == parts.len() && template.into_iter().zip(parts).all(fits)
    })
}

#[test]
fn the_page_of_the_api_names_routes_that_exist() {
    let (document, page) = (generate_openapi(), include_str!("../../../../../../docs/reference/http-api.md"));
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let spans = cells.flat_map(|cell| cell.split('`').step_by(2));
    let named = spans.filter_map(|span| match span.split_once(' ') {
        Some((method, path)) if method.chars().all(|c| c.is_ascii_uppercase()) => Some(path),
        _ => span.starts_with('…').then_some(span),
    });
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 50, "{named:?}");
    let unknown: Vec<_> = named.iter().filter(|path| !is_route(&document, path)).collect();
    assert!(unknown.is_empty(), "docs/reference/http-api.md names {unknown:?}");
}

#[test]
fn descriptions_do_not_refer_to_the_source() {
    visit(&generate_openapi(), &mut |name, value| {
        let text = value.as_str().unwrap_or_default();
        assert!(name != "description" || !(text.contains("[`") || text.contains("::")), "{text}");
    });
}
