//! Measures the guardrail heuristics on labelled texts: `guardrail_accuracy FILE.jsonl… [--json OUT] [--misses]`. Each
//! line has `label` (`injection`, `jailbreak` or `benign`), `place` and `text`.

use std::time::Instant;

use interflow_llm::spans::TextPlace;
use interflow_llm_gateway::guardrails::kinds::heuristics::{DEFAULT_THRESHOLD, HeuristicSet, score};
use serde_json::{Value, json};

/// Thresholds of the table.
const THRESHOLDS: [f64; 4] = [0.4, DEFAULT_THRESHOLD, 0.65, 0.8];

struct Row {
    label: String,
    text: String,
    injection: f64,
    jailbreak: f64,
}

/// A kind's score of a row.
type Score = fn(&Row) -> f64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let out = arguments.iter().position(|a| a == "--json").and_then(|i| arguments.get(i + 1));
    let misses = arguments.iter().any(|a| a == "--misses");
    let mut results = Vec::new();
    for file in arguments.iter().filter(|a| a.ends_with(".jsonl")) {
        results.push(measure(file, misses));
    }
    if let Some(out) = out {
        let text = serde_json::to_string_pretty(&results).expect("plain values");
        std::fs::write(out, text + "\n").expect("the file of the results can be written");
    }
}

fn measure(file: &str, misses: bool) -> Value {
    let lines = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let begun = Instant::now();
    let rows: Vec<Row> =
        lines.lines().map(|line| score_row(&serde_json::from_str(line).expect("a line is JSON"))).collect();
    let seconds = begun.elapsed().as_secs_f64();
    let name = file.rsplit('/').next().unwrap_or(file);
    println!("{name}: {} texts", rows.len());
    println!("| kind | threshold | attacks found | false alarms | precision | recall |\n|---|---|---|---|---|---|");
    let mut table = Vec::new();
    // Together is how they are used: either finds an attack of either sort.
    let kinds: [(&str, &str, Score); 3] = [
        ("prompt_injection", "injection", |r| r.injection),
        ("jailbreak", "jailbreak", |r| r.jailbreak),
        ("both", "", |r| r.injection.max(r.jailbreak)),
    ];
    for (kind, label, of) in kinds {
        for threshold in THRESHOLDS {
            let attacks: Vec<&Row> =
                rows.iter().filter(|r| r.label == label || label.is_empty() && r.label != "benign").collect();
            let benign: Vec<&Row> = rows.iter().filter(|r| r.label == "benign").collect();
            let found = attacks.iter().filter(|r| of(r) >= threshold).count();
            let alarms = benign.iter().filter(|r| of(r) >= threshold).count();
            let precision = found as f64 / ((found + alarms) as f64).max(1.0);
            let recall = found as f64 / (attacks.len() as f64).max(1.0);
            println!(
                "| {kind} | {threshold} | {found} of {} | {alarms} of {} | {precision:.2} | {recall:.2} |",
                attacks.len(),
                benign.len()
            );
            table.push(json!({ "kind": kind, "threshold": threshold, "attacks": attacks.len(), "found": found,
                "benign": benign.len(), "false_alarms": alarms, "precision": precision, "recall": recall }));
            if misses && threshold == DEFAULT_THRESHOLD && kind == "both" {
                attacks.iter().filter(|r| of(r) < threshold).for_each(|r| println!("missed {:.2}: {}", of(r), r.text));
                benign.iter().filter(|r| of(r) >= threshold).for_each(|r| println!("alarm {:.2}: {}", of(r), r.text));
            }
        }
    }
    let bytes: usize = rows.iter().map(|r| r.text.len()).sum();
    println!("{:.2} ms for {} bytes, both kinds\n", seconds * 1e3, bytes);
    json!({ "file": name, "texts": rows.len(), "bytes": bytes, "table": table })
}

fn score_row(row: &Value) -> Row {
    let text = row["text"].as_str().unwrap_or_default();
    let place = match row["place"].as_str() {
        Some("tool_result") => TextPlace::ToolResult,
        Some("document") => TextPlace::Document,
        _ => TextPlace::User,
    };
    let of = |set| score(set, text, place).map_or(0.0, |s| s.score);
    Row {
        label: row["label"].as_str().unwrap_or_default().to_owned(),
        text: text.to_owned(),
        injection: of(HeuristicSet::PromptInjection),
        jailbreak: of(HeuristicSet::Jailbreak),
    }
}
