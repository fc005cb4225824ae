//! The figures that pages name are those of `bench/results`; `bench/src/summary.rs` compares the table of README.md itself.

use std::fs;

use serde_json::Value;

use crate::pages::root;

const RESULTS: &str = "bench/results/pii.md";

/// Labels, recall, precision and F2 over all types of a data set, as pages show them.
struct Figures {
    labels: String,
    recall: String,
    precision: String,
    f2: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn measured(data_set: &str, kind: &str) -> Figures {
    let results = read(RESULTS);
    let section = results.split("\n## ").find(|section| section.starts_with(data_set));
    let section = section.unwrap_or_else(|| panic!("{RESULTS} has no section {data_set}"));
    let row = section.lines().find(|line| line.starts_with(&format!("| {kind} |"))).expect("a row of the type");
    let cells: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
    let [labels, _exact, recall, _characters, precision, f2, ..] = cells[..] else { panic!("{RESULTS}: {row}") };
    let labels = labels as u64;
    let labels = if labels < 1_000 { labels.to_string() } else { format!("{},{:03}", labels / 1_000, labels % 1_000) };
    Figures { labels, recall: format!("{recall:.2}"), precision: format!("{precision:.2}"), f2: format!("{f2:.2}") }
}

#[test]
fn pages_name_the_measured_quality_of_redaction() {
    let [large, small, unseen] =
        ["generated_large", "generated_small", "generated_unseen"].map(|set| measured(set, "all"));
    let row = |set: &str, f: &Figures| format!("| {set} | {} | {} | {} |", f.labels, f.recall, f.precision);
    let expected = [
        ("README.md", row("presidio-research, 2,109 generated texts", &large)),
        ("README.md", row("presidio-research, 100 generated texts", &small)),
        ("README.md", row("2,000 generated texts with names that are in no list", &unseen)),
        ("docs/guides/redaction.md", format!("recall {}, precision {};", large.recall, large.precision)),
        (
            "docs/guides/redaction.md",
            format!("alone, they now reach {} and {} on the first two sets (`{RESULTS}`).", small.f2, large.f2),
        ),
        (
            "docs/explanation/redaction-guarantees.md",
            format!(
                "| all | {} | {} | {} | {} | {} | {} |",
                large.labels, large.recall, large.precision, unseen.labels, unseen.recall, unseen.precision
            ),
        ),
    ];
    require(&expected, RESULTS);
}

#[test]
fn readme_names_the_measured_recall_of_entity_types() {
    let recall = |kind| measured("generated_large", kind).recall;
    let [cards, mail, iban, ssn] = ["CREDIT_CARD", "EMAIL_ADDRESS", "IBAN_CODE", "US_SSN"].map(recall);
    assert!(
        [&mail, &iban, &ssn].iter().all(|r| **r == cards),
        "one figure stands for all four: {cards} {mail} {iban} {ssn}"
    );
    let text = format!(
        "recall is {cards} for cards, e-mail addresses, IBANs and social security numbers, {} for names of people and {} for \
         organisations.",
        recall("PERSON"),
        recall("ORGANIZATION")
    );
    require(&[("README.md", text)], RESULTS);
}

#[test]
fn pages_name_the_run_of_the_measurements_and_its_costs() {
    let result =
        |name: &str| -> Value { serde_json::from_str(&read(&format!("bench/results/{name}.json"))).expect("JSON") };
    let (proxies, endurance) = (result("mitm"), result("endurance"));
    let text = |key: &str| proxies[key].as_str().expect("a text").to_owned();
    let day = text("began").chars().take(10).collect::<String>();
    let requests = endurance["recorded"]["answered"].as_f64().expect("a number") / 1e6;
    let soak = endurance["cases"].as_array().and_then(|cases| cases.iter().find(|case| case["name"] == "soak"));
    let samples = soak.and_then(|case| case["rows"][0]["samples"].as_array()).expect("samples");
    let soaked = samples.last().and_then(|sample| sample["flows"].as_f64()).expect("a number") / 1e6;
    let (readme, by_task) = (read("README.md"), read("docs/explanation/performance.md"));
    let cell_of = |text: &str, arm: &str, column: usize| {
        let row = text.lines().find(|line| line.starts_with(&format!("| {arm}"))).expect("a row of the table");
        row.split('|').nth(column).expect("a cell").trim().to_owned()
    };
    let cell = |arm: &str, column: usize| cell_of(&readme, arm, column);
    let redaction = by_task.split("### Personal data taken out of a prompt").nth(1).expect("a table");
    let [call, redacted] = ["Interflow |", "Interflow, redact |"].map(|arm| cell_of(redaction, arm, 3));
    let rate = |arm| cell(arm, 2).replace(',', "").parse::<f64>().expect("requests per second");
    let times = (rate("Interflow |") / rate("mitmdump ")).round();
    let (plain, recording) = (cell("Interflow |", 3), cell("Interflow, recording |", 3));
    let expected = [
        ("README.md", format!("(`{}`, commit {}, {day})", text("command"), text("commit"))),
        ("README.md", format!("Interflow serves {times} times as many requests per second as mitmdump.")),
        ("README.md", format!("an endurance run of {requests:.2} million recorded requests")),
        ("README.md", format!("an hour's soak of {soaked:.2} million with everything on")),
        (
            "docs/explanation/faq.md",
            format!("About {plain} of CPU time per intercepted request of 8 KiB, and {recording} with recording"),
        ),
        (
            "docs/operations/running.md",
            format!(
                "| CPU | {plain} per intercepted request of 8 KiB, {recording} with recording; an LLM request costs {call}, \
                 with redaction {redacted} ("
            ),
        ),
        (
            "docs/operations/running.md",
            format!("| memory | {}, {} with recording;", cell("Interflow |", 5), cell("Interflow, recording |", 5)),
        ),
    ];
    require(&expected, "bench/results");
}

/// Fails unless each page has its text.
fn require(expected: &[(&str, String)], results: &str) {
    let missing: Vec<_> = expected.iter().filter(|(page, text)| !read(page).contains(text.as_str())).collect();
    assert!(missing.is_empty(), "these pages differ from {results}; each should say: {missing:#?}");
}
