//! JSON Schema (draft 2020-12) as far as schemas of model outputs use it. A keyword that is not known is an error of
//! the schema, so that nothing goes unchecked silently.

use std::collections::BTreeMap;
use std::fmt;

use interflow_codec::json::escape_pointer_token;
use regex::Regex;
use serde_json::{Map, Value};

/// How deep a value may be nested while it is checked.
const MAX_DEPTH: usize = 128;

/// A compiled schema.
#[derive(Debug)]
pub(super) struct Schema {
    /// The compiled schemas by their place, a JSON pointer; references lead to others.
    nodes: BTreeMap<String, Node>,
}

/// Where a value does not fit, and why. It names no value, but names of members as the schema or the reply has them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// A JSON pointer into the value.
    at: String,
    why: String,
}

#[derive(Debug, Default)]
struct Node {
    /// `false`: nothing fits.
    never: bool,
    reference: Option<String>,
    types: Vec<String>,
    allowed: Option<Vec<Value>>,
    properties: Vec<(String, String)>,
    pattern_properties: Vec<(Regex, String)>,
    additional: Option<String>,
    names: Option<String>,
    required: Vec<String>,
    items: Option<String>,
    prefix: Vec<String>,
    contains: Option<String>,
    all: Vec<String>,
    any: Vec<String>,
    one: Vec<String>,
    not: Option<String>,
    pattern: Option<Regex>,
    unique: bool,
    limits: Vec<(&'static Limit, f64)>,
}

/// A keyword that limits a value, what of the value it limits (`None` for other types), and whether a limit is kept.
type Limit = (&'static str, fn(&Value) -> Option<f64>, fn(f64, f64) -> bool);

const LIMITS: [Limit; 11] = [
    ("minimum", Value::as_f64, |n, limit| n >= limit),
    ("maximum", Value::as_f64, |n, limit| n <= limit),
    ("exclusiveMinimum", Value::as_f64, |n, limit| n > limit),
    ("exclusiveMaximum", Value::as_f64, |n, limit| n < limit),
    ("multipleOf", Value::as_f64, is_multiple),
    ("minLength", length, |n, limit| n >= limit),
    ("maxLength", length, |n, limit| n <= limit),
    ("minItems", |value| Some(value.as_array()?.len() as f64), |n, limit| n >= limit),
    ("maxItems", |value| Some(value.as_array()?.len() as f64), |n, limit| n <= limit),
    ("minProperties", |value| Some(value.as_object()?.len() as f64), |n, limit| n >= limit),
    ("maxProperties", |value| Some(value.as_object()?.len() as f64), |n, limit| n <= limit),
];

type Checked = Result<(), Violation>;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at: String = self.at.chars().take(80).collect();
        write!(f, "{} {}", if at.is_empty() { "the reply" } else { &at }, self.why)
    }
}

impl Schema {
    /// # Errors
    /// The place in the schema, and what is wrong there.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let mut nodes = BTreeMap::new();
        compile(schema, "", &mut nodes)?;
        // Definitions are schemas too, and may be referred to.
        let at_root = |node: &Node| node.reference.clone();
        let mut pointers: Vec<String> = nodes.values().filter_map(at_root).collect();
        while let Some(place) = pointers.pop() {
            if nodes.contains_key(&place) {
                continue;
            }
            let part = schema.pointer(&place).ok_or_else(|| format!("$ref: there is no #{place}"))?;
            let mut more = BTreeMap::new();
            compile(part, &place, &mut more)?;
            pointers.extend(more.values().filter_map(at_root));
            nodes.extend(more);
        }
        Ok(Self { nodes })
    }

    /// # Errors
    /// The first place that does not fit.
    pub fn check(&self, value: &Value) -> Checked {
        self.check_at("", value, "", 0)
    }

    fn check_at(&self, place: &str, value: &Value, at: &str, depth: usize) -> Checked {
        let fail = |why: String| Err(Violation { at: at.to_owned(), why });
        let Some(node) = self.nodes.get(place) else { return Ok(()) };
        if node.never || depth > MAX_DEPTH {
            return fail("is not allowed".into());
        }
        if !node.types.is_empty() && !node.types.iter().any(|t| is_type(value, t)) {
            return fail(format!("is not of the type {}", node.types.join(" or ")));
        }
        if node.allowed.as_ref().is_some_and(|all| !all.iter().any(|a| same(a, value))) {
            return fail("is not one of the allowed values".into());
        }
        if let Some(reference) = &node.reference {
            self.check_at(reference, value, at, depth + 1)?;
        }
        for all in &node.all {
            self.check_at(all, value, at, depth + 1)?;
        }
        let fits = |place: &String| self.check_at(place, value, at, depth + 1).is_ok();
        if !node.any.is_empty() && !node.any.iter().any(fits) {
            return fail("fits none of anyOf".into());
        }
        if !node.one.is_empty() && node.one.iter().filter(|p| fits(p)).count() != 1 {
            return fail("does not fit exactly one of oneOf".into());
        }
        if node.not.as_ref().is_some_and(fits) {
            return fail("fits what `not` excludes".into());
        }
        let exceeded = |((_, of, keeps), limit): &&(&Limit, f64)| of(value).is_some_and(|n| !keeps(n, *limit));
        if let Some(((keyword, ..), limit)) = node.limits.iter().find(exceeded) {
            return fail(format!("is not within {keyword} {limit}"));
        }
        match value {
            Value::String(text) if node.pattern.as_ref().is_some_and(|p| !p.is_match(text)) => {
                fail("does not match the pattern".into())
            }
            Value::Array(list) => self.check_list(node, list, at, depth),
            Value::Object(members) => self.check_members(node, members, at, depth),
            _ => Ok(()),
        }
    }

    fn check_list(&self, node: &Node, list: &[Value], at: &str, depth: usize) -> Checked {
        for (i, item) in list.iter().enumerate() {
            if let Some(place) = node.prefix.get(i).or(node.items.as_ref()) {
                self.check_at(place, item, &format!("{at}/{i}"), depth + 1)?;
            }
        }
        let fail = |why: &str| Err(Violation { at: at.to_owned(), why: why.to_owned() });
        if let Some(place) = &node.contains
            && !list.iter().any(|item| self.check_at(place, item, at, depth + 1).is_ok())
        {
            return fail("contains no item that fits `contains`");
        }
        if node.unique && list.iter().enumerate().any(|(i, a)| list[..i].iter().any(|b| same(a, b))) {
            return fail("has equal items");
        }
        Ok(())
    }

    fn check_members(&self, node: &Node, members: &Map<String, Value>, at: &str, depth: usize) -> Checked {
        if let Some(name) = node.required.iter().find(|name| !members.contains_key(*name)) {
            return Err(Violation { at: at.to_owned(), why: format!("lacks `{name}`") });
        }
        for (name, value) in members {
            let inside = format!("{at}/{}", escape_pointer_token(name));
            if let Some(place) = &node.names {
                self.check_at(place, &Value::String(name.clone()), &inside, depth + 1)?;
            }
            let own = node.properties.iter().filter(|(n, _)| n == name).map(|(_, place)| place);
            let matching = node.pattern_properties.iter().filter(|(p, _)| p.is_match(name)).map(|(_, place)| place);
            let mut places: Vec<&String> = own.chain(matching).collect();
            if places.is_empty() {
                places.extend(&node.additional);
            }
            for place in places {
                self.check_at(place, value, &inside, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Compiles a schema at a place, and those in it.
fn compile(schema: &Value, place: &str, nodes: &mut BTreeMap<String, Node>) -> Result<(), String> {
    let shown = || if place.is_empty() { "#" } else { place };
    let wrong = |keyword: &str, why: &str| format!("{}: {keyword}: {why}", shown());
    let members = match schema {
        Value::Bool(fits) => {
            nodes.insert(place.to_owned(), Node { never: !fits, ..Node::default() });
            return Ok(());
        }
        Value::Object(members) => members,
        _ => return Err(format!("{}: a schema is an object, true or false", shown())),
    };
    let mut node = Node::default();
    for (keyword, value) in members {
        let inside = |name: &str| format!("{place}/{keyword}/{}", escape_pointer_token(name));
        let one = |nodes: &mut BTreeMap<String, Node>| {
            let at = format!("{place}/{keyword}");
            compile(value, &at, nodes).map(|()| at)
        };
        match (keyword.as_str(), value) {
            // They say nothing about a value.
            (
                "$schema" | "$id" | "$comment" | "$defs" | "definitions" | "title" | "description" | "default"
                | "examples" | "deprecated" | "readOnly" | "writeOnly" | "format",
                _,
            ) => {}
            ("type", Value::String(t)) => node.types = vec![t.clone()],
            ("type", Value::Array(list)) => {
                node.types = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            }
            ("enum", Value::Array(list)) => node.allowed = Some(list.clone()),
            ("const", value) => node.allowed = Some(vec![value.clone()]),
            ("required", Value::Array(list)) => {
                node.required = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            }
            ("properties", Value::Object(list)) => {
                for (name, schema) in list {
                    compile(schema, &inside(name), nodes)?;
                    node.properties.push((name.clone(), inside(name)));
                }
            }
            ("patternProperties", Value::Object(list)) => {
                for (name, schema) in list {
                    compile(schema, &inside(name), nodes)?;
                    node.pattern_properties.push((expression(name).map_err(|e| wrong(keyword, &e))?, inside(name)));
                }
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
                let mut places = Vec::new();
                for (i, schema) in list.iter().enumerate() {
                    compile(schema, &inside(&i.to_string()), nodes)?;
                    places.push(inside(&i.to_string()));
                }
                match keyword.as_str() {
                    "allOf" => node.all = places,
                    "anyOf" => node.any = places,
                    "oneOf" => node.one = places,
                    _ => node.prefix = places,
                }
            }
            ("additionalProperties", _) => node.additional = Some(one(nodes)?),
            ("propertyNames", _) => node.names = Some(one(nodes)?),
            ("items", _) => node.items = Some(one(nodes)?),
            ("contains", _) => node.contains = Some(one(nodes)?),
            ("not", _) => node.not = Some(one(nodes)?),
            ("pattern", Value::String(p)) => node.pattern = Some(expression(p).map_err(|e| wrong(keyword, &e))?),
            ("uniqueItems", Value::Bool(unique)) => node.unique = *unique,
            ("$ref", Value::String(reference)) => match reference.strip_prefix('#') {
                Some(pointer) => node.reference = Some(pointer.to_owned()),
                None => return Err(wrong(keyword, "only references within the schema (#/…) are supported")),
            },
            (name, Value::Number(limit)) if let Some(known) = LIMITS.iter().find(|known| known.0 == name) => {
                node.limits.extend(limit.as_f64().map(|limit| (known, limit)));
            }
            _ => {
                return Err(wrong(keyword, "this keyword is not supported here; remove it, or validate in the client"));
            }
        }
    }
    nodes.insert(place.to_owned(), node);
    Ok(())
}

fn expression(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(pattern).size_limit(1 << 20).build().map_err(|e| e.to_string())
}

fn is_type(value: &Value, name: &str) -> bool {
    match (name, value) {
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("string", Value::String(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_))
        | ("number", Value::Number(_)) => true,
        // 1.0 is an integer (JSON Schema core 4.2.3).
        ("integer", Value::Number(n)) => n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|n| n.fract() == 0.0),
        _ => false,
    }
}

/// Equality by value: 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        _ => a == b,
    }
}

fn is_multiple(n: f64, of: f64) -> bool {
    let times = n / of;
    (times - times.round()).abs() < 1e-9
}

fn length(value: &Value) -> Option<f64> {
    Some(value.as_str()?.chars().count() as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violation(schema: &Value, value: &Value) -> String {
        Schema::new(schema).unwrap().check(value).map_or_else(|v| v.to_string(), |()| String::new())
    }

    #[test]
    fn values_are_checked_by_every_supported_keyword() {
        let schema = json!({
            "type": "object",
            "required": ["name"],
            "additionalProperties": false,
            "properties": {
                "name": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
                "age": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 150},
                "kind": {"enum": ["a", "b"]},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": true},
                "child": {"$ref": "#/$defs/child"},
                "either": {"oneOf": [{"type": "string"}, {"type": "number", "multipleOf": 0.5}]},
                "none": {"not": {"type": "string"}}
            },
            "$defs": {"child": {"type": "object", "properties": {"child": {"$ref": "#/$defs/child"}, "n": {"const": 1}}}}
        });
        for (value, expected) in [
            (json!({"name": "ann", "age": 3.0, "kind": "a", "tags": ["x"], "either": 1.5, "none": 1}), ""),
            (json!([]), "the reply is not of the type object"),
            (json!({}), "the reply lacks `name`"),
            (json!({"name": "a"}), "/name is not within minLength 2"),
            (json!({"name": "Ann"}), "/name does not match the pattern"),
            (json!({"name": "ann", "age": 3.5}), "/age is not of the type integer or null"),
            (json!({"name": "ann", "age": 150}), "/age is not within exclusiveMaximum 150"),
            (json!({"name": "ann", "kind": "c"}), "/kind is not one of the allowed values"),
            (json!({"name": "ann", "tags": ["x", 1]}), "/tags/1 is not of the type string"),
            (json!({"name": "ann", "tags": ["x", "x"]}), "/tags has equal items"),
            (json!({"name": "ann", "child": {"child": {"n": 2}}}), "/child/child/n is not one of the allowed values"),
            (json!({"name": "ann", "either": true}), "/either does not fit exactly one of oneOf"),
            (json!({"name": "ann", "none": ""}), "/none fits what `not` excludes"),
            (json!({"name": "ann", "a/b": 1}), "/a~1b is not allowed"),
        ] {
            assert_eq!(violation(&schema, &value), expected, "{value}");
        }
    }

    #[test]
    fn unknown_keywords_and_references_are_refused_with_their_place() {
        for (schema, expected) in [
            (json!({"properties": {"a": {"unevaluatedItems": false}}}), "/properties/a: unevaluatedItems: "),
            (json!({"$ref": "other.json"}), "#: $ref: only references"),
            (json!({"$ref": "#/$defs/x"}), "$ref: there is no #/$defs/x"),
            (json!({"pattern": "("}), "#: pattern: "),
            (json!([]), "#: a schema is an object"),
        ] {
            let error = Schema::new(&schema).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn references_in_a_circle_end() {
        let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
        assert_eq!(violation(&schema, &json!(1)), "the reply is not allowed");
    }
}
