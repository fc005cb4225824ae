//! Serde representations of bytes and header fields: base64 for bytes that are not UTF-8.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_types::Headers;
use interflow_types::schema::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes: a string if they are UTF-8, else `{"base64": "…"}`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Bytes")]
pub enum BytesRepr<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Encoded {
        #[serde(borrow)]
        base64: Cow<'a, str>,
    },
}

/// [`Headers`] as a list of `[name, value]`.
pub type HeaderList = Vec<(BytesRepr<'static>, BytesRepr<'static>)>;

impl<'a> BytesRepr<'a> {
    fn from_bytes(bytes: &'a [u8]) -> Self {
        let encoded = || Self::Encoded { base64: STANDARD.encode(bytes).into() };
        std::str::from_utf8(bytes).map_or_else(|_| encoded(), |text| Self::Text(text.into()))
    }

    fn bytes(self) -> Result<Cow<'a, [u8]>, base64::DecodeError> {
        match self {
            Self::Text(Cow::Borrowed(text)) => Ok(text.as_bytes().into()),
            Self::Text(Cow::Owned(text)) => Ok(text.into_bytes().into()),
            Self::Encoded { base64 } => STANDARD.decode(base64.as_bytes()).map(Cow::Owned),
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
        BytesRepr::deserialize(d)?.bytes().map(|bytes| bytes.into_owned().into()).map_err(D::Error::custom)
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
            // Importers validate them, and refuse what is wrong.
            let (name, value) = (name.bytes().map_err(D::Error::custom)?, value.bytes().map_err(D::Error::custom)?);
            headers.append_raw(&name, &value);
        }
        Ok(headers)
    }
}
