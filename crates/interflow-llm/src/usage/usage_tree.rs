//! The part of a response that may tell its usage: a tree without what models wrote, which is most of a response.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Members with what models write or read. No provider reports usage in them.
const CONTENTS: [&str; 7] = ["choices", "content", "output", "tools", "instructions", "embedding", "embeddings"];

/// Longer strings than any ID or name of a model are kept as empty ones: that there is a picture is what counts.
const MAX_TEXT: usize = 4096;

/// A JSON value without the members in [`CONTENTS`], its long strings empty.
pub(super) struct UsageTree(pub Value);

struct TreeVisitor;

impl<'de> Deserialize<'de> for UsageTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Self)
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(if text.len() > MAX_TEXT { "" } else { text }.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UsageTree(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if CONTENTS.contains(&&*name) {
                members.next_value::<IgnoredAny>()?;
            } else {
                object.insert(name.into_owned(), members.next_value::<UsageTree>()?.0);
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_models_write_is_left_out_and_the_rest_is_kept() {
        let (long, id) = ("x".repeat(MAX_TEXT + 1), "x".repeat(MAX_TEXT));
        let body = json!({
            "id": id, "n": [1, -2, 0.5, true, null, "a\"b"], "choices": [{"message": {"usage": {"input_tokens": 9}}}],
            "message": {"content": {"deep": [[]]}, "usage": {"input_tokens": 1}}, "data": [{"b64_json": long}],
        });
        let tree = json!({
            "id": id, "n": [1, -2, 0.5, true, null, "a\"b"], "message": {"usage": {"input_tokens": 1}}, "data": [{"b64_json": ""}],
        });
        assert_eq!(serde_json::from_str::<UsageTree>(&body.to_string()).unwrap().0, tree);
        // Of a member that comes twice, the last counts, as in any tree.
        assert_eq!(
            serde_json::from_str::<UsageTree>(r#"{"a":1,"content":1,"content":2,"a":3}"#).unwrap().0,
            json!({"a": 3})
        );
        for broken in [r#"{"content":[}"#, r#"{"content":1"#, r#"{"a":1}x"#] {
            assert!(serde_json::from_str::<UsageTree>(broken).is_err(), "{broken}");
        }
    }
}
