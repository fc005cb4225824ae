//! Patterns of texts in a rule file: a text, a list of them, or a map such as `{ regex: "^/v[0-9]/" }`.

use std::fmt;

use interflow_types::schema::JsonSchema;
#[cfg(feature = "schema")]
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use crate::matching::condition::ConditionExpr;
use crate::matching::text_predicate::{MatchMode, TextField, TextPredicate};
use crate::text::template::TextTemplate;

/// A text pattern: a text or glob that must match the whole value, ignoring case, or a map with one of the forms below.
#[derive(Clone, Debug)]
pub struct FieldPattern(Vec<TextPredicate>);

/// A pattern by form.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatternMap {
    /// Matches the whole text.
    #[serde(default)]
    exact: Option<TextTemplate>,
    /// Matches a substring.
    #[serde(default)]
    contains: Option<TextTemplate>,
    /// Matches the start.
    #[serde(default)]
    prefix: Option<TextTemplate>,
    /// Matches the end.
    #[serde(default)]
    suffix: Option<TextTemplate>,
    /// A regular expression, unanchored; named groups become variables of the flow.
    #[serde(default)]
    regex: Option<TextTemplate>,
    /// Whether case is ignored; true, but false for a regex.
    #[serde(default)]
    ignore_case: Option<bool>,
}

impl PatternMap {
    pub(crate) fn test(self) -> Result<TextPredicate, String> {
        let forms = [
            (MatchMode::Exact, self.exact),
            (MatchMode::Contains, self.contains),
            (MatchMode::Prefix, self.prefix),
            (MatchMode::Suffix, self.suffix),
            (MatchMode::Regex, self.regex),
        ];
        let mut modes = forms.into_iter().filter_map(|(mode, t)| t.map(|t| (mode, t)));
        match (modes.next(), modes.next()) {
            (Some((mode, text)), None) => {
                TextPredicate::new(mode, text, self.ignore_case.unwrap_or(mode != MatchMode::Regex))
            }
            _ => Err("a pattern has one of exact, contains, prefix, suffix and regex".into()),
        }
    }
}

impl<'de> Deserialize<'de> for FieldPattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct FieldPatternVisitor;
        impl<'de> de::Visitor<'de> for FieldPatternVisitor {
            type Value = FieldPattern;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of them, or a pattern such as { regex: \"^/v[0-9]/\" }")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<FieldPattern, E> {
                let test = match TextTemplate::parse(s).map_err(E::custom)? {
                    // Only a text without variables is a glob, since a value could contain `*`.
                    t if t.as_literal().is_some() => TextPredicate::glob(t.as_literal().unwrap_or_default(), true),
                    t => TextPredicate::new(MatchMode::Exact, t, true),
                };
                Ok(FieldPattern(vec![test.map_err(E::custom)?]))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<FieldPattern, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<FieldPattern, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<FieldPattern, E> {
                self.visit_str(&n.to_string())
            }
            fn visit_bool<E: de::Error>(self, b: bool) -> Result<FieldPattern, E> {
                self.visit_str(if b { "true" } else { "false" })
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<FieldPattern, A::Error> {
                let mut all = Vec::new();
                while let Some(p) = seq.next_element::<FieldPattern>()? {
                    all.extend(p.0);
                }
                Ok(FieldPattern(all))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<FieldPattern, A::Error> {
                let map = PatternMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(FieldPattern(vec![map.test().map_err(de::Error::custom)?]))
            }
        }
        d.deserialize_any(FieldPatternVisitor)
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for FieldPattern {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let map = g.subschema_for::<PatternMap>();
        json_schema!({ "title": "text pattern", "anyOf": [
            { "type": ["string", "number", "boolean"], "description": "The whole text in either case; * stands for anything." },
            { "type": "array", "items": { "$ref": "#/$defs/Pattern" } },
            map,
        ] })
    }
}

impl FieldPattern {
    pub(crate) fn into_condition(self, place: &TextField) -> ConditionExpr {
        ConditionExpr::or(self.0.into_iter().map(|t| ConditionExpr::Text(place.clone(), t)).collect())
    }
}

/// Patterns by name: `{ X-Debug: "1" }`; a list of names tests for presence.
#[derive(Clone, Debug, Default)]
pub struct NamedPatterns(pub(crate) Vec<(String, FieldPattern)>);

impl<'de> Deserialize<'de> for NamedPatterns {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NamedPatternsVisitor;
        impl<'de> de::Visitor<'de> for NamedPatternsVisitor {
            type Value = NamedPatterns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("patterns by name, or names that must be there")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<NamedPatterns, E> {
                Ok(NamedPatterns(vec![(s.to_owned(), FieldPattern(vec![TextPredicate::Present]))]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<NamedPatterns, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = seq.next_element::<String>()? {
                    all.push((name, FieldPattern(vec![TextPredicate::Present])));
                }
                Ok(NamedPatterns(all))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<NamedPatterns, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    all.push((name, map.next_value()?));
                }
                Ok(NamedPatterns(all))
            }
        }
        d.deserialize_any(NamedPatternsVisitor)
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for NamedPatterns {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Named".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let pattern = g.subschema_for::<FieldPattern>();
        json_schema!({ "title": "names, or patterns by name", "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
            { "type": "object", "additionalProperties": pattern },
        ] })
    }
}
