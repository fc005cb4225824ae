//! The matcher `host` of a condition: host patterns, or a text pattern such as `{ regex: "^api[0-9]" }`.

use interflow_types::HostPattern;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, de};

use crate::matching::condition::ConditionExpr;
use crate::matching::patterns::PatternMap;
use crate::matching::text_predicate::{MatchMode, TextField, TextPredicate};
use crate::text::shape::{ShapedValue, deserialize_shaped, written_schema};
use crate::text::template::TextTemplate;

deserialize_shaped!(HostMatcher);

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

impl<'de> ShapedValue<'de> for HostMatcher {
    const EXPECTED: &'static str = "a host pattern, a list of them, or a pattern such as { regex: \"^api[0-9]\" }";

    fn from_text<E: de::Error>(s: &str) -> Result<Self, E> {
        let template = TextTemplate::parse(s).map_err(E::custom)?;
        match template.as_literal() {
            Some(text) => {
                let pattern: HostPattern = text.parse().map_err(E::custom)?;
                Ok(Self(vec![ConditionExpr::Host(pattern)]))
            }
            // With variables, a pattern is known only for each flow; then the host is compared as text.
            None => TextPredicate::new(MatchMode::Exact, template, true).map(text_condition).map_err(E::custom),
        }
    }

    fn from_list<A: de::SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        let all = Vec::<Self>::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Self(all.into_iter().flat_map(|one| one.0).collect()))
    }

    fn from_map<A: de::MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let map = PatternMap::deserialize(MapAccessDeserializer::new(map))?;
        map.test().map(text_condition).map_err(de::Error::custom)
    }
}

written_schema!(HostMatcher, "HostPattern", |g| {
    let map = g.subschema_for::<PatternMap>();
    json_schema!({ "title": "host pattern", "anyOf": [
            { "type": "string", "description": "A host pattern: `example.com` (this name), `*.example.com` (its subdomains), `.example.com` (both), an address or network; each with an optional port." },
            { "type": "array", "items": { "$ref": "#/$defs/HostPattern" } },
            map,
        ] })
});
