//! The part of JSON Schema used by the HAR schema; other keywords are an error.

use serde_json::Value;

/// The HAR 1.2 schema.
pub fn har() -> Value {
    serde_json::from_str(include_str!("data/har-1.2.schema.json")).unwrap()
}

/// Every location where the document violates the schema, with the violated rule.
pub fn violations(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, document, "$", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/definitions/").unwrap();
                check(root, &root["definitions"][name], value, at, found);
            }
            "type" if !is_type(rule.as_str().unwrap(), value) => found.push(format!("{at}: is not a {rule}")),
            "required" => {
                let missing = rule.as_array().unwrap().iter().filter(|n| value.get(n.as_str().unwrap()).is_none());
                found.extend(missing.map(|n| format!("{at}: lacks {n}")));
            }
            "properties" => {
                for (name, inner) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(root, inner, member, &format!("{at}.{name}"), found);
                    }
                }
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}[{i}]"), found);
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => found.push(format!("{at}: is not in {rule}")),
            "minimum" if value.as_f64().is_some_and(|n| n < rule.as_f64().unwrap()) => {
                found.push(format!("{at}: is below {rule}"));
            }
            "pattern" => {
                let regex = regex::Regex::new(rule.as_str().unwrap()).unwrap();
                if value.as_str().is_some_and(|text| !regex.is_match(text)) {
                    found.push(format!("{at}: {value} does not fit {rule}"));
                }
            }
            "type" | "enum" | "minimum" | "$schema" | "title" | "definitions" => {}
            other => panic!("the schema uses '{other}', which is not checked here"),
        }
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        other => panic!("no type {other}"),
    }
}

#[test]
fn har_schema_rejects_invalid_documents() {
    let entry = |change: fn(&mut Value)| {
        let mut har = serde_json::json!({"log": {"version": "1.2", "creator": {"name": "a", "version": "1"}, "entries": [{
            "startedDateTime": "2026-01-01T00:00:00Z", "time": 1.5, "cache": {},
            "request": {"method": "GET", "url": "http://a/", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
                "queryString": [], "headersSize": -1, "bodySize": 0},
            "response": {"status": 200, "statusText": "", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
                "content": {"size": 0, "mimeType": ""}, "redirectURL": "", "headersSize": -1, "bodySize": 0},
            "timings": {"send": 0, "wait": 0, "receive": 0}
        }]}});
        change(&mut har["log"]["entries"][0]);
        violations(&self::har(), &har)
    };
    assert_eq!(entry(|_| {}), Vec::<String>::new());
    for change in [
        |e: &mut Value| e["time"] = (-1).into(),
        |e: &mut Value| e["startedDateTime"] = "yesterday".into(),
        |e: &mut Value| drop(e["request"].as_object_mut().unwrap().remove("bodySize")),
        |e: &mut Value| e["response"]["status"] = "200".into(),
        |e: &mut Value| e["response"]["content"]["encoding"] = "gzip".into(),
        |e: &mut Value| e["request"]["headers"] = serde_json::json!([{"name": "a"}]),
        |e: &mut Value| e["serverIPAddress"] = "[::1]".into(),
    ] {
        assert_eq!(entry(change).len(), 1);
    }
}
