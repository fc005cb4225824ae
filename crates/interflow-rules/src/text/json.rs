//! JSONPath (RFC 9535) and JSON Patch (RFC 6902) over a document whose members keep their order.

use std::fmt;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json_path::JsonPath as Query;

use super::json_document::{JsonDocument, JsonFailure};
use super::json_steps::{PathStep, count_descents_and_roots, split};

/// A path into a document: `$.a.b[0]`, `$['a b']`, `$.list[?@.x > 1].y`, `$..id`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    source: String,
    query: Query,
    /// The path as steps; `None` if a filter in it refers to the whole document.
    steps: Option<Vec<PathStep>>,
    /// The parent's path and the key, if the path ends with a key after other than `..`.
    last_key: Option<(Query, String)>,
}

impl JsonPath {
    /// Parses a path such as `$.a[0].b`.
    ///
    /// # Errors
    /// What is wrong with the path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let query = Query::parse(text).map_err(|e| {
            format!(
                "`{text}` is not a valid JSONPath ({e}): write it as $.key.list[0] or $..key, and a key with other \
                 characters than letters, digits and _ as $['a-key']"
            )
        })?;
        Ok(Self { source: text.to_owned(), query, steps: split(text), last_key: split_last_key(text) })
    }

    /// The values that it selects, as text: a string itself, anything else as JSON.
    ///
    /// # Errors
    /// It exceeds a bound, or `stop` was set.
    pub(crate) fn select(&self, document: &JsonDocument, stop: &AtomicBool) -> Result<Vec<Bytes>, JsonFailure> {
        match &self.steps {
            Some(steps) => document.select(steps, stop),
            None => {
                let (descents, roots) = count_descents_and_roots(&self.source);
                document.select_in_tree(&self.query, descents, roots)
            }
        }
    }

    /// Checks that [`set`](Self::set) and [`remove`](Self::remove) end in a bounded time.
    ///
    /// # Errors
    /// A document for which that might take too long.
    pub(crate) fn check_edit(&self, document: &JsonDocument) -> Result<(), JsonFailure> {
        let (descents, roots) = count_descents_and_roots(&self.source);
        document.check_tree_search(descents, roots)
    }

    /// Sets every matching value; a missing last key is created. Returns the number of changes.
    pub fn set(&self, value: &mut Value, new: &Value) -> usize {
        // The parents are looked up, since the last key need not exist yet.
        let mut count = 0;
        for at in pointers(self.last_key.as_ref().map_or(&self.query, |(parent, _)| parent), value) {
            match (value.pointer_mut(&at), &self.last_key) {
                (Some(Value::Object(map)), Some((_, key))) => {
                    map.insert(key.clone(), new.clone());
                }
                (Some(there), None) => *there = new.clone(),
                _ => continue,
            }
            count += 1;
        }
        count
    }

    /// Removes every matching value. Returns how many.
    pub fn remove(&self, value: &mut Value) -> usize {
        pointers(&self.query, value).iter().filter(|at| remove(value, at).is_ok()).count()
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

/// The key that a path ends with, and the path before it; `None` if it ends with an index, a wildcard or a filter.
fn split_last_key(text: &str) -> Option<(Query, String)> {
    let (parent, key) = match text.strip_suffix("']").or_else(|| text.strip_suffix("\"]")) {
        Some(open) => open.rsplit_once(['\'', '"']).and_then(|(parent, key)| Some((parent.strip_suffix('[')?, key)))?,
        None => text.rsplit_once('.').filter(|(_, key)| !key.ends_with([']', '*']))?,
    };
    Some((Query::parse(parent).ok()?, key.to_owned()))
}

/// JSON Pointers (RFC 6901) to the matches, each once: what is inside of another or behind it in a list comes first, so
/// that those left stay true when one is changed.
fn pointers(query: &Query, value: &Value) -> Vec<String> {
    let nodes = query.query_located(value);
    let mut places: Vec<_> = nodes.locations().collect();
    places.sort_by(|a, b| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
    places.dedup();
    places.into_iter().map(|place| place.to_json_pointer()).collect()
}

/// One operation of a JSON Patch. Not `json-patch`'s: that removes a key by moving the object's last into its place.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    Add { path: Pointer, value: Value },
    Remove { path: Pointer },
    Replace { path: Pointer, value: Value },
    Move { from: Pointer, path: Pointer },
    Copy { from: Pointer, path: Pointer },
    Test { path: Pointer, value: Value },
}

/// A JSON Pointer (RFC 6901).
#[derive(Clone, Debug)]
pub struct Pointer(String);

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() || text.starts_with('/') {
            return Ok(Self(text));
        }
        Err(serde::de::Error::custom(format!("`{text}` is not a JSON pointer: it must begin with /")))
    }
}

/// Reads a JSON Patch (RFC 6902).
///
/// # Errors
/// The first invalid operation, numbered from 0.
pub fn parse_patch(operations: &[Value]) -> Result<Vec<PatchOperation>, String> {
    let one = |(i, o)| PatchOperation::deserialize(o).map_err(|e| format!("operation {i}: {e}"));
    operations.iter().enumerate().map(one).collect()
}

/// Applies a JSON Patch atomically: the document is changed only if all operations succeed.
///
/// # Errors
/// The first operation that fails, numbered from 0.
pub fn patch(document: &mut Value, operations: &[PatchOperation]) -> Result<(), String> {
    let mut work = document.clone();
    for (i, operation) in operations.iter().enumerate() {
        operation.apply(&mut work).map_err(|e| format!("operation {i}: {e}"))?;
    }
    *document = work;
    Ok(())
}

impl PatchOperation {
    fn apply(&self, document: &mut Value) -> Result<(), String> {
        match self {
            Self::Add { path, value } => add(document, path, value.clone()),
            Self::Remove { path } => remove(document, &path.0).map(drop),
            Self::Replace { path, value } => {
                *document.pointer_mut(&path.0).ok_or("there is nothing to replace")? = value.clone();
                Ok(())
            }
            Self::Move { from, path } if path.0.strip_prefix(&from.0).is_some_and(|inner| inner.starts_with('/')) => {
                Err("a value cannot be moved into itself".into())
            }
            Self::Move { from, path } => {
                let value = remove(document, &from.0)?;
                add(document, path, value)
            }
            Self::Copy { from, path } => {
                let value = document.pointer(&from.0).ok_or("there is nothing to copy")?.clone();
                add(document, path, value)
            }
            Self::Test { path, value } => match document.pointer(&path.0) {
                Some(there) if there == value => Ok(()),
                Some(_) => Err("the test does not hold".into()),
                None => Err("there is nothing to test".into()),
            },
        }
    }
}

/// `add` (RFC 6902 4.1): sets a member, or inserts into a list; `-` is the end of the list.
fn add(document: &mut Value, path: &Pointer, value: Value) -> Result<(), String> {
    let Some((parent, last)) = split_pointer(&path.0) else {
        *document = value;
        return Ok(());
    };
    match document.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.insert(last, value);
        }
        Some(Value::Array(list)) => {
            let index = if last == "-" { list.len() } else { list_index(&last, list.len())? };
            list.insert(index, value);
        }
        _ => return Err("there is no place to add to".into()),
    }
    Ok(())
}

/// Removes a value and returns it; the order of the other members stays.
fn remove(document: &mut Value, pointer: &str) -> Result<Value, String> {
    let Some((parent, last)) = split_pointer(pointer) else { return Ok(std::mem::take(document)) };
    let gone = match document.pointer_mut(parent) {
        Some(Value::Object(map)) => map.shift_remove(&last),
        Some(Value::Array(list)) => {
            let index = list_index(&last, list.len())?;
            (index < list.len()).then(|| list.remove(index))
        }
        _ => None,
    };
    gone.ok_or_else(|| "there is nothing to remove".into())
}

/// The parent's pointer and the last key or index, unescaped (RFC 6901 4); `None` for the whole document.
fn split_pointer(pointer: &str) -> Option<(&str, String)> {
    let (parent, last) = pointer.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

/// An index without leading zeros (RFC 6901 4), up to the length, since `add` may append.
fn list_index(token: &str, len: usize) -> Result<usize, String> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    let index = token.parse().ok().filter(|_| plain).ok_or_else(|| format!("`{token}` is not an index"))?;
    if index <= len { Ok(index) } else { Err(format!("index {index} is beyond the end")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found_by(path: &JsonPath, document: &Value) -> Vec<String> {
        let read = JsonDocument::read(document.to_string().into()).unwrap();
        let texts = path.select(&read, &AtomicBool::new(false)).unwrap();
        texts.iter().map(|t| String::from_utf8_lossy(t).into_owned()).collect()
    }

    fn texts_of(values: &Value) -> Vec<String> {
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned);
        values.as_array().unwrap().iter().map(text).collect()
    }

    #[test]
    fn paths_select_what_the_standard_says() {
        let doc = json!({"a": {"b": [1, 2, {"id": 7, "a": "x y"}], "it's \"q\"": 4, "\u{e9}": [5]}, "id": 1, "n": {"a": {"a": 1e2}},
            "list": [{"k": "ab", "v": 1}, {"k": "b", "v": 2}, [3], null]});
        for path in [
            "$",
            "$.a.b[0]",
            "$ .a ['b'] [0]",
            "$.a['it\\'s \"q\"']",
            "$.a[\"it's \\\"q\\\"\"]",
            "$.a.\u{e9}[0]",
            "$.a['\\u00e9']",
            "$.*",
            "$[*]",
            "$..*",
            "$..a",
            "$..['a','id']",
            "$..[0]",
            "$.list[-1]",
            "$.list[-9]",
            "$.list[9]",
            "$.list[1:]",
            "$.list[:-1]",
            "$.list[::2]",
            "$.list[::-1]",
            "$.list[3:0:-2]",
            "$.list[0:0]",
            "$.list[::0]",
            "$.list[1, 0, 1]",
            "$.list[?@.v > 1].k",
            "$.list[?@.k]",
            "$.list[?match(@.k, 'a.*')]",
            "$.list[?search(@.k, 'b')].v",
            "$[?@.b]",
            "$..[?@.a]",
            "$.list[?@[0] == 3 || @.v == 1]",
            "$.list[?@.v == $.id]",
            "$.list[?@.k == '$']",
            "$.a.b[?@..id]",
            "$['a']['b'][2]['a']",
            "$.id.x",
            "$.list.k",
            "$.n..a.a",
        ] {
            let p = JsonPath::parse(path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(found_by(&p, &doc), texts_of(&json!(p.query.query(&doc).all())), "{path}");
        }
        // Each value once: the standard counts the ways to it.
        let nested = json!({"a": {"a": {"a": {"a": 1}}}});
        assert_eq!(found_by(&JsonPath::parse("$..a..a").unwrap(), &nested).len(), 3);
    }

    #[test]
    fn hostile_documents_and_paths_end_at_a_bound() {
        let nest = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
        let select = |path: &str, text: String| {
            JsonDocument::read(text.into())
                .and_then(|doc| JsonPath::parse(path).unwrap().select(&doc, &AtomicBool::new(false)))
        };
        assert_eq!(select("$..a..a..a..a", nest(250)).unwrap().len(), 247);
        for (path, text) in [
            ("$.a", nest(json_depth() + 1)),
            ("$[0]", format!("[0{}]", ",0".repeat(5 << 20))),
            ("$..*", format!("{}\"{}\"{}", "[".repeat(100), "x".repeat(1 << 20), "]".repeat(100))),
            ("$..[?@..a..a..a..a]", nest(120)),
            ("$..[?@.a == $.a]", nest(120)),
            ("$[?search(@, 'x')]", format!("[0{}]", ",0".repeat(100_000))),
        ] {
            assert!(matches!(select(path, text), Err(JsonFailure::Exceeds(_))), "{path}");
        }
        assert!(matches!(select("$.a", "{\"a\":}".into()), Err(JsonFailure::NotJson(_))));
        let stopped = JsonDocument::read(format!("[0{}]", ",0".repeat(100_000)).into())
            .and_then(|doc| JsonPath::parse("$[*]").unwrap().select(&doc, &AtomicBool::new(true)));
        assert!(matches!(stopped, Err(JsonFailure::Exceeds(_))), "the client left");
    }

    fn json_depth() -> usize {
        interflow_codec::json::MAX_DEPTH
    }

    #[test]
    fn names_and_strings_are_compared_without_escapes_and_no_member_is_preferred_to_its_namesake() {
        let doc = JsonDocument::read(r#"{"r\u006fle": "us\u0065r", "x": "\ud800", "role": "admin"}"#.into()).unwrap();
        let select = |path: &str| JsonPath::parse(path).unwrap().select(&doc, &AtomicBool::new(false));
        assert!(matches!(select("$.role"), Err(JsonFailure::Exceeds(_))));
        assert_eq!(select("$.*").unwrap()[..2], ["user", "\\ud800"]);
        let doc = JsonDocument::read(r#"{"r\u006fle": "us\u0065r"}"#.into()).unwrap();
        assert_eq!(JsonPath::parse("$.role").unwrap().select(&doc, &AtomicBool::new(false)).unwrap(), ["user"]);
    }

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
            (
                "$.a.b[?@.id == 7].id",
                json!([7]),
                json!({"a": {"b": [1, 2, {"id": 0}]}, "id": 1, "x y": true}),
                json!({"a": {"b": [1, 2, {}]}, "id": 1, "x y": true}),
            ),
            (
                "$.a.b[1::-1]",
                json!([2, 1]),
                json!({"a": {"b": [0, 0, {"id": 7}]}, "id": 1, "x y": true}),
                json!({"a": {"b": [{"id": 7}]}, "id": 1, "x y": true}),
            ),
            (
                "$.a.b[0, 0]",
                json!([1, 1]),
                json!({"a": {"b": [0, 2, {"id": 7}]}, "id": 1, "x y": true}),
                json!({"a": {"b": [2, {"id": 7}]}, "id": 1, "x y": true}),
            ),
            ("$.new", json!([]), json!({"a": {"b": [1, 2, {"id": 7}]}, "id": 1, "x y": true, "new": 0}), doc.clone()),
            ("$.id.none", json!([]), doc.clone(), doc.clone()),
        ] {
            let p = JsonPath::parse(path).unwrap();
            assert_eq!(found_by(&p, &doc), texts_of(&found), "{path}");
            let (mut with, mut without) = (doc.clone(), doc.clone());
            p.set(&mut with, &json!(0));
            p.remove(&mut without);
            assert_eq!((with, without), (set, removed), "{path}");
        }
    }

    #[test]
    fn only_a_last_key_is_created() {
        for (path, after) in [
            ("$.a['b c']", r#"{"a":{"z":1,"y":2,"b c":0}}"#),
            ("$.a[\"b\"]", r#"{"a":{"z":1,"y":2,"b":0}}"#),
            ("$..b", r#"{"a":{"z":1,"y":2}}"#),
            ("$..['b']", r#"{"a":{"z":1,"y":2}}"#),
            ("$.b.c", r#"{"a":{"z":1,"y":2}}"#),
            ("$.a[?@.z=='b']", r#"{"a":{"z":1,"y":2}}"#),
            ("$.a.*", r#"{"a":{"z":0,"y":0}}"#),
            ("$", "0"),
        ] {
            let mut doc = json!({"a": {"z": 1, "y": 2}});
            JsonPath::parse(path).unwrap().set(&mut doc, &json!(0));
            assert_eq!(doc.to_string(), after, "{path}");
        }
    }

    #[test]
    fn remaining_keys_keep_their_order() {
        let document = json!({"a": 1, "b": 2, "c": 3, "d": 4});
        let (mut by_path, mut by_patch) = (document.clone(), document);
        JsonPath::parse("$['a']").unwrap().remove(&mut by_path);
        patch(&mut by_patch, &parse_patch(&[json!({"op": "remove", "path": "/a"})]).unwrap()).unwrap();
        assert_eq!((by_path.to_string(), by_patch.to_string()), (r#"{"b":2,"c":3,"d":4}"#.into(), by_path.to_string()));
    }

    #[test]
    fn invalid_json_paths_are_refused() {
        for path in ["a", "$a", "$.", "$[", "$[x]", "$['a", "$.a..", "$.a-b"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn json_patches_apply_completely_or_not_at_all() {
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
            let parsed = parse_patch(ops.as_array().unwrap()).unwrap();
            let mut got = doc.clone();
            let done = patch(&mut got, &parsed);
            assert_eq!(done.is_ok(), after.is_some(), "{ops:?}: {done:?}");
            assert_eq!(got, after.unwrap_or(doc), "{ops:?}");
        }
        for (operation, why) in [
            (json!({"op": "ad", "path": "/a", "value": 1}), "operation 1: unknown variant `ad`, expected one of `add`"),
            (json!({"op": "add", "path": "a", "value": 1}), "begin with /"),
            (json!({"op": "add", "path": "/a"}), "missing field `value`"),
            (json!({"op": "move", "path": "/a"}), "missing field `from`"),
        ] {
            let err = parse_patch(&[json!({"op": "remove", "path": "/a"}), operation]).unwrap_err();
            assert!(err.contains(why), "{err}");
        }
    }
}
