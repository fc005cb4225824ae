//! JSONPath (RFC 9535) and JSON Patch (RFC 6902) over a document whose members keep their order.

use std::fmt;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use interflow_codec::json::unescape_pointer_token;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json_path::JsonPath as Query;

use super::json_document::{JsonDocument, JsonFailure, JsonSearch, JsonSplice, list_index, unfit};
use super::json_steps::{PathStep, StepSelector, count_descents_and_roots, split};

/// A path into a document: `$.a.b[0]`, `$['a b']`, `$.list[?@.x > 1].y`, `$..id`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    source: String,
    query: Query,
    /// The path as steps; `None` if a filter in it refers to the whole document.
    steps: Option<Vec<PathStep>>,
    /// Of a path that is not split: the parent's path and the key, if it ends with a key after other than `..`.
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
        let steps = split(text);
        let last_key = if steps.is_some() { None } else { split_last_key(text) };
        Ok(Self { source: text.to_owned(), query, steps, last_key })
    }

    /// The values that it selects, as text: a string itself, anything else as JSON.
    ///
    /// # Errors
    /// It exceeds a bound, or `stop` was set.
    pub(crate) fn select(&self, document: &JsonDocument, stop: &AtomicBool) -> Result<Vec<Bytes>, JsonFailure> {
        let mut search = JsonSearch::new(document, stop, false);
        let selected = self.search(&mut search, false)?;
        search.texts(selected)
    }

    /// Sets every matching value; a missing last key is created. `None` if nothing matches.
    ///
    /// # Errors
    /// The document exceeds a bound.
    pub(crate) fn set(&self, document: &JsonDocument, new: &Value) -> Result<Option<Bytes>, JsonFailure> {
        let new = Bytes::from(new.to_string());
        let Some(key) = self.last_key() else {
            return document
                .splice(self.find(document, false)?.iter().map(|i| document.replace(*i, new.clone())).collect());
        };
        let member = [Value::from(key).to_string().as_bytes(), b":", &new].concat();
        let mut splices = Vec::new();
        // The parents are looked up, since the last key need not exist yet.
        for parent in self.find(document, true)?.into_iter().filter(|i| document.kind(*i) == b'{') {
            let before = splices.len();
            splices.extend(document.members(parent, key).map(|i| document.replace(i, new.clone())));
            if splices.len() == before {
                splices.push(document.insert(parent, usize::MAX, &member));
            }
        }
        document.splice(splices)
    }

    /// Removes every matching value. `None` if nothing matches.
    ///
    /// # Errors
    /// The document exceeds a bound.
    pub(crate) fn remove(&self, document: &JsonDocument) -> Result<Option<Bytes>, JsonFailure> {
        document.splice(document.remove(&self.find(document, false)?))
    }

    /// The matching values, or what the path without its last key matches, in ascending order.
    fn find(&self, document: &JsonDocument, parents: bool) -> Result<Vec<usize>, JsonFailure> {
        let never = AtomicBool::new(false);
        let mut indexes = self.search(&mut JsonSearch::new(document, &never, true), parents)?;
        indexes.sort_unstable();
        indexes.dedup();
        Ok(indexes)
    }

    fn search(&self, search: &mut JsonSearch<'_>, parents: bool) -> Result<Vec<usize>, JsonFailure> {
        if let Some(steps) = &self.steps {
            return search.find(&steps[..steps.len() - usize::from(parents)]);
        }
        let (descents, roots) = count_descents_and_roots(&self.source);
        let parent = self.last_key.as_ref().filter(|_| parents);
        search.find_in_tree(parent.map_or(&self.query, |(parent, _)| parent), descents, roots)
    }

    /// The key that the path ends with after other than `..`.
    fn last_key(&self) -> Option<&str> {
        let Some(steps) = &self.steps else { return self.last_key.as_ref().map(|(_, key)| key.as_str()) };
        match &steps.last().filter(|step| !step.descends)?.selectors[..] {
            [StepSelector::Name(key)] => Some(key),
            _ => None,
        }
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

impl PatchOperation {
    /// The text of the document after the operation.
    ///
    /// # Errors
    /// It does not apply, or the document exceeds a bound.
    pub(crate) fn apply(&self, document: &JsonDocument) -> Result<Option<Bytes>, JsonFailure> {
        let find = |at: &Pointer, why: &str| document.at_pointer(&at.0)?.ok_or_else(|| unfit(why));
        match self {
            Self::Add { path, value } => document.splice(vec![add(document, path, value.to_string().into())?]),
            Self::Remove { path } => document.splice(document.remove(&[find(path, "there is nothing to remove")?])),
            Self::Replace { path, value } => {
                let target = find(path, "there is nothing to replace")?;
                document.splice(vec![document.replace(target, value.to_string().into())])
            }
            Self::Move { from, path } if path.0.strip_prefix(&from.0).is_some_and(|inner| inner.starts_with('/')) => {
                Err(unfit("a value cannot be moved into itself"))
            }
            Self::Move { from, path } => {
                let target = find(from, "there is nothing to move")?;
                let rest = document.splice(document.remove(&[target]))?.expect("a value that exists is removed");
                let rest = JsonDocument::read(rest)?;
                rest.splice(vec![add(&rest, path, document.raw(target))?])
            }
            Self::Copy { from, path } => {
                let value = document.raw(find(from, "there is nothing to copy")?);
                document.splice(vec![add(document, path, value)?])
            }
            Self::Test { path, value } => {
                let target = document.raw(find(path, "there is nothing to test")?);
                let holds = serde_json::from_slice::<Value>(&target).is_ok_and(|target| target == *value);
                if holds { Ok(None) } else { Err(unfit("the test does not hold")) }
            }
        }
    }
}

/// `add` (RFC 6902 4.1): sets a member, or inserts into a list; `-` is the end of the list.
fn add(document: &JsonDocument, path: &Pointer, value: Bytes) -> Result<JsonSplice, JsonFailure> {
    let Some((parent, last)) = path.0.rsplit_once('/') else { return Ok(document.replace(0, value)) };
    let last = unescape_pointer_token(last);
    let parent = document.at_pointer(parent)?.filter(|i| matches!(document.kind(*i), b'{' | b'['));
    let parent = parent.ok_or_else(|| unfit("there is no place to add to"))?;
    if document.kind(parent) == b'{' {
        return Ok(match document.at_pointer(&path.0)? {
            Some(target) => document.replace(target, value),
            None => {
                let member = [Value::from(last).to_string().as_bytes(), b":", &value].concat();
                document.insert(parent, usize::MAX, &member)
            }
        });
    }
    let length = document.children(parent).count();
    let position = if last == "-" {
        length
    } else {
        list_index(&last).ok_or_else(|| unfit(format!("`{last}` is not an index")))?
    };
    if position > length {
        return Err(unfit(format!("index {position} is beyond the end")));
    }
    Ok(document.insert(parent, position, &value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::body::edit::BodyChange;

    fn found_by(path: &JsonPath, document: &Value) -> Vec<String> {
        let read = JsonDocument::read(document.to_string().into()).unwrap();
        let texts = path.select(&read, &AtomicBool::new(false)).unwrap();
        texts.iter().map(|t| String::from_utf8_lossy(t).into_owned()).collect()
    }

    fn texts_of(values: &Value) -> Vec<String> {
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned);
        values.as_array().unwrap().iter().map(text).collect()
    }

    fn edited(text: &str, edit: impl Fn(&JsonDocument) -> Result<Option<Bytes>, JsonFailure>) -> String {
        let document = JsonDocument::read(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let new = edit(&document).unwrap();
        String::from_utf8(new.map_or_else(|| text.into(), |new| new.to_vec())).unwrap()
    }

    #[test]
    fn every_byte_that_is_not_edited_stays() {
        let text = "\u{feff}{ \"big\": 12345678901234567890123, \"a\":19.90,\n \"b\": [1e2 , -0, 1E400], \"d\": 1, \"d\": 2, \"s\": \"\\ud800\" }";
        let path = |path: &str| JsonPath::parse(path).unwrap();
        let operation = |json: Value| parse_patch(&[json]).unwrap().remove(0);
        for (from, to, edit) in [
            ("19.90", "0", Box::new(|d: &_| path("$.a").set(d, &json!(0))) as Box<dyn Fn(&JsonDocument) -> _>),
            ("-0", "\"x\"", Box::new(|d: &_| path("$.b[1]").set(d, &json!("x")))),
            ("1E400]", "0]", Box::new(|d: &_| path("$.b[-1]").set(d, &json!(0)))),
            ("\"\\ud800\"", "\"\\ud800\",\"n\":null", Box::new(|d: &_| path("$.n").set(d, &json!(null)))),
            (" 1, \"d\": 2", " 0, \"d\": 0", Box::new(|d: &_| path("$.d").set(d, &json!(0)))),
            (", \"d\": 1, \"d\": 2", "", Box::new(|d: &_| path("$.d").remove(d))),
            ("\"big\": 12345678901234567890123, ", "", Box::new(|d: &_| path("$.big").remove(d))),
            ("1e2 , -0, ", "", Box::new(|d: &_| path("$.b[:2]").remove(d))),
            ("1e2 , -0, 1E400", "", Box::new(|d: &_| path("$.b[*]").remove(d))),
            ("-0", "7,-0", Box::new(|d: &_| operation(json!({"op": "add", "path": "/b/1", "value": 7})).apply(d))),
            (
                "1E400",
                "1E400,19.90",
                Box::new(|d: &_| operation(json!({"op": "copy", "from": "/a", "path": "/b/-"})).apply(d)),
            ),
        ] {
            assert_eq!(edited(text, edit), text.replacen(from, to, 1), "{from}");
        }
        let moved = edited(text, |d| operation(json!({"op": "move", "from": "/b/2", "path": "/b/0"})).apply(d));
        assert!(moved.contains("[1E400,1e2 , -0]"), "{moved}");
        let twice = operation(json!({"op": "remove", "path": "/d"}));
        assert!(twice.apply(&JsonDocument::read(Bytes::copy_from_slice(text.as_bytes())).unwrap()).is_err());
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
            let edited = |edit: &dyn Fn(&JsonDocument) -> _| edited(&doc.to_string(), edit);
            let (with, without) = (edited(&|d| p.set(d, &json!(0))), edited(&|d| p.remove(d)));
            assert_eq!((with, without), (set.to_string(), removed.to_string()), "{path}");
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
            let path = JsonPath::parse(path).unwrap();
            assert_eq!(edited(r#"{"a":{"z":1,"y":2}}"#, |d| path.set(d, &json!(0))), after, "{path}");
        }
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
            let done = BodyChange::JsonPatch(parsed).apply(doc.to_string().as_bytes());
            assert_eq!(done.is_ok(), after.is_some(), "{ops:?}: {done:?}");
            let done = done.ok().flatten().map(|new| serde_json::from_slice::<Value>(&new).unwrap());
            assert_eq!(done, after, "{ops:?}");
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
