//! Serde representations: published names for enums, microseconds for times, base64 for bytes that are not UTF-8.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, EntryKind, FlowTimings, Headers, MessageKind, Scheme, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes: a string if they are UTF-8, else `{"base64": "…"}`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Bytes")]
pub enum BytesRepr<'a> {
    Text(Cow<'a, str>),
    Encoded { base64: Cow<'a, str> },
}

/// [`Headers`] as a list of `[name, value]`.
pub type HeaderList = Vec<(BytesRepr<'static>, BytesRepr<'static>)>;

impl<'a> BytesRepr<'a> {
    fn from_bytes(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Encoded { base64: STANDARD.encode(bytes).into() },
        }
    }

    fn bytes(self) -> Result<Vec<u8>, base64::DecodeError> {
        match self {
            Self::Text(text) => Ok(text.into_owned().into_bytes()),
            Self::Encoded { base64 } => STANDARD.decode(base64.as_bytes()),
        }
    }
}

/// [`Bytes`] as text or base64.
pub mod raw {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &Bytes, s: S) -> Result<S::Ok, S::Error> {
        BytesRepr::from_bytes(bytes).serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Bytes, D::Error> {
        BytesRepr::deserialize(d)?.bytes().map(Bytes::from).map_err(D::Error::custom)
    }
}

/// [`Headers`] as a list of `[name, value]`.
pub mod headers {
    use super::*;

    pub fn serialize<S: Serializer>(headers: &Headers, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(headers.iter().map(|(n, v)| (BytesRepr::from_bytes(n), BytesRepr::from_bytes(v))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Headers, D::Error> {
        let fields: Vec<(BytesRepr<'_>, BytesRepr<'_>)> = Vec::deserialize(d)?;
        let mut headers = Headers::with_capacity(fields.len(), fields.len() * 32);
        for (name, value) in fields {
            // Already validated when they were recorded.
            let (name, value) = (name.bytes().map_err(D::Error::custom)?, value.bytes().map_err(D::Error::custom)?);
            headers.append_unchecked(&name, &value);
        }
        Ok(headers)
    }
}

/// Any type with `Display` and `FromStr`.
pub mod text {
    use super::*;

    pub fn serialize<T: std::fmt::Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
        D: Deserializer<'de>,
    {
        Cow::<str>::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// An optional value with `Display` and `FromStr`.
pub mod maybe_text {
    use super::*;

    pub fn serialize<T: std::fmt::Display, S: Serializer>(value: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(T::to_string).serialize(s)
    }

    pub fn deserialize<'de, T, D>(d: D) -> Result<Option<T>, D::Error>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
        D: Deserializer<'de>,
    {
        Option::<Cow<str>>::deserialize(d)?.map(|t| t.parse().map_err(D::Error::custom)).transpose()
    }
}

/// A [`Timestamp`] as microseconds since the Unix epoch.
pub mod micros {
    use super::*;

    pub fn serialize<S: Serializer>(at: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(at.micros())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        u64::deserialize(d).map(Timestamp::from_micros)
    }
}

/// [`FlowTimings`] as a map of the points in time that are set.
pub mod timings {
    use super::*;

    /// Points in time in microseconds after the start of the flow, and durations in microseconds; only those that are known.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    #[schemars(rename = "Timings")]
    pub struct TimingsRepr {
        #[serde(skip_serializing_if = "Option::is_none")]
        request_head: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_body: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        blocked: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dns: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        connect: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tls: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_sent: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_byte: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_byte: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        done: Option<u64>,
    }

    pub fn serialize<S: Serializer>(t: &FlowTimings, s: S) -> Result<S::Ok, S::Error> {
        let FlowTimings {
            request_head,
            request_body,
            blocked,
            dns,
            connect,
            tls,
            request_sent,
            first_byte,
            last_byte,
            done,
        } = *t;
        TimingsRepr {
            request_head,
            request_body,
            blocked,
            dns,
            connect,
            tls,
            request_sent,
            first_byte,
            last_byte,
            done,
        }
        .serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<FlowTimings, D::Error> {
        let TimingsRepr {
            request_head,
            request_body,
            blocked,
            dns,
            connect,
            tls,
            request_sent,
            first_byte,
            last_byte,
            done,
        } = TimingsRepr::deserialize(d)?;
        Ok(FlowTimings {
            request_head,
            request_body,
            blocked,
            dns,
            connect,
            tls,
            request_sent,
            first_byte,
            last_byte,
            done,
        })
    }
}

/// Generates a module that represents an enum by its published name, with the list of all values in the order of their
/// stored numbers.
macro_rules! by_name {
    ($module:ident, $type:ty, $name:expr, $all:expr) => {
        #[doc = concat!("[`", stringify!($type), "`] by its name.")]
        pub mod $module {
            use super::*;

            pub const ALL: &[$type] = &$all;

            pub fn name(value: $type) -> &'static str {
                $name(value)
            }

            pub fn parse(name: &str) -> Option<$type> {
                ALL.iter().copied().find(|v| $name(*v) == name)
            }

            pub fn serialize<S: Serializer>(value: &$type, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(name(*value))
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<$type, D::Error> {
                let text = Cow::<str>::deserialize(d)?;
                parse(&text).ok_or_else(|| D::Error::custom(format_args!("unknown {}: {text}", stringify!($module))))
            }
        }
    };
}

by_name!(
    transport,
    EntryKind,
    EntryKind::as_str,
    [
        EntryKind::Absolute,
        EntryKind::Connect,
        EntryKind::Socks5,
        EntryKind::Transparent,
        EntryKind::Reverse,
        EntryKind::Gateway,
        EntryKind::Internal
    ]
);
by_name!(scheme, Scheme, Scheme::as_str, [Scheme::Http, Scheme::Https]);
by_name!(direction, Direction, Direction::as_str, [Direction::Request, Direction::Response]);
by_name!(
    message_kind,
    MessageKind,
    message_kind_name,
    [
        MessageKind::Text,
        MessageKind::Binary,
        MessageKind::Ping,
        MessageKind::Pong,
        MessageKind::Close,
        MessageKind::Event,
        MessageKind::Grpc
    ]
);

const fn message_kind_name(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Text => "text",
        MessageKind::Binary => "binary",
        MessageKind::Ping => "ping",
        MessageKind::Pong => "pong",
        MessageKind::Close => "close",
        MessageKind::Event => "event",
        MessageKind::Grpc => "grpc",
    }
}
