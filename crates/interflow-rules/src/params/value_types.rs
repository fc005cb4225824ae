//! Parameters that several actions take.

use std::fmt;

use regex::bytes::Regex;
use serde::{Deserialize, Deserializer, de};

use crate::matching::regex_limits::build_regex;
use crate::text::shape::{ShapedValue, deserialize_shaped, written_schema};
use crate::text::string_list::OneOrManyStrings;
use crate::text::template::TextTemplate;

/// No parameters.
#[derive(Clone, Debug, Default)]
pub struct NoParams;

impl<'de> Deserialize<'de> for NoParams {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NoParamsVisitor;
        impl<'de> de::Visitor<'de> for NoParamsVisitor {
            type Value = NoParams;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nothing: this action has no parameters")
            }
            fn visit_unit<E: de::Error>(self) -> Result<NoParams, E> {
                Ok(NoParams)
            }
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<NoParams, E> {
                if on { Ok(NoParams) } else { Err(E::custom("leave the action out rather than setting it to false")) }
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<NoParams, A::Error> {
                match map.next_key::<String>()? {
                    None => Ok(NoParams),
                    Some(key) => Err(de::Error::custom(format!("unknown key `{key}`: this action has no parameters"))),
                }
            }
        }
        d.deserialize_any(NoParamsVisitor)
    }
}

written_schema!(
    NoParams,
    "Nothing",
    |_| json_schema!({ "anyOf": [{ "type": "null" }, { "const": true }, { "type": "object", "maxProperties": 0 }] })
);

/// Values by name, in the order of the file: header fields, cookies, parameters.
#[derive(Clone, Debug, Default)]
pub struct TemplatePairs(pub Vec<(TextTemplate, TextTemplate)>);

deserialize_shaped!(TemplatePairs);

impl<'de> ShapedValue<'de> for TemplatePairs {
    const EXPECTED: &'static str = "values by name, such as { X-Seen: \"1\" }";

    fn from_map<A: de::MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let name = TextTemplate::parse(&name).map_err(de::Error::custom)?;
            check_name(&name).map_err(de::Error::custom)?;
            all.push((name, map.next_value()?));
        }
        if all.is_empty() {
            return Err(de::Error::custom("no name is given: write it as { X-Seen: \"1\" }"));
        }
        Ok(Self(all))
    }
}

/// Fields and cookies are named by tokens (RFC 9110 5.6.2). Parameter names are less restricted, but never contain
/// these characters.
fn check_name(name: &TextTemplate) -> Result<(), String> {
    match name.as_literal() {
        Some(n) if n.is_empty() || n.bytes().any(|b| b <= b' ' || matches!(b, b':' | b'\x7f'..)) => {
            Err(format!("`{n}` is not a header name: it may contain letters, digits and characters such as -"))
        }
        _ => Ok(()),
    }
}

written_schema!(TemplatePairs, "Pairs", |g| {
    let template = g.subschema_for::<TextTemplate>();
    json_schema!({ "type": "object", "additionalProperties": template, "minProperties": 1 })
});

/// Variables to set.
#[derive(Clone, Debug, Default)]
pub struct VariableParams(pub Vec<(String, TextTemplate)>);

/// The names are texts; variables in them are not rendered.
impl<'de> Deserialize<'de> for VariableParams {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let pairs = TemplatePairs::deserialize(d)?;
        Ok(Self(pairs.0.into_iter().map(|(n, v)| (n.source().to_owned(), v)).collect()))
    }
}

written_schema!(VariableParams, "Variables", |g| TemplatePairs::json_schema(g));

/// One name or several.
#[derive(Clone, Debug, Default)]
pub struct NameList(pub Vec<TextTemplate>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let texts = OneOrManyStrings::deserialize(d)?;
        let names = texts.0.iter().map(|n| TextTemplate::parse(n)).collect::<Result<_, _>>();
        names.map(Self).map_err(de::Error::custom)
    }
}

written_schema!(NameList, "Names", |g| OneOrManyStrings::json_schema(g));

/// A regular expression.
#[derive(Clone, Debug)]
pub struct RegexParam(pub Regex);

impl<'de> Deserialize<'de> for RegexParam {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        build_regex(&text, false).map(Self).map_err(de::Error::custom)
    }
}

written_schema!(RegexParam, "Regex", |_| json_schema!({ "type": "string", "format": "regex" }));

/// The default of switches that are on.
pub(super) const fn yes() -> bool {
    true
}
