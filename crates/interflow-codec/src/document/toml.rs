//! Reads TOML into the nodes of a document.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::de::PlainScalar;
use super::{Document, DocumentError, DocumentNode, NodeKind, Result};

impl Document {
    /// Parses a TOML text.
    ///
    /// # Errors
    /// Invalid TOML, with its position.
    pub fn parse_toml(text: &str) -> Result<Self> {
        let lines = LineStarts::new(text);
        let table = DeTable::parse(text).map_err(|e| {
            let what = e.span().filter(|_| e.message() == "duplicate key").and_then(|span| text.get(span));
            let message = what.map_or(e.message().to_owned(), |key| format!("duplicate key `{}`", key.trim()));
            DocumentError { message, place: e.span().map(|span| lines.position(span.start)) }
        })?;
        let kind = mapping(table.get_ref(), &lines)?;
        Ok(Self(Arc::new(node(kind, lines.position(table.span().start)))))
    }
}

fn mapping(table: &DeTable<'_>, lines: &LineStarts<'_>) -> Result<NodeKind> {
    let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key = DocumentNode::scalar(AsRef::<str>::as_ref(key.get_ref()), false, lines.position(key.span().start));
        Ok((Arc::new(key), read(value, lines)?))
    };
    table.iter().map(member).collect::<Result<_, _>>().map(NodeKind::Mapping)
}

fn read(value: &Spanned<DeValue<'_>>, lines: &LineStarts<'_>) -> Result<Arc<DocumentNode>> {
    let position = lines.position(value.span().start);
    let text = |text: &str| NodeKind::Scalar { text: text.into(), plain: false };
    let invalid = |what: &str| DocumentError::at(format!("the number {what} is out of range"), position);
    let kind = match value.get_ref() {
        DeValue::String(string) => text(string),
        DeValue::Datetime(time) => text(&time.to_string()),
        DeValue::Boolean(value) => NodeKind::Typed(PlainScalar::Bool(*value)),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            NodeKind::Typed(PlainScalar::Signed(parsed.map_err(|_| invalid(number.as_str()))?))
        }
        DeValue::Float(number) => {
            NodeKind::Typed(PlainScalar::Float(number.as_str().parse().map_err(|_| invalid(number.as_str()))?))
        }
        DeValue::Array(all) => NodeKind::Sequence(all.iter().map(|v| read(v, lines)).collect::<Result<_, _>>()?),
        DeValue::Table(table) => mapping(table, lines)?,
    };
    Ok(Arc::new(node(kind, position)))
}

/// Depth and size are bounded by TOML's parser and the text, which has no aliases.
fn node(kind: NodeKind, place: (usize, usize)) -> DocumentNode {
    DocumentNode { place, depth: 1, size: 1, kind }
}

/// The byte offsets at which lines begin.
struct LineStarts<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> LineStarts<'t> {
    fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// Line and column of a byte offset, from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        // An offset within a character, from a damaged text, must not panic.
        let at = self.text.floor_char_boundary(at.min(self.text.len()));
        let line = self.starts.partition_point(|start| *start <= at);
        (line, self.text[self.starts[line - 1]..at].chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{PathSegment, from_toml};
    use super::*;

    #[test]
    fn toml_is_read_with_its_types() {
        let text = "a = 'x'\nb = 0xff\nc = -1.5\nd = true\ne = 2026-11-29\nf = [1, { g = \"5\" }]\n[h.i]\nj = 1_000\n";
        let value = json!({"a": "x", "b": 255, "c": -1.5, "d": true, "e": "2026-11-29", "f": [1, {"g": "5"}],
            "h": {"i": {"j": 1000}}});
        assert_eq!(from_toml::<Value>(text).unwrap(), value);
        assert!(from_toml::<std::collections::HashMap<String, String>>("a = 5").is_err(), "a number is no text");
        assert!(from_toml::<Value>("a = 9223372036854775808").is_err());
    }

    #[test]
    fn errors_of_toml_have_a_position() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Two {
            #[allow(dead_code)]
            number: u8,
        }
        for (text, place) in [
            ("x = = 1", (1, 5)),
            ("[a]\nnumber = 1\nnumber = 2", (3, 1)),
            ("['é']\nnumbr = 1", (2, 1)),
            ("'é' = { number = 300 }", (1, 18)),
            ("[a]\nnumber = 1\n[b]\n", (3, 1)),
        ] {
            let error = from_toml::<std::collections::HashMap<String, Two>>(text).unwrap_err();
            assert_eq!(error.position(), Some(place), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_at_a_position_is_left_out() {
        let document = Document::parse_toml("[a]\nx = 1\ny = 2\n[[b]]\nz = [1, 2]\n").unwrap();
        let path = [PathSegment::Key("B"), PathSegment::Index(0), PathSegment::Key("z"), PathSegment::Index(1)];
        assert_eq!(document.locate(&path), (5, 9));
        assert_eq!(document.locate(&path[..1]), document.locate(&[PathSegment::Key("b"), PathSegment::Key("none")]));
        let without = |place| {
            use serde::Deserialize as _;
            Value::deserialize(document.without(place).unwrap().deserializer()).unwrap()
        };
        assert_eq!(without((2, 5)), json!({"a": {"y": 2}, "b": [{"z": [1, 2]}]}));
        assert_eq!(without((5, 9)), json!({"a": {"x": 1, "y": 2}, "b": [{}]}));
        assert!(document.without((9, 9)).is_none());
    }
}
