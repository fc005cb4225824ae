//! The word lists of the detectors, by name, from `data/word_lists.toml`, and what reads the other files of `data/`.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use crate::Kind;

/// A list of which the order counts, or each of which is compared.
pub type WordList = LazyLock<Vec<&'static str>>;
/// A list in which words are looked up.
pub type WordSet = LazyLock<HashSet<&'static str, hashlink::DefaultHashBuilder>>;

/// The list with this name. The file is part of the program, so that a missing list shows in the tests.
pub fn words<Words: FromIterator<&'static str>>(name: &str) -> Words {
    static LISTS: LazyLock<HashMap<String, Vec<String>>> =
        LazyLock::new(|| parse(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/word_lists.toml"))));
    let list = LISTS.get(name).unwrap_or_else(|| panic!("data/word_lists.toml has `{name}`"));
    list.iter().map(String::as_str).collect()
}

/// A file of `data/`.
pub fn parse<Table: DeserializeOwned>(text: &str) -> Table {
    interflow_codec::document::from_toml(text).expect("the files of data/ have the form that their tables declare")
}

/// A kind by its name.
pub fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
    let name = String::deserialize(from)?;
    Kind::from_name(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is not a kind")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_of_the_file_is_read_under_its_name() {
        let lists: HashMap<String, Vec<String>> = parse(include_str!("../data/word_lists.toml"));
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut names = HashSet::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).expect("a folder of sources").map(|e| e.expect("an entry").path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a source file");
                names.extend(text.split("|| words(\"").skip(1).filter_map(|t| Some(t.split_once('"')?.0.to_owned())));
            }
        }
        assert_eq!(names, lists.into_keys().collect());
    }
}
