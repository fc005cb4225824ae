//! The tags that Interflow itself sets on flows; rules, scripts and people add others. Completion and the reference page
//! are made from the table.

use std::sync::LazyLock;

use interflow_types::data_file;

/// A tag.
#[derive(Debug)]
pub struct TagInfo {
    /// Its name; if it ends in `:` or a space, that of a family of tags, such as `key:alice`.
    pub name: &'static str,
    /// What it means, as a phrase in Markdown.
    pub doc: &'static str,
}

impl TagInfo {
    /// Whether more follows the name.
    pub fn is_prefix(&self) -> bool {
        self.name.ends_with([':', ' '])
    }

    /// Whether a flow's tag is this one, or of this family.
    pub fn is_of(&self, tag: &str) -> bool {
        if self.is_prefix() { tag.starts_with(self.name) } else { tag == self.name }
    }
}

/// Every tag, by subject.
pub static TAGS: LazyLock<Vec<TagInfo>> = LazyLock::new(|| {
    let tags = data_file::records(include_str!("../data/tags.txt"));
    tags.map(|[name, doc]| TagInfo { name: name.trim_end_matches('*'), doc }).collect()
});
