//! The patterns of attacks, which `data/attack_patterns.txt` lists.

use interflow_llm::spans::TextPlace;
use interflow_types::data_file;

/// A pattern and what it is worth.
#[derive(Clone, Debug)]
pub(super) struct PatternRow {
    pub name: &'static str,
    pub pattern: String,
    /// In what a user writes.
    weight: f64,
    /// In what is only read: tool results and documents, where no writer has a reason to address the model.
    read: f64,
}

impl PatternRow {
    pub const fn weight_in(&self, place: TextPlace) -> f64 {
        match place {
            TextPlace::ToolResult | TextPlace::Document => self.read,
            _ => self.weight,
        }
    }
}

/// The rows of a set.
pub(super) fn rows(set: &str) -> impl Iterator<Item = PatternRow> {
    let mut words = Vec::new();
    data_file::lines(include_str!("../../../../data/attack_patterns.txt")).filter_map(move |line| {
        let mut fields = line.splitn(5, ' ');
        let [kind, name, weight, read, text] = std::array::from_fn(|_| fields.next().unwrap_or_default());
        if kind == "word" {
            words.push((format!("{{{name}}}"), text));
        }
        let number = |field: &str| field.parse().expect("a weight in the built-in file");
        let pattern = || words.iter().fold(text.to_owned(), |text, (word, pattern)| text.replace(word, pattern));
        (kind == set).then(|| PatternRow { name, pattern: pattern(), weight: number(weight), read: number(read) })
    })
}
