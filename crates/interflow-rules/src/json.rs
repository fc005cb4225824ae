//! JSONPath (RFC 9535, without filters), JSON Patch (RFC 6902) and JSON Pointer (RFC 6901) over a document.

use std::fmt;

use serde_json::Value;

/// A path into a document: `$.a.b[0]`, `$['a b']`, `$.list[*].x`, `$..id`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    source: String,
    steps: Vec<JsonPathStep>,
}

#[derive(Clone, Debug, PartialEq)]
enum JsonPathStep {
    Key(String),
    Index(i64),
    Wildcard,
    /// The step at any depth.
    Descendant(Box<JsonPathStep>),
}

impl JsonPath {
    ///
    /// # Errors
    /// What is wrong with the path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad =
            |what: &str| format!("`{text}` is not a valid JSONPath ({what}): write it as $.key.list[0] or $..key");
        let mut rest = text.trim().strip_prefix('$').ok_or_else(|| bad("it begins with $"))?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let deep = rest.starts_with("..");
            if deep {
                rest = &rest[2..];
            }
            let step = if rest.starts_with('[') {
                parse_bracket(&mut rest).map_err(bad)?
            } else {
                if !deep {
                    rest = rest.strip_prefix('.').ok_or_else(|| bad("a key follows a dot"))?;
                }
                let len = rest.find(['.', '[']).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(len);
                rest = behind;
                match name {
                    "" => return Err(bad("a key is missing")),
                    "*" => JsonPathStep::Wildcard,
                    name => JsonPathStep::Key(name.to_owned()),
                }
            };
            steps.push(if deep { JsonPathStep::Descendant(Box::new(step)) } else { step });
        }
        Ok(Self { source: text.trim().to_owned(), steps })
    }

    /// All matching values.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            found.into_iter().for_each(|v| step.collect_matches(v, &mut next));
            found = next;
        }
        found
    }

    /// Sets every matching value; a missing last key is created. Returns the number of changes.
    pub fn set(&self, value: &mut Value, new: &Value) -> usize {
        let Some((last, before)) = self.steps.split_last() else {
            *value = new.clone();
            return 1;
        };
        let mut count = 0;
        visit_matches(value, before, &mut |v| count += last.assign(v, new));
        count
    }

    /// Removes every matching value. Returns how many.
    pub fn remove(&self, value: &mut Value) -> usize {
        let Some((last, before)) = self.steps.split_last() else {
            *value = Value::Null;
            return 1;
        };
        let mut count = 0;
        visit_matches(value, before, &mut |v| count += last.delete(v));
        count
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn parse_bracket(rest: &mut &str) -> Result<JsonPathStep, &'static str> {
    let inner = &rest[1..];
    if let Some(quote @ (b'\'' | b'"')) = inner.as_bytes().first() {
        let quote = char::from(*quote);
        let mut key = String::new();
        let mut chars = inner[1..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => key.extend(chars.next().map(|(_, c)| c)),
                c if c == quote => {
                    let behind = &inner[1 + i + 1..];
                    *rest = behind.strip_prefix(']').ok_or("a ] is missing")?;
                    return Ok(JsonPathStep::Key(key));
                }
                c => key.push(c),
            }
        }
        return Err("a quote is not closed");
    }
    let end = inner.find(']').ok_or("a ] is missing")?;
    let (text, behind) = (inner[..end].trim(), &inner[end + 1..]);
    *rest = behind;
    if text == "*" {
        return Ok(JsonPathStep::Wildcard);
    }
    text.parse().map(JsonPathStep::Index).map_err(|_| "expected a number, * or a quoted key between [ and ]")
}

fn index_of(list: &[Value], index: i64) -> Option<usize> {
    let at = if index < 0 { index + i64::try_from(list.len()).ok()? } else { index };
    usize::try_from(at).ok().filter(|i| *i < list.len())
}

impl JsonPathStep {
    fn collect_matches<'v>(&self, value: &'v Value, out: &mut Vec<&'v Value>) {
        match (self, value) {
            (Self::Key(key), Value::Object(map)) => out.extend(map.get(key)),
            (Self::Index(i), Value::Array(list)) => out.extend(index_of(list, *i).and_then(|i| list.get(i))),
            (Self::Wildcard, Value::Array(list)) => out.extend(list),
            (Self::Wildcard, Value::Object(map)) => out.extend(map.values()),
            (Self::Descendant(step), value) => {
                step.collect_matches(value, out);
                match value {
                    Value::Array(list) => list.iter().for_each(|v| self.collect_matches(v, out)),
                    Value::Object(map) => map.values().for_each(|v| self.collect_matches(v, out)),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn assign(&self, value: &mut Value, new: &Value) -> usize {
        match (self, value) {
            (Self::Key(key), Value::Object(map)) => {
                map.insert(key.clone(), new.clone());
                1
            }
            (Self::Index(i), Value::Array(list)) => match index_of(list, *i) {
                Some(i) => {
                    list[i] = new.clone();
                    1
                }
                None if usize::try_from(*i) == Ok(list.len()) => {
                    list.push(new.clone());
                    1
                }
                None => 0,
            },
            (Self::Wildcard, Value::Array(list)) => list.iter_mut().map(|v| *v = new.clone()).count(),
            (Self::Wildcard, Value::Object(map)) => map.values_mut().map(|v| *v = new.clone()).count(),
            (Self::Descendant(step), value) => {
                let mut count = 0;
                visit_descendants(value, &mut |v| {
                    // With `..`, a key is replaced but not created; otherwise every object would get one.
                    if let (Self::Key(key), Value::Object(map)) = (&**step, &*v)
                        && !map.contains_key(key)
                    {
                        return;
                    }
                    count += step.assign(v, new);
                });
                count
            }
            _ => 0,
        }
    }

    fn delete(&self, value: &mut Value) -> usize {
        match (self, value) {
            (Self::Key(key), Value::Object(map)) => usize::from(map.shift_remove(key).is_some()),
            (Self::Index(i), Value::Array(list)) => index_of(list, *i).map_or(0, |i| {
                list.remove(i);
                1
            }),
            (Self::Wildcard, Value::Array(list)) => std::mem::take(list).len(),
            (Self::Wildcard, Value::Object(map)) => std::mem::take(map).len(),
            (Self::Descendant(step), value) => {
                let mut count = 0;
                visit_descendants(value, &mut |v| count += step.delete(v));
                count
            }
            _ => 0,
        }
    }
}

/// Visits the value and everything in it, depth first.
fn visit_descendants(value: &mut Value, see: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|v| visit_descendants(v, see)),
        Value::Object(map) => map.values_mut().for_each(|v| visit_descendants(v, see)),
        _ => {}
    }
    see(value);
}

fn visit_matches(value: &mut Value, steps: &[JsonPathStep], see: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = steps.split_first() else { return see(value) };
    match (first, value) {
        (JsonPathStep::Key(key), Value::Object(map)) => {
            if let Some(v) = map.get_mut(key) {
                visit_matches(v, rest, see);
            }
        }
        (JsonPathStep::Index(i), Value::Array(list)) => {
            if let Some(v) = index_of(list, *i).and_then(|i| list.get_mut(i)) {
                visit_matches(v, rest, see);
            }
        }
        (JsonPathStep::Wildcard, Value::Array(list)) => list.iter_mut().for_each(|v| visit_matches(v, rest, see)),
        (JsonPathStep::Wildcard, Value::Object(map)) => map.values_mut().for_each(|v| visit_matches(v, rest, see)),
        (JsonPathStep::Descendant(step), value) => {
            let step = std::slice::from_ref(&**step);
            visit_descendants(value, &mut |v| {
                visit_matches(v, step, &mut |v| visit_matches(v, rest, see));
            });
        }
        _ => {}
    }
}

/// Applies a JSON Patch (RFC 6902) atomically.
///
/// # Errors
/// The first operation that fails, numbered from 0.
pub fn patch(document: &mut Value, operations: &[Value]) -> Result<(), String> {
    let mut work = document.clone();
    for (i, operation) in operations.iter().enumerate() {
        apply(&mut work, operation).map_err(|e| format!("operation {i}: {e}"))?;
    }
    *document = work;
    Ok(())
}

/// Validates a JSON Patch without a document.
///
/// # Errors
/// The first invalid operation.
pub fn check_patch(operations: &[Value]) -> Result<(), String> {
    for (i, o) in operations.iter().enumerate() {
        let op = o["op"].as_str().unwrap_or_default();
        let pointers: &[&str] = match op {
            "add" | "replace" | "test" if o.get("value").is_none() => {
                return Err(format!("operation {i}: `{op}` needs a value"));
            }
            "add" | "replace" | "test" | "remove" => &["path"],
            "move" | "copy" => &["path", "from"],
            other => {
                return Err(format!("operation {i}: unknown op `{other}`: add, remove, replace, move, copy or test"));
            }
        };
        for key in pointers {
            let text = o[*key].as_str().ok_or_else(|| format!("operation {i}: `{op}` needs `{key}`"))?;
            pointer(text).map_err(|e| format!("operation {i}: {e}"))?;
        }
    }
    Ok(())
}

fn apply(document: &mut Value, o: &Value) -> Result<(), String> {
    let path = pointer(o["path"].as_str().unwrap_or_default())?;
    let from = || pointer(o["from"].as_str().unwrap_or_default());
    let value = || o.get("value").cloned().unwrap_or_default();
    match o["op"].as_str().unwrap_or_default() {
        "add" => add(document, &path, value()),
        "remove" => remove(document, &path).map(drop),
        "replace" => {
            let at = resolve_pointer(document, &path).ok_or("there is nothing to replace")?;
            *at = value();
            Ok(())
        }
        "move" => {
            let from = from()?;
            if path.len() > from.len() && path.starts_with(&from) {
                return Err("a value cannot be moved into itself".into());
            }
            let value = remove(document, &from)?;
            add(document, &path, value)
        }
        "copy" => {
            let value = resolve_pointer(document, &from()?).ok_or("there is nothing to copy")?.clone();
            add(document, &path, value)
        }
        "test" => {
            let there = resolve_pointer(document, &path).ok_or("there is nothing to test")?;
            if *there == value() { Ok(()) } else { Err("the test does not hold".into()) }
        }
        _ => Err("unknown op".into()),
    }
}

/// Parses a JSON Pointer (RFC 6901).
fn pointer(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let rest = text.strip_prefix('/').ok_or_else(|| format!("`{text}` is not a JSON pointer: it must begin with /"))?;
    Ok(rest.split('/').map(|t| t.replace("~1", "/").replace("~0", "~")).collect())
}

fn resolve_pointer<'v>(document: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(document, |value, token| match value {
        Value::Object(map) => map.get_mut(token),
        Value::Array(list) => list_index(token, list.len()).ok().and_then(|i| list.get_mut(i)),
        _ => None,
    })
}

fn list_index(token: &str, len: usize) -> Result<usize, String> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    let index = token.parse().ok().filter(|_| plain).ok_or_else(|| format!("`{token}` is not an index"))?;
    if index <= len { Ok(index) } else { Err(format!("index {index} is beyond the end")) }
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((last, before)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    match resolve_pointer(document, before).ok_or("there is no place to add to")? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) => {
            let index = if last == "-" { list.len() } else { list_index(last, list.len())? };
            list.insert(index, value);
        }
        _ => return Err("there is no place to add to".into()),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, String> {
    let Some((last, before)) = path.split_last() else { return Ok(std::mem::take(document)) };
    let gone = match resolve_pointer(document, before) {
        Some(Value::Object(map)) => map.shift_remove(last),
        Some(Value::Array(list)) => {
            let index = list_index(last, list.len())?;
            (index < list.len()).then(|| list.remove(index))
        }
        _ => None,
    };
    gone.ok_or_else(|| "there is nothing to remove".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_set_and_remove() {
        let doc = json!({"a": {"b": [1, 2, {"id": 7}]}, "id": 1, "x y": true});
        for (path, found, set, removed) in [
            (
                "$.a.b[0]",
                json!([1]),
                json!({"a": {"b": [0, 2, {"id": 7}]}, "id": 1, "x y": true}),
                json!({"a": {"b": [2, {"id": 7}]}, "id": 1, "x y": true}),
            ),
            (
                "$.a.b[-1].id",
                json!([7]),
                json!({"a": {"b": [1, 2, {"id": 0}]}, "id": 1, "x y": true}),
                json!({"a": {"b": [1, 2, {}]}, "id": 1, "x y": true}),
            ),
            (
                "$..id",
                json!([1, 7]),
                json!({"a": {"b": [1, 2, {"id": 0}]}, "id": 0, "x y": true}),
                json!({"a": {"b": [1, 2, {}]}, "x y": true}),
            ),
            (
                "$['x y']",
                json!([true]),
                json!({"a": {"b": [1, 2, {"id": 7}]}, "id": 1, "x y": 0}),
                json!({"a": {"b": [1, 2, {"id": 7}]}, "id": 1}),
            ),
            (
                "$.a.b[*]",
                json!([1, 2, {"id": 7}]),
                json!({"a": {"b": [0, 0, 0]}, "id": 1, "x y": true}),
                json!({"a": {"b": []}, "id": 1, "x y": true}),
            ),
            ("$.new", json!([]), json!({"a": {"b": [1, 2, {"id": 7}]}, "id": 1, "x y": true, "new": 0}), doc.clone()),
            ("$.id.none", json!([]), doc.clone(), doc.clone()),
        ] {
            let p = JsonPath::parse(path).unwrap();
            assert_eq!(json!(p.find(&doc)), found, "{path}");
            let (mut with, mut without) = (doc.clone(), doc.clone());
            p.set(&mut with, &json!(0));
            p.remove(&mut without);
            assert_eq!((with, without), (set, removed), "{path}");
        }
    }

    #[test]
    fn odd_paths_are_refused() {
        for path in ["a", "$a", "$.", "$[", "$[x]", "$['a", "$.a..", "$[?(@.x)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn patches_go_whole_or_not_at_all() {
        // From RFC 6902, appendix A.
        for (doc, ops, after) in [
            (
                json!({"foo": "bar"}),
                json!([{"op": "add", "path": "/baz", "value": "qux"}]),
                Some(json!({"baz": "qux", "foo": "bar"})),
            ),
            (
                json!({"foo": ["bar", "baz"]}),
                json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
                Some(json!({"foo": ["bar", "qux", "baz"]})),
            ),
            (
                json!({"foo": ["bar"]}),
                json!([{"op": "add", "path": "/foo/-", "value": ["abc"]}]),
                Some(json!({"foo": ["bar", ["abc"]]})),
            ),
            (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/b"}]), Some(json!({"a": 1}))),
            (
                json!({"foo": {"bar": "baz", "w": "f"}, "q": {"c": "g"}}),
                json!([{"op": "move", "from": "/foo/w", "path": "/q/t"}]),
                Some(json!({"foo": {"bar": "baz"}, "q": {"c": "g", "t": "f"}})),
            ),
            (
                json!({"a~/": 1}),
                json!([{"op": "copy", "from": "/a~0~1", "path": "/b"}]),
                Some(json!({"a~/": 1, "b": 1})),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "replace", "path": "/a", "value": 2}, {"op": "test", "path": "/a", "value": 3}]),
                None,
            ),
            (json!({"a": 1}), json!([{"op": "add", "path": "/b/c", "value": 1}]), None),
            (json!({"a": [1]}), json!([{"op": "remove", "path": "/a/01"}]), None),
            (json!({"a": {}}), json!([{"op": "move", "from": "/a", "path": "/a/b"}]), None),
        ] {
            let ops = ops.as_array().unwrap();
            assert!(check_patch(ops).is_ok(), "{ops:?}");
            let mut got = doc.clone();
            let done = patch(&mut got, ops);
            assert_eq!(done.is_ok(), after.is_some(), "{ops:?}: {done:?}");
            assert_eq!(got, after.unwrap_or(doc), "{ops:?}");
        }
        assert!(check_patch(&[json!({"op": "ad", "path": "/a", "value": 1})]).unwrap_err().contains("unknown op"));
        assert!(check_patch(&[json!({"op": "add", "path": "a", "value": 1})]).unwrap_err().contains("begin with /"));
    }
}
