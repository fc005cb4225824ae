//! Parameters of actions, as written in rule files and as compiled.

/// Deserializes parameters from a map, or from a single value that stands for the main one of them. The type is read from
/// the map by another type, or has `serde(remote = "Self")` and possibly a function that checks it.
macro_rules! shorthand {
    ($type:ident by $field:ident) => {
        shorthand!($type by $field, Ok::<_, String>);
    };
    ($type:ident by $field:ident, $check:expr) => {
        shorthand!(@read $type, $type, $field, $check);
    };
    ($type:ident from $map:ident by $field:ident) => {
        shorthand!(@read $type, $map, $field, $type::try_from);
        $crate::text::shape::written_schema!($type, stringify!($type), |g| {
            let map = g.subschema_for::<$map>();
            $crate::params::with_short_form(stringify!($field), map)
        });
    };
    (@read $type:ident, $map:ident, $field:ident, $convert:expr) => {
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
                        let map = serde::de::value::MapAccessDeserializer::new(map);
                        $convert($map::deserialize(map)?).map_err(de::Error::custom)
                    }
                }
                fn one<E: de::Error>(key: &str, value: impl Into<serde_json::Value>) -> Result<$type, E> {
                    let map = std::iter::once((key.to_owned(), value.into())).collect();
                    $convert($map::deserialize(serde_json::Value::Object(map)).map_err(E::custom)?).map_err(E::custom)
                }
                d.deserialize_any(Visitor)
            }
        }
    };
}

/// The schema of parameters with this one, and of a single value in the place of the main one.
#[cfg(feature = "schema")]
fn with_short_form(field: &str, map: schemars::Schema) -> schemars::Schema {
    let short = schemars::json_schema!({ "type": ["string", "integer"], "description": format!("`{field}`") });
    schemars::json_schema!({ "anyOf": [short, map] })
}

/// As [`with_short_form`], for types that derive their schema.
#[cfg(feature = "schema")]
fn short_form(field: &'static str) -> impl FnMut(&mut schemars::Schema) {
    move |schema| *schema = with_short_form(field, std::mem::take(schema))
}

mod annotate;
mod answers;
mod bodies;
mod headers;
mod replay;
mod upstream;
mod value_types;

pub use annotate::{AppendFileParams, CaptureParams, CaptureSource, DelayParams, HoldParams, LogLevel, LogParams};
pub use answers::{AnswerBody, AnswerParams, BlockParams, MapLocalParams, RedirectParams};
pub(crate) use answers::{final_status, request_method};
pub use bodies::{
    ByteOffsetParams, EditParams, InjectHtmlParams, InjectParams, InjectText, JsonTemplate, ThrottleParams,
};
pub use headers::{BasicAuthParams, CookieLine, MapRemoteParams, ReplaceField, SaveSessionParams, SessionPartParams};
pub use replay::{OnMiss, ReplayParams, ReplaySource, ScriptParams, ScriptSource};
pub use upstream::{
    CertificateParams, ConnectToParams, DnsServerParam, FingerprintParam, TlsVersionParam, UpstreamProxyParams,
};
pub use value_types::{NameList, NoParams, RegexParam, TemplatePairs, VariableParams};

#[cfg(test)]
mod tests {
    use interflow_types::units::{ByteSize, HumanDuration};

    use super::*;

    #[test]
    fn parameters_have_a_short_form() {
        assert_eq!(
            interflow_codec::document::from_yaml::<DelayParams>("200ms").unwrap().time,
            HumanDuration::from_millis(200)
        );
        assert_eq!(interflow_codec::document::from_yaml::<BlockParams>("404").unwrap().status, 404);
        assert_eq!(interflow_codec::document::from_yaml::<ByteOffsetParams>("1KiB").unwrap().after, ByteSize(1024));
        assert!(matches!(interflow_codec::document::from_yaml::<EditParams>("hello").unwrap(), EditParams::Set(_)));
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for (wrong, part) in [
            (interflow_codec::document::from_yaml::<AnswerParams>("{body: a, json: 1}").map(drop), "one of body"),
            (interflow_codec::document::from_yaml::<AnswerParams>("{status: 100}").map(drop), "final status"),
            (
                interflow_codec::document::from_yaml::<RedirectParams>("{to: /x, status: 200}").map(drop),
                "not a redirect",
            ),
            (interflow_codec::document::from_yaml::<ThrottleParams>("{}").map(drop), "speed is needed"),
            (interflow_codec::document::from_yaml::<ThrottleParams>("0").map(drop), "never end"),
            (interflow_codec::document::from_yaml::<EditParams>("{find: a, set: b}").map(drop), "an edit has one"),
            (
                interflow_codec::document::from_yaml::<EditParams>("{json_set: {a: 1}}").map(drop),
                "not a valid JSONPath",
            ),
            (
                interflow_codec::document::from_yaml::<EditParams>("{json_patch: [{op: x}]}").map(drop),
                "unknown variant `x`",
            ),
            (interflow_codec::document::from_yaml::<MapRemoteParams>("nowhere").map(drop), "not a URL"),
            (interflow_codec::document::from_yaml::<NoParams>("{a: 1}").map(drop), "no parameters"),
            (interflow_codec::document::from_yaml::<DelayParams>("2h").map(drop), "longer than an hour"),
        ] {
            let error = wrong.unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
