//! A YAML 1.2 (core schema) parser that records the position of every node. Linear in the text, with bounds on
//! nesting and on alias expansion.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{Document, DocumentError, DocumentNode, NodeKind, Result};

/// The deepest nesting of collections, counting through aliases.
const MAX_DEPTH: usize = 128;

/// The largest document, by [`DocumentNode::size`]: twice that of a file of 100,000 rules.
const MAX_SIZE: u64 = 2_000_000;

/// The bound on the expanded size of a document: this, plus a multiple of its own size.
const ALIAS_BASE: u64 = 10_000;
const ALIAS_FACTOR: u64 = 8;

/// A collection whose end has not been read.
struct OpenCollection {
    anchor: usize,
    node: DocumentNode,
    key: Option<Arc<DocumentNode>>,
    keys: HashSet<Box<str>>,
}

impl Document {
    /// Parses the single YAML document of a text; an empty text is null.
    ///
    /// # Errors
    /// Invalid YAML, or a document over the bounds.
    pub fn parse_yaml(text: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut builder = YamlBuilder::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|e| {
                let mark = e.marker();
                DocumentError::at(e.info(), (mark.line(), mark.col() + 1))
            })?;
            builder.handle_event(event, span)?;
        }
        builder.finish()
    }
}

#[derive(Default)]
struct YamlBuilder {
    root: Option<Arc<DocumentNode>>,
    stack: Vec<OpenCollection>,
    anchors: HashMap<usize, Arc<DocumentNode>>,
    /// The size of what was parsed, without alias expansion.
    size: u64,
    largest: Option<(u64, (usize, usize))>,
}

impl YamlBuilder {
    fn handle_event(&mut self, event: Event<'_>, span: Span) -> Result<()> {
        let position = (span.start.line(), span.start.col() + 1);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|t| {
                    t.is_yaml_core_schema() && t.suffix == "str" || t.handle.is_empty() && t.suffix == "!"
                });
                self.add_size(1 + text.len() as u64 / 32, position)?;
                self.add_node(anchor, DocumentNode::scalar(&text, style == ScalarStyle::Plain && !is_text, position))
            }
            Event::SequenceStart(anchor, _) => self.open_collection(anchor, position, NodeKind::Sequence(Vec::new())),
            Event::MappingStart(anchor, _) => self.open_collection(anchor, position, NodeKind::Mapping(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => {
                // The end of an empty document comes without a start.
                let Some(OpenCollection { anchor, node, .. }) = self.stack.pop() else { return Ok(()) };
                self.add_node(anchor, node)
            }
            Event::Alias(anchor) => {
                // An alias costs one, however large its target: the expansion is checked at the end.
                self.add_size(1, position)?;
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(DocumentError::at("an alias is inside the node it refers to", position));
                };
                // Only the largest is remembered, to be named in the error: which alias is at fault cannot be decided.
                if self.largest.is_none_or(|(size, _)| node.size > size) {
                    self.largest = Some((node.size, position));
                }
                self.attach(node, position)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(DocumentError::at("there is more than one document; only one is supported", position))
            }
            _ => Ok(()),
        }
    }

    fn add_size(&mut self, size: u64, place: (usize, usize)) -> Result<()> {
        self.size += size;
        if self.size > MAX_SIZE {
            return Err(DocumentError::at(format!("the document has more than {MAX_SIZE} parts"), place));
        }
        Ok(())
    }

    fn open_collection(&mut self, anchor: usize, place: (usize, usize), kind: NodeKind) -> Result<()> {
        self.add_size(1, place)?;
        // Before the collection is stored, so that the stack itself is bounded.
        if self.stack.len() >= MAX_DEPTH {
            return Err(too_deep(place));
        }
        let node = DocumentNode { place, depth: 1, size: 1, kind };
        self.stack.push(OpenCollection { anchor, node, key: None, keys: HashSet::new() });
        Ok(())
    }

    fn add_node(&mut self, anchor: usize, node: DocumentNode) -> Result<()> {
        let (place, node) = (node.place, Arc::new(node));
        if anchor > 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        self.attach(node, place)
    }

    fn attach(&mut self, node: Arc<DocumentNode>, place: (usize, usize)) -> Result<()> {
        // The depth of an alias counts where it is used, so that nested aliases cannot exceed the limit either.
        if self.stack.len() + node.depth > MAX_DEPTH + 1 {
            return Err(too_deep(place));
        }
        let Some(OpenCollection { node: open, key, keys, .. }) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.depth = open.depth.max(node.depth + 1);
        open.size = open.size.saturating_add(node.size);
        match &mut open.kind {
            NodeKind::Sequence(all) => all.push(node),
            // Keys and values alternate.
            NodeKind::Mapping(all) => match key.take() {
                Some(key) => all.push((key, node)),
                None => {
                    let NodeKind::Scalar { text, .. } = &node.kind else {
                        return Err(DocumentError::at("a key must be a string", place));
                    };
                    // YAML 1.2 requires unique keys; silently taking one of two values would hide mistakes in rules.
                    if !keys.insert(text.clone()) {
                        return Err(DocumentError::at(format!("duplicate key `{text}` in a mapping"), place));
                    }
                    *key = Some(node);
                }
            },
            NodeKind::Scalar { .. } | NodeKind::Typed(_) => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Document> {
        // An empty document is null.
        let root = self.root.unwrap_or_else(|| Arc::new(DocumentNode::scalar("", true, (1, 1))));
        match self.largest {
            // Measured against the document's own size: large files may use aliases, small ones cannot expand to
            // millions of nodes.
            Some((_, place)) if root.size > ALIAS_BASE + ALIAS_FACTOR * self.size => Err(DocumentError::at(
                format!("its aliases expand to {} nodes, too many for its size", root.size),
                place,
            )),
            _ => Ok(Document(root)),
        }
    }
}

fn too_deep(place: (usize, usize)) -> DocumentError {
    DocumentError::at(format!("nested deeper than {MAX_DEPTH}"), place)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::PathSegment::{Index, Key};
    use super::super::{from_yaml, to_yaml};
    use super::*;

    #[test]
    fn scalars_follow_the_yaml_core_schema() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("true", json!(true)),
            ("False", json!(false)),
            ("yes", json!("yes")),
            ("'true'", json!("true")),
            ("42", json!(42)),
            ("-7", json!(-7)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("007", json!("007")),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("1_000", json!("1_000")),
            ("2001-01-01", json!("2001-01-01")),
            ("!!str 5", json!("5")),
            ("\u{feff}a: 1", json!({"a": 1})),
            ("a: |\n  x\n  y\nb: >\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y\n"})),
            ("- a\n- [b, {c: d}]\n", json!(["a", ["b", {"c": "d"}]])),
            ("1: x\ntrue: y", json!({"1": "x", "true": "y"})),
            ("{\"a\": [1, null], \"b\": \"\\u00fc\"}", json!({"a": [1, null], "b": "ü"})),
            ("a: &x {b: 1}\nc: *x", json!({"a": {"b": 1}, "c": {"b": 1}})),
        ] {
            assert_eq!(from_yaml::<Value>(text).unwrap_or_else(|e| panic!("{text}: {e}")), value, "{text}");
        }
    }

    #[test]
    fn errors_have_a_position() {
        for (text, place, part) in [
            ("a: 1\nb: [1, 2\n", (3, 1), ""),
            ("a: 1\na: 2\n", (2, 1), "duplicate key `a`"),
            ("a: *none\n", (1, 4), ""),
            ("a: &x [*x]\n", (1, 8), "inside the node"),
            ("---\na\n---\nb\n", (3, 1), "more than one document"),
            ("? [a]\n: b\n", (1, 3), "a key must be a string"),
        ] {
            let error = from_yaml::<Value>(text).unwrap_err();
            assert!(error.message().contains(part), "{text}: {error}");
            assert_eq!(error.position(), Some(place), "{text}: {error}");
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Two {
            #[allow(dead_code)]
            number: u8,
        }
        for (text, place) in
            [("x: {number: many}", (1, 13)), ("x:\n  numbr: 1", (2, 3)), ("x:\n  number: 300\n", (2, 11))]
        {
            let error = from_yaml::<HashMap<String, Two>>(text).unwrap_err();
            assert_eq!(error.position(), Some(place), "{text}: {error}");
        }
    }

    #[test]
    fn paths_have_a_position() {
        let text = "rules:\n  - name: a\n    then: [x]\n  - name: b\n    Then:\n      - tag: y\n";
        let document = Document::parse_yaml(text).unwrap();
        let path = [Key("rules"), Index(1), Key("then"), Index(0), Key("tag")];
        assert_eq!(document.locate(&path), (6, 14));
        assert_eq!(document.locate(&[Key("rules"), Index(1), Key("none")]), (4, 5));
        assert_eq!(document.locate(&[Key("rules"), Index(9)]), document.locate(&[Key("rules")]));
    }

    #[test]
    fn nesting_and_aliases_are_bounded() {
        for open in ["[", "{a: ", "- ", "? "] {
            let error = from_yaml::<Value>(&open.repeat(100_000)).unwrap_err();
            assert!(error.message().contains("nested") || error.message().contains("recursion"), "{error}");
        }
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let before = format!("*a{}, ", i - 1).repeat(10);
            laughs.push_str(&format!("a{i}: &a{i} [{before}]\n"));
        }
        let error = from_yaml::<Value>(&laughs).unwrap_err();
        assert!(error.message().contains("aliases"), "{error}");
        assert_eq!(error.position().map(|p| p.0), Some(12), "{error}");
        // A long text repeated often, and a deep chain of aliases in a shallow text.
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(100_000));
        let error = from_yaml::<Value>(&long).unwrap_err();
        assert!(error.message().contains("aliases"), "{error}");
        let chain: String = (1..1_000).map(|i| format!("a{i}: &a{i} [*a{}]\n", i - 1)).collect();
        let error = from_yaml::<Value>(&format!("a0: &a0 x\n{chain}")).unwrap_err();
        assert!(error.message().contains("nested"), "{error}");
        let error = from_yaml::<Value>(&format!("[{}]", "a,".repeat(2_100_000))).unwrap_err();
        assert!(error.message().contains("parts"), "{error}");
        let many: String = (0..5_000).map(|i| format!("- {{name: r{i}, then: [abort]}}\n")).collect();
        assert_eq!(from_yaml::<Vec<Value>>(&many).unwrap().len(), 5_000);
    }

    #[test]
    fn written_documents_parse_to_the_same_value() {
        let value = json!({
            "rules": [{"name": "a: b", "when": "~u x", "then": [{"tag": "yes"}, "stop"], "n": 5, "f": 1.5, "e": [], "o": {}}],
            "text": "two\nlines # no comment", "null": null, "true": "true", "é": "\u{1}\"\\",
            "to": "http://b.test/", "key": "x:", "a:b": "c:d",
        });
        let text = to_yaml(&value);
        assert_eq!(from_yaml::<Value>(&text).unwrap(), value, "{text}");
        assert!(text.contains("to: http://b.test/\n"), "{text}");
    }
}
