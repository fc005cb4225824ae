//! One text or several, as rule files write them.

use std::fmt;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use crate::text::template::scalar;

/// One text or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneOrManyStrings(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrManyStrings {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor;
        impl<'de> de::Visitor<'de> for OneOrManyVisitor {
            type Value = OneOrManyStrings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<OneOrManyStrings, E> {
                Ok(OneOrManyStrings(vec![s.to_owned()]))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<OneOrManyStrings, E> {
                Ok(OneOrManyStrings(vec![n.to_string()]))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<OneOrManyStrings, E> {
                Ok(OneOrManyStrings(vec![n.to_string()]))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<OneOrManyStrings, E> {
                Ok(OneOrManyStrings(vec![n.to_string()]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrManyStrings, A::Error> {
                struct ScalarString(String);
                impl<'de> Deserialize<'de> for ScalarString {
                    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                        scalar(d).map(ScalarString)
                    }
                }
                let mut all = Vec::new();
                while let Some(ScalarString(text)) = seq.next_element()? {
                    all.push(text);
                }
                Ok(OneOrManyStrings(all))
            }
        }
        d.deserialize_any(OneOrManyVisitor)
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for OneOrManyStrings {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Texts".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "string or list of strings", "type": ["string", "integer", "array"], "items": { "type": ["string", "integer"] } })
    }
}
