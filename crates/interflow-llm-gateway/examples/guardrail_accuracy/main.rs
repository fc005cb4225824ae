//! Measures the guardrail heuristics on labelled prompts, in the formats of `labelled.rs`:
//!
//! `guardrail_accuracy [--json OUT] [--misses] {[--source TEXT] [--label LABEL] FILE}…`
//!
//! `--source` names the origin, version and licence of the files after it, `--label` the label of their texts that have
//! none.

mod labelled;

use std::time::Instant;

use interflow_llm_gateway::guardrails::kinds::heuristics::{DEFAULT_THRESHOLD, HeuristicSet, score};
use labelled::{LabelledPrompt, PromptLabel, read_prompts};
use serde_json::{Value, json};

/// Thresholds of the table.
const THRESHOLDS: [f64; 4] = [0.4, DEFAULT_THRESHOLD, 0.65, 0.8];

struct Row {
    label: PromptLabel,
    text: String,
    injection: f64,
    jailbreak: f64,
}

/// A kind's score of a row.
type Score = fn(&Row) -> f64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut out, mut misses, mut source, mut label) = (None, false, None, None);
    let mut results = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => out = arguments.next(),
            "--misses" => misses = true,
            "--source" => source = arguments.next(),
            "--label" => label = arguments.next().as_deref().and_then(PromptLabel::from_name),
            file => match measure(file, label, source.as_deref(), misses) {
                Ok(result) => results.push(result),
                Err(problem) => {
                    eprintln!("{problem}");
                    std::process::exit(1);
                }
            },
        }
    }
    if let Some(out) = out {
        let text = serde_json::to_string_pretty(&results).expect("plain values");
        std::fs::write(out, text + "\n").expect("the file of the results can be written");
    }
}

fn measure(file: &str, label: Option<PromptLabel>, source: Option<&str>, misses: bool) -> Result<Value, String> {
    let content = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let prompts = read_prompts(file, &content, label)?;
    let begun = Instant::now();
    let rows: Vec<Row> = prompts.into_iter().map(score_row).collect();
    let seconds = begun.elapsed().as_secs_f64();
    let name = file.rsplit('/').next().unwrap_or(file);
    println!("{name}: {} texts", rows.len());
    println!("| kind | threshold | attacks found | false alarms | precision | recall |\n|---|---|---|---|---|---|");
    let mut table = Vec::new();
    // Together is how they are used: either finds an attack of either sort.
    let kinds: [(&str, Option<PromptLabel>, Score); 3] = [
        ("prompt_injection", Some(PromptLabel::Injection), |r| r.injection),
        ("jailbreak", Some(PromptLabel::Jailbreak), |r| r.jailbreak),
        ("both", None, |r| r.injection.max(r.jailbreak)),
    ];
    for (kind, label, of) in kinds {
        for threshold in THRESHOLDS {
            let benign: Vec<&Row> = rows.iter().filter(|r| r.label == PromptLabel::Benign).collect();
            let wanted = |r: &&Row| label.map_or(r.label != PromptLabel::Benign, |label| r.label == label);
            let attacks: Vec<&Row> = rows.iter().filter(wanted).collect();
            if attacks.is_empty() {
                continue;
            }
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
    let mut result = json!({ "file": name, "texts": rows.len(), "bytes": bytes, "table": table });
    if let Some(source) = source {
        result["source"] = source.into();
    }
    Ok(result)
}

fn score_row(prompt: LabelledPrompt) -> Row {
    let of = |set| score(set, &prompt.text, prompt.place).map_or(0.0, |s| s.score);
    let (injection, jailbreak) = (of(HeuristicSet::PromptInjection), of(HeuristicSet::Jailbreak));
    Row { label: prompt.label, text: prompt.text, injection, jailbreak }
}
