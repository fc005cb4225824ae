//! The matcher `host` of a condition: host patterns, or a text pattern such as `{ regex: "^api[0-9]" }`.

use std::fmt;

use interflow_types::HostPattern;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use crate::matching::condition::ConditionExpr;
use crate::matching::patterns::PatternMap;
use crate::matching::text_predicate::{MatchMode, TextField, TextPredicate};
use crate::text::template::TextTemplate;

/// Conditions on the host, one of which must hold.
#[derive(Clone, Debug)]
pub(crate) struct HostMatcher(Vec<ConditionExpr>);

impl HostMatcher {
    pub fn into_condition(self) -> ConditionExpr {
        ConditionExpr::or(self.0)
    }
}

fn text_condition(test: TextPredicate) -> HostMatcher {
    HostMatcher(vec![ConditionExpr::Text(TextField::Host, test)])
}

impl<'de> Deserialize<'de> for HostMatcher {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct HostMatcherVisitor;
        impl<'de> de::Visitor<'de> for HostMatcherVisitor {
            type Value = HostMatcher;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host pattern, a list of them, or a pattern such as { regex: \"^api[0-9]\" }")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<HostMatcher, E> {
                let template = TextTemplate::parse(s).map_err(E::custom)?;
                match template.as_literal() {
                    Some(text) => {
                        let pattern: HostPattern = text.parse().map_err(E::custom)?;
                        Ok(HostMatcher(vec![ConditionExpr::Host(pattern)]))
                    }
                    // With variables, a pattern is known only for each flow; then the host is compared as text.
                    None => TextPredicate::new(MatchMode::Exact, template, true).map(text_condition).map_err(E::custom),
                }
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<HostMatcher, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element::<HostMatcher>()? {
                    all.extend(one.0);
                }
                Ok(HostMatcher(all))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<HostMatcher, A::Error> {
                let map = PatternMap::deserialize(MapAccessDeserializer::new(map))?;
                map.test().map(text_condition).map_err(de::Error::custom)
            }
        }
        d.deserialize_any(HostMatcherVisitor)
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for HostMatcher {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostPattern".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let map = g.subschema_for::<PatternMap>();
        json_schema!({ "title": "host pattern", "anyOf": [
            { "type": "string", "description": "A host pattern: `example.com` (this name), `*.example.com` (its subdomains), `.example.com` (both), an address or network; each with an optional port." },
            { "type": "array", "items": { "$ref": "#/$defs/HostPattern" } },
            map,
        ] })
    }
}
