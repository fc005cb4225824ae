//! Deserializes a document with serde; an error has the position of the innermost node in which it occurred.

use std::sync::{Arc, LazyLock};

use interflow_types::data_file;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};

use super::{Document, DocumentError, DocumentNode, NodeKind, Result};

impl de::Error for DocumentError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), place: None }
    }

    fn invalid_type(given: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!(
            "it is {}, but {} belongs here",
            plain(&given.to_string()),
            plain(&expected.to_string())
        ))
    }

    fn invalid_value(given: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(given, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("the key `{field}` is missing"))
    }
}

/// serde's words for types, in plain ones.
static PLAIN_WORDS: LazyLock<Vec<[&str; 2]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/type_words.txt")).collect());

fn plain(words: &str) -> String {
    // Behind the name of a type is the value.
    let (name, value) = words.split_at(words.find(['`', '"']).map_or(words.len(), |at| at.saturating_sub(1)));
    let name = if name.starts_with("struct ") { "map" } else { name };
    let known = PLAIN_WORDS.iter().find(|[own, _]| *own == name);
    known.map_or(name, |[_, plain]| *plain).to_owned() + value
}

impl DocumentError {
    fn with_position_of(mut self, node: &DocumentNode) -> Self {
        self.place.get_or_insert(node.place);
        self
    }
}

/// The type of a plain (unquoted) scalar.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlainScalar<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

fn resolve_scalar(text: &str) -> PlainScalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return PlainScalar::Null,
        "true" | "True" | "TRUE" => return PlainScalar::Bool(true),
        "false" | "False" | "FALSE" => return PlainScalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return PlainScalar::Float(f64::NAN),
        _ => {}
    }
    let (negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return PlainScalar::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let based = |prefix: &str, base: u32| {
        // Hexadecimal and octal numbers of the core schema, without a sign.
        let rest = text.strip_prefix(prefix).filter(|r| !r.starts_with(['+', '-']))?;
        u64::from_str_radix(rest, base).ok().map(PlainScalar::Unsigned)
    };
    if let Some(number) = based("0x", 16).or_else(|| based("0o", 8)) {
        return number;
    }
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if all_digits {
        // Digits with leading zeros are text: postal codes, file modes.
        if digits.len() > 1 && digits.starts_with('0') {
            return PlainScalar::Text(text);
        }
        if let Ok(n) = digits.parse::<u64>() {
            // Through `i128`, because the smallest i64 has no positive counterpart.
            let signed = || i64::try_from(-i128::from(n)).ok().map(PlainScalar::Signed);
            if let Some(number) = if negative { signed() } else { Some(PlainScalar::Unsigned(n)) } {
                return number;
            }
        }
    }
    // `parse` would also accept words such as `infinity` and `nan`.
    let float = digits.bytes().any(|b| b.is_ascii_digit())
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if float => PlainScalar::Float(number),
        _ => PlainScalar::Text(text),
    }
}

impl Document {
    pub fn deserializer(&self) -> impl for<'de> Deserializer<'de, Error = DocumentError> {
        &*self.0
    }
}

impl DocumentNode {
    fn resolve_plain(&self) -> Option<PlainScalar<'_>> {
        match &self.kind {
            NodeKind::Scalar { text, plain: true } => Some(resolve_scalar(text)),
            NodeKind::Scalar { text, plain: false } => Some(PlainScalar::Text(text)),
            NodeKind::Typed(scalar) => Some(*scalar),
            _ => None,
        }
    }

    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value> {
        let visited = match (&self.kind, self.resolve_plain()) {
            (NodeKind::Sequence(all), _) => visitor.visit_seq(SequenceItems(all.iter())),
            (NodeKind::Mapping(all), _) => visitor.visit_map(MappingMembers { all, next: 0 }),
            (_, Some(PlainScalar::Bool(b))) => visitor.visit_bool(b),
            (_, Some(PlainScalar::Unsigned(n))) => visitor.visit_u64(n),
            (_, Some(PlainScalar::Signed(n))) => visitor.visit_i64(n),
            (_, Some(PlainScalar::Float(n))) => visitor.visit_f64(n),
            (_, Some(PlainScalar::Text(text))) => visitor.visit_str(text),
            (_, Some(PlainScalar::Null) | None) => visitor.visit_unit(),
        };
        visited.map_err(|e| e.with_position_of(self))
    }

    /// Whether the value is missing, as after `key:`; deserializes as an empty collection where one is expected.
    fn is_blank(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true } if text.is_empty())
    }

    /// Visits a scalar as text, whatever type its form implies.
    fn visit_text<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value> {
        match &self.kind {
            NodeKind::Scalar { text, .. } => {
                visitor.visit_str(text).map_err(|e: DocumentError| e.with_position_of(self))
            }
            _ => self.visit(visitor),
        }
    }
}

macro_rules! text {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.visit_text(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for &DocumentNode {
    type Error = DocumentError;

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 bytes byte_buf unit unit_struct tuple tuple_struct
    }
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit(visitor)
    }

    text! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        // `key:` without a value is an empty list where one is expected.
        if self.is_blank() { visitor.visit_seq(SequenceItems([].iter())) } else { self.visit(visitor) }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if !self.is_blank() {
            return self.visit(visitor);
        }
        visitor.visit_map(MappingMembers { all: &[], next: 0 }).map_err(|e: DocumentError| e.with_position_of(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.resolve_plain() {
            Some(PlainScalar::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
        .map_err(|e: DocumentError| e.with_position_of(self))
        // YAML null is `None`, whatever the type.
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self).map_err(|e: DocumentError| e.with_position_of(self))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        // A unit variant is a name; others are a mapping of one name to its content.
        let visited = match &self.kind {
            NodeKind::Scalar { text, .. } => {
                let name: StrDeserializer<'_, DocumentError> = (&**text).into_deserializer();
                visitor.visit_enum(name)
            }
            NodeKind::Mapping(all) if let [(name, value)] = &all[..] => visitor.visit_enum(EnumVariant { name, value }),
            kind => {
                let unexpected = match kind {
                    NodeKind::Mapping(_) => Unexpected::Map,
                    NodeKind::Sequence(_) => Unexpected::Seq,
                    _ => Unexpected::Other("no text"),
                };
                Err(de::Error::invalid_type(unexpected, &&*format!("one of {}", names.join(", "))))
            }
        };
        visited.map_err(|e| e.with_position_of(self))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }
}

struct SequenceItems<'a>(std::slice::Iter<'a, Arc<DocumentNode>>);

impl<'de> SeqAccess<'de> for SequenceItems<'_> {
    type Error = DocumentError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(&**node).map(Some).map_err(|e| e.with_position_of(node))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct MappingMembers<'a> {
    all: &'a [(Arc<DocumentNode>, Arc<DocumentNode>)],
    next: usize,
}

impl<'de> MapAccess<'de> for MappingMembers<'_> {
    type Error = DocumentError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some((key, _)) = self.all.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(&**key).map(Some).map_err(|e| e.with_position_of(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        let Some((_, value)) = self.next.checked_sub(1).and_then(|i| self.all.get(i)) else {
            return Err(de::Error::custom("a value is asked for before its key"));
        };
        seed.deserialize(&**value).map_err(|e| e.with_position_of(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.all.len() - self.next)
    }
}

struct EnumVariant<'a> {
    name: &'a DocumentNode,
    value: &'a DocumentNode,
}

impl<'de, 'a> EnumAccess<'de> for EnumVariant<'a> {
    type Error = DocumentError;
    type Variant = &'a DocumentNode;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, &'a DocumentNode)> {
        Ok((seed.deserialize(self.name)?, self.value))
    }
}

impl<'de> VariantAccess<'de> for &DocumentNode {
    type Error = DocumentError;

    fn unit_variant(self) -> Result<()> {
        match self.resolve_plain() {
            Some(PlainScalar::Null) => Ok(()),
            _ => Err(DocumentError::at("this name takes no value", self.place)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self).map_err(|e| e.with_position_of(self))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.visit(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.visit(visitor)
    }
}
