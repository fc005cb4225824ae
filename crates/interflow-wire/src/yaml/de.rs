//! A document as serde's deserializer; an error knows the innermost part in which it arose.

use std::sync::Arc;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};

use super::{Document, Error, Kind, Node};

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), place: None }
    }
}

impl Error {
    fn within(mut self, node: &Node) -> Self {
        self.place.get_or_insert(node.place);
        self
    }
}

/// The type of a plain scalar.
#[derive(Clone, Copy, Debug)]
enum Scalar<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let (negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Scalar::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let based = |prefix: &str, base: u32| {
        let rest = text.strip_prefix(prefix).filter(|r| !r.starts_with(['+', '-']))?;
        u64::from_str_radix(rest, base).ok().map(Scalar::Unsigned)
    };
    if let Some(number) = based("0x", 16).or_else(|| based("0o", 8)) {
        return number;
    }
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if all_digits {
        // A number with zeros in front is a name that happens to have digits: a postal code, a mode.
        if digits.len() > 1 && digits.starts_with('0') {
            return Scalar::Text(text);
        }
        if let Ok(n) = digits.parse::<u64>() {
            let signed = || i64::try_from(-i128::from(n)).ok().map(Scalar::Signed);
            if let Some(number) = if negative { signed() } else { Some(Scalar::Unsigned(n)) } {
                return number;
            }
        }
    }
    let float = digits.bytes().any(|b| b.is_ascii_digit())
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if float => Scalar::Float(number),
        _ => Scalar::Text(text),
    }
}

impl Document {
    /// The document as serde takes it.
    pub fn deserializer(&self) -> impl for<'de> Deserializer<'de, Error = Error> {
        &*self.0
    }
}

impl Node {
    fn resolved(&self) -> Option<Scalar<'_>> {
        match &self.kind {
            Kind::Scalar { text, plain: true } => Some(resolve(text)),
            Kind::Scalar { text, plain: false } => Some(Scalar::Text(text)),
            _ => None,
        }
    }

    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        let visited = match (&self.kind, self.resolved()) {
            (Kind::Sequence(all), _) => visitor.visit_seq(Items { all, next: 0 }),
            (Kind::Mapping(all), _) => visitor.visit_map(Members { all, next: 0 }),
            (_, Some(Scalar::Bool(b))) => visitor.visit_bool(b),
            (_, Some(Scalar::Unsigned(n))) => visitor.visit_u64(n),
            (_, Some(Scalar::Signed(n))) => visitor.visit_i64(n),
            (_, Some(Scalar::Float(n))) => visitor.visit_f64(n),
            (_, Some(Scalar::Text(text))) => visitor.visit_str(text),
            (_, Some(Scalar::Null) | None) => visitor.visit_unit(),
        };
        visited.map_err(|e| e.within(self))
    }

    /// Whether nothing is written there, as behind `key:`: an empty collection where one is asked for.
    fn is_blank(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if text.is_empty())
    }

    /// A scalar as the text that it is, whatever its form would make of it.
    fn visit_text<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        match &self.kind {
            Kind::Scalar { text, .. } => visitor.visit_str(text).map_err(|e: Error| e.within(self)),
            _ => self.visit(visitor),
        }
    }
}

macro_rules! any {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.visit(visitor)
        }
    )*};
}

macro_rules! text {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.visit_text(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for &Node {
    type Error = Error;

    any! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_bytes deserialize_byte_buf deserialize_unit
    }
    text! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_blank() { visitor.visit_seq(Items { all: &[], next: 0 }) } else { self.visit(visitor) }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.is_blank() {
            return self.visit(visitor);
        }
        visitor.visit_map(Members { all: &[], next: 0 }).map_err(|e: Error| e.within(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.resolved() {
            Some(Scalar::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
        .map_err(|e: Error| e.within(self))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self).map_err(|e: Error| e.within(self))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.visit(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let visited = match &self.kind {
            Kind::Scalar { text, .. } => {
                let name: StrDeserializer<'_, Error> = (&**text).into_deserializer();
                visitor.visit_enum(name)
            }
            Kind::Mapping(all) if let [(name, value)] = &all[..] => visitor.visit_enum(Variant { name, value }),
            Kind::Mapping(_) => Err(de::Error::invalid_type(Unexpected::Map, &"a name, or one name with its value")),
            Kind::Sequence(_) => Err(de::Error::invalid_type(Unexpected::Seq, &"a name, or one name with its value")),
        };
        visited.map_err(|e| e.within(self))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

struct Items<'a> {
    all: &'a [Arc<Node>],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(node) = self.all.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(&**node).map(Some).map_err(|e| e.within(node))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.all.len() - self.next)
    }
}

struct Members<'a> {
    all: &'a [(Arc<Node>, Arc<Node>)],
    next: usize,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, _)) = self.all.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(&**key).map(Some).map_err(|e| e.within(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((_, value)) = self.next.checked_sub(1).and_then(|i| self.all.get(i)) else {
            return Err(de::Error::custom("a value is asked for before its key"));
        };
        seed.deserialize(&**value).map_err(|e| e.within(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.all.len() - self.next)
    }
}

struct Variant<'a> {
    name: &'a Node,
    value: &'a Node,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = &'a Node;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, &'a Node), Error> {
        Ok((seed.deserialize(self.name)?, self.value))
    }
}

impl<'de> VariantAccess<'de> for &Node {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.resolved() {
            Some(Scalar::Null) => Ok(()),
            _ => Err(Error::at("this name takes no value", self.place)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self).map_err(|e| e.within(self))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor)
    }
}
