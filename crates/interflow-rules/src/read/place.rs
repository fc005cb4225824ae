//! The line and column of a path into a file, found by walking the file again up to there.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess};

use super::Form;

/// A step of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seg<'a> {
    /// Into a map, by key in any case.
    Key(&'a str),
    /// Into a list.
    Index(usize),
}

/// Line and column, from 1, of what stands at a path; of the deepest part of it that is there.
pub(crate) fn place_of(text: &str, form: Form, path: &[Seg<'_>]) -> Option<(usize, usize)> {
    (0..=path.len()).rev().find_map(|n| find(text, form, &path[..n]))
}

fn find(text: &str, form: Form, path: &[Seg<'_>]) -> Option<(usize, usize)> {
    let reached = Cell::new(false);
    let walk = Walk { path, reached: &reached };
    match form {
        Form::Toml => {
            let error = walk.deserialize(toml::Deserializer::parse(text).ok()?).err()?;
            let at = error.span()?.start;
            reached.get().then(|| line_and_column(text, at))
        }
        Form::Yaml => {
            let error = walk.deserialize(serde_yaml_ng::Deserializer::from_str(text)).err()?;
            let at = error.location()?;
            reached.get().then(|| (at.line(), at.column()))
        }
    }
}

/// Line and column of a byte, from 1.
pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at.min(text.len()))];
    (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1)
}

/// Goes down a path and fails at its end, so that the parser says where that was.
struct Walk<'a> {
    path: &'a [Seg<'a>],
    reached: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl Walk<'_> {
    fn end<T, E: de::Error>(&self) -> Result<T, E> {
        self.reached.set(self.path.is_empty());
        Err(E::custom("here"))
    }
}

impl<'de> de::Visitor<'de> for Walk<'_> {
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
        let Some((Seg::Key(wanted), rest)) = self.path.split_first() else { return self.end() };
        while let Some(key) = map.next_key::<String>()? {
            if key.eq_ignore_ascii_case(wanted) {
                return map.next_value_seed(Walk { path: rest, reached: self.reached });
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((Seg::Index(wanted), rest)) = self.path.split_first() else { return self.end() };
        for _ in 0..*wanted {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        seq.next_element_seed(Walk { path: rest, reached: self.reached }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_both_forms() {
        let yaml = "rules:\n  - name: a\n    then: [x]\n  - name: b\n    Then:\n      - tag: y\n";
        let toml = "[[rules]]\nname = 'a'\n[[rules]]\nname = 'b'\nthen = [\n  { tag = 'y' },\n]\n";
        let path = [Seg::Key("rules"), Seg::Index(1), Seg::Key("then"), Seg::Index(0), Seg::Key("tag")];
        assert_eq!(place_of(yaml, Form::Yaml, &path), Some((6, 14)));
        assert_eq!(place_of(toml, Form::Toml, &path), Some((6, 11)));
        let missing = [Seg::Key("rules"), Seg::Index(1), Seg::Key("none")];
        assert_eq!(place_of(yaml, Form::Yaml, &missing).map(|p| p.0), Some(4));
    }
}
