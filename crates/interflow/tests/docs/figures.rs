//! The figures of redaction that pages name are those of `bench/results/pii.md`.

use std::fs;

use crate::pages::root;

const RESULTS: &str = "bench/results/pii.md";

/// Labels, recall and precision over all types of a data set, as pages show them.
struct Figures {
    labels: String,
    recall: String,
    precision: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn measured(data_set: &str) -> Figures {
    let results = read(RESULTS);
    let section = results.split("\n## ").find(|section| section.starts_with(data_set));
    let section = section.unwrap_or_else(|| panic!("{RESULTS} has no section {data_set}"));
    let row = section.lines().find(|line| line.starts_with("| all |")).expect("a row of all types");
    let cells: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
    let [labels, _exact, recall, _characters, precision, ..] = cells[..] else { panic!("{RESULTS}: {row}") };
    let labels = labels as u64;
    let labels = if labels < 1_000 { labels.to_string() } else { format!("{},{:03}", labels / 1_000, labels % 1_000) };
    Figures { labels, recall: format!("{recall:.2}"), precision: format!("{precision:.2}") }
}

#[test]
fn pages_name_the_measured_quality_of_redaction() {
    let [large, small, unseen] = ["generated_large", "generated_small", "generated_unseen"].map(measured);
    let row = |set: &str, f: &Figures| format!("| {set} | {} | {} | {} |", f.labels, f.recall, f.precision);
    let expected = [
        ("README.md", row("presidio-research, 2,109 generated texts", &large)),
        ("README.md", row("presidio-research, 100 generated texts", &small)),
        ("README.md", row("2,000 generated texts with names that are in no list", &unseen)),
        ("docs/guides/redaction.md", format!("recall {}, precision {};", large.recall, large.precision)),
        (
            "docs/explanation/redaction-guarantees.md",
            format!(
                "| all | {} | {} | {} | {} | {} | {} |",
                large.labels, large.recall, large.precision, unseen.labels, unseen.recall, unseen.precision
            ),
        ),
    ];
    let missing: Vec<_> = expected.iter().filter(|(page, text)| !read(page).contains(text.as_str())).collect();
    assert!(missing.is_empty(), "these pages differ from {RESULTS}; each should say: {missing:#?}");
}
