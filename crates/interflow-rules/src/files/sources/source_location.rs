//! Line and column of a path into a file, found by parsing the file again up to that point.

use std::cell::Cell;
use std::fmt;

use interflow_codec::yaml::YamlDocument;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess};

use super::RuleFileFormat;

/// A step of a path into a rule file.
#[derive(Clone, Copy, Debug)]
pub enum PathSegment<'a> {
    /// A map key, case-insensitive.
    Key(&'a str),
    Index(usize),
}

/// Line and column, from 1, of a path, or of its deepest existing part.
pub(crate) fn locate(text: &str, form: RuleFileFormat, path: &[PathSegment<'_>]) -> Option<(usize, usize)> {
    (0..=path.len()).rev().find_map(|n| locate_exact(text, form, &path[..n]))
}

/// The locations of all entries of `rules`, in one pass; fewer, or none, if they cannot be determined.
pub(crate) fn locate_rules(text: &str, form: RuleFileFormat) -> Vec<(usize, usize)> {
    match form {
        RuleFileFormat::Toml => locate_toml_rules(text).unwrap_or_default(),
        RuleFileFormat::Yaml => locate_yaml_rules(text).unwrap_or_default(),
    }
}

fn locate_toml_rules(text: &str) -> Option<Vec<(usize, usize)>> {
    #[derive(serde::Deserialize)]
    struct TomlRuleFile {
        #[serde(default)]
        rules: Vec<toml::Spanned<IgnoredAny>>,
    }
    let file: TomlRuleFile = toml::from_str(text).ok()?;
    let starts: Vec<usize> = file.rules.iter().map(|r| r.span().start).collect();
    // One pass from the top: each search begins after the last location.
    let (mut line, mut begin, mut seen) = (1, 0, 0);
    let mut places = Vec::with_capacity(starts.len());
    for start in starts {
        for (i, _) in text.get(seen..start)?.match_indices('\n') {
            (line, begin) = (line + 1, seen + i + 1);
        }
        seen = start;
        places.push((line, text[begin..start].chars().count() + 1));
    }
    Some(places)
}

/// In a YAML block list the dashes of the items are in one column, and their content is further right.
fn locate_yaml_rules(text: &str) -> Option<Vec<(usize, usize)>> {
    let (first, column) =
        locate_exact(text, RuleFileFormat::Yaml, &[PathSegment::Key("rules"), PathSegment::Index(0)])?;
    let dash = text.lines().nth(first - 1)?.find("- ").filter(|at| at + 3 == column)?;
    let mut places = Vec::new();
    for (i, line) in text.lines().enumerate().skip(first - 1) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let content = &line[indent..];
        if content.is_empty() || content.starts_with('#') || indent > dash {
            continue;
        }
        let inside = content.strip_prefix("- ").filter(|_| indent == dash);
        let Some(inside) = inside else { break };
        // More than one space after the dash, or a comment, is left to the parser.
        if inside.starts_with([' ', '#']) {
            return None;
        }
        places.push((i + 1, dash + 3));
    }
    Some(places)
}

fn locate_exact(text: &str, form: RuleFileFormat, path: &[PathSegment<'_>]) -> Option<(usize, usize)> {
    let reached = Cell::new(false);
    let walk = LocationVisitor { path, reached: &reached };
    match form {
        RuleFileFormat::Toml => {
            let error = walk.deserialize(toml::Deserializer::parse(text).ok()?).err()?;
            let at = error.span()?.start;
            reached.get().then(|| line_and_column(text, at))
        }
        RuleFileFormat::Yaml => {
            let error = walk.deserialize(YamlDocument::parse(text).ok()?.deserializer()).err()?;
            // The error is the parser's own if the path was not reached.
            error.position().filter(|_| reached.get())
        }
    }
}

/// Line and column of a byte offset, from 1.
pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at.min(text.len()))];
    (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1)
}

/// Descends a path and fails at its end, so that the parser's error contains the location.
struct LocationVisitor<'a> {
    path: &'a [PathSegment<'a>],
    reached: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for LocationVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl LocationVisitor<'_> {
    fn end<T, E: de::Error>(&self) -> Result<T, E> {
        self.reached.set(self.path.is_empty());
        Err(E::custom("here"))
    }
}

impl<'de> de::Visitor<'de> for LocationVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.end()
    }
    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.end()
    }
    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.end()
    }
    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.end()
    }
    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        self.end()
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.end()
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((PathSegment::Key(wanted), rest)) = self.path.split_first() else { return self.end() };
        while let Some(key) = map.next_key::<String>()? {
            if key.eq_ignore_ascii_case(wanted) {
                return map.next_value_seed(LocationVisitor { path: rest, reached: self.reached });
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((PathSegment::Index(wanted), rest)) = self.path.split_first() else { return self.end() };
        for _ in 0..*wanted {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        seq.next_element_seed(LocationVisitor { path: rest, reached: self.reached }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_found_in_yaml_and_toml() {
        let yaml = "rules:\n  - name: a\n    then: [x]\n  - name: b\n    Then:\n      - tag: y\n";
        let toml = "[[rules]]\nname = 'a'\n[[rules]]\nname = 'b'\nthen = [\n  { tag = 'y' },\n]\n";
        let path = [
            PathSegment::Key("rules"),
            PathSegment::Index(1),
            PathSegment::Key("then"),
            PathSegment::Index(0),
            PathSegment::Key("tag"),
        ];
        assert_eq!(locate(yaml, RuleFileFormat::Yaml, &path), Some((6, 14)));
        assert_eq!(locate(toml, RuleFileFormat::Toml, &path), Some((6, 11)));
        let missing = [PathSegment::Key("rules"), PathSegment::Index(1), PathSegment::Key("none")];
        assert_eq!(locate(yaml, RuleFileFormat::Yaml, &missing).map(|p| p.0), Some(4));
    }

    #[test]
    fn rule_positions_equal_individually_located_ones() {
        let block = "# top\nvariables: {a: b}\nrules:\n  - name: a\n    then: [x]\n  # between\n\n  - name: |\n      - no rule\n    then: y\n  - {name: c}\ntests: []\n";
        let tables =
            "x = 1\n[[rules]]\nname = \"\"\"\n[[rules]]\n\"\"\"\n\n  [[rules]]\nname = 'b'\n\n[[tests]]\nname = 't'\n";
        for (form, text) in [
            (RuleFileFormat::Yaml, block),
            (RuleFileFormat::Yaml, "rules:\n- filter: {a: b}\n- filter:\n  - x\n"),
            (RuleFileFormat::Toml, tables),
        ] {
            let all = locate_rules(text, form);
            assert!(all.len() >= 2, "{text}");
            for (i, place) in all.iter().enumerate() {
                let one = locate(text, form, &[PathSegment::Key("rules"), PathSegment::Index(i)]);
                assert_eq!(one, Some(*place), "rule {i} of {text}");
            }
        }
        // Other list styles are left to the parser, rule by rule.
        for text in ["rules: [{name: a}, {name: b}]", "rules:\n  -   name: a\n  - name: b\n", "rules: 7"] {
            assert_eq!(locate_rules(text, RuleFileFormat::Yaml), [], "{text}");
        }
    }

    #[test]
    fn thousands_of_rules_are_located_in_one_pass() {
        let text: String = (0..5000).map(|i| format!("[[rules]]\nname = '{i}'\nthen = ['abort']\n")).collect();
        let began = std::time::Instant::now();
        let all = locate_rules(&text, RuleFileFormat::Toml);
        assert_eq!((all.len(), all[4999].0), (5000, 14_998));
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
    }
}
