//! The words that tables of flows show in their cells and chips, with what they mean in a query.

use std::sync::LazyLock;

use interflow_types::data_file;

use crate::ast::{Expr, QuerySpan};
use crate::key::Key;
use crate::parse::definition;

/// A word that a cell or a chip shows, and that a query understands as a value.
#[derive(Debug)]
pub struct TableWord {
    /// The key before it.
    pub key: Key,
    pub word: &'static str,
    /// The query that it stands for, such as `is:sse`.
    meaning: &'static str,
    pub doc: &'static str,
}

/// Every such word. Parser, completion and the reference are derived from the table.
pub static TABLE_WORDS: LazyLock<Vec<TableWord>> = LazyLock::new(|| {
    let words = data_file::records(include_str!("../data/table_words.txt"));
    let key = |name| Key::find(name).expect("the table names keys");
    words.map(|[name, word, meaning, doc]| TableWord { key: key(name), word, meaning, doc }).collect()
});

impl TableWord {
    /// The condition that it stands for, at this position of a query.
    pub fn expr(&self, span: QuerySpan) -> Expr {
        definition(self.meaning, span)
    }
}

/// The word of this key, ignoring case.
pub(crate) fn find_word(key: Key, text: &str) -> Option<&'static TableWord> {
    let key = if key == Key::RespType { Key::Type } else { key };
    TABLE_WORDS.iter().find(|w| w.key == key && w.word.eq_ignore_ascii_case(text))
}
