//! Parameters of actions, as written in rule files and as compiled.

use std::borrow::Cow;
use std::fmt;

use regex::bytes::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use crate::string_list::OneOrManyStrings;
use crate::template::TextTemplate;
use crate::text_predicate::build_regex;

macro_rules! shorthand {
    ($(#[$doc:meta])* $type:ident from $map:ident by $field:ident) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> de::Visitor<'de> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "`{}`, or parameters by name", stringify!($field))
                    }
                    fn visit_str<E: de::Error>(self, s: &str) -> Result<$type, E> {
                        one(stringify!($field), s)
                    }
                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<$type, E> {
                        one(stringify!($field), n)
                    }
                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$type, E> {
                        one(stringify!($field), n)
                    }
                    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        $map::deserialize(serde::de::value::MapAccessDeserializer::new(map))?.try_into().map_err(de::Error::custom)
                    }
                }
                fn one<E: de::Error>(key: &str, value: impl Into<serde_json::Value>) -> Result<$type, E> {
                    let map = std::iter::once((key.to_owned(), value.into())).collect();
                    $map::deserialize(serde_json::Value::Object(map)).map_err(E::custom)?.try_into().map_err(E::custom)
                }
                d.deserialize_any(Visitor)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(g: &mut SchemaGenerator) -> Schema {
                let map = g.subschema_for::<$map>();
                json_schema!({ "anyOf": [{ "type": ["string", "integer"] }, map] })
            }
        }
    };
}

mod annotate;
mod answers;
mod bodies;
mod headers;
mod replay;
mod upstream;

pub use annotate::{AppendFileParams, CaptureParams, CaptureSource, DelayParams, HoldParams, LogLevel, LogParams};
pub use answers::{AnswerBody, AnswerParams, BlockParams, MapLocalParams, RedirectParams};
pub use bodies::{
    ByteOffsetParams, EditParams, InjectHtmlParams, InjectParams, InjectText, JsonTemplate, ThrottleParams,
};
pub use headers::{BasicAuthParams, CookieLine, MapRemoteParams, ReplaceField, SaveSessionParams, SessionPartParams};
pub use replay::{OnMiss, ReplayParams, ReplaySource, ScriptParams, ScriptSource};
pub use upstream::{
    CertificateParams, ConnectToParams, DnsServerParam, FingerprintParam, TlsVersionParam, UpstreamProxyParams,
};

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

impl JsonSchema for NoParams {
    fn schema_name() -> Cow<'static, str> {
        "Nothing".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "null" }, { "const": true }, { "type": "object", "maxProperties": 0 }] })
    }
}

/// Values by name, in the order of the file: header fields, cookies, parameters.
#[derive(Clone, Debug, Default)]
pub struct TemplatePairs(pub Vec<(TextTemplate, TextTemplate)>);

impl<'de> Deserialize<'de> for TemplatePairs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TemplatePairsVisitor;
        impl<'de> de::Visitor<'de> for TemplatePairsVisitor {
            type Value = TemplatePairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values by name, such as { X-Seen: \"1\" }")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<TemplatePairs, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    let name = TextTemplate::parse(&name).map_err(de::Error::custom)?;
                    check_name(&name).map_err(de::Error::custom)?;
                    all.push((name, map.next_value()?));
                }
                if all.is_empty() {
                    return Err(de::Error::custom("no name is given: write it as { X-Seen: \"1\" }"));
                }
                Ok(TemplatePairs(all))
            }
        }
        d.deserialize_map(TemplatePairsVisitor)
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

impl JsonSchema for TemplatePairs {
    fn schema_name() -> Cow<'static, str> {
        "Pairs".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let template = g.subschema_for::<TextTemplate>();
        json_schema!({ "type": "object", "additionalProperties": template, "minProperties": 1 })
    }
}

/// Variables to set.
#[derive(Clone, Debug, Default)]
pub struct VariableParams(pub Vec<(String, TextTemplate)>);

impl<'de> Deserialize<'de> for VariableParams {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let pairs = TemplatePairs::deserialize(d)?;
        Ok(Self(pairs.0.into_iter().map(|(n, v)| (n.source().to_owned(), v)).collect()))
    }
}

impl JsonSchema for VariableParams {
    fn schema_name() -> Cow<'static, str> {
        "Variables".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        TemplatePairs::json_schema(g)
    }
}

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

impl JsonSchema for NameList {
    fn schema_name() -> Cow<'static, str> {
        "Names".into()
    }

    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        OneOrManyStrings::json_schema(g)
    }
}

/// A regular expression.
#[derive(Clone, Debug)]
pub struct RegexParam(pub Regex);

impl<'de> Deserialize<'de> for RegexParam {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        build_regex(&text, false).map(Self).map_err(de::Error::custom)
    }
}

impl JsonSchema for RegexParam {
    fn schema_name() -> Cow<'static, str> {
        "Regex".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "regex" })
    }
}

#[cfg(test)]
mod tests {
    use interflow_types::units::{ByteSize, HumanDuration};

    use super::*;

    #[test]
    fn parameters_have_a_short_form() {
        assert_eq!(
            interflow_codec::yaml::from_str::<DelayParams>("200ms").unwrap().time,
            HumanDuration::from_millis(200)
        );
        assert_eq!(interflow_codec::yaml::from_str::<BlockParams>("404").unwrap().status, 404);
        assert_eq!(interflow_codec::yaml::from_str::<ByteOffsetParams>("1KiB").unwrap().after, ByteSize(1024));
        assert!(matches!(interflow_codec::yaml::from_str::<EditParams>("hello").unwrap(), EditParams::Set(_)));
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for (wrong, part) in [
            (interflow_codec::yaml::from_str::<AnswerParams>("{body: a, json: 1}").map(drop), "one of body"),
            (interflow_codec::yaml::from_str::<AnswerParams>("{status: 100}").map(drop), "final status"),
            (interflow_codec::yaml::from_str::<RedirectParams>("{to: /x, status: 200}").map(drop), "not a redirect"),
            (interflow_codec::yaml::from_str::<ThrottleParams>("{}").map(drop), "speed is needed"),
            (interflow_codec::yaml::from_str::<ThrottleParams>("0").map(drop), "never end"),
            (interflow_codec::yaml::from_str::<EditParams>("{find: a, set: b}").map(drop), "an edit has one"),
            (interflow_codec::yaml::from_str::<EditParams>("{json_set: {a: 1}}").map(drop), "not a valid JSONPath"),
            (interflow_codec::yaml::from_str::<EditParams>("{json_patch: [{op: x}]}").map(drop), "unknown variant `x`"),
            (interflow_codec::yaml::from_str::<MapRemoteParams>("nowhere").map(drop), "not a URL"),
            (interflow_codec::yaml::from_str::<NoParams>("{a: 1}").map(drop), "no parameters"),
            (interflow_codec::yaml::from_str::<DelayParams>("2h").map(drop), "longer than an hour"),
        ] {
            let error = wrong.unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
