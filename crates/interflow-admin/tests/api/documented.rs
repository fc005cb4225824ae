//! The OpenAPI document against the implementation: every path exists, and responses match their schemas.

use serde_json::json;

use super::*;

/// The members of an object that a schema knows.
#[derive(Clone, Default)]
struct KnownMembers {
    names: Vec<String>,
    any: bool,
}

/// The first violation of a schema by a value. Members that the schema does not name are violations too.
fn violation(all: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let mut known = KnownMembers::default();
    let found = violation_of(all, schema, value, at, &mut known);
    let mut names =
        value.as_object().into_iter().flat_map(|m| m.keys()).filter(|n| !known.any && !known.names.contains(n));
    found.or_else(|| names.next().map(|name| format!("{at}: {name} is not documented")))
}

fn violation_of(all: &Value, schema: &Value, value: &Value, at: &str, known: &mut KnownMembers) -> Option<String> {
    let Some(keywords) = schema.as_object().filter(|s| s.keys().any(|k| k != "description")) else {
        known.any = true;
        return None;
    };
    if let Some(name) = keywords.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next()) {
        return violation_of(all, &all[name], value, at, known);
    }
    for part in keywords.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        if let Some(wrong) = violation_of(all, part, value, at, known) {
            return Some(wrong);
        }
    }
    for choices in ["anyOf", "oneOf"].iter().filter_map(|k| keywords.get(*k)?.as_array()) {
        let mut tried = Vec::new();
        let fitting = choices.iter().find_map(|choice| {
            let mut with_choice = known.clone();
            match violation_of(all, choice, value, at, &mut with_choice) {
                None => Some(with_choice),
                Some(wrong) => {
                    tried.push(wrong);
                    None
                }
            }
        });
        let Some(fitting) = fitting else { return Some(format!("{at}: {tried:?}")) };
        *known = fitting;
    }
    let constants = keywords.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let constants = constants.or_else(|| keywords.get("const").map(std::slice::from_ref));
    if constants.is_some_and(|values| !values.contains(value)) {
        return Some(format!("{at}: {value} is none of {constants:?}"));
    }
    let is_of = |name: &Value| match name.as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        _ => value.is_object(),
    };
    let types = keywords.get("type").map(|t| t.as_array().map_or_else(|| std::slice::from_ref(t), Vec::as_slice));
    if types.is_some_and(|types| !types.iter().any(is_of)) {
        return Some(format!("{at}: {value} is not a {types:?}"));
    }
    if let Some(list) = value.as_array() {
        let pair = keywords.get("prefixItems").and_then(Value::as_array);
        return list.iter().enumerate().find_map(|(i, v)| {
            let item = pair.and_then(|p| p.get(i)).or_else(|| keywords.get("items"))?;
            violation(all, item, v, &format!("{at}[{i}]"))
        });
    }
    let map = value.as_object()?;
    let required = keywords.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = required.into_iter().find(|name| !map.contains_key(*name)) {
        return Some(format!("{at}: {missing} is missing"));
    }
    let properties = keywords.get("properties").and_then(Value::as_object);
    known.names.extend(properties.into_iter().flat_map(|p| p.keys().cloned()));
    let others = keywords.get("additionalProperties").filter(|o| **o != false);
    known.any |= others.is_some();
    map.iter().find_map(|(name, v)| {
        let schema = properties.and_then(|p| p.get(name)).or(others)?;
        violation(all, schema, v, &format!("{at}.{name}"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_match_the_documented_schemas() {
    let it = Instance::start().await;
    it.through("/sse?count=2").await;
    it.post_through("/echo", "Authorization: Bearer x\r\nContent-Type: text/plain\r\n", "hello").await;
    client::connect_tunnel(it.engine.proxy_addresses()[0], &it.origin.authority(), None).await.unwrap();
    let document = it.json("/openapi.json").await;
    let schemas = &document["components"]["schemas"];
    let ids = it.ids().await;
    let posted = it.json("/flows?query=method:POST").await["flows"][0]["id"].as_str().unwrap().to_owned();
    let streamed = it.json("/flows?query=path:/sse").await["flows"][0]["id"].as_str().unwrap().to_owned();
    let mut asked = vec![
        ("get", "/flows".to_owned(), json!({})),
        ("get", "/flows/count".into(), json!({})),
        ("get", "/flows/values?key=host".into(), json!({})),
        ("get", format!("/flows/details?flows={posted}"), json!({})),
        ("get", "/stats".into(), json!({})),
        ("get", "/config".into(), json!({})),
        ("get", "/ca".into(), json!({})),
        ("get", "/setup".into(), json!({})),
        ("get", "/passthrough".into(), json!({})),
        ("get", "/privacy".into(), json!({})),
        ("post", "/privacy/try".into(), json!({"text": "mail anna@firm.com"})),
        ("get", "/query/complete?q=sta".into(), json!({})),
        ("get", "/query/check?q=status:4xx".into(), json!({})),
        ("get", "/query/check?q=stats:4".into(), json!({})),
        ("get", "/query/help".into(), json!({})),
        ("get", format!("/flows/{streamed}/messages"), json!({})),
        ("get", format!("/diff?a={posted}&b={streamed}"), json!({})),
        ("patch", format!("/flows/{posted}"), json!({"add_tags": ["x"], "comment": "y"})),
        ("post", format!("/flows/{posted}/replay"), json!({})),
        ("post", format!("/flows/{posted}/replay"), json!({"url": "http://127.0.0.1:1/"})),
        ("get", "/flows?query=tag:replay".into(), json!({})),
        ("post", "/flows/delete".into(), json!({"ids": [streamed]})),
        ("post", "/flows/prune".into(), json!({"query": "host:nowhere.test"})),
    ];
    asked.extend(
        ids.iter().map(|id| ("get", format!("/flows/{id}"), json!({}))).filter(|(_, p, _)| !p.contains(&streamed)),
    );
    for (method, path, input) in asked {
        let template = template(&document, &path);
        let body = if method == "get" { String::new() } else { input.to_string() };
        let fields = [("Content-Type", "application/json")];
        let answer = it.call(&method.to_uppercase(), &path, &fields, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        let schema = &document["paths"][&template][method]["responses"]["200"]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {template}");
        assert_eq!(violation(schemas, schema, &answer.json(), &path), None);
    }
    let error = it.get("/flows?query=stats:4").await.json();
    assert_eq!(violation(schemas, &schemas["ErrorBody"], &error, "error"), None);
}

/// Sends a request and validates the response against its schema.
pub async fn assert_documented(it: &Instance, path: &str, input: Option<Value>) {
    let document = it.json("/openapi.json").await;
    let method = if input.is_some() { "post" } else { "get" };
    let answer = match input {
        Some(input) => it.post(path, input).await.json(),
        None => it.json(path).await,
    };
    let template = template(&document, path);
    let schema = &document["paths"][&template][method]["responses"]["200"]["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {template}");
    assert_eq!(violation(&document["components"]["schemas"], schema, &answer, path), None);
}

/// The path template that matches a path.
fn template(document: &Value, path: &str) -> String {
    let wanted: Vec<&str> = path.split('?').next().unwrap().split('/').skip(1).collect();
    let fits = |template: &str| {
        let parts: Vec<&str> = template.trim_start_matches("/api/v1/").split('/').collect();
        parts.len() == wanted.len() && parts.iter().zip(&wanted).all(|(t, w)| t == w || t.starts_with('{'))
    };
    let mut found: Vec<&String> = document["paths"].as_object().unwrap().keys().filter(|t| fits(t)).collect();
    // A literal segment takes precedence over a parameter.
    found.sort_by_key(|t| t.matches('{').count());
    found[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_path_exists() {
    let it = Instance::start().await;
    let document = it.json("/openapi.json").await;
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path
            .replace("{id}", "01JD3V7T2M00000000000000AB")
            .replace("{side}", "request")
            .replace("{index}", "0")
            .replace("{conversation}", "last");
        for method in operations.as_object().unwrap().keys() {
            let (host, bearer) = (it.admin.to_string(), format!("Bearer {TOKEN}"));
            let fields = [("Host", host.as_str()), ("Authorization", &bearer), ("Content-Type", "application/json")];
            let answer = it.plain(&method.to_uppercase(), &path, &fields, b"").await;
            assert!(answer.status != 405, "{method} {path}");
            assert!(answer.status != 404 || kind(&answer) == "not_found", "{method} {path}: {}", answer.text());
            seen += 1;
        }
    }
    assert!(seen >= 25, "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_endpoints_do_not_reveal_secrets() {
    let via = "http://user:hunter3@proxy.test:3128".to_owned();
    let it = Instance::with(Origin::http(), Setup { insecure_proxy: Some(via), ..Setup::default() }).await;
    it.through("/status/200").await;
    let config = it.json("/config").await.to_string();
    assert!(config.contains("***@proxy.test:3128") && !config.contains("hunter"), "{config}");
    let ca = it.json("/ca").await;
    assert!(ca["pem"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(!ca.to_string().contains("PRIVATE"));
    let stats = it.json("/stats").await;
    assert_eq!((&stats["engine"]["requests"], &stats["store"]["flows"]), (&json!(1), &json!(1)));
    assert_eq!(it.call("DELETE", "/passthrough", &[], b"").await.status, 204);
    assert_eq!(it.json("/passthrough").await, json!({"clients": []}));
    assert_eq!(it.json("/query/check?q=statu:4").await["ok"], false);
    let bearer = format!("Bearer {TOKEN}");
    let host = it.admin.to_string();
    let metrics = it.plain("GET", "/metrics", &[("Host", &host), ("Authorization", &bearer)], b"").await.text();
    for line in ["interflow_recorder_flows_total 1", "interflow_recorder_stored_flows 1", "interflow_recorder_up 1"] {
        assert!(metrics.lines().any(|l| l == line), "{line} in\n{metrics}");
    }
}
