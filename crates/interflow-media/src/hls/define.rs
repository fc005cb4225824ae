//! Variables of playlists (`EXT-X-DEFINE`, RFC 8216bis 4.4.2.3).

use super::tags::{attribute_text, lines, tag};
use crate::endpoint::Params;

/// Names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// Those that a playlist defines. `query` is its own query upstream, `imported` what its multivariant playlist defined.
    pub fn collect(text: &[u8], query: Option<&str>, imported: &[(String, String)]) -> Self {
        let mut variables = Self::default();
        if memchr::memmem::find(text, b"#EXT-X-DEFINE").is_none() {
            return variables;
        }
        let query = Params::read(query.unwrap_or_default());
        for line in lines(text) {
            let Some((b"EXT-X-DEFINE", list)) = tag(line.of(text)) else { continue };
            let attribute = |name: &str| attribute_text(list, name.as_bytes());
            if let (Some(name), Some(value)) = (attribute("NAME"), attribute("VALUE")) {
                variables.0.push((name.into(), value.into()));
            } else if let Some(name) = attribute("QUERYPARAM") {
                variables.0.extend(query.get(name).map(|value| (name.to_owned(), value.to_owned())));
            } else if let Some(name) = attribute("IMPORT") {
                variables.0.extend(imported.iter().find(|(n, _)| n == name).cloned());
            }
        }
        variables
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All of them.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The text with `{$name}` filled in; a name that is not defined stays as it stands.
    pub fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("{$") {
            let (before, behind) = rest.split_at(at);
            out.push_str(before);
            let filled = behind.find('}').and_then(|end| Some((end, self.get(behind.get(2..end)?)?)));
            match filled {
                Some((end, value)) => {
                    out.push_str(value);
                    rest = &behind[end + 1..];
                }
                None => {
                    out.push_str("{$");
                    rest = &behind[2..];
                }
            }
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_from_the_list_the_query_and_the_parent() {
        let text = b"#EXTM3U\n#EXT-X-DEFINE:NAME=\"a\",VALUE=\"1\"\n#EXT-X-DEFINE:QUERYPARAM=\"q\"\n#EXT-X-DEFINE:IMPORT=\"p\"\n";
        let v = Variables::collect(text, Some("x=y&q=2%203"), &[("p".into(), "4".into())]);
        assert_eq!(v.fill("{$a}/{$q}/{$p}/{$no}/{$"), "1/2 3/4/{$no}/{$");
        assert_eq!(Variables::collect(b"#EXTM3U\n", None, &[]), Variables::default());
    }
}
