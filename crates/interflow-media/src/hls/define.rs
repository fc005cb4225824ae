//! Variables of playlists (`EXT-X-DEFINE`, RFC 8216bis 4.4.2.3).

use std::collections::HashMap;

use interflow_types::{Error, ErrorKind, Result};

use super::tags::{attribute_text, lines, tag};
use crate::endpoint::MediaParams;

/// Maximum number of variables per playlist; further definitions are an error.
pub const MAX_VARIABLES: usize = 1000;
/// Maximum total size of their names and values in bytes.
pub const MAX_VARIABLE_BYTES: usize = 256 << 10;
/// Maximum size of a URL or attribute after substitution, in bytes.
pub const MAX_VALUE_LEN: usize = crate::relay::address::MAX_URL_LEN;

/// The variables of one playlist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaylistVariables {
    pairs: Vec<(String, String)>,
    /// Positions of the names in the pairs; the first definition wins.
    index: HashMap<String, usize>,
    bytes: usize,
}

impl PlaylistVariables {
    /// The variables that a playlist defines. `query` is its own upstream query, `imported` the variables of its
    /// multivariant playlist.
    ///
    /// # Errors
    /// More than [`MAX_VARIABLES`] variables, or more than [`MAX_VARIABLE_BYTES`] of them.
    pub fn collect(text: &[u8], query: Option<&str>, imported: &[(String, String)]) -> Result<Self> {
        let mut variables = Self::default();
        // The usual case: no variables.
        if memchr::memmem::find(text, b"#EXT-X-DEFINE").is_none() {
            return Ok(variables);
        }
        let query = MediaParams::read(query.unwrap_or_default());
        let query = index_by_name(query.pairs.iter().filter(|(_, value)| !value.is_empty()));
        let imported = index_by_name(imported.iter());
        for line in lines(text) {
            let Some((b"EXT-X-DEFINE", list)) = tag(line.content(text)) else { continue };
            let attribute = |name: &str| attribute_text(list, name.as_bytes());
            let definition = if let (Some(name), Some(value)) = (attribute("NAME"), attribute("VALUE")) {
                Some((name, value))
            } else if let Some(name) = attribute("QUERYPARAM") {
                query.get(name).map(|value| (name, *value))
            } else {
                attribute("IMPORT").and_then(|name| Some((name, *imported.get(name)?)))
            };
            if let Some((name, value)) = definition {
                variables.add(name, value)?;
            }
        }
        Ok(variables)
    }

    /// Adds a variable; a second definition of the same name is ignored.
    fn add(&mut self, name: &str, value: &str) -> Result<()> {
        if self.index.contains_key(name) {
            return Ok(());
        }
        self.bytes += name.len() + value.len();
        if self.pairs.len() == MAX_VARIABLES || self.bytes > MAX_VARIABLE_BYTES {
            let text = format!(
                "the playlist defines too many variables (EXT-X-DEFINE): at most {MAX_VARIABLES} are filled in, of {MAX_VARIABLE_BYTES} \
                 bytes together"
            );
            return Err(Error::new(ErrorKind::BadResponse, text));
        }
        self.index.insert(name.into(), self.pairs.len());
        self.pairs.push((name.into(), value.into()));
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.index.get(name).and_then(|at| self.pairs.get(*at)).map(|(_, value)| value.as_str())
    }

    /// All of them, in the order of definition.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The text with `{$name}` substituted; undefined names are left unchanged. `None` if it would be longer than
    /// [`MAX_VALUE_LEN`].
    pub fn fill(&self, text: &str) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("{$") {
            let (before, behind) = rest.split_at(at);
            out.push_str(before);
            let name = behind.get(2..).and_then(|inside| {
                // No name is longer than all variables together.
                let end = inside.bytes().take(MAX_VARIABLE_BYTES).position(|b| matches!(b, b'}' | b'{'))?;
                inside.get(..end).filter(|_| inside.as_bytes().get(end) == Some(&b'}'))
            });
            match name.and_then(|name| Some((name, self.get(name)?))) {
                Some((name, value)) => {
                    out.push_str(value);
                    if out.len() > MAX_VALUE_LEN {
                        return None;
                    }
                    rest = behind.get(name.len() + 3..).unwrap_or_default();
                }
                None => {
                    out.push_str("{$");
                    rest = behind.get(2..).unwrap_or_default();
                }
            }
        }
        out.push_str(rest);
        Some(out)
    }
}

/// An index of the pairs; if a name occurs twice, its first value counts.
fn index_by_name<'a>(pairs: impl DoubleEndedIterator<Item = &'a (String, String)>) -> HashMap<&'a str, &'a str> {
    pairs.rev().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_defined_by_name_query_parameter_and_import() {
        let text = b"#EXTM3U\n#EXT-X-DEFINE:NAME=\"a\",VALUE=\"1\"\n#EXT-X-DEFINE:QUERYPARAM=\"q\"\n#EXT-X-DEFINE:IMPORT=\"p\"\n";
        let v = PlaylistVariables::collect(text, Some("x=y&q=2%203"), &[("p".into(), "4".into())]).unwrap();
        assert_eq!(v.fill("{$a}/{$q}/{$p}/{$no}/{$").unwrap(), "1/2 3/4/{$no}/{$");
        assert_eq!(v.fill("{$no{$a}}").unwrap(), "{$no1}");
        assert_eq!(PlaylistVariables::collect(b"#EXTM3U\n", None, &[]).unwrap(), PlaylistVariables::default());
    }

    #[test]
    fn number_and_expanded_size_of_variables_are_bounded() {
        let define = |n: usize, value: &str| format!("#EXT-X-DEFINE:NAME=\"v{n}\",VALUE=\"{value}\"\n");
        let many: String = (0..=MAX_VARIABLES).map(|n| define(n, "x")).collect();
        let refused = PlaylistVariables::collect(many.as_bytes(), None, &[]).unwrap_err().to_string();
        assert!(refused.contains("EXT-X-DEFINE") && refused.contains("1000"), "{refused}");
        let long: String = (0..9).map(|n| define(n, &"x".repeat(MAX_VARIABLE_BYTES / 8))).collect();
        assert!(PlaylistVariables::collect(long.as_bytes(), None, &[]).is_err());
        let one = PlaylistVariables::collect(define(1, &"x".repeat(1000)).as_bytes(), None, &[]).unwrap();
        assert_eq!(one.fill(&"{$v1}".repeat(16)).unwrap().len(), 16_000);
        assert_eq!(one.fill(&"{$v1}".repeat(1_000_000)), None);
    }
}
