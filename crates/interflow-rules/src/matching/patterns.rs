//! Patterns of texts in a rule file: a text, a list of them, or a map such as `{ regex: "^/v[0-9]/" }`.

use interflow_types::schema::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, de};

use crate::matching::condition::ConditionExpr;
use crate::matching::text_predicate::{MatchMode, TextField, TextPredicate};
use crate::text::shape::{ShapedValue, deserialize_shaped, written_schema};
use crate::text::template::TextTemplate;

deserialize_shaped!(FieldPattern, NamedPatterns);

/// A text pattern: a text or glob that must match the whole value, ignoring case, or a map with one of the forms below.
#[derive(Clone, Debug)]
pub struct FieldPattern(Vec<TextPredicate>);

/// A pattern by form.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatternMap {
    /// Matches the whole text.
    exact: Option<TextTemplate>,
    /// Matches a substring.
    contains: Option<TextTemplate>,
    /// Matches the start.
    prefix: Option<TextTemplate>,
    /// Matches the end.
    suffix: Option<TextTemplate>,
    /// A regular expression, unanchored; named groups become variables of the flow.
    regex: Option<TextTemplate>,
    /// Whether case is ignored; true, but false for a regex.
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

impl<'de> ShapedValue<'de> for FieldPattern {
    const EXPECTED: &'static str = "a text, a list of them, or a pattern such as { regex: \"^/v[0-9]/\" }";
    const NUMBERS: bool = true;
    const BOOLS: bool = true;

    fn from_text<E: de::Error>(s: &str) -> Result<Self, E> {
        let test = match TextTemplate::parse(s).map_err(E::custom)? {
            // Only a text without variables is a glob, since a value could contain `*`.
            t if t.as_literal().is_some() => TextPredicate::glob(t.as_literal().unwrap_or_default(), true),
            t => TextPredicate::new(MatchMode::Exact, t, true),
        };
        Ok(Self(vec![test.map_err(E::custom)?]))
    }

    fn from_list<A: de::SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        let all = Vec::<Self>::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Self(all.into_iter().flat_map(|one| one.0).collect()))
    }

    fn from_map<A: de::MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let map = PatternMap::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self(vec![map.test().map_err(de::Error::custom)?]))
    }
}

written_schema!(FieldPattern, "Pattern", |g| {
    let map = g.subschema_for::<PatternMap>();
    json_schema!({ "title": "text pattern", "anyOf": [
            { "type": ["string", "number", "boolean"], "description": "The whole text in either case; * stands for anything." },
            { "type": "array", "items": { "$ref": "#/$defs/Pattern" } },
            map,
        ] })
});

impl FieldPattern {
    pub(crate) fn into_condition(self, place: &TextField) -> ConditionExpr {
        ConditionExpr::or(self.0.into_iter().map(|t| ConditionExpr::Text(place.clone(), t)).collect())
    }
}

/// Patterns by name: `{ X-Debug: "1" }`; a list of names tests for presence.
#[derive(Clone, Debug, Default)]
pub struct NamedPatterns(pub(crate) Vec<(String, FieldPattern)>);

impl<'de> ShapedValue<'de> for NamedPatterns {
    const EXPECTED: &'static str = "patterns by name, or names that must be there";

    fn from_text<E: de::Error>(s: &str) -> Result<Self, E> {
        Ok(Self(vec![(s.to_owned(), FieldPattern(vec![TextPredicate::Present]))]))
    }

    fn from_list<A: de::SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        let names = Vec::<String>::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Self(names.into_iter().map(|name| (name, FieldPattern(vec![TextPredicate::Present]))).collect()))
    }

    fn from_map<A: de::MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            all.push((name, map.next_value()?));
        }
        Ok(Self(all))
    }
}

written_schema!(NamedPatterns, "Named", |g| {
    let pattern = g.subschema_for::<FieldPattern>();
    json_schema!({ "title": "names, or patterns by name", "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
            { "type": "object", "additionalProperties": pattern },
        ] })
});
