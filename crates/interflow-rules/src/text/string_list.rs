//! One text or several, as rule files write them.

use serde::de::value::SeqAccessDeserializer;
use serde::{Deserialize, de};

use crate::text::shape::{ScalarText, ShapedValue, deserialize_shaped, written_schema};

deserialize_shaped!(OneOrManyStrings);

/// One text or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneOrManyStrings(pub Vec<String>);

impl<'de> ShapedValue<'de> for OneOrManyStrings {
    const EXPECTED: &'static str = "a text or a list of texts";
    const NUMBERS: bool = true;

    fn from_text<E: de::Error>(s: &str) -> Result<Self, E> {
        Ok(Self(vec![s.to_owned()]))
    }

    fn from_list<A: de::SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        let all = Vec::<ScalarText>::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(Self(all.into_iter().map(|ScalarText(text)| text).collect()))
    }
}

written_schema!(
    OneOrManyStrings,
    "Texts",
    |_| json_schema!({ "title": "string or list of strings", "type": ["string", "integer", "array"], "items": { "type": ["string", "integer"] } })
);
