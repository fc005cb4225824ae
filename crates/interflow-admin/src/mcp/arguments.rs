//! The arguments of a tool call: checked against the schema that clients are shown, so that a wrong one is refused by
//! name rather than ignored.

use interflow_query::{Expr, Query, TermTest};
use interflow_types::Timestamp;
use serde_json::{Map, Value};

/// Characters of a wrong value that its refusal repeats.
const MAX_QUOTED: usize = 80;

/// Checks that the arguments are those of the schema: no unknown ones, the right types, none missing. Null counts as
/// absent, as some clients fill in optional arguments.
///
/// # Errors
/// A sentence that names the argument.
pub fn check(schema: &Value, arguments: &Value) -> Result<(), String> {
    let none = Map::new();
    let members = match arguments {
        Value::Null => &none,
        Value::Object(members) => members,
        other => return Err(format!("the arguments are {}: an object is expected", quoted(other))),
    };
    let properties = schema["properties"].as_object().unwrap_or(&none);
    for (name, value) in members.iter().filter(|(_, v)| !v.is_null()) {
        let Some(wanted) = properties.get(name) else {
            let names: Vec<_> = properties.keys().map(|k| format!("`{k}`")).collect();
            let names =
                if names.is_empty() { "it takes none".into() } else { format!("it takes {}", names.join(", ")) };
            return Err(format!("the tool has no argument `{name}`: {names}"));
        };
        if !fits(wanted, value) {
            return Err(format!("`{name}` is {}: {} is expected", quoted(value), expected(wanted)));
        }
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if members.get(name).is_none_or(Value::is_null) {
            let about = properties.get(name).and_then(|p| p["description"].as_str()).unwrap_or_default();
            return Err(format!("`{name}` is missing: {about}"));
        }
    }
    Ok(())
}

fn fits(wanted: &Value, value: &Value) -> bool {
    let typed = match wanted["type"].as_str() {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.as_u64().is_some_and(|n| n >= wanted["minimum"].as_u64().unwrap_or_default()),
        Some("array") => value.as_array().is_some_and(|list| list.iter().all(|item| fits(&wanted["items"], item))),
        _ => true,
    };
    typed && wanted["enum"].as_array().is_none_or(|allowed| allowed.contains(value))
}

fn expected(wanted: &Value) -> String {
    if let Some(allowed) = wanted["enum"].as_array() {
        return allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    }
    match wanted["type"].as_str().unwrap_or_default() {
        "integer" => format!("an integer of at least {}", wanted["minimum"].as_u64().unwrap_or_default()),
        "array" => "a list of strings".into(),
        "boolean" => "true or false".into(),
        other => format!("a {other}"),
    }
}

fn quoted(value: &Value) -> String {
    let text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(MAX_QUOTED) { format!("{}…", &text[..end]) } else { text }
}

pub fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

pub fn number(arguments: &Value, name: &str, default: u64, most: u64) -> usize {
    // Too much means the most allowed: a model need not know the bounds.
    arguments[name].as_u64().unwrap_or(default).clamp(1, most) as usize
}

pub fn offset(arguments: &Value) -> usize {
    arguments["offset"].as_u64().unwrap_or_default() as usize
}

/// `query`, with `since` and `until`.
pub fn query(arguments: &Value) -> Result<Query, String> {
    let text = text(arguments, "query");
    let mut query = Query::parse_strict(text).map_err(|e| e.render(text))?;
    for (name, operator) in [("since", ">="), ("until", "<")] {
        if let Some(time) = time_term(arguments, name, operator)? {
            query = query.and(time);
        }
    }
    Ok(query)
}

/// The moment that an argument names; `None` if it is absent.
pub fn moment(arguments: &Value, name: &str) -> Result<Option<Timestamp>, String> {
    let now = Timestamp::now().micros();
    Ok(time_term(arguments, name, ">=")?
        .and_then(|query| match query.expr() {
            Expr::Term(term) => match term.test {
                TermTest::Time(time) => time.bounds(now).map(|(first, _)| first),
                _ => None,
            },
            _ => None,
        })
        .map(Timestamp::from_micros))
}

fn time_term(arguments: &Value, name: &str, operator: &str) -> Result<Option<Query>, String> {
    let time = text(arguments, name).trim();
    if time.is_empty() {
        return Ok(None);
    }
    let wrong = || {
        format!(
            "`{name}` is \"{time}\": a date (2026-01-31), a time (2026-01-31T12:00, UTC or with +01:00) or how long ago (-2h) is expected"
        )
    };
    // Nothing that would be another term of the query.
    if !time.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | ':' | '.')) || time.contains("..") {
        return Err(wrong());
    }
    Query::parse(&format!("time:{operator}{time}")).map(Some).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_arguments_are_refused_by_name() {
        let schema = json!({
            "properties": {
                "id": {"type": "string", "description": "the flow's id"},
                "limit": {"type": "integer", "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
                "part": {"type": "string", "enum": ["request", "response"]},
            },
            "required": ["id"],
        });
        for (arguments, said) in [
            (json!({"id": "x", "limit": 5, "tags": ["a"], "part": "request"}), None),
            (json!({"id": "x", "limit": null}), None),
            (json!({"id": "x", "limit": "abc"}), Some("`limit` is \"abc\": an integer of at least 1 is expected")),
            (json!({"id": "x", "limit": 0}), Some("`limit` is 0: an integer of at least 1 is expected")),
            (json!({"id": "x", "limit": 1.5}), Some("`limit` is 1.5: an integer of at least 1 is expected")),
            (json!({"id": 4}), Some("`id` is 4: a string is expected")),
            (json!({"id": "x", "tags": ["a", 1]}), Some("`tags` is [\"a\",1]: a list of strings is expected")),
            (json!({"id": "x", "part": "both"}), Some("`part` is \"both\": \"request\" or \"response\" is expected")),
            (
                json!({"id": "x", "size": 1}),
                Some("the tool has no argument `size`: it takes `id`, `limit`, `tags`, `part`"),
            ),
            (json!({}), Some("`id` is missing: the flow's id")),
            (json!(null), Some("`id` is missing: the flow's id")),
            (json!([1]), Some("the arguments are [1]: an object is expected")),
        ] {
            assert_eq!(check(&schema, &arguments).err().as_deref(), said, "{arguments}");
        }
        let long = check(&schema, &json!({"id": ["x".repeat(1000)]})).unwrap_err();
        assert!(long.len() < 200 && long.contains('…'), "{long}");
    }

    #[test]
    fn times_narrow_the_query_and_cannot_add_other_terms() {
        let arguments = json!({"query": "host:a.test", "since": "-2h", "until": "2026-01-31T12:00+01:00"});
        let narrowed = query(&arguments).unwrap().to_string();
        assert_eq!(narrowed, Query::parse("host:a.test time:>=-2h time:<2026-01-31T12:00+01:00").unwrap().to_string());
        assert_eq!(moment(&json!({"since": "1970-01-02"}), "since").unwrap().unwrap().micros(), 86_400_000_000);
        for wrong in ["tomorrow", "-2h host:b", "2026-01-01..2026-02-01", "(-2h)", "abc"] {
            let said = query(&json!({"until": wrong})).unwrap_err();
            assert!(said.starts_with(&format!("`until` is \"{wrong}\"")), "{said}");
        }
    }
}
