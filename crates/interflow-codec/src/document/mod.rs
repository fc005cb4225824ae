//! Documents of configuration, rules and policies: YAML and TOML are parsed into one tree with the position of every node, and
//! deserialized from it.

mod de;
mod toml;
mod write;
mod yaml;

use std::sync::Arc;

use serde::de::DeserializeOwned;

use de::PlainScalar;
pub use write::to_string as to_yaml;

pub type Result<T, E = DocumentError> = std::result::Result<T, E>;

/// Why a text is not valid, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .place.map_or_else(String::new, |(line, column)| format!(" at line {line} column {column}")))]
pub struct DocumentError {
    message: String,
    place: Option<(usize, usize)>,
}

impl DocumentError {
    fn at(message: impl Into<String>, place: (usize, usize)) -> Self {
        Self { message: message.into(), place: Some(place) }
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// Line and column, starting at 1.
    pub fn position(&self) -> Option<(usize, usize)> {
        self.place
    }
}

#[derive(Debug)]
struct DocumentNode {
    place: (usize, usize),
    /// The nesting depth; 1 for a scalar.
    depth: usize,
    /// The number of nodes after alias expansion, plus the length of texts.
    size: u64,
    kind: NodeKind,
}

#[derive(Debug)]
enum NodeKind {
    /// A scalar; `plain` if it is unquoted, so that its form decides its type.
    Scalar {
        text: Box<str>,
        plain: bool,
    },
    /// A scalar of TOML that is no text.
    Typed(PlainScalar<'static>),
    Sequence(Vec<Arc<DocumentNode>>),
    Mapping(Vec<(Arc<DocumentNode>, Arc<DocumentNode>)>),
}

impl DocumentNode {
    fn scalar(text: &str, plain: bool, place: (usize, usize)) -> Self {
        // A text counts by its length, so that a few huge ones cannot evade the bound.
        let size = 1 + text.len() as u64 / 32;
        Self { place, depth: 1, size, kind: NodeKind::Scalar { text: text.into(), plain } }
    }
}

#[derive(Debug)]
pub struct Document(Arc<DocumentNode>);

/// A step of a path into a document.
#[derive(Clone, Copy, Debug)]
pub enum PathSegment<'a> {
    /// A map key, case-insensitive.
    Key(&'a str),
    Index(usize),
}

impl Document {
    /// Line and column, from 1, of a path's value, or of its deepest part that there is.
    pub fn locate(&self, path: &[PathSegment<'_>]) -> (usize, usize) {
        let mut node = &self.0;
        for segment in path {
            let below = match (segment, &node.kind) {
                (PathSegment::Key(name), NodeKind::Mapping(all)) => {
                    all.iter().find(|(key, _)| key.is_named(name)).map(|(_, value)| value)
                }
                (PathSegment::Index(index), NodeKind::Sequence(all)) => all.get(*index),
                _ => None,
            };
            let Some(below) = below else { break };
            node = below;
        }
        node.place
    }

    /// The document without the innermost key that has this position, or whose value has it; `None` if there is none.
    pub fn without(&self, place: (usize, usize)) -> Option<Self> {
        self.0.without(place).map(|node| Self(Arc::new(node)))
    }
}

impl DocumentNode {
    fn is_named(&self, name: &str) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, .. } if text.eq_ignore_ascii_case(name))
    }

    fn without(&self, place: (usize, usize)) -> Option<Self> {
        let kind = match &self.kind {
            NodeKind::Sequence(all) => {
                let (index, changed) = all.iter().enumerate().find_map(|(i, n)| Some((i, n.without(place)?)))?;
                let mut all = all.clone();
                all[index] = Arc::new(changed);
                NodeKind::Sequence(all)
            }
            NodeKind::Mapping(all) => {
                let mut all = all.clone();
                match all.iter().enumerate().find_map(|(i, (_, n))| Some((i, n.without(place)?))) {
                    Some((index, changed)) => all[index].1 = Arc::new(changed),
                    None => drop(all.remove(all.iter().position(|(key, value)| value.has(place) || key.has(place))?)),
                }
                NodeKind::Mapping(all)
            }
            _ => return None,
        };
        Some(Self { kind, ..*self })
    }

    /// Whether a value that begins here is at this position.
    fn has(&self, place: (usize, usize)) -> bool {
        match &self.kind {
            NodeKind::Sequence(all) => self.place == place || all.iter().any(|node| node.has(place)),
            _ => self.place == place,
        }
    }
}

/// Deserializes a YAML text.
///
/// # Errors
/// Invalid YAML, or a value of the wrong type, with its position.
pub fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T> {
    T::deserialize(Document::parse_yaml(text)?.deserializer())
}

/// Deserializes a TOML text.
///
/// # Errors
/// Invalid TOML, or a value of the wrong type, with its position.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T> {
    T::deserialize(Document::parse_toml(text)?.deserializer())
}
