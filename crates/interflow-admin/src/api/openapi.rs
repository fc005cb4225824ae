//! The OpenAPI 3.1 document, generated from the table of routes.

use axum::Json;
use serde_json::{Map, Value, json};

use super::routes::{self, ApiContent, ApiRoute};
use super::{ROOT, schemas};

/// `GET /openapi.json`
pub(crate) async fn document() -> Json<Value> {
    let mut paths = Map::new();
    for route in routes::all_routes() {
        let path = paths.entry(format!("{ROOT}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(&route);
    }
    Json(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Interflow",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Recorded flows, live events, and the running instance. Times are microseconds: since the Unix \
                epoch for moments, plain for durations. Bytes that are no UTF-8 stand as {\"base64\": \"…\"}.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "the token in admin.token of the data folder"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "interflow_session_{port}", "description": "a session, set by POST /login and GET /?token=…"},
            },
            "schemas": schemas::all_schemas(),
        },
    }))
}

fn operation(route: &ApiRoute) -> Value {
    let mut parameters = path_parameters(route.path);
    parameters.extend(route.params.iter().map(|p| {
        json!({"name": p.name, "in": "query", "required": p.required, "description": p.doc, "schema": {"type": p.kind}})
    }));
    let mut answer = json!({"description": route.summary});
    if let Some(content) = route.answer.content {
        answer["content"] = media(content);
    }
    let mut responses = Map::new();
    responses.insert(route.answer.status.to_string(), answer);
    responses.insert(
        "default".into(),
        json!({"description": "an error", "content": media(ApiContent { media: "application/json", schema: Some("Error") })}),
    );
    let mut operation = json!({"summary": route.summary, "parameters": parameters, "responses": responses});
    if let Some(input) = route.input {
        operation["requestBody"] = json!({"content": media(input)});
    }
    operation
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|p| p.split_once('}')).map(|(name, _)| name);
    names
        .map(|name| {
            let schema = match name {
                "side" => json!({"type": "string", "enum": ["request", "response"]}),
                "index" => json!({"type": "integer", "minimum": 0}),
                "conversation" => {
                    json!({"type": "string", "description": "a conversation's id, its beginning, or `last`"})
                }
                _ => json!({"type": "string", "description": "a flow's id"}),
            };
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        })
        .collect()
}

fn media(content: ApiContent) -> Value {
    let schema = match content.schema {
        Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        None => json!({}),
    };
    let mut media = Map::new();
    media.insert(content.media.to_owned(), json!({ "schema": schema }));
    media.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }

    #[tokio::test]
    async fn every_route_and_every_schema_it_names_are_documented() {
        let Json(document) = document().await;
        for route in routes::all_routes() {
            let operation =
                &document["paths"][format!("{ROOT}{}", route.path)][route.method.as_str().to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary, "{} {}", route.method, route.path);
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }

    #[tokio::test]
    async fn every_schema_is_used() {
        let Json(document) = document().await;
        let mut found = Vec::new();
        references(&document, &mut found);
        for (name, _) in document["components"]["schemas"].as_object().unwrap() {
            assert!(found.iter().any(|r| r.ends_with(&format!("/{name}"))), "{name}");
        }
    }
}
