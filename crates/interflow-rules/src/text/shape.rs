//! Values that rule files may write in several shapes, and the JSON Schemas of types that are read by hand.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserializer, Unexpected};

/// A type that is written as a text, a list or a map; a shape that is not implemented is refused.
pub(crate) trait ShapedValue<'de>: Sized {
    /// What is expected, for errors.
    const EXPECTED: &'static str;
    /// Whether numbers count as texts.
    const NUMBERS: bool = false;
    /// Whether `true` and `false` count as texts.
    const BOOLS: bool = false;

    fn from_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Str(text), &Self::EXPECTED))
    }

    fn from_list<A: de::SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(de::Error::invalid_type(Unexpected::Seq, &Self::EXPECTED))
    }

    fn from_map<A: de::MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(de::Error::invalid_type(Unexpected::Map, &Self::EXPECTED))
    }
}

pub(crate) fn deserialize<'de, T: ShapedValue<'de>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    d.deserialize_any(ShapeVisitor(PhantomData))
}

struct ShapeVisitor<T>(PhantomData<T>);

impl<'de, T: ShapedValue<'de>> ShapeVisitor<T> {
    fn number<E: de::Error>(text: &str, number: Unexpected<'_>) -> Result<T, E> {
        if T::NUMBERS { T::from_text(text) } else { Err(E::invalid_type(number, &T::EXPECTED)) }
    }
}

impl<'de, T: ShapedValue<'de>> de::Visitor<'de> for ShapeVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text)
    }
    fn visit_bool<E: de::Error>(self, on: bool) -> Result<T, E> {
        if T::BOOLS { T::from_text(&on.to_string()) } else { Err(E::invalid_type(Unexpected::Bool(on), &T::EXPECTED)) }
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> Result<T, E> {
        Self::number(&n.to_string(), Unexpected::Signed(n))
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> Result<T, E> {
        Self::number(&n.to_string(), Unexpected::Unsigned(n))
    }
    fn visit_f64<E: de::Error>(self, n: f64) -> Result<T, E> {
        Self::number(&n.to_string(), Unexpected::Float(n))
    }
    fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::from_list(list)
    }
    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_map(map)
    }
}

/// Implements `Deserialize` for types with [`ShapedValue`].
macro_rules! deserialize_shaped {
    ($($type:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $crate::text::shape::deserialize(d)
            }
        }
    )+};
}
pub(crate) use deserialize_shaped;

/// The JSON Schema of a type that is read by hand, under the name that the reference has it.
macro_rules! written_schema {
    ($type:ty, $name:expr, |$generator:pat_param| $schema:expr) => {
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            #[allow(unused_imports, reason = "some schemas are those of other types")]
            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                use schemars::{JsonSchema as _, json_schema};
                $schema
            }
        }
    };
}
pub(crate) use written_schema;

/// A text, number or boolean as text.
pub(crate) struct ScalarText(pub String);

deserialize_shaped!(ScalarText);

impl ShapedValue<'_> for ScalarText {
    const EXPECTED: &'static str = "a text";
    const NUMBERS: bool = true;
    const BOOLS: bool = true;

    fn from_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self(text.to_owned()))
    }
}
