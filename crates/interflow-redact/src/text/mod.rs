//! Texts as they are sent, and what they stand for: encodings, escapes, JSON, and the tokens of a plain text.

pub(crate) mod appearance;
pub(crate) mod decoded_body;
pub(crate) mod encoded_text;
pub(crate) mod escape_layers;
pub(crate) mod json;
pub(crate) mod normalized_text;
pub(crate) mod token;
