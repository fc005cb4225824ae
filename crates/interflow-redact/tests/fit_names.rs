//! The tool that fits the weights of names: it learns from labelled texts, and always the same.

#[path = "../examples/fit_names/fit.rs"]
mod fit;

use fit::{LabelledText, agreement, read_texts};
use interflow_redact::name_training::{NameWeights, candidates};

/// Labelled sentences.
const TEXTS: &str = include_str!("data/names.jsonl");

fn texts() -> Vec<(LabelledText, f64)> {
    read_texts(TEXTS).expect("labelled texts").into_iter().map(|t| (t, 1.0)).collect()
}

#[test]
fn from_nothing_the_fit_learns_the_sentences_and_repeats_itself() {
    let nothing = NameWeights::zero();
    let fitted = fit::fit(&nothing, &texts(), 0.1, "");
    let (before, after) = (agreement(&nothing, &texts()), agreement(&fitted, &texts()));
    assert!(before < 0.5 && after > 0.9, "{before} -> {after}");
    assert_eq!(fit::fit(&nothing, &texts(), 0.1, ""), fitted);
    assert_eq!(NameWeights::parse(&fit::to_toml(&fitted)).as_ref(), Ok(&fitted));
}

#[test]
fn the_committed_weights_agree_with_the_sentences_and_are_as_the_tool_writes_them() {
    let committed = NameWeights::committed();
    assert!(agreement(committed, &texts()) > 0.97, "{}", agreement(committed, &texts()));
    assert_eq!(include_str!("../data/names.weights.toml"), fit::to_toml(committed));
}

#[test]
fn a_fit_that_trusts_the_weights_leaves_them() {
    let committed = NameWeights::committed();
    assert_eq!(fit::fit(committed, &texts(), 1e9, ""), *committed);
}

#[test]
fn a_label_in_a_line_that_cannot_be_read_is_named() {
    let error = read_texts("{\"full_text\": \"a\"}\n{\"full_text\": 1}").err().expect("an error");
    assert!(error.starts_with("line 2"), "{error}");
}

#[test]
fn candidates_are_where_the_words_are() {
    let text = "We met Jenny Gibson in Reykjavik.";
    let found: Vec<&str> =
        candidates(text, NameWeights::committed(), None).iter().map(|c| &text[c.start..c.end]).collect();
    assert_eq!(found, ["Jenny Gibson", "Reykjavik"]);
}
